"""Plans at a price on a cost, on laws that are known or only known to lie in a box.

With r and c the reward and the cost of a pair and lambda the price, for h = H-1 .. 0:

    V, C_h(s,a) = r, c(s,a) + E[V, C_{h+1}(s')]      pi_h(s) = argmax_a w V_h(s,a) - lambda C_h(s,a)

over actions that are not barred; V_H = C_H = 0; the lower cost decides between equals, then the higher value. w is 1,
or 0 where only the cost counts. A box of radius beta
leaves the law open: (P^ - beta)+ <= P <= P^ + beta, sum P = 1, states not seen included. Its best law fills up the
next states in the order of w V - lambda C, the best first. So a choice is a row and the order that its law was filled
in, at each node; the two sides of a plan that draws have orders of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import kernel
from peakrl.types import Bytes, Floats, Ints, Layout, Longs


class Laws(NamedTuple):
    """What is open about the distributions of a layout."""

    #: [distribution]: 1 where a box is around it.
    boxed: Bytes
    #: [outcome] and [distribution]: beta of next states that were seen, and of all others.
    seen: Floats
    unseen: Floats
    #: [step + 1] and [place]: the slots of the step after that a box reaches.
    start: Longs
    slot: Ints


class Room(NamedTuple):
    """A law as it is written down: its next slots and their chances; and [slot], where among them a slot is, plus 1."""

    slot: Ints
    chance: Floats
    more: Floats
    place: Longs


@kernel
def new_room(laws: Laws, layout: Layout, slots: int) -> Room:
    """Return room for any law."""
    widest = slots
    for d in range(layout.outcome_start.shape[0] - 1):
        widest = max(widest, layout.outcome_start[d + 1] - layout.outcome_start[d])
    return Room(np.zeros(widest, np.int32), np.zeros(widest), np.zeros(widest), np.zeros(slots, np.int64))


@kernel
def write_law(layout: Layout, laws: Laws, d: int, order: Ints, room: Room) -> int:
    """Write a distribution, or the best that its box allows if slots are worth the more the earlier in `order`."""
    n, left = 0, 1.0
    for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
        chance = layout.outcome_probability[o]
        room.slot[n], room.chance[n] = layout.outcome_next[o], chance
        if laws.boxed[d]:
            low = max(chance - laws.seen[o], 0.0)
            room.chance[n], room.more[n] = low, min(chance + laws.seen[o], 1.0) - low
            room.place[layout.outcome_next[o]] = n + 1
            left -= low
        n += 1
    if not laws.boxed[d]:
        return n
    counted = n
    for slot in order:
        if left <= 0.0:
            break
        place = room.place[slot] - 1
        added = min(left, room.more[place] if place >= 0 else laws.unseen[d])
        if place >= 0:
            room.chance[place] += added
        elif added > 0.0:
            room.slot[n], room.chance[n] = slot, added
            n += 1
        left -= added
    for place in range(counted):
        room.place[room.slot[place]] = 0
    return n


@kernel
def expect(room: Room, n: int, there: int, value: Floats, cost: Floats) -> tuple[float, float]:
    """Return E[V] and E[C] of the law that is written down."""
    value_sum, cost_sum = 0.0, 0.0
    for i in range(n):
        value_sum += room.chance[i] * value[there + room.slot[i]]
        cost_sum += room.chance[i] * cost[there + room.slot[i]]
    return value_sum, cost_sum


@kernel
def plan_at(
    layout: Layout,
    laws: Laws,
    nodes: int,
    reward: Floats,
    charge: Floats,
    #: [entry], or empty where nothing is.
    barred: Bytes,
    worth: float,
    price: float,
) -> tuple[Floats, Floats, Ints, Ints]:
    """Return V, C and the chosen row by node (-1: none), and the order [place] of the slots in each step after."""
    value, cost, choice = np.zeros(nodes), np.zeros(nodes), np.full(nodes, -1, np.int32)
    room, order = new_room(laws, layout, layout.row_start.shape[0] - 1), laws.slot.copy()
    ahead = np.empty((layout.outcome_start.shape[0] - 1, 2))
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        part = order[laws.start[step] : laws.start[step + 1]]
        if part.shape[0]:
            part[:] = part[np.argsort(price * cost[there + part] - worth * value[there + part])]
        for d in range(layout.step_distributions[step, 0], layout.step_distributions[step, 1]):
            if laws.boxed[d]:
                n = write_law(layout, laws, d, part, room)
                ahead[d, 0], ahead[d, 1] = expect(room, n, there, value, cost)
            else:  # most laws are as they are, and nothing need be written down
                ahead[d] = 0.0
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    chance, node = layout.outcome_probability[o], there + layout.outcome_next[o]
                    ahead[d, 0] += chance * value[node]
                    ahead[d, 1] += chance * cost[node]
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            best, least, most = -np.inf, 0.0, 0.0
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                if barred.shape[0] and barred[step * layout.entry_stride + row]:
                    continue
                d = layout.row_distribution[row]
                v, c = reward[row] + ahead[d, 0], charge[row] + ahead[d, 1]
                total = worth * v - price * c
                if total > best or (total == best and (c < least or (c == least and v > most))):
                    best, least, most = total, c, v
                    value[here + slot], cost[here + slot], choice[here + slot] = v, c, row
    return value, cost, choice, order


@kernel
def worth_of(
    layout: Layout, laws: Laws, nodes: int, reward: Floats, charge: Floats, choice: Ints, side: Bytes, orders: Ints
) -> tuple[Floats, Floats]:
    """Return V and C by node of given choices: a row, and the order orders[side]."""
    value, cost = np.zeros(nodes), np.zeros(nodes)
    room = new_room(laws, layout, layout.row_start.shape[0] - 1)
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            row = choice[here + slot]
            if row >= 0:
                order = orders[side[here + slot], laws.start[step] : laws.start[step + 1]]
                n = write_law(layout, laws, np.int64(layout.row_distribution[row]), order, room)
                v, c = expect(room, n, there, value, cost)
                value[here + slot], cost[here + slot] = reward[row] + v, charge[row] + c
    return value, cost


@kernel
def reached_by(
    layout: Layout, laws: Laws, nodes: int, first_slot: Ints, choice: Ints, side: Bytes, orders: Ints
) -> NDArray[np.bool_]:
    """Return [node]: can given choices lead there?"""
    reached = np.zeros(nodes, np.bool_)
    room = new_room(laws, layout, layout.row_start.shape[0] - 1)
    for slot in first_slot:
        reached[slot] = True
    for step in range(layout.horizon - 1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            row = choice[here + slot]
            if reached[here + slot] and row >= 0:
                order = orders[side[here + slot], laws.start[step] : laws.start[step + 1]]
                n = write_law(layout, laws, np.int64(layout.row_distribution[row]), order, room)
                for i in range(n):
                    if room.chance[i] > 0.0:
                        reached[there + room.slot[i]] = True
    return reached
