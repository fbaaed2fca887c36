"""Check a certificate of fresh episodes: the file contains the return and the violation of each, and the declarations.

The bounds are those of `evaluation.bounds`, computed in their plain form with another search for nu.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.certificates.verify_model import APART, best_of, read_model

Numbers = NDArray[np.float64]


def check(
    stored: Any, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, float | None], bool, float]:
    """Return the numbers of a sampled certificate, whether a violation was observed, and the range of its values."""
    returns, violations = (arrays[name].astype(np.float64) for name in ("returns", "violations"))
    low, high, most = ends(plain)
    inside = (low <= returns) & (returns <= high) & (violations >= 0) & (violations <= most)
    if returns.shape != violations.shape or not inside.all() or not 0 < stored.failure_probability < 1:
        raise ValueError("an episode is outside of the declared range")
    part = stored.failure_probability / (4 if most else 2)
    slip = 2.0**-48 * (plain["horizon"] + 16) * max(abs(low), abs(high))
    found: dict[str, float | None] = {
        "episodes": len(returns),
        "value_low": max(low, -highest_mean(-returns, -low, part) - slip),
        "value_high": min(high, highest_mean(returns, high, part) + slip),
        "violation_high": None if math.isinf(most) else highest_mean(violations, most, part) if most else 0.0,
        "violation_probability_high": highest_mean((violations > 0).astype(np.float64), 1.0, part) if most else 0.0,
        "optimum_high": high,
    }
    if plain["optimum"] == "solved":
        model = read_model(plain["model"], arrays)
        if (model.horizon, list(model.reward_range)) != (plain["horizon"], plain["reward_range"]):
            raise ValueError("the declarations differ from the model")
        found["optimum_high"] = best_of(model)
    best, least = found["optimum_high"], found["value_low"]
    found["gap"] = None if best is None or least is None else best - least
    return found, bool((violations > 0).any()), high - low


def ends(plain: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the least and the largest return of an episode, and its largest violation, as declared; with rounding."""
    horizon, (low, high), bounds = int(plain["horizon"]), map(float, plain["reward_range"]), plain["constraint_bounds"]
    room = APART * max(1.0, abs(low), abs(high))
    if plain["may_end_early"]:
        low, high = min(low, 0.0), max(high, 0.0)
    most = math.inf if bounds is None else horizon * (1 + APART) * math.fsum(map(float, bounds))
    return horizon * (low - room), horizon * (high + room), most


def highest_mean(values: Numbers, most: float, failure: float) -> float:
    """Return the bound of `evaluation.bounds`, by narrowing down the best nu from both sides."""
    count, one = len(values), math.log(2.0 / failure)
    if count == 0:
        return most

    def bound(room: float, price: float) -> float:
        return most + room - math.exp(float(np.log(most - values + room).mean()) - price / count)

    spread = max(most - float(values.min()), 1e-300)
    price, low, high = one + 0.5 * math.log(math.pi * (count + 0.5)), 1e-9 * spread, 10 * math.sqrt(count) * spread
    for _ in range(40):
        left, right = low * (high / low) ** 0.382, low * (high / low) ** 0.618
        low, high = (low, right) if bound(left, price) < bound(right, price) else (left, high)
    return min(most, bound(0.0, one), bound(low, price))
