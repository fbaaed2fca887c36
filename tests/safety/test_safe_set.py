"""The safe set against every policy tried, the planner, and the certificate."""

import json
from functools import partial

import numpy as np
import pytest

import naive
import peakrl
from helpers.random_problems import random_problem
from helpers.safe_problems import BUILT_IN, PAPERS_SIZE, Inventory, problem_of
from helpers.seeds import seeds
from naive import safety as naive_safety
from peakrl import compile_model, evaluate, safe_set, solve
from peakrl.errors import PolicyError, StorageError
from peakrl.policy import AveragedPolicy, StochasticPolicy
from peakrl.policy.export import plain
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.records import write_record
from peakrl.safety import load_safe_set
from peakrl.safety.safe_set import SAFE_SET


def entries_of(safe, problem):
    return {(*point, action) for point in naive.decision_points(problem) for action in safe.actions(*reversed(point))}


def random_policy_inside(safe, seed):
    """A policy that draws safe actions at random, and any action where none is safe."""
    model, layout = safe.model, safe.model.layout
    rng = np.random.default_rng(seed)
    weights = np.zeros(model.num_entries)
    for step in range(model.horizon if model.stationary else 1):
        for slot in range(model.num_slots):
            rows = np.array(model.rows_of_slot(slot), int) + step * layout.entry_stride
            inside = rows[safe.entries[rows]] if safe.entries[rows].any() else rows
            if len(rows):
                weights[inside] = rng.dirichlet(np.ones(len(inside)))
    return StochasticPolicy(model, weights)


@pytest.mark.parametrize("stationary", [True, False])
@seeds(25)
def test_an_action_is_safe_exactly_where_some_policy_then_violates_nothing(seed, stationary):
    problem = random_problem(seed, states=2, horizon=3, stationary=stationary)
    safe = safe_set(problem)
    assert entries_of(safe, problem) == naive_safety.safe_by_every_policy(problem)


@seeds(25)
def test_larger_problems_agree_with_a_plain_recursion(seed):
    problem = random_problem(seed, states=7, actions=4, horizon=6, integer_constraints=seed % 2 == 0)
    safe = safe_set(problem)
    found = entries_of(safe, problem)
    expected = naive.safe_entries(problem)
    reachable = set(naive.decision_points(problem))
    assert found == {entry for entry in expected if entry[:2] in reachable}
    for point in reachable:
        assert safe.contains(*reversed(point)) == any(entry[:2] == point for entry in found)


@seeds(4)
def test_a_long_horizon_agrees_with_a_plain_recursion(seed):
    problem = random_problem(seed, states=5, actions=3, horizon=40, stationary=True)
    found, reachable = entries_of(safe_set(problem), problem), set(naive.decision_points(problem))
    assert found == {entry for entry in naive.safe_entries(problem) if entry[:2] in reachable}


@seeds(25)
def test_the_start_is_in_it_exactly_where_the_problem_is_feasible(seed):
    problem = random_problem(seed)
    best = solve(problem)
    assert best.safe_set.feasible == best.feasible
    assert all(best.safe_set.contains(state) for p, state in problem.initial() if p > 0) == best.feasible


def test_feasible_infeasible_random_and_outcome_dependent_problems_are_among_those_tried():
    models = [compile_model(random_problem(seed)) for seed in range(40)]
    assert {safe_set(model).feasible for model in models} == {True, False}
    assert {model.payoffs.stride for model in models} == {0, 1}
    assert {model.stationary for model in models} == {True, False}


@seeds(25)
def test_a_policy_that_stays_inside_violates_exactly_nothing(seed):
    safe = safe_set(random_problem(seed, states=6, actions=4, horizon=6))
    result = evaluate(safe.model, random_policy_inside(safe, seed))
    if safe.feasible:
        assert result.violation_probability == 0.0
        assert result.violation == 0.0
    else:
        assert result.violation_probability > 0.0


@seeds(25)
def test_the_reason_is_a_shortest_way_to_where_everything_violates(seed):
    problem = random_problem(seed, states=5, actions=3, horizon=5)
    safe = safe_set(problem)
    inside = naive.safe_entries(problem)
    for step, state in naive.decision_points(problem):
        for action in problem.actions(step, state):
            reason = safe.reason(state, action, step)
            if (step, state, action) in inside:
                assert reason is None
                continue
            assert len(reason.moves) == naive_safety.moves_to_dead_end(problem, inside, step, state, action)
            check_way(problem, inside, reason, (step, state, action))


def check_way(problem, inside, reason, start):
    """Every move can happen and violates nothing; at the end each action that is named violates what is said."""
    for place, move in enumerate(reason.moves):
        assert not naive_safety.violates(problem, move.step, move.state, move.action)
        assert (move.step, move.state, move.action) not in inside
        chance = sum(
            o.probability
            for o in problem.outcomes(move.step, move.state, move.action)
            if o.next_state == move.next_state
        )
        assert chance == pytest.approx(move.probability)
        after = reason.moves[place + 1] if place + 1 < len(reason.moves) else reason
        assert (after.step, after.state) == (move.step + 1, move.next_state)
    expected = [start[2]] if reason.violates else list(problem.actions(reason.step, reason.state))
    assert list(reason.breaks) == expected
    for action, breaches in reason.breaks.items():
        values = np.array([o.constraints for o in problem.outcomes(reason.step, reason.state, action)])
        least = dict(zip(problem.constraint_names, values.min(axis=0), strict=True))
        assert {each.constraint: each.least for each in breaches} == {n: v for n, v in least.items() if v < 0}


