"""Job files: CSV with one job in a row, columns processing, due, deadline and optionally weight, name, release.

`processing` is a whole number or a range such as 2-4, meaning uniform over the whole numbers in it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from peakrl.checks import check_number
from peakrl.errors import ProblemError, StorageError
from peakrl.problems.scheduling.jobs import Job, Processing, check_time, named_jobs, uniform
from peakrl.storage import read_file

Parsed = TypeVar("Parsed")

REQUIRED = ("processing", "due", "deadline")
OPTIONAL = ("weight", "name", "release")
#: A hyphen, or the dash into which word processors turn it.
_RANGE = re.compile(r"([0-9]{1,12})\s*[-\u2013]\s*([0-9]{1,12})")
_WHOLE = re.compile(r"[+-]?[0-9]{1,12}")


def read_jobs(path: str | Path) -> tuple[Job, ...]:
    """Return the named jobs of a CSV file; errors name file, row (the header is row 1) and column."""
    text = _read_text(Path(path))
    rows = _rows(text, str(path))
    number, header = next(rows, (0, []))
    if not header:
        raise ProblemError(
            f"{path}: the file is empty; it needs a header with {_listed(REQUIRED)} and a row for each job"
        )
    columns = _columns(header, f"{path}, row {number}")
    jobs: list[Job] = []
    places: dict[str, int] = {}
    for number, cells in rows:
        where = f"{path}, row {number}"
        if len(cells) != len(columns):
            raise ProblemError(f"{where}: {len(cells)} cells for {len(columns)} columns ({_listed(columns)})")
        job = _job(dict(zip(columns, (cell.strip() for cell in cells), strict=True)), where)
        jobs.append(job)
        name = str(len(jobs) if job.name is None else job.name)
        if name in places:
            raise ProblemError(f"{where}, column 'name': {name!r} is the name of row {places[name]} already")
        places[name] = number
    if not jobs:
        raise ProblemError(f"{path}: the file has a header but no jobs")
    return _located(str(path), named_jobs, jobs)


def _read_text(path: Path) -> str:
    try:
        # utf-8-sig: spreadsheets begin files with a byte-order mark.
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: byte {error.start} is not UTF-8 text; save the file as CSV in UTF-8") from None


def _rows(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, with their line numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise ProblemError(f"{path}, row {reader.line_num}: {error}") from None


def _columns(header: Sequence[str], where: str) -> list[str]:
    """Return the checked names of the columns."""
    columns = [cell.strip().lower() for cell in header]
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise ProblemError(f"{where}: column {missing[0]!r} is missing; the header has {_listed(columns)}")
    for place, name in enumerate(columns):
        if name not in REQUIRED + OPTIONAL:
            raise ProblemError(f"{where}: column {name!r} is unknown; there may be {_listed(REQUIRED + OPTIONAL)}")
        if name in columns[:place]:
            raise ProblemError(f"{where}: column {name!r} occurs twice")
    return columns


def _job(cells: dict[str, str], where: str) -> Job:
    """Return the job of a row."""

    def cell(column: str, parse: Callable[[str], Parsed]) -> Parsed:
        return _located(f"{where}, column {column!r}", parse, cells.get(column, ""))

    parts = cell("processing", _processing), cell("due", _whole), cell("deadline", _whole), cell("weight", _weight)
    # The only remaining error involves two columns: the deadline and the processing time.
    return _located(f"{where}, column 'deadline'", Job, *parts, cells.get("name") or None, cell("release", _release))


def _located(where: str, make: Callable[..., Parsed], *arguments: Any) -> Parsed:
    """Call `make`; begin the message of its error with `where`."""
    try:
        return make(*arguments)
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from None


def range_of(text: str) -> Processing | None:
    """Return the processing time of a range such as 2-4; None if the text is not a range."""
    matched = _RANGE.fullmatch(text)
    return uniform(int(matched[1]), int(matched[2])) if matched else None


def _processing(cell: str) -> Processing:
    return range_of(cell) or _whole(cell, " or a range such as 2-4")


def _whole(cell: str, otherwise: str = "") -> int:
    if not _WHOLE.fullmatch(cell):
        raise ProblemError(f"the cell is {_shown(cell)}; it must be a whole number{otherwise}")
    return check_time(int(cell), "the cell")


def _release(cell: str) -> int:
    # An empty cell means the default, and here 0 is a time as well.
    return 0 if cell in ("", "0") else _whole(cell)


def _weight(cell: str) -> float:
    try:
        # An empty cell means the default.
        number = float(cell or 1)
    except ValueError:
        raise ProblemError(f"the cell is {_shown(cell)}; it must be a number above 0") from None
    return check_number(number, "the cell", above=0, error=ProblemError)


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:40] + "...") if cell else "empty"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
