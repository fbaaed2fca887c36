from __future__ import annotations

import itertools

import numpy as np
import pytest

import peakrl
from helpers.random_jobs import constraint_programme, random_jobs
from helpers.seeds import seeds
from naive import best_over_all_orders, expected_costs_of_order
from peakrl import Policy, compile_model, solve
from peakrl.compile import explore
from peakrl.errors import PolicyError, ProblemError
from peakrl.problems import Job, machine_scheduling, scheduling_example
from peakrl.problems.scheduling import (
    dt_order,
    earliest_deadline_order,
    evaluate_order,
    infeasible_reason,
    order_of,
    order_rule,
    uniform,
)
from peakrl.problems.scheduling.orders import OBJECTIVES, draw_jobs
from peakrl.schedule_labels import ScheduleState


def expected_totals(problem, rule):
    """(expected reward, expected violation) of a rule, by following every outcome."""

    def follow(step, state):
        if step == problem.horizon:
            return np.zeros(2)
        return sum(
            o.probability * (np.array([o.reward, max(0.0, -o.constraints[0])]) + follow(step + 1, o.next_state))
            for o in problem.outcomes(step, state, rule(step, state))
        )

    ((_, first),) = problem.initial()
    return follow(0, first)


# States and arrays ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "states"), [(1, 88), (2, 5678), (3, 1565)])
def test_the_papers_examples_have_as_many_states_as_can_be_reached(number, states):
    assert compile_model(scheduling_example(number)).num_states == states


@pytest.mark.parametrize("objective", ["total_tardiness", "weighted_late_work"])
def test_with_fixed_times_and_a_sum_as_objective_a_state_is_a_set_of_jobs(objective):
    model = compile_model(machine_scheduling([Job(i + 1, 3 * i + 1, 200) for i in range(15)], objective=objective))
    assert (model.num_states, model.num_pairs) == (2**15, 15 * 2**14)


def test_a_state_holds_no_more_than_what_does_not_follow_from_the_jobs_done():
    order, times = (5, 4), {4: 9, 5: 8}
    assert scheduling_example(1).state_after(order) == ScheduleState((4, 5), worst=4)
    assert scheduling_example(1, objective="total_tardiness").state_after(order) == ScheduleState((4, 5))
    assert scheduling_example(3).state_after(order, times) == ScheduleState((4, 5), time=17, worst=2)
    fixed = scheduling_example(3, objective="weighted_late_work").state_after(order, times)
    assert repr(fixed) == "ScheduleState(done=(4, 5), time=17)"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_fast_way_to_the_arrays_gives_the_same_model_as_exploring(objective):
    for seed, random_times in itertools.product(range(6), (False, True)):
        jobs = random_jobs(seed, most=5 if random_times else 7, random_times=random_times)
        problem = machine_scheduling(jobs, objective=objective)
        fast, slow = compile_model(problem), explore(problem)
        assert fast.digest == slow.digest, seed
        assert list(fast.state_labels) == list(slow.state_labels), seed
        assert list(fast.action_labels) == list(slow.action_labels), seed


def test_labels_are_found_by_value_and_by_slice_without_a_table_of_objects():
    labels = compile_model(scheduling_example(3)).state_labels
    assert [labels.index(label) for label in labels] == list(range(len(labels)))
    assert labels[3:9:2] == [labels[3], labels[5], labels[7]]
    for stranger in [ScheduleState((1,), 2, 1), ScheduleState((1,)), ScheduleState((9,), 2, 0), (1, 2), None, "state"]:
        assert stranger not in labels


@seeds(20)
def test_declared_bounds_hold_and_are_reached(seed):
    for objective in OBJECTIVES:
        problem = machine_scheduling(random_jobs(seed, most=6, random_times=seed % 2 == 1), objective=objective)
        payoffs = compile_model(problem).payoffs
        (lo, hi), (bound,) = problem.reward_range, problem.constraint_bounds
        assert lo <= payoffs.reward.min()
        assert payoffs.reward.max() <= hi
        assert np.abs(payoffs.constraints).max() == bound or (bound == 1.0 and not payoffs.constraints.any())
        if objective != "max_tardiness":
            assert payoffs.reward.min() == lo


