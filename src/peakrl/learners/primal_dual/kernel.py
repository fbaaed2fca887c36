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
finds the least price at which the plan satisfies its limit by bisection. What is declared to fail (`Counts.forbidden`)
is never planned, and its pi is 0.

OptDual and OptPrimalDual are due to Efroni, Mannor and Pirotta (2020); docs/references.md has the variants.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.learners.counting_planner import NO_CELL, Counts, count_step
from peakrl.learners.episode import Log, lacks_room, note, note_episode, take_row
from peakrl.sampling import Words, draw_first, uniform
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

#: Rules: plan, improve the policy, or find the price by bisection.
PLAN, IMPROVE, BISECT = 0, 1, 2
#: Indices of `Dual.status`: episode of the next plan, number of plans, points of the curve.
NEXT_PLAN, PLANS, POINTS = 0, 1, 2
STATUS_SIZE = 3


class Dual(NamedTuple):
    """Prices, policy and plan."""

    #: [row, quantity]: sum of costs; [row]: b.
    charge: Floats
    width: Floats
    #: [slot, column (+ 1 if steps share slots), cost]: C.
    cost: Floats
    #: [slot, 1 + cost]: V and C of the next step.
    near: Floats
    #: If the model is known: [row] distribution; [distribution, 1 + cost] P^ V and P^ C; [distribution] their column.
    distribution: Longs
    ahead: Floats
    found: Longs
    #: [row, column]: log pi, pi, and the latest L.
    preference: Floats
    chance: Floats
    gain: Floats
    #: [slot, column]: the row of largest L.
    plan: Longs
    #: [cost]: lam, C from the first states, and a buffer for the costs of a row.
    price: Floats
    expected: Floats
    row_cost: Floats
    status: Longs
    #: [point, 1 + cost]: episode, lam.
    curve: Floats
    #: Random stream of the actions.
    words: Words


class Rules(NamedTuple):
    """Constants derived from settings and sizes."""

    horizon: int
    node_stride: int
    shift: int
    row_start: Longs
    slot_step: Longs
    #: Slots in the order of planning, last step first.
    order: Longs
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


class Path(NamedTuple):
    """[step]: an episode. Charges are [step, quantity]."""

    row: Longs
    following: Longs
    reward: Floats
    violation: Floats
    charge: Floats


class Truth(NamedTuple):
    """Exact evaluation of a policy on the model, and its buffers, [slot, column (+ 1), 2]."""

    first_slot: Ints
    first_probability: Floats
    #: [row, 2]: expected reward and total violation.
    payoff: Floats
    table: Floats
    #: [distribution, 2]: expectation of the next values, and [distribution]: its column.
    ahead: Floats
    known: Longs
    #: [2]: value and violation.
    found: Floats


#: Falling steps and temperatures of the regularised form.
STEP_POWER, HEAT_POWER, DELAY = -0.53, -0.4, 3.0
#: Bisection: largest number of doublings of a price, and number of halvings.
DOUBLINGS, HALVINGS = 40, 50
#: Episodes between plans of WeiMDP: at least this many, or this share of the episodes so far.
LEAST_BATCH, BATCH_SHARE = 10, 0.02


@loop
def widen(counts: Counts, dual: Dual, rules: Rules) -> None:
    """Set b of every row."""
    for row in range(dual.width.shape[0]):
        n = counts.visits[row]
        if n == 0 or rules.bonus == 0.0:
            dual.width[row] = 0.0
        elif rules.hoeffding:
            dual.width[row] = rules.bonus * math.sqrt(rules.states * rules.log_term / (n + 1))
        else:
            share = rules.log_term / n
            total, seen, cell = 0.0, 0, counts.first[row]
            while cell != NO_CELL:
                p = counts.count[cell] / n
                total += min(1.0, 2.0 * math.sqrt(p * (1.0 - p) * share) + 14.0 / 3.0 * share)
                seen += 1
                cell = counts.before[cell]
            total += max(rules.states - seen, 0) * min(1.0, 14.0 / 3.0 * share)
            dual.width[row] = rules.bonus * total


