"""Electric cars on one connection as a kind of problem."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# Electric cars on one connection. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "vehicle_charging"         # the others: {others}
limit = 5                         # a constraint: kW that cars and household may draw together
horizon = 12                      # hours
# The other constraint: a car that leaves has what it needs. energy: kWh that it needs; departure: the hour by which;
# rate: kWh that it can charge in an hour
cars = [
    {{ energy = 10, departure = 12, rate = 3 }},
    {{ energy = 6, departure = 8, rate = 2 }},
]
# prices = [0.42, 0.42, ...]      # of a kWh, by hour
# load = [[0.6, 0.4], [0.3, 0.7]] # transition matrix of the household's load of 0, 1, ... kW
# first = [0.5, 0.5]              # distribution of its first load
"""

KINDS = (
    Kind(
        "vehicle_charging",
        "peakrl.problems.charging.problem:vehicle_charging",
        environment="peakrl/VehicleCharging-v0",
        commands={"vehicle-charging": {}},
        template=Template("charging", TEMPLATE, episodes=20_000),
        parts=("household", "needed by car 1", "needed by car 2"),
    ),
)
