"""`StateSpace`: states, the actions that each offers, and the index spaces of every table (`types`).

This is all that a policy needs; a `TabularModel` is a space whose dynamics and payoffs are known as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PolicyError, ProblemError, UnknownStateError
from peakrl.types import Ints, Longs

#: Slots, rows and outcomes are 32-bit indices.
MOST_INDICES = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class StateSpace:
    """The states of each step, and the available actions of each state."""

    #: Name for messages and reports.
    name: str
    #: Steps of an episode; None: it does not end.
    steps: int | None
    #: One for each constraint.
    constraint_names: tuple[str, ...]
    #: Lowest and highest reward of a step, declared or observed.
    reward_range: tuple[float, float]
    #: For each constraint a bound on its absolute value, declared or observed.
    constraint_bounds: tuple[float, ...]
    #: Does one set of slots serve every step? (Then the dynamics do not depend on the step.)
    stationary: bool
    #: Distinct states.
    state_labels: Sequence[Hashable]
    #: [slot]: index of its state.
    slot_state: Ints
    #: Distinct actions.
    action_labels: Sequence[Hashable]
    #: [row]: index of its action.
    row_action: Ints
    #: [stage + 1]: first slot of each stage, and one past the last of all. A stationary space has one stage, used at
    #: every step; in a layered one each step is a stage, and slots after the last stage belong to the end.
    stage_start: Longs
    #: [slot + 1]: the rows of a slot are row_start[slot] .. row_start[slot + 1].
    row_start: Longs

    # Sizes ---------------------------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """Steps of an episode; an error if it does not end (`steps` is None)."""
        if self.steps is None:
            raise ProblemError(
                f"{self.name!r} has no end (`steps` is None), and this needs a number of steps: use "
                "model.with_horizon(steps), or a horizon in the problem file (--horizon of `peakrl solve`). Without an "
                "end there are safe_set, and solve with discount=, average= or reach= (--discount, --average)"
            )
        return self.steps

    @property
    def lines(self) -> int:
        """Number of steps that tables distinguish: 1 without an end, since every step has the same line."""
        return 1 if self.steps is None else self.steps

    @property
    def span(self) -> str:
        """How long an episode is, as text."""
        return "no end" if self.steps is None else f"horizon {self.steps}"

    @property
    def node_stride(self) -> int:
        """Nodes of a step; 0 if every step has its own slots, or all share one line."""
        return self.num_slots if self.stationary and self.steps is not None else 0

    @property
    def entry_stride(self) -> int:
        """Entries of a step; 0 if every step has its own rows, or all share one line."""
        return self.num_rows if self.stationary and self.steps is not None else 0

    @property
    def num_constraints(self) -> int:
        """Number of constraint functions."""
        return len(self.constraint_names)

    @property
    def num_states(self) -> int:
        """Number of distinct states, including those that are reached only after the last step."""
        return len(self.state_labels)

    @cached_property
    def num_pairs(self) -> int:
        """Number of distinct (state, action) pairs."""
        if self.num_states == self.num_slots:
            return self.num_rows
        rows_state = self.slot_state[self.slot_of_row].astype(np.int64)
        return len(np.unique(rows_state * len(self.action_labels) + self.row_action))

    @property
    def num_slots(self) -> int:
        """Number of stored states: in a layered space a state that occurs at two steps counts twice."""
        return len(self.slot_state)

    @property
    def num_rows(self) -> int:
        """Number of stored (slot, action) pairs."""
        return len(self.row_action)

    @property
    def num_nodes(self) -> int:
        """Length of a table by (step, state), including the states after the last step."""
        return self.lines * self.node_stride + self.num_slots

    @property
    def num_entries(self) -> int:
        """Length of a table by (step, state, action)."""
        return self.num_rows * (self.lines if self.stationary else 1)

    @cached_property
    def max_states(self) -> int:
        """Largest number of states of a step: S in the bonus formulas."""
        return int(np.diff(self.stage_start).max())

    @cached_property
    def max_actions(self) -> int:
        """Largest number of actions of a state: A in the bonus formulas."""
        return int(np.diff(self.row_start).max())

    # Relations between indices -------------------------------------------------------------------------------

    @cached_property
    def step_slots(self) -> Longs:
        """[step, 2]: first slot of a step, and one past its last."""
        return spans(self.lines, self.stage_start)

    @property
    def slot_of_row(self) -> Longs:
        """[row]: its slot."""
        return np.repeat(np.arange(self.num_slots), np.diff(self.row_start))

    @property
    def step_of_slot(self) -> Longs:
        """[slot]: its step in a layered space, `horizon` after the last; 0 if one set of slots serves every step."""
        if self.stationary:
            return np.zeros(self.num_slots, np.int64)
        return np.searchsorted(self.stage_start[1:], np.arange(self.num_slots), side="right")

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """[node]: can some policy reach this state at this step? True for all if the dynamics are unknown."""
        return np.ones(self.num_nodes, np.bool_)

    def decision_slots(self, step: int) -> Longs:
        """Return the slots that can be reached at `step` and have actions."""
        self.check_step(step)
        (first, last), base = self.step_slots[min(step, self.lines - 1)].tolist(), step * self.node_stride
        offers = np.diff(self.row_start[first : last + 1]) > 0
        slots: Longs = np.flatnonzero(self.reachable[base + first : base + last] & offers) + first
        return slots

    def decisions(self) -> Iterator[tuple[int, int, int]]:
        """Yield (step, slot, node) of all states that can be reached and have actions."""
        for step in range(self.lines):
            for slot in self.decision_slots(step).tolist():
                yield step, slot, step * self.node_stride + slot

    # Labels --------------------------------------------------------------------------------------------------

    def state_of_slot(self, slot: int) -> Hashable:
        """Return the label of a stored state."""
        return self.state_labels[int(self.slot_state[slot])]

    def action_of_row(self, row: int) -> Hashable:
        """Return the label of a stored pair's action."""
        return self.action_labels[int(self.row_action[row])]

    def rows_of_slot(self, slot: int) -> range:
        """Return the rows of a stored state."""
        return range(int(self.row_start[slot]), int(self.row_start[slot + 1]))

    @cached_property
    def _state_index(self) -> dict[Hashable, int]:
        return {label: index for index, label in enumerate(self.state_labels)}

    @cached_property
    def _layer_slots(self) -> dict[tuple[int, int], int]:
        """For layered spaces: {(step, state index): slot}."""
        pairs: dict[tuple[int, int], int] = {}
        for step, (first, last) in enumerate(self.step_slots.tolist()):
            for slot in range(first, last):
                pairs[step, int(self.slot_state[slot])] = slot
        return pairs

    def check_step(self, step: Any) -> None:
        """Raise unless `step` is a step of the episode."""
        if not isinstance(step, int | np.integer) or step < 0 or (self.steps is not None and step >= self.steps):
            last = "" if self.steps is None else self.steps - 1
            raise PolicyError(f"step {step!r} is outside 0..{last}, the steps of {self.name!r}")

    def slot_of(self, step: int, state: Hashable) -> int:
        """Return the slot of `state` at `step`, or raise."""
        self.check_step(step)
        try:
            index = self._state_index[state]
            slot = index if self.stationary else self._layer_slots[step, index]
        except (KeyError, TypeError):
            raise UnknownStateError(self._unknown(step, state)) from None
        if not self.rows_of_slot(slot):
            raise PolicyError(f"state {state!r} of {self.name!r} occurs only after the last step") from None
        return slot

    def state_number(self, state: Hashable) -> int:
        """Return the number of a state, that after the last one if it is not known."""
        return self._state_index.get(state, self.num_states)

    def _unknown(self, step: int, state: Hashable) -> str:
        return f"state {state!r} does not occur at step {step} of {self.name!r}"

    def row_of(self, step: int, state: Hashable, action: Hashable) -> int:
        """Return the row of (state, action) at `step`, or raise."""
        slot = self.slot_of(step, state)
        for row in self.rows_of_slot(slot):
            if self.action_of_row(row) == action:
                return row
        offered = [self.action_of_row(row) for row in self.rows_of_slot(slot)]
        shown = ", ".join(map(repr, offered[:12])) + (", ..." if len(offered) > 12 else "")
        raise PolicyError(f"action {action!r} is not available at step {step} in state {state!r} (there are: {shown})")

    # Identity ------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Digest of the states, the actions and their order."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.name, self.steps, self.stationary, self.constraint_names)).encode())
        digest.update(repr((self.reward_range, self.constraint_bounds)).encode())
        for labels in (self.state_labels, self.action_labels):
            digest.update(repr(list(labels)).encode())
        for array in (self.stage_start, self.row_start, self.slot_state, self.row_action):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._sizes()}>"

    def _sizes(self) -> str:
        constraints = f"{self.num_constraints} constraint{'' if self.num_constraints == 1 else 's'}"
        return f"{self.num_states:,} states, {self.num_pairs:,} pairs, {self.span}, {constraints}"


