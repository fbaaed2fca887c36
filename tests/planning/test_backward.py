"""Backward induction in two layers against plain Python with all of them, and what `solve` keeps."""

import pickle
import tracemalloc

import numpy as np
import pytest

import naive.planning
from helpers.random_problems import random_problem
from peakrl import Outcome, Problem, TabularModel, compile_model, evaluate, solve
from peakrl.errors import PeakError
from peakrl.planning import parallel as sharing
from peakrl.policy import load_policy
from peakrl.problems import scheduling_example


def random_arrays(seed, *, states=40, actions=5, horizon=7, constrained=True, sharing=1, sum_to=1.0):
    """A stationary model whose pairs have one to three outcomes; `sharing` many actions have the same ones."""
    rng = np.random.default_rng(seed)
    laws = rng.random((states, actions // sharing, states)) * (rng.random((states, actions // sharing, states)) < 0.05)
    laws[: states // 2] = 0.0
    laws[np.arange(states), :, (np.arange(states) + 1) % states] += 0.2
    laws = np.repeat(laws / laws.sum(axis=2, keepdims=True) * sum_to, sharing, axis=1)
    constraints = rng.normal(1.0, 1.0, (1, states, actions)) if constrained else np.ones((1, states, actions))
    available = rng.random((states, actions)) < 0.8
    available[:, 0] = True
    return TabularModel.from_arrays(laws, rng.random((states, actions)), constraints, horizon, available=available)


class Widening(Problem):
    """Layered: step h has h + 1 states, with one law for each that both actions share, and nothing to violate."""

    name, horizon, stationary, constraint_names = "widening", 5, False, ()

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return (0, 1)

    def outcomes(self, step, state, action):
        for following in (state, state + 1):
            yield Outcome(0.5, following, (3 * state + 2 * step + action) % 4 / 4)


MODELS = {
    "widening, rewards only": compile_model(Widening()),
    "costs": random_arrays(1),
    "rewards only": random_arrays(2, constrained=False),
    "shared laws": random_arrays(3, actions=6, sharing=3),
    "shared laws, rewards only": random_arrays(4, actions=6, sharing=3, constrained=False),
    "probabilities that sum to 1 but for rounding": random_arrays(8, actions=6, sharing=3, sum_to=1.0 - 1e-12),
    "layered": compile_model(random_problem(7, states=5, actions=3, horizon=5)),
    "scheduling": compile_model(scheduling_example(1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_value_and_choice_is_that_of_a_plain_loop_to_the_last_bit(name):
    model = MODELS[name]
    values, costs, rows = naive.planning.backward_tables(model)
    found = solve(model, keep="all")
    for (step, slot), row in rows.items():
        node = step * model.node_stride + slot
        assert found.policy.row(step, slot) == row
        assert (found.node_values[node], found.node_violations[node]) == (values[step, slot], costs[step, slot])


def test_any_number_of_threads_gives_the_same_result(monkeypatch):
    monkeypatch.setattr(sharing, "PAIRS_A_THREAD", 1)
    monkeypatch.setattr(sharing, "PAIRS_A_CHUNK", 7)
    for model in MODELS.values():
        one, three = (solve(model, keep="all", threads=threads) for threads in (1, 3))
        assert np.array_equal(one.policy.rows, three.policy.rows)
        assert np.array_equal(one.node_values, three.node_values)
        assert np.array_equal(one.node_violations, three.node_violations)


def test_what_is_kept_does_not_change_what_is_found():
    for model in MODELS.values():
        everything = solve(model, keep="all")
        value, policy = solve(model, keep="value"), solve(model)
        assert value.value == policy.value == everything.value
        assert value.violation == policy.violation == everything.violation
        assert value.reason == policy.reason == everything.reason
        assert np.array_equal(policy.policy.rows, everything.policy.rows)
        assert np.array_equal(value.node_values, everything.node_values)
        with pytest.raises(PeakError, match="value only"):
            _ = value.policy


def test_a_planned_policy_survives_a_file_and_a_pickle(tmp_path):
    for model in (MODELS["costs"], MODELS["scheduling"]):
        found = solve(model)
        found.policy.save(tmp_path / "policy.peakrl")
        assert np.array_equal(load_policy(tmp_path / "policy.peakrl", model).rows, found.policy.rows)
        again = pickle.loads(pickle.dumps(found))
        assert np.array_equal(again.policy.rows, found.policy.rows)
        assert evaluate(again.policy.model, again.policy).value == pytest.approx(found.value)


def test_a_plan_survives_a_file_where_a_state_that_nobody_comes_to_offers_nothing(tmp_path):
    laws = np.zeros((3, 2, 3))
    laws[:2, 0, 0] = laws[:2, 1, 1] = 1.0
    offered = np.array([[True, True], [True, True], [False, False]])
    constraints = np.array([[[1.0, -1.0], [1.0, 1.0], [1.0, 1.0]]])
    model = TabularModel.from_arrays(laws, np.ones((3, 2)), constraints, 4, available=offered)
    found = solve(model).policy
    found.save(tmp_path / "policy.peakrl")
    assert np.array_equal(load_policy(tmp_path / "policy.peakrl", model).rows, found.rows)


def test_hundreds_of_actions_are_told_apart():
    model = random_arrays(5, states=3, actions=400, horizon=2)
    assert solve(model).policy.choices.of_step(0).dtype == np.uint16
    rows = naive.planning.backward_tables(model)[2]
    assert all(solve(model).policy.row(step, slot) == row for (step, slot), row in rows.items())


def test_a_plan_takes_the_memory_of_its_policy():
    model = random_arrays(6, states=300, actions=3, horizon=400, constrained=False)
    solve(model)
    tracemalloc.start()
    policy = solve(model).policy
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert policy.choices.nbytes <= 300 * 400
    assert peak < 1.5 * 300 * 400


def settling(horizon):
    """Walk to a goal that is left no more, by the quicker of two ways: values settle when every walk has ended."""
    laws = np.zeros((12, 2, 12))
    for state in range(12):
        laws[state, 0, min(state + 1, 11)] = laws[state, 1, min(state + 2, 11)] = 1.0
    rewards = np.where(np.arange(12)[:, None] == 11, 0.0, [[-1.0, -1.5]])
    constraints = np.where(np.arange(12)[:, None] == 3, [[1.0, -1.0]], 1.0)[None]
    return TabularModel.from_arrays(laws, rewards, constraints, horizon)


def test_a_policy_that_no_longer_changes_is_kept_once_and_is_the_same(tmp_path):
    model = settling(200)
    values, costs, rows = naive.planning.backward_tables(model)
    found = solve(model, keep="all")
    assert found.policy.choices.nbytes < 200 * 12
    for (step, slot), row in rows.items():
        node = step * model.node_stride + slot
        assert found.policy.row(step, slot) == found.policy.rows[node] == row
        assert (found.node_values[node], found.node_violations[node]) == (values[step, slot], costs[step, slot])
    assert evaluate(model, found.policy).value == pytest.approx(found.value)
    found.policy.save(tmp_path / "policy.peakrl")
    assert np.array_equal(load_policy(tmp_path / "policy.peakrl", model).rows, found.policy.rows)


@pytest.mark.parametrize("horizon", range(10, 15))
def test_values_that_settle_about_the_first_step_are_those_of_a_plain_loop(horizon):
    """Eleven steps lead from one end to the other, so that the twelfth value is the first to be as the one before."""
    model = settling(horizon)
    values, costs, _ = naive.planning.backward_tables(model)
    found = solve(model, keep="all")
    for (step, slot), value in values.items():
        node = step * model.node_stride + slot
        assert (found.node_values[node], found.node_violations[node]) == (value, costs[step, slot])