def test_a_problem_that_would_not_fit_is_refused_at_once_with_the_estimate():
    problem = machine_scheduling([Job(1, 1, 99)] * 40)
    with pytest.raises(ProblemError, match="has 1,099,511,627,776 states; a model holds at most"):
        compile_model(problem, memory_limit=1e9)
    with pytest.raises(ProblemError, match=r"1,048,576 states and 10,485,760 pairs .* 1\.78 GB: .* 1 GB"):
        compile_model(machine_scheduling([Job(1, 1, 99)] * 20), memory_limit=1e9)


def test_a_problem_that_turns_out_too_large_is_refused_before_the_layer_that_would_not_fit():
    problem = machine_scheduling([Job(3 * i + 1, 7 * i + 1, 900) for i in range(12)])
    with pytest.raises(ProblemError, match=r"at least .* pairs by step [5-9], about .* memory_limit"):
        compile_model(problem, memory_limit=5e7)
    assert compile_model(problem, memory_limit=2e8).num_states == compile_model(problem).num_states


def test_more_states_than_can_be_numbered_are_refused_whatever_the_memory():
    with pytest.raises(ProblemError, match="a model holds at most"):
        compile_model(machine_scheduling([Job(1, 1, 99)] * 70), memory_limit=float("inf"))


# Optima -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "optimum"), [(1, 1.0), (2, 22.0)])
def test_solving_the_papers_examples_reaches_dts_optimum(number, optimum):
    problem = scheduling_example(number)
    best = solve(compile_model(problem))
    assert (best.value, best.violation, best.feasible) == (-optimum, 0.0, True)
    schedule = evaluate_order(problem.jobs, order_of(best.policy))
    assert (schedule.max_tardiness, schedule.violation) == (optimum, 0)


def test_example_3_has_the_least_violation_and_the_tardiness_that_are_known():
    best = solve(compile_model(scheduling_example(3)))
    assert best.violation == pytest.approx(0.2662, abs=5e-5)
    assert best.value == pytest.approx(-7.0, abs=1e-9)
    assert not best.feasible


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_solving_equals_trying_every_order(objective):
    feasible = 0
    for seed in range(60):
        jobs = random_jobs(seed, most=7)
        violation, optimum = best_over_all_orders(jobs, objective)
        best = solve(compile_model(machine_scheduling(jobs, objective=objective)))
        assert (best.violation, -best.value) == (violation, optimum), seed
        schedule = evaluate_order(jobs, order_of(best.policy))
        assert (schedule.violation, schedule.objective(objective)) == (violation, optimum), seed
        assert best.feasible == (infeasible_reason(jobs) is None)
        feasible += best.feasible
    assert 10 < feasible < 55


def check_total_tardiness(seeds):
    for seed in seeds:
        jobs = random_jobs(seed)
        best = solve(compile_model(machine_scheduling(jobs, objective="total_tardiness")))
        assert (-best.value if best.feasible else None) == constraint_programme(jobs, "total_tardiness"), seed


def test_least_total_tardiness_equals_constraint_programming():
    check_total_tardiness(range(40))


@pytest.mark.slow
def test_least_total_tardiness_equals_constraint_programming_on_hundreds_of_instances():
    check_total_tardiness(range(2000, 2300))


