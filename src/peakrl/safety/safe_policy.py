"""A policy that is declared to be safe: a learner follows it wherever no other action is known to be safe.

The declaration: if it names an action, that action violates nothing, and in every state that may follow it names an
action again or that state is known to be safe otherwise. A function of step and state returns None if it declares
nothing. A policy of a model is declared safe where it violates nothing from there on by that model
(`viability.kept_nodes`). A policy that was learned on an environment, whose outcomes are not known, is declared safe in
every state that it knows.

With a model whose possible outcomes include all real ones, more is safe than the policy itself: actions that violate
nothing and lead, by that model, only to states in which the policy names an action or another action is safe.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from peakrl.errors import PolicyError, SettingsError
from peakrl.policy.tables import Policy
from peakrl.safety.safe_set import SafeSet
from peakrl.tabular import TabularModel
from peakrl.types import Bools, Ints
from peakrl.viability import NO_PROMISE, UNLISTED, SafeSteps, kept_nodes, promised_tables


class SafePolicy:
    """A policy, or a function of step and state, that is declared safe."""

    def __init__(self, given: Any) -> None:
        own = isinstance(given, Policy)
        if not own and (hasattr(given, "action") or not callable(given)):
            hint = "it must be deterministic" if hasattr(given, "action") else "it must be a policy"
            hint = "pass its .policy" if isinstance(getattr(given, "policy", None), Policy) else hint
            raise SettingsError(
                f"safe_policy is {given!r}: {hint}, or a function of step and state that returns an action, or None "
                "where it declares nothing"
            )
        self.given = given
        #: [node] of the policy's model: where it never violates; None without a model.
        self.kept: Bools | None = None
        if own and isinstance(given.model, TabularModel):
            self.kept = kept_nodes(given.model.layout, given.model.keeps, given.rows)

    def action(self, step: int, state: Hashable) -> Hashable | None:
        """Return the action that is declared safe; None if none is."""
        if isinstance(self.given, Policy):
            return self._of_policy(self.given, step, state)
        try:
            named: Hashable | None = self.given(step, state)
            hash(named)
        except Exception as error:  # user code may raise anything
            raise SettingsError(
                f"safe_policy(step, state) raised {type(error).__name__}: {error}, for step {step}, state {state!r}; "
                "it must return an action, or None where it declares nothing"
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
        """[node] of a model: the declared row, as `viability.promised_tables` takes it."""
        rows = np.full(model.num_nodes, NO_PROMISE, np.int32)
        for step, slot, node in model.decisions():
            state = model.state_of_slot(slot)
            named = self.action(step, state)
            if named is not None:
                rows[node] = row_or_unlisted(model, step, state, named)
        return rows

    def widened(self, model: TabularModel) -> SafeSet:
        """Return what is safe by a model's outcomes and this declaration together."""
        tables = promised_tables(model.layout, model.num_nodes, model.keeps, self.promised_rows(model))
        return SafeSet(model, SafeSteps.by_entry(model.horizon, model.stationary, *tables))

    def first_fault(self, state: Hashable) -> str:
        """Return why nothing is declared from a first state on, by the policy's model if it has one."""
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
    """Return the row of an action; UNLISTED if the model does not have it."""
    try:
        return model.row_of(step, state, action)
    except PolicyError:
        return UNLISTED


def model_knows(model: TabularModel, step: int, state: Hashable) -> bool:
    """Return whether the model has a state at a step."""
    try:
        model.slot_of(step, state)
    except PolicyError:
        return False
    return True
