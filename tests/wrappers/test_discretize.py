"""Discretize: cells in place of continuous observations, from which nothing is proved."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import peakrl
from peakrl.errors import SettingsError, TargetError


class Slope(gymnasium.Env):
    """x' = x + a + 0.7, violated above 2; from the first x, in [1, 2], only a = 0 with x <= 1.3 is safe."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(1.0, 2.0)
        return np.array([self.x, 0.0]), {}

    def step(self, action):
        self.x += action + 0.7
        return np.array([self.x, 0.0]), 0.0, False, False, {"cost": max(0.0, self.x - 2.0)}


def declared(env):
    return peakrl.ConstrainedEnv(env, horizon=1, reward_range=(0, 1), constraint_bounds=(9.0,))


def test_cells_have_equal_width_and_the_outer_ones_take_the_rest():
    env = peakrl.Discretize(Slope(), (4, 5), low=(0, -1), high=2)
    rng = np.random.default_rng(0)
    for point in rng.uniform(-3, 4, (200, 2)):
        expected = np.clip(np.floor((point - [0, -1]) / [0.5, 0.6]), 0, [3, 4])
        assert env.observation(point).tolist() == expected.tolist()
        assert env.observation_space.contains(env.observation(point))
    assert [env.observation([x, 0])[0] for x in (-1, 0, 0.5, 1.5, 2, 9)] == [0, 0, 1, 3, 3, 3]  # edges: the upper cell
    with pytest.raises(TargetError, match="NaN"):
        env.observation([0.0, np.nan])


def test_infeasibility_is_never_called_proved():
    env = peakrl.Discretize(declared(Slope()), (1, 1), low=0, high=9)
    known = peakrl.Assumptions(states=1)  # which would make observations states elsewhere
    run = peakrl.learn(env, "SafeQ", episodes=200, assumptions=known)
    assert run.violations > 0
    assert run.feasible is not False
    assert not run.infeasibility_proof
    assert peakrl.simulate(env, lambda cell: 0, episodes=500).violation_frequency < 0.95  # some x are safe
    certified = peakrl.learners.Certified(epsilon=5.0)
    found = peakrl.learn(env, certified, episodes=200, assumptions=known)
    assert found.stop_reason != "infeasible"
    assert any("cells are treated as states" in line for line in found.certificate.rests_on)


WRONG = [
    (((4, 5), {}), "low is not finite in coordinate 0, 1"),
    (((4, 5), {"low": 0, "high": (1, np.inf)}), "high is not finite in coordinate 1"),
    (((4, 5, 6), {"low": 0, "high": 1}), "3 numbers for 2 coordinates"),
    ((4, {"low": 0, "high": (1, 0)}), "must be below"),
    (((4, 0), {"low": 0, "high": 1}), r"cells\[1\] is 0"),
]


def test_wrong_arguments_are_named():
    for arguments, message in WRONG:
        cells, ends = arguments
        with pytest.raises(SettingsError, match=message):
            peakrl.Discretize(Slope(), cells, **ends)
