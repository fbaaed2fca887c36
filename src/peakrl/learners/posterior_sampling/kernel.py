"""Posterior sampling with a memory of violations: plan on a law that is drawn from what was seen.

With n(o) the times that outcome o (next state, reward, violation) followed a pair, n of them in all, one draw is

    p(ghost) ~ Beta(m, 2n),    (p(o), ...) ~ (1 - p(ghost)) Dirichlet(n(o), ...),

m the mass of the *ghost*, an outcome not seen yet that is as good as can be. A plan on it, from the last step back,
holds violation C first and value V second (steps count from 0; V_H = C_H = 0):

    Q_h(s,a) = sum_o p(o) (r(o) + V_{h+1}(s'(o))) + p(ghost) (hi + most_{h+1}),    at most most_h = (H-h) hi
    C_h(s,a) = sum_o p(o) (v(o) + C_{h+1}(s'(o)))
    pi_h(s)  = a pair of least C_h(s,a), of these one of the largest Q_h(s,a), of these the first.

A pair not tried yet has Q = most_h and C = 0. C_h(s,a) > 0 says: this pair was seen to violate, or to lead where every
pair was. Nothing forgets that, and such a pair is not taken while there is another. C_0 > 0 of a first state proves the
problem infeasible; from then on the same rule looks for the least violation. The memory of violations is therefore no
more than the order of the two. What is not zero is at least `LEAST_COST`, so that no product rounds it away.

* When: after each episode its steps are backed up along its path, the last one first; a pair whose visits have grown by
  a quarter since it was drawn is drawn anew on the way. A pair seen to violate for the first time is dropped at every
  step at once. All pairs are drawn anew and planned with when episodes have grown by `growth`.
* Large spaces: a plan looks at every seen outcome for every step. Its work is put off until all plans together have
  taken at most twice the work of the backups along paths, after a first credit. Between two plans only paths are
  backed up, as in real-time dynamic programming.
* Hand-out: the same plan with p(o) = n(o)/n, without a ghost. A pair not tried has Q = -inf and C = 0: it is taken only
  where everything else is known to fail, and after a proof only where nothing was tried.
* Declared: a pair that is declared to fail has C of at least `LEAST_COST` before it is ever tried.
* Shared laws: outcomes of pairs that are declared to have one law are counted together, by next state; then
  Q_h(s,a) = mean reward of (s,a) + sum_o p(o) V_{h+1}(s'(o)) + p(ghost) most_{h+1}, with hi as the mean of a pair not
  tried. C likewise.
"""

from __future__ import annotations

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.learners.constrained_q_kernel import Log
from peakrl.learners.episode import note_episode, take_row
from peakrl.learners.posterior_sampling.dirichlet import draw_gamma
from peakrl.learners.posterior_sampling.tables import (
    CELLS,
    DEAD_FIRST,
    EPISODES,
    MOST_KINDS,
    NEXT_PLAN,
    NO_CELL,
    NO_SLOT,
    PLAN_WORK,
    PLANS,
    PROVED,
    STEP_WORK,
    Counts,
    Path,
    Places,
    Plan,
    Rules,
)
from peakrl.planning.backward_kernel import LEAST_COST, TIE
from peakrl.sampling import Words, draw_first
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

#: A gamma number costs about as much as so many cells of a backup.
DRAW_WORK = 10
#: What one visit counts for against the ghost.
GHOST_VISITS = 2.0
#: Cost of a pair not tried, in the hand-out after a proof: more than any that was seen.
UNKNOWN_COST = 1e200
#: By the drawn laws, not by plain means. No literal True: numba would compile what takes it once more for that.
DRAWN = np.bool_(True)


@loop
def draw_law(counts: Counts, rules: Rules, law: int) -> None:
    """Draw the probabilities of a law's outcomes and of its ghost; before its first visit all is the ghost's."""
    counts.drawn[law] = counts.visits[law]
    if counts.visits[law] == 0:
        counts.ghost[law] = 1.0
        return
    ghost = draw_gamma(counts.words, rules.ghost)
    ghost /= ghost + draw_gamma(counts.words, GHOST_VISITS * counts.visits[law])
    total = 0.0
    cell = counts.head[law]
    while cell != NO_CELL:
        counts.cell_weight[cell] = draw_gamma(counts.words, np.float64(counts.cell_count[cell]))
        total += counts.cell_weight[cell]
        cell = counts.cell_link[cell]
    counts.ghost[law] = ghost
    cell = counts.head[law]
    while cell != NO_CELL:
        counts.cell_weight[cell] *= (1.0 - ghost) / total
        cell = counts.cell_link[cell]


