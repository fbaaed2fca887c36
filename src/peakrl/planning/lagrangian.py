"""The largest expected reward within one limit on an expected cost, by a search for the price of the cost.

The linear program of `planning.occupancy` with one limit d has the dual

    min over lambda >= 0 of  max_pi V(pi) - lambda (C(pi) - d)

A plan at a price lambda is a backward induction. With r and c the reward and the cost of a pair, for h = H-1 .. 0:

    V, C_h(s,a) = r, c(s,a) + E[V, C_{h+1}(s')]      pi_h(s) = argmax_a w V_h(s,a) - lambda C_h(s,a)

over the actions that are not forbidden; V_H = C_H = 0; ties go to the lower cost, then to the higher value. w is 1, or
0 if only the cost counts.

The search maintains two plans, one that costs more than d and one that does not. The price at which both have the same
value either has a better plan, which replaces one of them, or is lambda*: then both lie on the same edge of the convex
hull of all (C, V), and so does every combination of their choices if the plan at lambda* decides at nodes that one of
them does not reach. Nodes are switched from one plan to the other in order; at the node where the cost passes d the
action is drawn, so that the cost is d. That is the optimum, with at most one randomised node. It takes about ten to
thirty inductions, whatever the size of the linear program.

Distributions may be known up to a box of radius beta only: (P^ - beta)+ <= P <= P^ + beta, sum P = 1, unseen
next states included. The best distribution of a box fills the next states in the order of w V - lambda C, the best
first. So a choice is a row and the order in which its distribution was filled, at each node; both plans have orders of
their own.
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


class Boxes(NamedTuple):
    """Boxes around the distributions of a layout."""

    #: [distribution]: 1 if it has a box.
    boxed: Bytes
    #: [outcome] and [distribution]: beta of the next states that were seen, and of all others.
    seen: Floats
    unseen: Floats
    #: [step + 1] and [position]: the slots of the next step that a box can reach.
    start: Longs
    slot: Ints


class Buffer(NamedTuple):
    """A distribution: next slots, their probabilities, and [slot]: the position of a slot among them, plus 1."""

    slot: Ints
    chance: Floats
    more: Floats
    index: Longs


@kernel
def new_buffer(boxes: Boxes, layout: Layout, slots: int) -> Buffer:
    """Return a buffer for any distribution."""
    widest = slots
    for d in range(layout.outcome_start.shape[0] - 1):
        widest = max(widest, layout.outcome_start[d + 1] - layout.outcome_start[d])
    return Buffer(np.zeros(widest, np.int32), np.zeros(widest), np.zeros(widest), np.zeros(slots, np.int64))


@kernel
def write_distribution(layout: Layout, boxes: Boxes, d: int, order: Ints, buffer: Buffer) -> int:
    """Write a distribution, or the best one of its box; `order` has the best slots first."""
    n, left = 0, 1.0
    for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
        chance = layout.outcome_probability[o]
        buffer.slot[n], buffer.chance[n] = layout.outcome_next[o], chance
        if boxes.boxed[d]:
            low = max(chance - boxes.seen[o], 0.0)
            buffer.chance[n], buffer.more[n] = low, min(chance + boxes.seen[o], 1.0) - low
            buffer.index[layout.outcome_next[o]] = n + 1
            left -= low
        n += 1
    if not boxes.boxed[d]:
        return n
    counted = n
    for slot in order:
        if left <= 0.0:
            break
        index = buffer.index[slot] - 1
        added = min(left, buffer.more[index] if index >= 0 else boxes.unseen[d])
        if index >= 0:
            buffer.chance[index] += added
        elif added > 0.0:
            buffer.slot[n], buffer.chance[n] = slot, added
            n += 1
        left -= added
    for index in range(counted):
        buffer.index[buffer.slot[index]] = 0
    return n


@kernel
def expect(buffer: Buffer, n: int, there: int, value: Floats, cost: Floats) -> tuple[float, float]:
    """Return E[V] and E[C] of the distribution in the buffer."""
    value_sum, cost_sum = 0.0, 0.0
    for i in range(n):
        value_sum += buffer.chance[i] * value[there + buffer.slot[i]]
        cost_sum += buffer.chance[i] * cost[there + buffer.slot[i]]
    return value_sum, cost_sum


@kernel
def plan_at(
    layout: Layout,
    boxes: Boxes,
    nodes: int,
    reward: Floats,
    charge: Floats,
    #: [entry], or empty if none is.
    forbidden: Bytes,
    worth: float,
    price: float,
) -> tuple[Floats, Floats, Ints, Ints]:
    """Return V, C and the chosen row by node (-1: none), and the order [position] of the slots of each next step."""
    value, cost, choice = np.zeros(nodes), np.zeros(nodes), np.full(nodes, -1, np.int32)
    buffer, order = new_buffer(boxes, layout, layout.row_start.shape[0] - 1), boxes.slot.copy()
    ahead = np.empty((layout.outcome_start.shape[0] - 1, 2))
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        part = order[boxes.start[step] : boxes.start[step + 1]]
        if part.shape[0]:
            part[:] = part[np.argsort(price * cost[there + part] - worth * value[there + part])]
        for d in range(layout.step_distributions[step, 0], layout.step_distributions[step, 1]):
            if boxes.boxed[d]:
                n = write_distribution(layout, boxes, d, part, buffer)
                ahead[d, 0], ahead[d, 1] = expect(buffer, n, there, value, cost)
            else:  # most distributions have no box
                ahead[d] = 0.0
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    chance, node = layout.outcome_probability[o], there + layout.outcome_next[o]
                    ahead[d, 0] += chance * value[node]
                    ahead[d, 1] += chance * cost[node]
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            best, least, most = -np.inf, 0.0, 0.0
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                if forbidden.shape[0] and forbidden[step * layout.entry_stride + row]:
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
    layout: Layout, boxes: Boxes, nodes: int, reward: Floats, charge: Floats, choice: Ints, side: Bytes, orders: Ints
) -> tuple[Floats, Floats]:
    """Return V and C by node of given choices: a row, and the order orders[side]."""
    value, cost = np.zeros(nodes), np.zeros(nodes)
    buffer = new_buffer(boxes, layout, layout.row_start.shape[0] - 1)
    for step in range(layout.horizon - 1, -1, -1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            row = choice[here + slot]
            if row >= 0:
                order = orders[side[here + slot], boxes.start[step] : boxes.start[step + 1]]
                n = write_distribution(layout, boxes, np.int64(layout.row_distribution[row]), order, buffer)
                v, c = expect(buffer, n, there, value, cost)
                value[here + slot], cost[here + slot] = reward[row] + v, charge[row] + c
    return value, cost


@kernel
def reached_by(
    layout: Layout, boxes: Boxes, nodes: int, first_slot: Ints, choice: Ints, side: Bytes, orders: Ints
) -> NDArray[np.bool_]:
    """Return [node]: whether given choices can lead there."""
    reached = np.zeros(nodes, np.bool_)
    buffer = new_buffer(boxes, layout, layout.row_start.shape[0] - 1)
    for slot in first_slot:
        reached[slot] = True
    for step in range(layout.horizon - 1):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            row = choice[here + slot]
            if reached[here + slot] and row >= 0:
                order = orders[side[here + slot], boxes.start[step] : boxes.start[step + 1]]
                n = write_distribution(layout, boxes, np.int64(layout.row_distribution[row]), order, buffer)
                for i in range(n):
                    if buffer.chance[i] > 0.0:
                        reached[there + buffer.slot[i]] = True
    return reached


#: Plans of a search, at most; thirty are many.
MOST_PLANS = 1000
#: [entry], if no action is forbidden.
NONE_FORBIDDEN: Bytes = np.empty(0, np.int8)
#: Sums count as equal within this share of their largest possible value.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Plan:
    """A row at each node, the order in which its distribution is filled, and the value and cost of the start."""

    rows: Ints
    order: Ints
    value: float
    cost: float


@dataclass(frozen=True)
class Within:
    """An optimum within the limit."""

    #: [entry]: probabilities of the rows, and [node]: whether it can be reached.
    weights: Floats
    reached: NDArray[np.bool_]
    #: The value of another unit of the limit, and how much of it is used.
    price: float
    used: float

    def where_reached(self, chain: Chain, elsewhere: Floats) -> Floats:
        """[entry]: the probabilities; those of another policy at nodes that are not reached."""
        layout = chain.layout
        slot_of_row = np.repeat(np.arange(len(layout.row_start) - 1), np.diff(layout.row_start))
        nodes = np.arange(layout.horizon if layout.node_stride else 1)[:, None] * layout.node_stride + slot_of_row
        return np.where(self.reached[nodes].ravel(), self.weights, elsewhere)


def no_boxes(layout: Layout) -> Boxes:
    """Return no boxes: all distributions are known."""
    distributions, nothing = len(layout.outcome_start) - 1, np.zeros(layout.horizon + 1, np.int64)
    return Boxes(np.zeros(distributions, np.int8), np.empty(0), np.empty(0), nothing, np.empty(0, np.int32))


def best_within(
    chain: Chain,
    reward: Floats,
    cost: Floats,
    limit: float,
    boxes: Boxes | None = None,
    forbidden: Bytes = NONE_FORBIDDEN,
) -> Within | None:
    """Return an optimum, or None if the limit cannot be satisfied.

    `reward` and `cost` are [row]; `forbidden` is [entry], never all entries of a node.
    """
    return Search(chain, reward, cost, limit, no_boxes(chain.layout) if boxes is None else boxes, forbidden).run()


def best_plan(
    chain: Chain, reward: Floats, cost: Floats, price: float | None, forbidden: Bytes = NONE_FORBIDDEN
) -> Plan:
    """Return the best plan at a price; without a price, the one of least cost and then of largest reward."""
    search = Search(chain, reward, cost, 0.0, no_boxes(chain.layout), forbidden)
    return search.plan(0.0, 1.0) if price is None else search.plan(1.0, price)


class Search:
    """The search for the price of one limit."""

    def __init__(
        self, chain: Chain, reward: Floats, cost: Floats, limit: float, boxes: Boxes, forbidden: Bytes
    ) -> None:
        self.chain, self.limit, self.boxes, self.forbidden = chain, limit, boxes, forbidden
        self.reward, self.cost = np.ascontiguousarray(reward), np.ascontiguousarray(cost)
        horizon = chain.layout.horizon
        self.most_value = horizon * float(np.abs(reward).max(initial=0.0))
        self.most_cost = horizon * float(np.abs(cost).max(initial=0.0))
        #: Sums of nonnegative costs are accurate relative to themselves, others relative to the largest cost.
        self.positive = float(np.min(cost, initial=0.0)) >= 0.0
        #: A cost up to this is within the limit up to rounding.
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
            self.chain.layout, self.boxes, self.chain.num_nodes, self.reward, self.cost, self.forbidden, worth, price
        )
        return Plan(rows, order, self.at_start(value), self.at_start(cost))

    def at_start(self, table: Floats) -> float:
        """Return the mean over first states."""
        return float(self.chain.first_probability @ table[self.chain.first_slot])

    def edge(self, above: Plan, below: Plan) -> tuple[Plan, Plan, Plan, float]:
        """Return plans on either side of the limit that are optimal at one price, the plan at it, and the price."""
        for _ in range(MOST_PLANS):
            price = max((above.value - below.value) / (above.cost - below.cost), 0.0)
            best = self.plan(1.0, price)
            current = above.value - price * above.cost
            sums = self.chain.layout.horizon * max(above.cost, best.cost) if self.positive else self.most_cost
            apart = ROUNDING * (self.most_value + price * min(sums, self.most_cost))
            if best.value - price * best.cost <= current + apart:
                return above, below, best, price
            if best.cost > self.most_used:
                above = best
            else:
                below = best
        raise PeakError(f"the price of the limit was not found within {MOST_PLANS} plans")

    def drawn(self, above: Plan, below: Plan, best: Plan, price: float) -> Within:
        """Return the mixture whose cost is the limit."""
        chain, layout = self.chain, self.chain.layout
        orders = np.stack([above.order, below.order, best.order])
        rows = [plan.rows.copy() for plan in (above, below)]
        sides = [np.full(chain.num_nodes, side, np.int8) for side in (0, 1)]
        for side in (0, 1):
            away = ~self.reached(rows[side], sides[side], orders)
            rows[side][away], sides[side][away] = best.rows[away], 2
        changed = np.flatnonzero((rows[0] != rows[1]) | (sides[0] != sides[1]))

        def composed(count: int) -> tuple[Ints, Bytes]:
            """Return the choices if the first `count` different nodes are those of the cheaper plan."""
            own_rows, own_sides = rows[0].copy(), sides[0].copy()
            own_rows[changed[:count]] = rows[1][changed[:count]]
            own_sides[changed[:count]] = sides[1][changed[:count]]
            return own_rows, own_sides

        def cost_of(count: int) -> float:
            own = (layout, self.boxes, chain.num_nodes, self.reward, self.cost)
            return self.at_start(worth_of(*own, *composed(count), orders)[1])

        last = passing(cost_of, len(changed), self.most_used)
        dearer, cheaper = cost_of(last - 1), cost_of(last)
        share = float(np.clip((self.limit - cheaper) / (dearer - cheaper), 0.0, 1.0)) if dearer > cheaper else 0.0
        parts = [(share, *composed(last - 1)), (1.0 - share, *composed(last))]
        weights, reached = np.zeros(chain.num_entries), np.zeros(chain.num_nodes, np.bool_)
        for part, own_rows, own_sides in parts:
            if part > 0.0:
                weights += part * row_weights(chain, own_rows)
                reached |= self.reached(own_rows, own_sides, orders)
        return Within(weights, reached, price, share * dearer + (1.0 - share) * cheaper)

    def alone(self, plan: Plan, price: float) -> Within:
        """Return the result of a single plan."""
        reached = self.reached(plan.rows, np.zeros(self.chain.num_nodes, np.int8), plan.order[None])
        return Within(row_weights(self.chain, plan.rows), reached, price, plan.cost)

    def reached(self, rows: Ints, sides: Bytes, orders: Ints) -> NDArray[np.bool_]:
        """Return [node]: whether given choices can lead there."""
        chain = self.chain
        return reached_by(chain.layout, self.boxes, chain.num_nodes, chain.first_slot, rows, sides, orders)


def passing(cost_of: Callable[[int], float], count: int, limit: float) -> int:
    """Return a k with cost_of(k - 1) above the limit and cost_of(k) not, by bisection; cost_of(0) is above it."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost_of(middle) > limit else (low, middle)
    return high
