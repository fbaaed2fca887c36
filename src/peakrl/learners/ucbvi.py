"""UCBVI and SUCBVI, optimistic planners on counts, as yardsticks (formulas: `learners.ucbvi_kernel`).

Both remember what was seen to violate. UCBVI knows nothing of dead ends: it is for problems where every state keeps a
safe action. SUCBVI heeds them as well, and proves infeasible what is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.learners.assumptions.limits import allowed_rows
from peakrl.learners.base import Choices, Episode, SamplingAlgorithm, Task, compiled, used
from peakrl.learners.constrained_q_kernel import Log
from peakrl.learners.constraint_memory import DECLARED, NO_WITNESS, VIOLATES
from peakrl.learners.coverage import collect
from peakrl.learners.coverage_kernel import Outcomes
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import Memory, Witness
from peakrl.learners.settings import LearnerSettings
from peakrl.learners.space import checked_rows
from peakrl.learners.ucbvi_kernel import (
    NO_CELL,
    Counts,
    Planning,
    count_played,
    find_witnesses,
    heed,
    learn_counting,
    plan_if_due,
)
from peakrl.sampling import Words
from peakrl.types import Floats, Longs


class UCBVI(LearnerSettings):
    """Settings of the optimistic planner."""

    #: c: standard errors that a pair is granted.
    bonus: float = Field(default=0.5, ge=0)

    def make(self, task: Task) -> CountingPlanner:
        """Return the algorithm for a target."""
        return CountingPlanner(task, self)


class SUCBVI(UCBVI):
    """Settings of the optimistic planner that heeds dead ends."""

    def make(self, task: Task) -> CountingPlanner:
        """Return the algorithm for a target."""
        return CountingPlanner(task, self, heeds=True)


class CountingPlanner(SamplingAlgorithm):
    """Counts on a space, and the plan that is followed."""

    starts_first = True

    def __init__(self, task: Task, settings: UCBVI, *, heeds: bool = False) -> None:
        super().__init__(task)
        self.bonus, self.heeds = settings.bonus, heeds
        self.shares_steps = self.space.shared
        self.by_row = {
            "visits": Table(0, np.int64), "reward": Table(0.0, np.float64), "harm": Table(0.0, np.float64),
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
        #: [row, column]: what is declared to fail; it follows from the declaration, so no file holds it.
        self.barred = Table(0, np.int8, self.columns)
        #: The episode that began in a dead state, and its slot.
        self.proved = np.zeros(2, np.int64)
        #: Cells in use, and the episode that plans next.
        self.state = np.array([0, 1], np.int64)
        horizon = task.sizes.horizon
        self._rows, self._followings, self._records = (np.zeros(horizon, np.int64) for _ in range(3))
        if task.model is not None:
            self.payoff = np.stack([task.model.payoffs.reward, task.model.record_violation], axis=1)
            sizes = np.diff(task.model.layout.outcome_start)[task.model.layout.row_distribution]
            self._grow_cells(int(sizes.sum()))  # one for each outcome of a row is all that there can be

    def _grow_cells(self, cells: int) -> None:
        for table in self.by_cell.values():
            table.grow(cells)

    def grow(self, first: int, episode: int, log: Log, changes: int) -> int:
        """Make room for the slots from `first` on: untried, so worth all that there may be."""
        space, sizes = self.space, self.task.sizes
        for table in (*self.by_row.values(), self.barred):
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
        return changes

    def _gather(self) -> None:
        """Put the arrays, which may have moved, before the kernels."""
        self.layout = self.space.layout
        rooms: dict[str, Any] = {
            name: table.room for name, table in (self.by_row | self.by_cell | self.by_slot).items()
        }
        self.counts = Counts(
            state=self.state, dead=self.dead.room, proved=self.proved, barred=self.barred.room, **rooms
        )
        self._planning: Planning | None = None

    @property
    def planning(self) -> Planning:
        """What a plan needs to know; the order of slots is found when one is made, not whenever a state comes."""
        if self._planning is None:
            space, sizes = self.space, self.task.sizes
            offering = np.flatnonzero(np.diff(self.layout.row_start) > 0)
            order = offering if space.shared else offering[np.argsort(-space.slot_step[offering], kind="stable")]
            self._planning = Planning(
                int(space.shared), order, space.slot_step, sizes.reward_range[0], sizes.span, self.bonus, self.heeds
            )
        return self._planning

    def forbid(self, first: int, forbidden: NDArray[np.bool_], harm: Floats) -> None:
        """Plan without what is declared to fail."""
        rows = slice(first, first + len(forbidden))
        self.barred.room[rows] = forbidden
        known = self.by_row["harm"].room
        known[rows] = np.maximum(known[rows], np.where(forbidden.all(axis=1), harm, 0.0))
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        best, _ = allowed_rows(self.layout.row_start[low:], forbidden, first)
        followed = self.by_slot["greedy"].room[low : self.space.slots]
        followed[:] = np.where(best >= 0, best, followed)

    def begin(self, episode: int, generator: Words, log: Log, changes: int) -> int:
        """Plan, where it is time to."""
        if episode < self.state[1]:
            return changes
        return plan_if_due(self.layout, self.counts, self.planning, log, episode, changes)

    def choices(self) -> Choices:
        """The latest plan."""
        return Choices.by_column(self.counts.greedy)

    def learn(self, played: Episode, episode: int, log: Log, changes: int) -> int:
        """Count every transition of an episode."""
        if self.state[0] + played.length > len(self.by_cell["count"].room):
            self._grow_cells(int(self.state[0]) + played.length)
            self._gather()
        self.counts.begun[played.slot[0]] += 1
        steps = slice(0, played.length)
        count_played(
            self.counts, played.row[steps], played.following[steps], played.reward[steps], played.violation[steps]
        )
        if self.heeds:
            heed(self.counts, self.planning, played.slot[0], bool(played.violation[steps].any()), episode)
        return changes

    def run(
        self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs
    ) -> tuple[int, int]:
        """Run some episodes of the model, fewer where the log fills up."""
        model = compiled(self.task)
        return learn_counting(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
            self.counts, self.planning, self._rows, self._followings, self._records,
            generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    # What came out -------------------------------------------------------------------------------------------

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the latest plan."""
        return self.by_slot["greedy"].used.copy()

    def visits(self) -> Longs | None:
        """[row]: how often it was taken."""
        return np.asarray(self.by_row["visits"].used)

    def outcomes(self) -> Outcomes | None:
        """What followed each row."""
        cells = {name: table.room[: self.state[0]] for name, table in self.by_cell.items()}
        return collect(
            self.by_row["first"].used, cells["before"], cells["following"], cells["count"],
            np.arange(self.space.rows, dtype=np.int32), self.by_slot["begun"].used,
        )  # fmt: skip

    def values(self) -> Floats:
        """[entry]: mean reward of each pair, from the lower end of the range; what follows is in the plan."""
        visits = np.maximum(self.by_row["visits"].used, 1)
        mean = np.where(self.by_row["visits"].used > 0, self.by_row["reward"].used / visits, np.nan)
        return self.space.entries_of(np.repeat(mean[:, None], self.columns, axis=1))

    def known(self) -> NDArray[np.int8]:
        """[entry]: what was seen to violate."""
        return self.memory().known(self.space)

    def memory(self) -> Memory:
        """What was seen to violate and, where that is heeded, to lead to dead ends."""
        witness = np.empty((self.space.rows, self.columns), np.int32)
        find_witnesses(self.counts, self.planning, witness, NO_WITNESS, VIOLATES)
        witness[(self.barred.used == 1) & (witness == NO_WITNESS)] = DECLARED
        return Memory(witness, self.by_row["harm"].used)

    def feasible(self) -> bool | None:
        """False when a first state has been seen to leave no way out."""
        return False if self.proved[0] else None

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        return self.memory().proof(self.space, int(self.proved[1])) if self.proved[0] else []

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        cells = {name: table.room[: self.state[0]] for name, table in self.by_cell.items()}
        heeded = {"dead": self.dead.used, "proved": self.proved} if self.heeds else {}
        return used(self.by_row | self.by_slot) | cells | {"state": self.state} | heeded

    def load(self, arrays: Any) -> None:
        """Take over what `arrays` gave; so many cells were in use."""
        cells = arrays["state"]
        if cells.dtype != np.int64 or cells.shape != (2,) or not 0 <= cells[0] <= len(arrays["count"]):
            raise ValueError("engine.state holds a number that cannot be")
        self.state[0] = cells[0]
        self._grow_cells(int(cells[0]))
        self._gather()
        super().load(arrays)

    def check(self, done: int) -> None:
        """Raise where a list of cells leads nowhere, or a count cannot be."""
        cells, most = int(self.state[0]), done * self.space.horizon
        first, before = self.by_row["first"].used, self.by_cell["before"].room[:cells]
        count, following = (self.by_cell[name].room[:cells] for name in ("count", "following"))
        visits = self.by_row["visits"].used
        checked_rows(self.space, self.by_slot["greedy"].used, self.columns, "engine.greedy")
        if (first < NO_CELL).any() or (first >= cells).any() or (before < NO_CELL).any():
            raise ValueError("engine.first leads nowhere")
        if (before >= np.arange(cells)).any():  # a list leads to ever earlier cells, so it ends
            raise ValueError("engine.before leads nowhere")
        if cells and not (following.min() >= 0 and following.max() < self.space.slots and count.min() >= 0):
            raise ValueError("engine.following names a state that there is not")
        if visits.min(initial=0) < 0 or visits.max(initial=0) > most or int(count.sum()) != int(visits.sum()):
            raise ValueError("engine.visits holds a number that cannot be")
        check_chains(first, before, count, visits)
        begun = self.by_slot["begun"].used
        if begun.min(initial=0) < 0 or int(begun.sum()) != done:
            raise ValueError("engine.begun holds a number that cannot be")
        finite = all(np.isfinite(table.used).all() for table in (self.by_row["reward"], self.by_row["harm"]))
        if not finite or not np.isfinite(self.by_slot["w"].used).all():
            raise ValueError("engine.reward holds what is no number")
        dead = self.dead.used
        if ((dead < 0) | (dead > 1)).any() or not (0 <= self.proved[0] <= done and 0 <= self.proved[1] < len(dead)):
            raise ValueError("engine.dead holds what cannot be")
        if self.proved[0] and not dead[self.proved[1], 0]:
            raise ValueError("engine.proved tells of a proof that rests on nothing")


def check_chains(first: NDArray[Any], before: NDArray[Any], count: NDArray[Any], visits: NDArray[Any]) -> None:
    """Raise unless every cell is in just one row's list, and the counts of each list are the visits of its row."""
    led = np.concatenate([first, before])
    led = led[led != NO_CELL]
    if len(led) != len(count) or len(np.unique(led)) != len(led):
        raise ValueError("engine.before leads two lists to one outcome, or none to another")
    sums, rows = np.zeros(len(first), np.int64), np.flatnonzero(first != NO_CELL)
    cells = first[rows]
    while len(cells):  # all lists at once, a cell of each after the other
        sums[rows] += count[cells]
        rows, cells = rows[before[cells] != NO_CELL], before[cells][before[cells] != NO_CELL]
    if (sums != visits.reshape(-1)).any():
        raise ValueError("engine.count does not add up to engine.visits")
