"""Limits on expectations and chances: against cvxpy, by LP duality, and on problems whose optima are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from experiments.neighbours import Inventory, ObstacleGrid, tiny_harvesting
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import TabularModel, compile_model, evaluate, solve, solve_cmdp
from peakrl.errors import SettingsError
from peakrl.policy import StochasticPolicy
from peakrl.theory import solve_modified, solve_relaxed

TINY = compile_model(tiny_harvesting())
EXACT = 1e-6


def randomised_nodes(model, policy):
    """How many nodes draw their action."""
    chances = (policy.probabilities(step, model.state_of_slot(slot)) for step, slot, node in model.decisions())
    return sum(len(each) > 1 for each in chances)


# Known optima ----------------------------------------------------------------------------------------------------


def test_the_inventory_at_its_limit_has_its_value_its_multiplier_and_one_randomised_node():
    model = compile_model(Inventory())
    found = solve_cmdp(model, total=3.5)
    assert found.value == pytest.approx(6.665321527, abs=EXACT)
    assert float(found.multipliers) == pytest.approx(0.921212, abs=EXACT)
    assert float(found.consumption) == pytest.approx(3.5, abs=EXACT)
    assert randomised_nodes(model, found.policy) == 1
    tight = solve_cmdp(model, total=0.7)
    assert tight.value == pytest.approx(1.555710503, abs=EXACT)
    assert float(tight.multipliers) == pytest.approx(2.222444, abs=EXACT)


def test_a_limit_that_does_not_bind_has_a_multiplier_of_0_and_leaves_a_plain_policy():
    found = solve_cmdp(Inventory(), total=5.0)
    assert found.value == pytest.approx(7.0, abs=EXACT)
    assert float(found.multipliers) == 0.0
    assert found.policy.deterministic


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        (1.0, 697.933),
        pytest.param(4.5, 913.655, marks=pytest.mark.slow),
        pytest.param(5.0, 913.968, marks=pytest.mark.slow),
    ],
)
def test_the_grid_has_its_values(limit, value):
    assert solve_cmdp(ObstacleGrid(), total=limit).value == pytest.approx(value, abs=1e-3)


def test_tiny_harvesting_has_its_relaxations():
    for slack, value in {0.1: 6.007104, 0.01: 5.969113, 0.001: 5.963548}.items():
        assert solve_cmdp(TINY, per_step=slack).value == pytest.approx(value, abs=EXACT)
    for limit, value in {0.1: 5.985123, 0.01: 5.965040, 0.001: 5.963032}.items():
        assert solve_cmdp(TINY, total=limit).value == pytest.approx(value, abs=EXACT)
    multipliers = solve_cmdp(TINY, per_step=0.001).multipliers
    assert multipliers.shape == (6, 1)
    assert multipliers[:, 0] == pytest.approx([0, 0, 0.070, 0.223, 0.223, 0.223], abs=1e-3)


def test_tiny_harvesting_has_its_chances_and_the_union_bound_costs_a_little():
    exact = {0.01: 5.9705, 0.05: 5.9944, 0.2: 6.0544, 0.5: 6.1036}
    union = {0.01: 5.9703, 0.05: 5.9939, 0.2: 6.0510, 0.5: 6.1018}
    for chance, value in exact.items():
        found = solve_cmdp(TINY, chance=chance)
        assert found.value == pytest.approx(value, abs=1e-4)
        told = evaluate(found.policy.model, found.policy)
        assert told.violation_probability <= chance + 1e-9
        assert told.value == pytest.approx(found.value, abs=1e-9)
        assert float(found.consumption) == pytest.approx(told.violation_probability, abs=1e-9)
        bound = solve_cmdp(TINY, union_chance=chance)
        assert bound.value == pytest.approx(union[chance], abs=1e-4)
        assert bound.value <= found.value + 1e-9
        assert evaluate(TINY, bound.policy).violation_probability <= chance + 1e-9


# Other solvers ---------------------------------------------------------------------------------------------------


def total_used(step, outcome, raised):
    return {"all": sum(max(-f, 0.0) for f in outcome.constraints)}


def used_by_constraint(step, outcome, raised):
    return {place: max(-f, 0.0) for place, f in enumerate(outcome.constraints)}


def steps_used(step, outcome, raised):
    return {"all": float(any(f < 0 for f in outcome.constraints))}


def flag_used(step, outcome, raised):
    return {"all": float(not raised and any(f < 0 for f in outcome.constraints))}


@seeds(5)
@pytest.mark.parametrize("form", ["total", "per_constraint", "union_chance", "chance"])
def test_cvxpy_finds_the_same_value(form, seed):
    problem = random_problem(seed + 40)
    limit = [0.1, 0.3, 0.6][seed % 3]
    used = {"total": total_used, "per_constraint": used_by_constraint, "union_chance": steps_used, "chance": flag_used}
    keys = range(len(problem.constraint_names)) if form == "per_constraint" else ["all"]
    value = naive.budget_programme(problem, used[form], dict.fromkeys(keys, limit), flag=form == "chance")
    found = solve_cmdp(problem, **{form: limit})
    assert found.feasible == (value is not None)
    if value is not None:
        assert found.value == pytest.approx(value, abs=1e-7)


@given(st.integers(0, 10_000), st.floats(0.01, 2.0))
@settings(max_examples=40, deadline=None)
def test_the_multiplier_times_the_limit_and_the_penalised_optimum_add_up_to_the_value(seed, limit):
    # Strong duality, the dual side by backward induction: V = min over lambda of max E[r - lambda v] + lambda d.
    model = compile_model(random_problem(seed, constraints=1))
    found = solve_cmdp(model, total=limit)
    if not found.feasible:
        return
    multiplier = float(found.multipliers)
    charged = solve_modified(model, slack=0.0, penalty=multiplier)
    scale = max(1.0, abs(found.value), multiplier * limit)
    assert found.value == pytest.approx(charged.value + multiplier * limit, abs=1e-7 * scale)
    unused = limit - float(found.consumption)
    assert multiplier * unused == pytest.approx(0.0, abs=1e-7 * scale)


@seeds(5)
def test_at_a_limit_of_0_every_form_is_the_original_problem(seed):
    model = compile_model(random_problem(seed, safe_action=True))
    best = solve(model)
    for form in ("total", "per_constraint", "per_step", "chance", "union_chance"):
        assert solve_cmdp(model, **{form: 0.0}).value == best.value


def test_a_constraint_whose_own_limit_is_0_is_never_violated():
    model = compile_model(random_problem(12, states=4, actions=3, horizon=4, constraints=2, safe_action=True))
    found = solve_cmdp(model, per_constraint=[0.0, 0.5])
    assert evaluate(model, found.policy).step_violations[:, 0].max() == 0.0
    assert math.isnan(found.multipliers[0])
    assert found.multipliers[1] >= 0.0


def test_the_relaxed_problem_is_the_budget_by_step():
    model = compile_model(random_problem(9, safe_action=True))
    one, other = solve_relaxed(model, 0.2), solve_cmdp(model, per_step=0.2)
    assert one.value == other.value
    assert np.array_equal(one.multipliers, other.multipliers)


def test_a_solution_may_have_to_toss_a_coin():
    model = TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[[0.0, -1.0]]], 4)
    found = solve_cmdp(model, total=1.5)
    assert found.value == pytest.approx(1.5)
    assert isinstance(found.policy, StochasticPolicy)
    assert float(found.multipliers) == pytest.approx(1.0)


def one_choice(values, chances, cost):
    """The first step earns by the action, and leads with a chance by the action to where the second costs something."""
    laws, rewards = np.zeros((3, len(values), 3)), np.zeros((3, len(values)))
    laws[0, :, 1], laws[0, :, 2] = chances, 1.0 - np.array(chances)
    laws[1:, :, 2] = 1.0
    rewards[0] = values
    return TabularModel.from_arrays(laws, rewards, np.array([[[1.0], [-cost], [1.0]]]) * np.ones(len(values)), 2)


def test_costs_that_are_equal_but_for_rounding_are_within_the_limit_alike():
    # 0.1 + (0.1 + 0.1) is more than 0.3 in floating point: three small costs earn 10, one of 0.3 nothing, one of 1 12.
    laws, rewards, costs = np.zeros((3, 3, 3)), np.zeros((3, 3)), np.zeros((3, 3))
    laws[0, 0, 1] = laws[0, 1:, 2] = laws[1, :, 1] = laws[2, :, 2] = 1.0
    rewards[0] = [10.0, 0.0, 12.0]
    costs[0], costs[1] = [0.1, 0.3, 1.0], 0.1
    found = solve_cmdp(TabularModel.from_arrays(laws, rewards, -costs[None], 3), total=0.3)
    assert found.value == pytest.approx(10.0, abs=EXACT)
    assert float(found.multipliers) < 10.0


@pytest.mark.parametrize("form", ["total", "union_chance"])
def test_a_small_limit_is_not_kept_by_what_is_small_only_beside_the_largest_cost(form):
    found = solve_cmdp(one_choice([0.0, 1.0], [1e-11, 1.0], 1.0), **{form: 1e-12})
    assert not found.feasible
    assert "the least feasible limit is 1e-11" in found.reason


def test_an_action_of_enormous_cost_does_not_blur_the_others():
    # Costs of 0, 5e-7, 1e-6 and 1e6. By hand: 8e-7 lies between the second and the third action, 0.6 + 0.6 * 0.4.
    found = solve_cmdp(one_choice([0.0, 0.6, 1.0, 100.0], [0.0, 5e-13, 1e-12, 1.0], 1e6), total=8e-7)
    assert found.value == pytest.approx(0.84, abs=1e-4)


# What cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["total", "per_constraint", "per_step", "chance", "union_chance"])
def test_a_limit_that_no_policy_can_meet_names_the_least_that_one_can(form):
    # Both actions violate, by 0.75 or by 1, at each of two steps.
    model = TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[[-0.75, -1.0]]], 2)
    found = solve_cmdp(model, **{form: 0.5})
    least = {"total": "1.5", "per_constraint": "1.5", "per_step": "0.75", "chance": "1", "union_chance": "2"}[form]
    assert not found.feasible
    assert f"the least feasible limit is {least}" in found.reason
    assert found.multipliers is None
    assert found.policy.probabilities(0, found.policy.model.state_of_slot(0)) == {0: 1.0}


@pytest.mark.parametrize(("constraints", "more"), [(3, ""), (4, " and 1 more")])
def test_of_the_constraints_that_stand_against_less_three_are_named(constraints, more):
    # Each action violates one constraint by 1: the least for all of them is to toss a die.
    model = TabularModel.from_arrays(
        np.ones((1, constraints, 1)), np.zeros((1, constraints)), -np.eye(constraints)[:, None], 1
    )
    reason = solve_cmdp(model, per_constraint=[0.1] * constraints).reason
    named = ", ".join(map(repr, model.constraint_names[:3]))
    assert reason.endswith(f", because of {named}{more}")


@seeds(5)
def test_the_least_limit_that_is_named_can_be_kept_and_less_cannot(seed):
    model = compile_model(random_problem(seed, safe_action=False))
    found = solve_cmdp(model, total=0.01)
    if found.feasible:
        return
    least = float(found.reason.split("feasible limit is ")[1].split(",")[0])
    assert solve_cmdp(model, total=least * 1.0001).feasible
    assert not solve_cmdp(model, total=least * 0.9999).feasible
    assert least == pytest.approx(solve(model).violation, rel=1e-5)


def test_limits_that_make_no_sense_are_refused():
    for limits, words in [
        ({}, "no limit is given; give one of total"),
        ({"total": 1.0, "chance": 0.1}, "total and chance are given"),
        ({"total": -1.0}, "total is -1.0"),
        ({"total": math.nan}, "total is nan"),
        ({"chance": 1.5}, "chance is 1.5; it must be a probability"),
        ({"per_constraint": [1.0, 2.0]}, "per_constraint has 2 numbers"),
        ({"per_constraint": ["a"]}, r"per_constraint\[0\] is 'a'"),
        ({"per_step": "much"}, "per_step is 'much'"),
    ]:
        with pytest.raises(SettingsError, match=words):
            solve_cmdp(TINY, **limits)
