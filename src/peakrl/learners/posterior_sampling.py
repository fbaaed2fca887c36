"""Posterior sampling with a memory of violations: plan with transition probabilities drawn from the posterior.

Let n(o) be the number of times that outcome o (next state, reward, violation) of a pair was observed, and n their sum.
One draw from the posterior is

    p* = 1 - (u/w)^(1/2n) if u < w, otherwise 0,    u uniform,    (p(o), ...) ~ (1 - p*) Dirichlet(n(o), ...),

with p* the probability of an optimistic pseudo-outcome, which earns as much as possible. A share w of the draws comes
from Beta(1, 2n), as for a pseudo-outcome of prior mass 1; w > 1 shifts that distribution upwards. In all cases

    P(p* > x) = min(1, w (1 - x)^(2n)),    w = max(optimism, 6/N (most_0 - V_0(s_0)) / (most_0 - least_0)),

with N the number of pairs. The fraction is the share of the range of returns that is still to gain from the first
state: if much is to gain, six of the pairs are drawn with a pseudo-outcome at each plan. The plan by backward
induction minimises the expected violation C first and maximises the value V second (steps count from 0;
V_H = C_H = 0):

    Q_h(s,a) = sum_o p(o) (r(o) + V_{h+1}(s'(o))) + p* (hi + most_{h+1}),    at most most_h = (H-h) hi
    C_h(s,a) = sum_o p(o) (v(o) + C_{h+1}(s'(o)))
    pi_h(s)  = argmin_a C_h(s,a), ties by the largest Q_h(s,a), then by the first.

An untried pair has Q = most_h and C = 0. C_h(s,a) > 0 means that the pair was observed to violate, or to lead to a
state in which every pair was. This is never forgotten, and such a pair is only taken if there is no other. C_0 > 0 in a
first state proves the problem infeasible; from then on the same rule minimises the violation. A positive C is at least
`LEAST_COST`, so that no product underflows to 0.

* Updates: after each episode its states are backed up along the path, last step first; a pair whose visits have grown
  by a quarter since its last draw is drawn again on the way. After the first violation of a pair, its state is backed
  up at every step. All pairs are drawn again, and a full plan is made, when episodes have grown by `growth`.
* Large spaces: a full plan visits every observed outcome at every step. It is postponed until all plans together have
  taken at most twice the work of the backups along paths, after an initial credit. Between two plans only paths are
  backed up, as in real-time dynamic programming.
* Returned policy: the plan with p(o) = n(o)/n and p* = 0. An untried pair has Q = -inf and C = 0: it is taken only if
  everything else is known to fail, and after a proof of infeasibility only if nothing was tried.
* Discount g: steps share one column, and Q(s,a) = sum_o p(o) (r(o) + g V(s'(o))) + p* most, at most most = hi / (1-g);
  C likewise. A plan approaches this fixed point from the values of the plan before, by sweeps over all states until no
  value changes by more than a share 1e-4 (1-g) of the range of values, 1e-7 (1-g) for the returned policy, in which
  V is at least lo / (1-g).
* Assumptions: a pair that is declared to fail has C of at least `LEAST_COST` before it is tried.
* Shared distributions: outcomes of pairs that are declared to have the same distribution are counted together, by next
  state; then Q_h(s,a) = mean reward of (s,a) + sum_o p(o) V_{h+1}(s'(o)) + p* most_{h+1}, with hi as the mean reward of
  an untried pair. C likewise.

Convergence. Let states, actions and outcomes be finite, let no distributions be shared, and let the problem not be
proved infeasible. An entry (step, state, action) *matters* if some policy that takes it, and takes nothing known to
fail, would earn more than the optimum V* if the largest possible return followed the entry. *With probability 1 every
entry that matters is tried infinitely often.* Proof:

1. There are infinitely many full plans: their work is bounded, and that of the episodes grows without bound. What is
   known to fail changes finitely often. Let I be the entries tried infinitely often, F the others that are not known to
   fail, with n(e) visits in the end. Violations and dead ends behind entries of I have been seen, so that policies with
   entries of I alone violate nothing.
2. Call a full plan good if p* > 1 - d for all of F, and if p* < d and all probabilities are within d of the true ones
   for all of I. Draws are independent, w is bounded and at least `optimism`, and visits of I grow without bound; so the
   probability of a good plan, given the past, is in the end at least half of the product over F of optimism d^(2n(e)).
   By Levy's extension of the Borel-Cantelli lemma infinitely many plans are good.
3. An episode follows each plan. There are finitely many policies; if infinitely many good plans had a policy that takes
   an entry of F with positive probability, F would be tried infinitely often, by the same lemma. So in the end the
   policies of good plans take entries of I alone, and their drawn values are at most V* up to an error that vanishes
   with d.
4. Let U(pi) be the value of a policy if the largest possible return follows its first entry of F. In a good plan its
   drawn value is at least U(pi) up to such an error, and the plan is the best one. So U(pi) <= V* for every policy that
   takes nothing known to fail: no entry of F matters.

For the same reason some policy with entries of I alone is optimal. Its estimated value converges to V*, and the
estimate of a policy that takes an entry of F exceeds U(pi) <= V* by an error that vanishes: it can tie, but no better
policy is missed. How fast: K draws of a pair with n visits all stay below x with probability (1 - w (1 - x)^(2n))^K,
and until episode M all pairs are drawn about log(M)/growth times. The regret bound of Tiapkin et al. (2022) is not
claimed: it takes a number of samples of each posterior that is logarithmic in the episodes, here there is one.

Posterior sampling for reinforcement learning is due to Strens (2000) and Osband, Russo and Van Roy (2013), the
optimistic pseudo-outcome to Tiapkin et al. (2022); docs/references.md.

Tables. A *distribution* belongs to one row, or to several that are declared to share it. A *cell* is an observed
outcome of a distribution. The cells of a distribution are a linked list: `head[distribution]`, then `cell_link[cell]`,
until -1. Tables of a plan are [slot, column]; a column is a step if steps share slots, otherwise there is one column.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.jit import inlined, loop
from peakrl.learners.assumptions import (
    NO_GROUPS,
    Assumptions,
    Forbidden,
    Groups,
    check_max_reward,
    distributions_of_rows,
    known_violations,
    make_groups,
    numbered,
)
from peakrl.learners.base import Episode, LearnerSettings, TabularAlgorithm, Task
from peakrl.learners.counts import NO_CELL, check_lists
from peakrl.learners.coverage import Outcomes, collect
from peakrl.learners.episode import Log, Path, note, register
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES, Memory
from peakrl.learners.space import ModelSpace, planning_order
from peakrl.learners.tables import table
from peakrl.planning.backward import LEAST_COST, TIE
from peakrl.sampling import Words, draw_gamma, uniform
from peakrl.types import Bools, Floats, Ints, Layout, Longs

#: Work of plans that is allowed in addition to twice the work of the episodes: well under a second.
CREDIT = 100_000_000
#: From this many cells on, outcomes of a distribution that differ only in their reward share a cell.
MOST_KINDS = 64
#: A gamma number takes about as long as this many cells of a backup.
DRAW_WORK = 10
#: Pairs that a plan draws with an optimistic pseudo-outcome if everything is still to gain.
OPTIMISTIC_PAIRS = 6.0
#: Cost of an untried pair in the returned policy after a proof of infeasibility: larger than any observed.
UNKNOWN_COST = 1e200
#: Plan with the drawn probabilities, not with means. Not a literal True: numba would compile another specialisation.
DRAWN = np.bool_(True)
#: With a discount: the error of values after a drawn and of a returned plan, relative to their range; most sweeps.
DRAWN_TOLERANCE, TOLERANCE, MOST_SWEEPS = 1e-4, 1e-7, 100_000


class PosteriorSampling(LearnerSettings):
    """Settings of posterior sampling, the default: it follows a plan on transition probabilities drawn from counts.

    Among the policies of least known violation, the plan takes the best one. The learned policy is the plan on plain
    means.
    """

    #: Least share of draws with an optimistic pseudo-outcome, which earns as much as possible: more explores more.
    optimism: float = Field(default=0.04, gt=0, le=1)
    #: All pairs are drawn again when the number of episodes has grown by this share.
    replan_growth: float = Field(default=0.005, gt=0, le=1)

    discounts = True

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if shared distributions are declared as those of a model."""
        if assumptions.shared_transitions is True:
            raise SettingsError(
                "shared_transitions is True, but an environment has none: pass a function (step, state, action)"
            )

    def make(self, task: Task) -> PosteriorLearner:
        """Return the algorithm for a target."""
        return PosteriorLearner(task, self)


