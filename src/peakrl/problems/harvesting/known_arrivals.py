"""The best powers of a transmitter that knows its arrivals (single user, unit gains).

Whole powers: with arrivals E_0 .. E_{H-1}, the largest total rate from battery level b at step h is

    V_h(b) = max_{0 <= P <= min(peak, b + E_h)} r(P) + V_{h+1}(min(B, b + E_h - P)),     V_H = 0.

Real powers: dynamic water-filling.

With battery capacity B, peak p and arrivals E_0 .. E_{H-1} known, an empty battery at first and spilling allowed:

    1. Spend min(p, b + E_h) at every step. What then exceeds B is lost under every policy: E'_h = E_h - lost. What is
       left after the last step cannot be spent below the peak either.
    2. U_h = E'_0 + .. + E'_h is the most that can have been spent after step h, F_h = max(0, U_h - B) the least if
       nothing more is lost; both end at the total of step 1.
    3. The shortest path from (0, 0) to the end between F and U, a taut string, has the powers as its slopes: a straight
       line that bends up only where it touches U (the battery is empty) and down only at F (it is full).

Its slopes are as even as possible, so that the path is optimal for every concave rate and never above p. Levels that
change only when the battery is full or empty are dynamic water-filling (Wang, Aggarwal and Wang, 2015).
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import kernel, loop
from peakrl.types import Floats, Longs


@loop
def tunnel(arrivals: Longs, battery: float, peak: float, floor: Floats, ceiling: Floats) -> None:
    """Write the least and the most that is spent before step h (index 0: before the first) for one sequence."""
    horizon = arrivals.shape[0]
    level, total, spent = 0.0, 0.0, 0.0
    floor[0], ceiling[0] = 0.0, 0.0
    for h in range(horizon):
        available = level + arrivals[h]
        power = min(peak, available)
        lost = max(0.0, available - power - battery)
        level = available - power - lost
        total += arrivals[h] - lost
        spent += power
        floor[h + 1], ceiling[h + 1] = max(0.0, total - battery), total
    for h in range(horizon + 1):
        floor[h], ceiling[h] = min(floor[h], spent), min(ceiling[h], spent)
    floor[horizon], ceiling[horizon] = spent, spent


@loop
def pull(floor: Floats, ceiling: Floats, powers: Floats) -> None:
    """Write the slopes of the taut string between floor and ceiling."""
    horizon = powers.shape[0]
    here, height = 0, 0.0
    while here < horizon:
        # As far as a straight line goes: the steepest floor and the flattest ceiling so far, and where they are.
        steepest, flattest = -math.inf, math.inf
        low, high = here, here
        corner, level = horizon, floor[horizon]
        for there in range(here + 1, horizon + 1):
            below = (floor[there] - height) / (there - here)
            above = (ceiling[there] - height) / (there - here)
            if below > flattest:
                corner, level = high, ceiling[high]
                break
            if above < steepest:
                corner, level = low, floor[low]
                break
            if below >= steepest:
                steepest, low = below, there
            if above <= flattest:
                flattest, high = above, there
        powers[here:corner] = (level - height) / (corner - here)
        here, height = corner, level


@kernel
def taut_totals(arrivals: Longs, battery: float, peak: float) -> Floats:
    """Return [sequence]: the largest total rate of real powers on each row of `arrivals`, [sequence, step], in nats."""
    count, horizon = arrivals.shape
    floor, ceiling, powers = np.empty(horizon + 1), np.empty(horizon + 1), np.empty(horizon)
    totals = np.zeros(count)
    for i in range(count):
        tunnel(arrivals[i], battery, peak, floor, ceiling)
        pull(floor, ceiling, powers)
        for h in range(horizon):
            totals[i] += math.log1p(powers[h])
    return totals


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
