"""Learners that plan by linear programmes on counts: settings, margins and the rule.

P^, r and c are the means of what was counted (`learning.linear.counted`), n the visits of a pair, span and range the
widths of rewards and costs, gap = (d - c0)/range with c0 the cost of a known safe policy pi0 and d the limit, and

    beta(s') = min(1, scale (2 sqrt(P^(1-P^) L/n) + (14/3) L/n)),  B = sum_s' beta(s'),  L = log(6 S A H K/p)
    beta_2   = scale sqrt(log(16 S^2 A H K/p)/n)

                             programme     reward +                                       cost +
    OptCMDP                  extended      0                                              0
    OptCMDP, bonus           ordinary      span H B                                       - range H B
    certainty-equivalent     ordinary      0                                              0
    OptPess-LP               ordinary      span (1 + SH + 4H(1 + SH)/gap) beta_2          range (1 + HS) beta_2
    DOPE                     extended      span (3H/gap) B                                range H B

The first three are optimists: what they do not know they hold to be good and cheap, and so their policies cost more
than the limit until they know better. The last two are pessimists in cost. They follow pi0 until there is a plan that
keeps the limit (OptPess-LP: and while pi0 itself might cost (d + c0)/2 or more), and wherever a plan does not come.

(Efroni, Mannor and Pirotta, 2020; Liu and others, 2021; Bura and others, 2022.) Rewards and costs of pairs are
observed, so there is no margin for them. Plans are made anew when the visits of some pair have doubled, not in every
episode. Nobody doubts the law of the first state: it is as it was counted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.errors import PolicyError, SettingsError
from peakrl.kernels.arrays import Floats, Longs
from peakrl.kernels.following import Mixture, Path, draw_rows, follow_plan
from peakrl.kernels.learning import Log
from peakrl.kernels.planning import plan, value_of_mixture
from peakrl.kernels.sampling import Words
from peakrl.learning.algorithm import Episode, Task, compiled, used
from peakrl.learning.budgets import BudgetSettings
from peakrl.learning.knowledge import Knowledge
from peakrl.learning.linear.counted import Box, Cells, CountedChain, counted_chain, extended_flow
from peakrl.learning.space import Table
from peakrl.learning.ucbvi import UCBVI, CountingPlanner
from peakrl.model.occupancy import most_reward, policy_weights, row_weights
from peakrl.model.tabular import TabularModel
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.targets.adapters import Rules

#: Chances below this are rounding of the solver.
LEAST_CHANCE = 1e-9
#: (reward margin in spans, cost margin in ranges), [row] each.
Margins = tuple[Floats, Floats]


class LinearSettings(BudgetSettings):
    """What the learners that plan by linear programmes share."""

    #: Of all margins; those of the theorems are 1, and far too wide for runs of a usual length.
    scale: float = Field(default=1.0, ge=0)
    #: p, with which the theorem's statement may fail.
    failure_probability: float = Field(default=0.1, gt=0, lt=1)

    @property
    def bound_to_plan(self) -> str | None:
        """Margins widen with the logarithm of the number of episodes."""
        return "margin" if self.scale > 0 else None

    def check_environment(self, rules: Rules, knowledge: Knowledge) -> None:
        """Raise where a margin lacks what it is computed from."""
        if self.scale > 0 and rules.states is None:
            raise SettingsError(f"scale is {self.scale:g}: margins need the number of states; pass states=")


class OptCMDP(LinearSettings):
    """Settings of OptCMDP, of its form with bonuses, and of the plan on plain means."""

    #: Add bonuses to rewards and take them from costs, in place of a box around the transition law.
    bonus: bool = False

    @classmethod
    def certainty_equivalent(cls, **limit: Any) -> OptCMDP:
        """The plan on plain means, as if they were true: no margin, and no guarantee."""
        return cls(scale=0.0, bonus=True, **limit)

    def make(self, task: Task) -> LinearPlanner:
        """Return the algorithm for a target."""
        return LinearPlanner(task, self, extended=not self.bonus)


class PessimistSettings(LinearSettings):
    """What the learners share that begin with a safe policy; their limit is `total`."""

    #: [entry] of the model: the chances of each action under a policy whose expected violation is below the limit. A
    #: `Policy` or `StochasticPolicy` is taken as well.
    safe_policy: tuple[float, ...]

    @field_validator("safe_policy", mode="before")
    @classmethod
    def _weights(cls, given: Any) -> Any:
        if isinstance(given, StochasticPolicy):
            return tuple(given.weights.tolist())
        if isinstance(given, Policy) and isinstance(given.model, TabularModel):
            return tuple(row_weights(given.model, given.rows).tolist())
        return given

    def check_environment(self, rules: Rules, knowledge: Knowledge) -> None:
        """Raise: nobody knows yet which states the safe policy speaks of."""
        raise SettingsError(f"{type(self).__name__} learns on models: its safe policy is a table of a model")


class OptPessLP(PessimistSettings):
    """Settings of OptPess-LP."""

    def make(self, task: Task) -> Pessimist:
        """Return the algorithm for a target."""
        return CarefulPlanner(task, self)


class DOPE(PessimistSettings):
    """Settings of DOPE."""

    #: Episodes with the safe policy at the beginning, whatever is known.
    wait: int = Field(default=0, ge=0)

    def make(self, task: Task) -> Pessimist:
        """Return the algorithm for a target."""
        return Pessimist(task, self, wait=self.wait)


class LinearPlanner(CountingPlanner):
    """Counts, and the optimist's plan on them."""

    randomised = True

    def __init__(self, task: Task, settings: LinearSettings, *, extended: bool) -> None:
        super().__init__(task, UCBVI(bonus=0.0))
        self.extended, self.scale = extended, settings.scale
        self.budget = settings.budget(task.sizes)
        sizes = task.sizes
        pairs = sizes.states * sizes.actions * sizes.horizon * task.episodes / settings.failure_probability
        self.box_log, self.pair_log = math.log(6 * pairs), math.log(16 * sizes.states * pairs)
        quantities, horizon = self.budget.quantities, sizes.horizon
        self.own = {
            "charge": Table(0.0, np.float64, quantities),
            "chance": Table(0.0, np.float64, self.columns),
        }
        #: Plans so far, and is one due?
        self.plans = np.array([0, 1], np.int64)
        #: [cost]: what another unit of each limit is worth in the latest plan.
        self.prices = np.zeros(len(self.budget.limits))
        self.path = Path(*(np.zeros(horizon, np.int64) for _ in range(3)))
        self._exact: tuple[float, float] | None = None
        if task.model is not None:
            self.charges = self.budget.charges(task.model.payoffs.constraints)

    def forbid(self, first: int, forbidden: NDArray[np.bool_], harm: Floats) -> None:
        """Refuse: its programmes are over all actions."""
        super(CountingPlanner, self).forbid(first, forbidden, harm)

    def grow(self, first: int, episode: int, log: Log, changes: int) -> int:
        """Make room for the slots from `first` on, where the first action is taken until there is a plan."""
        for table in self.own.values():
            table.grow(self.space.rows)
        start = self.space.layout.row_start
        offering = first + np.flatnonzero(np.diff(start[first:]) > 0)
        self.own["chance"].room[start[offering]] = 1.0
        changes = super().grow(first, episode, log, changes)
        self._mix()
        return changes

    # Plans ---------------------------------------------------------------------------------------------------

    def _plan_if_due(self, episode: int, log: Log, changes: int) -> int:
        """Plan where it is time to; log what changes of the rows that are not drawn."""
        if not self.plans[1]:
            return changes
        visits = self.by_row["visits"].used
        if visits.any():
            self.own["chance"].used[...] = self._chances(episode)
        changes = self._settle(episode, log, changes)
        self.plans[:] = self.plans[0] + 1, 0
        self._exact = None
        return changes

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
        """[row of the chain] and [row of the chain, quantity]: rewards above the lowest, and costs."""
        sizes, visits = self.task.sizes, self.by_row["visits"].used
        ranges = self.budget.ranges[: self.budget.quantities]
        tried, n = visits > 0, np.maximum(visits, 1)
        reward = np.where(tried, self.by_row["reward"].used / n - sizes.reward_range[0], sizes.span)
        cost = np.where(tried[:, None], self.own["charge"].used / n[:, None], self.unknown_cost * ranges)
        reward += sizes.span * reward_margin
        cost += ranges * cost_margin[:, None]
        # The last of each is that of the extra states.
        reward, cost = np.append(reward, sizes.span), np.vstack([cost, self.unknown_cost * ranges])
        return reward[chain.row_of], cost[chain.row_of]

    #: What a step costs of which nothing is known, as a share of the range.
    unknown_cost = 0.0

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return what is added to rewards and costs, given B."""
        bonus = self.task.sizes.horizon * total if not self.extended else np.zeros(len(total))
        return bonus, -bonus

    def _weights(
        self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats, episode: int
    ) -> Floats:
        """[entry of the chain]: the plan; where it does not come, what is best at its prices."""
        found = self._solve(chain, cells, box, reward, cost)
        if found is None:
            _, _, rows = plan(chain.layout, chain.num_nodes, reward, np.maximum(cost, 0.0).sum(axis=1))
            return row_weights(chain, rows)
        shares, prices = found
        charged = reward - cost @ prices.reshape(-1, self.budget.quantities).max(axis=0)
        _, _, rows = plan(chain.layout, chain.num_nodes, charged, np.zeros(len(charged)))
        return policy_weights(row_weights(chain, rows), chain.flow, shares)

    def _solve(
        self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats
    ) -> tuple[Floats, Floats] | None:
        """Return the shares [x] of the programme's optimum, and its prices; None where the limits cannot be kept."""
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
        found = most_reward(paths, reward[paths.rows], costs, self.budget.limits, span, further)
        if found is None:
            return None
        most = self.task.sizes.span * self.space.horizon / np.maximum(self.budget.ranges, 1e-300)
        self.prices[...] = np.where(np.isnan(found.multipliers), most, found.multipliers)
        return found.shares, self.prices

    def _settle(self, episode: int, log: Log, changes: int) -> int:
        """Follow the rows that the plan is sure of, and log where they are others than before."""
        chance, greedy, stride = self.own["chance"].used, self.by_slot["greedy"].used, self.layout.node_stride
        row, column = np.nonzero(chance == 1.0)
        slot = self.space.slot_of_row[row]
        other = np.flatnonzero(greedy[slot, column] != row)
        greedy[slot[other], column[other]] = row[other]
        if len(log.node):
            last = changes + len(other)
            log.episode[changes:last] = episode
            log.node[changes:last] = column[other] * stride + slot[other]
            log.row[changes:last] = row[other]
            changes = last
        self._mix()
        return changes

    def _mix(self) -> None:
        """Put the nodes whose action is drawn before the kernel."""
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

    def begin(self, episode: int, generator: Words, log: Log, changes: int) -> int:
        """Plan, where it is time to, and draw the rows of the episode."""
        changes = self._plan_if_due(episode, log, changes)
        return draw_rows(generator, self.mixture, self.counts, self.layout.node_stride, log, episode, changes)

    def learn(self, played: Episode, episode: int, log: Log, changes: int) -> int:
        """Count every transition of an episode, and what it was charged."""
        changes = super().learn(played, episode, log, changes)
        rows = played.row[: played.length]
        np.add.at(self.own["charge"].room, rows, self.budget.charges(played.constraints[: played.length]))
        visits = self.by_row["visits"].used[rows]
        before = visits - np.array([np.count_nonzero(rows == row) for row in rows])
        # A power of two was passed or come to.
        self.plans[1] |= bool((np.frexp(visits)[1] > np.frexp(before)[1]).any())
        return changes

    def run(
        self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs
    ) -> tuple[int, int]:
        """Run some episodes of the model, fewer where the log fills up."""
        model, ran, changes = compiled(self.task), 0, 0
        while ran < episodes:
            if len(log.node) and changes + self.log_room > len(log.node):
                break
            changes = self._plan_if_due(done + ran + 1, log, changes)
            part = experience[ran:]
            played, changes, self.plans[1] = follow_plan(
                model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff, self.charges,
                self.counts, self.own["charge"].room, self.mixture, int(self.space.shared), self.path,
                generator, done + ran, episodes - ran, log, changes, part, counters,
            )  # fmt: skip
            if len(part):
                part[:played, 2:] = self._expected()
            ran += played
        return ran, changes

    def _expected(self) -> tuple[float, float]:
        """Exact value and violation of the plan that is followed, for the history; the learner does not look at it."""
        if self._exact is None:
            model, weights = compiled(self.task), self.chances()
            quantities = model.row_reward, model.row_violation.sum(axis=1)
            tables = [value_of_mixture(model.layout, model.num_nodes, each, weights) for each in quantities]
            value, violation = (float(model.first_probability @ table[model.first_slot]) for table in tables)
            self._exact = value, violation
        return self._exact

    def chances(self) -> Floats:
        """[entry]: the plan that is followed, which is also the one to hand out: what is guaranteed is about it."""
        return self.space.entries_of(self.own["chance"].used)

    def multipliers(self) -> Floats:
        """[cost]: what another unit of each limit is worth in the latest plan, margins included."""
        return self.prices.copy()

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return super().arrays() | used(self.own) | {"plans": self.plans, "prices": self.prices}

    def check(self, done: int) -> None:
        """Raise where a count or a chance cannot be."""
        super().check(done)
        chance, charge = self.own["chance"].used, self.own["charge"].used
        start = self.space.layout.row_start
        some = np.flatnonzero(np.diff(start))
        whole = np.add.reduceat(chance, start[some], axis=0) if len(some) else np.ones(1)
        if not ((chance >= 0.0).all() and np.allclose(whole, 1.0, rtol=0, atol=1e-9)):
            raise ValueError("engine.chance holds what are no chances")
        if not np.isfinite(charge).all() or (charge < 0).any():
            raise ValueError("engine.charge holds what cannot be")
        if not np.isfinite(self.prices).all() or (self.prices < 0).any():
            raise ValueError("engine.prices holds what cannot be")
        if self.plans[0] < 0 or self.plans[1] not in (0, 1):
            raise ValueError("engine.plans holds a number that cannot be")
        self._mix()
        self._exact = None


