"""The arrays that kernels read a model from.

Two index spaces serve stationary and layered models alike. A *slot* is a stored state, a *row* a stored
(state, action) pair. Tables that a step owns (values, visit counts) are flat:

    node(step, slot) = step * node_stride  + slot
    entry(step, row) = step * entry_stride + row

A stationary model has one set of slots that every step uses (strides = number of slots and of rows). A layered
model has slots of its own for every step 0..H, so both strides are 0 and nothing is stored H times. Slots that are
met only after the last step have no rows; their value is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.int8]


class Layout(NamedTuple):
    """Who leads where: slots -> rows -> shared next-slot distributions -> outcomes."""

    horizon: int
    node_stride: int
    entry_stride: int
    #: [step, 2]: first and one past the last slot of a step.
    step_slots: Longs
    #: [step, 2]: first and one past the last distribution that a step's rows use.
    step_distributions: Longs
    #: [slot + 1]: rows of a slot are row_start[slot] .. row_start[slot + 1].
    row_start: Longs
    #: [row]: which distribution over next slots.
    row_distribution: Ints
    #: [distribution + 1]: its outcomes.
    outcome_start: Longs
    #: [outcome]: next slot, and its probability.
    outcome_next: Ints
    outcome_probability: Floats


class Payoffs(NamedTuple):
    """What a row earns and how it stands to the constraints.

    The payoff of outcome number j of a row is record `row_payoff[row] + stride * j`; stride is 0 where payoffs do
    not depend on the outcome.
    """

    stride: int
    row_payoff: Ints
    #: [record]
    reward: Floats
    #: [record, constraint]
    constraints: Floats


class Sampler(NamedTuple):
    """Walker's alias tables, one for each distribution, and one for the first state."""

    #: [row]: the next slot where there is but one, else ~distribution (a negative number).
    link: Ints
    #: [outcome]: keep the column with this probability, else take `alias`, an outcome index.
    accept: Floats
    alias: Ints
    first_slot: Ints
    first_accept: Floats
    first_alias: Ints