def frozen(array: NDArray[Any], dtype: Any, *, own: bool = False) -> NDArray[Any]:
    """Return a contiguous read-only array of the given type: a copy, unless the caller owns it (`own`) or it is one."""
    result = np.ascontiguousarray(array, dtype=dtype)
    if result is array and result.base is None and not result.flags.writeable:
        return result
    if not own and (result is array or result.base is not None):
        result = result.copy()
    result.flags.writeable = False
    return result


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: numba compiles separate kernels for writable and read-only arrays."""
    view = array.view()
    view.flags.writeable = False
    return view


def starts_of(sizes: NDArray[Any] | Sequence[int]) -> Longs:
    """[part + 1]: start of each of several parts of the given sizes, and the end of the last."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def expand(first: NDArray[Any], sizes: NDArray[Any]) -> Longs:
    """Return the concatenated ranges first[i] .. first[i] + sizes[i]."""
    starts = starts_of(sizes)
    members: Longs = np.repeat(first - starts[:-1], sizes) + np.arange(starts[-1])
    return members


def in_order_of_occurrence(codes: Longs) -> tuple[Longs, Longs]:
    """Return the distinct codes in the order of their first occurrence, and for each code the index among them."""
    unique, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return unique[order], rank[inverse]


def spans(steps: int, starts: Longs) -> Longs:
    """[step, 2]: start and end of what each step uses, given `starts` [stage + 1]; every step uses a single stage."""
    return frozen(np.resize(np.stack([starts[:-1], starts[1:]], axis=1), (steps, 2)), np.int64)


def check_sizes(name: str, **counts: int) -> None:
    """Raise if a count exceeds the 32-bit indices of a model."""
    for what, count in counts.items():
        if count > MOST_INDICES:
            raise ProblemError(
                f"{name!r} has {count:,} {what}; a model holds at most {MOST_INDICES:,}. Coarsen the states or actions"
            )
