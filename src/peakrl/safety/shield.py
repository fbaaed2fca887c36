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

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from peakrl.checks import check_choice, required_arguments, shown
from peakrl.errors import PeakError, PolicyError, SettingsError, TargetError
from peakrl.policy.tables import Policy
from peakrl.safety.safe_set import SafeSet
from peakrl.space import frozen
from peakrl.spaces import ActionSet
from peakrl.tabular import TabularModel
from peakrl.types import Longs
from peakrl.viability import Bools
from peakrl.visited import VisitedStates, label_of

StateFunction = Callable[..., Hashable]
ON_UNSAFE = ("replace", "raise")


class Guard:
    """The safe set in terms of an environment: its observations, and its actions by index."""

    def __init__(
        self,
        safe: SafeSet,
        action_space: Any,
        on_unsafe: str,
        state_of: StateFunction | None,
        fallback: Any,
        labels: Sequence[Hashable] | None,
    ) -> None:
        check_choice(on_unsafe, "on_unsafe", ON_UNSAFE)
        if fallback is not None and not callable(getattr(fallback, "action", fallback)):
            raise SettingsError(f"fallback is {fallback!r}; it must be a policy or a function of step and state")
        self.safe, self.model, self.on_unsafe, self.fallback = safe, safe.model, on_unsafe, fallback
        self.actions = ActionSet(action_space)
        self.labels = list(self.actions.labels if labels is None else labels)
        self.state_of = with_step(label_of if state_of is None else state_of)
        self.columns = columns_of(self.model, self.labels, len(self.actions))
        #: [action of the environment]: nothing is safe; and everything is, for an action that only resets.
        self.nothing = frozen(np.zeros(len(self.actions)), np.bool_, own=True)
        self.anything = frozen(np.ones(len(self.actions)), np.bool_, own=True)

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
            why = self.safe.reason(state, self.model.action_of_row(rows[0]), step)
            raise TargetError(f"no action is safe at step {step} in {described(state, seen)}: {why}")
        return node

    def possible(self, node: int, index: int, following: int) -> bool:
        """Return whether this action may lead to that node by the model."""
        rows = self.model.rows_of_slot(node % self.model.num_slots)
        row = rows.start + int(np.argmax(self.model.row_action[rows.start : rows.stop] == self.columns[index]))
        return following % self.model.num_slots in self.model.next_slots(row)

    def _described(self, node: int, index: int) -> str:
        state = self.model.state_of_slot(node % self.model.num_slots)
        return f"action {shown(self.labels[index])} in state {shown(state)}"

    # Actions ----------------------------------------------------------------------------------------

    def mask(self, node: int) -> Bools:
        """Return [action of the environment]: True if it is safe; read-only."""
        return frozen(self.safe.mask_of(node)[np.maximum(self.columns, 0)] & (self.columns >= 0), np.bool_, own=True)

    def index(self, action: Any) -> int:
        """Return the index of an action of the environment."""
        label = action
        if not isinstance(action, int):
            label = None
            with suppress(TargetError):
                label = label_of(action)
        index = self.actions.index(label)
        if index < 0:
            raise PolicyError(f"action {shown(action)} is not in {self.actions.space}")
        return index

    def instead(self, step: int, node: int, index: int, seen: Any = None) -> int:
        """Return the index of the action that replaces an unsafe one, or raise; `seen` is the observation."""
        state = self.model.state_of_slot(node % self.model.num_slots)
        if self.on_unsafe == "raise":
            raise PolicyError(f"action {shown(self.labels[index])} is not safe: {self._why(step, state, index)}")
        if self.fallback is None:
            safe = np.flatnonzero(self.mask(node))
            return int(safe[np.argmin(np.abs(safe - index))])  # the first of two that are equally near
        labels, follow = self.labels, getattr(self.fallback, "action", self.fallback)
        if isinstance(getattr(self.fallback, "model", None), VisitedStates):  # it knows the environment's names
            labels, named = list(self.actions.labels), self._label(seen)
        else:
            named = state
        if isinstance(self.fallback, Policy):
            rows = self.model.rows_of_slot(node % self.model.num_slots)
            available = self.model.row_action[rows.start : rows.stop]
            offered = [label for label, column in zip(labels, self.columns, strict=True) if column in available]
            label = follow(step, named, offered)
        else:
            label = follow(step, named)
        other = labels.index(label) if label in labels else -1
        if other < 0 or not self.mask(node)[other]:
            why = "it is not available" if other < 0 else self._why(step, state, other)
            raise PolicyError(f"the fallback's action {shown(label)} at step {step} is not safe either: {why}")
        return other

    def _label(self, seen: Any) -> Hashable:
        try:
            return label_of(seen)
        except TargetError as error:
            raise PolicyError(f"the fallback was learned on another environment: {error}") from None

    def _why(self, step: int, state: Hashable, index: int) -> str:
        try:
            return str(self.safe.reason(state, self.labels[index], step))
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
    both: StateFunction = function
    return both if (required_arguments(function) or 0) >= 2 else lambda observation, step: function(observation)


