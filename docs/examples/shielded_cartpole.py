"""CartPole-v1 behind a shield: a random agent never drops the pole, and PPO learns without dropping it once.

The safe set, 3.2 million cells with sequences of 5 actions, takes one to two minutes and is kept in the file
`cartpole.set`. Training needs `pip install '.[sb3]'`; without it only the random agent runs.
"""

import importlib.util
from pathlib import Path

import gymnasium

import peakrl

pole = peakrl.problems.cartpole(block=5)
file = Path("cartpole.set")
if not file.exists():
    peakrl.safe_set(pole, cells=(48, 40, 42, 40)).save(file)
safe = peakrl.load(file, pole)
print(safe)


def make(shielded=True):
    """Return CartPole-v1, which shows its state in float32; the shield looks up the exact one."""
    cart = gymnasium.make("CartPole-v1")
    return peakrl.shield(cart, safe, state_of=lambda observation, step: cart.unwrapped.state) if shielded else cart


def score(env, decide, seed):
    """Return the return of an episode."""
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(decide(observation))
        total, over = total + float(reward), terminated or truncated
    return total


def random_scores(shielded, episodes=20):
    """Return the returns of an agent that draws its actions."""
    env = make(shielded)
    env.action_space.seed(0)
    return [score(env, lambda observation: env.action_space.sample(), seed) for seed in range(episodes)]


print("random agent:", random_scores(shielded=False))
print("the same behind the shield:", random_scores(shielded=True))
assert set(random_scores(shielded=True, episodes=5)) == {500.0}

if importlib.util.find_spec("stable_baselines3"):
    from stable_baselines3 import PPO
    from stable_baselines3.common.monitor import Monitor

    for shielded in (False, True):
        env = Monitor(make(shielded))
        agent = PPO("MlpPolicy", env, seed=0, device="cpu").learn(15_000)
        fallen = sum(length < 500 for length in env.get_episode_lengths())
        declared = peakrl.ConstrainedEnv(
            make(shielded), constraint=lambda t: -1.0 if t.terminated else 1.0, constraint_bounds=(1.0,),
            reward_range=(0, 1),
        )  # fmt: skip
        certificate = peakrl.certify(declared, agent, episodes=20, seed=0)
        print(f"PPO {'behind the shield' if shielded else 'alone'}: {fallen} poles fell in 15,000 steps of training")
        print(certificate)
        assert not (shielded and fallen)
