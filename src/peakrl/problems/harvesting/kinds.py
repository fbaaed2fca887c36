"""Energy harvesting as a kind of problem."""

from __future__ import annotations

from peakrl.problems.registry import Kind, Template

TEMPLATE = """# A transmitter that lives on harvested energy. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "energy_harvesting"        # the others: {others}
peak_power = 8                    # the constraint: no step may send with more
horizon = 20                      # steps of an episode
battery = 20                      # capacity
max_arrival = 20                  # the largest energy that may arrive in a step
mean = 10                         # of the arrivals, a normal law cut to 0 .. max_arrival and rounded
std = 5
arrivals = "random"               # drawn at every step; "frozen": one sequence drawn from `seed`; or a list of numbers
log_base = 2                      # rewards in bits
# seed = 0                        # of the frozen sequence
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
)
