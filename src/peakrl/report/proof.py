"""What a certified learner has proved as it goes on, beside the truth: one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peakrl.errors import SettingsError
from peakrl.report.style import BLACK, BLUE, GREY, ORANGE, new_figure, plain_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from peakrl.training.learn import LearningRun

#: True gaps below this share of epsilon are drawn at it: on a logarithmic axis 0 has no place.
SMALL = 1e-3


def draw_proof(run: LearningRun, optimum: float) -> Figure:
    """Draw the certified gap and bound on the violation of a run over its episodes, and its candidate's true gap."""
    proved, certificate = run.proof_history, run.certificate
    if proved is None or certificate is None or not len(proved):
        raise SettingsError("this run proved nothing: learn with peakrl.learners.Certified(...)")
    figure, ((axes,),) = new_figure(1, 1, width=7.0, height=2.9)
    axes.plot(proved.episode, proved.gap, color=BLUE, label="proved: at most so far below the best safe policy")
    above = proved.violation > 0
    if above.any():
        axes.plot(
            proved.episode[above], proved.violation[above], color=ORANGE, label="proved: violates at most so much"
        )
    true, least = optimum - proved.value, SMALL * (certificate.epsilon or float(proved.gap.min()))
    label = "the true gap" + (f" (at the bottom: below {least:.1g})" if (true < least).any() else "")
    axes.plot(proved.episode, np.maximum(true, least), color=BLACK, linestyle="--", linewidth=1.1, label=label)
    if certificate.epsilon is not None:
        axes.axhline(certificate.epsilon, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate(
            f"epsilon {certificate.epsilon:.2g}", (proved.episode[0], certificate.epsilon), (2, 3),
            textcoords="offset points", color=GREY, fontsize=8,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("episodes")
    axes.set_ylabel("gap (reward of an episode)")
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    axes.set_title(f"Certified after {run.episodes:,} episodes", loc="left")
    axes.legend(loc="upper right")
    return figure
