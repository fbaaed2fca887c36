"""A floor of square cells, drawn as text, and the moves on it.

    S start    G goal    C charger    o pit    # wall    . nothing

A cell is (row, column), from the upper left. A move into a wall or over the border does not change the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peakrl.errors import ProblemError

Cell = tuple[int, int]
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
WAYS = tuple(MOVES)
SIGNS = "SGCo#."
LONGEST_SIDE = 100


@dataclass(frozen=True)
class Floor:
    """A floor plan: one string for each row, all of one length."""

    plan: tuple[str, ...]

    @classmethod
    def read(cls, given: Any, what: str = "plan") -> Floor:
        """Return the floor of a list of strings, or raise."""
        if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
            raise ProblemError(f"{what} is {given!r}; it must be a list of strings, one for each row of the floor")
        for place, row in enumerate(given):
            if not isinstance(row, str) or not row or len(row) != len(given[0]):
                raise ProblemError(f"{what}[{place}] is {row!r}; rows are strings, all of one length")
            strange = next((sign for sign in row if sign not in SIGNS), None)
            if strange is not None:
                raise ProblemError(f"{what}[{place}] holds {strange!r}; a floor is made of {' '.join(SIGNS)}")
        if max(len(given), len(given[0])) > LONGEST_SIDE:
            raise ProblemError(f"{what} is longer than {LONGEST_SIDE} cells on a side: every cell is a state")
        return cls(tuple(given))

    def cells(self, signs: str) -> frozenset[Cell]:
        """Return the cells that have one of these signs."""
        return frozenset(
            (row, column) for row, line in enumerate(self.plan) for column, sign in enumerate(line) if sign in signs
        )

    @cached_property
    def free(self) -> frozenset[Cell]:
        """Cells that are not walls."""
        return self.cells("SGCo.")

    def beside(self, cell: Cell, way: str) -> Cell:
        """Return the adjacent cell, or the cell itself if there is a wall or the border."""
        after = (cell[0] + MOVES[way][0], cell[1] + MOVES[way][1])
        return after if after in self.free else cell

    def sides(self, way: str) -> tuple[str, str]:
        """Return the directions to the right and to the left of a direction."""
        at = WAYS.index(way)
        return WAYS[(at + 1) % len(WAYS)], WAYS[at - 1]
