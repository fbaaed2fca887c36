"""The safe set of a continuous problem: cells from every point of which all constraints can certainly be satisfied.

With I(c, a) the index boxes that cover every next state of cell c by choice a (`images`), and ok(c, a) if on all of the
cell the constraints are satisfied, a is available and no next state leaves the box through a side with the rule
`violation`:

    S_0 = all cells,    S_{k+1} = { c in S_k : ok(c, a) and I(c, a) subset S_k for some a }
    layer(c) = max { k : c in S_k },  FOREVER for the cells of the intersection, reached in finitely many sweeps
    kept(c, a) = 0 if not ok(c, a),  else 1 + min of layer over I(c, a)

From every real state x of a cell c the choice a never violates and leads, whatever the disturbance, to states that are
safe for kept(c, a) - 1 more steps. A sweep tests one choice of each cell until it fails, and skips cells none of whose
successors changed. Sets that grow instead (`planning.grid`) take the same sweeps.

References
----------
Reissig, Weber, Rungger. Feedback refinement relations for the synthesis of symbolic controllers. IEEE Transactions on
Automatic Control, 2017.
Aubin, Bayen, Saint-Pierre. Viability Theory: New Directions. Springer, 2011.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_count, shown
from peakrl.continuous import files
from peakrl.continuous.grid import ERROR, PERIOD, Grid, allowed
from peakrl.continuous.images import Images, Tables, advance, counted, index_of, inside, positions, strides, summed
from peakrl.continuous.problem import ContinuousProblem
from peakrl.errors import PolicyError
from peakrl.jit import kernel
from peakrl.policy.export import as_csv, written
from peakrl.progress import Progress
from peakrl.safety.safe_set import safe_set
from peakrl.types import Bools, Ints, Longs
from peakrl.viability import FOREVER

#: Cells that are skipped together if none of their successors changed.
TILE = 32
#: The longest horizon: steps are counted in 16 bits.
MOST_STEPS = 65_000


@kernel
def tile_hulls(tables: Tables, steps: Longs, cells: tuple[int, ...], strides: tuple[int, ...], size: int) -> Longs:
    """Return [tile, first or last, coordinate]: the hull of all index boxes of TILE cells in a row."""
    d, (boxes, choices) = len(cells), tables[0].shape[:2]
    hulls = np.empty(((size + TILE - 1) // TILE, 2, d), np.int64)
    hulls[:, 0], hulls[:, 1] = 1 << 30, -1
    index, position = np.zeros(d, np.int64), np.zeros(d + 1, np.int64)
    for cell in range(size):
        positions(index, steps, strides, position)
        hull = hulls[cell // TILE]
        for box in range(boxes):
            for choice in range(choices):
                for j in range(len(strides)):
                    first = np.int64(tables[j][box, choice, position[j], 0])
                    if first >= 0:
                        hull[0, j] = min(hull[0, j], first)
                        hull[1, j] = max(hull[1, j], np.int64(tables[j][box, choice, position[j], 1]))
        advance(index, cells)
    return hulls


@kernel
def sweep(
    tables: Tables, satisfied: Bools, steps: Longs, cells: tuple[int, ...], strides: tuple[int, ...],
    sums: NDArray[np.int32], before: NDArray[np.int32], hulls: Longs, number: int, shrinks: bool, layer: Ints,
    watched: NDArray[np.int16],
) -> int:  # fmt: skip
    """Give cells that leave or join the set in this sweep their layer; return how many.

    A set that `shrinks` loses cells without a choice that leads into it, any other gains those that have one. `sums` is
    of this set, `before` of the last; `watched` [cell] is the first choice that leads into it.
    """
    d, choices, changed = len(cells), tables[0].shape[1], 0
    index, position = np.zeros(d, np.int64), np.zeros(d + 1, np.int64)
    first, last = np.zeros(d, np.int64), np.zeros(d, np.int64)
    for tile in range(hulls.shape[0]):
        hull = hulls[tile]
        if number > 0:
            if hull[1, :].min() < 0:
                continue
            if counted(hull[0], hull[1], sums, strides) == counted(hull[0], hull[1], before, strides):
                continue
        index_of(tile * TILE, cells, index)
        for cell in range(tile * TILE, min((tile + 1) * TILE, layer.shape[0])):
            if layer[cell] == FOREVER:
                positions(index, steps, strides, position)
                found = choices
                for choice in range(watched[cell], choices):
                    if inside(tables, satisfied, position, choice, sums, strides, first, last):
                        found = choice
                        break
                if shrinks or found < choices:
                    watched[cell] = found
                if shrinks == (found == choices):
                    layer[cell] = number
                    changed += 1
            advance(index, cells)
    return changed


@kernel
def raise_kept(
    tables: Tables, satisfied: Bools, steps: Longs, cells: tuple[int, ...], strides: tuple[int, ...],
    sums: NDArray[np.int32], layer: Ints, number: int, value: int, kept: NDArray[Any],
) -> None:  # fmt: skip
    """Set kept to `value` if it is `number` and all boxes of the pair are in the set of `sums`."""
    d = len(cells)
    index, position = np.zeros(d, np.int64), np.zeros(d + 1, np.int64)
    first, last = np.zeros(d, np.int64), np.zeros(d, np.int64)
    for cell in range(layer.shape[0]):
        if layer[cell] > number:
            positions(index, steps, strides, position)
            for choice in range(kept.shape[1]):
                if kept[cell, choice] == number and inside(
                    tables, satisfied, position, choice, sums, strides, first, last
                ):
                    kept[cell, choice] = value
        advance(index, cells)


class GridSafeSet:
    """The safe states of a continuous problem, proved for every real number in the cells of a grid.

    Made by `safe_set(problem, cells=...)`. A state x is a sequence of numbers, or an array of shape (d,); `contains`
    and `mask` also take many states of shape (n, d). With a `block` of m actions, choices are sequences of m actions, a
    step is m steps of the dynamics, and the state is looked up once for each sequence.

    Examples
    --------
    >>> import peakrl
    >>> safe = peakrl.safe_set(peakrl.problems.room_temperature(), cells=600)
    >>> safe.share, safe.contains([19.3]), safe.actions([18.01])
    (1.0, True, [1])
    >>> print(safe.reason([18.01], 0))
    0 in the cell [18.01, 18.02]: 'temperature' may leave its range [18, 24]
    """

    def __init__(
        self,
        problem: ContinuousProblem,
        grid: Grid,
        horizon: int | None,
        layer: Ints,
        kept: NDArray[Any],
        measured: float,
    ) -> None:
        #: The problem it belongs to.
        self.problem = problem
        self.grid = grid
        #: Number of steps for which it holds; None: for ever.
        self.horizon = horizon
        #: [cell]: number of steps for which every constraint can be satisfied, FOREVER if there is no end.
        self.layer = layer
        #: [cell, choice]: for how many steps, the next included, the choice is safe; for ever: 1, else 0. Read-only.
        self.kept = kept
        self.kept.flags.writeable = False
        #: Largest error of the states that are looked up, in each coordinate.
        self.measured = measured
        #: The actions, or the sequences of actions of a block, in the order of masks.
        self.choices = problem.choices

    def __repr__(self) -> str:
        safe, total = int(self.cells.sum()), self.grid.size
        length = "for ever" if self.horizon is None else f"for {self.horizon:,} steps"
        return f"<GridSafeSet of {self.problem.name!r}: {safe:,} of {total:,} cells safe {length}>"

    @property
    def cells(self) -> Bools:
        """[cell]: is every point of it safe?"""
        return self.layer >= (FOREVER if self.horizon is None else self.horizon)

    @property
    def share(self) -> float:
        """The share of the box that is safe."""
        return float(self.cells.mean())

    @property
    def feasible(self) -> bool:
        """Is every first state safe? The problem must have a `start` that is a point or a box."""
        start = self.problem.start
        if not isinstance(start, tuple):
            raise PolicyError(
                f"the start of {self.problem.name!r} is not a point or a box: call contains() with points"
            )
        if not self.measured and (start[0] == start[1]).all():
            return bool(self.contains(start[0]))
        pieces = []
        frame = self.grid.frame[:, [PERIOD, ERROR]]
        for edges, low, high, (period, error) in zip(self.grid.edges, *start, frame, strict=True):
            ends = [(low - error + by, high + error + by) for by in {-period, 0.0, period}]
            held = [
                (edges[1:] > a) & (edges[:-1] < b) if a < b else (edges[1:] >= a) & (edges[:-1] <= b) for a, b in ends
            ]
            pieces.append(np.any(held, axis=0))
        return bool(self.cells.reshape(self.grid.cells)[np.ix_(*pieces)].all())

    # What may be done ------------------------------------------------------------------------------------------

    def contains(self, x: Any, step: int = 0) -> Any:
        """Return whether every constraint can be satisfied from a state on; an array of truth values for many."""
        found = self.mask(x, step).any(axis=-1)
        return bool(found) if found.ndim == 0 else found

    def mask(self, x: Any, step: int = 0) -> Bools:
        """Return [choice]: is it safe? Nothing is safe outside of the box; [point, choice] for many states."""
        needed = 1 if self.horizon is None else self.horizon - step
        if needed < 1 or step < 0:
            raise PolicyError(f"step is {step}; the safe set covers the steps 0 to {(self.horizon or 0) - 1}")
        if (cell := self._cell(x)) is not None:
            row: Bools = self._rows[cell]
            return row if self.horizon is None else row >= needed
        points = np.asarray(x, np.float64)
        if points.shape[-1:] != (self.problem.dimensions,) or points.ndim > 2:
            raise PolicyError(
                f"a state has {self.problem.dimensions} coordinates, {', '.join(self.problem.names)}; got {shown(x)}"
            )
        grid = self.grid
        if points.ndim == 1:
            points = points.reshape(1, -1)
            return np.asarray(allowed(points, grid.table, grid.frame, self.kept, needed)[0])
        found: Bools = allowed(points, grid.table, grid.frame, self.kept, needed)
        return found

    @cached_property
    def _rows(self) -> NDArray[Any]:
        return self.kept.view(np.bool_) if self.horizon is None else self.kept

    @cached_property
    def _lists(self) -> list[tuple[list[float], int]]:
        return [(edges.tolist(), count) for edges, count in zip(self.grid.edges, self.grid.cells, strict=True)]

    def _cell(self, x: Any) -> int | None:
        """Return the cell that has a single point in its interior, None for everything else; this is fast."""
        cell, values = 0, x.tolist() if isinstance(x, np.ndarray) else x
        try:
            for (edges, count), value in zip(self._lists, values, strict=True):
                after = bisect_right(edges, value)
                if not 0 < after <= count or edges[after - 1] == value:
                    return None
                cell = cell * count + after - 1
        except (TypeError, ValueError):
            return None
        return cell

    def actions(self, x: Any, step: int = 0) -> list[Any]:
        """Return the safe actions of one state, or sequences of actions; none if the state is not safe."""
        return [self.choices[index] for index in np.flatnonzero(self.mask(self.problem.point(x), step))]

    def reason(self, x: Any, action: Any, step: int = 0) -> str | None:
        """Return why an action is not known to be safe in a state; None if it is safe."""
        problem, point = self.problem, self.problem.point(x)
        if action not in self.choices:
            raise PolicyError(f"action {shown(action)} is not one of {shown(self.choices)}")
        choice = self.choices.index(action)
        if self.mask(point, step)[choice]:
            return None
        cell = int(self.grid.locate(point[None])[0, 0])
        if cell < 0:
            return f"{self.problem.named(point)} is outside of the box"
        needed = FOREVER if self.horizon is None else self.horizon - step
        low, high = self.grid.bounds(cell)
        where = f"{action!r} in the cell " + " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True))
        for holds, first, last in self.boxes(cell, choice):
            for name, satisfied in zip([*problem.constraint_names, "available"] * problem.block, holds, strict=False):
                if not satisfied:
                    what = "it may not be available" if name == "available" else f"{name!r} may be violated"
                    return f"{where}: {what}"
            for j in np.flatnonzero(first < 0):
                return f"{where}: {problem.names[j]!r} may leave its range [{problem.low[j]:g}, {problem.high[j]:g}]"
            box = tuple(slice(*ends) for ends in zip(first, last + 1, strict=True))
            after = self.layer.reshape(self.grid.cells)[box]
            if after.size and after.min() < needed - (self.horizon is not None):
                index = np.unravel_index(int(after.argmin()), after.shape)
                reached = int(
                    np.ravel_multi_index([int(i + f) for i, f in zip(index, first, strict=True)], self.grid.cells)
                )
                centre = self.problem.named(np.mean(self.grid.bounds(reached), axis=0))
                return f"{where}: it may lead near {centre}, where safety is known for {after.min():,} more steps only"
        raise AssertionError("a choice without a reason")

    def boxes(self, cell: int, choice: int) -> Iterator[tuple[list[bool], Longs, Longs]]:
        """Yield (constraints satisfied, first, last) of each index box of a cell."""
        problem, grid = self.problem, self.grid
        low, high = grid.cell_box(cell)
        for parts in itertools.product(range(len(problem.weights)), repeat=problem.block):
            for path in problem.paths(low, high, choice, parts, grid.error):
                out = np.array([grid.covering(path, j).reshape(2) for j in range(problem.dimensions)], np.int64)
                yield [bool(np.all(each)) for each in path.holds], out[:, 0], out[:, 1]

    # Export and files -----------------------------------------------------------------------------------------

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the safe cells as CSV: their bounds, and for how many steps each choice is safe (for ever: 1)."""
        return written(as_csv(files.columns(self), files.rows(self)), path)

    def to_c(self, path: str | Path, *, name: str | None = None) -> str:
        """Write and return a C99 header: `int NAME_safe(int32_t step, const double *x, int32_t choice)`."""
        return files.header(self, path, name)

    def save(self, path: str | Path) -> None:
        """Write the safe set, without the functions of its problem, to one file for `peakrl.load(path, problem)`."""
        files.save_set(self, path)

    # An empty set ----------------------------------------------------------------------------------------------

    @cached_property
    def empty_reason(self) -> str | None:
        """Why no cell is safe, and what to try; None if some is."""
        if self.cells.any():
            return None
        problem, cell = self.problem, int(self.layer.argmax())
        low, high = self.grid.bounds(cell)
        moved = np.zeros(problem.dimensions)
        for choice in range(len(self.choices)):
            for path in problem.paths(*self.grid.cell_box(cell), choice, [0] * problem.block, self.grid.error):
                centre = np.array([np.mean((value.low + value.high) / 2) for value in path.image])
                moved = np.fmax(moved, np.abs(centre - (low + high) / 2))
        most = int(self.layer[cell])
        found = (
            f"no cell is safe: {int((self.layer == most).sum()):,} cells last longest, {most:,} steps, for example "
            f"near {self.problem.named((low + high) / 2)}"
        )
        slow = [
            f"{name!r} (by {by:.3g} of {width:.3g})"
            for name, by, width in zip(problem.names, moved, high - low, strict=True)
            if by < width
        ]
        if slow:
            found += (
                f". There {', '.join(slow)} moves by less than the width of a cell, which acts like a disturbance: use "
                f"more cells, or block={2 * problem.block}"
            )
        return f"{found}. {self.reason((low + high) / 2, self.choices[0])}"


