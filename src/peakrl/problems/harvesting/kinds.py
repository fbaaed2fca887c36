"""Energy harvesting as a kind of problem."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# A transmitter on harvested energy. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "energy_harvesting"        # the others: {others}
peak_power = 8                    # the constraint: no step may send with more
horizon = 20                      # steps of an episode
battery = 20                      # capacity
max_arrival = 20                  # the largest energy that may arrive in a step
mean = 10                         # of the arrivals, a normal distribution truncated to 0 .. max_arrival and rounded
std = 5
arrivals = "random"               # drawn at every step; "frozen": one sequence drawn from `seed`; or a list of numbers
log_base = 2                      # rewards in bits
# seed = 0                        # of the frozen sequence
"""

FADING = """# A transmitter over a fading channel. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "fading_channel"           # the others: {others}
peak_power = 5                    # the constraint: no step may send with more
gains = [0.25, 1, 3]              # of the channel: a bad, a usual and a good one
fading = [[0.6, 0.4, 0], [0.2, 0.6, 0.2], [0, 0.4, 0.6]]  # transition matrix of the gains
first = [0, 1, 0]                 # the distribution of the first gain
horizon = 20                      # steps of an episode
battery = 8                       # capacity
max_arrival = 6                   # the largest energy that may arrive in a step
mean = 3                          # of the arrivals, a normal distribution truncated to 0 .. max_arrival and rounded
std = 2
"""

KINDS = (
    Kind(
        "energy_harvesting",
        "peakrl.problems.harvesting.problem:energy_harvesting",
        environment="peakrl/EnergyHarvesting-v0",
        commands={"energy-harvesting": {}},
        template=Template("energy", TEMPLATE, episodes=50_000),
        parts=("battery", "arrival"),
    ),
    Kind(
        "fading_channel",
        "peakrl.problems.harvesting.fading:fading_channel",
        environment="peakrl/FadingChannel-v0",
        commands={"fading-channel": {}},
        template=Template("fading", FADING, episodes=20_000),
        parts=("battery", "arrival", "gain"),
    ),
    Kind(
        "solar_transmitter",
        "peakrl.problems.harvesting.sunlight:solar_transmitter",
        reader="peakrl.problems.harvesting.sunlight:with_station",
        source="peakrl.problems.harvesting.sunlight:station_source",
        environment="peakrl/SolarTransmitter-v0",
        files=("station",),
        parts=("battery", "arrival"),
    ),
)
