"""Lines out of runs: what each slot has at a step, where only changes are kept.

A slot's runs are start[slot] .. start[slot + 1], each with the last step that it holds for, in rising order:

    value(slot, step) = value of the first run k of the slot with until[k] >= step

Values are copied as `width` bytes, so that one compiled function serves integers of every width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import loop
from peakrl.types import Ints, Longs

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


@loop
def put_runs(
    step: int, slots: Ints, first: int, numbers: Octets, width: int, place: Longs, until: Ints, kept: Octets
) -> None:
    """Put what slots choose up to a step before what they choose after it, which stands at place [slot - first]."""
    for i in range(slots.shape[0]):
        slot = slots[i] - first
        place[slot] -= 1
        run = place[slot]
        until[run] = step
        for byte in range(width):
            kept[run * width + byte] = numbers[i * width + byte]
