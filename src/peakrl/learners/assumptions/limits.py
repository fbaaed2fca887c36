"""Actions that declarations forbid: learners avoid them from the first episode on.

    support=model      every action outside of the safe set of that model; it must have all possible outcomes and the
                       real constraints, but its probabilities may be wrong
    constraints=f      every action with f(step, state, action) < 0; dead ends are still learned
    safe_policy=pi     every action except that of pi, and except what a support proves: actions that violate nothing
                       and lead, by all outcomes of the support, to states in which pi has an action or another one is
                       proved in turn (`safety.safe_policy`)

Declarations are trusted. On a model they are checked before the first episode, on an environment at every step
(`learners.assumptions.contradictions`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.compile import as_model
from peakrl.errors import PolicyError, SettingsError
from peakrl.learners.assumptions.assumptions import Assumptions
from peakrl.learners.space import Space
from peakrl.safety.safe_policy import SafePolicy
from peakrl.safety.safe_set import SafeSet
from peakrl.tabular import TabularModel
from peakrl.types import Floats
from peakrl.viability import Bools


class Limits:
    """What declarations forbid on a space."""

    def __init__(self, assumptions: Assumptions, space: Space) -> None:
        self.space = space
        self.function = assumptions.constraints
        self.policy = None if assumptions.safe_policy is None else SafePolicy(assumptions.safe_policy)
        #: What the support proves to be safe, given the safe policy if there is one.
        self.safe: SafeSet | None = None
        if assumptions.support is not None:
            support = as_model(assumptions.support)
            self.safe = SafeSet(support) if self.policy is None else self.policy.widened(support)

    @staticmethod
    def declared(assumptions: Assumptions, space: Space) -> Limits | None:
        """Return the limits; None if nothing is forbidden by declarations."""
        if assumptions.support is None and assumptions.constraints is None and assumptions.safe_policy is None:
            return None
        return Limits(assumptions, space)

    @property
    def proves(self) -> bool:
        """Are only actions allowed that are proved or declared to be safe?"""
        return self.safe is not None or self.policy is not None

    # What is forbidden ---------------------------------------------------------------------------------------

    def forbidden(self, first: int) -> tuple[Bools, Floats]:
        """Return [row - first, column] what is forbidden of the rows from `first` on, and [row - first] its violation.

        The violation is 0 for rows that are only not known to be safe.
        """
        space = self.space
        columns = space.horizon if space.shared else 1
        forbidden = np.zeros((space.rows - first, columns), np.bool_)
        max_violation = np.zeros(space.rows - first)
        if self.safe is not None and self.same(self.safe.model):
            forbidden |= ~self.safe.entries.reshape(-1, space.rows).T
        elif self.proves:
            forbidden |= self._unproved(first, columns)
        if self.function is not None:
            values = self.declared_values(first)
            forbidden |= values < 0
            max_violation = np.maximum(-values.min(axis=1, initial=0.0), 0.0)
        return forbidden, max_violation

    def same(self, support: TabularModel) -> bool:
        """Is the support the model that is learned on?"""
        own = self.space.states() if self.space.ends == 0 else None
        return isinstance(own, TabularModel) and (own is support or own.digest == support.digest)

    def _steps(self, slot: int) -> range:
        """Return the steps of the columns of a slot."""
        if self.space.shared:
            return range(self.space.horizon)
        step = int(self.space.slot_step[slot])
        return range(step, step + 1)

    def _unproved(self, first: int, columns: int) -> Bools:
        """[row - first, column]: what is neither proved nor declared to be safe."""
        space, start = self.space, self.space.layout.row_start
        unproved = np.ones((space.rows - first, columns), np.bool_)
        for slot in range(int(space.slot_of_row[first]) if first < space.rows else space.slots, space.slots):
            low, high = int(start[slot]), int(start[slot + 1])
            state, actions = space.state_of_slot(slot), [space.action_of_row(row) for row in range(low, high)]
            for column, step in enumerate(self._steps(slot)):
                unproved[low - first : high - first, column] = ~self.proved(step, state, actions)
        return unproved

    def proved(self, step: int, state: Hashable, actions: Sequence[Hashable]) -> Bools:
        """Return [action]: is it proved safe by the support, or the action of the safe policy?"""
        allowed = np.zeros(len(actions), np.bool_)
        if self.safe is not None:
            try:
                mask = self.safe.mask(step, state)
                allowed[:] = [action in self._numbers and mask[self._numbers[action]] for action in actions]
            except PolicyError:  # the support does not have the state
                pass
        if self.policy is not None and actions:
            own = self.policy.action(step, state)
            allowed |= [own is not None and action == own for action in actions]
        return allowed

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        """Numbers of the actions of the support."""
        assert self.safe is not None
        return {label: number for number, label in enumerate(self.safe.model.action_labels)}

    # The declared constraints --------------------------------------------------------------------------------

    def declared_values(self, first: int) -> Floats:
        """[row - first, column]: the least declared constraint value."""
        space = self.space
        columns = space.horizon if space.shared else 1
        values = np.zeros((space.rows - first, columns))
        for row in range(first, space.rows):
            slot = int(space.slot_of_row[row])
            state, action = space.state_of_slot(slot), space.action_of_row(row)
            values[row - first] = [self.declared_value(step, state, action) for step in self._steps(slot)]
        return values

    def declared_value(self, step: int, state: Hashable, action: Hashable) -> float:
        """Return the least declared constraint value."""
        assert self.function is not None
        given = self.function(step, state, action)
        try:
            values: Floats = np.asarray(given, np.float64).ravel()
        except (TypeError, ValueError):
            values = np.array([np.nan])
        if not np.isfinite(values).all():
            raise SettingsError(
                f"constraints(step, state, action) returned {given!r} for step {step}, state {state!r}, action "
                f"{action!r}; it must return a number, or one for each constraint, >= 0 if satisfied"
            )
        return float(values.min(initial=0.0)) if values.size else 0.0

    def first_allowed(self, state: Hashable, labels: list[Hashable]) -> int:
        """Return the index of the first allowed action of the first step, before there are tables."""
        allowed = self.proved(0, state, labels) if self.proves else np.ones(len(labels), np.bool_)
        for index, action in enumerate(labels):
            if allowed[index] and (self.function is None or self.declared_value(0, state, action) >= 0):
                return index
        return 0


def allowed_rows(row_start: NDArray[Any], forbidden: Bools, first: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return [slot, column]: the first row that is not forbidden (-1: none) and their number; rows from `first` on.

    `row_start` is that of the slots whose rows these are.
    """
    some = np.diff(row_start) > 0
    starts = row_start[:-1][some] - first
    numbers = np.arange(first, first + len(forbidden))[:, None]
    never = np.int64(2**62)
    lowest = np.full((len(some), forbidden.shape[1]), never)
    counts = np.zeros_like(lowest)
    if len(starts):
        lowest[some] = np.minimum.reduceat(np.where(forbidden, never, numbers), starts, axis=0)
        counts[some] = np.add.reduceat(~forbidden, starts, axis=0, dtype=np.int64)
    return np.where(counts > 0, lowest, -1), counts


def avoidable(row_start: NDArray[Any], forbidden: Bools, first: int) -> Bools:
    """Return [row - first, column]: what is forbidden, unless the slot has nothing else."""
    _, counts = allowed_rows(row_start, forbidden, first)
    found: Bools = forbidden & np.repeat(counts > 0, np.diff(row_start), axis=0)
    return found
