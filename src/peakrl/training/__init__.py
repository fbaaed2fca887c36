"""Training: the learning loop, its history, and the files of runs.

`peakrl.learn`, `peakrl.resume` and `peakrl.learn_many` are the usual entry points; `learn_in_stages` yields a run at
chosen episodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

if TYPE_CHECKING:
    from peakrl.learners.base import ProofHistory
    from peakrl.learners.coverage import Coverage
    from peakrl.training.history import History
    from peakrl.training.learn import learn_in_stages, load_run
    from peakrl.training.logs import evaluate_on_logs

__all__ = ["Coverage", "History", "ProofHistory", "evaluate_on_logs", "learn_in_stages", "load_run"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "history": ("History",),
        "learn": ("learn_in_stages", "load_run"),
        "logs": ("evaluate_on_logs",),
        "run": ("Coverage", "ProofHistory"),
    },
)
