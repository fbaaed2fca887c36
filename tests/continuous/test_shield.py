"""The shield of continuous problems: no violation, masks inside of blocks, and contradictions to the dynamics."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit, TransformObservation

import peakrl
from helpers.continuous_systems import SYSTEMS, pendulum, points_of, room
from peakrl.errors import PeakError, PolicyError, SettingsError, TargetError
from peakrl.problems.continuous_systems import ANGLE, cartpole, cartpole_step


class Watched(gymnasium.Wrapper):
    """Hides the environment, so that steps are compared with the dynamics."""


def from_safe_points(problem, safe, seed=0):
    """An environment of the problem that begins in safe states, some of them on edges of cells."""
    points = itertools.cycle(points_of(safe, 200, np.random.default_rng(seed)))
    problem.start = lambda generator: next(points)
    return peakrl.to_gymnasium(problem)


@pytest.mark.parametrize(
    ("name", "block"), [("room", 3), ("pendulum", 1), ("pendulum", 3), ("turning", 1), ("jumping", 1)]
)
def test_a_random_agent_never_violates(name, block):
    make, cells = SYSTEMS[name]
    problem = make(block=block)
    safe = peakrl.safe_set(problem, cells=cells)
    env = peakrl.shield(TimeLimit(Watched(from_safe_points(problem, safe)), 40), safe)
    env.action_space.seed(1)
    over = True
    for _ in range(600):
        if over:
            env.reset()
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        over = terminated or truncated
        assert (info["constraints"] >= 0).all()
    env.close()
    assert env.replaced > 0


def test_inside_of_a_block_those_actions_are_safe_that_continue_a_safe_sequence():
    problem = pendulum(block=3)
    safe = peakrl.safe_set(problem, cells=100)
    env = peakrl.shield(from_safe_points(problem, safe), safe)
    rng, narrow = np.random.default_rng(0), 0
    for _ in range(50):
        x, info = env.reset()
        left = safe.actions(x)
        for position in range(3):
            wanted = [action in {sequence[position] for sequence in left} for action in problem.actions]
            assert info["action_mask"].tolist() == wanted
            narrow += not all(wanted)
            index = int(rng.choice(np.flatnonzero(wanted)))
            left = [sequence for sequence in left if sequence[position] == problem.actions[index]]
            x, *_, info = env.step(index)
        assert (env.action_masks() == [any(s[0] == a for s in safe.actions(x)) for a in problem.actions]).all()
    assert narrow > 10


class Heated(gymnasium.Env):
    """The room as somebody else would write it, with another heater, outside temperature or precision."""

    observation_space = gymnasium.spaces.Box(-50, 50, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, heat=2.5, outside=5.0, precision=np.float64, start=21.0):
        self.heat, self.outside, self.precision, self.start = heat, outside, precision, start

    def reset(self, *, seed=None, options=None):
        self.x = self.start
        return np.array([self.x], self.precision), {}

    def step(self, action):
        self.x = 0.9 * self.x + 0.1 * self.outside + self.heat * action  # not the order of operations of the problem
        return np.array([self.x], self.precision), 1.0, False, False, {"cost": float(not 18 <= self.x <= 24)}


def episode(env, steps=100):
    env.reset(seed=0)
    costs = [env.step(step % 3 == 0)[4]["cost"] for step in range(steps)]
    env.close()
    return sum(costs)


@pytest.mark.parametrize(
    ("problem", "measured", "env", "message"),
    [
        ({}, 0.0, {"outside": 10.5}, r"'temperature' is 0.05 beyond what they allow"),
        ({}, 0.0, {"heat": 3.6}, r"by action 1 .*'temperature' is 0\..* beyond"),
        ({"slack": 1e-13}, 0.0, {"precision": np.float32, "outside": 10.0}, "declare slack= or measured="),
        ({"slack": 1e-13}, 0.0, {}, None),
        ({}, 1e-5, {"precision": np.float32}, None),
    ],
)
def test_a_step_that_the_dynamics_exclude_is_an_error(problem, measured, env, message):
    safe = peakrl.safe_set(room(**problem), cells=300, measured=measured)
    env = peakrl.shield(Heated(**env), safe)
    if message is None:
        assert episode(env) == 0
    else:
        with pytest.raises(TargetError, match=message):
            episode(env)


def test_a_state_that_is_not_safe_is_an_error_or_an_emergency():
    safe = peakrl.safe_set(room(slack=1e-13), cells=300)
    with pytest.raises(TargetError, match=r"no action is safe at step 0 .*temperature 30 is outside of the box"):
        episode(peakrl.shield(Heated(start=30.0), safe))
    with pytest.raises(TargetError, match=r"no action is safe at step 0 .*may leave its range"):
        episode(peakrl.shield(Heated(), peakrl.safe_set(room(), cells=1)))
    env = peakrl.shield(Heated(start=30.0), safe, emergency=lambda observation: int(observation[0] < 20))
    _, info = env.reset()
    lost = [info["shield_lost"]]
    for _ in range(20):
        info = env.step(1)[4]
        lost.append(info["shield_lost"])
    assert lost[0]
    assert not lost[-1]
    assert lost == sorted(lost, reverse=True)
    with pytest.raises(TargetError, match="must hold a number for each of temperature"):
        peakrl.shield(TransformObservation(Heated(), lambda x: x.repeat(2), None), safe).reset()
    with pytest.raises(TargetError, match="must hold a number for each of temperature"):
        peakrl.shield(TransformObservation(Heated(), np.squeeze, None), safe).reset()


def test_an_environment_is_never_silently_left_without_the_shield_that_was_asked_for():
    with pytest.raises(PeakError, match=r"shield\(to_gymnasium\(problem\), safe_set\(problem, cells=...\)\)"):
        peakrl.to_gymnasium(room(), shielded=True)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_lanes_of_a_vectorised_environment_are_shielded(mode):
    make = [lambda: TimeLimit(Heated(precision=np.float32), 7)] * 3
    env = peakrl.shield(
        SyncVectorEnv(make, autoreset_mode=mode), peakrl.safe_set(room(), cells=300, measured=1e-5),
        mask_keys=("observation", "action_mask"),
    )  # fmt: skip
    seen, infos = env.reset(seed=0)
    for step in range(30):
        assert (seen["action_mask"] == env.action_masks()).all()
        seen, _, _, truncated, infos = env.step(np.array([step % 2, 1, 0]))
        assert not np.any(infos.get("cost", 0.0))
        if mode is AutoresetMode.DISABLED and truncated.any():
            seen, infos = env.reset(options={"reset_mask": truncated})
    env.close()
    assert env.replaced > 0


def test_unsafe_actions_are_refused_with_a_reason_and_a_fallback_must_be_safe():
    safe = peakrl.safe_set(room(slack=1e-13), cells=300)
    env = peakrl.shield(Heated(start=23.9), safe, on_unsafe="raise")
    env.reset()
    with pytest.raises(PolicyError, match=r"action 1 .* is not safe: 1 in the cell .* may leave its range"):
        env.step(1)
    env = peakrl.shield(Heated(start=23.9), safe, fallback=lambda step, x: int(x[0] < 21))
    env.reset()
    assert env.step(1)[4]["shield_action"] == 0
    env = peakrl.shield(Heated(start=23.9), safe, fallback=lambda step, x: 1)
    env.reset()
    with pytest.raises(PolicyError, match=r"the fallback's action 1 .* is not safe either"):
        env.step(1)
    odd = Heated()
    odd.action_space = gymnasium.spaces.Discrete(1)
    with pytest.raises(SettingsError, match="actions= names 2 actions; the environment has 1"):
        peakrl.shield(odd, safe)


def test_a_policy_of_observations_is_judged_behind_the_shield():
    env = peakrl.shield(Heated(precision=np.float32), peakrl.safe_set(room(), cells=300, measured=1e-5))
    env = peakrl.ConstrainedEnv(env, horizon=50, reward_range=(0, 1), constraint_bounds=(1.0,))
    certificate = peakrl.certify(env, lambda observation: 1, episodes=5)
    assert certificate.holds
    assert any("behind a shield" in line for line in certificate.rests_on)


def scores(env, episodes):
    """The returns of random agents, and whether the pole was upright at the end."""
    found = []
    for seed in range(episodes):
        (_, info), over, total = env.reset(seed=seed), False, 0.0
        while not over:
            _, reward, terminated, truncated, info = env.step(env.action_space.sample(info.get("action_mask")))
            over, total = terminated or truncated, total + reward
        found.append((total, abs(env.unwrapped.state[2]) <= ANGLE))
    env.close()
    return found


def test_no_pole_falls_behind_the_shield_of_the_pole_alone():
    """In CartPole-v1 angle and spin do not depend on the cart."""
    pole = peakrl.ContinuousProblem(
        lambda x, a, w: cartpole_step([0.0, 0.0, *x], a, w)[2:],
        box={"angle": (-ANGLE, ANGLE), "spin": (-2, 2)}, actions=[0, 1],
    )  # fmt: skip
    cart = gymnasium.make("CartPole-v1")
    alone = scores(cart, 10)
    assert not any(upright for _, upright in alone)
    safe = peakrl.safe_set(pole, cells=300)
    shielded = scores(peakrl.shield(cart, safe, state_of=lambda observation, step: cart.unwrapped.state[2:]), 10)
    assert all(upright for _, upright in shielded)
    assert np.mean(shielded, axis=0)[0] > 2 * np.mean(alone, axis=0)[0]


@pytest.mark.slow
def test_a_random_agent_scores_500_in_every_episode_of_cartpole():
    cart, safe = gymnasium.make("CartPole-v1"), peakrl.safe_set(cartpole(block=5), cells=(48, 40, 42, 40))
    env = peakrl.shield(cart, safe, state_of=lambda observation, step: cart.unwrapped.state)
    assert {total for total, _ in scores(env, 100)} == {500.0}
