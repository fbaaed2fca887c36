"""What happens in a worker: claim a run, make it, store what came out.

The worker stores the result, so a driver that dies loses nothing. On a machine that does not see the folder the
result travels back as bytes and the driver stores it.
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

#: One thread for everything that would start more: processes run side by side.
ONE_THREAD = {
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}

#: Where the run under way was described: paths in its configuration are relative to it.
FOLDER: ContextVar[str] = ContextVar("folder", default=".")
DONE, FAILED, DIED, BUSY = "done", "failed", "died", "busy"


class Call(NamedTuple):
    """All that a worker needs to know of a run; plain values, cheap to send."""

    key: str
    function: str
    config: dict[str, Any]
    folder: str
    token: str
    time_limit: float | None
    #: Where modules named by the user are looked for besides the usual places, and paths of the configuration begin.
    search: str | None


class Outcome(NamedTuple):
    """How a run ended."""

    key: str
    status: str
    message: str = ""
    #: Worth another try: the machine was at fault, not the run.
    transient: bool = False
    #: The stored form of the result, where the worker does not see the folder.
    payload: bytes | None = None


_one_run = threading.Lock()


def perform_alone(call: Call) -> Outcome:
    """Make a run in a worker process: one kernel thread, one run at a time."""
    os.environ.update(ONE_THREAD)
    with _one_run:
        return perform(call)


def serve() -> None:
    """Make the runs that the driver asks for, a line of JSON each, until the driver ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a run prints
    if sys.argv[1]:
        with suppress(Exception):  # a run that needs more will say so itself
            load_function(sys.argv[1])()
    with suppress(BrokenPipeError):  # the driver has ended, and the run is stored
        for line in calls:
            outcome = perform_alone(Call(*json.loads(line)))
            answers.write(json.dumps(outcome, default=bytes.hex).encode() + b"\n")


def perform(call: Call) -> Outcome:
    """Make a run, and say how it ended; the process survives whatever the run raises."""
    from peakrl.sweeps.store import Store, visible

    try:
        if not visible(call.folder, call.token):
            return _perform_afar(call)
        store = Store(call.folder)
        with store.claim(call.key) as held:
            if store.has(call.key):
                return Outcome(call.key, DONE)
            if not held:
                return Outcome(call.key, BUSY)
            words = store.last_words(call.key)
            if words is not None and words.timed_out:  # some clusters try again on their own
                return Outcome(call.key, DIED)
            with store.mark(call.key) as note:
                _make(call, store, note)
        return Outcome(call.key, DONE)
    except (Exception, SystemExit) as error:
        transient = isinstance(error, OSError | MemoryError)
        return Outcome(call.key, FAILED, describe(error), transient)


def _perform_afar(call: Call) -> Outcome:
    """Make a run where the folder is out of sight, and bring back the file's bytes."""
    from peakrl.sweeps.store import Store

    with tempfile.TemporaryDirectory(prefix="peakrl-") as folder, open(os.devnull, "w") as note:
        store = Store(folder)
        _make(call, store, note)
        return Outcome(call.key, DONE, payload=store.path(call.key).read_bytes())


def _make(call: Call, store: Any, note: IO[str]) -> None:
    """Call the function and store what it returns."""
    from peakrl.sweeps.tasks import Task, split_result

    task = Task(call.function, call.config)
    if task.key != call.key:
        raise SweepError(
            f"the run's key is {task.key} here and {call.key} where the sweep was started: "
            "the machines run different versions of peakrl, numba or Python"
        )
    function = load_function(call.function, call.search)
    begun = time.perf_counter()
    with ExitStack() as stack:
        stack.callback(FOLDER.reset, FOLDER.set(call.search or "."))
        if call.time_limit is not None:
            # A watchdog that needs neither the interpreter nor its lock: it ends the process, compiled loops and all.
            faulthandler.dump_traceback_later(call.time_limit, exit=True, file=note)
            stack.callback(faulthandler.cancel_dump_traceback_later)
        returned = function(dict(task.config))
    values, arrays = split_result(returned, call.function)
    store.write(task, values, arrays, time.perf_counter() - begun)


def load_function(name: str, search: str | None = None) -> Callable[..., Any]:
    """Return the function that "module:name" stands for."""
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
    """Return an error as one line, with its place unless its message is made for users."""
    if isinstance(error, PeakError):
        return str(error)
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text
