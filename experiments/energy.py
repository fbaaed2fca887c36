"""What figures 2 and 3 share: a transmitter on harvested energy, its learners, its tasks and recorded arrivals.

Frozen arrivals, as in the published curves: each trial draws one sequence, every episode replays it, and trials are
averaged. Random arrivals, as in the paper's text: every episode draws its own. Sum rates are in bits.

The averaged policy of the first k episodes earns (v_1 + ... + v_k) / k with v_j the value of pi^j, so the mean over
episodes m+1 .. k follows from two points of the averaged curve: (k a_k - m a_m) / (k - m).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments.records import VERSION, Check, Floats, Longs, Request
from peakrl import LearningRun, TabularModel, compile_model, evaluate, learn, solve
from peakrl.errors import ProblemError, StorageError
from peakrl.learners import ConstrainedQ, SafeQ, learner_from
from peakrl.learners.base import LearnerSettings
from peakrl.problems.harvesting import (
    EnergyHarvesting,
    balanced_rates,
    convex_bound,
    greedy_policy,
    greedy_rates,
    integer_bound,
    recorded_sequences,
)
from peakrl.specs import ProblemSpec
from peakrl.sweeps import Result, Task

TASKS = "experiments.energy"
#: For `peakrl.sweeps.local_workers`: loads what most tasks need while the main process is still busy itself.
WARM_UP = f"{TASKS}:warm_up"
RATE, VIOLATION = ("sum rate", "bits"), ("violation", "power units")
VARIANTS = {"frozen": "arrivals frozen in each trial", "random": "fresh arrivals in every episode"}
#: Exact sum rates with random arrivals are known in nats to three decimals.
EXACT_TOLERANCE = 0.0005
#: Curves with random arrivals.
RANDOM_LEARNERS = {
    "Algorithm 1 as printed": ConstrainedQ.paper(0.1, c1=0.001, c2=0.001),
    "stepwise start, no bonus": ConstrainedQ.published(0.1),
    "SafeQ": SafeQ(),
}


def transmitter(**parameters: Any) -> ProblemSpec:
    """Return the problem of a figure; arrivals are random unless it says otherwise."""
    return ProblemSpec("energy_harvesting", parameters)


def random_task(problem: ProblemSpec, learner: LearnerSettings, episodes: int, every: int, seed: int) -> Task:
    """Return the task of one run with random arrivals."""
    config = {"version": VERSION, "problem": problem.as_dict(), "learner": learner.as_dict(), "episodes": episodes}
    return Task(f"{TASKS}:learn_random", {**config, "every": every, "seed": seed})


def drawn_task(function: str, problem: ProblemSpec, sequences: int, seed: int) -> Task:
    """Return a task on drawn sequences."""
    config = {"version": VERSION, "problem": problem.as_dict(), "sequences": sequences, "seed": seed}
    return Task(f"{TASKS}:{function}", config)


def block_tasks(function: str, config: Mapping[str, Any], arrivals: Longs, size: int) -> list[Task]:
    """Return one task for each block of sequences."""
    common = {"version": VERSION, **config}
    return [Task(f"{TASKS}:{function}", {**common, "arrivals": block}) for block in blocks(arrivals, size)]


def blocks(arrivals: Longs, size: int) -> list[list[list[int]]]:
    """Return the sequences in blocks, as plain lists."""
    return [arrivals[start : start + size].tolist() for start in range(0, len(arrivals), size)]


def split(results: Sequence[Result], sizes: Sequence[int]) -> list[list[Result]]:
    """Return consecutive groups of given sizes."""
    edges = np.cumsum([0, *sizes]).tolist()
    return [list(results[low:high]) for low, high in pairwise(edges)]


def exact_check(what: str, expected: float, bits: float) -> Check:
    """Compare a value in bits with one that is known in nats to three decimals."""
    return Check(what, "exact value", expected, bits * math.log(2), EXACT_TOLERANCE)


def sequences_for(request: Request, problem: ProblemSpec, count: int, seed: int) -> Longs:
    """Return the recorded arrivals, or `count` drawn ones: [sequence, slot]."""
    return drawn_sequences(problem.as_dict(), count, seed) if request.arrivals is None else request.arrivals


def described(request: Request, settings: Any) -> dict[str, Any]:
    """Return a figure's settings (a dataclass) as they are written beside its table."""
    values = {**asdict(settings), "problem": settings.problem.as_dict(), "quick": request.quick, "arrivals": "drawn"}
    if request.arrivals is not None:
        return {**values, "arrivals": "recorded", "sequences": len(request.arrivals)}
    return {**values, "random_learners": {name: learner.as_dict() for name, learner in RANDOM_LEARNERS.items()}}


def load_recordings(path: str | Path, *, horizon: int = 20, max_arrival: int = 20) -> Longs:
    """Return the first `horizon` slots of every sequence in a .npy file, checked: [sequence, slot]."""
    try:
        # Mapped: a file that claims a larger array than it holds takes no memory.
        numbers = np.load(path, allow_pickle=False, mmap_mode="r")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception:  # numpy parses the header as Python: a damaged one raises errors of many types
        raise StorageError(f"{path} is no array of numbers in NumPy's format; numpy.save makes such a file") from None
    if not isinstance(numbers, np.ndarray):
        raise StorageError(f"{path} holds several arrays; save a single one with numpy.save")
    if numbers.ndim != 2 or not len(numbers):
        raise ProblemError(
            f"{path}: the array has shape {numbers.shape}; it must be sequences x slots, such as (100, {horizon})"
        )
    try:
        return recorded_sequences(numbers, horizon=horizon, max_arrival=max_arrival)
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}") from None


