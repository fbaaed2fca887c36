"""Runs on a cluster: Ray or Dask, by the name of their joblib backends.

`joblib.Parallel` gives up everything when a worker is lost. Here a loss is turned into an outcome instead: nothing
new is handed out, what the other workers have under way comes to its end, and then the rest is handed out to the
workers that there are now. Whose run died is told by the note that it left in the folder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from peakrl.cores import usable_cores
from peakrl.errors import SettingsError, SweepError
from peakrl.runs.engines import Ended, Job, Queue
from peakrl.runs.store import Store
from peakrl.runs.worker import DIED, ONE_THREAD, Outcome, perform_alone

#: How many rounds in a row may end without a single outcome before the cluster is given up.
BARREN_ROUNDS = 3


class Cluster:
    """Workers of a Ray or Dask cluster."""

    def __init__(self, engine: str, workers: int | None, address: str | None) -> None:
        connect = {"ray": ray_cluster, "dask": dask_cluster}[engine]
        self.engine, self.workers = engine, workers
        self._connect: Callable[[], contextlib.AbstractContextManager[Any]] = lambda: connect(workers, address)

    def run(self, queue: Queue) -> Iterator[Ended]:
        """Take jobs from the queue until it is empty and tell how each ended."""
        with self._connect() as new_backend:
            barren = 0
            while queue:
                jobs = {job.call.key: job for job in queue}
                queue.clear()
                backend = new_backend()
                barren += 1
                for outcome in self._round(backend, jobs):
                    if outcome.key:  # a loss has none: nobody is left to tell it
                        barren = 0
                        yield Ended(jobs.pop(outcome.key), outcome)
                yield from self._bereaved(jobs, queue, backend.losses.message)
                if barren > BARREN_ROUNDS:
                    raise SweepError(f"the engine {self.engine} makes no runs: {backend.losses.message}")

    def _round(self, backend: Any, jobs: dict[str, Job]) -> Iterator[Outcome]:
        from joblib import Parallel, delayed

        # From the thread that hands out: a snapshot, since outcomes take jobs away meanwhile.
        calls = (delayed(perform_alone)(job.call) for job in list(jobs.values()) if not backend.losses.any())
        parallel = Parallel(
            n_jobs=backend.room, backend=backend, return_as="generator_unordered", batch_size=1,
            pre_dispatch=backend.room,
        )  # fmt: skip
        try:
            yield from parallel(calls)
        except SweepError:
            raise
        except Exception as error:  # whatever a cluster may raise when it falls apart
            backend.losses.note(error)

    def _bereaved(self, jobs: dict[str, Job], queue: Queue, message: str) -> Iterator[Ended]:
        """Tell the runs that died with a worker from those that were merely to come."""
        for job in jobs.values():
            store = Store(job.call.folder)
            if store.has(job.call.key) or store.begun(job.call.key):
                yield Ended(job, Outcome(job.call.key, DIED, message, transient=True))
            else:
                queue.append(job)


class Losses:
    """The workers lost in a round."""

    def __init__(self) -> None:
        self.message = ""
        self._event = threading.Event()

    def note(self, error: BaseException) -> list[Outcome]:
        """Take down a loss, and return the outcome that stands for it."""
        self.message = f"a worker was lost: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        self._event.set()
        return [Outcome("", DIED, self.message)]

    def any(self) -> bool:
        """Has a worker been lost?"""
        return self._event.is_set()


# --- Ray ---


@contextlib.contextmanager
def ray_cluster(workers: int | None, address: str | None) -> Iterator[Callable[[], Any]]:
    """Yield a maker of joblib backends on a Ray cluster: the one at `address`, or one started on this machine."""
    # Read by Ray when it is imported: keep GPU settings as they are, and do not report home.
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
        yield lambda: _ray_backend(workers)
    finally:
        if ours:
            ray.shutdown()


def _ray_backend(workers: int | None) -> Any:
    """Return a joblib backend on the nodes that are alive now."""
    ray, parent = optional("ray", "ray"), optional("ray.util.joblib.ray_backend", "ray").RayBackend
    new_pool = optional("ray.util.multiprocessing", "ray").Pool

    class Backend(parent):  # type: ignore[misc,valid-type]  # of an optional package, hence without a type
        """Ray's backend, with losses as outcomes and each call given to an idle worker."""

        supports_return_generator = True

        def __init__(self, room: int) -> None:
            super().__init__()
            self.room, self.losses = room, Losses()
            self._load = [0] * room

        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, n_jobs)  # joblib would run a single job in this process

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            # One core a worker, or Ray would put them all on one node.
            options = {"num_cpus": 1, "runtime_env": {"env_vars": ONE_THREAD}}
            self._pool, self.parallel = new_pool(self.room, ray_remote_args=options), parallel
            return max(2, n_jobs)

        def submit(self, func: Any, callback: Any = None) -> Any:
            # Ray's pool goes round its workers whether idle or not: point it at an idle one.
            chosen = self._load.index(min(self._load))
            self._load[chosen] += 1
            self._pool._current_index = (chosen or self.room) - 1

            def release(result: Any) -> None:
                self._load[chosen] -= 1
                callback(result)

            return super().submit(func, release)

        def retrieve_result_callback(self, result: Any) -> Any:
            try:
                return super().retrieve_result_callback(result)
            except ray.exceptions.RayError as error:
                return self.losses.note(error)

    cpus = sum(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    if cpus < 1:
        raise SweepError("the Ray cluster has no core left")
    return Backend(min(workers or cpus, cpus))


# --- Dask ---


@contextlib.contextmanager
def dask_cluster(workers: int | None, address: str | None) -> Iterator[Callable[[], Any]]:
    """Yield a maker of joblib backends on a Dask cluster: the one at `address`, or one started on this machine."""
    distributed, dask_config = optional("distributed", "dask"), optional("dask.config", "dask")
    with contextlib.ExitStack() as stack:
        if address is None:
            count = workers or usable_cores()
            # Trying again is for us to do, and to count.
            stack.enter_context(dask_config.set({"distributed.scheduler.allowed-failures": 0}))
            local = distributed.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
            target: Any = stack.enter_context(local)
        else:
            target = address
        try:
            client = stack.enter_context(distributed.Client(target, timeout=10))
        except (OSError, ValueError) as error:
            raise SettingsError(f"there is no Dask cluster at {address!r}: {error}") from error
        yield lambda: _dask_backend(client, workers)


def _dask_backend(client: Any, workers: int | None) -> Any:
    """Return a joblib backend on the workers that there are now."""
    from joblib._dask import DaskDistributedBackend

    class Backend(DaskDistributedBackend):  # type: ignore[misc]  # joblib ships no types
        """Dask's backend, with losses as outcomes."""

        def __init__(self, room: int) -> None:
            super().__init__(client=client, pure=False)
            self.room, self.losses = room, Losses()

        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, n_jobs)  # joblib would run a single job in this process

        def submit(self, func: Any, callback: Any = None) -> Any:
            future = super().submit(func, callback)
            # The backend tells of results only; unheard, a loss would be waited for without end.
            future.add_done_callback(lambda done: done.exception() and callback(done.exception()))
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            if isinstance(out, Exception):
                return self.losses.note(out)
            return super().retrieve_result_callback(out)

    threads = sum(client.ncores().values())
    return Backend(max(1, min(workers or threads, threads)))


def optional(module: str, extra: str) -> Any:
    """Return a module of an optional package, or raise and say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SettingsError(f"the engine {extra} is not installed here: install peakrl[{extra}]") from None
