"""A disk that can fail anywhere: what it holds after a crash is anything that the rules of POSIX leave open.

What is written lies in memory (`now`) until it is flushed. A crash keeps what was flushed, and of the rest:

    contents    of a file that was not flushed: nothing, a part from the front, every other block, zeros, or all
    names       any of the creations, renames and removals that were not flushed, in any combination, in their order
"""

from __future__ import annotations

import errno
import itertools

import numpy as np

from peakrl import storage

BLOCK = 4


class Crash(BaseException):
    """The machine stops. Not an Exception: nobody may catch it."""


class FailingDisk(storage.Disk):
    """Counts its operations, and fails at the one that it is told to."""

    def __init__(self, files=(), *, at=-1, failure=Crash):
        #: Contents by number, as flushed and as they are now; names as flushed, and changes of names since.
        self.flushed, self.now, self.names, self.changes = {}, {}, {}, []
        #: Contents by number that are written to like memory.
        self.rooms = {}
        self.at, self.failure, self.count = at, failure, 0
        for path, data in dict(files).items():
            number = len(self.now)
            self.flushed[number] = self.now[number] = data
            self.names[str(path)] = number

    def step(self):
        """One boundary: before an operation, or within one."""
        self.now.update((number, content.tobytes()) for number, content in self.rooms.items())
        self.count += 1
        if self.count - 1 == self.at:
            raise self.failure

    def current(self):
        """Names as programs see them now."""
        return applied(self.names, self.changes)

    def read(self, path):
        """What a program reads now; None where there is no such file."""
        number = self.current().get(str(path))
        return None if number is None else self.now[number]

    # What `storage` calls ---------------------------------------------------------------------------------------------

    def write(self, path, data):
        self.step()
        number = len(self.now)
        self.now[number] = b""
        self.changes.append(("create", str(path), number))
        for end in range(BLOCK, len(data) + BLOCK, BLOCK):
            self.step()
            self.now[number] = data[:end]
        self.flush(number)

    def room(self, path, size):
        self.step()
        number = len(self.now)
        self.now[number] = bytes(size)
        self.changes.append(("create", str(path), number))
        self.step()
        self.rooms[number] = np.zeros(size, np.uint8)
        return self.rooms[number]

    def flush_room(self, path, content):
        self.step()
        (number,) = (number for number, room in self.rooms.items() if room is content)
        del self.rooms[number]
        self.flush(number)

    def flush(self, number):
        self.step()
        self.flushed[number] = self.now[number]

    def rename(self, path, target):
        self.step()
        self.changes.append(("rename", str(path), str(target)))

    def flush_folder(self, folder):
        self.step()
        self.names, self.changes = self.current(), []

    def remove(self, path):
        self.step()
        self.changes.append(("remove", str(path), None))

    # After the crash --------------------------------------------------------------------------------------------------

    def worlds(self, path):
        """All that a file may hold when the machine is back; None where it may be missing."""
        found = set()
        for kept in itertools.product((False, True), repeat=len(self.changes)):
            names = applied(self.names, [change for change, keep in zip(self.changes, kept, strict=True) if keep])
            number = names.get(str(path))
            found |= {None} if number is None else contents(self.flushed.get(number), self.now[number])
        return found


def applied(names, changes):
    """Names after changes of names; one whose source is missing does nothing."""
    names = dict(names)
    for kind, name, other in changes:
        if kind == "create":
            names[name] = other
        elif kind == "rename" and name in names:
            names[other] = names.pop(name)
        elif kind == "remove":
            names.pop(name, None)
    return names


def contents(flushed, now):
    """What a file may hold after a crash."""
    if flushed == now:
        return {now}
    holes = b"".join(now[i : i + BLOCK] if i // BLOCK % 2 else b"\0" * BLOCK for i in range(0, len(now), BLOCK))
    cut = {now[:size] for size in range(0, len(now) + 1, BLOCK)}
    return cut | {b"", now, holes[: len(now)], b"\0" * len(now)} | ({flushed} if flushed is not None else set())


def full():
    """What a full disk says."""
    return OSError(errno.ENOSPC, "No space left on device")


def broken():
    """What a broken disk says."""
    return OSError(errno.EIO, "Input/output error")