class Tables(NamedTuple):
    """Counted outcomes, the latest draw from the posterior, and the plan with it."""

    #: [slot, column], with a column of zeros after the last step if steps share slots; [slot, column]: the chosen row.
    value: Annotated[Floats, table("slot", "after")]
    cost: Annotated[Floats, table("slot", "after", low=0)]
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    #: [slot]: episodes that began in it.
    begun: Annotated[Longs, table("slot", low=0, high="done")]
    #: [distribution]: first cell, number of cells, visits, visits at its latest draw, probability of pseudo-outcome.
    head: Annotated[Ints, table("distribution", fill=NO_CELL, low=NO_CELL, below="cell")]
    kinds: Annotated[Ints, table("distribution", low=0, high="steps")]
    visits: Annotated[Longs, table("distribution", low=0, high="steps")]
    drawn: Annotated[Longs, table("distribution", low=0, high="steps")]
    optimism: Annotated[Floats, table("distribution", fill=1, low=0, high=1)]
    #: [row]: visits; mean reward and violation if distributions are shared, otherwise 0; largest violation.
    tried: Annotated[Longs, table("row", low=0, high="steps")]
    row_reward: Annotated[Floats, table("row")]
    row_cost: Annotated[Floats, table("row", low=0)]
    max_violation: Annotated[Floats, table("row", low=0)]
    #: [cell]: next slot, next cell of the list, count; mean reward and violation; drawn probability.
    cell_next: Annotated[Ints, table("cell", low=0, below="slot")]
    cell_link: Annotated[Ints, table("cell", fill=NO_CELL, low=NO_CELL, below="cell")]
    cell_count: Annotated[Longs, table("cell", low=1, high="steps")]
    cell_reward: Annotated[Floats, table("cell")]
    cell_cost: Annotated[Floats, table("cell", low=0)]
    cell_weight: Annotated[Floats, table("cell", low=0, high=1)]
    cells: Annotated[Longs, table(1, counts="cell")]
    #: The learner's own random numbers.
    words: Annotated[Words, table(4)]
    #: Episodes and plans so far; episodes at the next plan; work of plans, and of episodes, in visited cells.
    episodes: Annotated[Longs, table(1, low=0, high="done")]
    plans: Annotated[Longs, table(1, low=0)]
    next_plan: Annotated[Longs, table(1, low=0, high="next_plan")]
    plan_work: Annotated[Longs, table(1, low=0)]
    step_work: Annotated[Longs, table(1, low=0)]
    #: Episode of the proof of infeasibility (0: none), and its first state.
    proved: Annotated[Longs, table(1, low=0, high="done")]
    dead_first: Annotated[Longs, table(1, low=0, below="slot")]
    #: [row]: its slot and its distribution; [row, column]: declared to fail, empty if nothing is.
    slot_of_row: Annotated[Ints, table("row", stored=False)]
    distribution_of_row: Annotated[Ints, table("row", stored=False)]
    forbidden: Annotated[Bools, table("row", "column", stored=False, when="limited")]
    #: [slot]: its step, if slots belong to steps.
    slot_step: Annotated[Longs, table("slot", stored=False)]
    #: Slots in the order of planning, last step first; any order if steps share slots.
    order: Longs
    #: Rows that are declared to have the same constraints.
    groups: Groups
    #: [step, 0 .. H]: largest and least reward of the remaining steps.
    most: Floats
    least: Floats
    #: Weight of the next step; the least value of a state, minus infinity without a discount.
    discount: float
    floor: float
    #: 1 if a column is a step, 0 if slots belong to steps.
    shift: int
    #: Do rows share distributions? Then rewards and violations are counted by row.
    shared: bool
    #: Least share of draws with an optimistic pseudo-outcome.
    least_share: float
    #: A plan is due when episodes have grown by this share.
    growth: float
    #: Work of plans that is allowed in addition to twice the work of the episodes.
    credit: int


