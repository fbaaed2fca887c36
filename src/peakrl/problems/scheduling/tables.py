"""The tabular model of a scheduling problem, built layer by layer in compiled code.

A state is (done, time, worst): a bitmask of the finished jobs, the time, and the largest tardiness so far (0 if the
objective does not need it). Job j, released at r_j, takes p, ends at C = max(time, r_j) + p, and costs what
`orders.cost_growth` says. Layer h holds the states with h finished jobs. Equal next states, distributions and payoffs
are numbered in the order of their first occurrence, so that the model equals that of `compile.explore` in every array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from peakrl.compile import guard_memory
from peakrl.jit import kernel
from peakrl.problem import Header
from peakrl.problems.scheduling.jobs import Job, name_of
from peakrl.problems.scheduling.orders import MAX_TARDINESS, cost_growth
from peakrl.ragged import number_lists, shared_lists
from peakrl.schedule_labels import ScheduleStates, Words
from peakrl.space import check_sizes, expand, frozen, starts_of
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Floats, Ints, Longs, Payoffs

growth = kernel(cost_growth)
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

    row_job: Ints
    #: [row]: number of outcomes.
    sizes: Longs
    #: [outcome]: next state, as (done, time * 2^32 + worst).
    next_done: Words
    next_clock: Words
    probability: Floats
    reward: Floats
    margin: Floats


def job_table(jobs: Sequence[Job], objective: int) -> JobTable:
    """Return the jobs as arrays."""
    pairs = [pair for job in jobs for pair in job.pairs]
    return JobTable(
        objective,
        np.array([job.due for job in jobs], np.int64),
        np.array([job.deadline for job in jobs], np.int64),
        np.array([job.weight for job in jobs], np.float64),
        np.array([job.release for job in jobs], np.int64),
        starts_of([len(job.pairs) for job in jobs]),
        np.array([time for _, time in pairs], np.int64),
        np.array([probability for probability, _ in pairs], np.float64),
    )


def tabulate_schedule(
    header: Header, jobs: Sequence[Job], objective: int, *, timed: bool, worst: bool, memory_limit: float
) -> TabularModel:
    """Return the model of named jobs; a state holds the time if `timed`, and the largest tardiness if `worst`."""
    count, table = len(jobs), job_table(jobs, objective)
    least = 2**count, count * 2 ** (count - 1)  # every set of jobs is a state
    check_sizes(header.name, states=least[0], pairs=least[1])
    guard_memory(header.name, *least, 0, memory_limit)
    done, clock = [np.zeros(1, np.uint64)], [np.zeros(1, np.uint64)]
    most_times = int(np.diff(table.pair_start).max())
    layers: list[Expansion] = []
    following: list[Ints] = []
    row_ends = [0]
    for step in range(count):
        slots, rows = sum(map(len, done)), len(done[-1]) * (count - step)
        guard_memory(header.name, slots, (row_ends[-1] + rows) * most_times, step, memory_limit)
        layer = expand_layer(table, done[-1], clock[-1], rows, rows * most_times)
        number, first = number_lists(np.arange(len(layer.next_done) + 1), layer.next_done, layer.next_clock)
        sort_rows(layer, number)
        done.append(layer.next_done[first])
        clock.append(layer.next_clock[first])
        layers.append(layer)
        following.append(number + np.int32(slots))
        row_ends.append(row_ends[-1] + rows)
    row_job, sizes, _, _, probability, reward, margin = (np.concatenate(parts) for parts in zip(*layers, strict=True))
    start = starts_of(sizes)
    payoff, chosen = number_lists(start, reward.view(np.uint64), margin.view(np.uint64))
    members = expand(start[chosen], sizes[chosen])
    layer_sizes = [len(layer) for layer in done]
    words = (frozen(np.concatenate(parts), np.uint64, own=True) for parts in (done, clock))
    labels = ScheduleStates([name_of(job) for job in jobs], *words, timed=timed, worst=worst)
    paid = starts_of(sizes[chosen])[payoff], reward[members], margin[members][:, None]
    return assemble(
        header,
        shared_lists(start, np.concatenate(following), probability, row_ends[1:]),
        Payoffs(int(most_times > 1), *paid),
        state_labels=labels,
        slot_state=np.arange(len(labels), dtype=np.int32),
        action_labels=labels.names,
        row_action=row_job,
        row_start=starts_of(np.repeat(np.arange(count, -1, -1), layer_sizes)),
        first_slot=np.zeros(1, np.int32),
        first_probability=np.ones(1),
        layer_start=starts_of(layer_sizes),
    )


@kernel
def job_cost(jobs: JobTable, job: int, end: int, duration: int, worst: int) -> float:
    """Return by how much the objective grows when `job` ends at `end` after `duration`."""
    return growth(jobs.objective, jobs.weight[job], jobs.due[job], end, duration, worst)


@kernel
def expand_layer(jobs: JobTable, done: Words, clock: Words, rows: int, most: int) -> Expansion:
    """Return the outcomes of each unfinished job in each state, at most `most`."""
    row_job, sizes = np.empty(rows, np.int32), np.empty(rows, np.int64)
    next_done, next_clock = np.empty(most, np.uint64), np.empty(most, np.uint64)
    probability, reward, margin = np.empty(most), np.empty(most), np.empty(most)
    row, outcome = 0, 0
    for slot in range(done.shape[0]):
        # Sums of unsigned words and integers would be floats.
        time, worst = np.int64(clock[slot] >> SHIFT), np.int64(clock[slot] & LOW)
        for job in range(jobs.due.shape[0]):
            bit = ONE << np.uint64(job)
            if done[slot] & bit != ZERO:
                continue
            row_job[row], sizes[row] = job, jobs.pair_start[job + 1] - jobs.pair_start[job]
            row += 1
            for pair in range(jobs.pair_start[job], jobs.pair_start[job + 1]):
                end = max(time, jobs.release[job]) + jobs.pair_time[pair]
                after = max(worst, end - jobs.due[job]) if jobs.objective == MAX_TARDINESS else 0
                next_done[outcome] = done[slot] | bit
                next_clock[outcome] = (np.uint64(end) << SHIFT) | np.uint64(after)
                probability[outcome] = jobs.pair_probability[pair]
                # Not the negative: a job in time earns 0.0, not -0.0.
                reward[outcome] = 0.0 - job_cost(jobs, job, end, jobs.pair_time[pair], worst)
                margin[outcome] = float(jobs.deadline[job] - end)
                outcome += 1
    return Expansion(
        row_job, sizes, next_done[:outcome], next_clock[:outcome], probability[:outcome], reward[:outcome],
        margin[:outcome],
    )  # fmt: skip


@kernel
def sort_rows(layer: Expansion, following: Ints) -> None:
    """Sort the outcomes of every row by next slot, in place (insertion sort: they are few and nearly sorted)."""
    probability, reward, margin = layer.probability, layer.reward, layer.margin
    start = 0
    for row in range(layer.sizes.shape[0]):
        for outcome in range(start + 1, start + layer.sizes[row]):
            key, p, r, f = following[outcome], probability[outcome], reward[outcome], margin[outcome]
            place = outcome
            while place > start and following[place - 1] > key:
                following[place], probability[place] = following[place - 1], probability[place - 1]
                reward[place], margin[place] = reward[place - 1], margin[place - 1]
                place -= 1
            following[place], probability[place], reward[place], margin[place] = key, p, r, f
        start += layer.sizes[row]
