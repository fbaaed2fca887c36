"""The figure of `certificates`, from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.paper.records import FigureRecord, Row
from peakrl.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    new_figure,
    places,
    plain_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
DASHED = "deterministic"
COLUMNS = 2


def draw_certificates(record: FigureRecord) -> Figure:
    """Draw the median of the episodes over the gap that is certified, a panel for each problem; quartiles as a band."""
    figure, grid = new_figure(-(-len(record.variants) // COLUMNS), COLUMNS, height=2.4)
    panels = [axes for line in grid for axes in line]
    for variant, axes in zip(record.variants, panels, strict=False):
        draw_problem(axes, record, variant)
    for axes in panels[len(record.variants) :]:
        axes.set_visible(False)
    shown = {name: line for axes in panels for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(shown.values()), list(shown), loc="outside upper center", ncols=3)
    return figure


def draw_problem(axes: Axes, record: FigureRecord, variant: str) -> None:
    """Draw what each declaration takes on one problem, and write what Theorem 1 asks for."""
    bands = [record.curves(variant, f"{word} episodes to a certificate") for word in ("lower", "upper")]
    shares: set[float] = set()
    for name, median in record.curves(variant, "median episodes to a certificate").items():
        x = places(median)
        axes.plot(
            x, means(median), color=COLOURS[name], marker="o", linestyle="--" if name == DASHED else "-", label=name
        )
        if all(name in band for band in bands):
            low, high = (means(band[name]) for band in bands)
            axes.fill_between(x, low, high, color=COLOURS[name], alpha=0.13, linewidth=0)
        shares.update(x)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.invert_xaxis()
    axes.set_xticks(sorted(shares), minor=False)
    axes.xaxis.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)
    few_numbers(axes)
    axes.set_xlabel(f"certified gap (%){asked(record, variant, shares)}")
    axes.set_ylabel("episodes")
    axes.set_title(variant.capitalize(), loc="left")


def few_numbers(axes: Axes) -> None:
    """Number 1, 2 and 5 of each power of ten where there is less than two of them, else the powers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def means(rows: list[Row]) -> list[float]:
    """Return the numbers of rows that have a place on the horizontal axis."""
    return [row.mean for row in rows if row.x is not None]


def asked(record: FigureRecord, variant: str, shares: set[float]) -> str:
    """Return what Theorem 1 asks for at the largest and the smallest gap."""
    numbers = [
        row.mean
        for share in sorted(shares, reverse=True)
        for row in record.curves(variant, f"median episodes to {share:g} %").get("Theorem 1", [])
    ]
    return f"\nTheorem 1 asks for {numbers[0]:.0e} to {numbers[-1]:.0e}" if numbers else ""
