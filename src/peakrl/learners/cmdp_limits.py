"""What may be violated on average: the limits of learners for expected costs, and the costs that they are set on.

With v_i = max(-f_i, 0) a budget is one of

    total            E sum_h sum_i v_i <= d              one cost
    per_constraint   E sum_h v_i      <= d_i             one for each constraint
    per_step         E v_i at step h  <= d               one for each constraint and step

Such a limit bounds a mean. However small it is, it does not say "never": that takes a mask or a memory.

A limit below the least that is possible is refused on a model, where the least is computed. Nobody knows it of an
environment; there a run tells in the end what the counts say (`unkept`). Each of several limits is looked at on its
own, and their sum; others that cannot be kept together are not noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from peakrl.errors import SettingsError
from peakrl.learners.base import LearnerSettings, Sizes
from peakrl.planning.min_cost import least_by_step, least_cost, least_words, most_words, within
from peakrl.planning.occupancy import Chain
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

    def place(self, number: int) -> tuple[int | None, int]:
        """Return step and quantity of a cost; no step where it is one of the episode."""
        return divmod(number, self.quantities) if self.by_step else (None, number)

    def least(self, chain: Chain, charge: Floats) -> Floats:
        """[cost]: the least that is possible of each on its own, given what rows are charged, [row, quantity]."""
        each = charge.T
        if self.by_step:
            return np.stack([least_by_step(chain, one) for one in each], axis=1).ravel()
        return np.array([least_cost(chain, one) for one in each])

    def unkept(self, chain: Chain, charge: Floats, names: tuple[str, ...]) -> str | None:
        """Say which limit no policy keeps, charged [row, quantity], and what the least is; None where each can be."""
        limits, total = self.limits, least_cost(chain, charge.sum(axis=1))
        if within(total, limits.min()):  # the total is as much as all of them together
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

    @property
    def limited(self) -> str:
        """Which of the three is given."""
        return next(name for name in NAMES if getattr(self, name) is not None)

    def check_model(self, model: TabularModel) -> None:
        """Raise where no policy keeps a limit, or stays as far below it as is said."""
        budget, charge = self.budget(Sizes.of_model(model)), model.row_violation
        charge = charge.sum(axis=1, keepdims=True) if budget.summed else charge
        reason = budget.unkept(model, charge, model.constraint_names)
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
        """What is to be kept on average, in words."""
        limits = ", ".join(f"{each:g}" for each in np.atleast_1d(getattr(self, self.limited)))
        return f"the policy was to keep {WHAT[self.limited]} within {limits}"

    def judged(self, step_violations: Floats) -> str:
        """Say what was to be kept, and what a policy of violations [step, constraint] has."""
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
