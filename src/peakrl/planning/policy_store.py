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

from peakrl.planning.parallel import Share
from peakrl.policy.choices import Choices, Runs, Table, shape_of, type_of
from peakrl.policy.run_length import put_runs
from peakrl.space import starts_of
from peakrl.tabular import TabularModel
from peakrl.types import Ints, Longs

#: Shorter horizons have a line for each step: changes would save nothing.
SHORT = 16
#: The share of a table of all steps that changes may take before it is made after all.
SHARE = 0.25
Line = NDArray[Any]
#: Slots in order, and what they choose; None where no changes are kept.
Changes = tuple[Ints, Line] | None


class Keeper:
    """What is chosen at the steps from `step` on; `line` is written to, chunk by chunk, then `keep` is told."""

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
        #: [slot]: how many runs its choices are, while changes are kept.
        self.runs: Ints = np.ones(len(self.here), np.int32)
        #: (step, slots, choices), from the last step on.
        self.changes: list[tuple[int, Ints, Line]] = []
        self.bytes = 0

    def line(self, step: int) -> Line:
        """Return the room for the choices of a step."""
        if self.table is None:
            return self.here
        first, last = self.model.step_slots[step].tolist()
        return self.table[step] if self.model.stationary else self.table[first:last]

    def changed(self, step: int, first: int, last: int) -> Changes:
        """Return where the line that was written for a step differs from that after it, of the slots first .. last."""
        if self.table is not None or step == self.model.horizon - 1:
            return None
        slots = np.flatnonzero(self.here[first:last] != self.after[first:last]).astype(np.int32)
        slots += first
        self.runs[slots] += 1
        return slots, self.here[slots]

    def changed_among(self, step: int, first: int, last: int, slots: Longs, numbers: Line) -> Changes:
        """Write what these of the slots first .. last choose, and for the others what they choose at the step after.

        Return where that differs from the step after.
        """
        if self.table is not None:
            line = self.line(step)
            line[first:last] = self.line(step + 1)[first:last]
            line[slots] = numbers
            return None
        self.here[first:last] = self.after[first:last]
        self.here[slots] = numbers
        differ = numbers != self.after[slots]
        self.runs[slots[differ]] += 1
        return slots[differ].astype(np.int32), numbers[differ]

    def keep(self, step: int, changes: list[Changes]) -> None:
        """Keep the line of a step, of which `changes` were returned."""
        self.step = step
        if self.table is not None:
            return
        if step == self.model.horizon - 1:
            self.last = self.here.copy()
        else:
            self.add(step, [each for each in changes if each is not None])
        self.here, self.after = self.after, self.here
        if self.bytes > SHARE * self.model.horizon * self.last.nbytes:
            self.lay_out()

    def add(self, step: int, changes: list[tuple[Ints, Line]]) -> None:
        """Keep changes, if there are any."""
        slots, numbers = (np.concatenate(parts) for parts in zip(*changes, strict=True))
        if len(slots):
            self.changes.append((step, slots, numbers))
            self.bytes += slots.nbytes + numbers.nbytes

    def lay_out(self) -> None:
        """Go over to a table, and put what is known of it there."""
        self.table = self.room()
        line, latest = self.last, self.model.horizon - 1
        for step, slots, numbers in self.changes:
            self.table[step + 1 : latest + 1] = line
            line[slots], latest = numbers, step
        self.table[self.step : latest + 1] = line
        self.changes.clear()

    def choices(self, share: Share) -> Choices:
        """Return what was kept; steps before the latest take what that one takes."""
        if self.table is not None:
            if self.model.stationary:
                self.table[: self.step] = self.table[self.step]
            return Table(self.model, self.table)
        slots = self.model.num_slots
        start = starts_of(self.runs)
        until, number = np.empty(int(start[-1]), np.int32), np.empty(int(start[-1]), self.last.dtype)
        share(lambda a, b: self.put(start, until, number, a, b), np.arange(slots + 1), 0, slots)
        return Runs(self.model, start, until, number)

    def put(self, start: Longs, until: Ints, number: Line, first: int, last: int) -> None:
        """Put the runs of the slots first .. last to their places, the last of each slot first."""
        place, width = start[first + 1 : last + 1] - 1, number.itemsize
        until[place], number[place] = self.model.horizon - 1, self.last[first:last]
        for step, slots, numbers in self.changes:
            part = between(slots, first, last)
            octets = numbers[part].view(np.uint8)
            put_runs(step, slots[part], first, octets, width, place, until, number.view(np.uint8))


def between(slots: Ints, first: int, last: int) -> slice:
    """Return which of some slots, in order, are among first .. last."""
    return slice(*np.searchsorted(slots, (first, last)))
