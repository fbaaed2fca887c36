"""Learners that plan by linear programmes on counted transitions: optimistic ones, and the common base.

P^, r and c are empirical means (`learners.cmdp_lp.empirical_model`), n the visits of a pair, span and range the widths
of rewards and costs, and

    beta(s') = min(1, scale (2 sqrt(P^(1-P^) L/n) + (14/3) L/n)),  B = sum_s' beta(s'),  L = log(6 S A H K/p)

                             programme     reward +         cost +
    OptCMDP                  extended      0                0
    OptCMDP, bonus           ordinary      span H B         - range H B
    certainty-equivalent     ordinary      0                0

They are optimistic about both reward and cost (Efroni, Mannor and Pirotta, 2020), so their policies exceed the limit
until enough is known. The pessimistic learners are in `learners.cmdp_lp.pessimistic`.

A single limit is handled by a search for its Lagrange multiplier (`planning.lagrangian`), which finds the optimum of
the programme; several limits by the programme itself. Rewards and costs of pairs are observed, so they have no margin;
neither has the distribution of the first state. A new plan is made when the visits of some pair have doubled, at most
every `episodes_per_plan` episodes. What is declared to fail is excluded from every programme.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions import Assumptions, allowed_rows, avoidable
from peakrl.learners.base import Episode, Task, check_ranges, compiled, used
from peakrl.learners.cmdp_limits import BudgetSettings
from peakrl.learners.cmdp_lp.empirical_model import (
    Box,
    Cells,
    CountedChain,
    box_distributions,
    counted_chain,
    extended_flow,
    infeasible_by_counts,
)
from peakrl.learners.cmdp_lp.rollout import Mixture, Path, draw_rows, follow_plan
from peakrl.learners.counting_planner import CountingPlanner
from peakrl.learners.episode import Log
from peakrl.learners.growable import Table
from peakrl.learners.tables import FINITE
from peakrl.learners.ucbvi import UCBVI
from peakrl.planning.backward import value_of_mixture
from peakrl.planning.lagrangian import NONE_FORBIDDEN, Within, best_plan, best_within
from peakrl.planning.occupancy import most_reward, policy_weights, row_weights
from peakrl.sampling import Words
from peakrl.space import read_only
from peakrl.types import Bytes, Floats, Longs

#: Probabilities below this are rounding errors of the solver.
LEAST_CHANCE = 1e-9
#: (reward margin in spans, cost margin in ranges), [row] each.
Margins = tuple[Floats, Floats]


class LinearSettings(BudgetSettings):
    """Common settings of the learners that plan by linear programmes."""

    #: Scale of all margins; 1 in the theorems, which is too wide for runs of usual length.
    scale: float = Field(default=1.0, ge=0)
    #: p: failure probability of the theorems.
    failure_probability: float = Field(default=0.1, gt=0, lt=1)
    #: A plan is followed for at least this many episodes; a larger number saves time on large problems.
    episodes_per_plan: int = Field(default=1, ge=1)

    @property
    def bound_to_plan(self) -> str | None:
        """Margins depend on the number of episodes."""
        return "margin" if self.scale > 0 else None

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if margins need a number of states that is not declared."""
        if self.scale > 0 and rules.states is None:
            raise SettingsError(f"scale is {self.scale:g}: margins need the number of states; pass states=")


class OptCMDP(LinearSettings):
    """Settings of OptCMDP, of its form with bonuses, and of the certainty-equivalent plan."""

    #: Add bonuses to rewards and subtract them from costs, instead of a box around the transition distribution.
    bonus: bool = False

    @classmethod
    def certainty_equivalent(cls, **limit: Any) -> OptCMDP:
        """The plan with the empirical means: no margin, and no guarantee."""
        return cls(scale=0.0, bonus=True, **limit)

    def make(self, task: Task) -> LinearPlanner:
        """Return the algorithm for a target."""
        return LinearPlanner(task, self, extended=not self.bonus)


