"""Learners that plan by linear programmes on counted transitions, optimistic in reward and pessimistic in cost.

In the notation of `learners.cmdp_lp.learner`, with gap = (d - c0)/range, c0 the cost of a known safe policy pi0, d the
limit, and beta_2 = scale sqrt(log(16 S^2 A H K/p)/n):

                             programme     reward +                                       cost +
    OptPess-LP               ordinary      span (1 + SH + 4H(1 + SH)/gap) beta_2          range (1 + HS) beta_2
    DOPE                     extended      span (3H/gap) B                                range H B

They follow pi0 until a plan satisfies the limit (OptPess-LP: and while pi0 itself might cost (d + c0)/2 or more), and
in states that the plan does not reach (Liu and others, 2021; Bura and others, 2022).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.errors import PolicyError, SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions import Assumptions
from peakrl.learners.base import Task, compiled
from peakrl.learners.cmdp_lp.empirical_model import Box, Cells, CountedChain
from peakrl.learners.cmdp_lp.learner import LinearPlanner, LinearSettings, Margins
from peakrl.learners.episode import Log
from peakrl.planning.backward import value_of_mixture
from peakrl.planning.occupancy import row_weights
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs


class PessimistSettings(LinearSettings):
    """Common settings of learners that begin with a safe policy; their limit is `total`."""

    #: [entry] of the model: action probabilities of a policy whose expected violation is below the limit. A `Policy` or
    #: `StochasticPolicy` is also accepted.
    safe_policy: tuple[float, ...]

    @field_validator("safe_policy", mode="before")
    @classmethod
    def _weights(cls, given: Any) -> Any:
        if isinstance(given, StochasticPolicy):
            return tuple(given.weights.tolist())
        if isinstance(given, Policy) and isinstance(given.model, TabularModel):
            return tuple(row_weights(given.model, given.rows).tolist())
        return given

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise: the safe policy is a table of a model."""
        raise SettingsError(f"{type(self).__name__} learns on models: its safe policy is a table of a model")


class OptPessLP(PessimistSettings):
    """Settings of OptPess-LP."""

    def make(self, task: Task) -> Pessimist:
        """Return the algorithm for a target."""
        return CarefulPlanner(task, self)


class DOPE(PessimistSettings):
    """Settings of DOPE."""

    #: Number of initial episodes with the safe policy.
    wait: int = Field(default=0, ge=0)

    def make(self, task: Task) -> Pessimist:
        """Return the algorithm for a target."""
        return Pessimist(task, self, wait=self.wait)


class Pessimist(LinearPlanner):
    """DOPE: optimistic in reward, pessimistic in cost, begins with a safe policy."""

    unknown_cost = 1.0

    def __init__(self, task: Task, settings: PessimistSettings, *, wait: int = 0, extended: bool = True) -> None:
        super().__init__(task, settings, extended=extended)
        if settings.total is None:
            raise SettingsError(f"{type(settings).__name__} keeps one limit: give total")
        self.wait, self.limit = wait, settings.total
        self._begin_with(safe_weights(compiled(task), settings.safe_policy))

    def _begin_with(self, safe: Floats) -> None:
        """Set pi0 [entry]; raise unless its cost is below the limit."""
        model, self.safe = compiled(self.task), read_only(safe)
        violations = value_of_mixture(model.layout, model.num_nodes, model.row_violation.sum(axis=1), self.safe)
        self.safe_cost = float(model.first_probability @ violations[model.first_slot])
        if self.safe_cost >= self.limit:
            verb = "is not safe" if self.safe_cost > self.limit else "leaves no room"
            raise SettingsError(
                f"safe_policy {verb}: its expected violation is {self.safe_cost:.6g}, and the limit is "
                f"{self.limit:g}; it must be less, the margins are divided by the difference"
            )
        #: (d - c0)/range
        self.gap = (self.limit - self.safe_cost) / float(self.budget.ranges[0])

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables, and begin with the safe policy."""
        super().grow(first, log)
        self.own["chance"].used[...] = self.safe_table

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Exclude forbidden rows from every programme and from pi0, which is renormalised."""
        super().forbid(first, forbidden, max_violation)
        start = self.layout.row_start
        some = np.flatnonzero(np.diff(start))
        sizes = np.diff(start)[some]
        own = np.where(self.forbidden.used, 0.0, self.safe_table)
        left = np.repeat(np.add.reduceat(own, start[some], axis=0), sizes, axis=0)
        # If nothing of pi0 is left: the first allowed action.
        own = np.where(left > 0.0, own / np.where(left > 0.0, left, 1.0), self.own["chance"].used)
        self._begin_with(self.space.entries_of(own))
        self.own["chance"].used[...] = own
        self._mix()

    @property
    def safe_table(self) -> Floats:
        """[row, column]: the safe policy."""
        return np.ascontiguousarray(self.safe.reshape(self.columns, -1).T)

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return the margins of rewards and costs, given B."""
        horizon = self.task.sizes.horizon
        return 3 * horizon / self.gap * total, horizon * total

    def _weights(
        self, chain: CountedChain, cells: Cells, box: Box, reward: Floats, cost: Floats, episode: int
    ) -> Floats:
        """[entry of the chain]: the plan if there is one, and the safe policy in states that it does not reach."""
        safe = chain.weights_of(self.safe_table)
        if episode <= self.wait or self._too_soon(chain, safe, cost):
            return safe
        found = self._within(chain, cells, box, reward, cost)
        return safe if found is None else found.where_reached(chain, safe)

    def _too_soon(self, chain: CountedChain, safe: Floats, cost: Floats) -> bool:
        """Must the safe policy be followed because too little is known?"""
        return False


class CarefulPlanner(Pessimist):
    """OptPess-LP."""

    def __init__(self, task: Task, settings: OptPessLP) -> None:
        super().__init__(task, settings, extended=False)

    def margins(self, total: Floats, visits: Longs) -> Margins:
        """Return the margins of rewards and costs."""
        horizon = self.task.sizes.horizon
        beta = self.scale * np.sqrt(self.pair_log / np.maximum(visits, 1))
        wide = 1 + self.task.sizes.states * horizon
        return (wide + 4 * horizon * wide / self.gap) * beta, wide * beta

    def _too_soon(self, chain: CountedChain, safe: Floats, cost: Floats) -> bool:
        """Might the safe policy itself cost (d + c0)/2 or more?"""
        table = value_of_mixture(chain.layout, chain.num_nodes, cost[:, 0], read_only(safe))
        upper = float(chain.first_probability @ table[chain.first_slot])
        return upper >= (float(self.budget.limits[0]) + self.safe_cost) / 2


def safe_weights(model: TabularModel, given: tuple[float, ...]) -> Floats:
    """[entry]: the weights of a safe policy, or raise."""
    try:
        return StochasticPolicy(model, np.array(given, np.float64)).weights
    except PolicyError as error:
        raise SettingsError(f"safe_policy: {error}") from None