def test_a_reason_reads_as_a_sentence():
    model = compile_model(scheduling_example(1))
    safe = safe_set(model)
    told = [
        str(safe.reason(model.state_of_slot(slot), model.action_of_row(row), step))
        for step in range(2)
        for slot in range(*model.layout.step_slots[step])
        for row in model.rows_of_slot(slot)
        if model.keeps[row] and not safe.entries[row]
    ]
    assert told
    for text in told:
        assert "may lead to" in text
        assert "every action violates immediately (action " in text
        assert text.endswith("Every other action on the path is unsafe as well")
    harvest = safe_set(energy_harvesting(horizon=2, battery=3, max_arrival=3, mean=2, std=1, peak_power=1))
    assert str(harvest.reason((2, 1), 3)).startswith("at step 0 in state (2, 1) action 3 violates ")


@pytest.mark.parametrize(
    "problem",
    [random_problem(3, states=5, actions=3, horizon=4), scheduling_example(2), energy_harvesting(horizon=3)],
    ids=lambda problem: problem.name,
)
def test_masks_by_label_by_number_and_lists_of_actions_say_the_same(problem):
    safe = safe_set(problem)
    model = safe.model
    for step in range(model.horizon):
        for slot in range(*model.layout.step_slots[step]):
            if not model.rows_of_slot(slot):
                continue
            state = model.state_of_slot(slot)
            mask = safe.mask(state, step)
            assert mask.dtype == np.bool_
            assert not mask.flags.writeable
            listed = [action for action, allowed in zip(model.action_labels, mask, strict=True) if allowed]
            assert sorted(listed) == sorted(safe.actions(state, step))
            assert safe.masks[safe.node_of(step, state)].tolist() == mask.tolist()


@seeds(20)
def test_counts_by_step_are_those_of_the_states_that_can_be_met(seed):
    problem = random_problem(seed, states=5, actions=3, horizon=4)
    safe, inside = safe_set(problem), naive.safe_entries(problem)
    for step, count in enumerate(safe.counts):
        here = [state for when, state in naive.decision_points(problem) if when == step]
        offered = [(step, state, action) for state in here for action in problem.actions(step, state)]
        allowed = [entry for entry in offered if entry in inside]
        assert count == (step, len(here), len({s for _, s, _ in allowed}), len(offered), len(allowed))


def test_a_step_or_state_that_there_is_not_is_an_error():
    for step, state, match in [
        (0, "nowhere", "does not occur"),
        (-1, 0, "outside 0..3"),
        (4, 0, "outside 0..3"),
        (0.5, 0, "outside"),
        (0, [], "does not occur"),
        (None, 0, "outside"),
    ]:
        safe = safe_set(random_problem(3, states=5, actions=3, horizon=4))
        reason = partial(safe.reason, action=0)
        for question in (safe.contains, safe.actions, safe.mask, reason):
            with pytest.raises(PolicyError, match=match):
                question(state, step=step)


def test_an_action_that_is_not_on_offer_has_no_reason():
    with pytest.raises(PolicyError, match="action 77 is not available"):
        safe_set(random_problem(3)).reason(random_problem(3).first[0][1], 77)


# Memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [3, 300])
def test_four_bytes_for_each_action_and_state_whatever_the_horizon(horizon):
    model = compile_model(random_problem(3, states=7, actions=3, horizon=horizon, stationary=True))
    assert model.stationary
    steps = safe_set(model).steps
    assert steps.row_from.nbytes + steps.slot_from.nbytes == 4 * (model.num_rows + model.num_slots)


# Files and exports -----------------------------------------------------------------------------------------------


def test_a_safe_set_comes_back_from_its_file_as_it_was(tmp_path):
    for seed in range(2):
        problem = random_problem(seed, states=5, actions=3, horizon=4)
        safe = safe_set(problem)
        safe.save(tmp_path / "kept")
        again = peakrl.load(tmp_path / "kept", problem)
        assert again.entries.tolist() == safe.entries.tolist()
        assert again.nodes.tolist() == safe.nodes.tolist()


def test_a_file_with_its_model_needs_nothing_else(tmp_path):
    safe = safe_set(random_problem(3, states=5, actions=3, horizon=4))
    safe.save(tmp_path / "kept", with_model=True)
    again = peakrl.load(tmp_path / "kept")
    assert again.entries.tolist() == safe.entries.tolist()
    assert again.model.digest == safe.model.digest
    safe.save(tmp_path / "kept")
    with pytest.raises(StorageError, match="kept contains a safe set without its model: pass the problem"):
        peakrl.load(tmp_path / "kept")


