"""Counted transitions: how often each row was taken, and where it led; and the base of learners that plan on them.

The next slots of a row are a linked list of cells, the newest first: `first[row]` is the newest cell, `before[cell]`
leads to the older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import numpy as np

from peakrl.jit import loop
from peakrl.learners.assumptions import Forbidden
from peakrl.learners.base import T, TabularAlgorithm, Task
from peakrl.learners.coverage import Outcomes, collect
from peakrl.learners.episode import Path
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES, Memory
from peakrl.learners.tables import table
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Longs

NO_CELL = -1


class TransitionCounts(NamedTuple):
    """Counted transitions."""

    #: [row]: visits, sum of rewards, largest violation observed, newest cell.
    visits: Annotated[Longs, table("row", low=0, high="steps")]
    reward: Annotated[Floats, table("row")]
    max_violation: Annotated[Floats, table("row", low=0.0)]
    first: Annotated[Ints, table("row", fill=NO_CELL, low=NO_CELL, below="cell")]
    #: [cell]: next slot, count, the cell before.
    following: Annotated[Ints, table("cell", low=0, below="slot")]
    count: Annotated[Longs, table("cell", low=0, high="steps")]
    before: Annotated[Ints, table("cell", fill=NO_CELL, low=NO_CELL, below="cell")]
    #: Number of cells.
    cells: Annotated[Longs, table(1, counts="cell")]
    #: [slot]: episodes that began in it.
    begun: Annotated[Longs, table("slot", low=0, high="done")]


@loop
def count_step(counts: TransitionCounts, row: int, following: int, reward: float, violation: float) -> None:
    """Count a transition."""
    counts.visits[row] += 1
    counts.reward[row] += reward
    counts.max_violation[row] = max(counts.max_violation[row], violation)
    cell = np.int64(counts.first[row])
    while cell != NO_CELL and counts.following[cell] != following:
        cell = np.int64(counts.before[cell])
    if cell == NO_CELL:
        cell = counts.cells[0]
        counts.cells[0] += 1
        counts.following[cell] = following
        counts.count[cell] = 0
        counts.before[cell] = counts.first[row]
        counts.first[row] = cell
    counts.count[cell] += 1


@loop
def count_path(counts: TransitionCounts, path: Path, length: int) -> None:
    """Count the steps of an episode."""
    counts.begun[path.first[0]] += 1
    for step in range(length):
        count_step(counts, path.row[step], path.following[step], path.payoff[step, 0], path.payoff[step, 1])


def cells_of(model: TabularModel | None) -> int:
    """Return the largest number of cells: one for each outcome of a row of a model; unknown, hence 0, otherwise."""
    if model is None:
        return 0
    sizes = np.diff(model.outcome_start)
    return int(sizes[model.row_distribution].sum())


def counted_outcomes(counts: TransitionCounts) -> Outcomes:
    """Return the counted transitions by row."""
    rows, cells = np.arange(len(counts.first), dtype=np.int32), slice(int(counts.cells[0]))
    return collect(counts.first, counts.before[cells], counts.following[cells], counts.count[cells], rows, counts.begun)


def check_lists(first: Ints, following: Ints) -> None:
    """Raise ValueError unless linked lists end: every cell has at most one predecessor, and a first cell has none."""
    used_cells = np.concatenate([first, following])
    used_cells = used_cells[used_cells >= 0]
    if len(np.unique(used_cells)) != len(used_cells) or len(used_cells) != len(following):
        raise ValueError("the lists of counted outcomes share a cell, or leave one out")
    cells = first[first >= 0]
    reached = 0
    while len(cells):  # one cell of every list at a time
        reached += len(cells)
        cells = following[cells]
        cells = cells[cells >= 0]
    if reached != len(following):
        raise ValueError("a list of counted outcomes does not end")


class CountingAlgorithm(TabularAlgorithm[T]):
    """Counted transitions, and the plan to follow.

    Its tables have `counts`, `greedy` and `forbidden` [row, column]: 1 if declared to fail.
    """

    def __init__(
        self, task: Task, kind: type[T], sizes: Mapping[str, int] = MappingProxyType({}), **constants: Any
    ) -> None:
        super().__init__(task, kind, {"cell": cells_of(task.model), **sizes}, **constants)

    @property
    def counts(self) -> TransitionCounts:
        """Counted transitions."""
        counts: TransitionCounts = self.tables.counts  # type: ignore[attr-defined]
        return counts

    def forbid(self, declared: Forbidden) -> None:
        """Plan without what is declared to fail."""
        self.take_allowed(declared)
        self.tables.forbidden[declared.first :] = declared.entries  # type: ignore[attr-defined]
        known = self.counts.max_violation[declared.first :]
        known[:] = np.maximum(known, np.where(declared.entries.all(axis=1), declared.max_violation, 0.0))

    # Results -------------------------------------------------------------------------------------------------

    def visits(self) -> Longs | None:
        """[row]: how often it was taken."""
        return self.counts.visits

    def outcomes(self) -> Outcomes | None:
        """Counted outcomes of each row."""
        return counted_outcomes(self.counts)

    def values(self) -> Floats:
        """[entry]: mean reward of each pair; NaN if untried."""
        counts = self.counts
        mean = np.where(counts.visits > 0, counts.reward / np.maximum(counts.visits, 1), np.nan)
        return self.space.entries_of(np.repeat(mean[:, None], self.columns, axis=1))

    def memory(self) -> Memory:
        """What was observed to violate or is declared to fail."""
        max_violation, forbidden = self.counts.max_violation, self.tables.forbidden  # type: ignore[attr-defined]
        unseen = np.where(forbidden == 1, DECLARED, NO_WITNESS)
        return Memory(np.where(max_violation[:, None] > 0.0, VIOLATES, unseen).astype(np.int32), max_violation)

    def check(self, done: int) -> None:
        """Raise if loaded tables are out of range."""
        super().check(done)
        check_lists(self.counts.first, self.counts.before[: int(self.counts.cells[0])])
