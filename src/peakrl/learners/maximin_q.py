"""Maximin Q-learning of a Markov game (after Gattami, Bai and Aggarwal, 2021), and why it is a penalty.

The opponent o picks what is charged: nothing, or one of the constraints. In the game's table

    R(s,a,0) = r,   R(s,a,i) = r - L v_i(s,a),   v_i = max(-f_i, 0)
    Q(s,a,o) <- (1-alpha) Q(s,a,o) + alpha (R(s,a,o) + max_a' min_o' Q(s',a',o'))

Its pick moves nothing but the reward, so that the least of Q over o is the table of the least reward, wherever a pair
always pays the same (alpha_1 = 1 forgets the start):

    min_o Q(s,a,o) = Q-learning on  r - L max_i v_i(s,a)

So one table will do, and the game is a penalty on the worst constraint without any slack, as Algorithm 1's is one on
their mean. It keeps to the constraints only where L is above what they are worth; nobody knows that in advance.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from peakrl.checks import LARGEST_PENALTY
from peakrl.learners.base import LearnerSettings, Sizes, Task
from peakrl.learners.constrained_q import ConstrainedQ, OptimisticQ
from peakrl.types import Floats


class MaximinQ(LearnerSettings):
    """Settings of maximin Q-learning."""

    by_step = True

    #: L: reward lost by each unit of the worst violation; what a whole episode can earn unless given.
    penalty: float | None = Field(default=None, ge=0, le=LARGEST_PENALTY)

    def make(self, task: Task) -> MaximinLearner:
        """Return the algorithm for a target."""
        penalty = self.penalty_of(task.sizes)
        return MaximinLearner(task, ConstrainedQ(slack=0.0, penalty=penalty, start="tight"))

    def penalty_of(self, sizes: Sizes) -> float:
        """Return L."""
        return sizes.span * sizes.horizon if self.penalty is None else self.penalty


class MaximinLearner(OptimisticQ):
    """Algorithm 1 with the least reward that the opponent leaves."""

    def modified(self, reward: Floats, constraints: Floats) -> Floats:
        """[.., constraint] -> [..]: r - L max_i v_i."""
        worst = np.maximum(-constraints, 0.0).max(axis=-1, initial=0.0)
        least: Floats = reward - self.penalty * worst
        return least
