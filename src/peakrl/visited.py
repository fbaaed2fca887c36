"""States that were visited in an environment without a model: labels and available actions.

The label of a state is made of the observation: integers, strings and tuples of labels.

    Discrete -> int;  MultiDiscrete, MultiBinary -> tuple of ints, nested like the array;  Text -> str
    Tuple -> tuple of labels;  Dict -> tuple of (key, label) pairs in the order of the keys
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from typing import Any

import numpy as np

from peakrl.checks import shown
from peakrl.errors import TargetError
from peakrl.space import StateSpace


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