class PosteriorLearner(TabularAlgorithm[Tables]):
    """Counted outcomes, and the plan with the latest draw."""

    stream = 0x706F73746572696F

    def __init__(self, task: Task, settings: PosteriorSampling) -> None:
        check_max_reward(task.model, task.assumptions.max_reward)
        self.depends_on, self.grouping = task.assumptions.constraint_depends_on, task.assumptions.shared_transitions
        self.place_when_new = 0 if self.depends_on is None else None
        lo, hi = task.sizes.reward_range
        hi = hi if task.assumptions.max_reward is None else min(hi, task.assumptions.max_reward)
        left, discount = task.space.left, task.space.discount
        super().__init__(
            task, Tables, {"distribution": 0, "limited": 0}, groups=NO_GROUPS, most=hi * left, least=lo * left,
            discount=discount or 1.0, floor=-np.inf if discount is None else lo * left[0],
            shared=bool(self.grouping), least_share=settings.optimism,
            growth=settings.replan_growth, credit=CREDIT,
        )  # fmt: skip
        self._distribution_numbers: dict[Hashable, int] = {}
        self._decision: tuple[int, Tables] | None = None

    # Tables --------------------------------------------------------------------------------------------------

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables."""
        first_row = self.store.sizes["row"]
        distributions = self._number_distributions(first_row)
        sizes = self.store.sizes
        sizes["distribution"] = max(sizes["distribution"], int(distributions.max(initial=-1)) + 1)
        super().grow(first, log)
        self.tables.distribution_of_row[first_row:] = distributions

    def start(self, first: int, first_row: int, log: Log) -> None:
        """New entries start optimistic; there is room for the outcomes of one more episode."""
        self.store.reserve(self.space.horizon)
        space, tables = self.space, self.tables
        offers = np.flatnonzero(np.diff(self.layout.row_start[first:])) + first
        tables.value[offers] = tables.most if space.shift else tables.most[space.slot_step[offers], None]
        if space.shift:
            tables.value[offers, -1] = 0.0
        if self.task.model is not None:
            self.store.set(order=planning_order(self.space))
        if self.depends_on is not None and self.task.model is None:
            known = known_violations(space, self.depends_on, tables.max_violation, first_row)
            tables.max_violation[first_row:] = known
            self._begin_with_others(first, log)
        elif self.depends_on is not None:
            self.store.set(groups=make_groups(space, self.depends_on, self.task.model))

    def _begin_with_others(self, first: int, log: Log) -> None:
        """Start the slots from `first` on with a row that is not known to fail, if there is one, and log it."""
        start, tables = self.layout.row_start, self.tables
        for slot in range(first, self.space.slots):
            good = np.flatnonzero(tables.max_violation[start[slot] : start[slot + 1]] == 0.0)
            if good.size and good[0] > 0:
                tables.greedy[slot] = chosen = start[slot] + good[0]
                log.extend(np.arange(self.columns) * self.layout.node_stride + slot, chosen)

    def forbid(self, declared: Forbidden) -> None:
        """Treat what is declared to fail as known to fail."""
        if not self.store.sizes["limited"]:
            self.store.grow(limited=1)
        self.take_allowed(declared)
        tables, first = self.tables, declared.first
        tables.forbidden[first:] = declared.entries
        tables.max_violation[first:] = np.maximum(tables.max_violation[first:], declared.max_violation)
        tables.cost[declared.low :, : self.columns][declared.hopeless] = LEAST_COST

    def _number_distributions(self, first: int) -> NDArray[Any]:
        """[row - first]: the distributions of the rows from `first` on: each its own, or that of its group."""
        space = self.space
        if not self.grouping:
            return np.arange(first, space.rows)
        if isinstance(space, ModelSpace):
            return distributions_of_rows(space, self.task.assumptions)
        assert callable(self.grouping)
        return numbered(space, first, self.grouping, self._distribution_numbers)

    @property
    def log_room(self) -> int:
        """A plan may change every node, a violation every step of the states of its group, a path its steps."""
        largest = int(np.diff(self.store.constants["groups"].start).max(initial=1))
        if self.task.model is None and self.depends_on is not None:
            largest = self.space.rows
        return self.columns * self.space.slots + self.space.horizon * (1 + self.columns * largest)

    # Learning ------------------------------------------------------------------------------------------------

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode; plan if it is due."""
        if self.depends_on is not None and played.violation.any():
            self.store.set(groups=make_groups(self.space, self.depends_on, None))
        if episode >= self.tables.next_plan[0]:
            self.store.set(order=planning_order(self.space))
        super().learn(played, episode, log)

    # Results -------------------------------------------------------------------------------------------------

    def decision(self) -> Tables:
        """Return the tables with the plan with the empirical means."""
        seen = int(self.tables.episodes[0])
        if self._decision is None or self._decision[0] != seen or len(self._decision[1].greedy) < self.space.slots:
            self._decision = seen, self._planned(self.tables)
        return self._decision[1]

    def _planned(self, tables: Tables) -> Tables:
        """Return the tables with a plan of their own."""
        first = np.repeat(self.layout.row_start[:-1, None], self.columns, axis=1)
        own = tables._replace(
            value=np.zeros_like(tables.value), cost=np.zeros_like(tables.cost), greedy=first,
            order=planning_order(self.space),
        )  # fmt: skip
        make_plan(own, self.layout, False, Log.of_size(0))
        return own

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the rows of the plan with the empirical means."""
        return self.decision().greedy

    def visits(self) -> Longs:
        """[row]: how often it was taken."""
        return self.tables.tried

    def outcomes(self) -> Outcomes:
        """Counted outcomes of each distribution."""
        tables, cells = self.tables, slice(int(self.tables.cells[0]))
        return collect(
            tables.head, tables.cell_link[cells], tables.cell_next[cells], tables.cell_count[cells],
            tables.distribution_of_row, tables.begun,
        )  # fmt: skip

    def _judged(self) -> tuple[Floats, NDArray[np.int32]]:
        """[row, column]: Q with the empirical means, and why a row is known to fail."""
        value, witness = np.empty(shape := (self.space.rows, self.columns)), np.full(shape, NO_WITNESS, np.int32)
        known = self.decision()
        judge_all(known, self.layout, value, witness)
        if self.proved_in:
            # The returned policy then avoids untried rows, which does not make a state with one a dead end.
            known = self._planned(self.tables._replace(proved=np.zeros(1, np.int64)))
        if self.space.discount is not None:  # find the dead slots again: each rests on others that were found before
            known = known._replace(cost=np.zeros_like(known.cost))
        if self.proved_in or self.space.discount is not None:
            witness[:] = NO_WITNESS
            while judge_all(known, self.layout, np.empty_like(value), witness):
                pass
        return value, witness

    def values(self) -> Floats:
        """[entry]: Q with the empirical means; minus infinity for actions that are untried or known to fail."""
        value, witness = self._judged()
        return self.space.entries_of(np.where(witness == NO_WITNESS, value, -np.inf))

    def memory(self) -> Memory:
        """What is known to fail, and why."""
        return Memory(self._judged()[1], self.tables.max_violation)

    def check(self, done: int) -> None:
        """Raise if loaded tables are out of range."""
        super().check(done)
        check_lists(self.tables.head, self.tables.cell_link[: int(self.tables.cells[0])])


@loop
def draw_distribution(tables: Tables, distribution: int, share: float) -> None:
    """Draw the probabilities of outcomes; before the first visit the pseudo-outcome has probability 1."""
    tables.drawn[distribution] = tables.visits[distribution]
    if tables.visits[distribution] == 0:
        tables.optimism[distribution] = 1.0
        return
    u = uniform(tables.words) / share
    optimism = 1.0 - u ** (0.5 / tables.visits[distribution]) if u < 1.0 else 0.0
    total = 0.0
    cell = tables.head[distribution]
    while cell != NO_CELL:
        tables.cell_weight[cell] = draw_gamma(tables.words, np.float64(tables.cell_count[cell]))
        total += tables.cell_weight[cell]
        cell = tables.cell_link[cell]
    tables.optimism[distribution] = optimism
    cell = tables.head[distribution]
    while cell != NO_CELL:
        tables.cell_weight[cell] *= (1.0 - optimism) / total
        cell = tables.cell_link[cell]


@inlined
def judge(tables: Tables, layout: Layout, drawn: bool, step: int, row: int) -> tuple[float, float]:
    """Return Q and C of a row, with drawn probabilities or with means."""
    distribution = tables.distribution_of_row[row]
    there = (step + 1) * tables.shift
    visits = tables.visits[distribution]
    q, c = 0.0, 0.0
    if visits == 0:
        c = tables.max_violation[row]
        q = tables.most[step] if drawn else -np.inf
        if not drawn and tables.proved[0] > 0:
            c = UNKNOWN_COST
    else:
        fails = tables.max_violation[row] > 0.0
        cell = tables.head[distribution]
        while cell != NO_CELL:
            weight = tables.cell_weight[cell] if drawn else tables.cell_count[cell] / visits
            following = tables.cell_next[cell]
            q += weight * (tables.cell_reward[cell] + tables.discount * tables.value[following, there])
            cost, later = tables.cell_cost[cell], tables.cost[following, there]
            if cost + later > 0.0:
                c += weight * (cost + tables.discount * later)
                fails = True
            cell = tables.cell_link[cell]
        after = tables.discount * tables.most[step + 1]
        highest = tables.most[step] - after
        if tables.shared:
            tried = tables.tried[row] > 0
            lowest = tables.least[step] - tables.discount * tables.least[step + 1]
            q += tables.row_reward[row] if tried else (highest if drawn else lowest)
            c += tables.row_cost[row] if tried else tables.max_violation[row]
            highest = 0.0
        if drawn:
            q = min(q + tables.optimism[distribution] * (highest + after), tables.most[step])
        if fails:
            c = max(c, LEAST_COST)
    return q, c


@inlined
def best_row(tables: Tables, layout: Layout, drawn: bool, step: int, slot: int) -> tuple[float, float, int]:
    """Return the value and the cost of a slot at a step, and the row that attains them."""
    column = step * tables.shift
    first, last = layout.row_start[slot], layout.row_start[slot + 1]
    least, best, chosen = np.inf, -np.inf, first
    for row in range(first, last):
        q, c = judge(tables, layout, drawn, step, row)
        if tables.forbidden.shape[0] > 0 and tables.forbidden[row, column]:
            c = max(c, LEAST_COST)
        if c < least / TIE or (c <= least * TIE and q > best):
            least, best, chosen = min(c, least), q, row
    return max(best, tables.floor), least, chosen


@loop
def back_up(
    tables: Tables,
    layout: Layout,
    drawn: bool,
    step: int,
    slot: int,
    log: Log,
) -> None:
    """Update the row of a slot at a step."""
    column = step * tables.shift
    best, least, chosen = best_row(tables, layout, drawn, step, slot)
    tables.value[slot, column], tables.cost[slot, column] = best, least
    if tables.greedy[slot, column] != chosen:
        tables.greedy[slot, column] = chosen
        note(log, column * layout.node_stride + slot, chosen)


@loop
def settle(tables: Tables, layout: Layout, drawn: bool) -> int:
    """Without an end: back up all slots until values and costs hardly change; return how often."""
    tolerance = DRAWN_TOLERANCE if drawn else TOLERANCE
    enough = tolerance * (tables.most[0] - tables.least[0]) * (1.0 - tables.discount)
    for sweep in range(MOST_SWEEPS):
        settled = True
        for index in range(tables.order.shape[0] - 1, -1, -1):
            slot = tables.order[index]
            best, least, _ = best_row(tables, layout, drawn, 0, slot)
            value, cost = tables.value[slot, 0], tables.cost[slot, 0]
            settled &= abs(best - value) <= enough and abs(least - cost) <= tolerance * least
            tables.value[slot, 0], tables.cost[slot, 0] = best, least
        if settled:
            return sweep + 1
    return MOST_SWEEPS


@loop
def make_plan(tables: Tables, layout: Layout, drawn: bool, log: Log) -> int:
    """Back up every slot of every step, the last step first; return how often each slot was backed up."""
    sweeps, columns = settle(tables, layout, drawn) if tables.discount < 1.0 else 0, tables.greedy.shape[1]
    for back in range(columns):
        for index in range(tables.order.shape[0]):
            slot = tables.order[index]
            step = columns - 1 - back if tables.shift == 1 else tables.slot_step[slot]
            back_up(tables, layout, drawn, step, slot, log)
    return sweeps + columns


@inlined
def cell_of(tables: Tables, distribution: int, following: int, reward: float, violation: float) -> int:
    """Return the cell of an outcome; append one for a new outcome."""
    last, similar = NO_CELL, NO_CELL
    cell = np.int64(tables.head[distribution])
    while cell != NO_CELL:
        if tables.cell_next[cell] == following:
            if tables.cell_reward[cell] == reward and tables.cell_cost[cell] == violation:
                break
            # With too many outcomes, those with the same next state that agree in violating are merged.
            if (tables.cell_cost[cell] > 0.0) == (violation > 0.0):
                similar = cell
        last = cell
        cell = np.int64(tables.cell_link[cell])
    if cell == NO_CELL and similar != NO_CELL and tables.kinds[distribution] >= MOST_KINDS:
        cell = similar
    if cell == NO_CELL:
        cell = tables.cells[0]
        tables.cells[0] += 1
        tables.kinds[distribution] += 1
        tables.cell_next[cell], tables.cell_link[cell], tables.cell_count[cell] = following, NO_CELL, 0
        tables.cell_reward[cell], tables.cell_cost[cell], tables.cell_weight[cell] = reward, violation, 0.0
        if last == NO_CELL:
            tables.head[distribution] = cell
        else:
            tables.cell_link[last] = cell
    return cell


@inlined
def remember(tables: Tables, row: int, following: int, reward: float, violation: float) -> None:
    """Count an observed transition."""
    distribution = tables.distribution_of_row[row]
    tables.visits[distribution] += 1
    tables.tried[row] += 1
    if tables.shared:
        tables.row_reward[row] += (reward - tables.row_reward[row]) / tables.tried[row]
        tables.row_cost[row] += (violation - tables.row_cost[row]) / tables.tried[row]
        reward, violation = 0.0, 0.0
    cell = cell_of(tables, distribution, following, reward, violation)
    tables.cell_count[cell] += 1
    tables.cell_reward[cell] += (reward - tables.cell_reward[cell]) / tables.cell_count[cell]
    tables.cell_cost[cell] += (violation - tables.cell_cost[cell]) / tables.cell_count[cell]


@loop
def drop_row(
    tables: Tables,
    layout: Layout,
    row: int,
    violation: float,
    log: Log,
) -> None:
    """Record that a row, and every row with the same constraints, violates; back up the states concerned."""
    first, last = np.int64(0), np.int64(1)
    if tables.groups.of_row.shape[0] > 0:
        group = tables.groups.of_row[row]
        first, last = tables.groups.start[group], tables.groups.start[group + 1]
    for i in range(first, last):
        other = np.int64(tables.groups.rows[i]) if tables.groups.of_row.shape[0] > 0 else row
        fresh = tables.max_violation[other] == 0.0
        tables.max_violation[other] = max(tables.max_violation[other], violation)
        if fresh:
            slot = np.int64(tables.slot_of_row[other])
            for back in range(layout.horizon if tables.shift == 1 else 1):
                step = layout.horizon - 1 - back if tables.shift == 1 else tables.slot_step[slot]
                back_up(tables, layout, DRAWN, step, slot, log)


@inlined
def optimistic_share(tables: Tables, first: int) -> float:
    """Return the share of draws with an optimistic pseudo-outcome, by what is still to gain from the first state."""
    width = tables.most[0] - tables.least[0]
    gain = (tables.most[0] - tables.value[first, 0]) / width if width > 0.0 else 0.0
    return max(tables.least_share, OPTIMISTIC_PAIRS * gain / tables.head.shape[0])


@loop
def replan(tables: Tables, layout: Layout, share: float, log: Log) -> None:
    """Draw every distribution and plan."""
    for distribution in range(tables.head.shape[0]):
        draw_distribution(tables, distribution, share)
    steps = make_plan(tables, layout, DRAWN, log)
    rows = layout.row_start[layout.row_start.shape[0] - 1]
    tables.plan_work[0] += DRAW_WORK * tables.cells[0] + steps * (rows + tables.cells[0])
    tables.plans[0] += 1
    tables.next_plan[0] = tables.episodes[0] + max(1, int(tables.growth * tables.episodes[0]))


def learn_path(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from an episode of `length` steps, then plan if that is due."""
    first = path.first[0]
    share = optimistic_share(tables, first)
    for step in range(length):
        remember(tables, path.row[step], path.following[step], path.payoff[step, 0], path.payoff[step, 1])
    for step in range(length):
        if path.payoff[step, 1] > tables.max_violation[path.row[step]]:
            drop_row(tables, layout, path.row[step], path.payoff[step, 1], log)
    for back in range(length):
        step = length - 1 - back
        slot, distribution = path.slot[step], np.int64(tables.distribution_of_row[path.row[step]])
        if 4 * tables.visits[distribution] >= 5 * tables.drawn[distribution]:
            draw_distribution(tables, distribution, share)
        back_up(tables, layout, DRAWN, step, slot, log)
        for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
            tables.step_work[0] += 1 + tables.kinds[tables.distribution_of_row[row]]
    tables.begun[first] += 1
    if tables.proved[0] == 0 and tables.cost[first, 0] > 0.0:
        tables.proved[0], tables.dead_first[0] = episode, first
    tables.episodes[0] += 1
    if tables.episodes[0] >= tables.next_plan[0] and tables.plan_work[0] <= tables.credit + 2 * tables.step_work[0]:
        replan(tables, layout, share, log)


