"""Tables of the certified learner, for models and for environments whose states are discovered online.

A *distribution* stands for the pairs that share the distribution of the next state (together with the reward, if it
depends on the outcome); unless something is declared, each row has its own. The distribution of the first state is
number 0. Samples are kept as cells: a next slot, the reward, and a count; the cells of a distribution are a list in the
order of their first samples. A *group* is a set of rows with the same constraints. Other index spaces: `types`.

A column of a table is a step if steps share slots; otherwise there is one column.

If the next state is declared to be g(s, a, noise), there is one distribution, that of the noise: its cells are the
noises, and the next slot of a cell depends on the row. A next state that was not visited has no slot: UNMET.

All states of a model are added before the first episode. If states are discovered online, then in a state first visited
after the candidate was frozen

    candidate  the first action whose constraints were known then to be satisfied, else the first not known to violate,
               else the first
    gap        (H-h)(most-lo), 0 if no other action was left then
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.base import check_ranges
from peakrl.learners.certified.declared import NOISE, UNMET, Declared
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES
from peakrl.learners.space import Space
from peakrl.learners.tables import FINITE, alike
from peakrl.types import Bytes, Floats, Ints, Longs

#: Witness of an entry that is not ruled out.
OPEN = NO_WITNESS
#: The distribution of the first state.
FIRST = 0
#: Kinds of episodes: greedy in U, of the challenger, of the candidate.
OPTIMISTIC, CHALLENGE, CANDIDATE = range(3)
#: What was known of a group when the candidate was frozen: satisfied, or violated; else 0.
JUDGED_KEPT, JUDGED_BAD = 1, 2
#: Steps of the grids on which returns and gaps of the frozen candidate are counted.
GRID = 1 << 16
#: `Tables.counts`: episodes of the frozen candidate, those that violated, episodes since the gaps were frozen.
PLAYED, VIOLATED, GAUGED = range(3)
#: `Tables.scale`: least and most return, largest frozen gap (-1: none), sum of returns, sum of their squares.
LEAST, MOST, TOP, SUM, SQUARES = range(5)


class Tables(NamedTuple):
    """What kernels read and write; arrays may be longer than what is in use."""

    horizon: int
    #: 1 if steps share slots, so that a column is a step; otherwise 0.
    shift: int
    #: Distance of two columns in the nodes of a change log.
    node_stride: int
    #: Number of slots, the first ones, that are ends of episodes.
    ends: int
    #: The lowest and the highest reward of a step (of steps without a violation, if that is declared).
    least: float
    most: float
    #: Does the reward depend on the outcome? Then bounds are on reward plus next value.
    joint: bool
    deterministic: bool
    #: Are all states known? Then the largest W of a step bounds those that were not visited.
    complete: bool
    #: Number of noises, if s' = g(s, a, noise) is declared.
    noises: int

    #: The slots with actions of a step: slots[step_slots[step, 0]] .. slots[step_slots[step, 1]].
    step_slots: Longs
    slots: Ints
    #: Rows of a group: group_rows[group_start[g]] .. group_rows[group_start[g + 1]].
    group_start: Longs
    group_rows: Ints
    #: [slot]: its first row, with one more for the end of the last.
    row_start: Longs
    #: [row]
    distribution_of_row: Ints
    group_of_row: Ints
    slot_of_row: Ints
    #: [row, noise]: the next slot.
    noise_next: Ints

    #: [row, column]: U, why ruled out, and the samples of its distribution at the last update.
    upper: Floats
    witness: Ints
    updated: Longs
    #: [slot, column], with a column after the last step: W, and is it dead.
    value: Floats
    dead: Bytes
    #: [slot, column]: the greedy row; those of the candidate, of the episodes that are not greedy, of the challenger.
    greedy: Ints
    candidate: Ints
    followed: Ints
    challenger: Ints
    #: [slot, column]: the gap as frozen.
    gap: Floats
    #: [step]: B, at least every W of the step.
    top: Floats
    #: [row]: is the reward known (now, and when the gaps were frozen), and the reward.
    known: Bytes
    then_known: Bytes
    reward: Floats
    #: [group]: was it tested, its largest violation (now, and when the gaps were frozen), `JUDGED_...`.
    tested: Bytes
    max_violation: Floats
    then_max_violation: Floats
    judged: Bytes
    #: [distribution]: log(1/d) of one bound, samples, first and last cell (-1: none).
    log_share: Floats
    samples: Longs
    cell_first: Longs
    cell_last: Longs
    #: [distribution, step], or [row + 1, step] if dynamics are declared: the best nu of the last bound; only one column
    #: if every distribution belongs to one step.
    guess: Floats
    #: [cell]: the next cell of the same distribution (-1: none).
    cell_after: Longs
    #: [cell]: distribution, next slot, reward (if it depends on the outcome), samples, samples before the candidate was
    #: frozen; samples of either kind when the gaps were frozen.
    cell_distribution: Ints
    cell_next: Ints
    cell_reward: Floats
    cell_count: Longs
    cell_before: Longs
    then_count: Longs
    then_before: Longs
    #: Number of cells.
    cells: Longs

    #: Evidence on the frozen candidate: `PLAYED` .., histogram of returns (least + width * index / GRID), of largest
    #: gaps (top * index / GRID), `LEAST` ...
    counts: Longs
    returns: Longs
    gaps: Longs
    scale: Floats

    #: Scratch: values and counts of the samples of one distribution.
    sample_value: Floats
    sample_count: Longs
    #: [distribution]: the step of `bound_value`, the bound, and a dead slot among the samples (or OPEN).
    bound_step: Longs
    bound_value: Floats
    bound_dead: Longs
    #: [step]: the current episode.
    path_slot: Longs
    path_row: Longs
    path_next: Longs
    path_reward: Floats
    path_violation: Floats


@dataclass
class Status:
    """Progress of the learner."""

    #: Kind of the current episodes and how many are left, and how many follow of the challenger and of the candidate.
    kind: int = OPTIMISTIC
    left: int = 0
    challenges: int = 0
    candidates: int = 0
    #: Is the candidate frozen, its number, and the number of attempts at certificate 2.
    frozen: int = 0
    policies: int = 0
    attempts: int = 0
    #: Episodes so far.
    episodes: int = 0
    #: An observed first slot that is dead.
    dead_first: int = OPEN


class Field(NamedTuple):
    """Declaration of a table."""

    axis: str
    dtype: Any
    #: Second axis, if it has one.
    tail: str = ""
    fill: float = 0
    #: Range of the values in a file; `high` may be an axis. Tables without a range are not kept: they are scratch or
    #: follow from the others.
    low: float | None = None
    high: float | str = math.inf


BYTE, INT, LONG, FLOAT = np.int8, np.int32, np.int64, np.float64
FIELDS = {
    "row_start": Field("slot end", LONG),
    **dict.fromkeys(("distribution_of_row", "group_of_row", "slot_of_row"), Field("row", INT)),
    "noise_next": Field("row", INT, "noise", UNMET),
    "upper": Field("row", FLOAT, "column", low=-FINITE, high=FINITE),
    "witness": Field("row", INT, "column", OPEN, low=DECLARED, high="slot"),
    "updated": Field("row", LONG, "column", low=0),
    "value": Field("slot", FLOAT, "column after", low=-FINITE, high=FINITE),
    "dead": Field("slot", BYTE, "column after", low=0, high=1),
    **dict.fromkeys(("greedy", "candidate", "followed", "challenger"), Field("slot", INT, "column", low=0)),
    "gap": Field("slot", FLOAT, "column", low=0, high=FINITE),
    "top": Field("step", FLOAT, low=-FINITE, high=FINITE),
    **dict.fromkeys(("known", "then_known"), Field("row", BYTE, low=0, high=1)),
    "reward": Field("row", FLOAT, low=-FINITE, high=FINITE),
    "tested": Field("group", BYTE, low=0, high=1),
    **dict.fromkeys(("max_violation", "then_max_violation"), Field("group", FLOAT, low=0, high=FINITE)),
    "judged": Field("group", BYTE, low=0, high=JUDGED_BAD),
    "log_share": Field("distribution", FLOAT),
    "samples": Field("distribution", LONG),
    **dict.fromkeys(("cell_first", "cell_last"), Field("distribution", LONG, fill=-1)),
    "guess": Field("row end", FLOAT, "line", -math.inf, low=-math.inf),
    "cell_after": Field("cell", LONG, fill=-1),
    "cell_distribution": Field("cell", INT, low=0, high="distribution"),
    "cell_next": Field("cell", INT, low=0, high="slot"),
    "cell_reward": Field("cell", FLOAT, low=-FINITE, high=FINITE),
    **dict.fromkeys(("cell_count", "cell_before", "then_count", "then_before"), Field("cell", LONG, low=0)),
    "cells": Field("one", LONG),
    "counts": Field("three", LONG, low=0),
    **dict.fromkeys(("returns", "gaps"), Field("grid", LONG, low=0)),
    "scale": Field("five", FLOAT, low=-FINITE, high=FINITE),
    "sample_value": Field("cell", FLOAT),
    "sample_count": Field("cell", LONG),
    "bound_value": Field("distribution", FLOAT),
    **dict.fromkeys(("bound_step", "bound_dead"), Field("distribution", LONG)),
    **dict.fromkeys(("path_slot", "path_row", "path_next"), Field("step", LONG)),
    **dict.fromkeys(("path_reward", "path_violation"), Field("step", FLOAT)),
}
KEPT = {name: field for name, field in FIELDS.items() if field.low is not None}


class SpaceTables:
    """The tables on a space, which grow with it."""

    def __init__(self, space: Space, declared: Declared, failure_probability: float) -> None:
        self.space, self.declared, self.facts = space, declared, declared.facts
        self.failure_probability, self.status = failure_probability, Status()
        facts, horizon, shift = self.facts, space.horizon, int(space.shared)
        least, most = facts.reward_range
        self.columns, self.groups, self.distributions = horizon if shift else 1, 0, 2 if facts.noises else 1
        lengths = {"": (), "noise": (facts.noises,), "column": (self.columns,)}
        lengths |= {"column after": (self.columns + shift,), "line": (horizon + 1 if shift else 1,)}
        self._store = {name: Table(f.fill, f.dtype, *lengths[f.tail]) for name, f in FIELDS.items()}
        self._settled = -1
        none = np.empty(0, np.int32)
        self.tables = Tables(
            horizon=horizon, shift=shift, node_stride=space.layout.node_stride,
            ends=space.ends if least <= 0.0 <= most else 0, least=least, most=facts.most, joint=facts.joint,
            deterministic=facts.deterministic, complete=not facts.growing, noises=facts.noises,
            step_slots=np.zeros((horizon, 2), np.int64), slots=none, group_start=np.zeros(1, np.int64), group_rows=none,
            **{name: table.room for name, table in self._store.items()},
        )  # fmt: skip
        self._enlarge(declared.cells + facts.noises)
        self.tables.top[:] = self.start
        self.tables.scale[:] = horizon * least, horizon * most, -1.0, 0.0, 0.0
        self.tables.cell_distribution[: facts.noises], self.tables.cells[0] = NOISE, facts.noises
        self.sort_cells()

    @property
    def start(self) -> Floats:
        """[step]: the first B."""
        most = max(self.facts.most, 0.0) if self.tables.ends else self.facts.most
        return np.asarray(most * np.arange(self.space.horizon, -1.0, -1.0))

    # Sizes ---------------------------------------------------------------------------------------------------

    def _sizes(self, cells: int) -> dict[str, int]:
        """Return the length of each axis."""
        slots, rows = self.space.slots, self.space.rows
        return {
            "slot": slots, "slot end": slots + 1, "row": rows, "row end": rows + 1, "group": self.groups,
            "distribution": self.distributions, "cell": cells, "step": self.space.horizon + 1, "grid": GRID + 1,
            "one": 1, "three": 3, "five": 5,
        }  # fmt: skip

    def _enlarge(self, cells: int) -> None:
        """Enlarge the tables to the sizes of the space, with room for an episode more than `cells` cells."""
        sizes = self._sizes(cells + self.space.horizon + 1)
        for name, field in FIELDS.items():
            self._store[name].grow(sizes[field.axis])
        self.tables = self.tables._replace(**{name: table.room for name, table in self._store.items()})

    def make_room(self) -> None:
        """Make room for the cells of an episode."""
        if self.tables.cells[0] + self.space.horizon + 1 > len(self.tables.cell_next):
            self._enlarge(int(self.tables.cells[0]))

    def sort_cells(self) -> None:
        """Sort the cells by distribution, that of the first state last, so that kernels find the lists in order."""
        t, cells = self.tables, np.arange(self.tables.cells[0])
        order = np.argsort((t.cell_distribution[: len(cells)] - 1) % self.distributions, kind="stable")
        for name in (name for name, field in KEPT.items() if field.axis == "cell"):
            column = getattr(t, name)
            column[: len(cells)] = column[order]
        owner = t.cell_distribution[: len(cells)]
        next_owner = np.append(owner[1:], -1)[: len(cells)]
        t.cell_after[: len(cells)] = np.where(next_owner == owner, cells + 1, -1)
        t.cell_first[owner[::-1]], t.cell_last[owner] = cells[::-1], cells

    # States --------------------------------------------------------------------------------------------------

    def grow(self, first: int) -> None:
        """Add the slots from `first` on."""
        space, first = self.space, max(first, self.space.ends)
        start = space.layout.row_start
        rows = slice(int(start[first]), space.rows)
        distributions, groups, rewards = self.declared.rows(rows.start)
        self.groups = max(self.groups, int(groups.max(initial=-1)) + 1)
        self.distributions = max(self.distributions, int(distributions.max(initial=0)) + 1)
        self._enlarge(int(self.tables.cells[0]))
        t = self.tables
        t.row_start[first : len(start)] = start[first:]
        t.distribution_of_row[rows], t.group_of_row[rows] = distributions, groups
        t.slot_of_row[rows] = space.slot_of_row[rows]
        if rewards is not None:
            t.known[rows], t.reward[rows] = 1, rewards
        numbers = np.append(distributions, FIRST)
        t.log_share[numbers] = self.declared.upper_logs(numbers, self.failure_probability)
        for slots in self._alike(first):
            self._add(slots)
        if self.facts.noises:
            self.declared.lead(t.noise_next, first)
        if space.shared and space.slots - space.ends == self.facts.states:
            self.tables = t._replace(complete=True)
        if not self.facts.growing:
            self.settle()

    def _alike(self, first: int) -> Iterator[Longs]:
        """Yield the slots from `first` on that have actions, grouped by their number."""
        sizes = np.diff(self.tables.row_start[first : self.space.slots + 1])
        for size in np.unique(sizes[sizes > 0]):
            yield first + np.flatnonzero(sizes == size)

    def steps(self, slots: Longs | Ints) -> Longs:
        """[slot, column]: the steps of slots."""
        if self.space.shared:
            return np.arange(self.space.horizon)[None].repeat(len(slots), axis=0)
        return self.space.slot_step[slots][:, None]

    def _rows(self, slots: Longs) -> Longs:
        """[slot, action]: the rows of slots that have the same number of actions."""
        first, last = self.tables.row_start[slots], self.tables.row_start[slots[0] + 1]
        return np.asarray(first[:, None] + np.arange(last - first[0]))

    def _add(self, slots: Longs) -> None:
        """Add new slots that have the same number of actions."""
        t, rows, steps = self.tables, self._rows(slots), self.steps(slots)
        groups = t.group_of_row[rows]
        candidate = rows[:, :1] + first_of(t.judged[groups])[:, None]
        others = ((t.then_max_violation[groups] == 0) & (rows != candidate)).any(axis=1, keepdims=True)
        t.upper[rows], t.value[slots, : self.columns] = t.top[steps][:, None], t.top[steps]
        t.witness[rows] = np.where(t.max_violation[groups] > 0, VIOLATES, OPEN)[:, :, None]
        t.gap[slots] = np.where(others, (t.horizon - steps) * (t.most - t.least), 0.0)
        self._set_rows(slots, rows, candidate)

    def _set_rows(self, slots: Longs, rows: Longs, candidate: Longs) -> None:
        """Set the rows that are followed in new slots, given [slot, column] the candidate."""
        t, first = self.tables, rows[:, :1]
        is_open = t.witness[rows] == OPEN  # [slot, action, column]
        dead = ~is_open.any(axis=1)
        least_violating = t.max_violation[t.group_of_row[rows]].argmin(axis=1)[:, None]
        other = is_open & (rows[:, :, None] != candidate[:, None])
        t.dead[slots, : self.columns] = dead
        t.greedy[slots] = first + np.where(dead, least_violating, is_open.argmax(axis=1))
        t.candidate[slots] = candidate
        t.challenger[slots] = np.where(other.any(axis=1), first + other.argmax(axis=1), candidate)
        t.followed[slots] = (t.challenger if self.status.kind == CHALLENGE else t.candidate)[slots]

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats, *, declared: bool) -> None:
        """Rule out [row - first, column] of the rows from `first` on, new ones; `declared`: constraints are declared.

        The candidate is restricted to what is left. All upper values of a new state are equal, so the first row that is
        left is greedy.
        """
        t, rows = self.tables, slice(first, first + len(forbidden))
        t.witness[rows][forbidden & (t.witness[rows] == OPEN)] = DECLARED
        groups, always = t.group_of_row[rows], forbidden.all(axis=1)
        np.maximum.at(t.max_violation, groups[always], max_violation[always])
        if declared:
            t.tested[groups[always | ~forbidden.any(axis=1)]] = 1
        for slots in self._alike(int(t.slot_of_row[first])) if len(forbidden) else ():
            own = self._rows(slots)
            ruled_out = t.witness[own] == DECLARED
            judged = t.judged[t.group_of_row[own]][:, :, None]
            kinds = np.where(ruled_out & ~ruled_out.all(axis=1, keepdims=True), JUDGED_BAD, judged)
            self._set_rows(slots, own, own[:, :1] + first_of(kinds))
        if not self.facts.growing:  # in a dead state the first row as well
            t.greedy[:] = t.candidate

    def settle(self) -> None:
        """Sort the slots by step and the rows by group if there are new ones."""
        t, space = self.tables, self.space
        if self._settled == space.slots:
            return
        self._settled = space.slots
        slots = np.flatnonzero(np.diff(t.row_start[: space.slots + 1])).astype(np.int32)
        spans = np.tile([0, len(slots)], (space.horizon, 1))
        if not space.shared:
            steps = space.slot_step[slots]
            slots, bounds = slots[np.argsort(steps, kind="stable")], np.arange(space.horizon + 1)
            found = np.searchsorted(np.sort(steps), bounds)
            spans = np.stack([found[:-1], found[1:]], axis=1)
        group = t.group_of_row[: space.rows]
        order = np.argsort(group, kind="stable").astype(np.int32)
        start = np.searchsorted(group[order], np.arange(self.groups + 1))
        self.tables = t._replace(step_slots=spans, slots=slots, group_start=start, group_rows=order)

    # Files ---------------------------------------------------------------------------------------------------

    def kept(self) -> dict[str, NDArray[Any]]:
        """Return everything that was learned, by name."""
        sizes = self._sizes(int(self.tables.cells[0]))
        status = np.array(astuple(self.status), np.int64)
        return {name: self._store[name].room[: sizes[f.axis]] for name, f in KEPT.items()} | {"status": status}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `kept` returned, for the same states; raise ValueError if it does not fit."""
        cells = arrays["cell_distribution"].size
        self._enlarge(cells)
        t, sizes = self.tables, self._sizes(cells)
        t.cells[0] = cells
        for name, array in SpaceTables.kept(self).items():
            alike(array, arrays[name], f"engine.{name}")
        limits = {f.high: sizes[f.high] - 1 for f in KEPT.values() if isinstance(f.high, str)}
        check_ranges(arrays, {name: (f.low or 0, limits.get(f.high, f.high)) for name, f in KEPT.items()})
        for name in KEPT:
            getattr(t, name)[: len(arrays[name])] = arrays[name]
        self.status = Status(*arrays["status"].tolist())
        self._check()
        self.sort_cells()
        np.add.at(t.samples, t.cell_distribution[:cells], t.cell_count[:cells])
        self.settle()

    def _check(self) -> None:
        """Raise ValueError if restored tables contradict each other."""
        t, space, noises = self.tables, self.space, self.facts.noises
        start = t.row_start[: space.slots + 1, None]
        for name in ("candidate", "followed", "challenger", "greedy"):
            rows = getattr(t, name)[: space.slots]
            if (((rows < start[:-1]) | (rows >= start[1:])) & (start[:-1] < start[1:])).any():
                raise ValueError(f"engine.{name} names a row of another state")
        owner = t.cell_distribution[: t.cells[0]]
        if noises and ((owner == NOISE) != (np.arange(len(owner)) < noises)).any():
            raise ValueError("engine.cell_distribution has a wrong number of noises")
        if 0 <= t.scale[TOP] < t.gap.max(initial=0.0):  # gaps become indices of a grid over [0, top]
            raise ValueError("engine.gap is out of range")
        status, dead_first = self.status, self.status.dead_first
        if not (0 <= status.kind <= CANDIDATE and (dead_first == OPEN or 0 <= dead_first < space.slots)):
            raise ValueError("engine.status is out of range")


def first_of(judged: NDArray[np.int8]) -> Longs:
    """Return the index (axis 1) of the first action known to be satisfied, else not known to violate, else 0."""
    kept = judged == JUDGED_KEPT
    return np.asarray(np.where(kept.any(axis=1, keepdims=True), kept, judged != JUDGED_BAD).argmax(axis=1))
