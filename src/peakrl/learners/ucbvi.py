"""UCBVI and SUCBVI: optimistic planning with counted transitions.

UCBVI (Azar, Osband and Munos, 2017) counts every transition and plans from time to time by backward induction:

    Q_h(s,a) = min( cap_h, r(s,a) - lo + mean W_{h+1}(s') + c sqrt( var W_{h+1}(s') / n(s,a) ) )
    W_h(s)   = max_a Q_h(s,a)

with mean and variance over the n(s,a) visits, and Q_h = cap_h = span (H - h) for an untried pair. Pairs that were
observed to violate or are declared to fail are not chosen if there is another. The next plan is made after 10 episodes,
or 2 % of the episodes so far. UCBVI does not recognise dead ends: it is meant for problems in which every state has a
safe action.

With a discount g (as UCBVI-gamma of He, Zhou and Gu, 2021, with the bonus above) steps share one column:

    Q(s,a) = min( cap, r(s,a) - lo + g mean W(s') + c g sqrt( var W(s') / n(s,a) ) ),    cap = span / (1 - g),

by sweeps over all states until no W changes by more than 1e-4 span.

SUCBVI (after Xiong, Du and Huang, 2023) also avoids dead ends. With D(s,a) the observed next states,

    F_h = pairs observed to violate, and those with some s' in D(s,a) that is dead at h+1
    s is dead at h if all of its pairs are in F_h (nothing is dead at H);   W_h(s) = max over the pairs outside of F_h

and it plans again after every episode with a violation. Constraints are observed exactly, so a pair that violated once
stays in F, and every episode with a violation adds a pair to some F_h: it took a pair outside of F_h that violated, or
led to a state dead at h+1 that it had not led to before. So at most H S A episodes violate before a first state is
dead, which proves that no policy satisfies every constraint.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from peakrl.jit import inlined, loop
from peakrl.learners.base import LearnerSettings, Task
from peakrl.learners.counts import NO_CELL, CountingAlgorithm, TransitionCounts, count_path
from peakrl.learners.episode import Log, Path, note, register
from peakrl.learners.infeasibility import Memory
from peakrl.learners.space import planning_order
from peakrl.learners.tables import table
from peakrl.sampling import Words
from peakrl.types import Bytes, Floats, Ints, Layout, Longs

#: Episodes from one plan to the next: at least this many, or this share of the episodes so far.
LEAST_BATCH, BATCH_SHARE = 10, 0.02
#: With a discount: the error of W after a plan, relative to the largest value; most sweeps of a plan.
TOLERANCE, MOST_SWEEPS = 1e-4, 100_000


class UCBVI(LearnerSettings):
    """Settings of UCBVI."""

    #: c: bonus in standard errors.
    bonus: float = Field(default=0.5, ge=0)

    discounts = True

    def make(self, task: Task) -> OptimisticPlanner:
        """Return the algorithm for a target."""
        return OptimisticPlanner(task, self)


class SUCBVI(UCBVI):
    """Settings of SUCBVI: UCBVI that avoids dead ends."""

    discounts = False

    def make(self, task: Task) -> OptimisticPlanner:
        """Return the algorithm for a target."""
        return OptimisticPlanner(task, self, avoid_dead_ends=True)


class Tables(NamedTuple):
    """Counted transitions, and the latest plan."""

    counts: TransitionCounts
    #: [slot, column (+ 1 if steps share slots)]: W.
    w: Annotated[Floats, table("slot", "after")]
    #: [slot, column]: the greedy row.
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    #: [slot, column (+ 1)]: 1 if every pair is known to fail; always 0 for UCBVI.
    dead: Annotated[Bytes, table("slot", "after", low=0, high=1)]
    #: The first episode that began in a dead state (0: none), and that slot.
    proved: Annotated[Longs, table(1, low=0, high="done")]
    dead_first: Annotated[Longs, table(1, low=0, below="slot")]
    #: The episode of the next plan.
    next_plan: Annotated[Longs, table(1, fill=1, low=0, high="next_plan")]
    #: [row, column]: 1 if declared to fail, which follows from the assumptions.
    forbidden: Annotated[Bytes, table("row", "column", stored=False)]
    #: [slot]: its step, if slots belong to steps.
    slot_step: Annotated[Longs, table("slot", stored=False)]
    #: Slots in the order of planning, last step first; any order if steps share slots.
    order: Longs
    #: 1 if a column is a step, 0 if slots belong to steps.
    shift: int
    #: [step]: largest value; lowest reward; weight of the next step; c times that weight.
    cap: Floats
    lowest: float
    discount: float
    bonus: float
    avoid_dead_ends: bool


class OptimisticPlanner(CountingAlgorithm[Tables]):
    """Counted transitions, and the plan to follow."""

    place_when_new = 0

    def __init__(self, task: Task, settings: UCBVI, *, avoid_dead_ends: bool = False) -> None:
        discount, cap = task.space.discount or 1.0, task.sizes.span * task.space.left
        super().__init__(
            task, Tables, cap=cap, discount=discount, bonus=discount * settings.bonus, avoid_dead_ends=avoid_dead_ends
        )

    def start(self, first: int, first_row: int, log: Log) -> None:
        """New slots start at the largest possible value."""
        space, w = self.space, self.tables.w
        steps = np.arange(self.columns)[None, :] if space.shared else space.slot_step[first:, None]
        offers = (np.diff(space.layout.row_start[first:]) > 0)[:, None]
        w[first:, : self.columns] = self.tables.cap[steps] * offers
        if first < space.ends:
            w[: space.ends] = self.end_values()
        if self.task.model is not None:
            self.store.set(order=planning_order(self.space))

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Plan if it is due."""
        if episode >= self.tables.next_plan[0]:
            self.store.set(order=planning_order(self.space))
            super().begin(episode, generator, log)

    # Results -------------------------------------------------------------------------------------------------

    def memory(self) -> Memory:
        """What was observed to violate, is declared to fail or, for SUCBVI, leads to dead ends."""
        memory = super().memory()
        if self.tables.avoid_dead_ends:
            find_dead_ends(self.tables, memory.witness)
        return memory


