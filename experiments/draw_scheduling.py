"""Figures 4, 5 and 6, from their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peakrl.paper.records import FigureRecord
from peakrl.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    count_episodes,
    curve,
    label,
    new_figure,
    plain_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "Algorithm 1, each episode": SKY,
    "Algorithm 1, averaged policy": BLUE,
    "Algorithm 1": BLUE,
    "DT": BLACK,
    "EDD": ORANGE,
    "least violation": GREEN,
}
STYLES: dict[str, Any] = {
    "Algorithm 1, each episode": {"linewidth": 0.6},
    "DT": {"linestyle": "--"},
    "EDD": {"linestyle": "-."},
    "least violation": {"linestyle": ":", "linewidth": 1.8},
}
NAMES = {"DT": "DT (knows the times)", "least violation": "least-violation optimum"}
READINGS = {"anew": "times drawn anew", "once": "times drawn once"}


def draw_fixed_times(record: FigureRecord) -> Figure:
    """Draw objective and violation against the episode."""
    figure, ((objective, violation),) = new_figure(1, 2)
    for axes, measure in ((objective, "max tardiness"), (violation, "violation")):
        curves = record.curves("fixed times", measure)
        for name, rows in curves.items():
            curve(axes, rows, name, COLOURS[name], **STYLES.get(name, {}))
        label(axes, measure.capitalize(), "episode", next(iter(curves.values())))
        count_episodes(axes)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    objective.legend(loc="upper right")
    return figure


def draw_figure_6(record: FigureRecord) -> Figure:
    """Draw for each reading the curves of objective and violation, and single episodes at the end of training."""
    figure, grid = new_figure(2, 3, width=10.5)
    for variant, (objective, violation, ends) in zip(record.variants, grid, strict=True):
        draw_tests(record, variant, "max tardiness", objective)
        draw_tests(record, variant, "violation", violation)
        draw_floor(record, variant, violation)
        draw_ends(record, variant, ends)
        objective.set_title(f"Max tardiness, {READINGS[variant]}", loc="left")
        objective.set_ylim(bottom=0)
        violation.set_title(f"Violation, {READINGS[variant]}", loc="left")
        violation.legend(loc="upper right")
    return figure


def draw_tests(record: FigureRecord, variant: str, measure: str, axes: Axes) -> None:
    """Draw the averaged policy over tests, and the levels to compare with."""
    curves = record.curves(variant, measure)
    for name, rows in curves.items():
        curve(axes, rows, NAMES.get(name, name), COLOURS[name], **STYLES.get(name, {}))
    label(axes, measure, "episode", next(iter(curves.values())))
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)


def draw_floor(record: FigureRecord, variant: str, axes: Axes) -> None:
    """Shade what no policy can reach."""
    floor = record.curves(variant, "violation")["least violation"][0].mean
    axes.set_yscale("log")
    axes.set_ylim(0.1, 60)
    axes.axhspan(0.1, floor, color=COLOURS["least violation"], alpha=0.15, linewidth=0)
    plain_numbers(axes.yaxis)


def draw_ends(record: FigureRecord, variant: str, axes: Axes) -> None:
    """Draw mean and standard deviation over tests of one episode at the end of training."""
    names = ["Algorithm 1", "DT", "EDD"]
    for offset, measure, marker in (
        (-0.12, "max tardiness of one episode", "o"),
        (0.12, "violation of one episode", "s"),
    ):
        curves = record.curves(variant, measure)
        for place, name in enumerate(names):
            row = curves[name][0]
            spread = row.std or 0.0
            axes.errorbar(
                place + offset, row.mean, yerr=[[min(spread, row.mean)], [spread]], color=COLOURS[name],
                marker=marker, capsize=3, markerfacecolor="white" if marker == "s" else COLOURS[name],
            )  # fmt: skip
        # The colour tells who, the marker tells what.
        axes.plot([], [], color=GREY, marker=marker, markerfacecolor="white" if marker == "s" else GREY, label=measure)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(-0.2, axes.get_ylim()[1] * 1.3)
    axes.set_ylabel("time units")
    axes.set_title("Last episode of each test, mean and sd", loc="left")
    axes.legend(loc="upper right")
