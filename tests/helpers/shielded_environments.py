"""Ten shielded environments, each with its own test of a violation that knows nothing of safe sets."""

from __future__ import annotations

import gymnasium
from gymnasium import spaces

from helpers.random_problems import random_problem
from peakrl import Outcome, Problem, from_gymnasium, safe_set, shield, to_gymnasium
from peakrl.problems import energy_harvesting, scheduling_example

TRANSMITTER = energy_harvesting(horizon=5, battery=4, max_arrival=3, mean=2, std=1, peak_power=3)


def lake(**options):
    return gymnasium.make("FrozenLake-v1", **options)


def holes(transition):
    """FrozenLake's 4x4 map: do not fall in."""
    return -1.0 if transition.next_observation in {5, 7, 11, 12} else 1.0


def large_holes(transition):
    return -1.0 if transition.next_observation in LARGE_HOLES else 1.0


LARGE_HOLES = {19, 29, 35, 41, 42, 46, 49, 52, 54, 59}


def cliff(transition):
    return 99.0 + transition.reward


def illegal(transition):
    """Taxi: a passenger is let in or out where that is not possible."""
    return 9.0 + transition.reward


def latest(name):
    """Gymnasium's releases number some of their environments anew."""
    return max((each for each in gymnasium.registry if each.startswith(f"{name}-v")), key=lambda each: each[-1])


def table(name, constraint, violates, **options):
    """An environment of Gymnasium's, shielded by what its own table says."""

    def make():
        env = gymnasium.make(latest(name), max_episode_steps=100, **options)
        return shield(env, safe_set(from_gymnasium(env, constraint=constraint))), violates

    return make


def problem(given):
    """One of our problems: its environment tells what is violated."""

    def make():
        return to_gymnasium(given, shielded=True), lambda observation, reward, info: bool(
            (info["constraints"] < 0).any()
        )

    return make


class Corridor(gymnasium.Env):
    """Places 0 to 5 with pits at both ends; a step to the right may slip one further. Actions 0, 1, 2."""

    observation_space, action_space = spaces.Discrete(6), spaces.Discrete(3)
    horizon = 12

    def show(self):
        return self.place

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = 2, 0
        return self.show(), {}

    def step(self, action):
        move = int(action) - 1
        slip = move == 1 and self.np_random.random() < 0.3
        self.place = min(max(self.place + move + slip, 0), 5)
        self.time += 1
        return self.show(), float(self.place), False, self.time >= self.horizon, {"fell": self.place in (0, 5)}

    @staticmethod
    def problem():
        return CorridorProblem()


class CorridorProblem(Problem):
    name, horizon, stationary, constraint_names = "corridor", Corridor.horizon, True, ("pit",)

    def initial(self):
        return [(1.0, 2)]

    def actions(self, step, state):
        return ["left", "stay", "right"]

    def outcomes(self, step, state, action):
        move = {"left": -1, "stay": 0, "right": 1}[action]
        for chance, slip in ((0.9, 0), (0.1, 1)) if move == 1 else ((1.0, 0),):  # not how likely it really is
            after = min(max(state + move + slip, 0), 5)
            yield Outcome(chance, after, float(after), (-1.0 if after in (0, 5) else 1.0,))


def corridor():
    guarded = shield(Corridor(), safe_set(CorridorProblem()), actions=["left", "stay", "right"])
    return guarded, lambda observation, reward, info: info["fell"]


def fallen(places):
    return lambda observation, reward, info: int(observation) in places


ENVIRONMENTS = {
    "frozen lake": table("FrozenLake", holes, fallen({5, 7, 11, 12})),
    "frozen lake, not slippery": table("FrozenLake", holes, fallen({5, 7, 11, 12}), is_slippery=False),
    "large frozen lake": table("FrozenLake8x8", large_holes, fallen(LARGE_HOLES)),
    "cliff walking": table("CliffWalking", cliff, lambda observation, reward, info: reward < -99),
    "taxi": table("Taxi", illegal, lambda observation, reward, info: reward < -9),
    "energy harvesting": problem(TRANSMITTER),
    "scheduling 1": problem(scheduling_example(1)),
    "scheduling 2": problem(scheduling_example(2)),
    "a random problem": problem(random_problem(11, states=4, actions=3, horizon=6, safe_action=True)),
    "a user's corridor": corridor,
}
