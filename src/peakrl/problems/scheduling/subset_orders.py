"""The best order of up to some twenty jobs on one machine, by dynamic programming over sets of finished jobs.

A label of a set S is (end t, cost c) of some order of S that meets every deadline. From each label of S without j

    t' = max(t, r_j) + p_j,  if t' <= D_j;   c' = c + cost of j ending at t'  (`scheduling.job_cost`)

is a label of S. Every objective grows with the ends of jobs, so that a label that is neither earlier nor cheaper than
another can be dropped: S has a Pareto front, by rising end and falling cost. Without release times all orders of S end
at the same time, and the front is one label: 2^n labels and n 2^(n-1) steps.
"""

from __future__ import annotations

import numpy as np

from peakrl.jit import inlined, kernel
from peakrl.problems.scheduling.kernels import JobTable, job_cost
from peakrl.types import Floats, Longs


@kernel
def subset_labels(jobs: JobTable, most: int) -> tuple[Longs, Longs, Floats, Longs, Longs]:
    """Return [set + 1]: first label of a set, and [label]: end, cost, predecessor and last job.

    A first number of -1 means that there would be more than `most` labels.
    """
    count = jobs.due.shape[0]
    sets = 1 << count
    start = np.zeros(sets + 1, np.int64)
    room = min(most, 2 * sets + 16)
    end, cost = np.zeros(room, np.int64), np.zeros(room)
    before, last = np.full(room, -1), np.full(room, -1)
    start[1] = 1  # the empty set ends at 0 and costs nothing
    for done in range(1, sets):
        first = start[done]
        size = np.int64(0)  # a plain 0 would have `insert` compiled twice
        for job in range(count):
            if not done >> job & 1:
                continue
            without = done & ~(1 << job)
            duration = jobs.pair_time[jobs.pair_start[job]]
            for label in range(start[without], start[without + 1]):
                time = max(end[label], jobs.release[job]) + duration
                if time > jobs.deadline[job]:
                    continue
                paid = cost[label] + job_cost(jobs, job, time, duration, np.int64(cost[label]))
                if first + size + 1 >= room:
                    if room >= most:
                        start[0] = -1
                        return start, end, cost, before, last
                    room = min(most, 2 * room)
                    end, cost = longer(end, room), longer(cost, room)
                    before, last = longer(before, room), longer(last, room)
                size = insert(end, cost, before, last, first, size, time, paid, label, job)
        start[done + 1] = first + size
    return start, end, cost, before, last


@kernel
def insert(
    end: Longs,
    cost: Floats,
    before: Longs,
    last: Longs,
    first: int,
    size: int,
    time: int,
    paid: float,
    label: int,
    job: int,
) -> int:
    """Insert a label into the front at `first`, unless another is as early and as cheap; return its size."""
    place = first
    while place < first + size and end[place] <= time:
        if cost[place] <= paid:
            return size
        place += 1
    if place > first and end[place - 1] == time:
        place -= 1  # as early and more expensive: dropped
    after = place
    while after < first + size and cost[after] >= paid:
        after += 1
    shift = place + 1 - after
    kept = first + size - after
    if shift > 0:
        for offset in range(kept - 1, -1, -1):
            move(end, cost, before, last, after + offset, after + offset + shift)
    elif shift < 0:
        for offset in range(kept):
            move(end, cost, before, last, after + offset, after + offset + shift)
    end[place], cost[place], before[place], last[place] = time, paid, label, job
    return size + shift


@kernel
def move(end: Longs, cost: Floats, before: Longs, last: Longs, here: int, there: int) -> None:
    """Copy a label to another index."""
    end[there], cost[there], before[there], last[there] = end[here], cost[here], before[here], last[here]


@inlined
def longer(array, room):  # type: ignore[no-untyped-def]  # integers and floats
    """Return an array of length `room` with the same content."""
    grown = np.empty(room, array.dtype)
    grown[: array.shape[0]] = array
    return grown
