"""The one decorator of every kernel: compiled on first use, without the GIL, kept in a disk cache.

Numba's own cache notices an edit of the file that holds a function, but not of another file whose functions it
calls. The cache folder of a file is therefore named by a digest of that file and of all kernel files that it imports,
directly or not: an edit starts a new folder for just the files that it may concern. Folders of other versions that
nobody has used for a month are removed when a new one is made.

Of several processes that need a kernel at the same time one compiles it; the others wait, and read it from the disk.
With `PEAKRL_COMPILE_LOG=file` every kernel that is compiled adds a line to that file.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import math
import multiprocessing
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Event, Listener, register
from numba.core.registry import CPUDispatcher
from numba.core.runtime.nrt import rtsys

P = ParamSpec("P")
R = TypeVar("R")


DAY = 24 * 3600.0
#: What `source_digest` returns.
_DIGEST = re.compile(r"[0-9a-f]{20}")
_IMPORTS = re.compile(r"^from peakrl\.kernels\.([\w.]+) import", re.MULTILINE)


def source_digest(path: str | Path | None = None) -> str:
    """Return the digest of a kernel file with all that it imports (of every kernel file: None) and of its compilers."""
    here = Path(__file__).parent
    files = set(here.rglob("*.py")) if path is None else {Path(__file__)}
    pending = [] if path is None else [Path(path)]
    while pending:
        file = pending.pop()
        if file not in files and file.exists():
            files.add(file)
            names = _IMPORTS.findall(file.read_text(encoding="utf-8"))
            pending += [here.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    digest = hashlib.blake2b(digest_size=10)
    digest.update(f"{sys.version_info[:2]} {numba.__version__}".encode())
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def _cache_folder(path: str) -> Path | None:
    """Return a writable folder for the compiled kernels of a file, or None where there is none."""
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(root).expanduser() / "peakrl" / f"{Path(path).stem}-{source_digest(path)}"
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    if not os.access(folder, os.W_OK):
        return None
    note_use(folder)
    if new:
        remove_old_folders(folder)
    return folder


def note_use(folder: Path) -> None:
    """Mark a cache folder as used now: the time at which it was changed is what `remove_old_folders` goes by."""
    with contextlib.suppress(OSError):
        if time.time() - folder.stat().st_mtime > DAY:
            os.utime(folder)


def remove_old_folders(folder: Path, days: float = 30.0) -> None:
    """Remove the folders of other versions of a kernel file that were not used for so long; nothing here may fail.

    A process that still runs such a version has its functions in memory; at worst it compiles one again.
    """
    name, _, own = folder.name.rpartition("-")
    with contextlib.suppress(OSError):
        for other in folder.parent.glob(f"{glob.escape(name)}-*"):
            stem, _, digest = other.name.rpartition("-")
            if stem != name or digest == own or not _DIGEST.fullmatch(digest) or other.is_symlink():
                continue
            with contextlib.suppress(OSError):
                if time.time() - other.stat().st_mtime > days * DAY:
                    shutil.rmtree(other, ignore_errors=True)


#: Seconds are those of a first `learn` with a free second core and without; a server of 2020. Other calls take less.
COMPILING = "peakrl: compiling kernels that were not needed before, kept for next time; a first learn takes 10 to 20 s"
#: So many seconds after the last kernel was compiled, compiling another is news again.
NEWS_AFTER = 2.0


class Announcer(Listener):
    """Tells people why nothing happens for a while: when compiling begins, and when it begins again after a pause."""

    #: When a kernel was last begun or done.
    last = -math.inf

    def on_start(self, event: Event) -> None:
        """Numba begins to compile a function; one that is in the cache is not compiled."""
        function = event.data["dispatcher"].py_func
        ours = function.__module__.startswith("peakrl.")
        if ours and watched():
            if time.monotonic() - self.last > NEWS_AFTER:
                print(COMPILING, file=sys.stderr, flush=True)
            self.last = time.monotonic()
        if ours and COMPILE_LOG in os.environ:
            note_compiled(function, event.data["args"])

    def on_end(self, event: Event) -> None:
        """Numba is done."""
        self.last = time.monotonic()


#: Names a file that `note_compiled` writes to.
COMPILE_LOG = "PEAKRL_COMPILE_LOG"


def note_compiled(function: Callable[..., Any], types: Any) -> None:
    """Add a line for a kernel: process, cache folder, module, name, argument types (of long ones a digest)."""
    folder = _cache_folder(function.__code__.co_filename)
    texts = [str(each) for each in types]
    short = [text if len(text) < 50 else hashlib.blake2b(text.encode(), digest_size=4).hexdigest() for text in texts]
    line = (str(os.getpid()), str(folder), function.__module__, function.__name__, " ".join(short))
    with open(os.environ[COMPILE_LOG], "a", encoding="utf-8") as log:
        log.write("\t".join(line) + "\n")


def watched() -> bool:
    """May somebody read what this process prints, in a terminal, a notebook or a log? Of a worker nobody does."""
    return multiprocessing.current_process().name == "MainProcess" and sys.stderr is not None


register("numba:compile", Announcer())  # type: ignore[no-untyped-call]

#: max and min may ignore NaN and the sign of zero; everything else stays strictly IEEE, so results are reproducible.
_LOOP = {"_nrt": False, "fastmath": {"nnan", "nsz"}}


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that may allocate arrays."""
    return _compile(function)


