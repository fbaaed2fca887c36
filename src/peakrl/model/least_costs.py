"""The least that a policy can be expected to cost: backward induction in plain numpy, so that nothing is compiled.

C_h(s) = min_a ( c(s,a) + E[C_{h+1}(s')] ),  C_H = 0;    for one step alone: c there, and 0 before it
"""

from __future__ import annotations

import numpy as np

from peakrl.kernels.arrays import Floats, Layout
from peakrl.model.occupancy import Chain


def least_cost(chain: Chain, charge: Floats, step: int | None = None) -> float:
    """Return the least expected sum of charges [row], never below 0, over an episode, or at one step."""
    layout = chain.layout
    last = layout.horizon - 1 if step is None else step
    cost = np.zeros(len(layout.row_start) - 1)
    for h in range(last, -1, -1):
        low, high = layout.step_slots[h]
        found = least_at(layout, h, cost, charge if step is None or h == step else None)
        if layout.node_stride:
            cost = np.zeros(len(cost))  # those of the step after are done with
        cost[low:high] = found
    return float(chain.first_probability @ cost[chain.first_slot])


def least_at(layout: Layout, step: int, after: Floats, charge: Floats | None) -> Floats:
    """[slot of the step]: C, given C of the step after [slot]; nothing is charged for where `charge` is None."""
    low, high = layout.step_slots[step]
    first, last = layout.step_distributions[step]
    begin, end = layout.outcome_start[first], layout.outcome_start[last]
    start = layout.row_start[low : high + 1]
    least = np.zeros(high - low)
    offering = np.flatnonzero(np.diff(start))
    if len(offering):
        outcomes = layout.outcome_probability[begin:end] * after[layout.outcome_next[begin:end]]
        ahead = np.add.reduceat(outcomes, layout.outcome_start[first:last] - begin)
        rows = ahead[layout.row_distribution[start[0] : start[-1]] - first]
        rows = rows if charge is None else rows + charge[start[0] : start[-1]]
        least[offering] = np.minimum.reduceat(rows, start[offering] - start[0])
    return least
