"""What an experiment leaves behind: a tidy table (CSV) and, beside it, its settings and checks (JSON).

All figures share the columns of `Row`: one row for each variant of the problem, curve, measure and place on the
horizontal axis, so that a figure can be drawn and read without knowing how it was computed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import StorageError
from peakrl.sweeps import Result, Task, run_tasks

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Settings = TypeVar("Settings")
Key = TypeVar("Key")
#: Differences that are rounding, not disagreement.
ROUNDING = 1e-9
#: Begins the name of a curve that was read off the paper's figure.
PAPER = "paper: "
#: Part of every task: raise it when the function of a task changes its meaning.
VERSION = 1
#: Measures of a quantity over seeds: the name of the quantity with one of these before it.
QUARTILES = {"lower": 25, "median": 50, "upper": 75}


class Row(NamedTuple):
    """One number of a figure with its spread."""

    #: Which reading of the problem: "frozen", "random", ...
    variant: str
    #: Who: a learner, a baseline, a bound.
    curve: str
    measure: str
    unit: str
    #: Place on the horizontal axis; None if the number is the same everywhere.
    x: float | None
    mean: float
    #: Standard deviation over the samples (sequences, runs or tests); None for exact numbers.
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
        """Is the difference within the tolerance? None if that is not judged."""
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
    #: All seeds, if an experiment has a smaller usual size.
    full: bool = False
    workers: int | None = None
    #: Workers that several experiments share; otherwise each starts its own.
    engine: Executor | None = None
    progress: bool = False
    #: [sequence, slot]: recorded arrivals in place of drawn ones.
    arrivals: Longs | None = None

    def choose(self, quick: Settings, default: Settings, full: Settings | None = None) -> Settings:
        """Return the settings of the size that is asked for."""
        return quick if self.quick else full if self.full and full is not None else default

    def run(self, tasks: Iterable[Task], title: str) -> list[Result]:
        """Return the results of tasks; those on disk are not computed again."""
        named = [replace(task, name=task_name(task)) for task in tasks]
        return run_tasks(
            named,
            self.folder / "records",
            workers=self.workers,
            engine=self.engine,
            progress=self.progress,
            title=title,
        )

    def run_groups(self, groups: Mapping[Key, Sequence[Task]], title: str) -> dict[Key, list[Result]]:
        """Return the results of groups of tasks, by the same keys."""
        results = iter(self.run([task for group in groups.values() for task in group], title))
        return {key: [next(results) for _ in group] for key, group in groups.items()}

    def judged(self, checks: Iterable[Check]) -> list[Check]:
        """Return the checks; those of a small version without a verdict."""
        return [replace(check, tolerance=None) if self.quick else check for check in checks]


def task_name(task: Task) -> str:
    """Return what progress calls a task: its problem, learner, declarations, episodes and seeds."""
    config = task.config
    problem = config.get("problem", f"{config.get('family', '')} {config.get('number', '')}".strip())
    if isinstance(problem, Mapping):
        values = [f"{value:g}" if isinstance(value, float) else value for value in problem.values()]
        problem = " ".join(str(value).replace("_", " ") for value in values if isinstance(value, str | int))
    learner = config.get("learner") or f"{len(config.get('learners', ()))} learners"
    words = [problem, learner["learner"] if isinstance(learner, Mapping) else task.function.rpartition(":")[2]]
    words += [str(config[name]) for name in ("rung", "declared") if config.get(name)]
    words += [f"{name} {config[name]}" for name in ("episodes", "tests", "seeds", "seed") if name in config]
    return ", ".join(filter(None, words))


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
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(self.rows)
        data = table.getvalue().encode()
        head = {
            "figure": self.name, "title": self.title, "x": self.x, "settings": dict(self.settings),
            "checks": [check.as_dict() for check in self.checks], "table": digest(data),
        }  # fmt: skip
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self.name}.csv").write_bytes(data)
            (folder / f"{self.name}.json").write_text(json.dumps(head, indent=2, allow_nan=False) + "\n")
        except OSError as error:
            raise StorageError(f"cannot write {self.name} to {folder}: {error.strerror or error}") from error


def digest(data: bytes) -> str:
    """Return what ties a table to its settings."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def read_figure(folder: str | Path, name: str) -> FigureRecord:
    """Return the record that an experiment wrote into `folder`."""
    table, head = Path(folder) / f"{name}.csv", Path(folder) / f"{name}.json"
    again = f"`python -m experiments {name}` writes it again"
    try:
        data, values = table.read_bytes(), json.loads(head.read_text())
        columns, *lines = csv.reader(io.StringIO(data.decode()))
        if tuple(columns) != Row._fields:
            raise StorageError(f"{table} has other columns than {', '.join(Row._fields)}; {again}")
        rows = tuple(read_row(cells, f"{table}, row {number}") for number, cells in enumerate(lines, start=2))
        if values["table"] != digest(data):
            raise StorageError(f"{table} and {head} are of two different runs, or edited; {again}")
        fields = ("what", "against", "expected", "ours", "tolerance")
        checks = tuple(Check(*(entry[field] for field in fields)) for entry in values["checks"])
        return FigureRecord(name, values["title"], values["x"], dict(values["settings"]), rows, checks)
    except OSError as error:
        raise StorageError(f"no record of {name} in {folder} ({error.strerror or error}); {again}") from error
    except (ValueError, KeyError, TypeError, RecursionError, csv.Error) as error:
        raise StorageError(f"the record of {name} in {folder} is damaged: {error!r}; {again}") from error


