"""Gymnasium: any environment as a learner's target, and our problems as environments.

* `spaces`: observations and actions as labels; `constraints`: where an environment tells of them.
* `single`, `vector`: an environment, or several that are stepped together, behind one small interface (`adapters`).
* `states`: what is known of an environment without a model: the states met and what they offer.
* `problems`, `registration`: our problems as environments, `drawing` their pictures.

Nothing of Gymnasium is imported until it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.gym.registration import register_environments

if TYPE_CHECKING:
    from peakrl.gym.problems import ProblemEnvironment
    from peakrl.model import TabularModel
    from peakrl.problem import Problem

__all__ = ["register_environments", "to_gymnasium"]


def to_gymnasium(problem: Problem | TabularModel, render_mode: str | None = None) -> ProblemEnvironment:
    """Return a problem as a Gymnasium environment, with masks and constraints in `info`.

    Observations and actions are indices into the environment's `states` and `actions`, which hold the labels.
    """
    from peakrl.gym.problems import make_environment

    return make_environment(problem, render_mode)
