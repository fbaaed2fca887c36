"""Learners that plan by linear programmes on counted transitions: OptCMDP, OptPess-LP and DOPE.

P^, r and c are empirical means (`learners.empirical_model`), n the visits of a pair, span and range the widths of
rewards and costs, gap = (d - c0)/range with d the limit and c0 the cost of a known safe policy pi0, and

    beta(s') = min(1, scale (2 sqrt(P^(1-P^) L/n) + (14/3) L/n)),  B = sum_s' beta(s'),  L = log(6 S A H K/p)
    beta_2   = scale sqrt(log(16 S^2 A H K/p)/n)

                             programme     reward +                                       cost +
    OptCMDP                  extended      0                                              0
    OptCMDP, bonus           ordinary      span H B                                       - range H B
    certainty-equivalent     ordinary      0                                              0
    OptPess-LP               ordinary      span (1 + SH + 4H(1 + SH)/gap) beta_2          range (1 + HS) beta_2
    DOPE                     extended      span (3H/gap) B                                range H B

OptCMDP (Efroni, Mannor and Pirotta, 2020) is optimistic about both reward and cost, so its policies exceed the limit
until enough is known. OptPess-LP (Liu and others, 2021) and DOPE (Bura and others, 2022) are pessimistic about cost.
They follow pi0 until a plan satisfies the limit (OptPess-LP: and while pi0 itself might cost (d + c0)/2 or more), and
in states that the plan does not reach.

A single limit is handled by a search for its Lagrange multiplier (`planning.lagrangian`), which finds the optimum of
the programme; several limits by the programme itself. Rewards and costs of pairs are observed, so they have no margin;
neither has the distribution of the first state. What is declared to fail is excluded from every programme.

A plan may be randomised. An episode draws one row for every node with a randomised action; no node is visited twice, so
the trajectory has the distribution of the plan. A new plan is made when the visits of some pair have reached a power of
two (log2(n) + 1 plans for each pair), at most every `episodes_per_plan` episodes.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.checks import MOST_EPISODES
from peakrl.errors import PolicyError, SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions import Assumptions, Forbidden
from peakrl.learners.base import Task, compiled
from peakrl.learners.cmdp_limits import BudgetSettings
from peakrl.learners.counts import TransitionCounts, count_step
from peakrl.learners.empirical_model import Box, Cells, CountedChain, LimitedPlanner, box_distributions
from peakrl.learners.episode import Log, Path, note, register
from peakrl.learners.tables import table
from peakrl.planning.backward import value_of_mixture
from peakrl.planning.lagrangian import NONE_FORBIDDEN, Within, best_plan, best_within
from peakrl.planning.occupancy import most_reward, policy_weights, row_weights
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.sampling import Words, uniform
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Bytes, Floats, Layout, Longs

#: Probabilities below this are rounding errors of the solver.
LEAST_CHANCE = 1e-9
#: Margins are divided by the gap, and must remain finite.
LEAST_GAP = 1e-100
#: (reward margin in spans, cost margin in ranges), [row] each.
Margins = tuple[Floats, Floats]


class LinearSettings(BudgetSettings):
    """Common settings of the learners that plan by linear programmes."""

    #: Scale of all margins; 1 in the theorems, which is too wide for runs of usual length.
    scale: float = Field(default=1.0, ge=0)
    #: p: failure probability of the theorems.
    failure_probability: float = Field(default=0.1, gt=0, lt=1)
    #: A plan is followed for at least this many episodes; a larger number saves time on large problems.
    episodes_per_plan: int = Field(default=1, ge=1, le=MOST_EPISODES)

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

    #: Add bonuses to rewards and subtract them from costs, instead of a box around the transition distribution, which
    #: is for a single limit.
    bonus: bool = False

    @classmethod
    def certainty_equivalent(cls, **limit: Any) -> OptCMDP:
        """The plan with the empirical means: no margin, and no guarantee."""
        return cls(scale=0.0, bonus=True, **limit)

    def make(self, task: Task) -> LinearPlanner:
        """Return the algorithm for a target."""
        limits = len(self.budget(task.sizes).limits)
        if not self.bonus and limits > 1:
            raise SettingsError(
                f"{limits} limits are given, and a box around the transition distribution is for one: give total, or "
                "plan with bonuses, OptCMDP(..., bonus=True)"
            )
        return LinearPlanner(task, self, extended=not self.bonus)


class PessimistSettings(LinearSettings):
    """Common settings of learners that begin with a safe policy; their limit is `total`."""

    #: [entry] of the model: action probabilities of a policy whose expected violation is below the limit. A `Policy` or
    #: `StochasticPolicy` is also accepted.
    safe_policy: tuple[float, ...]

    @field_validator("safe_policy", mode="before")
    @classmethod
    def _weights(cls, given: Any) -> Any:
        if isinstance(given, StochasticPolicy):
            return tuple(given.weights.tolist())
        if isinstance(given, Policy) and isinstance(given.model, TabularModel):
            return tuple(row_weights(given.model, given.rows).tolist())
        return given

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise: the safe policy is a table of a model."""
        raise SettingsError(f"{type(self).__name__} learns on models: its safe policy is a table of a model")


