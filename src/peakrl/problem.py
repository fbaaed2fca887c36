"""`Problem`: a decision problem with peak constraints, as a user writes it.

A problem is a tuple (S, A, H, P, r, f_1..f_I, d): states, actions, horizon, transitions, rewards, constraint functions
and the distribution of the first state. A policy must satisfy f_i >= 0 for all i at every step with probability 1, and
maximises the expected total reward of steps 0 .. H-1. Without an end (H is None) nothing depends on the step, and
rewards are discounted or averaged (`peakrl.solve`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from peakrl.checks import (
    LARGEST,
    ROUNDING,
    check_bounds,
    check_each,
    check_horizon,
    check_range,
    check_tolerances,
    reward_limits,
)
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.numerics import added

State = Hashable
Action = Hashable


class Outcome(NamedTuple):
    """One possible result of an action.

    Examples
    --------
    >>> Outcome(0.5, next_state=2, reward=1.0, constraints=(-0.5,))  # violates its constraint by 0.5
    Outcome(probability=0.5, next_state=2, reward=1.0, constraints=(-0.5,))
    """

    #: Between 0 and 1; the probabilities of an action sum to 1.
    probability: float
    #: The next state.
    next_state: State
    #: The reward.
    reward: float
    #: One value for each constraint; >= 0 if it is satisfied.
    constraints: Sequence[float] = ()


def violation_of(constraints: Iterable[float]) -> float:
    """Return the total violation of constraint values, sum_i max(-f_i, 0)."""
    return added(max(-value, 0.0) for value in constraints)


class Problem(ABC):
    """A decision problem. Subclass it, or provide the same attributes and methods.

    Steps count from 0. States and actions are any hashable values. Rewards and constraints may depend on the outcome. A
    constraint is satisfied if its value is >= 0; values are in any unit. Only `horizon` and the three methods are
    required; a constrained problem names its constraints.

    Examples
    --------
    >>> class Walk(Problem):
    ...     horizon, constraint_names, stationary = 3, ("floor",), True
    ...     def initial(self):
    ...         return [(1.0, 1)]
    ...     def actions(self, step, state):
    ...         return (-1, 0, 1)
    ...     def outcomes(self, step, state, action):
    ...         return [Outcome(1.0, state + action, reward=-state, constraints=(state + action,))]
    """

    #: Name for messages and reports.
    name: str = "problem"
    #: Steps of an episode; None: it does not end, which needs `stationary = True`.
    horizon: int | None
    #: One name for each constraint, in the order of `Outcome.constraints`.
    constraint_names: Sequence[str] = ()
    #: Lowest and highest reward of a step; by default those of the reachable outcomes.
    reward_range: tuple[float, float] | None = None
    #: For each constraint a bound on its absolute value; by default those of the reachable outcomes.
    constraint_bounds: Sequence[float] = ()
    #: For each constraint how far below 0 its value still counts as satisfied (rounding); 0 by default.
    constraint_tolerances: Sequence[float] = ()
    #: Are actions and outcomes the same at every step?
    stationary: bool = False
    #: The problem as data (`peakrl.specs.ProblemSpec`), if known; a compiled model and its runs hold it.
    spec: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        # Also for messages about a problem whose attributes are missing or wrong.
        horizon, names = getattr(self, "horizon", "not set"), self.constraint_names
        names = ", ".join(map(str, names)) if isinstance(names, tuple | list) else repr(names)
        return f"<{type(self).__name__} {self.name!r}: horizon {horizon}, constraints: {names or 'none'}>"

    @abstractmethod
    def initial(self) -> Iterable[tuple[float, State]]:
        """Return (probability, state) pairs of the first state."""

    @abstractmethod
    def actions(self, step: int, state: State) -> Iterable[Action]:
        """Return the available actions; before the horizon there must be at least one."""

    @abstractmethod
    def outcomes(self, step: int, state: State, action: Action) -> Iterable[Outcome]:
        """Return the possible outcomes; their probabilities sum to 1."""


NO_RANGE = (-math.inf, math.inf)
NO_TRUTH_VALUES = "constraints must be numbers, >= 0 if satisfied: False would count as 0, which is satisfied"


class Header(NamedTuple):
    """Name, horizon, and declared bounds of a problem."""

    name: str
    #: None without an end.
    horizon: int | None
    constraint_names: tuple[str, ...]
    #: Infinite if not declared.
    reward_range: tuple[float, float]
    constraint_bounds: tuple[float, ...]
    #: How far below 0 each constraint still counts as satisfied; empty: 0 for all.
    tolerances: tuple[float, ...] = ()


def header_of(problem: Any) -> Header:
    """Return the validated header of a problem."""
    if isinstance(problem, type):
        raise ProblemError(f"{problem.__name__} is a class; pass an instance, such as {problem.__name__}()")
    for method in ("initial", "actions", "outcomes"):
        if not callable(getattr(problem, method, None)):
            raise ProblemError(f"{problem!r} is not a Problem: it has no method {method}()")
    if not hasattr(problem, "horizon"):
        raise ProblemError(f"{problem!r} has no horizon: set the number of steps, or None if it does not end")
    if problem.horizon is None and getattr(problem, "stationary", False) is not True:
        raise ProblemError(
            f"{problem!r} has no end, so that nothing can depend on the step: declare stationary = True, or a horizon"
        )
    declared = ("horizon", "constraint_names", "reward_range", "constraint_bounds", "constraint_tolerances")
    return check_header(getattr(problem, "name", "problem"), *(getattr(problem, each, None) for each in declared))


def check_header(name: Any, horizon: Any, names: Any, rewards: Any, bounds: Any, tolerances: Any) -> Header:
    """Return a validated header; None means not declared."""
    if isinstance(names, str):
        raise ProblemError(f"constraint_names of {name!r} is the string {names!r}; it must be a sequence of names")
    horizon = check_horizon(horizon, f"horizon of {name!r}", MOST_STEPS, error=ProblemError)
    given = () if names is None else check_each(names, f"constraint_names of {name!r}", "names")
    names = tuple(str(each) for each in given)
    if len(set(names)) < len(names):
        raise ProblemError(f"constraint_names of {name!r} are not distinct: {names}")
    reward_range = NO_RANGE if rewards is None else check_range(rewards, f"reward_range of {name!r}")
    constraint_bounds = (math.inf,) * len(names)
    if not undeclared(bounds):
        constraint_bounds = check_bounds(bounds, f"constraint_bounds of {name!r}", len(names))
    if undeclared(tolerances):
        tolerances = ()
    else:
        tolerances = check_tolerances(tolerances, f"constraint_tolerances of {name!r}", len(names))
    return Header(str(name), horizon, names, reward_range, constraint_bounds, tolerances)


def undeclared(bounds: Any) -> bool:
    """Is a sequence not declared?"""
    return bounds is None or (isinstance(bounds, list | tuple) and not bounds)


def payoff_limits(rewards: tuple[float, float], bounds: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the least and the largest valid reward and values of the constraints; rounding is tolerated."""
    (lo, hi), widest = reward_limits(rewards), [min(bound * (1 + ROUNDING), LARGEST) for bound in bounds]
    return (max(lo, -LARGEST), *(-bound for bound in widest)), (min(hi, LARGEST), *widest)
