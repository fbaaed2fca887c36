"""A grid of closed cells over a box, and the index boxes that cover intervals.

    edges[j][k]    the k-th edge of coordinate j; cell k is [edges[k], edges[k + 1]], so that an edge belongs to two
    [L, U]         is covered by cells first .. last:  edges[first] <= L,  U <= edges[last + 1]

Edges are compared, never recomputed, so that membership is exact; of the two cells that hold L = U = an edge, the right
one is taken. A look-up of a point takes every cell that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_count, check_number
from peakrl.continuous.problem import ContinuousProblem, Path
from peakrl.errors import SettingsError
from peakrl.jit import inlined, kernel
from peakrl.types import Bools, Floats, Longs

#: Cells of a coordinate, so that an index is a 16-bit integer.
MOST_CELLS = 32_000
#: Columns of `Grid.frame`.
LOW, HIGH, CELLS, PERIOD, ERROR = range(5)
#: States are reduced by a period with an error of an ulp for each turn: this share of it is good for so many turns.
WRAP_ERROR, MOST_TURNS = 1e-9, 1e6


class Grid:
    """A grid of cells of equal width for each coordinate."""

    def __init__(self, problem: ContinuousProblem, cells: int | Sequence[int], measured: float = 0.0) -> None:
        counts = [cells] * problem.dimensions if isinstance(cells, int) else list(cells)
        if len(counts) != problem.dimensions:
            raise SettingsError(
                f"cells is {cells!r}; it must be a number or one for each of {', '.join(problem.names)}"
            )
        self.problem = problem
        #: [coordinate]: number of cells.
        self.cells = tuple(check_count(count, "cells", 1, MOST_CELLS) for count in counts)
        #: [coordinate]: the edges of its cells.
        self.edges = [np.linspace(*ends) for ends in zip(problem.low, problem.high, np.add(self.cells, 1), strict=True)]
        period = (problem.high - problem.low) * [rule == "wrap" for rule in problem.outside]
        #: [coordinate]: how far the state that is looked up may be from the true one.
        self.error = check_number(measured, "measured", least=0.0) + WRAP_ERROR * period
        #: [coordinate, LOW ..]: what a look-up needs.
        self.frame = np.stack([problem.low, problem.high, np.array(self.cells), period, self.error], axis=1)

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(np.prod(self.cells, dtype=np.int64))

    @cached_property
    def table(self) -> Floats:
        """[coordinate, edge]: all edges, for look-ups."""
        table = np.full((len(self.cells), max(self.cells) + 1), np.inf)
        for row, edges in zip(table, self.edges, strict=True):
            row[: len(edges)] = edges
        return table

    def bounds(self, cell: int) -> tuple[Floats, Floats]:
        """Return the lowest and the highest point of a cell."""
        index = np.unravel_index(cell, self.cells)
        low = np.array([edges[k] for edges, k in zip(self.edges, index, strict=True)])
        return low, np.array([edges[k + 1] for edges, k in zip(self.edges, index, strict=True)])

    def cell_box(self, cell: int) -> tuple[list[Floats], list[Floats]]:
        """Return the lowest and highest states that are looked up in a cell, as lists of arrays of length 1."""
        low, high = (end.reshape(-1, 1) for end in self.bounds(cell))
        return self.problem.widened(low, high, self.error)

    def covering(self, path: Path, j: int) -> NDArray[np.int16]:
        """Return [.., 2]: the first and last cell of coordinate j of a path's image, in the shape of what it reads."""
        low, high, leaves = np.broadcast_arrays(path.image[j].low, path.image[j].high, path.leaves[j])
        out = np.empty((*low.shape, 2), np.int16)
        exits, wraps = (self.problem.outside[j] == rule for rule in ("exit", "wrap"))
        error = 0.0 if wraps else float(self.error[j])
        low, high, leaves = (np.ascontiguousarray(part).reshape(-1) for part in (low, high, leaves))
        cover(self.edges[j], low, high, leaves, exits, error, out.reshape(-1, 2))
        return out

    def locate(self, points: Floats) -> Longs:
        """Return [point, ..]: the cells that hold each point, -1 if there are no more."""
        return located(points, self.table, self.frame)


