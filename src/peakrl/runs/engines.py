"""Where runs are made: here, in processes of this machine, or on a cluster; all through joblib.

An engine takes calls from a queue and yields (call, outcome) in whatever order they end; what should be tried again
is put back on the queue meanwhile. On this machine every worker is a loky executor of its own: the death of one
leaves the others at work. Clusters are in `peakrl.runs.clusters`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from peakrl.runs.worker import DIED, ONE_THREAD, Call, Outcome, perform, perform_alone, prepare, serve

ENGINES = ("loky", "ray", "dask")


@dataclass
class Job:
    """A run on its way, and how often it has failed for no fault of its own."""

    call: Call
    mishaps: int = 0


@dataclass(frozen=True)
class Ended:
    """A job with its outcome."""

    job: Job
    outcome: Outcome


Queue = deque[Job]


class Engine(Protocol):
    """A way to make runs."""

    def run(self, queue: Queue) -> Iterator[Ended]:
        """Take jobs from the queue until it is empty and tell how each ended."""


class InProcess:
    """One run after another in this process: the same order every time, and a debugger sees it."""

    def run(self, queue: Queue) -> Iterator[Ended]:
        """Take jobs from the queue until it is empty and tell how each ended."""
        while queue:
            job = queue.popleft()
            yield Ended(job, perform(job.call))


class Slot:
    """One worker process at a time, replaced when it dies."""

    def __init__(self) -> None:
        self.executor: Any = None
        self.job: Job | None = None
        self.future: Any = None

    def start(self, job: Job) -> None:
        """Hand a job to the worker."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        self.job = job
        try:
            self.future = self._ready().submit(perform_alone, job.call)
        except BrokenProcessPool:  # it died while it was idle: nobody's fault
            self.stop()
            self.future = self._ready().submit(perform_alone, job.call)

    def prepare(self, function: str) -> None:
        """Let the worker call "module:function", which loads what runs will need, while it has nothing else to do."""
        self._ready().submit(prepare, function)

    def _ready(self) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        if self.executor is None:
            self.executor = ProcessPoolExecutor(
                max_workers=1, env=ONE_THREAD, initializer=serve, initargs=(os.getpid(),)
            )
        return self.executor

    def finish(self) -> Ended:
        """Return how the job ended that the future was for."""
        job, future = self.job, self.future
        assert job is not None
        self.job = self.future = None
        try:
            return Ended(job, future.result())
        except Exception as error:
            self.stop()
            return Ended(job, Outcome(job.call.key, DIED, death_message(error), transient=True))

    def stop(self) -> None:
        """End the worker."""
        if self.executor is not None:
            executor, self.executor = self.executor, None
            executor.shutdown(wait=True, kill_workers=True)


class LocalProcesses:
    """Worker processes on this machine; inside `with` they stay for the next runs, else they end with these."""

    def __init__(self, workers: int, *, prepare: str | None = None) -> None:
        self.workers = workers
        self._prepare = prepare
        self._slots: list[Slot] = []
        self._kept = False

    def __enter__(self) -> LocalProcesses:
        self._kept = True
        if self._prepare is not None:
            self._slots = [Slot() for _ in range(self.workers)]
            for slot in self._slots:
                slot.prepare(self._prepare)
        return self

    def __exit__(self, *error: Any) -> None:
        self._kept = False
        self._release()

    def run(self, queue: Queue) -> Iterator[Ended]:
        """Take jobs from the queue until it is empty and tell how each ended."""
        from concurrent.futures import FIRST_COMPLETED, wait

        slots = self._slots
        slots += [Slot() for _ in range(min(self.workers, len(queue)) - len(slots))]
        try:
            while queue or any(slot.job for slot in slots):
                for slot in slots:
                    if slot.job is None and queue:
                        slot.start(queue.popleft())
                done = wait([slot.future for slot in slots if slot.job], return_when=FIRST_COMPLETED).done
                for slot in slots:
                    if slot.future in done:
                        yield slot.finish()
        finally:
            # Whoever stops listening also stops the runs that are under way.
            if not self._kept or any(slot.job for slot in slots):
                self._release()

    def _release(self) -> None:
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.stop()


def death_message(error: BaseException) -> str:
    """Return in a line how a worker ended."""
    text = str(error)
    codes = text.partition("The exit codes of the workers are {")[2].partition("}")[0]
    return f"the worker process died: {codes or (text.splitlines() or [type(error).__name__])[0]}"
