"""States that were visited in an environment without a model: labels, available actions, and how files hold them.

The label of a state is made of the observation: integers, strings and tuples of labels.

    Discrete -> int;  MultiDiscrete, MultiBinary -> tuple of ints, nested like the array;  Text -> str
    Tuple -> tuple of labels;  Dict -> tuple of (key, label) pairs in the order of the keys
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from peakrl.checks import check_bounds, check_count, check_range, shown
from peakrl.errors import PeakError, StorageError, TargetError
from peakrl.labels import Arrays, UnstorableLabel, load_labels, store_labels
from peakrl.memory import MOST_STEPS, check_tables
from peakrl.ragged import repeated_member
from peakrl.space import StateSpace, frozen, read_only
from peakrl.validate import MOST_UNUSED_NAMES, partitions, same_every_step, within


def label_of(observation: Any) -> Hashable:
    """Return an observation as a hashable label, or raise if it is not made of integers and strings."""
    if isinstance(observation, str):
        return str(observation)
    if isinstance(observation, int | np.integer | np.bool_):
        return int(observation)
    if isinstance(observation, np.ndarray):
        if observation.dtype.kind not in "biu":
            raise TargetError(f"an observation holds an array of {observation.dtype}; it must hold whole numbers")
        return nested(observation.tolist())
    if isinstance(observation, tuple | list):
        return tuple(map(label_of, observation))
    if isinstance(observation, dict):
        return tuple((str(key), label_of(observation[key])) for key in sorted(observation))
    raise TargetError(f"an observation holds {shown(observation)}; it must be made of whole numbers and words")


def nested(value: Any) -> Hashable:
    """Return nested lists of integers as tuples."""
    return tuple(map(nested, value)) if isinstance(value, list) else int(value)


class VisitedStates(StateSpace):
    """The states that a learner visited in an environment: labels without dynamics."""

    def slot_of(self, step: int, state: Any) -> int:
        """Return the slot of a state at `step`; the state may also be an observation."""
        try:
            hash(state)
        except TypeError:
            with contextlib.suppress(TargetError):
                state = label_of(state)
        return super().slot_of(step, state)

    def _unknown(self, step: int, state: Any) -> str:
        return f"state {state!r} was not visited at step {step} while learning on {self.name!r}: nothing is known of it"

    def row_of(self, step: int, state: Any, action: Any) -> int:
        """Return the row of a pair; state and action may also be given as by the environment."""
        return super().row_of(step, state, label_of(action) if isinstance(action, np.ndarray | np.integer) else action)


TYPES: dict[str, type[Any]] = {
    "slot_state": np.int32, "row_action": np.int32, "step_slots": np.int64, "row_start": np.int64
}  # fmt: skip


def store_visited(space: VisitedStates) -> tuple[dict[str, Any], Arrays]:
    """Return plain values and arrays from which `load_visited` builds an equal space."""
    try:
        states, state_arrays = store_labels(space.state_labels)
        actions, action_arrays = store_labels(space.action_labels)
    except UnstorableLabel as error:
        raise StorageError(f"a file cannot hold a state such as {error}") from None
    plain = {
        "horizon": space.horizon,
        "stationary": space.stationary,
        "constraint_names": list(space.constraint_names),
        "constraint_bounds": [float(bound) for bound in space.constraint_bounds],
        "reward_range": [float(end) for end in space.reward_range],
        "states": states,
        "actions": actions,
    }
    arrays = {name: getattr(space, name) for name in TYPES}
    arrays |= {f"states.{name}": array for name, array in state_arrays.items()}
    return plain, arrays | {f"actions.{name}": array for name, array in action_arrays.items()}


def load_visited(name: str, plain: Mapping[str, Any], arrays: Arrays) -> VisitedStates:
    """Return the space that `store_visited` stored, or raise if its numbers are inconsistent."""
    space = rebuilt(name, plain, arrays)
    for wrong, words in faults(space):
        if wrong:
            raise StorageError(words)
    try:
        check_tables(space.name, space.horizon, space.num_slots if space.stationary else 1)
    except PeakError as error:
        raise StorageError(str(error)) from error
    return space


def rebuilt(name: str, plain: Mapping[str, Any], arrays: Arrays) -> VisitedStates:
    """Build a space; `faults` checks it."""
    return VisitedStates(
        name=name,
        horizon=check_count(plain["horizon"], "horizon", 1, MOST_STEPS, error=StorageError),
        stationary=plain["stationary"] is True,
        constraint_names=tuple(map(str, plain["constraint_names"])),
        constraint_bounds=check_bounds(plain["constraint_bounds"], "constraint_bounds", error=StorageError),
        reward_range=check_range(plain["reward_range"], "reward_range", error=StorageError),
        state_labels=load_labels(plain["states"], part(arrays, "states.")),
        action_labels=load_labels(plain["actions"], part(arrays, "actions.")),
        **{name: checked(arrays, name) for name in TYPES},
    )


def part(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def checked(arrays: Arrays, name: str) -> Any:
    """Return a read-only array, or raise if its type or number of axes is wrong."""
    array = arrays[name]
    if array.dtype != TYPES[name] or array.ndim != (2 if name == "step_slots" else 1):
        raise ValueError(f"array {name!r} is {array.dtype} of shape {array.shape}")
    return frozen(array, TYPES[name], own=True)


def faults(space: VisitedStates) -> Iterator[tuple[bool, str]]:
    """Yield (is wrong, message) of what may be wrong with a space; each check relies on those before it."""
    slots, rows = space.num_slots, space.num_rows
    yield slots < 1 or rows < 1, "it has no states or no actions"
    names, bounds = space.constraint_names, space.constraint_bounds
    yield len(set(names)) < len(names), f"its constraints {names} repeat a name"
    yield len(bounds) != len(names), f"it has {len(bounds)} bounds for {len(names)} constraints"
    yield space.step_slots.shape != (space.horizon, 2), "its steps do not have two ends each"
    yield space.num_states > slots, f"it names {space.num_states:,} states and stores {slots:,}"
    yield len(space.action_labels) > rows + MOST_UNUSED_NAMES, f"it names {len(space.action_labels):,} actions"
    yield not partitions(space.row_start, slots, rows), "its pairs are not divided into states"
    yield bool((np.diff(space.row_start) < 1).any()), "a state offers no action"
    yield not within(space.slot_state, space.num_states), "a stored state has no name"
    yield not within(space.row_action, len(space.action_labels)), "a pair's action has no name"
    yield (
        repeated_member(space.row_start, space.row_action, len(space.action_labels)) >= 0,
        ("a state offers an action twice"),
    )
    yield from step_faults(space)


def step_faults(space: VisitedStates) -> Iterator[tuple[bool, str]]:
    """Yield (is wrong, message) of what may be wrong with the states of steps."""
    slots, ends = space.num_slots, space.step_slots
    if space.stationary:
        yield not same_every_step(ends, slots), "its steps do not share all states"
        own = space.num_states == slots and np.array_equal(space.slot_state, np.arange(slots))
        yield not own, "its states are not stored in the order of their names"
        return
    starts = np.append(ends[:, 0], slots)
    yield (
        not (partitions(starts, space.horizon, slots) and np.array_equal(starts[1:], ends[:, 1])),
        ("its steps' states do not follow each other"),
    )
    yield repeated_member(read_only(starts), space.slot_state, space.num_states) >= 0, "a step has a state twice"