def loop(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates nothing: without reference counts, which would cost more than the work."""
    return _compile(function, **_LOOP)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a small function that is merged into the `kernel` or `loop` that calls it."""
    return _compile(function, inline="always")


def inner_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a `kernel` that only kernels call: without an entry for Python, which takes as long to compile again."""
    return _compile(function, _Inner, no_cpython_wrapper=True)


def inner_loop(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a `loop` that only kernels call."""
    return _compile(function, _Inner, no_cpython_wrapper=True, **_LOOP)


class _Disk(FunctionCache):
    """Where compiled kernels are kept: reading one needs numba's runtime, not the rules by which it compiles.

    Numba would load those as well, 0.4 s of a first `learn`. Of compiled code only hashes of strings and parallel
    loops call what they bring, and kernels have neither.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Read a compiled kernel; None where it is not there, and numba then loads its rules before it compiles."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


class _Kernel(CPUDispatcher):
    """A compiled function, kept in `folder`."""

    folder: Path

    def compile(self, sig: Any) -> Any:
        """Compile for some argument types, or read it from the disk; no other process compiles it at the same time."""
        # First numba's lock: another thread may hold it and come to this kernel on its way.
        with global_compiler_lock, alone(self.folder / f"{self.py_func.__name__}.lock"):
            return super().compile(sig)


class _Inner(_Kernel):
    """A kernel without an entry: numba would jump to address 0."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} is an inner kernel: only kernels may call it")


#: Locks of this process; numba's own lock keeps its other threads out.
_HELD: set[Path] = set()


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock among all processes of this machine, where there are such locks."""
    if path in _HELD:  # numba may begin anew while it compiles
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):  # without one, a kernel may be compiled twice
            import fcntl

            fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX)
        _HELD.add(path)
        stack.callback(_HELD.remove, path)
        yield


def kept(function: Callable[..., Any]) -> bool:
    """Is a compiled form of a kernel on the disk, or is there no room for one?"""
    folder = getattr(function, "folder", None)
    return folder is None or any(folder.rglob(f"*{function.__name__}-*.nbi"))


def _compile(function: Callable[P, R], kind: type[_Kernel] = _Kernel, **options: Any) -> Callable[P, R]:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        # Words of 64 bits wrap around when they are multiplied; numpy would warn of what compiled code is meant to do.
        return np.errstate(over="ignore")(function)
    # Nobody calls a kernel from C: an entry for it would be compiled in vain.
    options |= {"nogil": True, "no_cfunc_wrapper": True}
    folder = _cache_folder(function.__code__.co_filename)
    if folder is None:
        options.pop("no_cpython_wrapper", None)
        return cast(Callable[P, R], numba.njit(**options)(function))
    # Numba fixes a function's cache folder when it is decorated: set it for that moment only, so that the
    # user's own numba functions are left alone.
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before
    compiled.__class__, compiled.folder, compiled._cache.__class__ = kind, folder, _Disk
    return cast(Callable[P, R], compiled)
