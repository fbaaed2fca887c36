"""Cold start: processes that do one thing and end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

from benchmarks.timing import Section

FIRST_RUN = """
import peakrl
model = peakrl.compile_model(peakrl.problems.energy_harvesting())
peakrl.learn(model, peakrl.learners.ConstrainedQ.published(0.1), episodes=10, history="none")
"""
FIRST_LEARN = """
import peakrl
print(peakrl.learn(peakrl.problems.energy_harvesting(horizon=3, battery=3, max_arrival=2), episodes=50))
"""
HELP = "import sys; sys.argv = ['peakrl', '--help']; from peakrl.cli import main; main()"
PROCESSES = {
    "python -c pass": "pass",
    "import peakrl": "import peakrl",
    "peakrl --help": HELP,
    "first kernel use, warm disk cache": FIRST_RUN,
    "learn with default settings, warm disk cache": FIRST_LEARN,
}


def start_times(section: Section, repeats: int, quick: bool) -> None:
    """Seconds from nothing to the end of a process."""
    for name, code in PROCESSES.items():
        run_process(code)
        times = [run_process(code) for _ in range(2 if quick else repeats)]
        section.add(
            process=name,
            **{"s on the wall": median(wall for wall, _ in times), "s of processor": median(cpu for _, cpu in times)},
        )
    if not quick:
        wall, cpu = cold_process(FIRST_LEARN)
        section.add(
            process="learn with default settings, empty disk cache", **{"s on the wall": wall, "s of processor": cpu}
        )


def cold_process(code: str) -> tuple[float, float]:
    """Run Python code once with an empty kernel cache."""
    with tempfile.TemporaryDirectory() as folder:
        return run_process(code, NUMBA_CACHE_DIR=folder)


def run_process(code: str, **environment: str) -> tuple[float, float]:
    """Run Python code in a process of its own; return its wall and processor seconds."""
    before, begun = os.times(), time.perf_counter()
    nothing = subprocess.DEVNULL
    subprocess.run([sys.executable, "-c", code], check=True, stdout=nothing, env=os.environ | environment)
    wall, after = time.perf_counter() - begun, os.times()
    children = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, children
