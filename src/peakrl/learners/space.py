"""Index spaces of learners: the slots and rows of a target, complete from the start or growing.

`ModelSpace` is the space of a compiled model. `GrowingSpace` assigns a slot to every visited state and a row to each of
its actions, in the order of the visits. With `by_step` a state has a slot for each step at which it occurs (as in a
layered model); otherwise one slot serves every step (`shared`). Its first `ends` slots are the end of an episode, which
has no actions: one for all steps, or one for each step 0..H.

A column of a table is a step if steps share slots; otherwise there is one column. With a discount steps share slots
and the one column, which is also what follows each step: an episode is only a stretch of a walk without an end.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import SettingsError, TargetError
from peakrl.gym.adapter import Observed, Rules
from peakrl.learners.episode import Changes
from peakrl.learners.tables import TableStore, check_rows, table
from peakrl.memory import BYTES_WITH_VALUES, MOST_STEPS, check_tables
from peakrl.policy.tables import first_rows
from peakrl.records import Field, Record
from peakrl.space import MOST_INDICES, expand, frozen, starts_of
from peakrl.spaces import ActionNumbers
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Layout, Longs
from peakrl.visited import VisitedStates

#: Without a horizon an episode is cut off when later rewards have this weight; after so many steps if it goes on.
LEAST_WEIGHT, BLOCK = 0.01, 100


def steps_with(discount: float, steps: int | None, *, goes_on: bool = False) -> int:
    """Return the steps of an episode; if it has no end, those that matter with a discount.

    If the next episode goes on where it is cut off, it is a block of steps, after which the policy may change.
    """
    if steps is not None or goes_on:
        return steps or BLOCK
    steps = math.ceil(math.log(LEAST_WEIGHT) / math.log(discount))
    if steps > MOST_STEPS:
        raise SettingsError(f"with discount {discount} an episode has {steps:,} steps: give the target a horizon")
    return steps


class Columns:
    """The columns of tables, and how much the remaining steps weigh."""

    def __init__(self, horizon: int, *, shared: bool, discount: float | None) -> None:
        #: Steps of an episode at most; does one set of slots serve every step? The discount is None with a horizon.
        self.horizon, self.shared, self.discount = horizon, shared, discount
        #: 1 if a column is a step, otherwise 0.
        self.shift = int(shared and discount is None)
        #: One for each step if steps share slots and there is no discount, otherwise 1.
        self.columns = horizon if self.shift else 1
        #: [step, 0 .. H]: total weight of the remaining rewards; the same at every step without an end.
        self.left: Floats = np.arange(horizon, -1, -1.0)
        if discount is not None:
            self.left = np.full(horizon + 1, 1.0 / (1.0 - discount))


class ModelSpace(Columns):
    """The space of a compiled model; with a discount of the model without an end."""

    ends = 0
    #: Are observations known to be states, so that what follows them can prove infeasibility?
    observes_states = True

    def __init__(self, model: TabularModel, discount: float | None = None) -> None:
        if discount is None:
            self.layout = model.layout
        else:
            self.layout = model.one_step._replace(horizon=steps_with(discount, model.steps))
            model = model.with_horizon(None)
        every_step = model.num_slots if model.stationary else 1
        check_tables(model.name, model.lines, every_step, each=BYTES_WITH_VALUES)
        super().__init__(self.layout.horizon, shared=model.stationary, discount=discount)
        self.model, self.slots, self.rows = model, model.num_slots, model.num_rows
        self.slot_state, self.row_action = model.slot_state, model.row_action
        self.state_of_slot, self.action_of_row = model.state_of_slot, model.action_of_row

    @cached_property
    def slot_of_row(self) -> Ints:
        """[row]: its slot."""
        return self.model.slot_of_row.astype(np.int32)

    @property
    def slot_step(self) -> Longs:
        """[slot]: its step, if steps do not share slots; slots after the last step count as the last step."""
        return np.minimum(self.model.step_of_slot, self.horizon - 1)

    def action_number(self, row: int) -> int:
        """Return the number of a row's action."""
        return int(self.row_action[row])

    def find(self, step: int, seen: Observed) -> int:
        """Return the slot of a state."""
        return self.model.slot_of(step, seen.state)

    def add(self, step: int, seen: Observed) -> int:
        """Return the slot of a state; a model has no new states."""
        return self.find(step, seen)

    def decisions(self) -> Iterable[tuple[int, int]]:
        """Return (step, slot) of all reachable decisions."""
        return ((step, slot) for step, slot, _ in self.model.decisions())

    def nodes_of(self, table: NDArray[Any]) -> Ints:
        """[node] of a table of rows [slot, column]."""
        if not self.shift:
            return table[:, 0].astype(np.int32)
        return np.concatenate([table.T, np.zeros((1, self.slots), table.dtype)]).ravel().astype(np.int32)

    def entries_of(self, table: NDArray[Any]) -> NDArray[Any]:
        """[entry] of a table [row, column]."""
        return table.T.ravel()

    def ordered(self, changes: Changes) -> Changes:
        """Return the changes, which are in the order of the model already."""
        return changes

    def states(self) -> TabularModel:
        """Return the states that policies are made for."""
        return self.model

    def first_rows(self) -> Ints:
        """[node]: the first rows, which are followed before anything is learned."""
        return first_rows(self.model)


