"""Backward induction against every policy tried, a plain recursion and another library."""

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import assume

import naive
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import Outcome, Problem, TabularModel, compile_model, solve
from peakrl.errors import SettingsError
from peakrl.planning.backward import value_of
from peakrl.theory import default_penalty, solve_modified

SMALL = {"states": 2, "horizon": 3}


def chosen(policy):
    """A compiled policy as the naive evaluator asks for it."""
    return policy.probabilities


class Scripted(Problem):
    """A problem spelled out: {(step, state, action): [(probability, next, reward, constraints)]}."""

    name = "scripted"
    stationary = False

    def __init__(self, horizon, first, table, bounds=(10.0,), reward_range=(0.0, 10.0)):
        self.horizon, self.first, self.table = horizon, first, table
        self.constraint_names = tuple(f"f{i}" for i in range(len(bounds)))
        self.constraint_bounds, self.reward_range = bounds, reward_range

    def initial(self):
        return self.first

    def actions(self, step, state):
        return [action for (h, s, action) in self.table if (h, s) == (step, state)]

    def outcomes(self, step, state, action):
        return [Outcome(*entry) for entry in self.table[step, state, action]]


@seeds(25)
def test_no_deterministic_policy_does_better(seed):
    problem = random_problem(seed, **SMALL)
    violation, value = naive.best_of_all_tables(problem)
    best = solve(compile_model(problem))
    assert best.violation == pytest.approx(violation, abs=1e-9)
    assert best.value == pytest.approx(value, abs=1e-9)
    assert best.feasible == (violation == 0)
    assert (best.reason is None) == best.feasible


@seeds(25)
def test_larger_problems_agree_with_a_plain_recursion(seed):
    problem = random_problem(seed, states=6, actions=4, horizon=6, integer_constraints=seed % 3 == 0)
    violation, value = naive.least_violation_then_reward(problem)
    best = solve(compile_model(problem))
    assert (best.violation, best.value) == pytest.approx((violation, value), abs=1e-9)
    assert best.feasible == (violation == 0)


def test_both_feasible_and_infeasible_problems_are_among_those_tried():
    outcomes = {solve(compile_model(random_problem(seed, **SMALL))).feasible for seed in range(40)}
    assert outcomes == {True, False}


@seeds(25)
def test_the_policy_earns_and_violates_what_the_solution_says(seed):
    problem = random_problem(seed)
    best = solve(compile_model(problem))
    assert naive.expected_sum(problem, chosen(best.policy), naive.plain_reward) == pytest.approx(best.value, abs=1e-9)
    assert naive.expected_sum(problem, chosen(best.policy), naive.total_violation) == pytest.approx(
        best.violation, abs=1e-9
    )


@seeds(5)
def test_without_constraints_quantecon_finds_the_same_values_and_actions(seed):
    from quantecon.markov import DiscreteDP, backward_induction

    rng = np.random.default_rng(seed)
    states, actions, horizon = 7, 4, 5
    transitions = rng.dirichlet(np.ones(states), size=(states, actions))
    rewards = rng.normal(size=(states, actions))
    available = rng.random((states, actions)) < 0.7
    available[:, 1] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantecon says that its infinite-horizon methods are off without a discount
        other = DiscreteDP(np.where(available, rewards, -np.inf), transitions, 1.0)
        values, policy = backward_induction(other, horizon)
    model = TabularModel.from_arrays(
        transitions, rewards, np.zeros((0, states, actions)), horizon, available=available, initial=3
    )
    best = solve(model)
    np.testing.assert_allclose(best.node_values.reshape(horizon + 1, states), values, atol=1e-12)
    assert best.value == pytest.approx(values[0, 3])
    for step in range(horizon):
        assert [best.policy.action(step, state) for state in range(states)] == policy[step].tolist()


@seeds(25)
def test_no_deterministic_policy_has_a_larger_modified_value(seed):
    problem = random_problem(seed, **SMALL)
    model = compile_model(problem)
    slack = 0.4
    penalty = default_penalty(model, slack) if seed % 2 else 1.3

    def earned(outcome):
        return naive.modified_reward(outcome, slack, penalty)

    value = max(naive.expected_sum(problem, naive.follow(table), earned) for table in naive.every_table(problem))
    found = solve_modified(model, slack, None if seed % 2 else penalty)
    assert found.value == pytest.approx(value, rel=1e-9, abs=1e-9)
    violation = naive.expected_sum(problem, chosen(found.policy), naive.total_violation)
    assert found.violation == pytest.approx(violation, abs=1e-9)
    assert found.feasible == (violation == 0)
    assert (found.reason is None) == found.feasible


