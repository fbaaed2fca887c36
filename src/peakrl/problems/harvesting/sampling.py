"""Kernels of energy harvesting for one sequence of arrivals: uniform draws and the best whole-number powers.

With known arrivals E_0 .. E_{H-1}, the largest total rate from battery level b at step h is

    V_h(b) = max_{0 <= P <= min(peak, b + E_h)} r(P) + V_{h+1}(min(B, b + E_h - P)),     V_H = 0.
"""

from __future__ import annotations

import numpy as np

from peakrl.jit import kernel
from peakrl.sampling import Words, uniform
from peakrl.types import Floats, Longs


@kernel
def uniforms(state: Words, count: int) -> Floats:
    """Return the next `count` uniform numbers of a generator."""
    numbers = np.empty(count)
    for i in range(count):
        numbers[i] = uniform(state)
    return numbers


@kernel
def best_step(value: Floats, better: Floats, arrival: int, rate: Floats) -> None:
    """Write V_h to `better`, given V_{h+1} in `value`; rate[P] = r(P) for all allowed powers P."""
    top = value.shape[0] - 1
    for level in range(top + 1):
        available = level + arrival
        best = -np.inf
        for power in range(min(rate.shape[0] - 1, available) + 1):
            total = rate[power] + value[min(top, available - power)]
            best = max(best, total)
        better[level] = best


@kernel
def best_totals(arrivals: Longs, battery: int, rate: Floats) -> Floats:
    """Return [sequence]: V_0(0) of each row of `arrivals`, [sequence, step]."""
    count, horizon = arrivals.shape
    totals = np.empty(count)
    value = np.empty(battery + 1)
    better = np.empty(battery + 1)
    for i in range(count):
        value[:] = 0.0
        for step in range(horizon - 1, -1, -1):
            best_step(value, better, arrivals[i, step], rate)
            value, better = better, value
        totals[i] = value[0]
    return totals
