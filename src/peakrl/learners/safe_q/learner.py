"""SafeQ, the model-free learner: settings and tables (formulas: `learners.safe_q.kernel`)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.checks import LARGEST_PENALTY
from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions.assumptions import (
    Assumptions,
    Groups,
    check_max_reward,
    distribution_starts,
    distributions_of_rows,
    failed_groups,
    group_key,
    make_groups,
)
from peakrl.learners.assumptions.limits import allowed_rows
from peakrl.learners.base import (
    FINITE,
    Choices,
    Episode,
    LearnerSettings,
    SamplingAlgorithm,
    Sizes,
    Task,
    check_ranges,
    compiled,
    used,
)
from peakrl.learners.constants import levels, slater_penalty
from peakrl.learners.episode import Log
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES, Memory, Witness
from peakrl.learners.safe_q.kernel import (
    DEAD_FIRST,
    NO_FLOATS,
    PROVED,
    REMEMBERS,
    Options,
    Path,
    Tables,
    fill_slots,
    forget,
    learn_episodes,
    learn_played,
)
from peakrl.learners.space import Space, checked_rows
from peakrl.sampling import Words
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs

#: Largest count accepted from a file: counts have 31 bits, and learning goes on.
MOST_VISITS = 2**30
#: c of the adaptive step size: the number of recent errors that it averages.
ERROR_WINDOW = 5.0
NO_GROUPS = Groups(np.zeros(1, np.int32), np.zeros(2, np.int64), np.zeros(1, np.int32), np.zeros(1, np.int32))


class SafeQ(LearnerSettings):
    """Settings of the model-free learner: Q-learning with a memory of violations. Each part can be switched off."""

    #: Q starts at the largest possible return; otherwise at a level that follows from the penalty.
    tight_optimism: bool = True
    #: Never repeat an action that was observed to violate, or to lead to a dead end.
    constraint_memory: bool = True
    #: A transition updates every step, if the target is stationary.
    share_steps: bool = True
    #: Step sizes that separate trend from noise; otherwise (H+1)/(H+t).
    adaptive_steps: bool = True
    #: Try actions again, ever more rarely, that may be better than their estimate.
    trials: bool = True
    #: Violations up to the slack are not penalised, if violations are not remembered.
    slack: float = Field(default=0.0, ge=0)
    #: Penalty weight; by default from the slack or, without slack, from 1 % of the tightest constraint bound.
    penalty: float | None = Field(default=None, ge=0, le=LARGEST_PENALTY)

    def make(self, task: Task) -> SafeQLearner:
        """Return the algorithm for a target."""
        return SafeQLearner(task, self)

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if distributions are declared to be shared: their number is known on models only."""
        if assumptions.shared_transitions:
            raise SettingsError(
                "shared_transitions is declared, but SafeQ shares distributions on models only: leave it out"
            )

    def penalty_of(self, sizes: Sizes) -> float:
        """Return the penalty weight, used if violations are not remembered."""
        if self.penalty is not None:
            return self.penalty
        slater = self.slack / 2 if self.slack > 0 else 0.01 * min(sizes.constraint_bounds, default=1.0)
        return slater_penalty(slater, sizes, sizes.span)


