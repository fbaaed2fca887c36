"""Heating: keep the temperature of a house in a band that depends on the hour, at the least cost.

State (T, w): the temperature inside, in half degrees, and the weather, 0 .. n-1. Action: a heating power a in
0 .. max_power, a whole number of kW, for the next hour.

    temperature   T' = T + gain a - loss (T - outside_w)      rounded to half a degree
    constraints   f = T' - low_{h+1} >= 0,  high_{h+1} - T' >= 0, in degrees: the band of the next hour
    reward        r = - price_h a
    weather       w' with probability weather[w][w']

Without an end (horizon None) the hour of the day belongs to the state, (T, w, h), and h' = (h + 1) mod 24.

T' is clipped to two degrees around the widest band (a violation may lead there), so that there are few states.

Baseline: an ordinary thermostat with a set point, which ignores prices. With a set point G by day, and G - setback if
the next hour has the band of the night, it chooses the power that brings the house nearest to it:
argmin_a |T'(T, w, a) - G|, the least such power.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peakrl.checks import (
    check_chain,
    check_count,
    check_horizon,
    check_hours,
    check_number,
    check_numbers,
    check_probabilities,
    check_range,
)
from peakrl.compile import Target
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.policy.tables import Policy
from peakrl.problem import Outcome, Problem
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember

__all__ = ["HourState", "HouseState", "Thermostat", "set_point_policy", "thermostat"]

#: Euros per kWh, by hour: cheap at night, expensive in the morning and in the evening.
TARIFF = (0.18,) * 6 + (0.34,) * 4 + (0.22,) * 6 + (0.40,) * 5 + (0.18,) * 3
#: Degrees outside when it is cold, mild and sunny, and the transition matrix of the weather.
OUTSIDE = (-2.0, 4.0, 9.0)
WEATHER = ((0.8, 0.2, 0.0), (0.15, 0.7, 0.15), (0.0, 0.3, 0.7))
FIRST = (0.4, 0.6, 0.0)
#: How far outside of the band the temperature of a state may lie.
BELOW, ABOVE = 2.0, 2.5
#: Largest absolute temperature and largest power; every whole kW is an action.
HOTTEST, MOST_POWER = 1_000.0, 1_000
Band = tuple[float, float]


class HouseState(NamedTuple):
    """What a thermostat observes."""

    #: Twice the temperature inside.
    half_degrees: int
    weather: int


class HourState(NamedTuple):
    """What a thermostat without an end observes."""

    #: Twice the temperature inside.
    half_degrees: int
    weather: int
    #: Of the day, 0 .. 23.
    hour: int


@dataclass(frozen=True)
class Thermostat(Problem):
    """The problem of one house; `thermostat` builds it from plain arguments."""

    prices: tuple[float, ...] = TARIFF
    day: Band = (20.0, 22.5)
    night: Band = (17.0, 22.5)
    #: The band of the day begins at the first of these hours, that of the night at the second.
    day_hours: tuple[int, int] = (7, 22)
    outside: tuple[float, ...] = OUTSIDE
    weather: tuple[tuple[float, ...], ...] = WEATHER
    first: tuple[float, ...] = FIRST
    start: float = 19.0
    max_power: int = 4
    gain: float = 1.0
    loss: float = 0.1
    horizon: int | None = 24
    name: str = "thermostat"
    constraint_names: Sequence[str] = field(default=("not too cold", "not too hot"), init=False)
    stationary: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stationary", self.horizon is None)

    def hour(self, step: int, state: Any) -> int:
        """Return the number of the hour, by the state if there is no end."""
        return int(state[2]) if self.horizon is None else step

    def state(self, half_degrees: int, weather: int, hour: int) -> HouseState | HourState:
        """Return the state at an hour."""
        if self.horizon is None:
            return HourState(half_degrees, weather, hour % 24)
        return HouseState(half_degrees, weather)

    def band(self, hour: int) -> Band:
        """Return the lowest and the highest allowed temperature of an hour."""
        return self.day if self.day_hours[0] <= hour % 24 < self.day_hours[1] else self.night

    def initial(self) -> list[tuple[float, HouseState | HourState]]:
        """Return the first temperature with every possible first weather."""
        halves = round(2 * self.start)
        return [(chance, self.state(halves, weather, 0)) for weather, chance in enumerate(self.first) if chance > 0]

    def actions(self, step: int, state: Any) -> range:
        """Return the powers, whole kW."""
        return range(self.max_power + 1)

    def following(self, state: Any, power: int) -> int:
        """Return the half degrees after an hour of heating, which are not random."""
        halves: int = state[0]
        weather: int = state[1]
        return round(halves + 2 * self.gain * power - self.loss * (halves - 2 * self.outside[weather]))

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Return the temperature with every possible next weather."""
        after, hour = self.following(state, action), self.hour(step, state)
        low, high = self.band(hour + 1)
        met = (after / 2 - low, high - after / 2)
        least, most = self.kept
        halves = min(max(after, least), most)
        return [
            Outcome(chance, self.state(halves, weather, hour + 1), 0.0 - self.prices[hour] * action, met)
            for weather, chance in enumerate(self.weather[state[1]])
            if chance > 0
        ]

    @property
    def kept(self) -> tuple[int, int]:
        """The lowest and the highest half degrees of a state."""
        lowest, highest = min(self.day[0], self.night[0]), max(self.day[1], self.night[1])
        return round(2 * (lowest - BELOW)), round(2 * (highest + ABOVE))


