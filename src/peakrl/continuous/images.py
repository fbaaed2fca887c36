"""Images of cells: which cells may follow a cell by a choice, as index boxes stored by what each coordinate reads.

A cell, a choice and a part (a combination of disturbance boxes) have one index box for each path through the conditions
of the problem. Coordinate i of all boxes is a table over the coordinates that it reads:

    tables[i][part * paths + path, choice, position_i, :] = first, last       position_i = sum_j index_j steps[i, j]
    satisfied[choice, position_d]                                             steps is 0 for what is not read

`first` is negative, ~first, if the coordinate may leave the box. For values there are also, at position_d,
`possible`: may all constraints be satisfied somewhere in the cell, and bounds of the (discounted) reward of the choice.

A box is a product of intervals, so nothing is lost against one index box for each cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.continuous.grid import Grid
from peakrl.continuous.intervals import Interval
from peakrl.continuous.problem import ContinuousProblem, Path
from peakrl.errors import ProblemError
from peakrl.jit import inlined, kernel
from peakrl.progress import Progress
from peakrl.storage import SHARE, available_memory
from peakrl.types import Bools, Floats, Longs

#: Cells that are evaluated at once.
SLAB = 1 << 17
Tables = tuple[NDArray[np.int16], ...]
Shape = tuple[int, ...]


class Images:
    """The index boxes of all cells and choices."""

    def __init__(self, problem: ContinuousProblem, grid: Grid, discount: float | None = None) -> None:
        self.problem, self.grid, self.discount = problem, grid, discount
        self.parts = list(itertools.product(range(len(problem.weights)), repeat=problem.block))
        self.choices, self.paths = len(problem.sequences), 1
        shapes = self._shapes()
        #: [coordinate, then constraints]: the shape of each table over the cells.
        self.shapes = [
            tuple(n if axis > 1 else 1 for n, axis in zip(grid.cells, shape, strict=True)) for shape in shapes
        ]
        #: [table, coordinate]: how far apart the entries of neighbouring cells are.
        self.steps: Longs = np.array(
            [[step * (n > 1) for step, n in zip(strides(s), s, strict=True)] for s in self.shapes]
        )
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]
        self._check_memory(sizes)
        self.tables: Tables = tuple(np.empty((len(self.parts), self.choices, size, 2), np.int16) for size in sizes[:-1])
        self.satisfied: Bools = np.ones((self.choices, sizes[-1]), np.bool_)
        judged = self.satisfied.shape if discount is not None else (0, 0)
        self.possible: Bools = np.zeros(judged, np.bool_)
        self.reward_low: Floats = np.full(judged, np.inf)
        self.reward_high: Floats = np.full(judged, -np.inf)
        self._fill()

    def by_cell(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return [choice, cell] of a table [choice, position] over what constraints and rewards read."""
        full = np.broadcast_to(table.reshape(-1, *self.shapes[-1]), (len(table), *self.grid.cells))
        return full.reshape(len(table), -1)

    def axes(self, first: int, last: int) -> tuple[list[Any], list[Any]]:
        """Return the cells with index first .. last - 1 of coordinate 0 as intervals, each along its own axis."""
        low, high, d = [], [], len(self.grid.cells)
        for j, edges in enumerate(self.grid.edges):
            part = slice(first, last) if j == 0 else slice(None)
            shape = [-1 if axis == j else 1 for axis in range(d)]
            low.append(edges[:-1][part].reshape(shape))
            high.append(edges[1:][part].reshape(shape))
        return self.problem.widened(low, high, self.grid.error)

    def _shapes(self) -> list[Shape]:
        """Return the shape of each coordinate and of the constraints on two copies of the box for each coordinate."""
        problem, d = self.problem, len(self.grid.cells)
        low, high = (
            [np.full([2 if a == j else 1 for a in range(d)], ends[j]) for j in range(d)]
            for ends in (problem.low, problem.high)
        )
        found: list[Shape] = [(1,) * d] * (d + 1)
        for choice in range(self.choices):
            for path in problem.paths(low, high, choice, self.parts[0], self.grid.error):
                for table, shape in enumerate(shapes_of(path, self.discount is not None)):
                    found[table] = np.broadcast_shapes(found[table], shape)
        return found

    def _check_memory(self, sizes: list[int]) -> None:
        pairs = self.grid.size * self.choices
        needed = (
            4.0 * len(self.parts) * self.choices * sum(sizes[:-1])
            + self.choices * sizes[-1]
            + 24.0 * self.grid.size
            + pairs
        )
        if needed > (limit := available_memory() * SHARE):
            raise ProblemError(
                f"{self.problem.name!r} on {self.grid.size:,} cells with {self.choices} choices takes "
                f"{needed / 1e9:.3g} GB, more than the limit of {limit / 1e9:.3g} GB: use fewer cells, actions or "
                "disturbance boxes"
            )

    # Filling ---------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        cells = self.grid.cells
        rows = max(1, SLAB // (self.grid.size // cells[0]))
        with Progress(f"images of {self.problem.name}", total=self.grid.size * self.choices, unit="pairs") as progress:
            for first in range(0, cells[0], rows):
                last = min(first + rows, cells[0])
                low, high = self.axes(first, last)
                for choice, (part, parts) in itertools.product(range(self.choices), enumerate(self.parts)):
                    self._fill_slab(
                        slice(first, last), choice, part, self.problem.paths(low, high, choice, parts, self.grid.error)
                    )
                progress.reach(self.grid.size // cells[0] * last * self.choices)

    def _fill_slab(self, rows: slice, choice: int, part: int, paths: Iterator[Path]) -> None:
        """Write the boxes of some cells: each path takes the next free slot of the cells that are alive in it."""
        d, filled = len(self.grid.cells), np.zeros((), np.int64)
        for path in paths:
            used = int(np.max(np.where(path.alive, filled, 0)))
            self._make_room(used + 1)
            for j in range(d):
                boxes = self.grid.covering(path, j)
                for slot in range(used + 1):
                    free = path.alive & (filled == slot)
                    np.copyto(self._view(j, part * self.paths + slot, choice, rows), boxes, where=free[..., None])
            view = self._part_of(self.satisfied[choice], d, rows)
            for holds in path.holds:
                view &= holds | ~path.alive
            if self.discount is not None:
                self._judge(path, choice, rows)
            filled = filled + path.alive
        for slot, j in itertools.product(range(1, self.paths), range(d)):
            first, view = (self._view(j, part * self.paths + each, choice, rows) for each in (0, slot))
            np.copyto(view, first, where=(filled <= slot)[..., None])

    def _judge(self, path: Path, choice: int, rows: slice) -> None:
        """Note whether constraints may be satisfied, and the discounted reward of all actions of a choice."""
        d, low, high, factor = len(self.grid.cells), Interval(0.0), Interval(0.0), 1.0
        for reward in path.rewards:
            low, high = low + factor * Interval(reward.low), high + factor * Interval(reward.high)
            factor *= self.discount or 1.0
        possible, least, most = (
            self._part_of(table[choice], d, rows) for table in (self.possible, self.reward_low, self.reward_high)
        )
        possible |= np.all(np.broadcast_arrays(path.alive, *path.may), axis=0) if path.may else path.alive
        np.copyto(least, np.minimum(least, low.low), where=path.alive)
        np.copyto(most, np.maximum(most, high.high), where=path.alive)

    def _part_of(self, table: Any, number: int, rows: slice) -> Any:
        shape = self.shapes[number]
        return table.reshape(*shape, *table.shape[1:])[rows if shape[0] > 1 else slice(None)]

    def _view(self, j: int, slot: int, choice: int, rows: slice) -> NDArray[np.int16]:
        view: NDArray[np.int16] = self._part_of(self.tables[j][slot, choice], j, rows)
        return view

    def _make_room(self, paths: int) -> None:
        """Add slots to all parts; they repeat the first."""
        if paths <= self.paths:
            return
        grown = []
        for table in self.tables:
            parts = table.reshape(len(self.parts), self.paths, *table.shape[1:])
            more = np.repeat(parts[:, :1], paths - self.paths, axis=1)
            grown.append(np.concatenate([parts, more], axis=1).reshape(-1, *table.shape[1:]))
        self.tables, self.paths = tuple(grown), paths


def shapes_of(path: Path, rewarded: bool) -> list[Shape]:
    """Return the shapes of the tables that a path needs."""
    d = len(path.image)
    judged = [*path.holds, *(reward.low for reward in path.rewards if rewarded)]
    alive = (1,) * d
    alive = np.broadcast_shapes(alive, path.alive.shape)
    found = [
        np.broadcast_shapes(alive, v.low.shape, gone.shape) for v, gone in zip(path.image, path.leaves, strict=True)
    ]
    needed = alive if rewarded or path.holds else (1,) * d
    return [*found, np.broadcast_shapes(needed, *(part.shape for part in judged))]


def strides(shape: Shape) -> Longs:
    """Return how far apart neighbours along each axis are in an array of this shape."""
    return np.append(np.cumprod(shape[:0:-1], dtype=np.int64)[::-1], 1).astype(np.int64)


# Kernels -------------------------------------------------------------------------------------------------------------
# `strides` is a tuple, one number for each coordinate, so that loops over coordinates and corners are unrolled.


@inlined
def positions(index: Longs, steps: Longs, strides: tuple[int, ...], out: Longs) -> None:
    """Write the position of a cell in each table."""
    for i in range(len(strides) + 1):
        out[i] = 0
        for j in range(len(strides)):
            out[i] += index[j] * steps[i, j]


@inlined
def advance(index: Longs, cells: tuple[int, ...]) -> None:
    """Move to the next cell, the last coordinate first."""
    j = len(cells) - 1
    while j >= 0:
        index[j] += 1
        if index[j] < cells[j]:
            break
        index[j] = 0
        j -= 1


@inlined
def index_of(cell: int, cells: tuple[int, ...], out: Longs) -> None:
    """Write the index of a cell."""
    for back in range(len(cells)):
        j = len(cells) - 1 - back
        out[j] = cell % cells[j]
        cell //= cells[j]


@inlined
def counted(first: Longs, last: Longs, sums: NDArray[np.int32], strides: tuple[int, ...]) -> int:
    """Return the number of members in an index box, by inclusion and exclusion on a summed-area table."""
    total = 0
    for corner in range(1 << len(strides)):
        at, sign = 0, 1
        for j in range(len(strides)):
            if (corner >> j) & 1:
                at += (last[j] + 1) * strides[j]
            else:
                at += first[j] * strides[j]
                sign = -sign
        total += sign * sums[at]
    return total


@inlined
def inside(
    tables: Tables, satisfied: Bools, position: Longs, choice: int, sums: NDArray[np.int32], strides: tuple[int, ...],
    first: Longs, last: Longs,
) -> bool:  # fmt: skip
    """Is every constraint satisfied, and are all boxes of a pair in the set? first and last are scratch."""
    if not satisfied[choice, position[len(strides)]]:
        return False
    for box in range(tables[0].shape[0]):
        volume = 1
        for j in range(len(strides)):
            first[j], last[j] = tables[j][box, choice, position[j], 0], tables[j][box, choice, position[j], 1]
            if first[j] < 0:
                return False
            volume *= last[j] - first[j] + 1
        if counted(first, last, sums, strides) != volume:
            return False
    return True


@kernel
def add_up(table: NDArray[np.int32]) -> None:
    """Replace [before, cell, after] by its sums along the middle axis."""
    for before in range(table.shape[0]):
        for cell in range(1, table.shape[1]):
            for after in range(table.shape[2]):
                table[before, cell, after] += table[before, cell - 1, after]


def summed(members: Bools, cells: Shape) -> NDArray[np.int32]:
    """Return the summed-area table of a set of cells, flat; it has one more entry along each coordinate."""
    table = np.zeros([n + 1 for n in cells], np.int32)
    table[(slice(1, None),) * len(cells)] = members.reshape(cells)
    for j in range(len(cells)):
        before, after = (int(np.prod(part, dtype=np.int64)) for part in (table.shape[:j], table.shape[j + 1 :]))
        add_up(table.reshape(before, table.shape[j], after))
    return table.reshape(-1)
