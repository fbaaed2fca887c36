"""What is declared to fail, before it is tried: a learner stays away from it from its first episode on.

    Knowledge(support=model)     every action outside of the safe set of that model (`kernels.safety`); it needs to have
                                 all outcomes that are possible, and the constraints, but no probability need be right
    Knowledge(constraints=f)     every action with f(step, state, action) < 0; dead ends are learned as ever

Both are believed. On a model they are checked once, before the first episode, on an environment step by step: what
contradicts them ends the run with the observation that does.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PolicyError, SettingsError, TargetError
from peakrl.kernels.arrays import Floats
from peakrl.kernels.safety import Bools
from peakrl.learning.knowledge import Knowledge
from peakrl.learning.space import Space
from peakrl.model.explore import as_model
from peakrl.model.tabular import TabularModel
from peakrl.safety.safe_set import SafeSet


class Limits:
    """What a learner must not do on a space, as declared."""

    def __init__(self, knowledge: Knowledge, space: Space) -> None:
        self.space = space
        self.function = knowledge.constraints
        self.safe = None if knowledge.support is None else SafeSet(as_model(knowledge.support))

    @staticmethod
    def declared(knowledge: Knowledge, space: Space) -> Limits | None:
        """Return what is declared to fail; None where nothing is."""
        if knowledge.support is None and knowledge.constraints is None:
            return None
        return Limits(knowledge, space)

    # What is forbidden ---------------------------------------------------------------------------------------

    def forbidden(self, first: int) -> tuple[Bools, Floats]:
        """Return [row - first, column]: what must not be done by the rows from `first` on; and by how much it violates.

        Of what only leads to violations that amount is 0.
        """
        space = self.space
        columns = space.horizon if space.shared else 1
        forbidden = np.zeros((space.rows - first, columns), np.bool_)
        harm = np.zeros(space.rows - first)
        if self.safe is not None and self._same(self.safe.model):
            forbidden |= ~self.safe.entries.reshape(-1, space.rows).T
        elif self.safe is not None:
            forbidden |= self._unsafe(self.safe, first, columns)
        if self.function is not None:
            for row in range(first, space.rows):
                values = [self._declared(step, row) for step in self._steps(row)]
                forbidden[row - first] |= np.array(values) < 0
                harm[row - first] = max(0.0, -min(values))
        return forbidden, harm

    def _same(self, support: TabularModel) -> bool:
        own = self.space.states() if self.space.ends == 0 else None
        return isinstance(own, TabularModel) and (own is support or own.digest == support.digest)

    def _steps(self, row: int) -> range:
        """Return the steps whose columns a row has."""
        if self.space.shared:
            return range(self.space.horizon)
        step = int(self.space.slot_step[self.space.slot_of_row[row]])
        return range(step, step + 1)

    def _unsafe(self, safe: SafeSet, first: int, columns: int) -> Bools:
        """[row - first, column]: what is not safe by another model; where that one knows nothing, nothing is safe."""
        space = self.space
        unsafe = np.ones((space.rows - first, columns), np.bool_)
        for row in range(first, space.rows):
            slot, action = int(space.slot_of_row[row]), space.action_of_row(row)
            for column, step in enumerate(self._steps(row)):
                unsafe[row - first, column] = not self._allows(safe, step, space.state_of_slot(slot), action)
        return unsafe

    def _allows(self, safe: SafeSet, step: int, state: Hashable, action: Hashable) -> bool:
        number = self._numbers.get(action)
        try:
            return number is not None and bool(safe.mask(step, state)[number])
        except PolicyError:
            return False

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        """The actions of the support, numbered."""
        assert self.safe is not None
        return {label: number for number, label in enumerate(self.safe.model.action_labels)}

    def _declared(self, step: int, row: int) -> float:
        space = self.space
        return self.declared_value(step, space.state_of_slot(int(space.slot_of_row[row])), space.action_of_row(row))

    def declared_value(self, step: int, state: Hashable, action: Hashable) -> float:
        """Return the least of the constraints, as declared."""
        assert self.function is not None
        given = self.function(step, state, action)
        try:
            values: Floats = np.asarray(given, np.float64).ravel()
        except (TypeError, ValueError):
            values = np.array([np.nan])
        if not np.isfinite(values).all():
            raise SettingsError(
                f"constraints(step, state, action) gave {given!r} for step {step}, state {state!r}, action {action!r}; "
                "it must give a number, or one for each constraint, >= 0 where met"
            )
        return float(values.min(initial=0.0)) if values.size else 0.0

    def first_allowed(self, state: Hashable, labels: list[Hashable]) -> int:
        """Return the place of the first action of the first step that may be taken, before there are tables."""
        for place, action in enumerate(labels):
            allowed = self.safe is None or self._allows(self.safe, 0, state, action)
            if allowed and (self.function is None or self.declared_value(0, state, action) >= 0):
                return place
        return 0

    # What contradicts it -------------------------------------------------------------------------------------

    def check_model(self, model: TabularModel) -> None:
        """Raise where a model does what is declared to be impossible."""
        if self.function is not None:
            self._check_function(model)
        if self.safe is None:
            return
        for slot in model.first_slot.tolist():
            self.check_first(model.state_of_slot(slot), SettingsError)
        if not self._same(self.safe.model):
            self._check_outcomes(model, self.safe)

    def _check_function(self, model: TabularModel) -> None:
        forbidden, _ = self.forbidden(0)
        wrong = np.argwhere(forbidden == model.keeps[:, None])
        if wrong.size:
            row = int(wrong[0][0])
            says = "is met" if model.keeps[row] else "may be violated"
            state = model.state_of_slot(int(model.slot_of_row[row]))
            raise SettingsError(
                f"constraints is declared otherwise than the model has it: in state {state!r}, action "
                f"{model.action_of_row(row)!r}, a constraint {says}"
            )

    def _check_outcomes(self, model: TabularModel, safe: SafeSet) -> None:
        """Raise where a safe action may come to something that the support does not have."""
        layout = model.layout
        for step in range(model.horizon):
            first, last = layout.step_slots[step].tolist()
            for slot in range(first, last):
                if not model.reachable[step * layout.node_stride + slot]:
                    continue
                state = model.state_of_slot(slot)
                for row in model.rows_of_slot(slot):
                    action = model.action_of_row(row)
                    if self._allows(safe, step, state, action):
                        self._check_row(model, row, step, state, action)

    def _check_row(self, model: TabularModel, row: int, step: int, state: Hashable, action: Hashable) -> None:
        layout = model.layout
        where = f"at step {step} in state {state!r} action {action!r}"
        if not model.keeps[row]:
            raise SettingsError(f"support calls safe what may violate: {where}")
        if step + 1 == model.horizon:
            return
        d = layout.row_distribution[row]
        for slot in layout.outcome_next[layout.outcome_start[d] : layout.outcome_start[d + 1]].tolist():
            after = model.state_of_slot(slot)
            if after not in self._following(step, state, action):
                raise SettingsError(f"support lacks an outcome: {where} may lead to {after!r}")

    def _following(self, step: int, state: Hashable, action: Hashable) -> set[Hashable]:
        """Return the next states that the support has for an action."""
        assert self.safe is not None
        support = self.safe.model
        key = support.row_of(step, state, action)
        if key not in self._known:
            d = support.layout.row_distribution[key]
            outcomes = slice(support.layout.outcome_start[d], support.layout.outcome_start[d + 1])
            slots: NDArray[Any] = support.layout.outcome_next[outcomes]
            self._known[key] = {support.state_of_slot(slot) for slot in slots.tolist()}
        return self._known[key]

    @cached_property
    def _known(self) -> dict[int, set[Hashable]]:
        """[row of the support]: its next states, as far as they were asked for."""
        return {}

    def check_first(self, state: Hashable, error: type[SettingsError] | type[TargetError] = TargetError) -> None:
        """Raise where an episode begins in a state that the support does not know, or that is not safe."""
        if self.safe is None:
            return
        try:
            inside = self.safe.contains(0, state)
        except PolicyError as unknown:
            raise error(f"the first state {state!r} is outside of the declared support: {unknown}") from None
        if not inside:
            action = self.safe.model.action_of_row(self.safe.model.rows_of_slot(self.safe.node_of(0, state))[0])
            raise error(
                f"no policy is safe from the first state {state!r} on, by the declared support: "
                f"{self.safe.reason(0, state, action)}"
            )

    def check_step(
        self, step: int, state: Hashable, action: Hashable, following: Hashable | None, violation: float
    ) -> None:
        """Raise where a step of an environment contradicts what is declared; `following` is None at the end."""
        where = f"action {action!r} in state {state!r}"
        if self.safe is not None:
            self._check_following(step, state, action, following, where)
            if violation > 0:
                raise TargetError(f"{where} violated by {violation:g}, but by the declared support it is safe")
        if self.function is not None and (self.declared_value(step, state, action) < 0) != (violation > 0):
            seen = f"violated by {violation:g}" if violation > 0 else "violated nothing"
            raise TargetError(f"{where} {seen}, which is not what the declared constraints say")

    def _check_following(
        self, step: int, state: Hashable, action: Hashable, following: Hashable | None, where: str
    ) -> None:
        if following is None or step + 1 == self.space.horizon:
            return
        known = self._following(step, state, action)
        if following not in known:
            raise TargetError(
                f"{where} led to {following!r}, which is outside of the declared support: by that it can lead to "
                f"{', '.join(sorted(map(repr, known))[:5])}{' and others' if len(known) > 5 else ''} only"
            )


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
