"""Figures 2 and 3, from their records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import TYPE_CHECKING, Any

from peakrl.paper.records import PAPER, FigureRecord
from peakrl.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    count_episodes,
    curve,
    label,
    new_figure,
    read_off,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VARIANTS = {"frozen": "arrivals frozen in each trial", "random": "fresh arrivals in every episode"}
MEASURES = ("sum rate", "violation")
#: Dashes of growing gaps, so that curves that coincide all show.
SLACK_STYLES: tuple[tuple[str, Any], ...] = (
    (BLUE, "-"), (ORANGE, (0, (6, 4))), (GREEN, (0, (2, 4))), (PURPLE, "-."), (SKY, ":"),
)  # fmt: skip
LEARNER_COLOURS = {
    "Algorithm 1 as printed": ORANGE,
    "stepwise start, no bonus": PURPLE,
    "practical learner": BLUE,
}
#: Colour, marker, line.
COMPARED = {
    "greedy": (YELLOW, "v", "-"),
    "balanced": (GREEN, "s", "-"),
    "balanced (non-causal)": (GREEN, "s", "-"),
    "learner": (BLUE, "o", "-"),
    "integer optimum": (GREY, "x", ":"),
    "convex bound": (BLACK, "^", "--"),
    "convex bound (non-causal)": (BLACK, "^", "--"),
    "causal optimum": (GREY, "x", ":"),
    "Algorithm 1 as printed": (ORANGE, "D", "-"),
    "stepwise start, no bonus": (PURPLE, "P", "-"),
    "practical learner": (BLUE, "o", "-"),
}


def draw_figure_2(record: FigureRecord) -> Figure:
    """Draw sum rate and violation of the averaged policy against the episode."""
    figure, grid = new_figure(len(record.variants), 2)
    for variant, panels in zip(record.variants, grid, strict=True):
        for measure, axes in zip(MEASURES, panels, strict=True):
            curves = record.curves(variant, measure)
            styles = cycle(SLACK_STYLES)
            for name, rows in curves.items():
                if name.startswith(PAPER):
                    continue
                if rows[0].x is None:
                    colour, line = BLACK, "--"
                else:
                    colour, line = (LEARNER_COLOURS[name], "-") if name in LEARNER_COLOURS else next(styles)
                curve(axes, rows, name, colour, linestyle=line)
                if PAPER + name in curves:
                    read_off(axes, curves[PAPER + name], colour)
            label(axes, f"{measure.capitalize()}, {VARIANTS[variant]}", "episode", next(iter(curves.values())))
            count_episodes(axes)
            place: Any = {
                "sum rate": "lower right" if variant == "frozen" else "center right",
                "violation": "upper right",
            }
            axes.legend(loc=place[measure], title=legend_title(curves))
            if measure == "violation":
                axes.set_ylim(bottom=0)
    return figure


def legend_title(curves: Iterable[str]) -> str | None:
    """Say what the circles are, where there are any."""
    return "circles: the paper's curves" if any(name.startswith(PAPER) for name in curves) else None


def draw_figure_3(record: FigureRecord) -> Figure:
    """Draw the sum rates of learner and baselines against the mean arrival, and the violations."""
    random = "random" in record.variants
    figure, grid = new_figure(2 if random else 1, 2, height=3.6)
    draw_levels(record, grid[0][0])
    draw_gaps(record, "frozen", "convex bound", grid[0][1])
    if random:
        draw_gaps(record, "random", "causal optimum", grid[1][0])
        # From a fraction of a bit to fifty: logarithmic beyond one bit.
        grid[1][0].set_yscale("symlog", linthresh=1.0, linscale=1.0)
        grid[1][0].set_yticks([-50, -20, -10, -5, -2, -1, 0, 1], ["-50", "-20", "-10", "-5", "-2", "-1", "0", "1"])
        grid[1][0].set_ylim(-100, 2)
        draw_violations(record, grid[1][1])
        handles, names = grid[1][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, title="fresh arrivals")
    for axes in (axes for row in grid for axes in row):
        axes.set_xticks(sorted({row.x for row in record.rows if row.x is not None}))
    return figure


def draw_levels(record: FigureRecord, axes: Axes) -> None:
    """Draw the sum rates on frozen arrivals."""
    curves = record.curves("frozen", "sum rate")
    for name, rows in curves.items():
        if name.startswith(PAPER):
            read_off(axes, rows, COMPARED[name.removeprefix(PAPER)][0])
            continue
        colour, marker, line = COMPARED[name]
        curve(axes, rows, name, colour, band=False, marker=marker, linestyle=line, markersize=4)
    label(axes, f"Sum rate, {VARIANTS['frozen']}", record.x, next(iter(curves.values())))
    axes.legend(loc="lower right", title=legend_title(curves))


def draw_gaps(record: FigureRecord, variant: str, bound: str, axes: Axes) -> None:
    """Draw how far each curve stays below the bound of the same sequences."""
    curves = record.curves(variant, "sum rate")
    top = {row.x: row.mean for row in curves[bound]}
    theirs = {row.x: row.mean for row in curves.get(PAPER + bound, [])}
    for name, rows in curves.items():
        if name == bound or name == PAPER + bound:
            continue
        base, key = (theirs, name.removeprefix(PAPER)) if name.startswith(PAPER) else (top, name)
        gaps = [row._replace(mean=row.mean - base[row.x], std=None) for row in rows]
        colour, marker, line = COMPARED[key]
        if name.startswith(PAPER):
            read_off(axes, gaps, colour)
        else:
            curve(axes, gaps, name, colour, marker=marker, linestyle=line, markersize=4)
    words = {"frozen": "the same sequences", "random": "fresh arrivals"}
    label(axes, f"Distance to the {bound}, {words[variant]}", record.x, next(iter(curves.values())))
    axes.set_ylabel(f"sum rate minus {bound} (bits)")
    axes.axhline(0.0, color=COMPARED[bound][0], linewidth=1.0, linestyle="--", label=bound)


def draw_violations(record: FigureRecord, axes: Axes) -> None:
    """Draw the violations that learners with random arrivals have left."""
    curves = record.curves("random", "violation")
    for name, rows in curves.items():
        colour, marker, line = COMPARED[name]
        curve(axes, rows, name, colour, marker=marker, linestyle=line, markersize=4)
    label(axes, "Violation in the second half, fresh arrivals", record.x, next(iter(curves.values())))
    axes.set_ylim(bottom=-0.1)
