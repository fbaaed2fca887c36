"""The Gantt chart of one machine: bars in order, due times and deadlines marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from peakrl.problems.scheduling.baselines import Bar
from peakrl.report.style import BLACK, BLUE, ORANGE, SKY, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_gantt(bars: Sequence[Bar], title: str) -> Figure:
    """Draw one row for each job, the first on top."""
    figure, ((axes,),) = new_figure(1, 1, width=7.6, height=1.3 + 0.34 * len(bars))
    for place, bar in enumerate(bars):
        late = bar.slack < 0
        axes.barh(place, bar.end - bar.start, left=bar.start, height=0.62, color=ORANGE if late else SKY, zorder=2)
        axes.plot([bar.due] * 2, [place - 0.42, place + 0.42], color=BLUE, linestyle=":", linewidth=1.8, zorder=3)
        axes.plot([bar.deadline] * 2, [place - 0.42, place + 0.42], color=BLACK, linewidth=1.8, zorder=3)
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
