"""Posterior sampling with a memory of violations: plan with transition probabilities drawn from the posterior.

Let n(o) be the number of times that outcome o (next state, reward, violation) of a pair was observed, and n their sum.
One draw from the posterior is

    p* ~ Beta(m, 2n),    (p(o), ...) ~ (1 - p*) Dirichlet(n(o), ...),

with p* the probability of an optimistic pseudo-outcome of prior mass m, which earns as much as possible. The plan by
backward induction minimises the expected violation C first and maximises the value V second (steps count from 0;
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
* Assumptions: a pair that is declared to fail has C of at least `LEAST_COST` before it is tried.
* Shared distributions: outcomes of pairs that are declared to have the same distribution are counted together, by next
  state; then Q_h(s,a) = mean reward of (s,a) + sum_o p(o) V_{h+1}(s'(o)) + p* most_{h+1}, with hi as the mean reward of
  an untried pair. C likewise.

Posterior sampling for reinforcement learning is due to Strens (2000) and Osband, Russo and Van Roy (2013), the
optimistic pseudo-outcome to Tiapkin et al. (2022); docs/references.md.

Tables. A *distribution* belongs to one row, or to several that are declared to share it. A *cell* is an observed
outcome of a distribution. The cells of a distribution are a linked list: `head[distribution]`, then `cell_link[cell]`,
until -1. Tables of a plan are [slot, column]; a column is a step if steps share slots, otherwise there is one column.

Random numbers. A Dirichlet draw normalises gamma numbers. A normal number is drawn by Marsaglia's polar method, a gamma
number of shape a >= 1 by Marsaglia and Tsang (2000): with d = a - 1/3 and c = 1/sqrt(9d),

    v = (1 + c x)^3, x normal;  accept d v if  log u < x^2/2 + d - d v + d log v,  u uniform.

It holds if u < 1 - 0.0331 x^4, so that most draws need no logarithm. For a < 1: gamma(a) = gamma(a + 1) u^(1/a).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import inlined, loop
from peakrl.learners.episode import Log, lacks_room, note, note_episode, take_row
from peakrl.planning.backward import LEAST_COST, TIE
from peakrl.sampling import Words, draw_first, uniform
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

#: Indices of `Counts.status`: number of cells, episodes and plans; episode of the proof of infeasibility (0: none), and
#: its first state; episodes at the next plan; work of plans, and of episodes, in visited cells.
CELLS, EPISODES, PLANS, PROVED, DEAD_FIRST, NEXT_PLAN, PLAN_WORK, STEP_WORK = range(8)
STATUS_SIZE = 8
#: From this many cells on, outcomes of a distribution that differ only in their reward share a cell.
MOST_KINDS = 64
#: End of a list of cells, and of slots.
NO_CELL = NO_SLOT = -1


class Counts(NamedTuple):
    """Counted outcomes, and the latest draw from the posterior."""

    status: Longs
    #: The learner's own random numbers.
    words: Words
    #: [slot]: episodes that began in it.
    begun: Longs
    #: [distribution]: first cell, number of cells, visits, visits at its latest draw, probability of pseudo-outcome.
    head: Ints
    kinds: Ints
    visits: Longs
    drawn: Longs
    optimism: Floats
    #: [row]: visits; mean reward and violation if distributions are shared, otherwise 0; largest violation.
    tried: Longs
    row_reward: Floats
    row_cost: Floats
    max_violation: Floats
    #: [cell]: next slot, next cell of the list, count; mean reward and violation; drawn probability.
    cell_next: Ints
    cell_link: Ints
    cell_count: Longs
    cell_reward: Floats
    cell_cost: Floats
    cell_weight: Floats


class Plan(NamedTuple):
    """A plan by backward induction."""

    #: [slot, column], with a column of zeros after the last step if steps share slots.
    value: Floats
    cost: Floats
    #: [slot, column]: the chosen row.
    row: Longs


class Places(NamedTuple):
    """Indices of rows and slots."""

    horizon: int
    #: 1 if a column is a step, 0 if slots belong to steps
    shift: int
    node_stride: int
    #: [slot + 1]
    row_start: Longs
    #: [row]
    slot_of_row: Ints
    distribution_of_row: Ints
    #: [slot]: its step; [step]: the first of its slots; [slot]: the next slot of the step. Unused if steps share slots.
    slot_step: Longs
    step_head: Longs
    slot_link: Longs
    #: Rows that are declared to have the same constraints (`assumptions.Groups`); may be empty.
    group_of_row: Ints
    group_start: Longs
    group_rows: Ints
    #: [row, column]: declared to fail; may be empty.
    forbidden: NDArray[np.bool_]


class Rules(NamedTuple):
    """Constants derived from settings and sizes."""

    #: [step, 0 .. H]: largest and least reward of the remaining steps.
    most: Floats
    least: Floats
    #: Do rows share distributions? Then rewards and violations are counted by row.
    shared: bool
    #: m: prior mass of the optimistic pseudo-outcome.
    optimism: float
    #: A plan is due when episodes have grown by this share.
    growth: float
    #: Work of plans that is allowed in addition to twice the work of the episodes.
    credit: int
    #: Upper bound on the changes that an episode logs.
    reserve: int


class Path(NamedTuple):
    """[step]: the current episode."""

    slot: Longs
    row: Longs
    following: Longs
    reward: Floats
    violation: Floats


#: Replaces a uniform number of exactly 0, which has no logarithm.
LEAST_UNIFORM = 2.0**-54
SQUEEZE = 0.0331
#: A gamma number takes about as long as this many cells of a backup.
DRAW_WORK = 10
#: Weight of a visit in the draw of the pseudo-outcome's probability.
OPTIMISM_VISITS = 2.0
#: Cost of an untried pair in the returned policy after a proof of infeasibility: larger than any observed.
UNKNOWN_COST = 1e200
#: Plan with the drawn probabilities, not with means. Not a literal True: numba would compile another specialisation.
DRAWN = np.bool_(True)


@loop
def draw_distribution(counts: Counts, rules: Rules, distribution: int) -> None:
    """Draw the probabilities of outcomes; before the first visit the pseudo-outcome has probability 1."""
    counts.drawn[distribution] = counts.visits[distribution]
    if counts.visits[distribution] == 0:
        counts.optimism[distribution] = 1.0
        return
    optimism = draw_gamma(counts.words, rules.optimism)
    optimism /= optimism + draw_gamma(counts.words, OPTIMISM_VISITS * counts.visits[distribution])
    total = 0.0
    cell = counts.head[distribution]
    while cell != NO_CELL:
        counts.cell_weight[cell] = draw_gamma(counts.words, np.float64(counts.cell_count[cell]))
        total += counts.cell_weight[cell]
        cell = counts.cell_link[cell]
    counts.optimism[distribution] = optimism
    cell = counts.head[distribution]
    while cell != NO_CELL:
        counts.cell_weight[cell] *= (1.0 - optimism) / total
        cell = counts.cell_link[cell]


@inlined
def judge(
    places: Places, counts: Counts, rules: Rules, plan: Plan, drawn: bool, step: int, row: int
) -> tuple[float, float]:
    """Return Q and C of a row, with drawn probabilities or with means."""
    distribution = places.distribution_of_row[row]
    there = (step + 1) * places.shift
    visits = counts.visits[distribution]
    q, c = 0.0, 0.0
    if visits == 0:
        c = counts.max_violation[row]
        q = rules.most[step] if drawn else -np.inf
        if not drawn and counts.status[PROVED] > 0:
            c = UNKNOWN_COST
    else:
        fails = counts.max_violation[row] > 0.0
        cell = counts.head[distribution]
        while cell != NO_CELL:
            weight = counts.cell_weight[cell] if drawn else counts.cell_count[cell] / visits
            following = counts.cell_next[cell]
            q += weight * (counts.cell_reward[cell] + plan.value[following, there])
            cost = counts.cell_cost[cell] + plan.cost[following, there]
            if cost > 0.0:
                c += weight * cost
                fails = True
            cell = counts.cell_link[cell]
        highest = rules.most[step] - rules.most[step + 1]
        if rules.shared:
            tried = counts.tried[row] > 0
            lowest = rules.least[step] - rules.least[step + 1]
            q += counts.row_reward[row] if tried else (highest if drawn else lowest)
            c += counts.row_cost[row] if tried else counts.max_violation[row]
            highest = 0.0
        if drawn:
            q = min(q + counts.optimism[distribution] * (highest + rules.most[step + 1]), rules.most[step])
        if fails:
            c = max(c, LEAST_COST)
    return q, c


@loop
def back_up(
    places: Places,
    counts: Counts,
    rules: Rules,
    plan: Plan,
    drawn: bool,
    step: int,
    slot: int,
    log: Log,
) -> None:
    """Update the row of a slot at a step."""
    column = step * places.shift
    first, last = places.row_start[slot], places.row_start[slot + 1]
    least, best, chosen = np.inf, -np.inf, first
    for row in range(first, last):
        q, c = judge(places, counts, rules, plan, drawn, step, row)
        if places.forbidden.shape[0] > 0 and places.forbidden[row, column]:
            c = max(c, LEAST_COST)
        if c < least / TIE or (c <= least * TIE and q > best):
            least, best, chosen = min(c, least), q, row
    if last > first:
        plan.value[slot, column], plan.cost[slot, column] = best, least
        if plan.row[slot, column] != chosen:
            plan.row[slot, column] = chosen
            note(log, column * places.node_stride + slot, chosen)


@loop
def make_plan(places: Places, counts: Counts, rules: Rules, plan: Plan, drawn: bool, log: Log) -> None:
    """Back up every slot of every step, the last step first."""
    slots = places.row_start.shape[0] - 1
    for back in range(places.horizon):
        step = places.horizon - 1 - back
        if places.shift == 1:
            for slot in range(slots):
                back_up(places, counts, rules, plan, drawn, step, slot, log)
        else:
            slot = places.step_head[step]
            while slot != NO_SLOT:
                back_up(places, counts, rules, plan, drawn, step, slot, log)
                slot = places.slot_link[slot]


@inlined
def cell_of(counts: Counts, distribution: int, following: int, reward: float, violation: float) -> int:
    """Return the cell of an outcome; append one for a new outcome."""
    last, similar = NO_CELL, NO_CELL
    cell = np.int64(counts.head[distribution])
    while cell != NO_CELL:
        if counts.cell_next[cell] == following:
            if counts.cell_reward[cell] == reward and counts.cell_cost[cell] == violation:
                break
            # With too many outcomes, those with the same next state that agree in violating are merged.
            if (counts.cell_cost[cell] > 0.0) == (violation > 0.0):
                similar = cell
        last = cell
        cell = np.int64(counts.cell_link[cell])
    if cell == NO_CELL and similar != NO_CELL and counts.kinds[distribution] >= MOST_KINDS:
        cell = similar
    if cell == NO_CELL:
        cell = counts.status[CELLS]
        counts.status[CELLS] += 1
        counts.kinds[distribution] += 1
        counts.cell_next[cell], counts.cell_link[cell], counts.cell_count[cell] = following, NO_CELL, 0
        counts.cell_reward[cell], counts.cell_cost[cell], counts.cell_weight[cell] = reward, violation, 0.0
        if last == NO_CELL:
            counts.head[distribution] = cell
        else:
            counts.cell_link[last] = cell
    return cell


@inlined
def remember(
    places: Places, counts: Counts, rules: Rules, row: int, following: int, reward: float, violation: float
) -> None:
    """Count an observed transition."""
    distribution = places.distribution_of_row[row]
    counts.visits[distribution] += 1
    counts.tried[row] += 1
    if rules.shared:
        counts.row_reward[row] += (reward - counts.row_reward[row]) / counts.tried[row]
        counts.row_cost[row] += (violation - counts.row_cost[row]) / counts.tried[row]
        reward, violation = 0.0, 0.0
    cell = cell_of(counts, distribution, following, reward, violation)
    counts.cell_count[cell] += 1
    counts.cell_reward[cell] += (reward - counts.cell_reward[cell]) / counts.cell_count[cell]
    counts.cell_cost[cell] += (violation - counts.cell_cost[cell]) / counts.cell_count[cell]


@loop
def drop_row(
    places: Places,
    counts: Counts,
    rules: Rules,
    plan: Plan,
    row: int,
    violation: float,
    log: Log,
) -> None:
    """Record that a row, and every row with the same constraints, violates; back up the states concerned."""
    first, last = np.int64(0), np.int64(1)
    if places.group_of_row.shape[0] > 0:
        group = places.group_of_row[row]
        first, last = places.group_start[group], places.group_start[group + 1]
    for i in range(first, last):
        other = np.int64(places.group_rows[i]) if places.group_of_row.shape[0] > 0 else row
        fresh = counts.max_violation[other] == 0.0
        counts.max_violation[other] = max(counts.max_violation[other], violation)
        if fresh:
            slot = np.int64(places.slot_of_row[other])
            for back in range(places.horizon if places.shift == 1 else 1):
                step = places.horizon - 1 - back if places.shift == 1 else places.slot_step[slot]
                back_up(places, counts, rules, plan, DRAWN, step, slot, log)


@loop
def replan(places: Places, counts: Counts, rules: Rules, plan: Plan, log: Log) -> None:
    """Draw every distribution and plan."""
    status = counts.status
    for distribution in range(counts.head.shape[0]):
        draw_distribution(counts, rules, distribution)
    make_plan(places, counts, rules, plan, DRAWN, log)
    steps = places.horizon if places.shift == 1 else 1
    rows = places.row_start[places.row_start.shape[0] - 1]
    status[PLAN_WORK] += DRAW_WORK * status[CELLS] + steps * (rows + status[CELLS])
    status[PLANS] += 1
    status[NEXT_PLAN] = status[EPISODES] + max(1, int(rules.growth * status[EPISODES]))


@loop
def learn_path(
    places: Places, counts: Counts, rules: Rules, plan: Plan, path: Path, length: int, log: Log, episode: int,
) -> None:  # fmt: skip
    """Learn from an episode of `length` steps, then plan if that is due."""
    for step in range(length):
        remember(places, counts, rules, path.row[step], path.following[step], path.reward[step], path.violation[step])
    for step in range(length):
        if path.violation[step] > counts.max_violation[path.row[step]]:
            drop_row(places, counts, rules, plan, path.row[step], path.violation[step], log)
    status = counts.status
    for back in range(length):
        step = length - 1 - back
        slot, distribution = path.slot[step], np.int64(places.distribution_of_row[path.row[step]])
        if 4 * counts.visits[distribution] >= 5 * counts.drawn[distribution]:
            draw_distribution(counts, rules, distribution)
        back_up(places, counts, rules, plan, DRAWN, step, slot, log)
        for row in range(places.row_start[slot], places.row_start[slot + 1]):
            status[STEP_WORK] += 1 + counts.kinds[places.distribution_of_row[row]]
    first = path.slot[0]
    counts.begun[first] += 1
    if status[PROVED] == 0 and plan.cost[first, 0] > 0.0:
        status[PROVED], status[DEAD_FIRST] = episode, first
    status[EPISODES] += 1
    if status[EPISODES] >= status[NEXT_PLAN] and status[PLAN_WORK] <= rules.credit + 2 * status[STEP_WORK]:
        replan(places, counts, rules, plan, log)


@loop
def learn_played(
    places: Places, counts: Counts, rules: Rules, plan: Plan, path: Path, length: int, log: Log, episode: int,
) -> None:  # fmt: skip
    """`learn_path`, called from Python for episodes of environments; not compiled for models."""
    learn_path(places, counts, rules, plan, path, length, log, episode)


@loop
def learn_posterior(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 2]: reward and total violation.
    payoff: Floats,
    places: Places,
    counts: Counts,
    rules: Rules,
    plan: Plan,
    path: Path,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    #: [episode, 2]: observed reward and violation; may be empty.
    experience: Floats,
    counters: Longs,
) -> int:
    """Run up to `episodes` episodes from done+1 on; return how many.

    It stops early if the log or the cells might not hold the next episode.
    """
    for k in range(episodes):
        full = counts.status[CELLS] + layout.horizon > counts.cell_next.shape[0]
        if k > 0 and (full or lacks_room(log, rules.reserve)):
            return k
        slot = draw_first(generator, sampler)
        earned, violated = 0.0, 0.0
        for step in range(layout.horizon):
            row = plan.row[slot, step * places.shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.slot[step], path.row[step], path.following[step] = slot, row, following
            path.reward[step], path.violation[step] = payoff[record, 0], payoff[record, 1]
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        note_episode(experience, counters, done, k, earned, violated)
        log.head[1] = done + k + 2
        learn_path(places, counts, rules, plan, path, layout.horizon, log, done + k + 1)
    return episodes


@loop
def judge_all(
    places: Places,
    counts: Counts,
    rules: Rules,
    plan: Plan,
    value: Floats,
    witness: Ints,
    no_witness: int,
    violates: int,
    declared: int,
) -> None:
    """Set [row, column] Q with the means, and why a row is known to fail: it violates, or leads to a dead slot."""
    slots = places.row_start.shape[0] - 1
    for column in range(value.shape[1]):
        for slot in range(slots):
            step = column if places.shift == 1 else places.slot_step[slot]
            for row in range(places.row_start[slot], places.row_start[slot + 1]):
                q, c = judge(places, counts, rules, plan, False, step, row)
                value[row, column] = q
                witness[row, column] = no_witness
                if counts.max_violation[row] > 0.0:
                    witness[row, column] = violates
                elif places.forbidden.shape[0] > 0 and places.forbidden[row, column]:
                    witness[row, column] = declared
                elif 0.0 < c < UNKNOWN_COST:
                    cell = counts.head[places.distribution_of_row[row]]
                    while cell != NO_CELL and plan.cost[counts.cell_next[cell], (step + 1) * places.shift] == 0.0:
                        cell = counts.cell_link[cell]
                    witness[row, column] = violates if cell == NO_CELL else counts.cell_next[cell]


@loop
def draw_normal(state: Words) -> float:
    """Return a normal number."""
    while True:
        x = 2.0 * uniform(state) - 1.0
        y = 2.0 * uniform(state) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * math.sqrt(-2.0 * math.log(square) / square)


@loop
def draw_gamma(state: Words, shape: float) -> float:
    """Return a gamma number of unit scale."""
    large = shape if shape >= 1.0 else shape + 1.0
    d = large - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = draw_normal(state)
        root = 1.0 + c * x
        if root > 0.0:
            v = root * root * root
            u = max(uniform(state), LEAST_UNIFORM)
            if u < 1.0 - SQUEEZE * x * x * x * x or math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                break
    if shape < 1.0:
        return d * v * max(uniform(state), LEAST_UNIFORM) ** (1.0 / shape)
    return d * v
