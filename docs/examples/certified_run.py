"""Draw the picture of the README: what a certified learner has proved as it goes on, and the truth.

python docs/examples/certified_run.py docs/_static/certified-run.png
"""

import sys
from pathlib import Path

import peakrl
from peakrl.report.figures import draw_proof
from peakrl.report.style import house_style, save

problem = peakrl.problems.energy_harvesting(horizon=10, battery=8, peak_power=5, max_arrival=6, mean=3, std=2)
run = peakrl.learn(problem, peakrl.learners.Certified(0.03, relative=True), episodes=300_000, seed=0)
with house_style():
    figure = draw_proof(run, peakrl.solve(problem).value)
    print(save(figure, Path(sys.argv[1] if len(sys.argv) > 1 else "certified-run.png")))
