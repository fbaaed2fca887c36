"""Which rows can no longer be chosen, given how far their value may come closer to the best (`planning.action_elimination`).

With Q(s,a) = r(s,a) + E[V(s')] as `backward` works it out, a row stays where

    max_a' Q(s,a') - Q(s,a) <= margin        and, where costs can come up, a in A(s)
"""

from __future__ import annotations

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.planning.backward_kernel import TIE, Pays, Work, mean, means
from peakrl.types import Floats, Layout, Longs
from peakrl.viability import Bools


@loop
def layer_change(before: Floats, after: Floats, each: int) -> tuple[float, float, float]:
    """Return the least and the largest of after - before, and the largest size of both; every `each`-th number."""
    least, most, size = np.inf, -np.inf, 0.0
    for i in range(0, before.shape[0], each):
        change = after[i] - before[i]
        least, most = min(least, change), max(most, change)
        size = max(size, max(abs(before[i]), abs(after[i])))
    return least, most, size


@loop
def largest_excess(start: Longs, probability: Floats) -> float:
    """Return by how much the probabilities of a list differ from 1 in sum, at most."""
    worst = 0.0
    for this in range(start.shape[0] - 1):
        total = 0.0
        for place in range(start[this], start[this + 1]):
            total += probability[place]
        worst = max(worst, abs(total - 1.0))
    return worst


@inlined
def value_of_row(layout: Layout, work: Work, pays: Pays, row: int, base: int) -> float:
    """Return Q of a row where no cost can come up."""
    link = np.int64(pays.link[row])
    if link >= 0:
        total = work.ahead[link]
    elif work.expected.shape[0] > 0:
        total = work.expected[~link - base]
    else:
        total = mean(layout, work, np.uint64(~link))
    return total + pays.reward[row]


@loop
def may_be_best(
    layout: Layout, work: Work, pays: Pays, margin: float, stays: Bools, left: Longs, first: int, last: int, stride: int
) -> bool:
    """Set stays [row] and how many are left [slot] for every `stride`-th slot where no cost can come up."""
    base = layout.step_distributions[work.step, 0]
    for slot in range(first, last, stride):
        # The step is done: its values are those of the best.
        best, count = work.values[slot - work.here], 0
        for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
            stays[row] = best - value_of_row(layout, work, pays, row, base) <= margin
            count += stays[row]
        left[slot] = count
    return True


@inlined
def pair_of_row(layout: Layout, work: Work, pays: Pays, row: int, base: int) -> tuple[float, float]:
    """Return Q and C of a row."""
    link = np.int64(pays.link[row])
    if link >= 0:
        value, cost = work.ahead[2 * link], work.ahead[2 * link + 1]
    elif work.expected.shape[0] > 0:
        value, cost = work.expected[2 * (~link - base)], work.expected[2 * (~link - base) + 1]
    else:
        value, cost = means(layout, work, ~link)
    return value + pays.reward[row], cost + pays.cost[row]


@loop
def may_be_least(
    layout: Layout, work: Work, pays: Pays, margin: float, stays: Bools, left: Longs, first: int, last: int, stride: int
) -> bool:
    """Set stays [row] and how many are left [slot] for every `stride`-th of the slots first .. last.

    False where rows of a slot that stay differ in cost, however little.
    """
    base, equal = layout.step_distributions[work.step, 0], True
    for slot in range(first, last, stride):
        begin, end = layout.row_start[slot], layout.row_start[slot + 1]
        least, best, harm, count = np.inf, -np.inf, 0.0, 0
        for row in range(begin, end):
            least = min(least, pair_of_row(layout, work, pays, row, base)[1])
        for row in range(begin, end):
            value, cost = pair_of_row(layout, work, pays, row, base)
            if cost <= least * TIE and value > best:
                best, harm = value, cost
        for row in range(begin, end):
            value, cost = pair_of_row(layout, work, pays, row, base)
            stays[row] = cost <= least * TIE and best - value <= margin
            count += stays[row]
            equal = equal and (not stays[row] or cost == harm)
        left[slot] = count
    return equal
