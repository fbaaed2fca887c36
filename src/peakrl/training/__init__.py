"""Training: the learning loop, its history, and the files of runs.

`peakrl.learn`, `peakrl.resume` and `peakrl.learn_many` are the usual entry points; `learn_in_stages` yields a run at
chosen episodes.
"""

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

if TYPE_CHECKING:
    from peakrl.training.learn import learn_in_stages

__all__ = ["learn_in_stages"]

__getattr__, __dir__ = lazy_names(__name__, {"learn": ["learn_in_stages"]})