@inlined
def look_ahead(counts: Counts, dual: Dual, rules: Rules, row: int, column: int) -> int:
    """Return the index of a row's expectations in `dual.ahead`; computed once for rows of a known distribution."""
    index = np.int64(dual.distribution[row] if rules.known else 0)
    if not rules.known or dual.found[index] != column:
        dual.found[index] = column
        share = 1.0 / (counts.visits[row] + rules.hoeffding)
        for part in range(dual.ahead.shape[1]):
            total, cell = 0.0, counts.first[row]
            while cell != NO_CELL:
                total += counts.count[cell] * share * dual.near[counts.following[cell], part]
                cell = counts.before[cell]
            dual.ahead[index, part] = total
    return index


@inlined
def judge(counts: Counts, dual: Dual, rules: Rules, row: int, column: int, step: int, cap: float) -> float:
    """Return Q of a row, and set its costs in `row_cost`."""
    n = counts.visits[row]
    if n == 0:
        dual.row_cost[:] = 0.0
        return cap
    index = look_ahead(counts, dual, rules, row, column)
    for j in range(dual.row_cost.shape[0]):
        own, past = not rules.by_step or j // rules.quantities == step, rules.by_step and j // rules.quantities < step
        charge = dual.charge[row, j % rules.quantities] / n if own else 0.0
        cost = charge - rules.ranges[j] * dual.width[row] + dual.ahead[index, 1 + j]
        dual.row_cost[j] = 0.0 if past else max(0.0, cost)
    return min(cap, counts.reward[row] / n - rules.lowest + rules.span * dual.width[row] + dual.ahead[index, 0])


@inlined
def bring_near(counts: Counts, dual: Dual, slot: int, column: int) -> None:
    """Copy value and costs of a slot to `near`, where those of all slots are adjacent."""
    dual.near[slot, 0] = counts.w[slot, column]
    for j in range(dual.cost.shape[2]):
        dual.near[slot, 1 + j] = dual.cost[slot, column, j]


@loop
def sweep(counts: Counts, dual: Dual, rules: Rules, heat: float) -> None:
    """Plan, or evaluate the current policy, by backward induction."""
    costs, columns = dual.price.shape[0], counts.greedy.shape[1]
    dual.found[:] = -1
    for back in range(columns):
        column = columns - 1 - back
        for slot in range(dual.near.shape[0]):
            bring_near(counts, dual, slot, column + rules.shift)
        for index in range(rules.order.shape[0]):
            slot = rules.order[index]
            step = column if rules.shift == 1 else rules.slot_step[slot]
            first, last = rules.row_start[slot], rules.row_start[slot + 1]
            cap = (rules.span + heat * math.log(last - first)) * (rules.horizon - step)
            best, value = -math.inf, 0.0
            dual.cost[slot, column, :] = 0.0
            for row in range(first, last):
                q = judge(counts, dual, rules, row, column, step, cap)
                lagrangian = q
                for j in range(costs):
                    lagrangian -= dual.price[j] * dual.row_cost[j]
                dual.gain[row, column] = lagrangian
                if rules.rule == IMPROVE:
                    p = dual.chance[row, column]
                    value += p * (q - heat * dual.preference[row, column]) if p > 0.0 else 0.0
                    for j in range(costs):
                        dual.cost[slot, column, j] += p * dual.row_cost[j]
                elif lagrangian > best and counts.forbidden[row, column] == 0:
                    best, value = lagrangian, q
                    dual.plan[slot, column] = row
                    for j in range(costs):
                        dual.cost[slot, column, j] = dual.row_cost[j]
            counts.w[slot, column] = value
            if rules.shift == 0:  # earlier steps use this column, too
                bring_near(counts, dual, slot, column)
    start_costs(counts, dual)


@loop
def start_costs(counts: Counts, dual: Dual) -> None:
    """Set the expected costs from the first states so far."""
    total = 0.0
    dual.expected[:] = 0.0
    for slot in range(counts.begun.shape[0]):
        if counts.begun[slot] > 0:
            total += counts.begun[slot]
            for j in range(dual.expected.shape[0]):
                dual.expected[j] += counts.begun[slot] * dual.cost[slot, 0, j]
    for j in range(dual.expected.shape[0]):
        dual.expected[j] /= max(total, 1.0)


