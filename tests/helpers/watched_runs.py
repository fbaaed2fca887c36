"""Runs that wait for a test: it looks at the page, then lets them go on."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

from peakrl import LearnerSettings, LearningRun, TabularModel
from peakrl.learning.active import ActiveRun, drive
from peakrl.learning.watching import RunView
from peakrl.report.live import LiveView

EPISODES = 400


class PacedRun:
    """A run in a thread of its own that stops at every milestone until it is let go on."""

    def __init__(self, view: LiveView, model: TabularModel, every: int = 1) -> None:
        self.view = view
        self.learner = ActiveRun(model, LearnerSettings.practical(), planned=EPISODES, seed=0, every=every)
        self.learner.source.pieces = 10, 10
        self.milestone = 0
        self.result: LearningRun | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        run = drive(self.learner, EPISODES, watch=self._watch)
        self.view.finish(run)
        self.result = run

    def _watch(self, moment: RunView) -> None:
        self.view.watch(moment)
        while self.milestone <= moment.episodes < EPISODES:
            time.sleep(0.02)
            self.view.watch(moment)

    def go_on_to(self, episodes: int) -> None:
        self.milestone = episodes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.milestone = EPISODES
        self._thread.join(60)

    def wait(self) -> Any:
        self._thread.join(60)
        return self.result
