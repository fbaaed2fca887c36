"""Vectorised environments: what lanes do that have no episode of their own, in all autoreset modes."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from peakrl import Assumptions, certify, learn, simulate

MODES = list(AutoresetMode)


class Counter(gymnasium.Env):
    """Shows how many steps were taken, ends after 1 to 4 of them, and keeps what was done."""

    observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2)
    metadata = {  # noqa: RUF012  # as Gymnasium has it
        "render_modes": [],
        "peakrl": {"horizon": 4, "reward_range": (0.0, 1.0), "constraint_bounds": (1.0,)},
    }

    def __init__(self):
        self.taken, self.steps = set(), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(1, 5))
        return 0, {}

    def step(self, action):
        self.taken.add(int(action))
        self.steps += 1
        info = {"constraints": np.array([-1.0 if action == 0 else 1.0])}
        return self.steps, 0.5, self.steps == self.length, False, info


class Deaf(SyncVectorEnv):
    """Knows nothing of single lanes to be reset."""

    def reset(self, *, seed=None, options=None):
        assert options is None
        return super().reset(seed=seed)


def lanes(mode, count=3):
    return SyncVectorEnv([Counter] * count, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_begins_where_its_lane_is_though_others_were_waited_for(mode):
    def policy(step, state, actions):
        assert state == step
        return 1

    found = certify(lanes(mode), policy, epsilon=1e-3, episodes=600, seed=0)
    assert found.episodes == 600


@pytest.mark.parametrize("mode", MODES)
def test_a_lane_without_an_episode_does_nothing_that_is_declared_to_fail(mode):
    env = lanes(mode)
    assumptions = Assumptions(constraints=lambda step, state, action: -1.0 if action == 0 else 1.0)
    run = learn(env, episodes=4, assumptions=assumptions)
    assert run.violations == 0
    assert all(each.unwrapped.taken == {1} for each in env.envs)


@pytest.mark.parametrize("mode", MODES)
def test_a_lane_without_an_episode_does_what_the_policy_does(mode):
    env = lanes(mode)
    assert simulate(env, lambda step, state, actions: 1, episodes=4).violation == 0
    assert all(each.unwrapped.taken == {1} for each in env.envs)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_environment_that_resets_itself_is_not_asked_to_reset_a_lane(mode, monkeypatch):
    monkeypatch.setattr("peakrl.gym.vector.SyncVectorEnv", type("Other", (), {}))
    found = simulate(Deaf([Counter] * 3, autoreset_mode=mode), lambda step, state, actions: 1, episodes=4)
    assert found.violation == 0
