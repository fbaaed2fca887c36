"""Limits on expected violations, for learners of constrained MDPs.

With v_i = max(-f_i, 0) a budget is one of

    total            E sum_h sum_i v_i <= d              one cost
    per_constraint   E sum_h v_i      <= d_i             one for each constraint
    per_step         E v_i at step h  <= d               one for each constraint and step

Such a limit bounds an expectation. However small it is, single episodes may violate.

On a model, a limit below the least possible value is an error. For an environment that value is unknown;
`infeasible_limits` reports after the run what the counts say. Each limit is checked separately, and their sum; other
combinations that are jointly infeasible are not detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from peakrl.errors import SettingsError
from peakrl.learners.base import LearnerSettings, Sizes
from peakrl.planning.occupancy import Chain, least_by_step, least_cost, least_words, most_words, within
from peakrl.tabular import TabularModel
from peakrl.types import Floats

NAMES = ("total", "per_constraint", "per_step")
WHAT = {
    "total": "the expected total violation",
    "per_constraint": "the expected violation of each constraint",
    "per_step": "the expected violation of each constraint at each step",
}


@dataclass(frozen=True)
class Budget:
    """The costs of a task and their limits."""

    #: [cost]; with `by_step` cost c of step h is number h * quantities + c.
    limits: Floats
    #: [cost]: largest cost of a step.
    ranges: Floats
    #: Costs of a step: 1 for the sum of the violations, or one for each constraint.
    quantities: int
    by_step: bool
    summed: bool

    def charges(self, constraints: Floats) -> Floats:
        """[.., quantity] of constraint values [.., constraint]."""
        violation = np.maximum(-constraints, 0.0)
        return violation.sum(axis=-1, keepdims=True) if self.summed else violation

    def place(self, number: int) -> tuple[int | None, int]:
        """Return step and quantity of a cost; step None for a cost of the episode."""
        return divmod(number, self.quantities) if self.by_step else (None, number)

    def least(self, chain: Chain, charge: Floats) -> Floats:
        """[cost]: least possible value of each cost alone, with charges [row, quantity]."""
        each = charge.T
        if self.by_step:
            return np.stack([least_by_step(chain, one) for one in each], axis=1).ravel()
        return np.array([least_cost(chain, one) for one in each])

    def infeasible_limits(self, chain: Chain, charge: Floats, names: tuple[str, ...]) -> str | None:
        """Return which limit is infeasible with costs [row, quantity], and the least value; None if none is."""
        limits, total = self.limits, least_cost(chain, charge.sum(axis=1))
        if within(total, limits.min()):  # the total bounds each of them
            return None
        if self.summed:
            least = least_words(total)
            return f"no policy keeps {WHAT['total']} within {limits[0]:g}: the least that is possible is {least}"
        each = self.least(chain, charge)
        worst = int(np.argmax(each - limits))
        if not within(each[worst], limits[worst]):
            step, quantity = self.place(worst)
            what = f"violation of {names[quantity]!r}" + ("" if step is None else f" at step {step}")
            return (
                f"no policy keeps the expected {what} within {limits[worst]:g}: the least that is possible is "
                f"{least_words(each[worst])}"
            )
        if not within(total, limits.sum()):
            return (
                f"no policy keeps all limits, which add up to {limits.sum():g}: the least that {WHAT['total']} can be "
                f"is {least_words(total)}"
            )
        return None


class BudgetSettings(LearnerSettings):
    """Settings of learners with a limit on expected violations: exactly one of three kinds."""

    #: Limit on the expected sum of all violations of an episode.
    total: float | None = Field(default=None, ge=0)
    #: Limit on the expected sum of violations of each constraint: one for all, or one for each.
    per_constraint: float | tuple[float, ...] | None = None
    #: Limit on the expected violation of each constraint at each step.
    per_step: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        given = [name for name in NAMES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'no limit'} is given: give exactly one of {', '.join(NAMES)}: a limit on "
                "the expected violation"
            )
        if self.per_constraint is not None and min(np.atleast_1d(self.per_constraint), default=0.0) < 0:
            raise ValueError(f"per_constraint is {self.per_constraint}; limits must be at least 0")
        return self

    @property
    def limited(self) -> str:
        """Name of the limit that is given."""
        return next(name for name in NAMES if getattr(self, name) is not None)

    def check_model(self, model: TabularModel) -> None:
        """Raise if a limit is infeasible, or `slater` is too large."""
        budget, charge = self.budget(Sizes.of_model(model)), model.row_violation
        charge = charge.sum(axis=1, keepdims=True) if budget.summed else charge
        reason = budget.infeasible_limits(model, charge, model.constraint_names)
        if reason is not None:
            raise SettingsError(f"{self.limited} is {getattr(self, self.limited)!r}, but {reason}")
        slater = getattr(self, "slater", None)
        if slater is not None:
            most = float((budget.limits - budget.least(model, charge)).min())
            if not within(slater, most):
                raise SettingsError(
                    f"slater is {slater:g}, but no policy stays more than {most_words(most)} below every limit"
                )

    @property
    def aim(self) -> str:
        """Description of the limits."""
        limits = ", ".join(f"{each:g}" for each in np.atleast_1d(getattr(self, self.limited)))
        return f"the policy was to keep {WHAT[self.limited]} within {limits}"

    def judged(self, step_violations: Floats) -> str:
        """Compare the limits with a policy's expected violations [step, constraint]."""
        found = {"total": step_violations.sum(), "per_constraint": step_violations.sum(axis=0)}
        used = np.atleast_1d(found.get(self.limited, step_violations))
        if isinstance(self.per_constraint, tuple):
            return f"{self.aim}, and has {', '.join(f'{each:.6g}' for each in used)}"
        return f"{self.aim}, and has {used.max():.6g}" + (" at most" if used.size > 1 else "")

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
