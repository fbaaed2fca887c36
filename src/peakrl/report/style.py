"""Style of static figures, for figures of your own that look like those of peakrl.

    with house_style():
        figure, ((axes,),) = new_figure(1, 1)
        axes.plot(run.history.episode, run.history.value, color=BLUE)
        save(figure, Path("curve.pdf"))

`BLUE`, `ORANGE`, ... form a colour-blind safe palette. `count_episodes` and `plain_numbers` format the numbers of an
axis.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from peakrl.errors import SettingsError
from peakrl.storage import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Palette of Okabe and Ito, colour-blind safe.
BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, BLACK, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#666666",
)  # fmt: skip

STYLE = Path(__file__).parent / "templates" / "figures.mplstyle"
KINDS = (".png", ".pdf", ".svg")


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
    """Write a figure atomically and reproducibly."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise SettingsError(f"{path}: the name of a figure must end with one of {', '.join(KINDS)}")
    undated = {".png": {"Software": None}, ".pdf": {"CreationDate": None, "Producer": None}, ".svg": {"Date": None}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind[1:], dpi=160, metadata=undated[kind])
    write_file(path, buffer.getvalue())
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
