"""The figure of `neighbours`, from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord
from peakrl.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"memory or mask": GREEN, "linear programme": BLUE, "prices": ORANGE, "penalty or queue": PURPLE}
OPTIMUM = "model known"
#: In inches: the figure, a line of it, and what a panel has above and below its lines.
WIDTH, LINE, MARGIN = 10.0, 0.17, 0.75
#: Violations are drawn on a logarithmic axis from here on; what is less, 0 included, stands left of it.
LEAST = 1e-4


def draw_neighbours(record: FigureRecord) -> Figure:
    """Draw a line a method, a row of panels a problem: value on the left, violations on the way on the right."""
    from matplotlib.figure import Figure

    heights = [LINE * len(methods(record, problem)) + MARGIN for problem in record.variants]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), 2, squeeze=False, sharey="row", gridspec_kw={"height_ratios": heights})
    for problem, (left, right) in zip(record.variants, grid, strict=True):
        draw_values(record, problem, left)
        draw_violations(record, problem, right)
    explain(figure)
    return figure


def methods(record: FigureRecord, problem: str) -> list[str]:
    """Return the methods of a problem, those of a family together."""
    names = [name for name in record.curves(problem, "median value") if name != OPTIMUM]
    families = list(COLOURS)
    return sorted(names, key=lambda name: families.index(record.settings["methods"][name]["family"]))


def draw_values(record: FigureRecord, problem: str, axes: Axes) -> None:
    """Draw what the policy handed out earns, and the mean over all episodes."""
    names = methods(record, problem)
    draw_lines(record, problem, axes, "value", filled=True)
    draw_lines(record, problem, axes, "averaged value", filled=False)
    axes.axvline(record.curves(problem, "median value")[OPTIMUM][0].mean, color=BLACK, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(names)), names, fontsize=7)
    for name, tick in zip(names, axes.get_yticklabels(), strict=True):
        tick.set_color(colour(record, name))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_title(problem.capitalize(), loc="left")
    axes.set_xlabel("value")


def draw_violations(record: FigureRecord, problem: str, axes: Axes) -> None:
    """Draw by how much the limit was exceeded: by the policy handed out, and on the way to it."""
    draw_lines(record, problem, axes, "violation", filled=True)
    draw_lines(record, problem, axes, "positive sum", filled=False)
    axes.set_xscale("symlog", linthresh=LEAST, linscale=0.5)
    axes.set_xlim(left=-LEAST / 2)
    axes.tick_params(axis="y", left=False)
    axes.set_xlabel("by how much an episode exceeds the limit, expected")


def draw_lines(record: FigureRecord, problem: str, axes: Axes, measure: str, *, filled: bool) -> None:
    """Draw medians and quartiles of a measure, a line a method."""
    names = methods(record, problem)
    parts = [record.curves(problem, f"{part} {measure}") for part in ("lower", "median", "upper")]
    limit = record.settings["limits"][problem] if measure == "violation" else 0.0
    for line, name in enumerate(names):
        low, middle, high = (max(part[name][0].mean - limit, 0.0) if limit else part[name][0].mean for part in parts)
        shade = colour(record, name)
        axes.plot([low, high], [line, line], color=shade, linewidth=1.0, alpha=0.6)
        face = shade if filled else "white"
        axes.plot([middle], [line], "o", color=shade, markerfacecolor=face, markersize=4.5 if filled else 6.0,
                  zorder=4 if filled else 3)  # fmt: skip


def colour(record: FigureRecord, name: str) -> str:
    """Return the colour of a method's family."""
    return COLOURS[record.settings["methods"][name]["family"]]


def explain(figure: Figure) -> None:
    """Say what colours and circles stand for, once and above all panels."""
    from matplotlib.lines import Line2D

    circles = {"policy handed out": BLACK, "mean over all episodes on the way": "white"}
    marks = [
        Line2D([], [], marker="o", linestyle="none", color=BLACK, markerfacecolor=face, label=name)
        for name, face in circles.items()
    ]
    marks += [Line2D([], [], color=BLACK, linewidth=0.8, linestyle=":", label="optimum, model known")]
    marks += [
        Line2D([], [], marker="s", linestyle="none", color=shade, label=family) for family, shade in COLOURS.items()
    ]
    figure.legend(handles=marks, loc="outside upper center", ncols=4, fontsize=7.5)
