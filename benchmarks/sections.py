"""What a case reports, and how it takes time.

One-core cases take process time, which other programs on the machine disturb least, and run what they compare in
turns: a slow spell hits all alike. The median of the repeats counts; what takes long is repeated less often.
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
    #: Is told of every row, and of what is being done, as it comes.
    tell: Callable[[str], None] | None = None

    def add(self, **columns: Any) -> None:
        """Append a row."""
        self.rows.append(columns)
        self.say(", ".join(f"{name} {shown(cell)}" for name, cell in columns.items()))

    def say(self, what: str) -> None:
        """Tell whoever waits what is being done."""
        if self.tell is not None:
            self.tell(what)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"title": self.title, "rows": self.rows, "notes": self.notes}


def shown(cell: Any) -> Any:
    """Return a number to the four digits that timing is good for."""
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell


#: No further round is begun when one comparison has taken so many seconds.
MOST_SECONDS = 60.0


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