@loop
def improve(counts: Counts, dual: Dual, rules: Rules, step_size: float, heat: float) -> None:
    """Update pi with the latest L."""
    # Steps are independent here, and the columns of a row are adjacent.
    for index in range(rules.order.shape[0]):
        slot = rules.order[index]
        first, last = rules.row_start[slot], rules.row_start[slot + 1]
        for column in range(counts.greedy.shape[1]):
            most = -math.inf
            for row in range(first, last):
                old = dual.preference[row, column]
                if rules.mixing > 0.0 and counts.forbidden[row, column] == 0:
                    old = math.log((1.0 - rules.mixing) * dual.chance[row, column] + rules.mixing / (last - first))
                new = (1.0 - step_size * heat) * old + step_size * dual.gain[row, column]
                dual.preference[row, column] = new
                most = max(most, new)
            total = 0.0
            for row in range(first, last):
                dual.preference[row, column] -= most
                dual.chance[row, column] = math.exp(dual.preference[row, column])
                total += dual.chance[row, column]
            whole = math.log(max(total, 1.0))  # the largest term is 1, if there is any
            for row in range(first, last):
                dual.preference[row, column] -= whole
                dual.chance[row, column] /= total


@loop
def move_prices(dual: Dual, rules: Rules, step_scale: float, shrink: float) -> None:
    """Update every price by the excess over its limit."""
    for j in range(dual.price.shape[0]):
        step = rules.price_step[j] * step_scale
        moved = (1.0 - shrink) * dual.price[j] + step * (dual.expected[j] - rules.limit[j])
        dual.price[j] = min(rules.most[j], max(0.0, moved))


@loop
def bisect(counts: Counts, dual: Dual, rules: Rules) -> None:
    """Plan with the least price that satisfies the limit; if none does, with the largest that was tried."""
    low, high = 0.0, 0.0
    dual.price[0] = high
    sweep(counts, dual, rules, 0.0)
    doublings = 0
    while dual.expected[0] > rules.limit[0] and doublings < DOUBLINGS:
        low, high = high, max(rules.span, 2.0 * high)
        dual.price[0] = high
        sweep(counts, dual, rules, 0.0)
        doublings += 1
    for _ in range(HALVINGS if 0 < doublings < DOUBLINGS else 0):
        dual.price[0] = (low + high) / 2.0
        sweep(counts, dual, rules, 0.0)
        if dual.expected[0] > rules.limit[0]:
            low = dual.price[0]
        else:
            high = dual.price[0]
    dual.price[0] = high
    sweep(counts, dual, rules, 0.0)


@loop
def replan(counts: Counts, dual: Dual, rules: Rules, episode: int) -> None:
    """Plan or improve, and update the prices."""
    k = dual.status[PLANS]
    dual.status[PLANS] += 1
    dual.status[NEXT_PLAN] = episode + rules.batch
    widen(counts, dual, rules)
    if rules.rule == BISECT:
        bisect(counts, dual, rules)
        dual.status[NEXT_PLAN] = episode + max(LEAST_BATCH, int(BATCH_SHARE * (episode - 1)))
    elif rules.rule == PLAN or k > 0 or rules.known:  # there is nothing to improve by before the first episode
        fall = (k + DELAY) ** STEP_POWER if rules.heat > 0.0 else 1.0
        heat = rules.heat * rules.span * (k + DELAY) ** HEAT_POWER if rules.heat > 0.0 else 0.0
        sweep(counts, dual, rules, heat)
        if rules.rule == IMPROVE:
            improve(counts, dual, rules, rules.policy_step * fall, heat)
        if k > 0 or rules.known:
            move_prices(dual, rules, fall, fall * heat / rules.span)


@inlined
def draw_row(dual: Dual, rules: Rules, slot: int, column: int) -> int:
    """Return a row drawn from pi; no random number is used if there is one row."""
    row, last = rules.row_start[slot], rules.row_start[slot + 1] - 1
    if row < last:
        left = uniform(dual.words) - dual.chance[row, column]
        while left >= 0.0 and row < last:
            row += 1
            left -= dual.chance[row, column]
    return np.int64(row)


@loop
def begin_episode(counts: Counts, dual: Dual, rules: Rules, log: Log, episode: int) -> None:
    """Plan if it is due; follow the plan or draw from the policy."""
    due = episode >= dual.status[NEXT_PLAN]
    if due:
        replan(counts, dual, rules, episode)
    if episode % rules.keep == 0 and dual.status[POINTS] < dual.curve.shape[0]:
        dual.curve[dual.status[POINTS], 0] = episode
        for j in range(dual.price.shape[0]):
            dual.curve[dual.status[POINTS], 1 + j] = dual.price[j]
        dual.status[POINTS] += 1
    if due or rules.rule == IMPROVE:
        follow(counts, dual, rules, np.int64(0), log)


