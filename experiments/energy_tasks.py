"""Blocks of work of the energy-harvesting figures: plain settings in, numbers and arrays out, in a worker process.

The averaged policy of the first k episodes earns (v_1 + ... + v_k) / k with v_j the value of pi^j, so the mean over
episodes m+1 .. k follows from two points of the averaged curve: (k a_k - m a_m) / (k - m).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.kernels.arrays import Floats
from peakrl.learning.run import LearningRun, learn
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.paper.energy import built_transmitter, drawn_sequences
from peakrl.planning import solve
from peakrl.problems.harvesting.baselines import (
    balanced_rates,
    convex_bound,
    greedy_policy,
    greedy_rates,
    integer_bound,
)


def warm_up() -> None:
    """Load what `learn_sequences` needs, kernels included, by learning a little."""
    problem = {"kind": "energy_harvesting", "battery": 1, "peak_power": 1, "max_arrival": 1, "horizon": 1}
    learner = LearnerSettings.published(0.1).as_dict()
    learn_sequences({"problem": problem, "learners": [learner], "episodes": 1, "every": 1, "arrivals": [[1]]})


def learn_sequences(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn on each recorded sequence by itself: [learner, sequence, place] curves of the averaged policy."""
    learners = [LearnerSettings.from_dict(learner) for learner in config["learners"]]
    models = [frozen_model(config, sequence) for sequence in config["arrivals"]]
    runs = [[learn_frozen(config, model, learner, config["every"]) for model in models] for learner in learners]
    baseline = baseline_settings(config)
    return {
        "episode": runs[0][0].history.episode,
        "rate": np.array([[run.history.averaged_value for run in batch] for batch in runs]),
        "violation": np.array([[run.history.averaged_violation for run in batch] for batch in runs]),
        "optimum": integer_bound(config["arrivals"], **baseline),
    }


def compare_sequences(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn on each recorded sequence and compute its baselines: [sequence] each.

    The learner's numbers are means over the second half of training.
    """
    settings = LearnerSettings.from_dict(config["learner"])
    half = config["episodes"] // 2
    models = [frozen_model(config, sequence) for sequence in config["arrivals"]]
    runs = [learn_frozen(config, model, settings, half) for model in models]
    baseline = baseline_settings(config)
    return {
        "learner": np.array([late_mean(run.history.episode, run.history.averaged_value) for run in runs]),
        "learner violation": np.array([late_violation(run, half) for run in runs]),
        "last violation": np.array([run.last_violation_episode or 0 for run in runs]),
        "greedy": greedy_rates(config["arrivals"], **baseline),
        "balanced": balanced_rates(config["arrivals"], **baseline),
        "integer optimum": integer_bound(config["arrivals"], **baseline),
        "convex bound": convex_bound(config["arrivals"], **baseline),
    }


def learn_random(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn with fresh arrivals in every episode: exact curves of pi^k and of the averaged policy."""
    model = compile_model(built_transmitter(config["problem"]))
    run = learn(
        model,
        LearnerSettings.from_dict(config["learner"]),
        episodes=config["episodes"],
        seed=config["seed"],
        record=config["every"],
        average=False,
    )
    history = run.history
    return {
        "episode": history.episode,
        "rate": history.averaged_value,
        "violation": history.averaged_violation,
        "last rate": float(history.value[-1]),
        "last violation": float(history.violation[-1]),
        "late rate": late_mean(history.episode, history.averaged_value),
        "late violation": late_mean(history.episode, history.averaged_violation),
    }


def random_yardsticks(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the causal optimum and greedy (exact), and the non-causal baselines on drawn sequences."""
    transmitter = built_transmitter(config["problem"])
    model = compile_model(transmitter)
    arrivals = drawn_sequences(config["problem"], config["sequences"], config["seed"])
    baseline = baseline_settings(config)
    return {
        "causal optimum": solve(model).value,
        "greedy": evaluate(model, greedy_policy(transmitter, model)).value,
        "balanced": balanced_rates(arrivals, **baseline),
        "convex bound": convex_bound(arrivals, **baseline),
    }


def baseline_means(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the means over drawn sequences of greedy, balanced and the best whole powers (under "learner")."""
    arrivals = drawn_sequences(config["problem"], config["sequences"], config["seed"])
    baseline = baseline_settings(config)
    rules = {"greedy": greedy_rates, "balanced": balanced_rates, "learner": integer_bound}
    return {name: float(rates(arrivals, **baseline).mean()) for name, rates in rules.items()}


def baseline_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the sequence-by-sequence baselines take of a transmitter."""
    transmitter = built_transmitter(config["problem"])
    return {name: getattr(transmitter, name) for name in ("battery", "peak_power", "log_base")}


def frozen_model(config: Mapping[str, Any], sequence: Any) -> TabularModel:
    """Return the model of one sequence."""
    return compile_model(built_transmitter(config["problem"], arrivals=sequence))


def learn_frozen(config: Mapping[str, Any], model: TabularModel, settings: LearnerSettings, every: int) -> LearningRun:
    """Return a run on one sequence; nothing is random in it, so the seed does not matter."""
    return learn(model, settings, episodes=config["episodes"], record=every, average=False)


def late_mean(episode: Any, averaged: Floats) -> float:
    """Return the mean over the second half of the episodes, from averages over all episodes so far."""
    last = int(episode[-1])
    middle = int(np.searchsorted(episode, last // 2))
    first = int(episode[middle])
    return float((last * averaged[-1] - first * averaged[middle]) / (last - first))


def late_violation(run: LearningRun, half: int) -> float:
    """Return the mean violation after episode `half`; exactly 0 where no later episode violated."""
    if (run.last_violation_episode or 0) <= half:
        return 0.0
    return late_mean(run.history.episode, run.history.averaged_violation)
