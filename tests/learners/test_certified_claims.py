"""What a certified learner claims is true: relative aims, rounding, ends at the horizon, contradictions."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import peakrl
from helpers import certified_problems as problems
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from peakrl import Assumptions, Outcome, Problem, TabularModel, compile_model, evaluate, learn, solve
from peakrl.certificates.verify import verify
from peakrl.errors import SettingsError, TargetError
from peakrl.gym.constrained_env import adapt
from peakrl.learners import Certified
from peakrl.learners.certified.declared import OnEnvironment
from peakrl.learners.certified.tables import OPEN
from peakrl.learners.space import GrowingSpace
from peakrl.numerics import sums_exactly

QUIET = {"history": "none", "average": False}


def chain(rewards, horizon, **declared):
    """One state at each step: action a of step h earns rewards[h][a], and nothing is random."""
    steps, actions = np.shape(rewards)
    transitions = np.zeros((steps, actions, steps))
    transitions[np.arange(steps), :, np.minimum(np.arange(steps) + 1, steps - 1)] = 1.0
    return TabularModel.from_arrays(transitions, rewards, np.ones((1, steps, actions)), horizon, **declared)


# --- Relative --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_relative_certificate_is_within_its_share_of_the_best_safe_value(seed):
    model = compile_model(random_problem(seed, states=3, actions=3, horizon=3, safe_action=True))
    best = solve(model)
    if model.payoffs.stride:
        with pytest.raises(SettingsError, match="relative is True"):
            learn(model, Certified(0.5, relative=True), episodes=10)
        return
    run = learn(model, Certified(0.5, relative=True), episodes=30_000, seed=seed, **QUIET)
    found = evaluate(model, run.policy)
    assert run.certificate.epsilon <= 0.5 * abs(best.value)
    if run.certificate.holds:
        assert best.value - found.value <= 0.5 * abs(best.value)
        assert found.violation <= 0.5 * abs(best.value)
    assert (run.stop_reason == "certified") == run.certificate.holds


def test_the_value_of_a_policy_that_may_violate_is_no_lower_bound_of_the_best_safe_one():
    """Action 1 earns 1 and fails once in 30 steps, action 0 is safe and earns 0.01: a share of 1 is not one of 0.01."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0, 0], transitions[0, 1], transitions[1, :, 1] = 1, (29 / 30, 1 / 30), 1
    margins = np.array([[[0.01, 0.01], [-0.01, -0.01]]])
    model = TabularModel.from_arrays(
        transitions, [[0.01, 1.0], [0.0, 0.0]], margins, 2, reward_range=(0, 1), constraint_bounds=[0.01]
    )
    run = learn(model, Certified(0.5, relative=True), episodes=5_000, **QUIET)
    assert run.certificate.epsilon <= 0.5 * solve(model).value
    assert not run.certificate.holds


class DeadEnd(Problem):
    """State 1 has no safe action, and state 0 may lead there as far as a learner knows."""

    name, horizon, stationary, constraint_names = "dead end", 3, True, ("whole",)
    reward_range, constraint_bounds = (0.0, 1.0), (1.0,)

    def initial(self):
        return [(0.9, 0), (0.1, 2)]

    def actions(self, step, state):
        return (0, 1)

    def outcomes(self, step, state, action):
        risky = state == 2 and action == 1
        yield Outcome(1.0, 1 if risky or state == 1 else 0, float(state == 0), (-1.0 if state == 1 else 1.0,))


def test_a_share_of_a_value_that_is_not_known_is_not_called_an_epsilon_of_0():
    certificate = learn(DeadEnd(), Certified(0.1, relative=True), episodes=300, **QUIET).certificate
    assert not certificate.holds
    assert certificate.epsilon == 0.0
    assert "of which no lower bound above 0 is known" in certificate.reason


def test_an_environment_without_a_safe_policy_has_no_relative_aim():
    env = ModelEnvironment(problems.near_tie(), 1)
    with pytest.raises(SettingsError, match="give epsilon in units of value, or declare a support"):
        learn(env, Certified(0.5, relative=True), episodes=10)
    known = Assumptions(constraints=lambda step, state, action: 1.0)
    assert learn(env, Certified(0.5, relative=True), episodes=4_000, assumptions=known).certificate.holds


