"""Tables of a learner: declared once, in the named tuple that its kernels get.

    class Tables(NamedTuple):
        #: [row]: the largest violation observed
        max_violation: Annotated[Floats, table("row", low=0.0)]
        #: [slot, column]: the greedy row
        greedy: Annotated[Longs, table("slot", "column", rows=True)]
        #: counted transitions, a named tuple of tables as well
        counts: TransitionCounts
        #: a constant
        bonus: float

`TableStore` allocates the arrays, grows them, collects the tuple, saves and loads them and checks what it has loaded:
type, shape, and the range of every value, because kernels trust their tables.

The axes of a table are numbers or names; the algorithm says how long a named axis is. Only the first axis may grow. An
axis that kernels append to has a counter, a table of its own:

        #: [cell]: next slot
        following: Annotated[Ints, table("cell", low=0, below="slot")]
        #: number of cells in use
        cells: Annotated[Longs, table(1, counts="cell")]

Kernels get all cells that are allocated, files only those in use. Of other tables kernels get exactly what is in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from peakrl.records import Field, check_range
from peakrl.types import Longs

#: The largest finite number.
FINITE = float(np.finfo(np.float64).max)
T = TypeVar("T")


class table:  # reads as a declaration
    """How a table is allocated, and which values it may hold."""

    def __init__(
        self,
        *axes: str | int,
        fill: float = 0,
        #: Range of the values; a name stands for a number that is known when a file is checked.
        low: float | None = None,
        high: float | str = FINITE,
        #: Values are indices of this axis.
        below: str | None = None,
        #: Values are rows of the slot, the first of them at the beginning.
        rows: bool = False,
        #: The one value is the number of used elements of this axis.
        counts: str | None = None,
        stored: bool = True,
        #: Name of a size that is 0 if the table is not used; it is then empty.
        when: str | None = None,
    ) -> None:
        self.axes, self.fill, self.high, self.below = axes, fill, high, below
        self.low = (0 if counts or below else -FINITE) if low is None else low
        self.rows, self.counts, self.stored, self.when = rows, counts, stored, when


def dtype_of(hint: Any) -> np.dtype[Any]:
    """Return the type of an array's numbers: the innermost last argument, since `NDArray` has one or two levels."""
    while arguments := get_args(hint):
        hint = arguments[-1]
    found: np.dtype[Any] = np.dtype(hint)
    return found


@cache
def fields(kind: type) -> dict[str, tuple[np.dtype[Any], table] | type | None]:
    """Return for each field of a named tuple: type and declaration, another tuple of tables, or None (a constant)."""
    found: dict[str, tuple[np.dtype[Any], table] | type | None] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        declared = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, table)]
        if declared:
            found[name] = dtype_of(hint.__origin__), declared[0]
        else:
            nested = isinstance(hint, type) and hasattr(hint, "_fields") and any(fields(hint).values())
            found[name] = hint if nested else None
    return found


def declarations(kind: type) -> Iterator[tuple[str, np.dtype[Any], table]]:
    """Return name, type and declaration of all tables, those of nested tuples included."""
    for name, field in fields(kind).items():
        if isinstance(field, type):
            yield from declarations(field)
        elif field is not None:
            yield name, *field


