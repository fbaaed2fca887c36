"""Run the tasks that have no result yet, retry those whose worker died, and read all results.

Workers are processes of this machine, or those of any `concurrent.futures.Executor`. An executor gets `perform` and a
call, and its future returns the outcome. A future that raises has lost its worker, and the task is submitted again.

A `WorkerProcess` exchanges lines of JSON with a process of its own, so that the death of that process affects nothing
else. A worker returns its result as the bytes of a file, and the driver stores it: workers need not see the folder.
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from peakrl.checks import check_count
from peakrl.cores import usable_cores
from peakrl.errors import PeakError, SettingsError, SweepError
from peakrl.progress import Progress, say
from peakrl.specs.user_code import described
from peakrl.sweeps.store import Result, Store, Task

#: Most tasks that are submitted at a time if `workers` is None.
MOST = 1000
#: Most failures that an error message lists.
SHOWN = 10
#: One thread per process, since processes run in parallel.
LIBRARIES = ("NUMBA_NUM", "OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM", "NUMEXPR_NUM")
ONE_THREAD = {f"{library}_THREADS": "1" for library in LIBRARIES}
#: Folder of the present task: paths in its configuration are relative to it.
FOLDER: ContextVar[str] = ContextVar("folder", default=".")


class Call(NamedTuple):
    """A task for a worker, as plain values."""

    key: str
    function: str
    config: Mapping[str, Any]
    #: Folder of user modules and of relative paths in the configuration.
    search: str | None


class Outcome(NamedTuple):
    """The outcome of a task."""

    #: The file of the result; None if the task failed.
    payload: bytes | None
    message: str = ""
    #: Worth a retry: the machine failed, not the task.
    transient: bool = False


@dataclass(frozen=True)
class Failure:
    """A task that failed."""

    task: Task
    message: str
    #: Number of attempts.
    attempts: int

    def __str__(self) -> str:
        tried = f" (tried {self.attempts} times)" if self.attempts > 1 else ""
        return f"{self.task}: {self.message}{tried}"


@dataclass
class Completion:
    """Counts and failures of `complete`."""

    #: Results found in the folder, and tasks run now.
    found: int = 0
    made: int = 0
    failures: list[Failure] = field(default_factory=list)


# The driver ---------------------------------------------------------------------------------------------------------


def run_tasks(tasks: Iterable[Task], folder: str | Path, **options: Any) -> list[Result]:
    """Return the result of every task, in order; only tasks without a result in `folder` are run.

    The options are those of `complete`, such as `workers`, `engine` and `retries`. Failures are raised after all other
    tasks are done.
    """
    wanted = list(tasks)
    failures = complete(wanted, folder, **options).failures
    if failures:
        lines = [f"{len(failures):,} run{'s' if len(failures) > 1 else ''} failed", *map(str, failures[:SHOWN])]
        if len(failures) > SHOWN:
            lines.append(f"and {len(failures) - SHOWN:,} more")
        raise SweepError("\n  ".join(lines))
    store = Store(folder)
    read = {key: store.read(key) for key in dict.fromkeys(task.key for task in wanted)}
    return [read[task.key] for task in wanted]


def complete(
    tasks: Iterable[Task],
    folder: str | Path,
    *,
    workers: int | None = None,
    engine: Executor | None = None,
    retries: int = 2,
    progress: bool = False,
    title: str = "Runs",
    search: str | None = None,
) -> Completion:
    """Run the tasks without a result in `folder`; return failures instead of raising.

    Parameters
    ----------
    workers
        Processes (None: one per core; 1: in this process).
    engine
        Any `concurrent.futures.Executor` of processes, such as that of `local_workers` or of a cluster.
    retries
        Retries of a task whose worker died.
    progress, title
        Show progress on stderr, under this title.
    search
        Folder of user modules and of relative paths in configurations.
    """
    if workers is not None:
        check_count(workers, "workers")
    if not isinstance(engine, Executor | None):
        raise SettingsError(f"engine is {engine!r}; it must be a concurrent.futures.Executor")
    check_count(retries, "retries", 0)
    unique = {task.key: task for task in tasks}
    if not unique:
        return Completion()
    store = Store.create(folder)
    missing = missing_tasks(unique.values(), store)
    done = Completion(found=len(unique) - len(missing))
    if missing:
        calls = deque(Call(task.key, task.function, task.config, search) for task in missing)
        with (
            local_workers(workers) if engine is None else nullcontext(engine) as chosen,
            Progress(title, total=len(unique), unit="runs", begin=done.found, enabled=progress) as shown,
        ):
            most = 1 if isinstance(chosen, InProcess) else workers or MOST
            _Driver(store, unique, retries, done, shown).drive(chosen, calls, most)
    return done


def missing_tasks(tasks: Iterable[Task], store: Store) -> list[Task]:
    """Return the distinct tasks without a result, in order."""
    there = store.keys()
    return [task for task in dict.fromkeys(tasks) if task.key not in there]


class _Driver:
    """Submits tasks and handles their outcomes: done, retry or give up."""

    def __init__(self, store: Store, tasks: dict[str, Task], retries: int, done: Completion, shown: Progress) -> None:
        self.store, self.tasks, self.retries, self.done, self.shown = store, tasks, retries, done, shown
        #: Failed attempts of each task.
        self.mishaps: Counter[str] = Counter()

    def drive(self, engine: Executor, queue: deque[Call], most: int) -> None:
        """Run until every task is done or has failed, with at most `most` of them submitted at a time."""
        under_way: dict[Future[Outcome], Call] = {}
        done: SimpleQueue[Future[Outcome]] = SimpleQueue()
        try:
            while queue or under_way:
                while queue and len(under_way) < most:
                    call = queue.popleft()
                    if self.store.has(call.key):  # another sweep has made it meanwhile
                        self.done.found += 1
                        continue
                    try:
                        future = engine.submit(perform, call)
                    except RuntimeError as error:
                        raise SweepError(
                            f"the executor accepts no more runs ({error}): pass a new one; finished runs are kept"
                        ) from error
                    under_way[future] = call
                    future.add_done_callback(done.put)
                if under_way:
                    future = done.get()
                    self.settle(under_way.pop(future), outcome_of(future), queue)
        finally:
            for future in under_way:
                future.cancel()

    def settle(self, call: Call, outcome: Outcome, queue: deque[Call]) -> None:
        """Handle an outcome."""
        task, done = self.tasks[call.key], self.done
        if outcome.payload is not None:
            self.store.put(call.key, outcome.payload)
            done.made += 1
        elif outcome.transient and self.mishaps[call.key] < self.retries:
            self.mishaps[call.key] += 1
            queue.append(call)
            if self.shown.enabled:
                say(f"{task}: {outcome.message}; trying again")
        else:
            done.failures.append(Failure(task, outcome.message, self.mishaps[call.key] + 1))
        count = done.found + done.made + len(done.failures)
        self.shown.reach(count, failed=len(done.failures), last=str(task))


def outcome_of(future: Future[Outcome]) -> Outcome:
    """Return the outcome of a task; a future that raises has lost its worker."""
    try:
        return future.result()
    except Exception as error:
        words = (str(error).strip().splitlines() or [""])[0]
        return Outcome(None, f"a worker was lost: {type(error).__name__}: {words}", transient=True)


# The worker ---------------------------------------------------------------------------------------------------------


def perform(call: Call) -> Outcome:
    """Run a task in a worker process of any executor, with one kernel thread."""
    os.environ.update(ONE_THREAD)
    return perform_here(call)


def perform_here(call: Call) -> Outcome:
    """Run a task and return its outcome; exceptions of the task do not end the process."""
    try:
        with tempfile.TemporaryDirectory(prefix="peakrl-") as folder:
            store = Store(folder)
            store.write(made(call))
            return Outcome(store.path(call.key).read_bytes())
    except (Exception, SystemExit) as error:
        message = str(error) if isinstance(error, PeakError) else described(error)
        return Outcome(None, message, transient=isinstance(error, OSError | MemoryError))


def made(call: Call) -> Result:
    """Call the function and return its result."""
    task = Task(call.function, call.config)
    if task.key != call.key:
        raise SweepError(
            f"the key of the run is {task.key} here but {call.key} in the sweep: "
            "the machines run different versions of peakrl, numba or Python"
        )
    function = load_function(call.function, call.search)
    begun = time.perf_counter()
    folder = FOLDER.set(call.search or ".")
    try:
        returned = function(dict(task.config))
    finally:
        FOLDER.reset(folder)
    return Result.of(task, returned, time.perf_counter() - begun)


def load_function(name: str, search: str | None = None) -> Callable[..., Any]:
    """Return the function "module:name"."""
    if search is not None and search not in sys.path and not name.startswith("peakrl."):
        sys.path.append(search)
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SweepError(f"{name} cannot be imported: {error}") from error
    if not callable(found):
        raise SweepError(f"{name} is {found!r}; it must be a function")
    return found  # type: ignore[no-any-return]


def serve() -> None:
    """Run the tasks of the driver, one line of JSON each, until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # output of tasks goes to stderr
    sys.path.extend(sys.argv[2:])
    if sys.argv[1]:
        with suppress(Exception):  # a task that needs it will raise itself
            load_function(sys.argv[1])()
    with suppress(BrokenPipeError):  # the driver has ended; the result is stored
        for line in calls:
            outcome = perform_here(Call(*json.loads(line)))
            payload = outcome.payload or b""
            answers.write(json.dumps([len(payload), *outcome[1:]]).encode() + b"\n" + payload)