class OptPessLP(PessimistSettings):
    """Settings of OptPess-LP."""

    def make(self, task: Task) -> Pessimist:
        """Return the algorithm for a target."""
        return CarefulPlanner(task, self)


class DOPE(PessimistSettings):
    """Settings of DOPE."""

    #: Number of initial episodes with the safe policy.
    wait: int = Field(default=0, ge=0, le=MOST_EPISODES)

    def make(self, task: Task) -> Pessimist:
        """Return the algorithm for a target."""
        return Pessimist(task, self, wait=self.wait)


class Mixture(NamedTuple):
    """The nodes with randomised actions."""

    #: [node]: slot and column, and the index of its first row below.
    slot: Longs
    column: Longs
    start: Longs
    #: [index]: a row, and the cumulative probability.
    row: Longs
    edge: Floats

    @classmethod
    def of(cls, chance: Floats, slot_of_row: NDArray[Any]) -> Mixture:
        """Collect the nodes of a plan [row, column]."""
        column, row = np.nonzero(((chance > 0.0) & (chance < 1.0)).T)
        slot = slot_of_row[row].astype(np.int64)
        new = np.flatnonzero(np.diff(slot * chance.shape[1] + column, prepend=-1) != 0)
        start = np.append(new, len(row))
        edge = chance[row, column]
        for first, last in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
            edge[first:last] = np.cumsum(edge[first:last])
        return cls(slot[new], column[new], start, row, edge)


class Tables(NamedTuple):
    """Counted transitions and costs, and the latest plan."""

    counts: TransitionCounts
    #: [row, quantity]: sum of costs.
    charge: Annotated[Floats, table("row", "quantity", low=0.0)]
    #: [row, column]: the plan.
    chance: Annotated[Floats, table("row", "column", low=0.0, high=1)]
    #: [slot, column]: the rows of this episode.
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    #: [cost]: Lagrange multipliers of the latest plan.
    price: Annotated[Floats, table("cost", low=0.0)]
    #: Is a plan due, and the first episode that may make it.
    due: Annotated[Longs, table(1, fill=1, low=0, high=1)]
    next_plan: Annotated[Longs, table(1, low=0, high="next_plan")]
    #: Have some visits reached a power of two in the latest episode?
    doubled: Annotated[Longs, table(1, stored=False)]
    #: [row, column]: 1 if declared to fail, which follows from the assumptions.
    forbidden: Annotated[Bytes, table("row", "column", stored=False)]
    mixture: Mixture


