"""A policy learned on an environment meets a state that learning never met."""

import gymnasium
import pytest

import peakrl
from peakrl.errors import SettingsError, UnknownStateError


class Fork(gymnasium.Env):
    """Shows 0; a step leads to 1 while `closed`, to 2 afterwards, where action 1 earns 1 and action 0 nothing."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.closed = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action):
        earned = float(self.place == 2 and action == 1)
        self.place = 1 if self.closed else 2
        return self.place, earned, False, False, {"cost": 0.0}


@pytest.fixture(scope="module")
def learned():
    fork = Fork()
    env = peakrl.ConstrainedEnv(fork, horizon=2, reward_range=(0, 1))
    run = peakrl.learn(env, episodes=20)
    fork.closed = False
    return env, run.policy


def test_by_default_an_action_is_drawn_and_counted(learned):
    env, policy = learned
    sample = peakrl.simulate(env, policy, episodes=400)
    assert sample.unknown_steps == 400  # one of the two steps of every episode
    assert abs(sample.value - 0.5) < 0.15  # a fair coin: six standard deviations
    assert "400 steps in states unknown to the policy" in repr(sample)
    assert peakrl.simulate(env, policy, episodes=400).value == sample.value


def test_a_rule_decides_there_and_nowhere_else(learned):
    env, policy = learned
    asked = []

    def rule(step, state, actions):
        asked.append((step, state))
        return actions[-1]

    assert peakrl.simulate(env, policy, episodes=5, unknown=rule).value == 1.0
    assert asked == [(1, 2)] * 5
    assert peakrl.rollout(env, policy, unknown=lambda *where: 1)[1].reward == 1.0


def test_an_error_says_that_the_state_was_not_met(learned):
    env, policy = learned
    with pytest.raises(UnknownStateError, match="state 2 was not visited at step 1 while learning"):
        peakrl.simulate(env, policy, episodes=5, unknown="raise")
    with pytest.raises(UnknownStateError, match="was not visited"):
        peakrl.rollout(env, policy, unknown="raise")


def test_known_states_are_left_to_the_policy(learned):
    _, policy = learned
    env = peakrl.ConstrainedEnv(Fork(), horizon=2, reward_range=(0, 1))
    assert peakrl.simulate(env, policy, episodes=5).unknown_steps == 0


def test_what_is_no_way_to_decide_is_refused(learned):
    env, policy = learned
    with pytest.raises(SettingsError, match="unknown must be"):
        peakrl.simulate(env, policy, episodes=5, unknown="guess")
