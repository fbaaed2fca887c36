"""Second looks of the practical learner: what may be better than it looks is tried again (see `kernels.practical`)."""

from __future__ import annotations

import math

import numpy as np

from peakrl.kernels.arrays import Layout
from peakrl.kernels.jit import inlined
from peakrl.kernels.practical_tables import DOUBT, LOOKS, NO_LOOK, NOISE_WEIGHT, Groups, Options, PracticalTables


@inlined
def note_noise(tables: PracticalTables, place: int, counted: int, column: int, reward: float, following: int) -> None:
    """Take in how far the target of a visit that is not yet counted is from the one before, by W as it is now."""
    if tables.visits[place, counted] > 0:
        now, before = tables.w[following, column], tables.w[tables.latest_next[place, counted], column]
        if now > -np.inf and before > -np.inf:
            apart = reward + now - (tables.latest_reward[place, counted] + before)
            seen = tables.noise[1] + 1.0
            tables.noise[1] = seen
            tables.noise[0] += max(1.0 / seen, NOISE_WEIGHT) * (0.5 * apart * apart - tables.noise[0])
    tables.latest_next[place, counted] = following
    tables.latest_reward[place, counted] = reward


@inlined
def schedule_look(tables: PracticalTables, slot: int, place: int, counted: int, own: int) -> None:
    """Tick off a look that was due in column `own`; make the next one due there when the visits say so."""
    if tables.look[slot] == own:
        tables.look[slot] = NO_LOOK
    t = tables.visits[place, counted]
    gap = 1
    while 2 * LOOKS * gap <= t:
        gap *= 2
    if t >= LOOKS and t % gap == 0:
        tables.look[slot] = own


@inlined
def look_again(
    layout: Layout, tables: PracticalTables, groups: Groups, options: Options, slot: int, low: int, high: int
) -> None:
    """Where a look is due in columns low .. high, take the row of the largest Q with its doubt."""
    column = tables.look[slot]
    if low <= column and column < high and tables.w[slot, column] > -np.inf:
        counted = 0 if options.share else column
        most = -np.inf
        for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
            place = groups.law_of_row[row] if tables.x.shape[0] > 0 else row
            value = tables.q[row, column] + doubt(tables, options, place, counted)
            if value > most:
                most = value
                tables.greedy[slot, column] = row


@inlined
def doubt(tables: PracticalTables, options: Options, place: int, counted: int) -> float:
    """Return by how much a row (or law) may be better than its estimate; nothing where it has not been tried."""
    spread = 0.0
    if tables.errors.shape[0] > 0:
        spread = tables.errors[place, counted, 2]
    elif tables.visits[place, counted] > 0:
        spread = (options.offset + 1.0) / (options.offset + tables.visits[place, counted])
    return DOUBT * math.sqrt(spread * tables.noise[0])
