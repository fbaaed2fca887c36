"""Models of growing size: learning, planning, building."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from peakrl.benchmark.kernels import bare_run, table_bytes
from peakrl.benchmark.queues import PlainQueues, Prism, Queues, storm_built
from peakrl.benchmark.sections import Section
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model, explore
from peakrl.model.tabular import TabularModel
from peakrl.planning import solve
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.scheduling.problem import scheduling_example
from peakrl.storage import available_memory

ACTIONS, HORIZON, OUTCOMES = 10, 10, 2
#: From a pair of this many neighbours on, next states are drawn within reach, as they are in most real problems.
REACH = 2_000
STEPS = 2_000_000
#: Bytes for each entry (pair and step) that building, solving and learning may take together at their peak.
BYTES_AN_ENTRY = 60


def sparse_model(states: int, seed: int = 0) -> TabularModel:
    """A stationary model of `states` states: 10 actions with 2 outcomes each, one constraint, 10 steps."""
    from scipy import sparse

    rng = np.random.default_rng(seed)
    pairs = states * ACTIONS
    state = np.repeat(np.arange(states), ACTIONS * OUTCOMES)
    following = (state + rng.integers(0, min(states, REACH), pairs * OUTCOMES)) % states
    chance = rng.uniform(0.1, 0.9, pairs)
    probability = np.stack([chance, 1.0 - chance], axis=1).ravel()
    starts = np.arange(0, pairs * OUTCOMES + 1, OUTCOMES)
    transitions = sparse.csr_matrix((probability, following, starts), shape=(pairs, states))
    rewards = rng.random((states, ACTIONS))
    constraints = rng.normal(1.5, 1.0, (1, states, ACTIONS))
    return TabularModel.from_arrays(transitions, rewards, constraints, HORIZON, name=f"{states:,} states")


def scaling_rates(section: Section, repeats: int, quick: bool) -> None:
    """Time a step and to a plan while S*A*H goes from 10^3 to 10^8."""
    for power in range(3, 7 if quick else 9):
        entries = 10**power
        if entries * BYTES_AN_ENTRY > available_memory():
            section.notes.append(f"10^{power} entries left out: they may take {entries * BYTES_AN_ENTRY / 1e9:.0f} GB")
            continue
        measure(section, entries // (ACTIONS * HORIZON), 1 if power >= 7 else repeats)
    section.notes.append(
        "entries: S*A*H; seconds are process time; build: TabularModel.from_arrays, its input included"
    )


def measure(section: Section, states: int, repeats: int) -> None:
    """Build, solve and learn a model of a given size."""
    sparse_model(10)
    built, build_seconds = timed(lambda: sparse_model(states), 1)
    solve(built)
    _, solve_seconds = timed(lambda: solve(built), repeats)
    run = bare_run(built, LearnerSettings.published(0.1), STEPS // HORIZON)
    learner = run()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        learner.advance(STEPS // HORIZON)
        times.append(time.process_time() - begun)
    section.add(
        entries=built.num_entries,
        states=built.num_states,
        pairs=built.num_pairs,
        **{
            "ns a step": 1e9 * median(times) / STEPS,
            "s to build": build_seconds,
            "s to solve": solve_seconds,
            "ns to solve, a pair and step": 1e9 * solve_seconds / built.num_entries,
            "model bytes a pair": built.nbytes / built.num_pairs,
            "table bytes an entry": table_bytes(learner) / built.num_entries,
        },
    )


def timed(function: Any, repeats: int) -> tuple[Any, float]:
    """Return the last result and the median process time."""
    times, result = [], None
    for _ in range(repeats):
        begun = time.process_time()
        result = function()
        times.append(time.process_time() - begun)
    return result, median(times)


def compile_rates(section: Section, repeats: int, quick: bool) -> None:
    """Pairs a second of `compile_model`: state by state, many at once, and where a problem knows a faster way."""
    room = 6 if quick else 46
    ways: list[tuple[Any, str, Any]] = [(PlainQueues(room), "state by state", explore)]
    ways.append((Queues(room), "many states at once", compile_model))
    for problem in (energy_harvesting(), scheduling_example(2)):
        ways += [(problem, "state by state", explore), (problem, "its own tables", compile_model)]
    try:
        ways.append((Prism(room), "Storm's builder", storm_built))
    except ImportError as error:
        section.notes.append(f"Storm's builder left out: {error}")
    for problem, way, build in ways:
        build(type(problem)(2) if problem.name == "queues" else problem)
        often = 1 if quick or isinstance(problem, PlainQueues) else repeats
        model, seconds = timed(lambda build=build, problem=problem: build(problem), often)
        section.add(
            problem=problem.name, way=way, pairs=model.num_pairs,
            **{"ms": 1e3 * seconds, "pairs a second": model.num_rows / max(seconds, 1e-9)},
        )  # fmt: skip
