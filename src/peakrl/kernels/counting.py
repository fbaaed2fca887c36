"""Optimistic planning on counted transitions, for a stationary model: the formula is in `paper.ucbvi`."""

from __future__ import annotations

import math

import numpy as np

from peakrl.kernels.arrays import Floats, Ints, Layout, Longs
from peakrl.kernels.jit import kernel


@kernel
def plan_on_counts(
    layout: Layout,
    cell_start: Longs,
    cell_next: Ints,
    counts: Floats,
    visits: Floats,
    reward: Floats,
    forbidden: np.ndarray,
    span: float,
    bonus: float,
    rows: Longs,
) -> None:
    """Set the greedy rows [step, slot]; cells cell_start[row] .. are the row's outcomes, `counts` how often each came.

    Of equal rows the lowest wins; every slot must have a row that is not forbidden.
    """
    slots = rows.shape[1]
    value, following = np.zeros(slots), np.zeros(slots)
    for step in range(rows.shape[0] - 1, -1, -1):
        cap = span * (rows.shape[0] - step)
        for slot in range(slots):
            best, chosen = -math.inf, layout.row_start[slot]
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                if forbidden[row]:
                    continue
                q = cap
                n = visits[row]
                if n > 0.0:
                    total, square = 0.0, 0.0
                    for cell in range(cell_start[row], cell_start[row + 1]):
                        part = following[cell_next[cell]]
                        total += counts[cell] * part
                        square += counts[cell] * part * part
                    mean = total / n
                    deviation = math.sqrt(max(square / n - mean * mean, 0.0) / n)
                    q = min(cap, reward[row] + mean + bonus * deviation)
                if q > best:
                    best, chosen = q, row
            value[slot], rows[step, slot] = best, chosen
        value, following = following, value
