"""A folder of results, named by their keys.

    FOLDER/peakrl-results.json   result schema, and a token that identifies the folder
    FOLDER/runs/ab/ab12...run    one file per result, written atomically
    FOLDER/names/...json         names of the problems and settings of sweeps
    FOLDER/running/ab12...       process of a task; stays if the process dies
    FOLDER/claims                one byte of this file is locked for each running task

A claim is a lock of the operating system and ends with the process that holds it. It prevents two sweeps that share the
folder from running the same task; on file systems without locks both run it, with equal results.
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
from peakrl.records import fields_of, read_record, write_record
from peakrl.storage import from_json, read_file, write_file
from peakrl.sweeps.tasks import RESULT_SCHEMA, Result, Task, digest_of, kernel_digest, packed, unpacked

KIND = "run result"
MARKER = "peakrl-results.json"


class Store:
    """Results by key in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | Path) -> Store:
        """Return the store of `folder`, created if missing; raise if its schema differs."""
        store = cls(folder)
        try:
            for part in ("runs", "running"):
                (store.folder / part).mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: invalid name
            raise StorageError(
                f"cannot create the folder {folder}: {getattr(error, 'strerror', None) or error}"
            ) from error
        with store._locked(-1):  # two sweeps may start at once
            if not (store.folder / MARKER).exists():
                marker = {"kind": "peakrl results", "schema": RESULT_SCHEMA, "token": uuid.uuid4().hex}
                write_file(store._prepared(store.folder / MARKER), json.dumps(marker, indent=1).encode() + b"\n")
        store.check()
        return store

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """Return the store of a folder that exists, or raise."""
        store = cls(folder)
        if not os.path.exists(store.folder / MARKER):  # unlike Path.exists, False for invalid names
            raise StorageError(f"{folder} is not a folder of results: it has no {MARKER}; `peakrl sweep` creates one")
        store.check()
        return store

    def check(self) -> None:
        """Raise unless this peakrl can read and write the folder's results."""
        schema = self.marker().get("schema")
        if schema != RESULT_SCHEMA:
            raise StorageError(
                f"{self.folder / MARKER}: schema is {schema!r}; this peakrl writes schema {RESULT_SCHEMA}: "
                "use another folder"
            )

    def marker(self) -> dict[str, Any]:
        """The description of the folder."""
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
        """Identifies the folder, also from other machines."""
        return str(self.marker().get("token", ""))

    def path(self, key: str) -> Path:
        """The file of the result of `key`."""
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
        write_record(self._prepared(self.path(task.key)), KIND, manifest, arrays)

    def put(self, key: str, data: bytes) -> None:
        """Store a result given as the bytes of its file."""
        write_file(self._prepared(self.path(key)), data)

    def _prepared(self, path: Path) -> Path:
        """Create the folder of a new file, and remove a link in its place; return the path."""
        self._check_links(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():
                path.unlink()
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error
        return path

    def _check_links(self, path: Path) -> None:
        """Raise if a subfolder on the path is a link, which could lead to files outside of the folder."""
        for folder in path.relative_to(self.folder).parents:
            if folder.parts and (self.folder / folder).is_symlink():
                raise StorageError(
                    f"{self.folder / folder} is a link, and nothing is written through it; only {self.folder} "
                    "itself may be a link"
                )

    def read(self, key: str) -> Result:
        """Return the result of `key`."""
        path = self.path(key)
        try:
            manifest, arrays = read_record(path, KIND)
        except StorageError as error:
            raise StorageError(f"{error}; remove the file to run it again") from error
        with fields_of(path):
            task = Task(manifest["function"], manifest["config"])
            if manifest["key"] != key:
                raise ValueError(f"it contains the run {manifest['key']!r}")
            # The kernel digest may have changed since: use the stored key.
            task.__dict__["key"] = key
            return Result(task, unpacked(manifest["values"]), arrays, float(manifest["seconds"]))

    # --- names ---

    def keep_names(self, names: dict[str, Any]) -> None:
        """Store the names of the problems and settings of a sweep."""
        data = json.dumps(names, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
        path = self.folder / "names" / f"{digest_of(data)[:20]}.json"
        if not path.exists():
            write_file(self._prepared(path), data)

    def kept_names(self) -> list[dict[str, Any]]:
        """The stored names of problems and settings, the latest first."""
        found = []
        paths = (self.folder / "names").glob("*.json")
        for path in sorted(paths, key=lambda path: (-written(path), path.name)):
            try:
                found.append(checked_names(from_json(read_file(path))))
            except (ValueError, RecursionError) as error:
                raise StorageError(f"{path} cannot be read: {error}") from error
        return found

    # --- claims ---

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Hold the claim on `key` while the block runs; False if another process holds it."""
        # 60 bits of the key: two keys that share them would merely wait for each other.
        with self._locked(int(key[:15], 16)) as claimed:
            yield claimed

    @contextlib.contextmanager
    def _locked(self, byte: int) -> Iterator[bool]:
        """Lock one byte of the claims file; -1 waits for byte 2^62, any other returns at once."""
        try:
            import fcntl
        except ImportError:  # pragma: no cover (no such locks on this system)
            yield True
            return
        with self._own_file("claims", os.O_APPEND) as file:
            locked = True
            try:
                if byte < 0:
                    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1 << 62)
                else:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except (BlockingIOError, PermissionError):
                locked = False
            except OSError:
                pass  # the file system has no locks
            yield locked

    @contextlib.contextmanager
    def _own_file(self, name: str, flags: int) -> Iterator[IO[str]]:
        """Open a file of the folder for writing; never a link or a pipe, in case the folder is not trusted."""
        path = self.folder / name
        self._check_links(path)
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
        """Write a note about the process of `key` while the block runs; it stays if the process dies."""
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
        """Return the note of a task; None if there is none."""
        try:
            text = read_file(self.folder / "running" / key).decode(errors="replace")
        except StorageError:
            return None
        where, _, rest = text.partition("\n")
        thread, _, trace = rest.partition("\n")
        return LastWords(where, location_of(trace, thread), trace.startswith("Timeout ("))

    def forget(self, keys: Container[str]) -> None:
        """Remove notes of earlier sweeps."""
        self._check_links(self.folder / "running" / "any")
        for path in (self.folder / "running").iterdir():
            if path.name in keys:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise StorageError(f"cannot remove {path}: {error.strerror}") from error


def written(path: Path) -> int:
    """Return the modification time of a file in nanoseconds; 0 for a broken link."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class LastWords(NamedTuple):
    """What is known about a task whose process died."""

    #: Process and machine.
    where: str
    #: The line of code at the time limit; empty otherwise.
    location: str
    timed_out: bool


def location_of(trace: str, thread: str) -> str:
    """Return the innermost line of `thread` in a traceback of all threads, without folders."""
    lines = trace.partition(f"Thread {thread}")[2].splitlines()[1:]
    innermost = lines[0].strip().removeprefix("File ") if lines else ""
    return innermost.rpartition("/")[2].replace('"', "")


def visible(folder: str | Path, token: str) -> bool:
    """Is `folder` on this machine the store with this token?"""
    try:
        return Store(folder).token == token
    except PeakError:
        return False


def checked_names(names: Any) -> dict[str, Any]:
    """Return checked names of problems and settings."""
    for part in ("problems", "settings"):
        called = names.get(part) if isinstance(names, dict) else None
        if not isinstance(called, dict) or not all(isinstance(config, dict) for config in called.values()):
            raise ValueError(f"it contains no names of {part}")
    return dict(names)
