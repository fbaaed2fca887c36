"""Jobs of a single machine: processing time p_j, due time d_j, deadline D_j, weight w_j and release time r_j.

A due time may be missed at a cost, a deadline must be met; either may come first. All times are whole numbers of at
least 1; a release time, before which a job cannot begin, may be 0. A processing time is one number or a discrete
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peakrl.checks import check_count, check_number, real, whole
from peakrl.errors import ProblemError
from peakrl.schedule_labels import JobName

Processing = int | Mapping[int, float] | Sequence[tuple[float, int]]
#: (probability, time) pairs by increasing time.
Pairs = tuple[tuple[float, int], ...]

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
        pairs = [_pair(entry, what) for entry in given]
    else:
        return check_time(given, f"{what} time", " or a distribution {time: probability}")
    chances: dict[int, float] = {}
    for probability, time in pairs:
        number = check_time(time, f"{what} time")
        chances[number] = chances.get(number, 0.0) + _probability(probability, what)
    total = math.fsum(chances.values())
    if abs(total - 1.0) > 1e-9:
        raise ProblemError(f"{what}: probabilities sum to {total:.12g}, not to 1")
    kept = tuple((chance, time) for time, chance in sorted(chances.items()) if chance > 0)
    return kept[0][1] if len(kept) == 1 else kept


def _pair(entry: Any, what: str) -> tuple[Any, Any]:
    try:
        probability, time = entry
    except (TypeError, ValueError):
        raise ProblemError(f"{what}: {entry!r} is not a (probability, time) pair") from None
    return probability, time


def _probability(value: Any, what: str) -> float:
    number = real(value)
    if not 0.0 <= number <= 1.0 + 1e-9:
        raise ProblemError(
            f"{what}: {value!r} is not a probability; a distribution is made of (probability, time) pairs"
        )
    return number
