"""What single and vectorised shields share: which state an observation is, what is safe there, what to do instead.

A guard trusts nobody in silence. An observation that is no state of the model, a state that the model calls impossible
after the last action, and one in which nothing is safe are errors: from there on the safe set promises nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from peakrl.checks import check_choice, shown
from peakrl.errors import PolicyError, SettingsError, TargetError
from peakrl.safety.safe_set import SafeSet
from peakrl.spaces import ActionSet
from peakrl.tabular import TabularModel
from peakrl.types import Longs
from peakrl.viability import Bools
from peakrl.visited import label_of

StateFunction = Callable[..., Hashable]
ON_UNSAFE = ("replace", "raise")


class Guard:
    """The safe set in the terms of an environment: its observations, and its actions by number."""

    def __init__(
        self,
        safe: SafeSet,
        action_space: Any,
        *,
        on_unsafe: str,
        state_of: StateFunction | None,
        fallback: Any,
        labels: Sequence[Hashable] | None,
    ) -> None:
        if not isinstance(safe, SafeSet):
            raise SettingsError(f"{safe!r} is not a SafeSet; safe_set(model) makes one")
        check_choice(on_unsafe, "on_unsafe", ON_UNSAFE)
        if fallback is not None and not callable(getattr(fallback, "action", fallback)):
            raise SettingsError(f"fallback is {fallback!r}; it must be a policy or a function of step and state")
        self.safe, self.model, self.on_unsafe, self.fallback = safe, safe.model, on_unsafe, fallback
        self.actions = ActionSet(action_space)
        self.labels = list(self.actions.labels if labels is None else labels)
        self.state_of = with_step(label_of if state_of is None else state_of)
        self.columns = columns_of(self.model, self.labels, len(self.actions))
        self._masks = self._all_masks()
        #: What may follow (slot, action), for those that came up.
        self._following: dict[tuple[int, int], frozenset[int]] = {}

    def _all_masks(self) -> Bools | None:
        """[node, action of the environment]: every mask; None where there are too many."""
        masks = self.safe.masks
        if masks is None or np.array_equal(self.columns, np.arange(masks.shape[1])):
            return masks
        return self._own_order(masks)

    def _own_order(self, masks: Bools) -> Bools:
        """Return masks over the model's actions as masks over the environment's."""
        own: Bools = masks[..., np.maximum(self.columns, 0)] & (self.columns >= 0)
        own.flags.writeable = False
        return own

    # Where an episode is -------------------------------------------------------------------------------------

    def state(self, observation: Any, step: int) -> Hashable:
        """Return the state that an observation shows."""
        try:
            return self.state_of(observation, step)
        except TargetError as error:
            raise TargetError(f"{error}; pass state_of=, a function from an observation to a state") from None

    def arrive(self, state: Hashable, step: int, before: tuple[int, int] | None, seen: Any = None) -> int:
        """Return the node of a state in which an action is to be taken.

        `before` is the node and the action, by number, that led there; None at the start of an episode.
        """
        try:
            node = self.safe.node_of(step, state)
        except PolicyError as error:
            raise TargetError(f"{told(state, seen)} at step {step} is no state of the safe set: {error}") from None
        if before is not None and not self.possible(*before, node):
            raise TargetError(
                f"{told(state, seen)} at step {step} contradicts the model {self.model.name!r}: there "
                f"{self._told(*before)} cannot lead to it. What is safe rests on what the model calls possible"
            )
        if not self.safe.holds(node):
            rows = self.model.rows_of_slot(node % self.model.num_slots)
            why = self.safe.reason(step, state, self.model.action_of_row(rows[0]))
            raise TargetError(f"no action is safe at step {step} in {told(state, seen)}: {why}")
        return node

    def possible(self, node: int, index: int, following: int) -> bool:
        """Does the model have it that this action may lead to that node?"""
        slots = self.model.num_slots
        pair = node % slots, index
        if pair not in self._following:
            self._following[pair] = self._next_slots(*pair)
        return following % slots in self._following[pair]

    def _next_slots(self, slot: int, index: int) -> frozenset[int]:
        rows = self.model.rows_of_slot(slot)
        row = rows.start + int(np.argmax(self.model.row_action[rows.start : rows.stop] == self.columns[index]))
        return frozenset(self.model.next_slots(row))

    def _told(self, node: int, index: int) -> str:
        state = self.model.state_of_slot(node % self.model.num_slots)
        return f"action {shown(self.labels[index])} in state {shown(state)}"

    # What may be done ----------------------------------------------------------------------------------------

    def mask(self, node: int) -> Bools:
        """Return [action of the environment]: True where it is safe."""
        if self._masks is None:
            return self._own_order(self.safe.mask_of(node))
        mask: Bools = self._masks[node]
        return mask

    def index(self, action: Any) -> int:
        """Return the number of an action that is given as the environment's `step` takes it."""
        label = action
        if not isinstance(action, int):
            try:
                label = label_of(action)
            except TargetError:
                label = None
        index = self.actions.index(label)
        if index < 0:
            raise PolicyError(f"action {shown(action)} is none of {self.actions.space}")
        return index

    def instead(self, step: int, node: int, index: int) -> int:
        """Return the number of the action to take in place of one that is not safe, or refuse."""
        state = self.model.state_of_slot(node % self.model.num_slots)
        if self.on_unsafe == "raise":
            raise PolicyError(f"action {shown(self.labels[index])} is not safe: {self._why(step, state, index)}")
        if self.fallback is None:
            safe = np.flatnonzero(self.mask(node))
            return int(safe[np.argmin(np.abs(safe - index))])  # of two that are equally near the first
        label = getattr(self.fallback, "action", self.fallback)(step, state)
        other = self.labels.index(label) if label in self.labels else -1
        if other < 0 or not self.mask(node)[other]:
            why = "it is not on offer" if other < 0 else self._why(step, state, other)
            raise PolicyError(f"the fallback's action {shown(label)} at step {step} is not safe either: {why}")
        return other

    def _why(self, step: int, state: Hashable, index: int) -> str:
        try:
            return str(self.safe.reason(step, state, self.labels[index]))
        except PolicyError as error:
            return str(error)


