"""A folder of results, named by their keys.

    FOLDER/peakrl-results.json   what made the folder: the result schema, and a token that tells it from all others
    FOLDER/runs/ab/ab12...run    one result a file, written whole or not at all
    FOLDER/names/...json         what sweeps call their problems and settings
    FOLDER/running/ab12...       who is at it; a run that died leaves its last words here
    FOLDER/claims                one byte of this file is locked for each run that is being made

A claim is a lock of the operating system, so it ends with the process that holds it, however it ends. It keeps two
sweeps that share the folder from making the same run; where locks are not to be had both make it, and the later
result takes the place of an equal one.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from numpy.typing import NDArray

from peakrl.errors import PeakError, StorageError
from peakrl.storage import fields_of, from_json, read_file, read_record, write_file, write_record
from peakrl.sweeps.tasks import RESULT_SCHEMA, Result, Task, digest_of, kernel_digest, packed, unpacked

KIND = "run result"
MARKER = "peakrl-results.json"


class Store:
    """Results by key in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | Path) -> Store:
        """Return the store of `folder`, made if it is not there yet; raise if another schema made it."""
        store = cls(folder)
        try:
            for part in ("runs", "running"):
                (store.folder / part).mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: a name that no folder can have
            raise StorageError(
                f"cannot make the folder {folder}: {getattr(error, 'strerror', None) or error}"
            ) from error
        with store._locked(-1):  # two sweeps may start at once
            if not (store.folder / MARKER).exists():
                marker = {"kind": "peakrl results", "schema": RESULT_SCHEMA, "token": uuid.uuid4().hex}
                write_file(store._place(store.folder / MARKER), json.dumps(marker, indent=1).encode() + b"\n")
        store.check()
        return store

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """Return the store of a folder that exists, or raise."""
        store = cls(folder)
        if not os.path.exists(store.folder / MARKER):  # which says no, and raises nothing, of a name that cannot be
            raise StorageError(f"{folder} is not a folder of results: it has no {MARKER}; `peakrl sweep` makes one")
        store.check()
        return store

    def check(self) -> None:
        """Raise unless this peakrl can read and write the folder's results."""
        schema = self.marker().get("schema")
        if schema != RESULT_SCHEMA:
            raise StorageError(
                f"{self.folder / MARKER}: schema is {schema!r}; this peakrl writes schema {RESULT_SCHEMA}: "
                "give another folder"
            )

    def marker(self) -> dict[str, Any]:
        """What the folder says of itself."""
        path = self.folder / MARKER
        try:
            marker = from_json(read_file(path))
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{path} cannot be read: {error}") from error
        if not isinstance(marker, dict) or marker.get("kind") != "peakrl results":
            raise StorageError(f"{path} is not the description of a folder of results")
        return marker

    @property
    def token(self) -> str:
        """What tells this folder from another of the same path on another machine."""
        return str(self.marker().get("token", ""))

    def path(self, key: str) -> Path:
        """Where the result of `key` is, or will be."""
        return self.folder / "runs" / key[:2] / f"{key}.run"

    def has(self, key: str) -> bool:
        """Is there a result?"""
        return self.path(key).exists()

    def keys(self) -> set[str]:
        """The keys of all results."""
        return {path.stem for path in (self.folder / "runs").glob("??/*.run")}

    def write(self, task: Task, values: dict[str, Any], arrays: dict[str, NDArray[Any]], seconds: float) -> None:
        """Store a result."""
        manifest = {
            "schema": RESULT_SCHEMA,
            "key": task.key,
            "kernels": kernel_digest(),
            "function": task.function,
            "config": dict(task.config),
            "values": packed(values),
            "seconds": seconds,
        }
        write_record(self._place(self.path(task.key)), KIND, manifest, arrays)

    def put(self, key: str, data: bytes) -> None:
        """Store a result that is in its stored form already."""
        write_file(self._place(self.path(key)), data)

    def _place(self, path: Path) -> Path:
        """Return where a new file of the folder goes: into its own folder, and through no link out of it."""
        self._check_way(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():
                path.unlink()
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error
        return path

    def _check_way(self, path: Path) -> None:
        """Raise where a folder on the way to a file is a link: whoever sent it may mean files of somebody else."""
        for folder in path.relative_to(self.folder).parents:
            if folder.parts and (self.folder / folder).is_symlink():
                raise StorageError(
                    f"{self.folder / folder} is a link, and nothing is written through it; where results are to be "
                    f"elsewhere, let {self.folder} itself be one"
                )

    def read(self, key: str) -> Result:
        """Return the result of `key`."""
        path = self.path(key)
        try:
            manifest, arrays = read_record(path, KIND)
        except StorageError as error:
            raise StorageError(f"{error}; remove the file to have the run made again") from error
        with fields_of(path):
            task = Task(manifest["function"], manifest["config"])
            if manifest["key"] != key:
                raise ValueError(f"it tells of the run {manifest['key']!r}")
            # Of an older kernel, perhaps: it goes by the key under which it was stored.
            task.__dict__["key"] = key
            return Result(task, unpacked(manifest["values"]), arrays, float(manifest["seconds"]))

    # --- what the runs are called ---

    def keep_names(self, names: dict[str, Any]) -> None:
        """Keep what a sweep calls its problems and settings."""
        data = json.dumps(names, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
        path = self.folder / "names" / f"{digest_of(data)[:20]}.json"
        if not path.exists():
            write_file(self._place(path), data)

    def kept_names(self) -> list[dict[str, Any]]:
        """What the sweeps of this folder call their problems and settings, the latest first."""
        found = []
        paths = (self.folder / "names").glob("*.json")
        for path in sorted(paths, key=lambda path: (-written(path), path.name)):
            try:
                found.append(checked_names(from_json(read_file(path))))
            except (ValueError, RecursionError) as error:
                raise StorageError(f"{path} cannot be read: {error}") from error
        return found

    # --- who is at it ---

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Hold the claim on `key` while the block runs; False if another process holds it."""
        # 62 bits of the key: two keys that share them would merely wait for each other.
        with self._locked(int(key[:15], 16)) as held:
            yield held

    @contextlib.contextmanager
    def _locked(self, byte: int) -> Iterator[bool]:
        """Lock one byte of the claims file; -1 waits for byte 2^62, any other returns at once."""
        try:
            import fcntl
        except ImportError:  # pragma: no cover (no such locks on this system)
            yield True
            return
        with self._own_file("claims", os.O_APPEND) as file:
            held = True
            try:
                if byte < 0:
                    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1 << 62)
                else:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except (BlockingIOError, PermissionError):
                held = False
            except OSError:
                pass  # a file system without locks: go without
            yield held

    @contextlib.contextmanager
    def _own_file(self, name: str, flags: int) -> Iterator[IO[str]]:
        """Open a file of the folder's own to write to, which is made where it is not there.

        Whoever sent the folder may have put a link to another file there, or a pipe: neither is written to.
        """
        path = self.folder / name
        self._check_way(path)
        plain = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            number = os.open(path, flags | os.O_WRONLY | os.O_CREAT | plain, 0o666)
            file = os.fdopen(number, "w", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}; remove it") from error
        with file:
            yield file

    @contextlib.contextmanager
    def mark(self, key: str) -> Iterator[IO[str]]:
        """Keep a note of who runs `key` while the block runs; a death leaves it behind."""
        name = f"running/{key}"
        path = self.folder / name
        with self._own_file(name, os.O_TRUNC) as file:
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n0x{threading.get_ident():016x}\n")
            file.flush()
            try:
                yield file
            finally:
                path.unlink(missing_ok=True)

    def last_words(self, key: str) -> LastWords | None:
        """Return what the note of a run says; None if there is none."""
        try:
            text = read_file(self.folder / "running" / key).decode(errors="replace")
        except StorageError:
            return None
        where, _, rest = text.partition("\n")
        thread, _, trace = rest.partition("\n")
        return LastWords(where, place_of(trace, thread), trace.startswith("Timeout ("))

    def forget(self, keys: Container[str]) -> None:
        """Remove the notes that runs of earlier sweeps left behind."""
        self._check_way(self.folder / "running" / "any")
        for path in (self.folder / "running").iterdir():
            if path.name in keys:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise StorageError(f"cannot remove {path}: {error.strerror}") from error


def written(path: Path) -> int:
    """Return when a file was written, in nanoseconds; 0 where it cannot be told: a link that leads nowhere."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class LastWords(NamedTuple):
    """What is known of a run that ended with its process."""

    #: Process and machine.
    where: str
    #: The line of code that it was at when its time was up; empty otherwise.
    place: str
    timed_out: bool


def place_of(trace: str, thread: str) -> str:
    """Return the innermost line of `thread` in a traceback of all threads, without folders."""
    lines = trace.partition(f"Thread {thread}")[2].splitlines()[1:]
    innermost = lines[0].strip().removeprefix("File ") if lines else ""
    return innermost.rpartition("/")[2].replace('"', "")


def visible(folder: str | Path, token: str) -> bool:
    """Is `folder`, as seen from here, the store with this token?"""
    try:
        return Store(folder).token == token
    except PeakError:
        return False


def checked_names(names: Any) -> dict[str, Any]:
    """Return what a sweep calls its problems and settings, or raise ValueError where that is something else."""
    for part in ("problems", "settings"):
        called = names.get(part) if isinstance(names, dict) else None
        if not isinstance(called, dict) or not all(isinstance(config, dict) for config in called.values()):
            raise ValueError(f"it holds no names of {part}")
    return dict(names)
