"""`peakrl.problems.harvesting`: a transmitter that lives on harvested energy, its arrivals and its baselines."""

from __future__ import annotations

from peakrl.problems.harvesting.arrivals import (
    FrozenArrivals,
    IndependentArrivals,
    MarkovArrivals,
    draw_arrivals,
    recorded_sequences,
)
from peakrl.problems.harvesting.baselines import (
    balanced_rates,
    convex_bound,
    greedy_policy,
    greedy_rates,
    integer_bound,
)
from peakrl.problems.harvesting.energy import EnergyHarvesting, energy_harvesting
from peakrl.problems.harvesting.fading import (
    ChannelState,
    FadingChannel,
    fading_channel,
)

__all__ = [
    "ChannelState", "EnergyHarvesting", "FadingChannel", "FrozenArrivals", "IndependentArrivals", "MarkovArrivals",
    "balanced_rates", "convex_bound", "draw_arrivals", "energy_harvesting", "fading_channel", "greedy_policy",
    "greedy_rates", "integer_bound", "recorded_sequences",
]  # fmt: skip
