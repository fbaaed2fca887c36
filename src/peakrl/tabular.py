"""`TabularModel`: a problem as frozen arrays, on which planners, learners and evaluators work.

Arrays are validated when a model is built; kernels rely on it. `types` defines slots, rows, nodes and entries.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakrl.checks import ROUNDING, bound_above, check_horizon
from peakrl.errors import ProblemError, StorageError
from peakrl.labels import SPACE_FIELDS, UnstorableLabel, store_space
from peakrl.memory import MOST_STEPS
from peakrl.problem import NO_RANGE, Header
from peakrl.records import Field, FileKind, Record
from peakrl.space import StateSpace, check_sizes, expand, frozen, spans, starts_of
from peakrl.types import Distributions, Floats, Ints, Layout, Longs, MemoryAxis, Payoffs, Sampler

if TYPE_CHECKING:
    from scipy.sparse import spmatrix

    from peakrl.viability import SafeSteps


#: The file of a model.
MODEL = FileKind("model")
#: Larger models are not copied into every file of a run; bytes.
LARGEST_STORED = 1 << 30
#: The arrays of `payoffs`.
PAYOFF_FIELDS = {
    "row_payoff": Field(np.int32, "row", below="payoff"),
    "reward": Field(np.float64, "payoff"),
    "constraints": Field(np.float64, ("payoff", "constraint")),
}
#: The arrays of a model that are not those of a state space.
DYNAMICS_FIELDS = {
    "distribution_start": Field(np.int64, "stage", splits="distribution"),
    "row_distribution": Field(np.int32, "row", below="distribution"),
    "outcome_start": Field(np.int64, "distribution", splits="outcome"),
    "outcome_next": Field(np.int32, "outcome", below="slot"),
    "outcome_probability": Field(np.float64, "outcome"),
    "first_slot": Field(np.int32, "first state", below="slot"),
    "first_probability": Field(np.float64, "first state"),
}


@dataclass(frozen=True, eq=False, repr=False)
class TabularModel(StateSpace):
    """A problem with peak constraints, compiled to flat read-only arrays.

    Created by `compile_model` or `TabularModel.from_arrays`.

    Examples
    --------
    >>> import peakrl
    >>> model = peakrl.compile_model(peakrl.problems.energy_harvesting(peak_power=8))
    >>> model.num_states, model.horizon, model.stationary
    (441, 20, True)
    """

    #: [stage + 1]: first distribution used by the rows of each stage, and one past the last of all.
    distribution_start: Longs
    #: [row]: its distribution over next slots.
    row_distribution: Ints
    #: [distribution + 1]: where its outcomes start.
    outcome_start: Longs
    #: [outcome]: next slot.
    outcome_next: Ints
    #: [outcome]: probability.
    outcome_probability: Floats
    #: Rewards and constraint values (`types.Payoffs`).
    payoffs: Payoffs
    #: [first slot]: possible first states.
    first_slot: Ints
    #: [first slot]: probability.
    first_probability: Floats
    #: How far below 0 each constraint counted as satisfied, as declared (empty: 0 for all): such values are 0 here.
    constraint_tolerances: tuple[float, ...] = ()
    #: Why no policy satisfies every constraint, if the problem knows the reason.
    infeasible_reason: str | None = None
    #: The problem as data, {"kind": ..., parameters} in plain JSON, if known; not part of the digest.
    spec: Mapping[str, Any] | None = None
    #: What `with_budget` and `with_monitor` added to the states (state, memory, ...); not part of the digest.
    memory: tuple[MemoryAxis, ...] = ()

    @classmethod
    def from_arrays(
        cls,
        transitions: ArrayLike | spmatrix | Sequence[spmatrix],
        rewards: ArrayLike,
        constraints: ArrayLike,
        horizon: int | None,
        *,
        initial: int | ArrayLike = 0,
        available: ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
        constraint_bounds: Sequence[float] | None = None,
        constraint_names: Sequence[str] | None = None,
        constraint_tolerances: Sequence[float] | None = None,
        name: str = "arrays",
    ) -> TabularModel:
        """Return the model of arrays indexed [step, state, action, next_state].

        The step is left out of an array that does not depend on it.

        Parameters
        ----------
        transitions
            (S, A, S) or (H, S, A, S) probabilities; or a scipy sparse matrix of shape (S*A, S), row s*A + a; or one
            sparse matrix of shape (S, S) for each action.
        rewards
            (S, A) or (H, S, A).
        constraints
            (I, S, A) or (H, I, S, A); a constraint is satisfied if its value is >= 0.
        horizon
            Steps of an episode; None: it does not end, and nothing may depend on the step.
        initial
            First state, or a distribution over states.
        available
            Mask (S, A) or (H, S, A) of the available actions; all by default.
        reward_range, constraint_bounds
            Bounds on rewards and on |f_i|; by default those of the data.
        constraint_names, name
            Names for messages and reports.
        constraint_tolerances
            How far below 0 the value of each constraint still counts as satisfied; 0 by default.

        Examples
        --------
        >>> model = TabularModel.from_arrays([[[0, 1], [1, 0]], [[0, 1], [1, 0]]], [[1, 0], [2, 0]], [], horizon=3)
        >>> model.num_states, model.horizon
        (2, 3)
        """
        from peakrl.from_arrays import arrays_of_model

        declared = name, horizon, constraint_names, reward_range, constraint_bounds, constraint_tolerances
        header, lists, payoffs, arrays = arrays_of_model(
            transitions, rewards, constraints, initial, available, declared
        )
        model = assemble(header, lists, payoffs, **arrays)
        refuse_stuck_states(model)
        warn_of_signs(model)
        return model

    def save(self, path: str | Path) -> None:
        """Write the model to a file for `peakrl.load`; labels must be plain values and tuples of them."""
        MODEL.write(path, whole_record(self, path))

    # Derived arrays ------------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """Transition structure, as kernels that go from step to step take it; an error without an end."""
        return self._layout(self.horizon)

    @cached_property
    def one_step(self) -> Layout:
        """Transition structure of a stationary model as that of a single step, whatever its horizon."""
        return self._layout(1)._replace(node_stride=0, entry_stride=0)

    def same_dynamics(self, other: TabularModel) -> bool:
        """Return whether two models have the same numbers; stationary ones may differ in the horizon."""
        if self.stationary and other.stationary:
            other = replace(other, steps=self.steps)
        return self.digest == other.digest

    def _layout(self, steps: int) -> Layout:
        return Layout(
            steps, self.node_stride, self.entry_stride, spans(steps, self.stage_start),
            spans(steps, self.distribution_start), self.row_start, self.row_distribution, self.outcome_start,
            self.outcome_next, self.outcome_probability,
        )  # fmt: skip

    def with_horizon(self, horizon: float | None) -> TabularModel:
        """Return the same stationary model with another number of steps; None: without an end.

        Examples
        --------
        >>> import peakrl
        >>> model = peakrl.TabularModel.from_arrays([[[1.0]]], [[2.0]], [], horizon=None)
        >>> peakrl.solve(model.with_horizon(5)).value
        10.0
        """
        horizon = check_horizon(horizon, "horizon", MOST_STEPS)
        if horizon == self.steps:
            return self
        if not self.stationary:
            raise ProblemError(
                f"{self.name!r} is stored step by step, since it depends on the step or its states do: its horizon of "
                f"{self.steps} cannot change. Declare stationary = True and compile it with the other horizon"
            )
        changed = replace(self, steps=horizon, spec=None)
        refuse_stuck_states(changed)
        return changed

    @property
    def num_outcomes(self) -> int:
        """Number of outcomes of all steps."""
        return len(self.outcome_next) * (self.lines if self.stationary else 1)

    @cached_property
    def deterministic(self) -> bool:
        """Is nothing random: one first state, and one outcome for each action?"""
        return len(self.first_slot) == 1 and bool((np.diff(self.outcome_start) == 1).all())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays (labels not counted)."""
        return sum(array.nbytes for array in self.meaning().values())

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
        """Return [row, ...]: the expectation of an array [payoff record, ...] over the outcomes of each row."""
        if self.payoffs.stride == 0:
            return np.ascontiguousarray(records[self.payoffs.row_payoff])
        flat, weights, starts = self._row_outcomes
        weighted = records[flat] * weights.reshape((-1,) + (1,) * (records.ndim - 1))
        return np.ascontiguousarray(np.add.reduceat(weighted, starts, axis=0))

    @cached_property
    def _row_outcomes(self) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
        """For every (row, outcome) its payoff record and probability; and where the outcomes of each row start."""
        sizes = np.diff(self.outcome_start)[self.row_distribution]
        outcomes = expand(self.outcome_start[self.row_distribution], sizes)
        return expand(self.payoffs.row_payoff, sizes), self.outcome_probability[outcomes], starts_of(sizes)[:-1]

    def outcomes_of_row(self, row: int) -> slice:
        """Return the range of a row's outcomes."""
        d = self.row_distribution[row]
        return slice(int(self.outcome_start[d]), int(self.outcome_start[d + 1]))

    def next_slots(self, row: int) -> list[int]:
        """Return the slots that a row may lead to."""
        slots: list[int] = self.outcome_next[self.outcomes_of_row(row)].tolist()
        return slots

    @property
    def record_violation(self) -> Floats:
        """[payoff record]: total violation sum_i max(-f_i, 0)."""
        violation: Floats = np.maximum(-self.payoffs.constraints, 0.0).sum(axis=1)
        return violation

    @cached_property
    def row_reward(self) -> Floats:
        """[row]: expected reward."""
        return self.row_means(self.payoffs.reward)

    @cached_property
    def row_violation(self) -> Floats:
        """[row, constraint]: expected |min(f_i, 0)|; 0 only if the row cannot violate (`numerics`)."""
        from peakrl.numerics import LEAST

        mean = self.row_means(np.maximum(-self.payoffs.constraints, 0.0))
        return np.where(self.row_margin < 0.0, np.maximum(mean, LEAST), mean)

    @cached_property
    def row_margin(self) -> Floats:
        """[row, constraint]: least possible f_i."""
        return self._over_outcomes(np.minimum, self.payoffs.constraints)

    @property
    def row_most_reward(self) -> Floats:
        """[row]: largest possible reward."""
        return self._over_outcomes(np.maximum, self.payoffs.reward)

    @cached_property
    def keeps(self) -> NDArray[np.bool_]:
        """[row]: does no possible outcome violate a constraint?"""
        met: NDArray[np.bool_] = np.all(self.payoffs.constraints >= 0.0, axis=1)
        return frozen(self._over_outcomes(np.logical_and, met), np.bool_, own=True)

    def _over_outcomes(self, function: np.ufunc, records: NDArray[Any]) -> NDArray[Any]:
        """Return [row, ...]: a function, such as np.minimum, of an array [payoff record, ...] over a row's outcomes."""
        if self.payoffs.stride == 0:
            return np.ascontiguousarray(records[self.payoffs.row_payoff])
        flat, _, starts = self._row_outcomes
        return np.ascontiguousarray(function.reduceat(records[flat], starts, axis=0))

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """[node]: can some policy reach this state at this step?"""
        from peakrl.reachability import reachable_nodes, reachable_slots

        if self.steps is None:
            return reachable_slots(self.one_step, self.first_slot)
        return reachable_nodes(self.layout, self.num_nodes, self.first_slot)

    @cached_property
    def safe(self) -> SafeSteps:
        """Which actions and states are safe at which step (`viability`)."""
        from peakrl.viability import SafeSteps, first_safe_steps

        ends = self.num_slots if self.stationary else int(self.stage_start[-1])
        found = first_safe_steps(self._layout(self.lines), self.keeps, self.steps, ends)
        lines = (frozen(first[None], np.int32, own=True) for first in found)
        return SafeSteps(self.lines, self.stationary and self.steps is not None, *lines)

    # Identity ------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Digest of all numbers: equal digests mean the same problem with the same numbering.

        Names, dtypes and shapes of the arrays are hashed with their contents. Labels of states and actions are not: the
        same policy is optimal under other labels, and the repr of a label may differ between processes.
        """
        head = {
            "horizon": self.steps, "stationary": self.stationary, "constraint_names": self.constraint_names,
            "reward_range": self.reward_range, "constraint_bounds": self.constraint_bounds,
            "payoffs_by_outcome": self.payoffs.stride > 0,
        }  # fmt: skip
        digest = hashlib.blake2b(json.dumps(head, default=float).encode(), digest_size=16)
        for name, array in self.meaning().items():
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def meaning(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the problem, by name; all others follow from them."""
        payoffs = self.payoffs
        return {
            "stage_start": self.stage_start, "slot_state": self.slot_state, "row_start": self.row_start,
            "row_action": self.row_action,
            "row_distribution": self.row_distribution, "outcome_start": self.outcome_start,
            "outcome_next": self.outcome_next, "outcome_probability": self.outcome_probability,
            "row_payoff": payoffs.row_payoff, "reward": payoffs.reward, "constraints": payoffs.constraints,
            "first_slot": self.first_slot, "first_probability": self.first_probability,
        }  # fmt: skip

    def _sizes(self) -> str:
        kind = "stationary" if self.stationary else "layered"
        return f"{super()._sizes()}, {len(self.outcome_next):,} stored outcomes, {kind}"


