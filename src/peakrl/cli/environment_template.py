"""What `peakrl init --kind gymnasium` writes: an environment with a constraint of the user's own."""

from __future__ import annotations

from peakrl.specs.registry import Template

TEXT = """# An environment of Gymnasium's. Train it:  peakrl train {name}.toml --trust --out {name}.run

[problem]
kind = "gymnasium"                    # other kinds: {others}
id = "FrozenLake-v1"                  # as gymnasium.make takes it; or "{name}.py:make", a function that returns yours
arguments = {{ is_slippery = false }}   # what else gymnasium.make, or your function, takes
constraint = "{name}.py:holes"        # runs the code of the function: peakrl asks first, or needs --trust. Without one
                                      # the environment tells of constraints itself, in info["constraints"] (>= 0 is
                                      # met) or info["cost"] (> 0 is a violation)
horizon = 12                          # steps of an episode; by default the environment's own time limit
# reward_range = [0, 1]               # of a step; this and the next are needed where the environment shows no table
# constraint_bounds = [1]             # the most of each constraint; [] where there is nothing to meet

"""

MODULE = '''"""A lake to be crossed without ever falling into a hole."""

HOLES = {5, 7, 11, 12}


def holes(seen):
    """Return a number that is >= 0 where the constraint is met; `seen` is a transition (see docs/gymnasium.md)."""
    return -1.0 if seen.next_observation in HOLES else 1.0
'''

TEMPLATE = Template("gymnasium", TEXT, episodes=500, files={".py": MODULE})
