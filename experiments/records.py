"""What an experiment leaves behind: a tidy table (CSV) and, beside it, its settings and checks (JSON).

All figures share the columns of `Row`: one row for each variant of the problem, curve, measure and place on the
horizontal axis, so that whoever draws or reads a figure needs to know nothing of how it was computed.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from peakrl.checks import real
from peakrl.errors import StorageError
from peakrl.kernels.arrays import Floats, Longs
from peakrl.paper.task_names import named
from peakrl.runs import Engine, Result, Task, run_tasks
from peakrl.runs.tasks import digest_of
from peakrl.storage import fields_of, from_json, read_file, write_file

#: Differences that are rounding, not disagreement.
ROUNDING = 1e-9
#: Begins the name of a curve that was read off the paper's figure.
PAPER = "paper: "
#: Goes into every task: to be raised when a task's function comes to mean something else.
VERSION = 1


class Row(NamedTuple):
    """One number of a figure with its spread."""

    #: Which reading of the problem: "frozen", "random", ...
    variant: str
    #: Who: a learner, a baseline, a bound.
    curve: str
    #: What, and in which unit.
    measure: str
    unit: str
    #: Place on the horizontal axis; None where it is the same everywhere.
    x: float | None
    mean: float
    #: Standard deviation over the samples (sequences, runs or tests); None where the number is exact.
    std: float | None
    samples: int


@dataclass(frozen=True)
class Check:
    """A number to compare: with the paper's curve, with an exact answer, or just to be shown."""

    what: str
    #: Where `expected` comes from.
    against: str
    expected: float | None
    ours: float
    #: How far apart they may be; None: shown, not judged.
    tolerance: float | None

    @property
    def difference(self) -> float | None:
        """Ours minus what is expected."""
        return None if self.expected is None else self.ours - self.expected

    @property
    def within(self) -> bool | None:
        """Is the difference within the tolerance? None where that is not judged."""
        if self.tolerance is None or self.difference is None:
            return None
        return abs(self.difference) <= self.tolerance + ROUNDING

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and what follows from them."""
        return {**asdict(self), "difference": self.difference, "within": self.within}


@dataclass(frozen=True)
class Request:
    """How an experiment is to be run."""

    folder: Path
    #: A small version: fewer sequences and tests. Comparisons with the paper's curves are then shown, not judged.
    quick: bool = False
    #: All seeds, where an experiment has a smaller usual size.
    full: bool = False
    workers: int | None = None
    #: Workers at hand already, for several experiments; else each starts its own.
    engine: str | Engine = "loky"
    progress: bool = False
    #: [sequence, slot]: recorded arrivals in place of drawn ones.
    arrivals: Longs | None = None

    def run(self, tasks: list[Task], title: str) -> list[Result]:
        """Return the results of tasks; those on disk are not computed again."""
        wanted = [named(task) for task in tasks]
        return run_tasks(
            wanted, self.folder / "records", self.workers, self.engine, progress=self.progress, title=title
        )


@dataclass(frozen=True)
class FigureRecord:
    """All that a figure is drawn from."""

    name: str
    title: str
    #: What the horizontal axis says.
    x: str
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """True unless a judged check is off."""
        return all(check.within is not False for check in self.checks)

    @property
    def variants(self) -> list[str]:
        """The variants in the order of the rows."""
        return list(dict.fromkeys(row.variant for row in self.rows))

    def curves(self, variant: str, measure: str) -> dict[str, list[Row]]:
        """Return {curve: its rows in order of x} of one variant and measure."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.variant == variant and row.measure == measure:
                found.setdefault(row.curve, []).append(row)
        return {
            name: sorted(rows, key=lambda row: -math.inf if row.x is None else row.x) for name, rows in found.items()
        }

    def write(self, folder: Path) -> None:
        """Write `<name>.csv` and `<name>.json` into the folder."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(self.rows)
        head = {
            "figure": self.name,
            "title": self.title,
            "x": self.x,
            "settings": dict(self.settings),
            "checks": [check.as_dict() for check in self.checks],
        }
        data = table.getvalue().encode()
        head["table"] = digest_of(data)
        write_file(folder / f"{self.name}.csv", data)
        write_file(folder / f"{self.name}.json", (json.dumps(head, indent=2, allow_nan=False) + "\n").encode())


def read_figure(folder: str | Path, name: str) -> FigureRecord:
    """Return the record that an experiment wrote into `folder`."""
    table, head = Path(folder) / f"{name}.csv", Path(folder) / f"{name}.json"
    try:
        data = read_file(table)
        cells = list(csv.reader(io.StringIO(data.decode())))
        values = from_json(read_file(head))
    except StorageError as error:
        raise StorageError(f"no record of {name} in {folder} ({error}); `peakrl reproduce {name}` makes one") from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise StorageError(f"the record of {name} in {folder} is damaged: {error}") from error
    if not cells or tuple(cells[0]) != Row._fields:
        raise StorageError(f"{table} has other columns than {', '.join(Row._fields)}")
    with fields_of(head):
        rows = tuple(_row(line, table, number) for number, line in enumerate(cells[1:], start=2))
        if values.get("table", digest_of(data)) != digest_of(data):
            raise StorageError(
                f"{table} and {head} are of two different runs, or edited; `peakrl reproduce {name}` makes them anew"
            )
        if not (
            isinstance(values["settings"], dict) and isinstance(values["title"], str) and isinstance(values["x"], str)
        ):
            raise ValueError("settings must be a table, title and x texts")
        checks = tuple(_check(entry) for entry in values["checks"])
        return FigureRecord(name, values["title"], values["x"], values["settings"], rows, checks)


def _check(entry: dict[str, Any]) -> Check:
    words = [entry[field] for field in ("what", "against")]
    numbers = [entry[field] for field in ("expected", "ours", "tolerance")]
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"what is compared is {words!r}")
    expected, ours, tolerance = (None if number is None else real(number) for number in numbers)
    if ours is None or not all(number is None or math.isfinite(number) for number in (expected, ours, tolerance)):
        raise ValueError(f"{words[0]}: {numbers!r} cannot be compared")
    return Check(words[0], words[1], expected, ours, tolerance)


def _row(cells: list[str], table: Path, number: int) -> Row:
    try:
        variant, curve, measure, unit, x, mean, std, samples = cells
        return Row(variant, curve, measure, unit, _optional(x), float(mean), _optional(std), int(samples))
    except ValueError as error:
        raise StorageError(f"{table}, row {number}: {error}") from None


def _optional(cell: str) -> float | None:
    return float(cell) if cell else None


# Statistics over sequences, runs or tests ------------------------------------------------------------------------


def spread(variant: str, curve: str, measure: tuple[str, str], x: float | None, values: Floats) -> Row:
    """Return the row of values over sequences, runs or tests; a single one has no standard deviation."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Row(variant, curve, *measure, x, float(np.mean(values)), std, len(values))


def exact(variant: str, curve: str, measure: tuple[str, str], x: float | None, value: float) -> Row:
    """Return the row of a number that nothing is spread over."""
    return Row(variant, curve, *measure, x, float(value), None, 1)


def curve_rows(
    variant: str, curve: str, measure: tuple[str, str], places: Iterable[float], values: Floats
) -> list[Row]:
    """Return the rows of a curve from values [sequence, place]."""
    columns = zip(places, np.asarray(values).T, strict=True)
    return [spread(variant, curve, measure, float(x), column) for x, column in columns]


def stacked(results: Iterable[Result], name: str) -> Floats:
    """Return an array of several results, joined along its first axis."""
    return np.concatenate([result.arrays[name] for result in results])


def value_at(episodes: Longs, values: Floats, episode: int) -> float:
    """Return the mean over sequences of values [sequence, place] at one of the recorded episodes."""
    return float(values[:, int(np.flatnonzero(episodes == episode)[0])].mean())