class LinearPlanner(LimitedPlanner[Tables]):
    """Counted transitions, and the optimistic plan."""

    randomised = True

    def __init__(self, task: Task, settings: LinearSettings, *, extended: bool) -> None:
        nothing = Mixture.of(np.empty((0, 1)), np.empty(0, np.int64))
        super().__init__(task, Tables, settings.budget(task.sizes), {}, mixture=nothing)
        self.extended, self.scale, self.batch = extended, settings.scale, settings.episodes_per_plan
        sizes = task.sizes
        pairs = sizes.states * sizes.actions * sizes.horizon * task.episodes / settings.failure_probability
        self.box_log, self.pair_log = math.log(6 * pairs), math.log(16 * sizes.states * pairs)
        self._exact: tuple[float, float] | None = None

    def forbid(self, declared: Forbidden) -> None:
        """Exclude forbidden rows from every programme, unless all rows of the state are forbidden."""
        super().forbid(declared)
        chance, best = self.tables.chance, declared.best
        slot, column = np.nonzero(best >= 0)
        chance[declared.first :][np.repeat(best >= 0, declared.sizes, axis=0)] = 0.0
        chance[best[slot, column], column] = 1.0

    def start(self, first: int, first_row: int, log: Log) -> None:
        """New slots take their first action until there is a plan."""
        start = self.layout.row_start
        offering = first + np.flatnonzero(np.diff(start[first:]) > 0)
        self.tables.chance[start[offering]] = 1.0

    # Plans ---------------------------------------------------------------------------------------------------

    def _plan_if_due(self, episode: int, log: Log) -> None:
        """Plan if it is due; log changes of the rows that are not drawn."""
        tables = self.tables
        if not tables.due[0] or episode < tables.next_plan[0]:
            return
        if tables.counts.visits.any():
            tables.chance[...] = self._chances(episode)
        row, column = np.nonzero(tables.chance == 1.0)
        slot = self.space.slot_of_row[row]
        other = np.flatnonzero(tables.greedy[slot, column] != row)
        tables.greedy[slot[other], column[other]] = row[other]
        log.extend(column[other] * self.layout.node_stride + slot[other], row[other])
        tables.due[0], tables.next_plan[0] = 0, episode + self.batch
        self._mix()

    def _mix(self) -> None:
        """Collect the nodes with randomised actions for the kernel."""
        self.store.set(mixture=Mixture.of(self.tables.chance, self.space.slot_of_row))
        self._exact = None

    def _chances(self, episode: int) -> Floats:
        """[row, column]: the plan."""
        visits = self.tables.counts.visits
        cells, chain = self.chain(anywhere=self.extended)
        box = Box.of(cells, visits, self.scale, self.box_log)
        reward, cost = self.chain_payoffs(chain, *self.margins(box.total(cells, self.task.sizes.states), visits))
        table = chain.table_of(self._weights(chain, cells, box, reward, cost, episode), self.space.rows)
        table[table < LEAST_CHANCE] = 0.0
        start = self.space.layout.row_start
        some = np.flatnonzero(np.diff(start))
        table /= np.repeat(np.add.reduceat(table, start[some], axis=0), np.diff(start)[some], axis=0)
        return table

    def chain_payoffs(self, chain: CountedChain, reward_margin: Floats, cost_margin: Floats) -> tuple[Floats, Floats]:
        """[row of the chain] rewards minus lo, and [row of the chain, quantity] costs."""
        sizes, visits = self.task.sizes, self.tables.counts.visits
        ranges = self.budget.ranges[: self.budget.quantities]
        tried, n = visits > 0, np.maximum(visits, 1)
        reward = np.where(tried, self.tables.counts.reward / n - sizes.reward_range[0], sizes.span)
        cost = np.where(tried[:, None], self.tables.charge / n[:, None], self.unknown_cost * ranges)
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
        shares = self._programme(chain, reward, cost)
        if shares is None:
            return self._cheapest(chain, reward, cost)
        charged = cost @ self.tables.price.reshape(-1, self.budget.quantities).max(axis=0)
        rows = best_plan(chain, reward, charged, 1.0, self._forbidden(chain)).rows
        return policy_weights(row_weights(chain, rows), chain.flow, shares)

    def _forbidden(self, chain: CountedChain) -> Bytes:
        """[entry of the chain]: declared to fail; may be empty."""
        forbidden = self.tables.forbidden
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
            self.tables.price[0] = found.price
        return found

    def _programme(self, chain: CountedChain, reward: Floats, cost: Floats) -> Floats | None:
        """Return the optimal x of the programme; None if the limits are infeasible."""
        from scipy import sparse

        paths = chain.flow
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
        found = most_reward(paths, reward[paths.rows], costs, self.budget.limits, span, closed)
        if found is None:
            return None
        most = self.task.sizes.span * self.space.horizon / np.maximum(self.budget.ranges, 1e-300)
        self.tables.price[...] = np.where(np.isnan(found.multipliers), most, found.multipliers)
        return found.shares

    # Episodes ------------------------------------------------------------------------------------------------

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Plan if it is due, and draw the rows of the episode."""
        self._plan_if_due(episode, log)
        super().begin(episode, generator, log)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full or a plan is due."""
        self._plan_if_due(done + 1, log.since(done + 1))
        ran = super().run(generator, done, episodes, log, experience, counters)
        if len(experience):
            experience[:ran, 2:] = self._expected()
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
        return self.space.entries_of(self.tables.chance)

    def multipliers(self) -> Floats:
        """[cost]: Lagrange multipliers of the latest plan, with margins."""
        return self.tables.price.copy()

    def check(self, done: int) -> None:
        """Raise if loaded tables are out of range."""
        super().check(done)
        self._mix()


