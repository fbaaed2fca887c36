"""Models in files: equal afterwards; whatever could not have been made is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from helpers.random_problems import random_problem
from peakrl import Outcome, PeakError, Problem, TabularModel, compile_model, solve
from peakrl import memory as budgets
from peakrl.errors import StorageError
from peakrl.labels import SPACE_FIELDS
from peakrl.model_file import assembled, load_model, restored_model
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.ragged import repeated_member
from peakrl.records import Record
from peakrl.space import read_only
from peakrl.tabular import DYNAMICS_FIELDS, PAYOFF_FIELDS, store_model

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
        record = store_model(model, largest=model.nbytes)
        assert record.plain["left_out"] is None
        assert "it takes" in store_model(model, largest=model.nbytes - 1).plain["left_out"]
        needed = model.horizon * slots * budgets.BYTES_A_NODE
        monkeypatch.setattr(budgets, "available_memory", lambda needed=needed: needed / budgets.SHARE)
        assert restored_model("file", record).digest == model.digest
        monkeypatch.setattr(budgets, "available_memory", lambda needed=needed: (needed - 1) / budgets.SHARE)
        with pytest.raises(StorageError, match="tables by step and state"):
            restored_model("file", record)


# Forged models ----------------------------------------------------------------------------------------------------

FIELDS = {**SPACE_FIELDS, **DYNAMICS_FIELDS, **PAYOFF_FIELDS}
LAYERED = random_problem(11, states=3, actions=2, horizon=3, stationary=False, outcome_payoffs=True)
SHARED = random_problem(12, states=3, actions=2, horizon=3, stationary=True)


def stored(model):
    """Return a stored model whose arrays may be written to."""
    record = store_model(model)
    return json.loads(json.dumps(record.plain)), {name: array.copy() for name, array in record.arrays.items()}


def load(plain, arrays):
    """Load a model whose digest is right, whatever else is wrong: a digest shows damage, not honesty."""
    record = Record(plain, arrays)
    try:
        plain["digest"] = assembled(record).digest
    except Exception:  # what cannot be put together at all is for `restored_model` to refuse
        plain["digest"] = "0" * 32
    return restored_model("a file", record)


def sound(model: TabularModel) -> bool:
    """The slow twin: walk through every step, slot, row and outcome, and look whether all is as it should be."""
    layout, payoffs = model.layout, model.payoffs
    steps, slots = layout.horizon, len(layout.row_start) - 1
    layers = [range(*ends) for ends in layout.step_slots.tolist()]
    layers.append(range(slots) if model.stationary else range(layers[-1].stop, slots))
    distributions = [range(*ends) for ends in layout.step_distributions.tolist()]
    if not model.stationary and [s for layer in layers for s in layer] != list(range(slots)):
        return False
    if not model.stationary and any(len(model.rows_of_slot(slot)) for slot in layers[-1]):
        return False
    reached = set(model.first_slot.tolist())
    if not reached <= set(layers[0]) or len(reached) < len(model.first_slot):
        return False
    if abs(sum(model.first_probability.tolist()) - 1) > 1e-9 or not all(p > 0 for p in model.first_probability):
        return False
    for step in range(steps):
        following = set()
        names = [int(model.slot_state[slot]) for slot in layers[step]]
        if len(set(names)) < len(names):
            return False
        for slot in layers[step]:
            rows = model.rows_of_slot(slot)
            if slot in reached and not rows:
                return False
            if len({int(model.row_action[row]) for row in rows}) < len(rows):
                return False
            for row in rows:
                d = int(layout.row_distribution[row])
                outcomes = range(int(layout.outcome_start[d]), int(layout.outcome_start[d + 1]))
                chances = [float(layout.outcome_probability[o]) for o in outcomes]
                if d not in distributions[step] or not outcomes or not all(p > 0 for p in chances):
                    return False
                if not abs(sum(chances) - 1) <= 1e-9:
                    return False
                for place, o in enumerate(outcomes):
                    record = int(payoffs.row_payoff[row]) + payoffs.stride * place
                    if int(layout.outcome_next[o]) not in layers[step + 1] or record >= len(payoffs.reward):
                        return False
                    if slot in reached:
                        following.add(int(layout.outcome_next[o]))
        reached = following
    numbers = np.isfinite(payoffs.reward).all() and np.isfinite(payoffs.constraints).all()
    return bool(numbers)


@pytest.mark.parametrize("block", range(3))
def test_whatever_is_compiled_can_be_stored_and_loaded(block):
    for seed in range(40 * block, 40 * block + 40):
        model = compile_model(random_problem(seed))
        assert sound(model)
        assert load(*stored(model)).digest == model.digest
    for problem in (scheduling_example(block + 1), energy_harvesting(battery=3, max_arrival=2, horizon=3)):
        model = compile_model(problem)
        assert load(*stored(model)).digest == model.digest


@pytest.mark.parametrize("block", range(4))
def test_a_stored_model_with_one_number_changed_is_refused_or_sound(block):
    """A number of a random array becomes a neighbour, an extreme or no number: what is taken, the slow twin takes."""
    rng = np.random.default_rng(block)
    taken = refused = 0
    for seed in range(60):
        plain, arrays = stored(compile_model(random_problem(100 * block + seed)))
        for _ in range(6):
            changed = {name: array.copy() for name, array in arrays.items()}
            name = str(rng.choice([name for name in FIELDS if arrays[name].size]))
            array = changed[name].reshape(-1)
            place = int(rng.integers(array.size))
            whole = [array[place] + 1, array[place] - 1, 0, -1, 2**31 - 1, array.size, rng.integers(8)]
            real = [0.0, -0.25, np.nan, np.inf, array[place] / 2, 1.0, 1e300]
            array[place] = rng.choice(np.array(real if array.dtype == np.float64 else whole).astype(array.dtype))
            try:
                model = load(dict(plain), changed)
            except PeakError:
                refused += 1
                continue
            taken += 1
            assert sound(model), (seed, name, place, array[place])
    assert refused > 100
    assert taken > 20


def at(name, place, value):
    """Return a change of one number."""

    def change(plain, arrays):
        arrays[name].reshape(-1)[place] = value

    return change


def told(key, value):
    """Return a change of a plain value."""

    def change(plain, arrays):
        plain[key] = value

    return change


def other_step(plain, arrays):
    """Let an outcome of step 0 lead to a slot of step 2."""
    arrays["outcome_next"][0] = arrays["stage_start"][2]


def one_distribution_less(plain, arrays):
    arrays["distribution_start"][1] -= 1


def later_start(plain, arrays):
    arrays["first_slot"][0] = arrays["stage_start"][1]


def rowless(plain, arrays):
    """Give all rows of the first slot of step 1 to the slot before it: an outcome then leads where nothing is."""
    slot = arrays["stage_start"][1]
    arrays["row_start"][slot] = arrays["row_start"][slot + 1]


FORGED = [
    (LAYERED, other_step, "an outcome leads to another step"),
    (LAYERED, one_distribution_less, "a distribution of another step"),
    (LAYERED, later_start, "a first state belongs to a later step"),
    (LAYERED, rowless, "twice|another step|offers no action|has no action"),
    (LAYERED, at("row_payoff", -1, 2**30), "row_payoff holds numbers"),
    (LAYERED, at("constraints", 0, 1e9), "exceeds its bound"),
    (SHARED, at("stage_start", 0, 1), "do not share all states"),
    (SHARED, at("slot_state", 0, 1), "order of their names"),
    (SHARED, at("outcome_probability", 0, np.nan), "outcome 0 has no probability"),
    (SHARED, at("outcome_probability", 0, 0.125), "sum to"),
    (SHARED, at("first_probability", 0, np.nan), "of the first state"),
    (SHARED, at("reward", 0, np.nan), "a reward lies outside"),
    (SHARED, at("outcome_next", 0, -1), "outcome_next holds numbers from -1"),
    (SHARED, at("row_distribution", 0, 10**6), "row_distribution holds numbers from 0 to 1000000"),
    (SHARED, told("reward_range", [1.0, 0.0]), "reward_range is"),
    (SHARED, told("states", {"form": "range", "range": [0, 10**9, 1]}), "names 1,000,000,000 states"),
    (SHARED, told("horizon", 2**40), "horizon is"),
]


def test_a_forged_model_is_refused_with_what_is_wrong_with_it():
    for problem, change, words in FORGED:
        plain, arrays = stored(compile_model(problem))
        change(plain, arrays)
        with pytest.raises(StorageError, match=words):
            load(plain, arrays)


def test_tables_beyond_memory_are_refused_before_they_are_made(monkeypatch):
    """200 states times a horizon of 1,000 take 4 bytes each: 0.8 MB, more than the 0.7 MB that are left."""
    monkeypatch.setattr("peakrl.memory.available_memory", lambda: 0.7e6 / 0.75)
    one = TabularModel.from_arrays(np.full((200, 1, 200), 1 / 200), np.zeros((200, 1)), [], 800)
    plain, arrays = stored(one)
    plain["horizon"] = 1000
    with pytest.raises(StorageError, match=r"200 states and a horizon of 1,000.*0\.0008 GB.*limit of 0\.0007 GB"):
        load(plain, arrays)
    with pytest.raises(PeakError, match="a horizon of 1,000"):
        TabularModel.from_arrays(np.full((200, 1, 200), 1 / 200), np.zeros((200, 1)), [], 1000)


def test_labels_that_repeat_or_lack_a_name_are_refused():
    plain, arrays = stored(compile_model(scheduling_example(1)))
    arrays["states.done"][1] = arrays["states.done"][0]
    with pytest.raises(StorageError, match="two labels are equal"):
        load(plain, arrays)
    plain, arrays = stored(compile_model(scheduling_example(1)))
    arrays["states.done"][1] |= np.uint64(2**63)
    with pytest.raises(StorageError, match="no name"):
        load(plain, arrays)
    plain, arrays = stored(compile_model(energy_harvesting(battery=3, max_arrival=2, horizon=3)))
    arrays["states.table"][1] = arrays["states.table"][0]
    with pytest.raises(StorageError, match="two labels are equal"):
        load(plain, arrays)
    arrays["states.table"] = arrays["states.table"].astype(np.uint8)
    with pytest.raises(StorageError, match="uint8"):
        load(plain, arrays)


def test_a_member_that_a_list_repeats_is_found_where_a_search_of_pairs_finds_it():
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(300):
        sizes = rng.integers(0, 5, size=rng.integers(1, 6))
        start, member = np.append(0, np.cumsum(sizes)), rng.integers(0, 12, size=sizes.sum()).astype(np.int32)
        places = [
            place
            for begin, end in itertools.pairwise(start)
            for place in range(begin, end)
            if member[place] in member[begin:place]
        ]
        expected = places[0] if places else -1
        found += bool(places)
        assert repeated_member(read_only(start.astype(np.int64)), read_only(member), 12) == expected
    assert 50 < found < 290


def test_every_field_of_a_model_is_stored():
    """A field that a model gains must be stored and checked; `infeasible_reason` and labels stand in plain values."""
    kept = {*FIELDS, "steps", "payoffs", "name", "constraint_names", "reward_range", "constraint_bounds", "stationary"}
    kept |= {"state_labels", "action_labels", "infeasible_reason", "spec", "memory", "constraint_tolerances"}
    assert {field.name for field in dataclasses.fields(TabularModel)} <= kept