@loop
def follow(counts: Counts, dual: Dual, rules: Rules, begin: int, log: Log) -> None:
    """Follow the plan, or draw from pi, in the slots from `begin` on."""
    for column in range(counts.greedy.shape[1]):
        for index in range(rules.order.shape[0]):
            slot = rules.order[index]
            if slot < begin:
                continue
            row = dual.plan[slot, column] if rules.rule != IMPROVE else draw_row(dual, rules, slot, column)
            if counts.greedy[slot, column] != row:
                counts.greedy[slot, column] = row
                note(log, column * rules.node_stride + slot, row)


@loop
def count_path(counts: Counts, dual: Dual, rules: Rules, path: Path, first: int, length: int) -> None:
    """Count an episode, unless the model is known."""
    if rules.known:
        return
    counts.begun[first] += 1
    for step in range(length):
        count_step(counts, path.row[step], path.following[step], path.reward[step], path.violation[step])
        for c in range(path.charge.shape[1]):
            dual.charge[path.row[step], c] += path.charge[step, c]


@inlined
def expect(layout: Layout, truth: Truth, d: int, column: int) -> None:
    """Set the expectations of the next values of a distribution, which rows share."""
    truth.ahead[d, :] = 0.0
    for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
        for q in range(2):
            following = truth.table[layout.outcome_next[o], column, q]
            truth.ahead[d, q] += layout.outcome_probability[o] * following


@loop
def exact_values(layout: Layout, dual: Dual, rules: Rules, truth: Truth) -> None:
    """Set the exact value and violation of pi."""
    columns = dual.chance.shape[1]
    truth.known[:] = -1
    for back in range(columns):
        column = columns - 1 - back
        for index in range(rules.order.shape[0]):
            slot = rules.order[index]
            truth.table[slot, column, :] = 0.0
            for row in range(rules.row_start[slot], rules.row_start[slot + 1]):
                p = dual.chance[row, column]
                if p > 0.0:
                    d = layout.row_distribution[row]
                    if truth.known[d] != column:
                        expect(layout, truth, np.int64(d), column + rules.shift)
                        truth.known[d] = column
                    for q in range(2):
                        truth.table[slot, column, q] += p * (truth.payoff[row, q] + truth.ahead[d, q])
    truth.found[:] = 0.0
    for i in range(truth.first_slot.shape[0]):
        for q in range(2):
            truth.found[q] += truth.first_probability[i] * truth.table[truth.first_slot[i], 0, q]


@loop
def learn_primal_dual(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 2]: reward, total violation
    payoff: Floats,
    #: [record, quantity]
    charges: Floats,
    counts: Counts,
    dual: Dual,
    rules: Rules,
    path: Path,
    truth: Truth,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    #: [episode, 2], or [episode, 4] if the policy is randomised
    experience: Floats,
    counters: Longs,
) -> int:
    """Run up to `episodes` episodes from done+1 on; return how many."""
    valued = np.int64(-1)
    for k in range(episodes):
        if k > 0 and lacks_room(log, counts.greedy.size):
            return k
        log.head[1] = done + k + 1
        begin_episode(counts, dual, rules, log, done + k + 1)
        first = draw_first(generator, sampler)
        slot, earned, violated = first, 0.0, 0.0
        for step in range(layout.horizon):
            row = counts.greedy[slot, step * rules.shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.row[step], path.following[step] = row, following
            path.reward[step], path.violation[step] = payoff[record, 0], payoff[record, 1]
            for c in range(charges.shape[1]):
                path.charge[step, c] = charges[record, c]
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        count_path(counts, dual, rules, path, first, layout.horizon)
        note_episode(experience, counters, done, k, earned, violated)
        if experience.shape[0] > 0 and experience.shape[1] == 4:
            if valued != dual.status[PLANS]:  # otherwise pi has not changed
                exact_values(layout, dual, rules, truth)
                valued = dual.status[PLANS]
            experience[k, 2], experience[k, 3] = truth.found[0], truth.found[1]
    return episodes
