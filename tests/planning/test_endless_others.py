"""Policies without an end against other planners, on 10^5 states; each is skipped if it is not installed."""

import numpy as np
import pytest
from scipy import sparse

import peakrl
from peakrl.viability import FOREVER

STATES, ACTIONS, DISCOUNT = 100_000, 3, 0.95


def arrays(constrained):
    """Return transitions [pair, state], rewards and constraints: two next states of a pair, most of them near."""
    rng, pairs = np.random.default_rng(7), STATES * ACTIONS
    near = np.repeat(np.arange(STATES), 2 * ACTIONS) + rng.integers(-300, 300, 2 * pairs)
    following = np.where(rng.random(2 * pairs) < 0.02, rng.integers(0, STATES, 2 * pairs), near) % STATES
    chance = rng.uniform(0.1, 0.9, pairs)
    shares = np.stack([chance, 1 - chance], axis=1).ravel()
    transitions = sparse.csr_matrix((shares, following, np.arange(0, 2 * pairs + 1, 2)), shape=(pairs, STATES))
    unsafe = rng.random((1, STATES, ACTIONS)) < 0.25
    return transitions, rng.random((STATES, ACTIONS)), np.where(unsafe, -1.0, 1.0)[: int(constrained)]


@pytest.mark.slow
def test_discounted_values_are_those_of_quantecon():
    markov = pytest.importorskip("quantecon.markov")
    transitions, rewards, constraints = arrays(constrained=False)
    model = peakrl.TabularModel.from_arrays(transitions, rewards, constraints, None)
    solution = peakrl.solve(model, discount=DISCOUNT)
    state, action = np.repeat(np.arange(STATES), ACTIONS), np.tile(np.arange(ACTIONS), STATES)
    found = (
        markov.DiscreteDP(rewards.ravel(), transitions, DISCOUNT, state, action)
        .solve(method="modified_policy_iteration", epsilon=1e-10)
        .v
    )
    assert np.abs(found - (solution.state_low + solution.state_high) / 2).max() < 1e-9 * found.max()


@pytest.fixture(scope="module")
def storm():
    return pytest.importorskip("stormpy")


def storm_model(storm, path, transitions, rewards, kept, goal, bad):
    """Return a model with the actions that are kept (a loop if none is); others lead to a last state, `bad`."""
    cut, columns, shares = transitions.indptr.tolist(), transitions.indices.tolist(), transitions.data.tolist()
    with open(path, "w", encoding="ascii") as file:
        file.write(f"@type: MDP\n@parameters\n\n@reward_models\nreward\n@nr_states\n{STATES + 1}\n@model\n")
        for state in range(STATES):
            file.write(f"state {state} [0]{' init' if state == 0 else ''}{' goal' if state in goal else ''}\n")
            rows = range(state * ACTIONS, (state + 1) * ACTIONS)
            for row in rows if bad else [row for row in rows if kept[row]]:
                file.write(f"\taction {row - rows[0]} [{rewards[row]!r}]\n")
                ends = {columns[i]: 0.0 for i in range(cut[row], cut[row + 1])}
                for i in range(cut[row], cut[row + 1]):
                    ends[columns[i]] += shares[i]
                ends = ends if kept[row] else {STATES: 1.0}
                file.writelines(f"\t\t{place} : {ends[place]!r}\n" for place in sorted(ends))
            if not bad and not any(kept[row] for row in rows):
                file.write(f"\taction 0 [0]\n\t\t{state} : 1\n")
        file.write(f"state {STATES} [0] bad\n\taction 0 [0]\n\t\t{STATES} : 1\n")
    return storm.build_model_from_drn(str(path))


def values(storm, model, formula):
    """Return [state] Storm's values, by sound methods to 1e-10."""
    environment = storm.environments.sound()
    environment.solver().min_max().precision = storm.Rational("1/10000000000")
    (asked,) = storm.parse_properties(formula)
    found = storm.model_checking(model, asked, only_initial_states=False, environment=environment)
    return np.array([found.get_value(state) for state in range(STATES)])


@pytest.mark.slow
def test_safety_and_reaching_are_those_of_storm(storm, tmp_path):
    transitions, rewards, constraints = arrays(constrained=True)
    model = peakrl.TabularModel.from_arrays(transitions, rewards, constraints, None)
    keeps, goal = constraints.ravel() > 0, set(range(0, STATES, 5_000))
    built = storm_model(storm, tmp_path / "risky.drn", transitions, rewards.ravel().tolist(), keeps, goal, bad=True)
    safe = model.safe
    assert 1_000 < safe.slots(0).sum() < STATES - 1_000
    assert np.array_equal(values(storm, built, 'Pmin=? [F "bad"]') == 0.0, safe.slots(0))
    solution = peakrl.solve(model, reach=goal)
    slot_kept, row_kept = peakrl.viability.steps_kept(
        model.one_step, model.keeps, np.isin(np.arange(STATES), list(goal))
    )
    built = storm_model(
        storm, tmp_path / "safe.drn", transitions, rewards.ravel().tolist(), row_kept == FOREVER, goal, bad=False
    )
    found, inside = values(storm, built, 'Pmax=? [F "goal"]'), slot_kept == FOREVER
    assert np.abs(found - (solution.state_low + solution.state_high) / 2)[inside].max() < 1e-9


@pytest.mark.slow
def test_discounted_values_are_those_of_storm(storm, tmp_path):
    transitions, rewards, constraints = arrays(constrained=False)
    model = peakrl.TabularModel.from_arrays(transitions, rewards, constraints, None)
    solution = peakrl.solve(model, discount=DISCOUNT)
    kept = np.ones(STATES * ACTIONS, bool)
    built = storm_model(storm, tmp_path / "all.drn", transitions, rewards.ravel().tolist(), kept, set(), bad=False)
    found = values(storm, built, f'R{{"reward"}}max=? [Cdiscount={DISCOUNT}]')
    assert np.abs(found - (solution.state_low + solution.state_high) / 2).max() < 1e-9 * found.max()
