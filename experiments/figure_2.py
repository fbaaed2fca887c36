"""Figure 2: sum rate and violation of the averaged policy of the first k episodes, against k; peak power 8.

Frozen arrivals: mean and one standard deviation over many sequences, for each slack. Random arrivals: exact curves of
three learners against the causal optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from peakrl.kernels.arrays import Floats, Longs
from peakrl.learning.settings import LearnerSettings
from peakrl.paper import paper_values as paper
from peakrl.paper.energy import (
    RANDOM_LEARNERS,
    RATE,
    TASKS,
    VIOLATION,
    blocks,
    described,
    exact_check,
    random_task,
    sequences_for,
    split,
    transmitter,
    yardstick_task,
)
from peakrl.paper.records import (
    PAPER,
    VERSION,
    Check,
    FigureRecord,
    Request,
    Row,
    curve_rows,
    exact,
    spread,
    stacked,
    value_at,
)
from peakrl.problems.spec import ProblemSpec
from peakrl.runs import Result, Task


@dataclass(frozen=True)
class Convergence:
    """Settings of figure 2."""

    problem: ProblemSpec
    slacks: tuple[float, ...] = (0.1, 0.01, 0.001)
    sequences: int = 1000
    episodes: int = 20_000
    every: int = 200
    #: Sequences of one task.
    block: int = 25
    seed: int = 0
    random_episodes: int = 50_000
    random_every: int = 500
    random_runs: int = 5


FIGURE_2 = Convergence(problem=transmitter(peak_power=8))
FIGURE_2_QUICK = replace(FIGURE_2, sequences=20, block=10, random_episodes=5_000, random_every=100, random_runs=1)


def figure_2(request: Request) -> FigureRecord:
    """Return the learning curves for each slack on frozen arrivals, and of three learners on random ones."""
    settings = FIGURE_2_QUICK if request.quick else FIGURE_2
    return convergence(request, settings)


def convergence(request: Request, settings: Convergence) -> FigureRecord:
    """Return figure 2 for given settings."""
    rows, checks = frozen_curves(request, settings)
    if request.arrivals is None:
        more_rows, more_checks = random_curves(request, settings)
        rows, checks = rows + more_rows, checks + more_checks
    title = "Energy harvesting: sum rate and violation of the averaged policy"
    return FigureRecord("figure-2", title, "episode", described(request, settings), tuple(rows), tuple(checks))


def frozen_curves(request: Request, settings: Convergence) -> tuple[list[Row], list[Check]]:
    """Return curves over many frozen sequences for each slack."""
    arrivals = sequences_for(request, settings.problem, settings.sequences, settings.seed)
    found = request.run(frozen_tasks(settings, arrivals), "figure 2, frozen arrivals")
    episode = found[0].arrays["episode"]
    rates, violations = (np.concatenate([part.arrays[name] for part in found], 1) for name in ("rate", "violation"))
    optimum = stacked(found, "optimum")
    rows: list[Row] = []
    checks: list[Check] = []
    for slack, rate, violation in zip(settings.slacks, rates, violations, strict=True):
        rows += curve_rows("frozen", f"slack {slack:g}", RATE, episode, rate)
        rows += curve_rows("frozen", f"slack {slack:g}", VIOLATION, episode, violation)
        if request.arrivals is None:
            checks += published_checks(slack, episode, rate, violation, judged=not request.quick)
            rows += published_rows(slack)
        else:
            checks += recorded_checks(slack, episode, rate, violation, optimum)
    rows.append(spread("frozen", "integer optimum", RATE, None, optimum))
    return rows, checks


def frozen_tasks(settings: Convergence, arrivals: Longs) -> list[Task]:
    """Return one task for each block of sequences: learning on them with every slack."""
    common = {
        "version": VERSION,
        "problem": settings.problem.as_dict(),
        "learners": [LearnerSettings.published(slack).as_dict() for slack in settings.slacks],
        "episodes": settings.episodes,
        "every": settings.every,
    }
    return [
        Task(f"{TASKS}:learn_sequences", {**common, "arrivals": block}) for block in blocks(arrivals, settings.block)
    ]


def published_checks(slack: float, episode: Longs, rate: Floats, violation: Floats, *, judged: bool) -> list[Check]:
    """Compare with the paper's figure 2 at the episodes that were read off."""
    tolerance = paper.FIGURE_2_TOLERANCE if judged else None
    checks = []
    for place, when in enumerate(paper.FIGURE_2_EPISODES):
        if slack not in paper.FIGURE_2_RATE or when not in episode:
            continue
        at = f"slack {slack:g}, episode {when:,}"
        for what, theirs, ours in (
            ("sum rate, bits", paper.FIGURE_2_RATE[slack][place], rate),
            ("violation", paper.FIGURE_2_VIOLATION[place], violation),
        ):
            checks.append(Check(f"{what}, {at}", "paper's curve", theirs, value_at(episode, ours, when), tolerance))
    return checks


