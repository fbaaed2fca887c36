"""What figures 2 and 3 share: a transmitter on harvested energy, its learners, and blocks of sequences.

Frozen arrivals, as in the published curves: each trial draws one sequence, every episode replays it, and trials are
averaged. Random arrivals, as in the paper's text: every episode draws its own. Sum rates are in bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from peakrl.kernels.arrays import Longs
from peakrl.learning.settings import LearnerSettings
from peakrl.paper import paper_values as paper
from peakrl.paper.records import VERSION, Check, Request
from peakrl.problems.harvesting.arrivals import draw_arrivals
from peakrl.runs import Result, Task

TASKS = "peakrl.paper.energy_tasks"
RATE, VIOLATION = ("sum rate", "bits"), ("violation", "power units")

#: Curves with random arrivals.
RANDOM_LEARNERS = {
    "Algorithm 1 as printed": LearnerSettings.paper(0.1, c1=0.001, c2=0.001),
    "stepwise start, no bonus": LearnerSettings.published(0.1),
    "practical learner": LearnerSettings.practical(),
}


@dataclass(frozen=True)
class Transmitter:
    """The arguments of `energy_harvesting` but for the arrivals themselves."""

    peak_power: float
    mean: float = 10
    std: float = 5
    horizon: int = 20
    battery: int = 20
    max_arrival: int = 20
    log_base: float = 2


def random_task(problem: Transmitter, learner: LearnerSettings, episodes: int, every: int, seed: int) -> Task:
    """Return the task of one run with random arrivals."""
    config = {
        "version": VERSION,
        "problem": asdict(problem),
        "learner": learner.as_dict(),
        "episodes": episodes,
        "every": every,
        "seed": seed,
    }
    return Task(f"{TASKS}:learn_random", config)


def yardstick_task(problem: Transmitter, *, sequences: int, seed: int) -> Task:
    """Return the task of optimum and baselines with random arrivals."""
    config = {"version": VERSION, "problem": asdict(problem), "sequences": sequences, "seed": seed}
    return Task(f"{TASKS}:random_yardsticks", config)


def exact_check(what: str, expected: float, bits: float) -> Check:
    """Compare a value in bits with one that is known in nats to three decimals."""
    return Check(what, "exact value", expected, bits * math.log(2), paper.EXACT_TOLERANCE)


def sequences_for(request: Request, problem: Transmitter, count: int, seed: int) -> Longs:
    """Return the recorded arrivals, or `count` drawn ones: [sequence, slot]."""
    if request.arrivals is not None:
        return request.arrivals
    return draw_arrivals(
        count,
        horizon=problem.horizon,
        mean=problem.mean,
        std=problem.std,
        max_arrival=problem.max_arrival,
        seed=seed,
    )


def blocks(arrivals: Longs, size: int) -> list[list[list[int]]]:
    """Return the sequences in blocks, as plain lists."""
    return [arrivals[start : start + size].tolist() for start in range(0, len(arrivals), size)]


def split(results: Sequence[Result], sizes: Sequence[int]) -> list[list[Result]]:
    """Return consecutive groups of given sizes."""
    edges = np.cumsum([0, *sizes]).tolist()
    return [list(results[low:high]) for low, high in pairwise(edges)]


def described(request: Request, settings: Any) -> dict[str, Any]:
    """Return a figure's settings (a dataclass) as they are written beside its table."""
    values = {**asdict(settings), "quick": request.quick, "arrivals": "drawn"}
    if request.arrivals is not None:
        return {**values, "arrivals": "recorded", "sequences": len(request.arrivals)}
    return {**values, "random_learners": {name: learner.as_dict() for name, learner in RANDOM_LEARNERS.items()}}
