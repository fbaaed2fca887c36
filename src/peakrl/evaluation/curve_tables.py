"""What `curve` works on: a policy under change, laid out by link (see there), and how it is made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.types import Floats, Ints, Layout, Longs

#: A step's cells are padded to a multiple of this, so that the matrix is multiplied in whole groups of rows.
GROUP = 4
#: (M | p) is stored as a matrix up to this many numbers (16 MB), and this many for each outcome that it stands for.
MOST_CELLS, CELLS_AN_OUTCOME = 1 << 21, 4


#: Numbers of down to 1e-290 are multiplied without a thought; floating-point numbers end at 1e-308.
SAFE_DIGITS = -290.0


class Curve(NamedTuple):
    """A policy under change and what is known of it; made by `new_curve`, updated in place."""

    #: [row, quantity] and [row, margin]: what a row pays, and figures of it whose least is wanted.
    row_payoffs: Floats
    row_margins: Floats
    #: [node]: the current policy; what its row pays ([node, quantity]), and the row's distribution.
    rows: Ints
    payoffs: Floats
    distribution: Ints
    #: The distributions that may lead to a slot are user[user_start[slot] .. user_start[slot + 1]].
    user_start: Longs
    user: Ints
    #: [slot]: its step in a layered model; empty in a stationary one.
    slot_step: Ints
    #: Where an episode may start and how likely; and the same as a mask, [slot].
    first_slot: Ints
    first_probability: Floats
    may_start: NDArray[np.bool_]
    #: [step + 1]: first link of a step; [step]: where its totals stand.
    link_start: Longs
    totals_start: Longs
    #: [cell]: mu and totals.
    mass: Floats
    #: Dense: [link, column], (M | p), the column a cell of the next step less its first. Sparse: p, [link, quantity].
    dense: bool
    matrix: Floats
    #: The least margins one step ahead [link, margin], and whether these and the matrix must be computed anew.
    ahead_margin: Floats
    stale: NDArray[np.bool_]
    #: Sparse: how many links of a step have mass, and which, listed from the step's first link on.
    active_count: Longs
    active: Ints
    #: [step, quantity]: what the policy pays.
    totals: Floats
    #: [margin]: the least that came up with positive probability under any policy so far.
    worst: Floats
    #: [0]: do the figures above belong to the policy? Not so until it is asked for the first time.
    evaluated: NDArray[np.bool_]


def start_curve(
    layout: Layout,
    row_reward: Floats,
    row_violation: Floats,
    first_slot: Ints,
    first_probability: Floats,
    rows: Ints,
) -> Curve:
    """Return what `policy_curve` needs, at the policy `rows`; `row_violation` is [row], the constraints summed."""
    payoffs = np.stack([row_reward, row_violation], axis=1)
    return new_curve(layout, payoffs, np.empty((len(payoffs), 0)), first_slot, first_probability, rows)


def may_vanish(layout: Layout, row_payoffs: Floats, first_probability: Floats) -> bool:
    """Might a product of all probabilities of an episode and a payoff be too small for a floating-point number?"""
    payoffs = np.abs(row_payoffs[row_payoffs != 0.0])
    digits = layout.horizon * np.log10(layout.outcome_probability.min(initial=1.0))
    digits += np.log10(first_probability.min()) + np.log10(payoffs.min(initial=1.0))
    return bool(digits < SAFE_DIGITS)


def users_of_slots(layout: Layout) -> tuple[Longs, Ints]:
    """Return for each slot the distributions that may lead to it: start [slot + 1], distribution."""
    owner = np.repeat(np.arange(len(layout.outcome_start) - 1, dtype=np.int32), np.diff(layout.outcome_start))
    counts = np.bincount(layout.outcome_next, minlength=len(layout.row_start) - 1)
    return np.concatenate([[0], np.cumsum(counts)]), owner[np.argsort(layout.outcome_next, kind="stable")]


def new_curve(
    layout: Layout,
    row_payoffs: Floats,
    row_margins: Floats,
    first_slot: Ints,
    first_probability: Floats,
    rows: Ints,
    dense: bool | None = None,
) -> Curve:
    """Return tables for the policy `rows` ([node]; copied). `dense` stores (M | p); None decides by size."""
    quantities, sizes = row_payoffs.shape[1], np.diff(layout.step_distributions, axis=1).ravel()
    padded = -(-(sizes + quantities) // GROUP) * GROUP
    link_start = np.concatenate(([0], np.cumsum(padded))).astype(np.int64)
    cells, width = int(link_start[-1]), int(padded.max())
    if dense is None:
        stored = len(layout.outcome_next)
        outcomes = stored * layout.horizon if layout.node_stride else stored
        dense = cells * width <= min(MOST_CELLS, CELLS_AN_OUTCOME * outcomes)
    user_start, user = users_of_slots(layout)
    slots, some = len(layout.row_start) - 1, rows >= 0
    slot_step = np.zeros(0 if layout.node_stride else slots, np.int32)
    if not layout.node_stride:
        for step, (first, last) in enumerate(layout.step_slots):
            slot_step[first:last] = step
    may_start = np.zeros(slots, np.bool_)
    may_start[first_slot] = True
    return Curve(
        row_payoffs=row_payoffs,
        row_margins=row_margins,
        rows=rows.astype(np.int32),
        payoffs=np.where(some[:, None], row_payoffs[rows], 0.0),
        distribution=np.where(some, layout.row_distribution[rows], 0).astype(np.int32),
        user_start=user_start,
        user=user,
        slot_step=slot_step,
        first_slot=first_slot,
        first_probability=first_probability,
        may_start=may_start,
        link_start=link_start,
        totals_start=link_start[:-1] + sizes,
        mass=np.zeros(cells),
        dense=dense,
        matrix=np.zeros((cells, width if dense else quantities)),
        ahead_margin=np.zeros((cells, row_margins.shape[1])),
        stale=np.ones(cells, np.bool_),
        active_count=np.zeros(layout.horizon, np.int64),
        active=np.zeros(0 if dense else cells, np.int32),
        totals=np.zeros((layout.horizon, quantities)),
        worst=np.full(row_margins.shape[1], np.inf),
        evaluated=np.zeros(1, np.bool_),
    )