def test_a_file_that_calls_anything_else_safe_is_refused(tmp_path):
    problem = random_problem(3, states=5, actions=3, horizon=4)
    safe, path = safe_set(problem), tmp_path / "kept"
    safe.save(path)
    with pytest.raises(StorageError, match="kept contains the safe set of another problem or version, 'random'"):
        peakrl.load(path, random_problem(2))
    head = SAFE_SET.header() | {"problem": "random", "digest": safe.model.digest}
    first = safe.steps.row_from
    for forged in (first ^ 1, first[:, :-1], first[0], first + 0.5, np.zeros_like(first)):
        write_record(path, "safe_set", head, {"row_from": forged})
        with pytest.raises(StorageError, match="kept is damaged: its content is not the safe set"):
            peakrl.load(path, problem)
    write_record(path, "safe_set", head, {})
    with pytest.raises(StorageError, match="kept is damaged: it lacks 'row_from'"):
        peakrl.load(path, problem)
    solve(problem).policy.save(path)
    with pytest.raises(StorageError, match="holds a 'policy', not a 'safe_set'"):
        load_safe_set(path, problem)


def test_exports_list_every_action_with_the_verdict_of_the_safe_set(tmp_path):
    problem = random_problem(3, states=5, actions=3, horizon=4)
    safe = safe_set(problem)
    told = json.loads(safe.to_json(tmp_path / "safe.json"))["decisions"]
    assert json.loads((tmp_path / "safe.json").read_text())["decisions"] == told
    inside = naive.safe_entries(problem)
    assert len(told) == sum(count.actions for count in safe.counts)
    for line in told:
        at = line["step"], line["state"], line["action"]
        assert line["safe"] == (at in inside)
        assert line["violates"] == naive_safety.violates(problem, *at)
    lines = safe.to_csv().splitlines()
    assert lines[0] == "step,state,action,safe,violates"
    assert len(lines) == len(told) + 1


# What policies say of their actions ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BUILT_IN, pytest.param(PAPERS_SIZE, marks=pytest.mark.slow)])
def test_explain_of_a_solved_policy_agrees_with_the_safe_set_everywhere(name):
    best = solve(problem_of(name))
    model, safe = best.policy.model, best.safe_set
    checked = 0
    for step in range(model.horizon):
        for slot in range(*model.layout.step_slots[step]):
            if not model.rows_of_slot(slot):
                continue
            state = model.state_of_slot(slot)
            inside = safe.actions(state, step)
            for view in best.policy.explain(step, state):
                reason = safe.reason(state, view.action, step)
                assert view.safe == (view.action in inside) == (reason is None)
                assert view.violates == (reason is not None and reason.violates)
                assert view.dead_end == (reason is not None and not reason.violates)
                checked += 1
    assert checked == model.num_entries
    assert any(count.safe_actions < count.actions for count in safe.counts)


def verdicts_of(safe):
    """{(step, state as JSON has it, action): safe}, from the safe set's own lists."""
    model, found = safe.model, {}
    for step, slot, _ in model.decisions():
        state, inside = repr(plain(model.state_of_slot(slot))), safe.actions(model.state_of_slot(slot), step)
        for action in map(model.action_of_row, model.rows_of_slot(slot)):
            found[step, state, action] = action in inside
    return found


@pytest.mark.parametrize("name", [*BUILT_IN, pytest.param(PAPERS_SIZE, marks=pytest.mark.slow)])
def test_exports_of_any_policy_agree_with_the_safe_set_everywhere(name):
    best = solve(problem_of(name))
    model = best.policy.model
    expected = verdicts_of(best.safe_set)
    even = StochasticPolicy(model, random_weights(model))
    asked = 0
    for policy in (best.policy, even, AveragedPolicy(model, 1, best.policy.rows, *(np.empty(0, np.int32),) * 3)):
        lines = json.loads(policy.to_json())["decisions"]
        for line in lines:
            assert line["safe"] is expected[line["step"], repr(line["state"]), line["action"]]
        asked += len(lines)
        table = policy.to_csv()
        assert table.count("True") + table.count("False") == len(lines)
    assert asked == len(expected) + 2 * len(json.loads(best.policy.to_json())["decisions"])


def random_weights(model):
    """Every action of a state with some probability, so that an export has a line for each."""
    counts = np.repeat(np.diff(model.row_start), np.diff(model.row_start))
    return np.tile(1.0 / counts, model.num_entries // model.num_rows)


def test_an_export_from_an_environment_says_null_where_nobody_knows():
    env = peakrl.to_gymnasium(scheduling_example(1))
    run = peakrl.learn(env, peakrl.learners.SafeQ(), episodes=200)
    told = {line["safe"] for line in json.loads(run.policy.to_json())["decisions"]}
    assert None in told
    assert True not in told


def test_an_action_that_leads_to_certain_violation_is_called_a_dead_end():
    best = solve(Inventory())
    assert best.feasible
    views = {view.action: view for view in best.policy.explain(0, (6, 0, 0))}
    assert views[0].violates is False
    assert views[0].dead_end is True
    assert views[2].safe is True
    assert "leads to a dead end" in str(views[0])
