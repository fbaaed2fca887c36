"""Run the tasks that have no result yet, retry those whose worker died, and read all results.

Any `concurrent.futures.Executor` can run tasks; this module has executors for this process, for processes of this
machine, for Ray and for Dask. An executor gets `perform_alone` and a call, and its future returns the outcome. A future
that raises has lost its worker, and the task is submitted again. On this machine a thread per worker process exchanges
lines of JSON with it, so that the death of one process does not affect the others.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
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
from peakrl.sweeps.store import Store
from peakrl.sweeps.tasks import Result, Task
from peakrl.sweeps.worker import BUSY, DIED, DONE, ONE_THREAD, Call, Outcome, perform, perform_alone

#: Seconds between two checks of tasks that another sweep is running.
PATIENCE = 0.2
#: Most tasks that are submitted at a time if `workers` is None.
MOST = 1000
#: Most failures that an error message lists.
SHOWN = 10


@dataclass
class Job:
    """A task and the number of its lost workers."""

    call: Call
    mishaps: int = 0


@dataclass(frozen=True)
class Failure:
    """A task that failed."""

    task: Task
    message: str
    #: Number of attempts.
    attempts: int


@dataclass
class Completion:
    """Counts and failures of `complete`."""

    #: Results found in the folder, and tasks run now.
    found: int = 0
    made: int = 0
    failures: list[Failure] = field(default_factory=list)


def run_tasks(
    tasks: Iterable[Task],
    folder: str | Path,
    workers: int | None = None,
    engine: str | Executor = "processes",
    retries: int = 2,
    time_limit: float | None = None,
    progress: bool = False,
    title: str = "Runs",
    *,
    address: str | None = None,
    search: str | None = None,
) -> list[Result]:
    """Return the result of every task, in order; only tasks without a result in `folder` are run.

    `workers`: processes (None: one per core; 1: in this process, unless there is a time limit). `engine`: "processes",
    "ray", "dask", or any `concurrent.futures.Executor` of processes, such as that of `local_workers`. `retries`: of a
    task whose worker died. `time_limit`: seconds per task. Failures are raised after all other tasks are done.
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
    engine: str | Executor = "processes",
    retries: int = 2,
    time_limit: float | None = None,
    progress: bool = False,
    title: str = "Runs",
    *,
    address: str | None = None,
    search: str | None = None,
) -> Completion:
    """Run the tasks without a result in `folder`; return failures instead of raising. See `run_tasks`."""
    check_options(engine, workers, address, retries, time_limit)
    unique = {task.key: task for task in tasks}
    if not unique:
        return Completion()
    store = Store.create(folder)
    missing = missing_tasks(unique.values(), store)
    done = Completion(found=len(unique) - len(missing))
    if missing:
        store.forget({task.key for task in missing})
        token, absolute = store.token, str(store.folder.absolute())
        jobs = [Job(Call(t.key, t.function, dict(t.config), absolute, token, time_limit, search)) for t in missing]
        with (
            chosen_engine(engine, workers, address, time_limit) as chosen,
            SweepProgress(title, len(unique), done.found, progress) as shown,
        ):
            most = 1 if isinstance(chosen, InProcess) else workers or MOST
            _Driver(store, unique, retries, done, shown).drive(chosen, deque(jobs), most)
    return done


def missing_tasks(tasks: Iterable[Task], store: Store) -> list[Task]:
    """Return the distinct tasks without a result, in order."""
    there = store.keys()
    return [task for task in dict.fromkeys(tasks) if task.key not in there]


def check_options(
    engine: str | Executor, workers: int | None, address: str | None, retries: int, time_limit: float | None
) -> None:
    """Raise if an option of `run_tasks` is invalid."""
    if workers is not None:
        check_count(workers, "workers")
    if not isinstance(engine, Executor):
        check_choice(engine, "engine", ENGINES)
    if address is not None and engine not in ("ray", "dask"):
        raise SettingsError("address is for the engines ray and dask only")
    check_count(retries, "retries", 0)
    if time_limit is not None:
        check_number(time_limit, "time_limit", above=0, otherwise=" of seconds, or None")


def chosen_engine(
    engine: str | Executor, workers: int | None, address: str | None, time_limit: float | None
) -> AbstractContextManager[Executor]:
    """Return a context of the executor with that name; one that was passed is not shut down."""
    if isinstance(engine, Executor):
        return nullcontext(engine)
    if engine == "ray":
        return ray_engine(workers, address)
    if engine == "dask":
        return dask_engine(workers, address)
    if time_limit is not None:
        return LocalProcesses(workers or usable_cores())  # a task over its limit ends its process
    return local_workers(workers)


