"""How reliably learners come to the optimum on families of problems on which none was tuned.

Instances of eleven generated families (`paper.robustness_problems`), each learned with a few seeds. Of what is handed
out after 1,000, 10,000 and 100,000 episodes: median and worst gap to the optimum over all runs of a family, in per cent
of the optimum; on stock, queues and grids in per cent of what it earns beyond a policy that draws among viable actions;
of rare catastrophes the probability of violating; of infeasible instances the violation beyond the least. A policy that
violates may earn more than the optimum: its gap is 0 then, and it is counted as *violating*. *Lost* is the sum over
episodes of the optimum less the exact value of the policy followed; below 0 it tells of violations too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from peakrl.learning.settings import LearnerSettings
from peakrl.learning.ucbvi import UCBVI
from peakrl.paper.efficiency import at_most
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row
from peakrl.paper.robustness_problems import FAMILIES
from peakrl.paper.robustness_tasks import CATASTROPHE
from peakrl.runs import Result, Task

TASK = "peakrl.paper.robustness_tasks:learn_instance"
POSTERIOR, PLANNER = "posterior sampling", "UCBVI"
LEARNERS: dict[str, LearnerSettings] = {
    POSTERIOR: LearnerSettings.posterior(),
    "practical": LearnerSettings.practical(),
    PLANNER: UCBVI(),
}
#: Worst gap that posterior sampling may leave, by family and episodes; what is not here is shown.
LIMITS: dict[str, dict[int, float]] = {
    "dense": {10_000: 0.1},
    "sparse": {1_000: 1.0, 10_000: 0.2},
    "step-dependent": {1_000: 1.0, 10_000: 0.3},
    "chains": {1_000: 1.0},
    "stock and queues": {10_000: 1.0, 100_000: 0.1},
    "grids": {10_000: 1.0},
    "many actions": {1_000: 0.2},
    "several constraints": {1_000: 0.5},
    "infeasible": {10_000: 1.0},
}
#: A run that is still so far below the optimum at the end, in per cent, is stuck.
STUCK = 2.0


@dataclass(frozen=True)
class Robustness:
    """Settings of the experiment."""

    instances: int = 10
    seeds: int = 3
    places: tuple[int, ...] = (1_000, 10_000)
    #: So many of the instances are learned for longer, without the value lost.
    long_instances: int = 10
    long_place: int = 100_000


FULL = Robustness()
DEFAULT = replace(FULL, seeds=1, long_instances=2)
QUICK = replace(FULL, instances=1, seeds=1, places=(200, 1_000), long_instances=0)


def robustness(request: Request) -> FigureRecord:
    """Return tables and checks of the experiment."""
    return measure(request, QUICK if request.quick else FULL if request.full else DEFAULT)


def measure(request: Request, settings: Robustness) -> FigureRecord:
    """Return the experiment for given settings."""
    tasks = {(family, name): tasks_of(settings, family, name) for family in FAMILIES for name in LEARNERS}
    results = iter(request.run([task for batch in tasks.values() for task in batch], "robustness"))
    found = {key: [next(results) for _ in batch] for key, batch in tasks.items()}
    rows: list[Row] = []
    checks: list[Check] = []
    for (family, name), runs in found.items():
        rows += table(settings, family, name, runs)
    for family in FAMILIES:
        checks += judged(settings, family, {name: found[family, name] for name in LEARNERS})
    checks.append(at_most("posterior sampling: runs stuck at the end", float(stuck(settings, found)), 0.0))
    if request.quick:
        checks = [replace(check, tolerance=None) for check in checks]
    values = {**asdict(settings), "quick": request.quick, "learners": {k: v.as_dict() for k, v in LEARNERS.items()}}
    title = "How reliably learners come to the optimum"
    return FigureRecord("robustness", title, "episode", values, tuple(rows), tuple(checks))


def tasks_of(settings: Robustness, family: str, name: str) -> list[Task]:
    """Return the runs of a learner on a family: those with the value lost first, then the long ones."""
    common = {"version": VERSION, "family": family, "learner": LEARNERS[name].as_dict()}
    sizes = [(settings.instances, settings.places, True), (settings.long_instances, (settings.long_place,), False)]
    return [
        Task(TASK, {**common, "number": number, "seed": seed, "places": list(places), "exact": exact})
        for instances, places, exact in sizes
        for number in range(instances)
        for seed in range(settings.seeds)
    ]


def at_places(settings: Robustness, runs: Sequence[Result], name: str = "gap") -> dict[int, list[float]]:
    """Return {episodes: gaps of the runs, or chances of violating}."""
    short = runs[: settings.instances * settings.seeds]
    found = {place: [float(run.arrays[name][i]) for run in short] for i, place in enumerate(settings.places)}
    long = [float(run.arrays[name][0]) for run in runs[len(short) :]]
    return found | ({settings.long_place: long} if long else {})


def table(settings: Robustness, family: str, name: str, runs: Sequence[Result]) -> list[Row]:
    """Return median and worst gap by episodes, and the value lost."""
    unit = "probability" if family == CATASTROPHE else "%"
    rows: list[Row] = []
    for place, gaps in at_places(settings, runs).items():
        rows.append(Row(family, name, "median gap", unit, float(place), float(np.median(gaps)), None, len(gaps)))
        rows.append(Row(family, name, "worst gap", unit, float(place), max(gaps), None, len(gaps)))
    for place, chances in at_places(settings, runs, "chance").items():
        share = sum(chance > 0 for chance in chances) / len(chances)
        rows.append(Row(family, name, "violating policies", "share", float(place), share, None, len(chances)))
    for i, place in enumerate(settings.places):
        rows.append(Row(family, name, "value lost", "", float(place), lost(settings, runs, i), None, len(runs)))
    return rows


def lost(settings: Robustness, runs: Sequence[Result], place: int) -> float:
    """Return the mean over runs of the value lost up to a place."""
    return float(np.mean([run.arrays["lost"][place] for run in runs[: settings.instances * settings.seeds]]))


def judged(settings: Robustness, family: str, found: dict[str, list[Result]]) -> list[Check]:
    """Compare the default's worst gaps with what was asked for, and what it loses with the planner."""
    checks = [
        at_most(f"{family}: worst gap at {place:,}", max(gaps), LIMITS.get(family, {}).get(place))
        for place, gaps in at_places(settings, found[POSTERIOR]).items()
    ]
    for i, place in enumerate(settings.places):
        ours, planner = (lost(settings, found[name], i) for name in (POSTERIOR, PLANNER))
        if planner > 0 and family != "infeasible":
            what = f"{family}: value lost by {place:,}, in UCBVI's"
            checks.append(Check(what, "shown", None, ours / planner, None))
    return checks


def stuck(settings: Robustness, found: dict[tuple[str, str], list[Result]]) -> int:
    """Count the runs of the default whose last gap, on a family that is measured in per cent, is large."""
    last = [
        gap
        for family in FAMILIES
        if family != CATASTROPHE
        for gap in list(at_places(settings, found[family, POSTERIOR]).values())[-1]
    ]
    return sum(gap > STUCK for gap in last)