class Pessimist(LinearPlanner):
    """DOPE: the optimist in reward that is a pessimist in cost, and begins with a safe policy."""

    unknown_cost = 1.0

    def __init__(self, task: Task, settings: PessimistSettings, *, wait: int = 0, extended: bool = True) -> None:
        super().__init__(task, settings, extended=extended)
        if settings.total is None:
            raise SettingsError(f"{type(settings).__name__} keeps one limit: give total")
        self.wait = wait
        model = compiled(task)
        self.safe = safe_weights(model, settings.safe_policy)
        violations = value_of_mixture(model.layout, model.num_nodes, model.row_violation.sum(axis=1), self.safe)
        self.safe_cost = float(model.first_probability @ violations[model.first_slot])
        if self.safe_cost >= settings.total:
            verb = "is not safe" if self.safe_cost > settings.total else "leaves no room"
            raise SettingsError(
                f"safe_policy {verb}: its expected violation is {self.safe_cost:.6g}, and the limit is "
                f"{settings.total:g}; it must be less, the margins are divided by the difference"
            )
        #: (d - c0)/range
        self.gap = (settings.total - self.safe_cost) / float(self.budget.ranges[0])

    def grow(self, first: int, episode: int, log: Log, changes: int) -> int:
        """Make room for all slots, and begin with the safe policy."""
        changes = super().grow(first, episode, log, changes)
        self.own["chance"].used[...] = self.safe_table
        return changes

    @property
    def safe_table(self) -> Floats:
        """[row, column]: the safe policy."""
        return np.ascontiguousarray(self.safe.reshape(self.columns, -1).T)

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return what is added to rewards and costs, given B."""
        horizon = self.task.sizes.horizon
        return 3 * horizon / self.gap * total, horizon * total

    def _weights(
        self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats, episode: int
    ) -> Floats:
        """[entry of the chain]: the plan if there is one, and the safe policy where it does not come."""
        safe = chain.weights_of(self.safe_table)
        if episode <= self.wait or self._too_soon(chain, safe, cost):
            return safe
        found = self._solve(chain, cells, box, reward, cost)
        return safe if found is None else policy_weights(safe, chain.flow, found[0])

    def _too_soon(self, chain: CountedChain, safe: Floats, cost: Floats) -> bool:
        """Is too little known to leave the safe policy?"""
        return False


class CarefulPlanner(Pessimist):
    """OptPess-LP."""

    def __init__(self, task: Task, settings: OptPessLP) -> None:
        super().__init__(task, settings, extended=False)

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return what is added to rewards and costs."""
        horizon = self.task.sizes.horizon
        beta = self.scale * np.sqrt(self.pair_log / np.maximum(visits, 1))
        wide = 1 + self.task.sizes.states * horizon
        return (wide + 4 * horizon * wide / self.gap) * beta, wide * beta

    def _too_soon(self, chain: CountedChain, safe: Floats, cost: Floats) -> bool:
        """Might the safe policy itself cost more than half way from its true cost to the limit?"""
        table = value_of_mixture(chain.layout, chain.num_nodes, cost[:, 0], safe)
        held = float(chain.first_probability @ table[chain.first_slot])
        return held >= (float(self.budget.limits[0]) + self.safe_cost) / 2


def safe_weights(model: TabularModel, given: tuple[float, ...]) -> Floats:
    """[entry]: the weights of a safe policy, or raise."""
    try:
        return StochasticPolicy(model, np.array(given, np.float64)).weights
    except PolicyError as error:
        raise SettingsError(f"safe_policy: {error}") from None
