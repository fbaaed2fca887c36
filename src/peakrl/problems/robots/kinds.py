"""A robot with a battery as a kind of problem."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# A robot whose battery must never be empty. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "battery_robot"            # the others: {others}
plan = [                          # S start and charger, G goal, C charger, o pit, # wall
    "..G...",
    ".#..#.",
    "...o..",
    "......",
    "CCSCCC",
]
battery = 16                      # units; every action takes one
charge = 4                        # units that a step on a charger adds
slip = 0.1                        # probability of a slip to each side
horizon = 30                      # steps
"""

KINDS = (
    Kind(
        "battery_robot",
        "peakrl.problems.robots.problem:battery_robot",
        environment="peakrl/BatteryRobot-v0",
        commands={"battery-robot": {}},
        template=Template("robot", TEMPLATE, episodes=50_000),
        parts=("row", "column", "battery"),
    ),
)
