"""Backward induction in two layers against plain Python with all of them, and what `solve` keeps."""

import os
import subprocess
import sys
import tracemalloc
from functools import partial

import numpy as np
import pytest

import naive.planning
from helpers.random_problems import random_problem
from peakrl import Outcome, Problem, TabularModel, compile_model, evaluate, solve
from peakrl.errors import StorageError
from peakrl.planning import backward
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
    found = solve(model)
    for (step, slot), row in rows.items():
        node = step * model.node_stride + slot
        assert found.policy.row(step, slot) == row
        assert (found.node_values[node], found.node_violations[node]) == (values[step, slot], costs[step, slot])


def test_any_number_of_threads_gives_the_same_result(monkeypatch):
    monkeypatch.setattr(backward, "PAIRS_A_THREAD", 1)
    monkeypatch.setattr(backward, "PAIRS_A_CHUNK", 7)
    for model in MODELS.values():
        one, three = (solve(model, threads=threads) for threads in (1, 3))
        assert np.array_equal(one.policy.rows, three.policy.rows)
        assert np.array_equal(one.node_values, three.node_values)
        assert np.array_equal(one.node_violations, three.node_violations)


def test_a_planned_policy_survives_a_file(tmp_path):
    for model in (MODELS["costs"], MODELS["scheduling"]):
        found = solve(model)
        found.policy.save(tmp_path / "policy.peakrl")
        assert np.array_equal(load_policy(tmp_path / "policy.peakrl", model).rows, found.policy.rows)


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
    assert solve(model).policy.choices.table.dtype == np.uint16
    rows = naive.planning.backward_tables(model)[2]
    assert all(solve(model).policy.row(step, slot) == row for (step, slot), row in rows.items())


def test_a_plan_takes_the_memory_of_its_policy():
    model = random_arrays(6, states=300, actions=3, horizon=400, constrained=False)
    solve(model)
    tracemalloc.start()
    policy = solve(model).policy
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert policy.choices.table.nbytes == 300 * 400
    assert peak < 1.5 * 300 * 400


def settling(horizon):
    """Walk to a goal that is left no more, by the quicker of two ways: values settle when every walk has ended."""
    laws = np.zeros((12, 2, 12))
    for state in range(12):
        laws[state, 0, min(state + 1, 11)] = laws[state, 1, min(state + 2, 11)] = 1.0
    rewards = np.where(np.arange(12)[:, None] == 11, 0.0, [[-1.0, -1.5]])
    constraints = np.where(np.arange(12)[:, None] == 3, [[1.0, -1.0]], 1.0)[None]
    return TabularModel.from_arrays(laws, rewards, constraints, horizon)


def test_a_policy_that_no_longer_changes_is_repeated(tmp_path):
    model = settling(200)
    values, costs, rows = naive.planning.backward_tables(model)
    found = solve(model)
    for (step, slot), row in rows.items():
        node = step * model.node_stride + slot
        assert found.policy.row(step, slot) == found.policy.rows[node] == row
        assert (found.node_values[node], found.node_violations[node]) == (values[step, slot], costs[step, slot])
    assert evaluate(model, found.policy).value == pytest.approx(found.value)
    found.policy.save(tmp_path / "policy.peakrl")
    assert np.array_equal(load_policy(tmp_path / "policy.peakrl", model).rows, found.policy.rows)


def test_values_that_settle_about_the_first_step_are_those_of_a_plain_loop():
    """Eleven steps lead from one end to the other, so that the twelfth value is the first to be as the one before."""
    for horizon in range(10, 15):
        model = settling(horizon)
        values, costs, _ = naive.planning.backward_tables(model)
        found = solve(model)
        for (step, slot), value in values.items():
            node = step * model.node_stride + slot
            assert (found.node_values[node], found.node_violations[node]) == (value, costs[step, slot])


