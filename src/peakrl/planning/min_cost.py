"""The least expected cost of a policy: backward induction in plain numpy, so that nothing is compiled.

C_h(s) = min_a ( c(s,a) + E[C_{h+1}(s')] ),  C_H = 0;    for one step alone: c there, and 0 before it

In a stationary model the cost k steps after the first is the cost k steps ahead of any: one pass gives all steps.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np

from peakrl.planning.occupancy import TOLERANCE, Chain
from peakrl.types import Floats, Layout


def least_cost(chain: Chain, charge: Floats) -> float:
    """Return the least expected sum of charges [row], at least 0, of an episode."""
    layout = chain.layout
    cost = np.zeros(len(layout.row_start) - 1)
    for h in range(layout.horizon - 1, -1, -1):
        cost = before(layout, h, cost, charge)
    return at_first(chain, cost)


def least_by_step(chain: Chain, charge: Floats) -> Floats:
    """[step]: the least expected charge of each step alone."""
    layout, nothing = chain.layout, np.zeros(len(chain.layout.row_start) - 1)
    if layout.node_stride:
        cost, found = before(layout, 0, nothing, charge), []
        for _ in range(layout.horizon):
            found.append(at_first(chain, cost))
            cost = before(layout, 0, cost, None)
        return np.array(found)
    found = []
    for step in range(layout.horizon):
        cost = before(layout, step, nothing, charge)
        for h in range(step - 1, -1, -1):
            cost = before(layout, h, cost, None)
        found.append(at_first(chain, cost))
    return np.array(found)


def at_first(chain: Chain, cost: Floats) -> float:
    """Return the mean of C_0 [slot] over the first states."""
    return float(chain.first_probability @ cost[chain.first_slot])


def before(layout: Layout, step: int, after: Floats, charge: Floats | None) -> Floats:
    """[slot]: C of a step, 0 elsewhere, given C of the step after; without `charge` nothing is charged."""
    low, high = layout.step_slots[step]
    first, last = layout.step_distributions[step]
    begin, end = layout.outcome_start[first], layout.outcome_start[last]
    start = layout.row_start[low : high + 1]
    cost = np.zeros(len(after))
    offering = np.flatnonzero(np.diff(start))
    if len(offering):
        outcomes = layout.outcome_probability[begin:end] * after[layout.outcome_next[begin:end]]
        ahead = np.add.reduceat(outcomes, layout.outcome_start[first:last] - begin)
        rows = ahead[layout.row_distribution[start[0] : start[-1]] - first]
        rows = rows if charge is None else rows + charge[start[0] : start[-1]]
        cost[low + offering] = np.minimum.reduceat(rows, start[offering] - start[0])
    return cost


def within(cost: float, limit: float) -> bool:
    """Return whether a cost is within a limit, up to rounding."""
    return cost <= limit * (1.0 + TOLERANCE)


def least_words(least: float) -> str:
    """Return the least feasible limit in six digits, rounded so that it is feasible."""
    words = f"{least:.6g}"
    return words if within(least, float(words)) else f"{Context(6, ROUND_CEILING).create_decimal(least):g}"


def most_words(most: float) -> str:
    """Return a maximum in six digits, rounded down so that it can be attained."""
    words = f"{most:.6g}"
    return words if within(float(words), most) else f"{Context(6, ROUND_FLOOR).create_decimal(most):g}"
