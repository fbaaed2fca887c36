"""Tasks, their results, and a folder of results that are named by the keys of their tasks.

    key    = BLAKE2b(canonical JSON of function, configuration, result-schema version, kernel-source digest)
    digest = BLAKE2b(canonical JSON of the scalars, then name, type, shape and bytes of every array)

Equal keys mean the same task, equal digests the same result; the run time is part of neither.

    FOLDER/peakrl-results        marks the folder
    FOLDER/runs/ab/ab12...run    one file per result, written atomically
    FOLDER/names/...             names of the problems and settings of sweeps

Several sweeps may share a folder: a task that two of them run at once has equal results.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import StorageError, SweepError
from peakrl.records import FileKind, Record
from peakrl.specs.spec import as_plain
from peakrl.storage import write_file

#: Increase this when the meaning of stored results changes.
RESULT_SCHEMA = 1
RESULT = FileKind("run result", RESULT_SCHEMA)
MARKER = "peakrl-results"
FOLDER = FileKind("folder of results", RESULT_SCHEMA, "use another folder")
NAMES = FileKind("names of a sweep")

Scalar = bool | int | float | str | None


# Tasks and results --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """A call of `function` ("module:name") with `config`, which is plain JSON."""

    function: str
    config: Mapping[str, Any]
    #: Name for messages; not part of the key.
    name: str = ""

    def __post_init__(self) -> None:
        module, colon, name = str(self.function).partition(":")
        if not (module and colon and name):
            raise SweepError(f'function is {self.function!r}; it must be given as "module:name"')
        if not isinstance(self.config, Mapping):
            raise SweepError(f"config is {self.config!r}; it must be a mapping of plain JSON values")
        # Normalised (tuples become lists): the function gets what the key was computed from.
        object.__setattr__(self, "config", json.loads(canonical(self.config, f"config of {self.function}")))

    @cached_property
    def key(self) -> str:
        """The digest that identifies the task."""
        named = {
            "config": self.config,
            "function": self.function,
            "kernels": kernel_digest(),
            "schema": RESULT_SCHEMA,
        }
        return digest_of(canonical(named, "task").encode())

    def __str__(self) -> str:
        return self.name or f"{self.function} {self.key[:10]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a task: scalars and arrays by name."""

    task: Task
    values: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(repr=False)
    #: Wall time; not part of the digest.
    seconds: float = 0.0

    @classmethod
    def of(cls, task: Task, returned: Any, seconds: float) -> Result:
        """Return the result of a task whose function returned a mapping of scalars and arrays."""
        if not isinstance(returned, Mapping):
            raise SweepError(f"{task.function} returned {type(returned).__name__}; it must return a dict")
        values: dict[str, Scalar] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for name, item in returned.items():
            if isinstance(item, np.ndarray) and item.ndim:
                arrays[str(name)] = item
            elif isinstance(item, np.ndarray | np.generic):
                values[str(name)] = item.item()
            elif item is None or isinstance(item, bool | int | float | str):
                values[str(name)] = item
            else:
                raise SweepError(
                    f"{task.function} returned {name!r} as {type(item).__name__}; it must be a number, text, None or "
                    "an array"
                )
        return cls(task, values, arrays, seconds)

    @cached_property
    def digest(self) -> str:
        """The digest of the result."""
        parts = [canonical(packed(self.values), "values").encode()]
        for name, array in sorted(self.arrays.items()):
            parts.append(f"{name} {array.dtype.str} {array.shape}".encode())
            parts.append(np.ascontiguousarray(array).tobytes())
        return digest_of(*parts)


@cache
def kernel_digest() -> str:
    """Return the digest of the kernel sources, read once per process."""
    from peakrl.jit import source_digest

    return source_digest()


