"""Progress on anything that takes more than a moment: a bar in a terminal, nothing elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

#: From so many columns on a terminal has room for a long bar.
WIDE = 110


def fitting(parts: Sequence[str], room: int) -> str:
    """Return as many parts, from the first, as fit into one line; at least the first."""
    line = parts[0]
    for part in parts[1:]:
        if len(line) + 2 + len(part) > room:
            break
        line += f"  {part}"
    return line


def told(value: Any) -> str:
    """Return a field of a progress line: a number in few digits, words as they are."""
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def rate_words(rate: float) -> str:
    """Return a rate; a slow one is not told as 0."""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.2g}"


class Progress:
    """A progress line with count, rate, free fields and time left; it costs nothing while disabled."""

    def __init__(
        self, title: str, *, total: int | None = None, unit: str = "it", begin: int = 0, enabled: bool = True
    ) -> None:
        self.title, self.total, self.unit, self.enabled = title, total, unit, enabled
        #: What was done before: it counts, but not for the rate.
        self.begin = begin
        self._bar: Any = None
        self._task: Any = None
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        if self.enabled:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            console = Console(stderr=True)
            width = 24 if console.width >= WIDE else 10
            columns = [TextColumn("{task.description}"), BarColumn(bar_width=width), TextColumn("{task.fields[note]}")]
            if self.total is not None:
                columns.append(TimeRemainingColumn())
            self._bar = RichProgress(*columns, console=console, transient=True, disable=not console.is_terminal)
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, completed=self.begin, note="")
        return self

    @property
    def visible(self) -> bool:
        """Does anybody see it?"""
        return self._bar is not None and not self._bar.disable

    def reach(self, count: int, **fields: Any) -> None:
        """Show that `count` units are done."""
        if self._bar is None:
            return
        elapsed = max(time.monotonic() - self._begun, 1e-9)
        of = f"/{self.total:,}" if self.total is not None else ""
        parts = [f"{count:,}{of} {self.unit}", f"{rate_words((count - self.begin) / elapsed)}/s"]
        parts += [f"{name.replace('_', ' ')} {told(value)}" for name, value in fields.items()]
        self._bar.update(self._task, completed=count, note=fitting(parts, self._room))

    @property
    def _room(self) -> int:
        """How many characters are left beside title, bar and time."""
        _, bar, *others = self._bar.columns
        taken = len(self.title) + bar.bar_width + len("-:--:--") + len(others) + 2
        return int(self._bar.console.width - taken)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
