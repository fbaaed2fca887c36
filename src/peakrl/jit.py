"""Decorators that compile kernels with numba: without the GIL, on first use, cached on disk.

The cache folder is named by the versions of Python and numba and by `source_digest`: numba notices an edit of the file
that holds a kernel, but not of another file whose kernels and constants it uses. Numba functions of other packages keep
their own cache folder.

The files of the cache are numba's pickles, and reading one may run any code: on POSIX systems the folder is used only
if it belongs to the user and no one else may write there.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core.event import Event, Listener, register  # the only notice of compiling that numba gives

P = ParamSpec("P")
R = TypeVar("R")
config: Any = numba.config

COMPILING = "peakrl: compiling kernels, cached for next time; a first learn takes 10 to 20 s"
#: How long compiling may take before it is announced.
PATIENCE = 1.0
UNSAFE = "peakrl: kernels are compiled without a cache, since {} is not yours or others may write to it: chmod go-w"
COMPILERS = f"python{sys.version_info[0]}.{sys.version_info[1]}-numba{numba.__version__}"
MONTH = 30 * 24 * 3600.0
#: max and min may ignore NaN and the sign of zero; everything else stays strictly IEEE, so results are reproducible.
LOOP: dict[str, Any] = {"fastmath": {"nnan", "nsz"}}
if hasattr(getattr(getattr(numba.core, "options", None), "DefaultOptions", None), "_nrt"):
    LOOP["_nrt"] = False  # not a public option: otherwise reference counts cost more than what short loops do


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that may allocate arrays."""
    return _compile(function)


def loop(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates nothing, without reference counts."""
    return _compile(function, **LOOP)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a small function that is merged into the `kernel` or `loop` that calls it."""
    return _compile(function, inline="always")


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    if config.DISABLE_JIT:
        # 64-bit words wrap around when they are multiplied; numpy would warn, compiled code does not.
        return np.errstate(over="ignore")(function)
    before, folder = config.CACHE_DIR, cache_folder()
    # Numba reads the folder when a function is decorated.
    config.CACHE_DIR = str(folder)
    try:
        decorate = numba.njit(cache=folder is not None, nogil=True, **options)
        return cast(Callable[P, R], decorate(function))
    finally:
        config.CACHE_DIR = before


@cache
def source_digest() -> str:
    """Return a digest of Python, numba, the source files that define kernels, and those that they import from."""
    root = Path(__file__).parents[__name__.count(".")]
    files = (root / __name__.partition(".")[0]).rglob("*.py")
    sources = {".".join(file.relative_to(root).with_suffix("").parts): file.read_text("utf-8") for file in files}
    used = {name for name, source in sources.items() if f"from {__name__} import" in source}
    for name in list(used):
        used.update(re.findall(r"^from ([\w.]+) import", sources[name], re.MULTILINE))
    digest = hashlib.blake2b(COMPILERS.encode(), digest_size=10)
    for name in sorted(used & sources.keys()):
        digest.update(f"{name}\0{sources[name]}\0".encode())
    return digest.hexdigest()


@cache
def cache_folder() -> Path | None:
    """Return the folder for compiled kernels; None, for no cache, if it cannot be written to."""
    root = config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(root).expanduser() / "peakrl" / f"kernels-{COMPILERS}-{source_digest()}"
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for own in (folder.parent, folder):
            own.mkdir(mode=0o700, exist_ok=True)
            if hasattr(os, "getuid") and (own.stat().st_uid != os.getuid() or own.stat().st_mode & 0o022):
                print(UNSAFE.format(own), file=sys.stderr, flush=True)
                return None
        os.utime(folder)
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None
    if not os.access(folder, os.W_OK):
        return None
    clean(folder)
    return folder


def clean(folder: Path) -> None:
    """Remove damaged files, whose kernels numba then compiles again, and folders that were not used for a month."""
    for file in folder.glob("*/*.nb[ic]"):
        with suppress(OSError):
            data = file.read_bytes()
            if data[:1] != b"\x80" or data[-1:] != b".":  # cut short, or not a pickle
                file.unlink()
    for other in folder.parent.glob("kernels-*"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > MONTH:
                shutil.rmtree(other, ignore_errors=True)


class CompileNotice(Listener):
    """Prints once why nothing happens for a while: when compiling kernels has taken more than `PATIENCE` seconds."""

    #: Seconds of all compiling, when the current one began (kernels compile those that they call), and how deep it is.
    spent, begun, depth = 0.0, 0.0, 0
    shown = False

    def on_start(self, event: Event) -> None:
        """Note when compiling starts."""
        self._pass(event, 1)

    def on_end(self, event: Event) -> None:
        """Note when compiling stops."""
        self._pass(event, -1)

    def _pass(self, event: Event, change: int) -> None:
        if not event.data["dispatcher"].py_func.__module__.startswith("peakrl."):
            return
        now = time.monotonic()
        if self.depth:
            self.spent += now - self.begun
        self.begun, self.depth = now, self.depth + change
        main = multiprocessing.current_process().name == "MainProcess" and sys.stderr is not None
        if main and not self.shown and self.spent > PATIENCE:
            self.shown = True
            print(COMPILING, file=sys.stderr, flush=True)


register("numba:compile", CompileNotice())  # type: ignore[no-untyped-call]
