"""What a case reports, and how it takes time.

One-core cases take process time, which other programs on the machine disturb least, and run what they compare in
turns: a slow spell hits all alike. The median of the repeats counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass
class Section:
    """A table of results, all rows with the same columns, and what must be said about them."""

    name: str
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, **columns: Any) -> None:
        """Append a row."""
        self.rows.append(columns)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"title": self.title, "rows": self.rows, "notes": self.notes}


def in_turns(
    functions: Sequence[Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Return the median seconds of each function, called in turns after one call each that does not count."""
    for function in functions:
        function()
    taken: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for times, function in zip(taken, functions, strict=True):
            begun = clock()
            function()
            times.append(clock() - begun)
    return [median(times) for times in taken]
