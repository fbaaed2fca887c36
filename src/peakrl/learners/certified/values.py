"""Upper values of every (step, state, action), which bound the value of the unknown best safe policy.

    U_h(s,a) <- min( U_h(s,a), r' + v ),   W_h(s) = max of U_h(s,a) over a not ruled out,   B_h = max_s W_h(s)

r' is the reward if it was observed, else the largest reward of a step. v = 0 at the last step, v = B_{h+1} for a
distribution without samples, else v is the bound of `bounds.upper_mean` over W_{h+1}(s') of all samples of the
distribution, with nu >= B_{h+1}. If rewards depend on the outcome, the bound is on reward plus W_{h+1}(s'), also at the
last step, and nu >= most + B_{h+1}. If nothing is random, v = W_{h+1}(s'). If the states are not known in advance,
B_h = (H - h) most throughout, and so is W_h(s) of a state that was not visited and that declared dynamics lead to.

(h,s,a) is ruled out if it was observed to violate, or if a sample of its distribution is dead at h+1; (h,s) is dead if
all of its actions are ruled out. Dead states are left out of every maximum, and nothing is computed from them.

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
from peakrl.learners.certified.bounds import ROUGH, beta, upper_mean
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
from peakrl.learners.episode import Log, Path, note
from peakrl.learners.infeasibility import VIOLATES
from peakrl.types import Layout

#: In place of the next slot of a sample that does not count.
LEFT_OUT = -2
#: An entry is updated when the samples of its distribution have grown by this factor.
GROWTH = 1.05


@loop
def next_slot(t: Tables, row: int, cell: int) -> int:
    """Return the next slot of a cell when `row` is taken; UNMET: a state not visited."""
    if t.noises > 0 and row >= 0:
        return np.int64(t.noise_next[row, cell])
    return np.int64(t.cell_next[cell])


@loop
def following_value(t: Tables, step: int, row: int, distribution: int, precision: float) -> tuple[float, int]:
    """Return the upper bound of W after a row at `step`, plus the reward if it depends on the outcome.

    The second number is a dead slot among the samples, or OPEN. `row` is -1 for the first state, at step -1.
    """
    samples, joint = t.samples[distribution], t.joint and row >= 0
    ceiling = t.top[step + 1] + (t.most if joint else 0.0)
    if samples == 0:
        return ceiling, OPEN
    if step == t.horizon - 1 and not t.joint:
        return 0.0, OPEN
    size, cell, column = 0, t.cell_first[distribution], (step + 1) * t.shift
    while cell >= 0:
        t.sample_count[size] = t.cell_count[cell]
        if t.sample_count[size] > 0:
            following = next_slot(t, row, cell)
            if following == UNMET:
                most = max(t.most, 0.0) if t.ends > 0 else t.most
                t.sample_value[size] = most * (t.horizon - step - 1)
            elif t.dead[following, column]:
                return ceiling, following
            else:
                t.sample_value[size] = t.value[following, column]
            if joint:
                t.sample_value[size] += t.cell_reward[cell]
        size += 1
        cell = t.cell_after[cell]
    if t.deterministic:
        return t.sample_value[0], OPEN
    total = np.float64(samples)
    bet = beta(total, t.log_share[distribution])
    index = distribution if t.noises == 0 else row + 1
    line = (step + 1) % t.guess.shape[1]
    guess = t.guess[index, line]
    bound, nu = upper_mean(t.sample_value, t.sample_count, size, total, ceiling, bet, bet, guess, precision)
    t.guess[index, line] = nu
    return bound, OPEN


@loop
def lower_entry(t: Tables, column: int, row: int, follows: float) -> None:
    """Lower U of an entry to reward plus next value, if that is less."""
    own = 0.0 if t.joint else (t.reward[row] if t.known[row] else t.most)
    t.upper[row, column] = min(t.upper[row, column], own + follows)


@loop
def refresh(t: Tables, column: int, slot: int) -> None:
    """Update W and the greedy row of a node; a dead node takes the row of least known violation."""
    best, choice = -math.inf, -1
    for row in range(t.row_start[slot], t.row_start[slot + 1]):
        if t.witness[row, column] == OPEN and t.upper[row, column] > best:
            best, choice = t.upper[row, column], row
    if choice < 0:
        t.dead[slot, column] = 1
        choice = least_violating(t, slot)
    else:
        t.value[slot, column] = best
    t.greedy[slot, column] = choice


@loop
def least_violating(t: Tables, slot: int) -> int:
    """Return the row of a slot with the least known violation."""
    choice = t.row_start[slot]
    for row in range(t.row_start[slot], t.row_start[slot + 1]):
        if t.max_violation[t.group_of_row[row]] < t.max_violation[t.group_of_row[choice]]:
            choice = row
    return np.int64(choice)


@loop
def update_entry(t: Tables, step: int, row: int) -> None:
    """Update U of one entry, or rule it out."""
    column, distribution = step * t.shift, np.int64(t.distribution_of_row[row])
    follows, witness = following_value(t, step, row, distribution, ROUGH)
    t.updated[row, column] = t.samples[distribution]
    if witness == OPEN:
        lower_entry(t, column, row, follows)
    else:
        t.witness[row, column] = witness


@loop
def sweep(t: Tables, precision: float) -> None:
    """Update U, W and B of every step, the last step first; one bound for each distribution and step."""
    t.bound_step[:] = -1
    for step in range(t.horizon - 1, -1, -1):
        top, column = -math.inf, step * t.shift
        for i in range(t.step_slots[step, 0], t.step_slots[step, 1]):
            slot = np.int64(t.slots[i])
            for row in range(t.row_start[slot], t.row_start[slot + 1]):
                if t.witness[row, column] != OPEN:
                    continue
                d = np.int64(t.distribution_of_row[row])
                if t.noises > 0 or t.bound_step[d] != step:
                    t.bound_step[d] = step
                    t.bound_value[d], t.bound_dead[d] = following_value(t, step, row, d, precision)
                if t.bound_dead[d] == OPEN:
                    lower_entry(t, column, row, t.bound_value[d])
                    t.updated[row, column] = t.samples[d]
                else:
                    t.witness[row, column] = t.bound_dead[d]
            refresh(t, column, slot)
            if not t.dead[slot, column]:
                top = max(top, t.value[slot, column])
        if t.complete and top > -math.inf:
            t.top[step] = min(t.top[step], max(top, 0.0) if t.ends > 0 else top)


@loop
def first_value(t: Tables, precision: float) -> tuple[float, int]:
    """Return the upper bound of the optimum, and an observed first slot that is dead (or OPEN)."""
    none = np.int64(-1)  # a literal -1 would compile everything twice
    return following_value(t, none, none, np.int64(FIRST), precision)


@loop
def forbid(t: Tables, group: int, violation: float, log: Log) -> None:
    """Rule out every row of a group that violated, at all of its steps."""
    new = t.max_violation[group] == 0.0
    t.max_violation[group] = max(t.max_violation[group], violation)
    if not new:
        return
    for i in range(t.group_start[group], t.group_start[group + 1]):
        row = np.int64(t.group_rows[i])
        slot = np.int64(t.slot_of_row[row])
        for column in range(t.witness.shape[1]):
            if t.witness[row, column] == OPEN:
                t.witness[row, column] = VIOLATES
            refresh_noted(t, column, slot, log)


@loop
def refresh_noted(t: Tables, column: int, slot: int, log: Log) -> None:
    """Update W and the greedy row of a node; log the row if it changed and is followed."""
    before = t.greedy[slot, column]
    refresh(t, column, slot)
    if t.mode[LIVE] and t.greedy[slot, column] != before:
        note(log, column * t.node_stride + slot, t.greedy[slot, column])


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
    note_sample(t, np.int64(FIRST), path.first[0], 0.0)
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
