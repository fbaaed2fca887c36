"""The figure of `knowledge`, from its record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord
from peakrl.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, new_figure, places, plain_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "nothing": BLUE,
    "constraint depends on action": PURPLE,
    "constraint function": SKY,
    "support": GREEN,
    "support, groups": ORANGE,
    "everything": BLACK,
}
#: Gaps below this, in per cent, are drawn there: a logarithmic axis has no 0.
LEAST_GAP = 1e-3


def draw_knowledge(record: FigureRecord) -> Figure:
    """Draw for each problem the violating episodes by what is known, and the gap over episodes in the same colours."""
    figure, grid = new_figure(len(record.variants), 2, height=2.3)
    for variant, (left, right) in zip(record.variants, grid, strict=True):
        bars(left, record, variant)
        gaps(right, record, variant)
        left.set_title(variant.capitalize(), loc="left")
    return figure


def bars(axes: Axes, record: FigureRecord, variant: str) -> None:
    """Draw the median of the violating episodes, and write the episodes to 1 % beside it."""
    violating = record.curves(variant, "median violating episodes")
    settled = record.curves(variant, "median episodes to 1 %")
    names = list(violating)
    counts = [violating[name][0].mean for name in names]
    axes.barh(names, counts, color=[COLOURS[name] for name in names], height=0.6)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(0, 40 * max(*counts, 10))
    for place, name in enumerate(names):
        episodes = settled[name][0].mean
        reached = f"1 % after {episodes:,.0f}" if math.isfinite(episodes) else "1 % not reached"
        axes.text(max(counts[place], 0.02) * 1.15, place, f" {counts[place]:,.0f};  {reached}", va="center", fontsize=7)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    axes.grid(visible=False, axis="y")
    plain_numbers(axes.xaxis)
    axes.set_xlabel("violating episodes, median over seeds")


def gaps(axes: Axes, record: FigureRecord, variant: str) -> None:
    """Draw the median gap of the policy that would be handed out, wherever that violates nothing."""
    for name, rows in record.curves(variant, "median gap").items():
        heights = [max(row.mean, LEAST_GAP) if math.isfinite(row.mean) else math.nan for row in rows]
        axes.plot(places(rows), heights, color=COLOURS[name], label=name)
    axes.axhline(1.0, color=BLACK, linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_numbers(axes.xaxis)
    axes.set_xlabel("episode")
    axes.set_ylabel("below the optimum (%),\nwhere nothing violates")
