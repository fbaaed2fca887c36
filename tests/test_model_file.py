"""Compiled models in files of their own and through a pickle: equal afterwards, checked, read-only."""

import pickle

import numpy as np
import pytest

from helpers.random_problems import random_problem
from peakrl import Outcome, Problem, TabularModel, compile_model, solve
from peakrl import memory as budgets
from peakrl.errors import StorageError
from peakrl.model_file import load_model, restored_model
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.tabular import store_model

MODELS = {
    "harvesting": compile_model(energy_harvesting(horizon=4)),
    "scheduling": compile_model(scheduling_example(1)),
    "layered": compile_model(random_problem(3)),
    "arrays": TabularModel.from_arrays(np.eye(3)[[[1, 2], [2, 0], [0, 1]]], np.ones((3, 2)), np.ones((1, 3, 2)), 4),
}


def arrays_of(model):
    """Every array that a kernel may get."""
    parts = (*model.layout, *model.payoffs, model.slot_state, model.row_action, model.first_slot)
    return [part for part in parts if isinstance(part, np.ndarray)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_from_its_file_as_it_was(name, tmp_path):
    model = MODELS[name]
    model.save(tmp_path / "model.peakrl")
    again = load_model(tmp_path / "model.peakrl")
    assert again.digest == model.digest
    assert list(again.state_labels) == list(model.state_labels)
    assert list(again.action_labels) == list(model.action_labels)
    assert again.spec == model.spec
    assert solve(again).value == solve(model).value


@pytest.mark.parametrize("name", MODELS)
def test_a_copy_through_pickle_is_equal_and_as_read_only(name):
    model = MODELS[name]
    _ = model.sampler, model.digest  # what was worked out stays behind
    again = pickle.loads(pickle.dumps(model))
    assert again.digest == model.digest
    for mine, theirs in zip(arrays_of(again), arrays_of(model), strict=True):
        assert (mine.dtype, mine.flags.writeable, mine.flags.c_contiguous) == (theirs.dtype, False, True)
    assert "sampler" not in vars(again)


def test_a_file_that_tells_of_no_model_is_refused(tmp_path):
    model = MODELS["arrays"]
    model.save(tmp_path / "good")
    whole = (tmp_path / "good").read_bytes()
    for cut in (0, 5, 9, 60, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:cut])
        with pytest.raises(StorageError):
            load_model(tmp_path / "cut")
    solve(model).policy.save(tmp_path / "policy")
    with pytest.raises(StorageError, match="holds a 'policy', not a 'model'"):
        load_model(tmp_path / "policy")


def test_labels_that_no_file_can_hold_are_named(tmp_path):
    class Place:
        def __repr__(self):
            return "Place()"

    place = Place()

    class Staying(Problem):
        horizon = 2

        def initial(self):
            return [(1.0, place)]

        def actions(self, step, state):
            return ["stay"]

        def outcomes(self, step, state, action):
            return [Outcome(1.0, place, 0.0)]

    with pytest.raises(StorageError, match=r"cannot write .*Place\(\)"):
        compile_model(Staying()).save(tmp_path / "model.peakrl")
    assert not list(tmp_path.iterdir())


def test_a_model_is_stored_up_to_the_largest_size_and_read_within_the_budget(tmp_path, monkeypatch):
    for name, slots in (("layered", 1), ("arrays", MODELS["arrays"].num_slots)):
        model = MODELS[name]
        plain, arrays = store_model(model, largest=model.nbytes)
        assert plain["left_out"] is None
        assert "it takes" in store_model(model, largest=model.nbytes - 1)[0]["left_out"]
        needed = model.horizon * slots * budgets.BYTES_A_NODE
        monkeypatch.setattr(budgets, "available_memory", lambda needed=needed: needed / budgets.SHARE)
        assert restored_model("file", plain, arrays).digest == model.digest
        monkeypatch.setattr(budgets, "available_memory", lambda needed=needed: (needed - 1) / budgets.SHARE)
        with pytest.raises(StorageError, match="tables by step and state"):
            restored_model("file", plain, arrays)
