"""Constants of optimistic Q-learning, from the sizes of a problem and the number of episodes.

With H steps, I constraints, rewards in [lo, hi] and span = hi - lo:

    slack xi, Slater constant gamma <= xi (xi/2 by default), penalty eta = 2 H I span / gamma
    Theorem 2 instead: xi = 0, eta = (K H)^phi span, 0 < phi < 1/2
    initial value and cap of Q from step h on: eta H (flat), eta (H-h) (stepwise), span (H-h) (tight)
    bonus: |R| <= B = eta max_i bound_i,  l = log(S A K H / p)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from peakrl.checks import LARGEST_PENALTY
from peakrl.errors import SettingsError
from peakrl.learners.base import Sizes
from peakrl.types import Floats

Bonus = Literal["bernstein", "hoeffding", "none"]
Start = Literal["flat", "stepwise", "tight"]


@dataclass(frozen=True)
class Levels:
    """Initial values and caps of Q, [step]."""

    start: Floats
    cap: Floats


def levels(start: Start, sizes: Sizes, penalty: float) -> Levels:
    """Return the initial values and caps of Q."""
    remaining = np.arange(sizes.horizon, 0, -1, dtype=np.float64)
    if start == "tight":
        tight = sizes.span * remaining
        return Levels(tight, tight.copy())
    level = level_of(penalty, sizes)
    flat = np.full(sizes.horizon, level * sizes.horizon)
    return Levels(flat if start == "flat" else level * remaining, flat.copy())


def level_of(penalty: float, sizes: Sizes) -> float:
    """Return the optimistic value of a step: the penalty, but at least the reward span."""
    return max(penalty, sizes.span)


def most_above(sizes: Sizes, max_reward: float | None) -> float:
    """Return the largest reward of a step without violation, minus lo."""
    lo, hi = sizes.reward_range
    most = sizes.span if max_reward is None else max_reward - lo
    if not 0 < most <= sizes.span:
        raise SettingsError(f"max_reward is {max_reward}; rewards lie between {lo:g} and {hi:g}, so it must too")
    return most


def slater_penalty(slater: float, sizes: Sizes, unit: float) -> float:
    """Return eta = 2 H I span / gamma."""
    weight = 2 * sizes.horizon * max(sizes.constraints, 1) * unit
    if not weight <= slater * LARGEST_PENALTY:
        said = f"a Slater constant of {slater:g} is too small, or the rewards are too large"
        raise SettingsError(f"{said}: the penalty {weight:g} / {slater:g} is larger than {LARGEST_PENALTY:g}")
    return weight / slater
