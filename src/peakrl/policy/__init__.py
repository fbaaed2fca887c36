"""Policies: tables by step and state, mixtures of them, and their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["AveragedPolicy", "Policy", "StochasticPolicy", "load_policy"]

if TYPE_CHECKING:
    from peakrl.policy.files import load_policy
    from peakrl.policy.mixture import AveragedPolicy
    from peakrl.policy.tables import Policy, StochasticPolicy

__getattr__, __dir__ = lazy_names(
    __name__,
    {"files": ("load_policy",), "mixture": ("AveragedPolicy",), "tables": ("Policy", "StochasticPolicy")},
)
