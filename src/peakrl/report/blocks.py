"""Blocks of a page: text, tables, charts, maps and explorers, all plain data.

A block describes what to show; `templates/page.html` and its scripts draw it. The `data` of a chart is JSON-ready and
is embedded in the page under the id of the block. A section holds blocks, or parts that hold blocks.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

#: Significant digits of drawn numbers; the CSV of a table has all digits.
DIGITS = 7

#: Tone and badge of a verdict.
VERDICTS = {
    "infeasible": ("bad", "infeasible"),
    "safe": ("good", "no violation"),
    "violates": ("bad", "may violate"),
    "certified": ("good", "certified"),
    "not proved": ("", "not proved"),
}


@dataclass(frozen=True)
class Text:
    """A paragraph; `tone` "good", "bad" or "" colours it as a verdict."""

    text: str
    tone: str = ""
    id: str = ""
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Fact:
    """A question, its answer, and details."""

    question: str
    answer: str
    details: Sequence[str] = ()
    tone: str = ""


@dataclass(frozen=True)
class Mark:
    """A number or an interval on a scale."""

    name: str
    low: float
    high: float
    colour: str = "blue"

    @property
    def shown(self) -> str:
        """The number or interval as text."""
        return shown(self.low) if self.low == self.high else f"{shown(self.low)} to {shown(self.high)}"


@dataclass(frozen=True)
class Scale:
    """Marks on one axis, one per line; drawn without a script."""

    title: str
    marks: Sequence[Mark]

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the axis, which differ even if all numbers are equal."""
        low, high = min(mark.low for mark in self.marks), max(mark.high for mark in self.marks)
        return (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))

    def place(self, number: float) -> float:
        """Return the position of a number in percent of the axis."""
        low, high = self.ends
        return 100.0 * (number - low) / (high - low)


@dataclass(frozen=True)
class Answer:
    """The result of a run in words, with scales; the page begins with it."""

    id: str
    headline: str
    tone: str
    facts: Sequence[Fact]
    scales: Sequence[Scale] = ()
    kind: ClassVar[str] = "answer"


@dataclass(frozen=True)
class Table:
    """A table of plain cells, with a CSV download."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    #: Index of the column to filter by; -1: no filter.
    filter_column: int = -1
    #: Is it collapsed at first?
    folded: bool = False
    kind: ClassVar[str] = "table"

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [
            any(is_number(row[index]) for row in self.rows)
            and all(is_number(row[index]) or row[index] is None for row in self.rows)
            for index in range(len(self.columns))
        ]

    @property
    def filter_values(self) -> list[str]:
        """The values to filter by."""
        return [] if self.filter_column < 0 else list(dict.fromkeys(str(row[self.filter_column]) for row in self.rows))


def settings_table(id: str, title: str, values: Mapping[str, Any]) -> Table:
    """Return a collapsed table of dotted names and values."""
    rows = [(name, "not set" if value is None else str(value)) for name, value in flattened(values)]
    return Table(id, title, ("setting", "value"), rows, folded=True)


@dataclass(frozen=True)
class Series:
    """One curve, with a band of `std` or from `low` to `high`; a `level` is a horizontal line.

    `dash` and `mode` are those of plotly; `colour` is a colour of the page.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    colour: str = "blue"
    dash: str = "solid"
    mode: str = "lines"
    level: bool = False
    std: Sequence[float | None] | None = None
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {
            name: value if value is None or isinstance(value, str | bool) else numbers(value)
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    id: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    #: Lower end of a logarithmic axis; smaller numbers are drawn there.
    floor: float | None = None
    #: Explanation below the chart.
    note: str = ""
    kind: ClassVar[str] = "chart"

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {**vars(self), "kind": self.kind, "series": [series.data for series in self.series]}


@dataclass(frozen=True)
class Drawn:
    """Anything else that the page's script draws: "map" or "explorer"."""

    id: str
    title: str
    kind: str
    content: Mapping[str, Any] = field(repr=False)
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {"kind": self.kind, "title": self.title, **self.content}


Block = Text | Answer | Table | Chart | Drawn


@dataclass(frozen=True)
class Section:
    """A section of the page; charts stand side by side on wide screens."""

    id: str
    title: str
    lead: str
    main: Sequence[Block] = ()
    #: "good", "bad" or "" and a few words, shown beside the title.
    badge: tuple[str, str] = ("", "")
    parts: Sequence[Section] = ()

    @classmethod
    def of_parts(
        cls, prefix: str, title: str, lead: str, badge: tuple[str, str], parts: Mapping[str, Sequence[Block]]
    ) -> Section:
        """Return a section of the parts that have blocks, by title; `prefix` makes ids unique on the page."""
        shown = [
            cls(f"{prefix}-{slug(name)}", name, "", [replace(block, id=f"{prefix}-{block.id}") for block in blocks])
            for name, blocks in parts.items()
            if blocks
        ]
        return cls(prefix, title, lead, badge=badge, parts=shown)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All of them."""
        return (*self.main, *(block for part in self.parts for block in part.blocks))

    @property
    def data(self) -> dict[str, Any]:
        """The data of the charts, by id of the block."""
        return {block.id: block.data for block in self.blocks if isinstance(block, Chart | Drawn)}


# Plain values ----------------------------------------------------------------------------------------------------


def slug(text: str) -> str:
    """Return a text as an HTML id."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


def is_number(value: Any) -> bool:
    """Is it a number, and not a bool?"""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def shown(cell: Any) -> str:
    """Return a cell as readable text."""
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if isinstance(cell, int | np.integer):
        return f"{int(cell):,}"
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if not isfinite(number):
            return {"inf": "∞", "-inf": "−∞"}.get(str(number), "")
        return f"{number:,.5g}" if abs(number) < 1e5 else f"{number:,.4g}"
    return "" if cell is None else str(cell)


def shown_state(label: Any) -> str:
    """Return a state as the page writes it."""
    done = getattr(label, "done", None)
    if done is None:
        return repr(label)
    parts = [f"done: {', '.join(map(str, done)) or 'nothing'}"]
    named = {"time": "time", "worst": "worst tardiness"}
    parts += [f"{words} {value}" for name, words in named.items() if (value := getattr(label, name, None)) is not None]
    return "; ".join(parts)


def exactly(cell: Any) -> str:
    """Return a cell with all digits, for a CSV."""
    if cell is None:
        return ""
    if isinstance(cell, np.generic):
        cell = cell.item()
    return repr(cell) if is_number(cell) else shown(cell)


def numbers(values: Iterable[Any]) -> list[Any]:
    """Return JSON-ready numbers, rounded for drawing, None for those that are not finite; strings stay unchanged."""
    return [
        value if value is None or isinstance(value, str) else float(f"{value:.{DIGITS}g}") if isfinite(value) else None
        for value in values
    ]


def packed(array: NDArray[Any], dtype: str) -> str:
    """Return an array as base64 text of little-endian numbers: "<f4", "<i4", "|i1"."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=np.dtype(dtype)).tobytes()).decode("ascii")


def run_lengths(array: NDArray[Any]) -> list[int]:
    """Return value, count, value, count, ... of the runs of equal whole numbers."""
    flat = np.asarray(array).ravel()
    if not flat.size:
        return []
    ends = np.append(np.flatnonzero(np.diff(flat)), flat.size - 1)
    counts = np.diff(np.concatenate(([-1], ends)))
    return [int(number) for pair in zip(flat[ends], counts, strict=True) for number in pair]


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted names and values of nested mappings."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
