"""The learners: a class of settings for each algorithm.

    peakrl.learn(model, peakrl.learners.SafeQ(trials=False), episodes=50_000)
    peakrl.learn(model, "SafeQ", episodes=50_000)

Wherever a learner is accepted, its name can be passed as a string, in upper or lower case. Problem files and sweeps
list its settings beside it, and `preset` for a class method: `learner = "ConstrainedQ"`, `preset = "paper"`,
`slack = 0.1`.

A new learner is one module in `peakrl.learners`, with its settings, tables and kernel, and its name here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.learners.base import LearnerSettings
    from peakrl.learners.certified.learner import Certified as Certified
    from peakrl.learners.cmdp_lp import DOPE as DOPE
    from peakrl.learners.cmdp_lp import OptCMDP as OptCMDP
    from peakrl.learners.cmdp_lp import OptPessLP as OptPessLP
    from peakrl.learners.constrained_q import ConstrainedQ as ConstrainedQ
    from peakrl.learners.masked_q import MaskedQ as MaskedQ
    from peakrl.learners.maximin_q import MaximinQ as MaximinQ
    from peakrl.learners.pessimistic import Pessimistic as Pessimistic
    from peakrl.learners.posterior_sampling import PosteriorSampling as PosteriorSampling
    from peakrl.learners.primal_dual import OptDual as OptDual
    from peakrl.learners.primal_dual import OptPrimalDual as OptPrimalDual
    from peakrl.learners.primal_dual import WeiMDP as WeiMDP
    from peakrl.learners.rlsvi import RLSVI as RLSVI
    from peakrl.learners.safe_q import SafeQ as SafeQ
    from peakrl.learners.triple_q import TripleQ as TripleQ
    from peakrl.learners.ucbvi import SUCBVI as SUCBVI
    from peakrl.learners.ucbvi import UCBVI as UCBVI

#: The module of each, the default first.
LEARNERS = {
    "PosteriorSampling": "peakrl.learners.posterior_sampling",
    "SafeQ": "peakrl.learners.safe_q",
    "Certified": "peakrl.learners.certified.learner",
    "Pessimistic": "peakrl.learners.pessimistic",
    "ConstrainedQ": "peakrl.learners.constrained_q",
    "UCBVI": "peakrl.learners.ucbvi",
    "SUCBVI": "peakrl.learners.ucbvi",
    "RLSVI": "peakrl.learners.rlsvi",
    "MaskedQ": "peakrl.learners.masked_q",
    "MaximinQ": "peakrl.learners.maximin_q",
    "TripleQ": "peakrl.learners.triple_q",
    "OptCMDP": "peakrl.learners.cmdp_lp",
    "OptPessLP": "peakrl.learners.cmdp_lp",
    "DOPE": "peakrl.learners.cmdp_lp",
    "OptDual": "peakrl.learners.primal_dual",
    "OptPrimalDual": "peakrl.learners.primal_dual",
    "WeiMDP": "peakrl.learners.primal_dual",
}
DEFAULT = "PosteriorSampling"

__all__ = sorted(LEARNERS)


def find_learner(name: Any) -> type[LearnerSettings]:
    """Return the settings class with this name, in upper or lower case."""
    names = {known.lower(): known for known in LEARNERS}
    found = names.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        own = 'a peakrl.Learner, in files "file.py:Class"'
        near = get_close_matches(str(name).lower(), names, 1)
        meant = f". Do you mean {names[near[0]]}?" if near else ""
        raise SettingsError(f"learner is {name!r}; it must be one of {', '.join(LEARNERS)}, or your own ({own}){meant}")
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


def learner_from(values: Mapping[str, Any], folder: str | Path | None = None) -> LearnerSettings:
    """Return the settings that `as_dict` or a file describes.

    A learner of the user's own, "file.py:Class", is created by running its code from `folder`. Without a folder its
    code is not run, and the settings hold its name and parameters only.
    """
    settings = dict(values)
    name = settings.pop("learner", None)
    if ":" not in str(name):
        return make_learner(name, **settings)
    from peakrl.learners.custom import OwnLearner

    if folder is None:
        return OwnLearner(source=name, parameters=settings)
    return OwnLearner.load(str(name), settings, folder)


def __getattr__(name: str) -> Any:
    if name not in LEARNERS:
        raise AttributeError(f"module 'peakrl.learners' has no attribute {name!r}")
    return find_learner(name)


def __dir__() -> list[str]:
    return __all__
