"""The paper's arithmetic: penalty, slack and how many episodes its theorems ask for.

With S states, A actions, horizon H, I constraints and l(K) = log(S A H K / p), for rewards in [0, 1] and |f_i| <= 1:

    slack xi = eps / (6 H I)      slater gamma = xi / 2      penalty eta = 2 H I / gamma
    K >= c * I^2 H^6 S A l(K) / eps^2            Theorem 1: an (eps, p)-PAC policy
    K >= H^5 S^2 A^2 l(K)^3                      the regret bound that its proof rests on
    K >= c * I^2 H^6 S A l(K) / (eps gamma)^2    Theorem 1 with the 1/gamma of eta = 2 H I / gamma kept

The regret bound is proportional to eta, so the value gap is c' * (I / gamma) * sqrt(H^6 S A l / K); the printed proof
treats 1/gamma as a constant although gamma <= eps / (6 H I). Its bound on the violation is free of gamma. The theorem
is for H >= 2; at H = 1 it holds with eps / 2 in place of eps. Since l depends on K, each line is a fixed point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peakrl.checks import LARGEST_PENALTY, check_count, check_fraction, check_number
from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.tabular import TabularModel


@dataclass(frozen=True)
class PacPlan:
    """What Theorem 1 asks for, in the theorem's units (rewards in [0, 1], constraints in [-1, 1])."""

    #: xi = eps / (6 H I).
    slack: float
    #: gamma = xi / 2.
    slater: float
    #: eta = 2 H I / gamma.
    penalty: float
    #: l = log(S A H K / p) at K = `episodes`.
    log_term: float
    #: K: the least number from which on K >= c * I^2 H^6 S A l / eps^2.
    episodes: int
    #: K * H.
    steps: int
    #: The least number from which on K >= H^5 S^2 A^2 l^3, without which the cited regret bound does not hold.
    regret_episodes: int
    #: The least number from which on K >= c * I^2 H^6 S A l / (eps * slater)^2: nothing hidden in the constant.
    strict_episodes: int


def pac_plan(
    *,
    epsilon: float,
    failure_probability: float,
    states: int,
    actions: int,
    horizon: int,
    constraints: int,
    constant: float = 1.0,
) -> PacPlan:
    """Return settings and episodes for an (epsilon, failure_probability)-PAC policy by Theorem 1.

    `constant` is the c that the theorem leaves open. The other two counts are separate fields: `episodes` is the
    printed formula and no more.
    """
    epsilon, constant = check_number(epsilon, "epsilon", above=0), check_number(constant, "constant", above=0)
    p = check_fraction(failure_probability, "failure_probability")
    s, a = check_count(states, "states"), check_count(actions, "actions")
    h, i = check_count(horizon, "horizon"), check_count(constraints, "constraints")
    epsilon = epsilon / 2 if h == 1 else epsilon
    slack = epsilon / (6 * h * i)
    slater = slack / 2
    try:
        log_base = math.log(s * a * h) - math.log(p)
        factor = constant * (i**2 * h**6 * s * a) / epsilon / epsilon
        episodes = least_episodes(factor, log_base, 1)
        return PacPlan(
            slack=slack,
            slater=slater,
            penalty=2 * h * i / slater,
            log_term=log_base + math.log(episodes),
            episodes=episodes,
            steps=episodes * h,
            regret_episodes=least_episodes(float(h**5 * s**2 * a**2), log_base, 3),
            strict_episodes=least_episodes(factor / slater / slater, log_base, 1),
        )
    except (OverflowError, ZeroDivisionError):
        raise SettingsError(
            f"epsilon {epsilon:g} with {s} states, {a} actions, horizon {h} and {i} constraints asks for more episodes "
            "than a number can hold; take a larger epsilon or a smaller problem"
        ) from None


def least_episodes(factor: float, log_base: float, power: int) -> int:
    """Return the least whole K from which on K >= factor * (log_base + log K)^power.

    K / (log_base + log K)^power falls until log_base + log K = power and rises after it, so the condition is settled
    by bisection to the right of that point.
    """

    def enough(episodes: int) -> bool:
        needed = factor * (log_base + math.log(episodes)) ** power
        if not math.isfinite(needed):
            raise OverflowError
        return episodes >= needed

    high = max(1, math.ceil(math.exp(power - log_base)))
    if enough(high):
        while high > 1 and enough(high - 1):
            high -= 1
        return high
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def default_penalty(model: TabularModel, slack: float, slater: float | None = None) -> float:
    """Return eta = 2 * H * I * (hi - lo) / gamma in the model's own units; gamma = `slater`, by default slack / 2.

    A reward range of width 0 and a problem without constraints count as 1.
    """
    slack = check_number(slack, "slack", least=0)
    if slack == 0:
        raise SettingsError("slack is 0: give a penalty as well, since the default one is derived from a slack above 0")
    gamma = slack / 2 if slater is None else check_number(slater, "slater", above=0)
    if gamma > slack:
        raise SettingsError(f"slater is {gamma:g}; it must be no larger than the slack of {slack:g}")
    lo, hi = model.reward_range
    weight = 2.0 * model.horizon * max(model.num_constraints, 1) * ((hi - lo) or 1.0)
    penalty = weight / gamma if gamma > 0 else math.inf
    if not penalty <= LARGEST_PENALTY:
        limit = f"is larger than {LARGEST_PENALTY:g}"
        raise SettingsError(f"slack {slack:g} is too small: the penalty {weight:g} / {gamma:g} {limit}")
    return penalty
