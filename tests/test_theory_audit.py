"""What the audit says of problems whose answer is known on paper."""

import json

import numpy as np
import pytest

import naive
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import TabularModel, compile_model, solve
from peakrl.errors import SettingsError
from peakrl.theory import audit_slack, pac_plan, solve_modified, solve_relaxed


def temptation(violation, horizon=2, reward=1.0):
    """One state: action 0 keeps the constraint and earns nothing, action 1 violates it and earns `reward`."""
    return TabularModel.from_arrays(
        np.ones((1, 2, 1)), [[0.0, reward]], [[[1.0, -violation]]], horizon,
        reward_range=(0.0, 1.0), constraint_bounds=[1.0], constraint_names=["limit"],
    )  # fmt: skip


def check(report, name):
    return next(c for c in report.checks if name in c.name)


def test_a_violation_within_the_slack_is_reported_as_free_with_the_value_it_wins():
    report = audit_slack(temptation(0.05), slack=0.1)
    assert report.free_violation == pytest.approx(0.1)
    assert report.value_won == pytest.approx(2.0)
    assert not report.exact
    assert not report.deterred_by_rule
    assert report.optimum.value == 0.0
    assert report.modified.value == 2.0


def test_a_violation_beyond_a_quarter_more_than_the_slack_is_deterred():
    report = audit_slack(temptation(0.126), slack=0.1)
    assert report.deterred_violation == pytest.approx(0.125)
    assert report.smallest_violation == pytest.approx(0.126)
    assert report.deterred_by_rule
    assert report.exact
    assert report.free_violation == 0.0
    assert report.value_won == 0.0


def test_the_rule_is_sharp_for_one_step_and_the_full_range():
    assert not audit_slack(temptation(0.124, horizon=1), slack=0.1).exact
    assert audit_slack(temptation(0.126, horizon=1), slack=0.1).exact


@seeds(25)
def test_whatever_the_rule_calls_deterred_is_exact(seed):
    rng = np.random.default_rng(seed)
    states, actions, slack = 3, 3, 0.2
    transitions = np.eye(states)[rng.integers(states, size=(states, actions))]
    constraints = rng.choice([1.0, -0.251, -0.6], size=(2, states, actions))
    constraints[:, :, 0] = 0.0
    model = TabularModel.from_arrays(
        transitions, rng.random((states, actions)), constraints, 4, reward_range=(0.0, 1.0),
        initial=np.full(states, 1 / states),
    )  # fmt: skip
    report = audit_slack(model, slack=slack, relaxed=False)
    assert report.deterred_violation == pytest.approx(0.25)
    assert report.deterred_by_rule
    assert report.exact


def test_the_rule_does_not_speak_for_random_outcomes():
    # A violation of 0.5 once in a hundred times costs less than the reward of 0.99 that it may lead to.
    transitions, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2))
    transitions[0, 0] = [1, 0, 0]
    transitions[0, 1] = [0, 0.99, 0.01]
    transitions[1:, :, 0] = 1
    rewards[0, 1] = rewards[1] = 1.0
    constraints = np.zeros((1, 3, 2))
    constraints[0, 2] = -0.5
    report = audit_slack(TabularModel.from_arrays(transitions, rewards, constraints, 2), slack=0.1)
    assert report.random_outcomes
    assert report.smallest_violation > report.deterred_violation
    assert not report.deterred_by_rule
    assert not report.exact
    assert report.free_violation == pytest.approx(0.005)


@seeds(20)
def test_the_numbers_are_those_of_the_solvers_and_of_walking_through_the_policy(seed):
    problem = random_problem(seed)
    model = compile_model(problem)
    report = audit_slack(model, slack=0.3)
    chances = report.modified.policy.probabilities
    value = naive.expected_sum(problem, chances, naive.plain_reward)
    assert report.free_violation == pytest.approx(naive.expected_sum(problem, chances, naive.total_violation), abs=1e-9)
    assert report.value_won == pytest.approx(value - solve(model).value, abs=1e-9)
    numbers = report.as_dict()
    assert numbers["modified_value"] == solve_modified(model, 0.3).value
    relaxed = solve_relaxed(model, 0.3)
    assert numbers["relaxed_value"] == (pytest.approx(relaxed.value) if relaxed.feasible else None)
    assert numbers["exact"] == (solve(model).feasible and report.free_violation == 0 and abs(report.value_won) < 1e-9)
    assert numbers["feasible"] == check(report, "some policy never violates").holds


def test_the_episodes_are_those_of_theorem_1_at_the_accuracy_that_the_slack_serves():
    model = TabularModel.from_arrays(
        np.ones((1, 2, 1)), [[-3.0, 5.0]], [[[2.0, -4.0]], [[1.0, 1.0]]], 3, constraint_bounds=[4.0, 1.0]
    )
    report = audit_slack(model, slack=0.2, failure_probability=0.01)
    epsilon = 6 * 3 * 2 * 0.2 / 4.0
    assert report.epsilon == pytest.approx(epsilon)
    assert report.promised_value_gap == pytest.approx(epsilon * 8)
    assert report.promised_violation == pytest.approx(6 * 3 * 2 * 0.2)
    assert report.plan.slack * 4.0 == pytest.approx(0.2)
    expected = pac_plan(epsilon=epsilon, failure_probability=0.01, states=1, actions=2, horizon=3, constraints=2)
    assert report.plan.episodes == pytest.approx(expected.episodes, rel=1e-9)


