"""A shield: only safe actions reach the environment, whatever the agent selects.

After `reset` and every `step` the agent finds in `info`

    action_mask          [action] 1 if it is safe; all 0 after the end of an episode
    shield_replaced      whether the selected action was replaced       (not at reset)
    shield_action        the index of the action that was taken         (not at reset)
    shield_replacements  how many actions of this episode were replaced

and `action_masks()` is the same as booleans, as sb3-contrib's MaskablePPO expects it.

An observation that is not a state of the model, a state that the model excludes after the last action, and a state in
which nothing is safe are errors: the safe set guarantees nothing from there on.

Lanes of a vectorised environment begin episodes by Gymnasium's autoreset modes. Under NEXT_STEP the action after the
end of an episode only resets the lane; it is passed on, and its mask is all 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from peakrl.checks import check_choice, shown
from peakrl.errors import PeakError, PolicyError, SettingsError, TargetError
from peakrl.safety.safe_set import SafeSet
from peakrl.spaces import ActionSet
from peakrl.tabular import TabularModel
from peakrl.types import Longs
from peakrl.viability import Bools
from peakrl.visited import label_of

StateFunction = Callable[..., Hashable]
ON_UNSAFE = ("replace", "raise")


class Guard:
    """The safe set in terms of an environment: its observations, and its actions by index."""

    def __init__(
        self,
        safe: SafeSet,
        action_space: Any,
        *,
        on_unsafe: str,
        state_of: StateFunction | None,
        fallback: Any,
        labels: Sequence[Hashable] | None,
    ) -> None:
        if not isinstance(safe, SafeSet):
            raise SettingsError(f"{safe!r} is not a SafeSet; safe_set(model) makes one")
        check_choice(on_unsafe, "on_unsafe", ON_UNSAFE)
        if fallback is not None and not callable(getattr(fallback, "action", fallback)):
            raise SettingsError(f"fallback is {fallback!r}; it must be a policy or a function of step and state")
        self.safe, self.model, self.on_unsafe, self.fallback = safe, safe.model, on_unsafe, fallback
        self.actions = ActionSet(action_space)
        self.labels = list(self.actions.labels if labels is None else labels)
        self.state_of = with_step(label_of if state_of is None else state_of)
        self.columns = columns_of(self.model, self.labels, len(self.actions))
        self._masks = self._all_masks()
        #: The possible next slots of (slot, action), computed on first use.
        self._following: dict[tuple[int, int], frozenset[int]] = {}

    def _all_masks(self) -> Bools | None:
        """[node, action of the environment]: every mask; None if there are too many."""
        masks = self.safe.masks
        if masks is None or np.array_equal(self.columns, np.arange(masks.shape[1])):
            return masks
        return self._own_order(masks)

    def _own_order(self, masks: Bools) -> Bools:
        """Return masks over the model's actions as masks over the environment's."""
        own: Bools = masks[..., np.maximum(self.columns, 0)] & (self.columns >= 0)
        own.flags.writeable = False
        return own

    # State of an episode -------------------------------------------------------------------------------------

    def state(self, observation: Any, step: int) -> Hashable:
        """Return the state of an observation."""
        try:
            return self.state_of(observation, step)
        except TargetError as error:
            raise TargetError(f"{error}; pass state_of=, a function from an observation to a state") from None

    def arrive(self, state: Hashable, step: int, before: tuple[int, int] | None, seen: Any = None) -> int:
        """Return the node of a state in which an action is to be taken.

        `before` is the previous node and action index; None at the start of an episode.
        """
        try:
            node = self.safe.node_of(step, state)
        except PolicyError as error:
            raise TargetError(
                f"{described(state, seen)} at step {step} is not a state of the safe set: {error}"
            ) from None
        if before is not None and not self.possible(*before, node):
            raise TargetError(
                f"{described(state, seen)} at step {step} contradicts the model {self.model.name!r}: "
                f"{self._described(*before)} cannot lead to it there. The safe set is valid only if the model is"
            )
        if not self.safe.holds(node):
            rows = self.model.rows_of_slot(node % self.model.num_slots)
            why = self.safe.reason(step, state, self.model.action_of_row(rows[0]))
            raise TargetError(f"no action is safe at step {step} in {described(state, seen)}: {why}")
        return node

    def possible(self, node: int, index: int, following: int) -> bool:
        """Return whether this action may lead to that node by the model."""
        slots = self.model.num_slots
        pair = node % slots, index
        if pair not in self._following:
            self._following[pair] = self._next_slots(*pair)
        return following % slots in self._following[pair]

    def _next_slots(self, slot: int, index: int) -> frozenset[int]:
        rows = self.model.rows_of_slot(slot)
        row = rows.start + int(np.argmax(self.model.row_action[rows.start : rows.stop] == self.columns[index]))
        return frozenset(self.model.next_slots(row))

    def _described(self, node: int, index: int) -> str:
        state = self.model.state_of_slot(node % self.model.num_slots)
        return f"action {shown(self.labels[index])} in state {shown(state)}"

    # Actions ----------------------------------------------------------------------------------------

    def mask(self, node: int) -> Bools:
        """Return [action of the environment]: True if it is safe."""
        if self._masks is None:
            return self._own_order(self.safe.mask_of(node))
        mask: Bools = self._masks[node]
        return mask

    def index(self, action: Any) -> int:
        """Return the index of an action of the environment."""
        label = action
        if not isinstance(action, int):
            try:
                label = label_of(action)
            except TargetError:
                label = None
        index = self.actions.index(label)
        if index < 0:
            raise PolicyError(f"action {shown(action)} is not in {self.actions.space}")
        return index

    def instead(self, step: int, node: int, index: int) -> int:
        """Return the index of the action that replaces an unsafe one, or raise."""
        state = self.model.state_of_slot(node % self.model.num_slots)
        if self.on_unsafe == "raise":
            raise PolicyError(f"action {shown(self.labels[index])} is not safe: {self._why(step, state, index)}")
        if self.fallback is None:
            safe = np.flatnonzero(self.mask(node))
            return int(safe[np.argmin(np.abs(safe - index))])  # the first of two that are equally near
        label = getattr(self.fallback, "action", self.fallback)(step, state)
        other = self.labels.index(label) if label in self.labels else -1
        if other < 0 or not self.mask(node)[other]:
            why = "it is not available" if other < 0 else self._why(step, state, other)
            raise PolicyError(f"the fallback's action {shown(label)} at step {step} is not safe either: {why}")
        return other

    def _why(self, step: int, state: Hashable, index: int) -> str:
        try:
            return str(self.safe.reason(step, state, self.labels[index]))
        except PolicyError as error:
            return str(error)


def described(state: Hashable, seen: Any) -> str:
    """Return the state of an episode for a message."""
    return f"state {shown(state)}" if seen is None else f"the observation {shown(seen)}"


def columns_of(model: TabularModel, labels: Sequence[Hashable], count: int) -> Longs:
    """Return [action of the environment]: its index in the model, -1 if it has none."""
    if len(labels) != count:
        raise SettingsError(f"actions= names {len(labels)} actions; the environment has {count}")
    numbers = {label: number for number, label in enumerate(model.action_labels)}
    columns = np.array([numbers.get(label, -1) for label in labels], np.int64)
    missing = set(range(len(numbers))) - set(columns.tolist())
    if missing:
        unknown = model.action_labels[min(missing)]
        raise SettingsError(
            f"the safe set of {model!r} has the action {shown(unknown)}, which the environment does not have; it has "
            f"{shown(list(labels))}. If they have other names, pass actions=, the model's actions in the order of the "
            "environment's"
        )
    return columns


def with_step(function: Any) -> StateFunction:
    """Return a function of observation and step from one of the observation alone or of both."""
    if not callable(function):
        raise SettingsError(f"state_of is {function!r}; it must be a function (observation) or (observation, step)")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return lambda observation, step: function(observation)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.kind in positional and each.default is inspect.Parameter.empty]
    both: StateFunction = function
    return both if len(needed) >= 2 else lambda observation, step: function(observation)


def own_model(environment: Any) -> TabularModel | None:
    """Return the model of an environment made by peakrl; None for others."""
    model = getattr(environment, "model", None)
    return model if isinstance(model, TabularModel) and hasattr(environment, "actions") else None


def check_same(model: TabularModel, safe: Any) -> None:
    """Raise unless a safe set belongs to the environment's own model."""
    if isinstance(safe, SafeSet) and safe.model is not model and safe.model.digest != model.digest:
        raise SettingsError(
            f"the safe set belongs to {safe.model!r}, the environment to {model!r}. If the former covers all that can "
            "happen in the latter and has the same names of states, pass state_of="
        )


