"""What is known of an environment without a model: which states were visited at which step, and what they offer."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from peakrl.errors import TargetError
from peakrl.model.space import StateSpace
from peakrl.targets.spaces import label_of


class VisitedStates(StateSpace):
    """The states that a learner visited in an environment: labels, but no dynamics."""

    def slot_of(self, step: int, state: Any) -> int:
        """Return where a state is stored for `step`; it may also be given as the environment shows it."""
        try:
            hash(state)
        except TypeError:
            with contextlib.suppress(TargetError):
                state = label_of(state)
        return super().slot_of(step, state)

    def _unknown(self, step: int, state: Any) -> str:
        return f"state {state!r} was not met at step {step} while learning on {self.name!r}: nothing is known of it"

    def row_of(self, step: int, state: Any, action: Any) -> int:
        """Return where a pair is stored; state and action may also be given as the environment has them."""
        return super().row_of(step, state, label_of(action) if isinstance(action, np.ndarray | np.integer) else action)