class Pessimist(LinearPlanner):
    """DOPE: optimistic in reward, pessimistic in cost, begins with a safe policy."""

    unknown_cost = 1.0

    def __init__(self, task: Task, settings: PessimistSettings, *, wait: int = 0, extended: bool = True) -> None:
        super().__init__(task, settings, extended=extended)
        if settings.total is None:
            raise SettingsError(f"{type(settings).__name__} keeps one limit: give total")
        self.wait, self.limit = wait, settings.total
        self._begin_with(safe_weights(compiled(task), settings.safe_policy))

    def _begin_with(self, safe: Floats) -> None:
        """Set pi0 [entry]; raise unless its cost is below the limit."""
        model, self.safe = compiled(self.task), read_only(safe)
        violations = value_of_mixture(model.layout, model.num_nodes, model.row_violation.sum(axis=1), self.safe)
        self.safe_cost = float(model.first_probability @ violations[model.first_slot])
        #: (d - c0)/range
        self.gap = (self.limit - self.safe_cost) / float(self.budget.ranges[0])
        if self.gap < LEAST_GAP:
            verb = "is not safe" if self.safe_cost > self.limit else "leaves no room"
            raise SettingsError(
                f"safe_policy {verb}: its expected violation is {self.safe_cost:.6g}, and the limit is "
                f"{self.limit:g}; it must be less, the margins are divided by the difference"
            )

    def start(self, first: int, first_row: int, log: Log) -> None:
        """Begin with the safe policy."""
        self.tables.chance[...] = self.safe_table

    def forbid(self, declared: Forbidden) -> None:
        """Exclude forbidden rows from every programme and from pi0, which is renormalised."""
        super().forbid(declared)
        start = self.layout.row_start
        some = np.flatnonzero(np.diff(start))
        sizes = np.diff(start)[some]
        own = np.where(self.tables.forbidden, 0.0, self.safe_table)
        left = np.repeat(np.add.reduceat(own, start[some], axis=0), sizes, axis=0)
        # If nothing of pi0 is left: the first allowed action.
        own = np.where(left > 0.0, own / np.where(left > 0.0, left, 1.0), self.tables.chance)
        self._begin_with(self.space.entries_of(own))
        self.tables.chance[...] = own

    @property
    def safe_table(self) -> Floats:
        """[row, column]: the safe policy."""
        return np.ascontiguousarray(self.safe.reshape(self.columns, -1).T)

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return the margins of rewards and costs, given B."""
        horizon = self.task.sizes.horizon
        return 3 * horizon / self.gap * total, horizon * total

    def _weights(
        self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats, episode: int
    ) -> Floats:
        """[entry of the chain]: the plan if there is one, and the safe policy in states that it does not reach."""
        safe = chain.weights_of(self.safe_table)
        if episode <= self.wait or self._too_soon(chain, safe, cost):
            return safe
        found = self._within(chain, cells, box, reward, cost)
        return safe if found is None else found.where_reached(chain, safe)

    def _too_soon(self, chain: CountedChain, safe: Floats, cost: Floats) -> bool:
        """Must the safe policy be followed because too little is known?"""
        return False


class CarefulPlanner(Pessimist):
    """OptPess-LP."""

    def __init__(self, task: Task, settings: OptPessLP) -> None:
        super().__init__(task, settings, extended=False)

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return the margins of rewards and costs."""
        horizon = self.task.sizes.horizon
        beta = self.scale * np.sqrt(self.pair_log / np.maximum(visits, 1))
        wide = 1 + self.task.sizes.states * horizon
        return (wide + 4 * horizon * wide / self.gap) * beta, wide * beta

    def _too_soon(self, chain: CountedChain, safe: Floats, cost: Floats) -> bool:
        """Might the safe policy itself cost (d + c0)/2 or more?"""
        table = value_of_mixture(chain.layout, chain.num_nodes, cost[:, 0], read_only(safe))
        upper = float(chain.first_probability @ table[chain.first_slot])
        return upper >= (float(self.budget.limits[0]) + self.safe_cost) / 2


def safe_weights(model: TabularModel, given: tuple[float, ...]) -> Floats:
    """[entry]: the weights of a safe policy, or raise."""
    try:
        return StochasticPolicy(model, np.array(given, np.float64)).weights
    except PolicyError as error:
        raise SettingsError(f"safe_policy: {error}") from None


def draw_rows(tables: Tables, layout: Layout, generator: Words, episode: int, log: Log) -> None:
    """Draw the rows of an episode."""
    mixture = tables.mixture
    for i in range(mixture.slot.shape[0]):
        number = uniform(generator)
        index = mixture.start[i]
        while index < mixture.start[i + 1] - 1 and number >= mixture.edge[index]:
            index += 1
        row, slot, column = mixture.row[index], mixture.slot[i], mixture.column[i]
        if tables.greedy[slot, column] != row:
            tables.greedy[slot, column] = row
            note(log, column * layout.node_stride + slot, row)


def count_episode(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Count the transitions of an episode, and their costs; a plan is due if some visits reach a power of two."""
    counts = tables.counts
    counts.begun[path.first[0]] += 1
    tables.doubled[0] = 0
    for step in range(length):
        row = path.row[step]
        count_step(counts, row, path.following[step], path.payoff[step, 0], path.payoff[step, 1])
        for quantity in range(tables.charge.shape[1]):
            tables.charge[row, quantity] += path.payoff[step, 2 + quantity]
        if counts.visits[row] & (counts.visits[row] - 1) == 0:
            tables.doubled[0] = tables.due[0] = 1


def plan_due(tables: Tables, layout: Layout) -> bool:
    """Must Python plan before the next episode?"""
    return tables.doubled[0] == 1


register(Tables, begin=draw_rows, learn=count_episode, pause=plan_due)
