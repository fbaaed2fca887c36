"""The certified learner on environments: tables grow as states are discovered, and bounds cover unvisited states.

B_h        (H-h) most throughout, unless the number of states is known and all of them were visited (`complete`)
bounds     the i-th distribution in the order of first visits has the share omega_i of p_U, the distribution of the
           first state being the first; omega_i = 2^-k / ((k+1)(k+2)) for 2^k <= i < 2^(k+1). Lower values: the same by
           states. If there are at most S states, the shares are equal, as on a model
policy     in a state first visited after the candidate was frozen: the first action whose constraints were known then
           to be satisfied, else the first not known to violate, else the first
dynamics   if s' = g(s, a, noise) is declared, all noises so far count for every pair, also for one discovered later:
           its bound is one of S A (H-1) + 1 that are fixed from the start, so S must be known. If g leads to a state
           that was not visited, its value is at most (H-h) most, and at least (H-h) lo
gaps       (H-h)(most-lo) in states discovered after they were frozen, 0 if no other action was left then; their largest
           is taken to be H (most-lo)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import TargetError
from peakrl.learners.assumptions.assumptions import Dynamics
from peakrl.learners.certified.confidence import KIND, UPPER, Counts, Goal
from peakrl.learners.certified.declared import Declarations
from peakrl.learners.certified.phases import CHALLENGE, Rounds
from peakrl.learners.certified.tables import (
    CELLS,
    FIRST_CELLS,
    OPEN,
    UNMET,
    VIOLATES,
    Capacity,
    GrowingArrays,
    Params,
    Scratch,
    Structure,
    Tables,
)
from peakrl.learners.episode import Log
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import DECLARED
from peakrl.learners.space import GrowingSpace
from peakrl.learners.tables import alike
from peakrl.types import Floats, Ints, Longs

JUDGED_KEPT, JUDGED_BAD = 1, 2
#: Key of the distribution of the noise.
NOISE = "noise"


def log_weight(index: Longs) -> Floats:
    """Return log(1/omega_i), i = 1, 2, ..: weights that sum to 1."""
    k = np.floor(np.log2(index))
    return np.asarray(k * math.log(2) + np.log((k + 1) * (k + 2)))


class SlotIndices(NamedTuple):
    """Indices of slots that have the same number of actions."""

    #: [slot, action]
    rows: Longs
    groups: Ints
    #: [slot, step]: the steps of the slot, and its nodes.
    steps: Longs
    nodes: Longs
    #: [slot, step, action]
    entries: Longs


class GrowingRounds(Rounds):
    """Rounds on the visited states of an environment."""

    def __init__(self, space: GrowingSpace, declared: Declarations, goal: Goal, actions: int) -> None:
        self.space, self.declared, self.actions = space, declared, actions
        self.horizon, self.arrays = space.horizon, GrowingArrays(space)
        self.own = self.arrays.own
        self._settled = False
        #: 0, 1, ... for at least all rows.
        self._every_row: tuple[Ints, Longs] = np.zeros(0, np.int32), np.zeros(0, np.int64)
        steps = self.horizon if declared.joint else self.horizon - 1
        self.steps = max(1, steps) if space.shared else 1
        self._top = declared.most * np.arange(self.horizon, -1.0, -1.0)
        self._params = Params(goal.least, declared.most, declared.joint, declared.deterministic, False, np.empty(0))
        ends = space.ends if goal.least <= 0.0 <= goal.most else 0
        none = np.empty(0, np.int64)
        self._walked: list[Longs] = [np.zeros(self.horizon + 1, np.int64) for _ in range(3)]
        self._came_to: list[Floats] = [np.zeros(self.horizon + 1) for _ in range(2)]
        noises = 0 if declared.dynamics is None else len(declared.dynamics[1])
        self._structure = Structure(
            self.horizon, 0, 0, ends, none, none, none, none.astype(np.int32), *(none.astype(np.int32),) * 3,
            np.zeros(1, np.int64), none.astype(np.int32), none, noises, none.astype(np.int32),
        )  # fmt: skip
        self.arrays.enlarge(Capacity(space.slots, max(1, space.rows), FIRST_CELLS))
        self.arrays.take_cells(np.array([self.arrays.room.rows]), np.array([FIRST_CELLS]))  # of the first state
        self._begin_map(noises)
        self._gather()
        super().__init__(self.structure, self.params, self.tables, self.scratch, goal, len(self.own["value"]))
        self._first_share = self._share(np.ones(1, np.int64))
        self._gather()

    # Storage -------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Rebuild the tuples for the kernels from the arrays, which may have moved."""
        own, room, shared = self.own, self.arrays.room, self.space.shared
        start, room_start = self.space.layout.row_start, self._structure.row_start
        if len(room_start) != room.slots + 1:
            room_start = np.append(start, np.full(room.slots + 1 - len(start), start[-1]))
        self._structure = self._structure._replace(
            node_stride=room.slots if shared else 0,
            entry_stride=room.rows if shared else 0,
            row_start=room_start,
            distribution_of_row=own["distribution_of_row"],
            group_of_row=own["group_of_row"],
            slot_of_row=own["slot_of_row"],
            cell_start=own["cell_start"],
        )
        self._params = self._params._replace(log_share=own["log_share"])
        self.structure, self.params = self._structure, self._params
        self.tables = Tables(**{name: own[name] for name in Tables._fields if name != "top"}, top=self._top)
        self.scratch = Scratch(
            own["scratch_value"], own["scratch_count"], own["bound_step"], own["bound_value"], own["bound_dead"],
            self._walked[0], self._walked[1], self._walked[2], self._came_to[0], self._came_to[1],
        )  # fmt: skip
        self.candidate, self.followed, self.challenger = (own[name] for name in ("candidate", "followed", "challenger"))
        self.frozen_counts = Counts(*(own[name] for name in Counts._fields))
        if hasattr(self, "evidence"):
            self.evidence = self.evidence._replace(gap=own["gap"])
        self._settled = False

    def _begin_map(self, noises: int) -> None:
        """Create the distribution of the noise, if dynamics are declared."""
        #: [row, noise]: the next slot; and, by (step, state), the (row, noise) that lead to unvisited states.
        self._noise_next = Table(UNMET, np.int32, noises)
        self._unmet: dict[tuple[int, Hashable], list[tuple[int, int]]] = {}
        self._map = None
        if self.declared.dynamics is not None:
            self._map = Dynamics(self.declared.dynamics, self.space)
            self.arrays.guess_by_row, self.arrays.distributions[NOISE], self.arrays.num_distributions = True, 0, 1
            self.arrays.take_cells(np.zeros(1, np.int64), np.array([noises]))
            self.own["distribution"][0, CELLS] = noises

    @property
    def noise_next(self) -> Ints:
        """[row * noises + noise]: the next slot."""
        return self._noise_next.used.ravel()

    def make_room(self, rows: Longs) -> None:
        """Make room for the samples of an episode that takes these rows."""
        rows = rows[:0] if self._map is not None else rows  # noises have theirs
        distributions = np.append(self.own["distribution_of_row"][rows], len(self.own["distribution"]) - 1)
        tight = (
            self.own["distribution"][distributions, CELLS] + len(distributions) > self.own["cell_room"][distributions]
        )
        if not tight.any():
            return
        names, often = np.unique(distributions, return_counts=True)
        used, room = self.own["distribution"][names, CELLS], self.arrays.room
        lack = used + often > self.own["cell_room"][names]
        cells = np.maximum(np.maximum(2 * used, used + often), FIRST_CELLS)
        self.arrays.take_cells(names[lack], cells[lack])
        if self.arrays.room is not room:
            self._gather()

    # States --------------------------------------------------------------------------------------------------

    def grow(self, first: int, log: Log) -> None:
        """Add the slots from `first` on; log the rows that are followed there and are not the first."""
        space, first = self.space, max(first, self.space.ends)
        self._check_number()
        room, start = self.arrays.room, space.layout.row_start
        if space.slots > room.slots or space.rows > room.rows:
            self.arrays.enlarge(Capacity(max(space.slots, 2 * room.slots), max(space.rows, 2 * room.rows), room.cells))
            self._gather()
        self.structure.row_start[first : len(start)] = start[first:]
        self._add_rows(int(start[first]))
        for slots in self._alike(first):
            self._add(slots)
        self._note_rows(first, log)
        if self._map is not None:
            self._lead(self._map, first)
        if self.declared.states is not None and space.shared and space.slots - space.ends == self.declared.states:
            self._params = self.params = self.params._replace(complete=True)
        self._settled = False

    def _lead(self, outcomes: Dynamics, first: int) -> None:
        """Set the next slots of the noises from and to the slots from `first` on."""
        space, structure = self.space, self.structure
        self._noise_next.grow(space.rows)
        table = self._noise_next.room
        for slot in range(first, space.slots):
            for row, noise in self._unmet.pop((int(space.slot_step[slot]), space.labels[slot]), ()):
                table[row, noise] = slot
            after = 0 if space.shared else int(space.slot_step[slot]) + 1
            if after == self.horizon and not space.shared:
                continue  # the last step leads to its end, and the noise is unknown
            for row in range(int(structure.row_start[slot]), int(structure.row_start[slot + 1])):
                for state, noise in outcomes.reached(row).items():
                    table[row, noise] = after if state is None else space.lookup[after].get(state, UNMET)
                    if table[row, noise] == UNMET:
                        self._unmet.setdefault((after, state), []).append((row, noise))
        self._structure = self.structure = structure._replace(noise_next=table.ravel())

    def _check_number(self) -> None:
        """Raise if there are more states (at a step, if steps have their own) than declared."""
        most = self.declared.states
        for met in self.space.lookup:
            if most is not None and len(met) > most:
                newest = next(itertools.islice(met, most, None))
                raise TargetError(f"state {newest!r} is one more than the {most} declared states")

    def _alike(self, first: int) -> Iterator[Longs]:
        """Yield the slots from `first` on, grouped by their number of actions."""
        sizes = np.diff(self.structure.row_start[first : self.space.slots + 1])
        for size in np.unique(sizes):
            yield first + np.flatnonzero(sizes == size)

    def _indices(self, slots: Longs) -> SlotIndices:
        """Return the indices of slots that have the same number of actions."""
        structure, space = self.structure, self.space
        first, last = structure.row_start[slots], structure.row_start[slots[0] + 1]
        rows = first[:, None] + np.arange(last - first[0])
        every = np.arange(self.horizon)[None].repeat(len(slots), axis=0)
        steps = every if space.shared else space.slot_step[slots][:, None]
        entries = (steps * structure.entry_stride)[:, :, None] + rows[:, None]
        return SlotIndices(
            rows, self.own["group_of_row"][rows], steps, steps * structure.node_stride + slots[:, None], entries
        )

    def _add(self, slots: Longs) -> None:
        """Add new slots that have the same number of actions."""
        own, indices = self.own, self._indices(slots)
        rows, groups, steps, nodes, entries = indices
        candidate = rows[:, :1] + first_of(own["judged"][groups])[:, None]
        others = ((own["then_max_violation"][groups] == 0) & (rows != candidate)).any(axis=1, keepdims=True)
        own["upper"][entries], own["value"][nodes] = self._top[steps][:, :, None], self._top[steps]
        own["witness"][entries] = np.where(own["max_violation"][groups] > 0, VIOLATES, OPEN)[:, None]
        own["gap"][nodes] = np.where(others, (self.horizon - steps) * (self.declared.most - self.goal.least), 0.0)
        self._set_rows(indices, candidate)

    def _set_rows(self, indices: SlotIndices, candidate: Longs) -> None:
        """Set the rows that are followed in new slots, given [slot, step] the candidate."""
        own, (rows, groups, _, nodes, entries) = self.own, indices
        is_open, first = own["witness"][entries] == OPEN, rows[:, :1]
        own["dead"][nodes] = dead = ~is_open.any(axis=2)
        least_violating = own["max_violation"][groups].argmin(axis=1)[:, None]
        own["greedy"][nodes] = first + np.where(dead, least_violating, is_open.argmax(axis=2))
        other = is_open & (rows[:, None] != candidate[:, :, None])
        own["candidate"][nodes] = candidate
        own["challenger"][nodes] = np.where(other.any(axis=2), first + other.argmax(axis=2), candidate)
        own["followed"][nodes] = own["challenger" if self.status[KIND] == CHALLENGE else "candidate"][nodes]

    def _note_rows(self, first: int, log: Log) -> None:
        """Log the rows that are followed in the slots from `first` on and are not the first."""
        slots, space = np.arange(first, self.space.slots), self.space
        steps = np.arange(self.horizon)[None] if space.shared else space.slot_step[first:, None]
        followed = self.rows[steps * self.structure.node_stride + slots[:, None]]
        slot, step = np.nonzero(followed != self.structure.row_start[first : space.slots, None])
        log.extend(step * space.node_stride + slots[slot], followed[slot, step])

    def _take_greedy(self, low: int) -> None:
        """Restrict the candidate to actions that are safe by declaration in the slots from `low` on."""
        own = self.own
        for slots in self._alike(max(low, self.space.ends)):
            indices = self._indices(slots)
            forbidden = own["witness"][indices.entries] == DECLARED
            judged = own["judged"][indices.groups][:, None]
            kinds = np.where(forbidden & ~forbidden.all(axis=2, keepdims=True), JUDGED_BAD, judged)
            self._set_rows(indices, indices.rows[:, :1] + first_of(kinds))

    def _add_rows(self, first: int) -> None:
        """Set distributions, groups and declared rewards of the rows from `first` on."""
        own, space, declared, arrays = self.own, self.space, self.declared, self.arrays
        own_distribution = declared.distribution_key is None and self._map is None
        rows = np.arange(first, space.rows)
        own["slot_of_row"][rows] = space.slot_of_row[first:]
        own["distribution_of_row"][rows] = own["group_of_row"][rows] = rows
        if not own_distribution or declared.depends_on is not None or declared.rewards is not None:
            for row in rows.tolist():
                self._declare_row(row)
        arrays.num_distributions = space.rows if own_distribution else len(arrays.distributions)
        arrays.num_groups = space.rows if declared.depends_on is None else len(arrays.groups)
        distributions = own["distribution_of_row"][rows].astype(np.int64)
        own["log_share"][distributions], own["log_share"][-1] = self._share(distributions + 2), self._first_share[0]

    def _declare_row(self, row: int) -> None:
        """Set the declared distribution, group and reward of a new row."""
        own, space, declared, slot = self.own, self.space, self.declared, int(self.space.slot_of_row[row])
        step = 0 if space.shared else int(space.slot_step[slot])
        state, action = space.labels[slot], space.action_of_row(row)
        if self._map is not None:
            own["distribution_of_row"][row] = self.arrays.distributions[NOISE]
        elif declared.distribution_key is not None:
            key = step, declared.distribution_key(step, state, action)
            own["distribution_of_row"][row] = self.arrays.distributions.setdefault(key, len(self.arrays.distributions))
        if declared.depends_on is not None:
            number, label = int(space.slot_state[slot]), int(space.row_action[row])
            shared = {"pair": (number, label), "state": number, "action": label}[declared.depends_on]
            own["group_of_row"][row] = self.arrays.groups.setdefault(shared, len(self.arrays.groups))
        if declared.rewards is not None:
            own["known"][row], own["reward"][row] = 1, declared.rewards(step, state, action)

    def _share(self, index: Longs) -> Floats:
        """Return log(1/d) of the bounds on the `index`-th distributions, that of the first state being number 1."""
        share = math.log(1 / (UPPER * self.goal.failure_probability))
        if self.declared.states is not None:
            steps = self.steps if self.space.shared else self.horizon
            return np.full(len(index), share + math.log(self.declared.states * self.actions * steps + 1))
        return share + log_weight(index) + np.where(index > 1, math.log(self.steps), 0.0)

    def lower_logs(self) -> Floats:
        """[slot]: log of the number of bounds that share d, or of the inverse weight."""
        slots = len(self.structure.row_start) - 1
        if self.declared.states is not None:
            steps = self.steps if self.space.shared else self.horizon
            return np.full(slots, math.log(self.declared.states * steps))
        index = np.maximum(np.arange(slots) - self.space.ends + 1, 1)
        return log_weight(index) + math.log(self.steps)

    # Order ---------------------------------------------------------------------------------------------------

    def settle_groups(self) -> None:
        """Sort the rows by group if there are new ones."""
        rows = self.space.rows
        if len(self.structure.group_rows) == rows:
            return
        if self.declared.depends_on is None:  # each row is its own
            if rows >= len(self._every_row[0]):
                self._every_row = np.arange(2 * rows, dtype=np.int32), np.arange(2 * rows)
            order, start = self._every_row[0][:rows], self._every_row[1][: rows + 1]
        else:
            group = self.own["group_of_row"][:rows]
            order = np.argsort(group, kind="stable").astype(np.int32)
            start = np.searchsorted(group[order], np.arange(self.arrays.num_groups + 1)).astype(np.int64)
        self._structure = self.structure = self.structure._replace(group_start=start, group_rows=order)

    def settle(self) -> None:
        """Sort the slots by step and the rows by group if there are new ones."""
        if self._settled:
            return
        self.settle_groups()
        space, horizon = self.space, self.horizon
        new = np.arange(space.ends, space.slots, dtype=np.int32)
        if space.shared:
            first, last = np.full(horizon, 0), np.full(horizon, len(new))
        else:
            steps = space.slot_step[space.ends :]
            new = new[np.argsort(steps, kind="stable")]
            bounds = np.searchsorted(np.sort(steps), np.arange(horizon + 1))
            first, last = bounds[:-1], bounds[1:]
        self._structure = self.structure = self.structure._replace(
            step_first=first.astype(np.int64), step_last=last.astype(np.int64), slots=new
        )
        self._decisions()
        self._settled = True

    def _decisions(self) -> None:
        """Set the nodes that have actions."""
        if len(self.structure.step_first):
            super()._decisions()
        else:  # nothing was visited yet
            self.nodes, self.node_step = np.empty(0, np.int64), np.empty(0, np.int64)

    def review(self) -> None:
        """Update every bound, for all states so far."""
        self.settle()
        super().review()

    def _freeze(self, rows: Ints) -> None:
        """Freeze a candidate; what is known now determines its actions in states discovered later."""
        super()._freeze(rows)
        self.own["judged"][:] = np.where(self.tables.max_violation > 0, JUDGED_BAD, self.tables.tested)

    # Files ---------------------------------------------------------------------------------------------------

    def compact(self) -> dict[str, NDArray[Any]]:
        """Return everything that was learned, without unused room."""
        return self.arrays.compact() | {"top": self._top.copy()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `compact` returned, for the same states; raise ValueError if it does not fit."""
        self.arrays.restore(arrays)
        self._top[:] = alike(self._top, arrays["top"], "engine.top")
        self._gather()
        self.settle()


def first_of(judged: NDArray[np.int8]) -> Longs:
    """Return the index of the first action known to satisfy its constraints, else not known to violate, else 0."""
    kept = judged == JUDGED_KEPT
    return np.asarray(np.where(kept.any(axis=-1, keepdims=True), kept, judged != JUDGED_BAD).argmax(axis=-1))
