"""Visited states that a stranger stored: each kind of fault is told, and what is only unusual is read."""

from __future__ import annotations

import numpy as np
import pytest

from peakrl import memory as budgets
from peakrl.errors import PeakError
from peakrl.labels import store_space
from peakrl.model_file import MOST_UNUSED_NAMES, restored_space
from peakrl.records import Record
from peakrl.space import read_only
from peakrl.visited import VisitedStates


def space(*, stationary):
    """Two steps; the states 0, 1 with actions x, y and x."""
    return VisitedStates(
        name="met", steps=2, stationary=stationary, constraint_names=("c", "d"), constraint_bounds=(1.0, 2.0),
        reward_range=(0.0, 1.0), state_labels=(0, 1), action_labels=("x", "y"),
        slot_state=read_only(np.array([0, 1], np.int32)),
        row_action=read_only(np.array([0, 1, 0], np.int32)),
        stage_start=read_only(np.array([0, 2] if stationary else [0, 1, 2])),
        row_start=read_only(np.array([0, 2, 3])),
    )  # fmt: skip


def loaded(stationary, plain=None, **changed):
    stored = store_space(space(stationary=stationary))
    return restored_space(Record(stored.plain | (plain or {}), stored.arrays | changed))


def ints(*numbers):
    return np.array(numbers, np.int32)


FAULTS = {
    "no states or no actions": [
        {"slot_state": ints(), "row_action": ints(), "row_start": np.array([0])},
        {"row_action": ints(), "row_start": np.array([0, 0, 0])},
    ],
    "repeat a name": [{"plain": {"constraint_names": ["c", "c"]}}],
    "numbers for 2 constraints": [
        {"plain": {"constraint_bounds": [1.0]}}, {"plain": {"constraint_bounds": [1.0, 1.0, 1.0]}}
    ],
    "'stage_start' is int64 of shape": [{"stage_start": np.array([0, 1, 1, 2])}, {"stage_start": np.array([0])}],
    "states and stores": [{"slot_state": ints(0), "row_start": np.array([0, 3])}],
    "row_start does not divide": [
        {"row_start": np.array(cut)} for cut in ([0, 2, 4], [1, 2, 3], [0, 4, 3], [-1, 2, 3])
    ],
    "'row_start' is int64 of shape": [
        {"row_start": np.array([0, 3])}, {"row_start": np.array([0, 2])}, {"slot_state": ints()}
    ],
    "offers no action": [{"row_start": np.array(cut), "row_action": ints(0, 1)} for cut in ([0, 0, 2], [0, 2, 2])],
    "slot_state holds numbers": [{"slot_state": ints(0, 2)}, {"slot_state": ints(-1, 1)}],
    "row_action holds numbers": [{"row_action": ints(0, 2, 0)}, {"row_action": ints(0, 1, -1)}],
    "an action twice": [{"row_action": ints(1, 1, 0)}],
    "is int64 of shape": [{"slot_state": np.array([0, 1])}],
    "is int32 of shape": [{"slot_state": ints(0, 1)[None]}, {"stage_start": ints(0, 2)}],
}  # fmt: skip
OF_STEPS = {
    True: {
        "do not share all": [{"stage_start": np.array(starts)} for starts in ([0, 1], [1, 2], [0, 3])],
        "order of their names": [{"slot_state": ints(1, 0)}],
    },
    False: {
        "do not follow": [
            {"stage_start": np.array(starts)} for starts in ([1, 1, 2], [0, 2, 1], [0, -1, 2], [0, 1, 1], [0, 1, 3])
        ],
        "a state twice": [{"stage_start": np.array([0, 2, 2]), "slot_state": ints(1, 1)}],
    },
}


@pytest.mark.parametrize("stationary", [True, False])
def test_each_fault_of_visited_states_is_told(stationary):
    assert loaded(stationary).digest == space(stationary=stationary).digest
    for words, changes in (FAULTS | OF_STEPS[stationary]).items():
        for change in changes:
            with pytest.raises((PeakError, ValueError), match=words):
                loaded(stationary, **change)


def test_what_is_only_unusual_is_read():
    assert loaded(False, stage_start=np.array([0, 2, 2])).num_slots == 2  # a step that was not reached
    assert loaded(False, slot_state=ints(0, 0)).num_states == 2  # a state of both steps, and one of none
    one = {"slot_state": ints(0), "row_action": ints(1), "row_start": np.array([0, 1])}
    single = VisitedStates(
        name="met", steps=1, stationary=True, constraint_names=(), constraint_bounds=(), reward_range=(0.0, 1.0),
        state_labels=(0,), action_labels=("x", "y"), stage_start=read_only(np.array([0, 1])),
        **{name: read_only(array) for name, array in one.items()},
    )  # fmt: skip
    assert restored_space(store_space(single)).num_rows == 1


def test_a_few_names_of_actions_may_be_unused():
    for more in (0, 1):
        labels = tuple(range(3 + MOST_UNUSED_NAMES + more))
        stored = store_space(VisitedStates(**{**vars(space(stationary=True)), "action_labels": labels}))
        if more:
            with pytest.raises(ValueError, match="actions"):
                restored_space(stored)
        else:
            assert len(restored_space(stored).action_labels) == 3 + MOST_UNUSED_NAMES


@pytest.mark.parametrize("stationary", [True, False])
def test_tables_by_step_and_state_have_a_budget(stationary, monkeypatch):
    needed = 2 * (2 if stationary else 1) * budgets.BYTES_A_NODE
    for room, right in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(budgets, "available_memory", lambda room=room: room / budgets.SHARE)
        if right:
            loaded(stationary)
        else:
            with pytest.raises(PeakError, match="tables by step and state"):
                loaded(stationary)