def own_model(environment: Any) -> TabularModel | None:
    """Return the model of an environment made by peakrl; None for others."""
    model = getattr(environment, "model", None)
    return model if isinstance(model, TabularModel) and hasattr(environment, "actions") else None


#: Instead of a node: no episode has begun, it is over, it continues after the last step of the safe set, or the next
#: action resets the environment.
NOT_BEGUN, OVER, BEYOND, WAITING = -1, -2, -3, -4
NO_ACTION = {
    NOT_BEGUN: "call reset() first",
    OVER: "the episode is over: call reset() before the next step",
    BEYOND: "the safe set covers the {0.horizon} steps of {0.name!r}, and the episode continued after them: end it "
    "there (gymnasium.wrappers.TimeLimit), or compute the safe set for a longer horizon",
}


class Lane:
    """The episodes of one environment behind the shield."""

    def __init__(self, guard: Guard, own: Any, follows_model: bool) -> None:
        self.guard = guard
        #: An environment of peakrl, which knows its state; None if states are read from observations.
        self.own = own
        #: Nothing impossible can occur.
        self.follows_model = follows_model
        self.node, self.step, self.replacements = NOT_BEGUN, 0, 0
        self.mask: Bools = guard.nothing
        #: The last observation.
        self.seen: Any = None
        #: Steps taken, and actions replaced, in all episodes.
        self.steps, self.replaced = 0, 0
        self._before: tuple[int, int] | None = None

    def begin(self, observation: Any) -> None:
        """Begin an episode."""
        self.step, self.replacements, self._before = 0, 0, None
        self._arrive(observation)

    def allowed(self, index: int) -> int:
        """Return the index of the action to take instead of this one, or raise; nothing changes."""
        if self.node == WAITING:
            return index
        if self.node < 0:
            raise TargetError(NO_ACTION[self.node].format(self.guard.model))
        return index if self.mask[index] else self.guard.instead(self.step, self.node, index, self.seen)

    def leave(self, asked: int, taken: int) -> None:
        """Note the action before it is taken; the episode counts as over if the environment then raises an error."""
        if self.node != WAITING:
            self.steps += 1
            self.step += 1
            self.replacements += taken != asked
            self.replaced += taken != asked
        self._before = None if self.node == WAITING else (self.node, taken)
        self.node, self.mask = OVER, self.guard.nothing

    def move(self, observation: Any, over: bool, mode: AutoresetMode = AutoresetMode.DISABLED) -> None:
        """Note what an action led to; `mode` says what follows the end of an episode."""
        if self._before is None or (over and mode is AutoresetMode.SAME_STEP):
            self.begin(observation)
        elif not over:
            self._arrive(observation)
        elif mode is AutoresetMode.NEXT_STEP:
            self.node, self.mask = WAITING, self.guard.anything

    def _arrive(self, observation: Any) -> None:
        guard, step, self.seen = self.guard, self.step, observation
        if step >= guard.model.horizon:
            self.node, self.mask = BEYOND, guard.nothing
            return
        if self.own is None:
            self.node = guard.arrive(guard.state(observation, step), step, self._before, observation)
        else:
            self.node = guard.arrive(self.own.state, step, None if self.follows_model else self._before)
        self.mask = guard.mask(self.node)