@inlined
def judge(
    places: Places, counts: Counts, rules: Rules, plan: Plan, drawn: bool, step: int, row: int
) -> tuple[float, float]:
    """Return Q and C of a row: by the drawn law, or by plain means."""
    law = places.law_of_row[row]
    there = (step + 1) * places.shift
    visits = counts.visits[law]
    q, c = 0.0, 0.0
    if visits == 0:
        c = counts.harm[row]
        q = rules.most[step] if drawn else -np.inf
        if not drawn and counts.status[PROVED] > 0:
            c = UNKNOWN_COST
    else:
        fails = counts.harm[row] > 0.0
        cell = counts.head[law]
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
            c += counts.row_cost[row] if tried else counts.harm[row]
            highest = 0.0
        if drawn:
            q = min(q + counts.ghost[law] * (highest + rules.most[step + 1]), rules.most[step])
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
    episode: int,
    changes: int,
) -> int:
    """Choose the row of a slot at a step anew; log it from `episode` on if it is another; return the log's length."""
    column = step * places.shift
    first, last = places.row_start[slot], places.row_start[slot + 1]
    least, best, chosen = np.inf, -np.inf, first
    for row in range(first, last):
        q, c = judge(places, counts, rules, plan, drawn, step, row)
        if places.barred.shape[0] > 0 and places.barred[row, column]:
            c = max(c, LEAST_COST)
        if c < least / TIE or (c <= least * TIE and q > best):
            least, best, chosen = min(c, least), q, row
    if last > first:
        plan.value[slot, column], plan.cost[slot, column] = best, least
        if plan.row[slot, column] != chosen:
            plan.row[slot, column] = chosen
            if log.node.shape[0] > 0:
                log.episode[changes] = episode
                log.node[changes] = column * places.node_stride + slot
                log.row[changes] = chosen
                changes += 1
    return changes


@loop
def make_plan(
    places: Places, counts: Counts, rules: Rules, plan: Plan, drawn: bool, log: Log, episode: int, changes: int
) -> int:
    """Back up every slot of every step, the last step first; return the new length of the log."""
    slots = places.row_start.shape[0] - 1
    for back in range(places.horizon):
        step = places.horizon - 1 - back
        if places.shift == 1:
            for slot in range(slots):
                changes = back_up(places, counts, rules, plan, drawn, step, slot, log, episode, changes)
        else:
            slot = places.step_head[step]
            while slot != NO_SLOT:
                changes = back_up(places, counts, rules, plan, drawn, step, slot, log, episode, changes)
                slot = places.slot_link[slot]
    return changes


@inlined
def cell_of(counts: Counts, law: int, following: int, reward: float, violation: float) -> int:
    """Return the cell of an outcome, a new one if it was not seen before."""
    last, similar = NO_CELL, NO_CELL
    cell = np.int64(counts.head[law])
    while cell != NO_CELL:
        if counts.cell_next[cell] == following:
            if counts.cell_reward[cell] == reward and counts.cell_cost[cell] == violation:
                break
            # Where outcomes are too many to tell apart, those of one next state that violate alike go together.
            if (counts.cell_cost[cell] > 0.0) == (violation > 0.0):
                similar = cell
        last = cell
        cell = np.int64(counts.cell_link[cell])
    if cell == NO_CELL and similar != NO_CELL and counts.kinds[law] >= MOST_KINDS:
        cell = similar
    if cell == NO_CELL:
        cell = counts.status[CELLS]
        counts.status[CELLS] += 1
        counts.kinds[law] += 1
        counts.cell_next[cell], counts.cell_link[cell], counts.cell_count[cell] = following, NO_CELL, 0
        counts.cell_reward[cell], counts.cell_cost[cell], counts.cell_weight[cell] = reward, violation, 0.0
        if last == NO_CELL:
            counts.head[law] = cell
        else:
            counts.cell_link[last] = cell
    return cell


@inlined
def remember(
    places: Places, counts: Counts, rules: Rules, row: int, following: int, reward: float, violation: float
) -> None:
    """Count what followed a row."""
    law = places.law_of_row[row]
    counts.visits[law] += 1
    counts.tried[row] += 1
    if rules.shared:
        counts.row_reward[row] += (reward - counts.row_reward[row]) / counts.tried[row]
        counts.row_cost[row] += (violation - counts.row_cost[row]) / counts.tried[row]
        reward, violation = 0.0, 0.0
    cell = cell_of(counts, law, following, reward, violation)
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
    episode: int,
    changes: int,
) -> int:
    """Note that a row, and every row whose constraints are the same, violates; choose anew where it may be chosen."""
    first, last = np.int64(0), np.int64(1)
    if places.group_of_row.shape[0] > 0:
        group = places.group_of_row[row]
        first, last = places.group_start[group], places.group_start[group + 1]
    for i in range(first, last):
        other = np.int64(places.group_rows[i]) if places.group_of_row.shape[0] > 0 else row
        fresh = counts.harm[other] == 0.0
        counts.harm[other] = max(counts.harm[other], violation)
        if fresh:
            slot = np.int64(places.slot_of_row[other])
            for back in range(places.horizon if places.shift == 1 else 1):
                step = places.horizon - 1 - back if places.shift == 1 else places.slot_step[slot]
                changes = back_up(places, counts, rules, plan, DRAWN, step, slot, log, episode, changes)
    return changes