class TableStore(Generic[T]):
    """The arrays of a named tuple of tables; `grow` allocates them."""

    #: The tuple that kernels get; growing replaces it.
    tables: T

    def __init__(self, kind: type[T], sizes: Mapping[str, int], **constants: Any) -> None:
        self.kind, self.sizes, self.constants = kind, dict(sizes), constants
        self._declared = {name: (dtype, how) for name, dtype, how in declarations(kind)}
        self._counters = {how.counts: name for name, (_, how) in self._declared.items() if how.counts}
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, (dtype, how) in self._declared.items():
            widths = (axis if isinstance(axis, int) else self.sizes[axis] for axis in how.axes[1:])
            self._arrays[name] = np.empty((0, *widths), dtype)

    def _size(self, how: table) -> int:
        if how.when is not None and not self.sizes[how.when]:
            return 0
        axis = how.axes[0]
        return axis if isinstance(axis, int) else self.sizes[axis]

    def grow(self, **sizes: int) -> None:
        """Set the lengths of axes and enlarge their tables."""
        self.sizes.update(sizes)
        for name, (_, how) in self._declared.items():
            self._arrays[name] = enlarged(self._arrays[name], self._size(how), how.fill)
        self.tables = self._collected(self.kind)

    def reserve(self, more: int) -> None:
        """Ensure room for so many more elements of every axis that kernels append to."""
        needed = {axis: int(self._arrays[name][0]) + more for axis, name in self._counters.items()}
        if any(size > self.sizes[axis] for axis, size in needed.items()):
            self.grow(**{axis: max(size, 2 * self.sizes[axis]) for axis, size in needed.items()})

    def set(self, **constants: Any) -> None:
        """Replace constants."""
        self.constants.update(constants)
        self.tables = self._collected(self.kind)

    def fill_rows(self, first: int, row_start: Longs) -> None:
        """Set tables of rows to the first row of each slot from `first` on."""
        for name, (_, how) in self._declared.items():
            if how.rows:
                self._arrays[name][first : self.sizes["slot"]] = row_start[first:-1, None]

    def _collected(self, kind: type) -> Any:
        values = {}
        for name, field in fields(kind).items():
            if field is None:
                values[name] = self.constants[name]
            elif isinstance(field, type):
                values[name] = self._collected(field)
            else:
                values[name] = self._arrays[name][: self._size(field[1])]
        return kind(**values)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tables for a file, by name."""
        found = {}
        for name, (_, how) in self._declared.items():
            if how.stored and (how.when is None or self.sizes[how.when]):
                counter = self._counters.get(str(how.axes[0]))
                used = self._size(how) if counter is None else int(self._arrays[counter][0])
                found[name] = self._arrays[name][:used]
        return found

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the tables from a file.

        Axes that kernels append to keep their present length as room beside what the file holds: a forged file cannot
        make a kernel run out of it.
        """
        for axis, name in self._counters.items():
            overwrite(self._arrays[name], arrays[name], f"engine.{name}")
            first = next(other for other, (_, how) in self._declared.items() if how.axes[0] == axis)
            if self._arrays[name][0] != len(arrays[first]):
                raise ValueError(f"engine.{name} does not match engine.{first}")
            self.grow(**{axis: len(arrays[first]) + self.sizes[axis]})
        for name, array in self.arrays().items():
            overwrite(array, arrays[name], f"engine.{name}")

    def check(self, row_start: Longs, numbers: Mapping[str, float]) -> None:
        """Raise ValueError if a loaded value is out of its range; bounds may name `numbers` and constants."""
        known = {**self.constants, **numbers}
        sizes = self.sizes | {axis: int(self._arrays[name][0]) for axis, name in self._counters.items()}
        for name, array in self.arrays().items():
            dtype, how = self._declared[name]
            if how.rows:
                check_rows(array, row_start, f"engine.{name}")
                continue
            high = known[how.high] if isinstance(how.high, str) else how.high
            check_range(array, f"engine.{name}", Field(dtype.type, how.axes, how.below, low=how.low, high=high), sizes)


def enlarged(array: NDArray[Any], size: int, fill: float) -> NDArray[Any]:
    """Return an array with at least `size` elements, new ones `fill`: first exactly that many, later twice as many."""
    if size <= len(array):
        return array
    larger = np.full((max(size, 2 * len(array)), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger


def alike(like: NDArray[Any], array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return `array`, or raise if its type or shape differs from `like`."""
    if array.dtype != like.dtype or array.shape != like.shape:
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, not {like.dtype} of shape {like.shape}")
    return array


def overwrite(target: NDArray[Any], source: NDArray[Any], name: str) -> None:
    """Copy bytes: one table holds integers in columns of floats."""
    target.view(np.uint8)[...] = alike(target, source, name).view(np.uint8)


def check_rows(rows: NDArray[Any], row_start: Longs, name: str) -> None:
    """Raise ValueError unless `rows` [slot, column], of the first slots or all, belong to their slots."""
    if rows.dtype != np.int64 or rows.ndim != 2 or len(rows) >= len(row_start):
        raise ValueError(f"{name} is {rows.dtype} of shape {rows.shape}")
    start = row_start[: len(rows) + 1, None]
    offers = start[1:] > start[:-1]  # the rows of states without actions are never used
    if (((rows < start[:-1]) | (rows >= start[1:])) & offers).any():
        raise ValueError(f"{name}: a row does not belong to its state")
