"""Vehicle charging: electric cars charge on the connection of a household while the price changes by the hour.

State (l, n_1, ..., n_m): the load of the household in this hour, and what each car still needs, in kWh. Action: what
each car charges in this hour, c_i in 0 .. min(rate_i, n_i), whole kWh; for a single car the number itself.

    needed        n_i' = n_i - c_i                       a car that has left does not charge
    constraints   f_connection = limit - l - sum_i c_i >= 0                   in kW: an hour's kWh
                  f_departure  = - sum of n_i' of the cars that leave at the end of this hour >= 0
    reward        r = - price_h sum_i c_i
    household     l' with probability load[l][l']

What a car could not charge before it left is not charged later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from inspect import signature
from itertools import product
from typing import Any

from peakrl.checks import check_chain, check_count, check_number, check_numbers, check_probabilities, whole
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome, Problem
from peakrl.specs.registry import check_names, problem
from peakrl.specs.spec import remember

__all__ = ["Car", "VehicleCharging", "vehicle_charging"]

#: Euros per kWh from six in the evening to six in the morning.
TARIFF = (0.42, 0.42, 0.38, 0.34, 0.26, 0.22, 0.18, 0.18, 0.16, 0.16, 0.20, 0.28)
#: Transition matrix of the household's load of 0 .. 3 kW, and the distribution of the first load.
LOAD = ((0.6, 0.3, 0.1, 0.0), (0.3, 0.4, 0.2, 0.1), (0.1, 0.4, 0.3, 0.2), (0.0, 0.3, 0.4, 0.3))
FIRST = (0.0, 0.2, 0.4, 0.4)
MOST_CARS, MOST_ENERGY = 6, 1_000
State = tuple[int, ...]


@dataclass(frozen=True)
class Car:
    """A car: how much it needs, when it leaves and how fast it charges."""

    #: kWh that it needs before it leaves.
    energy: int
    #: The step by which it needs them: it may charge in steps 0 .. departure - 1.
    departure: int
    #: kWh that it can charge in an hour.
    rate: int = 3

    def __post_init__(self) -> None:
        check_count(self.energy, "energy", 0, MOST_ENERGY, error=ProblemError)
        check_count(self.departure, "departure", 1, MOST_STEPS, error=ProblemError)
        check_count(self.rate, "rate", 1, MOST_ENERGY, error=ProblemError)


CARS = (Car(10, 12, 3), Car(6, 8, 2))
#: The same as plain values.
TABLES = tuple(map(asdict, CARS))


@dataclass(frozen=True)
class VehicleCharging(Problem):
    """The problem of one connection; `vehicle_charging` builds it from plain arguments."""

    cars: tuple[Car, ...] = CARS
    limit: float = 5.0
    prices: tuple[float, ...] = TARIFF
    load: tuple[tuple[float, ...], ...] = LOAD
    first: tuple[float, ...] = FIRST
    horizon: int = 12
    name: str = "vehicle charging"
    constraint_names: Sequence[str] = field(default=("connection", "departure"), init=False)
    stationary: bool = field(default=False, init=False)

    def initial(self) -> list[tuple[float, State]]:
        """Return what every car needs with every possible first load."""
        needed = tuple(car.energy for car in self.cars)
        return [(chance, (load, *needed)) for load, chance in enumerate(self.first) if chance > 0]

    def actions(self, step: int, state: Any) -> Iterable[Any]:
        """Return all possible charges, including those that exceed the connection."""
        most = [min(car.rate, needed) if step < car.departure else 0 for car, needed in self.needs(state)]
        charges = product(*(range(top + 1) for top in most))
        return charges if len(self.cars) > 1 else [charge[0] for charge in charges]

    def needs(self, state: Any) -> list[tuple[Car, int]]:
        """Return the cars with what each still needs."""
        return list(zip(self.cars, state[1:], strict=True))

    def charges(self, action: Any) -> tuple[int, ...]:
        """Return what each car charges by an action."""
        return tuple(action) if len(self.cars) > 1 else (action,)

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Return what is needed afterwards, with every possible next load."""
        charges = self.charges(action)
        left = tuple(needed - charge for (_, needed), charge in zip(self.needs(state), charges, strict=True))
        missing = sum(needed for car, needed in zip(self.cars, left, strict=True) if car.departure == step + 1)
        met = (self.limit - state[0] - sum(charges), 0.0 - missing)
        reward = 0.0 - self.prices[step] * sum(charges)
        return [
            Outcome(chance, (load, *left), reward, met) for load, chance in enumerate(self.load[state[0]]) if chance > 0
        ]


@problem(
    "vehicle_charging",
    template=True,
    parts=("household", "needed by car 1", "needed by car 2"),
)
def vehicle_charging(
    *,
    limit: float = 5.0,
    horizon: int = 12,
    cars: Iterable[Car | Mapping[str, int]] = TABLES,
    prices: Sequence[float] = TARIFF,
    load: Sequence[Sequence[float]] = LOAD,
    first: Sequence[float] = FIRST,
) -> VehicleCharging:
    """Return the problem of electric cars that charge on one connection.

    Parameters
    ----------
    limit
        A constraint: kW that cars and household may draw together.
    horizon
        Hours.
    cars
        The other constraint: a car that leaves has what it needs. `Car(energy, departure, rate)` or tables with these
        keys: kWh that it needs, the hour by which it needs them, and kWh that it can charge in an hour.
    prices
        Of a kWh, by hour.
    load
        Transition matrix of the household's load of 0, 1, 2, ... kW.
    first
        Distribution of its first load.
    """
    given = dict(locals())
    steps = check_count(horizon, "horizon", 1, MOST_STEPS, error=ProblemError)
    matrix = check_chain(load, "load")
    made = VehicleCharging(
        check_cars(cars, steps),
        check_number(limit, "limit", least=0, error=ProblemError),
        check_numbers(prices, "prices", steps=steps),
        matrix,
        check_probabilities(first, "first", len(matrix)),
        steps,
    )
    return remember(made, "vehicle_charging", {**given, "cars": [asdict(car) for car in made.cars]})


def check_cars(given: Any, horizon: int) -> tuple[Car, ...]:
    """Return the cars, or raise with the one that is wrong."""
    if isinstance(given, str | bytes | Mapping | Car) or not hasattr(given, "__iter__"):
        raise ProblemError(f"cars is {given!r}; it must be a list of tables with energy, departure and rate")
    cars = tuple(check_car(one, f"cars[{place}]") for place, one in enumerate(given))
    if not 1 <= len(cars) <= MOST_CARS:
        raise ProblemError(f"cars holds {len(cars)}; there may be 1 to {MOST_CARS}, since each multiplies the states")
    for place, car in enumerate(cars):
        if car.departure > horizon:
            raise ProblemError(f"cars[{place}].departure is {car.departure}; the horizon is {horizon}")
    return cars


def check_car(given: Any, what: str) -> Car:
    """Return one car."""
    if isinstance(given, Car):
        return given
    if not isinstance(given, Mapping):
        raise ProblemError(f"{what} is {given!r}; it must be a table with energy, departure and rate")
    check_names(signature(Car).parameters, given, f"{what}.")
    try:
        return Car(**{name: number if whole(number) is None else int(number) for name, number in given.items()})
    except ProblemError as error:
        raise ProblemError(f"{what}.{error}") from None
