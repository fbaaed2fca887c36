"""Where experience comes from: a compiled model, sampled inside of a kernel, or lanes that are stepped one by one.

A source plays episodes for an algorithm and tells a `Ledger` how they went. Lanes (`training.rollout`) belong to a
Gymnasium environment, to several that are stepped together, or to a model whose learner has no kernel.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.base import Algorithm, SamplingAlgorithm
from peakrl.learners.episode import Log
from peakrl.sampling import Words
from peakrl.types import Floats, Longs

#: Steps between two looks at the clock: at first, and at most.
KERNEL_STEPS = 1 << 16, 1 << 20


class Ledger(Protocol):
    """Who is told how episodes went: the run."""

    seed: int
    planned: int
    done: int
    generator: Words
    #: Violating episodes, and the last of them.
    counters: Longs
    #: Does anybody ask for the changes of what is followed, or for what episodes earned?
    logs: bool
    algorithm: Algorithm | None
    #: [slot, column]: pi^k of the episode that was started last.
    greedy: NDArray[np.int64]

    @property
    def recorded(self) -> bool: ...

    def take(self, count: int, experience: Floats, log: Log, changes: int) -> None: ...


class KernelSource:
    """A compiled model whose episodes a kernel plays."""

    def __init__(self, algorithm: SamplingAlgorithm) -> None:
        self.algorithm = algorithm
        horizon = algorithm.space.horizon
        first = KERNEL_STEPS[1 if algorithm.quick else 0]
        #: Episodes between two looks at the clock: at first, and at most.
        self.pieces = max(1, first // horizon), max(1, KERNEL_STEPS[1] // horizon)
        self._log: Log | None = None

    def play(self, ledger: Ledger, episodes: int) -> None:
        """Play some more episodes."""
        while episodes > 0 and self.algorithm.stopped is None:
            count = min(episodes, self.pieces[1])
            # The last episode apart, so that its policy can be noted before it learns from it.
            if count > 1:
                self._run(ledger, count - 1)
            if self.algorithm.stopped is None:
                ledger.greedy = self.algorithm.greedy()
                self._run(ledger, 1)
            episodes -= count

    def _run(self, ledger: Ledger, count: int) -> None:
        if self._log is None:
            room = self.algorithm.log_room + KERNEL_STEPS[1] if ledger.logs else 0
            self._log = Log(*(np.empty(room, np.int32) for _ in range(3)))
        while count > 0 and self.algorithm.stopped is None:
            experience = np.empty((count if ledger.recorded else 0, 4 if self.algorithm.randomised else 2))
            ran, changes = self.algorithm.run(
                ledger.generator, ledger.done, count, self._log, experience, ledger.counters
            )
            ledger.take(ran, experience[:ran], self._log, changes)
            count -= ran

    def rest(self) -> None:
        """Let go of room that a result has no use for."""
        self._log = None
