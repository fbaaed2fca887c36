"""The first `learn` of a machine: a second process compiles what the first one comes to later.

A run needs the learner's kernels first, those of its exact history and of what is untried after that; each half takes
seconds to compile and numba compiles one kernel at a time. Of the learner's, those that draw come last. Whoever comes
first to a kernel compiles it, and the other reads it from the disk (`kernels.jit`), so that nothing depends on whether
the second process lives.
`PEAKRL_COMPILE_AHEAD=0` does without it.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from threading import Thread
from typing import Any

from peakrl.kernels.curve import policy_curve
from peakrl.kernels.jit import kept

SWITCH = "PEAKRL_COMPILE_AHEAD"
_begun = False


def compile_ahead() -> None:
    """Start the second process, once, where there is something to compile and a core to do it."""
    global _begun
    mine = multiprocessing.current_process().name == "MainProcess"
    if _begun or not mine or os.environ.get(SWITCH) == "0" or not sys.executable or cores() < 2 or kept(policy_curve):
        return
    _begun = True
    command = [sys.executable, "-P", "-c", f"from {__name__} import compile_rest; compile_rest()"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=os.environ | {SWITCH: "0"})
    Thread(target=process.wait, daemon=True).start()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_rest() -> None:
    """Compile what a run on a model needs after its learner, the last kernels of that one first."""
    from peakrl.kernels.posterior import draw_law
    from peakrl.learning.active import ActiveRun
    from peakrl.learning.history import current_figures
    from peakrl.learning.posterior import Posterior, PosteriorLearner
    from peakrl.learning.untried import find_untried
    from peakrl.model.explore import compile_model
    from peakrl.policy.tables import first_rows
    from peakrl.problems.harvesting.problem import energy_harvesting

    # With arrivals given nobody imports scipy.
    model = compile_model(energy_harvesting(horizon=1, battery=1, max_arrival=1, arrivals=[1], peak_power=1))
    rows = first_rows(model)
    algorithm = ActiveRun(model, Posterior(), planned=1, seed=0, every=0, average=False).learned()
    assert isinstance(algorithm, PosteriorLearner)
    compile_for(draw_law, algorithm.counts, algorithm.rules, 0)
    current_figures(model, rows)
    find_untried(algorithm, rows, model)
    # What only few ask for where there is a model.
    find_untried(algorithm, rows, None)


def compile_for(kernel: Any, *arguments: Any) -> None:
    """Compile a kernel, also one that only kernels call, for arguments of these types."""
    if hasattr(kernel, "typeof_pyval"):  # not so with the JIT off
        kernel.compile(tuple(map(kernel.typeof_pyval, arguments)))
