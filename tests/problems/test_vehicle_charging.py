"""Electric cars on one connection, against a linear programme and the formulas written out again."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from helpers.seeds import seeds
from peakrl import PeakError, solve
from peakrl.problems.charging import Car, vehicle_charging


def cheapest(problem):
    """The least expected cost that is sure of both constraints, by trying everything at every hour."""

    @cache
    def least(hour, load, needed):
        gone = [need for car, need in zip(problem.cars, needed, strict=True) if car.departure <= hour]
        if any(gone):
            return float("inf")
        if hour == problem.horizon:
            return 0.0
        costs = [float("inf")]
        for charge in product(*(range(min(car.rate, n) + 1) for car, n in zip(problem.cars, needed, strict=True))):
            if load + sum(charge) <= problem.limit:
                left = tuple(n - c for n, c in zip(needed, charge, strict=True))
                ahead = sum(p * least(hour + 1, after, left) for after, p in enumerate(problem.load[load]) if p)
                costs.append(problem.prices[hour] * sum(charge) + ahead)
        return min(costs)

    needed = tuple(car.energy for car in problem.cars)
    return sum(p * least(0, load, needed) for load, p in enumerate(problem.first) if p)


@pytest.mark.parametrize("parameters", [{}, {"limit": 5.5}, {"cars": [Car(9, 9)]}])
def test_the_optimum_is_the_least_cost_that_is_sure_of_connection_and_departure(parameters):
    problem = vehicle_charging(**parameters)
    best = solve(problem)
    assert best.feasible
    assert -best.value == pytest.approx(cheapest(problem), abs=1e-12)


@seeds(3)
def test_with_a_household_that_is_known_the_optimum_is_that_of_the_linear_programme(seed):
    rng = np.random.default_rng(seed)
    prices, cars = rng.uniform(0.1, 0.5, 6), [Car(5, 6, 2), Car(3, 4, 3)]
    # A household that draws 0, 1, 2, 0, 1, 2 kW: the chain goes round.
    problem = vehicle_charging(
        cars=cars, limit=3, prices=prices, horizon=6, load=[[0, 1, 0], [0, 0, 1], [1, 0, 0]], first=[1, 0, 0]
    )
    room = np.array([3 - hour % 3 for hour in range(6)])
    charged = np.kron(np.eye(2), np.ones(6))
    answer = linprog(
        np.tile(prices, 2), A_ub=np.hstack([np.eye(6)] * 2), b_ub=room, A_eq=charged, b_eq=[5, 3],
        bounds=[(0, car.rate if hour < car.departure else 0) for car in cars for hour in range(6)],
    )  # fmt: skip
    assert -solve(problem).value == pytest.approx(answer.fun, abs=1e-9)


def test_too_small_a_connection_is_infeasible():
    assert cheapest(vehicle_charging(limit=3)) == float("inf")
    assert not solve(vehicle_charging(limit=3)).feasible


@pytest.mark.parametrize(
    ("cars", "message"),
    [
        ([], "cars holds 0; there may be 1 to 6"),
        ([{"energy": 4}], r"cars\[0\].departure is missing"),
        ([{"energy": 4, "departure": 3, "speed": 2}], r"cars\[0\].speed is not a key here"),
        ([Car(1, 2), {"energy": 4.5, "departure": 3}], r"cars\[1\].energy is 4.5; it must be a whole number"),
        ([Car(1, 13)], r"cars\[0\].departure is 13; the horizon is 12"),
    ],
)
def test_a_slip_in_a_car_is_named(cars, message):
    with pytest.raises(PeakError, match=message):
        vehicle_charging(cars=cars)