@inlined
def last_edge(edges: Floats, cells: int, value: float) -> int:
    """Return the cell k with edges[k] <= value < edges[k + 1], the last cell for its upper end; value is in the box."""
    k = min(int((value - edges[0]) * (cells / (edges[cells] - edges[0]))), cells - 1)
    while edges[k] > value:
        k -= 1
    while k < cells - 1 and edges[k + 1] <= value:
        k += 1
    return k


@inlined
def cells_of(point: Floats, table: Floats, frame: Floats, index: Longs, twice: Bools) -> bool:
    """Find the cell of a point, by coordinate, and where it also lies in the one before; False outside of the box."""
    for j in range(frame.shape[0]):
        value, low, high = point[j], frame[j, LOW], frame[j, HIGH]
        if frame[j, PERIOD] > 0.0 and not (value >= low and value <= high):
            turns = np.floor((value - low) / frame[j, PERIOD])
            if not abs(turns) <= MOST_TURNS:
                return False
            value = min(max(value - turns * frame[j, PERIOD], low), high)
        elif value < low and value >= low - frame[j, ERROR]:
            value = low
        elif value > high and value <= high + frame[j, ERROR]:
            value = high
        if not (value >= low and value <= high):
            return False
        k = last_edge(table[j], int(frame[j, CELLS]), value)
        index[j], twice[j] = k, k > 0 and table[j, k] == value
    return True


@kernel
def located(points: Floats, table: Floats, frame: Floats) -> Longs:
    """Return [point, ..]: the cells that hold each point, -1 if there are no more."""
    count, d = points.shape
    found = np.full((count, 1 << d), -1, np.int64)
    index, twice = np.zeros(d, np.int64), np.zeros(d, np.bool_)
    for n in range(count):
        if cells_of(points[n], table, frame, index, twice):
            found[n, 0], held = 0, 1
            for j in range(d):
                for each in range(held):
                    found[n, each] = found[n, each] * int(frame[j, CELLS]) + index[j]
                if twice[j]:
                    for each in range(held):
                        found[n, held + each] = found[n, each] - 1
                    held *= 2
    return found


@kernel
def allowed(points: Floats, table: Floats, frame: Floats, kept: NDArray[Any], needed: int) -> Bools:
    """Return [point, choice]: is it safe for `needed` steps in some cell that holds the point?"""
    cells, choices = located(points, table, frame), kept.shape[1]
    found = np.zeros((points.shape[0], choices), np.bool_)
    for n in range(points.shape[0]):
        for cell in cells[n]:
            if cell < 0:
                break
            for choice in range(choices):
                found[n, choice] |= kept[cell, choice] >= needed
    return found


@kernel
def cover(
    edges: Floats, low: Floats, high: Floats, leaves: Bools, exits: bool, error: float, out: NDArray[np.int16]
) -> None:
    """Write [interval, 2]: the first and the last cell that cover an interval, widened by `error` inside of the box.

    If the interval may leave the box, the first is negative, ~first; (1, 0) if nothing of it is inside.
    """
    cells = len(edges) - 1
    least, most = edges[0], edges[cells]
    for n in range(len(low)):
        first, last = low[n], high[n]
        known = first <= last  # neither is NaN
        stays = known and not leaves[n] and (exits or (first >= least and last <= most))
        if not known:
            first, last = least, most
        if last < least or first > most:
            begin, end = 1, 0
        else:
            if error > 0.0:
                first, last = np.nextafter(first - error, -np.inf), np.nextafter(last + error, np.inf)
            first, last = max(first, least), min(last, most)
            begin, end = last_edge(edges, cells, first), last_edge(edges, cells, last)
            if end > begin and edges[end] == last:
                end -= 1
        out[n, 0], out[n, 1] = begin if stays else ~begin, end
