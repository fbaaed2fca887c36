"""The learners by name: settings that `learn` takes, files name and sweeps list.

    peakrl.learn(model, peakrl.learners.Practical(trials=False), episodes=50_000)

A new learner is one module in `peakrl.learning`, with its settings, its tables and its rule, and one line here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.learning.algorithm_one import AlgorithmOne
    from peakrl.learning.certified.learner import Certified
    from peakrl.learning.linear.learner import OptCMDP
    from peakrl.learning.linear.pessimists import DOPE, OptPessLP
    from peakrl.learning.masked_q import MaskedQ
    from peakrl.learning.maximin_q import MaximinQ
    from peakrl.learning.posterior import Posterior
    from peakrl.learning.practical import Practical
    from peakrl.learning.primal_dual import OptDual, OptPrimalDual, WeiMDP
    from peakrl.learning.settings import LearnerSettings
    from peakrl.learning.triple_q import TripleQ
    from peakrl.learning.ucbvi import SUCBVI, UCBVI

#: Where the settings of each learner live.
LEARNERS = {
    "AlgorithmOne": "peakrl.learning.algorithm_one",
    "Certified": "peakrl.learning.certified.learner",
    "DOPE": "peakrl.learning.linear.pessimists",
    "MaskedQ": "peakrl.learning.masked_q",
    "MaximinQ": "peakrl.learning.maximin_q",
    "OptCMDP": "peakrl.learning.linear.learner",
    "OptDual": "peakrl.learning.primal_dual",
    "OptPessLP": "peakrl.learning.linear.pessimists",
    "OptPrimalDual": "peakrl.learning.primal_dual",
    "Posterior": "peakrl.learning.posterior",
    "Practical": "peakrl.learning.practical",
    "SUCBVI": "peakrl.learning.ucbvi",
    "TripleQ": "peakrl.learning.triple_q",
    "UCBVI": "peakrl.learning.ucbvi",
    "WeiMDP": "peakrl.learning.primal_dual",
}

__all__ = [
    "DOPE",
    "SUCBVI",
    "UCBVI",
    "AlgorithmOne",
    "Certified",
    "MaskedQ",
    "MaximinQ",
    "OptCMDP",
    "OptDual",
    "OptPessLP",
    "OptPrimalDual",
    "Posterior",
    "Practical",
    "TripleQ",
    "WeiMDP",
]


def find_learner(name: Any) -> type[LearnerSettings]:
    """Return the settings class of a name, or raise."""
    if name not in LEARNERS:
        raise SettingsError(f"{name!r} is no learner; there are {', '.join(LEARNERS)}")
    found: type[LearnerSettings] = getattr(importlib.import_module(LEARNERS[name]), name)
    return found


def __getattr__(name: str) -> Any:
    if name not in LEARNERS:
        raise AttributeError(f"module 'peakrl.learners' has no attribute {name!r}")
    return find_learner(name)
