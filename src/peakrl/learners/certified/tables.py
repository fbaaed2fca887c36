"""Tables of the certified learner, for models and for environments whose states are discovered online.

A *distribution* stands for the pairs that share the distribution of the next state (together with the reward, if it
depends on the outcome); unless something is declared, each row has its own. The distribution of the first state is
number 0. Samples are kept as cells: a next slot, the reward, and a count; the cells of a distribution are a list in the
order of their first samples. A *group* is a set of rows with the same constraints. Other index spaces: `types`.

A column of a table is a step if steps share slots; otherwise there is one column.

If the next state is declared to be g(s, a, noise), there is one distribution, that of the noise: its cells are the
noises, and the next slot of a cell depends on the row. A next state that was not visited has no slot: UNMET.

If steps share slots, an end that an environment reports at the horizon may be the time limit, which is no outcome of
the pair. The first such sample counts with the next slot UNMET; after it the samples of last steps are left out, but of
pairs with no other sample, which count as UNMET too. So what counts is decided before its outcome.

All states of a model are added before the first episode. If states are discovered online, then in a state first visited
after the candidate was frozen

    candidate  the first action whose constraints were known then to be satisfied, else the first not known to violate,
               else the first
    gap        (H-h)(most-lo), 0 if no other action was left then
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from peakrl.learners.assumptions import Forbidden
from peakrl.learners.base import TabularAlgorithm, Task
from peakrl.learners.certified.bounds import UPPER
from peakrl.learners.certified.declared import NOISE, UNMET, Declared
from peakrl.learners.episode import Log
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES
from peakrl.learners.tables import declarations, table
from peakrl.types import Bytes, Floats, Ints, Longs

#: Witness of an entry that is not ruled out.
OPEN = NO_WITNESS
#: The distribution of the first state.
FIRST = 0
#: Kinds of episodes: greedy in U, of the challenger, of the candidate.
OPTIMISTIC, CHALLENGE, CANDIDATE = range(3)
#: What was known of a group when the candidate was frozen: satisfied, or violated; else 0.
JUDGED_KEPT, JUDGED_BAD = 1, 2
#: Declarations that forbid actions.
LIMITS = {"support", "constraints", "safe_policy"}
#: Steps of the grids on which returns and gaps of the frozen candidate are counted.
GRID = 1 << 16
#: `Tables.mode`: are the greedy rows followed, so that their changes are logged? Is the episode evidence?
LIVE, GAUGE = range(2)
#: `Tables.counts`: episodes of the frozen candidate, those that violated, episodes since the gaps were frozen.
PLAYED, VIOLATED, GAUGED = range(3)
#: `Tables.scale`: least and most return, largest frozen gap (-1: none), sum of returns, sum of their squares.
LEAST, MOST, TOP, SUM, SQUARES = range(5)


class Tables(NamedTuple):
    """What kernels read and write."""

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
    #: Number of slots, the first ones, that an environment may report at the horizon only because it is reached.
    last_ends: int

    #: The slots with actions of a step: slots[step_slots[step, 0]] .. slots[step_slots[step, 1]].
    step_slots: Longs
    slots: Ints
    #: Rows of a group: group_rows[group_start[g]] .. group_rows[group_start[g + 1]].
    group_start: Longs
    group_rows: Ints
    #: [slot]: its first row, with one more for the end of the last.
    row_start: Annotated[Longs, table("slot end", stored=False)]
    #: [row]
    distribution_of_row: Annotated[Ints, table("row", stored=False)]
    group_of_row: Annotated[Ints, table("row", stored=False)]
    slot_of_row: Annotated[Ints, table("row", stored=False)]
    #: [row, noise]: the next slot.
    noise_next: Annotated[Ints, table("row", "noise", fill=UNMET, stored=False)]

    #: [row, column]: U, why ruled out, and the samples of its distribution at the last update.
    upper: Annotated[Floats, table("row", "column")]
    witness: Annotated[Ints, table("row", "column", fill=OPEN, low=DECLARED, below="slot")]
    updated: Annotated[Longs, table("row", "column", low=0)]
    #: [slot, column], with a column after the last step: W, and is it dead.
    value: Annotated[Floats, table("slot", "after")]
    dead: Annotated[Bytes, table("slot", "after", low=0, high=1)]
    #: [slot, column]: the greedy row; those of the candidate, of the episodes that are not greedy, of the challenger.
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    candidate: Annotated[Longs, table("slot", "column", rows=True)]
    followed: Annotated[Longs, table("slot", "column", rows=True)]
    challenger: Annotated[Longs, table("slot", "column", rows=True)]
    #: [slot, column]: the gap as frozen.
    gap: Annotated[Floats, table("slot", "column", low=0)]
    #: [step]: B, at least every W of the step.
    top: Annotated[Floats, table("step after")]
    #: [row]: is the reward known (now, and when the gaps were frozen), and the reward.
    known: Annotated[Bytes, table("row", low=0, high=1)]
    then_known: Annotated[Bytes, table("row", low=0, high=1)]
    reward: Annotated[Floats, table("row")]
    #: [group]: was it tested, its largest violation (now, and when the gaps were frozen), `JUDGED_...`.
    tested: Annotated[Bytes, table("group", low=0, high=1)]
    max_violation: Annotated[Floats, table("group", low=0)]
    then_max_violation: Annotated[Floats, table("group", low=0)]
    judged: Annotated[Bytes, table("group", low=0, high=JUDGED_BAD)]
    #: [distribution]: log(1/d) of one bound, samples, first and last cell (-1: none).
    log_share: Annotated[Floats, table("distribution", stored=False)]
    samples: Annotated[Longs, table("distribution", stored=False)]
    cell_first: Annotated[Longs, table("distribution", fill=-1, stored=False)]
    cell_last: Annotated[Longs, table("distribution", fill=-1, stored=False)]
    #: [distribution, step], or [row + 1, step] if dynamics are declared: the best nu of the last bound; only one column
    #: if every distribution belongs to one step.
    guess: Annotated[Floats, table("row end", "line", fill=-np.inf, low=-np.inf, high=np.inf)]
    #: [cell]: distribution, next slot, reward (if it depends on the outcome), samples, samples before the candidate was
    #: frozen; samples of either kind when the gaps were frozen.
    cell_distribution: Annotated[Ints, table("cell", low=0, below="distribution")]
    cell_next: Annotated[Ints, table("cell", low=UNMET, below="slot")]
    cell_reward: Annotated[Floats, table("cell")]
    cell_count: Annotated[Longs, table("cell", low=0)]
    cell_before: Annotated[Longs, table("cell", low=0)]
    then_count: Annotated[Longs, table("cell", low=0)]
    then_before: Annotated[Longs, table("cell", low=0)]
    #: [cell]: the next cell of the same distribution (-1: none).
    cell_after: Annotated[Longs, table("cell", fill=-1, stored=False)]
    #: Number of cells.
    cells: Annotated[Longs, table(1, counts="cell")]
    #: Was an end reported at the horizon, if steps share slots? The next states of last steps then do not count.
    ended: Annotated[Bytes, table(1, low=0, high=1)]

    #: `LIVE`, `GAUGE`.
    mode: Annotated[Bytes, table(2, stored=False)]
    #: Evidence on the frozen candidate: `PLAYED` .., histogram of returns (least + width * index / GRID), of largest
    #: gaps (top * index / GRID), `LEAST` ...
    counts: Annotated[Longs, table(3, low=0)]
    returns: Annotated[Longs, table(GRID + 1, low=0)]
    gaps: Annotated[Longs, table(GRID + 1, low=0)]
    scale: Annotated[Floats, table(5)]

    #: Scratch: values and counts of the samples of one distribution.
    sample_value: Annotated[Floats, table("cell", stored=False)]
    sample_count: Annotated[Longs, table("cell", stored=False)]
    #: [distribution]: the step of `bound_value`, the bound, and a dead slot among the samples (or OPEN).
    bound_step: Annotated[Longs, table("distribution", stored=False)]
    bound_value: Annotated[Floats, table("distribution", stored=False)]
    bound_dead: Annotated[Longs, table("distribution", stored=False)]


#: What is known of a cell.
CELL = tuple(name for name, _, how in declarations(Tables) if how.axes[0] == "cell" and how.stored)


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


class GrowingTables(TabularAlgorithm[Tables]):
    """The tables on a space, which grow with it."""

    def __init__(self, task: Task, declared: Declared, failure_probability: float) -> None:
        self.declared, self.facts, space = declared, declared.facts, task.space
        self.failure_probability, self.status = failure_probability, Status()
        facts, horizon, shift = self.facts, space.horizon, int(space.shared)
        least, most = facts.reward_range
        noises, none = facts.noises, np.empty(0, np.int32)
        sizes = {
            "slot end": 1, "row end": 1, "group": 0, "distribution": 2 if noises else 1,
            "cell": declared.cells + noises + horizon + 1, "step after": horizon + 1,
            "line": horizon + 1 if shift else 1, "noise": noises,
        }  # fmt: skip
        super().__init__(
            task, Tables, sizes, horizon=horizon, node_stride=space.layout.node_stride,
            ends=space.ends if least <= 0.0 <= most else 0, least=least, most=facts.most, joint=facts.joint,
            deterministic=facts.deterministic, complete=not facts.growing, noises=noises,
            last_ends=space.ends if shift and horizon > 1 else 0,
            step_slots=np.zeros((horizon, 2), np.int64), slots=none, group_start=np.zeros(1, np.int64), group_rows=none,
        )  # fmt: skip
        self.store.grow()
        self._settled = -1
        self.tables.top[:] = self.ceilings
        self.tables.scale[:] = horizon * least, horizon * most, -1.0, 0.0, 0.0
        self.tables.cell_distribution[:noises], self.tables.cells[0] = NOISE, noises
        self.sort_cells()

    @property
    def ceilings(self) -> Floats:
        """[step]: the first B."""
        most = max(self.facts.most, 0.0) if self.tables.ends else self.facts.most
        return np.asarray(most * np.arange(self.space.horizon, -1.0, -1.0))

    def sort_cells(self) -> None:
        """Sort the cells by distribution, that of the first state last, so that kernels find the lists in order."""
        t, cells = self.tables, np.arange(self.tables.cells[0])
        order = np.argsort((t.cell_distribution[: len(cells)] - 1) % len(t.samples), kind="stable")
        for name in CELL:
            column = getattr(t, name)
            column[: len(cells)] = column[order]
        owner = t.cell_distribution[: len(cells)]
        next_owner = np.append(owner[1:], -1)[: len(cells)]
        t.cell_after[: len(cells)] = np.where(next_owner == owner, cells + 1, -1)
        t.cell_first[owner[::-1]], t.cell_last[owner] = cells[::-1], cells

    # States --------------------------------------------------------------------------------------------------

    def grow(self, first: int, log: Log) -> None:
        """Add the slots from `first` on; log the rows that are followed there and are not the first."""
        space, sizes = self.space, self.store.sizes
        first, rows = max(first, space.ends), slice(sizes["row"], space.rows)
        distributions, groups, rewards = self.declared.rows(rows.start)
        sizes |= {"slot end": space.slots + 1, "row end": space.rows + 1}
        sizes["group"] = max(sizes["group"], int(groups.max(initial=-1)) + 1)
        sizes["distribution"] = max(sizes["distribution"], int(distributions.max(initial=0)) + 1)
        super().grow(first, log)
        t = self.tables
        t.row_start[first:] = self.layout.row_start[first:]
        t.distribution_of_row[rows], t.group_of_row[rows] = distributions, groups
        if rewards is not None:
            t.known[rows], t.reward[rows] = 1, rewards
        numbers, slots = np.append(distributions, FIRST), np.append(space.slot_of_row[rows] - space.ends + 1, 0)
        t.log_share[numbers] = self.declared.bet_logs(numbers, slots) - math.log(UPPER * self.failure_probability)
        for slots in self._alike(first):
            self._add(slots)
        if self.facts.noises:
            self.declared.lead(t.noise_next, first)
        if space.shared and space.slots - space.ends == self.facts.states:
            self.store.set(complete=True)
        if not self.facts.growing:
            self.settle()
        if len(log.node) and self.task.assumptions.declared().keys().isdisjoint(LIMITS):  # or the caller logs them
            slots = np.arange(first, space.slots)
            followed = self.rows[slots]
            slot, column = np.nonzero(followed != t.row_start[slots][:, None])
            log.extend(column * t.node_stride + slots[slot], followed[slot, column])

    @property
    def rows(self) -> Longs:
        """[slot, column]: the rows that the next episode follows."""
        return self.tables.greedy if self.status.kind == OPTIMISTIC else self.tables.followed

    def _alike(self, first: int) -> Iterator[Longs]:
        """Yield the slots from `first` on that have actions, grouped by their number."""
        sizes = np.diff(self.tables.row_start[first:])
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

    def forbid(self, declared: Forbidden) -> None:
        """Rule out what is declared to fail in new rows.

        The candidate is restricted to what is left. All upper values of a new state are equal, so the first row that is
        left is greedy.
        """
        t, forbidden, rows = self.tables, declared.entries, slice(declared.first, None)
        t.witness[rows][forbidden & (t.witness[rows] == OPEN)] = DECLARED
        groups, always = t.group_of_row[rows], forbidden.all(axis=1)
        np.maximum.at(t.max_violation, groups[always], declared.max_violation[always])
        if self.task.assumptions.constraints is not None:
            t.tested[groups[always | ~forbidden.any(axis=1)]] = 1
        for slots in self._alike(declared.low):
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
        slots = np.flatnonzero(np.diff(t.row_start)).astype(np.int32)
        spans = np.tile([0, len(slots)], (space.horizon, 1))
        if not space.shared:
            steps = space.slot_step[slots]
            slots, bounds = slots[np.argsort(steps, kind="stable")], np.arange(space.horizon + 1)
            found = np.searchsorted(np.sort(steps), bounds)
            spans = np.stack([found[:-1], found[1:]], axis=1)
        order = np.argsort(t.group_of_row, kind="stable").astype(np.int32)
        start = np.searchsorted(t.group_of_row[order], np.arange(len(t.tested) + 1))
        self.store.set(step_slots=spans, slots=slots, group_start=start, group_rows=order)


def first_of(judged: Bytes) -> Longs:
    """Return the index (axis 1) of the first action known to be satisfied, else not known to violate, else 0."""
    kept = judged == JUDGED_KEPT
    return np.asarray(np.where(kept.any(axis=1, keepdims=True), kept, judged != JUDGED_BAD).argmax(axis=1))
