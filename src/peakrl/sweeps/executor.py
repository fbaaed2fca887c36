"""Run the tasks that have no result yet, retry those whose worker died, and read all results.

Any `concurrent.futures.Executor` can run tasks; this module has executors for this process, for processes of this
machine, for Ray and for Dask. An executor gets `perform` and a call, and its future returns the outcome. A future that
raises has lost its worker, and the task is submitted again. On this machine a thread per worker process exchanges lines
of JSON with it, so that the death of one process does not affect the others.

The worker stores the result, so that nothing is lost if the driver dies. If the folder is not visible from the worker's
machine, the result is sent to the driver as bytes.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from peakrl.checks import check_choice, check_count, check_number
from peakrl.cores import usable_cores
from peakrl.errors import PeakError, SettingsError, SweepError
from peakrl.progress import Progress
from peakrl.sweeps.store import Result, Store, Task, visible

#: Seconds between two checks of tasks that another sweep is running.
PATIENCE = 0.2
#: Most tasks that are submitted at a time if `workers` is None.
MOST = 1000
#: Most failures that an error message lists.
SHOWN = 10
ENGINES = ("processes", "ray", "dask")
#: One thread per process, since processes run in parallel.
ONE_THREAD = {
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
#: Folder of the present task: paths in its configuration are relative to it.
FOLDER: ContextVar[str] = ContextVar("folder", default=".")
DONE, FAILED, DIED, BUSY = "done", "failed", "died", "busy"


class Call(NamedTuple):
    """A task for a worker, as plain values."""

    key: str
    function: str
    config: Mapping[str, Any]
    folder: str
    token: str
    time_limit: float | None
    #: Folder of user modules and of relative paths in the configuration.
    search: str | None


class Outcome(NamedTuple):
    """The outcome of a task."""

    key: str
    status: str
    message: str = ""
    #: Worth a retry: the machine failed, not the task.
    transient: bool = False
    #: The stored form of the result, if the folder is not visible to the worker.
    payload: bytes | None = None


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

    The options are those of `complete`: `workers`, `engine`, `retries`, `time_limit`, `progress` and others. Failures
    are raised after all other tasks are done.
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
    engine: str | Executor = "processes",
    address: str | None = None,
    retries: int = 2,
    time_limit: float | None = None,
    progress: bool = False,
    title: str = "Runs",
    search: str | None = None,
) -> Completion:
    """Run the tasks without a result in `folder`; return failures instead of raising.

    Parameters
    ----------
    workers
        Processes (None: one per core; 1: in this process, unless there is a time limit).
    engine, address
        "processes"; "ray" or "dask", with the address of a cluster; or any `concurrent.futures.Executor` of processes,
        such as that of `local_workers`.
    retries
        Retries of a task whose worker died.
    time_limit
        Seconds per task.
    progress, title
        Show progress on stderr, under this title.
    search
        Folder of user modules and of relative paths in configurations.
    """
    check_options(engine, workers, address, retries, time_limit)
    unique = {task.key: task for task in tasks}
    if not unique:
        return Completion()
    store = Store.create(folder)
    missing = missing_tasks(unique.values(), store)
    done = Completion(found=len(unique) - len(missing))
    if missing:
        token, absolute = store.token, str(store.folder.absolute())
        calls = [Call(t.key, t.function, t.config, absolute, token, time_limit, search) for t in missing]
        with (
            chosen_engine(engine, workers, address, time_limit) as chosen,
            Progress(title, total=len(unique), unit="runs", begin=done.found, enabled=progress) as shown,
        ):
            most = 1 if isinstance(chosen, InProcess) else workers or MOST
            _Driver(store, unique, retries, done, shown).drive(chosen, deque(calls), most)
    return done


def missing_tasks(tasks: Iterable[Task], store: Store) -> list[Task]:
    """Return the distinct tasks without a result, in order."""
    there = store.keys()
    return [task for task in dict.fromkeys(tasks) if task.key not in there]


def check_options(
    engine: str | Executor, workers: int | None, address: str | None, retries: int, time_limit: float | None
) -> None:
    """Raise if an option of `complete` is invalid."""
    if workers is not None:
        check_count(workers, "workers")
    if not isinstance(engine, Executor):
        check_choice(engine, "engine", ENGINES)
    if address is not None and engine not in ("ray", "dask"):
        raise SettingsError("address is for the engines ray and dask only")
    check_count(retries, "retries", 0)
    if time_limit is not None:
        check_number(time_limit, "time_limit", above=0, otherwise=" of seconds, or None")


class _Driver:
    """Submits tasks and handles their outcomes: done, retry, give up, or wait for another sweep."""

    def __init__(self, store: Store, tasks: dict[str, Task], retries: int, done: Completion, shown: Progress) -> None:
        self.store, self.tasks, self.retries, self.done, self.shown = store, tasks, retries, done, shown
        #: Lost workers of each task.
        self.mishaps: Counter[str] = Counter()
        #: Tasks that another sweep is running.
        self.waiting: list[Call] = []

    def drive(self, engine: Executor, queue: deque[Call], most: int) -> None:
        """Run until every task is done or has failed, with at most `most` of them submitted at a time."""
        under_way: dict[Future[Outcome], Call] = {}
        done: SimpleQueue[Future[Outcome]] = SimpleQueue()
        for call in queue:
            if call.time_limit is not None:
                self.store.unmark(call.key)  # of an earlier sweep
        try:
            while queue or under_way or self.waiting:
                while queue and len(under_way) < most:
                    call = queue.popleft()
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
                    call = under_way.pop(future)
                    self.settle(call, self.outcome_of(future, call), queue)
                else:  # another sweep is running the rest: check again later
                    time.sleep(PATIENCE)
                    queue.extend(self.waiting)
                    self.waiting.clear()
        finally:
            for future in list(under_way):
                future.cancel()
            if under_way and isinstance(engine, LocalProcesses):
                engine.shutdown()

    def outcome_of(self, future: Future[Outcome], call: Call) -> Outcome:
        """Return the outcome of a task; a future that raises has lost its worker, maybe after the task was done."""
        try:
            outcome = future.result()
        except Exception as error:
            words = (str(error).strip().splitlines() or [""])[0]
            message = f"a worker was lost: {type(error).__name__}: {words}"
            outcome = Outcome(call.key, DIED, message, transient=True)
        if outcome.payload is not None:
            self.store.put(call.key, outcome.payload)
        if outcome.status == DIED and self.store.has(call.key):
            return outcome._replace(status=DONE)
        if outcome.status == DIED and call.time_limit is not None and self.store.timed_out(call.key):
            # A retry would take as long.
            return outcome._replace(message=f"the time limit of {call.time_limit:g} s has passed", transient=False)
        return outcome

    def settle(self, call: Call, outcome: Outcome, queue: deque[Call]) -> None:
        """Handle an outcome."""
        task, done = self.tasks[call.key], self.done
        if outcome.status == BUSY:
            self.waiting.append(call)
        elif outcome.transient and outcome.status != DONE and self.mishaps[call.key] < self.retries:
            self.mishaps[call.key] += 1
            queue.append(call)
        elif outcome.status == DONE:
            done.made += 1
        else:
            done.failures.append(Failure(task, outcome.message, self.mishaps[call.key] + 1))
        count = done.found + done.made + len(done.failures)
        self.shown.reach(count, failed=len(done.failures), last=str(task))


# The worker ---------------------------------------------------------------------------------------------------------

_one_run = threading.Lock()


def perform(call: Call) -> Outcome:
    """Run a task in a worker process: one kernel thread, one task at a time."""
    os.environ.update(ONE_THREAD)
    with _one_run:
        return perform_here(call)


def perform_here(call: Call) -> Outcome:
    """Run a task and return its outcome; exceptions of the task do not end the process."""
    try:
        if not visible(call.folder, call.token):
            with tempfile.TemporaryDirectory(prefix="peakrl-") as folder:
                store = Store.create(folder)
                _make(call, store)
                return Outcome(call.key, DONE, payload=store.path(call.key).read_bytes())
        store = Store(call.folder)
        with store.claim(call.key) as claimed:
            if store.has(call.key):
                return Outcome(call.key, DONE)
            if not claimed:
                return Outcome(call.key, BUSY)
            if call.time_limit is not None and store.timed_out(call.key):  # some clusters retry on their own
                return Outcome(call.key, DIED)
            _make(call, store)
        return Outcome(call.key, DONE)
    except (Exception, SystemExit) as error:
        return Outcome(call.key, FAILED, describe(error), transient=isinstance(error, OSError | MemoryError))


def _make(call: Call, store: Store) -> None:
    """Call the function and store its result."""
    task = Task(call.function, call.config)
    if task.key != call.key:
        raise SweepError(
            f"the key of the run is {task.key} here but {call.key} in the sweep: "
            "the machines run different versions of peakrl, numba or Python"
        )
    function = load_function(call.function, call.search)
    begun = time.perf_counter()
    with ExitStack() as stack:
        stack.callback(FOLDER.reset, FOLDER.set(call.search or "."))
        if call.time_limit is not None:
            # A watchdog without the GIL: it ends the process even in compiled loops.
            note = stack.enter_context(store.mark(call.key))
            faulthandler.dump_traceback_later(call.time_limit, exit=True, file=note)
            stack.callback(faulthandler.cancel_dump_traceback_later)
        returned = function(dict(task.config))
    store.write(Result.of(task, returned, time.perf_counter() - begun))


def load_function(name: str, search: str | None = None) -> Callable[..., Any]:
    """Return the function "module:name"."""
    module, _, attribute = name.partition(":")
    if search is not None and search not in sys.path and not module.startswith("peakrl."):
        sys.path.append(search)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise SweepError(f"{name}: the module {module!r} cannot be imported: {error}") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SweepError(f"{name}: the module {module!r} has no function {attribute!r}")
    return found  # type: ignore[no-any-return]


def describe(error: BaseException) -> str:
    """Return an error as one line, with its location unless it is a PeakError."""
    if isinstance(error, PeakError):
        return str(error)
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text


def serve() -> None:
    """Run the tasks of the driver, one line of JSON each, until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # output of tasks goes to stderr
    if sys.argv[1]:
        with suppress(Exception):  # a task that needs it will raise itself
            load_function(sys.argv[1])()
    with suppress(BrokenPipeError):  # the driver has ended; the result is stored
        for line in calls:
            outcome = perform(Call(*json.loads(line)))
            answers.write(json.dumps(outcome, default=bytes.hex).encode() + b"\n")


