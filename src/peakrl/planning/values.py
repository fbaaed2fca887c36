"""What a given policy is worth from every step and state on, by node: V_h(s) = E[q(s,a) + V_{h+1}(s')], V_H = 0."""

from __future__ import annotations

import numpy as np

from peakrl.jit import kernel
from peakrl.numerics import times
from peakrl.types import Floats, Ints, Layout, Longs


@kernel
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
                following[d], known[d] = expected(layout, d, np.int64(0), ahead), step
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
