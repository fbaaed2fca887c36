"""Make the runs that are missing from a folder, whatever happens to the workers, and read back all of them."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from peakrl.checks import check_choice, check_count, check_number
from peakrl.cores import usable_cores
from peakrl.errors import SettingsError, SweepError
from peakrl.progress import Progress
from peakrl.sweeps.engines import ENGINES, Engine, InProcess, LocalProcesses, dask_engine, ray_engine
from peakrl.sweeps.store import Store
from peakrl.sweeps.tasks import Result, Task
from peakrl.sweeps.worker import BUSY, DIED, DONE, Call, Outcome, perform_alone

#: Seconds between two looks at runs that another sweep is making.
PATIENCE = 0.2
#: Runs that are submitted at a time, unless `workers` says how many: enough for any cluster to have work.
MOST = 1000
#: How many failures an error message tells of.
SHOWN = 10


@dataclass
class Job:
    """A run to be made, and how often it has failed for no fault of its own."""

    call: Call
    mishaps: int = 0


@dataclass(frozen=True)
class Failure:
    """A run that could not be made."""

    task: Task
    message: str
    #: How often it was tried.
    attempts: int


@dataclass
class Completion:
    """What came of an attempt to complete a folder."""

    #: Runs that were there already, and runs made now.
    found: int = 0
    made: int = 0
    failures: list[Failure] = field(default_factory=list)


def run_tasks(
    tasks: Iterable[Task],
    folder: str | Path,
    workers: int | None = None,
    engine: str | Engine = "loky",
    retries: int = 2,
    time_limit: float | None = None,
    progress: bool = False,
    title: str = "Runs",
    *,
    address: str | None = None,
    search: str | None = None,
) -> list[Result]:
    """Return the result of every task, in their order; only what is missing in `folder` is run.

    `workers`: processes (None: one a core; 1: in this process, unless there is a time limit). `engine`: by name, or
    any `concurrent.futures.Executor` of processes, such as `local_workers` yields. `retries`: how often a run is tried
    again whose worker died. `time_limit`: seconds a run. Failures are raised when all else is done.
    """
    wanted = list(tasks)
    done = complete(
        wanted, folder, workers, engine, retries, time_limit, progress, title, address=address, search=search
    )
    raise_failures(done.failures)
    store = Store(folder)
    read: dict[str, Result] = {}
    for task in wanted:
        if task.key not in read:
            read[task.key] = store.read(task.key)
    return [read[task.key] for task in wanted]


def complete(
    tasks: Iterable[Task],
    folder: str | Path,
    workers: int | None = None,
    engine: str | Engine = "loky",
    retries: int = 2,
    time_limit: float | None = None,
    progress: bool = False,
    title: str = "Runs",
    *,
    address: str | None = None,
    search: str | None = None,
) -> Completion:
    """Make the runs that are missing in `folder`; failures are returned, not raised. See `run_tasks`."""
    check_options(engine, workers, address, retries, time_limit)
    unique = {task.key: task for task in tasks}
    if not unique:
        return Completion()
    store = Store.create(folder)
    missing = missing_tasks(unique.values(), store)
    done = Completion(found=len(unique) - len(missing))
    if missing:
        store.forget({task.key for task in missing})
        token, place = store.token, str(store.folder.absolute())
        jobs = [Job(Call(t.key, t.function, dict(t.config), place, token, time_limit, search)) for t in missing]
        with (
            chosen_engine(engine, workers, address, time_limit) as chosen,
            SweepProgress(title, len(unique), done.found, progress) as shown,
        ):
            most = 1 if isinstance(chosen, InProcess) else workers or MOST
            _Driver(store, unique, retries, done, shown).drive(chosen, deque(jobs), most)
    return done


def missing_tasks(tasks: Iterable[Task], store: Store) -> list[Task]:
    """Return the tasks without a result, each once, in their order."""
    there = store.keys()
    return [task for task in dict.fromkeys(tasks) if task.key not in there]


def check_options(
    engine: str | Engine, workers: int | None, address: str | None, retries: int, time_limit: float | None
) -> None:
    """Raise unless the options of `run_tasks` make sense."""
    if workers is not None:
        check_count(workers, "workers")
    if not isinstance(engine, Engine):
        check_choice(engine, "engine", ENGINES)
    if address is not None and engine not in ("ray", "dask"):
        raise SettingsError("address is for the engines ray and dask; loky runs on this machine")
    check_count(retries, "retries", 0)
    if time_limit is not None:
        check_number(time_limit, "time_limit", above=0, otherwise=" of seconds, or None")


def chosen_engine(
    engine: str | Engine, workers: int | None, address: str | None, time_limit: float | None
) -> AbstractContextManager[Engine]:
    """Return the engine of that name for `with`; one that was passed stays when the block ends."""
    if isinstance(engine, Engine):
        return nullcontext(engine)
    if engine == "ray":
        return ray_engine(workers, address)
    if engine == "dask":
        return dask_engine(workers, address)
    if time_limit is not None:
        return LocalProcesses(workers or usable_cores())  # a run over its limit ends its process
    return local_workers(workers)


@contextmanager
def local_workers(workers: int | None = None, *, prepare: str | None = None) -> Iterator[Engine]:
    """Yield an engine for several calls of `run_tasks`, whose processes start once.

    `workers`: as `run_tasks` takes it. `prepare`: "module:function", called without arguments in every new process
    before there is anything to run, to load what runs will need.
    """
    count = check_count(usable_cores() if workers is None else workers, "workers")
    with InProcess() if count == 1 else LocalProcesses(count, prepare=prepare) as engine:
        yield engine


class _Driver:
    """Decides what each ending means: done, try again, give up, or wait for another sweep."""

    def __init__(
        self, store: Store, tasks: dict[str, Task], retries: int, done: Completion, shown: SweepProgress
    ) -> None:
        self.store, self.tasks, self.retries, self.done, self.shown = store, tasks, retries, done, shown
        #: Runs that another sweep is making.
        self.waiting: list[Job] = []

    def drive(self, engine: Engine, queue: deque[Job], most: int) -> None:
        """Go on until every run is made or given up, with at most `most` of them submitted at a time."""
        under_way: dict[Future[Outcome], Job] = {}
        done: SimpleQueue[Future[Outcome]] = SimpleQueue()
        try:
            while queue or under_way or self.waiting:
                while queue and len(under_way) < most:
                    job = queue.popleft()
                    try:
                        future = engine.submit(perform_alone, job.call)
                    except RuntimeError as error:
                        raise SweepError(
                            f"the executor takes no more runs ({error}): pass a new one; finished runs are kept"
                        ) from error
                    under_way[future] = job
                    future.add_done_callback(done.put)
                if under_way:
                    future = done.get()
                    job = under_way.pop(future)
                    self.settle(job, outcome_of(future, job), queue)
                else:  # what is left is being made by another sweep: look from time to time whether it still is
                    time.sleep(PATIENCE)
                    queue.extend(self.waiting)
                    self.waiting.clear()
        finally:
            for future in list(under_way):
                future.cancel()
            if under_way and isinstance(engine, LocalProcesses):
                engine.shutdown()

    def settle(self, job: Job, outcome: Outcome, queue: deque[Job]) -> None:
        """Take note of an ending."""
        if outcome.payload is not None:
            self.store.put(outcome.key, outcome.payload)
        if outcome.status == DIED:
            outcome = self.diagnosed(outcome)
        if outcome.status == DONE:
            self.done.made += 1
            self.shown.tell(self.tasks[outcome.key], "done")
        elif outcome.status == BUSY:
            self.waiting.append(job)
        elif outcome.transient and job.mishaps < self.retries:
            job.mishaps += 1
            queue.append(job)
            self.shown.tell(self.tasks[outcome.key], f"to be tried again: {outcome.message}", final=False)
        else:
            failure = Failure(self.tasks[outcome.key], outcome.message, job.mishaps + 1)
            self.done.failures.append(failure)
            self.shown.tell(failure.task, f"failed: {outcome.message}")

    def diagnosed(self, outcome: Outcome) -> Outcome:
        """Find out what a run died of; it may even have finished first."""
        if self.store.has(outcome.key):
            return outcome._replace(status=DONE)
        words = self.store.last_words(outcome.key)
        if words is None:
            return outcome
        if words.timed_out:  # it will not be faster next time
            place = f" at {words.place}" if words.place else ""
            return outcome._replace(message=f"the time limit has passed{place}", transient=False)
        return outcome._replace(message=f"{outcome.message} ({words.where})")


def outcome_of(future: Future[Outcome], job: Job) -> Outcome:
    """Return how a run ended; a future that raises has lost its worker."""
    try:
        return future.result()
    except Exception as error:
        words = (str(error).strip().splitlines() or [""])[0]
        message = f"a worker was lost: {type(error).__name__}: {words}"
        return Outcome(job.call.key, DIED, message, transient=True)


class SweepProgress:
    """Tells how far it is: a bar in a terminal, elsewhere a line for each run that ends."""

    def __init__(self, title: str, total: int, found: int, enabled: bool) -> None:
        self.title, self.total, self.count, self.enabled = title, total, found, enabled
        self.lines = enabled and not sys.stderr.isatty()
        self.failed, self.made = 0, 0
        self.begun = time.monotonic()
        self.bar = Progress(title, total=total, unit="runs", enabled=enabled and not self.lines)

    def __enter__(self) -> SweepProgress:
        self.bar.__enter__()
        self.bar.reach(self.count)
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.__exit__(*error)

    def tell(self, task: Task, what: str, *, final: bool = True) -> None:
        """Say what became of a run."""
        self.count, self.made = self.count + final, self.made + final
        self.failed += final and what != "done"
        self.bar.reach(self.count, failed=self.failed, last=str(task))
        if self.lines:
            line = f"{self.title}: {self.count:,}/{self.total:,} {task} {what}{self.forecast}"
            print(line, file=sys.stderr, flush=True)

    @property
    def forecast(self) -> str:
        """How fast runs end, and how long the rest will take at that rate."""
        rate, left = self.made / max(time.monotonic() - self.begun, 1e-9), self.total - self.count
        return f" ({rate:.3g} runs/s, {timedelta(seconds=round(left / rate))} left)" if left and self.made else ""


def raise_failures(failures: Sequence[Failure]) -> None:
    """Raise one error that lists the failures, if there are any."""
    if not failures:
        return
    lines = [f"{len(failures):,} run{'s' if len(failures) > 1 else ''} failed"]
    lines += [f"  {describe_failure(failure)}" for failure in failures[:SHOWN]]
    if len(failures) > SHOWN:
        lines.append(f"  and {len(failures) - SHOWN:,} more")
    raise SweepError("\n".join(lines))


def describe_failure(failure: Failure) -> str:
    """Return a failure as a line."""
    tried = f" (tried {failure.attempts} times)" if failure.attempts > 1 else ""
    return f"{failure.task}: {failure.message}{tried}"
