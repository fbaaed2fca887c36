"""Agents of Stable-Baselines3 behind the shield of CartPole: no pole falls, and nothing is lost by it."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import peakrl

pytestmark = pytest.mark.slow
STEPS, SEEDS = 15_000, range(5)


@pytest.fixture(scope="module")
def safe():
    return peakrl.safe_set(peakrl.problems.cartpole(block=5), cells=(48, 40, 42, 40))


def trained(kind, env, seed):
    """The number of episodes that ended early in training, and the mean return of ten episodes after it."""
    baselines = pytest.importorskip("stable_baselines3")
    env = baselines.common.monitor.Monitor(env)
    agent = getattr(baselines, kind)("MlpPolicy", env, seed=seed, device="cpu").learn(STEPS)
    fallen = sum(length < 500 for length in env.get_episode_lengths())
    for _ in range(10):
        observation, _ = env.reset()
        over = False
        while not over:
            observation, _, terminated, truncated, _ = env.step(agent.predict(observation, deterministic=True)[0])
            over = terminated or truncated
    return fallen, float(np.mean(env.get_episode_rewards()[-10:]))


@pytest.mark.parametrize("kind", ["PPO", "DQN"])
def test_no_pole_falls_while_an_agent_learns_behind_the_shield_and_its_return_is_no_lower(kind, safe):
    results = {}
    for shielded in (False, True):
        for seed in SEEDS:
            cart = gymnasium.make("CartPole-v1")
            env = peakrl.shield(cart, safe, state_of=lambda *_, cart=cart: cart.unwrapped.state) if shielded else cart
            results[shielded, seed] = trained(kind, env, seed)
            print(kind, "shield" if shielded else "alone", seed, results[shielded, seed])
    fallen, returns = (
        {shielded: [results[shielded, seed][index] for seed in SEEDS] for shielded in (False, True)} for index in (0, 1)
    )
    assert sum(fallen[True]) == 0
    assert min(fallen[False]) > 0
    assert np.mean(returns[True]) >= np.mean(returns[False])
