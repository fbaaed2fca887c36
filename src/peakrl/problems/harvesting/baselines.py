"""Baselines of energy harvesting, for single sequences or as policies.

With B the capacity, p the peak, E_h the arrivals and b_0 = 0, b_{h+1} = min(B, b_h + E_h - P_h):

    greedy      P_h = min(p, b_h + E_h)                                                             causal
    balanced    P_h = min(m, p, b_h + E_h),   m = (E_0 + ... + E_{H-1}) / H                         non-causal
    integer     max sum_h log(1 + P_h)  over whole powers P_h <= p, by dynamic programming          non-causal
    convex      the same over real powers:  0 <= P_h <= p,  0 <= b_h <= B,  b_0 = 0,
                b_{h+1} <= b_h + E_h - P_h  (the gap is spilled), by water-filling           non-causal

Non-causal rules use arrivals that a transmitter cannot know yet: they are for comparison only. `balanced` sends real
powers, as in the published curve (a mean rounded down would earn half a bit to a bit less).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from peakrl.policy.tables import Policy
from peakrl.problems.harvesting.arrivals import as_sequences, whole_number
from peakrl.problems.harvesting.energy import EnergyHarvesting, checked_base, checked_peak, rate
from peakrl.problems.harvesting.known_arrivals import best_totals, taut_totals
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs

#: (step, (battery, arrival)) -> power.
PowerRule = Callable[[int, Any], int]


# As policies --------------------------------------------------------------------------------------------------


def greedy(problem: EnergyHarvesting) -> PowerRule:
    """Return the rule that sends as much as peak and battery allow."""
    peak = math.floor(problem.peak_power)
    return lambda step, state: min(peak, sum(state))


def greedy_policy(problem: EnergyHarvesting, model: TabularModel | None = None) -> Policy:
    """Return `greedy` as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem, greedy(problem))


# On sequences -------------------------------------------------------------------------------------------------


def greedy_rates(arrivals: Any, *, battery: int = 20, peak_power: float = 8, log_base: float = 2) -> Floats:
    """Return [sequence]: the total rate of the greedy rule on each row of `arrivals`."""
    sequences = as_sequences(arrivals, "arrivals")
    return spend(sequences, np.full(len(sequences), math.inf), battery, peak_power, log_base)


def balanced_rates(arrivals: Any, *, battery: int = 20, peak_power: float = 8, log_base: float = 2) -> Floats:
    """Return [sequence]: the total rate of spending the mean of each sequence (non-causal, real powers)."""
    sequences = as_sequences(arrivals, "arrivals")
    return spend(sequences, sequences.mean(axis=1), battery, peak_power, log_base)


def integer_bound(arrivals: Any, *, battery: int = 20, peak_power: float = 8, log_base: float = 2) -> Floats:
    """Return [sequence]: the largest total rate of whole powers below the peak (non-causal)."""
    sequences = as_sequences(arrivals, "arrivals")
    capacity = whole_number(battery, "battery", 0)
    base = checked_base(log_base)
    top = min(math.floor(checked_peak(peak_power)), capacity + int(sequences.max()))
    return best_totals(sequences, capacity, np.array([rate(power, base) for power in range(top + 1)]))


def convex_bound(arrivals: Any, *, battery: int = 20, peak_power: float = 8, log_base: float = 2) -> Floats:
    """Return [sequence]: the largest total rate of real powers below the peak (non-causal), exactly.

    By dynamic water-filling (`problems.harvesting.known_arrivals`), some microseconds per sequence.
    """
    sequences = as_sequences(arrivals, "arrivals")
    capacity = whole_number(battery, "battery", 0)
    peak, base = checked_peak(peak_power), checked_base(log_base)
    totals: Floats = taut_totals(sequences, float(capacity), float(peak)) / math.log(base)
    return totals


def spend(sequences: Longs, target: Floats, battery: int, peak_power: float, log_base: float) -> Floats:
    """Return [sequence]: the total rate of sending `target` at every step, or what peak and battery allow."""
    capacity = whole_number(battery, "battery", 0)
    wanted = np.minimum(target, checked_peak(peak_power))
    level, total = np.zeros(len(sequences)), np.zeros(len(sequences))
    for arrival in sequences.T:
        power = np.minimum(wanted, level + arrival)
        total += np.log1p(power)
        level = np.minimum(capacity, level + arrival - power)
    return total / math.log(checked_base(log_base))
