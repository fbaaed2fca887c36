"""Primal-dual learners with counted transitions: settings (formulas: `learners.primal_dual.kernel`).

With K episodes, J costs and rho a bound on the prices, the default steps are

    1/t  = rho / (H range_j sqrt(J K)),      step = sqrt(2 log A / K) / (H (span + sum_j rho range_j))

rho = cap_0/gamma if the Slater gap gamma is given (how far some policy stays below all limits), otherwise 2 span: for
realistic limits gamma is so small that its rho would prevent any progress.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules as TargetRules
from peakrl.learners.assumptions import Assumptions
from peakrl.learners.base import Sizes, Task
from peakrl.learners.cmdp_limits import BudgetSettings
from peakrl.learners.primal_dual.kernel import BISECT, IMPROVE, PLAN
from peakrl.learners.primal_dual.planner import CURVE_POINTS, PricedPlanner, PricedPolicy

#: Default bound on prices, in spans of the reward.
USUAL_BOUND = 2.0


class PricedSettings(BudgetSettings):
    """Common settings of the primal-dual learners."""

    rule: ClassVar[int] = PLAN

    #: Scale of the exploration bonus; 1 in the theory.
    bonus: float = Field(default=0.001, ge=0)
    #: p: failure probability of the bonus.
    failure_probability: float = Field(default=0.1, gt=0, lt=1)
    #: Use the transition probabilities of the model: nothing has to be explored.
    known_model: bool = False

    def make(self, task: Task) -> PricedPlanner:
        """Return the algorithm for a target."""
        kind = PricedPolicy if self.rule == IMPROVE else PricedPlanner
        return kind(task, self.budget(task.sizes), self.numbers(task.sizes, task.episodes))

    @property
    def bound_to_plan(self) -> str | None:
        """Bonus and steps depend on the number of episodes."""
        return "bonus"

    def check_environment(self, rules: TargetRules, assumptions: Assumptions) -> None:
        """Raise if the model must be known."""
        if self.known_model:
            raise SettingsError("known_model is True, but an environment has no known probabilities: learn on a model")

    def numbers(self, sizes: Sizes, episodes: int) -> dict[str, Any]:
        """Return the constants of `primal_dual.kernel.Rules`."""
        budget = self.budget(sizes)
        inside = 6 * sizes.states * sizes.actions * sizes.horizon * episodes / self.failure_probability
        costs = len(budget.limits)
        return {
            "rule": self.rule, "known": self.known_model, "hoeffding": False,
            "lowest": sizes.reward_range[0], "span": sizes.span,
            "bonus": 0.0 if self.known_model else self.bonus * sizes.horizon,
            "log_term": math.log(inside), "states": sizes.states,
            "ranges": budget.ranges, "limit": budget.limits, "price_step": np.zeros(costs),
            "most": np.full(costs, np.inf), "policy_step": 0.0, "mixing": 0.0, "heat": 0.0,
            "quantities": budget.quantities, "by_step": budget.by_step, "batch": 1,
            "keep": max(1, episodes // CURVE_POINTS),
        }  # fmt: skip


class WeiMDP(PricedSettings):
    """Settings of the weighted problem: the least price at which the best deterministic plan satisfies the limit."""

    rule = BISECT

    @model_validator(mode="after")
    def _total(self) -> Self:
        if self.total is None:
            raise ValueError("WeiMDP looks for one price: give total, a limit on the sum of all violations")
        return self


class OptDual(PricedSettings):
    """Settings of the dual learner: plans with prices that follow the excess over the limits."""

    #: gamma: how far some policy stays below all limits, in the unit of the constraints; determines the steps.
    slater: float | None = None
    #: rho: bound on the prices.
    multiplier_bound: float | None = Field(default=None, gt=0)
    #: 1/t: step of a price per unit of excess over its limit.
    multiplier_step: float | None = Field(default=None, gt=0)
    #: A plan is followed for this many episodes; a larger number saves time on large problems.
    episodes_per_plan: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _slater(self) -> Self:
        if self.slater is not None and not 0 < self.slater < math.inf:
            raise ValueError(
                f"slater is {self.slater:g}; it must be above 0: without a policy that stays below every limit nothing "
                "bounds the prices. Raise the limits, or leave slater out and give multiplier_bound"
            )
        if self.slater is not None and self.multiplier_bound is not None:
            raise ValueError("slater and multiplier_bound exclude each other: give one of them")
        return self

    def rho(self, sizes: Sizes) -> float:
        """Return the bound on the prices."""
        if self.multiplier_bound is not None:
            return self.multiplier_bound
        return USUAL_BOUND * sizes.span if self.slater is None else sizes.span * sizes.horizon / self.slater

    def numbers(self, sizes: Sizes, episodes: int) -> dict[str, Any]:
        """Return the constants of `primal_dual.kernel.Rules`."""
        numbers = super().numbers(sizes, episodes)
        ranges, costs = numbers["ranges"], len(numbers["ranges"])
        step = self.rho(sizes) / (sizes.horizon * ranges * math.sqrt(costs * episodes))
        if self.multiplier_step is not None:
            step = np.full(costs, self.multiplier_step)
        return numbers | {"price_step": step * self.episodes_per_plan, "batch": self.episodes_per_plan}


class OptPrimalDual(OptDual):
    """Settings of the primal-dual learner: a randomised policy is improved step by step."""

    rule = IMPROVE

    #: Step of the logarithm of a probability per unit of value.
    policy_step: float | None = Field(default=None, gt=0)
    #: Bonus: box around each distribution, or Hoeffding with one more visit.
    width: Literal["box", "hoeffding"] = "box"
    #: Share of the uniform policy that is mixed in before each improvement.
    mixing: float = Field(default=0.0, ge=0, lt=1)
    #: Cap prices at twice the bound.
    capped: bool = False
    #: Scale of the temperature; above 0, steps and temperature fall, and the last policy converges.
    temperature: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _falling(self) -> Self:
        if self.temperature > 0 and self.episodes_per_plan > 1:
            raise ValueError(
                f"episodes_per_plan is {self.episodes_per_plan} and temperature {self.temperature:g}: steps that fall "
                "are made for one improvement an episode; leave episodes_per_plan at 1"
            )
        return self

    @classmethod
    def opdop(
        cls,
        *,
        episodes: int | None = None,
        slater: float | None = None,
        total: float | None = None,
        per_constraint: float | tuple[float, ...] | None = None,
        per_step: float | None = None,
        bonus: float = 0.001,
        episodes_per_plan: int = 1,
    ) -> OptPrimalDual:
        """OPDOP in its tabular form: Hoeffding bonus, mixing 1/K, steps of 1/sqrt(K), prices up to twice the bound."""
        length = known_length(episodes, "OPDOP")
        if slater is None:
            raise SettingsError(
                "slater is not given: OPDOP caps its prices at twice what follows from it; give how far some "
                "policy stays below all limits, or use OptPrimalDual, which does not need it"
            )
        return OptPrimalDual(
            total=total, per_constraint=per_constraint, per_step=per_step, bonus=bonus, slater=slater,
            width="hoeffding", mixing=1 / max(length, 2), multiplier_step=1 / math.sqrt(length), capped=True,
            episodes_per_plan=episodes_per_plan,
        )  # fmt: skip

    @classmethod
    def npg_pd(
        cls,
        *,
        episodes: int | None = None,
        total: float | None = None,
        per_constraint: float | tuple[float, ...] | None = None,
        per_step: float | None = None,
        policy_step: float = 1.0,
    ) -> OptPrimalDual:
        """NPG-PD: natural policy gradient with a known model, and price steps of 1/sqrt(K)."""
        length = known_length(episodes, "NPG-PD")
        return OptPrimalDual(
            total=total, per_constraint=per_constraint, per_step=per_step, bonus=0.0, known_model=True,
            policy_step=policy_step, multiplier_step=1 / math.sqrt(length),
        )  # fmt: skip

    @classmethod
    def regularised(
        cls,
        *,
        total: float | None = None,
        per_constraint: float | tuple[float, ...] | None = None,
        per_step: float | None = None,
        temperature: float = 1.0,
        bonus: float = 0.001,
        known_model: bool = False,
    ) -> OptPrimalDual:
        """RPG-PD (with counts UOpt-RPGPD): steps and temperature fall, so that the last policy converges."""
        return OptPrimalDual(
            total=total, per_constraint=per_constraint, per_step=per_step, temperature=temperature, bonus=bonus,
            known_model=known_model,
        )  # fmt: skip

    def numbers(self, sizes: Sizes, episodes: int) -> dict[str, Any]:
        """Return the constants of `primal_dual.kernel.Rules`."""
        numbers = super().numbers(sizes, episodes)
        rho, ranges = self.rho(sizes), numbers["ranges"]
        widest = sizes.horizon * (sizes.span + float((rho * ranges).sum()))
        step = math.sqrt(2 * math.log(max(sizes.actions, 2)) / episodes) / widest
        if self.temperature > 0:  # initial steps, in the units of reward and cost
            step = 1.0 / sizes.span
            numbers["price_step"] = sizes.span / ranges**2 * self.episodes_per_plan
        given = step if self.policy_step is None else self.policy_step
        return numbers | {
            "policy_step": given * self.episodes_per_plan, "hoeffding": self.width == "hoeffding",
            "mixing": self.mixing, "heat": self.temperature,
            "most": np.full(len(ranges), 2 * rho if self.capped else np.inf),
        }  # fmt: skip


def known_length(episodes: Any, name: str) -> int:
    """Return K; raise if it is not a number of episodes: the steps depend on it."""
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        given = "not given" if episodes is None else repr(episodes)
        raise SettingsError(
            f"episodes is {given}: {name}'s steps depend on the length of the run; give the number of "
            "episodes that it will learn for, 1 or more"
        )
    return episodes
