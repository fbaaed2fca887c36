"""`peakrl init`: a commented problem file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peakrl.errors import SettingsError, StorageError
from peakrl.specs.registry import Template, kinds


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the file, with or without .toml.")],
    kind: Annotated[str, typer.Option(help="What: energy, jobs, tables, python, gymnasium, ...")] = "energy",
) -> None:
    """Write a commented problem file (and the files it needs) that trains as it stands."""
    from peakrl.storage import writable, write_file

    if kind not in templates():
        raise SettingsError(f"--kind is {kind!r}; it must be one of {', '.join(templates())}")
    base = Path(name.removesuffix(".toml"))
    if not base.name.isidentifier():
        raise SettingsError(f"{base.name!r} is no good name: use letters, digits and _, and begin with a letter")
    files = {base.with_name(base.name + suffix): text for suffix, text in template_files(kind, base.name).items()}
    for path in files:
        if writable(path).exists():
            raise StorageError(f"{path} exists already; remove it or choose another name")
    for path, text in files.items():
        write_file(path, text.encode())
        print(f"wrote {path}")
    trust = " --trust" if base.with_suffix(".py") in files else ""
    print(f"next: peakrl train {base}.toml{trust} --out {base}.run")


# ------------------------------------------------------------
# What `peakrl init` writes: problem files with a word on every key, each of which trains as it stands.

LEARNING = """
[settings]
# learner = "PosteriorSampling"   # the default; takes optimism, replan_growth
# learner = "SafeQ"               # model-free, for tight memory; switches: tight_optimism, constraint_memory,
#                                 # share_steps, adaptive_steps, trials
# learner = "Certified"           # stops by itself with a certificate; needs epsilon; episodes is the limit
# learner = "ConstrainedQ"        # the paper's Algorithm 1, with one of
#   preset = "paper"              #   as printed; needs slack; takes slater, penalty, bonus, start, c1, c2
#   preset = "published"          #   as in the paper's curves; needs slack
#   preset = "deterministic"      #   Theorem 2; needs phi, between 0 and 0.5
learner = "PosteriorSampling"

[run]
episodes = {episodes}
seed = 0
history = "auto"                  # "auto": about 1,000 points of history; "none"; or every how many episodes
# checkpoint = "{name}.run"       # save the run here about every 30 seconds; the same command then goes on from it
# checkpoint_every = 10_000       # every so many episodes instead
"""


def templates() -> dict[str, Template]:
    """Return the templates by name."""
    of_kinds = [kind.template for kind in kinds().values() if kind.template is not None]
    return {template.name: template for template in (*of_kinds, TEMPLATE)}


def template_files(which: str, name: str) -> dict[str, str]:
    """Return {suffix: text} of a template for files called `name`."""
    template = templates()[which]
    names = {kind.name: kind.template for kind in kinds().values()} | {TEMPLATE.name: TEMPLATE}
    others = ", ".join(name for name, of_kind in names.items() if of_kind is not template)
    text = template.text + LEARNING.replace("{episodes}", f"{template.episodes:_}")
    return {".toml": text.format(name=name, others=others), **template.files}


# ------------------------------------------------------------
# What `peakrl init --kind gymnasium` writes: an environment with a constraint of the user's own.

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
