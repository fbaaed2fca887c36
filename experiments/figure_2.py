"""Figure 2: learning curves of the averaged policy on energy harvesting; peak power 8.

Frozen arrivals: Algorithm 1 with each slack on many sequences, beside the paper's curves. Random arrivals: exact curves
of three learners, beside the causal optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, label, legend_title, read_off
from experiments.energy import (
    RANDOM_LEARNERS,
    RATE,
    VARIANTS,
    VIOLATION,
    block_tasks,
    described,
    drawn_task,
    exact_check,
    random_task,
    sequences_for,
    split,
    transmitter,
)
from experiments.records import (
    PAPER,
    Check,
    FigureRecord,
    Floats,
    Longs,
    Request,
    Row,
    curve_rows,
    exact,
    spread,
    stacked,
    value_at,
)
from experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, count_episodes, new_figure
from peakrl.learners import ConstrainedQ
from peakrl.specs import ProblemSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Read off the paper's curves at these episodes: bits for each slack; violations (power units) are the same for all.
PAPER_EPISODES = (5_000, 10_000, 20_000)
PAPER_RATE = {0.1: (57.9, 60.2, 61.5), 0.01: (57.3, 59.7, 61.2), 0.001: (56.8, 59.1, 60.9)}
PAPER_VIOLATION = (12.7, 6.3, 3.1)
TOLERANCE = 0.4
#: Exact value with random arrivals, nats.
RANDOM_OPTIMUM = 43.507


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
    return convergence(request, request.choose(FIGURE_2_QUICK, FIGURE_2))


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
    learners = [ConstrainedQ.published(slack).as_dict() for slack in settings.slacks]
    config: dict[str, Any] = {"problem": settings.problem.as_dict(), "learners": learners}
    config |= {"episodes": settings.episodes, "every": settings.every}
    found = request.run(block_tasks("learn_sequences", config, arrivals, settings.block), "figure 2, frozen arrivals")
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
            for measure, values in ((RATE, PAPER_RATE.get(slack, ())), (VIOLATION, PAPER_VIOLATION)):
                points = zip(PAPER_EPISODES, values, strict=False)
                rows += [exact("frozen", f"{PAPER}slack {slack:g}", measure, when, value) for when, value in points]
        else:
            at, best = f"slack {slack:g}, episode {int(episode[-1]):,}", "integer optimum of the same sequences"
            checks += [
                Check(f"sum rate, bits, {at}", best, float(optimum.mean()), float(rate[:, -1].mean()), None),
                Check(f"violation, {at}", best, 0.0, float(violation[:, -1].mean()), None),
            ]
    rows.append(spread("frozen", "integer optimum", RATE, None, optimum))
    return rows, checks


def published_checks(slack: float, episode: Longs, rate: Floats, violation: Floats, *, judged: bool) -> list[Check]:
    """Compare with the paper's figure 2 at the episodes that were read off."""
    checks = []
    for place, when in enumerate(PAPER_EPISODES):
        if slack not in PAPER_RATE or when not in episode:
            continue
        for what, theirs, ours in (
            ("sum rate, bits", PAPER_RATE[slack][place], rate),
            ("violation", PAPER_VIOLATION[place], violation),
        ):
            what = f"{what}, slack {slack:g}, episode {when:,}"
            found = value_at(episode, ours, when)
            checks.append(Check(what, "paper's curve", theirs, found, TOLERANCE if judged else None))
    return checks


def random_curves(request: Request, settings: Convergence) -> tuple[list[Row], list[Check]]:
    """Return exact curves with fresh arrivals in every episode, and how far from the optimum they end."""
    problem, runs = settings.problem, settings.random_runs
    tasks = [
        random_task(problem, learner, settings.random_episodes, settings.random_every, seed)
        for learner in RANDOM_LEARNERS.values()
        for seed in range(runs)
    ]
    yardstick = drawn_task("random_yardsticks", problem, 1, settings.seed)
    *results, best = request.run([*tasks, yardstick], "figure 2, random arrivals")
    optimum = float(best.values["causal optimum"])
    rows = [exact("random", "causal optimum", RATE, None, optimum)]
    checks = [exact_check("causal optimum, peak 8, nats", RANDOM_OPTIMUM, optimum)]
    for name, found in zip(RANDOM_LEARNERS, split(results, [runs] * len(RANDOM_LEARNERS)), strict=True):
        episode = found[0].arrays["episode"]
        rate, violation = (np.stack([result.arrays[key] for result in found]) for key in ("rate", "violation"))
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


# Drawing ---------------------------------------------------------------------------------------------------------

#: Dashes of growing gaps, so that curves that coincide all show.
SLACK_STYLES: tuple[tuple[str, Any], ...] = (
    (BLUE, "-"), (ORANGE, (0, (6, 4))), (GREEN, (0, (2, 4))), (PURPLE, "-."), (SKY, ":"),
)  # fmt: skip
LEARNER_COLOURS = dict(zip(RANDOM_LEARNERS, (ORANGE, PURPLE, BLUE), strict=True))


def draw_figure_2(record: FigureRecord) -> Figure:
    """Draw sum rate and violation of the averaged policy against the episode."""
    figure, grid = new_figure(len(record.variants), 2)
    for variant, panels in zip(record.variants, grid, strict=True):
        for measure, axes in zip(("sum rate", "violation"), panels, strict=True):
            curves, styles = record.curves(variant, measure), cycle(SLACK_STYLES)
            for name, rows in curves.items():
                if name.startswith(PAPER):
                    continue
                colour, line = (LEARNER_COLOURS[name], "-") if name in LEARNER_COLOURS else (BLACK, "--")
                if rows[0].x is not None and name not in LEARNER_COLOURS:
                    colour, line = next(styles)
                curve(axes, rows, name, colour, linestyle=line)
                if PAPER + name in curves:
                    read_off(axes, curves[PAPER + name], colour)
            label(axes, f"{measure.capitalize()}, {VARIANTS[variant]}", "episode", next(iter(curves.values())))
            count_episodes(axes)
            corner: Any = "lower right" if variant == "frozen" else "center right"
            axes.legend(loc=corner if measure == "sum rate" else "upper right", title=legend_title(curves))
            if measure == "violation":
                axes.set_ylim(bottom=0)
    return figure
