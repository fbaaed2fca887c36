"""What figures 2 and 3 share: a transmitter on harvested energy, its learners, and blocks of sequences.

Frozen arrivals, as in the published curves: each trial draws one sequence, every episode replays it, and trials are
averaged. Random arrivals, as in the paper's text: every episode draws its own. Sum rates are in bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from peakrl.kernels.arrays import Longs
from peakrl.learning.settings import LearnerSettings
from peakrl.paper import paper_values as paper
from peakrl.paper.records import VERSION, Check, Request
from peakrl.problems.harvesting.problem import EnergyHarvesting
from peakrl.problems.spec import ProblemSpec
from peakrl.runs import Result, Task

TASKS = "peakrl.paper.energy_tasks"
RATE, VIOLATION = ("sum rate", "bits"), ("violation", "power units")

#: Curves with random arrivals.
RANDOM_LEARNERS = {
    "Algorithm 1 as printed": LearnerSettings.paper(0.1, c1=0.001, c2=0.001),
    "stepwise start, no bonus": LearnerSettings.published(0.1),
    "practical learner": LearnerSettings.practical(),
}


def transmitter(**parameters: Any) -> ProblemSpec:
    """Return the problem of a figure; arrivals are random unless it says otherwise."""
    return ProblemSpec("energy_harvesting", parameters)


def random_task(problem: ProblemSpec, learner: LearnerSettings, episodes: int, every: int, seed: int) -> Task:
    """Return the task of one run with random arrivals."""
    config = {
        "version": VERSION,
        "problem": problem.as_dict(),
        "learner": learner.as_dict(),
        "episodes": episodes,
        "every": every,
        "seed": seed,
    }
    return Task(f"{TASKS}:learn_random", config)


def yardstick_task(problem: ProblemSpec, *, sequences: int, seed: int) -> Task:
    """Return the task of optimum and baselines with random arrivals."""
    config = {"version": VERSION, "problem": problem.as_dict(), "sequences": sequences, "seed": seed}
    return Task(f"{TASKS}:random_yardsticks", config)


def exact_check(what: str, expected: float, bits: float) -> Check:
    """Compare a value in bits with one that is known in nats to three decimals."""
    return Check(what, "exact value", expected, bits * math.log(2), paper.EXACT_TOLERANCE)


def sequences_for(request: Request, problem: ProblemSpec, count: int, seed: int) -> Longs:
    """Return the recorded arrivals, or `count` drawn ones: [sequence, slot]."""
    if request.arrivals is not None:
        return request.arrivals
    return drawn_sequences(problem.as_dict(), count, seed)


def drawn_sequences(problem: Mapping[str, Any], count: int, seed: int) -> Longs:
    """Return sequences of a transmitter's law, [sequence, slot]."""
    built = built_transmitter(problem)
    return built.arrivals.draw(count, built.horizon, seed)


def built_transmitter(problem: Mapping[str, Any], **changes: Any) -> EnergyHarvesting:
    """Return the transmitter that a task's configuration tells."""
    built = ProblemSpec.from_dict({**problem, **changes}).build()
    assert isinstance(built, EnergyHarvesting), problem
    return built


def blocks(arrivals: Longs, size: int) -> list[list[list[int]]]:
    """Return the sequences in blocks, as plain lists."""
    return [arrivals[start : start + size].tolist() for start in range(0, len(arrivals), size)]


def split(results: Sequence[Result], sizes: Sequence[int]) -> list[list[Result]]:
    """Return consecutive groups of given sizes."""
    edges = np.cumsum([0, *sizes]).tolist()
    return [list(results[low:high]) for low, high in pairwise(edges)]


def described(request: Request, settings: Any) -> dict[str, Any]:
    """Return a figure's settings (a dataclass) as they are written beside its table."""
    values = {**asdict(settings), "problem": settings.problem.as_dict(), "quick": request.quick, "arrivals": "drawn"}
    if request.arrivals is not None:
        return {**values, "arrivals": "recorded", "sequences": len(request.arrivals)}
    return {**values, "random_learners": {name: learner.as_dict() for name, learner in RANDOM_LEARNERS.items()}}