@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_stops_with_a_negative_optimum_has_a_certificate_that_holds(seed, tmp_path):
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0], transitions[0, 1], transitions[1:, :, 0] = (0, 0.5, 0.5), (0, 0.4, 0.6), 1
    costs = np.array([[1.0, 1.0], [2.0, 2.0], [1.0, 1.1]])
    model = TabularModel.from_arrays(transitions, -costs, np.ones((1, 3, 2)), 4, reward_range=(-2.0, -1.0))
    run = learn(model, Certified((0.4, 0.3, 0.2), relative=True), episodes=60_000, seed=seed, **QUIET)
    assert run.stop_reason == "certified"
    assert run.certificate.holds
    issued = run.issued[-1]
    assert (issued["gap"], issued["epsilon"]) == (run.certificate.gap, run.certificate.epsilon)
    run.certificate.save(tmp_path / "kept")
    assert verify(tmp_path / "kept").holds


# --- Declared to be safe ---------------------------------------------------------------------------------------------


def test_a_certificate_says_that_its_optimum_is_that_of_policies_declared_to_be_safe(tmp_path):
    """Both actions are safe, action 1 earns more, and the safe policy that is declared takes action 0."""
    model = chain([[0.2, 1.0]] * 2, 2, reward_range=(0, 1))
    known = Assumptions(deterministic=True, safe_policy=lambda step, state: 0)
    run = learn(model, Certified(0.1), episodes=300, assumptions=known, **QUIET)
    found = run.certificate
    assert found.holds
    assert found.optimum_high < solve(model).value - found.epsilon
    assert found.declared_safe
    assert "of the best policy that the declarations show to be safe" in found.claim
    assert "among those that the declarations show to be safe" in str(found)
    found.save(tmp_path / "kept")
    assert verify(tmp_path / "kept").claim == found.claim
    replace(found, declared_safe=False).save(tmp_path / "kept")
    assert "declared_safe" in verify(tmp_path / "kept").reason
    bold = replace(certified_without(model), declared_safe=True)
    bold.save(tmp_path / "kept")
    assert "declared_safe" in verify(tmp_path / "kept").reason


def certified_without(model):
    """The certificate of a run without such a declaration."""
    found = learn(model, Certified(0.1), episodes=300, assumptions=Assumptions(deterministic=True), **QUIET).certificate
    assert "best safe policy" in found.claim
    return found


# --- Rounding --------------------------------------------------------------------------------------------------------


def test_sums_are_exact_if_all_numbers_are_multiples_of_a_unit():
    assert sums_exactly(np.array([1.0, -3.0, 0.5]), 1000)
    assert sums_exactly(np.array([5e-324, 1e-323]), 3)
    assert sums_exactly(np.zeros(2), 3)
    assert not sums_exactly(np.array([1e16, -1e16, 1.0]), 3)
    assert not sums_exactly(np.array([0.1, 0.7]), 3)


def test_where_nothing_is_random_rounding_is_part_of_the_gap(tmp_path):
    """1e16 - 1e16 + 1 is 1, but 0 in floating point: no certificate may call 0.9 the best."""
    model = chain([[1e16, 0.0], [-1e16, -1e16], [1.0, 0.9]], 3, reward_range=(-1e16, 1e16))
    run = learn(model, Certified(0.0), episodes=300, assumptions=Assumptions(deterministic=True), **QUIET)
    assert not run.certificate.holds
    assert run.certificate.gap >= 1.0
    run.certificate.save(tmp_path / "kept")
    assert not verify(tmp_path / "kept").holds
    whole = chain([[8.0, 0.0], [-8.0, -8.0], [1.0, 0.5]], 3, reward_range=(-8.0, 8.0))
    for target in (whole, ModelEnvironment(whole, 1)):
        run = learn(target, Certified(0.0), episodes=300, assumptions=Assumptions(deterministic=True), **QUIET)
        assert (run.certificate.holds, run.certificate.gap, run.certificate.value_low) == (True, 0.0, 1.0)
        run.certificate.save(tmp_path / "kept")
        assert verify(tmp_path / "kept").holds


def test_rewards_in_a_small_unit_stay_in_their_range_or_are_refused():
    wide = {"reward_range": (0.0, 1e-10)}
    with pytest.raises(peakrl.PeakError, match="reward_range"):
        chain([[9e-10, 0.0]], 1, **wide)
    env = ModelEnvironment(chain([[9e-10, 0.0]], 1, reward_range=(0.0, 1e-9)), 1)
    env.metadata["peakrl"] |= wide
    with pytest.raises(TargetError, match="reward"):
        learn(env, Certified(1e-11), episodes=10)


def test_bounds_include_what_rewards_and_constraints_may_exceed_their_range_by():
    env = ModelEnvironment(problems.near_tie(), 1)
    run = learn(env, Certified(0.4), episodes=3_000, **QUIET)
    facts = run._learned.facts
    low, high = run._trainer.space.rules.rewards
    assert facts.reward_range == (low, high)
    assert low < 0.0 < 1.0 < high < 1.0 + 2e-9
    assert run.certificate.violation_high > run.certificate.violation_probability_high * 4.0


