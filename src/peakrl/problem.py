"""What a user writes: a finite-horizon decision problem with peak constraints.

A problem is a tuple (S, A, H, P, r, f_1..f_I, d): states, actions, horizon, transitions, rewards, constraint
functions and the distribution of the first state. A policy must keep every f_i >= 0 at every step with
probability 1 while it collects as much reward as it can over steps 0 .. H-1.


The head of a problem, validated: name, horizon, constraint names and bounds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from peakrl.checks import check_bounds, check_count, check_each, check_range, check_tolerances
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS

State = Hashable
Action = Hashable


class Outcome(NamedTuple):
    """One thing that may happen after an action: how likely, where to, what is earned, what is constrained."""

    #: From 0 to 1; those of an action sum to 1.
    probability: float
    #: Where it leads.
    next_state: State
    #: What is earned.
    reward: float
    #: One value for each constraint, >= 0 where it is met.
    constraints: Sequence[float] = ()


def violation_of(constraints: Iterable[float]) -> float:
    """Return by how much constraint values fall short of 0 together: sum_i max(-f_i, 0)."""
    return sum((max(-value, 0.0) for value in constraints), 0.0)


class Problem(ABC):
    """A decision problem in readable form. Subclass it, or offer the same attributes and methods.

    Steps count from 0. States and actions are any hashable values. Rewards and constraints may depend on the
    outcome. A constraint is met where its value is >= 0; its value is in whatever unit suits the user.
    Only `horizon` and the three methods are needed; a constrained problem names its constraints.
    """

    #: What messages and reports call it.
    name: str = "problem"
    #: How many decisions make an episode.
    horizon: int
    #: One name for each constraint, in the order of `Outcome.constraints`.
    constraint_names: Sequence[str] = ()
    #: The least and the largest reward of a single step; left out, it is read off the reachable outcomes.
    reward_range: tuple[float, float] | None = None
    #: For each constraint a bound on its absolute value; left out, they are read off the reachable outcomes.
    constraint_bounds: Sequence[float] = ()
    #: For each constraint how far below 0 its value still counts as met; left out, 0: exact. Meant for rounding.
    constraint_tolerances: Sequence[float] = ()
    #: True when actions and outcomes do not depend on the step.
    stationary: bool = False
    #: The problem as data (`peakrl.specs.ProblemSpec`), where it can be told: a compiled model and its runs keep it.
    spec: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        # Also for messages about a problem whose attributes are missing or wrong: nothing is taken for granted.
        horizon, names = getattr(self, "horizon", "not set"), self.constraint_names
        told = ", ".join(map(str, names)) if isinstance(names, tuple | list) else repr(names)
        return f"<{type(self).__name__} {self.name!r}: horizon {horizon}, constraints: {told or 'none'}>"

    @abstractmethod
    def initial(self) -> Iterable[tuple[float, State]]:
        """Return (probability, state) pairs of the first state."""

    @abstractmethod
    def actions(self, step: int, state: State) -> Iterable[Action]:
        """Return the actions on offer; before the horizon there must be at least one."""

    @abstractmethod
    def outcomes(self, step: int, state: State, action: Action) -> Iterable[Outcome]:
        """Return what may happen; the probabilities sum to 1."""


NO_RANGE = (-math.inf, math.inf)
NO_TRUTH_VALUES = "constraints must be numbers, >= 0 where they are met: False would count as 0, which is met"


class Header(NamedTuple):
    """What a model is called, how long an episode takes, and what is declared of rewards and constraints."""

    name: str
    horizon: int
    constraint_names: tuple[str, ...]
    #: Infinite where a problem leaves it out.
    reward_range: tuple[float, float]
    constraint_bounds: tuple[float, ...]
    #: How far below 0 each constraint still counts as met; none: 0 for all.
    tolerances: tuple[float, ...] = ()


def header_of(problem: Any) -> Header:
    """Return the head of a problem, validated."""
    if isinstance(problem, type):
        raise ProblemError(f"{problem.__name__} is a class; pass a problem made of it, such as {problem.__name__}()")
    for method in ("initial", "actions", "outcomes"):
        if not callable(getattr(problem, method, None)):
            raise ProblemError(f"{problem!r} is not a Problem: it lacks {method}(), which every Problem has")
    name = getattr(problem, "name", "problem")
    given = getattr(problem, "constraint_names", ())
    if isinstance(given, str):
        raise ProblemError(f"constraint_names of {name!r} is the string {given!r}; it must be a sequence of names")
    horizon = check_count(getattr(problem, "horizon", None), f"horizon of {name!r}", 1, MOST_STEPS, error=ProblemError)
    names = tuple(str(n) for n in check_each(given, f"constraint_names of {name!r}", "names"))
    if len(set(names)) < len(names):
        raise ProblemError(f"constraint_names of {name!r} repeat a name: {names}")
    rewards, bounds = getattr(problem, "reward_range", None), getattr(problem, "constraint_bounds", None)
    reward_range = NO_RANGE if rewards is None else check_range(rewards, f"reward_range of {name!r}")
    constraint_bounds = (math.inf,) * len(names)
    if not left_out(bounds):
        constraint_bounds = check_bounds(bounds, f"constraint_bounds of {name!r}", len(names))
    given = getattr(problem, "constraint_tolerances", None)
    tolerances = () if left_out(given) else check_tolerances(given, f"constraint_tolerances of {name!r}", len(names))
    return Header(str(name), horizon, names, reward_range, constraint_bounds, tolerances)


def left_out(bounds: Any) -> bool:
    """Does a problem say nothing of its constraints' bounds?"""
    return bounds is None or (isinstance(bounds, list | tuple) and not bounds)
