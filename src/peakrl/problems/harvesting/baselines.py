"""Baselines of energy harvesting, for single sequences or as policies.

With B the capacity, p the peak, E_h the arrivals and b_0 = 0, b_{h+1} = min(B, b_h + E_h - P_h):

    greedy      P_h = min(p, b_h + E_h)                                                             causal
    balanced    P_h = min(m, p, b_h + E_h),   m = (E_0 + ... + E_{H-1}) / H                         non-causal
    integer     max sum_h log(1 + P_h)  over whole powers P_h <= p, by dynamic programming          non-causal
    convex      the same over real powers:  0 <= P_h <= p,  0 <= b_h <= B,  b_0 = 0,
                b_{h+1} <= b_h + E_h - P_h  (the gap is spilled), by water-filling           non-causal

Non-causal rules use arrivals that a transmitter cannot know yet: they are for comparison only. `balanced` sends real
powers, as in the published curve (a mean rounded down would earn half a bit to a bit less). As a policy, for models
with whole powers, it sends floor((h+1) m) - floor(h m): the same energy over time, up to less than one unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peakrl.errors import PolicyError
from peakrl.policy.tables import Policy
from peakrl.problems.harvesting.arrivals import FrozenArrivals, as_sequences, whole_number
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


def balanced(problem: EnergyHarvesting) -> PowerRule:
    """Return the rule (non-causal) that spends the mean of a frozen sequence, in whole powers."""
    if not isinstance(problem.arrivals, FrozenArrivals):
        raise PolicyError(
            "the balanced rule needs all arrivals in advance, and these are random; "
            "simulate_balanced(problem, episodes=...) simulates it with the future known"
        )
    peak, horizon, total = math.floor(problem.peak_power), problem.horizon, sum(problem.arrivals.sequence)

    def power(step: int, state: tuple[int, int]) -> int:
        due = (step + 1) * total // horizon - step * total // horizon
        return min(due, peak, sum(state))

    return power


def greedy_policy(problem: EnergyHarvesting, model: TabularModel | None = None) -> Policy:
    """Return `greedy` as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem.tabulate(), greedy(problem))


def balanced_policy(problem: EnergyHarvesting, model: TabularModel | None = None) -> Policy:
    """Return `balanced` (non-causal) as a table for the model of a frozen problem (compiled here unless given)."""
    return Policy.from_rule(model or problem.tabulate(), balanced(problem))


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


# With random arrivals -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NonCausalRun:
    """Simulated episodes of a rule that knows all arrivals in advance, for comparison only."""

    rule: str
    #: [episode]: sum of the rates, in the problem's logarithm.
    rewards: Floats
    causal: bool = field(default=False, init=False)

    @property
    def value(self) -> float:
        """Mean sum rate."""
        return float(self.rewards.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
        return float(self.rewards.std(ddof=1) / math.sqrt(len(self.rewards))) if len(self.rewards) > 1 else math.inf

    @property
    def label(self) -> str:
        """The rule's name, marked as non-causal."""
        return f"{self.rule} (non-causal)"


def simulate_balanced(problem: EnergyHarvesting, *, episodes: int, seed: int = 0) -> NonCausalRun:
    """Simulate the balanced rule (non-causal: each episode's arrivals are known before it starts)."""
    count = whole_number(episodes, "episodes", 1)
    arrivals = problem.arrivals.draw(count, problem.horizon, seed)
    rewards = balanced_rates(
        arrivals, battery=problem.battery, peak_power=problem.peak_power, log_base=problem.log_base
    )
    return NonCausalRun("balanced", rewards)
