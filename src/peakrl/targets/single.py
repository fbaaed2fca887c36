"""One Gymnasium environment as one lane. A step of six values (with a cost, as in Safety-Gymnasium) is taken too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peakrl.checks import shown
from peakrl.errors import PeakError, TargetError
from peakrl.targets.adapters import LaneError, Observed, Rules, Step, info_of, kept, truth
from peakrl.targets.constraints import Transition


class SingleLane:
    """An environment whose every episode is seeded by the learner."""

    count = 1

    def __init__(self, env: Any, rules: Rules) -> None:
        self.env, self.rules = env, rules
        self._observation: Any = None
        self._step = 0

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Observed | None]:
        """Start an episode."""
        with_place = guarded(self._reset, seeds[0])
        self._step = 0
        return [with_place]

    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]:
        """Take one step."""
        (index,) = actions
        if index is None:
            return [None]
        result = guarded(self._advance, index)
        self._step += 1
        return [result]

    def _reset(self, seed: int | None) -> Observed:
        result = self.env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TargetError(f"reset() returned {shown(result)}; it must return (observation, info)")
        seen = self.rules.seen(result[0], info_of(result[1], "reset()"))
        self._observation = kept(result[0]) if self.rules.constraints.function is not None else None
        return seen

    def _advance(self, index: int) -> Step:
        action = self.rules.actions.value(index)
        result = self.env.step(action)
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            raise TargetError(
                f"step() returned {shown(result)}; it must return (observation, reward, terminated, truncated, info), "
                "or six values with the cost in third place"
            )
        observation, reward, *cost, terminated, truncated, info = result
        info = info_of(info, "step()")
        if cost:
            info = {**info, "cost": cost[0]}
        over = truth(terminated, "terminated"), truth(truncated, "truncated")
        transition = Transition(
            self._step, self._observation, action, self.rules.reward(reward), observation, *over, info
        )
        if any(over):
            following = self.rules.seen_last(observation, info, terminated=over[0])
        else:
            following = self.rules.seen(observation, info)
        if self.rules.constraints.function is not None:
            self._observation = kept(observation)
        return self.rules.step(transition, following)


def guarded(call: Any, *arguments: Any) -> Any:
    """Call into an environment and turn whatever it raises into a LaneError."""
    try:
        return call(*arguments)
    except PeakError as error:
        raise LaneError(str(error), 0) from None
    except Exception as error:
        raise LaneError(f"the environment raised {type(error).__name__}: {error}", 0) from error
