"""A figure's runs in worker processes, against what the kernel alone would do on every core."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from peakrl.benchmark.kernels import bare_run
from peakrl.benchmark.runs import frozen_models
from peakrl.benchmark.sections import Section
from peakrl.learning.many import usable_cores
from peakrl.learning.settings import LearnerSettings
from peakrl.paper import WARM_UP
from peakrl.paper.convergence import FIGURE_2, frozen_curves
from peakrl.paper.records import Request
from peakrl.runs import Task, local_workers

TINY = "peakrl.benchmark.figure:nothing"


def figure_rates(section: Section, repeats: int, quick: bool) -> None:
    """The frozen part of figure 2, its records on disk, by the clock on the wall."""
    cores = usable_cores()
    figure = replace(FIGURE_2, sequences=100) if quick else FIGURE_2
    models = frozen_models(5 if quick else 50)
    horizon = models[0].horizon
    steps = len(figure.slacks) * figure.sequences * figure.episodes * horizon
    settings = LearnerSettings.published(figure.slacks[0])

    def kernel() -> None:
        for model in models:
            bare_run(model, settings, figure.episodes)()

    kernel()
    alone, started, ran = [], [], []
    for _ in range(repeats):
        alone.append(len(models) * figure.episodes * horizon / wall_time(kernel))
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, local_workers(cores, prepare=WARM_UP) as engine:
            request = Request(Path(folder), engine=engine)
            # One for each worker: when these are done all workers are up.
            request.run([Task(TINY, {"worker": worker}) for worker in range(cores)], "workers")
            ready = time.perf_counter()
            frozen_curves(request, figure)
            ran.append(time.perf_counter() - ready)
        started.append(ready - begun)
    rate, seconds = median(alone), median(ran)
    section.add(
        steps=steps,
        cores=cores,
        **{"s to start workers": median(started), "s": seconds, "million steps a second": steps / seconds / 1e6},
        **{"kernel, one core": rate / 1e6, "share of kernel x cores": steps / seconds / (rate * cores)},
    )
    section.notes.append("workers start while `peakrl reproduce` itself is loading")


def nothing(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run that is over at once."""
    return {}


def wall_time(function: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun
