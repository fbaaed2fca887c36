"""Heating: keep the temperature of a house in a band that depends on the hour, at the least cost.

State (T, w): the temperature inside, in half degrees, and the weather, 0 .. n-1. Action: a heating power a in
0 .. max_power, a whole number of kW, for the next hour.

    temperature   T' = T + gain a - loss (T - outside_w)      rounded to half a degree
    constraints   f = T' - low_{h+1} >= 0,  high_{h+1} - T' >= 0, in degrees: the band of the next hour
    reward        r = - price_h a
    weather       w' with probability weather[w][w']

T' is clipped to two degrees around the widest band (a violation may lead there), so that there are few states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peakrl.checks import check_chain, check_count, check_number, check_numbers, check_probabilities
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome, Problem
from peakrl.specs.spec import remember

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
    horizon: int = 24
    name: str = "thermostat"
    constraint_names: Sequence[str] = field(default=("not too cold", "not too hot"), init=False)
    stationary: bool = field(default=False, init=False)
    spec: Mapping[str, Any] | None = field(default=None, init=False, repr=False, compare=False)

    def band(self, hour: int) -> Band:
        """Return the lowest and the highest allowed temperature of an hour."""
        return self.day if self.day_hours[0] <= hour % 24 < self.day_hours[1] else self.night

    def initial(self) -> list[tuple[float, HouseState]]:
        """Return the first temperature with every possible first weather."""
        halves = round(2 * self.start)
        return [(chance, HouseState(halves, weather)) for weather, chance in enumerate(self.first) if chance > 0]

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
        after = self.following(state, action)
        low, high = self.band(step + 1)
        met = (after / 2 - low, high - after / 2)
        least, most = self.kept
        halves = min(max(after, least), most)
        return [
            Outcome(chance, HouseState(halves, weather), 0.0 - self.prices[step] * action, met)
            for weather, chance in enumerate(self.weather[state[1]])
            if chance > 0
        ]

    @property
    def kept(self) -> tuple[int, int]:
        """The lowest and the highest half degrees of a state."""
        lowest, highest = min(self.day[0], self.night[0]), max(self.day[1], self.night[1])
        return round(2 * (lowest - BELOW)), round(2 * (highest + ABOVE))


def thermostat(
    *,
    prices: Sequence[float] = TARIFF,
    day: Sequence[float] = (20.0, 22.5),
    night: Sequence[float] = (17.0, 22.5),
    day_hours: Sequence[int] = (7, 22),
    outside: Sequence[float] = OUTSIDE,
    weather: Sequence[Sequence[float]] = WEATHER,
    first: Sequence[float] = FIRST,
    start: float = 19.0,
    max_power: int = 4,
    gain: float = 1.0,
    loss: float = 0.1,
    horizon: int = 24,
) -> Thermostat:
    """Return the problem of heating a house for `horizon` hours from midnight on.

    `prices` by hour; `day` and `night` are (lowest, highest) temperatures, those of the day from `day_hours[0]` to
    `day_hours[1]`; `outside` is the temperature of each weather, `weather` their transition matrix and `first` the
    distribution of the first one. A kW warms the house by `gain` degrees in an hour, and `loss` is the share of the
    difference to the outside that is lost in an hour.
    """
    given = dict(locals())
    steps = check_count(horizon, "horizon", 1, MOST_STEPS, error=ProblemError)
    degrees = tuple(checked_degrees(one, f"outside[{place}]") for place, one in enumerate(listed(outside, "outside")))
    problem = Thermostat(
        check_numbers(prices, "prices", steps=steps),
        checked_band(day, "day"),
        checked_band(night, "night"),
        checked_hours(day_hours),
        degrees,
        check_chain(weather, "weather", len(degrees)),
        check_probabilities(first, "first", len(degrees)),
        checked_degrees(start, "start"),
        check_count(max_power, "max_power", 0, MOST_POWER, error=ProblemError),
        checked_degrees(check_number(gain, "gain", least=0, error=ProblemError), "gain"),
        checked_share(loss),
        steps,
    )
    return remember(problem, "thermostat", given)


def listed(value: Any, what: str) -> tuple[float, ...]:
    """Return numbers, at least one."""
    return check_numbers(value, what)


def checked_degrees(value: Any, what: str) -> float:
    """Return a plausible temperature."""
    degrees = check_number(value, what, error=ProblemError)
    if abs(degrees) > HOTTEST:
        raise ProblemError(f"{what} is {degrees:g}; it must lie between {-HOTTEST:g} and {HOTTEST:g}")
    return degrees


def checked_band(value: Any, what: str) -> Band:
    """Return (lowest, highest)."""
    numbers = check_numbers(value, what)
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ProblemError(f"{what} is {value!r}; it must be [lowest, highest], two temperatures")
    return checked_degrees(numbers[0], what), checked_degrees(numbers[1], what)


def checked_hours(value: Any) -> tuple[int, int]:
    """Return the hours at which the band of the day begins and ends."""
    numbers = check_numbers(value, "day_hours")
    if len(numbers) != 2 or not all(0 <= hour <= 24 and hour == int(hour) for hour in numbers):
        raise ProblemError(f"day_hours is {value!r}; it must be two hours from 0 to 24")
    return int(numbers[0]), int(numbers[1])


def checked_share(value: Any) -> float:
    """Return the share of warmth that is lost in an hour."""
    share = check_number(value, "loss", least=0, error=ProblemError)
    if share > 1:
        raise ProblemError(f"loss is {share:g}; it must be a share, from 0 to 1")
    return share
