from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.known_times import known_times
from helpers.random_jobs import constraint_programme, random_jobs
from helpers.seeds import seeds
from naive import best_over_all_orders, expected_costs_of_order, order_costs
from peakrl import PeakError
from peakrl.errors import ProblemError
from peakrl.problems import Job, scheduling_example
from peakrl.problems.scheduling import (
    InfeasibleSchedule,
    dt_order,
    dt_order_or_least_late,
    earliest_deadline_order,
    earliest_due_order,
    evaluate_order,
    gantt,
    infeasible_reason,
    order_rule,
    shortest_processing_order,
    uniform,
)
from peakrl.problems.scheduling.jobs import named_jobs
from peakrl.problems.scheduling.orders import draw_jobs

TIME = st.integers(1, 10**9)


# Jobs -------------------------------------------------------------------------------------------------------------


BAD_JOBS = [
    ((0, 5, 9), ["processing", "0"]),
    ((2.5, 5, 9), ["processing", "2.5", "whole number"]),
    ((3, 0, 9), ["due", "0"]),
    ((3, 5, 10**12), ["deadline", "1,000,000,000"]),
    ((3, 5, 9, 0), ["weight", "0"]),
    ((7, 5, 6, 1, "saw"), ["'saw'", "deadline 6", "7"]),
    ((uniform(7, 9), 5, 6, 1, "saw"), ["'saw'", "deadline 6", "shortest", "7"]),
    (({2: 0.5, 3: 0.4}, 5, 9), ["sum to 0.9"]),
    (({2: 1.5, 3: -0.5}, 5, 9), ["processing", "-0.5"]),
    (([(2, 0.5), (3, 0.5)], 5, 9), ["0.5", "whole number"]),
    (([2, 3], 5, 9), ["2", "(probability, time)"]),
    ((3, 5, 9, 1, ""), ["name"]),
]


def test_a_bad_job_is_refused_with_the_job_and_the_field_named():
    for arguments, words in BAD_JOBS:
        with pytest.raises(ProblemError) as caught:
            Job(*arguments)
        assert all(word in str(caught.value) for word in words), caught.value


def test_a_deadline_that_only_the_longest_times_miss_is_accepted():
    assert Job(uniform(3, 8), due=4, deadline=5).longest == 8


@given(st.dictionaries(TIME, st.integers(1, 100), min_size=1, max_size=6))
def test_a_distribution_says_the_same_as_mapping_and_as_pairs_in_any_order(shares):
    total = sum(shares.values())
    mapping = {time: share / total for time, share in shares.items()}
    job = Job(mapping, 1, 10**9)
    assert job == Job([(p, t) for t, p in reversed(mapping.items())], 1, 10**9)
    assert [time for _, time in job.pairs] == sorted(shares)
    assert job.mean == pytest.approx(sum(p * t for t, p in mapping.items()))
    assert hash(job) == hash(Job(mapping, 1, 10**9))


def test_a_distribution_of_one_time_is_a_fixed_time():
    assert Job({4: 1.0}, 5, 9) == Job(4, 5, 9) == Job(uniform(4, 4), 5, 9) == Job({4: 1.0, 7: 0.0}, 5, 9)


def test_numpy_integers_are_whole_numbers():
    assert Job(np.int32(4), np.int64(5), np.uint8(9)) == Job(4, 5, 9)


BAD_INSTANCES = [
    ([], ["at least one job"]),
    ([Job(1, 1, 1, name="a"), Job(1, 1, 1, name="a")], ["1 and 2", "'a'"]),
    ([Job(1, 1, 1, name="2"), Job(1, 1, 1)], ["1 and 2"]),
    ([Job(1, 1, 1), (1, 1, 1)], ["number 2"]),
    (Job(1, 1, 1), ["sequence"]),
    (7, ["sequence", "7"]),
    ([Job(10**9, 1, 10**9)] * 3, ["coarser"]),
]


def test_a_bad_instance_is_refused_with_the_culprit_named():
    for jobs, words in BAD_INSTANCES:
        with pytest.raises(ProblemError) as caught:
            named_jobs(jobs)
        assert all(word in str(caught.value) for word in words), caught.value


RANGES = [(4, 2), (0, 2), (1.5, 2), (1, 10**8)]


