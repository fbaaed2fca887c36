"""The best order of up to some twenty jobs on one machine, by dynamic programming over sets of finished jobs.

A label of a set S is (end t, cost c) of some order of S that meets every deadline. From each label of S without j

    t' = max(t, r_j) + p_j,  if t' <= D_j;   c' = c + cost of j ending at t'  (`orders.cost_growth`)

is a label of S. Every objective grows with the ends of jobs, so that a label that is neither earlier nor cheaper than
another can be dropped: S has a Pareto front, by rising end and falling cost. Without release times all orders of S end
at the same time, and the front is one label: 2^n labels and n 2^(n-1) steps.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from peakrl.checks import check_choice
from peakrl.errors import ProblemError
from peakrl.jit import kernel
from peakrl.problems.scheduling.jobs import Job, name_of
from peakrl.problems.scheduling.orders import (
    OBJECTIVES,
    InfeasibleSchedule,
    Schedule,
    evaluate_order,
    fixed_jobs,
    infeasible_reason,
)
from peakrl.problems.scheduling.tables import JobTable, job_cost, job_table
from peakrl.types import Floats, Longs

#: Largest number of jobs, and of labels; every set of jobs has at least one label of 40 bytes.
MOST_JOBS, MOST_LABELS = 22, 50_000_000
#: The columns of a label: end and cost of the order, the label of the set without its last job, and that job.
END, COST, BEFORE, JOB = 0, 1, 2, 3


def best_order(jobs: Iterable[Job], *, objective: str = "total_tardiness") -> Schedule:
    """Return the schedule of least objective among those that meet every deadline; processing times must be fixed.

    The same optimum as `solve(machine_scheduling(jobs, objective=...))`, for up to 22 jobs, also with release times.
    Raises `InfeasibleSchedule` if no order meets every deadline.
    """
    named = fixed_jobs(jobs, "best_order")
    which = OBJECTIVES.index(check_choice(objective, "objective", OBJECTIVES, error=ProblemError))
    if len(named) > MOST_JOBS:
        raise ProblemError(f"jobs holds {len(named)}; best_order goes through every set of jobs, at most {MOST_JOBS}")
    start, labels = subset_labels(job_table(named, which), MOST_LABELS)
    if start[0] < 0:
        raise ProblemError(
            f"jobs: their release times leave more than {MOST_LABELS:,} candidate orders; plan fewer jobs"
        )
    if start[-2] == start[-1]:
        raise InfeasibleSchedule(infeasible_reason(named) or "no order meets every deadline with these release times")
    # The cost falls along a front, so its last label is the cheapest.
    label, backwards = int(start[-1]) - 1, []
    while label > 0:
        backwards.append(name_of(named[int(labels[label, JOB])]))
        label = int(labels[label, BEFORE])
    return evaluate_order(named, tuple(reversed(backwards)))


@kernel
def subset_labels(jobs: JobTable, most: int) -> tuple[Longs, Floats]:
    """Return [set + 1]: first label of a set, and [label, 4]: END, COST, BEFORE and JOB.

    A first number of -1 means that there would be more than `most` labels.
    """
    count = jobs.due.shape[0]
    sets = 1 << count
    start, labels = np.zeros(sets + 1, np.int64), np.zeros((min(most, 2 * sets + 16), 4))
    start[1] = 1  # the empty set ends at 0 and costs nothing
    for done in range(1, sets):
        first, size = start[done], np.int64(0)  # a plain 0 would have `insert` compiled twice
        for job in range(count):
            if not done >> job & 1:
                continue
            without, duration = done & ~(1 << job), jobs.pair_time[jobs.pair_start[job]]
            for label in range(start[without], start[without + 1]):
                time = max(np.int64(labels[label, END]), jobs.release[job]) + duration
                if time > jobs.deadline[job]:
                    continue
                paid = labels[label, COST] + job_cost(jobs, job, time, duration, np.int64(labels[label, COST]))
                if first + size + 1 >= labels.shape[0]:
                    if labels.shape[0] >= most:
                        start[0] = -1
                        return start, labels
                    more = np.zeros((min(most, 2 * labels.shape[0]), 4))
                    more[: labels.shape[0]] = labels
                    labels = more
                size = insert(labels, first, size, (float(time), paid, float(label), float(job)))
        start[done + 1] = first + size
    return start, labels


@kernel
def insert(labels: Floats, first: int, size: int, new: tuple[float, float, float, float]) -> int:
    """Insert a label into the front at `first`, unless another is as early and as cheap; return its size."""
    place = first
    while place < first + size and labels[place, END] <= new[END]:
        if labels[place, COST] <= new[COST]:
            return size
        place += 1
    if place > first and labels[place - 1, END] == new[END]:
        place -= 1  # as early and more expensive: dropped
    after = place
    while after < first + size and labels[after, COST] >= new[COST]:
        after += 1
    shift, end = place + 1 - after, first + size
    if shift != 0 and after < end:
        labels[after + shift : end + shift] = labels[after:end].copy()
    for column in range(4):
        labels[place, column] = new[column]
    return size + shift
