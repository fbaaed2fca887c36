"""What a deterministic policy takes, in as few bytes as that needs.

A choice is the number of an action among those of its state: row = row_start[slot] + choice. Most states offer at most
256 actions, so that a choice takes one byte where a row takes four.
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

    def __init__(self, space: StateSpace, table: NDArray[Any]) -> None:
        self.space = space
        #: [step, slot] where one set of slots serves every step, else [slot].
        self.table = table

    @classmethod
    def empty(cls, space: StateSpace) -> Choices:
        """Return room for the choices of a policy."""
        return cls(space, np.zeros(shape_of(space), TYPES[width_of(space)]))

    @classmethod
    def checked(cls, space: StateSpace, table: NDArray[Any]) -> Choices:
        """Return choices that somebody else brings, or raise where one is none of its state's."""
        shape = shape_of(space)
        if table.shape != shape or table.dtype != TYPES[width_of(space)]:
            raise PolicyError(f"choices of {space!r} are {TYPES[width_of(space)]} of shape {shape}, not {table.dtype}")
        counts = np.diff(space.row_start)
        for step in range(space.horizon):
            first, last = space.step_slots[step].tolist()
            here = table[step] if space.stationary else table[first:last]
            if (here >= np.maximum(counts[first:last], 1)).any():
                raise PolicyError(f"a choice at step {step} is none of the actions of its state")
        return cls(space, table)

    def octets(self, step: int) -> NDArray[np.uint8]:
        """Return the bytes of a step's choices, for a kernel to write."""
        first, last = self.space.step_slots[step].tolist()
        here = self.table[step] if self.space.stationary else self.table[first:last]
        return here.view(np.uint8)

    def row(self, step: int, slot: int) -> int:
        """Return the chosen row of a stored state; -1 where it offers none."""
        start = self.space.row_start
        number = self.table[step, slot] if self.space.stationary else self.table[slot]
        return int(start[slot]) + int(number) if start[slot + 1] > start[slot] else -1

    def rows(self, step: int) -> Ints:
        """[slot of the step]: the chosen rows; -1 where a state offers none."""
        first, last = self.space.step_slots[step].tolist()
        start = self.space.row_start[first : last + 1]
        here = self.table[step] if self.space.stationary else self.table[first:last]
        rows: Ints = np.where(start[1:] > start[:-1], start[:-1] + here, -1).astype(np.int32)
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
