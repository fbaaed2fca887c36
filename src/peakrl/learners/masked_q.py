"""Masked Q-learning: Algorithm 1 without a penalty, on the actions that are known to satisfy the constraints.

    A_h(s) = { a : f_i(s,a) >= 0 for all i },  or, if it is empty, the action of least violation
    Q_h(s,a) as in `learners.constrained_q` with eta = 0,  W_h(s) = min(cap_h, max over A_h(s))

The mask comes from `Assumptions(constraints=f)`, which looks one step ahead (dead ends remain), or from
`Assumptions(support=model)`, whose safe set excludes dead ends. A baseline: it shows what not knowing f costs.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions import Assumptions, Forbidden
from peakrl.learners.base import LearnerSettings, Task
from peakrl.learners.constrained_q import Bonus, ConstrainedQ, OptimisticQ


class MaskedQ(LearnerSettings):
    """Settings of Q-learning with a known constraint function."""

    by_step = True

    #: Exploration bonus.
    bonus: Bonus = "none"
    #: Constant of the Bernstein bonus.
    c1: float = Field(default=0.001, ge=0)
    #: Constant of either bonus.
    c2: float = Field(default=0.001, ge=0)
    #: p: failure probability of the bonus.
    failure_probability: float = Field(default=0.05, gt=0, lt=1)

    def make(self, task: Task) -> MaskedLearner:
        """Return the algorithm for a target; raise if nothing is declared to mask by."""
        assumptions = task.assumptions
        if assumptions.constraints is None and assumptions.support is None and assumptions.safe_policy is None:
            raise SettingsError(
                "MaskedQ takes only actions that are known to satisfy the constraints, and none is known: pass "
                "assumptions=peakrl.Assumptions(constraints=f) with f(step, state, action) >= 0 if satisfied, or "
                "support=model"
            )
        return MaskedLearner(task, self.unmasked())

    def unmasked(self) -> ConstrainedQ:
        """Return Algorithm 1 without a penalty."""
        return ConstrainedQ(slack=0.0, penalty=0.0, start="tight", **self.model_dump())

    @property
    def bound_to_plan(self) -> str | None:
        """A bonus depends on the number of episodes."""
        return self.unmasked().bound_to_plan

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if a bonus lacks sizes or bounds."""
        self.unmasked().check_environment(rules, assumptions)


class MaskedLearner(OptimisticQ):
    """Algorithm 1 on the masked actions."""

    def forbid(self, declared: Forbidden) -> None:
        """Mask forbidden actions; if all of a state are forbidden, leave the one of least violation."""
        spared, starts = declared.entries.copy(), np.cumsum(declared.sizes) - declared.sizes
        for slot, column in np.argwhere(declared.hopeless).tolist():
            own = slice(starts[slot], starts[slot] + declared.sizes[slot])
            spared[own.start + np.argmin(declared.max_violation[own]), column] = False
        super().forbid(Forbidden.of(self.space, declared.first, spared, declared.max_violation))
