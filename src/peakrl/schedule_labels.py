"""States of scheduling problems, and a compact sequence of millions of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

JobName = int | str
Words = NDArray[np.uint64]


class ScheduleState(NamedTuple):
    """The finished jobs, in the order of the instance.

    `time` is None if processing times are fixed (it follows from `done`); `worst`, the largest tardiness so far, is
    None if the objective is a sum over jobs.
    """

    done: tuple[JobName, ...]
    time: int | None = None
    worst: int | None = None

    def __repr__(self) -> str:
        parts = (f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True) if value is not None)
        return f"ScheduleState({', '.join(parts)})"


class ScheduleStates(Sequence[ScheduleState]):
    """The states of a compiled model as bit masks and clock words, decoded on access.

    A clock word is time * 2^32 + worst, as in `problems.scheduling.tables`.
    """

    def __init__(self, names: Sequence[JobName], done: Words, clock: Words, *, timed: bool, worst: bool) -> None:
        self.names, self._done, self._clock = tuple(names), done, clock
        self._timed, self._worst = timed, worst

    def parts(self) -> tuple[dict[str, Any], dict[str, Words]]:
        """Return the constructor's arguments, plain values and arrays, for a file."""
        plain = {"names": list(self.names), "timed": self._timed, "worst": self._worst}
        return plain, {"done": self._done, "clock": self._clock}

    def repeat(self) -> bool:
        """Are two states equal? (Parts of the clock that states do not have are ignored.)"""
        mask = (0xFFFFFFFF << 32 if self._timed else 0) | (0xFFFFFFFF if self._worst else 0)
        clock = self._clock & np.uint64(mask)
        order = np.lexsort((clock, self._done))
        done, clock = self._done[order], clock[order]
        return bool(((done[1:] == done[:-1]) & (clock[1:] == clock[:-1])).any())

    def __len__(self) -> int:
        return len(self._done)

    @overload
    def __getitem__(self, index: int) -> ScheduleState: ...
    @overload
    def __getitem__(self, index: slice) -> list[ScheduleState]: ...
    def __getitem__(self, index: int | slice) -> ScheduleState | list[ScheduleState]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        mask, clock = int(self._done[index]), int(self._clock[index])
        return ScheduleState(
            tuple(name for job, name in enumerate(self.names) if mask >> job & 1),
            clock >> 32 if self._timed else None,
            clock & 0xFFFFFFFF if self._worst else None,
        )
