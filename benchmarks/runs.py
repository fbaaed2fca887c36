"""Whole runs: what history, short runs and several cores cost or bring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from peakrl.benchmark.kernels import bare_run, problems
from peakrl.benchmark.sections import Section, in_turns
from peakrl.learning.many import learn_many, usable_cores
from peakrl.learning.run import Record, learn
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.problems.harvesting.arrivals import draw_arrivals
from peakrl.problems.harvesting.problem import energy_harvesting

#: Of figure 2.
FROZEN_EPISODES = 20_000


def frozen_models(count: int) -> list[TabularModel]:
    """Energy harvesting on recorded arrivals, as in figure 2."""
    return [compile_model(energy_harvesting(arrivals=sequence)) for sequence in draw_arrivals(count, seed=0)]


def history_costs(section: Section, repeats: int, quick: bool) -> None:
    """The exact curve of pi^k and of pi-bar^k for every episode, against learning alone."""
    model, episodes = problems(quick)["energy harvesting, random arrivals"]
    settings = LearnerSettings.published(0.1)
    kinds: dict[str, tuple[Record, bool]] = {
        "nothing": ("none", False),
        "averaged policy": ("none", True),
        "averaged policy, 1,000 points": ("auto", True),
        "averaged policy, every episode": (1, True),
    }
    results: dict[str, Any] = {}

    def runner(name: str, record: Record, average: bool) -> Callable[[], None]:
        def run() -> None:
            results[name] = learn(model, settings, episodes=episodes, record=record, average=average)

        return run

    seconds = in_turns([runner(name, *kind) for name, kind in kinds.items()], repeats)
    for (name, (_, average)), taken in zip(kinds.items(), seconds, strict=True):
        changes = results[name].averaged_policy.nbytes / 1e6 if average else 0.0
        section.add(kept=name, **{"seconds": taken, "times learning": taken / seconds[0], "MB of changes": changes})


def run_overheads(section: Section, repeats: int, quick: bool) -> None:
    """Runs of figure 2: frozen arrivals, 20,000 episodes of 20 steps, against their kernel alone."""
    models = frozen_models(5 if quick else 20)
    settings, steps = LearnerSettings.published(0.1), FROZEN_EPISODES * models[0].horizon

    def all_of(run: Callable[[TabularModel], Any]) -> Callable[[], None]:
        def function() -> None:
            for model in models:
                run(model)

        return function

    kinds: dict[str, tuple[Record, bool]] = {
        "no history": ("none", False),
        "1,000 points": ("auto", False),
        "1,000 points, averaged policy": ("auto", True),
    }
    functions = [all_of(lambda model: bare_run(model, settings, FROZEN_EPISODES)())]
    for record, average in kinds.values():
        functions.append(
            all_of(
                lambda model, record=record, average=average: learn(  # type: ignore[misc]
                    model, settings, episodes=FROZEN_EPISODES, record=record, average=average
                )
            )
        )
    kernel, *others = (seconds / len(models) for seconds in in_turns(functions, repeats))
    section.add(run="kernel", **columns(kernel, steps), **{"times kernel": 1.0})
    for name, seconds in zip(kinds, others, strict=True):
        section.add(run=name, **columns(seconds, steps), **{"times kernel": seconds / kernel})


def columns(seconds: float, steps: int) -> dict[str, float]:
    """Milliseconds and rate of a run."""
    return {"ms a run": 1e3 * seconds, "million steps a second": steps / seconds / 1e6}


def core_rates(section: Section, repeats: int, quick: bool) -> None:
    """`learn_many` with one thread and with one for each core, by the clock on the wall."""
    cores = usable_cores()
    random_model, episodes = problems(quick)["energy harvesting, random arrivals"]
    frozen = frozen_models(4 * cores if quick else 20 * cores)
    cases: dict[str, tuple[TabularModel | Sequence[TabularModel], int, Any]] = {
        "energy harvesting, random arrivals": (random_model, episodes, range(4 * cores)),
        "the same, frozen arrivals (figure 2)": (frozen, FROZEN_EPISODES, 0),
    }
    settings = LearnerSettings.published(0.1)
    for name, (models, length, seeds) in cases.items():
        walls: list[list[float]] = [[], []]
        processor: list[list[float]] = [[], []]
        for _ in range(repeats + 1):
            for place, workers in enumerate((1, cores)):
                wall, used = time.perf_counter(), time.process_time()
                learn_many(
                    models, settings, length, seeds,
                    average=False, record="none", workers=workers, keep=lambda run: None,
                )  # fmt: skip
                walls[place].append(time.perf_counter() - wall)
                processor[place].append(time.process_time() - used)
        # The first round warms up.
        one, all_cores = (median(times[1:]) for times in walls)
        used_by_one, used_by_all = (median(times[1:]) for times in processor)
        section.add(
            runs=name,
            cores=cores,
            **{"s on one": one, "s on all": all_cores, "times one": one / all_cores},
            **{"processor s on one": used_by_one, "on all": used_by_all},
        )
    section.notes.append("processor s far below those on the wall: other programs keep the cores busy, do not quote")
