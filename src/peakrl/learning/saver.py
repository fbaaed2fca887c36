"""When a run is saved while it is learning."""

from __future__ import annotations

import os
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
from peakrl.storage import remove_leftovers

if TYPE_CHECKING:
    from peakrl.learning.active import ActiveRun

#: Writes a learner to a file.
Writer = Callable[[Path, Any], None]
#: Unless told otherwise a run is saved this often, in seconds, and saving may take this share of the time.
SECONDS, SHARE = 30.0, 0.05


class Saver:
    """Saves a run while it is learning: every so often, when it is interrupted, and at the end.

    As a context it holds back Ctrl-C and a request to terminate until the piece of work at hand is done and saved; a
    second one takes effect at once.
    """

    def __init__(self, path: str | Path, every: int | None, write: Writer) -> None:
        if every is not None:
            check_episodes(every, "checkpoint_every")
        self.path, self.every, self._write = writable(Path(path)), every, write
        self._next = time.monotonic() + SECONDS
        self._asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        remove_leftovers(self.path)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
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
        """Save if it is time to."""
        due = time.monotonic() >= self._next if self.every is None else learner.done % self.every == 0
        if due or last or self._asked is not None:
            self._save(learner)
        if self._asked is not None:
            number, self._asked = self._asked, None
            self.__exit__(None, None, None)
            if signal.getsignal(number) is signal.SIG_DFL:
                raise SystemExit(128 + number)  # what the signal would do, but progress bars and the like end properly
            signal.raise_signal(number)
            self.__enter__()  # whoever handled the signal wants the run to go on

    def _save(self, learner: ActiveRun) -> None:
        begun = time.monotonic()
        try:
            self._write(self.path, learner)
        except StorageError as error:
            # A disk that is full for a while must not end a run of many hours.
            warnings.warn(f"{error}; learning goes on without that checkpoint", RuntimeWarning, stacklevel=2)
        now = time.monotonic()
        self._next = now + max(SECONDS, (now - begun) / SHARE)


def writable(path: Path) -> Path:
    """Return a path that a file can be written to, or raise now and not when the first checkpoint is due."""
    folder = path.parent
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a folder; name a file in it")
    if not folder.is_dir():
        raise StorageError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise StorageError(f"cannot write {path}: the folder {folder} may not be written to")
    return path
