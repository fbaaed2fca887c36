"""What a deterministic policy takes, in as few bytes as that needs.

A choice is the number of an action among those of its state: row = row_start[slot] + choice. Most states offer at most
256 actions, so that a choice takes one byte where a row takes four. A `Table` has a line for each step. `Runs` serve
where one set of slots lasts for all steps: at most steps most states take what they take at the next one, so that only
changes are kept,

    choice at a step = number[k],  k the first of the slot's runs with until[k] >= step
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PolicyError
from peakrl.policy.run_length import run_line
from peakrl.space import StateSpace
from peakrl.types import Ints, Longs

#: The types that choices come in, lowest byte first.
TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
Arrays = dict[str, NDArray[Any]]


def width_of(space: StateSpace) -> int:
    """Return the bytes of a choice: the fewest that number the actions of every state."""
    return 1 if space.max_actions <= 1 << 8 else 2 if space.max_actions <= 1 << 16 else 4


def type_of(space: StateSpace) -> np.dtype[Any]:
    """Return the type of a choice."""
    return TYPES[width_of(space)]


def shape_of(space: StateSpace) -> tuple[int, ...]:
    """Return the shape of a table of choices."""
    return (space.horizon, space.num_slots) if space.stationary else (space.num_slots,)


class Choices(ABC):
    """The choice of a policy at every step in every state; read-only."""

    #: What a file calls this form.
    form: str

    def __init__(self, space: StateSpace, arrays: Arrays) -> None:
        self.space = space
        for array in arrays.values():
            array.flags.writeable = False
        #: What the choices are kept in.
        self.arrays = arrays

    @abstractmethod
    def number(self, step: int, slot: int) -> int:
        """Return the choice at a stored state."""

    @abstractmethod
    def of_step(self, step: int) -> NDArray[Any]:
        """[slot of the step]: what is chosen."""

    def row(self, step: int, slot: int) -> int:
        """Return the chosen row of a stored state; -1 where it offers none."""
        start = self.space.row_start
        return int(start[slot]) + self.number(step, slot) if start[slot + 1] > start[slot] else -1

    def rows(self, step: int) -> Ints:
        """[slot of the step]: the chosen rows; -1 where a state offers none."""
        first, last = self.space.step_slots[step].tolist()
        start = self.space.row_start[first : last + 1]
        rows = start[:-1].astype(np.int32)
        rows += self.of_step(step).astype(np.int32)
        rows[start[1:] == start[:-1]] = -1
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
        return sum(array.nbytes for array in self.arrays.values())


class Table(Choices):
    """A line of choices for each step."""

    form = "choices"

    def __init__(self, space: StateSpace, table: NDArray[Any]) -> None:
        super().__init__(space, {"choices": table})
        #: [step, slot] where one set of slots serves every step, else [slot].
        self.table = table

    @classmethod
    def checked(cls, space: StateSpace, table: NDArray[Any]) -> Table:
        """Return choices that somebody else brings, or raise where one is none of its state's."""
        if table.shape != shape_of(space) or table.dtype != type_of(space):
            shape = f"{type_of(space)} of shape {shape_of(space)}"
            raise PolicyError(f"choices of {space!r} are {shape}, not {table.dtype} of {table.shape}")
        choices, counts = cls(space, table), np.diff(space.row_start)
        for step in range(space.horizon):
            first, last = space.step_slots[step].tolist()
            if (choices.of_step(step) >= np.maximum(counts[first:last], 1)).any():
                raise PolicyError(f"a choice at step {step} is none of the actions of its state")
        return choices

    def number(self, step: int, slot: int) -> int:
        """Return the choice at a stored state."""
        return int(self.table[step, slot] if self.space.stationary else self.table[slot])

    def of_step(self, step: int) -> NDArray[Any]:
        """[slot of the step]: what is chosen."""
        first, last = self.space.step_slots[step].tolist()
        return self.table[step] if self.space.stationary else self.table[first:last]


class Runs(Choices):
    """For each slot its changes of choice, in the order of steps."""

    form = "runs"

    def __init__(self, space: StateSpace, start: Longs, until: Ints, number: NDArray[Any]) -> None:
        super().__init__(space, {"run_start": start, "run_until": until, "run_choice": number})
        #: [slot + 1]: runs of a slot are start[slot] .. start[slot + 1].
        self.start = start
        #: [run]: the last step that it holds for.
        self.until = until
        #: [run]: what is chosen.
        self.numbers = number

    @classmethod
    def checked(cls, space: StateSpace, start: NDArray[Any], until: NDArray[Any], number: NDArray[Any]) -> Runs:
        """Return runs that somebody else brings, or raise where they do not say what is chosen at every step."""
        types = [start.dtype, until.dtype, number.dtype]
        if not space.stationary or types != [np.dtype(np.int64), np.dtype(np.int32), type_of(space)]:
            raise PolicyError(f"runs of {space!r} cannot be {', '.join(map(str, types))}")
        fits = start.shape == (space.num_slots + 1,) and until.shape == number.shape == (len(until),)
        if not fits or start[0] != 0 or start[-1] != len(until) or (np.diff(start) < 1).any():
            raise PolicyError(f"runs of {space!r} do not begin and end where its {space.num_slots} states do")
        rising = np.diff(until) > 0
        rising[start[1:-1] - 1] = True  # from one slot to the next
        if not rising.all() or (until[start[:-1]] < 0).any() or (until[start[1:] - 1] != space.horizon - 1).any():
            raise PolicyError(
                f"the runs of a state must end at one step after another, the last at {space.horizon - 1}"
            )
        if (number >= np.repeat(np.maximum(np.diff(space.row_start), 1), np.diff(start))).any():
            raise PolicyError("a run takes none of the actions of its state")
        return cls(space, start, until, number)

    def number(self, step: int, slot: int) -> int:
        """Return the choice at a stored state."""
        first, last = int(self.start[slot]), int(self.start[slot + 1])
        return int(self.numbers[first + int(np.searchsorted(self.until[first:last], step))])

    def of_step(self, step: int) -> NDArray[Any]:
        """[slot]: what is chosen."""
        line = np.empty(self.space.num_slots, self.numbers.dtype)
        octets = self.numbers.view(np.uint8)
        run_line(self.start, self.until, octets, self.numbers.itemsize, step, line.view(np.uint8))
        return line


def checked_choices(space: StateSpace, form: str, arrays: Arrays) -> Choices:
    """Return choices of a form that somebody else brings, checked in full."""
    if form == Table.form:
        return Table.checked(space, arrays["choices"])
    return Runs.checked(space, arrays["run_start"], arrays["run_until"], arrays["run_choice"])