def test_a_range_of_times_must_be_whole_positive_rising_and_not_too_long():
    for low, high in RANGES:
        with pytest.raises(ProblemError, match="uniform"):
            uniform(low, high)


# Orders -----------------------------------------------------------------------------------------------------------


def test_an_order_of_example_1_comes_to_what_a_hand_works_out():
    schedule = evaluate_order(scheduling_example(1).jobs, (4, 5, 1, 2, 3))
    assert schedule.completion == {4: 9, 5: 19, 1: 22, 2: 27, 3: 34}
    assert schedule.slack == {4: 9, 5: 2, 1: 8, 2: 1, 3: 1}
    assert (schedule.max_tardiness, schedule.total_tardiness, schedule.weighted_late_work) == (1, 2, 2.0)
    assert schedule.feasible
    assert schedule.objective("max_tardiness") == 1.0


@seeds(20)
def test_an_order_costs_what_the_definitions_say(seed):
    jobs = random_jobs(seed)
    order = np.random.default_rng(seed).permutation(len(jobs))
    schedule = evaluate_order(jobs, [int(place) + 1 for place in order])
    expected = {what: value[0] for what, value in order_costs(jobs, order[None]).items()}
    assert schedule.violation == expected.pop("violation")
    assert {what: schedule.objective(what) for what in expected} == expected


def test_gantt_bars_follow_each_other_without_a_gap_and_carry_due_times_and_deadlines():
    jobs = scheduling_example(2).jobs
    bars = gantt(jobs, earliest_due_order(jobs))
    assert [bar.start for bar in bars] == [0, *(bar.end for bar in bars[:-1])]
    by_name = {job.name: job for job in jobs}
    for bar in bars:
        job = by_name[bar.job]
        assert (bar.end - bar.start, bar.due, bar.deadline) == (job.processing, job.due, job.deadline)


def test_an_order_that_is_no_permutation_is_refused():
    for order in ((1, 2, 3, 4), (1, 2, 3, 4, 4), (1, 2, 3, 4, 6), (1, 2, 3, 4, 5, 5), ()):
        with pytest.raises(ProblemError, match="must name each job once: 1, 2, 3, 4, 5"):
            evaluate_order(scheduling_example(1).jobs, order)


def test_an_order_of_random_times_is_refused_until_they_are_drawn():
    with pytest.raises(ProblemError, match="random processing time"):
        evaluate_order(scheduling_example(3).jobs, (1, 2, 3, 4, 5))


def test_an_unknown_objective_of_a_schedule_is_refused():
    with pytest.raises(ProblemError, match="makespan"):
        evaluate_order([Job(1, 1, 1)], [1]).objective("makespan")


# Rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "optimum", "edd"), [(1, 1, 5), (2, 22, 26)])
def test_dt_and_edd_reach_the_papers_numbers_with_every_deadline_met(number, optimum, edd):
    jobs = scheduling_example(number).jobs
    by_dt, by_edd = (evaluate_order(jobs, rule(jobs)) for rule in (dt_order, earliest_deadline_order))
    assert (by_dt.max_tardiness, by_edd.max_tardiness) == (optimum, edd)
    assert by_dt.feasible
    assert by_edd.feasible


def test_dt_finds_the_papers_order_of_example_1():
    assert dt_order(scheduling_example(1).jobs) == (4, 5, 1, 2, 3)


@pytest.mark.parametrize("block", range(4))
def test_dt_equals_trying_every_order_and_refuses_exactly_the_infeasible_instances(block):
    feasible = 0
    for seed in range(block * 100, block * 100 + 100):
        jobs = random_jobs(seed)
        violation, optimum = best_over_all_orders(jobs, "max_tardiness")
        if violation > 0:
            with pytest.raises(InfeasibleSchedule):
                dt_order(jobs)
            continue
        feasible += 1
        schedule = evaluate_order(jobs, dt_order(jobs))
        assert (schedule.violation, schedule.max_tardiness) == (0, optimum), seed
    assert 30 < feasible < 95


def check_against_constraint_programming(seeds):
    for seed in seeds:
        jobs = random_jobs(seed)
        optimum = constraint_programme(jobs, "max_tardiness")
        assert (optimum is None) == (infeasible_reason(jobs) is not None), seed
        if optimum is not None:
            assert evaluate_order(jobs, dt_order(jobs)).max_tardiness == optimum, seed


