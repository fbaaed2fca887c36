"""Types of arrays, the glossary of indices, and the arrays that kernels read a model from.

Four index spaces are used throughout the package, for stationary and layered models alike:

    slot    index of a stored state
    row     index of a stored (state, action) pair; the rows of a slot are contiguous
    node    index of a (step, state):          node(step, slot) = step * node_stride  + slot
    entry   index of a (step, state, action):  entry(step, row) = step * entry_stride + row

A stationary model has one set of slots that every step uses; its strides are the numbers of slots and rows. A layered
model has separate slots for every step 0..H, so that both strides are 0 and nothing is stored H times. Slots that are
reached only after the last step have no rows; their value is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.int8]
Bools = NDArray[np.bool_]


class Layout(NamedTuple):
    """Transition structure: slots -> rows -> shared next-slot distributions -> outcomes."""

    horizon: int
    node_stride: int
    entry_stride: int
    #: [step, 2]: first slot of a step, and one past its last.
    step_slots: Longs
    #: [step, 2]: first distribution used by the rows of a step, and one past its last.
    step_distributions: Longs
    #: [slot + 1]: the rows of a slot are row_start[slot] .. row_start[slot + 1].
    row_start: Longs
    #: [row]: its distribution over next slots.
    row_distribution: Ints
    #: [distribution + 1]: where its outcomes start.
    outcome_start: Longs
    #: [outcome]: next slot and probability.
    outcome_next: Ints
    outcome_probability: Floats


class Distributions(NamedTuple):
    """The distributions over next slots of a model's rows, each stored once in a stage: arrays of a `TabularModel`."""

    row_distribution: Any
    outcome_start: Any
    outcome_next: Any
    outcome_probability: Any
    distribution_start: Any


class Payoffs(NamedTuple):
    """Rewards and constraint values of the outcomes of each row.

    Outcome j of a row has the record `row_payoff[row] + stride * j`; the stride is 0 if payoffs do not depend on the
    outcome.
    """

    stride: int
    row_payoff: Ints
    #: [record]
    reward: Floats
    #: [record, constraint]
    constraints: Floats


class Sampler(NamedTuple):
    """Walker's alias tables, one for each distribution and one for the first state."""

    #: [row]: the next slot if it is certain, else ~distribution (a negative number).
    link: Ints
    #: [outcome]: take this outcome with this probability, else outcome `alias`.
    accept: Floats
    alias: Ints
    first_slot: Ints
    first_accept: Floats
    first_alias: Ints


class MemoryAxis(NamedTuple):
    """What a budget or monitor adds to each state: the last parts of (state, memory, ...), in order."""

    #: Name of its constraint.
    name: str
    #: Of a budget: the first and the largest amount in whole steps, and the step; None for monitors.
    first: int | None = None
    limit: int | None = None
    unit: float | None = None
