"""Tables of the certified learner: index structure, counts, bounds; and their storage for growing state spaces.

A *distribution* stands for the pairs that share the distribution of the next state (together with the reward, if it
depends on the outcome); unless something is declared, each row has its own. The distribution of the first state is the
last one. Samples are kept as cells: a next slot, the reward, and a count. A *group* is a set of rows with the same
constraints. Index spaces: `types`.

If the next state is declared to be g(s, a, noise), there is one distribution, that of the noise: its cells are the
noises, and the next slot of a cell depends on the row. A next state that was not visited has no slot: UNMET.

`GrowingArrays` have room for more states than there are and double in size when it is used up; the cells of a
distribution move to the end when it needs more. `guess` has a line for each step, or only one if every distribution
belongs to one step. In the compact form, that of files and evidence, slots and rows are in the order of their first
visit, the distribution of the first state last.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.space import GrowingSpace
from peakrl.learners.tables import alike
from peakrl.types import Bytes, Floats, Ints, Longs

#: Why an entry is ruled out: it is not, it violated, or (>= 0) the dead slot that it led to.
OPEN, VIOLATES = -2, -1
#: Columns of `Tables.distribution`: samples, cells in use, samples before the candidate was frozen.
SAMPLES, CELLS, BEFORE = 0, 1, 2
#: In place of the next slot if declared dynamics lead to a state that was not visited.
UNMET = -1


class Structure(NamedTuple):
    """Index structure; grows with the visited states of an environment."""

    horizon: int
    node_stride: int
    entry_stride: int
    #: Number of slots, the first ones, that are ends of episodes.
    ends: int
    #: [slot + 1]
    row_start: Longs
    #: The slots of a step: slots[step_first[step]] .. slots[step_last[step]].
    step_first: Longs
    step_last: Longs
    slots: Ints
    #: [row]
    distribution_of_row: Ints
    group_of_row: Ints
    slot_of_row: Ints
    #: Rows of a group: group_rows[group_start[g]] .. group_rows[group_start[g + 1]].
    group_start: Longs
    group_rows: Ints
    #: [distribution]: its first cell.
    cell_start: Longs
    #: If s' = g(s, a, noise) is declared: the number of noises, and [row * noises + noise]: the next slot.
    noises: int
    noise_next: Ints


class Params(NamedTuple):
    """Parameters of the bounds, from settings and declarations."""

    #: The lowest and the highest reward of a step (of steps without a violation, if that is declared).
    least: float
    most: float
    #: Does the reward depend on the outcome? Then bounds are on reward plus next value.
    joint: bool
    deterministic: bool
    #: Are all states known? Then the largest W of a step bounds those that were not visited.
    complete: bool
    #: [distribution]: log(1/d) of one bound.
    log_share: Floats


class Tables(NamedTuple):
    """Counts, observations and upper values."""

    #: [entry]: U, why ruled out, and the samples of its distribution at the last update.
    upper: Floats
    witness: Ints
    updated: Longs
    #: [step, distribution]: the best nu of the last bound; one line if every distribution belongs to one step.
    guess: Floats
    #: [node]: W, is it dead, greedy row.
    value: Floats
    dead: Bytes
    greedy: Ints
    #: [step]: B, at least every W of the step.
    top: Floats
    #: [row]: is the reward known, and the reward.
    known: Bytes
    reward: Floats
    #: [group]: was it tested, and the largest violation.
    tested: Bytes
    max_violation: Floats
    #: [distribution, 3]
    distribution: Longs
    #: [cell]: next slot, reward (if it depends on the outcome), samples, samples before the candidate was frozen.
    cell_next: Ints
    cell_reward: Floats
    cell_count: Longs
    cell_before: Longs


class Scratch(NamedTuple):
    """Scratch arrays."""

    #: [cell of one distribution]
    value: Floats
    count: Longs
    #: [distribution]: the step of `bound_value`, the bound, and a dead slot among the samples (or OPEN).
    bound_step: Longs
    bound_value: Floats
    bound_dead: Longs
    #: [step + 1]: the current episode.
    slot: Longs
    row: Longs
    following: Longs
    earned: Floats
    violated: Floats


Spec = dict[str, tuple[Any, Any]]
#: Type and initial value of each array, by index space.
BY_NODE: Spec = {
    "value": (np.float64, 0.0), "dead": (np.int8, 0), "greedy": (np.int32, 0), "candidate": (np.int32, 0),
    "followed": (np.int32, 0), "challenger": (np.int32, 0), "gap": (np.float64, 0.0),
}  # fmt: skip
BY_ENTRY: Spec = {"upper": (np.float64, 0.0), "witness": (np.int32, OPEN), "updated": (np.int64, 0)}
BY_ROW: Spec = {
    "known": (np.int8, 0), "reward": (np.float64, 0.0), "then_known": (np.int8, 0),
    "distribution_of_row": (np.int32, 0), "group_of_row": (np.int32, 0), "slot_of_row": (np.int32, 0),
}  # fmt: skip
#: `judged`: what was known of a group when the candidate was frozen: nothing (0), satisfied (1), violated (2).
BY_GROUP: Spec = {
    "tested": (np.int8, 0), "max_violation": (np.float64, 0.0), "then_max_violation": (np.float64, 0.0),
    "judged": (np.int8, 0),
}  # fmt: skip
BY_DISTRIBUTION: Spec = {
    "distribution": (np.int64, 0), "then_distribution": (np.int64, 0), "guess": (np.float64, -math.inf),
    "log_share": (np.float64, 0.0), "cell_start": (np.int64, 0), "cell_room": (np.int64, 0),
    "bound_step": (np.int64, 0), "bound_value": (np.float64, 0.0), "bound_dead": (np.int64, 0),
}  # fmt: skip
BY_CELL: Spec = {
    "cell_next": (np.int32, 0), "cell_reward": (np.float64, 0.0), "cell_count": (np.int64, 0),
    "cell_before": (np.int64, 0), "then_count": (np.int64, 0), "then_before": (np.int64, 0),
    "scratch_value": (np.float64, 0.0), "scratch_count": (np.int64, 0),
}  # fmt: skip
#: Arrays that follow from the others, or that are scratch.
UNKEPT = {"distribution_of_row", "group_of_row", "slot_of_row", "log_share", "cell_start", "cell_room", "bound_step",
          "bound_value", "bound_dead", "scratch_value", "scratch_count"}  # fmt: skip
#: Initial number of cells of a distribution.
FIRST_CELLS = 4


class Capacity(NamedTuple):
    """Allocated sizes; there are at most as many distributions and groups as rows."""

    slots: int
    rows: int
    cells: int


class GrowingArrays:
    """Every array by name, for the slots and rows of a growing space."""

    def __init__(self, space: GrowingSpace) -> None:
        self.space, self.horizon = space, space.horizon
        self.columns = space.horizon if space.shared else 1
        self.room = Capacity(0, 0, 0)
        self.own: dict[str, NDArray[Any]] = {}
        self.cells = 0
        #: Has every row a guess of its own (if dynamics are declared), or every distribution?
        self.guess_by_row = False
        #: Key to number of the distributions and groups that several rows may share, in the order of their first visit.
        self.distributions: dict[Hashable, int] = {}
        self.groups: dict[Hashable, int] = {}
        #: Their numbers, without the distribution of the first state.
        self.num_distributions = self.num_groups = 0

    def enlarge(self, room: Capacity) -> None:
        """Reallocate the arrays that are too small."""
        old, own, horizon = self.room, self.own, self.horizon
        nodes = horizon + 1 if self.space.shared else 1
        for spec, before, shape in (
            (BY_NODE, (nodes, old.slots), (nodes, room.slots)),
            (BY_ENTRY, (self.columns, old.rows), (self.columns, room.rows)),
            (BY_ROW | BY_GROUP, (old.rows,), (room.rows,)),
            (BY_CELL, (old.cells,), (room.cells,)),
        ):
            for name, (dtype, fill) in spec.items():
                if name in own and before == shape:
                    continue
                new = np.full(shape, fill, dtype)
                if name in own:
                    new[tuple(map(slice, before))] = own[name].reshape(before)
                own[name] = new.ravel()
        lines = horizon + 1 if self.space.shared else 1
        for name, (dtype, fill) in BY_DISTRIBUTION.items():  # the last is the distribution of the first state
            if name in own and old.rows == room.rows:
                continue
            tail = {"distribution": 3, "then_distribution": 3, "guess": lines}.get(name)
            new = np.full((room.rows + 1,) if tail is None else (room.rows + 1, tail), fill, dtype)
            if name in own:
                had = own[name].T if name == "guess" else own[name]
                new[: old.rows], new[-1] = had[: old.rows], had[-1]
            own[name] = np.ascontiguousarray(new.T) if name == "guess" else new
        self.room = room

    def take_cells(self, distributions: Longs, cells: Longs) -> None:
        """Move each of these distributions to the end, with room for so many cells."""
        end = self.cells + int(cells.sum())
        if end > self.room.cells:
            self.enlarge(self.room._replace(cells=2 * end))
        own, starts = self.own, self.cells + np.cumsum(cells) - cells
        used = own["distribution"][distributions, CELLS]
        for i in np.flatnonzero(used).tolist():
            size, start, before = int(used[i]), int(starts[i]), int(own["cell_start"][distributions[i]])
            for name in BY_CELL:
                if not name.startswith("scratch"):
                    own[name][start : start + size] = own[name][before : before + size]
                    own[name][before : before + size] = 0
        own["cell_start"][distributions], own["cell_room"][distributions] = starts, cells
        self.cells = end

    # Files ---------------------------------------------------------------------------------------------------

    def _cells_in_use(self) -> tuple[Longs, Longs, Longs]:
        """Return the distributions in use, the first compact cell of each, and the positions of the cells."""
        distributions = np.append(np.arange(self.num_distributions), len(self.own["distribution"]) - 1)
        sizes = np.maximum(self.own["distribution"][distributions, CELLS], 1)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        structure = np.repeat(self.own["cell_start"][distributions], sizes) + within
        empty = (self.own["distribution"][distributions, CELLS] == 0) & (self.own["cell_room"][distributions] == 0)
        return distributions, starts[:-1], np.where(np.repeat(empty, sizes), -1, structure)

    def _guesses(self) -> Longs:
        """Return the columns of `guess` in use."""
        used = self.space.rows if self.guess_by_row else self.num_distributions
        return np.append(np.arange(used), len(self.own["distribution"]) - 1)

    def compact(self) -> dict[str, NDArray[Any]]:
        """Return everything that was learned, without unused room."""
        own, space, found = self.own, self.space, {}
        distributions, starts, cells = self._cells_in_use()
        for name in BY_NODE:
            found[name] = own[name].reshape(-1, self.room.slots)[:, : space.slots].ravel()
        for name in BY_ENTRY:
            found[name] = own[name].reshape(-1, self.room.rows)[:, : space.rows].ravel()
        for name in BY_ROW:
            found[name] = own[name][: space.rows].copy()
        for name in BY_GROUP:
            found[name] = own[name][: self.num_groups].copy()
        for name in ("distribution", "then_distribution", "log_share"):
            found[name] = own[name][distributions]
        found["guess"] = own["guess"][:, self._guesses()]
        for name in BY_CELL:
            if not name.startswith("scratch"):
                found[name] = np.where(cells >= 0, own[name][cells], 0).astype(own[name].dtype)
        return found | {"cell_start": starts, "row_start": space.layout.row_start.copy()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `compact` returned, for the same states; raise ValueError if it does not fit."""
        like, own, space = self.compact(), self.own, self.space
        distribution = alike(like["distribution"], arrays["distribution"], "engine.distribution")
        sizes = np.maximum(distribution[:, CELLS], 1)
        if (distribution[:, CELLS] < 0).any() or sizes.sum() != len(arrays["cell_next"]):
            raise ValueError("engine.distribution does not match the number of cells")
        names, starts = (
            np.append(np.arange(self.num_distributions), len(own["distribution"]) - 1),
            np.cumsum(sizes) - sizes,
        )
        own["distribution"][:, CELLS] = 0
        self.cells = 0
        self.enlarge(self.room._replace(cells=max(int(sizes.sum()), self.room.cells)))
        own = self.own
        own["cell_start"][names], own["cell_room"][names] = starts, sizes
        self.cells = int(sizes.sum())
        for name, array in arrays.items():
            if name in UNKEPT or name not in own:
                continue
            if name in BY_CELL:
                own[name][: self.cells] = alike(np.empty(self.cells, own[name].dtype), array, f"engine.{name}")
            elif name == "guess":
                own[name][:, self._guesses()] = alike(like[name], array, f"engine.{name}")
            elif name in BY_DISTRIBUTION:
                own[name][names] = alike(like[name], array, f"engine.{name}")
            elif name in BY_NODE or name in BY_ENTRY:
                room, used = (self.room.slots, space.slots) if name in BY_NODE else (self.room.rows, space.rows)
                wide = own[name].reshape(-1, room)
                wide[:, :used] = alike(like[name], array, f"engine.{name}").reshape(-1, used)
            else:
                used = len(like[name])
                own[name][:used] = alike(like[name], array, f"engine.{name}")
