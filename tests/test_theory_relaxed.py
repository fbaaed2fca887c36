"""The occupancy programme against cvxpy, and the paper's chain of inequalities."""

import math

import numpy as np
import pytest

import naive
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import Policy, TabularModel, compile_model, solve
from peakrl.errors import SettingsError
from peakrl.policy import StochasticPolicy
from peakrl.theory import default_penalty, solve_modified, solve_relaxed


def coin_model(horizon=1):
    """One state; action 0 earns nothing, action 1 earns 1 and violates by 1."""
    return TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[[0.0, -1.0]]], horizon)


@seeds(25)
def test_cvxpy_finds_the_same_value(seed):
    problem = random_problem(seed)
    slack = [0.05, 0.3, 1.0][seed % 3]
    value = naive.occupancy_programme(problem, slack)
    found = solve_relaxed(compile_model(problem), slack)
    assert found.feasible == (value is not None)
    if value is not None:
        assert found.value == pytest.approx(value, abs=1e-9)
        assert found.reason is None


@seeds(25)
def test_the_policy_earns_what_the_solution_says_and_keeps_every_step_within_the_slack(seed):
    problem, slack = random_problem(seed), 0.25
    found = solve_relaxed(compile_model(problem), slack)
    chances = found.policy.probabilities
    assert naive.expected_sum(problem, chances, naive.plain_reward) == pytest.approx(found.value, abs=1e-9)
    assert naive.expected_sum(problem, chances, naive.total_violation) == pytest.approx(found.violation, abs=1e-9)
    if not found.feasible:
        return
    for stop in range(problem.horizon):
        for i in range(len(problem.constraint_names)):
            used = [0.0]
            step_violation(problem, chances, stop, i, used)
            assert used[0] <= slack + 1e-8


def step_violation(problem, chances, stop, constraint, used):
    """Add E|f_i^-| at step `stop` to used[0], by walking every path."""

    def walk(step, state, weight):
        for action, chance in chances(step, state).items():
            for outcome in problem.outcomes(step, state, action):
                share = weight * chance * outcome.probability
                if share > 0 and step == stop:
                    used[0] += share * max(-outcome.constraints[constraint], 0.0)
                elif share > 0:
                    walk(step + 1, outcome.next_state, share)

    for p, state in problem.initial():
        if p > 0:
            walk(0, state, p)


@pytest.mark.parametrize("slack", [0.01, 0.3, 2.0])
@seeds(25)
def test_optimum_modified_and_relaxed_optimum_are_ordered_as_in_the_lemmas(seed, slack):
    model = compile_model(random_problem(seed, safe_action=True))
    best, modified, relaxed = solve(model), solve_modified(model, slack), solve_relaxed(model, slack)
    assert best.feasible
    assert relaxed.feasible
    room = 1e-8
    assert best.value <= modified.value + room
    assert modified.value <= relaxed.value + room
    assert relaxed.value <= modified.value + default_penalty(model, slack) * model.horizon * slack + room


def test_a_relaxed_optimum_may_have_to_toss_a_coin():
    found = solve_relaxed(coin_model(3), 0.25)
    assert found.value == pytest.approx(0.75)
    assert found.violation == pytest.approx(0.75)
    assert isinstance(found.policy, StochasticPolicy)
    assert found.policy.probabilities(2, 0) == pytest.approx({0: 0.75, 1: 0.25})


def test_a_slack_that_never_binds_leaves_a_plain_policy():
    found = solve_relaxed(coin_model(3), 1.0)
    assert (found.value, found.violation, found.feasible) == (3.0, 3.0, True)
    assert isinstance(found.policy, Policy)
    assert found.policy.action(0, 0) == 1


def test_a_slack_of_0_is_the_original_problem():
    model = compile_model(random_problem(7, safe_action=True))
    relaxed, best = solve_relaxed(model, 0), solve(model)
    assert (relaxed.value, relaxed.violation, relaxed.feasible) == (best.value, 0.0, True)


def test_a_slack_of_0_does_not_overlook_a_violation_below_the_solvers_tolerance():
    model = TabularModel.from_arrays(
        np.ones((2, 1, 2)) / 2, [[1.0], [1.0]], [[[0.0], [-1.0]]], 1, initial=[1 - 1e-13, 1e-13]
    )
    assert not solve_relaxed(model, 0.0).feasible


def test_units_of_reward_and_constraint_do_not_change_the_policy():
    for seed in range(8):
        tables = np.random.default_rng(seed)
        transitions = tables.dirichlet(np.ones(3), size=(3, 2))
        rewards, constraints = tables.random((3, 2)), tables.normal(size=(1, 3, 2))
        plain = solve_relaxed(TabularModel.from_arrays(transitions, rewards, constraints, 3), 0.5)
        scaled = solve_relaxed(
            TabularModel.from_arrays(transitions, 1e6 * rewards - 7e6, 1e-7 * constraints, 3), 0.5e-7
        )
        assert plain.feasible == scaled.feasible
        if plain.feasible:
            assert scaled.value == pytest.approx(1e6 * plain.value - 3 * 7e6, rel=1e-9)


def test_an_infeasible_slack_gives_the_least_violation_and_names_the_slack_needed():
    transitions = np.ones((1, 2, 1))
    model = TabularModel.from_arrays(
        transitions, [[0.0, 1.0]], [[[-0.75, -1.0]], [[0.0, -1.0]]], 2, constraint_names=["power", "heat"]
    )
    found, best = solve_relaxed(model, 0.5), solve(model)
    assert not found.feasible
    assert (found.value, found.violation) == (best.value, best.violation) == (0.0, 1.5)
    assert found.policy.action(0, 0) == 0
    assert "the least feasible limit is 0.75" in found.reason
    assert "'power' at step" in found.reason
    assert "heat" not in found.reason


@seeds(25)
def test_the_least_slack_that_is_named_can_be_kept_and_less_cannot(seed):
    model = compile_model(random_problem(seed, safe_action=False))
    found = solve_relaxed(model, 0.1)
    if found.feasible:
        return
    least = float(found.reason.split("feasible limit is ")[1].split(",")[0])
    assert solve_relaxed(model, least * 1.0001).feasible
    assert not solve_relaxed(model, least * 0.9999).feasible


def test_states_that_nobody_meets_get_the_action_of_least_violation():
    # State 1 is met only by leaving state 0 through an action worth nothing.
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0, 0] = transitions[0, 1, 1] = transitions[1, :, 1] = 1
    rewards = [[1.0, 0.0], [1.0, 0.0]]
    constraints = [[[0.0, 0.0], [-1.0, 0.0]]]
    found = solve_relaxed(TabularModel.from_arrays(transitions, rewards, constraints, 3), 0.1)
    assert found.value == pytest.approx(3.0)
    assert found.policy.probabilities(1, 1) == {1: 1.0}


def test_without_constraints_the_relaxed_problem_is_the_original():
    model = TabularModel.from_arrays(np.ones((1, 2, 1)), [[1.0, 3.0]], np.zeros((0, 1, 2)), 4)
    assert solve_relaxed(model, 0.1).value == pytest.approx(12.0)


@pytest.mark.parametrize("slack", [-0.1, math.nan, "a"])
def test_a_slack_that_is_no_number_from_0_up_is_refused(slack):
    with pytest.raises(SettingsError, match="slack is"):
        solve_relaxed(coin_model(), slack)
