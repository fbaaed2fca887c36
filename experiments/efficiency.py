"""How many episodes our learners save, against Algorithm 1 with its best constants and a model-based planner.

Random arrivals, in nats, many seeds: the gap of what is handed out to the causal optimum in per cent, over episodes, as
median and quartiles; from which episode on it stays within 1 % and free of violation. Scheduling: when the last
violation happens, and how close an infeasible example comes to the least violation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from peakrl.kernels.arrays import Floats
from peakrl.learning.algorithm_one import AlgorithmOne
from peakrl.learning.knowledge import NOTHING, Knowledge
from peakrl.learning.settings import LearnerSettings
from peakrl.learning.ucbvi import UCBVI
from peakrl.paper.energy import transmitter
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row
from peakrl.paper.scheduling import example_problem
from peakrl.runs import Result, Task

TASKS = "peakrl.paper.efficiency_tasks"
GAP, AVERAGED, EPISODES = ("gap", "%"), ("averaged gap", "%"), ("settled", "episodes")
#: Measures of a quantity over seeds: the name of the quantity with one of these before it.
QUARTILES = {"lower": 25, "median": 50, "upper": 75}

POSTERIOR, PRACTICAL, DECLARED = "posterior sampling", "practical", "practical, structure declared"
PLANNER = "model-based planner"
#: Algorithm 1 has no better constants known on this problem than no bonus, a stepwise start and a small penalty:
#: Theorem 2's form with rewards as they are (eta = (KH)^phi, about 7), the largest slack and Slater constant that still
#: deter a violation of 1 (eta = 44), and what the published curves use (eta = 800).
_PLAIN: dict[str, Any] = {"bonus": "none", "start": "stepwise", "unit_rewards": True}
ALGORITHM_ONE = {
    "Algorithm 1, phi 0.1": AlgorithmOne(slack=0.0, exponent=0.1, **_PLAIN),
    "Algorithm 1, slack 0.9": AlgorithmOne(slack=0.9, slater=0.9, **_PLAIN),
    "Algorithm 1, slack 0.1": LearnerSettings.published(0.1),
}


def our_learners(peak: float) -> dict[str, tuple[LearnerSettings, Knowledge]]:
    """Return the default, and the practical learner as it comes and with all that can be told beforehand."""
    told = Knowledge(outcome_groups=True, constraint_depends_on="action", most_reward=math.log(1 + peak))
    return {
        POSTERIOR: (LearnerSettings.posterior(), NOTHING),
        PRACTICAL: (LearnerSettings.practical(), NOTHING),
        DECLARED: (LearnerSettings.practical(), told),
    }


def described(learner: LearnerSettings, knowledge: Knowledge) -> dict[str, Any]:
    """Return a learner and what it is told, as plain values."""
    return {"learner": learner.as_dict(), "knowledge": knowledge.as_dict()}


@dataclass(frozen=True)
class Efficiency:
    """Settings of the experiment."""

    peaks: tuple[float, ...] = (8, 15)
    seeds: int = 20
    episodes: int = 50_000
    #: What plans is dearer: seeds of its own. The default is settled long before as well: its own episodes.
    sampling_episodes: int = 10_000
    sampling_seeds: int = 8
    #: At so many of them, evenly on a log scale, what is handed out is looked at.
    places: int = 90
    #: Bonus of the planner, in standard deviations.
    bonus: float = 0.5
    #: Algorithm 1: episodes and seeds.
    long_episodes: int = 5_000_000
    long_seeds: int = 5
    #: Example and episodes.
    schedules: tuple[tuple[int, int], ...] = ((1, 1_000), (2, 10_000))
    infeasible_episodes: int = 20_000


FULL = Efficiency()
QUICK = replace(
    FULL, seeds=2, episodes=4_000, sampling_episodes=1_000, sampling_seeds=2, long_episodes=200_000, places=12,
    long_seeds=1, schedules=((1, 300),),
    infeasible_episodes=4_000,
)  # fmt: skip
#: What is asked for: gap of what is handed out and of the average of all
#: that was followed, by peak (%), episodes saved, last violation of the
#: scheduling examples, episodes to the proof, excess over the least violation (%), violations in a lifetime.
LAST, MEAN, SAVED = {8: 0.2, 15: 0.7}, {8: 3.0, 15: 3.5}, 25.0
SCHEDULES, PROOF, EXCESS, LIFETIME = {1: 150, 2: 6_000}, 2_000, 5.0, 32


def efficiency(request: Request) -> FigureRecord:
    """Return curves, tables and checks of the experiment."""
    return measure(request, QUICK if request.quick else FULL)


def measure(request: Request, settings: Efficiency) -> FigureRecord:
    """Return the experiment for given settings."""
    rows: list[Row] = []
    checks: list[Check] = []
    for part in (harvesting, schedules):
        more_rows, more_checks = part(request, settings)
        rows, checks = rows + more_rows, checks + more_checks
    if request.quick:
        checks = [replace(check, tolerance=None) for check in checks]
    learners = {name: learner.as_dict() for name, learner in ALGORITHM_ONE.items()}
    for peak in settings.peaks:
        learners |= {f"{name}, peak {peak:g}": described(*own) for name, own in our_learners(peak).items()}
    values = {**asdict(settings), "quick": request.quick, "learners": learners}
    title = "Episodes that our learners save, and where they end"
    return FigureRecord("efficiency", title, "episode", values, tuple(rows), tuple(checks))


# Random arrivals -----------------------------------------------------------------------------------------------------


def harvesting(request: Request, settings: Efficiency) -> tuple[list[Row], list[Check]]:
    """Return curves and comparisons on random arrivals."""
    tasks = {(peak, name): batch for peak in settings.peaks for name, batch in harvesting_tasks(settings, peak).items()}
    results = iter(request.run([task for batch in tasks.values() for task in batch], "efficiency, random arrivals"))
    found = {key: [next(results) for _ in batch] for key, batch in tasks.items()}
    rows: list[Row] = []
    checks: list[Check] = []
    for (peak, name), runs in found.items():
        variant = f"peak {peak:g}"
        rows += curves(variant, name, runs)
        rows += numbers(variant, name, GAP, [float(run.arrays["gap"][-1]) for run in runs])
        if "averaged_gap" in runs[0].values:
            rows += numbers(variant, name, AVERAGED, [float(run.values["averaged_gap"]) for run in runs])
        rows += numbers(variant, name, EPISODES, [settled(run) for run in runs])
        rows += numbers(variant, name, ("violating episodes", ""), [run.values["violations"] for run in runs])
    for peak in settings.peaks:
        checks += harvesting_checks(settings, peak, {name: runs for (p, name), runs in found.items() if p == peak})
    return rows, checks


def harvesting_tasks(settings: Efficiency, peak: float) -> dict[str, list[Task]]:
    """Return the runs of every learner at a peak."""
    problem = transmitter(peak_power=peak, log_base=math.e).as_dict()
    tasks: dict[str, list[Task]] = {}
    planner = UCBVI(bonus=settings.bonus), NOTHING
    for name, learner in (our_learners(peak) | {PLANNER: planner}).items():
        episodes = settings.sampling_episodes if name == POSTERIOR else settings.episodes
        size = episodes, settings.sampling_seeds if name in (POSTERIOR, PLANNER) else settings.seeds
        tasks[name] = runs_of(settings, problem, *learner, *size, averaged=name in (PRACTICAL, DECLARED))
    for name, one in ALGORITHM_ONE.items():
        tasks[name] = runs_of(settings, problem, one, NOTHING, settings.long_episodes, settings.long_seeds)
    return tasks


def runs_of(
    settings: Efficiency,
    problem: Mapping[str, Any],
    learner: LearnerSettings,
    knowledge: Knowledge,
    episodes: int,
    seeds: int,
    *,
    averaged: bool = False,
) -> list[Task]:
    """Return the runs of a learner, one a seed."""
    first = min(100, episodes)
    places = np.unique(np.geomspace(first, episodes, settings.places).round().astype(int)).tolist()
    config = {"version": VERSION, "problem": problem, **described(learner, knowledge), "places": places}
    return [Task(f"{TASKS}:learn_transmitter", {**config, "averaged": averaged, "seed": seed}) for seed in range(seeds)]


def settled(run: Result) -> float:
    """Return from when on a run's policy stays good; infinity where it never does."""
    return math.inf if run.values["settled"] is None else float(run.values["settled"])


