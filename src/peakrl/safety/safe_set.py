"""The safe set as an object: what may be done at a step in a state, and why not more (`viability`).

It rests on what the model says *can* happen and what violates, not on how likely anything is. A policy that takes safe
actions only never violates; where a first state is not safe, no policy keeps every constraint.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.compile import Target, as_model
from peakrl.errors import StorageError
from peakrl.model_file import restored_model
from peakrl.policy.export import as_csv, as_json, written
from peakrl.safety.reasons import Reason, reason_of
from peakrl.storage import fields_of, read_record, write_record
from peakrl.tabular import TabularModel, store_model
from peakrl.types import Ints
from peakrl.viability import Bools, SafeSteps, dead_end_distances

#: What the file of a safe set is called in its head.
KIND = "safe_set"
#: Masks of every step and state are laid out once where they take no more bytes than this.
LARGEST_TABLE = 1 << 28


class StepCount(NamedTuple):
    """How much is safe at a step, among the states that an episode can be in there."""

    #: Counted from 0.
    step: int
    #: States that some policy can be in.
    states: int
    #: Those from which nothing need ever be violated.
    safe_states: int
    #: Actions on offer in all of these states together.
    actions: int
    #: Those after which nothing need ever be violated.
    safe_actions: int


class SafeSet:
    """From where, and by which actions, every constraint of a model can still be kept with certainty.

    Made by `safe_set(model)`; also `solve(model).safe_set`.
    """

    def __init__(self, model: TabularModel, steps: SafeSteps | None = None) -> None:
        #: What it was worked out for.
        self.model = model
        #: Which actions and states are safe at which step; by the model alone unless told otherwise.
        self.steps = model.safe if steps is None else steps

    def __repr__(self) -> str:
        safe, states = sum(each.safe_states for each in self.counts), sum(each.states for each in self.counts)
        start = "the start is in it" if self.feasible else "the start is not in it"
        return f"<SafeSet of {self.model.name!r}: {safe:,} of {states:,} (step, state) pairs, {start}>"

    @property
    def feasible(self) -> bool:
        """Is every first state safe, so that some policy keeps every constraint?"""
        return bool(self.steps.slots(0)[self.model.first_slot].all())

    @property
    def entries(self) -> Bools:
        """[entry]: which actions are safe; a byte for each step, state and action, laid out when asked for."""
        return self.steps.entries

    @property
    def nodes(self) -> Bools:
        """[node]: which states are."""
        return self.steps.nodes

    # What may be done ----------------------------------------------------------------------------------------

    def contains(self, step: int, state: Hashable) -> bool:
        """Can every constraint be kept from this state on? A state that the model does not know is an error."""
        return self.holds(self.node_of(step, state))

    def holds(self, node: int) -> bool:
        """Is a node safe, given by its number?"""
        return self.steps.slot(*divmod(node, self.model.num_slots))  # of a layered model step 0, with strides of 0

    def actions(self, step: int, state: Hashable) -> list[Hashable]:
        """Return the safe actions, none where the state itself is not safe."""
        model = self.model
        rows = model.rows_of_slot(model.slot_of(step, state))
        return [model.action_of_row(row) for row in rows if self.steps.row(step, row)]

    def mask(self, step: int, state: Hashable) -> Bools:
        """Return [action]: True where it is on offer and safe, in the order of `model.action_labels`; read-only."""
        return self.mask_of(self.node_of(step, state))

    def reason(self, step: int, state: Hashable, action: Hashable) -> Reason | None:
        """Return why an action is not safe, step by step; None where it is. `print` tells it in words."""
        row = self.model.row_of(step, state, action)
        if self.steps.row(step, row):
            return None
        return reason_of(self.model, self._distance, step, self.model.slot_of(step, state), row)

    @cached_property
    def _distance(self) -> Ints:
        return dead_end_distances(self.model.layout, self.model.keeps, self.nodes)

    # Masks by number: for agents that count every microsecond ------------------------------------------------

    def node_of(self, step: int, state: Hashable) -> int:
        """Return the number of a step and state, by which `mask_of` and `masks` go."""
        try:
            place = self._places[state if self.model.stationary else (step, state)]
            if 0 <= step < self.model.horizon:
                return step * self.model.layout.node_stride + place
        except (KeyError, TypeError):
            pass
        slot = self.model.slot_of(step, state)  # which says what is wrong
        return step * self.model.layout.node_stride + slot

    @cached_property
    def _places(self) -> dict[Any, int]:
        """Slots by state, in a layered model by (step, state)."""
        model = self.model
        offers = np.diff(model.layout.row_start) > 0
        if model.stationary:
            return {model.state_of_slot(slot): slot for slot in np.flatnonzero(offers).tolist()}
        return {
            (step, model.state_of_slot(slot)): slot
            for step, (first, last) in enumerate(model.layout.step_slots.tolist())
            for slot in (np.flatnonzero(offers[first:last]) + first).tolist()
        }

    def mask_of(self, node: int) -> Bools:
        """Return [action]: the mask of a node; read-only."""
        mask: Bools
        if self.masks is not None:
            mask = self.masks[node]
            return mask
        step, slot = divmod(node, self.model.num_slots)  # of a layered model step 0, with strides of 0
        mask = np.zeros(len(self.model.action_labels), np.bool_)
        rows = self.model.rows_of_slot(slot)
        mask[self.model.row_action[rows.start : rows.stop]] = self.steps.rows(step, slice(rows.start, rows.stop))
        mask.flags.writeable = False
        return mask

    @cached_property
    def masks(self) -> Bools | None:
        """[node, action]: every mask; None where they would take more than a quarter of a gigabyte."""
        model = self.model
        if model.num_nodes * len(model.action_labels) > LARGEST_TABLE:
            return None
        masks = np.zeros((model.num_nodes, len(model.action_labels)), np.bool_)
        slots = np.repeat(np.arange(model.num_slots), np.diff(model.layout.row_start))
        for step in range(model.horizon if model.stationary else 1):
            masks[step * model.layout.node_stride + slots, model.row_action] = self.steps.rows(step)
        masks.flags.writeable = False
        return masks

    # To read and to keep -------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> tuple[StepCount, ...]:
        """How much is safe at each step, among the states that an episode can be in there."""
        return tuple(self._count(step) for step in range(self.model.horizon))

    def _count(self, step: int) -> StepCount:
        layout = self.model.layout
        first, last = layout.step_slots[step].tolist()
        here = slice(step * layout.node_stride + first, step * layout.node_stride + last)
        offered = np.diff(layout.row_start[first : last + 1])
        met = self.model.reachable[here] & (offered > 0)
        rows = slice(int(layout.row_start[first]), int(layout.row_start[last]))
        safe = self.steps.rows(step, rows) & np.repeat(met, offered)
        counts = (met.sum(), (met & self.steps.slots(step, slice(first, last))).sum(), offered[met].sum(), safe.sum())
        return StepCount(step, *map(int, counts))

    def _table(self) -> Iterator[tuple[Any, ...]]:
        model = self.model
        for step, slot, _ in model.decisions():
            for row in model.rows_of_slot(slot):
                verdict = self.steps.row(step, row), not model.keeps[row]
                yield step, model.state_of_slot(slot), model.action_of_row(row), *verdict

    COLUMNS = ("step", "state", "action", "safe", "violates")

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return every action of every state as a line of CSV, safe or not; with `path` write it there as well."""
        return written(as_csv(self.COLUMNS, self._table()), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return every action of every state as JSON, safe or not; with `path` write it there as well."""
        head = {"problem": self.model.name, "horizon": self.model.horizon}
        return written(as_json(head, self.COLUMNS, self._table()), path)

    def save(self, path: str | Path, *, with_model: bool = False) -> None:
        """Write the safe set to one file for `peakrl.load`: one bit for each step, state and action.

        `with_model` puts the model beside it, so that the file can be read without the problem.
        """
        head: dict[str, Any] = {"problem": self.model.name, "model": self.model.digest, "with_model": with_model}
        plain, arrays = store_model(self.model) if with_model else ({}, {})
        stored = {f"model.{name}": array for name, array in arrays.items()}
        write_record(path, KIND, head | {"stored": plain}, {"bits": self.steps.bits(), **stored})


def safe_set(model: Target) -> SafeSet:
    """Return the safe set of a model or a `Problem`: what may be done where without ever having to violate anything.

    It rests on the possible outcomes and the constraints of the model alone; probabilities may be wrong.
    """
    return SafeSet(as_model(model))


def load_safe_set(path: str | Path, model: Target | None = None) -> SafeSet:
    """Return the safe set that was saved at `path`, for `model` (which may be a `Problem`) or for the file's own.

    Every bit is checked against the model: a file that calls anything safe that is not, or the reverse, is refused.
    """
    plain, arrays = read_record(path, KIND)
    with fields_of(path):
        known = stored_model(path, plain, arrays) if model is None else as_model(model)
        if plain["model"] != known.digest:
            raise StorageError(
                f"{path} holds the safe set of another problem or version of it, {plain['problem']!r}, not of {known!r}"
            )
        found = SafeSet(known)
        bits: NDArray[Any] = arrays["bits"]
        if bits.dtype != np.uint8 or not np.array_equal(bits, found.steps.bits()):
            raise StorageError(f"{path} is damaged: what it calls safe is not the safe set of {known.name!r}")
    return found


def stored_model(path: str | Path, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> TabularModel:
    """Return the model that a safe set's file holds."""
    if not plain["with_model"]:
        raise StorageError(
            f"{path} holds a safe set without its model: pass the problem or model, or save with with_model=True"
        )
    prefix = "model."
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return restored_model(path, plain["stored"], own)
