"""How the rows of a record are drawn: curves with bands of one standard deviation, labels with units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from experiments.records import PAPER, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def label(axes: Axes, title: str, x: str, rows: Sequence[Row]) -> None:
    """Write the title and what the axes show, with the unit that the rows are in."""
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    if rows:
        axes.set_ylabel(f"{rows[0].measure} ({rows[0].unit})")


def curve(axes: Axes, rows: Sequence[Row], name: str, colour: str, *, band: bool = True, **style: Any) -> None:
    """Draw a curve with a band of one standard deviation, or a level if there is no x."""
    if rows[0].x is None:
        axes.axhline(rows[0].mean, color=colour, label=name, **{"linestyle": "--", "linewidth": 1.2, **style})
        return
    x, mean = places(rows), [row.mean for row in rows]
    axes.plot(x, mean, color=colour, label=name, **style)
    if band and all(row.std is not None for row in rows):
        # Violations, tardiness and rates are never below 0, and a logarithmic axis has no 0.
        low = [max(row.mean - (row.std or 0.0), 1e-9) for row in rows]
        high = [row.mean + (row.std or 0.0) for row in rows]
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)


def places(rows: Sequence[Row]) -> list[float]:
    """Return the places of rows on the horizontal axis."""
    return [row.x for row in rows if row.x is not None]


def read_off(axes: Axes, rows: Sequence[Row], colour: str, name: str | None = None) -> None:
    """Mark points read off the paper's figure."""
    axes.plot(
        places(rows), [row.mean for row in rows], linestyle="none", marker="o", markersize=5,
        markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.2, label=name, zorder=5,
    )  # fmt: skip


def log_axes(axes: Axes) -> None:
    """Make both axes logarithmic."""
    axes.set_xscale("log")
    axes.set_yscale("log")


def legend_title(curves: Iterable[str]) -> str | None:
    """Say what the circles are, if there are any."""
    return "circles: the paper's curves" if any(name.startswith(PAPER) for name in curves) else None
