"""The worker: claim a task, run it, store the result.

The worker stores the result, so that nothing is lost if the driver dies. If the folder is not visible from the worker's
machine, the result is sent to the driver as bytes.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, NamedTuple

from peakrl.errors import PeakError, SweepError

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
    config: dict[str, Any]
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


_one_run = threading.Lock()


def perform_alone(call: Call) -> Outcome:
    """Run a task in a worker process: one kernel thread, one task at a time."""
    os.environ.update(ONE_THREAD)
    with _one_run:
        return perform(call)


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
            outcome = perform_alone(Call(*json.loads(line)))
            answers.write(json.dumps(outcome, default=bytes.hex).encode() + b"\n")


def perform(call: Call) -> Outcome:
    """Run a task and return its outcome; exceptions of the task do not end the process."""
    from peakrl.sweeps.store import Store, visible

    try:
        if not visible(call.folder, call.token):
            return _perform_remotely(call)
        store = Store(call.folder)
        with store.claim(call.key) as claimed:
            if store.has(call.key):
                return Outcome(call.key, DONE)
            if not claimed:
                return Outcome(call.key, BUSY)
            words = store.last_words(call.key)
            if words is not None and words.timed_out:  # some clusters retry on their own
                return Outcome(call.key, DIED)
            with store.mark(call.key) as note:
                _make(call, store, note)
        return Outcome(call.key, DONE)
    except (Exception, SystemExit) as error:
        transient = isinstance(error, OSError | MemoryError)
        return Outcome(call.key, FAILED, describe(error), transient)


def _perform_remotely(call: Call) -> Outcome:
    """Run a task if the folder is not visible, and return the bytes of the result."""
    from peakrl.sweeps.store import Store

    with tempfile.TemporaryDirectory(prefix="peakrl-") as folder, open(os.devnull, "w") as note:
        store = Store(folder)
        _make(call, store, note)
        return Outcome(call.key, DONE, payload=store.path(call.key).read_bytes())


def _make(call: Call, store: Any, note: IO[str]) -> None:
    """Call the function and store its result."""
    from peakrl.sweeps.tasks import Task, split_result

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
            faulthandler.dump_traceback_later(call.time_limit, exit=True, file=note)
            stack.callback(faulthandler.cancel_dump_traceback_later)
        returned = function(dict(task.config))
    values, arrays = split_result(returned, call.function)
    store.write(task, values, arrays, time.perf_counter() - begun)


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