def out_of_cells(tables: Tables, layout: Layout) -> bool:
    """Return whether the cells might not hold the outcomes of the next episode."""
    return tables.cells[0] + layout.horizon > tables.cell_next.shape[0]


@loop
def judge_all(tables: Tables, layout: Layout, value: Floats, witness: Ints) -> bool:
    """Set [row, column] Q with the means and, unless it is set, why a row is known to fail: it violates, or leads to a
    dead slot. Without an end, return whether another slot is dead.
    """
    found = False
    slots = layout.row_start.shape[0] - 1
    for column in range(value.shape[1]):
        for slot in range(slots):
            step = column if tables.shift == 1 else tables.slot_step[slot]
            dead = tables.discount < 1.0 and layout.row_start[slot] < layout.row_start[slot + 1]
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                q, c = judge(tables, layout, False, step, row)
                value[row, column] = q
                if witness[row, column] != NO_WITNESS:
                    continue
                if tables.max_violation[row] > 0.0:
                    witness[row, column] = VIOLATES
                elif tables.forbidden.shape[0] > 0 and tables.forbidden[row, column]:
                    witness[row, column] = DECLARED
                elif 0.0 < c < UNKNOWN_COST:
                    cell = tables.head[tables.distribution_of_row[row]]
                    while cell != NO_CELL and tables.cost[tables.cell_next[cell], (step + 1) * tables.shift] == 0.0:
                        cell = tables.cell_link[cell]
                    witness[row, column] = VIOLATES if cell == NO_CELL else tables.cell_next[cell]
                else:
                    dead = False
            if dead and tables.cost[slot, column] == 0.0:
                tables.cost[slot, column], found = LEAST_COST, True
    return found


register(Tables, learn=learn_path, pause=out_of_cells)
