"""When a run is saved while it is learning."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from peakrl.checks import check_episodes
from peakrl.errors import StorageError
from peakrl.storage import ready, remove_leftovers

if TYPE_CHECKING:
    from peakrl.training.trainer import ActiveRun

#: Writes a learner to a file.
Writer = Callable[[Path, Any], None]
#: Unless told otherwise a run is saved this often, in seconds, and saving may take this share of the time.
SECONDS, SHARE = 30.0, 0.05


class Interrupts:
    """Holds back Ctrl-C until the piece of work at hand is done; the interrupt then carries the run so far.

    A second one takes effect at once.
    """

    every: int | None = None
    #: What is held back.
    numbers: tuple[signal.Signals, ...] = (signal.SIGINT,)

    def __init__(self) -> None:
        self._asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self.numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:  # a process in the background may ignore them
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked is not None:
            self.__exit__(None, None, None)
            signal.raise_signal(number)
        self._asked = number

    def look(self, learner: ActiveRun, *, last: bool) -> None:
        """Stop if somebody asked to."""
        if self._asked is None:
            return
        number, self._asked = self._asked, None
        self.__exit__(None, None, None)
        if signal.getsignal(number) is signal.SIG_DFL:
            raise SystemExit(128 + number)  # what the signal would do, but progress bars and the like end properly
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:
            error.run = learner.result()  # type: ignore[attr-defined]  # as the errors of an environment do
            error.add_note(f"{learner.done:,} episodes were done: the run so far is this exception's `run`")
            raise
        self.__enter__()  # whoever handled the signal wants the run to go on


class Saver(Interrupts):
    """Saves a run while it is learning: every so often, when it is interrupted, and at the end.

    A request to terminate is held back as well until the run is saved. A save on the way that fails is a warning, the
    last one an error: nobody should believe that a run is kept which is not.
    """

    numbers = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, path: str | Path, every: int | None, write: Writer) -> None:
        super().__init__()
        if every is not None:
            check_episodes(every, "checkpoint_every")
        ready(path)
        self.path, self.every, self._write = Path(path), every, write
        self._next = time.monotonic() + SECONDS

    def __enter__(self) -> Self:
        remove_leftovers(self.path)
        return super().__enter__()

    def look(self, learner: ActiveRun, *, last: bool) -> None:
        """Save if it is time to."""
        due = time.monotonic() >= self._next if self.every is None else learner.done % self.every == 0
        if last:
            self._save_last(learner)
        elif due or self._asked is not None:
            self._save(learner)
        super().look(learner, last=last)

    def _save(self, learner: ActiveRun) -> None:
        begun = time.monotonic()
        try:
            self._write(self.path, learner)
        except StorageError as error:
            # A disk that is full for a while must not end a run of many hours.
            warnings.warn(f"{error}; learning goes on without that checkpoint", RuntimeWarning, stacklevel=2)
        now = time.monotonic()
        self._next = now + max(SECONDS, (now - begun) / SHARE)

    def _save_last(self, learner: ActiveRun) -> None:
        try:
            self._write(self.path, learner)
        except StorageError as error:
            before = "; what was saved before is still there" if self.path.exists() else ""
            failed = StorageError(f"{error}: the run is over, but it is not saved{before}")
            failed.run = learner.result()
            raise failed from error
