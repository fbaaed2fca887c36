"""Atomic files: written under a temporary name, flushed, renamed, and their folder flushed.

After a kill at any moment either the old file or the new one exists. `records` defines what files contain.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from peakrl.errors import StorageError

#: Spreadsheets take cells that begin with these for formulas, which may read files or run programs.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
#: Share of free memory that reading a file or building a model may take; smaller files are always read.
SHARE, SMALL = 0.75, 1 << 26
#: A surrogate in JSON.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


class Disk:
    """The system calls that write a file; tests replace them by a failing disk."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file and flush it."""
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, path: Path, target: Path) -> None:
        """Replace a file by another."""
        os.replace(path, target)

    def flush_folder(self, folder: Path) -> None:
        """Flush the entries of a folder."""
        if os.name == "nt":  # folders cannot be opened there
            return
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)


disk = Disk()


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a file for reading, or raise a StorageError."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > SMALL and size > (limit := available_memory() * SHARE):
                raise OSError(f"it has {size / 1e9:.3g} GB, more than the limit of {limit / 1e9:.3g} GB")
            yield file
    except (OSError, ValueError) as error:  # ValueError: an invalid name
        raise StorageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except MemoryError as error:
        raise StorageError(f"cannot read {path}: it does not fit in memory") from error


def available_memory() -> float:
    """Return the bytes of free memory; infinity if the system does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024.0
    except (OSError, ValueError, IndexError):
        pass
    return math.inf


def read_file(path: str | Path) -> bytes:
    """Return a file's content."""
    with reading(path) as file:
        return file.read()


def file_digest(path: str | Path) -> str:
    """Return a digest of a file's content."""
    return hashlib.blake2b(read_file(path), digest_size=10).hexdigest()


def write_file(path: str | Path, data: bytes) -> None:
    """Replace `path` with `data` atomically and durably; links are followed."""
    with replacing(path) as temporary:
        disk.write(temporary, data)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the name of a temporary file, which replaces `path` on success and is removed otherwise."""
    path = writable(path)
    temporary = path.with_name(f".{path.name[:40]}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        disk.rename(temporary, path)
        disk.flush_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            disk.remove(temporary)
        if isinstance(error, OSError):
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def writable(path: str | Path) -> Path:
    """Return the path that a file will be written to, with links followed, or raise if that is impossible."""
    place = Path(path)
    try:
        place = Path(os.path.realpath(path)) if place.is_symlink() else place
        if not place.name or str(path) == "-" or "\0" in place.name:
            why = "this names no file"
        elif place.is_dir():
            why = "it is a folder; name a file in it"
        elif place.exists() and not place.is_file():
            why = "it is a device, a pipe or a socket, not a file"
        elif not place.parent.is_dir():
            why = f"there is no folder {place.parent}"
        elif not os.access(place.parent, os.W_OK):
            why = f"the folder {place.parent} may not be written to"
        else:
            return place
    except OSError as error:  # a name that is too long
        why = str(error.strerror)
    raise StorageError(f"cannot write {str(path)!r}: {why}")


def ready(*paths: str | Path | None) -> None:
    """Raise if a file that will be written later cannot be."""
    for path in paths:
        if path is not None:
            writable(path)


def quoted(value: Any) -> Any:
    """Return a cell of a CSV file: text that a spreadsheet would run as a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def from_json(text: bytes | str) -> Any:
    """Return the value of a JSON text, or raise ValueError."""
    found = json.loads(text)
    refuse_surrogates(text, found)
    return found


def refuse_surrogates(text: bytes | str, value: Any) -> None:
    """Raise ValueError if JSON holds a lone surrogate, which UTF-8 cannot encode."""
    if _HALF.search(text if isinstance(text, bytes) else text.encode(errors="surrogatepass")):
        json.dumps(value, ensure_ascii=False).encode()
