"""Compare declarations with a model, before the first episode, or with the observations of an environment.

On a model, everything that the allowed actions can reach is checked, so that every message names a step and a state
that can occur. On an environment, the run ends with the observation that contradicts a declaration:

    support, constraints, safe_policy      `DeclarationCheck`
    deterministic    an action had another outcome, reward or constraint than before; another first state
    rewards          an action had another reward than declared or (True) than before
    dynamics         an action led to a state to which no noise leads

`max_reward` and the number of states are checked where they are used. Shared distributions and shared constraints may
be random: no single observation contradicts them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from peakrl.checks import ROUNDING
from peakrl.errors import PolicyError, SettingsError, TargetError
from peakrl.gym.adapter import Step
from peakrl.learners.assumptions.assumptions import Assumptions, Dynamics
from peakrl.learners.assumptions.limits import Limits, allowed_rows
from peakrl.learners.space import Space
from peakrl.tabular import TabularModel

Refusal = type[SettingsError] | type[TargetError]


class DeclarationCheck:
    """Compares a model, or observations, with support, constraints and safe policy."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.safe, self.policy = limits, limits.safe, limits.policy
        self.horizon = limits.space.horizon
        #: [row of the support]: its next states, computed on demand.
        self._known: dict[int, set[Hashable]] = {}

    # Models --------------------------------------------------------------------------------------------------

    def check_model(self, model: TabularModel) -> None:
        """Raise if the model contradicts a declaration."""
        if self.limits.function is not None:
            self._check_function(model)
        if not self.limits.proves:
            return
        for slot in model.first_slot.tolist():
            actions = [model.action_of_row(row) for row in model.rows_of_slot(slot)]
            self.check_first(model.state_of_slot(slot), actions, SettingsError)
        if self.policy is not None or self.safe is None or not self.limits.same(self.safe.model):
            self._walk(model)

    def _check_function(self, model: TabularModel) -> None:
        wrong = np.argwhere((self.limits.declared_values(0) >= 0) != model.keeps[:, None])
        if wrong.size:
            row = int(wrong[0][0])
            says = "is satisfied" if model.keeps[row] else "may be violated"
            state = model.state_of_slot(int(model.slot_of_row[row]))
            raise SettingsError(
                f"constraints is not the constraint of the model: in state {state!r}, action "
                f"{model.action_of_row(row)!r}, a constraint {says}"
            )

    def _walk(self, model: TabularModel) -> None:
        """Check every allowed action of every state that allowed actions can reach."""
        layout = model.layout
        forbidden, _ = self.limits.forbidden(0)
        goes_on = allowed_rows(layout.row_start, forbidden, 0)[1] > 0
        here = set(model.first_slot.tolist())
        for step in range(model.horizon):
            column, after = step if model.stationary else 0, set()
            for slot in sorted(here):
                if not goes_on[slot, column]:
                    raise SettingsError(self._nothing_left(step, model.state_of_slot(slot)))
                for row in model.rows_of_slot(slot):
                    if not forbidden[row, column]:
                        following = model.next_slots(row)
                        self._check_row(model, row, step, following, goes_on)
                        after.update(following)
            here = after

    def _check_row(
        self, model: TabularModel, row: int, step: int, following: list[int], goes_on: np.ndarray[tuple[int, int]]
    ) -> None:
        state, action = model.state_of_slot(int(model.slot_of_row[row])), model.action_of_row(row)
        where = f"at step {step} in state {state!r}"
        own = self._own(step, state, action)
        if not model.keeps[row]:
            if own:
                raise SettingsError(f"safe_policy is not safe: {where} its action {action!r} may violate")
            raise SettingsError(f"support calls an action safe that may violate: {where} action {action!r}")
        if step + 1 == model.horizon:
            return
        known = self._following(step, state, action)
        for slot in following:
            after = model.state_of_slot(slot)
            if known is not None and after not in known:
                raise SettingsError(f"support lacks an outcome: {where} action {action!r} may lead to {after!r}")
            if not goes_on[slot, step + 1 if model.stationary else 0]:
                raise SettingsError(
                    f"safe_policy is not safe: {where} its action {action!r} may lead to {after!r}, in which it has no "
                    "available action, and nothing else is known to be safe"
                )

    def _violates(self, step: int, state: Hashable, action: Hashable, unknown: bool) -> bool:
        """Does an action violate the declared constraints? `unknown` if none are declared."""
        return unknown if self.limits.function is None else self.limits.declared_value(step, state, action) < 0

    # Models and environments ---------------------------------------------------------------------------------

    def _own(self, step: int, state: Hashable, action: Hashable) -> bool:
        """Is it the action of the safe policy?"""
        named = None if self.policy is None else self.policy.action(step, state)
        return named is not None and named == action

    def _following(self, step: int, state: Hashable, action: Hashable) -> set[Hashable] | None:
        """Return the next states of an action in the support; None if the support does not have the action."""
        if self.safe is None:
            return None
        support = self.safe.model
        try:
            row = support.row_of(step, state, action)
        except PolicyError:
            return None
        if row not in self._known:
            self._known[row] = {support.state_of_slot(slot) for slot in support.next_slots(row)}
        return self._known[row]

    def check_first(self, state: Hashable, actions: list[Hashable], error: Refusal = TargetError) -> None:
        """Raise if nothing is known to be safe in a first state."""
        if not self.limits.proves or self.limits.proved(0, state, actions).any():
            return
        if self.policy is not None and self.safe is None:
            named = self.policy.action(0, state)
            why = self.policy.first_fault(state) if named is None else f"its action {named!r} is not on offer there"
            raise error(f"safe_policy does not keep the constraints from the first state {state!r} on: {why}")
        assert self.safe is not None
        try:
            inside = self.safe.contains(0, state)
        except PolicyError as unknown:
            raise error(f"the first state {state!r} is outside of the declared support: {unknown}") from None
        if inside:
            raise error(f"of what is safe in the first state {state!r}, by the declared support, nothing is on offer")
        action = self.safe.model.action_of_row(self.safe.model.rows_of_slot(self.safe.model.slot_of(0, state))[0])
        raise error(
            f"no policy is safe from the first state {state!r} on, by the declared support: "
            f"{self.safe.reason(0, state, action)}"
        )

    # Environments --------------------------------------------------------------------------------------------

    def check_choice(self, step: int, state: Hashable, action: Hashable) -> None:
        """Raise if no declaration allows the action, because no other was left."""
        if self.limits.proves and not self.limits.proved(step, state, [action]).any():
            raise TargetError(self._nothing_left(step, state))

    def _nothing_left(self, step: int, state: Hashable) -> str:
        """Return why no action of a state is allowed."""
        named = None if self.policy is None else self.policy.action(step, state)
        what = "nothing is" if named is None else f"nothing but action {named!r}, which is not on offer, is"
        if named is not None and self._violates(step, state, named, False):
            return (
                f"constraints says that the safe policy's action {named!r} violates at step {step} in state {state!r}"
            )
        return f"{what} known to be safe at step {step} in state {state!r}, by what is declared"

    def check_step(
        self, step: int, state: Hashable, action: Hashable, following: Hashable | None, violation: float
    ) -> None:
        """Raise if a step of an environment contradicts a declaration; `following` is None at the end."""
        where = f"action {action!r} in state {state!r}"
        if following is not None and step + 1 < self.horizon:
            self._check_following(step, state, action, following, where)
        if self.limits.proves and violation > 0:
            says = "it is the safe policy's" if self._own(step, state, action) else "by the declared support it is safe"
            raise TargetError(f"{where} violated by {violation:g}, but {says}")
        if self._violates(step, state, action, violation > 0) != (violation > 0):
            seen = f"violated by {violation:g}" if violation > 0 else "violated nothing"
            raise TargetError(f"{where} {seen}, which is not what the declared constraints say")

    def _check_following(self, step: int, state: Hashable, action: Hashable, following: Hashable, where: str) -> None:
        known = self._following(step, state, action)
        if known is not None and following not in known:
            raise TargetError(
                f"{where} led to {following!r}, which is outside of the declared support: by that it can lead to "
                f"{', '.join(sorted(map(repr, known))[:5])}{' and others' if len(known) > 5 else ''} only"
            )
        if self.policy is not None and not self._goes_on(step + 1, following):
            raise TargetError(f"{where} led to {following!r}, in which the safe policy has no action: it is not safe")

    def _goes_on(self, step: int, state: Hashable) -> bool:
        """Is any action known to be safe in a state?"""
        assert self.policy is not None
        if self.policy.action(step, state) is not None:
            return True
        try:
            return self.safe is not None and self.safe.contains(step, state)
        except PolicyError:
            return False