def growing(horizon=90, *, seed=0, states=12, actions=3, constrained=False, ties=True):
    """Rewards at every step, so that values never converge; half of the actions with a twin that ties with them."""
    rng = np.random.default_rng(seed)
    transitions = rng.random((states, actions, states)) * (rng.random((states, actions, states)) < 0.4) + 0.02
    rewards = rng.random((states, actions))
    if ties:
        transitions[: states // 2, -1], rewards[: states // 2, -1] = (
            transitions[: states // 2, 0],
            rewards[: states // 2, 0],
        )
    transitions /= transitions.sum(axis=2, keepdims=True)
    # Every state has an action that satisfies the constraint.
    constraints = np.where(np.arange(actions) == actions - 2, -1.0, 1.0) * np.ones((1, states, actions))
    limits = constraints if constrained else np.ones((1, states, actions))
    return TabularModel.from_arrays(transitions, rewards, limits, horizon)


def late_bloomer(horizon):
    """In state 0 an action earns 1 a step at once, the other 3 after 41 steps: n < 3 (n - 41) from n = 62 on."""
    transitions, rewards = np.zeros((43, 2, 43)), np.zeros((43, 2))
    transitions[0, 0, 1] = transitions[0, 1, 2] = transitions[1, :, 1] = transitions[42, :, 42] = 1.0
    transitions[np.arange(2, 42), :, np.arange(3, 43)] = 1.0
    rewards[0, 0] = rewards[1] = 1.0
    rewards[42] = 3.0
    rewards[1:, 1] -= 0.5
    return TabularModel.from_arrays(transitions, rewards, np.ones((1, 43, 2)), horizon)


def alternating(horizon, states=30):
    """Two states earn in turns, and the others move to the one that earns next: every choice changes each step."""
    transitions, rewards = np.zeros((states, 2, states)), np.zeros((states, 2))
    transitions[0, :, 1] = transitions[1, :, 0] = transitions[2:, 0, 1] = transitions[2:, 1, 0] = 1.0
    rewards[0] = 1.0
    return TabularModel.from_arrays(transitions, rewards, np.ones((1, states, 2)), horizon)


def agrees(model, found):
    """Return whether every choice and value is that of plain Python."""
    values, costs, rows = naive.planning.backward_tables(model)
    for (step, slot), row in rows.items():
        node = step * model.node_stride + slot
        same = (found.node_values[node], found.node_violations[node]) == (values[step, slot], costs[step, slot])
        if not same or found.policy.row(step, slot) != row or found.policy.rows[node] != row:
            return False
    return True


@pytest.mark.parametrize("make", [growing, late_bloomer, alternating, partial(growing, constrained=True)])
def test_every_step_of_a_long_horizon_is_that_of_plain_python(make, monkeypatch):
    monkeypatch.setattr(backward, "PAIRS_A_THREAD", 1)
    monkeypatch.setattr(backward, "PAIRS_A_CHUNK", 7)
    model = make(90)
    for threads in (1, 3):
        assert agrees(model, solve(model, threads=threads))


MEASURE = """
import sys
from peakrl import evaluate, solve
from peakrl.theory import audit_slack
from benchmarks.models import random_model

def peak(run, *given):
    open("/proc/self/clear_refs", "w").write("5")
    before, found = memory("VmRSS"), run(*given)
    return found, memory("VmHWM") - before

def memory(field):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))

small, model = random_model(2_000, 20), random_model(1_000_000, 100)
evaluate(small, solve(small, threads=2).policy), audit_slack(small, 0.1)
found, most = peak(solve, model)
print(most, peak(evaluate, model, found.policy)[1], peak(audit_slack, model, 0.1)[1], found.policy.choices.table.nbytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="peaks are read from Linux' /proc")
def test_a_million_states_need_the_stated_memory():
    # Blocks above a megabyte go back to the system at once, so that memory of the build is not reused.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000", "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", MEASURE], env=environment, capture_output=True, check=True, text=True
    )
    solving, evaluating, auditing, kept = map(int, printed.stdout.split())
    table = 100 * 1_000_000
    assert kept == table
    assert solving < 1.5 * table
    assert evaluating < 1.5 * table
    assert auditing < 3 * table  # two policies


def test_a_policy_written_to_a_file_is_the_one_that_is_returned(tmp_path):
    path = tmp_path / "policy.peakrl"
    for model in (growing(seed=8), late_bloomer(10), compile_model(scheduling_example(1))):
        found = solve(model, policy_file=path)
        assert np.array_equal(load_policy(path, model).rows, found.policy.rows)
    endless = late_bloomer(10).with_horizon(None)
    found = solve(endless, discount=0.9, policy_file=path)
    assert np.array_equal(load_policy(path, endless).rows, found.policy.rows)
    assert [file.name for file in tmp_path.iterdir()] == ["policy.peakrl"]


def test_a_policy_file_that_cannot_be_is_refused_before_the_work(tmp_path, monkeypatch):
    model = late_bloomer(12)
    monkeypatch.setattr("peakrl.planning.solution.induction", None)
    with pytest.raises(StorageError, match="no folder"):
        solve(model, policy_file=tmp_path / "nowhere" / "policy.peakrl")
    assert list(tmp_path.iterdir()) == []