def recorded_checks(slack: float, episode: Longs, rate: Floats, violation: Floats, optimum: Floats) -> list[Check]:
    """Show where learning on recorded arrivals ends."""
    at, best = f"slack {slack:g}, episode {int(episode[-1]):,}", "integer optimum of the same sequences"
    return [
        Check(f"sum rate, bits, {at}", best, float(optimum.mean()), float(rate[:, -1].mean()), None),
        Check(f"violation, {at}", best, 0.0, float(violation[:, -1].mean()), None),
    ]


def published_rows(slack: float) -> list[Row]:
    """Return what was read off the paper's figure 2."""
    rows = []
    for measure, values in ((RATE, paper.FIGURE_2_RATE.get(slack, ())), (VIOLATION, paper.FIGURE_2_VIOLATION)):
        for when, value in zip(paper.FIGURE_2_EPISODES, values, strict=False):
            rows.append(exact("frozen", f"{PAPER}slack {slack:g}", measure, when, value))
    return rows


def random_curves(request: Request, settings: Convergence) -> tuple[list[Row], list[Check]]:
    """Return exact curves with fresh arrivals in every episode, and how far from the optimum they end."""
    problem = settings.problem
    tasks = [
        random_task(problem, learner, settings.random_episodes, settings.random_every, seed)
        for learner in RANDOM_LEARNERS.values()
        for seed in range(settings.random_runs)
    ]
    yardstick = yardstick_task(problem, sequences=1, seed=settings.seed)
    *results, best = request.run([*tasks, yardstick], "figure 2, random arrivals")
    optimum = float(best.values["causal optimum"])
    rows = [exact("random", "causal optimum", RATE, None, optimum)]
    checks = [exact_check("causal optimum, peak 8, nats", paper.RANDOM_OPTIMUM_PEAK_8, optimum)]
    for name, found in zip(RANDOM_LEARNERS, split(results, [settings.random_runs] * len(RANDOM_LEARNERS)), strict=True):
        episode = found[0].arrays["episode"]
        rate, violation = together(found, "rate"), together(found, "violation")
        rows += curve_rows("random", name, RATE, episode, rate)
        rows += curve_rows("random", name, VIOLATION, episode, violation)
        at = f"random arrivals, {name}, episode {int(episode[-1]):,}"
        last = float(np.mean([result.values["last rate"] for result in found]))
        checks += [
            Check(f"sum rate of the averaged policy, bits, {at}", "causal optimum", optimum, rate[:, -1].mean(), None),
            Check(f"sum rate of the last policy, bits, {at}", "causal optimum", optimum, last, None),
            Check(f"violation of the averaged policy, {at}", "causal optimum", 0.0, violation[:, -1].mean(), None),
        ]
    return rows, checks


def together(results: Sequence[Result], name: str) -> Floats:
    """Return one curve for each result, [run, place]."""
    return np.stack([result.arrays[name] for result in results])