def test_at_a_horizon_of_one_the_plan_still_comes_back_to_the_same_slack():
    assert audit_slack(temptation(0.5, horizon=1), slack=0.2).plan.slack == pytest.approx(0.2)


def test_an_infeasible_problem_fails_its_check_with_the_reason():
    model = TabularModel.from_arrays(np.ones((1, 1, 1)), [[1.0]], [[[-1.0]]], 2, constraint_names=["limit"])
    report = audit_slack(model, slack=0.1)
    failed = check(report, "some policy never violates")
    assert not failed.holds
    assert failed.detail == solve(model).reason
    assert not report.exact
    assert "check its sign" in check(report, "'limit' can be satisfied").detail
    assert not check(report, "'limit' can be satisfied").holds
    assert "optimum violation" in str(report)
    assert "the least feasible limit is 1" in str(report)


def test_a_constraint_that_never_binds_is_pointed_out():
    report = audit_slack(temptation(-0.5), slack=0.1)
    assert "has no effect" in check(report, "'limit' can be satisfied").detail
    assert report.smallest_violation is None
    assert report.exact


def test_a_slack_above_every_violation_is_pointed_out():
    assert not check(audit_slack(temptation(0.5), slack=0.6), "can exceed the slack").holds
    assert check(audit_slack(temptation(0.5), slack=0.4), "can exceed the slack").holds


def test_negative_rewards_are_shifted_and_outcome_payoffs_are_said():
    model = compile_model(random_problem(2, outcome_payoffs=True, states=3, horizon=3, stationary=False))
    report = audit_slack(model, slack=0.1)
    lo = model.reward_range[0]
    assert ("shift by" in check(report, "rewards are at least 0").detail) == (lo < 0)
    assert check(report, "state and action determine").holds == (model.payoffs.stride == 0)


def test_the_linear_programme_is_left_out_of_large_models_unless_asked(monkeypatch):
    monkeypatch.setattr("peakrl.theory.SMALL", 3)
    model = temptation(0.5)
    assert audit_slack(model, slack=0.1).relaxed is None
    assert audit_slack(model, slack=0.1).as_dict()["relaxed_value"] is None
    assert audit_slack(model, slack=0.1, relaxed=True).relaxed is not None
    monkeypatch.undo()
    assert audit_slack(model, slack=0.1).relaxed is not None
    assert audit_slack(model, slack=0.1, relaxed=False).relaxed is None


def test_a_slack_of_0_needs_a_penalty_and_has_no_theorem():
    with pytest.raises(SettingsError, match="slack is 0"):
        audit_slack(temptation(0.5), slack=0)
    report = audit_slack(temptation(0.5), slack=0, penalty=0.5)
    assert report.plan is None
    assert report.value_won == pytest.approx(2.0)  # a penalty of 0.5 for each unit: 0.25 against a reward of 1
    assert report.deterred_violation == pytest.approx(2 * 1 / 0.5)
    assert "requires a slack above 0" in str(report)


def test_a_penalty_of_0_deters_nothing():
    report = audit_slack(temptation(1.0), slack=0.1, penalty=0)
    assert report.free_violation == pytest.approx(2.0)
    assert report.as_dict()["deterred_violation"] is None


BAD_ARGUMENTS = [("slack", -1), ("penalty", float("nan")), ("failure_probability", 2), ("constant", 0)]


def test_a_bad_argument_is_refused_by_name():
    for argument, bad in BAD_ARGUMENTS:
        with pytest.raises(SettingsError, match=f"{argument} is"):
            audit_slack(temptation(0.5), **{"slack": 0.1, argument: bad})


@seeds(5)
def test_the_dictionary_is_plain_json_and_the_text_has_every_section(seed):
    report = audit_slack(compile_model(random_problem(seed)), slack=0.2)
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False)) == report.as_dict()
    text = str(report)
    for heading in ("Assumptions", "Size", "Result", "Theorem 1"):
        assert f"\n{heading}\n" in text


def test_without_constraints_everything_is_exact():
    model = TabularModel.from_arrays(np.ones((1, 2, 1)), [[1.0, 3.0]], np.zeros((0, 1, 2)), 4)
    report = audit_slack(model, slack=0.1)
    assert report.exact
    assert report.free_violation == 0.0


def test_an_audit_shows_in_one_line_what_matters_and_printed_all_of_it():
    assert repr(audit_slack(temptation(0.05), slack=0.1)).startswith(
        "<Audit of 'arrays': slack 0.1, fails: 'limit' can exceed the slack, permitted violation 0.1"
    )
    fine = audit_slack(temptation(1.0), slack=0.1)
    assert f"all {len(fine.checks)} assumptions hold" in repr(fine)
    assert "\n" not in repr(fine)
    assert "Theorem 1" in str(fine)
