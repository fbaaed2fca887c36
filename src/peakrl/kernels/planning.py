"""Tables by node, all steps at once, for learners that plan on what they have counted and for policies given.

`plan` is the induction of `backward` (formulas there) with V, C and the row of every node kept. What a given policy is
worth from every step and state on is V_h(s) = E[q(s,a) + V_{h+1}(s')], V_H = 0.
"""

from __future__ import annotations

import numpy as np

from peakrl.kernels.arrays import Floats, Ints, Layout, Longs
from peakrl.kernels.backward import LEAST_COST, TIE
from peakrl.kernels.jit import inner_kernel, kernel
from peakrl.kernels.products import times


@inner_kernel
def widest_step(layout: Layout) -> int:
    """Return the most distributions that any step has."""
    widest = 0
    for step in range(layout.horizon):
        widest = max(widest, layout.step_distributions[step, 1] - layout.step_distributions[step, 0])
    return widest


@inner_kernel
def expect_next(layout: Layout, step: int, value: Floats, cost: Floats, next_value: Floats, next_cost: Floats) -> None:
    """Set E[V] and E[C] of the next state for each distribution that a step's rows share."""
    there = (step + 1) * layout.node_stride
    first, last = layout.step_distributions[step]
    for d in range(first, last):
        value_sum, cost_sum, doomed = 0.0, 0.0, False
        for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
            node = there + layout.outcome_next[o]
            value_sum += layout.outcome_probability[o] * value[node]
            if cost[node] > 0.0:
                cost_sum += layout.outcome_probability[o] * cost[node]
                doomed = True
        next_value[d - first] = value_sum
        next_cost[d - first] = max(cost_sum, LEAST_COST) if doomed else 0.0


@inner_kernel
def choose_rows(
    layout: Layout,
    step: int,
    row_reward: Floats,
    row_cost: Floats,
    next_value: Floats,
    next_cost: Floats,
    value: Floats,
    cost: Floats,
    choice: Ints,
) -> None:
    """Set V, C and the chosen row of every node of a step that has rows."""
    here = step * layout.node_stride
    first = layout.step_distributions[step, 0]
    for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
        begin, end = layout.row_start[slot], layout.row_start[slot + 1]
        least = np.inf
        for row in range(begin, end):
            least = min(least, row_cost[row] + next_cost[layout.row_distribution[row] - first])
        limit = least * TIE
        best = -np.inf
        for row in range(begin, end):
            d = layout.row_distribution[row] - first
            total = row_cost[row] + next_cost[d]
            if total <= limit and row_reward[row] + next_value[d] > best:
                best = row_reward[row] + next_value[d]
                value[here + slot], cost[here + slot], choice[here + slot] = best, total, row


@kernel
def plan(layout: Layout, nodes: int, row_reward: Floats, row_cost: Floats) -> tuple[Floats, Floats, Ints]:
    """Return V, C and the chosen row by node; 0, 0 and -1 where a state has no rows."""
    value, cost = np.zeros(nodes), np.zeros(nodes)
    choice = np.full(nodes, -1, np.int32)
    next_value = np.empty(widest_step(layout))
    next_cost = np.empty_like(next_value)
    for step in range(layout.horizon - 1, -1, -1):
        expect_next(layout, step, value, cost, next_value, next_cost)
        choose_rows(layout, step, row_reward, row_cost, next_value, next_cost, value, cost, choice)
    return value, cost, choice


@inner_kernel
def expected(layout: Layout, distribution: int, there: int, table: Floats) -> float:
    """Return E[table] over the next nodes of a distribution; `there` is the next step's first node."""
    total = 0.0
    for o in range(layout.outcome_start[distribution], layout.outcome_start[distribution + 1]):
        total += times(layout.outcome_probability[o], table[there + layout.outcome_next[o]])
    return total


@kernel
def value_step(
    layout: Layout, step: int, row_quantity: Floats, choice: Ints, ahead: Floats, here: Floats, following: Floats,
    known: Longs,
) -> None:  # fmt: skip
    """Set here [slot] of a step: a chosen row's quantity and what comes of ahead [next slot]; 0 where no row is chosen.

    `following` and `known` [distribution] remember what was worked out for the step: few rows are chosen.
    """
    for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
        row = choice[slot]
        if row >= 0:
            d = layout.row_distribution[row]
            if known[d] != step:
                following[d], known[d] = expected(layout, d, 0, ahead), step
            here[slot] = row_quantity[row] + following[d]


@kernel
def value_of(layout: Layout, nodes: int, row_quantity: Floats, choice: Ints) -> Floats:
    """Return [node]: the expected sum of a quantity by row from there on, under one chosen row a node."""
    table = np.zeros(nodes)
    following = np.empty(layout.outcome_start.shape[0] - 1)
    known = np.full(following.shape[0], -1, np.int64)
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        value_step(layout, step, row_quantity, choice[here:], table[there:], table[here:], following, known)
    return table


@kernel
def value_of_mixture(layout: Layout, nodes: int, row_quantity: Floats, weights: Floats) -> Floats:
    """Return [node]: the expected sum of a quantity by row from there on, rows drawn with `weights` [entry]."""
    table = np.zeros(nodes)
    following = np.empty(layout.outcome_start.shape[0] - 1)
    known = np.full(following.shape[0], -1, np.int64)
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                weight = weights[step * layout.entry_stride + row]
                if weight > 0.0:
                    d = layout.row_distribution[row]
                    if known[d] != step:
                        following[d], known[d] = expected(layout, d, there, table), step
                    table[here + slot] += times(weight, row_quantity[row] + following[d])
    return table
