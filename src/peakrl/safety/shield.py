"""A shield: whatever an agent asks for, only safe actions reach the environment.

After `reset` and every `step` the agent finds in `info`

    action_mask          [action] 1 where it is safe; all 0 once the episode is over
    shield_replaced      was the action just asked for replaced?        (not at reset)
    shield_action        the number of the action that was taken        (not at reset)
    shield_replacements  how many of this episode's actions were replaced

and `action_masks()` is the same as truth values, as sb3-contrib's MaskablePPO asks for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import gymnasium
import numpy as np

from peakrl.errors import SettingsError, TargetError
from peakrl.safety.guard import Guard, StateFunction, check_same, own_model
from peakrl.safety.safe_set import SafeSet
from peakrl.viability import Bools

#: In place of a node: no episode was begun, it is over, or it went on after the last step that the safe set covers.
NOT_BEGUN, OVER, BEYOND = -1, -2, -3
NO_ACTION = {
    NOT_BEGUN: "call reset() first",
    OVER: "the episode is over: call reset() before the next step",
}


class Shield(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, own: Any) -> None:
        super().__init__(env)
        self.guard = guard
        #: Steps taken, and actions replaced, in all episodes.
        self.steps, self.replaced = 0, 0
        #: An environment of peakrl's, which knows its state; None where observations have to tell.
        self._own = own
        self._nothing = np.zeros(len(guard.actions), np.bool_)
        self._nothing.flags.writeable = False
        self._node, self._step, self._replacements = NOT_BEGUN, 0, 0
        self._mask: Bools = self._nothing

    def action_masks(self) -> Bools:
        """Return [action]: True where it is safe now; read-only."""
        if self._node == NOT_BEGUN:
            raise TargetError(NO_ACTION[NOT_BEGUN])
        return self._mask

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._node, self._mask = NOT_BEGUN, self._nothing
        observation, info = self.env.reset(seed=seed, options=options)
        if hasattr(self.guard.fallback, "reset"):
            self.guard.fallback.reset(seed)
        self._step, self._replacements = 0, 0
        self._arrive(observation, None)
        return observation, {**info, "action_mask": self._mask.astype(np.int8), "shield_replacements": 0}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action, or a safe one in its place."""
        if self._node < 0:
            raise TargetError(NO_ACTION.get(self._node) or self._beyond())
        guard = self.guard
        asked = taken = guard.index(action)
        if not self._mask[asked]:
            taken = guard.instead(self._step, self._node, asked)
            action = guard.actions.value(taken)
            self._replacements += 1
            self.replaced += 1
        before, self._node, self._mask = self._node, OVER, self._nothing  # should the environment raise an error
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self._step += 1
        if not (terminated or truncated):
            self._arrive(observation, (before, taken))
        info = {
            **info,
            "action_mask": self._mask.astype(np.int8),
            "shield_replaced": taken != asked,
            "shield_action": taken,
            "shield_replacements": self._replacements,
        }
        return observation, reward, terminated, truncated, info

    def _arrive(self, observation: Any, before: tuple[int, int] | None) -> None:
        """Find out where the episode is."""
        guard, step = self.guard, self._step
        if step >= guard.model.horizon:
            self._node = BEYOND
        else:
            if self._own is None:
                self._node = guard.arrive(guard.state(observation, step), step, before, observation)
            else:  # it walks through the very model: nothing impossible can come unless a wrapper changes actions
                self._node = guard.arrive(self._own.state, step, None if self.env is self._own else before)
            self._mask = guard.mask(self._node)

    def _beyond(self) -> str:
        return beyond(self.guard)


def beyond(guard: Guard) -> str:
    """Return what is wrong where an episode goes on after the horizon."""
    return (
        f"the safe set covers the {guard.model.horizon} steps of {guard.model.name!r}, and the episode went on after "
        "them: end it there (gymnasium.wrappers.TimeLimit), or work the safe set out for a longer horizon"
    )


def shield(
    env: Any,
    safe_set: SafeSet,
    *,
    on_unsafe: str = "replace",
    state_of: StateFunction | None = None,
    fallback: Any = None,
    actions: Sequence[Hashable] | None = None,
) -> Any:
    """Return an environment, single or vectorised, that takes safe actions only and says which those are.

    `on_unsafe`: an action that is not safe is replaced by the safe one nearest to it in the order of actions, or by
    that of `fallback`, a policy or a function of step and state; "raise" refuses it with a `PolicyError` that says why.
    `state_of` turns an observation, or an observation and the step, into a state of the safe set's model; by default
    an observation of whole numbers and words is the state itself, and environments of peakrl know their state.
    `actions` names the environment's actions, in its order, as the model does; by default they are its numbers.

    What is safe rests on the model having every outcome that is possible. Where the environment shows one that it has
    not, a state that it does not know or one in which nothing is safe, that is a `TargetError`.
    """
    from gymnasium.vector import VectorEnv

    options: dict[str, Any] = {"on_unsafe": on_unsafe, "state_of": state_of, "fallback": fallback}
    if isinstance(env, VectorEnv):
        from peakrl.safety.vector_shield import make_vector_shield

        return make_vector_shield(env, safe_set, actions, options)
    if not isinstance(env, gymnasium.Env):
        raise SettingsError(f"{env!r} is no Gymnasium environment; to_gymnasium(problem) makes one of a problem")
    model = own_model(env.unwrapped)
    if model is not None:
        if state_of is None:
            check_same(model, safe_set)
        actions = model.action_labels if actions is None else actions
    guard = Guard(safe_set, env.action_space, labels=actions, **options)
    return Shield(env, guard, env.unwrapped if model is not None and state_of is None else None)
