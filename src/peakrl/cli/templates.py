"""What `peakrl init` writes: problem files with a word on every key, each of which trains as it stands."""

from __future__ import annotations

from peakrl.cli.environment_template import TEMPLATE
from peakrl.specs.registry import Template, kinds

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
