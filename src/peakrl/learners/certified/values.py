"""Upper values of every (step, state, action), which hold for the unknown best safe policy.

    U_h(s,a) <- min( U_h(s,a), r' + v ),   W_h(s) = max of U_h(s,a) over a not ruled out,   B_h = max_s W_h(s)

r' is the reward where it was read, else the most that a step can earn; v = 0 at the last step, B_{h+1} for a law
without a sample, else the bound of `bounds.upper_mean` over W_{h+1}(s') of all samples of the law, nu >= B_{h+1}. Where
rewards depend on the outcome, the bet is on reward plus W_{h+1}(s'), at the last step too, and nu >= most + B_{h+1}.
Where nothing is random, v = W_{h+1}(s'). Where states are not known, B_h = (H - h) most for ever, and so is W_h(s) of a
state that was not met and to which a declared map leads.

(h,s,a) is ruled out when it was seen to violate, or when a sample of its law is dead at h+1; (h,s) is dead when every
action is ruled out. A dead state counts for no maximum, and nothing is computed from it.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.bounds import beta, upper_mean
from peakrl.learners.certified.tables import CELLS, OPEN, SAMPLES, UNMET, VIOLATES, Places, Scratch, Tables, Terms
from peakrl.learners.episode import Log


@loop
def next_slot(places: Places, tables: Tables, row: int, law: int, cell: int) -> int:
    """Return where cell number `cell` of a law leads when it is reached by `row`; UNMET where that was not met."""
    if places.noises > 0 and row >= 0:
        return np.int64(places.noise_next[row * places.noises + cell])
    return np.int64(tables.cell_next[places.cell_start[law] + cell])


@loop
def following_value(
    places: Places, terms: Terms, tables: Tables, scratch: Scratch, step: int, row: int, law: int, precision: float
) -> tuple[float, int]:
    """Return the bound of what follows a row at `step` (W, plus the reward where it depends on the outcome).

    The second number is the dead slot that the law was seen to lead to, or OPEN. `row` is -1 for the first state, whose
    samples are those of step -1.
    """
    samples = tables.law[law, SAMPLES]
    ceiling = tables.top[step + 1] + (terms.most if terms.joint and row >= 0 else 0.0)
    if samples == 0:
        return ceiling, OPEN
    last = step == places.horizon - 1
    if last and not terms.joint:
        return 0.0, OPEN
    size, base = tables.law[law, CELLS], places.cell_start[law]
    for i in range(size):
        scratch.count[i] = tables.cell_count[base + i]
        if scratch.count[i] > 0:
            following = next_slot(places, tables, row, law, i)
            if following == UNMET:
                most = max(terms.most, 0.0) if places.ends > 0 else terms.most
                scratch.value[i] = most * (places.horizon - step - 1)
                continue
            node = (step + 1) * places.node_stride + following
            if tables.dead[node]:
                return ceiling, following
            scratch.value[i] = tables.value[node]
            if terms.joint and row >= 0:
                scratch.value[i] += tables.cell_reward[base + i]
    if terms.deterministic:
        return scratch.value[0], OPEN
    log_share, total = terms.log_share[law], np.float64(samples)
    bet = beta(total, log_share)
    place = law if row < 0 or places.noises == 0 else row
    line = (step + 1) % tables.guess.shape[0]
    bound, nu = upper_mean(
        scratch.value, scratch.count, size, total, ceiling, bet, bet, tables.guess[line, place], precision
    )
    tables.guess[line, place] = nu
    return bound, OPEN


@loop
def lower_entry(terms: Terms, tables: Tables, entry: int, row: int, follows: float) -> None:
    """Lower U of an entry to reward plus what follows, where that is less."""
    own = 0.0 if terms.joint else (tables.reward[row] if tables.known[row] else terms.most)
    tables.upper[entry] = min(tables.upper[entry], own + follows)


@loop
def refresh(places: Places, tables: Tables, step: int, slot: int) -> None:
    """Compute W and the greedy row of a node anew; a dead node takes the row of least known harm."""
    node = step * places.node_stride + slot
    best, choice = -math.inf, -1
    for row in range(places.row_start[slot], places.row_start[slot + 1]):
        entry = step * places.entry_stride + row
        if tables.witness[entry] == OPEN and tables.upper[entry] > best:
            best, choice = tables.upper[entry], row
    if choice < 0:
        tables.dead[node] = 1
        choice = mildest(places, tables, slot)
    else:
        tables.value[node] = best
    tables.greedy[node] = choice


@loop
def mildest(places: Places, tables: Tables, slot: int) -> int:
    """Return the row of a slot with the least known harm."""
    choice = places.row_start[slot]
    for row in range(places.row_start[slot], places.row_start[slot + 1]):
        if tables.harm[places.group_of_row[row]] < tables.harm[places.group_of_row[choice]]:
            choice = row
    return np.int64(choice)


@loop
def update_entry(places: Places, terms: Terms, tables: Tables, scratch: Scratch, step: int, row: int) -> None:
    """Compute U of one entry anew, or rule it out."""
    entry, law = step * places.entry_stride + row, np.int64(places.law_of_row[row])
    follows, witness = following_value(places, terms, tables, scratch, step, row, law, 0.02)
    tables.updated[entry] = tables.law[law, SAMPLES]
    if witness == OPEN:
        lower_entry(terms, tables, entry, row, follows)
    else:
        tables.witness[entry] = witness


@loop
def sweep(places: Places, terms: Terms, tables: Tables, scratch: Scratch, precision: float) -> None:
    """Compute U, W and B of every step anew, the last step first; one bet for each law and step."""
    scratch.law_step[:] = -1
    shared = places.noises == 0
    for step in range(places.horizon - 1, -1, -1):
        top = -math.inf
        for i in range(places.step_first[step], places.step_last[step]):
            slot = np.int64(places.slots[i])
            if places.row_start[slot] == places.row_start[slot + 1]:
                continue
            for row in range(places.row_start[slot], places.row_start[slot + 1]):
                entry, law = step * places.entry_stride + row, np.int64(places.law_of_row[row])
                if tables.witness[entry] != OPEN:
                    continue
                if not shared or scratch.law_step[law] != step:
                    follows, dead = following_value(places, terms, tables, scratch, step, row, law, precision)
                    scratch.law_step[law], scratch.law_bound[law], scratch.law_dead[law] = step, follows, dead
                if scratch.law_dead[law] == OPEN:
                    lower_entry(terms, tables, entry, row, scratch.law_bound[law])
                    tables.updated[entry] = tables.law[law, SAMPLES]
                else:
                    tables.witness[entry] = scratch.law_dead[law]
            refresh(places, tables, step, slot)
            node = step * places.node_stride + slot
            if not tables.dead[node]:
                top = max(top, tables.value[node])
        if terms.complete and top > -math.inf:
            tables.top[step] = min(tables.top[step], max(top, 0.0) if places.ends > 0 else top)


@loop
def first_value(places: Places, terms: Terms, tables: Tables, scratch: Scratch, precision: float) -> tuple[float, int]:
    """Return the upper bound of the optimum, and a first slot that was seen and is dead (or OPEN)."""
    law = tables.law.shape[0] - 1
    none = np.int64(-1)  # a plain -1 would have everything compiled twice
    return following_value(places, terms, tables, scratch, none, none, law, precision)


@loop
def forbid(
    places: Places, tables: Tables, group: int, violation: float, live: bool, episode: int, log: Log, changes: int
) -> int:
    """Rule out every row of a group that was seen to violate, at every step of its own; return the log's new length.

    `live`: the greedy rows are what is followed, so that their changes are logged, from `episode` on.
    """
    new = tables.harm[group] == 0.0
    tables.harm[group] = max(tables.harm[group], violation)
    if not new:
        return changes
    steps = places.horizon if places.entry_stride > 0 else 1
    for i in range(places.group_start[group], places.group_start[group + 1]):
        row = np.int64(places.group_rows[i])
        slot = np.int64(places.slot_of_row[row])
        for step in range(steps):
            entry, node = step * places.entry_stride + row, step * places.node_stride + slot
            if tables.witness[entry] == OPEN:
                tables.witness[entry] = VIOLATES
            before = tables.greedy[node]
            refresh(places, tables, step, slot)
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
