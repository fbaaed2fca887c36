"""The tabular model of a scheduling problem, built layer by layer in compiled code.

Layer h holds the states with h finished jobs. Each layer is expanded at once (every unfinished job, every processing
time); equal next states, distributions and payoffs are numbered in the order of their first occurrence, so that the
model equals that of `compile.explore` in every array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import ProblemError
from peakrl.problem import Header
from peakrl.problems.scheduling.jobs import Job, name_of
from peakrl.problems.scheduling.kernels import Expansion, JobTable, expand_layer, sort_rows
from peakrl.ragged import number_lists
from peakrl.schedule_labels import ScheduleStates, Words
from peakrl.space import MOST_INDICES, expand, frozen, starts_of
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Floats, Ints, Longs, Payoffs

#: Bytes of the finished model and its labels for a state, a pair, a distribution and a stored outcome.
STATE_BYTES, ROW_BYTES, DISTRIBUTION_BYTES, OUTCOME_BYTES = 28, 12, 8, 12
#: Working memory of a layer in bytes for each (pair, processing time): the expansion, its hash table, its results, and
#: gaps in the heap (measured: 110 without the gaps).
WORK_BYTES = 180

#: The arrays of `LayerRows` by field, one for each layer.
Parts = dict[str, list[NDArray[Any]]]


class LayerRows(NamedTuple):
    """The rows of a finished layer; payoff lists are numbered within the layer."""

    row_job: Ints
    row_distribution: Ints
    row_payoff: Ints
    #: Distinct distributions: sizes, next slots within the next layer, probabilities.
    sizes: Longs
    following: Ints
    probability: Floats
    #: Distinct payoff lists: sizes, rewards, margins.
    payoff_sizes: Longs
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
    header: Header, jobs: Sequence[Job], objective: int, *, keeps_worst: bool, memory_limit: float
) -> TabularModel:
    """Return the model of named jobs; `objective` is a code of `problems.scheduling.kernels`."""
    table = job_table(jobs, objective)
    guard = MemoryGuard(header.name, len(jobs), memory_limit)
    guard.refuse_at_once()
    done, clock = [np.zeros(1, np.uint64)], [np.zeros(1, np.uint64)]
    parts: Parts = {field: [] for field in LayerRows._fields}
    for step in range(len(jobs)):
        outcomes = outcome_count(table, done[-1], len(jobs) - step)
        guard.before_layer(step, len(done[-1]), outcomes)
        rows, next_done, next_clock = layer_rows(table, done[-1], clock[-1], len(jobs) - step, outcomes)
        guard.after_layer(len(done[-1]), rows)
        for field, part in rows._asdict().items():
            parts[field].append(part)
        done.append(next_done)
        clock.append(next_clock)
    labels = ScheduleStates(
        [name_of(job) for job in jobs],
        frozen(np.concatenate(done), np.uint64, own=True),
        frozen(np.concatenate(clock), np.uint64, own=True),
        timed=any(job.release > 0 or not job.fixed for job in jobs),
        worst=keeps_worst,
    )
    return joined_model(header, labels, [len(layer) for layer in done], parts)


def outcome_count(table: JobTable, done: Words, rows_a_state: int) -> int:
    """Return the number of (state, job, processing time) of a layer."""
    sizes = np.diff(table.pair_start)
    if (sizes == 1).all():
        return len(done) * rows_a_state
    return sum(int(size) * int((done >> np.uint64(job) & np.uint64(1) == 0).sum()) for job, size in enumerate(sizes))


def layer_rows(
    table: JobTable, done: Words, clock: Words, rows_a_state: int, outcomes: int
) -> tuple[LayerRows, Words, Words]:
    """Return the rows of a layer and the states that they lead to."""
    rows = len(done) * rows_a_state
    out = Expansion(
        np.empty(rows + 1, np.int64), np.empty(rows, np.int32),
        np.empty(outcomes, np.uint64), np.empty(outcomes, np.uint64),
        np.empty(outcomes), np.empty(outcomes), np.empty(outcomes),
    )  # fmt: skip
    expand_layer(table, done, clock, out)
    following, first = number_lists(np.arange(outcomes + 1), out.next_done, out.next_clock)
    next_done, next_clock = out.next_done[first], out.next_clock[first]
    start, reward = out.outcome_start, out.reward
    if outcomes == rows:
        # One time for each job: a distribution is one next state.
        distribution, chosen = following, first
    else:
        sort_rows(start, following, out.probability, reward, out.margin)
        distribution, chosen = number_lists(start, following.astype(np.uint64), out.probability.view(np.uint64))
    source, sizes = _gather(start, chosen)
    payoff, payoff_chosen = number_lists(start, reward.view(np.uint64), out.margin.view(np.uint64))
    payoff_source, payoff_sizes = _gather(start, payoff_chosen)
    layer = LayerRows(
        out.row_job, distribution, payoff,
        sizes, following[source], out.probability[source],
        payoff_sizes, reward[payoff_source], out.margin[payoff_source],
    )  # fmt: skip
    return layer, next_done, next_clock


def joined_model(header: Header, labels: ScheduleStates, layer_sizes: Sequence[int], parts: Parts) -> TabularModel:
    """Join the layers into a model; empties `parts`."""
    layer_start = starts_of(layer_sizes)
    distribution_start = starts_of([len(sizes) for sizes in parts["sizes"]])
    return assemble(
        header,
        state_labels=labels,
        slot_state=np.arange(len(labels), dtype=np.int32),
        action_labels=labels.names,
        row_action=_joined(parts["row_job"]),
        row_start=starts_of(np.repeat(np.arange(header.horizon, -1, -1), layer_sizes)),
        row_distribution=_joined(parts["row_distribution"], distribution_start),
        outcome_start=starts_of(_joined(parts["sizes"])),
        outcome_next=_joined(parts["following"], layer_start[1:]),
        outcome_probability=_joined(parts["probability"]),
        payoffs=join_payoffs(parts),
        first_slot=np.zeros(1, np.int32),
        first_probability=np.ones(1),
        layer_start=layer_start,
        distribution_start=distribution_start,
    )


def join_payoffs(parts: Parts) -> Payoffs:
    """Number the payoff lists of all layers."""
    first = starts_of([len(sizes) for sizes in parts["payoff_sizes"]])
    sizes, reward, margin = (_joined(parts[field]) for field in ("payoff_sizes", "reward", "margin"))
    start = starts_of(sizes)
    number, chosen = number_lists(start, reward.view(np.uint64), margin.view(np.uint64))
    source, chosen_sizes = _gather(start, chosen)
    record = starts_of(chosen_sizes)[number].astype(np.int32)
    row_payoff = record[_joined(parts["row_payoff"], first)]
    return Payoffs(int(sizes.max() > 1), row_payoff, reward[source], margin[source][:, None])


class MemoryGuard:
    """Raises for a model that would not fit, before its arrays are allocated."""

    def __init__(self, name: str, jobs: int, limit: float) -> None:
        self.name, self.jobs, self.limit = name, jobs, limit
        self.states = self.rows = self.kept = 0

    def refuse_at_once(self) -> None:
        """Check the least possible size: every set of jobs is a state."""
        states, rows = 2**self.jobs, self.jobs * 2 ** (self.jobs - 1)
        least = states * (STATE_BYTES + DISTRIBUTION_BYTES + OUTCOME_BYTES) + rows * ROW_BYTES
        self._check(states, rows, least, f"{self.jobs} jobs")

    def before_layer(self, step: int, states: int, outcomes: int) -> None:
        """Check the size with the layer that is about to be expanded."""
        rows = self.rows + states * (self.jobs - step)
        self._check(self.states + states, rows, self.kept + outcomes * WORK_BYTES, f"the first {step + 1} jobs")

    def after_layer(self, states: int, layer: LayerRows) -> None:
        """Add the size of a finished layer."""
        self.states, self.rows = self.states + states, self.rows + len(layer.row_job)
        self.kept += states * STATE_BYTES + len(layer.row_job) * ROW_BYTES
        self.kept += len(layer.sizes) * DISTRIBUTION_BYTES + len(layer.following) * OUTCOME_BYTES

    def _check(self, states: int, rows: int, needed: float, what: str) -> None:
        if needed <= self.limit and rows <= MOST_INDICES:
            return
        over = f"more than the limit of {self.limit / 1e9:.1f} GB" if needed > self.limit else "more pairs than 2^31"
        raise ProblemError(
            f"{self.name!r} has at least {states:,} states and {rows:,} pairs for {what}, about "
            f"{needed / 1e9:,.1f} GB: {over}. Plan fewer jobs, use a coarser unit of time, or raise memory_limit"
        )


def _gather(start: Longs, chosen: Ints) -> tuple[Longs, Longs]:
    """Return the indices of the members of the chosen lists, and the sizes of the lists."""
    sizes = start[chosen + 1] - start[chosen]
    return expand(start[chosen], sizes), sizes


def _joined(parts: list[NDArray[Any]], offsets: Longs | None = None) -> NDArray[Any]:
    """Join the arrays of the layers, each raised by its offset, and empty the list to save memory."""
    whole = np.concatenate(parts)
    if offsets is not None:
        place = 0
        for part, offset in zip(parts, offsets.tolist(), strict=False):
            whole[place : place + len(part)] += whole.dtype.type(offset)
            place += len(part)
    parts.clear()
    return whole
