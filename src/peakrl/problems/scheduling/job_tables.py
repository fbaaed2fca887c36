"""Jobs as plain values: {"processing": 3, "due": 22, "deadline": 30}, or the name of a CSV file of jobs.

`processing` is a whole number, a range such as "2-4" (each number equally likely), or [probability, time] pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from peakrl.errors import PeakError, ProblemError
from peakrl.problems.scheduling.job_files import range_of, read_jobs
from peakrl.problems.scheduling.jobs import Job, Processing
from peakrl.specs.registry import unknown_key

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
