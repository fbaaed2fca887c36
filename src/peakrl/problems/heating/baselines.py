"""An ordinary thermostat with a set point, which ignores prices.

With a set point G by day, and G - setback if the next hour has the band of the night, it chooses the power that brings
the house nearest to it:  argmin_a |T'(T, w, a) - G|, the least such power.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peakrl.compile import Target
from peakrl.policy.tables import Policy
from peakrl.problems.heating.problem import Thermostat, checked_degrees


def set_point(problem: Thermostat, target: float, setback: float = 2.0) -> Callable[[int, Any], int]:
    """Return the rule of a thermostat that is set to `target` by day and `setback` lower at night."""

    def power(step: int, state: Any) -> int:
        by_day = problem.band(step + 1) == problem.day
        goal = 2 * (target if by_day else target - setback)
        return min(range(problem.max_power + 1), key=lambda a: abs(problem.following(state, a) - goal))

    return power


def set_point_policy(
    problem: Thermostat, target: float = 20.5, *, setback: float = 2.0, model: Target | None = None
) -> Policy:
    """Return an ordinary thermostat as a table for the problem's model (compiled here unless given)."""
    rule = set_point(problem, checked_degrees(target, "target"), checked_degrees(setback, "setback"))
    return Policy.from_rule(problem if model is None else model, rule)