class Counts:
    """What single and vectorised shields report of their lanes."""

    _lanes: list[Lane]

    @property
    def steps(self) -> int:
        """Steps taken in all episodes."""
        return sum(lane.steps for lane in self._lanes)

    @property
    def replaced(self) -> int:
        """Actions replaced in all episodes."""
        return sum(lane.replaced for lane in self._lanes)

    def _masks(self) -> list[Bools]:
        """[lane]: the mask of each lane, after the first reset."""
        if any(lane.node == NOT_BEGUN for lane in self._lanes):
            raise TargetError(NO_ACTION[NOT_BEGUN])
        return [lane.mask for lane in self._lanes]


class Shield(Counts, gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, lanes: list[Lane]) -> None:
        super().__init__(env)
        self.guard, self._lanes, self._lane = guard, lanes, lanes[0]

    def action_masks(self) -> Bools:
        """Return [action]: True if it is safe now; read-only."""
        return self._masks()[0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._lane.node = NOT_BEGUN
        observation, info = self.env.reset(seed=seed, options=options)
        if hasattr(self.guard.fallback, "reset"):
            self.guard.fallback.reset(seed)
        self._lane.begin(observation)
        return observation, self._with_info(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action, or a safe one instead."""
        asked = self.guard.index(action)
        taken = self._lane.allowed(asked)
        self._lane.leave(asked, taken)
        action = action if taken == asked else self.guard.actions.value(taken)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._lane.move(observation, terminated or truncated)
        info = self._with_info(info, shield_replaced=taken != asked, shield_action=taken)
        return observation, reward, terminated, truncated, info

    def _with_info(self, info: dict[str, Any], **more: Any) -> dict[str, Any]:
        mask = self._lane.mask.astype(np.int8)
        return {**info, "action_mask": mask, "shield_replacements": self._lane.replacements, **more}


class VectorShield(Counts, VectorWrapper):
    """A vectorised Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, lanes: list[Lane]) -> None:
        super().__init__(env)
        self.guard, self._lanes, given = guard, lanes, env.metadata.get("autoreset_mode")
        try:
            self.mode = AutoresetMode(given)
        except ValueError:
            raise SettingsError(
                f'metadata["autoreset_mode"] of the vectorised environment is {given!r}; it '
                f"must be one of {', '.join(str(each) for each in AutoresetMode)} (Gymnasium 1.1 and later set it)"
            ) from None
        if hasattr(guard.fallback, "reset"):
            guard.fallback.reset(0)

    def action_masks(self) -> Bools:
        """Return [lane, action]: True if it is safe now."""
        return np.stack(self._masks())

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every lane, or in those that `options["reset_mask"]` names."""
        chosen = None if options is None else options.get("reset_mask")
        numbers = range(self.num_envs) if chosen is None else np.flatnonzero(chosen).tolist()
        for number in numbers:
            self._lanes[number].node = NOT_BEGUN
        observations, infos = self.env.reset(seed=seed, options=options)
        seen = list(iterate(self.env.observation_space, observations))
        for number in numbers:
            with named(number):
                self._lanes[number].begin(seen[number])
        return observations, self._with_infos(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take an action in every lane, or a safe one instead."""
        asked = [self.guard.index(action) for action in iterate(self.env.action_space, actions)]
        taken = []
        for number, (lane, index) in enumerate(zip(self._lanes, asked, strict=True)):
            with named(number):
                taken.append(lane.allowed(index))
        for lane, *indices in zip(self._lanes, asked, taken, strict=True):
            lane.leave(*indices)
        result = self.env.step(actions if taken == asked else self.guard.actions.batch(taken))
        observations, _, terminations, truncations, infos = result
        for number, observation in enumerate(iterate(self.env.observation_space, observations)):
            with named(number):
                over = bool(terminations[number] or truncations[number])
                self._lanes[number].move(observation, over, self.mode)
        counts = {"shield_replaced": np.array(asked) != taken, "shield_action": np.array(taken, np.int64)}
        return *result[:4], self._with_infos(infos, **counts)

    def _with_infos(self, infos: dict[str, Any], **more: NDArray[Any]) -> dict[str, Any]:
        """Return batched infos with those of the shield."""
        masks = np.stack([lane.mask for lane in self._lanes]).astype(np.int8)
        replacements = np.array([lane.replacements for lane in self._lanes])
        own = {"action_mask": masks, "shield_replacements": replacements, **more}
        return {**infos, **own, **{f"_{key}": np.ones(self.num_envs, np.bool_) for key in own}}


@contextmanager
def named(lane: int) -> Iterator[None]:
    """Begin the message of an error with the lane."""
    try:
        yield
    except PeakError as error:
        raise type(error)(f"lane {lane}: {error}") from None


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
    env
        A Gymnasium environment, or a vectorised one.
    safe_set
        The safe set of a model that has every possible outcome of the environment.
    on_unsafe
        "replace": an unsafe action is replaced by the nearest safe one in the order of actions, or by that of
        `fallback`. "raise": it is a `PolicyError` with the reason.
    state_of
        A function from an observation, or an observation and a step, to a state of the safe set's model. By default an
        observation of integers and strings is the state itself, and environments of peakrl know their state.
    fallback
        A policy, or a function of step and state. One that was learned on an environment is asked with what that
        shows: its observation and its actions.
    actions
        The model's names of the environment's actions, in its order; by default their indices.

    Returns
    -------
    gymnasium.Wrapper or gymnasium.vector.VectorWrapper

    Notes
    -----
    The shield is valid only if the model has every possible outcome. An outcome that the model excludes, an unknown
    state, or a state in which nothing is safe is a `TargetError`.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> env = peakrl.shield(peakrl.to_gymnasium(problem), peakrl.safe_set(problem))
    >>> env.action_space.seed(0)
    0
    >>> observation, info = env.reset(seed=0)
    >>> costs = [env.step(env.action_space.sample())[4]["cost"] for _ in range(20)]
    >>> max(costs)  # a random agent behind the shield
    0.0
    """
    vector = isinstance(env, VectorEnv)
    if not vector and not isinstance(env, gymnasium.Env):
        raise SettingsError(f"{env!r} is not a Gymnasium environment; to_gymnasium(problem) makes one from a problem")
    # Environments in this process may know their state; those in other processes show only observations.
    inner = list(getattr(env.unwrapped, "envs", ())) if vector else [env]
    models = [own_model(each.unwrapped) for each in inner]
    known = bool(models) and None not in models and state_of is None
    if not isinstance(safe_set, SafeSet):
        raise SettingsError(f"{safe_set!r} is not a SafeSet; safe_set(model) makes one")
    for model in models if known else ():
        if model is not None and safe_set.model is not model and safe_set.model.digest != model.digest:
            raise SettingsError(
                f"the safe set belongs to {safe_set.model!r}, the environment to {model!r}. If the former covers all "
                "that can happen in the latter and has the same names of states, pass state_of="
            )
    if models and models[0] is not None and actions is None:
        actions = models[0].action_labels
    space = env.single_action_space if vector else env.action_space
    guard = Guard(safe_set, space, on_unsafe, state_of, fallback, actions)
    # An environment of peakrl follows the model, unless a wrapper changes its actions.
    follows = env is env.unwrapped and all(each is each.unwrapped for each in inner)
    own = [each.unwrapped for each in inner] if known else [None] * (env.num_envs if vector else 1)
    lanes = [Lane(guard, each, follows) for each in own]
    return VectorShield(env, guard, lanes) if vector else Shield(env, guard, lanes)
