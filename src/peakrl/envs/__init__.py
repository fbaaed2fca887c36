"""Our problems as Gymnasium environments, registered by name, with their pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.envs.registration import register_environments

if TYPE_CHECKING:
    from peakrl.envs.problems import ProblemEnvironment
    from peakrl.model.problem import Problem
    from peakrl.model.tabular import TabularModel

__all__ = ["register_environments", "to_gymnasium"]


def to_gymnasium(problem: Problem | TabularModel, render_mode: str | None = None) -> ProblemEnvironment:
    """Return a problem as a Gymnasium environment, with masks and constraints in `info`.

    Observations and actions are indices into the environment's `states` and `actions`, which hold the labels.
    """
    from peakrl.envs.problems import make_environment

    return make_environment(problem, render_mode)