@problem("thermostat", template=True, parts=("half degrees", "weather"))
def thermostat(
    *,
    day: Sequence[float] = (20.0, 22.5),
    night: Sequence[float] = (17.0, 22.5),
    day_hours: Sequence[int] = (7, 22),
    horizon: int | None = 24,
    start: float = 19.0,
    max_power: int = 4,
    gain: float = 1.0,
    loss: float = 0.1,
    outside: Sequence[float] = OUTSIDE,
    weather: Sequence[Sequence[float]] = WEATHER,
    first: Sequence[float] = FIRST,
    prices: Sequence[float] = TARIFF,
) -> Thermostat:
    """Return the problem of a house to be heated at the least cost.

    Parameters
    ----------
    day, night
        The constraint: lowest and highest temperature by day and at night.
    day_hours
        When the band of the day begins and ends.
    horizon
        Hours, from midnight on; None: without an end, every day has the same prices and bands.
    start
        Degrees inside at midnight.
    max_power
        kW; every whole number up to it can be chosen.
    gain
        Degrees that a kW warms the house by in an hour.
    loss
        Share of the difference to the outside that is lost in an hour.
    outside
        Degrees outside in each weather.
    weather
        Transition matrix of the weather, by hour.
    first
        Distribution of the weather at midnight.
    prices
        Of a kWh, by hour.

    Returns
    -------
    Thermostat

    Examples
    --------
    >>> import peakrl
    >>> peakrl.solve(peakrl.problems.thermostat()).feasible
    True
    """
    given = dict(locals())
    steps = check_horizon(horizon, "horizon", MOST_STEPS, error=ProblemError)
    degrees = check_numbers(outside, "outside", least=-HOTTEST, most=HOTTEST)
    made = Thermostat(
        check_numbers(prices, "prices", steps=24 if steps is None else steps),
        check_range(day, "day"),
        check_range(night, "night"),
        check_hours(day_hours, "day_hours"),
        degrees,
        check_chain(weather, "weather", len(degrees)),
        check_probabilities(first, "first", len(degrees)),
        check_degrees(start, "start"),
        check_count(max_power, "max_power", 0, MOST_POWER, error=ProblemError),
        check_number(gain, "gain", least=0, most=HOTTEST, error=ProblemError),
        check_number(loss, "loss", least=0, most=1, otherwise=", a share", error=ProblemError),
        steps,
    )
    return remember(made, "thermostat", given)


def check_degrees(value: Any, what: str) -> float:
    """Return a plausible temperature."""
    return check_number(value, what, least=-HOTTEST, most=HOTTEST, error=ProblemError)


def set_point(problem: Thermostat, target: float, setback: float = 2.0) -> Callable[[int, Any], int]:
    """Return the rule of a thermostat that is set to `target` by day and `setback` lower at night."""

    def power(step: int, state: Any) -> int:
        by_day = problem.band(problem.hour(step, state) + 1) == problem.day
        goal = 2 * (target if by_day else target - setback)
        return min(range(problem.max_power + 1), key=lambda a: abs(problem.following(state, a) - goal))

    return power


def set_point_policy(
    problem: Thermostat, target: float = 20.5, *, setback: float = 2.0, model: Target | None = None
) -> Policy:
    """Return an ordinary thermostat as a table for the problem's model (compiled here unless given)."""
    rule = set_point(problem, check_degrees(target, "target"), check_degrees(setback, "setback"))
    return Policy.from_rule(problem if model is None else model, rule)
