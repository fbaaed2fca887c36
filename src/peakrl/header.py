"""The head of a problem, validated: name, horizon, constraint names and bounds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from peakrl.checks import check_bounds, check_count, check_each, check_range, check_tolerances
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS

NO_RANGE = (-math.inf, math.inf)


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