@safe_set.register  # type: ignore[arg-type]  # other types of problems have other safe sets
def grid_safe_set(  # type: ignore[misc]
    problem: ContinuousProblem, *, cells: int | Sequence[int] = 100, horizon: float | None = None, measured: float = 0.0
) -> GridSafeSet:
    """Return the safe set of a continuous problem on a grid.

    Every real state in a safe cell is safe; other states may be safe too, and a finer grid finds more of them.

    Parameters
    ----------
    problem
        The problem.
    cells
        Number of cells, one for all coordinates or one for each.
    horizon
        Number of steps, or of blocks of actions; None or `math.inf`: for ever.
    measured
        The states that are looked up differ from the true ones by at most this, in each coordinate: 1e-7 of the largest
        value for observations in float32.

    Returns
    -------
    GridSafeSet

    Examples
    --------
    >>> import peakrl
    >>> peakrl.safe_set(peakrl.problems.room_temperature(), cells=600, horizon=12).mask([23.0], step=3).tolist()
    [True, False]
    """
    steps = None if horizon in (None, math.inf) else check_count(horizon, "horizon", 1, MOST_STEPS)
    grid = Grid(problem, cells, measured)
    return fixed_point(Images(problem, grid), steps, float(measured))


def swept(images: Images, layer: Ints, shrinks: bool, most: int | None, what: str) -> NDArray[np.int16]:
    """Set the layers of cells whose layer is FOREVER, by at most so many sweeps; return [cell] the choices watched."""
    grid, watched = images.grid, np.zeros(len(layer), np.int16)
    arrays = tables_of(images)
    hulls = tile_hulls(images.tables, images.steps, grid.cells, arrays[-1], grid.size)
    sums = summed((layer == FOREVER) == shrinks, grid.cells)
    before = np.zeros_like(sums)  # a set that grows: nothing leads into a tile without members
    number, changed = 0 if shrinks else 1, 1
    with Progress(f"{what} of {images.problem.name}", unit="sweeps") as progress:
        while changed and number != most:
            changed = sweep(*arrays, sums, before, hulls, number, shrinks, layer, watched)
            number += 1
            before, sums = sums, summed((layer == FOREVER) == shrinks, grid.cells) if changed else sums
            progress.reach(number, cells=int(sums[-1]))
    return watched


