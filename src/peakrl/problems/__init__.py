"""`peakrl.problems`: the built-in problems, and what belongs to each of them.

`problems.energy_harvesting(peak_power=8)` creates a problem; `problems.harvesting` has its classes, baselines and
readers. A new problem is one module, and its line in `peakrl.problems.built_in`, which is imported when it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peakrl.specs.registry import import_when_needed

if TYPE_CHECKING:
    from peakrl.problems.built_in import *  # noqa: F403


def _built_in() -> Any:
    return importlib.import_module("peakrl.problems.built_in")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name.startswith("_") or name not in vars(_built_in()):
        raise AttributeError(f"module 'peakrl.problems' has no attribute {name!r}")
    return getattr(_built_in(), name)


def __dir__() -> list[str]:
    return sorted(name for name in vars(_built_in()) if not name.startswith("_") and name != "annotations")


import_when_needed(_built_in)
