"""The safe set: states and actions from which every constraint can still be satisfied with certainty.

With n(s,a) the possible next states of a pair and f_i the constraint values of its outcomes, for h = H-1 .. 0:

    safe_h(s,a)  if  f_i(s,a,s') >= 0 for all i and s'   and   safe_{h+1}(s') for all s' in n(s,a)
    safe_h(s)    if  safe_h(s,a) for some a;             safe_H(s) always

A policy that takes safe actions only never violates a constraint, and no other policy satisfies every constraint with
probability 1 from every state that it may reach: this is the viability kernel of the problem. It depends on which
outcomes are possible, not on their probabilities.

An unsafe action violates a constraint at once, or may lead to an unsafe state. From there, actions that do not violate
may lead to a dead end, a state whose every action violates at once; over those actions a and the unsafe next states s'

    distance_h(s) = 0 at a dead end,  else  1 + min over a, s' of distance_{h+1}(s')

A stored state without actions, which exists only at the end of an episode, counts as unsafe at earlier steps.

In a stationary model safety depends on the number of steps that remain. For how many of them it can be kept is

    kept(s,a) = 0 if f_i(s,a,s') < 0 for some i and s',  else  1 + min over s' in n(s,a) of kept(s')
    kept(s)   = max over a of kept(s,a),  0 without actions

the largest solution, in which kept is infinite on the greatest set that a policy need never leave. `steps_kept` finds
the finite numbers in ascending order, from violations back over predecessors, and looks at each outcome once. Then
safe_h(s,a) if kept(s,a) >= H - h: whatever is safe at a step is safe at every later one, and `SafeSteps` stores one
number for each state and action, the first step from which on it is safe. Without an end (H is infinite) what is safe
is kept for ever: the greatest fixed point, since each round of the worklist removes exactly what an iteration from the
set of all states would. In a layered model, whose states belong to a step, safe is what never falls.

A declared safe policy pi is trusted if it names an action: that action counts as safe without proof, and others do if
they violate nothing and lead to states that are safe in this wider sense:

    safe_h(s,a)  if  a = pi_h(s),  or  f_i >= 0 for all i and s'  and  safe_{h+1}(s') for all s' in n(s,a)
    safe_h(s)    if  pi_h(s) names any action, or  safe_h(s,a) for some a

A policy satisfies every constraint from a state on, with certainty, if

    kept_h(s)    if  f_i(s,pi_h(s),s') >= 0 for all i and s'  and  kept_{h+1}(s') for all s' in n(s,pi_h(s))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peakrl.jit import kernel
from peakrl.space import frozen
from peakrl.types import Bools, Ints, Layout

EVERY = slice(None)


@dataclass(frozen=True, eq=False)
class SafeSteps:
    """The first step from which on an action or a state is safe; the horizon if there is none.

    In a layered model, whose states belong to a step, it is 0 or the horizon. If a declared safe policy makes more
    actions safe at some steps only, there is a line for each step.
    """

    horizon: int
    #: Have `entries` and `nodes` a part for each step?
    stationary: bool
    #: [line, row]: one line, or one for each step.
    row_from: Ints
    #: [line, slot]: the same for states, including the end of an episode.
    slot_from: Ints

    @classmethod
    def by_entry(cls, horizon: int, stationary: bool, entries: Bools, nodes: Bools) -> SafeSteps:
        """Return the safe steps of a truth value for each entry and node."""
        lines = horizon if stationary else 1
        rows, slots = (np.where(part, 0, horizon).astype(np.int32) for part in (entries, nodes))
        cut = rows.reshape(lines, -1), slots.reshape(lines + int(stationary), -1)
        return cls(horizon, stationary, *(frozen(part, np.int32, own=True) for part in cut))

    def row(self, step: int, row: int) -> bool:
        """Is an action safe at a step?"""
        return int(self.row_from.item(min(step, len(self.row_from) - 1), row)) <= step

    def slot(self, step: int, slot: int) -> bool:
        """Is a state safe at a step?"""
        return int(self.slot_from.item(min(step, len(self.slot_from) - 1), slot)) <= step

    def rows(self, step: int, part: slice = EVERY) -> Bools:
        """[row]: is the action safe at a step? In a layered model, at its own step."""
        safe: Bools = self.row_from[min(step, len(self.row_from) - 1), part] <= step
        return safe

    def slots(self, step: int, part: slice = EVERY) -> Bools:
        """[slot]: is the state safe at a step?"""
        safe: Bools = self.slot_from[min(step, len(self.slot_from) - 1), part] <= step
        return safe

    @property
    def entries(self) -> Bools:
        """[entry]: is the action safe?"""
        return np.concatenate([self.rows(step) for step in range(self.horizon if self.stationary else 1)])

    @property
    def nodes(self) -> Bools:
        """[node]: is the state safe?"""
        return np.concatenate([self.slots(step) for step in range(self.horizon + 1 if self.stationary else 1)])


FAR = np.int32(2**31 - 1)
#: The number of steps if safety can be kept for ever.
FOREVER = FAR
#: In place of a row: the safe policy names no action; it names one that the model does not have.
NO_PROMISE, UNLISTED = -1, -2


def first_safe_steps(layout: Layout, keeps: Bools, horizon: int | None, ends: int) -> tuple[Ints, Ints]:
    """Return [row] and [slot]: the first step from which on an action or state is safe, `horizon` if there is none.

    Without an end (None) it is 0 or FOREVER. `keeps` [row] is True if no outcome violates. From the slot `ends` on, an
    episode is over (of layered models, where 0 is as good as any step before the horizon).
    """
    slot_kept, row_kept = steps_kept(layout, keeps, np.arange(len(layout.row_start) - 1) >= ends)
    if horizon is not None:
        for kept in (row_kept, slot_kept):
            np.maximum(horizon - np.minimum(kept, horizon, out=kept), 0, out=kept)
        if ends < len(slot_kept):
            for kept in (row_kept, slot_kept):
                kept[kept > 0] = horizon
    else:
        for kept in (row_kept, slot_kept):
            kept[:] = np.where(kept == FOREVER, 0, FOREVER)
    return row_kept, slot_kept


@kernel
def steps_kept(layout: Layout, keeps: Bools, done: Bools) -> tuple[Ints, Ints]:
    """Return [slot] and [row]: for how many steps every constraint can be satisfied with certainty, or FOREVER.

    The horizon is ignored. `keeps` [row] is True if no outcome violates; slots that are `done` are safe in any case.
    """
    left = np.where(done, FOREVER, np.int32(0))
    for slot in np.flatnonzero(~done):
        for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
            left[slot] += keeps[row]
    return falls(layout, keeps, left)


@kernel
def falls(layout: Layout, keeps: Bools, left: Ints) -> tuple[Ints, Ints]:
    """Return [slot] and [row]: the round in which it falls, or FOREVER if it never does.

    Rows that do not keep and slots of which no row is `left` [slot] fall in round 0. Another row falls one round after
    the first of its next slots, and a slot with the last of the rows that are left; `left` is used up.
    """
    slots, rows, distributions = left.shape[0], keeps.shape[0], layout.outcome_start.shape[0] - 1
    slot_falls, row_falls = np.full(slots, FOREVER, np.int32), np.full(rows, FOREVER, np.int32)
    slot_of_row, queue, last = np.empty(rows, np.int32), np.empty(slots, np.int32), 0
    for slot in range(slots):
        slot_of_row[layout.row_start[slot] : layout.row_start[slot + 1]] = slot
        if left[slot] == 0:
            slot_falls[slot], queue[last], last = 0, slot, last + 1
    # The rows of each distribution as a linked list, and the distributions that lead to each slot.
    first_row, next_row = np.full(distributions, -1, np.int32), np.empty(rows, np.int32)
    for row in range(rows):
        if keeps[row]:
            d = layout.row_distribution[row]
            next_row[row], first_row[d] = first_row[d], row
        else:
            row_falls[row] = 0
    start = np.zeros(slots + 1, np.int64)
    for o in range(layout.outcome_next.shape[0]):
        start[layout.outcome_next[o]] += 1
    for slot in range(slots):
        start[slot + 1] += start[slot]
    source = np.empty(layout.outcome_next.shape[0], np.int32)
    for d in range(distributions):
        for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
            start[layout.outcome_next[o]] -= 1
            source[start[layout.outcome_next[o]]] = d
    done = 0
    while done < last:
        slot, done = queue[done], done + 1
        round_ = slot_falls[slot] + 1
        for index in range(start[slot], start[slot + 1]):
            row, first_row[source[index]] = first_row[source[index]], -1
            while row >= 0:
                row_falls[row], above = round_, slot_of_row[row]
                left[above] -= 1
                if left[above] == 0:
                    slot_falls[above], queue[last], last = round_, above, last + 1
                row = next_row[row]
    return slot_falls, row_falls


@kernel
def promised_tables(layout: Layout, nodes: int, keeps: Bools, promised: Ints) -> tuple[Bools, Bools]:
    """Return [entry] and [node]: which actions and states are safe, given a declared safe policy.

    `promised` [node] is its row, NO_PROMISE or UNLISTED.
    """
    entry_safe = np.zeros((layout.horizon - 1) * layout.entry_stride + keeps.shape[0], np.bool_)
    node_safe = np.zeros(nodes, np.bool_)
    after = layout.horizon * layout.node_stride if layout.node_stride > 0 else layout.step_slots[layout.horizon - 1, 1]
    node_safe[after:] = True
    leads_well = np.empty(layout.outcome_start.shape[0] - 1, np.bool_)
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for d in range(layout.step_distributions[step, 0], layout.step_distributions[step, 1]):
            well = True
            for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                if not node_safe[there + layout.outcome_next[o]]:
                    well = False
                    break
            leads_well[d] = well
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            promise = promised[here + slot]
            some = promise == UNLISTED
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                safe = row == promise or (keeps[row] and leads_well[layout.row_distribution[row]])
                entry_safe[step * layout.entry_stride + row] = safe
                some = some or safe
            node_safe[here + slot] = some
    return entry_safe, node_safe


@kernel
def kept_nodes(layout: Layout, keeps: Bools, rows: Ints) -> Bools:
    """Return [node]: does a policy that takes `rows` [node] violate nothing from there on? False after the end."""
    kept = np.zeros(rows.shape[0], np.bool_)
    for step in range(layout.horizon - 1, -1, -1):
        there = (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            node = step * layout.node_stride + slot
            row = rows[node]
            if row < 0 or not keeps[row]:
                continue
            well = True
            d = layout.row_distribution[row]
            if step + 1 < layout.horizon:
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    well = well and kept[there + layout.outcome_next[o]]
            kept[node] = well
    return kept


@kernel
def dead_end_distances(layout: Layout, keeps: Bools, node_safe: Bools) -> Ints:
    """Return [node]: number of moves to the nearest dead end; -1 if the state is safe.

    A layout of a single step is swept until nothing changes: distances grow from 0 to their values.
    """
    distance = np.where(node_safe, np.int32(-1), np.int32(0))
    nearest = np.empty(layout.outcome_start.shape[0] - 1, np.int32)
    changed = True
    while changed:
        changed = False
        for step in range(layout.horizon - 1, -1, -1):
            there = (step + 1) * layout.node_stride
            for d in range(layout.step_distributions[step, 0], layout.step_distributions[step, 1]):
                nearest[d] = FAR
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    node = there + layout.outcome_next[o]
                    if not node_safe[node]:
                        nearest[d] = min(nearest[d], distance[node])
            for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
                node = step * layout.node_stride + slot
                if node_safe[node]:
                    continue
                shortest = FAR
                for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                    if keeps[row]:
                        shortest = min(shortest, nearest[layout.row_distribution[row]])
                shortest = 0 if shortest == FAR else shortest + 1
                changed = changed or (layout.horizon == 1 and distance[node] != shortest)
                distance[node] = shortest
    return distance