def modified_reward(reward: Floats, constraints: Floats, slack: float, penalty: float) -> Floats:
    """[..], [.., constraint] -> [..]: r + (penalty / I) * sum_i min(0, f_i^- + slack), I = 1 without constraints."""
    beyond = np.minimum(np.minimum(constraints, 0.0) + slack, 0.0).sum(axis=-1)
    modified: Floats = reward + penalty / max(constraints.shape[-1], 1) * beyond
    return modified


Array = NDArray[Any] | Sequence[Any]


def assemble(
    header: Header,
    distributions: Distributions,
    payoffs: Payoffs,
    *,
    state_labels: Sequence[Hashable],
    action_labels: Sequence[Hashable],
    layer_start: Array | None = None,
    **arrays: Array,
) -> TabularModel:
    """Return the model of these arrays, each as documented at the field of its name in `TabularModel`.

    The arrays (slot_state, row_action, row_start, first_slot, first_probability) become read-only and must not be used
    by the caller any more. `layer_start` is [step + 1] or longer for a layered model and None for a stationary one.
    Bounds that the header does not declare are those of the payoffs.
    """
    header = with_bounds(header, payoffs)
    slots, outcomes = len(arrays["slot_state"]), len(distributions.outcome_next)
    check_sizes(header.name, states=slots, pairs=len(arrays["row_action"]), outcomes=outcomes)
    arrays |= distributions._asdict() | {"stage_start": [0, slots]}
    if layer_start is None:
        arrays["distribution_start"] = [0, len(distributions.outcome_start) - 1]
    else:
        arrays["stage_start"] = layer_start[: (header.horizon or 1) + 1]
    constraints = within_tolerance(payoffs.constraints, header.tolerances)
    paid: dict[str, Any] = payoffs._replace(constraints=constraints)._asdict()
    fields = SPACE_FIELDS | DYNAMICS_FIELDS
    owned: dict[str, Any] = {name: own(array, fields[name].dtype) for name, array in arrays.items()}
    model = TabularModel(
        *header[:5],
        stationary=layer_start is None,
        state_labels=state_labels,
        action_labels=action_labels,
        payoffs=Payoffs(payoffs.stride, *(own(paid[name], field.dtype) for name, field in PAYOFF_FIELDS.items())),
        constraint_tolerances=header.tolerances,
        **owned,
    )
    warn_of_rounding(model)
    return model


