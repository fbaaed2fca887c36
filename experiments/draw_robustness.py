"""The figure of `robustness`, from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord
from peakrl.report.style import BLACK, BLUE, SKY, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"posterior sampling": SKY, "practical": BLUE, "UCBVI": BLACK}
#: Where the logarithmic axis ends: smaller gaps are drawn there.
FLOOR = 1e-4


def draw_robustness(record: FigureRecord) -> Figure:
    """Draw median (dot; hollow where some policy violates) to worst gap (bar), a panel for each number of episodes."""
    episodes = sorted({row.x for row in record.rows if row.measure == "worst gap" and row.x is not None})
    figure, grid = new_figure(len(episodes), 1, height=3.4)
    for place, panels in zip(episodes, grid, strict=True):
        axes = panels[0]
        for number, (name, colour) in enumerate(COLOURS.items()):
            for height, family in enumerate(record.variants):
                at = {
                    row.measure: row.mean if row.measure == "violating policies" else max(row.mean, FLOOR)
                    for row in record.rows
                    if (row.variant, row.curve, row.x) == (family, name, place)
                }
                y = height + 0.22 * (number - 1)
                label = name if height == 0 else None
                axes.plot([at["median gap"], at["worst gap"]], [y, y], color=colour, linewidth=1.2, label=label)
                fill = "white" if at["violating policies"] > 0 else colour
                axes.plot([at["median gap"]], [y], color=colour, marker="o", markersize=4, markerfacecolor=fill)
                axes.plot([at["worst gap"]], [y], color=colour, marker="|", markersize=8, linestyle="")
        axes.set_xscale("log")
        axes.set_yticks(range(len(record.variants)), record.variants)
        axes.invert_yaxis()
        axes.set_title(
            f"After {place:,.0f} episodes: median (hollow: some policy violates) to worst (bar) gap", loc="left"
        )
        axes.set_xlabel("% (rare catastrophe: probability of violating)")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure
