"""Episodes of the certified learner: count what was observed, and update U along the path.

An episode follows a table of rows: greedy in U, which may change from episode to episode, or a fixed one (candidate,
challenger). Its transitions are counted first. Then, the last step first, U of the pairs on the path is updated if the
samples of their distribution have grown by a twentieth since the last update; W and the greedy row of the state follow.
Every violation rules out the group of the pair at once.

Episodes of a frozen candidate are evidence: their number, how many of them violated, and a histogram of their returns,
rounded down to a grid of 65,536 steps over [H lo, H hi]; if gaps g were frozen (`gaps`), also a histogram of
max_h g_h(s_h), rounded up to such a grid over [0, max g], with 0 exact.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.declared import UNMET
from peakrl.learners.certified.tables import (
    FIRST,
    GAUGE,
    GAUGED,
    GRID,
    LEAST,
    LIVE,
    MOST,
    OPEN,
    PLAYED,
    SQUARES,
    SUM,
    TOP,
    VIOLATED,
    Tables,
)
from peakrl.learners.certified.values import forbid, refresh_noted, update_entry
from peakrl.learners.episode import Log, Path
from peakrl.types import Layout

#: In place of the next slot of a sample that does not count.
LEFT_OUT = -2
#: An entry is updated when the samples of its distribution have grown by this factor.
GROWTH = 1.05


@loop
def note_sample(t: Tables, distribution: int, following: int, reward: float) -> None:
    """Count one sample of a distribution; a new pair of next slot and reward takes a new cell."""
    t.samples[distribution] += 1
    cell = t.cell_first[distribution]
    while cell >= 0:
        if t.cell_next[cell] == following and (not t.joint or t.cell_reward[cell] == reward):
            t.cell_count[cell] += 1
            return
        if t.deterministic and t.cell_next[cell] == UNMET:
            t.cell_next[cell] = following
            t.cell_count[cell] += 1
            return
        cell = t.cell_after[cell]
    cell = t.cells[0]
    t.cells[0] += 1
    t.cell_distribution[cell] = distribution
    t.cell_next[cell] = following
    t.cell_reward[cell] = reward
    t.cell_count[cell] = 1
    if t.cell_first[distribution] < 0:
        t.cell_first[distribution] = cell
    else:
        t.cell_after[t.cell_last[distribution]] = cell
    t.cell_last[distribution] = cell


@loop
def note_noise(t: Tables, distribution: int, row: int, following: int) -> None:
    """Count the noise that led from a row to `following`; at the last step of an environment it may be unknown."""
    for noise in range(t.noises):
        if t.noise_next[row, noise] == following:
            t.samples[distribution] += 1
            t.cell_count[noise] += 1
            return


@loop
def last_following(t: Tables, distribution: int, following: int) -> int:
    """Return the next slot as the sample of a last step counts (UNMET: unknown), or LEFT_OUT."""
    if not t.ended[0]:
        if following >= t.last_ends:
            return following
        t.ended[0] = 1
        return LEFT_OUT if t.deterministic and t.samples[distribution] > 0 else UNMET
    cell = t.cell_first[distribution]
    while cell >= 0 and t.cell_next[cell] == UNMET:
        cell = t.cell_after[cell]
    return UNMET if cell < 0 else LEFT_OUT


@loop
def count_path(t: Tables, path: Path, length: int) -> None:
    """Count the samples of an episode and record its rewards and tested groups."""
    note_sample(t, np.int64(FIRST), path.slot[0], 0.0)
    for step in range(length):
        row, reward = path.row[step], path.payoff[step, 0]
        distribution = np.int64(t.distribution_of_row[row])
        following = path.following[step]
        last = t.last_ends > 0 and step == t.horizon - 1
        if t.noises > 0:
            if not last:  # an end there may be the time limit, and not a noise
                note_noise(t, distribution, row, following)
        else:
            if last:
                following = last_following(t, distribution, following)
            if following != LEFT_OUT:
                note_sample(t, distribution, following, reward if t.joint else 0.0)
        if not t.joint:
            t.known[row] = 1
            t.reward[row] = reward
        t.tested[t.group_of_row[row]] = 1


@loop
def update_path(t: Tables, path: Path, length: int, log: Log) -> None:
    """Update U along an episode."""
    for step in range(length - 1, -1, -1):
        row, column = path.row[step], step * t.shift
        grown = t.deterministic or t.samples[t.distribution_of_row[row]] >= GROWTH * t.updated[row, column]
        if t.witness[row, column] == OPEN and grown:
            update_entry(t, step, row)
            refresh_noted(t, column, path.slot[step], log)


@loop
def note_evidence(t: Tables, path: Path, length: int) -> None:
    """Count one episode of the frozen candidate: its return, whether it violated, its largest gap."""
    total, violated, gap = 0.0, 0.0, 0.0
    for step in range(length):
        total += path.payoff[step, 0]
        violated += path.payoff[step, 1]
        gap = max(gap, t.gap[path.slot[step], step * t.shift])
    least, most, top = t.scale[LEAST], t.scale[MOST], t.scale[TOP]
    index = np.int64(math.floor((total - least) / (most - least) * GRID)) if most > least else np.int64(0)
    t.returns[min(max(index, np.int64(0)), np.int64(GRID))] += 1
    t.scale[SUM] += total
    t.scale[SQUARES] += total * total
    t.counts[PLAYED] += 1
    if violated > 0.0:
        t.counts[VIOLATED] += 1
    if top >= 0.0:
        t.gaps[np.int64(math.ceil(gap / top * GRID)) if top > 0.0 else 0] += 1
        t.counts[GAUGED] += 1


def learn_path(t: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from an episode."""
    if t.mode[GAUGE]:
        note_evidence(t, path, length)
    for step in range(length):
        if path.payoff[step, 1] > 0.0:
            forbid(t, np.int64(t.group_of_row[path.row[step]]), path.payoff[step, 1], log)
    count_path(t, path, length)
    update_path(t, path, length, log)


def choose_row(t: Tables, layout: Layout, step: int, slot: int) -> int:
    """Return the row that is followed."""
    column = step * t.shift
    return t.greedy[slot, column] if t.mode[LIVE] else t.followed[slot, column]
