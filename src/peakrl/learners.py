"""The learners: a class of settings for each algorithm.

    peakrl.learn(model, peakrl.learners.SafeQ(trials=False), episodes=50_000)
    peakrl.learn(model, "SafeQ", episodes=50_000)

Wherever a learner is accepted, its name as a string will do, in upper or lower case; problem files and sweeps give its
settings beside it, and `preset` for a class method: `learner = "ConstrainedQ"`, `preset = "paper"`, `slack = 0.1`.

A new learner is one module in `peakrl.learning`, with its settings, its tables and its rule, and one line here.
"""

from __future__ import annotations

import importlib
from inspect import signature
from typing import TYPE_CHECKING, Any

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.learning.algorithm_one import ConstrainedQ
    from peakrl.learning.certified.learner import Certified
    from peakrl.learning.linear.learner import OptCMDP
    from peakrl.learning.linear.pessimists import DOPE, OptPessLP
    from peakrl.learning.masked_q import MaskedQ
    from peakrl.learning.maximin_q import MaximinQ
    from peakrl.learning.posterior import PosteriorSampling
    from peakrl.learning.practical import SafeQ
    from peakrl.learning.primal_dual import OptDual, OptPrimalDual, WeiMDP
    from peakrl.learning.settings import LearnerSettings
    from peakrl.learning.triple_q import TripleQ
    from peakrl.learning.ucbvi import SUCBVI, UCBVI

#: The module of each, the default first.
LEARNERS = {
    "PosteriorSampling": "peakrl.learning.posterior",
    "SafeQ": "peakrl.learning.practical",
    "Certified": "peakrl.learning.certified.learner",
    "ConstrainedQ": "peakrl.learning.algorithm_one",
    "UCBVI": "peakrl.learning.ucbvi",
    "SUCBVI": "peakrl.learning.ucbvi",
    "MaskedQ": "peakrl.learning.masked_q",
    "MaximinQ": "peakrl.learning.maximin_q",
    "TripleQ": "peakrl.learning.triple_q",
    "OptCMDP": "peakrl.learning.linear.learner",
    "OptPessLP": "peakrl.learning.linear.pessimists",
    "DOPE": "peakrl.learning.linear.pessimists",
    "OptDual": "peakrl.learning.primal_dual",
    "OptPrimalDual": "peakrl.learning.primal_dual",
    "WeiMDP": "peakrl.learning.primal_dual",
}
DEFAULT = "PosteriorSampling"

__all__ = [
    "DOPE",
    "SUCBVI",
    "UCBVI",
    "Certified",
    "ConstrainedQ",
    "MaskedQ",
    "MaximinQ",
    "OptCMDP",
    "OptDual",
    "OptPessLP",
    "OptPrimalDual",
    "PosteriorSampling",
    "SafeQ",
    "TripleQ",
    "WeiMDP",
]


def find_learner(name: Any) -> type[LearnerSettings]:
    """Return the settings class with this name, in upper or lower case."""
    found = {known.lower(): known for known in LEARNERS}.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        own = 'a peakrl.Learner, in files "file.py:Class"'
        raise SettingsError(f"learner is {name!r}; it must be one of {', '.join(LEARNERS)}, or your own ({own})")
    kind: type[LearnerSettings] = getattr(importlib.import_module(LEARNERS[found]), found)
    return kind


def make_learner(name: Any, /, preset: Any = None, **settings: Any) -> LearnerSettings:
    """Return the settings of the learner with this name; `preset` is a class method that makes them."""
    kind = find_learner(name)
    make: Any = kind
    title = kind.__name__
    if preset is not None:
        presets = [name for name, member in vars(kind).items() if isinstance(member, classmethod) and name[0] != "_"]
        if preset not in presets:
            raise SettingsError(f"preset is {preset!r}; {title} has {', '.join(presets) or 'none: leave it out'}")
        make, title = getattr(kind, preset), f"{title}.{preset}"
    parameters = signature(make).parameters.values()
    missing = [one.name for one in parameters if one.default is one.empty and one.kind != one.VAR_KEYWORD]
    missing = [name for name in missing if name not in settings]
    if missing:
        raise SettingsError(f"{title} needs {', '.join(missing)}: give {', '.join(f'{name}=...' for name in missing)}")
    try:
        made: LearnerSettings = make(**settings)
        return made
    except TypeError as error:  # a setting that it does not have
        raise SettingsError(f"{title}: {error}") from None


def __getattr__(name: str) -> Any:
    if name not in LEARNERS:
        raise AttributeError(f"module 'peakrl.learners' has no attribute {name!r}")
    return find_learner(name)


def __dir__() -> list[str]:
    return __all__
