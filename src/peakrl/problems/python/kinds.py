"""A user's function as a kind of problem."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# A problem of your own. Train it:  peakrl train {name}.toml --trust --out {name}.run

[problem]
kind = "python"                   # runs the code of the function: peakrl asks first, or needs --trust
function = "{name}.py:make"       # a file beside this one, or "package.module:function"
arguments = {{ capacity = 5 }}

"""

MODULE = '''"""A warehouse that must never run out: how much to order, before the demand of the day is known?"""

from peakrl import Outcome, Problem


class Warehouse(Problem):
    """State: the stock. Action: how much to order. Constraint: the stock after the day is at least 0."""

    name = "warehouse"
    horizon = 7
    constraint_names = ("stock",)
    stationary = True

    def __init__(self, capacity):
        self.capacity = capacity

    def initial(self):
        return [(1.0, self.capacity)]

    def actions(self, step, state):
        return range(self.capacity - max(state, 0) + 1)

    def outcomes(self, step, state, action):
        for probability, demand in ((0.5, 0), (0.3, 1), (0.2, 2)):
            left = max(state, 0) + action - demand
            yield Outcome(probability, left, -0.5 * action - 0.1 * max(left, 0), (float(left),))


def make(capacity):
    """Return the problem; `arguments` of the problem file are its parameters."""
    return Warehouse(capacity)
'''

KINDS = (
    Kind(
        "python",
        "peakrl.problems.python.problem:own_problem",
        reader="peakrl.problems.python.problem:with_function",
        source="peakrl.problems.python.problem:source_of",
        template=Template("python", TEMPLATE, episodes=20_000, files={".py": MODULE}),
        runs_code=True,
    ),
)
