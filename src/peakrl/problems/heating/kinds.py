"""A thermostat as a kind of problem."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# A house to be heated at the least cost. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "thermostat"               # the others: {others}
day = [20, 22.5]                  # the constraint: lowest and highest temperature by day ...
night = [17, 22.5]                # ... and at night
day_hours = [7, 22]               # when the day's band begins and ends
horizon = 24                      # hours, from midnight on
start = 19                        # degrees inside at midnight
max_power = 4                     # kW; every whole number up to it can be chosen
gain = 1                          # degrees that a kW warms the house by in an hour
loss = 0.1                        # share of the difference to the outside that is lost in an hour
outside = [-2, 4, 9]              # degrees outside in each weather
weather = [[0.8, 0.2, 0], [0.15, 0.7, 0.15], [0, 0.3, 0.7]]  # transition matrix, by hour
first = [0.4, 0.6, 0]             # distribution of the weather at midnight
# prices = [0.18, 0.18, ...]      # of a kWh, by hour
"""

KINDS = (
    Kind(
        "thermostat",
        "peakrl.problems.heating.problem:thermostat",
        environment="peakrl/Thermostat-v0",
        commands={"thermostat": {}},
        template=Template("thermostat", TEMPLATE, episodes=20_000),
        parts=("half degrees", "weather"),
    ),
)
