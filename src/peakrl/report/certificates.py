"""The figure of `certificates`, from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord
from peakrl.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, YELLOW, new_figure, places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "nothing declared": BLUE,
    "groups": GREEN,
    "action": PURPLE,
    "rewards": SKY,
    "most reward": GREY,
    "outcome map": YELLOW,
    "groups, action, rewards": ORANGE,
    "map, action, rewards": BLACK,
    "deterministic": BLACK,
}


def draw_certificates(record: FigureRecord) -> Figure:
    """Draw the median of the episodes over the gap that is certified, one panel for each problem."""
    figure, grid = new_figure(len(record.variants), 1)
    for variant, panels in zip(record.variants, grid, strict=True):
        axes = panels[0]
        for name, median in record.curves(variant, "median episodes to a certificate").items():
            rows = [row for row in median if row.x is not None]
            axes.plot(places(rows), [row.mean for row in rows], color=COLOURS[name], marker="o", label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.invert_xaxis()
        axes.set_xlabel("certified gap (%)")
        axes.set_ylabel("episodes")
        axes.set_title(variant.capitalize(), loc="left")
        axes.legend()
    return figure
