"""A shield: only safe actions reach the environment, whatever the agent selects.

After `reset` and every `step` the agent finds in `info`

    action_mask          [action] 1 if it is safe; all 0 after the end of an episode
    shield_replaced      whether the selected action was replaced       (not at reset)
    shield_action        the index of the action that was taken         (not at reset)
    shield_replacements  how many actions of this episode were replaced
    shield_lost          whether nothing is known to be safe, so that `emergency` decides (only if there is one)

and `action_masks()` is the same as booleans, as sb3-contrib's MaskablePPO expects it; with `mask_keys` the mask is also
part of the observation.

An observation that is not a state of the safe set, a state that cannot follow the last action, and a state in which
nothing is safe are errors, unless `emergency` decides there: the safe set guarantees nothing from there on.

Lanes of a vectorised environment begin episodes by Gymnasium's autoreset modes. Under NEXT_STEP the action after the
end of an episode only resets the lane; it is passed on, and its mask is all 1.

A guard (`Guard`) knows the safe set, a lane (`Lane`) follows the episodes of one environment. Each kind of safe set
registers its guard with `guard_of`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, singledispatch
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from peakrl.checks import check_choice, required_arguments, shown
from peakrl.errors import PeakError, PolicyError, SettingsError, TargetError
from peakrl.policy.tables import Policy
from peakrl.safety.safe_set import SafeSet
from peakrl.space import frozen
from peakrl.spaces import ActionSet
from peakrl.tabular import TabularModel
from peakrl.types import Bools, Longs
from peakrl.visited import VisitedStates, label_of

StateFunction = Callable[..., Any]
ON_UNSAFE = ("replace", "raise")
#: Types of actions that are labels as they are.
NUMBERS = frozenset({int, bool, np.int64, np.int32})


class Options(NamedTuple):
    """Arguments of `shield` that a guard needs."""

    on_unsafe: str
    state_of: StateFunction | None
    fallback: Any
    emergency: Callable[[Any], Any] | None
    #: The safe set's names of the environment's actions.
    names: Sequence[Hashable] | None


class Offer(NamedTuple):
    """What is safe at a position; arrays are read-only."""

    #: [action of the environment]: True if it is safe, and the same as 0 and 1.
    mask: Bools
    numbers: NDArray[np.int8]
    #: [action of the environment]: the nearest safe one, the first of two that are equally near.
    nearest: list[int]

    @classmethod
    def of(cls, mask: Bools) -> Offer:
        """Return the offer of a mask."""
        safe, actions = np.flatnonzero(mask), np.arange(len(mask))
        near = np.argmin(np.abs(safe - actions[:, None]), axis=1) if len(safe) else []
        return cls(frozen(mask, np.bool_), frozen(mask, np.int8), safe[near].tolist() if len(safe) else [])


class Guard:
    """A safe set in terms of an environment: its observations, and its actions by index.

    The position in an episode is whatever the safe set needs to know at a step.
    """

    #: Steps that the safe set covers.
    horizon: float
    #: Of the model or problem.
    name: str

    def __init__(self, space: Any, known: Sequence[Any], options: Options) -> None:
        """`known` are the actions of the safe set, in the order of its masks."""
        check_choice(options.on_unsafe, "on_unsafe", ON_UNSAFE)
        self.on_unsafe, self.fallback, self.emergency = options.on_unsafe, options.fallback, options.emergency
        if self.fallback is not None and not callable(getattr(self.fallback, "action", self.fallback)):
            raise SettingsError(f"fallback is {self.fallback!r}; it must be a policy or a function of step and state")
        if self.emergency is not None and not callable(self.emergency):
            raise SettingsError(f"emergency is {self.emergency!r}; it must be a function of the observation")
        self.actions = ActionSet(space)
        self.labels = list(self.actions.labels if options.names is None else options.names)
        self.columns = columns_of(self.name, known, self.labels, len(self.actions))
        if options.names is None and len(known) < len(self.actions):
            raise SettingsError(
                f"the environment has {len(self.actions)} actions, the safe set of {self.name!r} only {len(known)}: if "
                "it covers this environment, pass actions=, the safe set's actions in the order of the environment's"
            )
        #: Nothing is safe; and everything is, for an action that only resets.
        self.nothing, self.anything = (Offer.of(np.full(len(self.actions), safe)) for safe in (False, True))
        #: From the bytes of a mask.
        self.offers = lru_cache(1 << 16)(lambda mask: Offer.of(np.frombuffer(mask, np.bool_)))

    def owner(self, environment: Any) -> Any:
        """Return an environment that knows its state, None for one whose observations are used."""
        raise NotImplementedError

    def arrive(self, lane: Lane, observation: Any) -> Any:
        """Return the position in which an action is to be taken; raise a TargetError if nothing is known there."""
        raise NotImplementedError

    def end(self, lane: Lane, observation: Any) -> None:
        """Note the last observation of an episode."""

    def close(self, lane: Lane) -> None:
        """Check what is left to check."""

    def mask(self, position: Any) -> Bools:
        """Return [action of the environment]: True if it is safe; read-only."""
        raise NotImplementedError

    def offer(self, position: Any) -> Offer:
        """Return what is safe."""
        found: Offer = self.offers(self.mask(position).tobytes())
        return found

    def why(self, step: int, position: Any, index: int) -> str:
        """Return why an action is not safe."""
        raise NotImplementedError

    def followed(self, step: int, position: Any, seen: Any) -> int:
        """Return the index of the action of the fallback, -1 if it does not exist."""
        raise NotImplementedError

    def index(self, action: Any) -> int:
        """Return the index of an action of the environment."""
        label = action
        if type(action) not in NUMBERS:
            label = None
            with suppress(TargetError):
                label = label_of(action)
        index = self.actions.index(label)
        if index < 0:
            raise PolicyError(f"action {shown(action)} is not in {self.actions.space}")
        return index

    def instead(self, step: int, position: Any, index: int, seen: Any = None) -> int:
        """Return the index of the action that replaces an unsafe one, or raise; `seen` is the observation."""
        if self.on_unsafe == "raise":
            reason = self.why(step, position, index)
            raise PolicyError(f"action {shown(self.labels[index])} is not safe: {reason}")
        mask = self.mask(position)
        other = self.followed(step, position, seen)
        if not mask[other]:
            reason, label = self.why(step, position, other), self.labels[other]
            raise PolicyError(f"the fallback's action {shown(label)} at step {step} is not safe either: {reason}")
        return other


class ModelGuard(Guard):
    """The safe set of a model; positions are nodes."""

    def __init__(self, safe: SafeSet, space: Any, options: Options) -> None:
        self.safe, self.model = safe, safe.model
        self.horizon, self.name = math.inf if self.model.steps is None else self.model.steps, self.model.name
        super().__init__(space, self.model.action_labels, options)
        self._given = options.state_of
        self.state_of = with_step(label_of if options.state_of is None else options.state_of)

    def owner(self, environment: Any) -> Any:
        """Return an environment of peakrl, None for others."""
        model = own_model(environment)
        if model is None or self._given is not None:
            return None
        if self.model is not model and not self.model.same_dynamics(model):
            raise SettingsError(
                f"the safe set belongs to {self.model!r}, the environment to {model!r}. If the former covers all "
                "that can happen in the latter and has the same names of states, pass state_of="
            )
        return environment

    def arrive(self, lane: Lane, observation: Any) -> int:
        """Return the node in which an action is to be taken."""
        if lane.own is not None:
            return self.arrived(lane.own.state, lane.step, None if lane.follows_model else lane.before)
        try:
            state = self.state_of(observation, lane.step)
        except TargetError as error:
            raise TargetError(f"{error}; pass state_of=, a function from an observation to a state") from None
        return self.arrived(state, lane.step, lane.before, observation)

    def arrived(self, state: Hashable, step: int, before: tuple[int, int] | None, seen: Any = None) -> int:
        """Return the node of a state, or raise."""
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
        return f"action {shown(self.labels[index])} in state {shown(self._state(node))}"

    def _state(self, node: int) -> Hashable:
        return self.model.state_of_slot(node % self.model.num_slots)

    def mask(self, position: int) -> Bools:
        """Return [action of the environment]: True if it is safe; read-only."""
        safe = self.safe.mask_of(position)
        return frozen(safe[np.maximum(self.columns, 0)] & (self.columns >= 0), np.bool_, own=True)

    def why(self, step: int, position: int, index: int) -> str:
        """Return why an action is not safe."""
        try:
            return str(self.safe.reason(self._state(position), self.labels[index], step))
        except PolicyError as error:
            return str(error)

    def followed(self, step: int, position: int, seen: Any) -> int:
        """Return the index of the action of the fallback."""
        labels, follow = self.labels, getattr(self.fallback, "action", self.fallback)
        named = self._state(position)
        if isinstance(getattr(self.fallback, "model", None), VisitedStates):  # it knows the environment's names
            labels = list(self.actions.labels)
            try:
                named = label_of(seen)
            except TargetError as error:
                raise PolicyError(f"the fallback was learned on another environment: {error}") from None
        if isinstance(self.fallback, Policy):
            rows = self.model.rows_of_slot(position % self.model.num_slots)
            available = self.model.row_action[rows.start : rows.stop]
            offered = [label for label, column in zip(labels, self.columns, strict=True) if column in available]
            label = follow(step, named, offered)
        else:
            label = follow(step, named)
        return position_of(label, labels, step)


def position_of(label: Any, labels: Sequence[Any], step: int) -> int:
    """Return the index of the action of a fallback, or raise."""
    if label not in labels:
        raise PolicyError(
            f"the fallback's action {shown(label)} at step {step} is not safe either: it is not available"
        )
    return labels.index(label)


@singledispatch
def guard_of(safe_set: Any, space: Any, options: Options) -> Guard:
    """Return the guard of a safe set for an action space."""
    raise SettingsError(f"{safe_set!r} is not a SafeSet; safe_set(model) makes one")


@guard_of.register
def _model_guard(safe_set: SafeSet, space: Any, options: Options) -> Guard:
    return ModelGuard(safe_set, space, options)


def described(state: Hashable, seen: Any) -> str:
    """Return the state of an episode for a message."""
    return f"state {shown(state)}" if seen is None else f"the observation {shown(seen)}"


def columns_of(name: str, known: Sequence[Any], labels: Sequence[Any], count: int) -> Longs:
    """Return [action of the environment]: its index in the safe set, -1 if it has none."""
    if len(labels) != count:
        raise SettingsError(f"actions= names {len(labels)} actions; the environment has {count}")
    numbers = {label: number for number, label in enumerate(known)}
    columns = np.array([numbers.get(label, -1) for label in labels], np.int64)
    missing = set(range(len(numbers))) - set(columns.tolist())
    if missing:
        raise SettingsError(
            f"the safe set of {name!r} has the action {shown(known[min(missing)])}, which the environment does not "
            f"have; it has {shown(list(labels))}. If they have other names, pass actions=, the safe set's actions in "
            "the order of the environment's"
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


#: Where a lane is: in an episode whose position is known, or is not; no episode has begun, it is over, it continues
#: after the last step of the safe set, or the next action resets the environment.
RUNNING, LOST, NOT_BEGUN, OVER, BEYOND, WAITING = range(6)
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
        #: An environment that knows its state; None if states are read from observations.
        self.own = own
        #: Nothing impossible can occur.
        self.follows_model = follows_model and own is not None
        self.status, self.position = NOT_BEGUN, None
        self.step = self.replacements = 0
        self.offer = guard.nothing
        #: Is an unsafe action replaced by the nearest safe one?
        self._nearest = guard.on_unsafe == "replace" and guard.fallback is None
        #: The last observation.
        self.seen: Any = None
        #: Steps taken, and actions replaced, in all episodes.
        self.steps, self.replaced = 0, 0
        #: The position and the action before; None at the start of an episode and if the position was not known.
        self.before: tuple[Any, int] | None = None
        #: Steps (action index, *state, *next state) that were not yet compared with the dynamics of the problem.
        self.unchecked: list[tuple[float, ...]] = []
        #: So many of them are compared together.
        self.batch = 1
        self._resets = False

    def begin(self, observation: Any) -> None:
        """Begin an episode."""
        self.step, self.replacements, self.before = 0, 0, None
        self._arrive(observation)

    def allowed(self, index: int) -> int:
        """Return the index of the action to take instead of this one, or raise; nothing changes."""
        status = self.status
        if status == RUNNING:
            if self._nearest:  # itself if it is safe
                return self.offer.nearest[index]
            return index if self.offer.mask[index] else self.guard.instead(self.step, self.position, index, self.seen)
        if status == WAITING:
            return index
        if status == LOST:
            return int(self.offer.mask.argmax())
        raise TargetError(NO_ACTION[status].format(self.guard))

    def leave(self, asked: int, taken: int) -> None:
        """Note the action before it is taken; the episode counts as over if the environment then raises an error."""
        self._resets = self.status == WAITING
        if not self._resets:
            self.steps += 1
            self.step += 1
            self.replacements += taken != asked
            self.replaced += taken != asked
        self.before = (self.position, taken) if self.status == RUNNING else None
        self.status, self.offer = OVER, self.guard.nothing

    def move(self, observation: Any, over: bool, mode: AutoresetMode = AutoresetMode.DISABLED) -> None:
        """Note what an action led to; `mode` says what follows the end of an episode."""
        if self._resets or (over and mode is AutoresetMode.SAME_STEP):
            self.begin(observation)
        elif not over:
            self._arrive(observation)
        else:
            self.guard.end(self, observation)
            if mode is AutoresetMode.NEXT_STEP:
                self.status, self.offer = WAITING, self.guard.anything

    def _arrive(self, observation: Any) -> None:
        guard, self.seen = self.guard, observation
        if self.step >= guard.horizon:
            self.status, self.offer = BEYOND, guard.nothing
            return
        try:
            self.position = guard.arrive(self, observation)
            self.status, self.offer = RUNNING, guard.offer(self.position)
        except TargetError:
            if guard.emergency is None:
                raise
            mask = guard.nothing.mask.copy()
            mask[guard.index(guard.emergency(observation))] = True
            self.status, self.offer = LOST, Offer.of(mask)


class Counts:
    """What single and vectorised shields report of their lanes."""

    guard: Guard
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
        if any(lane.status == NOT_BEGUN for lane in self._lanes):
            raise TargetError(NO_ACTION[NOT_BEGUN])
        return [lane.offer.mask for lane in self._lanes]

    def _restart(self, seed: int | None) -> None:
        if hasattr(self.guard.fallback, "reset"):
            self.guard.fallback.reset(seed)


class Shield(Counts, gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, lanes: list[Lane], keys: tuple[str, str] | None) -> None:
        super().__init__(env)
        self.guard, self._lanes, self._lane, self._keys = guard, lanes, lanes[0], keys
        if keys is not None:
            self.observation_space = with_mask(env.observation_space, guard, keys)

    def action_masks(self) -> Bools:
        """Return a copy of [action]: True if it is safe now."""
        return self._masks()[0].copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._lane.status = NOT_BEGUN
        observation, info = self.env.reset(seed=seed, options=options)
        self._restart(seed)
        self._lane.begin(observation)
        info = {**info}
        return self._shown(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action, or a safe one instead."""
        lane, guard = self._lane, self.guard
        asked = guard.index(action)
        taken = lane.allowed(asked)
        lane.leave(asked, taken)
        action = action if taken == asked else guard.actions.value(taken)
        observation, reward, terminated, truncated, info = self.env.step(action)
        lane.move(observation, terminated or truncated)
        info = {**info, "shield_replaced": taken != asked, "shield_action": taken}
        return self._shown(observation, info), reward, terminated, truncated, info

    def close(self) -> None:
        """Check what is left to check, and close the environment."""
        try:
            self.guard.close(self._lane)
        finally:
            super().close()

    def _shown(self, observation: Any, info: dict[str, Any]) -> Any:
        """Add to an info, and return the observation as the agent sees it."""
        lane = self._lane
        info["action_mask"] = mask = lane.offer.numbers.copy()
        info["shield_replacements"] = lane.replacements
        if self.guard.emergency is not None:
            info["shield_lost"] = lane.status == LOST
        return observation if self._keys is None else dict(zip(self._keys, (observation, mask), strict=True))


