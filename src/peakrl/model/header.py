"""The head of a problem, validated: name, horizon, constraint names and bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from peakrl.errors import ProblemError
from peakrl.model.budgets import MOST_STEPS

NO_RANGE = (-math.inf, math.inf)
#: Rewards and constraints may pass their declared bounds by this much of the bound (rounding).
ROUNDING = 1e-9


class Header(NamedTuple):
    """What a model is called, how long an episode takes, and what is declared of rewards and constraints."""

    name: str
    horizon: int
    constraint_names: tuple[str, ...]
    #: Infinite where a problem leaves it out.
    reward_range: tuple[float, float]
    constraint_bounds: tuple[float, ...]


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
    horizon = check_horizon(getattr(problem, "horizon", None), f"horizon of {name!r}")
    names = tuple(str(n) for n in each(given, f"constraint_names of {name!r}", "names"))
    if len(set(names)) < len(names):
        raise ProblemError(f"constraint_names of {name!r} repeat a name: {names}")
    rewards, bounds = getattr(problem, "reward_range", None), getattr(problem, "constraint_bounds", None)
    reward_range = NO_RANGE if rewards is None else check_range(rewards, f"reward_range of {name!r}")
    constraint_bounds = (math.inf,) * len(names)
    if not left_out(bounds):
        constraint_bounds = check_bounds(bounds, len(names), f"constraint_bounds of {name!r}")
    return Header(str(name), horizon, names, reward_range, constraint_bounds)


def left_out(bounds: Any) -> bool:
    """Does a problem say nothing of its constraints' bounds?"""
    return bounds is None or (isinstance(bounds, list | tuple) and not bounds)


def each(given: Any, what: str, of: str) -> Iterator[Any]:
    """Return an iterator over what a problem gave, or say that it cannot be gone through."""
    try:
        return iter(given)
    except TypeError:
        raise ProblemError(f"{what} gave {given!r}; it must be a sequence of {of}") from None


def check_horizon(given: Any, what: str) -> int:
    """Return the horizon or raise."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
        raise ProblemError(f"{what} is {given!r}; it must be a whole number of at least 1")
    if given > MOST_STEPS:
        raise ProblemError(f"{what} is {given:,}; an episode has at most {MOST_STEPS:,} steps")
    return int(given)


def check_range(given: Any, what: str) -> tuple[float, float]:
    """Return (lo, hi) or raise."""
    try:
        lo, hi = (float(v) for v in given)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"{what} is {given!r}; it must be a pair (lowest, highest)") from None
    if not (math.isfinite(lo) and math.isfinite(hi) and lo <= hi):
        raise ProblemError(f"{what} is {(lo, hi)}; both must be finite and the first no larger than the second")
    return lo, hi


def check_bounds(given: Any, count: int, what: str) -> tuple[float, ...]:
    """Return one positive bound for each constraint or raise."""
    try:
        bounds = tuple(float(v) for v in given)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"{what} is {given!r}; it must hold one positive number for each constraint") from None
    if len(bounds) != count:
        raise ProblemError(f"{what} has {len(bounds)} numbers for {count} constraints")
    for index, bound in enumerate(bounds):
        if not (math.isfinite(bound) and bound > 0):
            raise ProblemError(f"{what}: number {index} is {bound}; it must be finite and above 0")
    return bounds