# Tasks, in a worker process --------------------------------------------------------------------------------------


def warm_up() -> None:
    """Load what `learn_sequences` needs, kernels included, by learning a little."""
    problem = {"kind": "energy_harvesting", "battery": 1, "peak_power": 1, "max_arrival": 1, "horizon": 1}
    learner = ConstrainedQ.published(0.1).as_dict()
    learn_sequences({"problem": problem, "learners": [learner], "episodes": 1, "every": 1, "arrivals": [[1]]})


def learn_sequences(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn on each sequence by itself: [learner, sequence, place] curves of the averaged policy."""
    models = [frozen_model(config, sequence) for sequence in config["arrivals"]]
    runs = [
        [learn_frozen(config, model, learner_from(learner), config["every"]) for model in models]
        for learner in config["learners"]
    ]
    return {
        "episode": runs[0][0].history.episode,
        "rate": np.array([[run.history.averaged_value for run in batch] for batch in runs]),
        "violation": np.array([[run.history.averaged_violation for run in batch] for batch in runs]),
        "optimum": integer_bound(config["arrivals"], **baseline_settings(config)),
    }


def compare_sequences(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn on each sequence (means over the second half of training) and compute its baselines: [sequence] each."""
    settings, half = learner_from(config["learner"]), config["episodes"] // 2
    models = [frozen_model(config, sequence) for sequence in config["arrivals"]]
    runs = [learn_frozen(config, model, settings, half) for model in models]
    arrivals, baseline = config["arrivals"], baseline_settings(config)
    return {
        "learner": np.array([late_mean(run.history.episode, run.history.averaged_value) for run in runs]),
        "learner violation": np.array([late_violation(run, half) for run in runs]),
        "last violation": np.array([run.last_violation_episode or 0 for run in runs]),
        "greedy": greedy_rates(arrivals, **baseline),
        "balanced": balanced_rates(arrivals, **baseline),
        "integer optimum": integer_bound(arrivals, **baseline),
        "convex bound": convex_bound(arrivals, **baseline),
    }


def learn_random(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn with fresh arrivals in every episode: exact curves of pi^k and of the averaged policy."""
    history = learn(
        compile_model(built_transmitter(config["problem"])), learner_from(config["learner"]),
        episodes=config["episodes"], seed=config["seed"], history=config["every"], average=False,
    ).history  # fmt: skip
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
    problem = built_transmitter(config["problem"])
    model = compile_model(problem)
    arrivals = drawn_sequences(config["problem"], config["sequences"], config["seed"])
    baseline = baseline_settings(config)
    return {
        "causal optimum": solve(model).value,
        "greedy": evaluate(model, greedy_policy(problem, model)).value,
        "balanced": balanced_rates(arrivals, **baseline),
        "convex bound": convex_bound(arrivals, **baseline),
    }


def baseline_means(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the means over drawn sequences of greedy, balanced and the best whole powers (under "learner")."""
    arrivals = drawn_sequences(config["problem"], config["sequences"], config["seed"])
    rules = {"greedy": greedy_rates, "balanced": balanced_rates, "learner": integer_bound}
    return {name: float(rates(arrivals, **baseline_settings(config)).mean()) for name, rates in rules.items()}


def drawn_sequences(problem: Mapping[str, Any], count: int, seed: int) -> Longs:
    """Return sequences of a transmitter's arrivals, [sequence, slot]."""
    built = built_transmitter(problem)
    return built.arrivals.draw(count, built.horizon or 0, seed)


def built_transmitter(problem: Mapping[str, Any], **changes: Any) -> EnergyHarvesting:
    """Return the transmitter of a task's configuration."""
    built = ProblemSpec.from_dict({**problem, **changes}).build()
    assert isinstance(built, EnergyHarvesting), problem
    return built


def baseline_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a transmitter that the sequence-by-sequence baselines take."""
    built = built_transmitter(config["problem"])
    return {name: getattr(built, name) for name in ("battery", "peak_power", "log_base")}


def frozen_model(config: Mapping[str, Any], sequence: Any) -> TabularModel:
    """Return the model of one sequence."""
    return compile_model(built_transmitter(config["problem"], arrivals=sequence))


def learn_frozen(config: Mapping[str, Any], model: TabularModel, settings: LearnerSettings, every: int) -> LearningRun:
    """Return a run on one sequence; nothing is random in it, so the seed does not matter."""
    return learn(model, settings, episodes=config["episodes"], history=every, average=False)


def late_mean(episode: Any, averaged: Floats) -> float:
    """Return the mean over the second half of the episodes, from averages over all episodes so far."""
    last = int(episode[-1])
    middle = int(np.searchsorted(episode, last // 2))
    first = int(episode[middle])
    return float((last * averaged[-1] - first * averaged[middle]) / (last - first))


def late_violation(run: LearningRun, half: int) -> float:
    """Return the mean violation after episode `half`; exactly 0 if no later episode violated."""
    if (run.last_violation_episode or 0) <= half:
        return 0.0
    return late_mean(run.history.episode, run.history.averaged_violation)
