"""Upper values of every (step, state, action), which bound the value of the unknown best safe policy.

    U_h(s,a) <- min( U_h(s,a), r' + v ),   W_h(s) = max of U_h(s,a) over a not ruled out,   B_h = max_s W_h(s)

r' is the reward if it was observed, else the largest reward of a step. v = 0 at the last step, v = B_{h+1} for a
distribution without samples, else v is the bound of `bounds.upper_mean` over W_{h+1}(s') of all samples of the
distribution, with nu >= B_{h+1}. If rewards depend on the outcome, the bound is on reward plus W_{h+1}(s'), also at the
last step, and nu >= most + B_{h+1}. If nothing is random, v = W_{h+1}(s'). If the states are not known in advance,
B_h = (H - h) most throughout, and so is W_h(s) of a state that was not visited and that declared dynamics lead to.

(h,s,a) is ruled out if it was observed to violate, or if a sample of its distribution is dead at h+1; (h,s) is dead if
all of its actions are ruled out. Dead states are left out of every maximum, and nothing is computed from them.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.bounds import beta, upper_mean
from peakrl.learners.certified.tables import CELLS, OPEN, SAMPLES, UNMET, VIOLATES, Params, Scratch, Structure, Tables
from peakrl.learners.episode import Log, note


@loop
def next_slot(structure: Structure, tables: Tables, row: int, distribution: int, cell: int) -> int:
    """Return the next slot of cell `cell` of a distribution when `row` is taken; UNMET: a state not visited."""
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
    """Return the upper bound of W after a row at `step`, plus the reward if it depends on the outcome.

    The second number is a dead slot among the samples, or OPEN. `row` is -1 for the first state, at step -1.
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
    """Lower U of an entry to reward plus next value, if that is less."""
    own = 0.0 if params.joint else (tables.reward[row] if tables.known[row] else params.most)
    tables.upper[entry] = min(tables.upper[entry], own + follows)


@loop
def refresh(structure: Structure, tables: Tables, step: int, slot: int) -> None:
    """Update W and the greedy row of a node; a dead node takes the row of least known violation."""
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
    """Return the row of a slot with the least known violation."""
    choice = structure.row_start[slot]
    for row in range(structure.row_start[slot], structure.row_start[slot + 1]):
        if tables.max_violation[structure.group_of_row[row]] < tables.max_violation[structure.group_of_row[choice]]:
            choice = row
    return np.int64(choice)


@loop
def update_entry(structure: Structure, params: Params, tables: Tables, scratch: Scratch, step: int, row: int) -> None:
    """Update U of one entry, or rule it out."""
    entry, distribution = step * structure.entry_stride + row, np.int64(structure.distribution_of_row[row])
    follows, witness = following_value(structure, params, tables, scratch, step, row, distribution, 0.02)
    tables.updated[entry] = tables.distribution[distribution, SAMPLES]
    if witness == OPEN:
        lower_entry(params, tables, entry, row, follows)
    else:
        tables.witness[entry] = witness


@loop
def sweep(structure: Structure, params: Params, tables: Tables, scratch: Scratch, precision: float) -> None:
    """Update U, W and B of every step, the last step first; one bound for each distribution and step."""
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
    """Return the upper bound of the optimum, and an observed first slot that is dead (or OPEN)."""
    distribution = tables.distribution.shape[0] - 1
    none = np.int64(-1)  # a literal -1 would compile everything twice
    return following_value(structure, params, tables, scratch, none, none, distribution, precision)


@loop
def forbid(structure: Structure, tables: Tables, group: int, violation: float, live: bool, log: Log) -> None:
    """Rule out every row of a group that violated, at all of its steps.

    `live`: the greedy rows are followed, so their changes are logged.
    """
    new = tables.max_violation[group] == 0.0
    tables.max_violation[group] = max(tables.max_violation[group], violation)
    if not new:
        return
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
            note_change(tables, node, before, live, log)


@loop
def note_change(tables: Tables, node: int, before: int, live: bool, log: Log) -> None:
    """Log the greedy row of a node if it changed and is followed."""
    if live and tables.greedy[node] != before:
        note(log, node, tables.greedy[node])
