"""What knowing is worth: violating episodes, and episodes to 1 %, as more is declared.

    nothing                        what breaks a constraint is found out by breaking it
    constraint depends on action   one violation stands for all that share it; where that is true
    constraint function            what violates at once is never tried; dead ends are learned
    support                        what can happen, though not how likely: nothing violates
    support, groups                and which pairs share the law of the next state
    everything                     the model: `solve` needs no episode

The default learner, posterior sampling; at episodes spread evenly on a log scale the policy that would be handed out is
evaluated exactly. "Episodes to 1 %" is the first of them from which on it stays within 1 % of the best safe value and
violates nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import numpy as np

from peakrl.learning.settings import LearnerSettings
from peakrl.paper.efficiency import at_most, numbers
from peakrl.paper.knowledge_problems import DEPENDS_ON, PROBLEMS
from peakrl.paper.knowledge_tasks import CLOSE, DEPENDS, FUNCTION, GROUPS, NOTHING, SUPPORT
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row
from peakrl.runs import Result, Task

TASK = "peakrl.paper.knowledge_tasks:learn_knowing"
EVERYTHING = "everything"
RUNGS = (NOTHING, DEPENDS, FUNCTION, SUPPORT, GROUPS)
VIOLATING, SETTLED = ("violating episodes", "episodes"), (f"episodes to {100 * CLOSE:g} %", "episodes")
RESULTS = (VIOLATING, SETTLED)


@dataclass(frozen=True)
class Ladder:
    """Settings of the experiment."""

    #: Problem and episodes.
    episodes: tuple[tuple[str, int], ...] = (
        ("energy harvesting", 2_000), ("scheduling 2", 2_500), ("slippery grid", 10_000), ("thermostat", 10_000),
    )  # fmt: skip
    seeds: int = 3
    #: At how many episodes the policy is looked at.
    places: int = 60


DEFAULT = Ladder()
FULL = replace(DEFAULT, seeds=20)
QUICK = replace(DEFAULT, episodes=tuple((name, 400) for name in PROBLEMS), seeds=1, places=12)


def knowledge(request: Request) -> FigureRecord:
    """Return tables, curves and checks of the experiment."""
    return measure(request, QUICK if request.quick else FULL if request.full else DEFAULT)


def rungs_of(problem: str) -> list[str]:
    """Return the rungs whose declaration is true of a problem."""
    return [rung for rung in RUNGS if rung != DEPENDS or problem in DEPENDS_ON]


def measure(request: Request, settings: Ladder) -> FigureRecord:
    """Return the experiment for given settings."""
    learner = LearnerSettings.posterior().as_dict()
    places = {name: looks(settings, episodes) for name, episodes in settings.episodes}
    tasks = {
        (name, rung): [
            Task(TASK, {
                "version": VERSION, "problem": name, "rung": rung, "learner": learner, "seed": seed,
                "places": places[name],
            })
            for seed in range(settings.seeds)
        ]
        for name in places
        for rung in rungs_of(name)
    }  # fmt: skip
    results = iter(request.run([task for batch in tasks.values() for task in batch], "knowledge"))
    rows: list[Row] = []
    found: dict[tuple[str, str], list[Result]] = {}
    for (name, rung), batch in tasks.items():
        found[name, rung] = [next(results) for _ in batch]
        rows += rung_rows(name, rung, places[name], found[name, rung])
        if rung == GROUPS:
            rows += [Row(name, EVERYTHING, f"median {what}", unit, None, 0.0, None, 1) for what, unit in RESULTS]
    values = {**asdict(settings), "quick": request.quick, "learner": learner}
    title = "What knowing is worth: violating episodes and episodes to 1 %"
    return FigureRecord("knowledge", title, "episode", values, tuple(rows), tuple(checks(found)))


def looks(settings: Ladder, episodes: int) -> list[int]:
    """Return the episodes after which the policy is looked at."""
    return sorted({round(place) for place in np.geomspace(1, episodes, settings.places).tolist()})


def rung_rows(problem: str, rung: str, places: list[int], runs: list[Result]) -> list[Row]:
    """Return quartiles over seeds of the two results, and of the gap over episodes: none where a policy violates."""
    settled = [run.values["settled"] for run in runs]
    rows = numbers(problem, rung, VIOLATING, [float(run.values["violations"]) for run in runs])
    rows += numbers(problem, rung, SETTLED, [math.inf if episode is None else float(episode) for episode in settled])
    # What violates earns more than is allowed to be earned: it is no good, however close it looks.
    gaps = np.stack([np.where(run.arrays["violation"] > 0, math.inf, run.arrays["gap"]) for run in runs])
    for column, place in enumerate(places):
        rows += numbers(problem, rung, ("gap", "%"), gaps[:, column], float(place))
    return rows


def checks(found: dict[tuple[str, str], list[Result]]) -> list[Check]:
    """Return that nothing violates with a declared support, neither while learning nor by what is handed out."""
    safe = [run for (_, rung), runs in found.items() if rung in (SUPPORT, GROUPS) for run in runs]
    violating = sum(int(run.values["violations"]) for run in safe)
    harmful = sum(int((run.arrays["violation"] > 0).any()) for run in safe)
    shown = [
        Check(f"{problem}, {rung}: {VIOLATING[0]}, mean", "shown", None, mean_violations(runs), None)
        for (problem, rung), runs in found.items()
    ]
    return [
        at_most("violating episodes with a declared support", float(violating), 0),
        at_most("runs with a declared support that would hand out what violates", float(harmful), 0),
        *shown,
    ]


def mean_violations(runs: list[Result]) -> float:
    """Return the violating episodes of a run, over seeds."""
    return float(np.mean([int(run.values["violations"]) for run in runs]))