# Executors ----------------------------------------------------------------------------------------------------------


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


class InProcess(Executor):
    """Runs tasks one after another in this process."""

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run the task now."""
        future: Future[Any] = Future()
        future.set_result(perform_here(*args))
        return future


class LocalProcesses(ThreadPoolExecutor):
    """Threads with a worker process each, which has one kernel thread; a process that died is replaced."""

    def __init__(self, workers: int, *, prepare: str | None = None) -> None:
        super().__init__(workers)
        self._prepare = prepare
        self._lock, self._own = threading.Lock(), threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopped = False
        for _ in range(workers if prepare is not None else 0):
            super().submit(self._process)

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Run a task in the next free worker."""
        return super().submit(self._perform, *args)

    def _process(self) -> subprocess.Popen[bytes]:
        """Return the process of this thread."""
        process: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if process is None or process.poll() is not None:
            path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
            process = self._own.process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from peakrl.sweeps.executor import serve; serve()", self._prepare or ""],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C goes to the driver only
            )  # fmt: skip
            with self._lock:
                self._processes.append(process)
                if self._stopped:
                    process.kill()
        return process

    def _perform(self, call: Call) -> Outcome:
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # it has died; the answer is empty
            process.stdin.write(json.dumps(call).encode() + b"\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if answer.endswith(b"\n"):
            outcome = Outcome(*json.loads(answer))
            return outcome._replace(payload=outcome.payload and bytes.fromhex(str(outcome.payload)))
        code = stopped(process)
        how = f"{signal.Signals(-code).name}({code})" if code < 0 else f"exit code {code}"
        return Outcome(call.key, DIED, f"the worker process died: {how}", transient=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Kill the processes and their tasks."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                process.kill()
        super().shutdown(cancel_futures=True)
        for process in self._processes:
            stopped(process)


def stopped(process: subprocess.Popen[bytes]) -> int:
    """Close the pipes of a worker process, which ends it, and return its exit code."""
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()
    return process.wait()


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


@contextmanager
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


@contextmanager
def dask_engine(workers: int | None, address: str | None) -> Iterator[Executor]:
    """Yield an executor on the Dask cluster at `address`, or on one started on this machine."""
    distributed = optional("distributed", "dask")
    with ExitStack() as stack:
        target: Any = address
        if address is None:
            count = workers or usable_cores()
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
