"""A problem as frozen arrays: what planners, learners and evaluators work on.

Everything is validated here, once; kernels trust what they are given. See `types` for the index spaces
(slots, rows, nodes, entries) that let stationary and layered models share every kernel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakrl.safe_steps import SafeSteps
from peakrl.space import StateSpace, expand, frozen, starts_of
from peakrl.types import Floats, Ints, Layout, Longs, Payoffs, Sampler

if TYPE_CHECKING:
    from scipy.sparse import spmatrix


@dataclass(frozen=True, eq=False, repr=False)
class TabularModel(StateSpace):
    """A finite-horizon problem with peak constraints, compiled to flat read-only arrays.

    Built by `compile_model` or `TabularModel.from_arrays`, not by hand.
    """

    #: [step, 2]: first and one past the last distribution that a step's rows use.
    step_distributions: Longs
    #: [row]: which distribution over next slots.
    row_distribution: Ints
    #: [distribution + 1]: its outcomes.
    outcome_start: Longs
    #: [outcome]: next slot.
    outcome_next: Ints
    #: [outcome]: how likely.
    outcome_probability: Floats
    #: What outcomes earn and how constraints come out (`types`).
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
        constraint_tolerances: Sequence[float] | None = None,
        name: str = "arrays",
    ) -> TabularModel:
        """Return the model of arrays indexed [step, state, action, next_state]; no step where nothing depends on it.

        transitions (S, A, S) or (H, S, A, S); rewards (S, A) or (H, S, A); constraints (I, S, A) or (H, I, S, A);
        `initial` a state or a distribution over states; `available` a mask (S, A) or (H, S, A) of the actions on
        offer. Transitions may also be a scipy sparse matrix of shape (S*A, S), or one for each action of shape
        (S, S). Bounds that are not given are read off the data. A constraint that is below 0 by no more than its
        tolerance (by default 0) counts as met.
        """
        from peakrl.from_arrays import model_from_arrays

        return model_from_arrays(
            transitions, rewards, constraints, horizon,
            initial=initial, available=available, reward_range=reward_range,
            constraint_bounds=constraint_bounds, constraint_names=constraint_names,
            constraint_tolerances=constraint_tolerances, name=name,
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the model to one file for `peakrl.load_model`; its labels must be plain values and tuples of them."""
        from peakrl.model_file import save_model

        save_model(self, path)

    # Derived arrays ------------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """Who leads where, as kernels take it."""
        return Layout(
            self.horizon, self.node_stride, self.entry_stride, self.step_slots, self.step_distributions,
            self.row_start, self.row_distribution, self.outcome_start, self.outcome_next, self.outcome_probability,
        )  # fmt: skip

    @property
    def num_outcomes(self) -> int:
        """Outcomes of all steps: what a pass over the model goes through."""
        return len(self.outcome_next) * (self.horizon if self.stationary else 1)

    @cached_property
    def deterministic(self) -> bool:
        """True when nothing is random: one first state and one outcome for each action."""
        return len(self.first_slot) == 1 and bool((np.diff(self.outcome_start) == 1).all())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays (labels not counted)."""
        own = (*self.layout, *self.payoffs, self.slot_state, self.row_action, self.first_slot, self.first_probability)
        return sum(array.nbytes for array in own if isinstance(array, np.ndarray))

    @cached_property
    def sampler(self) -> Sampler:
        """Alias tables for drawing first states and outcomes."""
        from peakrl.sampling import alias_tables

        accept, alias = alias_tables(self.outcome_start, self.outcome_probability)
        whole = frozen(np.array([0, len(self.first_slot)]), np.int64)
        first_accept, first_alias = alias_tables(whole, self.first_probability)
        sizes, of_row = np.diff(self.outcome_start), self.row_distribution
        only = self.outcome_next[self.outcome_start[of_row]]
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
        sizes = np.diff(self.outcome_start)[self.row_distribution]
        outcomes = expand(self.outcome_start[self.row_distribution], sizes)
        return expand(self.payoffs.row_payoff, sizes), self.outcome_probability[outcomes], starts_of(sizes)[:-1]

    def next_slots(self, row: int) -> list[int]:
        """Return the slots that a row may lead to."""
        d = self.row_distribution[row]
        slots: list[int] = self.outcome_next[self.outcome_start[d] : self.outcome_start[d + 1]].tolist()
        return slots

    @property
    def record_violation(self) -> Floats:
        """[payoff record]: by how much all constraints together are violated, sum_i max(-f_i, 0)."""
        violation: Floats = np.maximum(-self.payoffs.constraints, 0.0).sum(axis=1)
        return violation

    @cached_property
    def row_reward(self) -> Floats:
        """[row]: expected reward."""
        return self.row_means(self.payoffs.reward)

    @cached_property
    def row_violation(self) -> Floats:
        """[row, constraint]: expected |min(f_i, 0)|; 0 only where the row cannot violate (`numerics`)."""
        from peakrl.numerics import LEAST

        mean = self.row_means(np.maximum(-self.payoffs.constraints, 0.0))
        return np.where(self.row_margin < 0.0, np.maximum(mean, LEAST), mean)

    @cached_property
    def row_margin(self) -> Floats:
        """[row, constraint]: the least f_i that may come out."""
        if self.payoffs.stride == 0:
            return np.ascontiguousarray(self.payoffs.constraints[self.payoffs.row_payoff])
        records, _, starts = self._row_outcomes
        return np.ascontiguousarray(np.minimum.reduceat(self.payoffs.constraints[records], starts, axis=0))

    @property
    def row_most_reward(self) -> Floats:
        """[row]: the most that may be earned."""
        if self.payoffs.stride == 0:
            return np.ascontiguousarray(self.payoffs.reward[self.payoffs.row_payoff])
        records, _, starts = self._row_outcomes
        return np.ascontiguousarray(np.maximum.reduceat(self.payoffs.reward[records], starts))

    def modified_rewards(self, slack: float, penalty: float) -> Floats:
        """[payoff record]: `modified_reward` of each."""
        return modified_reward(self.payoffs.reward, self.payoffs.constraints, slack, penalty)

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """[node]: can some policy be in this state at this step?"""
        from peakrl.reachability import reachable_nodes

        return reachable_nodes(self.layout, self.num_nodes, self.first_slot)

    @cached_property
    def keeps(self) -> NDArray[np.bool_]:
        """[row]: True where nothing that may come of it violates a constraint."""
        from peakrl.viability import keeping_rows

        return frozen(keeping_rows(self.layout, self.payoffs), np.bool_, own=True)

    @cached_property
    def safe(self) -> SafeSteps:
        """Which actions and states are safe at which step (`viability`); `safe_set` is made of it."""
        from peakrl.viability import safe_steps

        return SafeSteps.by_first_step(self.horizon, self.stationary, *safe_steps(self.layout, self.keeps))

    # Identity ------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Fingerprint of all numbers: equal digests mean the same problem with the same numbering.

        Names, dtypes and shapes of the arrays are hashed with their contents, so that no two models share a digest by
        moving numbers from one array to the next. Labels of states and actions are left out: the same policy is
        optimal under other labels, and a label may be any object, which need not print alike in another process.
        """
        head = {
            "horizon": self.horizon, "stationary": self.stationary, "constraint_names": self.constraint_names,
            "reward_range": self.reward_range, "constraint_bounds": self.constraint_bounds,
            "payoffs_by_outcome": self.payoffs.stride > 0,
        }  # fmt: skip
        digest = hashlib.blake2b(json.dumps(head, default=float).encode(), digest_size=16)
        for name, array in self.meaning().items():
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def meaning(self) -> dict[str, NDArray[Any]]:
        """Arrays that define the problem, by name; everything else follows from them."""
        payoffs = self.payoffs
        return {
            # [stage + 1]: slots of a stage; a stationary model has one, otherwise every step is one.
            "stage_start": np.append(self.step_slots[: 1 if self.stationary else None, 0], self.step_slots[-1, 1]),
            "slot_state": self.slot_state, "row_start": self.row_start, "row_action": self.row_action,
            "row_distribution": self.row_distribution, "outcome_start": self.outcome_start,
            "outcome_next": self.outcome_next, "outcome_probability": self.outcome_probability,
            "row_payoff": payoffs.row_payoff, "reward": payoffs.reward, "constraints": payoffs.constraints,
            "first_slot": self.first_slot, "first_probability": self.first_probability,
        }  # fmt: skip

    def _sizes(self) -> str:
        kind = "stationary" if self.stationary else "layered"
        return f"{super()._sizes()}, {len(self.outcome_next):,} stored outcomes, {kind}"


def modified_reward(reward: Floats, constraints: Floats, slack: float, penalty: float) -> Floats:
    """[..], [.., constraint] -> [..]: r + (penalty / I) * sum_i min(0, f_i^- + slack), I = 1 if there is none."""
    beyond = np.minimum(np.minimum(constraints, 0.0) + slack, 0.0).sum(axis=-1)
    modified: Floats = reward + penalty / max(constraints.shape[-1], 1) * beyond
    return modified
