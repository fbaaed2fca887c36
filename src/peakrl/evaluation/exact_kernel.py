"""Exact forward evaluation: who is where, and what is paid, step by step.

With m_h(s) the probability to be in slot s at step h and w_h(row) that of its rows there,

    total[h, q] = sum_s m_h(s) sum_{rows of s} w_h(row) * q(row)

for every quantity q that rows pay. Mass moves on through the distributions that rows share: each collects what all
its rows send and spreads it over its outcomes once. Products are those of `products`: m_h(s) is 0 only where s cannot
be reached, and the total of a quantity that is never negative is 0 only where none of it can be paid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import loop
from peakrl.numerics import times
from peakrl.types import Floats, Ints, Layout


@loop
def forward_totals(
    layout: Layout,
    row_payoffs: Floats,
    first: int,
    rows: Ints,
    weights: Floats,
    mass: Floats,
    sent: Floats,
    used: NDArray[np.bool_],
    totals: Floats,
) -> None:
    """Add to totals [step - first, quantity] what steps from `first` on pay; mark in `used` the rows that may come up.

    The policy is `weights` [entry], or where that is empty `rows` [node], both from the step `first` on. `mass` [slot]
    is m_first and becomes that of the step after the last; `sent` [distribution] is scratch, all 0.
    """
    row_start, row_distribution, outcome_start = layout.row_start, layout.row_distribution, layout.outcome_start
    outcome_next, outcome_probability = layout.outcome_next, layout.outcome_probability
    table = weights.shape[0] == 0
    for number in range(totals.shape[0]):
        step, here, entries = first + number, number * layout.node_stride, number * layout.entry_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            if mass[slot] == 0.0:
                continue
            first_row = np.int64(rows[here + slot]) if table else row_start[slot]
            last_row = first_row + 1 if table else row_start[slot + 1]
            for row in range(first_row, last_row):
                part = mass[slot] if table else times(mass[slot], weights[entries + row])
                if part > 0.0:
                    used[row] = True
                    sent[row_distribution[row]] += part
                    for q in range(totals.shape[1]):
                        totals[number, q] += times(part, row_payoffs[row, q])
            mass[slot] = 0.0
        for d in range(layout.step_distributions[step, 0], layout.step_distributions[step, 1]):
            if sent[d] > 0.0:
                for o in range(outcome_start[d], outcome_start[d + 1]):
                    mass[outcome_next[o]] += times(sent[d], outcome_probability[o])
                sent[d] = 0.0
