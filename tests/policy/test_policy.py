import contextlib
import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from helpers.random_policies import (
    averaged_policy,
    chance_policy,
    random_chances,
    random_table,
    random_tables,
    table_policy,
)
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import PeakError, Policy, compile_model
from peakrl.errors import PolicyError, StorageError
from peakrl.policy import AveragedPolicy, StochasticPolicy, load_policy
from peakrl.policy.mixture import model_for
from peakrl.policy.tables import first_rows
from peakrl.records import read_record, write_record


def setting(seed, **switches):
    problem = random_problem(seed, **{"states": 3, "actions": 3, "horizon": 3, **switches})
    return problem, compile_model(problem), np.random.default_rng(seed)


# --- Tables ----------------------------------------------------------------------------------------------------------


@seeds(5)
def test_a_rule_becomes_a_table_that_gives_its_actions_back(seed):
    problem, model, rng = setting(seed)
    table = random_table(problem, rng)
    policy = table_policy(model, table)
    assert {point: policy.action(*point) for point in table} == table
    assert all(policy.probabilities(*point) == {action: 1.0} for point, action in table.items())
    assert policy.deterministic


def test_a_rule_is_asked_only_about_states_that_can_be_met():
    problem, model, _ = setting(1, stationary=True)
    asked = []
    Policy.from_rule(model, lambda step, state: asked.append((step, state)) or 0)
    assert sorted(asked) == sorted(naive.decision_points(problem))


def test_an_action_that_is_not_offered_is_refused_with_place_and_offer():
    _, model, _ = setting(2)
    state = model.state_of_slot(model.first_slot[0])
    with pytest.raises(PolicyError, match=rf"'jump' is not available at step 0 in state {state} \(there are: 0"):
        Policy.from_rule(model, lambda step, state: "jump")
    with pytest.raises(PolicyError, match=r"action \[0\] is not available at step 0"):
        Policy.from_rule(model, lambda step, state: [0])


def test_a_policy_knows_its_steps_and_states():
    _, model, _ = setting(3)
    policy = Policy.from_rule(model, lambda step, state: 0)
    with pytest.raises(PolicyError, match=r"step 3 is outside 0\.\.2"):
        policy.action(3, 0)
    with pytest.raises(PolicyError, match="state 'nowhere' does not occur"):
        policy.action(0, "nowhere")


def test_a_table_of_another_shape_or_with_rows_of_another_state_is_refused():
    _, model, _ = setting(4, stationary=True)
    rows = first_rows(model)
    with pytest.raises(PolicyError, match="nodes"):
        Policy(model, rows[:-1])
    with pytest.raises(PolicyError, match=r"row -?\d+ at node 0 is not an action of state"):
        Policy(model, rows + model.num_rows)
    with pytest.raises(PolicyError, match="integers, not float64"):
        Policy(model, rows + 0.5)
    with pytest.raises(PolicyError, match="at node 1"):
        Policy(model, np.where(np.arange(len(rows)) == 1, rows[0], rows))


def test_a_table_keeps_its_rows_to_itself():
    _, model, _ = setting(5)
    rows = first_rows(model).copy()
    policy = Policy(model, rows)
    before = policy.rows.copy()
    rows[:] = -7
    assert np.array_equal(policy.rows, before)
    with pytest.raises(ValueError, match="read-only"):
        policy.rows[0] = 0


# --- Probabilities ---------------------------------------------------------------------------------------------------


@seeds(5)
def test_chances_are_given_back_by_label_with_those_of_0_left_out(seed):
    problem, model, rng = setting(seed)
    chances = random_chances(problem, rng)
    policy = chance_policy(model, chances)
    for point, by_action in chances.items():
        assert policy.probabilities(*point) == {action: chance for action, chance in by_action.items() if chance > 0}
    assert policy.deterministic == all(c in (0.0, 1.0) for by_action in chances.values() for c in by_action.values())


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf])
def test_chances_that_are_no_probabilities_or_do_not_sum_to_1_are_refused(bad):
    _, model, _ = setting(6)
    weights = chance_policy(model, {}).weights.copy()
    weights[0] = bad
    with pytest.raises(PolicyError, match="sum to 1 in every state"):
        StochasticPolicy(model, weights)
    with pytest.raises(PolicyError, match="weights"):
        StochasticPolicy(model, weights[:-1])