@contextmanager
def local_workers(workers: int | None = None, *, prepare: str | None = None) -> Iterator[Executor]:
    """Yield an executor for several calls of `run_tasks`.

    `workers`: as for `run_tasks`. `prepare`: "module:function", called without arguments in every new process, to load
    what tasks will need.
    """
    count = check_count(usable_cores() if workers is None else workers, "workers")
    with InProcess() if count == 1 else LocalProcesses(count, prepare=prepare) as engine:
        yield engine


class _Driver:
    """Submits tasks and handles their outcomes: done, retry, give up, or wait for another sweep."""

    def __init__(
        self, store: Store, tasks: dict[str, Task], retries: int, done: Completion, shown: SweepProgress
    ) -> None:
        self.store, self.tasks, self.retries, self.done, self.shown = store, tasks, retries, done, shown
        #: Tasks that another sweep is running.
        self.waiting: list[Job] = []

    def drive(self, engine: Executor, queue: deque[Job], most: int) -> None:
        """Run until every task is done or has failed, with at most `most` of them submitted at a time."""
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
                            f"the executor accepts no more runs ({error}): pass a new one; finished runs are kept"
                        ) from error
                    under_way[future] = job
                    future.add_done_callback(done.put)
                if under_way:
                    future = done.get()
                    job = under_way.pop(future)
                    self.settle(job, outcome_of(future, job), queue)
                else:  # another sweep is running the rest: check again later
                    time.sleep(PATIENCE)
                    queue.extend(self.waiting)
                    self.waiting.clear()
        finally:
            for future in list(under_way):
                future.cancel()
            if under_way and isinstance(engine, LocalProcesses):
                engine.shutdown()

    def settle(self, job: Job, outcome: Outcome, queue: deque[Job]) -> None:
        """Handle an outcome."""
        if outcome.payload is not None:
            self.store.put(outcome.key, outcome.payload)
        if outcome.status == DIED:
            outcome = self.diagnosed(outcome)
        if outcome.status == DONE:
            self.done.made += 1
            self.shown.report(self.tasks[outcome.key], "done")
        elif outcome.status == BUSY:
            self.waiting.append(job)
        elif outcome.transient and job.mishaps < self.retries:
            job.mishaps += 1
            queue.append(job)
            self.shown.report(self.tasks[outcome.key], f"will be retried: {outcome.message}", final=False)
        else:
            failure = Failure(self.tasks[outcome.key], outcome.message, job.mishaps + 1)
            self.done.failures.append(failure)
            self.shown.report(failure.task, f"failed: {outcome.message}")

    def diagnosed(self, outcome: Outcome) -> Outcome:
        """Return why a worker died; the task may have finished before."""
        if self.store.has(outcome.key):
            return outcome._replace(status=DONE)
        words = self.store.last_words(outcome.key)
        if words is None:
            return outcome
        if words.timed_out:  # a retry would take as long
            location = f" at {words.location}" if words.location else ""
            return outcome._replace(message=f"the time limit has passed{location}", transient=False)
        return outcome._replace(message=f"{outcome.message} ({words.where})")


def outcome_of(future: Future[Outcome], job: Job) -> Outcome:
    """Return the outcome of a task; a future that raises has lost its worker."""
    try:
        return future.result()
    except Exception as error:
        words = (str(error).strip().splitlines() or [""])[0]
        message = f"a worker was lost: {type(error).__name__}: {words}"
        return Outcome(job.call.key, DIED, message, transient=True)


class SweepProgress:
    """Progress: a bar in a terminal, otherwise a line for each finished task."""

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

    def report(self, task: Task, what: str, *, final: bool = True) -> None:
        """Report the status of a task."""
        self.count, self.made = self.count + final, self.made + final
        self.failed += final and what != "done"
        self.bar.reach(self.count, failed=self.failed, last=str(task))
        if self.lines:
            line = f"{self.title}: {self.count:,}/{self.total:,} {task} {what}{self.forecast}"
            print(line, file=sys.stderr, flush=True)

    @property
    def forecast(self) -> str:
        """Rate, and estimated remaining time."""
        rate, left = self.made / max(time.monotonic() - self.begun, 1e-9), self.total - self.count
        return f" ({rate:.3g} runs/s, {timedelta(seconds=round(left / rate))} left)" if left and self.made else ""


def raise_failures(failures: Sequence[Failure]) -> None:
    """Raise an error that lists the failures, if any."""
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