class SafeQLearner(SamplingAlgorithm):
    """SafeQ: learns backwards from an episode when it is over."""

    checks_rows = True

    def __init__(self, task: Task, settings: SafeQ) -> None:
        super().__init__(task)
        check_declarations(task, settings)
        self.settings, self.depends_on = settings, task.assumptions.constraint_depends_on
        self.starts_first = self.depends_on is None
        self.shares_steps = settings.share_steps and self.space.shared
        self.slack, self.penalty = settings.slack, settings.penalty_of(task.sizes)
        self.start = levels(
            "tight" if settings.tight_optimism else "stepwise", task.sizes, self.penalty, task.assumptions.max_reward
        ).start
        self.lowest = task.sizes.reward_range[0]
        columns, counted = self.columns, 1 if self.shares_steps else self.columns
        self.distribution_of_row = distributions_of_rows(task.model, task.assumptions)
        distributions = int(self.distribution_of_row.max()) + 1 if self.distribution_of_row.size else 0
        self.by_distribution = distributions > 0
        self.by_slot = {
            "w": Table(0.0, np.float64, columns + int(self.space.shared)),
            "greedy": Table(0, np.int64, columns),
        } | ({"met": Table(0, np.int32)} if settings.trials else {})
        self.by_row = {
            "q": Table(0.0, np.float64, columns),
            "max_violation": Table(0.0, np.float64),
            "witness": Table(NO_WITNESS, np.int32, columns),
        } | ({"reward": Table(0.0, np.float64), "tried": Table(0, np.int32)} if self.by_distribution else {})
        #: By row, or by distribution if distributions are shared.
        self.by_place = {"visits": Table(0, np.int32, counted)}
        if settings.adaptive_steps:
            self.by_place["errors"] = Table(0.0, np.float64, counted, 3)
        if settings.trials:
            self.by_place["square"] = Table(0.0, np.float64, counted)
        self.fixed: dict[str, NDArray[Any]] = {
            "status": np.array([int(settings.constraint_memory), 0, 0], np.int64),
            "x": np.empty((distributions, columns)),
            "distribution_witness": np.full((distributions, columns), NO_WITNESS, np.int32),
        }
        #: [slot]: initial value if slots belong to steps.
        self.slot_start = Table(0.0, np.float64)
        #: Largest violation by the key that the constraints are declared to depend on.
        self.failed: dict[Hashable, float] = {}
        self._groups: Groups | None = None
        self.before = np.empty(columns, np.int64)
        self.payoff = np.zeros((task.sizes.horizon, 4))
        self.path = Path(*(np.arange(task.sizes.horizon) for _ in range(4)))
        if task.model is not None:
            self.payoff = payoff_records(task.model, self.slack, self.penalty)

    # Tables --------------------------------------------------------------------------------------------------

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new entries start optimistic."""
        space = self.space
        new_row = len(self.by_row["q"].used)
        for table in (*self.by_slot.values(), self.slot_start):
            table.grow(space.slots)
        for table in self.by_row.values():
            table.grow(space.rows)
        for table in self.by_place.values():
            table.grow(len(self.fixed["x"]) or space.rows)
        if not space.shared:
            self.slot_start.room[first : space.slots] = self.start[space.slot_step[first:]]
        self._groups = None
        self._gather()
        if first == 0:
            forget(self.tables, self.options)
            self._fill_ends()
        fill_slots(self.layout, self.tables, self.options, max(first, space.ends))
        if self.task.model is None and self.depends_on is not None:
            self._join_groups(new_row, log)

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Treat what is declared to fail as known to fail."""
        tables, rows = self.tables, slice(first, first + len(forbidden))
        tables.q[rows][forbidden] = -np.inf
        tables.witness[rows][forbidden & (tables.witness[rows] == NO_WITNESS)] = DECLARED
        tables.max_violation[rows] = np.maximum(tables.max_violation[rows], max_violation)
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        best, counts = allowed_rows(self.layout.row_start[low:], forbidden, first)
        tables.greedy[low : self.space.slots] = np.where(best >= 0, best, tables.greedy[low : self.space.slots])
        dead = (counts == 0) & (np.diff(self.layout.row_start[low:]) > 0)[:, None]
        tables.w[low : self.space.slots, : self.columns][dead] = -np.inf

    def _gather(self) -> None:
        """Collect the arrays for the kernels; growing may have reallocated them."""
        space, shared = self.space, self.space.shared
        self.layout = space.layout
        grown = {**self.by_slot, **self.by_row, **self.by_place}
        rooms: dict[str, Any] = {name: table.room for name, table in grown.items()}
        self.tables = Tables(**{"errors": np.empty((0, 1, 3)), **rooms, **self.fixed})
        start = self.start if shared else self.slot_start.room
        distributions = NO_FLOATS
        most = float(self.start[-1])
        if self.by_distribution:
            distributions = distribution_starts(
                space, self.distribution_of_row, (self.start if shared else self.slot_start.room) - most
            )
        reserve = (
            self.log_room if self.task.model is not None else 0
        )  # episodes of environments extend the log themselves
        offset = ERROR_WINDOW if self.settings.adaptive_steps else float(self.task.sizes.horizon)
        self.options = Options(
            int(shared), self.shares_steps, offset, start, reserve, space.ends,
            most, distributions,
        )  # fmt: skip

    def _fill_ends(self) -> None:
        """Set the value of an early end: the remaining steps have reward 0."""
        left = np.arange(self.space.horizon, -1, -1) * (0.0 - self.lowest)
        if self.space.shared:
            self.tables.w[: self.space.ends] = left
        elif self.space.ends:
            self.tables.w[: self.space.ends, 0] = left

    @property
    def log_room(self) -> int:
        """A step may change its columns and, by a violation, those of its group; a proof changes all."""
        largest = self.largest_group
        return self.task.sizes.horizon * self.columns * (1 + largest) + self.space.slots * (
            self.columns + int(self.space.shared)
        )

    @property
    def largest_group(self) -> int:
        """Largest number of rows that one violation forbids."""
        return 1 if self.depends_on is None else int(np.diff(self.groups.start).max(initial=0))

    @property
    def groups(self) -> Groups:
        """Rows that are declared to have the same constraints."""
        if self._groups is None:
            self._groups = make_groups(self.space, self.depends_on, self.task.model)._replace(
                distribution_of_row=self.distribution_of_row
            )
        return self._groups

    def _join_groups(self, first: int, log: Log) -> None:
        """Forbid rows of new slots whose group is known to violate."""
        space, tables = self.space, self.tables
        for row in range(first, space.rows):
            key = group_key(self.space, self.depends_on, row)
            if key in self.failed and tables.status[REMEMBERS]:
                tables.q[row] = -np.inf
                tables.max_violation[row] = self.failed[key]
                tables.witness[row] = VIOLATES
        for slot in np.unique(space.slot_of_row[first:]).tolist():
            low, high = int(self.layout.row_start[slot]), int(self.layout.row_start[slot + 1])
            q = tables.q[low:high]
            tables.w[slot, : q.shape[1]] = q.max(axis=0)
            best = np.where(q.max(axis=0) > -np.inf, q.argmax(axis=0), tables.max_violation[low:high].argmin())
            tables.greedy[slot] = low + best
            columns = np.flatnonzero(best)
            log.extend(columns * self.layout.node_stride + slot, low + best[columns])

    # Learning ------------------------------------------------------------------------------------------------

    def choices(self) -> Choices:
        """The greedy rows."""
        return Choices.by_column(self.tables.greedy)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode, the last transition first."""
        length, tables = played.length, self.tables
        path, payoff = self.path, self.payoff
        path.slot[:length], path.row[:length] = played.slot[:length], played.row[:length]
        path.following[:length] = played.following[:length]
        reward, violation = played.reward[:length], played.violation[:length]
        payoff[:length, 0] = reward - self.lowest
        payoff[:length, 1] = played.modified_reward(self.slack, self.penalty) - self.lowest
        payoff[:length, 2], payoff[:length, 3] = reward, violation
        remembers = bool(tables.status[REMEMBERS])
        if not remembers:
            np.maximum.at(tables.max_violation, played.row[:length], violation)
        elif self.depends_on is not None:
            for step in np.flatnonzero(violation > 0).tolist():
                key = group_key(self.space, self.depends_on, int(played.row[step]))
                self.failed[key] = max(self.failed.get(key, 0.0), float(violation[step]))
        groups = self.groups if remembers and violation.any() else NO_GROUPS  # otherwise unused
        learn_played(self.layout, payoff, tables, groups, self.options, path, self.before, length, episode, log)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full."""
        model = compiled(self.task)
        return learn_episodes(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
            self.tables, self.groups, self.options, self.path, self.before,
            generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    # Results -------------------------------------------------------------------------------------------------

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the greedy rows."""
        return self.by_slot["greedy"].used.copy()

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the row of the largest Q; what is known to fail only if there is nothing else."""
        return best_rows(self.space, self.by_row["q"].used, self.by_row["max_violation"].used)

    def visits(self) -> Longs:
        """[row]: visits, since the proof of infeasibility if there is one."""
        counts = self.by_row["tried"].used[:, None] if self.by_distribution else self.by_place["visits"].used
        return np.asarray(counts.sum(axis=1, dtype=np.int64))

    def values(self) -> Floats:
        """[entry]: the Q-table; minus infinity for actions that are known to fail."""
        return self.space.entries_of(self.by_row["q"].used)

    def known(self) -> NDArray[np.int8]:
        """[entry]: what is known to violate, or to lead to a dead end."""
        return self.memory().known(self.space, all_violations=self.task.model is None)

    def memory(self) -> Memory:
        """What is known to fail, and why."""
        return Memory(self.by_row["witness"].used, self.by_row["max_violation"].used)

    def feasible(self) -> bool | None:
        """False if every action of a first state is known to fail."""
        return False if self.tables.status[PROVED] else None

    @property
    def proved_in(self) -> int | None:
        """The episode that completed the proof of infeasibility."""
        return int(self.tables.status[PROVED]) or None

    def forbidden(self) -> NDArray[np.bool_]:
        """[row, column]: what is known to fail."""
        known: NDArray[np.bool_] = self.by_row["witness"].used != NO_WITNESS
        return known

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        return self.memory().proof(self.space, int(self.tables.status[DEAD_FIRST])) if self.proved_in else []

    @property
    def remembers(self) -> bool:
        """Are violations remembered, not penalised?"""
        return bool(self.tables.status[REMEMBERS])

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return used({**self.by_slot, **self.by_row, **self.by_place}) | self.fixed

    def check(self, done: int) -> None:
        """Raise if a row, a witness or a number is out of range; restore what is known about groups."""
        arrays, last = self.arrays(), self.space.slots - 1
        checked_rows(self.space, arrays["greedy"], self.columns, "engine.greedy")
        counted = (0, min(done * self.space.horizon, MOST_VISITS))
        check_ranges(
            arrays,
            {"witness": (DECLARED, last), "distribution_witness": (NO_WITNESS, last), "errors": (-FINITE, FINITE)}
            | dict.fromkeys(("visits", "tried", "met"), counted)
            | dict.fromkeys(("q", "w", "x"), (-np.inf, FINITE))
            | dict.fromkeys(("max_violation", "square"), (0.0, FINITE))
            | {"reward": (-FINITE, FINITE)},
        )
        remembers, proved, dead = self.fixed["status"].tolist()
        if remembers not in (0, 1) or not 0 <= proved <= done or not 0 <= dead <= last:
            raise ValueError("engine.status: a number is out of range")
        if self.depends_on is not None and self.task.model is None:
            self.failed = failed_groups(self.space, self.depends_on, arrays["max_violation"])


def check_declarations(task: Task, settings: SafeQ) -> None:
    """Raise for declarations that are false, or that the settings cannot use."""
    assumptions = task.assumptions
    if assumptions.max_reward is not None and not (settings.constraint_memory and settings.tight_optimism):
        raise SettingsError("max_reward needs tight_optimism and constraint_memory")
    if assumptions.constraint_depends_on is not None and not settings.constraint_memory:
        raise SettingsError("constraint_depends_on needs constraint_memory")
    check_max_reward(task.model, assumptions.max_reward)


def payoff_records(model: TabularModel, slack: float, penalty: float) -> Floats:
    """[record, 4]: r - lo, r - lo minus the penalty, reward, total violation."""
    plain = model.payoffs.reward - model.reward_range[0]
    penalised = model.modified_rewards(slack, penalty) - model.reward_range[0]
    return np.stack([plain, penalised, model.payoffs.reward, model.record_violation], axis=1)


def best_rows(space: Space, values: Floats, max_violation: Floats) -> NDArray[np.int64]:
    """[slot, column]: the row of the largest value; if all are -inf, of least violation; ties to the lowest."""
    start = space.layout.row_start
    rows = np.repeat(start[:-1, None], values.shape[1], axis=1)
    sizes = np.diff(start)
    offering = np.flatnonzero(sizes > 0)
    best, least = values[start[offering]], np.repeat(max_violation[start[offering], None], values.shape[1], axis=1)
    for number in range(1, int(sizes.max(initial=0))):  # the second action of every slot that has one, the third ...
        some = np.flatnonzero(sizes[offering] > number)
        row = start[offering[some]] + number
        value, hurt = values[row], max_violation[row, None]
        better = (value > best[some]) | ((best[some] == -np.inf) & (value == -np.inf) & (hurt < least[some]))
        best[some], least[some] = np.where(better, value, best[some]), np.where(better, hurt, least[some])
        rows[offering[some]] = np.where(better, row[:, None], rows[offering[some]])
    return rows