def with_bounds(header: Header, payoffs: Payoffs) -> Header:
    """Return a header with declared bounds, or else those of the payoffs (1 for a constraint that is always 0)."""
    rewards, largest = header.reward_range, np.abs(payoffs.constraints).max(axis=0, initial=0.0).tolist()
    if rewards == NO_RANGE:
        rewards = float(payoffs.reward.min()), float(payoffs.reward.max())
    declared = zip(header.constraint_bounds, largest, strict=True)
    bounds = tuple(bound if math.isfinite(bound) else bound_above(seen) for bound, seen in declared)
    return header._replace(reward_range=rewards, constraint_bounds=bounds)


def within_tolerance(constraints: NDArray[Any], tolerances: tuple[float, ...]) -> NDArray[Any]:
    """Return constraint values in which a violation of at most the tolerance is 0."""
    if not any(tolerances):
        return constraints
    return np.where((constraints < 0.0) & (constraints >= -np.array(tolerances)), 0.0, constraints)


def own(array: Array, dtype: Any) -> NDArray[Any]:
    """Return an array as contiguous, of the given type and read-only."""
    return frozen(np.asarray(array), dtype, own=True)


def warn_of_rounding(model: TabularModel) -> None:
    """Warn if pairs violate a constraint by so little that it may be rounding.

    Constraints are exact unless the problem declares a tolerance: 0.3 - (0.1 + 0.2) = -5.6e-17 forbids an action.
    """
    lows, bounds = model.payoffs.constraints, np.array(model.constraint_bounds)
    if not ((lows < 0.0) & (lows >= -ROUNDING * bounds)).any():
        return
    margin = model.row_margin
    small = (margin < 0.0).any(axis=1) & (margin >= -ROUNDING * bounds).all(axis=1)
    count = int(small.sum())
    if count:
        row = int(np.argmax(small))
        slot = int(np.searchsorted(model.row_start, row, side="right")) - 1
        index = int(np.argmin(margin[row]))
        pairs = f"{count:,} pair{'' if count == 1 else 's'} of {model.name!r}, such as state "
        pairs += f"{model.state_of_slot(slot)!r} with action {model.action_of_row(row)!r},"
        found = float(margin[row, index]), float(bounds[index])
        warnings.warn(rounding_message(pairs, model.constraint_names[index], *found), RuntimeWarning, stacklevel=2)