class WorkerProcess:
    """A process with one kernel thread that runs one task after another; it is started again if it has died."""

    def __init__(self, prepare: str = "") -> None:
        self._prepare, self._ended, self._lock = prepare, False, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process, started if there is none."""
        with self._lock:
            if self._ended:
                raise SweepError("the workers have been shut down")
            if self._process is None or self._process.poll() is not None:
                self._stop()
                # What lies in the current folder must not stand in for an installed module: it comes last.
                path, last = os.pathsep.join(filter(None, sys.path)), os.getcwd() if "" in sys.path else ""
                serving = "from peakrl.sweeps.executor import serve; serve()"
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", serving, self._prepare, *filter(None, [last])],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
                    start_new_session=True,  # Ctrl-C goes to the driver only
                )  # fmt: skip
            return self._process

    def perform(self, call: Call) -> Outcome:
        """Run a task in the process."""
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(OSError):  # it has died; the answer is empty
                process.stdin.write(json.dumps(call).encode() + b"\n")
                process.stdin.flush()
            answer = process.stdout.readline()
            if answer.startswith(b"["):
                size, *rest = json.loads(answer)
                payload = process.stdout.read(size)
                if len(payload) == size:
                    return Outcome(payload or None, *rest)
        except BaseException:
            self._stop()
            raise
        code = self._stop()
        how = f"{signal.Signals(-code).name}({code})" if code < 0 else f"exit code {code}"
        return Outcome(None, f"the worker process died: {how}", transient=True)

    def end(self) -> None:
        """End the process and its task for good."""
        with self._lock:
            self._ended = True
        self._stop()

    def _stop(self) -> int:
        """Kill the process, if there is one, and return its exit code."""
        process = self._process
        if process is None:
            return 0
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        return process.wait()


# Executors ----------------------------------------------------------------------------------------------------------


@contextmanager
def local_workers(workers: int | None = None, *, prepare: str | None = None) -> Iterator[Executor]:
    """Yield an executor for several calls of `run_tasks`.

    `workers`: as for `run_tasks`. `prepare`: "module:function", called without arguments in every new process, to load
    what tasks will need.
    """
    count = check_count(usable_cores() if workers is None else workers, "workers")
    with InProcess() if count == 1 else LocalProcesses(count, prepare=prepare) as engine:
        yield engine


class InProcess(Executor):
    """Runs tasks one after another in this process."""

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run the task now."""
        future: Future[Any] = Future()
        future.set_result(perform_here(*args))
        return future


class LocalProcesses(ThreadPoolExecutor):
    """Threads that pass tasks on to as many worker processes."""

    def __init__(self, workers: int, *, prepare: str | None = None) -> None:
        super().__init__(workers)
        self._workers = [WorkerProcess(prepare or "") for _ in range(workers)]
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
            if prepare is not None:
                worker.start()

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run a task in the next free worker."""
        return super().submit(self._perform, *args)

    def _perform(self, call: Call) -> Outcome:
        worker = self._idle.get()
        try:
            return worker.perform(call)
        finally:
            self._idle.put(worker)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Kill the processes and their tasks."""
        for worker in self._workers:
            worker.end()
        super().shutdown(cancel_futures=True)
