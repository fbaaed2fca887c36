"""The figure of `efficiency`, from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord
from peakrl.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, new_figure, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "posterior sampling": SKY,
    "practical": BLUE,
    "practical, structure declared": GREEN,
    "model-based planner": BLACK,
    "Algorithm 1, phi 0.1": ORANGE,
    "Algorithm 1, slack 0.9": YELLOW,
    "Algorithm 1, slack 0.1": PURPLE,
}
#: Where a logarithmic axis ends: smaller gaps and violations are drawn there.
FLOOR = {"gap": 0.01, "violation": 1e-5}


def draw_efficiency(record: FigureRecord) -> Figure:
    """Draw gap and violation of what is handed out over episodes, with bands from quartile to quartile."""
    variants = [variant for variant in record.variants if variant.startswith("peak")]
    figure, grid = new_figure(len(variants), 2)
    for variant, panels in zip(variants, grid, strict=True):
        for axes, quantity in zip(panels, FLOOR, strict=True):
            draw_quartiles(record, variant, quantity, axes)
        panels[0].axhline(1.0, color="#999999", linewidth=0.8, linestyle=":")
        panels[0].set_title(f"{variant.capitalize()}: gap to the causal optimum (%)", loc="left")
        panels[1].set_title("Violation (power units an episode)", loc="left")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    return figure


def draw_quartiles(record: FigureRecord, variant: str, quantity: str, axes: Axes) -> None:
    """Draw the median of every learner, and the band between its quartiles."""
    floor = FLOOR[quantity]
    by_word = {word: record.curves(variant, f"{word} {quantity}") for word in ("lower", "median", "upper")}
    for name, median in by_word["median"].items():
        rows = [row for row in median if row.x is not None]
        low, high = (
            [max(row.mean, floor) for row in by_word[word][name] if row.x is not None] for word in ("lower", "upper")
        )
        axes.plot(places(rows), [max(row.mean, floor) for row in rows], color=COLOURS[name], label=name)
        axes.fill_between(places(rows), low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor)
    axes.set_xlabel("episode")
    axes.set_ylabel(f"{quantity} of what is handed out")
