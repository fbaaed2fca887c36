"""Constraint values of a step, from any source, as numbers that are >= 0 if satisfied.

Sources in order of precedence: the user's function of the transition; `info["constraints"]` (>= 0: satisfied);
`info["cost"]`, or the third of six values of `step` (> 0: violated). Each is a number or one number per constraint. The
first step fixes the source and the number of constraints for the whole run.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from peakrl.checks import ROUNDING, shown
from peakrl.errors import PeakError, TargetError
from peakrl.specs.functions import described
from peakrl.tabular import rounding_message


class Transition(NamedTuple):
    """Argument of a constraint function: one step of the environment."""

    step: int
    observation: Any
    action: Any
    reward: float
    next_observation: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]


ConstraintFunction = Callable[[Transition], float | Sequence[float]]


class ConstraintReader:
    """Reads the constraints of a step."""

    def __init__(
        self,
        function: ConstraintFunction | None,
        bounds: tuple[float, ...] | None,
        tolerances: tuple[float, ...] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.names = tuple(names)
        self.function, self.bounds, self.tolerances = function, bounds, tolerances
        #: What a file says of the function.
        self.described: dict[str, str] | None = None if function is None else described(function)
        self._warned = False
        self.count = len(bounds) if bounds is not None else len(self.names) or None
        self._source: str | None = None
        #: Largest value of a single constraint.
        self._most = sys.float_info.max if not bounds else bounds[0]

    def read(self, transition: Transition) -> tuple[float, ...]:
        """Return one number for each constraint, >= 0 if satisfied."""
        if self.function is None:
            return self._checked(*self._reported(transition.info))
        try:
            given = self.function(transition)
        except PeakError:
            raise
        except Exception as error:  # the user's code may raise anything
            name = getattr(self.function, "__qualname__", None) or repr(self.function)
            raise TargetError(
                f"the function that was passed as constraint=, {name}, raised {type(error).__name__}: {error}"
            ) from error
        if type(given) is float and self.count == 1 and 0.0 <= given <= self._most:
            return (given,)  # the usual case
        return self._checked(given, FUNCTION)

    def _checked(self, given: Any, source: str) -> tuple[float, ...]:
        values = numbers(given, source)
        if source == COST:
            values = tuple(0.0 - value for value in values)
        if self.count is None:
            self.count = len(values)
        elif len(values) != self.count:
            raise TargetError(f"{source} has {len(values)} numbers for {self.count} constraints")
        if self.bounds is not None:
            for index, (value, bound) in enumerate(zip(values, self.bounds, strict=True)):
                if abs(value) > bound * (1 + ROUNDING):
                    named = repr(self.names[index]) if self.names else index
                    raise TargetError(
                        f"{source}: constraint {named} is {value:g}, beyond its bound of {bound:g}: declare in "
                        "constraint_bounds the largest size that it can have, satisfied or not"
                    )
        return values if min(values, default=0.0) >= 0.0 else self._tolerated(values, source)

    def _tolerated(self, values: tuple[float, ...], source: str) -> tuple[float, ...]:
        """Return values with those within their tolerance set to 0; warn once about possible rounding errors."""
        if self.tolerances is not None:
            if len(self.tolerances) != len(values):
                raise TargetError(
                    f"{source} has {len(values)} numbers for {len(self.tolerances)} constraint_tolerances"
                )
            rooms = zip(values, self.tolerances, strict=True)
            values = tuple(0.0 if -room <= value < 0.0 else value for value, room in rooms)
        least, bound = min(values), max(self.bounds or (1.0,))
        if -ROUNDING * bound <= least < 0.0 and not self._warned:
            self._warned = True
            words = rounding_message(f"steps of the environment ({source})", str(values.index(least)), least, bound)
            warnings.warn(
                f"{words} (to `ConstrainedEnv`, or in the environment's metadata['peakrl'])",
                RuntimeWarning,
                stacklevel=2,
            )
        return values

    def _reported(self, info: dict[str, Any]) -> tuple[Any, str]:
        """Return the constraints that the environment reports, and their source."""
        if self.count == 0:
            for source, key in ((CONSTRAINTS, "constraints"), (COST, "cost")):
                if np.size(info.get(key, ())):
                    raise TargetError(
                        f"the environment reports {source}, but constraint_bounds=() declares that there are no "
                        "constraints: declare their bounds, or pass constraint=lambda transition: () to ignore them"
                    )
            return (), "constraint_bounds"
        for source, key in ((CONSTRAINTS, "constraints"), (COST, "cost")):
            if key in info and self._source in (None, source):
                self._source = source
                return info[key], source
        if self._source is not None:
            raise TargetError(
                f"{self._source} is missing; an environment that reports it once must report it at every step"
            )
        raise TargetError(
            'no constraint: the environment reports neither info["constraints"] nor info["cost"]. Pass '
            "peakrl.ConstrainedEnv(env, constraint=...), a function of the transition, or constraint_bounds=() if "
            "there are no constraints"
        )


FUNCTION, CONSTRAINTS, COST = "what constraint() returned", 'info["constraints"]', 'info["cost"]'


def cost_of(values: Sequence[float]) -> Any:
    """Return max(0, -constraint): a float for one constraint, an array for several."""
    costs = [max(0.0, -value) for value in values]
    return costs[0] if len(costs) == 1 else np.array(costs)


def numbers(given: Any, source: str) -> tuple[float, ...]:
    """Return one finite number, or a flat sequence of them, as a tuple of floats."""
    if isinstance(given, float):  # the usual case
        values: tuple[float, ...] = (given,)
    elif type(given) in (tuple, list) and all(type(value) is float for value in given):
        values = tuple(given)
    else:
        try:
            array = np.asarray(given)
        except (TypeError, ValueError):
            array = np.array(None)
        if array.dtype.kind == "b" and source != COST:
            raise TargetError(
                f"{source} is {shown(given)}; it must be a number, since False equals 0, which is satisfied"
            )
        if array.dtype.kind not in "biuf" or array.ndim > 1:
            raise TargetError(f"{source} is {shown(given)}; it must be a number or a flat sequence of numbers")
        values = tuple(map(float, array.ravel().tolist()))
    if not all(map(math.isfinite, values)):
        raise TargetError(f"{source} is {shown(given)}; it must be finite")
    return values