# Executors ----------------------------------------------------------------------------------------------------------

ENGINES = ("processes", "ray", "dask")


class InProcess(Executor):
    """Runs tasks one after another in this process."""

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run the task now."""
        future: Future[Any] = Future()
        future.set_result(perform(args[0]))
        return future


class Worker:
    """A worker process."""

    def __init__(self, prepare: str | None) -> None:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from peakrl.sweeps.worker import serve; serve()", prepare or ""],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C goes to the driver only
        )  # fmt: skip

    def perform(self, call: Call) -> Outcome:
        """Run a task in the process, and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):  # it has died; the answer is empty
            self.process.stdin.write(json.dumps(call).encode() + b"\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.endswith(b"\n"):
            code = self.stop()
            how = f"{signal.Signals(-code).name}({code})" if code < 0 else f"exit code {code}"
            return Outcome(call.key, DIED, f"the worker process died: {how}", transient=True)
        key, status, message, transient, payload = json.loads(answer)
        return Outcome(key, status, message, transient, None if payload is None else bytes.fromhex(payload))

    def stop(self) -> int:
        """Close the pipes, which ends the process, and return its exit code."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        return self.process.wait()


class LocalProcesses(Executor):
    """Worker processes on this machine, each with one kernel thread; started on demand and reused."""

    def __init__(self, workers: int, *, prepare: str | None = None) -> None:
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._threads = ThreadPoolExecutor(workers)
        if prepare is not None:
            self._idle = [self._start(prepare) for _ in range(workers)]

    def _start(self, prepare: str | None = None) -> Worker:
        worker = Worker(prepare)
        with self._lock:
            self._workers.append(worker)
            if self._stopped:
                worker.process.kill()
        return worker

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run a task in the next free worker."""
        return self._threads.submit(self._perform, args[0])

    def _perform(self, call: Call) -> Outcome:
        with self._lock:
            living = [worker for worker in self._idle if worker.process.poll() is None]
            worker = living.pop() if living else None
            self._idle = living
        worker = worker or self._start()
        outcome = worker.perform(call)
        with self._lock:
            if outcome.status != DIED or worker.process.poll() is None:
                self._idle.append(worker)
        return outcome

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Kill the processes and their tasks."""
        with self._lock:
            self._stopped = True
            for worker in self._workers:
                worker.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.stop()


class RayTasks(Executor):
    """Runs tasks with Ray."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._under_way: dict[Future[Any], Any] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Submit a task without Ray's own retries, which the driver counts."""
        remote = self._ray.remote(num_cpus=1, max_retries=0, runtime_env={"env_vars": ONE_THREAD})(fn)
        reference = remote.remote(*args)
        future: Future[Any] = reference.future()
        self._under_way[future] = reference
        future.add_done_callback(lambda done: self._under_way.pop(done, None))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel running tasks."""
        for reference in list(self._under_way.values()):
            self._ray.cancel(reference, force=True)


@contextlib.contextmanager
def ray_engine(workers: int | None, address: str | None) -> Iterator[Executor]:
    """Yield an executor on the Ray cluster at `address`, or on one started on this machine."""
    # Read by Ray on import: do not change GPU settings, and send no usage statistics.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = optional("ray", "ray")
    ours = not ray.is_initialized()
    if ours:
        own = {} if address or "RAY_ADDRESS" in os.environ else {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise SettingsError(f"there is no Ray cluster at {address!r}: {error}") from error
    try:
        with RayTasks(ray) as tasks:
            yield tasks
    finally:
        if ours:
            ray.shutdown()


@contextlib.contextmanager
def dask_engine(workers: int | None, address: str | None) -> Iterator[Executor]:
    """Yield an executor on the Dask cluster at `address`, or on one started on this machine."""
    distributed = optional("distributed", "dask")
    with contextlib.ExitStack() as stack:
        target: Any = address
        if address is None:
            count = workers or os.cpu_count() or 1
            local = distributed.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
            target = stack.enter_context(local)
        try:
            client = stack.enter_context(distributed.Client(target, timeout=10))
        except (OSError, ValueError) as error:
            raise SettingsError(f"there is no Dask cluster at {address!r}: {error}") from error
        executor = client.get_executor(pure=False)
        stack.callback(executor.shutdown, wait=False)
        yield executor


def optional(module: str, extra: str) -> Any:
    """Return a module of an optional package, or raise with the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SettingsError(f"the engine {extra} is not installed here: install peakrl[{extra}]") from None
