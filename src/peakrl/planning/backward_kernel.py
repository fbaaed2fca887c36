"""Backward induction: least expected violation first, most expected reward second.

With r(s,a) the expected reward and c(s,a) the expected violation of a pair, for h = H-1 .. 0:

    C_h(s,a) = c(s,a) + E[C_{h+1}(s')]        Q_h(s,a) = r(s,a) + E[V_{h+1}(s')]
    A_h(s)   = the actions with C_h(s,a) <= (1 + 1e-12) * min_a' C_h(s,a')
    pi_h(s)  = the lowest action with the largest Q_h(s,a) in A_h(s);  V_h, C_h(s) = Q_h, C_h(s, pi_h(s))

and V_H = C_H = 0. The tolerance is relative: where violation can be avoided, only exact zeros are minimal, and sums
of zeros are exact, so C_h(s) == 0 says that s is viable: nothing need ever be violated from there on. For the same
reason a product of probabilities that underflows must not look like a zero: costs that are not zero are at least
`LEAST_COST`.

One call does some slots of one step, so that several threads may share a step; no slot reads what another writes.
Only two layers of values are alive: that of the step and that of the next, V alone or (V, C) side by side, one cache
line for both. `most_reward` serves where no cost can come up: then A_h(s) holds every action. What is chosen is
written as the number of the action among its slot's, in `width` bytes, the lowest first: not in an integer of that
width, for which numba would compile everything anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import inlined, loop
from peakrl.types import Floats, Ints, Layout

TIE = 1.0 + 1e-12
LEAST_COST = 1e-290
Octets = NDArray[np.uint8]


class Pays(NamedTuple):
    """What rows pay on average, and where they lead."""

    #: [row]: reward, and cost (empty where none can come up).
    reward: Floats
    cost: Floats
    #: [row]: the next slot less the first of the next step where it is certain, else ~distribution (below 0).
    link: Ints


class Work(NamedTuple):
    """What one step is worked out from and into."""

    step: int
    #: The first slot of this step and of the next.
    here: int
    there: int
    #: [slot of the next step]: V, or V and C in turns.
    ahead: Floats
    #: [distribution of this step]: E[V], or E[V] and E[C] in turns; empty where rows do not share them.
    expected: Floats
    #: [slot of this step]: V, or V and C in turns.
    values: Floats
    #: [slot of this step, width]: what is chosen; empty where nobody asks.
    choice: Octets
    width: int


@inlined
def leaves_open(layout: Layout, d: int) -> bool:
    """Has a distribution several outcomes, or one whose probability is 1 but for rounding? No link stands for it."""
    first = layout.outcome_start[d]
    return layout.outcome_start[d + 1] > first + 1 or layout.outcome_probability[first] != 1.0


@loop
def expect_reward(layout: Layout, work: Work, first: int, last: int) -> None:
    """Set E[V] of the next state for those of the distributions first .. last that leave it open."""
    base = layout.step_distributions[work.step, 0]
    for d in range(first, last):
        if leaves_open(layout, d):
            work.expected[d - base] = mean(layout, work, np.uint64(d))


@inlined
def mean(layout: Layout, work: Work, d: np.uint64) -> float:
    """Return E[V] of the next state of a distribution."""
    total, there = 0.0, np.uint64(work.there)
    o, last = np.uint64(layout.outcome_start[d]), np.uint64(layout.outcome_start[d + np.uint64(1)])
    while o < last:
        total += layout.outcome_probability[o] * work.ahead[np.uint64(layout.outcome_next[o]) - there]
        o += np.uint64(1)
    return total


@loop
def most_reward(layout: Layout, work: Work, pays: Pays, first: int, last: int) -> None:
    """Set V and the choice of the slots first .. last where no cost can come up."""
    # Unsigned, and no `range`: an index that may be below 0 would be tested for it.
    one, begin, here = np.uint64(1), np.uint64(layout.row_start[first]), np.uint64(work.here)
    shared, kept, base = work.expected.shape[0] > 0, work.choice.shape[0] > 0, layout.step_distributions[work.step, 0]
    for slot in range(np.uint64(first), np.uint64(last)):
        end = np.uint64(layout.row_start[slot + one])
        best, chosen, row = -np.inf, begin, begin
        while row < end:
            link = pays.link[row]
            if link >= 0:
                total = work.ahead[np.uint64(link)]
            elif shared:
                total = work.expected[np.uint64(~link - base)]
            else:
                total = mean(layout, work, np.uint64(~link))
            total += pays.reward[row]
            # Two selections and no jump, which the processor would often guess wrong.
            better = total > best
            best, chosen = total if better else best, row if better else chosen
            row += one
        work.values[slot - here] = best if end > begin else 0.0
        if kept:
            write(work.choice, work.width, slot - here, chosen - begin)
        begin = end


@inlined
def write(choice: Octets, width: int, place: np.uint64, number: np.uint64) -> None:
    """Write a number into `width` bytes, the lowest first."""
    first = place * np.uint64(width)
    choice[first] = np.uint8(number)
    for byte in range(1, width):
        choice[first + np.uint64(byte)] = np.uint8(number >> np.uint64(8 * byte))


@inlined
def means(layout: Layout, work: Work, d: int) -> tuple[float, float]:
    """Return E[V] and E[C] of the next state of a distribution."""
    value, cost, doomed = 0.0, 0.0, False
    for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
        place, chance = 2 * (layout.outcome_next[o] - work.there), layout.outcome_probability[o]
        value += chance * work.ahead[place]
        if work.ahead[place + 1] > 0.0:
            cost += chance * work.ahead[place + 1]
            doomed = True
    return value, max(cost, LEAST_COST) if doomed else 0.0


@loop
def expect_harm(layout: Layout, work: Work, first: int, last: int) -> None:
    """Set E[V] and E[C] of the next state for those of the distributions first .. last that leave it open."""
    base = layout.step_distributions[work.step, 0]
    for d in range(first, last):
        if leaves_open(layout, d):
            work.expected[2 * (d - base)], work.expected[2 * (d - base) + 1] = means(layout, work, d)


@loop
def least_harm(layout: Layout, work: Work, pays: Pays, scratch: Floats, first: int, last: int) -> None:
    """Set V, C and the choice of the slots first .. last; `scratch` holds two numbers for each action of a slot."""
    ahead, expected, shared = work.ahead, work.expected, work.expected.shape[0] > 0
    base, kept = layout.step_distributions[work.step, 0], work.choice.shape[0] > 0
    for slot in range(first, last):
        begin, end = layout.row_start[slot], layout.row_start[slot + 1]
        least = np.inf
        for row in range(begin, end):
            link = np.int64(pays.link[row])
            if link >= 0:
                value, cost = ahead[2 * link], ahead[2 * link + 1]
            elif shared:
                value, cost = expected[2 * (~link - base)], expected[2 * (~link - base) + 1]
            else:
                value, cost = means(layout, work, ~link)
            value, cost = value + pays.reward[row], cost + pays.cost[row]
            scratch[2 * (row - begin)], scratch[2 * (row - begin) + 1] = value, cost
            least = min(least, cost)
        limit, best, harm, chosen = least * TIE, -np.inf, 0.0, np.int64(0)
        for number in range(end - begin):
            if scratch[2 * number + 1] <= limit and scratch[2 * number] > best:
                best, harm, chosen = scratch[2 * number], scratch[2 * number + 1], number
        place = slot - work.here
        work.values[2 * place], work.values[2 * place + 1] = best if end > begin else 0.0, harm
        if kept:
            write(work.choice, work.width, np.uint64(place), np.uint64(chosen))
