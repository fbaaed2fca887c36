"""Arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Table:
    """An array that grows along its first axis in amortised constant time; new elements are `fill`."""

    def __init__(self, fill: Any, dtype: Any, *tail: int) -> None:
        self.fill = fill
        self.size = 0
        #: The allocated array: kernels get this and access only the used part.
        self.room: NDArray[Any] = np.empty((0, *tail), dtype)

    def grow(self, size: int) -> None:
        """Grow to `size` elements: allocate exactly that many at first, later at least twice as many as before."""
        self.size = max(self.size, size)
        if size <= len(self.room):
            return
        larger = np.full((max(size, 2 * len(self.room)), *self.room.shape[1:]), self.fill, self.room.dtype)
        larger[: len(self.room)] = self.room
        self.room = larger

    @property
    def used(self) -> NDArray[Any]:
        """The used part."""
        return self.room[: self.size]
