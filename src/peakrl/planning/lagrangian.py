"""The most reward within one limit on an expected cost, by a search for the price of the cost.

The programme of `planning.occupancy` with one limit d has the dual

    min over lambda >= 0 of  max_pi V(pi) - lambda (C(pi) - d)

and plans at a price are backward inductions (`planning.lagrangian`). Two plans are kept, one that costs more than d
and one that does not. The price at which both are worth the same either has a better plan, which replaces one of them,
or is lambda*: the two lie on the same edge of the convex hull of all (C, V), and so does whatever is composed of their
choices once the plan at lambda* stands in where either of them does not come. Nodes are changed over from the one to
the other in order; at the node where the cost passes d the action is drawn, so that it is d. That is the optimum, with
at most one node that draws. It takes some ten to thirty inductions, however large the programme would be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PeakError
from peakrl.jit import kernel
from peakrl.planning.occupancy import TOLERANCE, Chain, row_weights
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


#: Of the search for the price; each takes one plan, and thirty are many.
MOST_PLANS = 1000
#: [entry], where nothing is.
NOT_BARRED: Bytes = np.empty(0, np.int8)
#: Sums of so many steps are equal within this share of what they can be.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Plan:
    """A row at each node, the order that its law is filled in, and what it is worth and costs at the start."""

    rows: Ints
    order: Ints
    value: float
    cost: float


@dataclass(frozen=True)
class Within:
    """An optimum within the limit."""

    #: [entry]: chances of the rows, and [node]: does anything lead there?
    weights: Floats
    reached: NDArray[np.bool_]
    #: What another unit of the limit is worth, and how much of it is used.
    price: float
    used: float

    def where_reached(self, chain: Chain, elsewhere: Floats) -> Floats:
        """[entry]: the chances, and those of another policy where nothing leads."""
        layout = chain.layout
        slot_of_row = np.repeat(np.arange(len(layout.row_start) - 1), np.diff(layout.row_start))
        nodes = np.arange(layout.horizon if layout.node_stride else 1)[:, None] * layout.node_stride + slot_of_row
        return np.where(self.reached[nodes].ravel(), self.weights, elsewhere)


def known_laws(layout: Layout) -> Laws:
    """Return laws about which nothing is open."""
    distributions, nothing = len(layout.outcome_start) - 1, np.zeros(layout.horizon + 1, np.int64)
    return Laws(np.zeros(distributions, np.int8), np.empty(0), np.empty(0), nothing, np.empty(0, np.int32))


def best_within(
    chain: Chain, reward: Floats, cost: Floats, limit: float, laws: Laws | None = None, barred: Bytes = NOT_BARRED
) -> Within | None:
    """Return an optimum, or None where the limit cannot be kept.

    `reward` and `cost` are [row]; `barred` is [entry]: what must not be taken, never all that a node has.
    """
    return Search(chain, reward, cost, limit, known_laws(chain.layout) if laws is None else laws, barred).run()


def best_plan(chain: Chain, reward: Floats, cost: Floats, price: float | None, barred: Bytes = NOT_BARRED) -> Plan:
    """Return the best plan at a price; at none, that of least cost and then of most reward."""
    search = Search(chain, reward, cost, 0.0, known_laws(chain.layout), barred)
    return search.plan(0.0, 1.0) if price is None else search.plan(1.0, price)


class Search:
    """The search for the price of one limit."""

    def __init__(self, chain: Chain, reward: Floats, cost: Floats, limit: float, laws: Laws, barred: Bytes) -> None:
        self.chain, self.limit, self.laws, self.barred = chain, limit, laws, barred
        self.reward, self.cost = np.ascontiguousarray(reward), np.ascontiguousarray(cost)
        horizon = chain.layout.horizon
        self.most_value = horizon * float(np.abs(reward).max(initial=0.0))
        self.most_cost = horizon * float(np.abs(cost).max(initial=0.0))
        #: Sums of costs that are never negative are right in their own digits, others in those of the largest.
        self.positive = float(np.min(cost, initial=0.0)) >= 0.0
        #: Up to here a cost is within the limit, but for rounding.
        self.most_used = limit + TOLERANCE * (abs(limit) if self.positive else self.most_cost)

    def run(self) -> Within | None:
        """Return an optimum, or None."""
        richest = self.plan(1.0, 0.0)
        if richest.cost <= self.most_used:
            return self.alone(richest, 0.0)
        cheapest = self.plan(0.0, 1.0)
        if cheapest.cost > self.most_used:
            return None
        return self.drawn(*self.edge(richest, cheapest))

    def plan(self, worth: float, price: float) -> Plan:
        """Return the best plan."""
        value, cost, rows, order = plan_at(
            self.chain.layout, self.laws, self.chain.num_nodes, self.reward, self.cost, self.barred, worth, price
        )
        return Plan(rows, order, self.at_start(value), self.at_start(cost))

    def at_start(self, table: Floats) -> float:
        """Return the mean over first states."""
        return float(self.chain.first_probability @ table[self.chain.first_slot])

    def edge(self, above: Plan, below: Plan) -> tuple[Plan, Plan, Plan, float]:
        """Return plans on either side of the limit that are best at one price, the plan there, and the price."""
        for _ in range(MOST_PLANS):
            price = max((above.value - below.value) / (above.cost - below.cost), 0.0)
            best = self.plan(1.0, price)
            held = above.value - price * above.cost
            sums = self.chain.layout.horizon * max(above.cost, best.cost) if self.positive else self.most_cost
            apart = ROUNDING * (self.most_value + price * min(sums, self.most_cost))
            if best.value - price * best.cost <= held + apart:
                return above, below, best, price
            if best.cost > self.most_used:
                above = best
            else:
                below = best
        raise PeakError(f"no price was found within {MOST_PLANS} plans")

    def drawn(self, above: Plan, below: Plan, best: Plan, price: float) -> Within:
        """Return the mixture that costs just the limit."""
        chain, layout = self.chain, self.chain.layout
        orders = np.stack([above.order, below.order, best.order])
        rows = [plan.rows.copy() for plan in (above, below)]
        sides = [np.full(chain.num_nodes, side, np.int8) for side in (0, 1)]
        for side in (0, 1):
            away = ~reached_by(
                layout, self.laws, chain.num_nodes, chain.first_slot, rows[side], sides[side], orders
            )  # fmt: skip
            rows[side][away], sides[side][away] = best.rows[away], 2
        changed = np.flatnonzero((rows[0] != rows[1]) | (sides[0] != sides[1]))

        def composed(count: int) -> tuple[Ints, Bytes]:
            """The first `count` nodes that differ are the cheaper plan's."""
            own_rows, own_sides = rows[0].copy(), sides[0].copy()
            own_rows[changed[:count]] = rows[1][changed[:count]]
            own_sides[changed[:count]] = sides[1][changed[:count]]
            return own_rows, own_sides

        def cost_of(count: int) -> float:
            tables = worth_of(
                layout, self.laws, chain.num_nodes, self.reward, self.cost, *composed(count), orders
            )  # fmt: skip
            return self.at_start(tables[1])

        last = passing(cost_of, len(changed), self.most_used)
        dearer, cheaper = cost_of(last - 1), cost_of(last)
        share = float(np.clip((self.limit - cheaper) / (dearer - cheaper), 0.0, 1.0)) if dearer > cheaper else 0.0
        parts = [(share, *composed(last - 1)), (1.0 - share, *composed(last))]
        weights, reached = np.zeros(chain.num_entries), np.zeros(chain.num_nodes, np.bool_)
        for part, own_rows, own_sides in parts:
            if part > 0.0:
                weights += part * row_weights(chain, own_rows)
                reached |= reached_by(
                    layout, self.laws, chain.num_nodes, chain.first_slot, own_rows, own_sides, orders
                )  # fmt: skip
        return Within(weights, reached, price, share * dearer + (1.0 - share) * cheaper)

    def alone(self, plan: Plan, price: float) -> Within:
        """Return a plan that needs no other."""
        chain, side = self.chain, np.zeros(self.chain.num_nodes, np.int8)
        reached = reached_by(
            chain.layout, self.laws, chain.num_nodes, chain.first_slot, plan.rows, side, plan.order[None]
        )  # fmt: skip
        return Within(row_weights(chain, plan.rows), reached, price, plan.cost)


def passing(cost_of: Callable[[int], float], count: int, limit: float) -> int:
    """Return a k with cost_of(k - 1) above the limit and cost_of(k) not, by halving; cost_of(0) is above it."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost_of(middle) > limit else (low, middle)
    return high
