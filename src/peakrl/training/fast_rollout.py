"""Episodes of a single environment, each played to its end before anything is learned from it.

The same as `LaneSource` does step by step, bit for bit. What can wait until the end of an episode waits, and what has
no use is not asked for: an environment waits for whatever is done between two of its steps.
"""

from __future__ import annotations

from typing import Any

from peakrl.gym.adapter import NUMBERS, Observed, SingleLane, Step, failure, named
from peakrl.gym.constraints import Transition
from peakrl.learners.base import Algorithm, Episode
from peakrl.learners.space import GrowingSpace
from peakrl.training.kernel_rollout import Ledger
from peakrl.training.rollout import Lane, LaneSource

#: Of an episode: slots, where the last step led included, rows, rewards and constraints, those of a step together.
Walked = tuple[list[int], list[int], list[float], list[float]]


class SingleSource(LaneSource):
    """The only lane of an environment."""

    lanes: SingleLane
    space: GrowingSpace

    def _play_whole(self, ledger: Ledger) -> bool:
        """Play an episode to its end, and learn from it; say whether that could be done."""
        (lane,), algorithm = self._running, ledger.algorithm
        if lane is None or lane.first is None or lane.slot >= 0 or algorithm is None or algorithm.observes:
            return False
        played = lane.played or Episode(self.rules.horizon, self.rules.constraints.count or 0)
        place = algorithm.place_when_new() if self.limits is None else None
        self._waits = place is not None
        try:
            played.fill(*self._walk(ledger, algorithm, lane, lane.first, place or 0))
        finally:
            self._waits = False
            if self._unknown is not None:
                first, self._unknown = self._unknown, None
                self._grow(ledger, algorithm, first)
        self._running[0] = None
        self._complete(ledger, algorithm, played)
        return True

    def _walk(self, ledger: Ledger, algorithm: Algorithm, lane: Lane, first: Observed, place: int) -> Walked:
        """Walk from the first state to the end of the episode; `place`: of the row that is taken in states that wait.

        A step that goes on to a state that is shown as a plain number, and was met before or can wait, is through
        soonest; any other goes through `SingleLane.after` and `_following`, which know all that may be.
        """
        alone, space, rules, last = self.lanes, self.space, self.rules, self.rules.horizon - 1
        act, actions, advance, read = alone.action, alone.actions, alone.env.step, rules.constraints.read
        everything = rules.actions.everything
        (least, most), watchful, waits = rules.rewards, self._watchful, self._waits
        lookup, offers, numbers, starts = space.lookup, space.offers, space.numbers, space.starts
        slot, seen = self._place(ledger, algorithm, 0, first), alone.observation
        chosen, begin, by_step, by_slot, known = self._choices(algorithm)
        slots, rows, rewards = [slot], [], []
        constraints: list[float] = []
        step = 0
        try:
            for step in range(last + 1):
                if slot < known:
                    row = chosen[begin + step * by_step + slot * by_slot]
                else:
                    row = starts[slot] + min(place, len(offers[slot]) - 1)
                if watchful:
                    self._check_choice(step, slot, row)
                action, following, new = actions[numbers[row]] if actions else act(numbers[row]), -1, None
                try:
                    result = advance(action)
                    if type(result) is tuple and len(result) == 5 and not watchful:
                        observation, reward, over, cut_off, info = result
                        goes_on = over is False and cut_off is False and step < last
                        if goes_on and type(observation) in NUMBERS and type(info) is dict:
                            following = lookup[step + 1].get(observation, -1)
                            if following >= 0:
                                offer = rules.seen(observation, info).offer if "action_mask" in info else everything
                                if offers[following] is not offer and offers[following] != offer:
                                    following = -1
                            elif waits:
                                new = rules.seen(observation, info)
                    if following >= 0 or new is not None:
                        if type(reward) is int and least <= reward <= most:
                            reward = float(reward)
                        elif type(reward) is not float or not least <= reward <= most:
                            reward = rules.reward(reward)
                        values = read(named(Transition, (step, seen, action, reward, observation, False, False, info)))
                        seen = observation
                except Exception as error:
                    raise failure(error) from error
                if new is not None:
                    following = space.add(step + 1, new)
                    if self._unknown is None:
                        self._unknown = known = following
                elif following < 0:
                    alone.at(step, seen)
                    taken = Step(*alone.after(action, result))
                    reward, values, over, seen = taken.reward, taken.constraints, taken.over, alone.observation
                    following = self._following(ledger, algorithm, step, taken)
                    chosen, begin, by_step, by_slot, known = self._choices(algorithm)
                    if watchful:
                        self._check_step(step, slot, row, taken, following)
                slot = following
                slots.append(slot)
                rows.append(row)
                rewards.append(reward)
                constraints += values
                if over:
                    break
        finally:
            lane.step = step
        return slots, rows, rewards, constraints

    def _choices(self, algorithm: Algorithm) -> tuple[Any, int, int, int, int]:
        """Return where the rows stand that are taken, and the number of slots that they are known of."""
        rows, first, by_step, by_slot = algorithm.choices()
        known = self.space.slots if self._unknown is None else self._unknown
        return memoryview(rows), first, by_step, by_slot, known  # type: ignore[arg-type]  # an array is a buffer
