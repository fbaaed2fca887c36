"""Tables that grow with the states that are met, at amortised constant cost.

`Atlas` gives every state that is met a slot, and every action on offer there a row. With `by_step` a state has a slot
of its own for each step at which it is met (slots of a layered model); otherwise one slot serves every step. Slots and
rows are numbered in the order in which they are met; `VisitedStates` puts them in the order of a model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import TargetError
from peakrl.kernels.arrays import Layout, Longs
from peakrl.model.space import expand, frozen, spans, starts_of
from peakrl.targets.adapters import Rules, Seen
from peakrl.targets.spaces import Offer
from peakrl.targets.states import VisitedStates


class Growing:
    """An array that grows along its first axis; what is added holds `fill`."""

    def __init__(self, fill: Any, dtype: Any, *tail: int) -> None:
        self.fill = fill
        self.size = 0
        #: The whole room: kernels are given this, and touch only what is in use.
        self.room: NDArray[Any] = np.full((16, *tail), fill, dtype)

    def grow(self, size: int) -> bool:
        """Make room for `size` entries in all; return whether the array moved."""
        self.size = max(self.size, size)
        if size <= len(self.room):
            return False
        larger = np.full((max(size, 2 * len(self.room)), *self.room.shape[1:]), self.fill, self.room.dtype)
        larger[: len(self.room)] = self.room
        self.room = larger
        return True

    @property
    def used(self) -> NDArray[Any]:
        """The entries in use."""
        return self.room[: self.size]

    def load(self, array: NDArray[Any]) -> None:
        """Take over stored entries."""
        self.grow(len(array))
        self.room[: len(array)] = array


class Atlas:
    """Which states were met, where, and what they offer. The first `ends` slots are the end of an episode: no rows."""

    def __init__(self, rules: Rules, *, by_step: bool, ends: int = 0) -> None:
        self.rules, self.by_step, self.ends = rules, by_step, ends
        self.lookup: list[dict[Hashable, int]] = [{} for _ in range(rules.horizon if by_step else 1)]
        self.labels: list[Hashable] = [None] * ends
        self.offers: list[Offer] = [()] * ends
        self.row_start, self.slot_step = Growing(0, np.int64), Growing(0, np.int64)
        self.row_action, self.slot_of_row = Growing(0, np.int32), Growing(0, np.int32)
        self.row_start.grow(ends + 1)
        self.slot_step.grow(ends)

    @property
    def slots(self) -> int:
        """Slots in use, those of the end included."""
        return len(self.labels)

    @property
    def rows(self) -> int:
        """Rows in use."""
        return self.row_action.size

    def find(self, step: int, seen: Seen) -> int:
        """Return the slot of a state; -1 where it is new. A state must always offer the same actions."""
        slot = self.lookup[step if self.by_step else 0].get(seen.state, -1)
        if slot >= 0 and self.offers[slot] is not seen.offer and self.offers[slot] != seen.offer:
            labels = self.rules.actions.labels
            before, now = ([labels[index] for index in offer] for offer in (self.offers[slot], seen.offer))
            raise TargetError(
                f"state {seen.state!r} offers the actions {now}, but offered {before} before; what is on offer must "
                "follow from the state" + (" and the step" if self.by_step else "")
            )
        return slot

    def add(self, step: int, seen: Seen) -> int:
        """Store a new state and return its slot."""
        slot, first = self.slots, self.rows
        last = first + len(seen.offer)
        self.lookup[step if self.by_step else 0][seen.state] = slot
        self.labels.append(seen.state)
        self.offers.append(seen.offer)
        self.row_start.grow(slot + 2)
        self.slot_step.grow(slot + 1)
        self.row_action.grow(last)
        self.slot_of_row.grow(last)
        self.row_start.room[slot + 1] = last
        self.slot_step.room[slot] = step if self.by_step else 0
        self.row_action.room[first:last] = seen.offer
        self.slot_of_row.room[first:last] = slot
        return slot

    def rows_of(self, slot: int) -> tuple[int, int]:
        """Return the first row of a slot and one past the last."""
        return int(self.row_start.room[slot]), int(self.row_start.room[slot + 1])

    def layout(self, node_stride: int) -> Layout:
        """Return what kernels need to know of slots and rows."""
        nothing, none = np.empty((0, 2), np.int64), np.empty(0, np.int32)
        return Layout(
            self.rules.horizon, node_stride, 0, nothing, nothing, self.row_start.used,
            none, np.empty(0, np.int64), none, np.empty(0),
        )  # fmt: skip

    # The order of a model ------------------------------------------------------------------------------------

    def order(self) -> tuple[Longs, Longs]:
        """Return slots and rows in the order of a model: step after step, each in the order of being met."""
        slots = self.ends + np.argsort(self.slot_step.used[self.ends :], kind="stable")
        starts = self.row_start.used
        return slots, expand(starts[slots], np.diff(starts)[slots])

    def states(self, constraints: int) -> VisitedStates:
        """Return what was met, in the order of a model."""
        rules = self.rules
        slots, rows = self.order()
        numbers: dict[Hashable, int] = {}
        slot_state = [numbers.setdefault(self.labels[slot], len(numbers)) for slot in slots.tolist()]
        sizes = np.diff(self.row_start.used)[slots]
        layers = starts_of(np.bincount(self.slot_step.used[slots], minlength=rules.horizon)) if self.by_step else None
        return VisitedStates(
            name=rules.name,
            horizon=rules.horizon,
            stationary=not self.by_step,
            state_labels=list(numbers),
            slot_state=frozen(np.array(slot_state), np.int32, own=True),
            action_labels=rules.actions.labels,
            row_action=frozen(self.row_action.used[rows], np.int32, own=True),
            step_slots=spans(rules.horizon, len(slots), layers),
            row_start=frozen(starts_of(sizes), np.int64, own=True),
            reward_range=rules.reward_range,
            constraint_names=rules.constraint_names or tuple(f"constraint {i}" for i in range(constraints)),
            constraint_bounds=rules.constraints.bounds or (1.0,) * constraints,
        )

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the labels, by name."""
        return {"row_start": self.row_start.used, "slot_step": self.slot_step.used, "row_action": self.row_action.used}

    def load(self, labels: Sequence[Hashable], arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `arrays` and the labels, those of the end left out, once held."""
        starts, actions = arrays["row_start"].tolist(), arrays["row_action"].tolist()
        for place, label in enumerate(labels):
            slot = self.ends + place
            offer = tuple(actions[starts[slot] : starts[slot + 1]])
            self.add(int(arrays["slot_step"][slot]), Seen(label, offer))
