"""Release times, total objectives and the best order by dynamic programming over sets of jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.random_jobs import random_jobs
from naive.scheduling import best_over_all_orders, order_costs
from peakrl import PeakError, compile_model, solve, to_gymnasium
from peakrl.problems import Job, machine_scheduling
from peakrl.problems.scheduling import (
    InfeasibleSchedule,
    best_order,
    dt_order,
    evaluate_order,
    order_of,
    read_jobs,
    shortest_processing_order,
)
from peakrl.problems.scheduling.orders import OBJECTIVES
from peakrl.specs import ProblemSpec


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_best_order_is_the_best_of_all_orders_and_so_is_that_of_the_table(objective):
    feasible = 0
    for seed in range(16):
        jobs = random_jobs(seed, most=6, releases=seed % 2 == 0)
        violation, least = best_over_all_orders(jobs, objective)
        table = solve(compile_model(machine_scheduling(jobs, objective=objective)))
        assert table.feasible == (violation == 0)
        assert table.violation == pytest.approx(violation)
        if violation:
            with pytest.raises(InfeasibleSchedule, match="no order meets every deadline"):
                best_order(jobs, objective=objective)
            continue
        feasible += 1
        found = best_order(jobs, objective=objective)
        assert found.feasible
        assert found.objective(objective) == pytest.approx(least)
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


@pytest.mark.parametrize("count", [14, pytest.param(20, marks=pytest.mark.slow)])
def test_many_jobs_are_ordered_as_smiths_rule_says_where_deadlines_are_no_matter(count):
    rng = np.random.default_rng(3)
    jobs = [Job(int(time), 1, 10_000, float(weight)) for time, weight in rng.integers(1, 30, (count, 2))]
    smith = sorted(range(count), key=lambda place: jobs[place].processing / jobs[place].weight)
    least = evaluate_order(jobs, [place + 1 for place in smith]).weighted_completion
    assert best_order(jobs, objective="weighted_completion").weighted_completion == pytest.approx(least)


def test_a_deadline_is_kept_though_the_shortest_job_would_come_first():
    jobs = [Job(1, 1, 10), Job(4, 4, 4)]
    assert shortest_processing_order(jobs) == (1, 2)
    assert best_order(jobs, objective="weighted_completion").order == (2, 1)


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
        (lambda: best_order([Job(1, 2, 90)] * 23), "jobs holds 23; .* at most 22"),
        (lambda: best_order([Job({1: 0.5, 2: 0.5}, 2, 9)]), "job 1 has a random processing time"),
        (lambda: best_order([Job(1, 2, 9)], objective="fun"), "objective is 'fun'; it must be one of"),
    ],
)
def test_a_slip_is_named(make, message):
    with pytest.raises(PeakError, match=message):
        make()


def test_a_later_release_never_makes_the_best_order_better():
    for seed in range(10):
        jobs = random_jobs(seed, most=5, releases=True)
        free = [replace(job, release=0) for job in jobs]
        if best_over_all_orders(jobs, "total_tardiness")[0] == 0:
            assert best_order(free).total_tardiness <= best_order(jobs).total_tardiness
