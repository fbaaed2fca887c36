"""Expansion of one layer of a scheduling problem: every job in every state.

A state is (done, time, worst): a bitmask of the finished jobs, the time, and the largest tardiness so far (0 if the
objective does not need it). Job j, released at r_j, takes p, ends at C = max(time, r_j) + p, and costs

    max tardiness        max(0, (C - d_j)^+ - worst)
    total tardiness      (C - d_j)^+
    weighted late work   w_j * min(p, (C - d_j)^+)
    weighted completion  w_j * C
    weighted tardiness   w_j * (C - d_j)^+
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import kernel
from peakrl.types import Floats, Ints, Longs

Words = NDArray[np.uint64]
#: Sums of unsigned words and integers are floats, so words are converted to signed ones.
Integer = int | np.int64

MAX_TARDINESS, TOTAL_TARDINESS, WEIGHTED_LATE_WORK, WEIGHTED_COMPLETION, WEIGHTED_TARDINESS = 0, 1, 2, 3, 4
SHIFT = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
ONE = np.uint64(1)
ZERO = np.uint64(0)


class JobTable(NamedTuple):
    """The jobs of an instance as arrays."""

    objective: int
    due: Longs
    deadline: Longs
    weight: Floats
    release: Longs
    #: [job + 1]: the (probability, time) pairs of a job are pair_start[job] .. pair_start[job + 1].
    pair_start: Longs
    pair_time: Longs
    pair_probability: Floats


class Expansion(NamedTuple):
    """Every (state, job, processing time) of a layer in order: [row] is a (state, job), [outcome] a time of a row."""

    #: [row + 1]: the outcomes of a row.
    outcome_start: Longs
    row_job: Ints
    #: [outcome]: next state, as (done, time * 2^32 + worst).
    next_done: Words
    next_clock: Words
    probability: Floats
    reward: Floats
    margin: Floats


@kernel
def job_cost(jobs: JobTable, job: int, end: int, duration: int, worst: Integer) -> float:
    """Return by how much the objective grows when `job` ends at `end` after `duration`."""
    tardiness = max(0, end - jobs.due[job])
    if jobs.objective == MAX_TARDINESS:
        return float(max(0, tardiness - worst))
    if jobs.objective == TOTAL_TARDINESS:
        return float(tardiness)
    if jobs.objective == WEIGHTED_LATE_WORK:
        return float(jobs.weight[job] * min(duration, tardiness))
    return float(jobs.weight[job] * (end if jobs.objective == WEIGHTED_COMPLETION else tardiness))


@kernel
def expand_layer(jobs: JobTable, done: Words, clock: Words, out: Expansion) -> None:
    """Fill `out` with the outcomes of each unfinished job."""
    row, outcome = 0, 0
    out.outcome_start[0] = 0
    for slot in range(done.shape[0]):
        time, worst = np.int64(clock[slot] >> SHIFT), np.int64(clock[slot] & LOW)
        for job in range(jobs.due.shape[0]):
            bit = ONE << np.uint64(job)
            if done[slot] & bit != ZERO:
                continue
            for pair in range(jobs.pair_start[job], jobs.pair_start[job + 1]):
                end = max(time, jobs.release[job]) + jobs.pair_time[pair]
                after = max(worst, end - jobs.due[job]) if jobs.objective == MAX_TARDINESS else 0
                out.next_done[outcome] = done[slot] | bit
                out.next_clock[outcome] = (np.uint64(end) << SHIFT) | np.uint64(after)
                out.probability[outcome] = jobs.pair_probability[pair]
                # Not the negative: a job in time earns 0.0, not -0.0.
                out.reward[outcome] = 0.0 - job_cost(jobs, job, end, jobs.pair_time[pair], worst)
                out.margin[outcome] = float(jobs.deadline[job] - end)
                outcome += 1
            out.row_job[row] = job
            row += 1
            out.outcome_start[row] = outcome


@kernel
def sort_rows(start: Longs, following: Ints, probability: Floats, reward: Floats, margin: Floats) -> None:
    """Sort the outcomes of every row by next state, in place (insertion sort: they are few and nearly sorted)."""
    for row in range(start.shape[0] - 1):
        for outcome in range(start[row] + 1, start[row + 1]):
            key, p, r, f = following[outcome], probability[outcome], reward[outcome], margin[outcome]
            place = outcome
            while place > start[row] and following[place - 1] > key:
                following[place], probability[place] = following[place - 1], probability[place - 1]
                reward[place], margin[place] = reward[place - 1], margin[place - 1]
                place -= 1
            following[place], probability[place], reward[place], margin[place] = key, p, r, f