@seeds(25)
def test_the_modified_value_of_a_policy_is_its_value_less_the_charge_for_its_violations(seed):
    problem = random_problem(seed)
    model = compile_model(problem)
    slack, count = 0.2, max(model.num_constraints, 1)
    penalty = default_penalty(model, slack)
    found = solve_modified(model, slack)
    value = naive.expected_sum(problem, chosen(found.policy), naive.plain_reward)
    beyond = naive.expected_sum(
        problem, chosen(found.policy), lambda o: sum(min(0.0, min(f, 0.0) + slack) for f in o.constraints)
    )
    assert found.value == pytest.approx(value + penalty / count * beyond, rel=1e-9, abs=1e-9)


def test_a_slack_above_the_smallest_violation_lets_the_modified_optimum_violate_for_ever():
    # The paper's lemma says V* = W*; a violation of 0.05 under a slack of 0.1 is free and worth a reward of 1.
    problem = Scripted(
        1, [(1.0, "s")], {(0, "s", "keep"): [(1.0, "s", 2.0, (0.0,))], (0, "s", "break"): [(1.0, "s", 3.0, (-0.05,))]}
    )
    model = compile_model(problem)
    best, modified = solve(model), solve_modified(model, 0.1)
    assert (best.value, best.violation) == (2.0, 0.0)
    assert (modified.value, modified.violation) == (3.0, pytest.approx(0.05))
    assert not modified.feasible
    assert "free up to the slack of 0.1" in modified.reason
    strict = solve_modified(model, 0.01)
    assert (strict.value, strict.violation, strict.feasible, strict.reason) == (2.0, 0.0, True, None)


def test_without_constraints_the_modified_problem_is_the_original():
    model = TabularModel.from_arrays(np.ones((1, 2, 1)), [[1.0, 3.0]], np.zeros((0, 1, 2)), 4)
    assert solve(model).value == solve_modified(model, 0.1).value == 12.0


@pytest.mark.filterwarnings("ignore:.*may be rounding:RuntimeWarning")
def test_a_violation_however_small_and_unlikely_is_a_violation():
    table = {
        (0, 0, "risk"): [(1.0, 0, 10.0, (0.0,)), (1e-300, 0, 10.0, (-1e-30,))],
        (0, 0, "safe"): [(1.0, 0, 0.0, (0.0,))],
    }
    model = compile_model(Scripted(1, [(1.0, 0)], table))
    assert solve(model).policy.action(0, 0) == "safe"
    only = compile_model(Scripted(1, [(1.0, 0)], {(0, 0, "risk"): table[0, 0, "risk"]}))
    assert not solve(only).feasible


def test_a_danger_too_unlikely_for_a_float_is_still_avoided():
    # Ruin needs 50 steps of probability 1e-10 each: 1e-500 underflows, yet it can happen.
    table = {}
    for step in range(50):
        for state in range(step + 1):
            onward = [(1e-10, state + 1, 1.0, (0.0,)), (1 - 1e-10, state, 1.0, (0.0,))]
            table[step, state, "work"] = onward
            table[step, state, "rest"] = [(1.0, state, 0.0, (0.0,))]
    for state in range(51):
        table[50, state, "end"] = [(1.0, 0, 0.0, (-1.0 if state == 50 else 0.0,))]
    best = solve(compile_model(Scripted(51, [(1.0, 0)], table)))
    assert best.feasible
    assert best.policy.action(49, 49) == "rest"
    assert best.policy.action(0, 0) == "work"  # a later rest is enough
    forced = {key: value for key, value in table.items() if key[2] != "rest"}
    doomed = solve(compile_model(Scripted(51, [(1.0, 0)], forced)))
    assert not doomed.feasible
    assert "at step 50 in state 50" in doomed.reason


