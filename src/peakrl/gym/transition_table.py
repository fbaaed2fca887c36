"""`from_gymnasium`: a problem from the transition table of an environment, as Gymnasium's toy text environments have.

`env.unwrapped.P[state][action]` lists (probability, next state, reward, terminated). Terminal transitions lead to one
additional state, numbered after all others, without rewards and violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from peakrl.checks import check_horizon, shown
from peakrl.errors import PeakError, ProblemError, SettingsError
from peakrl.gym.constraints import FUNCTION, ConstraintFunction, Transition, numbers
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome, Problem


class TableProblem(Problem):
    """The transition table of an environment as a problem; states and actions are its numbers."""

    def __init__(
        self,
        table: Mapping[int, Mapping[int, Sequence[Any]]],
        first: Sequence[tuple[float, int]],
        horizon: int | None,
        constraint: ConstraintFunction | None,
        constraint_names: Sequence[str] | None,
        stationary: bool,
        name: str,
    ) -> None:
        self.table, self.first, self.constraint = table, first, constraint
        self.horizon, self.stationary, self.name = horizon, stationary, name
        #: The terminal state.
        self.end = max(table) + 1
        count = self._count()
        if constraint_names is None:
            constraint_names = ("constraint",) if count == 1 else [f"constraint {i}" for i in range(count)]
        self.constraint_names = tuple(constraint_names)

    def _count(self) -> int:
        """Return the number of constraints of the function."""
        if self.constraint is None:
            return 0
        state = self.first[0][1]
        return len(next(iter(self.outcomes(0, state, next(iter(self.actions(0, state)))))).constraints)

    def initial(self) -> Iterable[tuple[float, int]]:
        """Return (probability, state) pairs."""
        return self.first

    def actions(self, step: int, state: Any) -> Iterable[int]:
        """Return the action numbers; the terminal state has one without effect."""
        return [min(self.table[self.first[0][1]])] if state == self.end else list(self.table[state])

    def outcomes(self, step: int, state: Any, action: Any) -> Iterable[Outcome]:
        """Return the outcomes of the table."""
        if state == self.end:
            return [Outcome(1.0, self.end, 0.0, (0.0,) * len(self.constraint_names))]
        return [self._outcome(step, state, action, entry) for entry in self.table[state][action]]

    def _outcome(self, step: int, state: int, action: int, entry: Any) -> Outcome:
        try:
            probability, following, reward, terminated = entry
            following, over = int(following), bool(terminated)
        except (TypeError, ValueError):
            raise ProblemError(
                f"P[{state}][{action}] holds {shown(entry)}; it must hold (probability, next state, reward, terminated)"
            ) from None
        if not over and following not in self.table:
            raise ProblemError(f"P[{state}][{action}] leads to {following}, a state that is not in the table")
        values: tuple[float, ...] = ()
        if self.constraint is not None:
            transition = Transition(step, state, action, float(reward), following, over, False, {})
            values = numbers(self.constraint(transition), FUNCTION)
        return Outcome(probability, self.end if over else following, reward, values)


def from_gymnasium(
    env: Any,
    *,
    horizon: float | None = None,
    constraint: ConstraintFunction | None = None,
    constraint_names: Sequence[str] | None = None,
    initial: int | Mapping[int, float] | None = None,
    stationary: bool = True,
) -> Problem:
    """Return the problem of an environment with a transition table `env.unwrapped.P`.

    Parameters
    ----------
    env:
        The environment, or a `ConstrainedEnv`. Dynamics that are missing in its table are missing in the problem.
    horizon, constraint, constraint_names:
        As for `ConstrainedEnv`, whose arguments are the defaults. `info` of the transition is empty.
    initial:
        The initial state or {state: probability}. Default: that of the environment.
    stationary:
        False if `constraint` depends on the step.

    Returns
    -------
    Problem

    Examples
    --------
    >>> import gymnasium, peakrl
    >>> def dry(transition):
    ...     return -1.0 if transition.next_observation in {5, 7, 11, 12} else 1.0
    >>> lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    >>> peakrl.solve(peakrl.from_gymnasium(lake, horizon=8, constraint=dry)).value
    1.0
    """
    from peakrl.gym.constrained_env import ConstrainedEnv

    declared = env.declared if isinstance(env, ConstrainedEnv) else {}
    horizon = declared.get("horizon") if horizon is None else horizon
    constraint = declared.get("constraint") if constraint is None else constraint
    constraint_names = declared.get("constraint_names") if constraint_names is None else constraint_names
    inner = getattr(env, "unwrapped", env)
    table = getattr(inner, "P", None)
    if not isinstance(table, Mapping) or not table:
        raise SettingsError(
            f"{env!r} has no transition table env.unwrapped.P, as Gymnasium's toy text environments have. Other "
            "environments can only be learned and simulated"
        )
    if constraint is not None and not callable(constraint):
        raise SettingsError(f"constraint is {constraint!r}; it must be a function of a transition")
    first = first_states(inner, initial)
    unknown = [state for _, state in first if state not in table]
    if unknown:
        raise ProblemError(f"the initial state {unknown[0]!r} is not in the environment's table")
    spec = getattr(env, "spec", None)
    name = getattr(spec, "id", None) or type(inner).__name__
    horizon = getattr(spec, "max_episode_steps", None) if horizon is None else horizon
    if horizon is None:
        raise SettingsError(
            "the environment has no time limit: pass horizon=, the steps of an episode, or math.inf if it has no end"
        )
    horizon = check_horizon(horizon, "horizon", MOST_STEPS, error=ProblemError)
    try:
        return TableProblem(table, first, horizon, constraint, constraint_names, stationary, name)
    except PeakError:
        raise
    except (TypeError, AttributeError, StopIteration) as error:
        raise ProblemError(f"env.unwrapped.P is not a table of lists by state and action: {error}") from error


def first_states(inner: Any, initial: int | Mapping[int, float] | None) -> list[tuple[float, int]]:
    """Return (probability, state) pairs."""
    if isinstance(initial, Mapping):
        return [(chance, state) for state, chance in initial.items()]
    if initial is not None:
        return [(1.0, initial)]
    own = getattr(inner, "initial_state_distrib", None)
    if own is None:
        raise SettingsError(
            "the environment does not declare its initial states: pass initial=, a state or {state: probability}"
        )
    chances = np.asarray(own, np.float64).ravel()
    return [(float(chances[state]), state) for state in np.flatnonzero(chances).tolist()]
