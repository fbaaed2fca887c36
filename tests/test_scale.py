"""Models from sparse arrays: equal to dense ones, stored once, checked, and linear in memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from benchmarks.models import sparse_model
from helpers.seeds import seeds
from peakrl import TabularModel, solve
from peakrl.errors import ProblemError
from peakrl.space import MOST_INDICES, check_sizes


def random_arrays(seed, states=6, actions=3, horizon=4):
    """Dense arrays with many zeros and repeated next-state lists."""
    rng = np.random.default_rng(seed)
    chance = rng.random((states, actions, states)) * (rng.random((states, actions, states)) < 0.4)
    chance[:, :, 1] += 0.2
    chance[2] = chance[0]
    chance[4, 1] = chance[3, 2]
    transitions = chance / chance.sum(axis=2, keepdims=True)
    return transitions, rng.random((states, actions)), rng.normal(1, 1, (2, states, actions)), horizon


@seeds(5)
def test_sparse_and_dense_arrays_give_the_same_model(seed):
    transitions, rewards, constraints, horizon = random_arrays(seed)
    dense = TabularModel.from_arrays(transitions, rewards, constraints, horizon)
    stacked = sparse.csr_matrix(transitions.reshape(-1, transitions.shape[2]))
    by_action = [sparse.coo_matrix(transitions[:, action]) for action in range(transitions.shape[1])]
    for form in (stacked, stacked.tocoo(), by_action):
        assert TabularModel.from_arrays(form, rewards, constraints, horizon).digest == dense.digest


@seeds(5)
def test_next_state_lists_that_repeat_are_stored_once_in_order_of_occurrence(seed):
    transitions, rewards, constraints, horizon = random_arrays(seed)
    layout = TabularModel.from_arrays(transitions, rewards, constraints, horizon).layout
    numbers: dict[bytes, int] = {}
    expected = [numbers.setdefault(row.tobytes(), len(numbers)) for row in transitions.reshape(-1, 6)]
    assert layout.row_distribution.tolist() == expected
    for number, row in zip(expected, transitions.reshape(-1, 6), strict=True):
        members = slice(layout.outcome_start[number], layout.outcome_start[number + 1])
        rebuilt = np.zeros(6)
        rebuilt[layout.outcome_next[members]] = layout.outcome_probability[members]
        assert np.array_equal(rebuilt, row)


def test_zeros_that_a_sparse_matrix_stores_are_dropped():
    matrix = sparse.csr_matrix(([1.0, 0.0, 0.0, 1.0], [0, 1, 0, 1], [0, 2, 4]), shape=(2, 2))
    model = TabularModel.from_arrays(matrix, np.zeros((2, 1)), np.zeros((0, 2, 1)), 2)
    assert model.outcome_next.tolist() == [0, 1]
    assert matrix.nnz == 4  # the user's own matrix stays as it was


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "state 1, action 1, next state 2: nan is not a probability"),
        (-0.1, "state 1, action 1, next state 2: -0.1 is not a probability"),
        (float("inf"), "state 1, action 1, next state 2: inf is not a probability"),
        (0.5, "state 1, action 1: probabilities sum to 1.5, not to 1"),
    ],
)
def test_a_bad_row_is_named(value, message):
    transitions = np.zeros((3, 2, 3))
    transitions[:, :, 0] = 1.0
    transitions[1, 1, 2] = value
    with pytest.raises(ProblemError, match=message):
        TabularModel.from_arrays(transitions, np.zeros((3, 2)), np.zeros((0, 3, 2)), 2)


def test_more_than_32_bit_indices_can_tell_apart_is_refused_by_name():
    check_sizes("fits", states=MOST_INDICES, pairs=1)
    with pytest.raises(ProblemError, match="'large' has 2,147,483,648 pairs"):
        check_sizes("large", states=5, pairs=MOST_INDICES + 1)


def test_memory_of_a_model_is_linear_in_its_pairs():
    small, large = sparse_model(1_000), sparse_model(40_000)
    assert large.nbytes / large.num_pairs == pytest.approx(small.nbytes / small.num_pairs, rel=0.02)


def test_a_model_of_a_hundred_thousand_pairs_is_solved_to_the_same_value_as_step_by_step():
    model = sparse_model(10_000)
    layout, value, cost = model.layout, np.zeros(10_000), np.zeros(10_000)
    violation = np.maximum(-model.payoffs.constraints[:, 0], 0.0)
    first = layout.outcome_start[layout.row_distribution]
    chance = layout.outcome_probability[first]
    one, other = layout.outcome_next[first], layout.outcome_next[layout.outcome_start[layout.row_distribution + 1] - 1]
    for _ in range(model.horizon):
        total = (violation + chance * cost[one] + (1 - chance) * cost[other]).reshape(-1, 10)
        gain = (model.payoffs.reward + chance * value[one] + (1 - chance) * value[other]).reshape(-1, 10)
        least = total.min(axis=1, keepdims=True)
        value = np.where(total <= least * (1 + 1e-12), gain, -np.inf).max(axis=1)
        cost = least[:, 0]
    best = solve(model)
    assert best.value == pytest.approx(value[0], abs=1e-9)
    assert best.violation == pytest.approx(cost[0], abs=1e-9)


@pytest.mark.slow
def test_a_million_states_and_ten_million_pairs_are_solved_within_three_gigabytes():
    code = """
import resource
from benchmarks.models import sparse_model
from peakrl.planning import solve
model = sparse_model(1_000_000)
assert (model.num_states, model.num_pairs) == (10**6, 10**7)
best = solve(model)
assert 0 < best.value < 10
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 3e9
