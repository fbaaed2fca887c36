"""Jobs as plain values and in CSV files.

A table is {"processing": 3, "due": 22, "deadline": 30}, optionally with weight, name and release; `processing` is a
whole number, a range such as "2-4" (each number equally likely), or [probability, time] pairs. A CSV file has one job
in a row, with the same columns; `processing` is a whole number or a range.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from peakrl.checks import check_number
from peakrl.errors import PeakError, ProblemError, StorageError
from peakrl.problems.scheduling.jobs import Job, Processing, check_time, named_jobs, uniform
from peakrl.specs.registry import unknown_key
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


FIELDS = {field.name: field.default is MISSING for field in fields(Job)}


def with_jobs(parameters: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the parameters of `machine_scheduling` with `Job`s in place of tables or the name of a file."""
    given = parameters["jobs"]
    if isinstance(given, str | Path):
        return {**parameters, "jobs": read_jobs(folder / given)}
    if isinstance(given, Mapping) or not hasattr(given, "__iter__"):
        raise ProblemError(f"jobs is {given!r}; it must be a list of jobs or the name of a CSV file")
    return {**parameters, "jobs": [as_job(entry, f"jobs.{place}") for place, entry in enumerate(given)]}


def as_job(entry: Any, where: str) -> Job:
    """Return the job of a table; a job is returned as it is."""
    if isinstance(entry, Job):
        return entry
    if not isinstance(entry, Mapping):
        raise ProblemError(f"{where} is {entry!r}; it must be a table with processing, due and deadline")
    for name in entry:
        if name not in FIELDS:
            raise ProblemError(unknown_key(f"{where}.{name}", str(name), list(FIELDS)))
    for name, needed in FIELDS.items():
        if needed and name not in entry:
            raise ProblemError(f"{where}.{name} is missing")
    try:
        return Job(**{**entry, "processing": as_processing(entry["processing"])})
    except PeakError as error:
        raise ProblemError(f"{where}: {error}") from None


def as_processing(given: Any) -> Processing:
    """Return a processing time."""
    if isinstance(given, str):
        found = range_of(given.strip())
        if found is None:
            raise ProblemError(f'processing is {given!r}; it must be a whole number, a range such as "2-4", or pairs')
        return found
    if isinstance(given, list):
        # The lists of TOML are of one type, so that times may be given as 3.0.
        return [(pair[0], as_whole(pair[1])) if isinstance(pair, list) and len(pair) == 2 else pair for pair in given]
    return given  # type: ignore[no-any-return]  # `Job` checks it


def as_whole(number: Any) -> Any:
    """Return a whole number as int; anything else unchanged, for `Job` to check."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def as_table(job: Job) -> dict[str, Any]:
    """Return a job as plain values."""
    processing: Any = job.longest if job.fixed else [list(pair) for pair in job.pairs]
    table = {"processing": processing, "due": job.due, "deadline": job.deadline}
    table |= ({} if job.weight == 1 else {"weight": job.weight}) | {"name": job.name}
    return table | ({"release": job.release} if job.release else {})
