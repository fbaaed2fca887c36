"""Follow a plan, which may be randomised, and count transitions until some count has doubled.

An episode draws one row for every node with a randomised action; no node is visited twice, so the trajectory has the
distribution of the plan. Transitions are counted as in `learners.ucbvi`, with the costs of each pair. A new plan is due
when the visits of some pair have reached a power of two: log2(n) + 1 plans for each pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.learners.counting_planner import Counts, count_step
from peakrl.learners.episode import Log, lacks_room, note, note_episode, take_row
from peakrl.sampling import Words, draw_first, uniform
from peakrl.types import Floats, Ints, Layout, Longs, Sampler


class Mixture(NamedTuple):
    """The nodes with randomised actions."""

    #: [node]: slot and column, and the index of its first row below.
    slot: Longs
    column: Longs
    start: Longs
    #: [index]: a row, and the cumulative probability.
    row: Longs
    edge: Floats


class Path(NamedTuple):
    """[step]: an episode."""

    row: Longs
    following: Longs
    record: Longs


@loop
def draw_rows(generator: Words, mixture: Mixture, counts: Counts, node_stride: int, log: Log) -> None:
    """Draw the rows of an episode."""
    for i in range(mixture.slot.shape[0]):
        number = uniform(generator)
        index = mixture.start[i]
        while index < mixture.start[i + 1] - 1 and number >= mixture.edge[index]:
            index += 1
        row, slot, column = mixture.row[index], mixture.slot[i], mixture.column[i]
        if counts.greedy[slot, column] != row:
            counts.greedy[slot, column] = row
            note(log, column * node_stride + slot, row)


@inlined
def doubled(counts: Counts, row: int) -> bool:
    """Has the number of visits of a row just reached a power of two?"""
    return counts.visits[row] & (counts.visits[row] - 1) == 0


@loop
def follow_plan(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 2]: reward, total violation; [record, quantity]
    payoff: Floats,
    charges: Floats,
    counts: Counts,
    #: [row, quantity]: sum of costs.
    charge: Floats,
    mixture: Mixture,
    shift: int,
    path: Path,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    #: [episode, ..]: reward and violation go into the first two columns.
    experience: Floats,
    counters: Longs,
) -> tuple[int, bool]:
    """Run up to `episodes` episodes from done+1 on; return their number, and is a plan due?"""
    due = False
    for k in range(episodes):
        if lacks_room(log, mixture.slot.shape[0]):
            return k, due
        log.head[1] = done + k + 1
        draw_rows(generator, mixture, counts, layout.node_stride, log)
        slot = np.int64(draw_first(generator, sampler))
        counts.begun[slot] += 1
        earned, violated = 0.0, 0.0
        for step in range(layout.horizon):
            row = counts.greedy[slot, step * shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.row[step], path.following[step], path.record[step] = row, following, record
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        for step in range(layout.horizon):
            row, record = path.row[step], path.record[step]
            count_step(counts, row, path.following[step], payoff[record, 0], payoff[record, 1])
            for quantity in range(charges.shape[1]):
                charge[row, quantity] += charges[record, quantity]
            due = due or doubled(counts, row)
        note_episode(experience, counters, done, k, earned, violated)
        if due:
            return k + 1, due
    return episodes, due