# --- Ends at the horizon ---------------------------------------------------------------------------------------------


class Clock(gymnasium.Env):
    """One state; action 1 earns 1, action 0 half of it. It calls the time limit an end."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)

    def __init__(self, horizon=4):
        self.horizon = horizon
        self.metadata = {
            "peakrl": {"horizon": horizon, "reward_range": (0.0, 1.0), "constraint_bounds": (1.0,), "stationary": True}
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.done = 0
        return 0, {}

    def step(self, action):
        self.done += 1
        reward = (1.0 if action else 0.5) * float(self.np_random.random() < 0.9)
        return 0, reward, self.done == self.horizon, False, {"constraints": 1.0}


@pytest.mark.parametrize("assumptions", [{}, {"states": 2**21}])
def test_a_time_limit_that_an_environment_calls_an_end_does_not_lower_the_best_value(assumptions, tmp_path):
    run = learn(Clock(), Certified(0.4), episodes=20_000, assumptions=Assumptions(**assumptions), **QUIET)
    assert run.certificate.optimum_high >= 4 * 0.9
    assert run.certificate.holds
    assert run.policy.action(0, 0) == 1
    run.certificate.save(tmp_path / "kept")
    assert verify(tmp_path / "kept").holds


class Breaks(Clock):
    """Action 1 earns nothing and leads to state 1, which earns 1 a step; otherwise 0.6. Ends with a chance of 0.02."""

    observation_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.state = 0
        return super().reset(seed=seed)

    def step(self, action):
        reward = 1.0 if self.state else (0.6, 0.0)[action]
        self.state, self.done = max(self.state, int(action)), self.done + 1
        ended = self.np_random.random() < 0.02 or self.done == self.horizon
        return self.state, reward, bool(ended), False, {"constraints": 1.0}


def test_a_time_limit_is_no_noise_of_declared_dynamics(tmp_path):
    known = Assumptions(
        rewards=True, dynamics=(lambda state, action, ends: None if ends else max(state, action), (0, 1))
    )
    run = learn(Breaks(3), Certified(0.1), episodes=20_000, assumptions=known, **QUIET)
    assert run.certificate.optimum_high >= 0.98 + 0.98**2
    assert run.policy.action(0, 0) == 1
    run.certificate.save(tmp_path / "kept")
    assert verify(tmp_path / "kept").holds == run.certificate.holds


class Steady(Clock):
    """The same without chance."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 1.0 if action else 0.5, *rest


def test_a_time_limit_contradicts_no_declaration_that_nothing_is_random(tmp_path):
    run = learn(Steady(), Certified(0.0), episodes=200, assumptions=Assumptions(deterministic=True), **QUIET)
    assert (run.certificate.holds, run.certificate.value_low, run.certificate.optimum_high) == (True, 4.0, 4.0)
    run.certificate.save(tmp_path / "kept")
    assert verify(tmp_path / "kept").holds


def test_bounds_that_contradict_each_other_end_the_run_and_name_the_declaration(monkeypatch):
    env = ModelEnvironment(problems.near_tie(), 1)
    known = Assumptions(constraints=lambda step, state, action: 1.0)
    monkeypatch.setattr("peakrl.learners.certified.phases.first_value", lambda tables, precision: (0.01, OPEN))
    with pytest.raises(TargetError, match=r"contradict each other: .*what is declared \(stationary, constraints\)"):
        learn(env, Certified(0.001), episodes=3_000, assumptions=known)


# --- Shared distributions --------------------------------------------------------------------------------------------


def test_lower_values_of_states_that_share_a_distribution_are_numbered_by_distribution():
    env = ModelEnvironment(problems.near_tie(), 1)
    shared = Assumptions(shared_transitions=lambda step, state, action: action, rewards=True)
    rules = replace(adapt(env).rules, states=None)
    declared = OnEnvironment(GrowingSpace(rules, by_step=False), shared)
    own = OnEnvironment(GrowingSpace(rules, by_step=False), Assumptions(rewards=True))
    slots, inverse = np.array([0, 1, 1, 2, 2, 3, 3]), np.array([2.0, 3 * 12, 3 * 12, 3 * 48])  # the first state first
    assert np.exp(declared.bet_logs(range(4), slots[:4])) == pytest.approx(inverse)
    assert np.exp(own.bet_logs(range(7), slots)) == pytest.approx(inverse[slots])
