"""Style of the figures: `BLUE`, `ORANGE`, ... form a colour-blind safe palette."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Palette of Okabe and Ito, colour-blind safe.
BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, BLACK, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#666666",
)  # fmt: skip

STYLE = Path(__file__).parent / "figures.mplstyle"


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the style while the block runs; create and save figures inside of it."""
    import matplotlib.style

    with matplotlib.style.context(STYLE):
        yield


def new_figure(rows: int, columns: int, *, width: float = 8.4, height: float = 3.1) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure and its axes [row][column]; `height` is that of one row, in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in axes]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure, .png or .pdf, reproducibly."""
    undated = {".png": {"Software": None}, ".pdf": {"CreationDate": None, "Producer": None}}
    figure.savefig(path, dpi=160, metadata=undated[path.suffix])
    return path


def count_episodes(axes: Axes) -> None:
    """Let the horizontal axis count episodes from 0."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    plain_numbers(axes.xaxis)
    axes.set_xlim(left=0)


def plain_numbers(axis: Axis) -> None:
    """Write 20,000 and 0.1, not powers of ten."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
