"""Masked Q-learning: Algorithm 1 without a penalty, on the actions that are known to meet the constraints.

    A_h(s) = { a : f_i(s,a) >= 0 for all i },  or, where none is left, the one action of least violation
    Q_h(s,a) as in `learners.constrained_q` with eta = 0,  W_h(s) = min(cap_h, max over A_h(s))

It needs what it masks by: `Knowledge(constraints=f)`, which looks one step ahead (dead ends remain), or
`Knowledge(support=model)`, whose safe set has none. It is a yardstick: what not knowing f costs another learner.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.assumptions.limits import allowed_rows
from peakrl.learners.base import LearnerSettings, Task
from peakrl.learners.constants import Bonus
from peakrl.learners.constrained_q import ConstrainedQ, OptimisticQ
from peakrl.types import Floats


class MaskedQ(LearnerSettings):
    """Settings of Q-learning with a known constraint function."""

    by_step = True

    #: Which exploration bonus is added.
    bonus: Bonus = "none"
    #: Constant of the Bernstein bonus.
    c1: float = Field(default=0.001, ge=0)
    #: Constant of either bonus.
    c2: float = Field(default=0.001, ge=0)
    #: p: how likely the bound may fail.
    failure_probability: float = Field(default=0.05, gt=0, lt=1)

    def make(self, task: Task) -> MaskedLearner:
        """Return the algorithm for a target."""
        check_mask(task.knowledge)
        return MaskedLearner(task, self.unmasked())

    def unmasked(self) -> ConstrainedQ:
        """Algorithm 1 without a penalty, which knows of no constraint."""
        return ConstrainedQ(slack=0.0, penalty=0.0, start="tight", **self.model_dump())

    @property
    def bound_to_plan(self) -> str | None:
        """A bonus follows from the number of episodes."""
        return self.unmasked().bound_to_plan

    def check_environment(self, rules: Rules, knowledge: Knowledge) -> None:
        """Raise where there is nothing to mask by, or a bonus lacks what it is computed from."""
        check_mask(knowledge)
        self.unmasked().check_environment(rules, knowledge)


class MaskedLearner(OptimisticQ):
    """Algorithm 1 on what the mask leaves."""

    def forbid(self, first: int, forbidden: NDArray[np.bool_], harm: Floats) -> None:
        """Never take what is declared to fail; where that is everything, only what violates least."""
        super().forbid(first, spare_the_mildest(self.layout.row_start, forbidden, harm, first), harm)


def check_mask(knowledge: Knowledge) -> None:
    """Raise where nothing is declared that could be masked by."""
    if knowledge.constraints is None and knowledge.support is None and knowledge.safe_policy is None:
        raise SettingsError(
            "MaskedQ takes only actions that are known to meet the constraints, and none is known: pass "
            "knowledge=peakrl.Knowledge(constraints=f) with f(step, state, action) >= 0 where met, or support=model"
        )


def spare_the_mildest(
    row_start: NDArray[np.int64], forbidden: NDArray[np.bool_], harm: Floats, first: int
) -> NDArray[np.bool_]:
    """Return `forbidden` [row - first, column] without the row of least harm wherever a slot has no other."""
    spared = forbidden.copy()
    starts = row_start[row_start >= first]
    _, counts = allowed_rows(starts, forbidden, first)
    for slot, column in np.argwhere((counts == 0) & (np.diff(starts) > 0)[:, None]).tolist():
        low, high = int(starts[slot]) - first, int(starts[slot + 1]) - first
        spared[low + int(np.argmin(harm[low:high])), column] = False
    return spared
