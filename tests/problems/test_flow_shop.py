"""A flow shop under a limit on power, against constraint programming and the definition."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from helpers.seeds import seeds
from peakrl import PeakError, compile_model, evaluate, solve
from peakrl.problems.flow_shops import flow_shop, order_policy


def constraint_programme(times, power, limits):
    """The least makespan of one order on all machines, by PyJobShop (CP-SAT)."""
    from pyjobshop import Model, SolveStatus

    model = Model()
    machines = [model.add_machine() for _ in power]
    current = model.add_renewable(capacity=max(limits))
    for step, limit in enumerate(limits):
        if limit < max(limits):  # somebody else draws the rest in this step
            blocked = model.add_task(earliest_start=step, latest_start=step)
            model.add_mode(blocked, current, 1, demands=max(limits) - limit)
    for row in times:
        tasks = [model.add_task() for _ in row]
        for task, machine, time, draw in zip(tasks, machines, row, power, strict=True):
            model.add_mode(task, [machine, current], time, demands=[0, draw])
        for before, after in pairwise(tasks):
            model.add_end_before_start(before, after)
    for before, after in pairwise(machines):
        model.add_same_sequence(before, after)
    model.set_objective(weight_makespan=1)
    result = model.solve(display=False, num_workers=1)
    assert result.status == SolveStatus.OPTIMAL
    return round(result.objective)


def random_shop(seed, jobs=3, machines=2):
    rng = np.random.default_rng(seed)
    return rng.integers(1, 4, (jobs, machines)).tolist(), rng.integers(1, 5, machines).tolist()


@seeds(3)
def test_the_optimum_is_the_makespan_that_constraint_programming_finds(seed):
    times, power = random_shop(seed, machines=2 + seed % 2)
    limit = max(max(power), sum(power) - 1)
    best = solve(flow_shop(times=times, power=power, limit=limit))
    assert best.feasible
    assert -best.value == constraint_programme(times, power, [limit])


def test_a_limit_that_drops_for_a_while_makes_a_machine_wait_beforehand():
    times, power = [[3, 2], [2, 2], [1, 3]], [3, 2]
    limits = [5, 5, 3, 3, 5, *[5] * 8]
    best = solve(flow_shop(times=times, power=power, limit=limits))
    assert -best.value == constraint_programme(times, power, limits)
    assert -best.value > constraint_programme(times, power, [5])


@seeds(3)
def test_without_a_limit_the_optimum_is_the_best_of_all_orders(seed):
    times, power = random_shop(seed)
    problem = flow_shop(times=times, power=power, limit=sum(power))
    spans = []
    model = compile_model(problem)
    for order in permutations(range(1, 4)):
        first = second = 0
        for one, two in (times[job - 1] for job in order):
            first += one
            second = max(first, second) + two
        spans.append(second)
        assert -evaluate(model, order_policy(problem, order, model)).value == second
    assert -solve(model).value == min(spans)


def test_an_order_made_feasible_keeps_the_limit_and_cannot_beat_the_optimum():
    problem = flow_shop()
    model = compile_model(problem)
    best, found = solve(model), evaluate(model, order_policy(problem, (2, 1, 3), model))
    assert found.violation_probability == 0.0
    assert (-best.value, -found.value) == (13.0, 14.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"times": [[1, 2], [1, 2, 3]]}, r"times\[0\] holds 2 times; power names 3 machines"),
        ({"times": [[1, 2, 0]]}, r"times\[0\]\[2\] is 0; it must be a whole number"),
        ({"times": []}, "times holds 0 jobs"),
        ({"limit": [6, 6]}, "limit holds 2 numbers; it must hold one for each step of the horizon, 18"),
    ],
)
def test_a_slip_is_named(parameters, message):
    with pytest.raises(PeakError, match=message):
        flow_shop(**parameters)


def test_an_order_that_does_not_fit_is_refused():
    with pytest.raises(PeakError, match="must name each of the jobs 1 to 3 once"):
        order_policy(flow_shop(), (1, 2))
