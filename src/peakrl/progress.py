"""Progress of long computations: a bar in a terminal, else lines on stderr; and how Ctrl-C interrupts them.

The first line appears after 10 seconds; each pause is twice as long as the one before, up to 5 minutes.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, Self

#: Seconds before the first line without a terminal, and the longest pause between lines.
FIRST_LINE, LONGEST_PAUSE = 10.0, 300.0


def formatted(value: Any) -> str:
    """Return a field of a progress line: a number with few digits, text as it is."""
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def rate_text(rate: float) -> str:
    """Return a rate; a slow one is not rounded to 0."""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.2g}"


def say(line: str) -> bool:
    """Print to stderr; return False if it is closed."""
    if sys.stderr is None:  # print would write to standard output
        return False
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # the reader of a pipe is gone; the stream was closed
        return False
    return True


class Progress:
    """A progress line with count, rate, fields and remaining time; does nothing if disabled."""

    def __init__(
        self, title: str, *, total: int | None = None, unit: str = "it", begin: int = 0, enabled: bool = True
    ) -> None:
        self.title, self.total, self.unit, self.enabled = title, total, unit, enabled
        #: Units that were done before; they do not count for the rate.
        self.begin = begin
        self._bar: Any = None
        self._task: Any = None
        self._begun = time.monotonic()
        self._pause = FIRST_LINE
        self._due = self._begun + self._pause

    def __enter__(self) -> Self:
        if self.enabled:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress
            from rich.table import Column

            console = Console(stderr=True)
            if not console.is_terminal:
                return self
            note = TextColumn(
                "{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)
            )  # cropped if it is long
            columns = [TextColumn("{task.description}"), BarColumn(bar_width=10), note]
            if self.total is not None:
                columns.append(TimeRemainingColumn())
            self._bar = RichProgress(*columns, console=console, transient=True, expand=True)
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, completed=self.begin, note="")
        return self

    @property
    def visible(self) -> bool:
        """Does the next `reach` show anything?"""
        return self._bar is not None or (self.enabled and time.monotonic() >= self._due)

    def reach(self, count: int, **fields: Any) -> None:
        """Show that `count` units are done."""
        if not self.visible:
            return
        rate = (count - self.begin) / max(time.monotonic() - self._begun, 1e-9)
        of = f"/{self.total:,}" if self.total is not None else ""
        parts = [f"{count:,}{of} {self.unit}", f"{rate_text(rate)}/s"]
        parts += [f"{name.replace('_', ' ')} {formatted(value)}" for name, value in fields.items()]
        if self._bar is not None:
            self._bar.update(self._task, completed=count, note="  ".join(parts))
            return
        if self.total is not None and rate > 0:
            parts.append(f"{timedelta(seconds=round(max(0, self.total - count) / rate))} left")
        self.enabled = say(f"{self.title}: {'  '.join(parts)}")
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._due = time.monotonic() + self._pause

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Interrupts:
    """Delays Ctrl-C until the current piece of work is done; the exception then carries the run so far.

    A second Ctrl-C takes effect at once.
    """

    #: The signals that are delayed.
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

    def look(self, trainer: Any, *, last: bool) -> None:
        """Raise a delayed signal."""
        if self._asked is None:
            return
        number, self._asked = self._asked, None
        self.__exit__(None, None, None)
        if signal.getsignal(number) is signal.SIG_DFL:
            raise SystemExit(128 + number)  # what the signal would do, but progress bars and the like end properly
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:
            error.run = trainer.result()  # type: ignore[attr-defined]  # like the errors of an environment
            error.add_note(f"{trainer.done:,} episodes were done: the run so far is this exception's `run`")
            raise
        self.__enter__()  # the handler returned: the run continues
