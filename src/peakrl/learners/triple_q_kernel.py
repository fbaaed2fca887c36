"""Triple-Q in its form for costs (after Wei, Liu and Ying, 2022): a Q-table of reward, one of each cost, and queues.

Frames of F episodes; in episode k, at step h in slot s (a greedy, ties to the lowest row; steps count from 0):

    a  = argmax_a Q_h(s,a) - sum_j (Z_j/eta) C^j_h(s,a)
    t  = N_h(s,a) += 1,   alpha = (chi+1)/(chi+t),   b = sqrt(alpha)
    Q_h(s,a)   <- (1-alpha) Q_h(s,a) + alpha (r + Q_{h+1}(s',a') + B b)
    C^j_h(s,a) <- max(0, (1-alpha) C^j_h(s,a) + alpha (c_j + C^j_{h+1}(s',a') - B_j b))

with a' the action that was taken in s' and every table as it was before the episode. At the end of a frame

    N <- 0;   Q_h <- min(cap_h, Q_h + lift);   Z_j <- max(0, Z_j + mean over the frame of C^j_0(s_0,a_0) - d_j)

Where costs belong to steps (`by_step`), c_j counts at its own step j // quantities alone; then the tables are the
expected violation of each constraint at each step: "H I tables". They start at 0 and stay so after that step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.learners.constrained_q_kernel import Log
from peakrl.learners.episode import note_episode, take_row
from peakrl.sampling import Words, draw_first
from peakrl.types import Floats, Ints, Layout, Longs, Sampler


class Tables(NamedTuple):
    """What is learned."""

    #: [entry]
    q: Floats
    #: [entry, cost]
    cost: Floats
    #: [entry]: visits in this frame
    visits: Ints
    #: [slot, column]
    greedy: Longs
    #: [cost]: Z, and the sum of C_0(s_0,a_0) over the episodes of the frame.
    queue: Floats
    estimate: Floats


class Rules(NamedTuple):
    """Numbers that the settings come to."""

    #: Of the space (`arrays.Layout`); 1 where a column is a step, 0 where slots belong to steps.
    node_stride: int
    entry_stride: int
    shift: int
    row_start: Longs
    slot_step: Longs
    #: Episodes of a frame.
    frame: int
    chi: float
    eta: float
    #: B, and [cost] B_j.
    bonus: float
    cost_bonus: Floats
    lift: float
    #: [step]
    cap: Floats
    #: [cost]: d.
    limit: Floats
    #: How many costs a step has.
    quantities: int
    by_step: bool


class Path(NamedTuple):
    """[step]: an episode. Charges are [step, quantity]."""

    slot: Longs
    row: Longs
    reward: Floats
    charge: Floats


@inlined
def greedy_row(tables: Tables, rules: Rules, step: int, slot: int) -> int:
    """Return the row of the largest Q less what its costs are worth."""
    best, chosen = -math.inf, rules.row_start[slot]
    for row in range(rules.row_start[slot], rules.row_start[slot + 1]):
        entry = step * rules.entry_stride + row
        value = tables.q[entry]
        for j in range(tables.queue.shape[0]):
            value -= tables.queue[j] / rules.eta * tables.cost[entry, j]
        if value > best:
            best, chosen = value, row
    return np.int64(chosen)


@loop
def choose(tables: Tables, rules: Rules, step: int, slot: int, log: Log, episode: int, changes: int) -> int:
    """Find the greedy row of a node; log it where it changes from `episode` on, and return the log's new length."""
    row, column = greedy_row(tables, rules, step, slot), step * rules.shift
    if tables.greedy[slot, column] != row:
        tables.greedy[slot, column] = row
        if log.node.shape[0] > 0:
            log.episode[changes], log.node[changes], log.row[changes] = episode, step * rules.node_stride + slot, row
            changes += 1
    return changes


@loop
def update(tables: Tables, rules: Rules, path: Path, length: int) -> None:
    """Learn from an episode, the first step first: what a step needs of the next one is still as it was."""
    costs = tables.queue.shape[0]
    for j in range(costs):
        tables.estimate[j] += tables.cost[path.row[0], j]
    for step in range(length):
        entry = step * rules.entry_stride + path.row[step]
        last = step + 1 == length
        ahead = entry if last else (step + 1) * rules.entry_stride + path.row[step + 1]
        tables.visits[entry] += 1
        alpha = (rules.chi + 1.0) / (rules.chi + tables.visits[entry])
        width = math.sqrt(alpha)
        target = path.reward[step] + (0.0 if last else tables.q[ahead]) + rules.bonus * width
        tables.q[entry] = (1.0 - alpha) * tables.q[entry] + alpha * target
        for j in range(costs):
            when = j // rules.quantities if rules.by_step else step
            if when >= step:
                charge = path.charge[step, j % rules.quantities] if when == step else 0.0
                target = charge + (0.0 if last else tables.cost[ahead, j]) - rules.cost_bonus[j] * width
                tables.cost[entry, j] = max(0.0, (1.0 - alpha) * tables.cost[entry, j] + alpha * target)


@loop
def end_frame(tables: Tables, rules: Rules, log: Log, episode: int, changes: int) -> int:
    """Move the queues and lift the table of rewards; return the log's new length."""
    for j in range(tables.queue.shape[0]):
        tables.queue[j] = max(0.0, tables.queue[j] + tables.estimate[j] / rules.frame - rules.limit[j])
    tables.estimate[:] = 0.0
    tables.visits[:] = 0
    for slot in range(rules.row_start.shape[0] - 1):
        if rules.row_start[slot + 1] == rules.row_start[slot]:
            continue
        for column in range(tables.greedy.shape[1]):
            step = column if rules.shift == 1 else rules.slot_step[slot]
            for row in range(rules.row_start[slot], rules.row_start[slot + 1]):
                entry = step * rules.entry_stride + row
                tables.q[entry] = min(rules.cap[step], tables.q[entry] + rules.lift)
            changes = choose(tables, rules, step, slot, log, episode, changes)
    return changes


@loop
def learn_path(tables: Tables, rules: Rules, path: Path, length: int, log: Log, episode: int, changes: int) -> int:
    """Learn from an episode, and end the frame where it is its last; return the log's new length."""
    update(tables, rules, path, length)
    for step in range(length):
        changes = choose(tables, rules, step, path.slot[step], log, episode + 1, changes)
    if episode % rules.frame == 0:
        changes = end_frame(tables, rules, log, episode + 1, changes)
    return changes


@loop
def learn_triple_q(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 2]: reward, total violation
    payoff: Floats,
    #: [record, quantity]
    charges: Floats,
    tables: Tables,
    rules: Rules,
    path: Path,
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
        if log.node.shape[0] > 0 and k > 0 and changes + tables.greedy.size + layout.horizon > log.node.shape[0]:
            return k, changes
        slot = draw_first(generator, sampler)
        earned, violated = 0.0, 0.0
        for step in range(layout.horizon):
            row = tables.greedy[slot, step * rules.shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.slot[step], path.row[step], path.reward[step] = slot, row, payoff[record, 0]
            for c in range(charges.shape[1]):
                path.charge[step, c] = charges[record, c]
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        changes = learn_path(tables, rules, path, layout.horizon, log, done + k + 1, changes)
        note_episode(experience, counters, done, k, earned, violated)
    return episodes, changes
