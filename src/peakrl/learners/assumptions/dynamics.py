"""Where each noise leads, as `Knowledge(outcome_map=(g, noises))` declares it of states that are met as they come.

s' = g(s, a, noise), None where the episode ends; the noises are drawn independently, with one law. Which noise came up
is told by where a step led, so that no two may lead from one pair to the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from peakrl.checks import shown
from peakrl.errors import SettingsError, TargetError
from peakrl.learners.space import Space
from peakrl.visited import label_of

Declared = tuple[Callable[[Any, Any, Any], Any], tuple[Any, ...]]


class OutcomeMap:
    """The next states of a pair, by noise."""

    def __init__(self, declared: Declared, space: Space) -> None:
        self.rule, self.noises = declared
        self.space = space
        #: [row]: as far as they were asked for.
        self._reached: dict[int, dict[Hashable, int]] = {}

    def reached(self, row: int) -> dict[Hashable, int]:
        """Return the number of the noise by the state that it leads to, in the order of the noises."""
        if row not in self._reached:
            self._reached[row] = self._ask(row)
        return self._reached[row]

    def _ask(self, row: int) -> dict[Hashable, int]:
        state, action = self.space.state_of_slot(int(self.space.slot_of_row[row])), self.space.action_of_row(row)
        found: dict[Hashable, int] = {}
        for number, noise in enumerate(self.noises):
            after = label(self.rule(state, action, noise))
            if found.setdefault(after, number) != number:
                raise SettingsError(
                    f"outcome_map leads from state {state!r}, action {action!r} to {named(after)} by the noises "
                    f"{self.noises[found[after]]!r} and {noise!r}, so that none can be told by where a step leads"
                )
        return found

    def check(self, row: int, after: Hashable) -> None:
        """Raise where no noise leads from a pair to where a step led."""
        reached = self.reached(row)
        if after not in reached:
            state, action = self.space.state_of_slot(int(self.space.slot_of_row[row])), self.space.action_of_row(row)
            others = ", ".join(map(named, list(reached)[:5])) + (" and others" if len(reached) > 5 else "")
            raise TargetError(
                f"state {state!r}, action {action!r} led to {named(after)}, which no noise of the declared outcome_map "
                f"explains: by that it leads to {others} only"
            )


def label(reached: Any) -> Hashable:
    """Return a state as a learner calls it; None for the end."""
    try:
        hash(reached)
    except TypeError:
        try:
            return label_of(reached)
        except TargetError:
            raise SettingsError(f"outcome_map leads to {shown(reached)}, which is no state") from None
    known: Hashable = reached
    return known


def named(state: Hashable) -> str:
    """Return a state, or the end, in words."""
    return "the end" if state is None else repr(state)
