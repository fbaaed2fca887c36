"""Keeping what backward induction chooses, one step after another from the last to the first.

Where one set of slots serves every step, only what differs from the step after is kept, 4 bytes and a choice for each
change, and laid out by slot in the end (`policy.choices.Runs`). Where so much changes that this would not pay, it goes
on with a line for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.kernels.arrays import Ints, Longs
from peakrl.model.space import starts_of
from peakrl.model.tabular import TabularModel
from peakrl.policy.choices import Choices, Runs, Table, shape_of, type_of

#: Shorter horizons have a line for each step: changes would save nothing.
SHORT = 16
#: The share of a table of all steps that changes may take before it is made after all.
SHARE = 0.25
Line = NDArray[Any]


class Keeper:
    """What is chosen at the steps from `step` on; `line` is written to, then `keep` is told."""

    def __init__(self, model: TabularModel, room: Callable[[], NDArray[Any]] | None = None) -> None:
        self.model, self.step = model, model.horizon
        #: Makes a table of all steps.
        self.room = room or (lambda: np.zeros(shape_of(model), type_of(model)))
        by_change = model.stationary and model.horizon >= SHORT
        #: [step, slot] or, in a layered model, [slot]; None while changes are kept.
        self.table: NDArray[Any] | None = None if by_change else self.room()
        #: The choices of the step at hand and of the one after.
        self.here, self.after = (np.zeros(model.num_slots if by_change else 0, type_of(model)) for _ in range(2))
        self.last: Line = self.after
        #: (step, slots, choices), from the last step on.
        self.changes: list[tuple[int, Ints, Line]] = []
        self.bytes = 0

    def line(self, step: int) -> Line:
        """Return the room for the choices of a step."""
        if self.table is None:
            return self.here
        first, last = self.model.step_slots[step].tolist()
        return self.table[step] if self.model.stationary else self.table[first:last]

    def keep(self, step: int) -> None:
        """Keep the line that was written for a step."""
        self.step = step
        if self.table is not None:
            return
        if step == self.model.horizon - 1:
            self.last = self.here.copy()
        else:
            slots = np.flatnonzero(self.here != self.after).astype(np.int32)
            if len(slots):
                self.changes.append((step, slots, self.here[slots]))
                self.bytes += slots.nbytes + self.changes[-1][2].nbytes
        self.here, self.after = self.after, self.here
        if self.bytes > SHARE * self.model.horizon * self.last.nbytes:
            self.lay_out()

    def keep_open(self, step: int, slots: Longs, numbers: Line) -> None:
        """Keep for a step what the one after it has, but for these slots."""
        line = self.line(step)
        line[:] = self.after if self.table is None else self.line(step + 1)
        line[slots] = numbers
        self.keep(step)

    def lay_out(self) -> None:
        """Go over to a table, and put what is known of it there."""
        self.table = self.room()
        line, latest = self.last, self.model.horizon - 1
        for step, slots, numbers in self.changes:
            self.table[step + 1 : latest + 1] = line
            line[slots], latest = numbers, step
        self.table[self.step : latest + 1] = line
        self.changes.clear()

    def choices(self) -> Choices:
        """Return what was kept; steps before the latest take what that one takes."""
        if self.table is not None:
            if self.model.stationary:
                self.table[: self.step] = self.table[self.step]
            return Table(self.model, self.table)
        count = np.ones(self.model.num_slots, np.int64)
        for _, slots, _ in self.changes:
            count[slots] += 1
        start = starts_of(count)
        place = start[1:] - 1
        until, number = np.empty(int(start[-1]), np.int32), np.empty(int(start[-1]), self.last.dtype)
        until[place], number[place] = self.model.horizon - 1, self.last
        for step, slots, numbers in self.changes:
            place[slots] -= 1
            until[place[slots]], number[place[slots]] = step, numbers
        return Runs(self.model, start, until, number)
