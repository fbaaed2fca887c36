"""Lines out of runs: what each slot has at a step, where only changes are kept.

A slot's runs are start[slot] .. start[slot + 1], each with the last step that it holds for, in rising order:

    value(slot, step) = value of the first run k of the slot with until[k] >= step

Values are copied as `width` bytes, so that one compiled function serves integers of every width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peakrl.kernels.arrays import Ints, Longs
from peakrl.kernels.jit import loop

Octets = NDArray[np.uint8]


@loop
def run_line(start: Longs, until: Ints, octets: Octets, width: int, step: int, line: Octets) -> None:
    """Set line [slot, width] to what each slot has at a step."""
    for slot in range(start.shape[0] - 1):
        low, high = start[slot], start[slot + 1] - 1
        while low < high:
            middle = (low + high) // 2
            if until[middle] < step:
                low = middle + 1
            else:
                high = middle
        for byte in range(width):
            line[slot * width + byte] = octets[low * width + byte]
