"""The constants of optimistic Q-learning on a problem of given sizes, for a run of given length.

With H steps, I constraints, rewards in [lo, hi] and span = hi - lo:

    slack xi, Slater constant gamma <= xi (xi/2 unless given), penalty eta = 2 H I span / gamma
    Theorem 2 instead: xi = 0, eta = (K H)^phi span, 0 < phi < 1/2
    start and cap of Q from step h on: eta H (flat), eta (H-h) (stepwise), span (H-h) (tight)
    bonus: |R| <= B = eta max_i bound_i,  l = log(S A K H / p)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peakrl.checks import LARGEST_PENALTY
from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.settings import Start
from peakrl.tabular import TabularModel
from peakrl.types import Floats


@dataclass(frozen=True)
class Sizes:
    """What the formulas need to know of a problem."""

    horizon: int
    constraints: int
    states: int
    actions: int
    reward_range: tuple[float, float]
    constraint_bounds: tuple[float, ...]

    @property
    def span(self) -> float:
        """Width of the reward range; 1 where all rewards are equal."""
        lo, hi = self.reward_range
        return hi - lo if hi > lo else 1.0

    @classmethod
    def of_model(cls, model: TabularModel) -> Sizes:
        """Return the sizes of a model."""
        return cls(
            model.horizon, model.num_constraints, model.max_states, model.max_actions,
            model.reward_range, model.constraint_bounds,
        )  # fmt: skip

    @classmethod
    def of_environment(cls, rules: Rules) -> Sizes:
        """Return the sizes of an environment; bounds that nobody gave count as 1."""
        constraints = rules.constraints.count or 0
        bounds = rules.constraints.bounds if rules.constraints.bounds is not None else (1.0,) * constraints
        return cls(rules.horizon, constraints, rules.states or 1, len(rules.actions), rules.reward_range, bounds)


@dataclass(frozen=True)
class Levels:
    """Where Q starts and how high it may be, [step]."""

    start: Floats
    cap: Floats


def levels(start: Start, sizes: Sizes, penalty: float, most_reward: float | None = None) -> Levels:
    """Return the start and the cap of Q."""
    remaining = np.arange(sizes.horizon, 0, -1, dtype=np.float64)
    if start == "tight":
        tight = most_above(sizes, most_reward) * remaining
        return Levels(tight, tight.copy())
    level = level_of(penalty, sizes)
    flat = np.full(sizes.horizon, level * sizes.horizon)
    return Levels(flat if start == "flat" else level * remaining, flat.copy())


def level_of(penalty: float, sizes: Sizes) -> float:
    """Return what optimism grants a step: at least its reward, however small the penalty."""
    return max(penalty, sizes.span)


def most_above(sizes: Sizes, most_reward: float | None) -> float:
    """Return the most that a step without violation earns above the lower end of the range."""
    lo, hi = sizes.reward_range
    most = sizes.span if most_reward is None else most_reward - lo
    if not 0 < most <= sizes.span:
        raise SettingsError(f"most_reward is {most_reward}; rewards lie between {lo:g} and {hi:g}, so it must too")
    return most


def slater_penalty(slater: float, sizes: Sizes, unit: float) -> float:
    """Return eta = 2 H I span / gamma."""
    weight = 2 * sizes.horizon * max(sizes.constraints, 1) * unit
    if not weight <= slater * LARGEST_PENALTY:
        said = f"a Slater constant of {slater:g} is too small, or the rewards are too large"
        raise SettingsError(f"{said}: the penalty {weight:g} / {slater:g} is larger than {LARGEST_PENALTY:g}")
    return weight / slater
