"""Static figures: Gantt chart of a schedule, progress of a certified run, safe shares by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from peakrl.errors import SettingsError
from peakrl.problems.scheduling.orders import Bar
from peakrl.report.style import BLACK, BLUE, GREY, ORANGE, SKY, new_figure, plain_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from peakrl.safety.safe_set import StepCount
    from peakrl.training.trainer import LearningRun


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


#: True gaps below this share of epsilon are drawn at it, since the axis is logarithmic.
SMALL = 1e-3


def draw_proof(run: LearningRun, optimum: float) -> Figure:
    """Draw the certified gap and violation by episode, and the true gap of the candidate policy."""
    proved, certificate = run.proof_history, run.certificate
    if proved is None or certificate is None or not len(proved):
        raise SettingsError("this run has no certificate: learn with peakrl.learners.Certified(...)")
    figure, ((axes,),) = new_figure(1, 1, width=7.0, height=2.9)
    axes.plot(proved.episode, proved.gap, color=BLUE, label="certified gap to the best safe policy")
    above = proved.violation > 0
    if above.any():
        axes.plot(proved.episode[above], proved.violation[above], color=ORANGE, label="certified violation")
    true, least = optimum - proved.value, SMALL * (certificate.epsilon or float(proved.gap.min()))
    label = "true gap" + (f" (bottom: below {least:.1g})" if (true < least).any() else "")
    axes.plot(proved.episode, np.maximum(true, least), color=BLACK, linestyle="--", linewidth=1.1, label=label)
    if certificate.epsilon is not None:
        axes.axhline(certificate.epsilon, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate(
            f"epsilon {certificate.epsilon:.2g}", (proved.episode[0], certificate.epsilon), (2, 3),
            textcoords="offset points", color=GREY, fontsize=8,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("episodes")
    axes.set_ylabel("gap (reward per episode)")
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    axes.set_title(f"Certified after {run.episodes:,} episodes", loc="left")
    axes.legend(loc="upper right")
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
