"""A section of results, and the one way in which things are timed.

Functions that are compared run in turns, so that a slow moment of the machine hits all of them; process time leaves out
other programs; the median of the repeats counts; what takes long is repeated less often.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

#: No further round is begun when one comparison has taken so many seconds.
MOST_SECONDS = 60.0


@dataclass
class Section:
    """A table of results, all rows with the same columns, and notes on them."""

    name: str
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, **columns: Any) -> None:
        """Append a row, and print it on the way."""
        self.rows.append(columns)
        self.say(", ".join(f"{name} {shown(cell)}" for name, cell in columns.items()))

    def say(self, what: str) -> None:
        """Print what is being done."""
        print(f"{self.name}: {what}", file=sys.stderr, flush=True)


def shown(cell: Any) -> Any:
    """Return a number to the four digits that timing is good for."""
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell


def in_turns(
    functions: Sequence[Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
    most: float = MOST_SECONDS,
) -> list[float]:
    """Return the median seconds of each function, called in turns after one call each that does not count."""
    begun_all = time.monotonic()
    for function in functions:
        function()
    taken: list[list[float]] = [[] for _ in functions]
    for number in range(repeats):
        if number and time.monotonic() - begun_all > most:
            break
        for times, function in zip(taken, functions, strict=True):
            begun = clock()
            function()
            times.append(clock() - begun)
    return [median(times) for times in taken]