@loop
def plan_anew(places: Places, counts: Counts, rules: Rules, plan: Plan, log: Log, episode: int, changes: int) -> int:
    """Draw every law and plan; return the new length of the log."""
    status = counts.status
    for law in range(counts.head.shape[0]):
        draw_law(counts, rules, law)
    changes = make_plan(places, counts, rules, plan, DRAWN, log, episode, changes)
    steps = places.horizon if places.shift == 1 else 1
    rows = places.row_start[places.row_start.shape[0] - 1]
    status[PLAN_WORK] += DRAW_WORK * status[CELLS] + steps * (rows + status[CELLS])
    status[PLANS] += 1
    status[NEXT_PLAN] = status[EPISODES] + max(1, int(rules.growth * status[EPISODES]))
    return changes


@loop
def learn_path(
    places: Places, counts: Counts, rules: Rules, plan: Plan, path: Path, length: int, log: Log, episode: int,
    changes: int,
) -> int:  # fmt: skip
    """Learn from an episode of `length` steps, then plan if that is due; return the new length of the log."""
    for step in range(length):
        remember(places, counts, rules, path.row[step], path.following[step], path.reward[step], path.violation[step])
    for step in range(length):
        if path.violation[step] > counts.harm[path.row[step]]:
            changes = drop_row(
                places, counts, rules, plan, path.row[step], path.violation[step], log, episode + 1, changes
            )
    status = counts.status
    for back in range(length):
        step = length - 1 - back
        slot, law = path.slot[step], np.int64(places.law_of_row[path.row[step]])
        if 4 * counts.visits[law] >= 5 * counts.drawn[law]:
            draw_law(counts, rules, law)
        changes = back_up(places, counts, rules, plan, DRAWN, step, slot, log, episode + 1, changes)
        for row in range(places.row_start[slot], places.row_start[slot + 1]):
            status[STEP_WORK] += 1 + counts.kinds[places.law_of_row[row]]
    first = path.slot[0]
    counts.begun[first] += 1
    if status[PROVED] == 0 and plan.cost[first, 0] > 0.0:
        status[PROVED], status[DEAD_FIRST] = episode, first
    status[EPISODES] += 1
    if status[EPISODES] >= status[NEXT_PLAN] and status[PLAN_WORK] <= rules.credit + 2 * status[STEP_WORK]:
        changes = plan_anew(places, counts, rules, plan, log, episode + 1, changes)
    return changes


@loop
def learn_played(
    places: Places, counts: Counts, rules: Rules, plan: Plan, path: Path, length: int, log: Log, episode: int,
    changes: int,
) -> int:  # fmt: skip
    """`learn_path` for Python, which has an episode of an environment: where a kernel plays, nobody compiles this."""
    return learn_path(places, counts, rules, plan, path, length, log, episode, changes)


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
    #: [episode, 2]: reward and violation as experienced; empty where nobody asks.
    experience: Floats,
    counters: Longs,
) -> tuple[int, int]:
    """Run up to `episodes` episodes from done+1 on; return how many were run and how many changes were logged.

    It stops early when the log or the cells might not hold the next episode.
    """
    changes = np.int64(0)  # a plain 0 would have what takes it compiled twice
    for k in range(episodes):
        full = log.node.shape[0] > 0 and changes + rules.reserve > log.node.shape[0]
        if k > 0 and (full or counts.status[CELLS] + layout.horizon > counts.cell_next.shape[0]):
            return k, changes
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
        changes = learn_path(places, counts, rules, plan, path, layout.horizon, log, done + k + 1, changes)
    return episodes, changes


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
    """Set Q by plain means, and why a row is known to fail, [row, column]: it violates, or the dead slot it led to."""
    slots = places.row_start.shape[0] - 1
    for column in range(value.shape[1]):
        for slot in range(slots):
            step = column if places.shift == 1 else places.slot_step[slot]
            for row in range(places.row_start[slot], places.row_start[slot + 1]):
                q, c = judge(places, counts, rules, plan, False, step, row)
                value[row, column] = q
                witness[row, column] = no_witness
                if counts.harm[row] > 0.0:
                    witness[row, column] = violates
                elif places.barred.shape[0] > 0 and places.barred[row, column]:
                    witness[row, column] = declared
                elif 0.0 < c < UNKNOWN_COST:
                    cell = counts.head[places.law_of_row[row]]
                    while cell != NO_CELL and plan.cost[counts.cell_next[cell], (step + 1) * places.shift] == 0.0:
                        cell = counts.cell_link[cell]
                    witness[row, column] = violates if cell == NO_CELL else counts.cell_next[cell]
