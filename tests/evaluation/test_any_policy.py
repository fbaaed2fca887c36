"""Policies from elsewhere on environments with any observations: simulate, rollout and certify."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import peakrl
from peakrl.errors import PolicyError, SettingsError


class Point(gymnasium.Env):
    """Walk on the line: x' = x + a/4; |x| <= 1 is the constraint. The first x is drawn from [-0.1, 0.1]."""

    observation_space = spaces.Box(-9.0, 9.0, (1,), np.float64)
    action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.1, 0.1, 1)
        return self.x, {}

    def step(self, action):
        self.x += 0.25 * np.asarray(action)  # in place: the observation is the environment's own buffer
        return self.x, 1.0, False, False, {"cost": max(0.0, abs(float(self.x[0])) - 1.0)}


class Pushed(Point):
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)


def declared(env):
    return peakrl.ConstrainedEnv(env, horizon=6, reward_range=(0, 1), constraint_bounds=(9.0,))


def back(x):
    return -np.sign(x[0]).astype(int)


class Recurrent:
    """Has the `predict` of Stable-Baselines3; its memory counts the steps of an episode."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        state = 0 if state is None else state + 1
        return np.array(1 if state < 5 else 0), state


def test_a_function_of_the_observation_is_followed_step_by_step():
    steps = peakrl.rollout(declared(Point()), back, seed=3)
    first = steps[0].state[0]
    assert [step.state[0] for step in steps[:3]] == pytest.approx([first, first - np.sign(first) / 4, first])
    assert len(steps) == 6
    assert steps[2].next_state == steps[3].state
    ahead = peakrl.rollout(declared(Point()), lambda step, state, actions: actions[-1], seed=3)
    assert ahead[0].state == first
    assert ahead[5].violation == pytest.approx(first + 0.5)


@pytest.mark.parametrize("lanes", [1, 3])
def test_simulate_agrees_with_a_loop_over_the_environment(lanes):
    env, actions = Point(), []
    for episode in range(50):
        env.reset(seed=episode)
        actions.append(sum(env.step(1)[4]["cost"] for _ in range(6)))
    many = Point() if lanes == 1 else gymnasium.vector.SyncVectorEnv([Point] * lanes)
    found = peakrl.simulate(declared(many), lambda x: 1, episodes=400)
    assert found.value == 6.0
    assert found.violation == pytest.approx(np.mean(actions), abs=0.05)
    assert peakrl.simulate(declared(many), back, episodes=40).violation == 0.0


@pytest.mark.parametrize("lanes", [1, 2])
def test_continuous_actions_are_passed_on(lanes):
    env = declared(Pushed() if lanes == 1 else gymnasium.vector.SyncVectorEnv([Pushed] * lanes))
    assert peakrl.simulate(env, lambda x: -x, episodes=30).violation == 0.0
    assert peakrl.simulate(env, lambda x: [0.9], episodes=30).violation_frequency == 1.0
    with pytest.raises(PolicyError, match=r"the policy takes \[3.0\].*not in Box"):
        peakrl.simulate(env, lambda x: [3.0], episodes=2)


def test_a_certificate_says_what_it_rests_on():
    certificate = peakrl.certify(declared(Point()), Recurrent(), episodes=300, seed=1)
    assert not certificate.holds  # x > 1 after four steps ahead
    words = " ".join(certificate.rests_on)
    assert "predict(observation, deterministic=True), remembers nothing of an episode in the next" in words
    assert "shield" not in words
    assert peakrl.certify(declared(Point()), back, episodes=300, seed=1).holds


def test_a_policy_may_ask_for_unsafe_actions_behind_a_shield_only():
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    holes = {5, 7, 11, 12}
    dry = peakrl.from_gymnasium(lake, constraint=lambda t: -1.0 if t.next_observation in holes else 1.0)
    for env in (
        peakrl.shield(lake, peakrl.safe_set(dry)),
        gymnasium.vector.SyncVectorEnv([lambda: peakrl.shield(lake, peakrl.safe_set(dry))]),
    ):
        env = peakrl.ConstrainedEnv(
            env, constraint=lambda t: -1.0 if t.next_observation in holes else 1.0,
            constraint_bounds=(1.0,), reward_range=(0, 1), horizon=100,
        )  # fmt: skip
        certificate = peakrl.certify(env, lambda observation: observation % 4, episodes=20)
        assert certificate.holds
        assert any("behind a shield, which replaced its action at" in line for line in certificate.rests_on)
    with pytest.raises(PolicyError, match="does not offer it"):
        peakrl.simulate(env, lambda observation: 7, episodes=2)


def test_tables_cannot_be_learned_of_continuous_observations():
    for env in (Point(), declared(Point()), declared(Pushed())):
        with pytest.raises(SettingsError, match="holds a Box"):
            peakrl.learn(env, episodes=5)
