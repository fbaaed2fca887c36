"""What a deterministic policy takes, in as few bytes as that needs.

A choice is the number of an action among those of its state: row = row_start[slot] + choice. Most states offer at most
256 actions, so that a choice takes one byte where a row takes four. Where the first steps of a long horizon all take
the same, that is kept once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PolicyError
from peakrl.kernels.arrays import Ints
from peakrl.model.space import StateSpace

#: The types that choices come in, lowest byte first.
TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}


def width_of(space: StateSpace) -> int:
    """Return the bytes of a choice: the fewest that number the actions of every state."""
    return 1 if space.max_actions <= 1 << 8 else 2 if space.max_actions <= 1 << 16 else 4


def shape_of(space: StateSpace) -> tuple[int, ...]:
    """Return the shape of a table of choices."""
    return (space.horizon, space.num_slots) if space.stationary else (space.num_slots,)


class Choices:
    """The choice of a policy at every step in every state; read-only once a policy holds it."""

    def __init__(self, space: StateSpace, table: NDArray[Any], repeats: int = 0) -> None:
        self.space = space
        #: So many first steps take what the step after them takes; they have no line of their own.
        self.repeats = repeats
        #: [step - repeats, slot] where one set of slots serves every step, else [slot].
        self.table = table

    @classmethod
    def empty(cls, space: StateSpace) -> Choices:
        """Return room for the choices of a policy."""
        return cls(space, np.zeros(shape_of(space), TYPES[width_of(space)]))

    def repeated(self, step: int) -> Choices:
        """Return the choices of a policy that takes at every step before `step` what it takes there."""
        return Choices(self.space, self.table[step:], step)

    @classmethod
    def checked(cls, space: StateSpace, table: NDArray[Any], repeats: int = 0) -> Choices:
        """Return choices that somebody else brings, or raise where one is none of its state's."""
        if not 0 <= repeats < (space.horizon if space.stationary else 1):
            raise PolicyError(f"choices of {space!r} cannot be the same at the first {repeats} steps")
        shape = (space.horizon - repeats, space.num_slots) if space.stationary else (space.num_slots,)
        if table.shape != shape or table.dtype != TYPES[width_of(space)]:
            raise PolicyError(f"choices of {space!r} are {TYPES[width_of(space)]} of shape {shape}, not {table.dtype}")
        choices, counts = cls(space, table, repeats), np.diff(space.row_start)
        for step in range(repeats, space.horizon):
            first, last = space.step_slots[step].tolist()
            if (choices.of_step(step) >= np.maximum(counts[first:last], 1)).any():
                raise PolicyError(f"a choice at step {step} is none of the actions of its state")
        return choices

    def octets(self, step: int) -> NDArray[np.uint8]:
        """Return the bytes of a step's choices, for a kernel to write."""
        return self.of_step(step).view(np.uint8)

    def of_step(self, step: int) -> NDArray[Any]:
        """[slot of the step]: what is chosen."""
        first, last = self.space.step_slots[step].tolist()
        return self.table[max(step - self.repeats, 0)] if self.space.stationary else self.table[first:last]

    def row(self, step: int, slot: int) -> int:
        """Return the chosen row of a stored state; -1 where it offers none."""
        start = self.space.row_start
        number = self.table[max(step - self.repeats, 0), slot] if self.space.stationary else self.table[slot]
        return int(start[slot]) + int(number) if start[slot + 1] > start[slot] else -1

    def rows(self, step: int) -> Ints:
        """[slot of the step]: the chosen rows; -1 where a state offers none."""
        first, last = self.space.step_slots[step].tolist()
        start = self.space.row_start[first : last + 1]
        rows: Ints = np.where(start[1:] > start[:-1], start[:-1] + self.of_step(step), -1).astype(np.int32)
        return rows

    def all_rows(self) -> Ints:
        """[node]: the chosen rows."""
        space = self.space
        rows = np.full(space.num_nodes, -1, np.int32)
        for step in range(space.horizon):
            (first, last), base = space.step_slots[step].tolist(), step * space.node_stride
            rows[base + first : base + last] = self.rows(step)
        rows.flags.writeable = False
        return rows

    @property
    def nbytes(self) -> int:
        """Bytes that the choices take."""
        return self.table.nbytes