#: Instead of a node: no episode has begun, it is over, or it continues after the last step of the safe set.
NOT_BEGUN, OVER, BEYOND = -1, -2, -3
NO_ACTION = {
    NOT_BEGUN: "call reset() first",
    OVER: "the episode is over: call reset() before the next step",
}
#: Instead of a node: the next action resets the lane.
WAITING = -4


class VectorShield(VectorWrapper):
    """A vectorised Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, mode: AutoresetMode, own: list[Any] | None) -> None:
        super().__init__(env)
        self.guard, self.mode = guard, mode
        #: Steps taken, and actions replaced, in all lanes and episodes.
        self.steps, self.replaced = 0, 0
        #: Environments of peakrl, which know their states; None if states are read from observations.
        self._own = own
        #: They follow the model itself: nothing impossible can occur unless a wrapper changes actions.
        self._bare = env is env.unwrapped and list(getattr(env, "envs", ())) == own
        self._nodes = [NOT_BEGUN] * self.num_envs
        self._step_of = [0] * self.num_envs
        self._replacements = np.zeros(self.num_envs, np.int64)
        self._masks = np.zeros((self.num_envs, len(guard.actions)), np.bool_)

    def action_masks(self) -> Bools:
        """Return [lane, action]: True if it is safe now."""
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
        return observations, self._with_infos(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take an action in every lane, or a safe one instead."""
        asked = [self.guard.index(action) for action in iterate(self.env.action_space, actions)]
        taken = [self._allowed(lane, index) for lane, index in enumerate(asked)]
        replaced = np.array(asked) != taken
        before = list(zip(self._nodes, taken, strict=True))
        self._nodes = [OVER] * self.num_envs  # in case anything raises an error
        if replaced.any():
            actions = self.guard.actions.batch(taken)
        result = self.env.step(actions)
        observations, _, terminations, truncations, infos = result
        seen = list(iterate(self.env.observation_space, observations))
        for lane in range(self.num_envs):
            over = bool(terminations[lane] or truncations[lane])
            self._move(lane, seen[lane], before[lane], bool(replaced[lane]), over)
        counts = {"shield_replaced": replaced, "shield_action": np.array(taken, np.int64)}
        return *result[:4], self._with_infos(infos, **counts)

    def _allowed(self, lane: int, index: int) -> int:
        """Return the index of the action that a lane takes."""
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
        """Update one lane after a step."""
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
        """Update the node and mask of a lane."""
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

    def _with_infos(self, infos: dict[str, Any], **more: NDArray[Any]) -> dict[str, Any]:
        """Return batched infos with those of the shield."""
        own = {"action_mask": self._masks.astype(np.int8), "shield_replacements": self._replacements.copy(), **more}
        marks = {f"_{key}": np.ones(self.num_envs, np.bool_) for key in own}
        return {**infos, **own, **marks}


