"""`peakrl.harvesting`: a transmitter that lives on harvested energy, its arrivals and its baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = [
    "EnergyHarvesting",
    "FrozenArrivals",
    "IndependentArrivals",
    "MarkovArrivals",
    "balanced_policy",
    "balanced_rates",
    "convex_bound",
    "draw_arrivals",
    "energy_harvesting",
    "greedy_policy",
    "greedy_rates",
    "integer_bound",
    "simulate_balanced",
]

if TYPE_CHECKING:
    from peakrl.problems.harvesting.arrivals import FrozenArrivals, IndependentArrivals, MarkovArrivals, draw_arrivals
    from peakrl.problems.harvesting.baselines import (
        balanced_policy,
        balanced_rates,
        convex_bound,
        greedy_policy,
        greedy_rates,
        integer_bound,
        simulate_balanced,
    )
    from peakrl.problems.harvesting.problem import EnergyHarvesting, energy_harvesting

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "arrivals": ("FrozenArrivals", "IndependentArrivals", "MarkovArrivals", "draw_arrivals"),
        "baselines": (
            "balanced_policy", "balanced_rates", "convex_bound", "greedy_policy", "greedy_rates", "integer_bound",
            "simulate_balanced",
        ),
        "problem": ("EnergyHarvesting", "energy_harvesting"),
    },
)  # fmt: skip