def warn_of_signs(model: TabularModel) -> None:
    """Warn of a constraint that nothing violates, or everything: its sign may be wrong."""
    for name, values in zip(model.constraint_names, model.payoffs.constraints.T, strict=True):
        if values.min(initial=0.0) >= 0.0 < values.max(initial=0.0):
            how = "never negative, so that nothing violates it"
        elif values.size and values.max() < 0.0:
            how = "always negative, so that everything violates it"
        else:
            continue
        warnings.warn(
            f"constraint {name!r} of {model.name!r} is {how}. Is its sign right? A constraint is satisfied if it is >= "
            "0; a cost, which must not be positive, has the opposite sign",
            RuntimeWarning,
            stacklevel=3,
        )


def rounding_message(pairs: str, name: str, value: float, bound: float) -> str:
    """Return the warning about violations that may be rounding."""
    return (
        f"{pairs} violate by what may be rounding: constraint {name!r} is {value:.3g}, its bound is {bound:g}. This "
        f"counts as a violation. If it is not one, declare constraint_tolerances, here {ROUNDING * bound:.3g}"
    )


def refuse_stuck_states(model: TabularModel) -> None:
    """Raise if a state that can be reached before the horizon has no action."""
    without = np.diff(model.row_start) == 0
    if not without[: int(model.stage_start[-1])].any():
        return  # reachability need not be computed
    for step, (first, last) in enumerate(model.step_slots.tolist()):
        base = step * model.node_stride
        stuck = np.flatnonzero(without[first:last] & model.reachable[base + first : base + last])
        if stuck.size:
            state = model.state_of_slot(first + int(stuck[0]))
            if model.steps is None:
                raise ProblemError(
                    f"available: state {state} can be reached and has no action, though nothing ends: offer one that "
                    "stays there, or compile the problem with horizon=None"
                )
            raise ProblemError(f"available: state {state} can be reached at step {step} and has no action")


