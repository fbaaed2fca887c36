"""What `peakrl init` writes: problem files with a word on every key, each of which trains as it stands."""

from __future__ import annotations

LEARNING = """
[settings]
# practical:     the learner to use; switches: tight_optimism, constraint_memory, share_steps, adaptive_steps,
#                second_looks
# paper:         Algorithm 1 as printed; needs slack, takes slater, penalty, bonus, start, c1, c2, failure_probability
# published:     what the paper's curves use; needs slack
# deterministic: Theorem 2; needs phi, between 0 and 0.5
learner = "practical"

[run]
episodes = {episodes}
seed = 0
record = "auto"                   # "auto": about 1,000 points of history; "none"; or every how many episodes
# checkpoint = "{name}.run"       # save the run here about every 30 seconds; the same command then goes on from it
# checkpoint_every = 10_000       # every so many episodes instead
"""

ENERGY = """# A transmitter that lives on harvested energy. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "energy_harvesting"        # the others: machine_scheduling, scheduling_example, tables, python
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

JOBS = """# Jobs on one machine with due times and deadlines. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "machine_scheduling"       # the others: energy_harvesting, scheduling_example, tables, python
objective = "max_tardiness"       # or "total_tardiness", "weighted_late_work"
# jobs = "jobs.csv"               # columns processing, due, deadline and, if wanted, weight and name; or right here:
jobs = [
    # processing: a whole number, a range "2-4" (each number equally likely), or [probability, time] pairs
    {{ name = "saw", processing = 3, due = 22, deadline = 30 }},
    {{ name = "drill", processing = 5, due = 30, deadline = 28 }},
    {{ name = "mill", processing = 7, due = 33, deadline = 35 }},
    {{ name = "paint", processing = 9, due = 15, deadline = 18 }},
    {{ name = "pack", processing = 10, due = 18, deadline = 21 }},
]
"""

TABLES = """# A problem as a list of outcomes. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "tables"                   # the others: energy_harvesting, machine_scheduling, scheduling_example, python
file = "{name}.csv"               # one row for each outcome: state, action, next_state, reward, probability, step;
                                  # every other column is a constraint (>= 0 is met). Or an .npz with the arrays
                                  # transitions [state, action, next_state], rewards, constraints
horizon = 10
initial = "cold"                  # a state, or {{ cold = 0.5, warm = 0.5 }}
"""

TABLE = """state,action,next_state,probability,reward,temperature
cold,rest,cold,1,0,40
cold,work,warm,0.8,1,20
cold,work,hot,0.2,1,5
warm,rest,cold,1,0,40
warm,work,hot,0.5,2,5
warm,work,burnt,0.5,2,-10
hot,rest,warm,1,0,20
hot,work,burnt,1,3,-10
burnt,rest,burnt,1,0,-10
"""

PYTHON = """# A problem of your own. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "python"                   # runs the code of the function: only use files that you trust
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
    """Return the problem; `arguments` in the problem file say with which numbers."""
    return Warehouse(capacity)
'''

#: For each kind of template: what follows the name of each file, and its text.
TEMPLATES: dict[str, dict[str, str]] = {
    "energy": {".toml": ENERGY + LEARNING.replace("{episodes}", "50_000")},
    "jobs": {".toml": JOBS + LEARNING.replace("{episodes}", "5_000")},
    "tables": {".toml": TABLES + LEARNING.replace("{episodes}", "20_000"), ".csv": TABLE},
    "python": {".toml": PYTHON + LEARNING.replace("{episodes}", "20_000"), ".py": MODULE},
}


def template_files(kind: str, name: str) -> dict[str, str]:
    """Return {suffix: text} of a template for files called `name`."""
    return {suffix: text.format(name=name) if suffix == ".toml" else text for suffix, text in TEMPLATES[kind].items()}
