"""A vectorised Gymnasium environment as several lanes that are stepped together.

A lane whose environment ended its episode is reset by the next step (autoreset mode NEXT_STEP), has been reset already
(SAME_STEP) or is reset by us (DISABLED). A lane that reached the horizon is reset by us in every mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from peakrl.checks import shown
from peakrl.errors import PeakError, SettingsError
from peakrl.gym.adapter import LaneError, Observed, Rules, Step, info_of, kept, truth
from peakrl.gym.constraints import Transition


class VectorLanes:
    """The sub-environments of a vectorised environment."""

    def __init__(self, env: Any, rules: Rules) -> None:
        self.env, self.rules, self.count = env, rules, int(env.num_envs)
        self.mode = autoreset_mode(env)
        own = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        #: Can a lane be reset in the middle of an episode?
        self._resettable = own or self.mode is AutoresetMode.DISABLED
        self._running = False
        #: NEXT_STEP: the next step resets this lane; SAME_STEP: the first state of its next episode.
        self._resets = [False] * self.count
        self._fresh: list[Observed | None] = [None] * self.count
        #: Actions of idle lanes.
        self._idle = [0] * self.count
        #: DISABLED: the episode is over and the lane has not been reset.
        self._over = [False] * self.count
        self._steps = [0] * self.count
        self._observations: list[Any] = [None] * self.count

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Observed | None]:
        """Start episodes in `lanes`."""
        waiting = [lane for lane in lanes if not self._resets[lane] and self._fresh[lane] is None]
        if waiting:
            self._reset(waiting, dict(zip(lanes, seeds, strict=True)))
        begun = [self._fresh[lane] for lane in lanes]
        for lane in lanes:
            self._fresh[lane] = None
            self._steps[lane] = 0
        return begun

    def _reset(self, lanes: Sequence[int], seeds: dict[int, int | None]) -> None:
        everyone = not self._running
        mask = np.full(self.count, everyone)
        mask[list(lanes)] = True
        options = None if everyone else {"reset_mask": mask}
        result = self._call(self.env.reset, seed=[seeds.get(lane) for lane in range(self.count)], options=options)
        if not isinstance(result, tuple) or len(result) != 2:
            raise LaneError(f"reset() returned {shown(result)}; it must return (observations, infos)", None)
        self._running = True
        observations = self._split(result[0])
        for lane in np.flatnonzero(mask).tolist():
            self._over[lane] = self._resets[lane] = False
            self._fresh[lane] = self._seen(lane, observations[lane], result[1])

    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]:
        """Take one step in every lane."""
        self._keep_idle([lane for lane, action in enumerate(actions) if action is None])
        self._fresh = [None] * self.count  # idle lanes continue from their first state
        indices = [self._idle[lane] if action is None else action for lane, action in enumerate(actions)]
        result = self._call(self.env.step, self.rules.actions.batch(indices))
        lengths = [len(part) for part in result[1:4]] if isinstance(result, tuple) and len(result) == 5 else []
        if lengths != [self.count] * 3:
            wanted = "(observations, rewards, terminations, truncations, infos)"
            raise LaneError(f"step() returned {shown(result)}; it must return {wanted} for {self.count} lanes", None)
        observations, rewards, terminations, truncations, infos = result
        values = zip(self._split(observations), rewards, terminations, truncations, strict=True)
        return [
            self._event(lane, indices[lane], each, infos, learned=actions[lane] is not None)
            for lane, each in enumerate(values)
        ]

    def _keep_idle(self, lanes: Sequence[int]) -> None:
        """Choose the actions of idle lanes, which step with the others: reset them and apply the idle rule, if any."""
        rule = self.rules.idle if self._resettable else None
        idle = [lane for lane in lanes if self._over[lane] or (rule is not None and not self._resets[lane])]
        if idle:
            self._reset(idle, {})
        for lane in idle:
            first = self._fresh[lane]
            if rule is not None and first is not None:
                self._idle[lane] = rule(first)

    def _event(
        self, lane: int, index: int, values: tuple[Any, ...], infos: dict[str, Any], *, learned: bool
    ) -> Step | Observed | None:
        """Return the result of a step in one lane."""
        observation, reward, terminated, truncated = values
        if self._resets[lane]:
            self._resets[lane] = False
            return self._seen(lane, observation, infos)
        try:
            over = truth(terminated, "terminated"), truth(truncated, "truncated")
            if not learned:
                self._note_end(lane, observation, infos, any(over))
                return None
            info, shown_last = lane_info(infos, lane), observation
            if any(over) and self.mode is AutoresetMode.SAME_STEP:
                info, shown_last = lane_info(infos["final_info"], lane), infos["final_obs"][lane]
            transition = Transition(
                self._steps[lane], self._observations[lane], self.rules.actions.value(index),
                self.rules.reward(reward), shown_last, *over, info,
            )  # fmt: skip
            if any(over):
                following = self.rules.seen_last(shown_last, info, terminated=over[0])
            else:
                following = self._seen(lane, observation, infos)
            step = self.rules.step(transition, following)
        except PeakError as error:
            raise LaneError(str(error), lane) from None
        except LaneError:
            raise
        except Exception as error:
            raise LaneError(f"the environment or constraint() raised {type(error).__name__}: {error}", lane) from error
        self._steps[lane] += 1
        self._note_end(lane, observation, infos, any(over))
        return step

    def _note_end(self, lane: int, observation: Any, infos: dict[str, Any], over: bool) -> None:
        """Remember how the lane's next episode starts."""
        if over and self.mode is AutoresetMode.SAME_STEP:
            self._fresh[lane] = self._seen(lane, observation, infos)
        elif over:
            self._resets[lane] = self.mode is AutoresetMode.NEXT_STEP
            self._over[lane] = self.mode is AutoresetMode.DISABLED

    def _seen(self, lane: int, observation: Any, infos: Any) -> Observed:
        try:
            seen = self.rules.seen(observation, lane_info(info_of(infos, "the environment"), lane))
        except PeakError as error:
            raise LaneError(str(error), lane) from None
        self._idle[lane] = seen.offer[0]
        if self.rules.constraints.function is not None:
            self._observations[lane] = kept(observation)
        return seen

    def _split(self, observations: Any) -> list[Any]:
        try:
            split = list(iterate(self.env.observation_space, observations))
        except Exception as error:
            raise LaneError(
                f"the observations {shown(observations)} do not fit {self.env.observation_space}", None
            ) from error
        if len(split) != self.count:
            raise LaneError(f"there are {len(split)} observations for {self.count} environments", None)
        return split

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except Exception as error:
            raise LaneError(f"the environment raised {type(error).__name__}: {error}", None) from error


def autoreset_mode(env: Any) -> AutoresetMode:
    """Return how a vectorised environment begins the next episode of a lane."""
    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise SettingsError(
            f'metadata["autoreset_mode"] of the vectorised environment is {mode!r}; it must be one of '
            f"{', '.join(str(each) for each in AutoresetMode)} (Gymnasium 1.1 and later set it)"
        ) from None


def lane_info(infos: dict[str, Any], lane: int) -> dict[str, Any]:
    """Return the infos of one lane; `_key` marks the lanes that have an entry of `key`."""
    own: dict[str, Any] = {}
    for key, values in infos.items():
        marks = infos.get(f"_{key}")
        if marks is None or not marks[lane]:
            continue
        own[key] = lane_info(values, lane) if isinstance(values, dict) else values[lane]
    return own