class LinearPlanner(CountingPlanner):
    """Counted transitions, and the optimistic plan."""

    randomised = True
    starts_first = False

    def __init__(self, task: Task, settings: LinearSettings, *, extended: bool) -> None:
        super().__init__(task, UCBVI(bonus=0.0))
        self.extended, self.scale, self.batch = extended, settings.scale, settings.episodes_per_plan
        self.budget = settings.budget(task.sizes)
        sizes = task.sizes
        pairs = sizes.states * sizes.actions * sizes.horizon * task.episodes / settings.failure_probability
        self.box_log, self.pair_log = math.log(6 * pairs), math.log(16 * sizes.states * pairs)
        quantities, horizon = self.budget.quantities, sizes.horizon
        self.own = {
            "charge": Table(0.0, np.float64, quantities),
            "chance": Table(0.0, np.float64, self.columns),
        }
        #: Number of plans, is one due, and the first episode that may make it.
        self.plans = np.array([0, 1, 0], np.int64)
        #: [cost]: Lagrange multipliers of the latest plan.
        self.prices = np.zeros(len(self.budget.limits))
        self.path = Path(*(np.zeros(horizon, np.int64) for _ in range(3)))
        self._exact: tuple[float, float] | None = None
        if task.model is not None:
            self.charges = self.budget.charges(task.model.payoffs.constraints)

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Exclude forbidden rows from every programme, unless all rows of the state are forbidden."""
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        start = self.layout.row_start
        super().forbid(first, avoidable(start[low:], forbidden, first), max_violation)
        best, _ = allowed_rows(start[low:], forbidden, first)
        slot, column = np.nonzero(best >= 0)
        chance = self.own["chance"].used
        chance[first:][np.repeat(best >= 0, np.diff(start[low:]), axis=0)] = 0.0
        chance[best[slot, column], column] = 1.0
        self._mix()

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new slots take their first action until there is a plan."""
        for table in self.own.values():
            table.grow(self.space.rows)
        start = self.space.layout.row_start
        offering = first + np.flatnonzero(np.diff(start[first:]) > 0)
        self.own["chance"].room[start[offering]] = 1.0
        super().grow(first, log)
        self._mix()

    # Plans ---------------------------------------------------------------------------------------------------

    def _plan_if_due(self, episode: int, log: Log) -> None:
        """Plan if it is due; log changes of the rows that are not drawn."""
        if not self.plans[1] or episode < self.plans[2]:
            return
        visits = self.by_row["visits"].used
        if visits.any():
            self.own["chance"].used[...] = self._chances(episode)
        self._settle(log)
        self.plans[:] = self.plans[0] + 1, 0, episode + self.batch
        self._exact = None

    def _chances(self, episode: int) -> Floats:
        """[row, column]: the plan."""
        cells = Cells.of(self.counts, self.space.rows)
        visits = self.by_row["visits"].used
        chain = counted_chain(self.space, cells, visits, self.by_slot["begun"].used, anywhere=self.extended)
        box = Box.of(cells, visits, self.scale, self.box_log)
        reward, cost = self._payoffs(chain, *self.margins(box.total(cells, self.task.sizes.states), visits))
        table = chain.table_of(self._weights(chain, cells, box, reward, cost, episode), self.space.rows)
        table[table < LEAST_CHANCE] = 0.0
        start = self.space.layout.row_start
        some = np.flatnonzero(np.diff(start))
        table /= np.repeat(np.add.reduceat(table, start[some], axis=0), np.diff(start)[some], axis=0)
        return table

    def _payoffs(self, chain: CountedChain, reward_margin: Floats, cost_margin: Floats) -> tuple[Floats, Floats]:
        """[row of the chain] rewards minus lo, and [row of the chain, quantity] costs."""
        sizes, visits = self.task.sizes, self.by_row["visits"].used
        ranges = self.budget.ranges[: self.budget.quantities]
        tried, n = visits > 0, np.maximum(visits, 1)
        reward = np.where(tried, self.by_row["reward"].used / n - sizes.reward_range[0], sizes.span)
        cost = np.where(tried[:, None], self.own["charge"].used / n[:, None], self.unknown_cost * ranges)
        reward += sizes.span * reward_margin
        cost += ranges * cost_margin[:, None]
        # The last two of each belong to ends and extra states (`empirical_model.END`, `EXTRA`).
        reward = np.append(reward, [0.0 - sizes.reward_range[0], sizes.span])
        cost = np.vstack([cost, 0.0 * ranges, self.unknown_cost * ranges])
        return reward[chain.row_of], cost[chain.row_of]

    #: Cost of an untried pair, as a share of the range.
    unknown_cost = 0.0

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return the margins of rewards and costs, given B."""
        bonus = self.task.sizes.horizon * total if not self.extended else np.zeros(len(total))
        return bonus, -bonus

    def _weights(
        self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats, episode: int
    ) -> Floats:
        """[entry of the chain]: the plan; in states that it does not reach, the best row at its multipliers."""
        if len(self.budget.limits) == 1:
            within = self._within(chain, cells, box, reward, cost)
            return self._cheapest(chain, reward, cost) if within is None else within.weights
        shares = self._programme(chain, cells, box, reward, cost)
        if shares is None:
            return self._cheapest(chain, reward, cost)
        charged = cost @ self.prices.reshape(-1, self.budget.quantities).max(axis=0)
        rows = best_plan(chain, reward, charged, 1.0, self._forbidden(chain)).rows
        return policy_weights(row_weights(chain, rows), chain.flow, shares)

    def _forbidden(self, chain: CountedChain) -> Bytes:
        """[entry of the chain]: declared to fail; may be empty."""
        forbidden = self.forbidden.used
        if not forbidden.any():
            return NONE_FORBIDDEN
        own = forbidden[np.maximum(chain.row_of, 0)]
        found: Bytes = np.where(chain.row_of[:, None] >= 0, own, 0).T.astype(np.int8).ravel()
        return found

    def _cheapest(self, chain: CountedChain, reward: Floats, cost: Floats) -> Floats:
        """[entry of the chain]: the plan of least cost, used if the limits are infeasible."""
        least = np.maximum(cost, 0.0).sum(axis=1)
        return row_weights(chain, best_plan(chain, reward, least, None, self._forbidden(chain)).rows)

    def _within(self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats) -> Within | None:
        """Return the optimum within the single limit; None if it is infeasible."""
        distributions = box_distributions(chain, self.space, cells, box) if self.extended else None
        limit = float(self.budget.limits[0])
        found = best_within(chain, reward, cost[:, 0], limit, distributions, self._forbidden(chain))
        if found is not None:
            self.prices[0] = found.price
        return found

    def _programme(self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats) -> Floats | None:
        """Return the optimal x of the programme; None if the limits are infeasible."""
        from scipy import sparse

        paths, further = chain.flow, None
        if self.extended:
            paths, *lines = extended_flow(chain, self.space, cells, box)
            further = (lines[0], lines[1])
        charged = cost[paths.rows]
        if self.budget.by_step:
            column, quantity = np.nonzero(charged)
            line = paths.steps[column] * self.budget.quantities + quantity
            shape = (len(self.budget.limits), len(charged))
            costs = sparse.csr_array((charged[column, quantity], (line, column)), shape=shape)
        else:
            costs = sparse.csr_array(charged.T)
        span = max(self.task.sizes.span, float(np.abs(reward).max()))
        forbidden = self._forbidden(chain)
        closed = np.flatnonzero(forbidden[paths.entries]) if len(forbidden) else None
        found = most_reward(paths, reward[paths.rows], costs, self.budget.limits, span, further, closed)
        if found is None:
            return None
        most = self.task.sizes.span * self.space.horizon / np.maximum(self.budget.ranges, 1e-300)
        self.prices[...] = np.where(np.isnan(found.multipliers), most, found.multipliers)
        return found.shares

    def _settle(self, log: Log) -> None:
        """Set the rows that have probability 1, and log the changes."""
        chance, greedy, stride = self.own["chance"].used, self.by_slot["greedy"].used, self.layout.node_stride
        row, column = np.nonzero(chance == 1.0)
        slot = self.space.slot_of_row[row]
        other = np.flatnonzero(greedy[slot, column] != row)
        greedy[slot[other], column[other]] = row[other]
        log.extend(column[other] * stride + slot[other], row[other])
        self._mix()

    def _mix(self) -> None:
        """Collect the nodes with randomised actions for the kernel."""
        chance = self.own["chance"].used
        column, row = np.nonzero(((chance > 0.0) & (chance < 1.0)).T)
        slot = self.space.slot_of_row[row].astype(np.int64)
        new = np.flatnonzero(np.diff(slot * self.columns + column, prepend=-1) != 0)
        start = np.append(new, len(row)).astype(np.int64)
        edge = chance[row, column]
        for first, last in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
            edge[first:last] = np.cumsum(edge[first:last])
        self.mixture = Mixture(slot[new], column[new].astype(np.int64), start, row.astype(np.int64), edge)

    # Episodes ------------------------------------------------------------------------------------------------

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Plan if it is due, and draw the rows of the episode."""
        self._plan_if_due(episode, log)
        draw_rows(generator, self.mixture, self.counts, self.layout.node_stride, log)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Count the transitions of an episode, and their costs."""
        super().learn(played, episode, log)
        rows = played.row[: played.length]
        np.add.at(self.own["charge"].room, rows, self.budget.charges(played.constraints[: played.length]))
        visits = self.by_row["visits"].used[rows]
        before = visits - np.array([np.count_nonzero(rows == row) for row in rows])
        # The visits reached or passed a power of two.
        self.plans[1] |= bool((np.frexp(visits)[1] > np.frexp(before)[1]).any())

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full."""
        model, ran = compiled(self.task), 0
        while ran < episodes:
            if 0 < len(log.node) < log.head[0] + self.log_room:
                break
            self._plan_if_due(done + ran + 1, log.since(done + ran + 1))
            part = experience[ran:]
            played, due = follow_plan(
                model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff, self.charges,
                self.counts, self.own["charge"].room, self.mixture, int(self.space.shared), self.path,
                generator, done + ran, episodes - ran, log, part, counters,
            )  # fmt: skip
            if len(part):
                part[:played, 2:] = self._expected()
            self.plans[1] |= due
            ran += played
        return ran

    def _expected(self) -> tuple[float, float]:
        """Exact value and violation of the current plan, for the history; not used to learn."""
        if self._exact is None:
            model, weights = compiled(self.task), read_only(self.chances())
            quantities = model.row_reward, model.row_violation.sum(axis=1)
            tables = [value_of_mixture(model.layout, model.num_nodes, each, weights) for each in quantities]
            value, violation = (float(model.first_probability @ table[model.first_slot]) for table in tables)
            self._exact = value, violation
        return self._exact

    def chances(self) -> Floats:
        """[entry]: the current plan, which is also the returned policy: the guarantees apply to it."""
        return self.space.entries_of(self.own["chance"].used)

    def multipliers(self) -> Floats:
        """[cost]: Lagrange multipliers of the latest plan, with margins."""
        return self.prices.copy()

    def infeasible_limits(self) -> str | None:
        """Why the limits are infeasible under the empirical model."""
        return infeasible_by_counts(self, self.budget, self.own["charge"].used)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return super().arrays() | used(self.own) | {"plans": self.plans, "prices": self.prices}

    def check(self, done: int) -> None:
        """Raise if a number is out of range."""
        super().check(done)
        limits = {"chance": (0.0, 1.0), "charge": (0.0, FINITE), "prices": (0.0, FINITE)}
        check_ranges(used(self.own) | {"prices": self.prices}, limits)
        if self.plans[0] < 0 or self.plans[1] not in (0, 1) or not 0 <= self.plans[2] <= done + self.batch + 1:
            raise ValueError("engine.plans: a number is out of range")
        self._mix()
        self._exact = None
