"""The figure of `theory`, from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord, Row
from peakrl.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, curve, new_figure, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, GREEN, ORANGE, PURPLE, SKY, BLACK)
#: Which measures the two panels of a row show.
PANELS = {
    "Theorem 2 on tiny harvesting": ("regret", "violation"),
    "Theorem 2 on the fork": ("positive regret", "violation"),
    "Theorem 1 on tiny harvesting": ("gap", "violation"),
    "Two doors, the hardest gap": ("positive regret", "violation"),
}
SUMMED, FORK, DOORS = "Theorem 1 on tiny harvesting", "Theorem 2 on the fork", "Two doors, the hardest gap"


def draw_theory(record: FigureRecord) -> Figure:
    """Draw regret or gap on the left and violation on the right, a row for each part."""
    figure, grid = new_figure(len(record.variants), 2, width=12.5, height=3.0)
    for variant, panels in zip(record.variants, grid, strict=True):
        for axes, measure in zip(panels, PANELS[variant], strict=True):
            draw_panel(axes, record, variant, measure)
    return figure


def draw_panel(axes: Axes, record: FigureRecord, variant: str, measure: str) -> None:
    """Draw every curve of a measure, where it is above 0, with its slope in the legend."""
    from matplotlib.ticker import NullFormatter

    # A run on the fork passes a threshold: no slope says that.
    slopes = {} if variant == FORK else record.curves(variant, f"slope of the {measure}")
    for colour, (name, rows) in zip(colours(record, variant), record.curves(variant, measure).items(), strict=False):
        above = [row for row in rows if row.mean > 0]
        if not above:
            continue
        fitted = slopes.get(name)
        label = name if not fitted else f"{name}: {fitted[0].mean:.2f}"
        dashed = name.endswith("c = 1") or name.startswith("last")
        curve(axes, above, label, colour, band=False, linestyle="--" if dashed else "-", marker="o", markersize=2.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    if measure == "positive regret" and variant == DOORS:
        guide(axes, [row for rows in record.curves(variant, measure).values() for row in rows])
    axes.set_xlabel("T, steps in all")
    what = "expected, an episode" if variant == SUMMED else "summed over the episodes"
    axes.set_ylabel(f"{measure}, {what}")
    axes.set_title(variant, loc="left")
    if not axes.lines:
        axes.text(
            0.5, 0.5, f"{measure}: never above 0, since what violates earns more", ha="center", transform=axes.transAxes
        )
        axes.set_axis_off()
        return
    title = "fitted slope behind the colon" if slopes else None
    axes.legend(
        fontsize=6.5, title=title, title_fontsize=6.5, handlelength=3, loc="center left", bbox_to_anchor=(1.01, 0.5)
    )


def colours(record: FigureRecord, variant: str) -> list[str]:
    """Return a colour for each curve of a variant: the same for two that differ in a constant or in who only."""
    heads: dict[str, str] = {}
    names = list(dict.fromkeys(row.curve for row in record.rows if row.variant == variant))
    for name in names:
        heads.setdefault(family(name), COLOURS[len(heads) % len(COLOURS)])
    return [heads[family(name)] for name in names]


def family(name: str) -> str:
    """Return what curves of one colour share in their names."""
    return name.split(", c = ")[0] if name.startswith("phi") else name.split("policy, ")[-1]


def guide(axes: Axes, rows: list[Row]) -> None:
    """Draw the optimal rate, through the least of the last points."""
    lengths = sorted(set(places(rows)))
    least = min(row.mean for row in rows if row.x == lengths[-1] and row.mean > 0)
    axes.plot(
        lengths, [least * (x / lengths[-1]) ** 0.5 for x in lengths], color=GREY, linestyle=":", linewidth=1.2,
        label="square root of T",
    )  # fmt: skip
