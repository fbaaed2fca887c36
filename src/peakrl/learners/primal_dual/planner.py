"""Tables of the primal-dual learners (formulas: `learners.primal_dual.kernel`; settings: `.learner`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.assumptions import allowed_rows, avoidable
from peakrl.learners.base import Episode, Task, check_ranges, compiled, used
from peakrl.learners.cmdp_limits import Budget
from peakrl.learners.cmdp_lp.empirical_model import infeasible_by_counts
from peakrl.learners.counting_planner import NO_CELL, CountingPlanner
from peakrl.learners.coverage import Outcomes
from peakrl.learners.episode import Log
from peakrl.learners.growable import Table
from peakrl.learners.primal_dual.kernel import (
    NEXT_PLAN,
    POINTS,
    STATUS_SIZE,
    Dual,
    Path,
    Rules,
    Truth,
    begin_episode,
    count_path,
    follow,
    learn_primal_dual,
)
from peakrl.learners.tables import FINITE
from peakrl.learners.ucbvi import UCBVI
from peakrl.sampling import Words, seed_state
from peakrl.types import Floats, Longs

#: Separates the learner's random stream from that of the target's outcomes.
STREAM = np.uint64(0x7072696D616C6475)
#: Points of the curve of prices.
CURVE_POINTS = 1000
#: Visits of a known distribution: probabilities are exact to about 1e-12.
KNOWN_VISITS = float(1 << 40)


class PricedPlanner(CountingPlanner):
    """Counted transitions, prices, and the plan."""

    starts_first = False  # the action of a new state may be drawn, too

    def __init__(self, task: Task, budget: Budget, numbers: dict[str, Any]) -> None:
        super().__init__(task, UCBVI(bonus=0.0))
        #: Constants of `Rules`.
        self.budget, self.numbers = budget, numbers
        costs, quantities, horizon = len(budget.limits), budget.quantities, task.sizes.horizon
        shared = int(self.space.shared)
        #: By row: costs, log pi, pi, and L of the latest plan.
        self.by_pair = {"charge": Table(0.0, np.float64, quantities)} | {
            name: Table(0.0, np.float64, self.columns) for name in ("preference", "chance", "gain")
        }
        #: By row and by slot, computed with each plan.
        self.width, self.plan = Table(0.0, np.float64), Table(0, np.int64, self.columns)
        self.cost = Table(0.0, np.float64, self.columns + shared, costs)
        self.price, self.expected = np.zeros(costs), np.zeros(costs)
        self.status: Longs = np.zeros(STATUS_SIZE, np.int64)
        self.status[NEXT_PLAN] = 1
        self.curve = np.zeros((min(task.episodes, 2 * CURVE_POINTS), 1 + costs))
        self.words: Words = seed_state(np.uint64(task.seed) ^ STREAM)
        row, following = (np.zeros(horizon, np.int64) for _ in range(2))
        self.path = Path(row, following, np.zeros(horizon), np.zeros(horizon), np.zeros((horizon, quantities)))
        if task.model is not None:
            self.charges = self.budget.charges(task.model.payoffs.constraints)
            mean = [task.model.row_reward, task.model.row_violation.sum(axis=1)]
            table = np.zeros((self.space.slots, self.columns + shared, 2))
            distributions = len(task.model.layout.outcome_start) - 1
            self.truth = Truth(
                task.model.first_slot, task.model.first_probability, np.stack(mean, axis=1), table,
                ahead=np.zeros((distributions, 2)), known=np.zeros(distributions, np.int64), found=np.zeros(2),
            )  # fmt: skip

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Never plan or draw forbidden rows, unless all rows of the state are forbidden."""
        start = self.layout.row_start
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        avoided = avoidable(start[low:], forbidden, first)
        super().forbid(first, avoided, max_violation)
        best, counts = allowed_rows(start[low:], forbidden, first)
        self.plan.room[low : self.space.slots] = np.where(best >= 0, best, start[low:-1, None])
        each = np.repeat(np.where(counts > 0, counts, np.diff(start[low:])[:, None]), np.diff(start[low:]), axis=0)
        rows = slice(first, first + len(forbidden))
        self.by_pair["chance"].room[rows] = np.where(avoided, 0.0, 1.0 / each)
        self.by_pair["preference"].room[rows] = np.where(avoided, -np.inf, -np.log(each))

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new slots have a uniform policy."""
        space, before = self.space, self.by_pair["chance"].size
        for table in (*self.by_pair.values(), self.width):
            table.grow(space.rows)
        for table in (self.cost, self.plan):
            table.grow(space.slots)
        offers = np.diff(space.layout.row_start)[space.slot_of_row[before:]]
        self.by_pair["chance"].room[before : space.rows] = 1.0 / offers[:, None]
        self.by_pair["preference"].room[before : space.rows] = -np.log(offers)[:, None]
        super().grow(first, log)
        self.plan.room[first : space.slots] = space.layout.row_start[first:-1, None]
        if self.numbers["known"] and first == 0:
            self._take_distributions()
        if first > 0 and self.randomised:  # visited in the middle of an episode: draw their rows
            follow(self.counts, self.dual, self.rules, first, log)

    def _take_distributions(self) -> None:
        """Set the counts to the transition probabilities of the model."""
        model = compiled(self.task)
        layout, rows = model.layout, self.by_row
        last = layout.outcome_start[1:] - 1
        cells = {name: table.room[: len(layout.outcome_next)] for name, table in self.by_cell.items()}
        cells["following"][:] = layout.outcome_next
        cells["count"][:] = np.rint(KNOWN_VISITS * layout.outcome_probability)
        cells["before"][:] = np.arange(-1, len(layout.outcome_next) - 1)
        cells["before"][layout.outcome_start[:-1]] = NO_CELL
        visits = np.add.reduceat(cells["count"], layout.outcome_start[:-1])[layout.row_distribution]
        rows["first"].used[:], rows["visits"].used[:] = last[layout.row_distribution], visits
        rows["reward"].used[:] = model.row_reward * visits
        for quantity, column in enumerate(self.charges.T):
            self.by_pair["charge"].used[:, quantity] = model.row_means(np.ascontiguousarray(column)) * visits
        self.by_slot["begun"].used[model.first_slot] = np.rint(KNOWN_VISITS * model.first_probability)
        self.state[0] = len(layout.outcome_next)

    def _gather(self) -> None:
        super()._gather()
        rooms: dict[str, Any] = {name: table.room for name, table in self.by_pair.items()}
        distribution = np.array(compiled(self.task).layout.row_distribution if self.numbers["known"] else [0], np.int64)
        costs, distributions = len(self.price), int(distribution.max(initial=0)) + 1
        self.dual = Dual(
            width=self.width.room, plan=self.plan.room, cost=self.cost.room, price=self.price, expected=self.expected,
            near=np.zeros((len(self.cost.room), 1 + costs)), distribution=distribution,
            ahead=np.zeros((distributions, 1 + costs)),
            found=np.zeros(distributions, np.int64), row_cost=np.zeros(costs), status=self.status, curve=self.curve,
            words=self.words, **rooms,
        )  # fmt: skip
        # Copies: the arrays of a model are read-only, which would compile another specialisation.
        places: dict[str, Any] = {
            "row_start": np.array(self.layout.row_start), "slot_step": np.array(self.space.slot_step),
            "order": self.planning.order, "horizon": self.space.horizon, "node_stride": self.layout.node_stride,
        }  # fmt: skip
        self.rules = Rules(shift=int(self.space.shared), **places, **self.numbers)

    # Learning ------------------------------------------------------------------------------------------------

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Plan if it is due, and draw randomised actions."""
        begin_episode(self.counts, self.dual, self.rules, log, episode)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Count every transition of an episode."""
        length, path = played.length, self.path
        if self.state[0] + length > len(self.by_cell["count"].room):
            self._grow_cells(int(self.state[0]) + length)
            self._gather()
        path.row[:length], path.following[:length] = played.row[:length], played.following[:length]
        path.reward[:length], path.violation[:length] = played.reward[:length], played.violation[:length]
        path.charge[:length] = self.budget.charges(played.constraints[:length])
        count_path(self.counts, self.dual, self.rules, path, played.slot[0], length)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full."""
        model = compiled(self.task)
        return learn_primal_dual(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff, self.charges,
            self.counts, self.dual, self.rules, self.path, self.truth,
            generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    # Results -------------------------------------------------------------------------------------------------

    def multipliers(self) -> Floats:
        """[cost]: the current prices."""
        return self.price.copy()

    def multiplier_curve(self) -> Floats:
        """[point, 1 + cost]: episode, and the prices of its plan."""
        return self.curve[: self.status[POINTS]].copy()

    def infeasible_limits(self) -> str | None:
        """Why the limits are infeasible under the empirical model."""
        return infeasible_by_counts(self, self.budget, self.by_pair["charge"].used)

    def visits(self) -> Longs | None:
        """[row]: visits; None if the model is known."""
        return None if self.numbers["known"] else super().visits()

    def outcomes(self) -> Outcomes | None:
        """Counted outcomes; None if the model is known."""
        return None if self.numbers["known"] else super().outcomes()

    def values(self) -> Floats:
        """[entry]: L of the latest plan."""
        return self.space.entries_of(self.by_pair["gain"].used)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name, without known distributions."""
        own = {"price": self.price, "status": self.status, "curve": self.curve, "words": self.words}
        counted = {"greedy": self.by_slot["greedy"].used} if self.numbers["known"] else super().arrays()
        return used(self.by_pair) | own | counted

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays."""
        if self.numbers["known"]:
            super(CountingPlanner, self).load(arrays)
        else:
            super().load(arrays)

    def check(self, done: int) -> None:
        """Raise if a number is out of range."""
        if not self.numbers["known"]:
            super().check(done)
        check_ranges(
            self.arrays(),
            {"preference": (-np.inf, FINITE), "chance": (0.0, 1.0), "price": (0.0, FINITE)}
            | dict.fromkeys(("charge", "gain", "curve"), (-FINITE, FINITE)),
        )
        if (self.status < 0).any() or self.status[POINTS] > len(self.curve):
            raise ValueError("engine.status: a number is out of range")


class PricedPolicy(PricedPlanner):
    """Counted transitions, prices, and a randomised policy."""

    randomised = True

    def chances(self) -> Floats:
        """[entry]: the probabilities of the actions."""
        return self.space.entries_of(self.by_pair["chance"].used)