def whole_record(model: TabularModel, path: str | Path) -> Record:
    """Return the record of a model of any size, for a file; raise if it cannot hold a label."""
    record = store_model(model, largest=math.inf)
    if (why := record.plain["left_out"]) is not None:
        raise StorageError(f"cannot write {path}: {why}; use numbers, words and tuples of them")
    return record


def store_model(model: TabularModel, *, largest: float | None = None) -> Record:
    """Return a record from which `restored_model` builds an equal model; what cannot be stored is `left_out`."""
    head: dict[str, Any] = {"digest": model.digest, "name": model.name, "left_out": None}
    head["spec"] = None if model.spec is None else dict(model.spec)
    if model.nbytes > (LARGEST_STORED if largest is None else largest):
        return Record(head | {"left_out": f"it takes {model.nbytes / 1e9:.1f} GB"})
    try:
        record = store_space(model)
    except UnstorableLabel as error:
        return Record(head | {"left_out": f"a file cannot hold a label such as {error}"})
    record.plain |= head
    record.plain |= {"payoff_stride": int(model.payoffs.stride), "infeasible_reason": model.infeasible_reason}
    record.plain["memory"] = [list(axis) for axis in model.memory]
    record.plain["constraint_tolerances"] = list(model.constraint_tolerances)
    record.arrays |= {name: getattr(model, name) for name in DYNAMICS_FIELDS}
    record.arrays |= {name: getattr(model.payoffs, name) for name in PAYOFF_FIELDS}
    return record
