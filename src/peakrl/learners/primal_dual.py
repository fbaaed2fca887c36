"""Primal-dual learning with counted transitions: plan or improve with prices on the costs, and update the prices.

With P^ = counts/n and means r, c_j of a pair, values of reward and costs follow by backward induction (V_H = C_H = 0,
steps count from 0, rewards from the lower end lo of their range, cap_h = span (H-h)):

    Q_h(s,a)   = min(cap_h, r - lo + span b + P^ V_{h+1}),     C^j_h(s,a) = max(0, c_j - range_j b + P^ C^j_{h+1})
    L_h(s,a)   = Q_h(s,a) - sum_j lam_j C^j_h(s,a);            an untried pair has Q = cap_h and C = 0

    box        b = scale H sum_{s'} beta(s'),  beta = min(1, 2 sqrt(P^(1-P^) l/n) + (14/3) l/n),  l = log(6 S A H K/p)
    Hoeffding  b = scale H sqrt(S l/(n+1)),  with counts/(n+1) in index of counts/n

A *plan* takes the first pair of largest L; V_h(s), C^j_h(s) are its values (OptDual). An *improvement* evaluates the
current policy pi, V_h(s) = sum_a pi(a) (Q - T log pi(a)), C^j_h(s) = sum_a pi(a) C^j_h(s,a), and then sets

    pi(a|s) ~ pi'(a|s)^(1 - step T) exp(step L_h(s,a)),   pi' = (1-m) pi + m/A                  (OptPrimalDual)

In both cases, with C^j the cost from the first states so far and d_j its limit,

    lam_j <- min(most, max(0, (1 - step T) lam_j + step_j (C^j - d_j)))

Steps are constant, or fall as (k+3)^-0.53 with the temperature T ~ (k+3)^-0.4 (regularised). WeiMDP has no steps: it
finds the least price at which the plan satisfies its limit by bisection. What is declared to fail is never
planned, and its pi is 0.

With K episodes, J costs and rho a bound on the prices, the default steps are

    1/t  = rho / (H range_j sqrt(J K)),      step = sqrt(2 log A / K) / (H (span + sum_j rho range_j))

rho = cap_0/gamma if the Slater gap gamma is given (how far some policy stays below all limits), otherwise 2 span: for
realistic limits gamma is so small that its rho would prevent any progress.

OptDual and OptPrimalDual are due to Efroni, Mannor and Pirotta (2020); docs/references.md has the variants.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from peakrl.checks import MOST_EPISODES
from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.jit import inlined, loop
from peakrl.learners.assumptions import Assumptions, Forbidden
from peakrl.learners.base import Sizes, TabularAlgorithm, Task, compiled
from peakrl.learners.cmdp_limits import BudgetSettings
from peakrl.learners.counts import NO_CELL, TransitionCounts, count_path
from peakrl.learners.coverage import Outcomes
from peakrl.learners.empirical_model import LimitedPlanner
from peakrl.learners.episode import Log, Path, note, register
from peakrl.learners.space import planning_order
from peakrl.learners.tables import table
from peakrl.sampling import Words, uniform
from peakrl.tabular import TabularModel
from peakrl.types import Bytes, Floats, Ints, Layout, Longs

#: Rules: plan, improve the policy, or find the price by bisection.
PLAN, IMPROVE, BISECT = 0, 1, 2
#: Falling steps and temperatures of the regularised form.
STEP_POWER, HEAT_POWER, DELAY = -0.53, -0.4, 3.0
#: Bisection: largest number of doublings of a price, and number of halvings.
DOUBLINGS, HALVINGS = 40, 50
#: Episodes between plans of WeiMDP: at least this many, or this share of the episodes so far.
LEAST_BATCH, BATCH_SHARE = 10, 0.02
#: Default bound on prices, in spans of the reward.
USUAL_BOUND = 2.0
#: Points of the curve of prices.
CURVE_POINTS = 1000
#: Visits of a known distribution: probabilities are exact to about 1e-12.
KNOWN_VISITS = float(1 << 40)


class PricedSettings(BudgetSettings):
    """Common settings of the primal-dual learners."""

    rule: ClassVar[int] = PLAN

    #: Scale of the exploration bonus; 1 in the theory.
    bonus: float = Field(default=0.001, ge=0)
    #: p: failure probability of the bonus.
    failure_probability: float = Field(default=0.1, gt=0, lt=1)
    #: Use the transition probabilities of the model: nothing has to be explored.
    known_model: bool = False

    def make(self, task: Task) -> PricedPlanner:
        """Return the algorithm for a target."""
        return (PricedPolicy if self.rule == IMPROVE else PricedPlanner)(task, self)

    @property
    def bound_to_plan(self) -> str | None:
        """Bonus and steps depend on the number of episodes."""
        return "bonus"

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if the model must be known."""
        if self.known_model:
            raise SettingsError("known_model is True, but an environment has no known probabilities: learn on a model")

    def numbers(self, sizes: Sizes, episodes: int) -> dict[str, Any]:
        """Return the constants of `Tables`."""
        budget = self.budget(sizes)
        inside = 6 * sizes.states * sizes.actions * sizes.horizon * episodes / self.failure_probability
        costs = len(budget.limits)
        return {
            "rule": self.rule, "known": self.known_model, "hoeffding": False,
            "bonus": 0.0 if self.known_model else self.bonus * sizes.horizon,
            "log_term": math.log(inside), "states": sizes.states,
            "ranges": budget.ranges, "limit": budget.limits, "price_step": np.zeros(costs),
            "most": np.full(costs, np.inf), "policy_step": 0.0, "mixing": 0.0, "heat": 0.0,
            "quantities": budget.quantities, "by_step": budget.by_step, "batch": 1,
            "keep": max(1, episodes // CURVE_POINTS),
        }  # fmt: skip


class WeiMDP(PricedSettings):
    """Settings of the weighted problem: the least price at which the best deterministic plan satisfies the limit."""

    rule = BISECT

    @model_validator(mode="after")
    def _total(self) -> Self:
        if self.total is None:
            raise ValueError("WeiMDP looks for one price: give total, a limit on the sum of all violations")
        return self


class OptDual(PricedSettings):
    """Settings of the dual learner: plans with prices that follow the excess over the limits."""

    #: gamma: how far some policy stays below all limits, in the unit of the constraints; determines the steps.
    slater: float | None = None
    #: rho: bound on the prices.
    multiplier_bound: float | None = Field(default=None, gt=0)
    #: 1/t: step of a price per unit of excess over its limit.
    multiplier_step: float | None = Field(default=None, gt=0)
    #: A plan is followed for this many episodes; a larger number saves time on large problems.
    episodes_per_plan: int = Field(default=1, ge=1, le=MOST_EPISODES)

    @model_validator(mode="after")
    def _slater(self) -> Self:
        if self.slater is not None and not 0 < self.slater < math.inf:
            raise ValueError(
                f"slater is {self.slater:g}; it must be above 0: without a policy that stays below every limit nothing "
                "bounds the prices. Raise the limits, or leave slater out and give multiplier_bound"
            )
        if self.slater is not None and self.multiplier_bound is not None:
            raise ValueError("slater and multiplier_bound exclude each other: give one of them")
        return self

    def rho(self, sizes: Sizes) -> float:
        """Return the bound on the prices."""
        if self.multiplier_bound is not None:
            return self.multiplier_bound
        return USUAL_BOUND * sizes.span if self.slater is None else sizes.span * sizes.horizon / self.slater

    def numbers(self, sizes: Sizes, episodes: int) -> dict[str, Any]:
        """Return the constants of `Tables`."""
        numbers = super().numbers(sizes, episodes)
        ranges, costs = numbers["ranges"], len(numbers["ranges"])
        step = self.rho(sizes) / (sizes.horizon * ranges * math.sqrt(costs * episodes))
        if self.multiplier_step is not None:
            step = np.full(costs, self.multiplier_step)
        return numbers | {"price_step": step * self.episodes_per_plan, "batch": self.episodes_per_plan}


class OptPrimalDual(OptDual):
    """Settings of the primal-dual learner: a randomised policy is improved step by step."""

    rule = IMPROVE

    #: Step of the logarithm of a probability per unit of value.
    policy_step: float | None = Field(default=None, gt=0)
    #: Bonus: box around each distribution, or Hoeffding with one more visit.
    width: Literal["box", "hoeffding"] = "box"
    #: Share of the uniform policy that is mixed in before each improvement.
    mixing: float = Field(default=0.0, ge=0, lt=1)
    #: Cap prices at twice the bound.
    capped: bool = False
    #: Scale of the temperature; above 0, steps and temperature fall, and the last policy converges.
    temperature: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _falling(self) -> Self:
        if self.temperature > 0 and self.episodes_per_plan > 1:
            raise ValueError(
                f"episodes_per_plan is {self.episodes_per_plan} and temperature {self.temperature:g}: steps that fall "
                "are made for one improvement an episode; leave episodes_per_plan at 1"
            )
        return self

    @classmethod
    def opdop(cls, *, episodes: int | None = None, slater: float | None = None, **settings: Any) -> OptPrimalDual:
        """OPDOP in its tabular form: Hoeffding bonus, mixing 1/K, steps of 1/sqrt(K), prices up to twice the bound.

        `settings` are a limit (`total`, `per_constraint` or `per_step`), `bonus` and `episodes_per_plan`.
        """
        length = known_length(episodes, "OPDOP")
        if slater is None:
            raise SettingsError(
                "slater is not given: OPDOP caps its prices at twice what follows from it; give how far some "
                "policy stays below all limits, or use OptPrimalDual, which does not need it"
            )
        return cls(
            slater=slater, width="hoeffding", mixing=1 / max(length, 2), multiplier_step=1 / math.sqrt(length),
            capped=True, **settings,
        )  # fmt: skip

    @classmethod
    def npg_pd(cls, *, episodes: int | None = None, policy_step: float = 1.0, **limit: Any) -> OptPrimalDual:
        """NPG-PD: natural policy gradient with a known model, and price steps of 1/sqrt(K)."""
        step = 1 / math.sqrt(known_length(episodes, "NPG-PD"))
        return cls(bonus=0.0, known_model=True, policy_step=policy_step, multiplier_step=step, **limit)

    @classmethod
    def regularised(cls, *, temperature: float = 1.0, **settings: Any) -> OptPrimalDual:
        """RPG-PD (with counts UOpt-RPGPD): steps and temperature fall, so that the last policy converges.

        `settings` are a limit (`total`, `per_constraint` or `per_step`), `bonus` and `known_model`.
        """
        return cls(temperature=temperature, **settings)

    def numbers(self, sizes: Sizes, episodes: int) -> dict[str, Any]:
        """Return the constants of `Tables`."""
        numbers = super().numbers(sizes, episodes)
        rho, ranges = self.rho(sizes), numbers["ranges"]
        widest = sizes.horizon * (sizes.span + float((rho * ranges).sum()))
        step = math.sqrt(2 * math.log(max(sizes.actions, 2)) / episodes) / widest
        if self.temperature > 0:  # initial steps, in the units of reward and cost
            step = 1.0 / sizes.span
            numbers["price_step"] = sizes.span / ranges**2 * self.episodes_per_plan
        given = step if self.policy_step is None else self.policy_step
        return numbers | {
            "policy_step": given * self.episodes_per_plan, "hoeffding": self.width == "hoeffding",
            "mixing": self.mixing, "heat": self.temperature,
            "most": np.full(len(ranges), 2 * rho if self.capped else np.inf),
        }  # fmt: skip


def known_length(episodes: Any, name: str) -> int:
    """Return K; raise if it is not a number of episodes: the steps depend on it."""
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        given = "not given" if episodes is None else repr(episodes)
        raise SettingsError(
            f"episodes is {given}: {name}'s steps depend on the length of the run; give the number of "
            "episodes that it will learn for, 1 or more"
        )
    return episodes


class Truth(NamedTuple):
    """The model, for the exact evaluation of a policy."""

    first_slot: Ints
    first_probability: Floats
    #: [row, 2]: expected reward and total violation.
    payoff: Floats

    @classmethod
    def of(cls, model: TabularModel | None) -> Truth:
        """Return what is known of a target: nothing without a model."""
        if model is None:
            return cls(np.empty(0, np.int32), np.empty(0), np.empty((0, 2)))
        mean = np.stack([model.row_reward, model.row_violation.sum(axis=1)], axis=1)
        # Copies: numba would compile everything once more for the read-only arrays of a model.
        return cls(model.first_slot.copy(), model.first_probability.copy(), mean)


class Tables(NamedTuple):
    """Counted transitions, prices, policy and plan, and constants derived from settings and sizes."""

    counts: TransitionCounts
    #: [row, quantity]: sum of costs; [row]: b.
    charge: Annotated[Floats, table("row", "quantity")]
    width: Annotated[Floats, table("row", stored=False)]
    #: [slot, column (+ 1 if steps share slots)]: V; [.., cost]: C.
    w: Annotated[Floats, table("slot", "after", stored=False)]
    cost: Annotated[Floats, table("slot", "after", "cost", stored=False)]
    #: [slot, 1 + cost]: V and C of the next step.
    near: Annotated[Floats, table("slot", "part", stored=False)]
    #: If the model is known: [row] distribution; [distribution, 1 + cost] P^ V and P^ C; [distribution] their column.
    distribution: Longs
    ahead: Annotated[Floats, table("known", "part", stored=False)]
    found: Annotated[Longs, table("known", stored=False)]
    #: [row, column]: log pi, pi, and the latest L.
    preference: Annotated[Floats, table("row", "column", low=-math.inf)]
    chance: Annotated[Floats, table("row", "column", low=0.0, high=1)]
    gain: Annotated[Floats, table("row", "column")]
    #: [slot, column]: the row of largest L, and the row of this episode.
    plan: Annotated[Longs, table("slot", "column", rows=True, stored=False)]
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    #: [row, column]: 1 if declared to fail, which follows from the assumptions.
    forbidden: Annotated[Bytes, table("row", "column", stored=False)]
    #: [cost]: lam, C from the first states, and a buffer for the costs of a row.
    price: Annotated[Floats, table("cost", low=0.0)]
    expected: Annotated[Floats, table("cost", stored=False)]
    row_cost: Annotated[Floats, table("cost", stored=False)]
    #: Episode of the next plan, and number of plans.
    next_plan: Annotated[Longs, table(1, fill=1, low=0, high="next_plan")]
    plans: Annotated[Longs, table(1, low=0)]
    #: [point, 1 + cost]: episode, lam.
    curve: Annotated[Floats, table("point", "part")]
    #: Random stream of the actions.
    words: Annotated[Words, table(4)]
    #: Exact values: [slot, column (+ 1), 2] of each state, [distribution, 2] of its next states and [distribution] its
    #: column; [2] of the policy after so many plans.
    exact: Annotated[Floats, table("slot", "after", 2, stored=False)]
    exact_ahead: Annotated[Floats, table("distribution", 2, stored=False)]
    exact_found: Annotated[Longs, table("distribution", stored=False)]
    value: Annotated[Floats, table(2, stored=False)]
    valued: Annotated[Longs, table(1, fill=-1, stored=False)]
    truth: Truth
    #: [episode, ..]: where exact values are recorded, and the number of episodes before its first.
    experience: Floats
    done: int
    #: [slot]: its step, if slots belong to steps.
    slot_step: Annotated[Longs, table("slot", stored=False)]
    #: Slots in the order of planning, last step first.
    order: Longs
    #: 1 if a column is a step, 0 if slots belong to steps.
    shift: int
    rule: int
    known: bool
    hoeffding: bool
    lowest: float
    span: float
    #: Scale of b times H, l, and S.
    bonus: float
    log_term: float
    states: int
    #: [cost]
    ranges: Floats
    limit: Floats
    price_step: Floats
    most: Floats
    policy_step: float
    mixing: float
    #: c of the temperature; 0: constant steps.
    heat: float
    quantities: int
    by_step: bool
    #: Episodes from one plan to the next, and from one point of the curve to the next.
    batch: int
    keep: int


class PricedPlanner(LimitedPlanner[Tables]):
    """Counted transitions, prices, and the plan."""

    stream = 0x7072696D616C6475

    def __init__(self, task: Task, settings: PricedSettings) -> None:
        budget, model, known = settings.budget(task.sizes), task.model, settings.known_model
        distributions = 0 if model is None else len(model.layout.outcome_start) - 1
        distribution = np.array(compiled(task).layout.row_distribution if known else [0], np.int64)
        sizes = {
            "part": 1 + len(budget.limits), "point": min(task.episodes, 2 * CURVE_POINTS),
            "distribution": distributions, "known": distributions if known else 1,
        }  # fmt: skip
        super().__init__(
            task, Tables, budget, sizes, distribution=distribution, truth=Truth.of(model),
            experience=np.empty((0, 2)), done=0, **settings.numbers(task.sizes, task.episodes),
        )  # fmt: skip
        self.batch = max(LEAST_BATCH, self.store.constants["batch"])

    @property
    def log_room(self) -> int:
        """An episode draws or plans each node once."""
        return self.space.slots * self.columns

    def start(self, first: int, first_row: int, log: Log) -> None:
        """New slots have a uniform policy."""
        space, tables = self.space, self.tables
        offers = np.diff(self.layout.row_start)[space.slot_of_row[first_row:]]
        tables.chance[first_row:] = 1.0 / offers[:, None]
        tables.preference[first_row:] = -np.log(offers)[:, None]
        if first < space.ends:
            tables.w[: space.ends] = self.end_values()
        if first == 0:
            self._take_distributions()
        self.store.set(order=planning_order(self.space))
        if first > 0 and self.randomised:  # visited in the middle of an episode: draw their rows
            follow(self.tables, self.layout, first, log)

    def _take_distributions(self) -> None:
        """If the model is known, set the counts to its transition probabilities."""
        tables, counts = self.tables, self.tables.counts
        if not tables.known:
            return
        model = compiled(self.task)
        layout = model.layout
        last, cells = layout.outcome_start[1:] - 1, slice(len(layout.outcome_next))
        counts.following[cells] = layout.outcome_next
        counts.count[cells] = np.rint(KNOWN_VISITS * layout.outcome_probability)
        counts.before[cells] = np.arange(-1, len(layout.outcome_next) - 1)
        counts.before[layout.outcome_start[:-1]] = NO_CELL
        visits = np.add.reduceat(counts.count[cells], layout.outcome_start[:-1])[layout.row_distribution]
        counts.first[:], counts.visits[:] = last[layout.row_distribution], visits
        counts.reward[:] = model.row_reward * visits
        for quantity, column in enumerate(self.budget.charges(model.payoffs.constraints).T):
            tables.charge[:, quantity] = model.row_means(np.ascontiguousarray(column)) * visits
        counts.begun[model.first_slot] = np.rint(KNOWN_VISITS * model.first_probability)
        counts.cells[0] = len(layout.outcome_next)

    def forbid(self, declared: Forbidden) -> None:
        """Never plan or draw forbidden rows, unless all rows of the state are forbidden."""
        super().forbid(declared)
        tables, sizes, rows = self.tables, declared.sizes, slice(declared.first, None)
        tables.plan[declared.low :] = declared.replaced(self.layout.row_start[declared.low : -1, None])
        each = np.repeat(np.where(declared.counts > 0, declared.counts, sizes[:, None]), sizes, axis=0)
        tables.chance[rows] = np.where(declared.avoidable, 0.0, 1.0 / each)
        tables.preference[rows] = np.where(declared.avoidable, -np.inf, -np.log(each))

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full."""
        self.store.set(experience=experience, done=done)
        return super().run(generator, done, episodes, log, experience, counters)

    # Results -------------------------------------------------------------------------------------------------

    def multipliers(self) -> Floats:
        """[cost]: the current prices."""
        return self.tables.price.copy()

    def multiplier_curve(self) -> Floats:
        """[point, 1 + cost]: episode, and the prices of its plan."""
        curve = self.tables.curve
        return curve[curve[:, 0] > 0]

    def visits(self) -> Longs | None:
        """[row]: visits; None if the model is known."""
        return None if self.tables.known else super().visits()

    def outcomes(self) -> Outcomes | None:
        """Counted outcomes; None if the model is known."""
        return None if self.tables.known else super().outcomes()

    def values(self) -> Floats:
        """[entry]: L of the latest plan."""
        return self.space.entries_of(self.tables.gain)

    def check(self, done: int) -> None:
        """Raise if loaded tables are out of range; known distributions are taken from the model again."""
        self._take_distributions()
        if self.tables.known:
            TabularAlgorithm.check(self, 2 * int(KNOWN_VISITS))
        else:
            super().check(done)


class PricedPolicy(PricedPlanner):
    """Counted transitions, prices, and a randomised policy."""

    randomised = True

    def chances(self) -> Floats:
        """[entry]: the probabilities of the actions."""
        return self.space.entries_of(self.tables.chance)


@loop
def widen(tables: Tables) -> None:
    """Set b of every row."""
    for row in range(tables.width.shape[0]):
        n = tables.counts.visits[row]
        if n == 0 or tables.bonus == 0.0:
            tables.width[row] = 0.0
        elif tables.hoeffding:
            tables.width[row] = tables.bonus * math.sqrt(tables.states * tables.log_term / (n + 1))
        else:
            share = tables.log_term / n
            total, seen, cell = 0.0, 0, tables.counts.first[row]
            while cell != NO_CELL:
                p = tables.counts.count[cell] / n
                total += min(1.0, 2.0 * math.sqrt(p * (1.0 - p) * share) + 14.0 / 3.0 * share)
                seen += 1
                cell = tables.counts.before[cell]
            total += max(tables.states - seen, 0) * min(1.0, 14.0 / 3.0 * share)
            tables.width[row] = tables.bonus * total


@inlined
def look_ahead(tables: Tables, row: int, column: int) -> int:
    """Return the index of a row's expectations in `tables.ahead`; computed once for rows of a known distribution."""
    index = np.int64(tables.distribution[row] if tables.known else 0)
    if not tables.known or tables.found[index] != column:
        tables.found[index] = column
        share = 1.0 / (tables.counts.visits[row] + tables.hoeffding)
        for part in range(tables.ahead.shape[1]):
            total, cell = 0.0, tables.counts.first[row]
            while cell != NO_CELL:
                total += tables.counts.count[cell] * share * tables.near[tables.counts.following[cell], part]
                cell = tables.counts.before[cell]
            tables.ahead[index, part] = total
    return index


@inlined
def judge(tables: Tables, row: int, column: int, step: int, cap: float) -> float:
    """Return Q of a row, and set its costs in `row_cost`."""
    n = tables.counts.visits[row]
    if n == 0:
        tables.row_cost[:] = 0.0
        return cap
    index = look_ahead(tables, row, column)
    for j in range(tables.row_cost.shape[0]):
        when = j // tables.quantities if tables.by_step else step
        charge = tables.charge[row, j % tables.quantities] / n if when == step else 0.0
        cost = charge - tables.ranges[j] * tables.width[row] + tables.ahead[index, 1 + j]
        tables.row_cost[j] = 0.0 if when < step else max(0.0, cost)
    reward = tables.counts.reward[row] / n - tables.lowest
    return min(cap, reward + tables.span * tables.width[row] + tables.ahead[index, 0])


@inlined
def bring_near(tables: Tables, slot: int, column: int) -> None:
    """Copy value and costs of a slot to `near`, where those of all slots are adjacent."""
    tables.near[slot, 0] = tables.w[slot, column]
    for j in range(tables.cost.shape[2]):
        tables.near[slot, 1 + j] = tables.cost[slot, column, j]


@loop
def sweep(tables: Tables, layout: Layout, heat: float) -> None:
    """Plan, or evaluate the current policy, by backward induction."""
    costs, columns = tables.price.shape[0], tables.greedy.shape[1]
    tables.found[:] = -1
    for back in range(columns):
        column = columns - 1 - back
        for slot in range(tables.near.shape[0]):
            bring_near(tables, slot, column + tables.shift)
        for index in range(tables.order.shape[0]):
            slot = tables.order[index]
            step = column if tables.shift == 1 else tables.slot_step[slot]
            first, last = layout.row_start[slot], layout.row_start[slot + 1]
            cap = (tables.span + heat * math.log(last - first)) * (layout.horizon - step)
            best, value = -math.inf, 0.0
            tables.cost[slot, column, :] = 0.0
            for row in range(first, last):
                q = judge(tables, row, column, step, cap)
                lagrangian = q
                for j in range(costs):
                    lagrangian -= tables.price[j] * tables.row_cost[j]
                tables.gain[row, column] = lagrangian
                if tables.rule == IMPROVE:
                    p = tables.chance[row, column]
                    value += p * (q - heat * tables.preference[row, column]) if p > 0.0 else 0.0
                    for j in range(costs):
                        tables.cost[slot, column, j] += p * tables.row_cost[j]
                elif lagrangian > best and tables.forbidden[row, column] == 0:
                    best, value = lagrangian, q
                    tables.plan[slot, column] = row
                    for j in range(costs):
                        tables.cost[slot, column, j] = tables.row_cost[j]
            tables.w[slot, column] = value
            if tables.shift == 0:  # earlier steps use this column, too
                bring_near(tables, slot, column)
    start_costs(tables)


@loop
def start_costs(tables: Tables) -> None:
    """Set the expected costs from the first states so far."""
    total = 0.0
    tables.expected[:] = 0.0
    for slot in range(tables.counts.begun.shape[0]):
        if tables.counts.begun[slot] > 0:
            total += tables.counts.begun[slot]
            for j in range(tables.expected.shape[0]):
                tables.expected[j] += tables.counts.begun[slot] * tables.cost[slot, 0, j]
    for j in range(tables.expected.shape[0]):
        tables.expected[j] /= max(total, 1.0)


@loop
def improve(tables: Tables, layout: Layout, step_size: float, heat: float) -> None:
    """Update pi with the latest L."""
    # Steps are independent here, and the columns of a row are adjacent.
    for index in range(tables.order.shape[0]):
        slot = tables.order[index]
        first, last = layout.row_start[slot], layout.row_start[slot + 1]
        for column in range(tables.greedy.shape[1]):
            most = -math.inf
            for row in range(first, last):
                old = tables.preference[row, column]
                if tables.mixing > 0.0 and tables.forbidden[row, column] == 0:
                    old = math.log((1.0 - tables.mixing) * tables.chance[row, column] + tables.mixing / (last - first))
                new = (1.0 - step_size * heat) * old + step_size * tables.gain[row, column]
                tables.preference[row, column] = new
                most = max(most, new)
            total = 0.0
            for row in range(first, last):
                tables.preference[row, column] -= most
                tables.chance[row, column] = math.exp(tables.preference[row, column])
                total += tables.chance[row, column]
            whole = math.log(max(total, 1.0))  # the largest term is 1, if there is any
            for row in range(first, last):
                tables.preference[row, column] -= whole
                tables.chance[row, column] /= total


@loop
def move_prices(tables: Tables, step_scale: float, shrink: float) -> None:
    """Update every price by the excess over its limit."""
    for j in range(tables.price.shape[0]):
        step = tables.price_step[j] * step_scale
        moved = (1.0 - shrink) * tables.price[j] + step * (tables.expected[j] - tables.limit[j])
        tables.price[j] = min(tables.most[j], max(0.0, moved))


@loop
def bisect(tables: Tables, layout: Layout) -> None:
    """Plan with the least price that satisfies the limit; if none does, with the largest that was tried."""
    low, high = 0.0, 0.0
    tables.price[0] = high
    sweep(tables, layout, 0.0)
    doublings = 0
    while tables.expected[0] > tables.limit[0] and doublings < DOUBLINGS:
        low, high = high, max(tables.span, 2.0 * high)
        tables.price[0] = high
        sweep(tables, layout, 0.0)
        doublings += 1
    for _ in range(HALVINGS if 0 < doublings < DOUBLINGS else 0):
        tables.price[0] = (low + high) / 2.0
        sweep(tables, layout, 0.0)
        if tables.expected[0] > tables.limit[0]:
            low = tables.price[0]
        else:
            high = tables.price[0]
    tables.price[0] = high
    sweep(tables, layout, 0.0)


@loop
def replan(tables: Tables, layout: Layout, episode: int) -> None:
    """Plan or improve, and update the prices."""
    k = tables.plans[0]
    tables.plans[0] += 1
    tables.next_plan[0] = episode + tables.batch
    widen(tables)
    if tables.rule == BISECT:
        bisect(tables, layout)
        tables.next_plan[0] = episode + max(LEAST_BATCH, int(BATCH_SHARE * (episode - 1)))
    elif tables.rule == PLAN or k > 0 or tables.known:  # there is nothing to improve by before the first episode
        fall = (k + DELAY) ** STEP_POWER if tables.heat > 0.0 else 1.0
        heat = tables.heat * tables.span * (k + DELAY) ** HEAT_POWER if tables.heat > 0.0 else 0.0
        sweep(tables, layout, heat)
        if tables.rule == IMPROVE:
            improve(tables, layout, tables.policy_step * fall, heat)
        if k > 0 or tables.known:
            move_prices(tables, fall, fall * heat / tables.span)


@inlined
def draw_row(tables: Tables, layout: Layout, slot: int, column: int) -> int:
    """Return a row drawn from pi; no random number is used if there is one row."""
    row, last = layout.row_start[slot], layout.row_start[slot + 1] - 1
    if row < last:
        left = uniform(tables.words) - tables.chance[row, column]
        while left >= 0.0 and row < last:
            row += 1
            left -= tables.chance[row, column]
    return np.int64(row)


def begin_episode(tables: Tables, layout: Layout, generator: Words, episode: int, log: Log) -> None:
    """Plan if it is due; follow the plan or draw from the policy."""
    due = episode >= tables.next_plan[0]
    if due:
        replan(tables, layout, episode)
    point = episode // tables.keep - 1
    if episode % tables.keep == 0 and point < tables.curve.shape[0]:
        tables.curve[point, 0] = episode
        for j in range(tables.price.shape[0]):
            tables.curve[point, 1 + j] = tables.price[j]
    if due or tables.rule == IMPROVE:
        follow(tables, layout, np.int64(0), log)


@loop
def follow(tables: Tables, layout: Layout, begin: int, log: Log) -> None:
    """Follow the plan, or draw from pi, in the slots from `begin` on."""
    for column in range(tables.greedy.shape[1]):
        for index in range(tables.order.shape[0]):
            slot = tables.order[index]
            if slot < begin:
                continue
            row = tables.plan[slot, column] if tables.rule != IMPROVE else draw_row(tables, layout, slot, column)
            if tables.greedy[slot, column] != row:
                tables.greedy[slot, column] = row
                note(log, column * layout.node_stride + slot, row)


@inlined
def expect(tables: Tables, layout: Layout, d: int, column: int) -> None:
    """Set the expectations of the next exact values of a distribution, which rows share."""
    tables.exact_ahead[d, :] = 0.0
    for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
        for q in range(2):
            following = tables.exact[layout.outcome_next[o], column, q]
            tables.exact_ahead[d, q] += layout.outcome_probability[o] * following


@loop
def exact_values(tables: Tables, layout: Layout) -> None:
    """Set the exact value and violation of pi."""
    columns, truth = tables.chance.shape[1], tables.truth
    tables.exact_found[:] = -1
    for back in range(columns):
        column = columns - 1 - back
        for index in range(tables.order.shape[0]):
            slot = tables.order[index]
            tables.exact[slot, column, :] = 0.0
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                p = tables.chance[row, column]
                if p > 0.0:
                    d = layout.row_distribution[row]
                    if tables.exact_found[d] != column:
                        expect(tables, layout, np.int64(d), column + tables.shift)
                        tables.exact_found[d] = column
                    for q in range(2):
                        tables.exact[slot, column, q] += p * (truth.payoff[row, q] + tables.exact_ahead[d, q])
    tables.value[:] = 0.0
    for i in range(truth.first_slot.shape[0]):
        for q in range(2):
            tables.value[q] += truth.first_probability[i] * tables.exact[truth.first_slot[i], 0, q]


def learn(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Count an episode, unless the model is known; record the exact value of a randomised policy."""
    if not tables.known:
        count_path(tables.counts, path, length)
        for step in range(length):
            for quantity in range(tables.charge.shape[1]):
                tables.charge[path.row[step], quantity] += path.payoff[step, 2 + quantity]
    if tables.experience.shape[0] > 0 and tables.experience.shape[1] == 4:
        if tables.valued[0] != tables.plans[0]:  # otherwise pi has not changed
            exact_values(tables, layout)
            tables.valued[0] = tables.plans[0]
        for q in range(2):
            tables.experience[episode - tables.done - 1, 2 + q] = tables.value[q]


register(Tables, begin=begin_episode, learn=learn)
