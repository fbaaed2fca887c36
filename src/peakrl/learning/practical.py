"""The practical learner on a model: tables, groups of rows, the kernel's call (formulas: `kernels.practical`)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import SettingsError
from peakrl.kernels.arrays import Floats, Ints, Longs
from peakrl.kernels.learning import Log
from peakrl.kernels.practical import fill_practical, learn_practical
from peakrl.kernels.practical_tables import (
    DEAD_FIRST,
    NO_FLOATS,
    NO_WITNESS,
    PROVED,
    REMEMBERS,
    VIOLATES,
    Groups,
    Options,
    Path,
    PracticalTables,
)
from peakrl.kernels.sampling import Words
from peakrl.learning.algorithm_one import sizes_of
from peakrl.learning.settings import Dependence, LearnerSettings, resolve
from peakrl.model.tabular import TabularModel
from peakrl.policy.export import DEAD_END, UNKNOWN, VIOLATED

#: c of the adaptive step size: how many of the latest errors weigh on it.
ERROR_WINDOW = 5.0
#: Relative difference that a declared reward may be off by.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Witness:
    """One line of a proof of infeasibility: an action that was seen to fail."""

    step: int
    state: Hashable
    action: Hashable
    #: The violation seen, or the state it led to from which no action is left.
    violation: float | None
    dead_state: Hashable | None

    def __str__(self) -> str:
        seen = f"violates by {self.violation:g}" if self.violation is not None else f"leads to {self.dead_state!r}"
        return f"step {self.step}, state {self.state!r}, action {self.action!r} {seen}"


class Practical:
    """The practical learner, ready to run episodes."""

    def __init__(self, model: TabularModel, settings: LearnerSettings, episodes: int) -> None:
        self.model, self.settings = model, settings
        self.share = shares_steps(model, settings)
        self.constants = resolve(settings, sizes_of(model), episodes)
        self.columns = model.horizon if model.stationary else 1
        counted = 1 if self.share else self.columns
        rows, slots = model.num_rows, model.num_slots
        law_of_row = laws_of_rows(model, settings)
        laws = int(law_of_row.max()) + 1 if law_of_row.size else 0
        places = laws or rows
        cell_start = cells(model, law_of_row) if settings.replay else np.zeros(1, np.int64)
        looks = settings.second_looks and not settings.replay
        self.tables = PracticalTables(
            q=np.empty((rows, self.columns)),
            visits=np.empty((places, counted), np.int32),
            w=np.empty((slots, self.columns + int(model.stationary))),
            greedy=np.empty((slots, self.columns), np.int64),
            errors=np.empty((places if settings.adaptive_steps else 0, counted, 3)),
            harm=np.zeros(rows),
            witness=np.full((rows, self.columns), NO_WITNESS, np.int32),
            status=np.array([int(settings.constraint_memory), 0, 0], np.int64),
            x=np.empty((laws, self.columns)),
            law_witness=np.full((laws, self.columns), NO_WITNESS, np.int32),
            reward=np.zeros(rows if laws else 0),
            tried=np.zeros(rows if laws else 0, np.int32),
            seen=np.zeros(laws if settings.replay else 0, np.int32),
            cell_next=np.zeros(cell_start[-1], np.int32),
            cell_count=np.zeros(cell_start[-1], np.int32),
            look=np.empty(slots if looks else 0, np.int64),
            latest_next=np.empty((places if looks else 0, counted), np.int32),
            latest_reward=np.empty((places if looks else 0, counted)),
            noise=np.empty(2 if looks else 0),
        )
        check_most_reward(model, settings.most_reward)
        self.groups = make_groups(model, settings.constraint_depends_on)
        largest = int(np.diff(self.groups.start).max())
        self.groups = self.groups._replace(law_of_row=law_of_row, cell_start=cell_start)
        start = self.constants.start if model.stationary else self.constants.start[steps_of_slots(model)]
        most = float(self.constants.start[-1])
        self.options = Options(
            shift=int(model.stationary),
            share=self.share,
            offset=ERROR_WINDOW if settings.adaptive_steps else float(model.horizon),
            start=start,
            reserve=model.horizon * self.columns * (1 + largest) + model.num_nodes,
            most=most,
            law_start=law_starts(model, law_of_row, start - most) if laws else NO_FLOATS,
            sums=np.empty((2, self.columns)),
        )
        fill_practical(model.layout, self.tables, self.options)
        self.payoff = practical_payoffs(model, settings.slack, self.constants.penalty)
        self.path = Path(*(np.empty(model.horizon, np.int64) for _ in range(4)))
        self.before = np.empty(self.columns, np.int64)

    @property
    def log_room(self) -> int:
        """Room in the change list that one episode may need."""
        return self.options.reserve

    def run(
        self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs
    ) -> tuple[int, int]:
        """Run some episodes, fewer where the log fills up; return their number and that of the logged changes."""
        model = self.model
        return learn_practical(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
            self.tables, self.groups, self.options, self.path, self.before,
            generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    def rows(self) -> Ints:
        """[node]: the greedy rows as they stand."""
        if not self.model.stationary:
            return self.tables.greedy[:, 0].astype(np.int32)
        after = np.zeros((1, self.model.num_slots), np.int64)
        return np.concatenate([self.tables.greedy.T, after]).ravel().astype(np.int32)

    def values(self) -> Floats:
        """[entry]: the Q-table; minus infinity where an action is known to fail."""
        return self.tables.q.T.ravel()

    def known(self) -> NDArray[np.int8]:
        """[entry]: what has been seen to violate, or to lead where only violations are left."""
        witness = self.tables.witness.T.ravel()
        known = np.where(witness == NO_WITNESS, UNKNOWN, np.where(witness == VIOLATES, VIOLATED, DEAD_END))
        return known.astype(np.int8)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name, for a checkpoint."""
        return dict(self.tables._asdict())

    def feasible(self) -> bool | None:
        """False when the first state has been seen to leave no way out."""
        return False if self.tables.status[PROVED] else None

    @property
    def proved_in(self) -> int | None:
        """The episode that ended the proof of infeasibility."""
        return int(self.tables.status[PROVED]) or None

    def forbidden(self) -> NDArray[np.bool_]:
        """[row, column]: what has been seen to fail."""
        known: NDArray[np.bool_] = self.tables.witness != NO_WITNESS
        return known

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        status = self.tables.status
        if not status[PROVED]:
            return []
        model, lines = self.model, []
        queue = [(0, int(status[DEAD_FIRST]))]
        seen = set(queue)
        for step, slot in queue:
            column = step if model.stationary else 0
            for row in model.rows_of_slot(slot):
                witness = int(self.tables.witness[row, column])
                violates = witness == VIOLATES
                lines.append(
                    Witness(
                        step,
                        model.state_of_slot(slot),
                        model.action_of_row(row),
                        float(self.tables.harm[row]) if violates else None,
                        None if violates else model.state_of_slot(witness),
                    )
                )
                if not violates and (step + 1, witness) not in seen:
                    seen.add((step + 1, witness))
                    queue.append((step + 1, witness))
        return lines

    @property
    def remembers(self) -> bool:
        """Is the memory of constraints in force?"""
        return bool(self.tables.status[REMEMBERS])


