"""A figure's runs in worker processes, against what the kernel alone would do on every core."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from peakrl.benchmark.kernels import bare_run
from peakrl.benchmark.runs import frozen_models
from peakrl.benchmark.sections import Section
from peakrl.experiments.convergence import FIGURE_2, frozen_curves
from peakrl.experiments.records import Request
from peakrl.learning.many import usable_cores
from peakrl.learning.settings import LearnerSettings
from peakrl.sweeps import local_workers

WARM_UP = "peakrl.experiments.energy_tasks:warm_up"


def figure_rates(section: Section, repeats: int, quick: bool) -> None:
    """The frozen part of figure 2 with its records on disk, start of the workers included, by the clock on the wall."""
    cores = usable_cores()
    figure = replace(FIGURE_2, sequences=100) if quick else FIGURE_2
    models = frozen_models(5 if quick else 50)
    steps = len(figure.slacks) * figure.sequences * figure.episodes * figure.problem.horizon
    settings = LearnerSettings.published(figure.slacks[0])

    def kernel() -> None:
        for model in models:
            bare_run(model, settings, figure.episodes)()

    def whole() -> None:
        with tempfile.TemporaryDirectory() as folder, local_workers(cores, prepare=WARM_UP) as engine:
            frozen_curves(Request(Path(folder), engine=engine), figure)

    kernel()
    walls = [(wall_time(kernel), wall_time(whole)) for _ in range(repeats)]
    alone = median(len(models) * figure.episodes * figure.problem.horizon / seconds for seconds, _ in walls)
    figure_rate = median(steps / seconds for _, seconds in walls)
    section.add(
        steps=steps,
        cores=cores,
        **{"s in all": steps / figure_rate, "million steps a second": figure_rate / 1e6},
        **{"kernel, one core": alone / 1e6, "share of kernel x cores": figure_rate / (alone * cores)},
    )


def wall_time(function: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun
