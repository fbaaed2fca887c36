"""A policy that is promised to be safe: what a learner stays with wherever nothing else is known to be.

The promise: wherever it names an action, that action violates nothing, and whatever state follows, it names an action
there again or that state is known to be safe otherwise. A function of step and state returns None where it promises
nothing. A policy of a model promises what it keeps by that model (`viability.kept_nodes`): it is taken where,
followed from there on, it violates nothing. Of a policy that was learned on an environment, whose outcomes nobody
knows, every state that it knows is the user's word.

With a model whose possible outcomes include all real ones, more is safe than the policy itself: whatever violates
nothing and leads, by that model, only where the policy promises to go on or something is safe in turn.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from peakrl.errors import PolicyError, SettingsError
from peakrl.policy.tables import Policy
from peakrl.safety.safe_set import SafeSet
from peakrl.tabular import TabularModel
from peakrl.types import Ints
from peakrl.viability import NO_PROMISE, UNLISTED, Bools, SafeSteps, kept_nodes, promised_tables


class SafePolicy:
    """A policy, or a function of step and state, with its promise."""

    def __init__(self, given: Any) -> None:
        own = isinstance(given, Policy)
        if not own and (hasattr(given, "action") or not callable(given)):
            hint = "it must be one that draws nothing" if hasattr(given, "action") else "it must be a policy"
            hint = "pass its .policy" if isinstance(getattr(given, "policy", None), Policy) else hint
            raise SettingsError(
                f"safe_policy is {given!r}: {hint}, or a function of step and state that returns an action, None where "
                "it promises nothing"
            )
        self.given = given
        #: [node] of the policy's own model: what it keeps; None where there is no such model.
        self.kept: Bools | None = None
        if own and isinstance(given.model, TabularModel):
            self.kept = kept_nodes(given.model.layout, given.model.keeps, given.rows)

    def action(self, step: int, state: Hashable) -> Hashable | None:
        """Return what is promised to be safe; None where nothing is."""
        if isinstance(self.given, Policy):
            return self._of_policy(self.given, step, state)
        try:
            named: Hashable | None = self.given(step, state)
            hash(named)
        except Exception as error:  # of the user's own code: anything may come
            raise SettingsError(
                f"safe_policy(step, state) raised {type(error).__name__}: {error}, for step {step}, state {state!r}; "
                "it must return an action, or None where it promises nothing"
            ) from error
        return named

    def _of_policy(self, policy: Policy, step: int, state: Hashable) -> Hashable | None:
        model = policy.model
        try:
            slot = model.slot_of(step, state)
        except PolicyError:
            return None
        if self.kept is not None and not self.kept[step * model.node_stride + slot]:
            return None
        return model.action_of_row(policy.row(step, slot))

    def promised_rows(self, model: TabularModel) -> Ints:
        """[node] of a model: the row of what is promised, as `viability.promised_tables` takes it."""
        rows = np.full(model.num_nodes, NO_PROMISE, np.int32)
        for step, slot, node in model.decisions():
            state = model.state_of_slot(slot)
            named = self.action(step, state)
            if named is not None:
                rows[node] = row_or_unlisted(model, step, state, named)
        return rows

    def widened(self, model: TabularModel) -> SafeSet:
        """Return what is safe by a model's outcomes and by this promise together."""
        tables = promised_tables(model.layout, model.num_nodes, model.keeps, self.promised_rows(model))
        return SafeSet(model, SafeSteps.by_entry(model.horizon, model.stationary, *tables))

    def first_fault(self, state: Hashable) -> str:
        """Return why nothing is promised from a first state on, as far as the policy's own model tells."""
        policy = self.given
        if not isinstance(policy, Policy) or not isinstance(policy.model, TabularModel):
            return f"it names no action at step 0 in state {state!r}"
        model, here = policy.model, [state]
        for step in range(model.horizon):
            slots = [model.slot_of(step, each) for each in here if model_knows(model, step, each)]
            for slot in slots:
                row = policy.row(step, slot)
                if not model.keeps[row]:
                    where = f"at step {step} in state {model.state_of_slot(slot)!r}"
                    return f"{where} its action {model.action_of_row(row)!r} may violate"
            after = (slot for each in slots for slot in model.next_slots(policy.row(step, each)))
            here = [model.state_of_slot(slot) for slot in dict.fromkeys(after)]
        return f"its model does not know state {state!r} at step 0"


def row_or_unlisted(model: TabularModel, step: int, state: Hashable, action: Hashable) -> int:
    """Return the row of an action; UNLISTED where the model does not offer it."""
    try:
        return model.row_of(step, state, action)
    except PolicyError:
        return UNLISTED


def model_knows(model: TabularModel, step: int, state: Hashable) -> bool:
    """Does the model have a state at a step?"""
    try:
        model.slot_of(step, state)
    except PolicyError:
        return False
    return True
