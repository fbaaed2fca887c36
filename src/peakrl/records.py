"""Records: how objects are written to files and read again, whatever their kind.

A record consists of plain JSON values and named arrays; it may contain other records. A `FileKind` names what a file
contains and the version of its fields. Each array is declared once, as a `Field`, from which its type, shape and range
are checked before anything else reads it:

    KIND = FileKind("model", schema=1)
    FIELDS = {
        "row_start": Field(np.int64, "slot", splits="row"),      # [slot + 1]: divides the rows among the slots
        "row_action": Field(np.int32, "row", below="action"),    # [row]: indices of actions
    }

    record = Record({"name": name}, {"row_start": row_start, "row_action": row_action})
    record.add("actions", store_labels(action_labels))           # a record inside of the record
    KIND.write(path, record)

    with KIND.reading(path) as record:                           # what is wrong with its content is a StorageError
        labels = load_labels(record.part("actions"))
        arrays = record.checked(FIELDS, action=len(labels))      # read-only

An axis has one length in all arrays of a record: the one that is passed, or that of the first array that has the axis.

A file consists of the line `peakrl 1`, the hexadecimal BLAKE2b digest of everything after its own line, the plain
values as one line of JSON, then the arrays as safetensors bytes. Any changed byte is detected.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl import storage
from peakrl.errors import PeakError, StorageError
from peakrl.storage import from_json, reading, write_file
from peakrl.version import __version__

MAGIC = b"peakrl "
VERSION = 1
#: Characters of a digest.
DIGEST_LENGTH = 64
#: What a field that is missing or has the wrong type makes a reader raise.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)

Arrays = dict[str, NDArray[Any]]


class Field(NamedTuple):
    """The declaration of an array: its type, its axes and the range of its numbers."""

    dtype: type[np.generic]
    #: Name of the axis, or for each axis its name or length.
    axes: str | tuple[str | int, ...]
    #: The axis that its numbers are indices of; `low` may allow negative ones.
    below: str | None = None
    #: The axis that it divides among the members of its own: one number more than members, from 0 to the length.
    splits: str | None = None
    #: Smallest and largest number; NaN lies in no range.
    low: float | None = None
    high: float | None = None


@dataclass
class Record:
    """Plain JSON values and arrays by name; the arrays of a record inside of it have the prefix `NAME.`."""

    plain: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)

    def add(self, name: str, record: Record) -> None:
        """Add a record inside of this one."""
        self.plain[name] = record.plain
        self.arrays |= {f"{name}.{key}": array for key, array in record.arrays.items()}

    def part(self, name: str) -> Record:
        """Return the record that was added under this name; one of arrays alone has no plain values."""
        prefix = f"{name}."
        own = {key.removeprefix(prefix): array for key, array in self.arrays.items() if key.startswith(prefix)}
        plain = self.plain.get(name, {})
        if not isinstance(plain, dict):
            raise ValueError(f"{name} is not a table")
        return Record(plain, own)

    def checked(self, fields: Mapping[str, Field], **sizes: int) -> Arrays:
        """Return read-only arrays by name; a ValueError names the first that differs from its declaration.

        `sizes` are lengths of axes that are known.
        """
        arrays = {name: typed(self.arrays[name], name, declared, sizes) for name, declared in fields.items()}
        for name, declared in fields.items():
            check_range(arrays[name], name, declared, sizes)
        return arrays


def typed(array: NDArray[Any], name: str, declared: Field, sizes: dict[str, int]) -> NDArray[Any]:
    """Return an array, read-only, of the declared type and axes; the length of a new axis is added to `sizes`."""
    axes = (declared.axes,) if isinstance(declared.axes, str) else declared.axes
    lengths = list(array.shape)
    if declared.splits is not None and lengths:
        lengths[0] -= 1
    known = array.dtype == declared.dtype and len(lengths) == len(axes) and min(lengths, default=0) >= 0
    for axis, length in zip(axes, lengths, strict=False):
        known = known and (axis if isinstance(axis, int) else sizes.setdefault(axis, length)) == length
    if not known:
        wanted = ", ".join(f"{axis} {sizes.get(str(axis), '')}".strip() for axis in axes)
        form = f"array {name!r} is {array.dtype} of shape {array.shape}"
        raise ValueError(f"{form}, not {declared.dtype.__name__} of ({wanted})")
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


def check_range(array: NDArray[Any], name: str, declared: Field, sizes: Mapping[str, int]) -> None:
    """Raise ValueError if a number is outside of the declared range."""
    low, high = declared.low, declared.high
    if declared.below is not None:
        low, high = 0 if low is None else low, sizes[declared.below] - 1
    if declared.splits is not None:
        end = sizes[declared.splits]
        if array[0] != 0 or array[-1] != end or bool((array[1:] < array[:-1]).any()):
            raise ValueError(f"{name} does not divide 0 .. {end}, the indices of {declared.splits}")
    if array.size and not ((low is None or array.min() >= low) and (high is None or array.max() <= high)):
        wanted = f"indices of {declared.below}" if declared.below else "allowed"
        raise ValueError(f"{name} holds numbers from {array.min()} to {array.max()}; {wanted} are {low} to {high}")


class FileKind(NamedTuple):
    """What a file contains: its name, and the version of its fields; other versions are refused."""

    name: str
    schema: int = 1
    #: What to do about a file of another version.
    remedy: str = "read it with that version, or make it again"

    def write(self, path: str | Path, record: Record) -> None:
        """Write a record to a file."""
        write_file(path, self.content(path, record))

    def content(self, path: str | Path, record: Record) -> bytes:
        """Return what `write` writes."""
        return record_content(path, self.name, self.header() | record.plain, record.arrays)

    def header(self) -> dict[str, Any]:
        """Return the values that every file begins with."""
        return {"schema": self.schema, "peakrl": __version__}

    def read(self, path: str | Path, content: bytes | None = None) -> Record:
        """Return the record of a file, or raise; `content` is that of the file if it is part of another one."""
        record = Record(*read_record(path, self.name, content))
        with content_of(path):
            if record.plain["schema"] != self.schema:
                raise StorageError(
                    f"{path} was written by peakrl {record.plain['peakrl']} (schema {record.plain['schema']}), and "
                    f"this peakrl reads schema {self.schema}: {self.remedy}"
                )
        return record

    @contextlib.contextmanager
    def reading(self, path: str | Path) -> Iterator[Record]:
        """Yield the record of a file; errors about its content, also those of the block, become StorageErrors."""
        record = self.read(path)
        with content_of(path):
            yield record


@contextlib.contextmanager
def content_of(path: str | Path) -> Iterator[None]:
    """Turn errors about the content of a file, which the block validates, into StorageErrors."""
    try:
        yield
    except StorageError:
        raise
    except KeyError as error:
        raise StorageError(f"{path} is damaged: it lacks {error}") from error
    except (PeakError, *MALFORMED) as error:
        raise StorageError(f"{path} is damaged: {error}") from error


@contextlib.contextmanager
def fields_of(path: str | Path) -> Iterator[None]:
    """Turn errors about missing or ill-typed fields of a record into a StorageError."""
    try:
        yield
    except PeakError:
        raise
    except MALFORMED as error:
        raise StorageError(f"{path} lacks a field or holds it in another form: {error}") from error


# Files -----------------------------------------------------------------------------------------------------------


def write_record(path: str | Path, kind: str, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a manifest and named arrays to `path`."""
    write_file(path, record_content(path, kind, manifest, arrays))


