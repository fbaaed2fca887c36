"""Jobs of a single machine: processing time p_j, due time d_j, deadline D_j, weight w_j and release time r_j.

A due time may be missed at a cost, a deadline must be met; either may come first. All times are whole numbers of at
least 1; a release time, before which a job cannot begin, may be 0. A processing time is one number or a discrete
distribution.

As plain values a job is {"processing": 3, "due": 22, "deadline": 30}, optionally with weight, name and release;
`processing` is a whole number, a range such as "2-4" (each number equally likely), or [probability, time] pairs. A CSV
file has one job in a row, with the same columns; `processing` is a whole number or a range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

from peakrl.checks import check_count, check_number, check_probabilities, whole
from peakrl.errors import ProblemError
from peakrl.schedule_labels import JobName
from peakrl.specs.csv_table import number_cell, prefixed, read_csv, whole_cell
from peakrl.specs.registry import check_names

Processing = int | Mapping[int, float] | Sequence[tuple[float, int]]
#: (probability, time) pairs by increasing time.
Pairs = tuple[tuple[float, int], ...]

REQUIRED, OPTIONAL = ("processing", "due", "deadline"), ("weight", "name", "release")
#: A hyphen, or the dash into which word processors turn it.
_RANGE = re.compile(r"([0-9]{1,12})\s*[-\u2013]\s*([0-9]{1,12})")
LARGEST_TIME = 10**9
#: Largest number of times of a uniform processing time: each is an outcome of every state.
MOST_TIMES = 10_000
#: Latest end of the last job: two such numbers fit into one 64-bit word of a state's key.
LARGEST_TOTAL = 2**31 - 1


@dataclass(frozen=True)
class Job:
    """A job of a scheduling problem.

    `processing` is a whole number, a mapping {time: probability} or a sequence of (probability, time) pairs. It is
    stored as pairs by increasing time, or as a number if there is only one time. A job without a name is named by its
    position in the instance, from 1.
    """

    #: Processing time.
    processing: Processing
    #: The job is tardy if it ends later.
    due: int
    #: The constraint: it must not end later.
    deadline: int
    #: Used by the weighted objectives.
    weight: float = 1
    #: A string or a number; by default its position.
    name: JobName | None = None
    #: Earliest start.
    release: int = 0

    def __post_init__(self) -> None:
        if not (self.name is None or isinstance(self.name, str) or whole(self.name) is not None) or self.name == "":
            raise ProblemError(f"a job's name must be a number or a string, not {self.name!r}")
        who = self._describe()
        object.__setattr__(self, "processing", _processing(self.processing, who))
        object.__setattr__(self, "due", check_time(self.due, f"{who}: due"))
        object.__setattr__(self, "deadline", check_time(self.deadline, f"{who}: deadline"))
        object.__setattr__(self, "weight", check_number(self.weight, f"{who}: weight", above=0, error=ProblemError))
        release = check_count(self.release, f"{who}: release", 0, LARGEST_TIME, error=ProblemError)
        object.__setattr__(self, "release", release)
        if self.deadline < release + self.shortest:
            least = "processing" if self.fixed else "its shortest processing"
            after = f" after its release at {release}" if release else ""
            raise ProblemError(
                f"{who}: deadline {self.deadline} lies before {least} time {self.shortest}{after}, "
                "so that it can never be met"
            )

    def _describe(self) -> str:
        """Describe the job in an error; an unnamed one by its fields."""
        if self.name is not None:
            return f"job {self.name!r}"
        return f"Job(processing={self.processing!r}, due={self.due!r}, deadline={self.deadline!r})"

    @property
    def pairs(self) -> Pairs:
        """(probability, time) pairs by increasing time."""
        if isinstance(self.processing, int):
            return ((1.0, self.processing),)
        return self.processing  # type: ignore[return-value]  # __post_init__ stored such pairs

    @property
    def fixed(self) -> bool:
        """Is the processing time one number?"""
        return isinstance(self.processing, int)

    @property
    def shortest(self) -> int:
        """The shortest processing time."""
        return self.pairs[0][1]

    @property
    def longest(self) -> int:
        """The longest processing time."""
        return self.pairs[-1][1]

    @property
    def mean(self) -> float:
        """The expected processing time."""
        return math.fsum(probability * time for probability, time in self.pairs)


def uniform(low: int, high: int) -> Pairs:
    """Return a processing time that is uniform over the whole numbers low .. high."""
    low, high = check_time(low, "uniform(low, high): low"), check_time(high, "uniform(low, high): high")
    if low > high:
        raise ProblemError(f"uniform({low}, {high}): the first number must not be larger than the second")
    count = high - low + 1
    if count > MOST_TIMES:
        raise ProblemError(
            f"uniform({low}, {high}) has {count:,} times; use a coarser unit: {MOST_TIMES:,} are possible"
        )
    return tuple((1.0 / count, time) for time in range(low, high + 1))


def named_jobs(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return the jobs of an instance, checked together; those without a name are named by their position, from 1."""
    if isinstance(jobs, Job):
        raise ProblemError("jobs must be a sequence of Job(processing, due, deadline), not a single Job")
    try:
        given = tuple(jobs)
    except TypeError:
        raise ProblemError(f"jobs must be a sequence of Job(processing, due, deadline), not {jobs!r}") from None
    if not given:
        raise ProblemError("jobs is empty; an instance needs at least one job")
    named = []
    places: dict[str, int] = {}
    for place, job in enumerate(given, start=1):
        if not isinstance(job, Job):
            raise ProblemError(f"job number {place} is {job!r}; it must be a Job(processing, due, deadline)")
        name: JobName = place if job.name is None else job.name
        # 1 and "1" print alike, so they count as one name.
        if str(name) in places:
            raise ProblemError(
                f"jobs number {places[str(name)]} and {place} are both named {name!r}; names must differ"
            )
        places[str(name)] = place
        named.append(job if job.name is not None else replace(job, name=name))
    total = latest_end(named)
    if total > LARGEST_TOTAL:
        raise ProblemError(
            f"the jobs take up to {total:,} time units; use a coarser unit: {LARGEST_TOTAL:,} are possible"
        )
    return tuple(named)


