"""Optimistic planning on counted transitions, in the manner of UCBVI (Azar, Osband and Munos, 2017).

Every transition is counted; now and then, and ever more rarely, a plan is made anew, from the last step back:

    Q_h(s,a) = min( cap_h, r(s,a) - lo + mean W_{h+1}(s') + c sqrt( var W_{h+1}(s') / n(s,a) ) )
    W_h(s)   = max_a Q_h(s,a)

with means and variance over the n(s,a) visits, and cap_h = span (H - h) for a pair not yet tried. Pairs seen to violate
or declared to fail are not chosen while another is left. Plans follow each other after 10 episodes, or 2 % of the
episodes so far.

SUCBVI (after Xiong, Du and Huang, 2023) also heeds where a pair was seen to lead. With D(s,a) the next states seen,

    F_h = pairs seen to violate, and those with some s' in D(s,a) that is dead at h+1
    s is dead at h where all of its pairs are in F_h (at H nothing is);   W_h(s) = max over the pairs outside of F_h

and plans anew after every episode that violates. Constraints are observed exactly, so a pair that violated once is in F
for good, and every violating episode adds a pair to some F_h: it took one outside of F_h that either violated or led to
a state dead at h+1 that it had not led to before. So at most H S A episodes violate before the first state is dead,
which proves that no policy keeps every constraint.

Counts are lists of cells: `first[row]` is the latest next slot of a row, `before[cell]` leads on to the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.learners.constrained_q_kernel import Log
from peakrl.learners.episode import note_episode, take_row
from peakrl.sampling import Words, draw_first
from peakrl.types import Bytes, Floats, Ints, Layout, Longs, Sampler

#: Plans follow each other after this many episodes, or this share of the episodes so far.
LEAST_BATCH, BATCH_SHARE = 10, 0.02
NO_CELL = -1


class Counts(NamedTuple):
    """What is counted, and the latest plan."""

    #: [row]: visits, sum of rewards, largest violation seen, first cell.
    visits: Longs
    reward: Floats
    harm: Floats
    first: Ints
    #: [cell]: next slot, how often, the cell before.
    following: Ints
    count: Longs
    before: Ints
    #: Cells in use, and the episode that plans next.
    state: Longs
    #: [slot, column (+ 1 where steps share slots)]: W.
    w: Floats
    #: [slot, column]: the greedy row.
    greedy: Longs
    #: [slot]: episodes that began there.
    begun: Longs
    #: [slot, column (+ 1)]: 1 where every pair is known to fail; stays 0 where dead ends are not heeded.
    dead: Bytes
    #: The episode that began in a dead state, and that slot; 0 where none did.
    proved: Longs
    #: [row, column]: 1 where it is declared to fail.
    barred: Bytes


class Planning(NamedTuple):
    """Numbers that the settings come to."""

    #: 1 where a column is a step, 0 where slots belong to steps.
    shift: int
    #: [slot]: in the order of planning, the last step first; where steps share slots any order.
    order: Longs
    slot_step: Longs
    lowest: float
    span: float
    bonus: float
    heeds: bool


@inlined
def value_of(counts: Counts, planning: Planning, row: int, column: int, cap: float) -> float:
    """Return Q of a row."""
    n = counts.visits[row]
    if n == 0:
        return cap
    total, square = 0.0, 0.0
    cell = counts.first[row]
    while cell != NO_CELL:
        part = counts.w[counts.following[cell], column + planning.shift]
        total += counts.count[cell] * part
        square += counts.count[cell] * part * part
        cell = counts.before[cell]
    mean = total / n
    deviation = math.sqrt(max(square / n - mean * mean, 0.0) / n)
    return min(cap, counts.reward[row] / n - planning.lowest + mean + planning.bonus * deviation)


@inlined
def dead_end(counts: Counts, planning: Planning, row: int, column: int) -> int:
    """Return a dead slot that a row was seen to lead to; -1 where there is none."""
    cell = counts.first[row]
    while cell != NO_CELL and counts.dead[counts.following[cell], column + planning.shift] == 0:
        cell = counts.before[cell]
    return -1 if cell == NO_CELL else np.int64(counts.following[cell])


@loop
def find_witnesses(counts: Counts, planning: Planning, witness: Ints, none: int, violates: int) -> None:
    """Set [row, column]: why a row is known to fail."""
    for row in range(witness.shape[0]):
        for column in range(witness.shape[1]):
            led = dead_end(counts, planning, row, column) if planning.heeds else -1
            witness[row, column] = violates if counts.harm[row] > 0.0 else led if led >= 0 else none


@loop
def plan(layout: Layout, counts: Counts, planning: Planning, log: Log, episode: int, changes: int) -> int:
    """Plan anew; log what changes from `episode` on and return the new length of the log. Of equal rows the lowest."""
    columns = counts.greedy.shape[1]
    for back in range(columns):
        column = columns - 1 - back
        for place in range(planning.order.shape[0]):
            slot = planning.order[place]
            step = column if planning.shift == 1 else planning.slot_step[slot]
            cap = planning.span * (layout.horizon - step)
            best, chosen, mildest = -math.inf, np.int64(-1), layout.row_start[slot]
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                failed = counts.harm[row] > 0.0 or counts.barred[row, column] == 1
                if failed or (planning.heeds and dead_end(counts, planning, row, column) >= 0):
                    if counts.harm[row] < counts.harm[mildest]:
                        mildest = row
                    continue
                q = value_of(counts, planning, row, column, cap)
                if q > best:
                    best, chosen = q, row
            if chosen < 0:  # everything is known to fail: worth nothing, and the mildest is taken
                best, chosen = 0.0, mildest
                counts.dead[slot, column] = planning.heeds
            counts.w[slot, column] = best
            if counts.greedy[slot, column] != chosen:
                counts.greedy[slot, column] = chosen
                if log.node.shape[0] > 0:
                    log.episode[changes] = episode
                    log.node[changes] = column * layout.node_stride + slot
                    log.row[changes] = chosen
                    changes += 1
    return changes


@loop
def plan_if_due(layout: Layout, counts: Counts, planning: Planning, log: Log, episode: int, changes: int) -> int:
    """Plan where `episode` is the one that does."""
    if episode >= counts.state[1]:
        changes = plan(layout, counts, planning, log, episode, changes)
        counts.state[1] = episode + max(LEAST_BATCH, int(BATCH_SHARE * (episode - 1)))
    return changes


@loop
def count_step(counts: Counts, row: int, following: int, reward: float, violation: float) -> None:
    """Count one more visit of a row."""
    counts.visits[row] += 1
    counts.reward[row] += reward
    counts.harm[row] = max(counts.harm[row], violation)
    cell = counts.first[row]
    while cell != NO_CELL and counts.following[cell] != following:
        cell = counts.before[cell]
    if cell == NO_CELL:
        cell = np.int32(counts.state[0])
        counts.state[0] += 1
        counts.following[cell] = following
        counts.count[cell] = 0
        counts.before[cell] = counts.first[row]
        counts.first[row] = cell
    counts.count[cell] += 1


@loop
def count_played(counts: Counts, row: Longs, following: Longs, reward: Floats, violation: Floats) -> None:
    """Count the steps of an episode, [step]."""
    for step in range(row.shape[0]):
        count_step(counts, row[step], following[step], reward[step], violation[step])


@loop
def heed(counts: Counts, planning: Planning, first: int, violated: bool, episode: int) -> None:
    """Where dead ends are heeded: plan anew after a violation, and note an episode that began in a dead state."""
    if planning.heeds and violated:
        counts.state[1] = episode + 1
    if counts.dead[first, 0] == 1 and counts.proved[0] == 0:
        counts.proved[0], counts.proved[1] = episode, first


@loop
def learn_counting(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 2]: reward, total violation
    payoff: Floats,
    counts: Counts,
    planning: Planning,
    #: [step]: room for an episode
    rows: Longs,
    followings: Longs,
    records: Longs,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    experience: Floats,
    counters: Longs,
) -> tuple[int, int]:
    """Run up to `episodes` episodes from done+1 on; return how many were run and how many changes were logged."""
    changes = np.int64(0)  # a plain 0 would have what takes it compiled twice
    for k in range(episodes):
        if log.node.shape[0] > 0 and k > 0 and changes + counts.greedy.size > log.node.shape[0]:
            return k, changes
        changes = plan_if_due(layout, counts, planning, log, done + k + 1, changes)
        first = draw_first(generator, sampler)
        counts.begun[first] += 1
        slot = first
        earned, violated = 0.0, 0.0
        for step in range(layout.horizon):
            row = counts.greedy[slot, step * planning.shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            rows[step], followings[step], records[step] = row, following, record
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        for step in range(layout.horizon):
            record = records[step]
            count_step(counts, rows[step], followings[step], payoff[record, 0], payoff[record, 1])
        heed(counts, planning, first, violated > 0.0, done + k + 1)
        note_episode(experience, counters, done, k, earned, violated)
    return episodes, changes