def digest_of(*parts: bytes) -> str:
    """Return a digest of byte strings and their lengths."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def canonical(value: Any, what: str) -> str:
    """Return JSON with sorted keys and no spaces, the same for equal values."""
    return json.dumps(as_plain(value, what), sort_keys=True, separators=(",", ":"), allow_nan=False)


def packed(values: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return scalars as strict JSON, which has no NaN and no infinities."""
    return {
        name: {"not finite": repr(item)} if isinstance(item, float) and not math.isfinite(item) else item
        for name, item in values.items()
    }


def unpacked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `packed`."""
    return {name: float(item["not finite"]) if isinstance(item, dict) else item for name, item in values.items()}


# The folder ---------------------------------------------------------------------------------------------------------


class Store:
    """Results by key in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | Path) -> Store:
        """Return the store of `folder`, created if missing; raise if its schema differs."""
        store = cls(folder)
        try:
            (store.folder / "runs").mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: invalid name
            why = getattr(error, "strerror", None) or error
            raise StorageError(f"cannot create the folder {folder}: {why}") from error
        if not (store.folder / MARKER).exists():
            FOLDER.write(store._prepared(store.folder / MARKER), Record({}, {}))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """Return the store of a folder that exists, or raise."""
        store = cls(folder)
        if not os.path.exists(store.folder / MARKER):  # unlike Path.exists, False for invalid names
            raise StorageError(f"{folder} is not a folder of results: it has no {MARKER}; `peakrl sweep` creates one")
        FOLDER.read(store.folder / MARKER)  # raises for another schema
        return store

    def path(self, key: str) -> Path:
        """The file of the result of `key`."""
        return self.folder / "runs" / key[:2] / f"{key}.run"

    def has(self, key: str) -> bool:
        """Is there a result?"""
        return self.path(key).exists()

    def keys(self) -> set[str]:
        """The keys of all results."""
        return {path.stem for path in (self.folder / "runs").glob("??/*.run")}

    def write(self, result: Result) -> None:
        """Store a result."""
        task = result.task
        plain = {
            "key": task.key,
            "kernels": kernel_digest(),
            "function": task.function,
            "config": dict(task.config),
            "values": packed(result.values),
            "seconds": result.seconds,
        }
        RESULT.write(self._prepared(self.path(task.key)), Record(plain, result.arrays))

    def put(self, key: str, data: bytes) -> None:
        """Store a result given as the bytes of its file."""
        write_file(self._prepared(self.path(key)), data)

    def read(self, key: str) -> Result:
        """Return the result of `key`."""
        try:
            with RESULT.reading(self.path(key)) as record:
                plain = record.plain
                task = Task(plain["function"], plain["config"])
                if plain["key"] != key:
                    raise ValueError(f"it contains the run {plain['key']!r}")
                # The kernel digest may have changed since: use the stored key.
                task.__dict__["key"] = key
                return Result(task, unpacked(plain["values"]), record.arrays, float(plain["seconds"]))
        except StorageError as error:
            raise StorageError(f"{error}; remove the file to run it again") from error

    def keep_names(self, names: dict[str, Any]) -> None:
        """Store the names of the problems and settings of a sweep."""
        path = self.folder / "names" / digest_of(canonical(names, "names").encode())[:20]
        if not path.exists():
            NAMES.write(self._prepared(path), Record(names, {}))

    def kept_names(self) -> list[dict[str, Any]]:
        """The stored names of problems and settings, the latest first."""
        found = []
        paths = (self.folder / "names").glob("*")
        for path in sorted(paths, key=lambda path: (-written(path), path.name)):
            with NAMES.reading(path) as record:
                names = {"name": record.plain["name"]}
                for part in ("problems", "settings"):
                    names[part] = {name: dict(config) for name, config in record.plain[part].items()}
                found.append(names)
        return found

    def _prepared(self, path: Path) -> Path:
        """Create the folder of a new file and return the path."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error
        return path


def written(path: Path) -> int:
    """Return the modification time of a file in nanoseconds; 0 for a broken link."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