def harvesting_checks(settings: Efficiency, peak: float, found: Mapping[str, Sequence[Result]]) -> list[Check]:
    """Compare with what was asked for."""
    checks: list[Check] = []
    label = f"peak {peak:g}"
    for name in our_learners(peak):
        last = max(float(run.arrays["gap"][-1]) for run in found[name])
        violation = max(float(run.arrays["violation"][-1]) for run in found[name])
        checks += [
            at_most(f"{label}, {name}: worst gap of the last policy (%)", last, LAST.get(int(peak))),
            at_most(f"{label}, {name}: its worst violation", violation, 0.0),
        ]
        if "averaged_gap" in found[name][0].values:
            averaged = max(abs(float(run.values["averaged_gap"])) for run in found[name])
            what = f"{label}, {name}: worst gap of the averaged policy (%)"
            checks.append(at_most(what, averaged, MEAN.get(int(peak))))
    most = max(int(run.values["violations"]) for run in found[DECLARED])
    checks.append(at_most(f"{label}, {DECLARED}: most violating episodes", most, LIFETIME))
    # A run that is never settled within its episodes needs at least as many: that is what it is counted with.
    best = min(
        float(np.median([min(settled(run), settings.long_episodes) for run in found[name]])) for name in ALGORITHM_ONE
    )
    checks.append(Check(f"{label}: episodes that Algorithm 1 needs, best constants", "shown", None, best, None))
    for name in our_learners(peak):
        needs = float(np.median([settled(run) for run in found[name]]))
        if math.isfinite(needs):
            share = needs / best
            checks.append(Check(f"{label}, {name}: episodes needed, median", "shown", None, needs, None))
            checks.append(at_most(f"{label}, {name}: share of Algorithm 1's episodes", share, 1 / SAVED))
    return checks


