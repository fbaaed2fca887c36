"""What is known of an environment without a model: which states were met at which step, and what they offer.

It has a model's labels and index spaces (`kernels.arrays`), so that policies work on it as on a model, but no dynamics:
whatever needs probabilities, rewards or constraints says so.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import ProblemError, TargetError
from peakrl.kernels.arrays import Layout, Longs
from peakrl.model.tabular import TabularModel, frozen
from peakrl.targets.spaces import label_of

NOTHING: Any = np.empty(0)


class MetStates(TabularModel):
    """The states that a learner met in an environment."""

    def __init__(
        self,
        *,
        name: str,
        horizon: int,
        stationary: bool,
        state_labels: Sequence[Hashable],
        slot_state: NDArray[Any],
        action_labels: Sequence[Hashable],
        row_action: NDArray[Any],
        row_start: NDArray[Any],
        #: [step]: how many slots belong to it; where all steps share them, their number.
        slots_a_step: Longs,
        reward_range: tuple[float, float],
        constraint_names: tuple[str, ...],
        constraint_bounds: tuple[float, ...],
    ) -> None:
        ends = np.cumsum(slots_a_step) if not stationary else slots_a_step
        starts = ends - slots_a_step
        layout = Layout(
            horizon,
            len(slot_state) if stationary else 0,
            len(row_action) if stationary else 0,
            frozen(np.stack([starts, ends], axis=1), np.int64),
            frozen(np.zeros((horizon, 2)), np.int64),
            frozen(row_start, np.int64),
            frozen(np.full(len(row_action), -1), np.int32),
            frozen(np.zeros(1), np.int64),
            frozen(NOTHING, np.int32),
            frozen(NOTHING, np.float64),
        )
        fields: dict[str, Any] = {
            "name": name,
            "constraint_names": constraint_names,
            "reward_range": reward_range,
            "constraint_bounds": constraint_bounds,
            "stationary": stationary,
            "state_labels": state_labels,
            "slot_state": frozen(slot_state, np.int32),
            "action_labels": action_labels,
            "row_action": frozen(row_action, np.int32),
            "layout": layout,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    def _unknown(self, what: str) -> NoReturn:
        raise ProblemError(
            f"{self.name!r} is an environment, not a model: its {what} are unknown. simulate(env, policy) tells what a "
            "policy is worth there; solve, evaluate and audit need a model (compile_model, TabularModel.from_arrays)"
        )

    @property
    def payoffs(self) -> Any:
        """Unknown: an error."""
        self._unknown("rewards and constraints")

    @property
    def first_slot(self) -> Any:
        """Unknown: an error."""
        self._unknown("first states")

    @property
    def first_probability(self) -> Any:
        """Unknown: an error."""
        self._unknown("first states")

    @cached_property
    def deterministic(self) -> bool:
        """Unknown: an error."""
        self._unknown("dynamics")

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """[node]: every state that was met counts as reachable."""
        return np.ones(self.num_nodes, np.bool_)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays (labels not counted)."""
        return sum(a.nbytes for a in (*self.layout, self.slot_state, self.row_action) if isinstance(a, np.ndarray))

    def slot_of(self, step: int, state: Any) -> int:
        """Return where a state is stored for `step`; it may also be given as the environment shows it."""
        try:
            hash(state)
        except TypeError:
            with contextlib.suppress(TargetError):
                state = label_of(state)
        return super().slot_of(step, state)

    def row_of(self, step: int, state: Any, action: Any) -> int:
        """Return where a pair is stored; state and action may also be given as the environment has them."""
        return super().row_of(step, state, label_of(action) if isinstance(action, np.ndarray | np.integer) else action)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the states, the actions and their order."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.name, self.horizon, self.stationary, self.constraint_names)).encode())
        digest.update(repr((self.reward_range, self.constraint_bounds)).encode())
        for labels in (self.state_labels, self.action_labels):
            digest.update(repr(list(labels)).encode())
        for array in (self.layout.step_slots, self.layout.row_start, self.slot_state, self.row_action):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        constraints = f"{self.num_constraints} constraint{'' if self.num_constraints == 1 else 's'}"
        return (
            f"<MetStates of {self.name!r}: {self.num_states:,} states, {self.num_pairs:,} pairs, "
            f"horizon {self.horizon}, {constraints}>"
        )
