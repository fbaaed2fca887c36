"""Breadth-first search over packed states: the rows of some states at once, as a problem tells of them.

A state is a tuple of whole numbers within ranges, and so one number, its code:

    code(x_1 .. x_n) = ((x_1 - low_1) * size_2 + (x_2 - low_2)) * size_3 + ...

`place` [code] holds the slot of a state, -1 where it has none. States, their actions and what may come of them are gone
through in order, and a next state that has no slot gets the next one. Outcomes of probability 0 are left out; those of
a row are put in the order of their slots.

A user's numbers are looked at here for the first time: one may be NaN, which a `loop` must not meet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import inlined, kernel, loop
from peakrl.types import Floats, Ints, Longs

#: What `collect_rows` finds.
NO_FAULT, NO_DISTRIBUTION, NO_PAYOFF, NO_FIELD = 0, 1, 2, 3
#: How far from 1 the probabilities of a row may sum to.
ROUNDING = 1e-9


class Told(NamedTuple):
    """What a problem says of some states, checked by `collect_rows`."""

    #: [action, state]: is it on offer?
    offered: NDArray[np.bool_]
    #: [action, outcome, state]
    chance: Floats
    #: [action, outcome, field, state]: the next state.
    following: Longs
    #: [action, outcome, 1 + I, state]: the reward and the constraints.
    payoff: Floats


class Limits(NamedTuple):
    """What fields and payoffs must keep to."""

    #: [field]: the least value and the number of values.
    low: Longs
    size: Longs
    #: [1 + I]: the least and the largest payoff.
    least: Floats
    most: Floats


class Found(NamedTuple):
    """Room for the rows of some states."""

    #: [row]: which action, how many outcomes; [row, 1 + I]: what the first of them as told pays.
    action: Ints
    sizes: Ints
    payoff: Floats
    #: [outcome]: next slot, probability, and which one as told.
    following: Ints
    chance: Floats
    number: Ints
    #: [new state]: its code.
    fresh: Longs


class Counts(NamedTuple):
    """How much `collect_rows` has found, and what is wrong where anything is."""

    rows: int
    outcomes: int
    fresh: int
    #: Do payoffs depend on what happens next?
    dependent: bool
    fault: int
    #: The state, the action, the outcome and the payoff or field that are wrong.
    state: int
    wrong_action: int
    outcome: int
    which: int


@inlined
def fault_of(told: Told, limits: Limits, s: int, a: int) -> tuple[int, int, int]:
    """Return what is wrong with a row, with the outcome and the payoff or field."""
    total, negative = 0.0, False
    for o in range(told.chance.shape[1]):
        total += told.chance[a, o, s]
        negative = negative or not told.chance[a, o, s] >= 0.0
    if negative or not abs(total - 1.0) <= ROUNDING:
        return NO_DISTRIBUTION, 0, 0
    for o in range(told.chance.shape[1]):
        if told.chance[a, o, s] > 0.0:
            for q in range(told.payoff.shape[2]):
                if not limits.least[q] <= told.payoff[a, o, q, s] <= limits.most[q]:
                    return NO_PAYOFF, o, q
            for f in range(told.following.shape[2]):
                if not 0 <= told.following[a, o, f, s] - limits.low[f] < limits.size[f]:
                    return NO_FIELD, o, f
    return NO_FAULT, 0, 0


@kernel
def collect_rows(told: Told, limits: Limits, place: Ints, slots: int, found: Found) -> Counts:
    """Put the rows of all states into `found`, and number the states that are new from `slots` on."""
    rows, outcomes, fresh, dependent = 0, 0, 0, False
    actions, most, states = told.chance.shape
    for s in range(states):
        for a in range(actions):
            if not told.offered[a, s]:
                continue
            fault, outcome, which = fault_of(told, limits, s, a)
            if fault != NO_FAULT:
                return Counts(rows, outcomes, fresh, dependent, fault, s, a, outcome, which)
            begin = outcomes
            for o in range(most):
                if told.chance[a, o, s] > 0.0:
                    code = 0
                    for f in range(told.following.shape[2]):
                        code = code * limits.size[f] + told.following[a, o, f, s] - limits.low[f]
                    if place[code] < 0:
                        place[code] = slots + fresh
                        found.fresh[fresh] = code
                        fresh += 1
                    insert(found, begin, outcomes, place[code], told.chance[a, o, s], o)
                    for q in range(told.payoff.shape[2]):
                        if outcomes == begin:
                            found.payoff[rows, q] = told.payoff[a, o, q, s]
                        dependent = dependent or told.payoff[a, o, q, s] != found.payoff[rows, q]
                    outcomes += 1
            found.action[rows], found.sizes[rows] = a, outcomes - begin
            rows += 1
    return Counts(rows, outcomes, fresh, dependent, NO_FAULT, 0, 0, 0, 0)


@inlined
def insert(found: Found, begin: int, end: int, slot: int, chance: float, number: int) -> None:
    """Put an outcome among those of its row that are there already, begin .. end, behind those of its slot."""
    at = end
    while at > begin and found.following[at - 1] > slot:
        found.following[at], found.chance[at] = found.following[at - 1], found.chance[at - 1]
        found.number[at] = found.number[at - 1]
        at -= 1
    found.following[at], found.chance[at], found.number[at] = slot, chance, number


@loop
def merge_equal(sizes: Ints, following: Ints, chance: Floats) -> int:
    """Add the probabilities of equal next slots of a row up, in place; return how many outcomes are left."""
    read, write = 0, 0
    for row in range(sizes.shape[0]):
        begin, end = write, read + sizes[row]
        while read < end:
            if write > begin and following[write - 1] == following[read]:
                chance[write - 1] += chance[read]
            else:
                following[write], chance[write] = following[read], chance[read]
                write += 1
            read += 1
        sizes[row] = write - begin
    return write
