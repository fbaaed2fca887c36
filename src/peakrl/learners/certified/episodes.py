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
from typing import NamedTuple

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.tables import CELLS, OPEN, SAMPLES, Params, Scratch, Structure, Tables
from peakrl.learners.certified.values import forbid, note_change, refresh, update_entry
from peakrl.learners.episode import Log, lacks_room, note_episode, take_row
from peakrl.sampling import Words, draw_first
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

#: Steps of the grids on which returns and gaps are counted.
GRID = 1 << 16
#: An entry is updated when the samples of its distribution have grown by this factor.
GROWTH = 1.05
#: `Evidence.counts`: episodes of the frozen candidate, those that violated, episodes since the gaps were frozen.
PLAYED, VIOLATED, GAUGED = 0, 1, 2


class Evidence(NamedTuple):
    """Statistics of the episodes of the frozen candidate."""

    counts: Longs
    #: [GRID + 1]: histogram of returns; return = low + width * index.
    returns: Longs
    #: [GRID + 1]: histogram of largest gaps; gap = top * index / GRID.
    gaps: Longs
    #: [node]: g as frozen.
    gap: Floats
    #: [5]: least return, most return, largest g, sum of returns, sum of their squares.
    scale: Floats


@loop
def note_sample(
    structure: Structure, params: Params, tables: Tables, distribution: int, following: int, reward: float
) -> None:
    """Count one sample of a distribution; a new pair of next slot and reward takes a new cell."""
    base, size = structure.cell_start[distribution], tables.distribution[distribution, CELLS]
    tables.distribution[distribution, SAMPLES] += 1
    for i in range(base, base + size):
        if tables.cell_next[i] == following and (not params.joint or tables.cell_reward[i] == reward):
            tables.cell_count[i] += 1
            return
    tables.cell_next[base + size] = following
    tables.cell_reward[base + size] = reward
    tables.cell_count[base + size] = 1
    tables.distribution[distribution, CELLS] = size + 1


@loop
def note_noise(structure: Structure, tables: Tables, distribution: int, row: int, following: int) -> None:
    """Count the noise that led from a row to `following`; at the last step of an environment it may be unknown."""
    for noise in range(structure.noises):
        if structure.noise_next[row * structure.noises + noise] == following:
            tables.distribution[distribution, SAMPLES] += 1
            tables.cell_count[structure.cell_start[distribution] + noise] += 1
            return


@loop
def count_path(structure: Structure, params: Params, tables: Tables, path: Scratch, length: int) -> None:
    """Count the samples of an episode and record its rewards and tested groups."""
    first = tables.distribution.shape[0] - 1
    note_sample(structure, params, tables, first, path.slot[0], 0.0)
    for step in range(length):
        row, distribution = path.row[step], np.int64(structure.distribution_of_row[path.row[step]])
        if structure.noises > 0:
            note_noise(structure, tables, distribution, row, path.following[step])
        else:
            note_sample(
                structure,
                params,
                tables,
                distribution,
                path.following[step],
                path.earned[step] if params.joint else 0.0,
            )
        if not params.joint:
            tables.known[row] = 1
            tables.reward[row] = path.earned[step]
        tables.tested[structure.group_of_row[row]] = 1


@loop
def learn_path(
    structure: Structure,
    params: Params,
    tables: Tables,
    path: Scratch,
    length: int,
    live: bool,
    log: Log,
) -> None:
    """Learn from the `length` steps of an episode.

    `live`: the greedy rows are followed, so their changes are logged.
    """
    count_path(structure, params, tables, path, length)
    for back in range(length):
        step = length - 1 - back
        slot, row = path.slot[step], path.row[step]
        node, entry = step * structure.node_stride + slot, step * structure.entry_stride + row
        distribution = structure.distribution_of_row[row]
        grown = params.deterministic or tables.distribution[distribution, SAMPLES] >= GROWTH * tables.updated[entry]
        if tables.witness[entry] != OPEN or not grown:
            continue
        before = tables.greedy[node]
        update_entry(structure, params, tables, path, step, row)
        refresh(structure, tables, step, slot)
        note_change(tables, node, before, live, log)


@loop
def forbid_path(structure: Structure, tables: Tables, path: Scratch, length: int, live: bool, log: Log) -> None:
    """Rule out the groups that violated in an episode."""
    for step in range(length):
        if path.violated[step] > 0.0:
            group = np.int64(structure.group_of_row[path.row[step]])
            forbid(structure, tables, group, path.violated[step], live, log)


@loop
def note_evidence(structure: Structure, evidence: Evidence, path: Scratch, length: int) -> None:
    """Count one episode of the frozen candidate: its return, whether it violated, its largest gap."""
    total, violated, gap = 0.0, 0.0, 0.0
    for step in range(length):
        total += path.earned[step]
        violated += path.violated[step]
        gap = max(gap, evidence.gap[step * structure.node_stride + path.slot[step]])
    least, most, top = evidence.scale[0], evidence.scale[1], evidence.scale[2]
    place = np.int64(math.floor((total - least) / (most - least) * GRID)) if most > least else np.int64(0)
    evidence.returns[min(max(place, np.int64(0)), np.int64(GRID))] += 1
    evidence.scale[3] += total
    evidence.scale[4] += total * total
    evidence.counts[PLAYED] += 1
    if violated > 0.0:
        evidence.counts[VIOLATED] += 1
    if top >= 0.0:
        evidence.gaps[np.int64(math.ceil(gap / top * GRID)) if top > 0.0 else 0] += 1
        evidence.counts[GAUGED] += 1


@loop
def take_episode(
    structure: Structure,
    params: Params,
    tables: Tables,
    path: Scratch,
    length: int,
    live: bool,
    gauge: bool,
    evidence: Evidence,
    log: Log,
) -> None:
    """Learn from the episode in `path`."""
    if gauge:
        note_evidence(structure, evidence, path, length)
    forbid_path(structure, tables, path, length, live, log)
    learn_path(structure, params, tables, path, length, live, log)


@loop
def play_episodes(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 2]: reward and total violation.
    payoff: Floats,
    structure: Structure,
    params: Params,
    tables: Tables,
    path: Scratch,
    #: [node]: the rows that are followed; `tables.greedy` itself if `live`.
    followed: Ints,
    live: bool,
    #: Are these episodes of the frozen candidate?
    gauge: bool,
    evidence: Evidence,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    reserve: int,
    #: [episode, 2]: reward and violation of each episode; empty if not recorded.
    experience: Floats,
    counters: Longs,
) -> int:
    """Run up to `episodes` episodes on a model; return how many were run.

    It stops early when the log might not hold the next episode.
    """
    for k in range(episodes):
        if lacks_room(log, reserve):
            return k
        slot = draw_first(generator, sampler)
        earned, violated = 0.0, 0.0
        for step in range(layout.horizon):
            row = np.int64(followed[step * layout.node_stride + slot])
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.slot[step] = slot
            path.row[step] = row
            path.following[step] = following
            path.earned[step] = payoff[record, 0]
            path.violated[step] = payoff[record, 1]
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        note_episode(experience, counters, done, k, earned, violated)
        log.head[1] = done + k + 2
        take_episode(structure, params, tables, path, layout.horizon, live, gauge, evidence, log)
    return episodes
