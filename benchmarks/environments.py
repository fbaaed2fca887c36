"""Learning on environments: what `learn` adds to an environment's own steps.

The bare loop takes as many random actions as the run took steps, with `reset` at the end of an episode; its time over
that of `learn` is the share of the bare loop's speed. Everything in a run is counted: seeding every episode, reading
constraints, learning, planning, history. The time of the learner itself (its updates, draws and plans) is shown too,
and the share that is left without it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from benchmarks.timing import Section, in_turns
from peakrl import Assumptions, ConstrainedEnv, learn, learners
from peakrl.learners import Certified, ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.learners.base import LearnerSettings


@dataclass(frozen=True)
class Case:
    """An environment of Gymnasium's toy text with a constraint."""

    names: tuple[str, ...]
    reward_range: tuple[float, float]
    constraint: Callable[[Any], float]
    horizon: int
    episodes: int

    def make(self) -> Any:
        """Return the environment, in the newest of the versions that this Gymnasium has."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gymnasium.make(next(name for name in self.names if name in gymnasium.registry))

    def learn(self, env: Any, settings: LearnerSettings, assumptions: Assumptions, episodes: int) -> None:
        """Learn on it."""
        constrained = ConstrainedEnv(
            env,
            constraint=self.constraint,
            constraint_bounds=(1.0,),
            horizon=self.horizon,
            reward_range=self.reward_range,
        )
        learn(constrained, settings, episodes=episodes, assumptions=assumptions)


#: No round more is begun after so long, so that all of them together take some minutes.
SECONDS_A_LINE = 8.0
HOLES = frozenset({5, 7, 11, 12})
CASES = {
    "FrozenLake": Case(("FrozenLake-v1",), (0, 1), lambda t: -1.0 if t.next_observation in HOLES else 1.0, 100, 2000),
    "CliffWalking": Case(
        ("CliffWalking-v1", "CliffWalking-v0"), (-100, 0), lambda t: -1.0 if t.reward <= -100 else 1.0, 100, 1000
    ),
    "Taxi": Case(("Taxi-v4", "Taxi-v3"), (-10, 20), lambda t: -1.0 if t.reward <= -10 else 1.0, 200, 500),
}


def learner_settings() -> dict[str, LearnerSettings]:
    """Return the learners that are timed."""
    return {
        "PosteriorSampling (default)": PosteriorSampling(),
        "SafeQ": SafeQ(),
        "Algorithm 1": ConstrainedQ.published(0.1),
        "Certified": Certified(0.5),
        "UCBVI": learners.UCBVI(),
        "Triple-Q": learners.TripleQ(total=1.0),
    }


def environment_rates(section: Section, repeats: int, quick: bool) -> None:
    """Every learner on every environment, each step apart and declared stationary."""
    for name, case in CASES.items():
        section.say(f"{name}: {case.horizon} steps")
        env, episodes = case.make(), case.episodes // (50 if quick else 1)
        for learner, settings in learner_settings().items():
            for declared, stationary in (("apart", None), ("shared", True)):
                run = partial(case.learn, env, settings, Assumptions(stationary=stationary), episodes)
                steps = counted(env, run)
                bare, taken = in_turns([partial(bare_loop, env, steps), run], repeats, most=SECONDS_A_LINE)
                own = in_learner(settings, run)
                section.add(
                    environment=name,
                    learner=learner,
                    steps=declared,
                    **{"steps a second": steps / taken, "bare loop": steps / bare, "share": bare / taken},
                    **{"in the learner": own, "share without": bare / (taken * (1.0 - own))},
                )
    section.notes += [
        "share: the speed of `learn` over that of the bare loop; shared: declared stationary",
        "in the learner: how much of the time its own updates, draws and plans take; share without: without them",
    ]


def counted(env: Any, run: Callable[[], None]) -> int:
    """Return how many steps a run takes."""
    step, count = env.step, 0

    def counting(action: Any) -> Any:
        nonlocal count
        count += 1
        return step(action)

    env.step = counting
    try:
        run()
    finally:
        del env.step
    return count


def in_learner(settings: LearnerSettings, run: Callable[[], None]) -> float:
    """Return the share of a run's time that the algorithm itself takes."""
    kind, spent = type(settings), 0.0
    make = kind.make

    def timed(function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            nonlocal spent
            begun = time.process_time()
            found = function(*arguments)
            spent += time.process_time() - begun
            return found

        return call

    def make_timed(self: Any, task: Any) -> Any:
        algorithm: Any = make(self, task)
        algorithm.begin, algorithm.learn = timed(algorithm.begin), timed(algorithm.learn)
        return algorithm

    kind.make = make_timed  # type: ignore[method-assign]
    try:
        begun = time.process_time()
        run()
        return spent / max(time.process_time() - begun, 1e-9)
    finally:
        kind.make = make  # type: ignore[method-assign]


def bare_loop(env: Any, steps: int) -> None:
    """Take random actions, which are drawn beforehand."""
    env.reset(seed=0)
    for action in np.random.default_rng(0).integers(env.action_space.n, size=steps).tolist():
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