def test_a_state_between_two_others_that_offers_nothing_is_skipped_in_the_sums():
    """A masked state has no rows; the sums of its neighbours must not run together."""
    from peakrl import TabularModel

    stay = np.eye(3)[:, None].repeat(2, axis=1)
    offered = [[True, True], [False, False], [True, True]]
    model = TabularModel.from_arrays(stay, np.zeros((3, 2)), np.zeros((1, 3, 2)), 1, available=offered)
    assert StochasticPolicy(model, [0.25, 0.75, 1.0, 0.0]).probabilities(0, 0) == {0: 0.25, 1: 0.75}
    with pytest.raises(PolicyError, match="sum to 1"):
        StochasticPolicy(model, [0.25, 0.75, 1.0, 1.0])


# --- Mixtures --------------------------------------------------------------------------------------------------------


@seeds(5)
def test_a_mixture_replays_its_changes_to_each_of_its_policies(seed):
    problem, model, rng = setting(seed)
    tables = random_tables(problem, rng, 12)
    policy = averaged_policy(model, tables)
    for episode, table in enumerate(tables, start=1):
        assert {point: policy.policy(episode).action(*point) for point in table} == table
    for episode in (0, 13, -1):
        with pytest.raises(PolicyError, match=rf"episode {episode} is outside 1\.\.12"):
            policy.policy(episode)


def test_later_changes_of_a_node_within_an_episode_win():
    _, model, _ = setting(0, states=2, horizon=1)
    start = model.row_start
    slot = int(np.flatnonzero(np.diff(start) >= 2)[0])
    a, b = int(start[slot]), int(start[slot]) + 1
    policy = AveragedPolicy(model, 3, first_rows(model), [2, 2, 2], [slot] * 3, [b, a, b])
    assert [policy.policy(k).rows[slot] for k in (1, 2, 3)] == [a, b, b]


def test_changes_grouped_by_node_are_the_same_changes_in_order_of_episode():
    problem, model, rng = setting(7)
    policy = averaged_policy(model, random_tables(problem, rng, 12))
    start, episode, row = policy.by_node
    grouped = [
        (int(episode[i]), node, int(row[i]))
        for node in range(model.num_nodes)
        for i in range(start[node], start[node + 1])
    ]
    listed = list(
        zip(*(c.tolist() for c in (policy.change_episode, policy.change_node, policy.change_row)), strict=True)
    )
    assert sorted(grouped) == sorted(listed)
    assert all(np.all(np.diff(episode[a:b]) >= 0) for a, b in itertools.pairwise(start))
    assert (policy.num_changes, policy.nbytes) == (len(listed), 12 * len(listed))


def test_a_sample_is_one_of_the_policies_and_reproducible():
    problem, model, rng = setting(8)
    policy = averaged_policy(model, random_tables(problem, rng, 5))
    stored = {policy.policy(k).rows.tobytes() for k in range(1, 6)}
    drawn = [policy.sample(seed).rows.tobytes() for seed in range(60)]
    assert set(drawn) == stored  # each missing with probability 0.8^60 = 2e-6, and the seeds are fixed
    assert drawn == [policy.sample(seed).rows.tobytes() for seed in range(60)]


BAD_CHANGES = [
    (0, ([], [], []), "episodes of an averaged policy is 0; it must be a whole number"),
    (5, ([2], [0, 0], [0]), "different lengths"),
    (5, ([0], [0], [0]), "order of episode, from 1 on"),
    (5, ([2], [10**6], [0]), r"node outside 0\.\."),
    (5, ([2], [0], [10**6]), "not an action of its state"),
    (5, ([2.5], [0], [0]), "change_episode must be a one-dimensional array of integers"),
    (5, ([2**40], [0], [0]), "change_episode"),
]


def test_a_change_list_that_makes_no_sense_is_refused():
    for episodes, columns, message in BAD_CHANGES:
        _, model, _ = setting(9)
        with pytest.raises(PolicyError, match=message):
            AveragedPolicy(model, episodes, first_rows(model), *columns)


once = functools.cache(setting)