def make_vector_shield(
    env: VectorEnv[Any, Any, Any], safe: SafeSet, labels: Sequence[Hashable] | None, options: dict[str, Any]
) -> VectorShield:
    """Return a shielded vectorised environment."""
    try:
        mode = AutoresetMode(env.metadata.get("autoreset_mode"))
    except ValueError:
        raise SettingsError(
            f'metadata["autoreset_mode"] of the vectorised environment is {env.metadata.get("autoreset_mode")!r}; it '
            f"must be one of {', '.join(str(each) for each in AutoresetMode)} (Gymnasium 1.1 and later set it)"
        ) from None
    own = None
    if options["state_of"] is None:
        # Environments in this process know their state; those in other processes show only observations.
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


class Shield(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, own: Any) -> None:
        super().__init__(env)
        self.guard = guard
        #: Steps taken, and actions replaced, in all episodes.
        self.steps, self.replaced = 0, 0
        #: An environment of peakrl, which knows its state; None if the state is read from observations.
        self._own = own
        self._nothing = np.zeros(len(guard.actions), np.bool_)
        self._nothing.flags.writeable = False
        self._node, self._step, self._replacements = NOT_BEGUN, 0, 0
        self._mask: Bools = self._nothing

    def action_masks(self) -> Bools:
        """Return [action]: True if it is safe now; read-only."""
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
        """Take an action, or a safe one instead."""
        if self._node < 0:
            raise TargetError(NO_ACTION.get(self._node) or self._beyond())
        guard = self.guard
        asked = taken = guard.index(action)
        if not self._mask[asked]:
            taken = guard.instead(self._step, self._node, asked)
            action = guard.actions.value(taken)
            self._replacements += 1
            self.replaced += 1
        before, self._node, self._mask = self._node, OVER, self._nothing  # in case the environment raises an error
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
        """Update the node and mask of the episode."""
        guard, step = self.guard, self._step
        if step >= guard.model.horizon:
            self._node = BEYOND
        else:
            if self._own is None:
                self._node = guard.arrive(guard.state(observation, step), step, before, observation)
            else:  # it follows the model itself: nothing impossible can occur unless a wrapper changes actions
                self._node = guard.arrive(self._own.state, step, None if self.env is self._own else before)
            self._mask = guard.mask(self._node)

    def _beyond(self) -> str:
        return beyond(self.guard)


