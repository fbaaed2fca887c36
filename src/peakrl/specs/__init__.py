"""Problems as data: the registry of kinds, specifications, problem files, and users' code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["ProblemSpec"]

if TYPE_CHECKING:
    from peakrl.specs.spec import ProblemSpec

__getattr__, __dir__ = lazy_names(__name__, {"spec": ("ProblemSpec",)})