class VectorShield(Counts, VectorWrapper):
    """A vectorised Gymnasium environment that takes safe actions only; made by `shield`."""

    def __init__(self, env: Any, guard: Guard, lanes: list[Lane], keys: tuple[str, str] | None) -> None:
        super().__init__(env)
        self.guard, self._lanes, self._keys, given = guard, lanes, keys, env.metadata.get("autoreset_mode")
        try:
            self.mode = AutoresetMode(given)
        except ValueError:
            raise SettingsError(
                f'metadata["autoreset_mode"] of the vectorised environment is {given!r}; it '
                f"must be one of {', '.join(str(each) for each in AutoresetMode)} (Gymnasium 1.1 and later set it)"
            ) from None
        if keys is not None:
            self.single_observation_space = with_mask(env.single_observation_space, guard, keys)
            self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._restart(0)

    def action_masks(self) -> Bools:
        """Return [lane, action]: True if it is safe now."""
        return np.stack(self._masks())

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every lane, or in those that `options["reset_mask"]` names."""
        chosen = None if options is None else options.get("reset_mask")
        numbers = range(self.num_envs) if chosen is None else np.flatnonzero(chosen).tolist()
        for number in numbers:
            self._lanes[number].status = NOT_BEGUN
        observations, infos = self.env.reset(seed=seed, options=options)
        seen = list(iterate(self.env.observation_space, observations))
        for number in numbers:
            with named(number):
                self._lanes[number].begin(seen[number])
        return self._shown(observations), self._with_infos(infos)

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
        return self._shown(observations), *result[1:4], self._with_infos(infos, **counts)

    def close(self, **options: Any) -> None:
        """Check what is left to check, and close the environments."""
        try:
            for number, lane in enumerate(self._lanes):
                with named(number):
                    self.guard.close(lane)
        finally:
            super().close(**options)

    def _shown(self, observations: Any) -> Any:
        """Return the observations as the agent sees them."""
        if self._keys is None:
            return observations
        masks = np.stack([lane.offer.numbers for lane in self._lanes])
        return dict(zip(self._keys, (observations, masks), strict=True))

    def _with_infos(self, infos: dict[str, Any], **more: NDArray[Any]) -> dict[str, Any]:
        """Return batched infos with those of the shield."""
        masks = np.stack([lane.offer.numbers for lane in self._lanes])
        replacements = np.array([lane.replacements for lane in self._lanes])
        own = {"action_mask": masks, "shield_replacements": replacements, **more}
        if self.guard.emergency is not None:
            own["shield_lost"] = np.array([lane.status == LOST for lane in self._lanes])
        return {**infos, **own, **{f"_{key}": np.ones(self.num_envs, np.bool_) for key in own}}


def with_mask(space: Any, guard: Guard, keys: tuple[str, str]) -> Any:
    """Return the space of observations that contain the mask."""
    return spaces.Dict(dict(zip(keys, (space, spaces.MultiBinary(len(guard.actions))), strict=True)))


@contextmanager
def named(lane: int) -> Iterator[None]:
    """Begin the message of an error with the lane."""
    try:
        yield
    except PeakError as error:
        raise type(error)(f"lane {lane}: {error}") from None


def shield(
    env: Any,
    safe_set: Any,
    *,
    on_unsafe: str = "replace",
    state_of: StateFunction | None = None,
    fallback: Any = None,
    emergency: Callable[[Any], Any] | None = None,
    actions: Sequence[Hashable] | None = None,
    mask_keys: tuple[str, str] | None = None,
) -> Any:
    """Return an environment, single or vectorised, that takes only safe actions and reports which those are.

    Parameters
    ----------
    env
        A Gymnasium environment, or a vectorised one.
    safe_set
        The safe set of a model or of a continuous problem.
    on_unsafe
        "replace": an unsafe action is replaced by the nearest safe one in the order of actions, or by that of
        `fallback`. "raise": it is a `PolicyError` with the reason.
    state_of
        A function from an observation, or an observation and a step, to a state of the safe set's model or problem. By
        default an observation of integers and strings, or for a continuous problem of numbers, is the state itself, and
        environments of peakrl know their state.
    fallback
        A policy, or a function of step and state. One that was learned on an environment is asked with what that
        shows: its observation and its actions.
    emergency
        A function from an observation to an action, which is taken where the safe set promises nothing: in an unknown
        or unsafe state, and after what the model excludes. By default these are errors.
    actions
        The safe set's names of the environment's actions, in its order; by default their indices.
    mask_keys
        Two names, if observations shall become {first: observation, second: mask}, as tianshou ("obs", "mask"),
        PettingZoo and TorchRL ("observation", "action_mask") expect.

    Returns
    -------
    gymnasium.Wrapper or gymnasium.vector.VectorWrapper

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

    Notes
    -----
    The shield is valid only if the model has every possible outcome. An outcome that the model excludes, an unknown
    state, or a state in which nothing is safe is a `TargetError`. Steps of a continuous problem are compared with its
    dynamics in batches, the first one at once, then 2, 4, ... up to 4,096 steps, and at `close`.
    """
    vector = isinstance(env, VectorEnv)
    if not vector and not isinstance(env, gymnasium.Env):
        raise SettingsError(f"{env!r} is not a Gymnasium environment; to_gymnasium(problem) makes one from a problem")
    # Environments in this process may know their state; those in other processes show only observations.
    inner = list(getattr(env.unwrapped, "envs", ())) if vector else [env]
    models = [own_model(each.unwrapped) for each in inner]
    if models and models[0] is not None and actions is None:
        actions = models[0].action_labels
    space = env.single_action_space if vector else env.action_space
    guard = guard_of(safe_set, space, Options(on_unsafe, state_of, fallback, emergency, actions))
    own = [guard.owner(each.unwrapped) for each in inner]
    if None in own or not own:
        own = [None] * (env.num_envs if vector else 1)
    # An environment of peakrl follows the model, unless a wrapper changes its actions.
    follows = env is env.unwrapped and all(each is each.unwrapped for each in inner)
    lanes = [Lane(guard, each, follows) for each in own]
    return VectorShield(env, guard, lanes, mask_keys) if vector else Shield(env, guard, lanes, mask_keys)
