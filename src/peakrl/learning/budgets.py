"""What may be violated on average: the limits of learners for expected costs, and the costs that they are set on.

With v_i = max(-f_i, 0) a budget is one of

    total            E sum_h sum_i v_i <= d              one cost
    per_constraint   E sum_h v_i      <= d_i             one for each constraint
    per_step         E v_i at step h  <= d               one for each constraint and step

Such a limit bounds a mean. However small it is, it does not say "never": that takes a mask or a memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from peakrl.errors import SettingsError
from peakrl.kernels.arrays import Floats
from peakrl.learning.constants import Sizes
from peakrl.learning.settings import LearnerSettings

NAMES = ("total", "per_constraint", "per_step")


@dataclass(frozen=True)
class Budget:
    """The costs of a task and their limits."""

    #: [cost]; with `by_step` cost c of step h is number h * quantities + c.
    limits: Floats
    #: [cost]: the most that one step can come to.
    ranges: Floats
    #: What a step is charged for: the sum of the violations (1), or each of them.
    quantities: int
    by_step: bool
    summed: bool

    def charges(self, constraints: Floats) -> Floats:
        """[.., quantity] of constraint values [.., constraint]."""
        violation = np.maximum(-constraints, 0.0)
        return violation.sum(axis=-1, keepdims=True) if self.summed else violation


class BudgetSettings(LearnerSettings):
    """Settings of a learner that keeps expected violations within a limit: just one of three is given."""

    #: On the sum of all violations of an episode, in expectation.
    total: float | None = Field(default=None, ge=0)
    #: On the sum of each constraint's violations: one limit for all of them, or one for each.
    per_constraint: float | tuple[float, ...] | None = None
    #: On each constraint's violation at each step.
    per_step: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        given = [name for name in NAMES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'no limit'} is given: give just one of {', '.join(NAMES)}, the violation "
                "that may be expected"
            )
        if self.per_constraint is not None and min(np.atleast_1d(self.per_constraint), default=0.0) < 0:
            raise ValueError(f"per_constraint is {self.per_constraint}; limits must be at least 0")
        return self

    def budget(self, sizes: Sizes) -> Budget:
        """Return the costs of a target and their limits."""
        count, bounds = sizes.constraints, np.array(sizes.constraint_bounds, np.float64)
        if count == 0:
            raise SettingsError(f"the target has no constraints, so that {type(self).__name__} has nothing to limit")
        if self.total is not None:
            return Budget(np.array([self.total]), np.array([bounds.sum()]), 1, by_step=False, summed=True)
        given: Any = self.per_step if self.per_constraint is None else self.per_constraint
        if np.ndim(given) and len(given) != count:
            raise SettingsError(f"per_constraint has {len(given)} limits, but the target has {count} constraints")
        limits, by_step = np.broadcast_to(np.array(given, np.float64), (count,)), self.per_step is not None
        times = sizes.horizon if by_step else 1
        return Budget(np.tile(limits, times), np.tile(bounds, times), count, by_step=by_step, summed=False)