class Observations:
    """Compares observations with the declarations deterministic, rewards and dynamics."""

    def __init__(self, assumptions: Assumptions, space: Space) -> None:
        self.assumptions, self.space = assumptions, space
        self.active = bool(assumptions.deterministic or assumptions.rewards or assumptions.dynamics)
        self._map = None if assumptions.dynamics is None else Dynamics(assumptions.dynamics, space)
        self._first: Hashable = None
        self._begun = False
        #: [row]: reward, constraints and next slot.
        self._seen: dict[int, tuple[float, tuple[float, ...], int]] = {}

    def check_first(self, state: Hashable) -> None:
        """Check the first state of an episode."""
        if not self.assumptions.deterministic:
            return
        if self._begun and state != self._first:
            raise TargetError(f"the episode began in {state!r}, an earlier one in {self._first!r}: {NOT_RANDOM}")
        self._begun, self._first = True, state

    def check(self, step: int, row: int, seen: Step, following: int) -> None:
        """Check one step."""
        if not self.active:
            return
        shows = step + 1 < self.space.horizon or self.space.shared
        before = self._seen.setdefault(row, (seen.reward, seen.constraints, -1))
        if self.assumptions.deterministic or self.assumptions.rewards:
            self._check_reward(step, row, seen.reward, before[0])
        if self.assumptions.deterministic:
            self._check_outcome(row, seen, before, following if shows else -1)
        if self._map is not None and shows:
            ended = following < self.space.ends
            self._map.check(row, None if ended else self.space.state_of_slot(following))

    def _check_reward(self, step: int, row: int, reward: float, before: float) -> None:
        expected: Any = before
        if callable(self.assumptions.rewards):
            expected = self.assumptions.rewards(step, self.space.state_of_slot(int(self.space.slot_of_row[row])),
                                          self.space.action_of_row(row))  # fmt: skip
        if abs(reward - expected) > ROUNDING * max(1.0, abs(expected)):
            says = "by the declared rewards" if callable(self.assumptions.rewards) else "and before"
            raise TargetError(f"{self._pair(row)} earned {reward:g}, {says} {expected:g}")

    def _check_outcome(
        self, row: int, seen: Step, before: tuple[float, tuple[float, ...], int], following: int
    ) -> None:
        """Raise unless constraints and next state are the same as before."""
        if seen.constraints != before[1]:
            raise TargetError(
                f"{self._pair(row)} gave constraints {seen.constraints}, before {before[1]}: {NOT_RANDOM}"
            )
        if following < 0:
            return
        if before[2] < 0:
            self._seen[row] = (*before[:2], following)
        elif before[2] != following:
            now, then = self._state(following), self._state(before[2])
            raise TargetError(f"{self._pair(row)} led to {now}, before to {then}: {NOT_RANDOM}")

    def _pair(self, row: int) -> str:
        state = self.space.state_of_slot(int(self.space.slot_of_row[row]))
        return f"state {state!r}, action {self.space.action_of_row(row)!r}"

    def _state(self, slot: int) -> str:
        return "the end" if slot < self.space.ends else repr(self.space.state_of_slot(slot))


NOT_RANDOM = "but deterministic is declared"
