"""A shield around a vectorised environment: every lane has its own step and its own mask.

Lanes begin episodes as Gymnasium's autoreset modes have it. Under NEXT_STEP the action that follows the end of an
episode has no effect but to reset the lane; it is let through, and its mask is all 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from peakrl.errors import PeakError, SettingsError, TargetError
from peakrl.safety.guard import Guard, check_same, own_model
from peakrl.safety.safe_set import SafeSet
from peakrl.safety.shield import BEYOND, NO_ACTION, NOT_BEGUN, OVER, beyond
from peakrl.viability import Bools

#: In place of a node: whatever action comes next resets the lane.
WAITING = -4


class VectorShield(VectorWrapper):
    """A vectorised Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, mode: AutoresetMode, own: list[Any] | None) -> None:
        super().__init__(env)
        self.guard, self.mode = guard, mode
        #: Steps taken, and actions replaced, in all lanes and episodes.
        self.steps, self.replaced = 0, 0
        #: Environments of peakrl's, which know their states; None where observations have to tell.
        self._own = own
        #: They walk through the very model: nothing impossible can come unless a wrapper changes actions.
        self._bare = env is env.unwrapped and list(getattr(env, "envs", ())) == own
        self._nodes = [NOT_BEGUN] * self.num_envs
        self._step_of = [0] * self.num_envs
        self._replacements = np.zeros(self.num_envs, np.int64)
        self._masks = np.zeros((self.num_envs, len(guard.actions)), np.bool_)

    def action_masks(self) -> Bools:
        """Return [lane, action]: True where it is safe now."""
        if NOT_BEGUN in self._nodes:
            raise TargetError(NO_ACTION[NOT_BEGUN])
        return self._masks.copy()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every lane, or in those that `options["reset_mask"]` names."""
        chosen = None if options is None else options.get("reset_mask")
        lanes = range(self.num_envs) if chosen is None else np.flatnonzero(chosen).tolist()
        for lane in lanes:
            self._nodes[lane] = NOT_BEGUN
        observations, infos = self.env.reset(seed=seed, options=options)
        seen = list(iterate(self.env.observation_space, observations))
        for lane in lanes:
            self._begin(lane, seen[lane])
        return observations, self._told(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take an action in every lane, or a safe one in its place."""
        asked = [self.guard.index(action) for action in iterate(self.env.action_space, actions)]
        taken = [self._allowed(lane, index) for lane, index in enumerate(asked)]
        replaced = np.array(asked) != taken
        before = list(zip(self._nodes, taken, strict=True))
        self._nodes = [OVER] * self.num_envs  # should anything raise an error
        if replaced.any():
            actions = self.guard.actions.batch(taken)
        result = self.env.step(actions)
        observations, _, terminations, truncations, infos = result
        seen = list(iterate(self.env.observation_space, observations))
        for lane in range(self.num_envs):
            over = bool(terminations[lane] or truncations[lane])
            self._move(lane, seen[lane], before[lane], bool(replaced[lane]), over)
        counts = {"shield_replaced": replaced, "shield_action": np.array(taken, np.int64)}
        return *result[:4], self._told(infos, **counts)

    def _allowed(self, lane: int, index: int) -> int:
        """Return the number of the action that a lane is given."""
        node = self._nodes[lane]
        if node == WAITING:
            return index
        if node < 0:
            raise TargetError(f"lane {lane}: {NO_ACTION.get(node) or beyond(self.guard)}")
        try:
            return index if self._masks[lane, index] else self.guard.instead(self._step_of[lane], node, index)
        except PeakError as error:
            raise type(error)(f"lane {lane}: {error}") from None

    def _move(self, lane: int, observation: Any, before: tuple[int, int], replaced: bool, over: bool) -> None:
        """Note what a step came to in one lane."""
        if before[0] == WAITING:
            self._begin(lane, observation)
            return
        self.steps += 1
        self.replaced += replaced
        self._step_of[lane] += 1
        self._replacements[lane] += replaced
        if not over:
            self._arrive(lane, observation, before)
        elif self.mode is AutoresetMode.SAME_STEP:
            self._begin(lane, observation)
        else:
            waiting = self.mode is AutoresetMode.NEXT_STEP
            self._nodes[lane] = WAITING if waiting else OVER
            self._masks[lane] = waiting

    def _begin(self, lane: int, observation: Any) -> None:
        self._step_of[lane] = 0
        self._replacements[lane] = 0
        self._arrive(lane, observation, None)

    def _arrive(self, lane: int, observation: Any, before: tuple[int, int] | None) -> None:
        """Find out where a lane is."""
        guard, step = self.guard, self._step_of[lane]
        self._nodes[lane], self._masks[lane] = BEYOND, False
        if step >= guard.model.horizon:
            return
        own = None if self._own is None else self._own[lane]
        try:
            if own is None:
                self._nodes[lane] = guard.arrive(guard.state(observation, step), step, before, observation)
            else:
                self._nodes[lane] = guard.arrive(own.state, step, None if self._bare else before)
        except PeakError as error:
            raise type(error)(f"lane {lane}: {error}") from None
        self._masks[lane] = guard.mask(self._nodes[lane])

    def _told(self, infos: dict[str, Any], **more: NDArray[Any]) -> dict[str, Any]:
        """Return batched infos with what the shield has to say of every lane."""
        own = {"action_mask": self._masks.astype(np.int8), "shield_replacements": self._replacements.copy(), **more}
        marks = {f"_{key}": np.ones(self.num_envs, np.bool_) for key in own}
        return {**infos, **own, **marks}


def make_vector_shield(
    env: VectorEnv[Any, Any, Any], safe: SafeSet, labels: Sequence[Hashable] | None, options: dict[str, Any]
) -> VectorShield:
    """Return a shielded vectorised environment; `peakrl.shield` is this for those."""
    try:
        mode = AutoresetMode(env.metadata.get("autoreset_mode"))
    except ValueError:
        raise SettingsError(
            f'metadata["autoreset_mode"] of the vectorised environment is {env.metadata.get("autoreset_mode")!r}; it '
            f"must be one of {', '.join(str(each) for each in AutoresetMode)} (Gymnasium 1.1 and later set it)"
        ) from None
    own = None
    if options["state_of"] is None:
        # Environments that live in this process can be asked; those in others show their observations only.
        inner = [each.unwrapped for each in getattr(env.unwrapped, "envs", ())]
        models = [own_model(each) for each in inner]
        if inner and all(model is not None for model in models):
            own = inner
            for model in models:
                assert model is not None
                check_same(model, safe)
            labels = models[0].action_labels if labels is None and models[0] is not None else labels
    if options["fallback"] is not None and hasattr(options["fallback"], "reset"):
        options["fallback"].reset(0)
    guard = Guard(safe, env.single_action_space, labels=labels, **options)
    return VectorShield(env, guard, mode, own)
