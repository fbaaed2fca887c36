"""Who watches `peakrl train`: a live page, TensorBoard, both or nobody."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.learning.run import LearningRun
    from peakrl.learning.watching import RunView, Watch
    from peakrl.report.live import LiveView


class Watchers:
    """The watchers of a run; leaving the context tells them that it is over."""

    def __init__(self, name: str, *, live: bool, port: int | None, tensorboard: Path | None) -> None:
        if port is not None and not live:
            raise SettingsError("--port says where the page of --live is served: give --live too")
        self._name, self._live, self._port, self._tensorboard = name, live, port or 0, tensorboard
        self._stack = ExitStack()
        self._view: LiveView | None = None
        #: Episodes that were done before the run began here; None until it does.
        self.begun_at: int | None = None
        #: For `learn`.
        self.watch: Watch = self._note

    def _note(self, moment: RunView) -> None:
        if self.begun_at is None:
            self.begun_at = moment.episodes

    def __enter__(self) -> Self:
        if not self._live and self._tensorboard is None:
            return self
        from peakrl.learning.watching import together

        watchers: list[Watch] = [self._note]
        with self._stack:  # closed here only where a watcher cannot begin
            if self._tensorboard is not None:
                from peakrl.report.event_log import EventLog

                log = EventLog(self._tensorboard)
                self._stack.callback(log.close)
                watchers.append(log.watch)
            if self._live:
                from peakrl.report.live import LiveView

                self._view = self._stack.enter_context(LiveView(self._name, self._port))
                watchers.append(self._view.watch)
                print(f"peakrl: watch the run on {self._view.address} (from this computer)", file=sys.stderr)
            self._stack = self._stack.pop_all()
        self.watch = together(watchers) or self._note
        return self

    def finish(self, run: LearningRun) -> None:
        """The run is done, and not only stopped."""
        if self._view is not None:
            self._view.finish(run)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
