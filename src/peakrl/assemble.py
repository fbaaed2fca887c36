"""Where a `TabularModel` is put together: what was collected, frozen in the types that kernels expect.

Whoever has the arrays hands them over and keeps no hold of them. A model is layered where it is told where the slots
and distributions of each step begin, and stationary (one set of slots for every step) where it is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import ProblemError
from peakrl.header import Header
from peakrl.rounding import tell_of_rounding
from peakrl.space import MOST_INDICES, frozen, spans
from peakrl.tabular import TabularModel
from peakrl.types import Payoffs

Array = NDArray[Any] | Sequence[Any]


def assemble(
    header: Header,
    *,
    state_labels: Sequence[Hashable],
    slot_state: Array,
    action_labels: Sequence[Hashable],
    row_action: Array,
    row_start: Array,
    row_distribution: Array,
    outcome_start: Array,
    outcome_next: Array,
    outcome_probability: Array,
    payoffs: Payoffs,
    first_slot: Array,
    first_probability: Array,
    layer_start: Array | None = None,
    distribution_start: Array | None = None,
    infeasible_reason: str | None = None,
) -> TabularModel:
    """Return the model of these arrays, each as the field of its name in `TabularModel` says.

    `layer_start` and `distribution_start` are [step + 1] in a layered model and left out in a stationary one.
    """
    check_sizes(header.name, states=len(slot_state), pairs=len(row_action), outcomes=len(outcome_next))
    model = TabularModel(
        *header[:5],
        stationary=layer_start is None,
        state_labels=state_labels,
        slot_state=owned(slot_state, np.int32),
        action_labels=action_labels,
        row_action=owned(row_action, np.int32),
        step_slots=spans(header.horizon, len(slot_state), layer_start),
        row_start=owned(row_start, np.int64),
        step_distributions=spans(header.horizon, len(outcome_start) - 1, distribution_start),
        row_distribution=owned(row_distribution, np.int32),
        outcome_start=owned(outcome_start, np.int64),
        outcome_next=owned(outcome_next, np.int32),
        outcome_probability=owned(outcome_probability, np.float64),
        payoffs=Payoffs(
            payoffs.stride,
            owned(payoffs.row_payoff, np.int32),
            owned(payoffs.reward, np.float64),
            owned(forgiven(payoffs.constraints, header.tolerances), np.float64),
        ),
        first_slot=owned(first_slot, np.int32),
        first_probability=owned(first_probability, np.float64),
        infeasible_reason=infeasible_reason,
    )
    tell_of_rounding(model)
    return model


def forgiven(constraints: NDArray[Any], tolerances: tuple[float, ...]) -> NDArray[Any]:
    """Return constraint values with those met that are below 0 by no more than their tolerance: for all that follow."""
    if not any(tolerances):
        return constraints
    return np.where((constraints < 0.0) & (constraints >= -np.array(tolerances)), 0.0, constraints)


def owned(array: Array, dtype: Any) -> NDArray[Any]:
    """Return what was handed over, contiguous, of the given type and read-only."""
    return frozen(np.asarray(array), dtype, own=True)


def check_sizes(name: str, **counts: int) -> None:
    """Raise where something is too numerous for the 32-bit indices that models are stored with."""
    for what, count in counts.items():
        if count > MOST_INDICES:
            raise ProblemError(
                f"{name!r} has {count:,} {what}; a model holds at most {MOST_INDICES:,}. Coarsen the states or actions"
            )
