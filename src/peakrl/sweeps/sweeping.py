"""`sweep`: from a description to a folder that holds a result for each of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peakrl.specs.user_code import Trust
from peakrl.sweeps.engines import Engine
from peakrl.sweeps.executor import Completion, Failure, complete, missing_tasks
from peakrl.sweeps.grid import SweepPlan, read_plan
from peakrl.sweeps.store import MARKER, Store
from peakrl.sweeps.tasks import Result, Task


@dataclass(frozen=True, repr=False)
class SweepReport:
    """What a sweep came to."""

    plan: SweepPlan
    #: Runs that were there before, and runs made now.
    found: int
    made: int
    #: Runs that could not be made; a further sweep tries them again.
    failures: tuple[Failure, ...]
    #: Runs still to be made, where the sweep was only tried out.
    missing: tuple[Task, ...]
    #: Runs of which only code that the sweep names could tell, where it was only tried out: that runs none.
    unknown: tuple[Task, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the results are."""
        return self.plan.folder

    def results(self) -> Iterator[Result]:
        """Yield the results that there are, in the order of the plan; `task.name` says of which run."""
        store = Store.open(self.folder)
        there = store.keys()
        for task in dict.fromkeys(self.plan.tasks):
            if task.key in there:
                yield replace(store.read(task.key), task=task)

    def __repr__(self) -> str:
        total = len({task.key for task in self.plan.tasks})
        return (
            f"<SweepReport of {self.plan.name!r}: {total:,} runs, {self.found:,} found, {self.made:,} made, "
            f"{len(self.failures):,} failed, {len(self.missing):,} missing; in {self.folder}>"
        )


def sweep(
    source: str | Path | Mapping[str, Any],
    *,
    folder: str | Path | None = None,
    workers: int | None = None,
    engine: str | Engine = "loky",
    address: str | None = None,
    retries: int = 2,
    time_limit: float | None = None,
    dry_run: bool = False,
    progress: bool = False,
    trust: Trust = False,
) -> SweepReport:
    """Make the runs of a sweep that its folder does not hold yet.

    `source`: a TOML file or a mapping of the same form (see `peakrl.sweeps.grid`). `engine`: "loky" (this machine),
    "ray" or "dask" (`address` of the cluster), or a `concurrent.futures.Executor` of processes. `retries`: how often a
    run is tried again whose worker died; `time_limit`: seconds a run. Runs that fail are listed in the report and do
    not stop the others. A file that names code is refused unless `trust` is True, or lists "." (the file's own folder)
    and installed packages. `dry_run` makes nothing and runs no code that the sweep names.
    """
    if dry_run:
        return rehearse(read_plan(source, folder, run_code=False))
    plan = read_plan(source, folder, trust=trust)
    store = Store.create(plan.folder)
    store.keep_names(plan.names())
    done: Completion = complete(
        plan.tasks, plan.folder, workers, engine, retries, time_limit, progress, plan.name, address=address,
        search=plan.search,
    )  # fmt: skip
    return SweepReport(plan, done.found, done.made, tuple(done.failures), ())


def rehearse(plan: SweepPlan) -> SweepReport:
    """Say what a sweep would do; nothing is written."""
    unique = list(dict.fromkeys(plan.tasks))
    there = (plan.folder / MARKER).exists()
    missing = missing_tasks(unique, Store.open(plan.folder)) if there else unique
    return SweepReport(plan, len(unique) - len(missing), 0, (), tuple(missing), plan.unknown)
