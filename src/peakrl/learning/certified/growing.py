"""The certified learner's rounds where states come as they are met: tables that grow, and what holds of states not met.

B_h = (H-h) most for ever, unless it is known how many states there are and all of them were met (`complete`)
bets       the i-th law has the share omega_i of p_U, by the order of being met, the law of the first state being
           the first; omega_i = 2^-k / ((k+1)(k+2)) for 2^k <= i < 2^(k+1). Lower values: the same by states. Where
           there are at most S states, the shares are equal, as on a model
policy     in a state met after the candidate was frozen: the first action whose constraints were known then to be
           kept, else the first not known to violate, else the first
map        where s' = g(s, a, noise) is declared, all noises so far count for every pair, also for one met later: its
           bet is one of S A (H-1) + 1 that are laid from the start, so that S must be known. Where g leads to a state
           not met, that is worth (H-h) most at most, and (H-h) lo at least
gaps       (H-h)(most-lo) in states met after they were frozen, 0 where no other action was left then; their largest
           is taken to be H (most-lo)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import TargetError
from peakrl.kernels.arrays import Floats, Ints, Longs
from peakrl.kernels.certified.tables import CELLS, OPEN, UNMET, VIOLATES, Places, Scratch, Tables, Terms
from peakrl.kernels.learning import Log
from peakrl.kernels.practical_tables import DECLARED
from peakrl.learning.algorithm import alike
from peakrl.learning.certified.declared import Told
from peakrl.learning.certified.proofs import KIND, UPPER, Counts, Goal
from peakrl.learning.certified.room import FIRST_CELLS, GrowingArrays, Room
from peakrl.learning.certified.rounds import CHALLENGE, Rounds
from peakrl.learning.outcome_map import OutcomeMap
from peakrl.learning.space import GrowingSpace, Table

JUDGED_KEPT, JUDGED_BAD = 1, 2
#: The key of the law of noises.
NOISE = "noise"
NO_LOG = Log(*(np.empty(0, np.int32) for _ in range(3)))


def log_weight(index: Longs) -> Floats:
    """Return log(1/omega_i), i = 1, 2, ..: weights that sum to 1 over whatever may come."""
    k = np.floor(np.log2(index))
    return np.asarray(k * math.log(2) + np.log((k + 1) * (k + 2)))


class GrowingRounds(Rounds):
    """Rounds on the states of an environment that were met so far."""

    def __init__(self, space: GrowingSpace, told: Told, goal: Goal, actions: int) -> None:
        self.space, self.told, self.actions = space, told, actions
        self.horizon, self.arrays = space.horizon, GrowingArrays(space)
        self.own = self.arrays.own
        self._settled = False
        steps = self.horizon if told.joint else self.horizon - 1
        self.steps = max(1, steps) if space.shared else 1
        self._top = told.most * np.arange(self.horizon, -1.0, -1.0)
        self._terms = Terms(goal.least, told.most, told.joint, told.deterministic, False, np.empty(0))
        ends = space.ends if goal.least <= 0.0 <= goal.most else 0
        none = np.empty(0, np.int64)
        self._walked: list[Longs] = [np.zeros(self.horizon + 1, np.int64) for _ in range(3)]
        self._came_to: list[Floats] = [np.zeros(self.horizon + 1) for _ in range(2)]
        noises = 0 if told.outcome_map is None else len(told.outcome_map[1])
        self._places = Places(
            self.horizon, 0, 0, ends, none, none, none, none.astype(np.int32), *(none.astype(np.int32),) * 3,
            none, none.astype(np.int32), none, noises, none.astype(np.int32),
        )  # fmt: skip
        self.arrays.enlarge(Room(space.slots, max(1, space.rows), FIRST_CELLS))
        self.arrays.take_cells(self.arrays.room.rows, FIRST_CELLS)  # of the first state
        self._begin_map(noises)
        self._gather()
        super().__init__(self.places, self.terms, self.tables, self.scratch, goal, len(self.own["value"]))
        self._first_share = self._share(1)
        self._gather()

    # Room ----------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Put the arrays, which may have moved, before the kernels."""
        own, room, shared = self.own, self.arrays.room, self.space.shared
        start, room_start = self.space.layout.row_start, self._places.row_start
        if len(room_start) != room.slots + 1:
            room_start = np.append(start, np.full(room.slots + 1 - len(start), start[-1]))
        self._places = self._places._replace(
            node_stride=room.slots if shared else 0,
            entry_stride=room.rows if shared else 0,
            row_start=room_start,
            law_of_row=own["law_of_row"],
            group_of_row=own["group_of_row"],
            slot_of_row=own["slot_of_row"],
            cell_start=own["cell_start"],
        )
        self._terms = self._terms._replace(log_share=own["log_share"])
        self.places, self.terms = self._places, self._terms
        self.tables = Tables(**{name: own[name] for name in Tables._fields if name != "top"}, top=self._top)
        self.scratch = Scratch(
            own["scratch_value"], own["scratch_count"], own["law_step"], own["law_bound"], own["law_dead"],
            self._walked[0], self._walked[1], self._walked[2], self._came_to[0], self._came_to[1],
        )  # fmt: skip
        self.candidate, self.followed, self.challenger = (own[name] for name in ("candidate", "followed", "challenger"))
        self.frozen_counts = Counts(*(own[name] for name in Counts._fields))
        if hasattr(self, "evidence"):
            self.evidence = self.evidence._replace(gap=own["gap"])
        self._settled = False

    def _begin_map(self, noises: int) -> None:
        """Make the one law of the noises, where a map is declared."""
        #: [row, noise]: the next slot; and, by (step, state), the places of those that were not met.
        self._noise_next = Table(UNMET, np.int32, noises)
        self._unmet: dict[tuple[int, Hashable], list[tuple[int, int]]] = {}
        self._map = None
        if self.told.outcome_map is not None:
            self._map = OutcomeMap(self.told.outcome_map, self.space)
            self.arrays.guess_by_row, self.arrays.laws[NOISE] = True, 0
            self.arrays.take_cells(0, noises)
            self.own["law"][0, CELLS] = noises

    @property
    def noise_next(self) -> Ints:
        """[row * noises + noise]: the next slot."""
        return self._noise_next.used.ravel()

    def make_room(self, rows: Longs) -> None:
        """Make sure that an episode that takes these rows finds a cell wherever it leads."""
        rows = rows[:0] if self._map is not None else rows  # noises have theirs
        laws = np.append(self.own["law_of_row"][rows], len(self.own["law"]) - 1)
        tight = self.own["law"][laws, CELLS] + len(laws) > self.own["cell_room"][laws]
        if not tight.any():
            return
        names, often = np.unique(laws, return_counts=True)
        used, room = self.own["law"][names, CELLS], self.arrays.room
        for place in np.flatnonzero(used + often > self.own["cell_room"][names]).tolist():
            had = int(used[place])
            self.arrays.take_cells(int(names[place]), max(2 * had, had + int(often[place]), FIRST_CELLS))
        if self.arrays.room is not room:
            self._gather()

    # States --------------------------------------------------------------------------------------------------

    def grow(self, first: int, episode: int, log: Log, changes: int) -> int:
        """Take in the slots from `first` on; what is followed there and is not the first row is logged."""
        space, first = self.space, max(first, self.space.ends)
        self._check_number()
        room, start = self.arrays.room, space.layout.row_start
        if space.slots > room.slots or space.rows > room.rows:
            self.arrays.enlarge(Room(max(space.slots, 2 * room.slots), max(space.rows, 2 * room.rows), room.cells))
            self._gather()
        self.places.row_start[first : len(start)] = start[first:]
        for slot in range(first, space.slots):
            changes = self._add(slot, episode, log, changes)
        if self._map is not None:
            self._lead(self._map, first)
        if self.told.states is not None and space.shared and space.slots - space.ends == self.told.states:
            self._terms = self.terms = self.terms._replace(complete=True)
        self._settled = False
        return changes

    def _lead(self, outcomes: OutcomeMap, first: int) -> None:
        """Note where the noises lead from the slots from `first` on, and which of them lead there."""
        space, places = self.space, self.places
        self._noise_next.grow(space.rows)
        table = self._noise_next.room
        for slot in range(first, space.slots):
            for row, noise in self._unmet.pop((int(space.slot_step[slot]), space.labels[slot]), ()):
                table[row, noise] = slot
            after = 0 if space.shared else int(space.slot_step[slot]) + 1
            if after == self.horizon and not space.shared:
                continue  # the last step leads to its end, and the noise is not told
            for row in range(int(places.row_start[slot]), int(places.row_start[slot + 1])):
                for state, noise in outcomes.reached(row).items():
                    table[row, noise] = after if state is None else space.lookup[after].get(state, UNMET)
                    if table[row, noise] == UNMET:
                        self._unmet.setdefault((after, state), []).append((row, noise))
        self._places = self.places = places._replace(noise_next=table.ravel())

    def _check_number(self) -> None:
        """Raise where there are more states (at a step, where steps have their own) than were declared."""
        space, most = self.space, self.told.states
        if most is None or space.slots == space.ends:
            return
        newest, steps = space.slots - 1, space.slot_step[space.ends :]
        met = int((steps == steps[-1]).sum())
        if met > most:
            raise TargetError(f"state {space.labels[newest]!r} is one more than the {most} states that are declared")

    def _add(self, slot: int, episode: int, log: Log, changes: int) -> int:
        """Take in one slot."""
        own, places = self.own, self.places
        first, last = int(places.row_start[slot]), int(places.row_start[slot + 1])
        for row in range(first, last):
            self._add_row(row, slot)
        rows = np.arange(first, last)
        groups = own["group_of_row"][first:last]
        steps = self._steps_of(slot)
        candidate = first + first_of(own["judged"][groups])
        others = bool(((own["then_harm"][groups] == 0) & (rows != candidate)).any())
        nodes, entries = steps * places.node_stride + slot, steps[:, None] * places.entry_stride + rows
        own["upper"][entries], own["value"][nodes] = self._top[steps, None], self._top[steps]
        own["witness"][entries] = np.where(own["harm"][groups] > 0, VIOLATES, OPEN)
        own["gap"][nodes] = (self.horizon - steps) * (self.told.most - self.goal.least) if others else 0.0
        return self._set_rows(steps, slot, np.full(len(steps), candidate), episode, log, changes)

    def _steps_of(self, slot: int) -> Longs:
        """Return the steps that a slot serves."""
        return np.arange(self.horizon) if self.space.shared else self.space.slot_step[slot : slot + 1]

    def _set_rows(self, steps: Longs, slot: int, candidate: Longs, episode: int, log: Log, changes: int) -> int:
        """Set what is followed in a new slot at `steps`, given [step] the candidate; log what is not the first row."""
        own, places = self.own, self.places
        nodes, first, last = steps * places.node_stride + slot, *map(int, places.row_start[slot : slot + 2])
        rows, place = np.arange(first, last), np.arange(len(steps))
        is_open = own["witness"][steps[:, None] * places.entry_stride + rows] == OPEN
        choice = is_open.argmax(axis=1)
        own["dead"][nodes] = dead = ~is_open[place, choice]
        mildest = int(own["harm"][own["group_of_row"][first:last]].argmin()) if dead.any() else 0
        own["greedy"][nodes] = first + np.where(dead, mildest, choice)
        other = is_open & (rows != candidate[:, None])
        second = other.argmax(axis=1)
        own["candidate"][nodes] = candidate
        own["challenger"][nodes] = np.where(other[place, second], first + second, candidate)
        own["followed"][nodes] = own["challenger" if self.status[KIND] == CHALLENGE else "candidate"][nodes]
        followed = self.rows[nodes]
        new = np.flatnonzero(followed != first) if len(log.node) else place[:0]
        if len(new):
            end = changes + len(new)
            log.episode[changes:end], log.row[changes:end] = max(episode, 1), followed[new]
            log.node[changes:end] = steps[new] * self.space.node_stride + slot
            changes = end
        return changes

    def _take_greedy(self, low: int) -> None:
        """Let the candidate stay with what is declared to be safe in the slots from `low` on."""
        own, places = self.own, self.places
        for slot in range(max(low, self.space.ends), self.space.slots):
            first, last = int(places.row_start[slot]), int(places.row_start[slot + 1])
            judged, steps = own["judged"][own["group_of_row"][first:last]], self._steps_of(slot)
            barred = own["witness"][steps[:, None] * places.entry_stride + np.arange(first, last)] == DECLARED
            kinds = np.where(barred & ~barred.all(axis=1, keepdims=True), JUDGED_BAD, judged)
            self._set_rows(steps, slot, np.array([first + first_of(each) for each in kinds]), 0, NO_LOG, 0)

    def _add_row(self, row: int, slot: int) -> None:
        """Note which law and which group a new row belongs to, and its reward where that is declared."""
        own, space, told = self.own, self.space, self.told
        step = 0 if space.shared else int(space.slot_step[slot])
        state, action = space.labels[slot], space.action_of_row(row)
        key: Hashable = row if told.law_key is None else (step, told.law_key(step, state, action))
        key = key if self._map is None else NOISE
        law = self.arrays.laws.setdefault(key, len(self.arrays.laws))
        number, label = int(space.slot_state[slot]), int(space.row_action[row])
        shared: dict[str | None, Hashable] = {None: row, "pair": (number, label), "state": number, "action": label}
        own["slot_of_row"][row], own["law_of_row"][row] = slot, law
        own["group_of_row"][row] = self.arrays.groups.setdefault(shared[told.depends_on], len(self.arrays.groups))
        own["log_share"][law], own["log_share"][-1] = self._share(law + 2), self._first_share
        if told.rewards is not None:
            own["known"][row], own["reward"][row] = 1, told.rewards(step, state, action)

    def _share(self, index: int) -> float:
        """Return log(1/d) of the bets on the law that is the `index`-th, the first state's being number 1."""
        share = math.log(1 / (UPPER * self.goal.failure_probability))
        if self.told.states is not None:
            steps = self.steps if self.space.shared else self.horizon
            return share + math.log(self.told.states * self.actions * steps + 1)
        return share + float(log_weight(np.array([index]))[0]) + (math.log(self.steps) if index > 1 else 0.0)

    def lower_logs(self) -> Floats:
        """[slot]: the logarithm of the number that bets on its lower values share d by."""
        slots = len(self.places.row_start) - 1
        if self.told.states is not None:
            steps = self.steps if self.space.shared else self.horizon
            return np.full(slots, math.log(self.told.states * steps))
        index = np.maximum(np.arange(slots) - self.space.ends + 1, 1)
        return log_weight(index) + math.log(self.steps)

    # Order ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Put the slots of each step and the rows of each group in order, where new ones came."""
        if self._settled:
            return
        space, horizon = self.space, self.horizon
        new = np.arange(space.ends, space.slots, dtype=np.int32)
        if space.shared:
            first, last = np.full(horizon, 0), np.full(horizon, len(new))
        else:
            steps = space.slot_step[space.ends :]
            new = new[np.argsort(steps, kind="stable")]
            bounds = np.searchsorted(np.sort(steps), np.arange(horizon + 1))
            first, last = bounds[:-1], bounds[1:]
        group = self.own["group_of_row"][: space.rows]
        order = np.argsort(group, kind="stable").astype(np.int32)
        start = np.searchsorted(group[order], np.arange(len(self.arrays.groups) + 1)).astype(np.int64)
        self._places = self.places = self.places._replace(
            step_first=first.astype(np.int64), step_last=last.astype(np.int64), slots=new,
            group_start=start, group_rows=order,
        )  # fmt: skip
        self.largest_group = int(np.diff(start).max(initial=0))
        self._decisions()
        self._settled = True

    def _decisions(self) -> None:
        """Note every node at which something is decided."""
        if len(self.places.step_first):
            super()._decisions()
        else:  # nothing was met yet
            self.nodes, self.node_step = np.empty(0, np.int64), np.empty(0, np.int64)

    def review(self) -> None:
        """Compute every bound anew, of all states so far."""
        self.settle()
        super().review()

    def _freeze(self, rows: Ints) -> None:
        """Take a candidate; what is known now decides what it does in states not met yet."""
        super()._freeze(rows)
        self.own["judged"][:] = np.where(self.tables.harm > 0, JUDGED_BAD, self.tables.tested)

    # Files ---------------------------------------------------------------------------------------------------

    def compact(self) -> dict[str, NDArray[Any]]:
        """Return everything that was learned, without unused room."""
        return self.arrays.compact() | {"top": self._top.copy()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `compact` gave, for the same states; a ValueError says what does not fit."""
        self.arrays.restore(arrays)
        self._top[:] = alike(self._top, arrays["top"], "engine.top")
        self._gather()
        self.settle()


def first_of(judged: NDArray[np.int8]) -> int:
    """Return the place of the first action known to keep its constraints, else not known to violate, else the first."""
    for wanted in (judged == JUDGED_KEPT, judged != JUDGED_BAD):
        if wanted.any():
            return int(wanted.argmax())
    return 0
