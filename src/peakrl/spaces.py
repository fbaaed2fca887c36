"""Gymnasium spaces: observations that have labels (`visited`), and numbered actions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from peakrl.checks import shown
from peakrl.errors import PolicyError, SettingsError, TargetError

#: Largest number of actions for which tables are reasonable.
MOST_ACTIONS = 1_000_000
#: Largest absolute value of the lowest action.
MOST_START = 2**31
ActionNumbers = tuple[int, ...]


def check_observation_space(space: Any) -> None:
    """Raise unless every observation of the space has a label."""
    part = unlabelled_part(space)
    if part is not None:
        raise SettingsError(
            f"the observation space holds a {part}; peakrl learns tables, so it must be made of Discrete, "
            "MultiDiscrete, MultiBinary and Text. peakrl.Discretize(env, cells, low=, high=) makes cells of continuous "
            "observations; peakrl.safe_set of a ContinuousProblem with its dynamics makes a shield for any agent; deep "
            "agents can learn from peakrl.PeakReward(env, ...), and `certify` judges any policy"
        )


def unlabelled_part(space: Any) -> str | None:
    """Return the type of a part of the space whose observations have no label; None if there is none."""
    from gymnasium import spaces

    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return next(filter(None, map(unlabelled_part, parts)), None)
    listed = isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Text)
    return None if listed else type(space).__name__


def space_size(space: Any) -> int:
    """Return the number of observations of a space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return math.prod(int(n) for n in space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return 1 << math.prod(space.shape)
    if isinstance(space, spaces.Text):
        letters = len(space.character_set)
        return int(sum(letters**length for length in range(space.min_length, space.max_length + 1)))
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
    return math.prod(map(space_size, parts))


def tuple_of(label: Any) -> Hashable:
    """Return a label from JSON, whose tuples are lists."""
    known: Hashable = tuple(map(tuple_of, label)) if isinstance(label, list) else label
    if known is not None and not isinstance(known, int | str | tuple):
        raise SettingsError(f"an action is {shown(label)}; it must be made of whole numbers and words")
    return known


class ActionSet:
    """The numbered actions of a space: their labels, and the values that `step` takes."""

    def __init__(self, space: Any) -> None:
        self.sizes: tuple[int, ...] | None = None
        from gymnasium import spaces

        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and space_size(space) > MOST_ACTIONS:
            raise SettingsError(f"{space} has {space_size(space):,} actions; at most {MOST_ACTIONS:,} fit a table")
        if isinstance(space, spaces.Discrete):
            self.labels: Sequence[Hashable] = range(int(space.start), int(space.start) + int(space.n))
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes = tuple(int(n) for n in space.nvec.ravel())
            lowest = [int(first) for first in np.broadcast_to(space.start, space.nvec.shape).ravel()]
            ranges = [range(first, first + size) for first, size in zip(lowest, self.sizes, strict=True)]
            self.labels = list(itertools.product(*ranges))
        else:
            raise SettingsError(f"the action space is {shown(space)}; it must be Discrete or MultiDiscrete")
        self.space = space
        self._prepare()

    def _prepare(self) -> None:
        self.everything: ActionNumbers = tuple(range(len(self.labels)))
        self._offers: dict[tuple[str, tuple[int, ...], bytes] | None, ActionNumbers] = {}
        self._index: dict[Hashable, int] = {}

    @classmethod
    def of_labels(cls, labels: Sequence[Hashable]) -> ActionSet:
        """Return actions with these labels, which belong to no Gymnasium space."""
        made = cls.__new__(cls)
        made.labels, made.sizes, made.space = list(labels), None, None
        made._prepare()
        return made

    def described(self) -> list[Any]:
        """Return [lowest, size] of each component, or the labels if there is no space, for a file."""
        if self.space is None:
            return [{"label": label} for label in self.labels]
        if isinstance(self.labels, range):
            return [[self.labels.start, len(self.labels)]]
        return [[int(lowest), size] for lowest, size in zip(self._first(), self.sizes or (), strict=True)]

    def _first(self) -> Any:
        return self.labels[0]

    @classmethod
    def from_description(cls, described: Any) -> ActionSet:
        """Return the actions of a description."""
        from gymnasium import spaces

        if isinstance(described, list) and described and all(isinstance(part, dict) for part in described):
            labels = [tuple_of(part.get("label")) for part in described]
            if len(set(labels)) != len(labels) or None in labels:
                raise SettingsError(f"actions are {shown(described)}; their labels must differ")
            return cls.of_labels(labels)
        try:
            starts, sizes = ([int(part[place]) for part in described] for place in (0, 1))
        except (TypeError, ValueError, LookupError, OverflowError):
            raise SettingsError(f"actions are {shown(described)}; they must be pairs of lowest and size") from None
        if not sizes or not all(1 <= size <= MOST_ACTIONS for size in sizes) or max(map(abs, starts)) > MOST_START:
            raise SettingsError(f"actions are {shown(described)}; each component has 1 to {MOST_ACTIONS:,} of them")
        if len(sizes) == 1:
            return cls(spaces.Discrete(sizes[0], start=starts[0]))
        return cls(spaces.MultiDiscrete(sizes, start=starts))

    def __len__(self) -> int:
        return len(self.labels)

    def value(self, index: int) -> Any:
        """Return the value that `step` takes."""
        label: Any = self.labels[index]
        if self.sizes is None:
            return label
        return np.array(label, self.space.dtype).reshape(self.space.shape)

    def index(self, label: Any) -> int:
        """Return the number of an action, a label or as the environment takes it; -1 if there is none."""
        if not self._index:
            self._index = {known: index for index, known in enumerate(self.labels)}
        if isinstance(label, np.ndarray) and label.dtype.kind in "biu":  # as the environment takes it
            label = label.item() if self.sizes is None and label.size == 1 else tuple(label.ravel().tolist())
        try:
            return self._index.get(label, -1)
        except TypeError:
            return -1

    def batch(self, indices: Sequence[int]) -> Any:
        """Return the value that `step` of a vectorised environment takes."""
        return np.array([self.value(index) for index in indices], self.space.dtype)

    def offer(self, mask: Any) -> ActionNumbers:
        """Return the numbers of the actions that `info["action_mask"]` allows; all of them without a mask."""
        if mask is None:
            return self.everything
        # Masks come with every step; a known one is not checked again.
        key = (mask.dtype.str, mask.shape, mask.tobytes()) if isinstance(mask, np.ndarray) else None
        offer = self._offers.get(key)
        if offer is None:
            offer = tuple(np.flatnonzero(self._flat(mask)).tolist())
            if not offer:
                raise TargetError('info["action_mask"] leaves no action; at least one must be on offer')
            if key is not None:
                self._offers[key] = offer
        return offer

    def leaves_any(self, mask: Any) -> bool:
        """Does a mask allow any action?"""
        return bool(self._flat(mask).any())

    def _flat(self, mask: Any) -> Any:
        """Return the mask as one truth value for each action."""
        if isinstance(mask, tuple | list) and self.sizes is not None and len(mask) == len(self.sizes):
            # Gymnasium's form for MultiDiscrete: one mask for each component.
            parts = [self._truths(part, size) for part, size in zip(mask, self.sizes, strict=True)]
            return np.array([all(chosen) for chosen in itertools.product(*parts)])
        return self._truths(mask, len(self))

    @staticmethod
    def _truths(mask: Any, size: int) -> Any:
        try:
            array = np.asarray(mask)
        except (TypeError, ValueError):
            array = np.empty(0, object)
        if array.shape != (size,) or array.dtype.kind not in "biu" or not ((array == 0) | (array == 1)).all():
            raise TargetError(
                f'info["action_mask"] is {shown(mask)}; it must hold a 0 or a 1 for each of the {size} actions'
            )
        return array.astype(np.bool_)


class UnnumberedActions(ActionSet):
    """The actions of a Box: each is its own number, and all are available."""

    def __init__(self, space: Any) -> None:
        self.space, self.sizes, self.labels = space, (), ()
        #: The action of idle lanes.
        self.everything: Any = (np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype),)

    def value(self, index: Any) -> Any:
        """Return the action itself."""
        return index

    def index(self, label: Any) -> Any:
        """Return the action as the space has it, or raise."""
        action = np.asarray(label, self.space.dtype)
        if not self.space.contains(action):
            raise PolicyError(f"the policy takes {shown(label)}, which is not in {self.space}")
        return action


def actions_of(space: Any) -> ActionSet:
    """Return the actions of a space, numbered or not."""
    from gymnasium import spaces

    return UnnumberedActions(space) if isinstance(space, spaces.Box) else ActionSet(space)