def shares_steps(model: TabularModel, settings: LearnerSettings) -> bool:
    """Does one transition teach every step? Only where the model says that nothing depends on the step."""
    if settings.share_steps and not model.stationary:
        raise SettingsError(
            f"share_steps is True, but in {model.name!r} states belong to steps: its dynamics depend on the step, "
            "or no state comes back at another one. Leave share_steps out"
        )
    if settings.replay and model.stationary and settings.share_steps is False:
        raise SettingsError("replay remembers transitions for all steps alike: it needs share_steps")
    return model.stationary if settings.share_steps is None else settings.share_steps


def steps_of_slots(model: TabularModel) -> NDArray[np.int64]:
    """[slot]: the step of each slot of a layered model; the last step for those met only after it."""
    steps = np.full(model.num_slots, model.horizon - 1)
    for step, (first, last) in enumerate(model.layout.step_slots.tolist()):
        steps[first:last] = step
    return steps


def laws_of_rows(model: TabularModel, settings: LearnerSettings) -> Ints:
    """[row]: its law of the next state, as stored or each its own; nothing where laws are not learned."""
    if settings.share_outcomes:
        return model.layout.row_distribution.astype(np.int32)
    return np.arange(model.num_rows if settings.replay else 0, dtype=np.int32)


def cells(model: TabularModel, law_of_row: Ints) -> Longs:
    """[law + 1]: where the cells of each law begin; it has one for each next state that may be seen."""
    sizes = np.zeros(int(law_of_row.max()) + 1, np.int64)
    sizes[law_of_row] = np.diff(model.layout.outcome_start)[model.layout.row_distribution]
    return np.concatenate([[0], np.cumsum(sizes)])


