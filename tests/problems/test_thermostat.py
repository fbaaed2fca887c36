"""The thermostat: its optimum, its band and an ordinary thermostat, against the formulas written out again."""

from __future__ import annotations

from functools import cache

import pytest

from peakrl import PeakError, compile_model, evaluate, solve
from peakrl.problems.heating import HouseState, set_point_policy, thermostat


def cheapest(problem):
    """The least expected cost that never leaves the band, by trying everything at every hour, in degrees."""

    @cache
    def least(hour, degrees, weather):
        if hour == problem.horizon:
            return 0.0
        low, high = problem.day if problem.day_hours[0] <= (hour + 1) % 24 < problem.day_hours[1] else problem.night
        costs = [float("inf")]
        for power in range(problem.max_power + 1):
            exact = degrees + problem.gain * power - problem.loss * (degrees - problem.outside[weather])
            after = round(2 * exact) / 2
            if low <= after <= high:
                ahead = sum(chance * least(hour + 1, after, w) for w, chance in enumerate(problem.weather[weather]))
                costs.append(problem.prices[hour] * power + ahead)
        return min(costs)

    return sum(chance * least(0, problem.start, weather) for weather, chance in enumerate(problem.first) if chance)


@pytest.mark.parametrize("parameters", [{}, {"day": [20, 21]}, {"loss": 0.25, "max_power": 7, "horizon": 10}])
def test_the_optimum_is_the_least_cost_of_staying_in_the_band(parameters):
    problem = thermostat(**parameters)
    best = solve(problem)
    assert best.feasible
    assert -best.value == pytest.approx(cheapest(problem), abs=1e-12)


def test_a_band_that_no_heating_can_keep_is_infeasible():
    problem = thermostat(day=[20.5, 20.5])
    assert cheapest(problem) == float("inf")
    assert not solve(problem).feasible


def test_an_ordinary_thermostat_costs_more_and_too_low_a_set_point_leaves_the_band():
    problem = thermostat()
    model = compile_model(problem)
    kept, left = (evaluate(model, set_point_policy(problem, degrees, model=model)) for degrees in (20.5, 20.0))
    assert kept.violation_probability == 0.0
    assert kept.value < solve(model).value
    assert left.violation_probability > 0.9


def test_an_hour_without_heating_loses_a_tenth_of_the_difference_to_the_outside():
    problem = thermostat()
    (only,) = {outcome.next_state.half_degrees for outcome in problem.outcomes(0, HouseState(44, 1), 0)}
    assert only / 2 == 20.0  # 22 - 0.1 (22 - 4) = 20.2, to the nearest half degree


SLIPS = [
    ({"prices": [0.1] * 23}, "prices holds 23 numbers; it must hold one for each step of the horizon, 24"),
    ({"day": [22, 20]}, r"day is \(22.0, 20.0\); .* the first no larger than the second"),
    ({"weather": [[1.0]]}, "weather holds 1 rows; it must hold 3"),
    ({"first": [0.5, 0.4, 0]}, "first: its probabilities sum to 0.9"),
    ({"loss": 2}, "loss is 2; it must be a finite number from 0 to 1, a share"),
    ({"day_hours": [7, 25]}, "day_hours is .* two hours from 0 to 24"),
]


def test_a_slip_is_named():
    for parameters, message in SLIPS:
        with pytest.raises(PeakError, match=message):
            thermostat(**parameters)


def test_without_an_end_the_hour_belongs_to_the_state():
    endless = compile_model(thermostat(horizon=None))
    assert endless.steps is None
    assert {label.hour for label in endless.state_labels} == set(range(24))
    policy = set_point_policy(thermostat(horizon=None), 21.0, model=endless)
    day = set_point_policy(thermostat(), 21.0)
    for hour in range(24):
        assert policy.action(0, (40, 1, hour)) == day.action(hour, (40, 1)) if (40, 1) in day.table(hour) else True
    best = solve(endless, average=True)
    assert best.feasible
    assert best.value > evaluate(endless, policy).gain