@pytest.mark.slow
def test_twelve_jobs_compile_and_solve_to_dts_optimum():
    rng = np.random.default_rng(1)
    times = rng.integers(1, 21, 12).tolist()
    jobs = [Job(t, int(rng.integers(sum(times) // 4, sum(times))), sum(times)) for t in times]
    best = solve(compile_model(machine_scheduling(jobs)))
    assert -best.value == evaluate_order(jobs, dt_order(jobs)).max_tardiness


@seeds(25)
def test_random_times_are_infeasible_exactly_where_the_longest_times_are(seed):
    jobs = random_jobs(seed, most=5, random_times=True)
    assert solve(compile_model(machine_scheduling(jobs))).feasible == (infeasible_reason(jobs) is None)


def test_an_infeasible_instance_is_explained_by_a_job_and_how_late_it_is():
    jobs = [Job(3, 9, 12, name="saw"), Job(4, 9, 6, name="drill"), Job(5, 9, 8, name="paint")]
    reason = solve(compile_model(machine_scheduling(jobs))).reason
    assert "'deadline'" in reason
    assert "'drill'" in reason or "'paint'" in reason


# Policies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_policys_value_is_minus_the_expected_objective(objective):
    problem = scheduling_example(3, objective=objective)
    order = earliest_deadline_order(problem.jobs)
    value, violation = expected_totals(problem, order_rule(order))
    expected = expected_costs_of_order(problem.jobs, [name - 1 for name in order])
    assert -value == pytest.approx(expected[objective])
    assert violation == pytest.approx(expected["violation"])


def test_a_rule_becomes_a_policy_that_follows_its_order():
    problem = scheduling_example(2)
    order = earliest_deadline_order(problem.jobs)
    policy = Policy.from_rule(compile_model(problem), order_rule(order))
    assert order_of(policy) == order
    assert policy.action(3, problem.state_after(order[:3])) == order[3]


def test_a_policy_over_random_times_has_no_single_order():
    policy = solve(compile_model(scheduling_example(3))).policy
    with pytest.raises(PolicyError, match="random processing times"):
        order_of(policy)


def test_times_drawn_once_give_a_problem_with_fixed_times():
    jobs = draw_jobs(scheduling_example(3).jobs, 4)
    best = solve(compile_model(machine_scheduling(jobs)))
    assert (best.violation, -best.value) == best_over_all_orders(jobs, "max_tardiness")


# Input ------------------------------------------------------------------------------------------------------------


def test_one_job_that_ends_on_its_deadline_makes_a_problem():
    best = solve(compile_model(machine_scheduling([Job(4, 1, 4)])))
    assert (best.value, best.feasible) == (-3.0, True)


BAD_INPUT = [
    (lambda: machine_scheduling([Job(1, 1, 1)], objective="makespan"), ["'makespan'", "total_tardiness"]),
    (lambda: machine_scheduling([]), ["at least one job"]),
    (lambda: machine_scheduling([Job(1, 1, 9, name="a"), Job(1, 1, 9, name="a")]), ["'a'"]),
    (lambda: scheduling_example(4), ["4", "1, 2 and 3"]),
    (lambda: scheduling_example(1).state_after([7]), ["7", "1, 2, 3, 4, 5"]),
    (lambda: scheduling_example(1).state_after([2, 2]), ["2", "already"]),
    (lambda: scheduling_example(3).state_after([1]), ["job 1", "[2, 3, 4]"]),
    (lambda: scheduling_example(3).state_after([1], {1: 7}), ["job 1", "[2, 3, 4]"]),
]


def test_bad_input_is_refused_with_the_culprit_named():
    for make, words in BAD_INPUT:
        with pytest.raises(ProblemError) as caught:
            make()
        assert all(word in str(caught.value) for word in words), caught.value


def test_problems_are_values():
    jobs = [Job(uniform(1, 2), 2, 3), Job(2, 2, 4)]
    assert machine_scheduling(jobs) == machine_scheduling(tuple(jobs))
    assert hash(machine_scheduling(jobs)) == hash(machine_scheduling(jobs))
    assert machine_scheduling(jobs) != machine_scheduling(jobs, objective="total_tardiness")


def test_the_planners_reason_begins_with_the_jobs_that_cannot_all_be_in_time(tmp_path):
    jobs = [Job(3, 4, 5, name="a"), Job(4, 6, 6, name="b"), Job(2, 9, 12, name="c")]
    problem = machine_scheduling(jobs)
    reason = peakrl.solve(problem).reason
    assert reason.startswith(f"{peakrl.problems.scheduling.infeasible_reason(jobs)}. Step by step: at step ")
    peakrl.learn(problem, episodes=10).save(tmp_path / "run")
    assert peakrl.solve(peakrl.load(tmp_path / "run").model).reason == reason
    assert compile_model(peakrl.problems.scheduling_example(1)).infeasible_reason is None
