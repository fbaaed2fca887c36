"""The problems of a sweep as plain JSON: {"kind": ..., "parameters": {...}}, and the way back to a `Problem`.

`kind` is a built-in problem or "module:function". The parameters of a user's function come with a digest of the file
that holds it, so that results of an older version are not taken for those of the present one.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from peakrl.errors import PeakError, SweepError
from peakrl.model.problem import Problem
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.scheduling.job_files import read_jobs
from peakrl.problems.scheduling.jobs import Job, uniform
from peakrl.problems.scheduling.problem import machine_scheduling, scheduling_example
from peakrl.runs.worker import load_function

BUILT_IN: dict[str, Callable[..., Problem]] = {
    "energy_harvesting": energy_harvesting,
    "machine_scheduling": machine_scheduling,
    "scheduling_example": scheduling_example,
}
JOB_FIELDS = ("processing", "due", "deadline", "weight", "name")


def builder_of(kind: str, search: str | None = None) -> Callable[..., Problem]:
    """Return the function that makes problems of a kind."""
    if kind in BUILT_IN:
        return BUILT_IN[kind]
    if ":" not in kind:
        raise SweepError(f'kind is {kind!r}; it must be one of {", ".join(BUILT_IN)}, or "module:function"')
    return load_function(kind, search)


def build_problem(config: Mapping[str, Any], seed: int, search: str | None = None) -> Problem:
    """Return the problem that `config` describes; `seed` is the run's, for problems that follow it."""
    kind, parameters = config["kind"], dict(config["parameters"])
    if config.get("follow_seed"):
        parameters["seed"] = seed
    if kind == "machine_scheduling":
        parameters["jobs"] = [as_job(job) for job in parameters["jobs"]]
    return builder_of(kind, search)(**parameters)


def describe_problem(
    kind: str, parameters: Mapping[str, Any], *, follow_seed: bool, where: str, folder: Path
) -> dict[str, Any]:
    """Return a problem's configuration, checked: its parameters are known and the problem can be built."""
    try:
        builder = builder_of(kind, str(folder))
    except PeakError as error:
        raise SweepError(
            f"{where}.{error}" if kind not in BUILT_IN and ":" not in kind else f"{where}: {error}"
        ) from None
    given = dict(parameters)
    if kind == "machine_scheduling" and "jobs_file" in given:
        if "jobs" in given:
            raise SweepError(f"{where}.jobs_file and {where}.jobs exclude each other: give one of them")
        given["jobs"] = [plain_job(job) for job in read_jobs(folder / str(given.pop("jobs_file")))]
    check_parameters(builder, {*given, *(["seed"] if follow_seed else [])}, where, extra=("jobs_file",))
    config: dict[str, Any] = {"kind": kind, "parameters": given}
    if follow_seed:
        config["follow_seed"] = True
    if kind not in BUILT_IN:
        config["source"] = source_of(builder)
    try:
        problem = build_problem(config, 0, str(folder))
    except (PeakError, TypeError, ValueError) as error:
        raise SweepError(f"{where}: {error}") from error
    if not hasattr(problem, "outcomes"):
        raise SweepError(f"{where}.kind: {kind} returned {type(problem).__name__}; it must return a Problem")
    return config


def check_parameters(
    function: Callable[..., Any], names: Iterable[str], where: str, extra: tuple[str, ...] = ()
) -> None:
    """Raise for a name that `function` does not take, and for one that it needs and does not get."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters]
    given = set(names)
    for name in sorted(given - set(known)):
        raise SweepError(unknown_key(f"{where}.{name}", name, [*known, *(extra if "jobs" in known else ())]))
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in given:
            raise SweepError(f"{where}.{parameter.name} is missing")


def unknown_key(path: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a key that means nothing here."""
    names = list(known)
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"{path} is unknown{hint} There may be {', '.join(names)}"
        if hint
        else (f"{path} is unknown; there may be {', '.join(names)}")
    )


def as_job(given: Any) -> Job:
    """Return the job of a table; `processing` a number, a range such as "2-4", or [[probability, time], ...]."""
    if not isinstance(given, Mapping):
        raise SweepError(f"a job is {given!r}; it must be a table with processing, due and deadline")
    for name in given:
        if name not in JOB_FIELDS:
            raise SweepError(unknown_key(f"jobs.{name}", name, JOB_FIELDS))
    fields = dict(given)
    processing = fields.get("processing")
    if isinstance(processing, str):
        low, _, high = processing.partition("-")
        if not (low.strip().isdigit() and high.strip().isdigit()):
            raise SweepError(f'processing is {processing!r}; it must be a number or a range such as "2-4"')
        fields["processing"] = uniform(int(low), int(high))
    elif isinstance(processing, list):
        fields["processing"] = [tuple(pair) for pair in processing]
    try:
        return Job(**fields)
    except TypeError as error:
        raise SweepError(f"job {dict(given)}: {error}") from None


def plain_job(job: Job) -> dict[str, Any]:
    """Return a job as a table."""
    processing: Any = job.longest if job.fixed else [list(pair) for pair in job.pairs]
    return {"processing": processing, "due": job.due, "deadline": job.deadline, "weight": job.weight, "name": job.name}


def source_of(function: Callable[..., Any]) -> str:
    """Return the digest of the file that holds a user's function."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
        data = Path(path or "").read_bytes()
    except (OSError, TypeError):
        return ""
    return hashlib.blake2b(data, digest_size=10).hexdigest()
