"""Backward induction: least expected violation first, largest expected reward second.

With r(s,a) the expected reward and c(s,a) the expected violation of a pair, for h = H-1 .. 0:

    C_h(s,a) = c(s,a) + E[C_{h+1}(s')]        Q_h(s,a) = r(s,a) + E[V_{h+1}(s')]
    A_h(s)   = the actions with C_h(s,a) <= (1 + 1e-12) * min_a' C_h(s,a')
    pi_h(s)  = the first action with the largest Q_h(s,a) in A_h(s);  V_h, C_h(s) = Q_h, C_h(s, pi_h(s))

and V_H = C_H = 0. The tolerance is relative: if a violation can be avoided, only exact zeros are minimal, and sums of
zeros are exact, so C_h(s) == 0 says that s is viable: a policy exists that never violates from there on. For the same
reason a product of probabilities that underflows must not become zero: costs that are not zero are at least
`LEAST_COST`.

In a stationary model a layer of values is a function of the next layer alone. If two consecutive layers are equal, so
are all earlier ones, and the choices with them: the induction ends there.

Threads share the slots of a step, in chunks that fit into the processor's caches. No slot reads what another writes, so
results do not depend on the number of threads. Only two layers of values are in memory: V alone or (V, C) side by side,
in one cache line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.cores import usable_cores
from peakrl.jit import inlined, kernel, loop
from peakrl.memory import BYTES_WITH_VALUES, check_tables
from peakrl.numerics import times
from peakrl.policy.tables import width_of
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Layout, Longs

TIE = 1.0 + 1e-12
LEAST_COST = 1e-290
#: Expectations are computed once per distribution if rows are at least this many times as numerous.
SHARED = 1.5
#: Another thread pays from about this many pairs of a step on; the largest chunk of a thread's work, in pairs.
PAIRS_A_THREAD, PAIRS_A_CHUNK = 20_000, 150_000
Octets = NDArray[np.uint8]


# Kernels ---------------------------------------------------------------------------------------------------------


class Pays(NamedTuple):
    """Expected reward and cost of rows, and their next slots."""

    #: [row]: reward, and cost (empty if no cost can occur).
    reward: Floats
    cost: Floats
    #: [row]: the next slot minus the first slot of the next step if it is certain, else ~distribution (below 0).
    link: Ints


class Work(NamedTuple):
    """Input and output of one step."""

    step: int
    #: The first slot of this step and of the next.
    here: int
    there: int
    #: [slot of the next step]: V, or V and C alternating.
    ahead: Floats
    #: [distribution of this step]: E[V], or E[V] and E[C] alternating; empty if rows do not share them.
    expected: Floats
    #: [slot of this step]: V, or V and C alternating.
    values: Floats
    #: [slot of this step, width]: the index of the chosen action among its slot's, in `width` bytes, lowest byte first
    #: (bytes, since numba would compile the kernels again for each integer type); empty if choices are not stored.
    choice: Octets
    width: int


@inlined
def uncertain(layout: Layout, d: int) -> bool:
    """Return whether a distribution has several outcomes, or one of a probability other than 1: no link replaces it."""
    first = layout.outcome_start[d]
    return layout.outcome_start[d + 1] > first + 1 or layout.outcome_probability[first] != 1.0


@inlined
def mean(layout: Layout, work: Work, d: np.uint64) -> float:
    """Return E[V] of the next state of a distribution."""
    total, there = 0.0, np.uint64(work.there)
    o, last = np.uint64(layout.outcome_start[d]), np.uint64(layout.outcome_start[d + np.uint64(1)])
    while o < last:
        total += layout.outcome_probability[o] * work.ahead[np.uint64(layout.outcome_next[o]) - there]
        o += np.uint64(1)
    return total


@inlined
def means(layout: Layout, work: Work, d: int) -> tuple[float, float]:
    """Return E[V] and E[C] of the next state of a distribution."""
    value, cost, positive = 0.0, 0.0, False
    for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
        index, chance = 2 * (layout.outcome_next[o] - work.there), layout.outcome_probability[o]
        value += chance * work.ahead[index]
        if work.ahead[index + 1] > 0.0:
            cost += chance * work.ahead[index + 1]
            positive = True
    return value, max(cost, LEAST_COST) if positive else 0.0


@inlined
def write(choice: Octets, width: int, index: np.uint64, number: np.uint64) -> None:
    """Write a number into `width` bytes, the lowest first."""
    first = index * np.uint64(width)
    choice[first] = np.uint8(number)
    for byte in range(1, width):
        choice[first + np.uint64(byte)] = np.uint8(number >> np.uint64(8 * byte))


@loop
def expect_value(layout: Layout, work: Work, first: int, last: int) -> None:
    """Set E[V] of the next state for the uncertain ones of the distributions first .. last."""
    base = layout.step_distributions[work.step, 0]
    for d in range(first, last):
        if uncertain(layout, d):
            work.expected[d - base] = mean(layout, work, np.uint64(d))


@loop
def expect_pair(layout: Layout, work: Work, first: int, last: int) -> None:
    """Set E[V] and E[C] of the next state for the uncertain ones of the distributions first .. last."""
    base = layout.step_distributions[work.step, 0]
    for d in range(first, last):
        if uncertain(layout, d):
            work.expected[2 * (d - base)], work.expected[2 * (d - base) + 1] = means(layout, work, d)


@loop
def max_reward(layout: Layout, work: Work, pays: Pays, first: int, last: int) -> None:
    """Set V and the choice of the slots first .. last if no cost can occur: A_h(s) has every action."""
    # Unsigned, and no `range`: a signed index would be tested for being negative.
    one, begin, here = np.uint64(1), np.uint64(layout.row_start[first]), np.uint64(work.here)
    shared, stored, base = work.expected.shape[0] > 0, work.choice.shape[0] > 0, layout.step_distributions[work.step, 0]
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
            # Two selections and no branch, which the processor would often mispredict.
            better = total > best
            best, chosen = total if better else best, row if better else chosen
            row += one
        work.values[slot - here] = best if end > begin else 0.0
        if stored:
            write(work.choice, work.width, slot - here, chosen - begin)
        begin = end


@loop
def least_cost(layout: Layout, work: Work, pays: Pays, scratch: Floats, first: int, last: int) -> None:
    """Set V, C and the choice of the slots first .. last; `scratch` has two numbers for each action of a slot."""
    ahead, expected, shared = work.ahead, work.expected, work.expected.shape[0] > 0
    base, stored = layout.step_distributions[work.step, 0], work.choice.shape[0] > 0
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
        limit, best, best_cost, chosen = least * TIE, -np.inf, 0.0, np.int64(0)
        for number in range(end - begin):
            if scratch[2 * number + 1] <= limit and scratch[2 * number] > best:
                best, best_cost, chosen = scratch[2 * number], scratch[2 * number + 1], number
        index = slot - work.here
        work.values[2 * index], work.values[2 * index + 1] = best if end > begin else 0.0, best_cost
        if stored:
            write(work.choice, work.width, np.uint64(index), np.uint64(chosen))


# Induction -------------------------------------------------------------------------------------------------------


class Induction(NamedTuple):
    """Result of backward induction."""

    #: [slot of step 0]: V and C.
    first_values: Floats
    first_costs: Floats
    #: [node]: V and C; empty if not stored.
    values: Floats
    costs: Floats


def induction(
    model: TabularModel,
    pays: Pays,
    *,
    table: NDArray[Any] | None = None,
    values: bool = False,
    threads: int | None = None,
) -> Induction:
    """Compute the steps from the last to the first; store choices in `table`, and values by node, if requested.

    `table` has the form of `policy.tables.table_form`.
    """
    size = model.num_slots
    if values:
        check_tables(model.name, model.horizon, size if model.stationary else 1, each=BYTES_WITH_VALUES)
    each = 2 if len(pays.cost) else 1
    ahead, here = (np.zeros(each * largest_layer(model)) for _ in range(2))
    expected = np.empty(each * shared_distributions(model, pays.link))
    #: [node, V and C]
    nodes = np.zeros((model.num_nodes if values else 0, each))
    with threads_for(model, threads) as share:
        for step in range(model.horizon - 1, -1, -1):
            first, last = model.step_slots[step].tolist()
            there = 0 if model.stationary else last
            line = np.empty(0, np.uint8) if table is None else table[step] if model.stationary else table[first:last]
            work = Work(step, first, there, ahead, expected, here, line.view(np.uint8), width_of(model))
            backup(model.layout, model.max_actions, work, pays, share)
            if values:
                node = step * model.node_stride + first
                nodes[node : node + last - first] = here[: each * (last - first)].reshape(-1, each)
            ahead, here = here, ahead
            if model.stationary and step > 0 and equal(ahead, here):
                if table is not None:
                    table[:step] = table[step]
                if values:
                    nodes[: step * size].reshape(step, -1)[:] = ahead[: each * size]
                break
    return Induction(
        first_values=ahead[::each],
        first_costs=ahead[1::2] if each == 2 else np.zeros(len(ahead)),
        values=np.ascontiguousarray(nodes[:, 0]),
        costs=np.ascontiguousarray(nodes[:, 1]) if each == 2 else np.zeros(len(nodes)),
    )


#: Calls part(begin, end) for each chunk of first .. last; the work of i is starts[i] .. starts[i + 1].
Share = Callable[[Callable[[int, int], None], Longs, int, int], None]


@contextmanager
def threads_for(model: TabularModel, threads: int | None) -> Iterator[Share]:
    """Yield a function that does a step's work on so many threads (None: every core), fewer if steps are short."""
    most = model.num_rows // (1 if model.stationary else model.horizon) // PAIRS_A_THREAD
    number = max(1, min(usable_cores() if threads is None else threads, most))
    with ThreadPoolExecutor(number) as pool:
        run: Any = pool.map if number > 1 else map

        def share(part: Callable[[int, int], None], starts: Longs, first: int, last: int) -> None:
            begin, end = int(starts[first]), int(starts[last])
            chunks = max(number, -(-(end - begin) // PAIRS_A_CHUNK))
            # Integers: given floats, numpy would convert all of `starts`.
            work = begin + (end - begin) * np.arange(1, chunks) // chunks
            cuts = [int(first), *(np.searchsorted(starts[first : last + 1], work) + first).tolist(), int(last)]
            list(run(part, cuts[:-1], cuts[1:]))

        yield share


def backup(layout: Layout, most: int, work: Work, pays: Pays, share: Share) -> None:
    """Compute one step: expectations if rows share them, then the slots, which have `most` actions at most."""

    def part(first: int, last: int) -> None:
        if len(pays.cost):
            least_cost(layout, work, pays, np.empty(2 * most), first, last)
        else:
            max_reward(layout, work, pays, first, last)

    if len(work.expected):
        expect = expect_pair if len(pays.cost) else expect_value
        share(lambda a, b: expect(layout, work, a, b), layout.outcome_start, *layout.step_distributions[work.step])
    share(part, layout.row_start, *layout.step_slots[work.step])


def largest_layer(model: TabularModel) -> int:
    """Return the largest number of slots of a step, including the one after the last."""
    if model.stationary:
        return model.num_slots
    return max(model.max_states, model.num_slots - int(model.stage_start[-1]))


def equal(one: Floats, other: Floats) -> bool:
    """Return whether two layers are the same; most differ early on."""
    return np.array_equal(one[:1000], other[:1000]) and np.array_equal(one, other)


def shared_distributions(model: TabularModel, link: Ints) -> int:
    """Return the largest number of distributions of a step; 0 if rows hardly share any with several outcomes."""
    several = int((np.diff(model.outcome_start) > 1).sum())
    if int((link < 0).sum()) < SHARED * several or several == 0:
        return 0
    return int(np.diff(model.distribution_start).max())


def pays_of(model: TabularModel, reward: Floats, cost: Floats | None = None) -> Pays:
    """Return rewards and costs [row] with the links of a model; without `cost` no cost can occur."""
    return Pays(
        read_only(reward),
        read_only(np.empty(0) if cost is None else cost),
        read_only(links(model, 0 if model.stationary else next_first(model))),
    )


def links(layout: TabularModel | Layout, there: Longs | int = 0) -> Ints:
    """[row]: the next slot, counted from `there`, if it is certain; else ~distribution."""
    start = layout.outcome_start
    certain = (np.diff(start) == 1) & (layout.outcome_probability[start[:-1]] == 1.0)
    number = np.arange(len(certain), dtype=np.int32)
    link = np.where(certain, layout.outcome_next[start[:-1]] - there, ~number).astype(np.int32)
    return link[layout.row_distribution]


def next_first(model: TabularModel) -> Longs:
    """[distribution] of a layered model: the first slot of the step that it leads to."""
    return np.repeat(model.stage_start[1:], np.diff(model.distribution_start))


# Values of a given policy: V_h(s) = E[q(s,a) + V_{h+1}(s')], V_H = 0 -----------------------------------------------


@kernel
def expected(layout: Layout, distribution: int, there: int, table: Floats) -> float:
    """Return E[table] over the next nodes of a distribution; `there` is the next step's first node."""
    total = 0.0
    for o in range(layout.outcome_start[distribution], layout.outcome_start[distribution + 1]):
        total += times(layout.outcome_probability[o], table[there + layout.outcome_next[o]])
    return total


@kernel
def value_of(layout: Layout, nodes: int, row_quantity: Floats, choice: Ints) -> Floats:
    """Return [node]: the expected sum of a quantity by row from there on, under one chosen row a node."""
    table = np.zeros(nodes)
    following = np.empty(layout.outcome_start.shape[0] - 1)
    known = np.full(following.shape[0], -1, np.int64)
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            row = choice[here + slot]
            if row >= 0:
                d = layout.row_distribution[row]
                if known[d] != step:
                    following[d], known[d] = expected(layout, d, there, table), step
                table[here + slot] = row_quantity[row] + following[d]
    return table


@kernel
def value_of_mixture(layout: Layout, nodes: int, row_quantity: Floats, weights: Floats) -> Floats:
    """Return [node]: the expected sum of a quantity by row from there on, rows drawn with `weights` [entry]."""
    table = np.zeros(nodes)
    following = np.empty(layout.outcome_start.shape[0] - 1)
    known = np.full(following.shape[0], -1, np.int64)
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                weight = weights[step * layout.entry_stride + row]
                if weight > 0.0:
                    d = layout.row_distribution[row]
                    if known[d] != step:
                        following[d], known[d] = expected(layout, d, there, table), step
                    table[here + slot] += times(weight, row_quantity[row] + following[d])
    return table