def told(state: Hashable, seen: Any) -> str:
    """Return where an episode is, for a message."""
    return f"state {shown(state)}" if seen is None else f"the observation {shown(seen)}"


def columns_of(model: TabularModel, labels: Sequence[Hashable], count: int) -> Longs:
    """Return [action of the environment]: which of the model's it is, -1 where it is none of them."""
    if len(labels) != count:
        raise SettingsError(f"actions= names {len(labels)} actions; the environment has {count}")
    numbers = {label: number for number, label in enumerate(model.action_labels)}
    columns = np.array([numbers.get(label, -1) for label in labels], np.int64)
    missing = set(range(len(numbers))) - set(columns.tolist())
    if missing:
        unknown = model.action_labels[min(missing)]
        raise SettingsError(
            f"the safe set is one of {model!r}, whose action {shown(unknown)} the environment does not have; it has "
            f"{shown(list(labels))}. Where they go by other names, pass actions=, the model's in the order of the "
            "environment's"
        )
    return columns


def with_step(function: Any) -> StateFunction:
    """Return a function of observation and step, from one of the observation alone or of both."""
    if not callable(function):
        raise SettingsError(f"state_of is {function!r}; it must be a function of an observation, or of it and the step")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not tell
        return lambda observation, step: function(observation)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.kind in positional and each.default is inspect.Parameter.empty]
    both: StateFunction = function
    return both if len(needed) >= 2 else lambda observation, step: function(observation)


def own_model(environment: Any) -> TabularModel | None:
    """Return the model of an environment that peakrl made, None of any other."""
    model = getattr(environment, "model", None)
    return model if isinstance(model, TabularModel) and hasattr(environment, "actions") else None


def check_same(model: TabularModel, safe: Any) -> None:
    """Raise unless a safe set belongs to the environment's own model."""
    if isinstance(safe, SafeSet) and safe.model is not model and safe.model.digest != model.digest:
        raise SettingsError(
            f"the safe set is one of {safe.model!r}, the environment is one of {model!r}. Where the former covers all "
            "that can happen in the latter and names states alike, pass state_of="
        )
