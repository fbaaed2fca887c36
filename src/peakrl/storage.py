"""Files that survive: a JSON manifest and safetensors arrays in one file, written whole or not at all.

Layout: the line `peakrl 1`, the hexadecimal BLAKE2b digest of everything after its own line, the manifest as one line
of JSON, then the safetensors bytes. A single changed byte anywhere is noticed. A file is written under a temporary
name, flushed, renamed, and its folder flushed, so that a kill at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PeakError, StorageError

MAGIC = b"peakrl "
VERSION = 1
#: Characters of a digest.
DIGEST_LENGTH = 64
#: Bytes that a digest takes in at a time.
PORTION = 1 << 22
#: A cell that begins so is a formula to a spreadsheet, which may read other files or run programs.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
#: A temporary file is named by its process and a number, so that threads may write the same file at once; and those
#: that this process is writing.
_OWNER = re.compile(r"([0-9]+)(?:-[0-9]+)?\.tmp")
_numbers = itertools.count()
_in_use: set[str] = set()
#: The share of free memory that what is read or made of a file may take; a file below this size is read in any case.
SHARE, SMALL = 0.75, 1 << 26
#: How JSON writes half of a sign.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


class Disk:
    """The calls that a file is written with: what tests put a failing disk in the place of."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file and flush it."""
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def room(self, path: Path, size: int) -> NDArray[np.uint8]:
        """Take the room of a new file; return its bytes, and what is written there is in the file."""
        with open(path, "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        return np.memmap(path, np.uint8, "r+", 0, (size,))

    def flush_room(self, path: Path, content: NDArray[np.uint8]) -> None:
        """Flush what was written to the bytes of a file."""
        assert isinstance(content, np.memmap)
        content.flush()
        with open(path, "r+b") as file:
            os.fsync(file.fileno())

    def rename(self, path: Path, target: Path) -> None:
        """Put a file in the place of another."""
        os.replace(path, target)

    def flush_folder(self, folder: Path) -> None:
        """Flush a folder: which names it holds."""
        if os.name == "nt":  # folders cannot be opened there
            return
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def remove(self, path: Path) -> None:
        """Remove a file if it is there."""
        path.unlink(missing_ok=True)


disk = Disk()


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a file for reading; a device or a pipe, which may never end, is none."""
    # Without waiting for somebody who writes to a pipe: whether it is one is known only once it is open.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is a device, a pipe or a socket, not a file")
        yield file


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a file to read from, and say what is wrong where it cannot be."""
    try:
        with opened(path) as file:
            # A file with holes takes no room on disk: its size is only said.
            size = os.fstat(file.fileno()).st_size
            if size > SMALL and size > (limit := available_memory() * SHARE):
                raise OSError(f"it has {size / 1e9:.3g} GB, more than the limit of {limit / 1e9:.3g} GB")
            yield file
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise StorageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except MemoryError as error:
        raise StorageError(f"cannot read {path}: it does not fit in memory") from error


def available_memory() -> float:
    """Return the bytes of memory that are free now; infinity where the system does not tell."""
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
    """Replace `path` with `data` atomically and durably; where it is a link, the file that it leads to."""
    with replacing(path) as temporary:
        disk.write(temporary, data)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the name of a new file, which is put in the place of `path` when all went well, and else removed."""
    path = writable(path)
    temporary = path.with_name(f".{_short(path.name)}.{os.getpid()}-{next(_numbers)}.tmp")
    _in_use.add(temporary.name)
    try:
        remove_leftovers(path)
        yield temporary
        disk.rename(temporary, path)
        disk.flush_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            disk.remove(temporary)
        if isinstance(error, OSError):
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
        raise
    finally:
        _in_use.discard(temporary.name)


def writable(path: str | Path) -> Path:
    """Return the path that a file will be written to, links followed, or say at once why it cannot be."""
    given = str(path)
    if not Path(path).name or "\0" in given:
        raise StorageError(f"cannot write {given!r}: this names no file")
    if given == "-":
        raise StorageError("cannot write '-': nothing is written to standard output; name a file")
    try:
        place = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
        folder, mode = os.stat(place.parent), _mode(place)
    except OSError as error:  # a name that is too long, a folder that is not there, a link that leads round and round
        why = f"there is no folder {Path(path).parent}" if error.errno == errno.ENOENT else error.strerror or error
        raise StorageError(f"cannot write {_shown(given)}: {why}") from error
    if not stat.S_ISDIR(folder.st_mode):
        raise StorageError(f"cannot write {given}: {place.parent} is not a folder")
    if stat.S_ISDIR(mode):
        raise StorageError(f"cannot write {given}: it is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise StorageError(f"cannot write {given}: it is a device, a pipe or a socket, not a file")
    if not os.access(place.parent, os.W_OK):
        raise StorageError(f"cannot write {given}: the folder {place.parent} may not be written to")
    return place


def ready(*paths: str | Path | None) -> None:
    """Raise where a file that is to be written in the end cannot be: one is made beside it, and removed."""
    for path in paths:
        if path is None:
            continue
        place = writable(path)
        trial = place.with_name(f".{_short(place.name)}.{os.getpid()}-{next(_numbers)}.tmp")
        try:
            os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            os.unlink(trial)
        except OSError as error:
            why = error.strerror or error
            raise StorageError(
                f"cannot write {_shown(str(path))}: no file can be made in its folder ({why})"
            ) from error


def _mode(path: Path) -> int:
    """Return what kind of thing a path names; a plain file where there is nothing yet."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return stat.S_IFREG


def _shown(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."


def _short(name: str) -> str:
    """Return what a temporary file is named after: a name that is nearly too long leaves no room for more."""
    raw = os.fsencode(name)
    return name if len(raw) <= 200 else hashlib.blake2b(raw, digest_size=16).hexdigest()


def remove_leftovers(path: Path) -> None:
    """Remove temporary files that a killed process left beside `path`; those that are being written stay."""
    name = _short(path.name)
    with contextlib.suppress(OSError):
        for stale in path.parent.glob(f".{glob.escape(name)}.*.tmp"):
            owner = _OWNER.fullmatch(stale.name.removeprefix(f".{name}."))
            if owner and stale.name not in _in_use and not _alive(int(owner[1])):
                with contextlib.suppress(OSError):
                    disk.remove(stale)


def _alive(process: int) -> bool:
    if process == os.getpid():
        return False  # what it writes at the moment is in `_in_use`
    if os.name == "nt":  # signal 0 is not a test there but Ctrl-C
        return True
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
        refuse_half_signs(head, manifest)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"cannot write {path}: its description is not plain JSON ({error})") from error
    try:
        payload = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    except SafetensorError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
    body = head.encode() + b"\n" + payload
    write_file(path, MAGIC + str(VERSION).encode() + b"\n" + _digest(body) + b"\n" + body)


@contextlib.contextmanager
def streamed_record(
    path: str | Path, kind: str, manifest: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[NDArray[Any]]:
    """Yield an array of unsigned numbers on disk, to be filled in any order; then `path` is the record that holds it.

    What `write_record` would write, for an array that memory need not hold. The room on disk is taken beforehand.
    """
    size = int(np.prod(shape)) * dtype.itemsize
    tensor = {name: {"dtype": f"U{8 * dtype.itemsize}", "shape": list(shape), "data_offsets": [0, size]}}
    lead = MAGIC + str(VERSION).encode() + b"\n"
    head = json.dumps({"kind": kind, **manifest}, allow_nan=False, sort_keys=True).encode() + b"\n"
    table = json.dumps(tensor).encode()
    body = len(lead) + DIGEST_LENGTH + 1
    table += b" " * (-(body + len(head) + 8 + len(table)) % 8)
    begin = body + len(head) + 8 + len(table)
    with replacing(path) as temporary:
        whole = disk.room(temporary, begin + size)
        lines = lead + b"0" * DIGEST_LENGTH + b"\n" + head + len(table).to_bytes(8, "little") + table
        whole[:begin] = np.frombuffer(lines, np.uint8)
        yield whole[begin:].view(dtype).reshape(shape)
        digest = hashlib.blake2b(digest_size=DIGEST_LENGTH // 2)
        for first in range(body, begin + size, PORTION):
            digest.update(whole[first : first + PORTION].data)
        whole[len(lead) : len(lead) + DIGEST_LENGTH] = np.frombuffer(digest.hexdigest().encode(), np.uint8)
        disk.flush_room(temporary, whole)


def quoted(value: Any) -> Any:
    """Return what may stand in a cell of a CSV file: a text that a spreadsheet would run as a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def from_json(text: bytes | str) -> Any:
    """Return what a JSON text says, or raise ValueError."""
    found = json.loads(text)
    refuse_half_signs(text, found)
    return found


def refuse_half_signs(text: bytes | str, value: Any) -> None:
    """Raise ValueError where JSON holds half a sign of Unicode (a lone surrogate), which no page or file can hold."""
    if _HALF.search(text if isinstance(text, bytes) else text.encode(errors="surrogatepass")):
        json.dumps(value, ensure_ascii=False).encode()


def kind_of(path: str | Path) -> str | None:
    """Return what a file of ours says that it holds; None where it is none of ours."""
    try:
        with reading(path) as file:
            head = [file.readline() for _ in range(3)] if file.read(len(MAGIC)) == MAGIC else []
        return str(json.loads(head[2])["kind"])
    except (StorageError, ValueError, LookupError, TypeError, RecursionError):
        return None


def read_record(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest and the arrays of a file that `write_record` wrote, or say what is wrong with it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    # In parts: a large file is not copied once more for each of them.
    with reading(path) as file:
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
        arrays = dict(sorted(load(payload).items()))  # safetensors has no order of its own
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


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_LENGTH // 2)
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
