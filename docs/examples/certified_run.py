"""Draw the picture of the README: what a certified learner has proved as it goes on, and the truth.

python docs/examples/certified_run.py docs/_static/certified-run.png
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

import peakrl

#: True gaps below this share of epsilon are drawn at it, since the axis is logarithmic.
SMALL = 1e-3
BLUE, ORANGE, BLACK, GREY = "#0072B2", "#D55E00", "#000000", "#666666"


def draw_proof(run: peakrl.LearningRun, optimum: float) -> Figure:
    """Draw the certified gap and violation by episode, and the true gap of the candidate policy."""
    proved, certificate = run.proof_history, run.certificate
    if proved is None or certificate is None or not len(proved):
        raise ValueError("this run has no certificate: learn with peakrl.learners.Certified(...)")
    figure = Figure(figsize=(7.0, 2.9), layout="constrained")
    axes = figure.subplots()
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
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_title(f"Certified after {run.episodes:,} episodes", loc="left")
    axes.legend(loc="upper right")
    return figure


def main(place: Path) -> None:
    """Learn until the certificate is issued, and draw the picture."""
    problem = peakrl.problems.energy_harvesting(horizon=10, battery=8, peak_power=5, max_arrival=6, mean=3, std=2)
    run = peakrl.learn(problem, peakrl.learners.Certified(0.03, relative=True), episodes=300_000, seed=0)
    draw_proof(run, peakrl.solve(problem).value).savefig(place, dpi=160)
    print(place)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "certified-run.png"))
