"""Upper values of every (step, state, action), which hold for the unknown best safe policy.

    U_h(s,a) <- min( U_h(s,a), r' + v ),   W_h(s) = max of U_h(s,a) over a not ruled out,   B_h = max_s W_h(s)

r' is the reward where it was read, else the most that a step can earn; v = 0 at the last step, B_{h+1} for a distribution
without a sample, else the bound of `bounds.upper_mean` over W_{h+1}(s') of all samples of the distribution, nu >= B_{h+1}. Where
rewards depend on the outcome, the bet is on reward plus W_{h+1}(s'), at the last step too, and nu >= most + B_{h+1}.
Where nothing is random, v = W_{h+1}(s'). Where states are not known, B_h = (H - h) most for ever, and so is W_h(s) of a
state that was not met and to which a declared map leads.

(h,s,a) is ruled out when it was seen to violate, or when a sample of its distribution is dead at h+1; (h,s) is dead when every
action is ruled out. A dead state counts for no maximum, and nothing is computed from it.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.bounds import beta, upper_mean
from peakrl.learners.certified.tables import CELLS, OPEN, SAMPLES, UNMET, VIOLATES, Params, Scratch, Structure, Tables
from peakrl.learners.episode import Log


@loop
def next_slot(structure: Structure, tables: Tables, row: int, distribution: int, cell: int) -> int:
    """Return where cell number `cell` of a distribution leads when it is reached by `row`; UNMET where that was not met."""
    if structure.noises > 0 and row >= 0:
        return np.int64(structure.noise_next[row * structure.noises + cell])
    return np.int64(tables.cell_next[structure.cell_start[distribution] + cell])


@loop
def following_value(
    structure: Structure,
    params: Params,
    tables: Tables,
    scratch: Scratch,
    step: int,
    row: int,
    distribution: int,
    precision: float,
) -> tuple[float, int]:
    """Return the bound of what follows a row at `step` (W, plus the reward where it depends on the outcome).

    The second number is the dead slot that the distribution was seen to lead to, or OPEN. `row` is -1 for the first state, whose
    samples are those of step -1.
    """
    samples = tables.distribution[distribution, SAMPLES]
    ceiling = tables.top[step + 1] + (params.most if params.joint and row >= 0 else 0.0)
    if samples == 0:
        return ceiling, OPEN
    last = step == structure.horizon - 1
    if last and not params.joint:
        return 0.0, OPEN
    size, base = tables.distribution[distribution, CELLS], structure.cell_start[distribution]
    for i in range(size):
        scratch.count[i] = tables.cell_count[base + i]
        if scratch.count[i] > 0:
            following = next_slot(structure, tables, row, distribution, i)
            if following == UNMET:
                most = max(params.most, 0.0) if structure.ends > 0 else params.most
                scratch.value[i] = most * (structure.horizon - step - 1)
                continue
            node = (step + 1) * structure.node_stride + following
            if tables.dead[node]:
                return ceiling, following
            scratch.value[i] = tables.value[node]
            if params.joint and row >= 0:
                scratch.value[i] += tables.cell_reward[base + i]
    if params.deterministic:
        return scratch.value[0], OPEN
    log_share, total = params.log_share[distribution], np.float64(samples)
    bet = beta(total, log_share)
    place = distribution if row < 0 or structure.noises == 0 else row
    line = (step + 1) % tables.guess.shape[0]
    bound, nu = upper_mean(
        scratch.value, scratch.count, size, total, ceiling, bet, bet, tables.guess[line, place], precision
    )
    tables.guess[line, place] = nu
    return bound, OPEN


@loop
def lower_entry(params: Params, tables: Tables, entry: int, row: int, follows: float) -> None:
    """Lower U of an entry to reward plus what follows, where that is less."""
    own = 0.0 if params.joint else (tables.reward[row] if tables.known[row] else params.most)
    tables.upper[entry] = min(tables.upper[entry], own + follows)


@loop
def refresh(structure: Structure, tables: Tables, step: int, slot: int) -> None:
    """Compute W and the greedy row of a node again; a dead node takes the row of least known max_violation."""
    node = step * structure.node_stride + slot
    best, choice = -math.inf, -1
    for row in range(structure.row_start[slot], structure.row_start[slot + 1]):
        entry = step * structure.entry_stride + row
        if tables.witness[entry] == OPEN and tables.upper[entry] > best:
            best, choice = tables.upper[entry], row
    if choice < 0:
        tables.dead[node] = 1
        choice = least_violating(structure, tables, slot)
    else:
        tables.value[node] = best
    tables.greedy[node] = choice


@loop
def least_violating(structure: Structure, tables: Tables, slot: int) -> int:
    """Return the row of a slot with the least known max_violation."""
    choice = structure.row_start[slot]
    for row in range(structure.row_start[slot], structure.row_start[slot + 1]):
        if tables.max_violation[structure.group_of_row[row]] < tables.max_violation[structure.group_of_row[choice]]:
            choice = row
    return np.int64(choice)


@loop
def update_entry(structure: Structure, params: Params, tables: Tables, scratch: Scratch, step: int, row: int) -> None:
    """Compute U of one entry again, or rule it out."""
    entry, distribution = step * structure.entry_stride + row, np.int64(structure.distribution_of_row[row])
    follows, witness = following_value(structure, params, tables, scratch, step, row, distribution, 0.02)
    tables.updated[entry] = tables.distribution[distribution, SAMPLES]
    if witness == OPEN:
        lower_entry(params, tables, entry, row, follows)
    else:
        tables.witness[entry] = witness


@loop
def sweep(structure: Structure, params: Params, tables: Tables, scratch: Scratch, precision: float) -> None:
    """Compute U, W and B of every step again, the last step first; one bet for each distribution and step."""
    scratch.bound_step[:] = -1
    shared = structure.noises == 0
    for step in range(structure.horizon - 1, -1, -1):
        top = -math.inf
        for i in range(structure.step_first[step], structure.step_last[step]):
            slot = np.int64(structure.slots[i])
            if structure.row_start[slot] == structure.row_start[slot + 1]:
                continue
            for row in range(structure.row_start[slot], structure.row_start[slot + 1]):
                entry, distribution = step * structure.entry_stride + row, np.int64(structure.distribution_of_row[row])
                if tables.witness[entry] != OPEN:
                    continue
                if not shared or scratch.bound_step[distribution] != step:
                    follows, dead = following_value(
                        structure, params, tables, scratch, step, row, distribution, precision
                    )
                    (
                        scratch.bound_step[distribution],
                        scratch.bound_value[distribution],
                        scratch.bound_dead[distribution],
                    ) = step, follows, dead
                if scratch.bound_dead[distribution] == OPEN:
                    lower_entry(params, tables, entry, row, scratch.bound_value[distribution])
                    tables.updated[entry] = tables.distribution[distribution, SAMPLES]
                else:
                    tables.witness[entry] = scratch.bound_dead[distribution]
            refresh(structure, tables, step, slot)
            node = step * structure.node_stride + slot
            if not tables.dead[node]:
                top = max(top, tables.value[node])
        if params.complete and top > -math.inf:
            tables.top[step] = min(tables.top[step], max(top, 0.0) if structure.ends > 0 else top)


@loop
def first_value(
    structure: Structure, params: Params, tables: Tables, scratch: Scratch, precision: float
) -> tuple[float, int]:
    """Return the upper bound of the optimum, and a first slot that was seen and is dead (or OPEN)."""
    distribution = tables.distribution.shape[0] - 1
    none = np.int64(-1)  # a plain -1 would have everything compiled twice
    return following_value(structure, params, tables, scratch, none, none, distribution, precision)


@loop
def forbid(
    structure: Structure, tables: Tables, group: int, violation: float, live: bool, episode: int, log: Log, changes: int
) -> int:
    """Rule out every row of a group that was seen to violate, at every step of its own; return the log's new length.

    `live`: the greedy rows are what is followed, so that their changes are logged, from `episode` on.
    """
    new = tables.max_violation[group] == 0.0
    tables.max_violation[group] = max(tables.max_violation[group], violation)
    if not new:
        return changes
    steps = structure.horizon if structure.entry_stride > 0 else 1
    for i in range(structure.group_start[group], structure.group_start[group + 1]):
        row = np.int64(structure.group_rows[i])
        slot = np.int64(structure.slot_of_row[row])
        for step in range(steps):
            entry, node = step * structure.entry_stride + row, step * structure.node_stride + slot
            if tables.witness[entry] == OPEN:
                tables.witness[entry] = VIOLATES
            before = tables.greedy[node]
            refresh(structure, tables, step, slot)
            changes = note_change(tables, node, before, live, episode, log, changes)
    return changes


@loop
def note_change(tables: Tables, node: int, before: int, live: bool, episode: int, log: Log, changes: int) -> int:
    """Log the greedy row of a node where it is another than before and somebody asks; return the log's new length."""
    if live and log.node.shape[0] > 0 and tables.greedy[node] != before:
        log.episode[changes] = episode
        log.node[changes] = node
        log.row[changes] = tables.greedy[node]
        changes += 1
    return changes