def latest_end(jobs: Iterable[Job]) -> int:
    """Return a time by which the jobs are done in any order: all of them after the last release."""
    listed = tuple(jobs)
    return max(job.release for job in listed) + sum(job.longest for job in listed)


def name_of(job: Job) -> JobName:
    """Return the name of a job of `named_jobs`."""
    if job.name is None:
        raise ProblemError(f"{job!r} has no name yet; pass the jobs through named_jobs first")
    return job.name


def with_time(job: Job, time: int) -> Job:
    """Return the job with a drawn processing time.

    The deadline is not checked again: the drawn time may exceed it, and then the deadline is missed.
    """
    drawn = object.__new__(Job)
    for field, value in (*vars(job).items(), ("processing", int(time))):
        object.__setattr__(drawn, field, value)
    return drawn


def check_time(value: Any, what: str, otherwise: str = "") -> int:
    """Return a whole number from 1 to the largest time, or raise."""
    return check_count(value, what, 1, LARGEST_TIME, otherwise=otherwise, error=ProblemError)


def _processing(given: Any, who: str) -> int | Pairs:
    """Return a processing time in the form that `Job` stores."""
    what = f"{who}: processing"
    if isinstance(given, Mapping):
        pairs = [(probability, time) for time, probability in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        try:
            pairs = [(probability, time) for probability, time in given]
        except (TypeError, ValueError):
            raise ProblemError(f"{what} is {given!r}; it must hold (probability, time) pairs") from None
    else:
        return check_time(given, f"{what} time", " or a distribution {time: probability}")
    times = [check_time(time, f"{what} time") for _, time in pairs]
    chances: dict[int, float] = {}
    for time, chance in zip(times, check_probabilities([chance for chance, _ in pairs], what), strict=True):
        chances[time] = chances.get(time, 0.0) + chance
    kept = tuple((chance, time) for time, chance in sorted(chances.items()) if chance > 0)
    return kept[0][1] if len(kept) == 1 else kept


# Plain values and files -------------------------------------------------------------------------------------------


def read_jobs(path: str | Path) -> tuple[Job, ...]:
    """Return the named jobs of a CSV file; errors name file, row (the header is row 1) and column."""
    jobs = [_job_of_row(cells, where) for where, cells in read_csv(Path(path), REQUIRED, OPTIONAL, "job").rows]
    with prefixed(str(path)):
        return named_jobs(jobs)


def _job_of_row(cells: Mapping[str, str], where: str) -> Job:
    """Return the job of a row; an empty cell of an optional column means the default."""
    values: dict[str, Any] = {"name": cells.get("name") or None}
    for column, parse in _PARSERS.items():
        if column in REQUIRED or cells.get(column):
            with prefixed(f"{where}, column {column!r}"):
                values[column] = parse(cells[column])
    with prefixed(f"{where}, column 'deadline'"):  # the only remaining error involves the processing time as well
        return Job(**values)


def _range_of(text: str) -> Processing | None:
    """Return the processing time of a range such as 2-4; None if the text is not a range."""
    matched = _RANGE.fullmatch(text)
    return uniform(int(matched[1]), int(matched[2])) if matched else None


def _time(cell: str, otherwise: str = "") -> int:
    return whole_cell(cell, 1, LARGEST_TIME, otherwise)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "processing": lambda cell: _range_of(cell) or _time(cell, " or a range such as 2-4"),
    "due": _time,
    "deadline": _time,
    "weight": lambda cell: number_cell(cell, above=0),
    "release": lambda cell: whole_cell(cell, 0, LARGEST_TIME),
}


def with_jobs(parameters: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the parameters of `machine_scheduling` with `Job`s in place of tables or the name of a file."""
    given = parameters["jobs"]
    if isinstance(given, str | Path):
        return {**parameters, "jobs": read_jobs(folder / given)}
    if isinstance(given, Mapping) or not hasattr(given, "__iter__"):
        raise ProblemError(f"jobs is {given!r}; it must be a list of jobs or the name of a CSV file")
    return {**parameters, "jobs": [_job_of_table(entry, f"jobs.{place}") for place, entry in enumerate(given)]}


def _job_of_table(entry: Any, where: str) -> Job:
    """Return the job of a table; a job is returned as it is."""
    if isinstance(entry, Job):
        return entry
    if not isinstance(entry, Mapping):
        raise ProblemError(f"{where} is {entry!r}; it must be a table with {', '.join(REQUIRED)}")
    check_names(signature(Job).parameters, entry, f"{where}.")
    with prefixed(where):
        return Job(**{**entry, "processing": _plain_processing(entry["processing"])})


def _plain_processing(given: Any) -> Any:
    """Return a processing time as `Job` takes it."""
    found = _range_of(given.strip()) if isinstance(given, str) else given
    if found is None:
        raise ProblemError(f'processing is {given!r}; it must be a whole number, a range such as "2-4", or pairs')
    return found


def as_table(job: Job) -> dict[str, Any]:
    """Return a job as plain values."""
    processing: Any = job.longest if job.fixed else [list(pair) for pair in job.pairs]
    table = {"processing": processing, "due": job.due, "deadline": job.deadline}
    table |= ({} if job.weight == 1 else {"weight": job.weight}) | {"name": job.name}
    return table | ({"release": job.release} if job.release else {})
