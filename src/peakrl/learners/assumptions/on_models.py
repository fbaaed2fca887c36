"""What is declared of a target, checked on a model and put into the form that kernels take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import SettingsError
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.constraint_memory import Groups
from peakrl.learners.space import Space
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints

#: Relative difference that a declared reward may be off by.
ROUNDING = 1e-12


def laws_of_rows(model: TabularModel | None, knowledge: Knowledge) -> Ints:
    """[row]: the law of the next state that it shares, as declared; empty where nothing is."""
    if model is None:
        return np.empty(0, np.int32)
    groups = knowledge.outcome_groups
    if groups is True:
        return model.layout.row_distribution.astype(np.int32)
    if callable(groups):
        return grouped_laws(model, groups)
    return np.empty(0, np.int32)


def grouped_laws(model: TabularModel, key_of: Any) -> Ints:
    """[row]: the number of its group, from a function of step, state and action that every step must agree on."""
    laws = np.empty(model.num_rows, np.int32)
    numbers: dict[Any, int] = {}
    for step, (first, last) in enumerate(model.layout.step_slots.tolist()):
        if step and model.stationary:
            break
        for slot in range(first, last):
            for row in model.rows_of_slot(slot):
                key = (
                    0 if model.stationary else step,
                    key_of(step, model.state_of_slot(slot), model.action_of_row(row)),
                )
                laws[row] = numbers.setdefault(key, len(numbers))
    first_of = np.full(len(numbers), -1)
    first_of[laws[::-1]] = np.arange(model.num_rows)[::-1]
    own, shared = model.layout.row_distribution, model.layout.row_distribution[first_of[laws]]
    wrong = np.flatnonzero(own != shared)
    if wrong.size:
        row, other = int(wrong[0]), int(first_of[laws[wrong[0]]])
        raise SettingsError(
            f"outcome_groups puts {pair_label(model, row)} and {pair_label(model, other)} "
            "into one group, but they have not the same law of the next state"
        )
    return laws


def law_starts(space: Space, law_of_row: Ints, start: Floats) -> Floats:
    """[law, column]: the optimistic start of what follows, from `start` by column or, in a layered model, by slot."""
    laws = int(law_of_row.max()) + 1
    if space.shared:
        return np.tile(start, (laws, 1))
    by_law = np.zeros((laws, 1))
    # All rows of a law belong to one step: their next slots do.
    by_law[law_of_row, 0] = start[space.slot_of_row]
    return by_law


def make_groups(space: Space, depends_on: str | None, model: TabularModel | None) -> Groups:
    """Group the rows whose constraints are declared to be the same; on a model a false declaration is an error."""
    slot_of_row = space.slot_of_row
    state = space.slot_state[slot_of_row].astype(np.int64)
    if depends_on is None:
        key = np.arange(space.rows)
    elif depends_on == "pair":
        key = state * (int(space.row_action.max(initial=0)) + 1) + space.row_action
    else:
        key = state if depends_on == "state" else space.row_action.astype(np.int64)
    _, group = np.unique(key, return_inverse=True)
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 2))
    if model is not None:
        check_groups(model, str(depends_on), group, order[start[:-1]])
    return Groups(group.astype(np.int32), start.astype(np.int64), order.astype(np.int32), slot_of_row)


def check_groups(model: TabularModel, depends_on: str, group: NDArray[Any], first: NDArray[Any]) -> None:
    """Raise where two rows of a group have not the same constraints."""
    fails: NDArray[np.bool_] = np.any(model.row_margin < 0, axis=1)
    mixed = np.flatnonzero(fails != fails[first][group])
    if mixed.size:
        row, other = int(mixed[0]), int(first[group[mixed[0]]])
        raise SettingsError(
            f'constraint_depends_on is "{depends_on}", but the constraints tell apart '
            f"{pair_label(model, row)} and {pair_label(model, other)}"
        )


def pair_label(model: TabularModel, row: int) -> str:
    """Return 'state s, action a' of a row."""
    return f"state {model.state_of_slot(int(model.slot_of_row[row]))!r}, action {model.action_of_row(row)!r}"


def check_most_reward(model: TabularModel | None, most_reward: float | None) -> None:
    """Raise where a pair that never violates may earn more than declared, in whichever outcome."""
    if most_reward is None or model is None:
        return
    earned = model.row_most_reward
    above = (model.row_margin >= 0).all(axis=1) & (earned > most_reward + ROUNDING * abs(most_reward))
    if above.any():
        row = int(np.flatnonzero(above)[0])
        raise SettingsError(
            f"most_reward is {most_reward}, but {pair_label(model, row)} earns {earned[row]:g} without a violation"
        )