def read_row(cells: list[str], where: str) -> Row:
    """Return a row of a table, or raise naming where it stands."""
    try:
        variant, curve, measure, unit, x, mean, std, samples = cells
        optional = [float(cell) if cell else None for cell in (x, std)]
        return Row(variant, curve, measure, unit, optional[0], float(mean), optional[1], int(samples))
    except ValueError as error:
        raise StorageError(f"{where}: {error}") from None


# Statistics over sequences, runs or tests ------------------------------------------------------------------------


def spread(variant: str, curve: str, measure: tuple[str, str], x: float | None, values: Floats) -> Row:
    """Return the row of values over sequences, runs or tests; a single one has no standard deviation."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Row(variant, curve, *measure, x, float(np.mean(values)), std, len(values))


def exact(variant: str, curve: str, measure: tuple[str, str], x: float | None, value: float) -> Row:
    """Return the row of an exact number."""
    return Row(variant, curve, *measure, x, float(value), None, 1)


def curve_rows(
    variant: str, curve: str, measure: tuple[str, str], places: Iterable[float], values: Floats
) -> list[Row]:
    """Return the rows of a curve from values [sequence, place]."""
    columns = zip(places, np.asarray(values).T, strict=True)
    return [spread(variant, curve, measure, float(x), column) for x, column in columns]


def numbers(
    variant: str, name: str, measure: tuple[str, str], values: Sequence[float] | Floats, x: float | None = None
) -> list[Row]:
    """Return median and quartiles of values over seeds; without a place also the largest."""
    which = QUARTILES if x is not None else QUARTILES | {"largest": 100}
    return [
        Row(variant, name, f"{word} {measure[0]}", measure[1], x, quantile(values, percent), None, len(values))
        for word, percent in which.items()
    ]


def quantile(values: Sequence[float] | Floats, percent: float) -> float:
    """Return a percentile; by an existing value if some are infinite."""
    array = np.asarray(values, float)
    method = "linear" if np.isfinite(array).all() else "higher"
    return float(np.percentile(array, percent, method=method))  # type: ignore[call-overload]


def at_most(what: str, ours: float, limit: float | None) -> Check:
    """Return the check of a number that must not exceed a limit; None: shown, not judged."""
    return Check(what, "shown" if limit is None else f"at most {limit:g}", 0.0, ours, limit)


def stacked(results: Iterable[Result], name: str) -> Floats:
    """Return an array of several results, joined along its first axis."""
    return np.concatenate([result.arrays[name] for result in results])


def value_at(episodes: Longs, values: Floats, episode: int) -> float:
    """Return the mean over sequences of values [sequence, place] at one of the recorded episodes."""
    return float(values[:, int(np.flatnonzero(episodes == episode)[0])].mean())