@given(st.data())
def test_a_change_list_is_refused_if_and_only_if_its_twin_finds_a_fault(data):
    _, model, _ = once(9)
    start, slots = model.row_start.tolist(), model.num_slots
    rows_of = {node: range(start[node % slots], start[node % slots + 1]) for node in range(model.num_nodes)}
    episode, changes = 1, []
    for _ in range(data.draw(st.integers(0, 8))):
        episode += data.draw(st.sampled_from([0, 0, 1, 1, 1, -1]))
        node = data.draw(st.integers(0, model.num_nodes - 1) | st.integers(-1, model.num_nodes))
        first, last = (rows_of[node].start, rows_of[node].stop) if node in rows_of else (0, 1)
        changes.append((episode, node, data.draw(st.integers(first, last - 1) | st.integers(first - 1, last))))
    columns = np.array(changes, np.int32).reshape(-1, 3).T
    found = "no fault"
    try:
        AveragedPolicy(model, 99, first_rows(model), *columns)
    except PolicyError:
        found = "a fault"
    assert (found == "no fault") == (naive.change_fault(rows_of, changes) == "no fault")


# --- Whose policy ----------------------------------------------------------------------------------------------------


def test_a_policy_serves_an_identical_model_and_no_other():
    problem, model, _ = setting(10)
    policy = Policy.from_rule(model, lambda step, state: 0)
    model_for(model, policy)
    model_for(compile_model(problem), policy)
    lo, hi = problem.reward_range
    with pytest.raises(PolicyError, match="belongs to"):
        model_for(compile_model(replace(problem, reward_range=(lo, hi + 1))), policy)
    with pytest.raises(PolicyError, match="not a policy"):
        model_for(model, lambda step, state: 0)


# --- Files -----------------------------------------------------------------------------------------------------------


def test_a_saved_mixture_comes_back_and_only_for_its_model(tmp_path):
    problem, model, rng = setting(11)
    policy = averaged_policy(model, random_tables(problem, rng, 12))
    policy.save(tmp_path / "mixture")
    loaded = load_policy(tmp_path / "mixture", compile_model(problem))
    assert loaded.episodes == 12
    for name in ("first", "change_episode", "change_node", "change_row"):
        assert np.array_equal(getattr(loaded, name), getattr(policy, name))
    with pytest.raises(StorageError, match="another problem"):
        load_policy(tmp_path / "mixture", compile_model(random_problem(12)))


def test_a_damaged_or_missing_or_other_file_is_refused_by_name(tmp_path):
    problem, model, rng = setting(11)
    path = tmp_path / "mixture"
    averaged_policy(model, random_tables(problem, rng, 12)).save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="mixture is damaged"):
        load_policy(path, model)
    with pytest.raises(StorageError, match="cannot read"):
        load_policy(tmp_path / "missing", model)
    write_record(path, "learning run", {}, {})
    with pytest.raises(StorageError, match="holds a 'learning run', not a 'policy'"):
        load_policy(path, model)


values = st.one_of(st.none(), st.integers(-5, 2**70), st.text(max_size=4), st.lists(st.integers(), max_size=2))
arrays = st.one_of(
    st.lists(st.integers(-3, 40), max_size=30).map(lambda numbers: np.array(numbers, np.int32)),
    st.lists(st.floats(), max_size=4).map(np.array),
    st.just(np.zeros((2, 2), np.int64)),
    st.just(np.zeros((), np.int32)),
)


@settings(max_examples=40)
@given(st.data())
def test_a_file_with_wrong_fields_gives_a_peak_error_however_well_it_is_formed(tmp_path_factory, data):
    """Not an accident of the disk but of a program: the digest is right, a field is missing or of another form."""
    problem, model, rng = setting(11)
    path = tmp_path_factory.mktemp("crafted") / "mixture"
    averaged_policy(model, random_tables(problem, rng, 5)).save(path)
    manifest, held = read_record(path, "policy")
    del manifest["kind"]
    for name in data.draw(st.lists(st.sampled_from([*manifest, *held]), unique=True, min_size=1)):
        part, new = (manifest, values) if name in manifest else (held, arrays)
        if data.draw(st.booleans()):
            del part[name]
        else:
            part[name] = data.draw(new)
    write_record(path, "policy", manifest, held)
    with contextlib.suppress(PeakError):
        loaded = load_policy(path, model)
        assert [loaded.policy(k).rows.shape for k in (1, loaded.episodes)] == [(model.num_nodes,)] * 2
