"""How the practical learner takes in one transition: step sizes, Q and X (formulas: `learners.safe_q.kernel`)."""

from __future__ import annotations

import numpy as np

from peakrl.jit import inlined
from peakrl.learners.constraint_memory import NO_WITNESS, PATIENCE, PROVED, SETTLED, Groups, Options, PracticalTables
from peakrl.types import Floats, Layout


@inlined
def adaptive_rate(errors: Floats, row: int, counted: int, t: int, delta: float, smoothing: float) -> float:
    """Take in the error `delta` of visit t and return the step size."""
    weight = smoothing / (smoothing + t)
    bias = (1.0 - weight) * errors[row, counted, 0] + weight * delta
    square = (1.0 - weight) * errors[row, counted, 1] + weight * delta * delta
    spread = errors[row, counted, 2]
    alpha = 1.0
    if t > 2:
        least = 1.0 / t
        noise = square - bias * bias
        if t > SETTLED:
            noise = min(noise / ((1.0 - weight) * (1.0 - weight)), square)
        alpha = 1.0 - noise / ((1.0 + spread) * square) if square > 0.0 else least
        alpha = min(1.0, max(alpha, least))
    errors[row, counted, 0] = bias
    errors[row, counted, 1] = square
    errors[row, counted, 2] = (1.0 - alpha) * (1.0 - alpha) * spread + alpha * alpha
    return alpha


@inlined
def patient_rate(horizon: int, t: int) -> float:
    """Return the step size of visit t after the proof: the start counts for PATIENCE visits."""
    return (horizon + 1.0) / (horizon + PATIENCE + t)


@inlined
def step_size(
    layout: Layout, tables: PracticalTables, options: Options, place: int, counted: int, old: float, target: float
) -> float:
    """Count one more visit of a row (or law) and return its step size; `old` and `target` are its own column's."""
    t = tables.visits[place, counted] + 1
    tables.visits[place, counted] = t
    if tables.status[PROVED] > 0:
        return patient_rate(layout.horizon, t)
    alpha = (options.offset + 1.0) / (options.offset + t)
    # Both are looked at first: the difference of two infinities is not a number.
    if old > -np.inf and target > -np.inf:
        if tables.square.shape[0] > 0:
            error = target - old if t > 1 else options.most
            tables.square[place, counted] += (error * error - tables.square[place, counted]) / t
        if tables.errors.shape[0] > 0:
            alpha = adaptive_rate(tables.errors, place, counted, t, target - old, options.offset)
    return alpha


@inlined
def update_row(
    layout: Layout,
    tables: PracticalTables,
    options: Options,
    row: int,
    following: int,
    reward: float,
    own: int,
    low: int,
    high: int,
) -> None:
    """Move Q of a row towards reward + W(following) in columns low .. high."""
    counted = 0 if options.share else low
    ahead = options.shift
    alpha = step_size(
        layout, tables, options, row, counted, tables.q[row, own], reward + tables.w[following, own + ahead]
    )  # fmt: skip
    for column in range(low, high):
        old = tables.q[row, column]
        target = reward + tables.w[following, column + ahead]
        tables.q[row, column] = old + alpha * (target - old) if old > -np.inf else old
    for column in range(low, high):
        if tables.q[row, column] == -np.inf and tables.witness[row, column] == NO_WITNESS:
            tables.witness[row, column] = following


@inlined
def note_reward(layout: Layout, tables: PracticalTables, options: Options, row: int, reward: float) -> None:
    """Move a row's mean reward towards `reward`."""
    tries = tables.tried[row] + 1
    tables.tried[row] = tries
    kept = tables.reward[row] if tries > 1 else options.most
    share = patient_rate(layout.horizon, tries) if tables.status[PROVED] > 0 else 1.0 / tries
    tables.reward[row] = kept + share * (reward - kept)


@inlined
def update_law(
    layout: Layout,
    tables: PracticalTables,
    groups: Groups,
    options: Options,
    row: int,
    following: int,
    own: int,
    low: int,
    high: int,
) -> None:
    """Move X of a row's law towards W(following) in columns low .. high."""
    law = groups.law_of_row[row]
    counted = 0 if options.share else low
    ahead = options.shift
    alpha = step_size(layout, tables, options, law, counted, tables.x[law, own], tables.w[following, own + ahead])
    for column in range(low, high):
        old = tables.x[law, column]
        target = tables.w[following, column + ahead]
        tables.x[law, column] = old + alpha * (target - old) if old > -np.inf else old
        if old > -np.inf and target == -np.inf:
            tables.law_witness[law, column] = following


@inlined
def recompose(
    layout: Layout, tables: PracticalTables, groups: Groups, most: float, slot: int, low: int, high: int
) -> None:
    """Compute Q of a slot anew from what its rows earn and what their laws lead to; what is forbidden stays so."""
    for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
        law = groups.law_of_row[row]
        reward = tables.reward[row] if tables.tried[row] > 0 else most
        for column in range(low, high):
            if tables.q[row, column] > -np.inf:
                tables.q[row, column] = reward + tables.x[law, column]
                if tables.x[law, column] == -np.inf:
                    tables.witness[row, column] = tables.law_witness[law, column]
