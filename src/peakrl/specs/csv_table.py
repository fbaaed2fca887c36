"""CSV files with a header: the columns, and each row with its location for messages."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from peakrl.errors import PeakError, ProblemError, StorageError
from peakrl.storage import read_file

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


class CsvTable(NamedTuple):
    """A CSV file: the names of its columns, and of each row (location, {column: cell})."""

    columns: list[str]
    rows: list[tuple[str, dict[str, str]]]


def read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines that are not blank, each with its number and its cells without surrounding spaces."""
    try:
        text = read_file(path).decode("utf-8-sig")  # spreadsheets begin files with a byte-order mark
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: byte {error.start} is not UTF-8 text; save the file as CSV in UTF-8") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in line]) for line in reader]
    except csv.Error as error:
        raise ProblemError(f"{path}, row {reader.line_num}: {error}") from None
    return [(number, cells) for number, cells in lines if any(cells)]


def read_csv(path: Path, required: Sequence[str], optional: Sequence[str], of: str, *, more: bool = False) -> CsvTable:
    """Return a table with a row for each `of`; further columns are allowed if `more`."""
    lines, known = read_lines(path), (*required, *optional)
    if not lines:
        raise ProblemError(
            f"{path}: the file is empty; it needs a header with {', '.join(required)} and a row for each {of}"
        )
    number, header = lines[0]
    columns = [name.lower() if name.lower() in known else name for name in header]
    where = f"{path}, row {number}"
    for name in required:
        if name not in columns:
            raise ProblemError(f"{where}: column {name!r} is missing; there are {', '.join(columns)}")
    for place, name in enumerate(columns):
        if name in columns[:place]:
            raise ProblemError(f"{where}: column {name!r} occurs twice")
        if not name or (name not in known and not more):
            raise ProblemError(f"{where}: column {name!r} is unknown; there may be {', '.join(known)}")
    rows = []
    for number, cells in lines[1:]:
        where = f"{path}, row {number}"
        if len(cells) != len(columns):
            raise ProblemError(f"{where}: {len(cells)} cells for {len(columns)} columns ({', '.join(columns)})")
        rows.append((where, dict(zip(columns, cells, strict=True))))
    if not rows:
        raise ProblemError(f"{path}: the file has a header but no {of}s")
    return CsvTable(columns, rows)


def whole_cell(cell: str, least: int, most: int, otherwise: str = "") -> int:
    """Return the whole number of a cell, or raise."""
    if not _WHOLE.fullmatch(cell) or not least <= int(cell) <= most:
        raise ProblemError(f"the cell is {shown(cell)}; it must be a whole number from {least} to {most:,}{otherwise}")
    return int(cell)


def number_cell(cell: str, above: float = -math.inf) -> float:
    """Return the finite number of a cell, or raise."""
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > above):
        limit = f" above {above:g}" if above > -math.inf else ""
        raise ProblemError(f"the cell is {shown(cell)}; it must be a number{limit}")
    return number


def shown(cell: str) -> str:
    """Return a cell for a message."""
    return repr(cell if len(cell) <= 40 else cell[:40] + "...") if cell else "empty"


@contextmanager
def prefixed(where: str) -> Iterator[None]:
    """Begin the message of an error with `where`."""
    try:
        yield
    except PeakError as error:
        raise ProblemError(f"{where}: {error}") from None