def test_a_first_state_too_unlikely_for_its_small_danger_to_be_a_float_still_counts():
    table = {(0, 0, "go"): [(1.0, 0, 1.0, (0.0,))], (0, 1, "go"): [(1.0, 0, 1.0, (-1e-300,))]}
    with pytest.warns(RuntimeWarning, match="may be rounding"):
        best = solve(compile_model(Scripted(1, [(1.0, 0), (1e-40, 1)], table)))
    assert not best.feasible
    assert best.violation > 0.0  # 1e-340 would be 0


def test_ties_go_to_the_action_offered_first():
    table = {(0, 0, name): [(1.0, 0, 1.0, (0.0,))] for name in ("b", "a", "c")}
    model = compile_model(Scripted(1, [(1.0, 0)], table))
    assert solve(model).policy.action(0, 0) == "b"
    assert solve_modified(model, 0.1).policy.action(0, 0) == "b"


def test_equal_violations_that_differ_by_rounding_are_told_apart_by_reward():
    tenths = [(0.1, i, 0.0, (0.0,)) for i in range(10)]
    assert np.cumsum([p * 0.3 for p, *_ in tenths])[-1] != 0.3
    for order in (("poor", "rich"), ("rich", "poor")):
        # Both come to a violation of 0.3, one by a sum of tenths; whichever of the two earns more must win.
        ways = {order[0]: tenths, order[1]: [(1.0, 0, 0.0, (0.0,))]}
        table = {(0, 0, name): [(p, s, 5.0 * (name == "rich"), f) for p, s, _, f in way] for name, way in ways.items()}
        table |= {(1, i, "end"): [(1.0, 0, 0.0, (-0.3,))] for i in range(10)}
        assert solve(compile_model(Scripted(2, [(1.0, 0)], table))).policy.action(0, 0) == "rich"


def test_a_slightly_larger_violation_is_not_bought_by_reward():
    table = {(0, 0, "rich"): [(1.0, 0, 9.0, (-0.3001,))], (0, 0, "poor"): [(1.0, 0, 0.0, (-0.3,))]}
    assert solve(compile_model(Scripted(1, [(1.0, 0)], table))).policy.action(0, 0) == "poor"


def test_the_reason_names_constraint_state_and_step_and_how_one_gets_there():
    table = {
        (0, "start", "go"): [(0.5, "trap", 1.0, (1.0, 1.0)), (0.5, "fine", 1.0, (1.0, 1.0))],
        (0, "start", "jump"): [(1.0, "fine", 1.0, (-2.0, 1.0))],
        (1, "trap", "left"): [(1.0, "end", 0.0, (-0.25, 1.0))],
        (1, "trap", "right"): [(0.5, "end", 0.0, (0.5, -3.0)), (0.5, "end2", 0.0, (0.5, 0.0))],
        (1, "fine", "left"): [(1.0, "end", 0.0, (0.0, 0.0))],
    }
    best = solve(compile_model(Scripted(2, [(1.0, "start")], table, bounds=(10.0, 10.0))))
    assert not best.feasible
    assert best.violation == pytest.approx(0.125)
    assert "at step 1 in state 'trap' every action violates immediately" in best.reason
    assert "action 'left' violates 'f0' by 0.25" in best.reason
    assert "action 'right' violates 'f1' by up to 3" in best.reason
    assert "step 0, state 'start', action 'go'" in best.reason
    assert "probability 1" in best.reason


def test_the_reason_leads_to_the_nearest_dead_end():
    table = {(step, state, 0): [(1.0, state, 1.0, (0.0,))] for step, state in [(1, "far"), (2, "near"), (3, "near")]}
    table |= {(0, "start", way): [(1.0, way, 1.0, (0.0,))] for way in ("far", "near")}
    table |= {(1, "near", 0): [(1.0, "near", 1.0, (-2.0,))], (2, "far", 0): [(1.0, "far", 0.0, (-1.0,))]}
    table |= {(3, "far", 0): [(1.0, "far", 1.0, (0.0,))]}
    reason = solve(compile_model(Scripted(4, [(1.0, "start")], table))).reason
    assert "at step 1 in state 'near'" in reason
    assert "step 0, state 'start', action 'near' may lead to 'near'" in reason
    assert "action 0 violates 'f0' by 2" in reason


