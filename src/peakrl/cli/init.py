"""`peakrl init`: a commented problem file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peakrl.errors import SettingsError, StorageError
from peakrl.specs.registry import Template, kinds


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new file, with or without .toml.")],
    kind: Annotated[str, typer.Option(help="Kind of problem: energy, jobs, tables, python, gymnasium, ...")] = "energy",
) -> None:
    """Write a commented problem file that is ready to train."""
    from peakrl.storage import writable, write_file

    if kind not in templates():
        raise SettingsError(f"--kind is {kind!r}; it must be one of {', '.join(templates())}")
    base = Path(name.removesuffix(".toml"))
    if not base.name.isidentifier():
        raise SettingsError(f"{base.name!r} is not a valid name: use letters, digits and _, and begin with a letter")
    files = {base.with_name(base.name + suffix): text for suffix, text in template_files(kind, base.name).items()}
    for path in files:
        if writable(path).exists():
            raise StorageError(f"{path} already exists: remove it or choose another name")
    for path, text in files.items():
        write_file(path, text.encode())
        print(f"wrote {path}")
    trust = " --trust" if base.with_suffix(".py") in files else ""
    print(f"next: peakrl train {base}.toml{trust} --out {base}.run")


LEARNING = """
[settings]
# learner = "PosteriorSampling"   # the default; takes optimism, replan_growth
# learner = "SafeQ"               # model-free, low memory; switches: tight_optimism, constraint_memory,
#                                 # share_steps, adaptive_steps, trials
# learner = "Certified"           # stops when it can issue a certificate; needs epsilon; episodes is the maximum
# learner = "ConstrainedQ"        # the paper's Algorithm 1, with one of
#   preset = "paper"              #   as printed; needs slack; takes slater, penalty, bonus, start, c1, c2
#   preset = "published"          #   as in the paper's curves; needs slack
#   preset = "deterministic"      #   Theorem 2; needs phi, between 0 and 0.5
learner = "PosteriorSampling"

[run]
episodes = {episodes}
seed = 0
history = "auto"                  # "auto": about 1,000 points; "none"; or an interval in episodes
# checkpoint = "{name}.run"       # save the run here about every 30 seconds; the same command resumes it
# checkpoint_every = 10_000       # interval in episodes instead
"""


def templates() -> dict[str, Template]:
    """Return the templates by name."""
    of_kinds = [kind.template for kind in kinds().values() if kind.template is not None]
    return {template.name: template for template in (*of_kinds, TEMPLATE)}


def template_files(which: str, name: str) -> dict[str, str]:
    """Return the files of a template as {suffix: text}."""
    template = templates()[which]
    names = {kind.name: kind.template for kind in kinds().values()} | {TEMPLATE.name: TEMPLATE}
    others = ", ".join(name for name, of_kind in names.items() if of_kind is not template)
    text = template.text + LEARNING.replace("{episodes}", f"{template.episodes:_}")
    return {".toml": text.format(name=name, others=others), **template.files}


TEXT = """# A Gymnasium environment. Train it:  peakrl train {name}.toml --trust --out {name}.run

[problem]
kind = "gymnasium"                    # other kinds: {others}
id = "FrozenLake-v1"                  # id for gymnasium.make, or "{name}.py:make", a function that returns it
arguments = {{ is_slippery = false }}   # further arguments of gymnasium.make or of your function
constraint = "{name}.py:holes"        # code that peakrl runs after confirmation or with --trust. Without this key the
                                      # environment reports constraints in info["constraints"] (>= 0: satisfied) or
                                      # info["cost"] (> 0: violated)
horizon = 12                          # steps per episode; default: the environment's time limit
# reward_range = [0, 1]               # of a step; this and the next are required without a transition table
# constraint_bounds = [1]             # largest absolute value of each constraint; []: no constraints

"""

MODULE = '''"""Cross a lake without falling into a hole."""

HOLES = {5, 7, 11, 12}


def holes(transition):
    """Return a number that is >= 0 if the constraint is satisfied (see docs/gymnasium.md)."""
    return -1.0 if transition.next_observation in HOLES else 1.0
'''

TEMPLATE = Template("gymnasium", TEXT, episodes=500, files={".py": MODULE})
