"""A problem as frozen arrays: what planners, learners and evaluators work on.

Everything is validated here, once; kernels trust what they are given. See `kernels.arrays` for the index spaces
(slots, rows, nodes, entries) that let stationary and layered models share every kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakrl.errors import PolicyError, ProblemError
from peakrl.kernels.arrays import Floats, Ints, Layout, Payoffs, Sampler

if TYPE_CHECKING:
    from scipy.sparse import spmatrix

#: Slots, rows and outcomes are numbered with 32 bits.
MOST_INDICES = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class TabularModel:
    """A finite-horizon problem with peak constraints, compiled to flat read-only arrays.

    Built by `compile_model` or `TabularModel.from_arrays`, not by hand.
    """

    #: What messages and reports call it.
    name: str
    #: One for each constraint.
    constraint_names: tuple[str, ...]
    #: The least and the largest reward of a step, declared or read off.
    reward_range: tuple[float, float]
    #: For each constraint a bound on its absolute value, declared or read off.
    constraint_bounds: tuple[float, ...]
    #: True when one set of slots serves every step: dynamics do not depend on the step.
    stationary: bool
    #: Distinct states.
    state_labels: Sequence[Hashable]
    #: [slot]: which of the states it is.
    slot_state: Ints
    #: Distinct actions.
    action_labels: Sequence[Hashable]
    #: [row]: which of the actions it is.
    row_action: Ints
    #: Where rows and outcomes of slots stand (`kernels.arrays`).
    layout: Layout
    #: What outcomes earn and how constraints come out (`kernels.arrays`).
    payoffs: Payoffs
    #: [first slot]: where an episode may start.
    first_slot: Ints
    #: [first slot]: how likely.
    first_probability: Floats
    #: Why no policy keeps every constraint, where the problem itself can tell in its own terms.
    infeasible_reason: str | None = None
    #: The problem as data, {"kind": ..., parameters} in plain JSON, where it is known; no part of the digest.
    spec: Mapping[str, Any] | None = None

    @classmethod
    def from_arrays(
        cls,
        transitions: ArrayLike | spmatrix | Sequence[spmatrix],
        rewards: ArrayLike,
        constraints: ArrayLike,
        horizon: int,
        *,
        initial: int | ArrayLike = 0,
        available: ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
        constraint_bounds: Sequence[float] | None = None,
        constraint_names: Sequence[str] | None = None,
        name: str = "arrays",
    ) -> TabularModel:
        """Return the model of arrays indexed [step, state, action, next_state]; no step where nothing depends on it.

        transitions (S, A, S) or (H, S, A, S); rewards (S, A) or (H, S, A); constraints (I, S, A) or (H, I, S, A);
        `initial` a state or a distribution over states; `available` a mask (S, A) or (H, S, A) of the actions on
        offer. Transitions may also be a scipy sparse matrix of shape (S*A, S), or one for each action of shape
        (S, S). Bounds that are not given are read off the data.
        """
        from peakrl.model.from_arrays import model_from_arrays

        return model_from_arrays(
            transitions, rewards, constraints, horizon,
            initial=initial, available=available, reward_range=reward_range,
            constraint_bounds=constraint_bounds, constraint_names=constraint_names, name=name,
        )  # fmt: skip

    # Sizes ---------------------------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return self.layout.horizon

    @property
    def num_constraints(self) -> int:
        """How many constraint functions there are."""
        return len(self.constraint_names)

    @property
    def num_states(self) -> int:
        """Distinct states, those met only after the last step included."""
        return len(self.state_labels)

    @cached_property
    def num_pairs(self) -> int:
        """Distinct (state, action) pairs."""
        if self.num_states == self.num_slots:
            return self.num_rows
        rows_state = np.repeat(self.slot_state, np.diff(self.layout.row_start))
        return len(np.unique(rows_state.astype(np.int64) * len(self.action_labels) + self.row_action))

    @property
    def num_slots(self) -> int:
        """Stored states: in a layered model a state that is met at two steps counts twice."""
        return len(self.slot_state)

    @property
    def num_rows(self) -> int:
        """Stored (slot, action) pairs."""
        return len(self.row_action)

    @property
    def num_nodes(self) -> int:
        """Length of a table by (step, state), with the zeros that stand after the last step."""
        return self.horizon * self.layout.node_stride + self.num_slots

    @property
    def num_entries(self) -> int:
        """Length of a table by (step, state, action)."""
        return self.num_rows * (self.horizon if self.stationary else 1)

    @cached_property
    def max_states(self) -> int:
        """The most states that any step has: S in the bonus formulas."""
        return int(np.diff(self.layout.step_slots, axis=1).max())

    @cached_property
    def max_actions(self) -> int:
        """The most actions that any state offers: A in the bonus formulas."""
        return int(np.diff(self.layout.row_start).max())

    @cached_property
    def deterministic(self) -> bool:
        """True when nothing is random: one first state and one outcome for each action."""
        return len(self.first_slot) == 1 and bool((np.diff(self.layout.outcome_start) == 1).all())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays (labels not counted)."""
        arrays = [a for a in (*self.layout, *self.payoffs) if isinstance(a, np.ndarray)]
        own = (self.slot_state, self.row_action, self.first_slot, self.first_probability)
        return sum(a.nbytes for a in (*arrays, *own))

    # Derived arrays ------------------------------------------------------------------------------------------

    @cached_property
    def sampler(self) -> Sampler:
        """Alias tables for drawing first states and outcomes."""
        from peakrl.kernels.sampling import alias_tables

        accept, alias = alias_tables(self.layout.outcome_start, self.layout.outcome_probability)
        whole = frozen(np.array([0, len(self.first_slot)]), np.int64)
        first_accept, first_alias = alias_tables(whole, self.first_probability)
        sizes, of_row = np.diff(self.layout.outcome_start), self.layout.row_distribution
        only = self.layout.outcome_next[self.layout.outcome_start[of_row]]
        link = np.where(sizes[of_row] == 1, only, ~of_row).astype(np.int32)
        return Sampler(link, accept, alias, self.first_slot, first_accept, first_alias)

    def row_means(self, records: Floats) -> Floats:
        """Return each row's expectation over its outcomes of an array by payoff record, [row, ...]."""
        if self.payoffs.stride == 0:
            return np.ascontiguousarray(records[self.payoffs.row_payoff])
        flat, weights, starts = self._row_outcomes
        weighted = records[flat] * weights.reshape((-1,) + (1,) * (records.ndim - 1))
        return np.ascontiguousarray(np.add.reduceat(weighted, starts, axis=0))

    @cached_property
    def _row_outcomes(self) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
        """Every (row, outcome): its payoff record, its probability; and where each row's begin."""
        first = self.layout.outcome_start[self.layout.row_distribution]
        counts = self.layout.outcome_start[self.layout.row_distribution + 1] - first
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        within = np.arange(counts.sum()) - np.repeat(starts, counts)
        records = np.repeat(self.payoffs.row_payoff.astype(np.int64), counts) + within
        return records, self.layout.outcome_probability[np.repeat(first, counts) + within], starts

    @cached_property
    def row_reward(self) -> Floats:
        """[row]: expected reward."""
        return self.row_means(self.payoffs.reward)

    @cached_property
    def row_violation(self) -> Floats:
        """[row, constraint]: expected |min(f_i, 0)|."""
        return self.row_means(np.maximum(-self.payoffs.constraints, 0.0))

    @cached_property
    def row_margin(self) -> Floats:
        """[row, constraint]: the least f_i that may come out."""
        if self.payoffs.stride == 0:
            return np.ascontiguousarray(self.payoffs.constraints[self.payoffs.row_payoff])
        records, _, starts = self._row_outcomes
        return np.ascontiguousarray(np.minimum.reduceat(self.payoffs.constraints[records], starts, axis=0))

    def modified_rewards(self, slack: float, penalty: float) -> Floats:
        """Return r + (penalty / I) * sum_i min(0, f_i^- + slack) for each payoff record (I = 1 if none)."""
        beyond = np.minimum(np.minimum(self.payoffs.constraints, 0.0) + slack, 0.0).sum(axis=1)
        modified: Floats = self.payoffs.reward + penalty / max(self.num_constraints, 1) * beyond
        return modified

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """[node]: can some policy be in this state at this step?"""
        from peakrl.kernels.reachability import reachable_nodes

        return reachable_nodes(self.layout, self.num_nodes, self.first_slot)

    @cached_property
    def keeps(self) -> NDArray[np.bool_]:
        """[row]: True where nothing that may come of it violates a constraint."""
        from peakrl.kernels.safety import keeping_rows

        return frozen(keeping_rows(self.layout, self.payoffs), np.bool_, own=True)

    @cached_property
    def safe(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[entry] and [node]: which actions and states are safe (`kernels.safety`); `safe_set` is made of it."""
        from peakrl.kernels.safety import safe_tables

        entries, nodes = safe_tables(self.layout, self.num_nodes, self.keeps)
        return frozen(entries, np.bool_, own=True), frozen(nodes, np.bool_, own=True)

    # Labels --------------------------------------------------------------------------------------------------

    def state_of_slot(self, slot: int) -> Hashable:
        """Return the label of a stored state."""
        return self.state_labels[int(self.slot_state[slot])]

    def action_of_row(self, row: int) -> Hashable:
        """Return the label of a stored pair's action."""
        return self.action_labels[int(self.row_action[row])]

    def rows_of_slot(self, slot: int) -> range:
        """Return the rows of a stored state."""
        return range(int(self.layout.row_start[slot]), int(self.layout.row_start[slot + 1]))

    @cached_property
    def _state_index(self) -> dict[Hashable, int]:
        return {label: index for index, label in enumerate(self.state_labels)}

    @cached_property
    def _layer_slots(self) -> dict[tuple[int, int], int]:
        """For layered models: (step, state) -> slot."""
        pairs: dict[tuple[int, int], int] = {}
        for step, (first, last) in enumerate(self.layout.step_slots.tolist()):
            for slot in range(first, last):
                pairs[step, int(self.slot_state[slot])] = slot
        return pairs

    def slot_of(self, step: int, state: Hashable) -> int:
        """Return where `state` is stored for `step`; an unknown one is an error."""
        number: Any = step
        if not isinstance(number, int | np.integer) or not 0 <= number < self.horizon:
            raise PolicyError(f"step {step!r} is outside 0..{self.horizon - 1}, the steps of {self.name!r}")
        try:
            index = self._state_index[state]
            slot = index if self.stationary else self._layer_slots[step, index]
        except (KeyError, TypeError):
            raise PolicyError(f"state {state!r} does not occur at step {step} of {self.name!r}") from None
        if not self.rows_of_slot(slot):
            raise PolicyError(f"state {state!r} of {self.name!r} occurs only after the last step") from None
        return slot

    def row_of(self, step: int, state: Hashable, action: Hashable) -> int:
        """Return where the pair (state, action) is stored for `step`; one not on offer is an error."""
        slot = self.slot_of(step, state)
        for row in self.rows_of_slot(slot):
            if self.action_of_row(row) == action:
                return row
        offered = [self.action_of_row(row) for row in self.rows_of_slot(slot)]
        shown = ", ".join(map(repr, offered[:12])) + (", ..." if len(offered) > 12 else "")
        raise PolicyError(f"action {action!r} is not on offer at step {step} in state {state!r} (there are: {shown})")

    # Identity ------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """A fingerprint of all numbers: equal digests mean the same problem in the same order.

        What states and actions are called is no part of it: under other names the same policy is as good, and a label
        may be any object, which need not look the same in another process.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.horizon, self.stationary, self.constraint_names)).encode())
        digest.update(repr((self.reward_range, self.constraint_bounds)).encode())
        for array in (*self.layout, *self.payoffs, self.slot_state, self.row_action, self.first_slot):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(self.first_probability.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        kind = "stationary" if self.stationary else "layered"
        constraints = f"{self.num_constraints} constraint{'' if self.num_constraints == 1 else 's'}"
        return (
            f"<TabularModel {self.name!r}: {self.num_states:,} states, {self.num_pairs:,} pairs, "
            f"horizon {self.horizon}, {constraints}, {len(self.layout.outcome_next):,} stored outcomes, {kind}>"
        )


def frozen(array: NDArray[Any], dtype: Any, *, own: bool = False) -> NDArray[Any]:
    """Return a contiguous read-only array of the given type: a copy, unless nobody else holds it (`own`).

    One that is all that already counts as such.
    """
    result = np.ascontiguousarray(array, dtype=dtype)
    if result is array and result.base is None and not result.flags.writeable:
        return result
    if not own and (result is array or result.base is not None):
        result = result.copy()
    result.flags.writeable = False
    return result


def check_sizes(name: str, **counts: int) -> None:
    """Raise where something is too numerous for the 32-bit indices that models are stored with."""
    for what, count in counts.items():
        if count > MOST_INDICES:
            raise ProblemError(
                f"{name!r} has {count:,} {what}; a model holds at most {MOST_INDICES:,}. Coarsen the states or actions"
            )


def check_distribution(probability: Floats, where: str) -> None:
    """Raise unless the numbers are probabilities that sum to 1."""
    if not np.isfinite(probability).all() or (probability < 0).any():
        bad = probability[~np.isfinite(probability) | (probability < 0)][0]
        raise ProblemError(f"probability {bad} {where} is not a number from 0 to 1")
    total = float(probability.sum())
    if abs(total - 1.0) > 1e-9:
        raise ProblemError(f"probabilities {where} sum to {total:.12g}, not to 1")