def test_the_reason_says_when_the_dead_end_is_a_first_state():
    table = {(0, s, a): [(1.0, s, 0.0, (-1.0 if s == "bad" else 0.0,))] for s in ("good", "bad") for a in range(9)}
    reason = solve(compile_model(Scripted(1, [(0.75, "good"), (0.25, "bad")], table))).reason
    assert "at step 0 in state 'bad'" in reason
    assert "It is a first state, with probability 0.25." in reason
    assert "and 6 more" in reason


def test_the_reason_stays_short_on_a_long_way_with_long_labels():
    states = [("x" * 300, step) for step in range(40)]
    table = {
        (step, states[step], 0): [(1.0, states[min(step + 1, 39)], 0.0, (0.0 if step < 39 else -1.0,))]
        for step in range(40)
    }
    reason = solve(compile_model(Scripted(40, [(1.0, states[0])], table))).reason
    assert "33 more steps" in reason
    assert len(reason) < 2000


@seeds(25)
def test_at_the_named_dead_end_every_action_really_violates(seed):
    problem = random_problem(seed, safe_action=False)
    best = solve(compile_model(problem))
    if best.feasible:
        return
    step, state = map(int, re.search(r"at step (\d+) in state (\d+)", best.reason).groups())
    assert (step, state) in naive.decision_points(problem)
    for action in problem.actions(step, state):
        outcomes = [o for o in problem.outcomes(step, state, action) if o.probability > 0]
        broken = [i for i in range(len(problem.constraint_names)) if min(o.constraints[i] for o in outcomes) < 0]
        assert broken
        told = re.search(rf"action {action} violates ([^;)]*)", best.reason).group(1)
        assert [int(i) for i in re.findall(r"'f(\d+)'", told)] == broken


@pytest.mark.parametrize("slack", [-0.1, math.nan, "a"])
def test_a_slack_that_is_no_number_from_0_up_is_refused(slack):
    model = compile_model(random_problem(1))
    with pytest.raises(SettingsError, match="slack is"):
        solve_modified(model, slack, 5.0)


def test_without_a_penalty_the_slack_must_be_above_0():
    model = compile_model(random_problem(1))
    with pytest.raises(SettingsError, match="slack is 0: give a penalty as well"):
        solve_modified(model, 0)
    assert math.isfinite(solve_modified(model, 0, 5.0).value)
    assert math.isfinite(solve_modified(model, 0, 0).value)


@pytest.mark.parametrize("penalty", [-1.0, math.nan, math.inf, "a", False])
def test_a_penalty_that_is_no_number_from_0_up_is_refused(penalty):
    with pytest.raises(SettingsError, match="penalty is"):
        solve_modified(compile_model(random_problem(1)), 0.1, penalty)


def test_a_solution_shows_in_one_line_what_was_found_and_leaves_the_reason_to_its_field():
    table = {(0, "s", "a"): [(1.0, "s", 2.0, (-1.0,))]}
    doomed = solve(Scripted(1, [(1.0, "s")], table))
    assert repr(doomed) == (f"<Solution: value 2, violation 1, not feasible (see .reason), policy {doomed.policy!r}>")
    fine = solve(Scripted(1, [(1.0, "s")], {(0, "s", "a"): [(1.0, "s", 2.0, (0.0,))]}))
    assert "violation 0, feasible, policy" in repr(fine)


@pytest.mark.parametrize("horizon", [1, 3, 20])
@seeds(4)
def test_what_a_chosen_policy_adds_up_to_is_what_plain_python_finds(seed, horizon):
    """By node from its rows, and of the first step alone from its choices."""
    model = compile_model(random_problem(seed, stationary=True, horizon=horizon, states=3))
    assume(model.stationary)
    policy, rng = solve(model).policy, np.random.default_rng(seed)
    quantity, layout, slots = rng.normal(size=model.num_rows), model.layout, model.num_slots
    after = np.zeros(slots)
    tables = [after]
    for step in range(horizon - 1, -1, -1):
        here = np.zeros(slots)
        for slot in range(slots):
            row = int(policy.rows[step * model.node_stride + slot])
            if row < 0:
                continue
            law = slice(*layout.outcome_start[layout.row_distribution[row] :][:2])
            here[slot] = quantity[row] + layout.outcome_probability[law] @ after[layout.outcome_next[law]]
        tables.insert(0, after := here)
    assert policy.choices is not None
    assert value_of(layout, model.num_nodes, quantity, policy.rows) == pytest.approx(np.concatenate(tables))
