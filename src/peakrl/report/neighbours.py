"""The figure of `neighbours`, from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord
from peakrl.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"memory or mask": GREEN, "linear programme": BLUE, "prices": ORANGE, "penalty or queue": PURPLE}
OPTIMUM = "model known"
#: Of a name, as shares of a panel.
NAME_WIDTH, LINE = 0.16, 0.035
#: Smaller violations are drawn here, the left end of a logarithmic axis.
FLOOR = 1e-5


def draw_neighbours(record: FigureRecord) -> Figure:
    """Draw the value of what is handed out over the positive part of the violations on the way; a panel a problem."""
    figure, grid = new_figure(len(record.variants), 1)
    for problem, panels in zip(record.variants, grid, strict=True):
        draw_problem(record, problem, panels[0])
    return figure


def draw_problem(record: FigureRecord, problem: str, axes: Axes) -> None:
    """Draw the methods of one problem."""
    values = record.curves(problem, "median value")
    sums = record.curves(problem, "median positive sum")
    shown, points = set(), {}
    for name, rows in values.items():
        if name == OPTIMUM:
            axes.axhline(rows[0].mean, color=BLACK, linewidth=0.8, linestyle=":", label="optimum, model known")
            continue
        family = record.settings["methods"][name]["family"]
        x, y = max(sums[name][0].mean, FLOOR), rows[0].mean
        axes.plot([x], [y], "o", color=COLOURS[family], label=None if family in shown else family)
        points[name] = x, y
        shown.add(family)
    axes.set_xscale("log")
    axes.margins(x=0.12, y=0.15)
    name_points(axes, points)
    axes.set_xlabel(
        f"mean positive part of the violation of what was followed (log axis; {FLOOR:g} stands for less, or 0)"
    )
    axes.set_ylabel("value of the policy handed out")
    axes.set_title(problem.capitalize(), loc="left")
    axes.legend(fontsize=6)


def name_points(axes: Axes, points: dict[str, tuple[float, float]]) -> None:
    """Write the name of every point beside it, below one another where they would overlap."""
    axes.autoscale_view()  # places are shares of the panel as it will be
    taken: list[tuple[float, float]] = []
    places = {name: axes.transAxes.inverted().transform(axes.transData.transform(at)) for name, at in points.items()}
    for name in sorted(points, key=lambda one: (-places[one][1], places[one][0])):
        right, height = (float(part) for part in places[name])
        while any(abs(right - other) < NAME_WIDTH and abs(height - own) < LINE for other, own in taken):
            height -= LINE
        taken.append((right, height))
        axes.text(right + 0.012, height, name, transform=axes.transAxes, fontsize=6, verticalalignment="center")
