"""What makes runs: any `concurrent.futures.Executor`; here are ours, of this process, this machine, Ray and Dask.

An executor is given `perform_alone` and a call, and its future returns the outcome. A future that raises has lost its
worker, and the run is submitted again. On this machine a thread waits for each worker process and exchanges lines of
JSON with it, so that the death of one leaves the others at work.
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
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from peakrl.errors import SettingsError
from peakrl.sweeps.worker import DIED, ONE_THREAD, Call, Outcome, perform

ENGINES = ("loky", "ray", "dask")
Engine = Executor


class InProcess(Executor):
    """One run after another in this process: the same order every time, and a debugger sees it."""

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Make the run now."""
        future: Future[Any] = Future()
        future.set_result(perform(args[0]))
        return future


class Worker:
    """A process that makes runs; a new one takes its place when it dies."""

    def __init__(self, prepare: str | None) -> None:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from peakrl.sweeps.worker import serve; serve()", prepare or ""],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the driver
        )  # fmt: skip

    def perform(self, call: Call) -> Outcome:
        """Let the process make a run, and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):  # it has died, as the empty answer says
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
        """End the process and return its exit code; one that has closed its output is about to end by itself."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        return self.process.wait()


class LocalProcesses(Executor):
    """Worker processes on this machine, each with one kernel thread; they start when they are needed and then stay."""

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
        """Make a run in the next worker that is free."""
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
        """End the processes, and with them the runs that are under way."""
        with self._lock:
            self._stopped = True
            for worker in self._workers:
                worker.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.stop()


class RayTasks(Executor):
    """Runs as tasks of Ray."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._under_way: dict[Future[Any], Any] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Submit a task; a lost worker is for the driver to count, so Ray does not try again."""
        remote = self._ray.remote(num_cpus=1, max_retries=0, runtime_env={"env_vars": ONE_THREAD})(fn)
        reference = remote.remote(*args)
        future: Future[Any] = reference.future()
        self._under_way[future] = reference
        future.add_done_callback(lambda done: self._under_way.pop(done, None))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what is under way."""
        for reference in list(self._under_way.values()):
            self._ray.cancel(reference, force=True)


@contextlib.contextmanager
def ray_engine(workers: int | None, address: str | None) -> Iterator[Engine]:
    """Yield an engine on the Ray cluster at `address`, or on one started on this machine."""
    # Read by Ray when it is imported: keep GPU settings as they are, and send no usage statistics.
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
def dask_engine(workers: int | None, address: str | None) -> Iterator[Engine]:
    """Yield an engine on the Dask cluster at `address`, or on one started on this machine."""
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
    """Return a module of an optional package, or raise and say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SettingsError(f"the engine {extra} is not installed here: install peakrl[{extra}]") from None
