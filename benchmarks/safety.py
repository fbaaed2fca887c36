"""The safe set and its masks: seconds to work it out, microseconds to ask."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium

from peakrl.benchmark.scaling import sparse_model
from peakrl.benchmark.sections import Section, in_turns
from peakrl.kernels.safety import keeping_rows, safe_steps
from peakrl.model.explore import compile_model
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.safety.safe_set import SafeSet
from peakrl.safety.shield import shield


class Still(gymnasium.Env[Any, Any]):
    """An environment that costs next to nothing, so that the time of a step is the shield's."""

    def __init__(self, actions: int, horizon: int) -> None:
        self.observation_space, self.action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(actions)
        self.horizon, self.time = horizon, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        self.time = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Nothing happens."""
        self.time += 1
        return 0, 0.0, False, self.time >= self.horizon, {}


def safety_rates(section: Section, repeats: int, quick: bool) -> None:
    """The kernel on growing models, then one mask by number, by label, and a step through the wrapper."""
    for states in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
        model = sparse_model(states)

        def work(model: Any = model) -> None:
            safe_steps(model.layout, keeping_rows(model.layout, model.payoffs))

        seconds = in_turns([work], repeats if states < 1_000_000 else 1)[0]
        section.add(what="safe set", size=f"{model.num_nodes - states:,} (step, state), 10 actions", seconds=seconds)
    safe = SafeSet(compile_model(energy_harvesting()))
    node, count = safe.node_of(3, (5, 4)), 2_000 if quick else 20_000
    env, bare = still_pair()
    calls: dict[str, Callable[[], Any]] = {
        "mask by number: mask_of(node)": lambda: safe.mask_of(node),
        "mask by label: mask(step, state)": lambda: safe.mask(3, (5, 4)),
        "env.action_masks()": env.action_masks,
    }
    for name, call in calls.items():
        section.add(what=name, size="one mask", seconds=min(each(call, count) for _ in range(repeats)))
    taken = [min(episode(one, count // 20) for _ in range(repeats)) for one in (env, bare)]
    section.add(what="what a shield adds to env.step", size="one step", seconds=taken[0] - taken[1])
    section.notes.append("process time on one core; the models of the first lines have 2 outcomes a pair and 10 steps")


def still_pair() -> tuple[Any, Any]:
    """Return an environment that does nothing, shielded and bare."""
    from peakrl.model.tabular import TabularModel

    model = TabularModel.from_arrays([[[1.0], [1.0]]], [[0.0, 0.0]], [[[1.0, -1.0]]], 20)
    env = shield(Still(2, 20), SafeSet(model))
    env.reset()
    return env, Still(2, 20)


def each(call: Callable[[], Any], count: int) -> float:
    """Return the seconds of one call, of many."""
    begun = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - begun) / count


def episode(env: Any, episodes: int) -> float:
    """Return the seconds of one step of 20."""
    begun = time.process_time()
    for _ in range(episodes):
        env.reset()
        for _ in range(20):
            env.step(0)
    return (time.process_time() - begun) / episodes / 20