def tables_of(images: Images) -> tuple[Tables, Bools, Longs, tuple[int, ...], tuple[int, ...]]:
    """Return what kernels read of images."""
    cells = images.grid.cells
    return images.tables, images.satisfied, images.steps, cells, tuple(map(int, strides(tuple(n + 1 for n in cells))))


def fixed_point(images: Images, horizon: int | None, measured: float) -> GridSafeSet:
    """Return the safe set of images."""
    grid, arrays = images.grid, tables_of(images)
    layer = np.full(grid.size, FOREVER, np.int32)
    swept(images, layer, True, horizon, "safe set")
    if horizon is None:
        kept = np.zeros((grid.size, images.choices), np.uint8)
        raise_kept(*arrays, summed(layer == FOREVER, grid.cells), layer, 0, 1, kept)
    else:
        kept = np.zeros((grid.size, images.choices), np.uint8 if horizon < 256 else np.uint16)
        last = int(np.max(layer, where=layer < FOREVER, initial=-1)) + 1
        for step in range(min(last, horizon - 1) + 1):  # from step `last` on, the sets are equal
            final = horizon if step >= last else step + 1
            raise_kept(*arrays, summed(layer >= step, grid.cells), layer, step, final, kept)
    return GridSafeSet(images.problem, grid, horizon, layer, kept, measured)


def load_grid_safe_set(path: str | Path, problem: ContinuousProblem) -> GridSafeSet:
    """Load the safe set that was saved at `path`; one safe choice of each cell, drawn at random, is proved again."""
    return GridSafeSet(problem, *files.read_set(path, problem))
