"""Maximin Q-learning of a Markov game (after Gattami, Bai and Aggarwal, 2021), reduced to a penalty.

The opponent o chooses what is charged: nothing, or one of the constraints. In the game's table

    R(s,a,0) = r,   R(s,a,i) = r - L v_i(s,a),   v_i = max(-f_i, 0)
    Q(s,a,o) <- (1-alpha) Q(s,a,o) + alpha (R(s,a,o) + max_a' min_o' Q(s',a',o'))

The choice of o changes only the reward. If rewards and constraints of a pair are deterministic, the minimum of Q over o
is therefore the Q-table of the least reward (alpha_1 = 1 discards the initial value):

    min_o Q(s,a,o) = Q-learning on  r - L max_i v_i(s,a)

One table is enough, and the game is a penalty on the largest violation without slack; Algorithm 1 penalises the mean.
It satisfies the constraints only if L exceeds their Lagrange multipliers, which are not known in advance.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from peakrl.checks import LARGEST_PENALTY
from peakrl.learners.base import LearnerSettings, Task
from peakrl.learners.constrained_q import ConstrainedQ, OptimisticQ
from peakrl.types import Floats


class MaximinQ(LearnerSettings):
    """Settings of maximin Q-learning."""

    by_step = True

    #: L: reward lost per unit of the largest violation; by default the largest return of an episode.
    penalty: float | None = Field(default=None, ge=0, le=LARGEST_PENALTY)

    def make(self, task: Task) -> MaximinLearner:
        """Return the algorithm for a target."""
        penalty = task.sizes.span * task.sizes.horizon if self.penalty is None else self.penalty
        return MaximinLearner(task, ConstrainedQ(slack=0.0, penalty=penalty, start="tight"))


class MaximinLearner(OptimisticQ):
    """Algorithm 1 with the least reward over the opponent's choices."""

    def modified(self, reward: Floats, constraints: Floats) -> Floats:
        """[.., constraint] -> [..]: r - L max_i v_i."""
        worst = np.maximum(-constraints, 0.0).max(axis=-1, initial=0.0)
        least: Floats = reward - self.penalty * worst
        return least
