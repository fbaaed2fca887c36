"""The head of a problem, validated: name, horizon, constraint names and bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from peakrl.errors import ProblemError
from peakrl.model.budgets import MOST_STEPS

NO_RANGE = (-math.inf, math.inf)
#: Rewards and constraints may pass their declared bounds by this much of the bound (rounding).
ROUNDING = 1e-9


class Header:
    """The validated head of a problem: horizon, names, and ranges, infinite where the problem leaves them out."""

    def __init__(self, problem: Any) -> None:
        if isinstance(problem, type):
            raise ProblemError(
                f"{problem.__name__} is a class; pass a problem made of it, such as {problem.__name__}()"
            )
        name = getattr(problem, "name", "problem")
        horizon = getattr(problem, "horizon", None)
        names = getattr(problem, "constraint_names", ())
        for method in ("initial", "actions", "outcomes"):
            if not callable(getattr(problem, method, None)):
                raise ProblemError(f"{problem!r} is not a Problem: it lacks {method}(), which every Problem has")
        if isinstance(names, str):
            raise ProblemError(f"constraint_names of {name!r} is the string {names!r}; it must be a sequence of names")
        self.name: str = str(name)
        self.horizon = check_horizon(horizon, f"horizon of {name!r}")
        self.constraint_names = tuple(str(n) for n in each(names, f"constraint_names of {name!r}", "names"))
        if len(set(self.constraint_names)) < len(self.constraint_names):
            raise ProblemError(f"constraint_names of {name!r} repeat a name: {self.constraint_names}")
        rewards, bounds = getattr(problem, "reward_range", None), getattr(problem, "constraint_bounds", None)
        self.reward_range = NO_RANGE if rewards is None else check_range(rewards, f"reward_range of {name!r}")
        count = len(self.constraint_names)
        self.constraint_bounds: tuple[float, ...] = (math.inf,) * count
        if not left_out(bounds):
            self.constraint_bounds = check_bounds(bounds, count, f"constraint_bounds of {name!r}")


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
