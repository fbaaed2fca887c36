"""A flow shop under a limit on power as a kind of problem."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# Jobs that pass machine after machine. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "flow_shop"                # the others: {others}
power = [4, 3, 2]                 # what each machine draws while it runs
limit = 6                         # the constraint: what may be drawn at once; a number, or a list by step
times = [                         # steps that each job takes on each machine
    [2, 3, 1],
    [1, 2, 3],
    [3, 1, 2],
]
# horizon = 18                    # time by which every job must be done; by default the sum of all times
"""

KINDS = (
    Kind(
        "flow_shop",
        "peakrl.problems.flow_shops.problem:flow_shop",
        environment="peakrl/FlowShop-v0",
        commands={"flow-shop": {}},
        template=Template("shop", TEMPLATE, episodes=20_000),
        parts=("waiting", "line", "begun", "left"),
    ),
)
