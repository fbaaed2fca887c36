"""Static figures: their style, for figures of your own that look like those of peakrl; schedule; safe shares.

    with house_style():
        figure, ((axes,),) = new_figure(1, 1)
        axes.plot(run.history.episode, run.history.value, color=BLUE)
        save(figure, Path("curve.pdf"))

`BLUE`, `ORANGE`, ... form a colour-blind safe palette. `count_episodes` and `plain_numbers` format the numbers of an
axis.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from peakrl.errors import SettingsError
from peakrl.storage import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from peakrl.problems.scheduling.orders import Bar
    from peakrl.safety.safe_set import StepCount

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


def draw_gantt(bars: Sequence[Bar], title: str) -> Figure:
    """Draw a schedule of one machine: one row per job, with due times and deadlines."""
    figure, ((axes,),) = new_figure(1, 1, width=7.6, height=1.3 + 0.34 * len(bars))
    for row, bar in enumerate(bars):
        late = bar.slack < 0
        axes.barh(row, bar.end - bar.start, left=bar.start, height=0.62, color=ORANGE if late else SKY, zorder=2)
        axes.plot([bar.due] * 2, [row - 0.42, row + 0.42], color=BLUE, linestyle=":", linewidth=1.8, zorder=3)
        axes.plot([bar.deadline] * 2, [row - 0.42, row + 0.42], color=BLACK, linewidth=1.8, zorder=3)
    for name, colour, line in (("due time", BLUE, ":"), ("deadline", BLACK, "-")):
        axes.plot([], [], color=colour, linestyle=line, linewidth=1.8, label=name)
    for name, colour, there in (
        ("in time", SKY, any(bar.slack >= 0 for bar in bars)),
        ("after its deadline", ORANGE, any(bar.slack < 0 for bar in bars)),
    ):
        if there:
            axes.barh(0, 0, color=colour, label=name)
    axes.set_yticks(range(len(bars)), [f"job {bar.job}" for bar in bars], parse_math=False)  # a name may hold a $
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(max(bar.end, bar.due, bar.deadline) for bar in bars) * 1.03)
    axes.set_xlabel("time (time units)")
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def draw_counts(counts: Sequence[StepCount], title: str) -> Figure:
    """Draw the shares of safe states and of safe actions over the steps."""
    figure, ((axes,),) = new_figure(1, 1, width=6.4, height=3.0)
    steps = [count.step for count in counts]
    for name, colour, marker, shares in (
        ("states", BLUE, "o", [100 * count.safe_states / max(count.states, 1) for count in counts]),
        ("actions", ORANGE, "s", [100 * count.safe_actions / max(count.actions, 1) for count in counts]),
    ):
        axes.plot(steps, shares, color=colour, marker=marker, markersize=4, label=name)
    axes.set_ylim(-3, 103)
    axes.set_xlabel("step")
    axes.set_ylabel("safe share of the reachable ones (%)")
    axes.legend(loc="best")
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, parse_math=False)  # a name may hold a $
    return figure
