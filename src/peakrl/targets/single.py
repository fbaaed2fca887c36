"""One Gymnasium environment as one lane. A step of six values (with a cost, as in Safety-Gymnasium) is taken too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peakrl.checks import shown
from peakrl.errors import PeakError, TargetError
from peakrl.targets.adapters import LaneError, Observed, Rules, Step, info_of, kept, truth
from peakrl.targets.constraints import Transition

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
        self._observation: Any = None
        self._step = 0
        self._labels = rules.actions.labels if rules.actions.sizes is None else None

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
        try:
            action = self.rules.actions.value(index) if self._labels is None else self._labels[index]
            result = self._after(action, self.env.step(action))
        except PeakError as error:
            raise LaneError(str(error), 0) from None
        except Exception as error:
            raise LaneError(f"the environment raised {type(error).__name__}: {error}", 0) from error
        self._step += 1
        return result

    def _reset(self, seed: int | None) -> Observed:
        result = self.env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TargetError(f"reset() returned {shown(result)}; it must return (observation, info)")
        seen = self.rules.seen(result[0], info_of(result[1], "reset()"))
        self._observation = kept(result[0]) if self._remembers else None
        return seen

    def _after(self, action: Any, result: Any) -> Taken:
        """Return what a step came to; one that goes on with a plain number of a state is through soonest."""
        rules = self.rules
        if type(result) is not tuple or len(result) != 5:
            result = five_values(result)
        observation, reward, over, cut_off, info = result
        if type(info) is not dict:
            info = info_of(info, "step()")
        if over is not False or cut_off is not False:
            over, cut_off = truth(over, "terminated"), truth(cut_off, "truncated")
        reward = rules.reward(reward)
        following: Observed | None
        if over or cut_off:
            following = rules.seen_last(observation, info, terminated=over)
        else:
            following = rules.seen(observation, info)
        fields = (self._step, self._observation, action, reward, observation, over, cut_off, info)
        constraints = rules.constraints.read(named(Transition, fields))
        if self._remembers:
            self._observation = observation if type(observation) is int else kept(observation)
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
    except PeakError as error:
        raise LaneError(str(error), 0) from None
    except Exception as error:
        raise LaneError(f"the environment raised {type(error).__name__}: {error}", 0) from error
