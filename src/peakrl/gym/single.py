"""One Gymnasium environment as one lane. A step of six values (with a cost, as in Safety-Gymnasium) is taken too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peakrl.checks import shown
from peakrl.errors import PeakError, TargetError
from peakrl.gym.adapter import LaneError, Observed, Rules, Step, info_of, kept, truth
from peakrl.gym.constraints import Transition

#: The fields of a `Step`, which takes longer to make.
Taken = tuple[float, tuple[float, ...], Observed | None, bool, bool]
#: Makes a named tuple of a plain one, in half the time of naming its fields.
named = tuple.__new__


class SingleLane:
    """An environment whose every episode is seeded by the learner."""

    count = 1

    def __init__(self, env: Any, rules: Rules) -> None:
        self.env, self.rules = env, rules
        #: Only a user's function asks what was seen before a step.
        self._remembers = rules.constraints.function is not None
        #: What was seen last.
        self.observation: Any = None
        self._step = 0
        #: [number]: what `step` takes, where that is the same object every time.
        self.actions = list(rules.actions.labels) if rules.actions.sizes is None else None

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Observed | None]:
        """Start an episode."""
        with_place = guarded(self._reset, seeds[0])
        self._step = 0
        return [with_place]

    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]:
        """Take one step."""
        (index,) = actions
        return [None if index is None else Step(*self.take(index))]

    def take(self, index: int) -> Taken:
        """Take one step with an action given by its number."""
        action = self.action(index)
        try:
            result = self.env.step(action)
        except Exception as error:
            raise failure(error) from error
        return self.after(action, result)

    def action(self, index: int) -> Any:
        """Return what `step` takes for an action given by its number."""
        return self.rules.actions.value(index) if self.actions is None else self.actions[index]

    def at(self, step: int, observation: Any) -> None:
        """Say how many steps were taken, and what was seen last, by somebody who took them without asking here."""
        self._step, self.observation = step, observation

    def _reset(self, seed: int | None) -> Observed:
        result = self.env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TargetError(f"reset() returned {shown(result)}; it must return (observation, info)")
        seen = self.rules.seen(result[0], info_of(result[1], "reset()"))
        self.observation = kept(result[0]) if self._remembers else None
        return seen

    def after(self, action: Any, result: Any) -> Taken:
        """Return what a step came to, given what `step` returned."""
        try:
            taken = self._after(action, result)
        except Exception as error:
            raise failure(error) from error
        self._step += 1
        return taken

    def _after(self, action: Any, result: Any) -> Taken:
        rules = self.rules
        observation, reward, over, cut_off, info = five_values(result)
        info = info_of(info, "step()")
        over, cut_off = truth(over, "terminated"), truth(cut_off, "truncated")
        reward = rules.reward(reward)
        following: Observed | None
        if over or cut_off:
            following = rules.seen_last(observation, info, terminated=over)
        else:
            following = rules.seen(observation, info)
        fields = (self._step, self.observation, action, reward, observation, over, cut_off, info)
        constraints = rules.constraints.read(named(Transition, fields))
        if self._remembers:
            self.observation = kept(observation)
        return reward, constraints, following, over, cut_off and not over


def five_values(result: Any) -> tuple[Any, ...]:
    """Return what a step came to with a cost in third place moved into `info`."""
    if not isinstance(result, tuple) or len(result) not in (5, 6):
        raise TargetError(
            f"step() returned {shown(result)}; it must return (observation, reward, terminated, truncated, info), "
            "or six values with the cost in third place"
        )
    if len(result) == 5:
        return result
    observation, reward, cost, terminated, truncated, info = result
    return observation, reward, terminated, truncated, {**info_of(info, "step()"), "cost": cost}


def guarded(call: Any, *arguments: Any) -> Any:
    """Call into an environment and turn whatever it raises into a LaneError."""
    try:
        return call(*arguments)
    except Exception as error:
        raise failure(error) from error


def failure(error: Exception) -> LaneError:
    """Return what an environment, or the reading of what it returned, raised."""
    if isinstance(error, PeakError):
        return LaneError(str(error), 0)
    return LaneError(f"the environment raised {type(error).__name__}: {error}", 0)
