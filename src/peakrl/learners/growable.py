"""An array that grows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Table:
    """An array that grows along its first axis at amortised constant cost; what is added holds `fill`."""

    def __init__(self, fill: Any, dtype: Any, *tail: int) -> None:
        self.fill = fill
        self.size = 0
        #: The whole room: kernels are given this, and touch only what is in use.
        self.room: NDArray[Any] = np.empty((0, *tail), dtype)

    def grow(self, size: int) -> None:
        """Make room for `size` entries in all: just so many at first, at least twice as many later."""
        self.size = max(self.size, size)
        if size <= len(self.room):
            return
        larger = np.full((max(size, 2 * len(self.room)), *self.room.shape[1:]), self.fill, self.room.dtype)
        larger[: len(self.room)] = self.room
        self.room = larger

    @property
    def used(self) -> NDArray[Any]:
        """The entries in use."""
        return self.room[: self.size]