def at_most(what: str, ours: float, limit: float | None) -> Check:
    """Return the check of a number that must not exceed a limit."""
    return Check(what, "shown" if limit is None else f"at most {limit:g}", 0.0, ours, limit)


def curves(variant: str, name: str, runs: Sequence[Result]) -> list[Row]:
    """Return quartiles over seeds of gap and violation."""
    rows: list[Row] = []
    for array, measured in {"gap": GAP, "violation": ("violation", "power units")}.items():
        values = np.stack([run.arrays[array] for run in runs])
        for place, episode in enumerate(runs[0].arrays["episode"].tolist()):
            rows += numbers(variant, name, measured, values[:, place], episode)
    return rows


def numbers(
    variant: str, name: str, measure: tuple[str, str], values: Sequence[float] | Floats, x: float | None = None
) -> list[Row]:
    """Return median and quartiles of values over seeds; without a place also the largest."""
    quantity, unit = measure
    which = QUARTILES if x is not None else QUARTILES | {"largest": 100}
    return [
        Row(variant, name, f"{word} {quantity}", unit, x, quantile(values, percent), None, len(values))
        for word, percent in which.items()
    ]


def quantile(values: Sequence[float] | Floats, percent: float) -> float:
    """Return a percentile; by an existing value where some are infinite."""
    array = np.asarray(values, float)
    method = "linear" if np.isfinite(array).all() else "higher"
    return float(np.percentile(array, percent, method=method))  # type: ignore[call-overload]


# Scheduling ----------------------------------------------------------------------------------------------------------


def schedules(request: Request, settings: Efficiency) -> tuple[list[Row], list[Check]]:
    """Return the last violations of the examples that can be met, proof and rest violation of the one that cannot."""
    learner = LearnerSettings.practical(trials=False).as_dict()  # nothing is random here
    common = {"version": VERSION, "learner": learner}
    infeasible = {**common, "problem": example_problem(3)}
    examples = [({**common, "problem": example_problem(number)}, episodes) for number, episodes in settings.schedules]
    tasks = [
        Task(f"{TASKS}:learn_schedule", {**example, "episodes": episodes, "seed": seed})
        for example, episodes in examples
        for seed in range(settings.seeds)
    ]
    tasks += [
        Task(f"{TASKS}:learn_infeasible", {**infeasible, "episodes": settings.infeasible_episodes, "seed": seed})
        for seed in range(settings.seeds)
    ]
    results = request.run(tasks, "efficiency, scheduling")
    rows: list[Row] = []
    checks: list[Check] = []
    for place, (example, _) in enumerate(settings.schedules):
        runs = results[place * settings.seeds : (place + 1) * settings.seeds]
        for key, what in (("last_violation", "last violation"), ("last_wrong", "last policy that is not optimal")):
            values = [float(run.values[key]) for run in runs]
            rows += numbers(f"example {example}", PRACTICAL, (what, "episode"), values)
            checks.append(at_most(f"example {example}: {what}, worst seed", max(values), SCHEDULES[example]))
    runs = results[-settings.seeds :]
    proved = [math.inf if run.values["proved"] is None else float(run.values["proved"]) for run in runs]
    excess = [float(run.values["excess"]) for run in runs]
    rows += numbers("example 3", PRACTICAL, ("proof of infeasibility", "episode"), proved)
    rows += numbers("example 3", PRACTICAL, ("excess over the least violation", "%"), excess)
    checks.append(at_most("example 3: episodes to the proof, worst seed", min(max(proved), 1e9), PROOF))
    checks.append(at_most("example 3: excess over the least violation (%), worst seed", max(excess), EXCESS))
    return rows, checks