def record_content(
    path: str | Path, kind: str, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> bytes:
    """Return what `write_record` writes."""
    from safetensors import SafetensorError
    from safetensors.numpy import save

    try:
        head = json.dumps({"kind": kind, **manifest}, allow_nan=False, sort_keys=True)
        storage.refuse_surrogates(head, manifest)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"cannot write {path}: its description is not plain JSON ({error})") from error
    try:
        payload = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    except SafetensorError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
    body = head.encode() + b"\n" + payload
    return MAGIC + str(VERSION).encode() + b"\n" + _digest(body) + b"\n" + body


def kind_of(path: str | Path) -> str | None:
    """Return the kind of a peakrl file; None for other files."""
    try:
        with reading(path) as file:
            head = [file.readline() for _ in range(3)] if file.read(len(MAGIC)) == MAGIC else []
        return str(json.loads(head[2])["kind"])
    except (StorageError, ValueError, LookupError, TypeError, RecursionError):
        return None


def read_record(
    path: str | Path, kind: str, content: bytes | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest and the arrays of a file that `write_record` wrote, or raise."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    # In parts, so that a large file is not copied.
    with reading(path) if content is None else io.BytesIO(content) as file:
        first, digest = file.readline(len(MAGIC) + 20), b""
        if first.startswith(MAGIC):
            digest = file.readline(DIGEST_LENGTH + 2)
        head, payload = (file.readline(), file.read()) if digest else (b"", b"")
    if not (first.startswith(MAGIC) and first.endswith(b"\n")):
        meant = "; a problem file becomes a run by `peakrl train`" if str(path).endswith((".toml", ".json")) else ""
        raise StorageError(f"{path} is not a peakrl file{meant}")
    if first.rstrip(b"\n") != MAGIC + str(VERSION).encode():
        version = first[len(MAGIC) :].rstrip(b"\n")[:20].decode(errors="replace")
        raise StorageError(f"{path} has format version {version!r}; this peakrl reads version {VERSION}")
    if digest != _digest(head, payload) + b"\n":
        raise StorageError(f"{path} is damaged: its digest does not match its content")
    try:
        manifest = from_json(head)
        arrays = dict(sorted(load(payload).items()))  # safetensors does not keep the order
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise StorageError(f"{path} is damaged: {error}") from error
    found = manifest.get("kind") if isinstance(manifest, dict) else None
    if found != kind:
        raise StorageError(f"{path} holds a {found!r}, not a {kind!r}")
    return manifest, arrays


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_LENGTH // 2)
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
