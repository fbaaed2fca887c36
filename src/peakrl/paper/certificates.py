"""How many episodes a certificate takes, beside what Theorem 1 asks for, and whether any is false.

One run passes 5, 2 and 1 % of the best safe value in turn, p = 0.05; every certificate is held against the exact
optimum. Theorem 1: `theory.pac_plan` with constant 1, in the theorem's units (epsilon over the width of the rewards).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from peakrl.learning.knowledge import Knowledge
from peakrl.paper.efficiency import at_most, numbers
from peakrl.paper.energy import transmitter
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row
from peakrl.paper.scheduling import example_problem
from peakrl.runs import Result, Task

TASK = "peakrl.paper.certificate_tasks:learn_certified"
NOTHING = "nothing declared"


@dataclass(frozen=True)
class Certificates:
    """Settings of the experiment."""

    shares: tuple[float, ...] = (0.05, 0.02, 0.01)
    failure_probability: float = 0.05
    seeds: int = 5
    episodes: int = 5_000_000
    peaks: tuple[float, ...] = (8, 15)
    examples: tuple[int, ...] = (1, 2)


FULL = Certificates()
QUICK = replace(FULL, shares=(0.1, 0.05), seeds=1, episodes=100_000, peaks=(8,), examples=(1,))


def certificates(request: Request) -> FigureRecord:
    """Return tables and checks of the experiment."""
    return measure(request, QUICK if request.quick else FULL)


def cases(settings: Certificates) -> dict[tuple[str, str], tuple[dict[str, Any], Knowledge]]:
    """Return (problem, what is declared): the problem as data, and the declaration."""
    groups = Knowledge(outcome_groups=True)
    told = Knowledge(outcome_groups=True, constraint_depends_on="action", rewards=True)
    found: dict[tuple[str, str], tuple[dict[str, Any], Knowledge]] = {}
    for peak in settings.peaks:
        problem = transmitter(peak_power=peak, log_base=math.e).as_dict()
        for name, knowledge in {NOTHING: Knowledge(), "groups": groups, "groups, action, rewards": told}.items():
            found[f"energy, peak {peak:g}", name] = problem, knowledge
    for number in settings.examples:
        for name, knowledge in {NOTHING: Knowledge(), "deterministic": Knowledge(deterministic=True)}.items():
            found[f"scheduling {number}", name] = example_problem(number), knowledge
    return found


def measure(request: Request, settings: Certificates) -> FigureRecord:
    """Return the experiment for given settings."""
    common = {
        "version": VERSION, "shares": list(settings.shares), "episodes": settings.episodes,
        "failure_probability": settings.failure_probability,
    }  # fmt: skip
    found = cases(settings)
    tasks = [
        Task(TASK, {**common, "problem": problem, "knowledge": knowledge.as_dict(), "seed": seed})
        for problem, knowledge in found.values()
        for seed in range(settings.seeds)
    ]
    results = iter(request.run(tasks, "certificates"))
    rows: list[Row] = []
    runs: list[Result] = []
    for variant, name in found:
        own = [next(results) for _ in range(settings.seeds)]
        rows += table(settings, variant, name, own)
        runs += own
    values = {**asdict(settings), "quick": request.quick}
    title = "Episodes until a certificate, and whether it is true"
    return FigureRecord("certificates", title, "gap (%)", values, tuple(rows), tuple(checks(settings, runs)))


def table(settings: Certificates, variant: str, name: str, runs: list[Result]) -> list[Row]:
    """Return quartiles of the episodes to each share over seeds, and Theorem 1's number."""
    rows: list[Row] = []
    for place, share in enumerate(settings.shares):
        taken = [float(run.arrays["episodes"][place]) for run in runs]
        rows += numbers(variant, name, (f"episodes to {100 * share:g} %", "episodes"), taken)
        rows += numbers(variant, name, ("episodes to a certificate", "episodes"), taken, 100 * share)
        if name == NOTHING:
            asked = float(runs[0].arrays["theorem"][place])
            rows.append(
                Row(variant, "Theorem 1", f"median episodes to {100 * share:g} %", "episodes", None, asked, None, 1)
            )
    return rows


def checks(settings: Certificates, runs: list[Result]) -> list[Check]:
    """Return how many certificates were issued, and that none is false."""
    issued = sum(int(run.values["issued"]) for run in runs)
    false = sum(int(run.values["false"]) for run in runs)
    asked = len(runs) * len(settings.shares)
    return [
        Check("certificates issued", "asked for", float(asked), float(issued), None),
        at_most("certificates that are false", float(false), 0.0),
    ]
