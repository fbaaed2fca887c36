"""Which actions and states of a model are safe at which step (`viability`), in four bytes for each.

What is safe at a step of a stationary model is safe at every later one, so that the first such step tells of all. In a
layered model, whose states belong to a step, it is 0 or the horizon. Where a promise makes more safe at some steps
only, there is a line for each step, with 0 or the horizon in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peakrl.space import frozen
from peakrl.types import Ints

Bools = NDArray[np.bool_]
EVERY = slice(None)


@dataclass(frozen=True, eq=False)
class SafeSteps:
    """The first step from which on an action or a state is safe; the horizon where there is none before."""

    horizon: int
    stationary: bool
    #: [line, row]: one line, or one for each step.
    row_from: Ints
    #: [line, slot]: the same of states, the end of an episode included.
    slot_from: Ints

    @classmethod
    def by_first_step(cls, horizon: int, stationary: bool, rows: Ints, slots: Ints) -> SafeSteps:
        """Return those of one number for each row and slot."""
        lines = (frozen(part[None], np.int32, own=True) for part in (rows, slots))
        return cls(horizon, stationary, *lines)

    @classmethod
    def by_entry(cls, horizon: int, stationary: bool, entries: Bools, nodes: Bools) -> SafeSteps:
        """Return those of a truth value for each entry and node."""
        lines = horizon if stationary else 1
        rows, slots = (np.where(part, 0, horizon).astype(np.int32) for part in (entries, nodes))
        cut = rows.reshape(lines, -1), slots.reshape(lines + int(stationary), -1)
        return cls(horizon, stationary, *(frozen(part, np.int32, own=True) for part in cut))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.row_from.nbytes + self.slot_from.nbytes

    def row(self, step: int, row: int) -> bool:
        """Is an action safe at a step?"""
        return int(self.row_from.item(min(step, len(self.row_from) - 1), row)) <= step

    def slot(self, step: int, slot: int) -> bool:
        """Is a state safe at a step?"""
        return int(self.slot_from.item(min(step, len(self.slot_from) - 1), slot)) <= step

    def rows(self, step: int, part: slice = EVERY) -> Bools:
        """[row]: which actions, or some of them, are safe at a step; in a layered model each at its own."""
        safe: Bools = self.row_from[min(step, len(self.row_from) - 1), part] <= step
        return safe

    def slots(self, step: int, part: slice = EVERY) -> Bools:
        """[slot]: which states are."""
        safe: Bools = self.slot_from[min(step, len(self.slot_from) - 1), part] <= step
        return safe

    @property
    def entries(self) -> Bools:
        """[entry]: which actions are safe, laid out anew whenever it is asked for."""
        return np.concatenate([self.rows(step) for step in range(self.horizon if self.stationary else 1)])

    @property
    def nodes(self) -> Bools:
        """[node]: which states are."""
        return np.concatenate([self.slots(step) for step in range(self.horizon + 1 if self.stationary else 1)])

    def bits(self) -> NDArray[np.uint8]:
        """[entry] in bits, as `np.packbits` has them, step by step."""
        packed, rest = [], np.empty(0, np.bool_)
        for step in range(self.horizon if self.stationary else 1):
            flags = np.concatenate([rest, self.rows(step)])
            whole = len(flags) // 8 * 8
            packed.append(np.packbits(flags[:whole]))
            rest = flags[whole:]
        return np.concatenate([*packed, np.packbits(rest)])