def test_dt_equals_constraint_programming():
    check_against_constraint_programming(range(60))


@pytest.mark.slow
def test_dt_equals_constraint_programming_on_hundreds_of_instances():
    check_against_constraint_programming(range(1000, 1400))


@seeds(25)
def test_edd_by_deadline_meets_every_deadline_if_any_order_does(seed):
    jobs = random_jobs(seed, most=7)
    violation, _ = best_over_all_orders(jobs, "max_tardiness")
    assert evaluate_order(jobs, earliest_deadline_order(jobs)).feasible == (violation == 0)


def test_the_reason_of_infeasibility_names_jobs_that_cannot_all_be_in_time():
    jobs = [
        Job(3, 9, 7, name="saw"),
        Job(4, 9, 6, name="drill"),
        Job(5, 9, 8, name="paint"),
        Job(2, 30, 30, name="pack"),
    ]
    reason = infeasible_reason(jobs)
    assert "saw, drill, paint take 12" in reason
    assert "job paint" in reason
    assert "miss it by 4" in reason
    assert "pack" not in reason
    with pytest.raises(InfeasibleSchedule, match="saw, drill, paint"):
        dt_order(jobs)


def test_dt_past_infeasibility_puts_the_latest_deadline_last_and_is_dt_where_feasible():
    jobs = [Job(3, 9, 7), Job(4, 9, 6), Job(5, 9, 8)]
    assert dt_order_or_least_late(jobs)[-1] == 3
    example = scheduling_example(2).jobs
    assert dt_order_or_least_late(example) == dt_order(example)


def test_sorting_rules_sort_by_what_their_names_say_and_keep_ties_in_place():
    jobs = [Job(3, 9, 9), Job(uniform(1, 4), 7, 20), Job(1, 7, 9)]
    assert earliest_deadline_order(jobs) == (1, 3, 2)
    assert earliest_due_order(jobs) == (2, 3, 1)
    assert shortest_processing_order(jobs) == (3, 2, 1)


def test_an_order_as_a_rule_does_the_first_job_not_yet_done():
    state = scheduling_example(1).state_after([5, 4])
    assert order_rule((4, 5, 1, 2, 3))(2, state) == 1
    with pytest.raises(ProblemError, match="no job that is left"):
        order_rule((4, 5))(2, state)


# Random times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [earliest_deadline_order, shortest_processing_order])
def test_simulated_means_agree_with_every_combination_of_times(rule):
    jobs = scheduling_example(3).jobs
    order = rule(jobs)
    runs = known_times(jobs, lambda _: order, tests=4000, seed=3)
    expected = expected_costs_of_order(jobs, [name - 1 for name in order])
    for what, mean in expected.items():
        sample = np.array([getattr(run, what) for run in runs])
        assert sample.mean() == pytest.approx(mean, abs=4 * sample.std() / 4000**0.5 + 1e-12), what


def test_dt_that_knows_the_times_is_never_worse_than_any_rule_where_deadlines_can_be_met():
    jobs = scheduling_example(3).jobs
    rules = (dt_order_or_least_late, earliest_deadline_order)
    both = zip(*(known_times(jobs, rule, tests=300, seed=1) for rule in rules), strict=True)
    met = [(dt, edd) for dt, edd in both if edd.feasible]
    assert 0 < len(met) < 300
    assert all(dt.feasible and dt.max_tardiness <= edd.max_tardiness for dt, edd in met)


def test_the_same_seed_draws_the_same_times():
    jobs = scheduling_example(3).jobs
    assert draw_jobs(jobs, 5) == draw_jobs(jobs, 5)
    assert draw_jobs(jobs, 5) != draw_jobs(jobs, 6)


def test_a_time_beyond_the_deadline_may_be_drawn_and_is_a_violation():
    job = Job({2: 1e-9, 9: 1 - 1e-9}, 5, 6)
    (drawn,) = draw_jobs([job], 0)
    assert evaluate_order([drawn], [1]).violation == 3


@given(st.lists(st.tuples(TIME, TIME, TIME, st.floats()), max_size=4))
def test_whatever_numbers_are_given_the_result_is_a_schedule_or_a_peak_error(rows):
    try:
        jobs = named_jobs(Job(*row) for row in rows)
        schedule = evaluate_order(jobs, dt_order(jobs))
    except PeakError:
        return
    assert schedule.feasible
