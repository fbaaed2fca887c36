"""What an environment does against what is declared of it: the run then ends with the observation that contradicts.

    deterministic    an action led elsewhere, earned or gave otherwise than before; an episode began elsewhere
    rewards          an action earned otherwise than declared, or (True) than it did before
    outcome_map      an action led where no noise leads

`most_reward` and the number of states are looked at where they are used, `support` and `constraints` in `limits`. What
pairs are declared to share, the law of the next state or the constraints, may be random: no observation contradicts it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from peakrl.checks import ROUNDING
from peakrl.errors import TargetError
from peakrl.gym.adapter import Step
from peakrl.learners.assumptions.dynamics import OutcomeMap
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.space import Space


class Observations:
    """What was seen so far of what declarations tell."""

    def __init__(self, knowledge: Knowledge, space: Space) -> None:
        self.knowledge, self.space = knowledge, space
        self.active = bool(knowledge.deterministic or knowledge.rewards or knowledge.outcome_map)
        self._map = None if knowledge.outcome_map is None else OutcomeMap(knowledge.outcome_map, space)
        self._first: Hashable = None
        self._begun = False
        #: [row]: reward, constraints and next slot.
        self._seen: dict[int, tuple[float, tuple[float, ...], int]] = {}

    def check_first(self, state: Hashable) -> None:
        """Look at the first state of an episode."""
        if not self.knowledge.deterministic:
            return
        if self._begun and state != self._first:
            raise TargetError(f"the episode began in {state!r}, an earlier one in {self._first!r}: {NOT_RANDOM}")
        self._begun, self._first = True, state

    def check(self, step: int, row: int, seen: Step, following: int) -> None:
        """Look at one step."""
        if not self.active:
            return
        shows = step + 1 < self.space.horizon or self.space.shared
        before = self._seen.setdefault(row, (seen.reward, seen.constraints, -1))
        if self.knowledge.deterministic or self.knowledge.rewards:
            self._check_reward(step, row, seen.reward, before[0])
        if self.knowledge.deterministic:
            self._check_outcome(row, seen, before, following if shows else -1)
        if self._map is not None and shows:
            ended = following < self.space.ends
            self._map.check(row, None if ended else self.space.state_of_slot(following))

    def _check_reward(self, step: int, row: int, reward: float, before: float) -> None:
        told: Any = before
        if callable(self.knowledge.rewards):
            told = self.knowledge.rewards(step, self.space.state_of_slot(int(self.space.slot_of_row[row])),
                                          self.space.action_of_row(row))  # fmt: skip
        if abs(reward - told) > ROUNDING * max(1.0, abs(told)):
            says = "by the declared rewards" if callable(self.knowledge.rewards) else "and before"
            raise TargetError(f"{self._pair(row)} earned {reward:g}, {says} {told:g}")

    def _check_outcome(
        self, row: int, seen: Step, before: tuple[float, tuple[float, ...], int], following: int
    ) -> None:
        """Where nothing is random: the same constraints and the same next state as ever."""
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