@inlined
def value_of(tables: Tables, row: int, column: int, cap: float) -> float:
    """Return Q of a row."""
    counts = tables.counts
    n = counts.visits[row]
    if n == 0:
        return cap
    total, square = 0.0, 0.0
    cell = counts.first[row]
    while cell != NO_CELL:
        part = tables.w[counts.following[cell], column + tables.shift]
        total += counts.count[cell] * part
        square += counts.count[cell] * part * part
        cell = counts.before[cell]
    mean = total / n
    deviation = math.sqrt(max(square / n - mean * mean, 0.0) / n)
    return min(cap, counts.reward[row] / n - tables.lowest + tables.discount * mean + tables.bonus * deviation)


@inlined
def dead_end(tables: Tables, row: int, column: int) -> int:
    """Return a dead slot that a row was observed to lead to; -1 if there is none."""
    counts = tables.counts
    cell = counts.first[row]
    while cell != NO_CELL and tables.dead[counts.following[cell], column + tables.shift] == 0:
        cell = counts.before[cell]
    return -1 if cell == NO_CELL else np.int64(counts.following[cell])


@loop
def find_dead_ends(tables: Tables, witness: Ints) -> None:
    """Set [row, column]: the dead slot that a row led to, unless it violates itself."""
    for row in range(witness.shape[0]):
        for column in range(witness.shape[1]):
            led = dead_end(tables, row, column)
            if led >= 0 and tables.counts.max_violation[row] == 0.0:
                witness[row, column] = led


@inlined
def best_row(tables: Tables, layout: Layout, slot: int, column: int, cap: float) -> tuple[float, int]:
    """Return W of a slot and the row that attains it; ties go to the lowest row."""
    max_violation = tables.counts.max_violation
    best, chosen, mildest = -math.inf, np.int64(-1), layout.row_start[slot]
    for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
        failed = max_violation[row] > 0.0 or tables.forbidden[row, column] == 1
        if failed or (tables.avoid_dead_ends and dead_end(tables, row, column) >= 0):
            if max_violation[row] < max_violation[mildest]:
                mildest = row
            continue
        q = value_of(tables, row, column, cap)
        if q > best:
            best, chosen = q, row
    if chosen < 0:  # everything is known to fail: value 0, and the least violation
        best, chosen = 0.0, mildest
        tables.dead[slot, column] = tables.avoid_dead_ends
    return best, chosen


@loop
def settle(tables: Tables, layout: Layout) -> None:
    """Without an end: back up all slots until W hardly changes."""
    enough = TOLERANCE * tables.cap[0] * (1.0 - tables.discount)
    for _ in range(MOST_SWEEPS):
        settled = True
        for index in range(tables.order.shape[0] - 1, -1, -1):
            slot = tables.order[index]
            best, _ = best_row(tables, layout, slot, 0, tables.cap[0])
            settled &= abs(best - tables.w[slot, 0]) <= enough
            tables.w[slot, 0] = best
        if settled:
            break


@loop
def plan(tables: Tables, layout: Layout, log: Log) -> None:
    """Plan; ties go to the lowest row."""
    if tables.discount < 1.0:
        settle(tables, layout)
    columns = tables.greedy.shape[1]
    for back in range(columns):
        column = columns - 1 - back
        for index in range(tables.order.shape[0]):
            slot = tables.order[index]
            step = column if tables.shift == 1 else tables.slot_step[slot]
            best, chosen = best_row(tables, layout, slot, column, tables.cap[step])
            tables.w[slot, column] = best
            if tables.greedy[slot, column] != chosen:
                tables.greedy[slot, column] = chosen
                note(log, column * layout.node_stride + slot, chosen)


def plan_if_due(tables: Tables, layout: Layout, generator: Words, episode: int, log: Log) -> None:
    """Plan if it is due in this episode."""
    if episode >= tables.next_plan[0]:
        plan(tables, layout, log)
        tables.next_plan[0] = episode + max(LEAST_BATCH, int(BATCH_SHARE * (episode - 1)))


def count_episode(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Count an episode; SUCBVI plans again after a violation, and records the first dead first state."""
    count_path(tables.counts, path, length)
    if tables.avoid_dead_ends:
        for step in range(length):
            if path.payoff[step, 1] > 0.0:
                tables.next_plan[0] = episode + 1
        if tables.dead[path.first[0], 0] == 1 and tables.proved[0] == 0:
            tables.proved[0], tables.dead_first[0] = episode, path.first[0]


register(Tables, begin=plan_if_due, learn=count_episode)
