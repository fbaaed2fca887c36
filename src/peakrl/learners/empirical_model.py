"""The empirical model of learners with limits, as a chain for linear programmes, and the extended programme.

P^ = counts/n, and r, c are the means of a pair. An untried pair leads to an absorbing extra state with the largest
reward and cost 0 (optimistic) or the largest cost (pessimistic). An end of episodes is absorbing as well, with reward
0, counted from the lowest reward like all others, and cost 0. With beta(s') = min(1, scale (2 sqrt(P^(1-P^) L/n) +
(14/3) L/n)), L = log(6 S A H K/p), for every next state, also unobserved ones:

    ordinary   flow with P^ and given rewards and costs of the pairs
    extended   z_h(s,a,s') >= 0 in place of x_h(s,a) P^(s'):  sum_s' z = x,  (P^ - beta) x <= z <= (P^ + beta) x

The extended programme is solved for a single limit, by a search for its Lagrange multiplier (`planning.lagrangian`,
`box_distributions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.assumptions import Forbidden
from peakrl.learners.base import T, Task
from peakrl.learners.cmdp_limits import Budget
from peakrl.learners.counts import CountingAlgorithm, TransitionCounts
from peakrl.learners.coverage import owners
from peakrl.learners.space import Space
from peakrl.planning.lagrangian import Boxes
from peakrl.planning.occupancy import Flow, flow
from peakrl.reachability import reachable_nodes
from peakrl.space import expand, read_only, starts_of
from peakrl.types import Floats, Ints, Layout, Longs

#: Row numbers of an extra state, and of an end.
EXTRA, END = -1, -2


@dataclass(frozen=True)
class Cells:
    """Counted transitions, ordered by row."""

    #: [row + 1]
    start: Longs
    #: [cell]
    following: Longs
    probability: Floats

    @classmethod
    def of(cls, counts: TransitionCounts, rows: int) -> Cells:
        """Collect the linked lists, the newest cell of a row first."""
        owner = owners(counts.first[:rows], counts.before[: int(counts.cells[0])])
        order = np.lexsort((-np.arange(len(owner)), owner))
        start = np.searchsorted(owner[order], np.arange(rows + 1))
        shares = counts.count[order] / counts.visits[owner[order]]
        return cls(start, counts.following[order].astype(np.int64), shares)


@dataclass(frozen=True)
class CountedChain:
    """The empirical model, in the order of a model: step after step if slots belong to steps."""

    layout: Layout
    step_of_slot: Longs
    first_slot: Ints
    first_probability: Floats
    #: [row of the chain]: the row of the space, or EXTRA or END.
    row_of: Longs
    #: [slot of the space]: the slot of the chain.
    place: Longs
    #: May every state follow every other, or only by counted transitions?
    anywhere: bool = False

    @property
    def num_nodes(self) -> int:
        """Number of nodes, also those after the last step."""
        slots = len(self.layout.row_start) - 1
        return slots * (self.layout.horizon + 1) if self.layout.node_stride else slots

    @property
    def num_entries(self) -> int:
        """Number of entries."""
        return len(self.row_of) * (self.layout.horizon if self.layout.node_stride else 1)

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """[node]: can a policy reach it?"""
        if self.anywhere:
            return np.ones(self.num_nodes, bool)
        return reachable_nodes(self.layout, self.num_nodes, self.first_slot)

    @cached_property
    def flow(self) -> Flow:
        """Flow conservation with P^."""
        return flow(self)

    def table_of(self, weights: Floats, rows: int) -> Floats:
        """[row of the space, column] of weights [entry of the chain]."""
        by_step = weights.reshape(-1, len(self.row_of))
        table = np.zeros((rows, len(by_step)))
        own = self.row_of >= 0
        table[self.row_of[own]] = by_step[:, own].T
        return table

    def weights_of(self, table: Floats) -> Floats:
        """[entry of the chain] of a table [row of the space, column]; extra states and ends have one row."""
        weights: Floats = np.where(self.row_of[:, None] >= 0, table[np.maximum(self.row_of, 0)], 1.0).T.ravel()
        return weights


def counted_chain(space: Space, cells: Cells, visits: Longs, started: Longs, *, anywhere: bool) -> CountedChain:
    """Return the chain of the empirical model."""
    horizon, extra = space.horizon, 1 if space.shared else space.horizon
    slots, rows = space.slots, space.rows
    # Ends lead to ends: if steps do not share slots, the end of each step to that of the next, except the last.
    ends = np.arange(min(space.ends, extra))
    # Slots in the order of their steps; the extra state of a step comes last.
    step = np.concatenate([np.zeros(slots, np.int64) if space.shared else space.slot_step, np.arange(extra)])
    step[: space.ends] = 0 if space.shared else np.arange(space.ends)
    order = np.lexsort((np.arange(slots + extra) >= slots, step))
    place = np.empty(slots + extra, np.int64)
    place[order] = np.arange(slots + extra)
    starts = space.layout.row_start
    first_row = np.concatenate([starts[:-1], rows + np.arange(extra)])
    sizes = np.concatenate([np.diff(starts), np.ones(extra, np.int64)])
    first_row[ends], sizes[ends] = rows + extra + ends, 1
    row_of = expand(first_row[order], sizes[order])

    # Extra states and untried pairs lead to the extra state of the next step, if there is one.
    row_step = np.concatenate([step[space.slot_of_row], np.arange(extra)])
    beyond = np.append(slots + np.minimum(row_step + 1, extra - 1), ends if space.shared else ends + 1)
    untried = np.concatenate([visits == 0, np.ones(extra + len(ends), bool)])
    counted = np.concatenate([np.diff(cells.start), np.zeros(extra + len(ends), np.int64)])
    num_outcomes = np.where(untried, 1, counted)[row_of]
    outcome_start = starts_of(num_outcomes)
    following, probability = np.empty(outcome_start[-1], np.int64), np.ones(outcome_start[-1])
    lone = untried[row_of]
    following[outcome_start[:-1][lone]] = beyond[row_of[lone]]
    tried = np.flatnonzero(~lone)
    here = expand(outcome_start[:-1][tried], num_outcomes[tried])
    there = expand(cells.start[row_of[tried]], num_outcomes[tried])
    following[here], probability[here] = cells.following[there], cells.probability[there]

    bounds = np.searchsorted(step[order], np.arange(horizon + 1)) if not space.shared else None
    row_start = starts_of(sizes[order])
    everywhere = np.tile(np.array([[0, slots + extra]]), (horizon, 1))
    step_slots = everywhere if bounds is None else np.stack([bounds[:-1], bounds[1:]], axis=1)
    stride = slots + extra if space.shared else 0
    arrays = (
        step_slots, row_start[step_slots], row_start, np.arange(len(row_of), dtype=np.int32),
        outcome_start, place[following].astype(np.int32), probability,
    )  # fmt: skip
    layout = Layout(horizon, stride, len(row_of) if space.shared else 0, *map(read_only, arrays))
    firsts = np.flatnonzero(started)
    first_slot = read_only(place[firsts].astype(np.int32))
    begun = started[firsts] / started.sum()
    own = np.where(row_of < rows, row_of, np.where(row_of < rows + extra, EXTRA, END))
    return CountedChain(layout, step[order], first_slot, begun, own, place[:slots], anywhere)


class LimitedPlanner(CountingAlgorithm[T]):
    """Counted transitions and costs (`charge` [row, quantity], their sums); limits on expected violations."""

    def __init__(self, task: Task, kind: type[T], budget: Budget, sizes: Mapping[str, int], **constants: Any) -> None:
        super().__init__(task, kind, {"cost": len(budget.limits), "quantity": budget.quantities, **sizes}, **constants)
        self.budget = budget

    def payoffs(self, reward: Floats, violation: Floats, constraints: Floats) -> Floats:
        """[.., column]: reward, violation, costs."""
        return np.column_stack([reward, violation, self.budget.charges(constraints)])

    def forbid(self, declared: Forbidden) -> None:
        """Never plan forbidden rows, unless all rows of the state are forbidden."""
        super().forbid(Forbidden.of(self.space, declared.first, declared.avoidable, declared.max_violation))

    def chain(self, *, anywhere: bool) -> tuple[Cells, CountedChain]:
        """Return the counted transitions, and the empirical model."""
        counts = self.counts
        cells = Cells.of(counts, self.space.rows)
        return cells, counted_chain(self.space, cells, counts.visits, counts.begun, anywhere=anywhere)

    def infeasible_limits(self) -> str | None:
        """Return which limit is infeasible under the empirical model; None if unknown.

        On models this is checked before the first episode. Untried pairs count as free, so that only observed costs
        make a limit infeasible.
        """
        counts, charge = self.counts, self.tables.charge  # type: ignore[attr-defined]
        if self.task.model is not None or not counts.visits.any():
            return None
        _, chain = self.chain(anywhere=False)
        mean = np.vstack([charge / np.maximum(counts.visits, 1)[:, None], np.zeros((2, charge.shape[1]))])  # END, EXTRA
        reason = self.budget.infeasible_limits(chain, mean[chain.row_of], self.task.constraint_names)
        if reason is None:
            return None
        episodes = int(counts.begun.sum())
        return f"by the means of {episodes:,} episodes {reason} (untried actions count as free; this is not a proof)"


@dataclass(frozen=True)
class Box:
    """beta of every pair: for observed next states, and for the others."""

    #: [cell]
    seen: Floats
    #: [row]
    unseen: Floats

    @classmethod
    def of(cls, cells: Cells, visits: Longs, scale: float, log_term: float) -> Box:
        """Return beta; an untried pair counts as visited once."""
        n = np.maximum(visits, 1)
        flat = scale * 14 / 3 * log_term / n
        of_row = np.repeat(np.arange(len(visits)), np.diff(cells.start))
        p = cells.probability
        wide = scale * 2 * np.sqrt(p * (1 - p) * log_term / n[of_row]) + flat[of_row]
        return cls(np.minimum(wide, 1.0), np.minimum(flat, 1.0))

    def total(self, cells: Cells, states: int) -> Floats:
        """[row]: the sum of beta over all states."""
        sizes = np.diff(cells.start)
        summed = np.zeros(len(self.unseen))
        some = sizes > 0
        summed[some] = np.add.reduceat(self.seen, cells.start[:-1][some]) if some.any() else 0.0
        total: Floats = summed + np.maximum(states - sizes, 0) * self.unseen
        return total


def box_distributions(chain: CountedChain, space: Space, cells: Cells, box: Box) -> Boxes:
    """Return the box around P^ for `planning.lagrangian`: tried pairs may lead to every state of the next step."""
    layout, row_of = chain.layout, chain.row_of
    tried = np.flatnonzero((row_of >= 0) & (np.diff(cells.start, append=cells.start[-1])[row_of] > 0))
    sizes = np.diff(cells.start)[row_of[tried]]
    boxed, unseen = np.zeros(len(row_of), np.int8), np.zeros(len(row_of))
    boxed[tried], unseen[tried] = 1, box.unseen[row_of[tried]]
    seen = np.zeros(len(layout.outcome_next))
    seen[expand(layout.outcome_start[tried], sizes)] = box.seen[expand(cells.start[row_of[tried]], sizes)]
    targets = [np.arange(space.slots)] * space.horizon if space.shared else by_step(space)
    counts = np.array([len(target) for target in targets[1:]] + [0], np.int64)  # nothing follows the last step
    reached = np.concatenate([*targets[1:], np.empty(0, np.int64)])
    return Boxes(boxed, seen, unseen, starts_of(counts), chain.place[reached].astype(np.int32))


def by_step(space: Space) -> list[Longs]:
    """Return the slots of every step, its end first if it has one."""
    steps = np.array(space.slot_step)
    steps[: space.ends] = np.arange(space.ends)
    return [np.flatnonzero(steps == step) for step in range(space.horizon)]
