"""Our problems as Gymnasium environments, registered by name, with their pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from peakrl.gym.registration import register_environments

if TYPE_CHECKING:
    from peakrl.gym.export import ProblemEnvironment
    from peakrl.problem import Problem
    from peakrl.safety.shield import Shield
    from peakrl.specs.spec import ProblemSpec
    from peakrl.tabular import TabularModel

__all__ = ["register_environments", "to_gymnasium"]


@overload
def to_gymnasium(
    problem: Problem | TabularModel | ProblemSpec,
    render_mode: str | None = None,
    *,
    shielded: Literal[False] = False,
    with_step: bool | None = None,
) -> ProblemEnvironment: ...


@overload
def to_gymnasium(
    problem: Problem | TabularModel | ProblemSpec,
    render_mode: str | None = None,
    *,
    shielded: bool,
    with_step: bool | None = None,
) -> ProblemEnvironment | Shield: ...


def to_gymnasium(
    problem: Problem | TabularModel | ProblemSpec,
    render_mode: str | None = None,
    *,
    shielded: bool = False,
    with_step: bool | None = None,
) -> ProblemEnvironment | Shield:
    """Return a problem as a Gymnasium environment, with masks and constraints in `info`.

    Observations and actions are indices into the environment's `states` and `actions`, which hold the labels.
    `shielded` puts the `shield` of its safe set around it. `with_step` says whether observations are [step, index]; by
    default they are where the problem changes with the step and a state can be met at several. A stationary problem
    with a horizon may have a best policy that goes by the step as well: say with_step=True for an agent that is to
    find it.
    """
    from peakrl.gym.export import make_environment

    env = make_environment(problem, render_mode, with_step=with_step)
    if not shielded:
        return env
    from peakrl.safety.safe_set import SafeSet
    from peakrl.safety.shield import shield

    around: Shield = shield(env, SafeSet(env.model))
    return around
