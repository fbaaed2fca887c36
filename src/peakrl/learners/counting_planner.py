"""Counted transitions of the learners for constrained problems; to be replaced by `learners.counts`.

Counts are linked lists of cells: `first[row]` is the newest next slot of a row, `before[cell]` leads to the older ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import inlined, loop
from peakrl.learners.assumptions import allowed_rows
from peakrl.learners.base import (
    Choices,
    Episode,
    SamplingAlgorithm,
    Task,
    check_ranges,
    used,
)
from peakrl.learners.counts import check_lists, check_starts
from peakrl.learners.coverage import Outcomes, collect
from peakrl.learners.episode import Log
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES, Memory, Witness
from peakrl.learners.space import checked_rows
from peakrl.learners.tables import FINITE
from peakrl.learners.ucbvi import UCBVI
from peakrl.types import Bytes, Floats, Ints, Longs

NO_CELL = -1


class Counts(NamedTuple):
    """Counted transitions, and the latest plan."""

    #: [row]: visits, sum of rewards, largest violation observed, newest cell.
    visits: Longs
    reward: Floats
    max_violation: Floats
    first: Ints
    #: [cell]: next slot, count, the cell before.
    following: Ints
    count: Longs
    before: Ints
    #: Number of cells, and the episode of the next plan.
    state: Longs
    #: [slot, column (+ 1 if steps share slots)]: W.
    w: Floats
    #: [slot, column]: the greedy row.
    greedy: Longs
    #: [slot]: episodes that began in it.
    begun: Longs
    #: [slot, column (+ 1)]: 1 if every pair is known to fail; always 0 for UCBVI.
    dead: Bytes
    #: The first episode that began in a dead state (0: none), and that slot.
    proved: Longs
    #: [row, column]: 1 if declared to fail.
    forbidden: Bytes


class Planning(NamedTuple):
    """Constants derived from settings and sizes."""

    #: 1 if a column is a step, 0 if slots belong to steps.
    shift: int
    #: Slots in the order of planning, last step first; any order if steps share slots.
    order: Longs
    slot_step: Longs
    lowest: float
    span: float
    bonus: float
    avoid_dead_ends: bool


class CountingPlanner(SamplingAlgorithm):
    """Counted transitions, and the plan to follow."""

    starts_first = True

    def __init__(self, task: Task, settings: UCBVI, *, avoid_dead_ends: bool = False) -> None:
        super().__init__(task)
        self.bonus, self.avoid_dead_ends = settings.bonus, avoid_dead_ends
        self.shares_steps = self.space.shared
        self.by_row = {
            "visits": Table(0, np.int64), "reward": Table(0.0, np.float64), "max_violation": Table(0.0, np.float64),
            "first": Table(NO_CELL, np.int32),
        }  # fmt: skip
        self.by_cell = {
            "following": Table(0, np.int32),
            "count": Table(0, np.int64),
            "before": Table(NO_CELL, np.int32),
        }
        self.by_slot = {
            "w": Table(0.0, np.float64, self.columns + int(self.space.shared)),
            "greedy": Table(0, np.int64, self.columns),
            "begun": Table(0, np.int64),
        }
        self.dead = Table(0, np.int8, self.columns + int(self.space.shared))
        #: [row, column]: declared to fail; not stored in files, because it follows from the assumptions.
        self.forbidden = Table(0, np.int8, self.columns)
        #: The first episode that began in a dead state, and its slot.
        self.proved = np.zeros(2, np.int64)
        #: Number of cells, and the episode of the next plan.
        self.state = np.array([0, 1], np.int64)
        horizon = task.sizes.horizon
        self._rows, self._followings, self._records = (np.zeros(horizon, np.int64) for _ in range(3))
        if task.model is not None:
            self.payoff = np.stack([task.model.payoffs.reward, task.model.record_violation], axis=1)
            sizes = np.diff(task.model.layout.outcome_start)[task.model.layout.row_distribution]
            self._grow_cells(int(sizes.sum()))  # at most one for each outcome of a row

    def _grow_cells(self, cells: int) -> None:
        for table in self.by_cell.values():
            table.grow(cells)

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new slots start at the largest possible value."""
        space, sizes = self.space, self.task.sizes
        for table in (*self.by_row.values(), self.forbidden):
            table.grow(space.rows)
        for table in (*self.by_slot.values(), self.dead):
            table.grow(space.slots)
        start = space.layout.row_start
        self.by_slot["greedy"].room[first : space.slots] = start[first:-1, None]
        steps = np.arange(self.columns)[None, :] if space.shared else space.slot_step[first:, None]
        offers = (np.diff(start[first:]) > 0)[:, None]
        self.by_slot["w"].room[first : space.slots, : self.columns] = sizes.span * (space.horizon - steps) * offers
        if first < space.ends:
            left = np.arange(space.horizon, -1, -1) * (0.0 - sizes.reward_range[0])
            self.by_slot["w"].room[: space.ends] = left if space.shared else left[:, None]
        self._gather()

    def _gather(self) -> None:
        """Collect the arrays for the kernels; growing may have reallocated them."""
        self.layout = self.space.layout
        rooms: dict[str, Any] = {
            name: table.room for name, table in (self.by_row | self.by_cell | self.by_slot).items()
        }
        self.counts = Counts(
            state=self.state, dead=self.dead.room, proved=self.proved, forbidden=self.forbidden.room, **rooms
        )
        self._planning: Planning | None = None

    @property
    def planning(self) -> Planning:
        """Constants of a plan; computed when a plan is made, not whenever a state is added."""
        if self._planning is None:
            space, sizes = self.space, self.task.sizes
            offering = np.flatnonzero(np.diff(self.layout.row_start) > 0)
            order = offering if space.shared else offering[np.argsort(-space.slot_step[offering], kind="stable")]
            self._planning = Planning(
                int(space.shared),
                order,
                space.slot_step,
                sizes.reward_range[0],
                sizes.span,
                self.bonus,
                self.avoid_dead_ends,
            )
        return self._planning

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Plan without what is declared to fail."""
        rows = slice(first, first + len(forbidden))
        self.forbidden.room[rows] = forbidden
        known = self.by_row["max_violation"].room
        known[rows] = np.maximum(known[rows], np.where(forbidden.all(axis=1), max_violation, 0.0))
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        best, _ = allowed_rows(self.layout.row_start[low:], forbidden, first)
        followed = self.by_slot["greedy"].room[low : self.space.slots]
        followed[:] = np.where(best >= 0, best, followed)

    def choices(self) -> Choices:
        """The latest plan."""
        return Choices.by_column(self.counts.greedy)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Count every transition of an episode."""
        if self.state[0] + played.length > len(self.by_cell["count"].room):
            self._grow_cells(int(self.state[0]) + played.length)
            self._gather()
        self.counts.begun[played.slot[0]] += 1
        steps = slice(0, played.length)
        count_played(
            self.counts, played.row[steps], played.following[steps], played.reward[steps], played.violation[steps]
        )
        if self.avoid_dead_ends:
            note_dead_ends(self.counts, self.planning, played.slot[0], bool(played.violation[steps].any()), episode)

    # Results -------------------------------------------------------------------------------------------------

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the latest plan."""
        return self.by_slot["greedy"].used.copy()

    def visits(self) -> Longs | None:
        """[row]: how often it was taken."""
        return np.asarray(self.by_row["visits"].used)

    def outcomes(self) -> Outcomes | None:
        """Counted outcomes of each row."""
        cells = {name: table.room[: self.state[0]] for name, table in self.by_cell.items()}
        return collect(
            self.by_row["first"].used, cells["before"], cells["following"], cells["count"],
            np.arange(self.space.rows, dtype=np.int32), self.by_slot["begun"].used,
        )  # fmt: skip

    def values(self) -> Floats:
        """[entry]: mean reward of each pair; NaN if untried."""
        visits = np.maximum(self.by_row["visits"].used, 1)
        mean = np.where(self.by_row["visits"].used > 0, self.by_row["reward"].used / visits, np.nan)
        return self.space.entries_of(np.repeat(mean[:, None], self.columns, axis=1))

    def known(self) -> NDArray[np.int8]:
        """[entry]: what is known to fail."""
        return self.memory().known(self.space)

    def memory(self) -> Memory:
        """What was observed to violate and, for SUCBVI, to lead to dead ends."""
        witness = np.empty((self.space.rows, self.columns), np.int32)
        find_witnesses(self.counts, self.planning, witness, NO_WITNESS, VIOLATES)
        witness[(self.forbidden.used == 1) & (witness == NO_WITNESS)] = DECLARED
        return Memory(witness, self.by_row["max_violation"].used)

    def feasible(self) -> bool | None:
        """False if every action of a first state is known to fail."""
        return False if self.proved[0] else None

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        return self.memory().proof(self.space, int(self.proved[1])) if self.proved[0] else []

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        cells = {name: table.room[: self.state[0]] for name, table in self.by_cell.items()}
        dead = {"dead": self.dead.used, "proved": self.proved} if self.avoid_dead_ends else {}
        return used(self.by_row | self.by_slot) | cells | {"state": self.state} | dead

    def load(self, arrays: Any) -> None:
        """Restore the arrays, with as many cells as they hold."""
        cells = arrays["state"]
        if cells.dtype != np.int64 or cells.shape != (2,) or not 0 <= cells[0] <= len(arrays["count"]):
            raise ValueError("engine.state does not match engine.count")
        self.state[0] = cells[0]
        self._grow_cells(int(cells[0]))
        self._gather()
        super().load(arrays)

    def check(self, done: int) -> None:
        """Raise if a row, a cell or a number is out of range."""
        arrays, cells, most = self.arrays(), int(self.state[0]), done * self.space.horizon
        checked_rows(self.space, arrays["greedy"], self.columns, "engine.greedy")
        check_ranges(
            arrays,
            {
                "first": (NO_CELL, cells - 1), "before": (NO_CELL, cells - 1), "following": (0, self.space.slots - 1),
                "count": (0, most), "visits": (0, most), "reward": (-FINITE, FINITE), "w": (-FINITE, FINITE),
                "max_violation": (0.0, FINITE), "dead": (0, 1),
            },
        )  # fmt: skip
        check_lists(arrays["first"], arrays["before"])
        check_starts(self.space, arrays["begun"], done)
        if not (0 <= self.proved[0] <= done and 0 <= self.proved[1] < self.space.slots):
            raise ValueError("engine.proved: the episode or the state does not exist")


@inlined
def dead_end(counts: Counts, planning: Planning, row: int, column: int) -> int:
    """Return a dead slot that a row was observed to lead to; -1 if there is none."""
    cell = counts.first[row]
    while cell != NO_CELL and counts.dead[counts.following[cell], column + planning.shift] == 0:
        cell = counts.before[cell]
    return -1 if cell == NO_CELL else np.int64(counts.following[cell])


@loop
def find_witnesses(counts: Counts, planning: Planning, witness: Ints, none: int, violates: int) -> None:
    """Set [row, column]: why a row is known to fail."""
    for row in range(witness.shape[0]):
        for column in range(witness.shape[1]):
            led = dead_end(counts, planning, row, column) if planning.avoid_dead_ends else -1
            witness[row, column] = violates if counts.max_violation[row] > 0.0 else led if led >= 0 else none


@loop
def count_step(counts: Counts, row: int, following: int, reward: float, violation: float) -> None:
    """Count a transition."""
    counts.visits[row] += 1
    counts.reward[row] += reward
    counts.max_violation[row] = max(counts.max_violation[row], violation)
    cell = counts.first[row]
    while cell != NO_CELL and counts.following[cell] != following:
        cell = counts.before[cell]
    if cell == NO_CELL:
        cell = np.int32(counts.state[0])
        counts.state[0] += 1
        counts.following[cell] = following
        counts.count[cell] = 0
        counts.before[cell] = counts.first[row]
        counts.first[row] = cell
    counts.count[cell] += 1


@loop
def count_played(counts: Counts, row: Longs, following: Longs, reward: Floats, violation: Floats) -> None:
    """Count the transitions of an episode, [step]."""
    for step in range(row.shape[0]):
        count_step(counts, row[step], following[step], reward[step], violation[step])


@loop
def note_dead_ends(counts: Counts, planning: Planning, first: int, violated: bool, episode: int) -> None:
    """For SUCBVI: plan again after a violation; record the first episode that began in a dead state."""
    if planning.avoid_dead_ends and violated:
        counts.state[1] = episode + 1
    if counts.dead[first, 0] == 1 and counts.proved[0] == 0:
        counts.proved[0], counts.proved[1] = episode, first