class SpaceArrays(NamedTuple):
    """Arrays of a `GrowingSpace`."""

    #: [slot + 1]: the first row of each slot.
    row_start: Annotated[Longs, table("start")]
    #: [slot]: its step, and the number of its state (-1 for an end).
    slot_step: Annotated[Longs, table("slot")]
    slot_state: Annotated[Ints, table("slot", fill=-1, stored=False)]
    #: [row]: the number of its action, and its slot.
    row_action: Annotated[Ints, table("row")]
    slot_of_row: Annotated[Ints, table("row", stored=False)]


SPACE_FIELDS = {
    "row_start": Field(np.int64, "slot", splits="row"),
    "row_action": Field(np.int32, "row", below="action"),
    "slot_step": Field(np.int64, "slot", below="step"),
}


class GrowingSpace(Columns):
    """The visited states of an environment, and their actions."""

    def __init__(self, rules: Rules, *, by_step: bool, discount: float | None = None) -> None:
        super().__init__(rules.horizon, shared=not by_step, discount=discount)
        self.rules = rules
        #: Distance of two steps in the node numbers of a change log, large enough for all future states.
        self.node_stride = MOST_INDICES // (self.horizon + 1) if self.shift else 0
        self.ends, self.observes_states = rules.horizon + 1 if by_step else 1, rules.observes_states
        one: dict[Hashable, int] = {}
        #: [step]: the slots of its states; the same mapping for all steps if they share slots.
        self.lookup = [{} if by_step else one for _ in range(rules.horizon + 1)]
        self.labels: list[Hashable] = [None] * self.ends
        self.offers: list[ActionNumbers] = [()] * self.ends
        #: [row]: number of its action, as in `row_action`.
        self.numbers: list[int] = []
        #: [slot]: its first row.
        self.starts: list[int] = [0] * self.ends
        #: [slot]: its step, for slots that are not in the arrays yet: they are copied many at a time.
        self._steps: list[int] = [0] * self.ends
        self._numbers: dict[Hashable, int] = {}
        self._store = TableStore(SpaceArrays, {"slot": 0, "start": 0, "row": 0})
        self._store.grow()
        nothing, none, start = np.empty((0, 2), np.int64), np.empty(0, np.int32), np.empty(0, np.int64)
        arrays = (nothing, nothing, start, none, start, none, np.empty(0))
        for array in arrays:
            array.flags.writeable = False  # as those of models, or kernels would be compiled for both
        self._layout = Layout(self.horizon, self.node_stride, 0, *arrays)

    @property
    def slots(self) -> int:
        """Number of slots, with ends."""
        return len(self.labels)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    def _noted(self) -> SpaceArrays:
        """Return the arrays, after copying the states that were added since the last call."""
        slots, rows, first, first_row = self.slots, self.rows, self._store.sizes["slot"], self._store.sizes["row"]
        if first < slots:
            self._store.grow(slot=slots, start=slots + 1, row=rows)
            arrays, new, numbers = self._store.tables, max(first, self.ends), self._numbers
            arrays.row_start[first:] = [*self.starts[first:], rows]
            arrays.slot_step[first:] = self._steps
            arrays.slot_state[new:] = [numbers.setdefault(label, len(numbers)) for label in self.labels[new:]]
            arrays.row_action[first_row:] = self.numbers[first_row:]
            arrays.slot_of_row[first_row:] = np.repeat(np.arange(first, slots), np.diff(arrays.row_start[first:]))
            self._steps.clear()
        return self._store.tables

    @property
    def slot_of_row(self) -> Ints:
        """[row]: its slot."""
        return self._noted().slot_of_row

    @property
    def slot_step(self) -> Longs:
        """[slot]: its step, if steps do not share slots."""
        return self._noted().slot_step

    @property
    def slot_state(self) -> Ints:
        """[slot]: the number of its state; -1 for an end."""
        return self._noted().slot_state

    @property
    def row_action(self) -> Ints:
        """[row]: the number of its action."""
        return self._noted().row_action

    @property
    def layout(self) -> Layout:
        """Layout for kernels."""
        start = self._noted().row_start.view()
        start.flags.writeable = False
        return self._layout._replace(row_start=start)

    def state_of_slot(self, slot: int) -> Hashable:
        """Return the label of a slot's state."""
        return self.labels[slot]

    def action_of_row(self, row: int) -> Hashable:
        """Return the label of a row's action."""
        return self.rules.actions.labels[self.numbers[row]]

    def action_number(self, row: int) -> int:
        """Return the number of a row's action."""
        return self.numbers[row]

    def decisions(self) -> Iterable[tuple[int, int]]:
        """Return (step, slot) for every visited state; at every step if steps share slots."""
        slots = range(self.ends, self.slots)
        if self.shared:
            return ((step, slot) for step in range(self.horizon) for slot in slots)
        return zip(self.slot_step[self.ends :].tolist(), slots, strict=True)

    def find(self, step: int, seen: Observed) -> int:
        """Return the slot of a state; -1 if it is new. Raise if its actions have changed."""
        slot = self.lookup[step].get(seen.state, -1)
        if slot >= 0 and self.offers[slot] is not seen.offer and self.offers[slot] != seen.offer:
            labels = self.rules.actions.labels
            before, now = ([labels[index] for index in offer] for offer in (self.offers[slot], seen.offer))
            raise TargetError(
                f"state {seen.state!r} offers the actions {now}, but offered {before} before; the actions must depend "
                "only on the state" + ("" if self.shared else " and the step")
            )
        return slot

    def add(self, step: int, seen: Observed) -> int:
        """Store a new state and return its slot."""
        slot = len(self.labels)
        self.lookup[step][seen.state] = slot
        self.labels.append(seen.state)
        self.offers.append(seen.offer)
        self.starts.append(len(self.numbers))
        self.numbers.extend(seen.offer)
        self._steps.append(0 if self.shared else step)
        return slot

    # The order of a model: step after step, each in the order of the visits -------------------------------------

    def _order(self) -> tuple[Longs, Longs]:
        """Return slots and rows in that order."""
        slots = self.ends + np.argsort(self.slot_step[self.ends :], kind="stable")
        starts = self._noted().row_start
        return slots, expand(starts[slots], np.diff(starts)[slots])

    def _new_rows(self, rows: Longs) -> Longs:
        """[row]: its index in that order."""
        place = np.empty(self.rows, np.int64)
        place[rows] = np.arange(len(rows))
        return place

    def nodes_of(self, table: NDArray[Any]) -> Ints:
        """[node] of a table of rows [slot, column]; missing slots take their first row."""
        slots, order = self._order()
        full = np.repeat(self._noted().row_start[:-1, None], self.columns, axis=1)
        full[: len(table)] = table
        rows = self._new_rows(order)[full[slots]].T
        if self.shift:
            rows = np.concatenate([rows, np.full((1, len(slots)), -1)])
        nodes: Ints = rows.ravel().astype(np.int32)
        return nodes

    def first_rows(self) -> Ints:
        """[node]: the first rows, which are followed before anything is learned."""
        return self.nodes_of(np.empty((0, self.columns), np.int64))

    def entries_of(self, table: NDArray[Any]) -> NDArray[Any]:
        """[entry] of a table [row, column]."""
        return np.ascontiguousarray(table[self._order()[1]].T).ravel()

    def ordered(self, changes: Changes) -> Changes:
        """Return a change log with the nodes and rows of that order, by episode."""
        episode, node, row = changes
        slots, rows = self._order()
        place = np.full(self.slots, -1)
        place[slots] = np.arange(len(slots))
        step, slot = np.divmod(node, self.node_stride) if self.shift else (0, node)
        order = np.argsort(episode, kind="stable")
        columns = (episode, place[slot] + step * len(slots), self._new_rows(rows)[row])
        first, second, third = (column[order].astype(np.int32) for column in columns)
        return first, second, third

    def states(self) -> VisitedStates:
        """Return the visited states, for policies."""
        rules = self.rules
        constraints = rules.constraints.count or 0
        slots, rows = self._order()
        numbers: dict[Hashable, int] = {}
        slot_state = [numbers.setdefault(self.labels[slot], len(numbers)) for slot in slots.tolist()]
        sizes = np.diff(self._noted().row_start)[slots]
        stages = [len(slots)] if self.shared else np.bincount(self.slot_step[slots], minlength=rules.horizon)
        return VisitedStates(
            name=rules.name,
            steps=rules.horizon if self.discount is None else None,
            stationary=self.shared,
            state_labels=list(numbers),
            slot_state=frozen(np.array(slot_state), np.int32, own=True),
            action_labels=rules.actions.labels,
            row_action=frozen(self.row_action[rows], np.int32, own=True),
            stage_start=frozen(starts_of(stages), np.int64, own=True),
            row_start=frozen(starts_of(sizes), np.int64, own=True),
            reward_range=rules.reward_range,
            constraint_names=rules.constraint_names or tuple(f"constraint {i}" for i in range(constraints)),
            constraint_bounds=rules.constraints.bounds or (1.0,) * constraints,
        )

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything except the labels, by name."""
        self._noted()
        return self._store.arrays()

    def load(self, labels: Sequence[Hashable], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the states from `arrays` and labels (without ends)."""
        sizes = {"slot": self.ends + len(labels), "step": self.horizon, "action": len(self.rules.actions.labels)}
        starts, actions, steps = Record({}, arrays).checked(SPACE_FIELDS, **sizes).values()
        if starts[self.ends] or (np.diff(starts[self.ends :]) == 0).any():
            raise ValueError("a visited state has no actions, or an end has some")
        for slot, label in enumerate(labels, self.ends):
            offer, step = tuple(actions[starts[slot] : starts[slot + 1]].tolist()), int(steps[slot])
            if label in self.lookup[step]:
                raise ValueError(f"state {label!r} is stored twice")
            self.add(step, Observed(label, offer))


#: Slots and rows, as algorithms use them.
Space = ModelSpace | GrowingSpace


def planning_order(space: Space) -> Longs:
    """Slots with actions in the order of planning, last step first; any order if steps share slots."""
    offering = np.flatnonzero(np.diff(space.layout.row_start) > 0)
    by_step = np.argsort(-space.slot_step[offering], kind="stable")
    return offering if space.shared else offering[by_step]


def checked_rows(space: Space, table: NDArray[Any], columns: int, name: str) -> NDArray[np.int64]:
    """Return a copy of rows [slot, column] from a file, for the first slots or all; raise if one is out of range."""
    if table.ndim != 2 or table.shape[1] != columns:
        raise ValueError(f"{name} is {table.dtype} of shape {table.shape}")
    check_rows(table, space.layout.row_start, name)
    return np.array(table)
