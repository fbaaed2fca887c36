"""How much is safe at each step: states and actions, as shares of those that an episode can come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from peakrl.report.style import BLUE, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from peakrl.safety.safe_set import StepCount


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
    axes.set_ylabel("safe, of those that can be met (%)")
    axes.legend(loc="best")
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, parse_math=False)  # a name may hold a $
    return figure