def law_starts(model: TabularModel, law_of_row: Ints, start: Floats) -> Floats:
    """[law, column]: the optimistic start of what follows, from `start` by column or, in a layered model, by slot."""
    laws = int(law_of_row.max()) + 1
    if model.stationary:
        return np.tile(start, (laws, 1))
    by_law = np.zeros((laws, 1))
    slot_of_row = np.repeat(np.arange(model.num_slots), np.diff(model.layout.row_start))
    # All rows of a law belong to one step: their next slots do.
    by_law[law_of_row, 0] = start[slot_of_row]
    return by_law


def make_groups(model: TabularModel, depends_on: Dependence | None) -> Groups:
    """Group the rows whose constraints are declared to be the same; a declaration that is wrong is an error."""
    slot_of_row = np.repeat(np.arange(model.num_slots), np.diff(model.layout.row_start))
    state = model.slot_state[slot_of_row].astype(np.int64)
    if depends_on is None:
        key = np.arange(model.num_rows)
    elif depends_on == "pair":
        key = state * len(model.action_labels) + model.row_action
    else:
        key = state if depends_on == "state" else model.row_action.astype(np.int64)
    _, group = np.unique(key, return_inverse=True)
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(group.max() + 2))
    fails: NDArray[np.bool_] = np.any(model.row_margin < 0, axis=1)
    mixed = np.flatnonzero(fails != fails[order[start[:-1]]][group])
    if mixed.size:
        row, other = int(mixed[0]), int(order[start[group[mixed[0]]]])
        raise SettingsError(
            f'constraint_depends_on is "{depends_on}", but the constraints tell apart '
            f"{pair_label(model, slot_of_row, row)} and {pair_label(model, slot_of_row, other)}"
        )
    return Groups(group.astype(np.int32), start.astype(np.int64), order.astype(np.int32), slot_of_row.astype(np.int32))


def check_most_reward(model: TabularModel, most_reward: float | None) -> None:
    """Raise where a pair that never violates earns more than declared."""
    if most_reward is None:
        return
    above = (model.row_margin >= 0).all(axis=1) & (model.row_reward > most_reward + ROUNDING * abs(most_reward))
    if above.any():
        row = int(np.flatnonzero(above)[0])
        slot_of_row = np.repeat(np.arange(model.num_slots), np.diff(model.layout.row_start))
        raise SettingsError(
            f"most_reward is {most_reward}, but {pair_label(model, slot_of_row, row)} earns {model.row_reward[row]:g} "
            "without a violation"
        )


def pair_label(model: TabularModel, slot_of_row: NDArray[np.int64], row: int) -> str:
    """Return 'state s, action a' of a row."""
    return f"state {model.state_of_slot(int(slot_of_row[row]))!r}, action {model.action_of_row(row)!r}"


def practical_payoffs(model: TabularModel, slack: float, penalty: float) -> Floats:
    """[record, 4]: reward above the range's lower end, the same less the penalty, plain reward, total violation."""
    plain = model.payoffs.reward - model.reward_range[0]
    penalised = model.modified_rewards(slack, penalty) - model.reward_range[0]
    violation = np.maximum(-model.payoffs.constraints, 0.0).sum(axis=1)
    return np.stack([plain, penalised, model.payoffs.reward, violation], axis=1)