def beyond(guard: Guard) -> str:
    """Return the message for an episode that continues after the horizon."""
    return (
        f"the safe set covers the {guard.model.horizon} steps of {guard.model.name!r}, and the episode continued after "
        "them: end it there (gymnasium.wrappers.TimeLimit), or compute the safe set for a longer horizon"
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
    """Return an environment, single or vectorised, that takes only safe actions and reports which those are.

    Parameters
    ----------
    on_unsafe
        "replace": an unsafe action is replaced by the nearest safe one in the order of actions, or by that of
        `fallback`. "raise": it is a `PolicyError` with the reason.
    state_of
        A function from an observation, or an observation and a step, to a state of the safe set's model. By default an
        observation of integers and strings is the state itself, and environments of peakrl know their state.
    fallback
        A policy, or a function of step and state.
    actions
        The model's names of the environment's actions, in its order; by default their indices.

    Notes
    -----
    The shield is valid only if the model has every possible outcome. An outcome that the model excludes, an unknown
    state, or a state in which nothing is safe is a `TargetError`.
    """
    options: dict[str, Any] = {"on_unsafe": on_unsafe, "state_of": state_of, "fallback": fallback}
    if isinstance(env, VectorEnv):
        return make_vector_shield(env, safe_set, actions, options)
    if not isinstance(env, gymnasium.Env):
        raise SettingsError(f"{env!r} is not a Gymnasium environment; to_gymnasium(problem) makes one from a problem")
    model = own_model(env.unwrapped)
    if model is not None:
        if state_of is None:
            check_same(model, safe_set)
        actions = model.action_labels if actions is None else actions
    guard = Guard(safe_set, env.action_space, labels=actions, **options)
    return Shield(env, guard, env.unwrapped if model is not None and state_of is None else None)
