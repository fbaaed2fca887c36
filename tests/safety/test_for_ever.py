"""Models and environments without an end: one mask for all steps, and tables of one line."""

import math

import gymnasium
import numpy as np
import pytest

import peakrl
from helpers.machine import Machine
from peakrl.array_problem import ArrayProblem
from peakrl.errors import PeakError, ProblemError, TargetError
from peakrl.problem import Outcome


@pytest.fixture(scope="module")
def model():
    return peakrl.compile_model(Machine())


def test_the_safe_set_for_ever_has_one_mask_for_all_steps(model):
    safe = peakrl.safe_set(model)
    assert safe.feasible
    assert [safe.actions(state, step=10**9) for state in range(3)] == [["rest", "run"], ["rest"], []]
    assert safe.masks.tolist() == [[True, True], [True, False], [False, False]]
    assert "state 2 every action violates" in str(safe.reason(1, "run", step=7))
    finite = model.with_horizon(5)
    for horizon in (None, math.inf):
        assert np.array_equal(peakrl.safe_set(finite, horizon=horizon).masks, safe.masks)
    last = peakrl.safe_set(model, horizon=1)
    assert last.actions(1) == ["rest", "run"]
    assert peakrl.safe_set(finite).actions(1, step=4) == ["rest", "run"]


class Corridor(ArrayProblem):
    """Right or left on a line whose end, far away, violates; one can only turn in cell 0."""

    name, horizon, constraint_names, stationary = "corridor", None, ("inside",), True
    state_ranges, all_actions = {"cell": (0, 50), "way": (0, 1)}, ("stay", "go")

    def initial(self):
        return [(1.0, (0, 0))]

    def outcomes(self, step, state, action):
        cell, way = state
        inside = np.where(cell == 50, -1.0, 1.0)
        way = np.where((cell == 0) & (action == "go"), 1, way)
        return [Outcome(1.0, (np.minimum(cell + way, 50), way), 0.0, (inside,))]


def test_a_reason_names_a_chain_to_a_violation_far_away():
    safe = peakrl.safe_set(Corridor())
    assert safe.actions((0, 0)) == ["stay"]
    reason = safe.reason((0, 0), "go", step=3)
    assert reason.step == 3 + 50
    assert reason.state == (50, 1)
    assert len(reason.moves) == 50


def test_files_of_models_policies_and_safe_sets_without_an_end(model, tmp_path):
    policy = peakrl.Policy.from_rule(model, lambda step, state: "run" if state == 0 else "rest")
    assert policy.action(10**9, 0) == "run"
    assert policy.to_csv().count("\n") == 4
    model.save(tmp_path / "model")
    assert peakrl.load(tmp_path / "model").digest == model.digest != model.with_horizon(5).digest
    policy.save(tmp_path / "policy")
    assert peakrl.load(tmp_path / "policy", model).rows.tolist() == policy.rows.tolist()
    safe = peakrl.safe_set(model)
    safe.save(tmp_path / "safe")
    assert peakrl.load(tmp_path / "safe", model.with_horizon(5)).model.steps is None
    text = policy.to_c(tmp_path / "machine.h", safe_set=safe)
    assert "machine_choice_start[0]" in text
    assert "machine_choice_start[step]" not in text


def test_environments_without_an_end_are_shielded_for_ever(model):
    def run(safe, steps):
        env = peakrl.shield(peakrl.ConstrainedEnv(peakrl.to_gymnasium(model)), safe)
        random = np.random.default_rng(0)
        env.reset(seed=0)
        for _ in range(steps):
            _, _, terminated, truncated, info = env.step(int(random.integers(2)))
            assert not terminated
            assert not truncated
            assert info["constraints"][0] >= 0
        return env

    env = run(peakrl.safe_set(model), 3000)
    assert env.replaced > 300
    with pytest.raises((TargetError, AssertionError)):
        run(peakrl.safe_set(model, horizon=50), 100)


class Seasons(Machine):
    """Depends on the step, although it declares that nothing does."""

    def outcomes(self, step, state, action):
        return super().outcomes(step, max(state, int(step == 13)), action)


def test_what_needs_an_end_says_so(model):
    for call in (lambda: peakrl.solve(model), lambda: peakrl.learn(model, episodes=2), lambda: model.horizon):
        with pytest.raises(PeakError, match="has no end"):
            call()
    with pytest.raises(ProblemError, match="declare stationary"):
        peakrl.compile_model(type("Seasonal", (Machine,), {"stationary": False})())
    with pytest.raises(ProblemError, match="at step 13 than at step 0"):
        peakrl.compile_model(Seasons())
    layered = peakrl.TabularModel.from_arrays([[[[1.0]]]] * 2, [[0.0]], [], 2)
    with pytest.raises(ProblemError, match="step by step"):
        peakrl.safe_set(layered, horizon=None)
    stuck = peakrl.TabularModel.from_arrays([[[0, 1]], [[0, 1]]], [[0], [0]], [], 1, available=[[1], [0]])
    with pytest.raises(ProblemError, match="nothing ends"):
        stuck.with_horizon(None)


def dry_lake():
    lake = gymnasium.make("FrozenLake-v1", max_episode_steps=-1)
    return peakrl.ConstrainedEnv(
        lake, constraint=lambda t: -1.0 if t.next_observation in {5, 7, 11, 12} else 1.0, horizon=math.inf,
        reward_range=(0, 1),
    )  # fmt: skip


def shielded(problem):
    return peakrl.to_gymnasium(problem, shielded=True)


FIVE = {
    "machine": lambda: shielded(Machine()),
    "corridor": lambda: shielded(Corridor()),
    "house": lambda: shielded(peakrl.problems.thermostat(horizon=None)),
    "transmitter": lambda: shielded(peakrl.problems.energy_harvesting(horizon=None, battery=4, peak_power=3)),
    "lake": lambda: peakrl.shield(env := dry_lake(), peakrl.safe_set(peakrl.from_gymnasium(env))),
}


def violations(name, steps):
    """Return the number of violations of a random agent behind a shield for ever, and of replaced actions."""
    env, random, found = FIVE[name](), np.random.default_rng(1), 0
    env.reset(seed=1)
    for action in random.integers(env.action_space.n, size=steps).tolist():
        _, _, terminated, truncated, info = env.step(action)
        found += min(info["constraints"]) < 0
        assert not truncated
        if terminated:  # only the lake has a goal
            env.reset()
    return found, env.get_wrapper_attr("replaced")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIVE)
def test_a_random_agent_behind_a_shield_for_ever_never_violates(name):
    found, replaced = violations(name, 2_000_000)
    assert found == 0
    assert replaced > 1000


def test_a_gymnasium_environment_without_a_time_limit():
    with pytest.raises(PeakError, match=r"math\.inf"):
        peakrl.from_gymnasium(gymnasium.make("FrozenLake-v1", max_episode_steps=-1))
    dry = dry_lake()
    safe = peakrl.safe_set(peakrl.from_gymnasium(dry))
    assert safe.model.steps is None
    assert safe.contains(0, step=1000)
    with pytest.raises(PeakError, match="no end"):
        peakrl.learn(dry, "SafeQ", episodes=5)
