"""The runs of `theory`, as functions of a plain configuration, and the small problems that they are made on.

tiny harvesting    of the common problems: a violation of one unit of power is worth at most 0.22 nats
fork               one of two ways: 1/2 without a violation, 1 with a violation of 0.05; a unit is worth 10, 20 spans
doors(gap)         two safe doors lead to a reward of 1 with probability 1/2 and 1/2 + gap; a third one always does, and
                   violates. No learner can tell the doors apart before about 1/gap^2 episodes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.kernels.arrays import Floats
from peakrl.learning.active import ActiveRun, pieces
from peakrl.learning.history import Recorder
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.paper.neighbour_problems import tiny_harvesting
from peakrl.planning import solve

FORK_VIOLATION = 0.05


def fork() -> TabularModel:
    """Return the problem with a dear constraint."""
    return TabularModel.from_arrays(
        np.ones((1, 2, 1)), [[0.5, 1.0]], [[[0.0, -FORK_VIOLATION]]], 4, name="fork"
    )  # fmt: skip


def doors(gap: float) -> TabularModel:
    """Return the problem with two doors that are hard to tell apart."""
    transitions = np.zeros((3, 3, 3))
    for door, chance in enumerate((0.5, 0.5 + gap, 1.0)):
        transitions[0, door] = 0.0, chance, 1.0 - chance
    transitions[1, :, 1] = transitions[2, :, 2] = 1.0
    rewards = np.zeros((3, 3))
    rewards[1] = 1.0
    constraints = np.zeros((1, 3, 3))
    constraints[0, 0, 2] = -1.0
    return TabularModel.from_arrays(transitions, rewards, constraints, 2, name="doors")


def problem(config: Mapping[str, Any]) -> TabularModel:
    """Return the model that a configuration names."""
    if config["problem"] == "doors":
        return doors(config["gap"])
    return fork() if config["problem"] == "fork" else compile_model(tiny_harvesting())


def exact_history(model: TabularModel, settings: LearnerSettings, episodes: int, seed: int) -> tuple[Floats, Floats]:
    """Return value and violation of pi^k for every episode k."""
    active = ActiveRun(model, settings, planned=episodes, seed=seed, every=1, average=False)
    for _ in pieces(active, episodes):
        pass
    assert isinstance(active.recorder, Recorder)
    history = active.recorder.history(active.done)
    return history.value, history.violation


def sum_regret(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run seeds for K episodes: the sums of V* - V(pi^k), signed and of its positive parts, and of the violation."""
    model = problem(config)
    best, settings = solve(model).value, LearnerSettings.from_dict(config["learner"])
    rows = []
    for seed in range(config["first_seed"], config["first_seed"] + config["seeds"]):
        value, violation = exact_history(model, settings, config["episodes"], seed)
        rows.append([(best - value).sum(), np.maximum(best - value, 0.0).sum(), violation.sum()])
    return dict(zip(("regret", "positive", "violation"), np.array(rows).T, strict=True))


def last_and_averaged(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run seeds for K episodes: [seed, point] gap and violation of pi^k and of the mixture of pi^1 .. pi^k."""
    model = problem(config)
    best, settings = solve(model).value, LearnerSettings.from_dict(config["learner"])
    points = np.array(config["points"])
    found: dict[str, list[Floats]] = {name: [] for name in ("last", "averaged", "last_violation", "averaged_violation")}
    for seed in range(config["seeds"]):
        value, violation = exact_history(model, settings, int(points[-1]), seed)
        numbers = np.arange(1, len(value) + 1)
        found["last"].append((best - value)[points - 1])
        found["averaged"].append((best - np.cumsum(value) / numbers)[points - 1])
        found["last_violation"].append(violation[points - 1])
        found["averaged_violation"].append((np.cumsum(violation) / numbers)[points - 1])
    return {name: np.array(rows) for name, rows in found.items()}
