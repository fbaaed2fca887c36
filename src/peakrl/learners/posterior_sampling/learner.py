"""Posterior sampling: settings and tables (formulas: `learners.posterior_sampling.kernel`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.errors import SettingsError
from peakrl.learners.assumptions import (
    NO_GROUPS,
    allowed_rows,
    check_max_reward,
    distributions_of_rows,
    known_violations,
    make_groups,
)
from peakrl.learners.base import (
    Choices,
    Episode,
    LearnerSettings,
    SamplingAlgorithm,
    Task,
    check_ranges,
    compiled,
    used,
)
from peakrl.learners.counts import check_lists, check_starts
from peakrl.learners.coverage import Outcomes, collect
from peakrl.learners.episode import Log
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES, Memory, Witness
from peakrl.learners.posterior_sampling.kernel import (
    CELLS,
    DEAD_FIRST,
    EPISODES,
    NO_CELL,
    NO_SLOT,
    PROVED,
    STATUS_SIZE,
    Counts,
    Path,
    Places,
    Plan,
    Rules,
    judge_all,
    learn_played,
    learn_posterior,
    make_plan,
)
from peakrl.learners.space import checked_rows
from peakrl.learners.tables import FINITE
from peakrl.planning.backward import LEAST_COST
from peakrl.sampling import Words, seed_state
from peakrl.types import Floats, Longs

#: Work of plans that is allowed in addition to twice the work of the episodes: well under a second.
CREDIT = 100_000_000
#: Separates the learner's random stream from that of the target's outcomes.
STREAM = np.uint64(0x706F73746572696F)


class PosteriorSampling(LearnerSettings):
    """Settings of posterior sampling, the default: it follows a plan on transition probabilities drawn from counts.

    Among the policies of least known violation, the plan takes the best one. The learned policy is the plan on plain
    means.
    """

    #: Prior weight of an optimistic pseudo-outcome, which earns as much as possible; more of it explores more.
    optimism: float = Field(default=0.05, gt=0, le=1)
    #: All pairs are drawn again when the number of episodes has grown by this share.
    replan_growth: float = Field(default=0.005, gt=0, le=1)

    def make(self, task: Task) -> PosteriorLearner:
        """Return the algorithm for a target."""
        return PosteriorLearner(task, self)


class PosteriorLearner(SamplingAlgorithm):
    """Counted outcomes, and the plan with the latest draw."""

    checks_rows = True

    def __init__(self, task: Task, settings: PosteriorSampling) -> None:
        super().__init__(task)
        check_max_reward(task.model, task.assumptions.max_reward)
        self.settings, self.depends_on = settings, task.assumptions.constraint_depends_on
        self.starts_first = self.depends_on is None
        self.shares_steps = self.space.shared
        self.grouping = task.assumptions.shared_transitions
        if task.model is None and self.grouping is True:
            raise SettingsError(
                "shared_transitions is True, but an environment has none: pass a function (step, state, action)"
            )
        lo, hi = task.sizes.reward_range
        hi = hi if task.assumptions.max_reward is None else min(hi, task.assumptions.max_reward)
        left = np.arange(task.sizes.horizon, -1, -1.0)
        self.most, self.least = hi * left, lo * left
        shared = int(self.space.shared)
        self.by_slot = {
            "value": Table(0.0, np.float64, self.columns + shared),
            "cost": Table(0.0, np.float64, self.columns + shared),
            "row": Table(0, np.int64, self.columns), "begun": Table(0, np.int64),
        }  # fmt: skip
        self.by_row = {
            "tried": Table(0, np.int64), "row_reward": Table(0.0, np.float64), "row_cost": Table(0.0, np.float64),
            "max_violation": Table(0.0, np.float64),
        }  # fmt: skip
        self.by_distribution = {
            "head": Table(NO_CELL, np.int32), "kinds": Table(0, np.int32), "visits": Table(0, np.int64),
            "drawn": Table(0, np.int64), "optimism": Table(1.0, np.float64),
        }  # fmt: skip
        self.by_cell = {
            "cell_next": Table(0, np.int32), "cell_link": Table(NO_CELL, np.int32), "cell_count": Table(0, np.int64),
            "cell_reward": Table(0.0, np.float64), "cell_cost": Table(0.0, np.float64),
            "cell_weight": Table(0.0, np.float64),
        }  # fmt: skip
        self.status: Longs = np.zeros(STATUS_SIZE, np.int64)
        self.words: Words = seed_state(np.uint64(task.seed) ^ STREAM)
        self.distributions = Table(0, np.int32)
        #: The slots of a step as a linked list: [slot] the next; [step] the first, and the last.
        self.links = Table(NO_SLOT, np.int64)
        self.heads, self._tails = (np.full(task.sizes.horizon, NO_SLOT, np.int64) for _ in range(2))
        #: [row, column]: declared to fail; unused if nothing is declared.
        self.forbidden = Table(False, np.bool_, self.columns)
        self._distribution_numbers: dict[Hashable, int] = {}
        self._group_size: int | None = None
        horizon = task.sizes.horizon
        slot, row, following = (np.zeros(horizon, np.int64) for _ in range(3))
        self.path = Path(slot, row, following, np.zeros(horizon), np.zeros(horizon))
        self._decision: tuple[int, Plan] | None = None
        if task.model is not None:
            violation = np.maximum(-task.model.payoffs.constraints, 0.0).sum(axis=1)
            self.payoff = np.stack([task.model.payoffs.reward, violation], axis=1)

    # Tables --------------------------------------------------------------------------------------------------

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new entries start optimistic."""
        space = self.space
        new_row = self.by_row["max_violation"].size
        for table in (*self.by_slot.values(), self.links):
            table.grow(space.slots)
        for table in (*self.by_row.values(), self.distributions):
            table.grow(space.rows)
        self._number_distributions(new_row)
        distributions = len(self._distribution_numbers) if self.grouping else space.rows
        for table in self.by_distribution.values():
            table.grow(distributions)
        self._reserve_cells()
        start = space.layout.row_start
        value, row = self.by_slot["value"].room, self.by_slot["row"].room
        offers = np.flatnonzero(np.diff(start[first:])) + first
        self._link(first)
        row[first : space.slots] = start[first:-1, None]
        value[offers] = self.most if space.shared else self.most[space.slot_step[offers], None]
        if space.shared:
            value[offers, -1] = 0.0
        if self.depends_on is not None and self.task.model is None:
            known = self.by_row["max_violation"].used
            known[new_row:] = known_violations(space, self.depends_on, known, new_row)
            self._begin_with_others(first, log)
        self._gather()

    def _link(self, first: int) -> None:
        """Append the slots from `first` on to the lists of their steps, unless steps share slots."""
        if self.space.shared:
            return
        link, steps = self.links.room, self.space.slot_step[first:]
        order = np.argsort(steps, kind="stable")
        slots, steps = first + order, steps[order]
        fresh = np.append(True, steps[1:] != steps[:-1])[: len(steps)]
        link[slots[:-1][~fresh[1:]]] = slots[1:][~fresh[1:]]
        tails = self._tails[steps[fresh]]
        link[tails[tails != NO_SLOT]] = slots[fresh][tails != NO_SLOT]
        self.heads[steps[fresh][tails == NO_SLOT]] = slots[fresh][tails == NO_SLOT]
        self._tails[steps] = slots  # the last one of each step

    def _begin_with_others(self, first: int, log: Log) -> None:
        """Start the slots from `first` on with a row that is not known to fail, if there is one, and log it."""
        space, start, max_violation = self.space, self.space.layout.row_start, self.by_row["max_violation"].room
        for slot in range(first, space.slots):
            good = np.flatnonzero(max_violation[start[slot] : start[slot + 1]] == 0.0)
            if not good.size or good[0] == 0:
                continue
            self.by_slot["row"].room[slot] = chosen = start[slot] + good[0]
            log.extend(np.arange(self.columns) * space.layout.node_stride + slot, chosen)

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Treat what is declared to fail as known to fail."""
        self.forbidden.grow(self.space.rows)
        self.forbidden.room[first : self.space.rows] = forbidden
        self.by_row["max_violation"].room[first : self.space.rows] = np.maximum(
            self.by_row["max_violation"].room[first : self.space.rows], max_violation
        )
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        best, counts = allowed_rows(self.space.layout.row_start[low:], forbidden, first)
        row = self.by_slot["row"].room[low : self.space.slots]
        row[:] = np.where(best >= 0, best, row)
        dead = (counts == 0) & (np.diff(self.space.layout.row_start[low:]) > 0)[:, None]
        self.by_slot["cost"].room[low : self.space.slots, : self.columns][dead] = LEAST_COST
        self._gather()

    def _number_distributions(self, new_row: int) -> None:
        """Number the distributions of the new rows: each its own, or that of its group."""
        space, model = self.space, self.task.model
        if not self.grouping:
            self.distributions.room[new_row : space.rows] = np.arange(new_row, space.rows)
        elif model is not None:
            self.distributions.room[: space.rows] = distributions_of_rows(model, self.task.assumptions)
            self._distribution_numbers = {number: number for number in range(int(self.distributions.used.max()) + 1)}
        elif callable(self.grouping):
            for row in range(new_row, space.rows):
                slot = int(space.slot_of_row[row])
                step = 0 if space.shared else int(space.slot_step[slot])
                key = (step, self.grouping(step, space.state_of_slot(slot), space.action_of_row(row)))
                self.distributions.room[row] = self._distribution_numbers.setdefault(
                    key, len(self._distribution_numbers)
                )

    def _reserve_cells(self) -> bool:
        """Ensure capacity for the outcomes of one more episode; return whether the tables grew."""
        needed = int(self.status[CELLS]) + self.space.horizon
        if needed <= len(self.by_cell["cell_next"].room):
            return False
        for table in self.by_cell.values():
            table.grow(needed)
        return True

    def _gather(self) -> None:
        """Collect the arrays for the kernels; growing may have reallocated them."""
        space, settings = self.space, self.settings
        rooms = {name: table.room for name, table in {**self.by_distribution, **self.by_row, **self.by_cell}.items()}
        rooms |= {name: table.used for name, table in self.by_distribution.items()} | {
            "begun": self.by_slot["begun"].room
        }
        self.counts = Counts(status=self.status, words=self.words, **rooms)
        self.plan = Plan(*(self.by_slot[name].room for name in ("value", "cost", "row")))
        steps = np.zeros(1, np.int64) if space.shared else space.slot_step
        groups = NO_GROUPS
        if self.depends_on is not None and self.task.model is not None:
            groups = make_groups(space, self.depends_on, self.task.model)
        self._group_size = int(np.diff(groups.start).max(initial=1))
        # A copy: the array of a model is read-only, which would compile another specialisation.
        self.places = Places(
            space.horizon, int(space.shared), space.layout.node_stride, np.array(space.layout.row_start),
            space.slot_of_row,
            self.distributions.room, steps, self.heads, self.links.room, *groups,
            self.forbidden.room,
        )  # fmt: skip
        self.rules = Rules(
            self.most, self.least, bool(self.grouping), settings.optimism, settings.replan_growth, CREDIT,
            self.log_room if self.task.model is not None else 0,
        )  # fmt: skip

    @property
    def log_room(self) -> int:
        """A plan may change every node, a violation every step of the states of its group, a path its steps."""
        largest = self._group_size or 1
        if self.task.model is None and self.depends_on is not None:
            largest = self.space.rows
        horizon, columns = self.task.sizes.horizon, self.columns
        return columns * self.space.slots + horizon * (1 + columns * largest)

    # Learning ------------------------------------------------------------------------------------------------

    def choices(self) -> Choices:
        """The plan with the latest draw."""
        return Choices.by_column(self.plan.row)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode; plan if it is due."""
        length = played.length
        path = Path(played.slot, played.row, played.following, played.reward, played.violation)
        if self._reserve_cells():
            self._gather()
        places = self.places
        if self.depends_on is not None and path.violation[:length].any():
            made = make_groups(self.space, self.depends_on, None)
            places = places._replace(group_of_row=made.of_row, group_start=made.start, group_rows=made.rows)
        learn_played(places, self.counts, self.rules, self.plan, path, length, log, episode)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log or the list of outcomes is full."""
        model = compiled(self.task)
        if self._reserve_cells():
            self._gather()
        return learn_posterior(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
            self.places, self.counts, self.rules, self.plan, self.path,
            generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    # Results -------------------------------------------------------------------------------------------------

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the plan with the latest draw."""
        return self.by_slot["row"].used.copy()

    def decision(self) -> Plan:
        """Return the plan with the empirical means."""
        seen = int(self.status[EPISODES])
        if self._decision is None or self._decision[0] != seen or len(self._decision[1].row) < self.space.slots:
            self._decision = seen, self._planned(self.counts)
        return self._decision[1]

    def _planned(self, counts: Counts) -> Plan:
        value, cost, row = (np.zeros_like(self.by_slot[name].used) for name in ("value", "cost", "row"))
        row[:] = self.space.layout.row_start[:-1, None]
        plan = Plan(value, cost, row)
        make_plan(self.places, counts, self.rules, plan, False, Log.of_size(0))
        return plan

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the rows of the plan with the empirical means."""
        return self.decision().row

    def visits(self) -> Longs:
        """[row]: how often it was taken."""
        return np.asarray(self.by_row["tried"].used)

    def outcomes(self) -> Outcomes:
        """Counted outcomes of each distribution."""
        cells = {name: table.room[: self.status[CELLS]] for name, table in self.by_cell.items()}
        return collect(
            self.by_distribution["head"].used, cells["cell_link"], cells["cell_next"], cells["cell_count"],
            self.distributions.used, self.by_slot["begun"].used,
        )  # fmt: skip

    def _judged(self) -> tuple[Floats, NDArray[np.int32]]:
        """[row, column]: Q with the empirical means, and why a row is known to fail."""
        value = np.empty((self.space.rows, self.columns))
        witness = np.empty((self.space.rows, self.columns), np.int32)
        judge_all(self.places, self.counts, self.rules, self.decision(), value, witness, NO_WITNESS, VIOLATES, DECLARED)
        if self.proved_in:
            # The returned policy then avoids untried rows, which does not make a state with one a dead end.
            status = self.status.copy()
            status[PROVED] = 0
            counts = self.counts._replace(status=status)
            known = self._planned(counts)
            judge_all(
                self.places, counts, self.rules, known, np.empty_like(value), witness, NO_WITNESS, VIOLATES, DECLARED
            )
        return value, witness

    def values(self) -> Floats:
        """[entry]: Q with the empirical means; minus infinity for actions that are untried or known to fail."""
        value, witness = self._judged()
        return self.space.entries_of(np.where(witness == NO_WITNESS, value, -np.inf))

    def known(self) -> NDArray[np.int8]:
        """[entry]: what is known to violate, or to lead to a dead end."""
        return self.memory().known(self.space)

    def memory(self) -> Memory:
        """What is known to fail, and why."""
        return Memory(self._judged()[1], self.by_row["max_violation"].used)

    def feasible(self) -> bool | None:
        """False if every action of a first state is known to fail."""
        return False if self.status[PROVED] else None

    @property
    def proved_in(self) -> int | None:
        """The episode that completed the proof of infeasibility."""
        return int(self.status[PROVED]) or None

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        return self.memory().proof(self.space, int(self.status[DEAD_FIRST])) if self.proved_in else []

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        cells = {name: table.room[: self.status[CELLS]] for name, table in self.by_cell.items()}
        return (
            used({**self.by_slot, **self.by_row, **self.by_distribution})
            | cells
            | {"status": self.status, "words": self.words}
        )

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays, with as many cells as they hold."""
        self.status[CELLS] = len(arrays["cell_next"])
        self._reserve_cells()
        self._gather()
        super().load(arrays)

    def check(self, done: int) -> None:
        """Raise if a row, a cell or a number is out of range."""
        arrays, status, cells = self.arrays(), self.status, int(self.status[CELLS])
        checked_rows(self.space, arrays["row"], self.columns, "engine.row")
        counted = (0, done * self.space.horizon)
        check_ranges(
            arrays,
            {"head": (NO_CELL, cells - 1), "cell_link": (NO_CELL, cells - 1), "cell_next": (0, self.space.slots - 1)}
            | {"cell_count": (1, counted[1]), "kinds": (0, cells), "optimism": (0.0, 1.0), "cell_weight": (0.0, 1.0)}
            | dict.fromkeys(("visits", "drawn", "tried"), counted)
            | dict.fromkeys(("max_violation", "cell_cost", "row_cost", "cost"), (0.0, FINITE))
            | dict.fromkeys(("cell_reward", "row_reward", "value"), (-FINITE, FINITE)),
        )
        check_lists(arrays["head"], arrays["cell_link"])
        check_starts(self.space, arrays["begun"], done)
        if (
            status[EPISODES] != done
            or (status < 0).any()
            or status[PROVED] > done
            or status[DEAD_FIRST] >= self.space.slots
        ):
            raise ValueError("engine.status: a number is out of range")
