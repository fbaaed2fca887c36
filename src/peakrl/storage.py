"""Files that survive: a JSON manifest and safetensors arrays in one file, written whole or not at all.

Layout: the line `peakrl 1`, the hexadecimal BLAKE2b digest of everything after its own line, the manifest as one line
of JSON, then the safetensors bytes. A single changed byte anywhere is noticed. A file is written under a temporary
name, flushed, renamed, and its folder flushed, so that a kill at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PeakError, StorageError

MAGIC = b"peakrl "
VERSION = 1
#: A temporary file is named by its process and a number, so that threads may write the same file at once; and those
#: that this process is writing.
_OWNER = re.compile(r"([0-9]+)(?:-[0-9]+)?\.tmp")
_numbers = itertools.count()
_in_use: set[str] = set()


def write_file(path: str | Path, data: bytes) -> None:
    """Replace `path` with `data` atomically and durably."""
    if not Path(path).name or "\0" in str(path):
        raise StorageError(f"cannot write {str(path)!r}: this names no file")
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.tmp")
    _in_use.add(temporary.name)
    try:
        remove_leftovers(path)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        _in_use.discard(temporary.name)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files that a killed process left beside `path`; those that are being written stay."""
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        owner = _OWNER.fullmatch(stale.name.removeprefix(f".{path.name}."))
        if owner and stale.name not in _in_use and not _alive(int(owner[1])):
            with contextlib.suppress(OSError):
                stale.unlink()


def _alive(process: int) -> bool:
    if process == os.getpid():
        return False  # what it writes at the moment is in `_in_use`
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # the latter: no process can have such a number
        return False
    except OSError:
        return True
    return True


def write_record(path: str | Path, kind: str, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a manifest and named arrays to `path`."""
    from safetensors import SafetensorError
    from safetensors.numpy import save

    try:
        head = json.dumps({"kind": kind, **manifest}, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"cannot write {path}: its description is not plain JSON ({error})") from error
    try:
        payload = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    except SafetensorError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
    body = head.encode() + b"\n" + payload
    write_file(path, MAGIC + str(VERSION).encode() + b"\n" + _digest(body) + b"\n" + body)


def kind_of(path: str | Path) -> str | None:
    """Return what a file of ours says that it holds; None where it is none of ours."""
    try:
        with open(path, "rb") as file:
            head = [file.readline() for _ in range(3)] if file.read(len(MAGIC)) == MAGIC else []
        return str(json.loads(head[2])["kind"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def read_record(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest and the arrays of a file that `write_record` wrote, or say what is wrong with it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise StorageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    first, _, rest = data.partition(b"\n")
    if not first.startswith(MAGIC):
        raise StorageError(f"{path} is not a peakrl file")
    if first != MAGIC + str(VERSION).encode():
        version = first[len(MAGIC) :][:20].decode(errors="replace")
        raise StorageError(f"{path} has format version {version!r}; this peakrl reads version {VERSION}")
    digest, _, body = rest.partition(b"\n")
    if digest != _digest(body):
        raise StorageError(f"{path} is damaged: its digest does not match its content")
    head, _, payload = body.partition(b"\n")
    try:
        manifest = json.loads(head)
        arrays = load(payload)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise StorageError(f"{path} is damaged: {error}") from error
    found = manifest.get("kind") if isinstance(manifest, dict) else None
    if found != kind:
        raise StorageError(f"{path} holds a {found!r}, not a {kind!r}")
    return manifest, arrays


@contextlib.contextmanager
def fields_of(path: str | Path) -> Iterator[None]:
    """Turn a missing or ill-typed field of a read record into a clear error."""
    try:
        yield
    except PeakError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError(f"{path} lacks a field or holds it in another form: {error}") from error


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=32).hexdigest().encode()
