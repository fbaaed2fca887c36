"""Release times and total objectives, against all orders."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.random_jobs import random_jobs
from naive.scheduling import best_over_all_orders, order_costs
from peakrl import PeakError, compile_model, solve, to_gymnasium
from peakrl.problems import Job, machine_scheduling
from peakrl.problems.scheduling import (
    dt_order,
    evaluate_order,
    order_of,
    read_jobs,
)
from peakrl.problems.scheduling.orders import OBJECTIVES
from peakrl.specs import ProblemSpec


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_order_of_the_table_is_the_best_of_all_orders(objective):
    feasible = 0
    for seed in range(16):
        jobs = random_jobs(seed, most=6, releases=seed % 2 == 0)
        violation, least = best_over_all_orders(jobs, objective)
        table = solve(compile_model(machine_scheduling(jobs, objective=objective)))
        assert table.feasible == (violation == 0)
        assert table.violation == pytest.approx(violation)
        if violation:
            continue
        feasible += 1
        assert -table.value == pytest.approx(least)
    assert feasible > 3


def test_an_order_waits_for_what_is_released_later():
    jobs = [Job(2, 4, 9), Job(3, 8, 9, release=4)]
    found = evaluate_order(jobs, (1, 2))
    assert [(bar.start, bar.end) for bar in found.bars] == [(0, 2), (4, 7)]
    (costs,) = order_costs(jobs, np.array([[0, 1]]))["weighted_completion"]
    assert found.weighted_completion == costs == 9
    policy = solve(compile_model(machine_scheduling(jobs))).policy
    assert order_of(policy) == (1, 2)


def test_release_times_are_kept_in_files_and_descriptions(tmp_path):
    (tmp_path / "jobs.csv").write_text("processing,due,deadline,release\n2,4,9,\n3,8,9,4\n1,8,9,0\n")
    jobs = read_jobs(tmp_path / "jobs.csv")
    assert [job.release for job in jobs] == [0, 4, 0]
    problem = machine_scheduling(jobs, objective="weighted_tardiness")
    assert ProblemSpec.from_dict(problem.spec).build() == problem
    env = to_gymnasium(problem)
    assert env.model.digest == compile_model(problem).digest


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Job(3, 4, 6, release=4), "deadline 6 lies before processing time 3 after its release at 4"),
        (lambda: Job(3, 4, 6, release=-1), "release is -1; it must be a whole number"),
        (lambda: dt_order([Job(1, 2, 3), Job(1, 2, 9, release=2)]), "job 2 is released at 2; DT requires"),
    ],
)
def test_a_slip_is_named(make, message):
    with pytest.raises(PeakError, match=message):
        make()
