import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

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
from peakrl import PeakError, Policy, compile_model, evaluate
from peakrl.errors import PolicyError
from peakrl.evaluation.curve import Changes, new_curve, policy_curve, summed_totals

FIELDS = ("value", "violation", "violation_probability", "step_rewards", "step_violations", "worst_margin")
#: Problems are drawn in blocks, so that a failure names one and the whole is shared among workers.
BLOCKS = [range(start, start + 40) for start in range(0, 80, 40)]


def differences(evaluation, expected):
    """The largest difference in each field."""
    return {
        field: np.abs(np.asarray(getattr(evaluation, field)) - np.asarray(expected[field])).max(initial=0.0)
        for field in FIELDS
    }


def agrees(evaluation, expected):
    return all(difference < 1e-9 for difference in differences(evaluation, expected).values())


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_a_table_policy_is_worth_what_its_trajectories_add_up_to(seeds):
    for seed in seeds:
        problem, rng = random_problem(seed), np.random.default_rng(seed)
        model, table = compile_model(problem), random_table(problem, rng)
        expected = naive.evaluate_by_trajectories(problem, naive.follow(table))
        assert agrees(evaluate(model, table_policy(model, table)), expected), seed


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_a_stochastic_policy_is_worth_what_its_trajectories_add_up_to(seeds):
    for seed in seeds:
        problem, rng = random_problem(seed, horizon=1 + seed % 3), np.random.default_rng(seed)
        model, chances = compile_model(problem), random_chances(problem, rng)
        expected = naive.evaluate_by_trajectories(problem, lambda step, state, c=chances: c[step, state])
        assert agrees(evaluate(model, chance_policy(model, chances)), expected), seed


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_an_averaged_policy_is_worth_the_mean_of_what_its_policies_trajectories_add_up_to(seeds):
    for seed in seeds:
        problem, rng = random_problem(seed, horizon=1 + seed % 3), np.random.default_rng(seed)
        model, tables = compile_model(problem), random_tables(problem, rng, 1 + seed % 6)
        results = [naive.evaluate_by_trajectories(problem, naive.follow(table)) for table in tables]
        assert agrees(evaluate(model, averaged_policy(model, tables)), naive.mean_of_evaluations(results)), seed


def larger_problem(seed):
    """Too large for trajectories; stationary and layered."""
    rng = np.random.default_rng(seed)
    return random_problem(seed, states=int(rng.integers(5, 12)), actions=4, horizon=int(rng.integers(3, 8)))


@seeds(5)
def test_an_averaged_policy_is_worth_the_mean_of_its_stored_policies(seed):
    problem, rng = larger_problem(seed), np.random.default_rng(seed)
    model = compile_model(problem)
    policy = averaged_policy(model, random_tables(problem, rng, 30))
    parts = [evaluate(model, policy.policy(k)) for k in range(1, 31)]
    expected = {field: np.mean([getattr(part, field) for part in parts], axis=0) for field in FIELDS[:-1]}
    expected["worst_margin"] = np.min([part.worst_margin for part in parts], axis=0)
    assert agrees(evaluate(model, policy), expected)


def curve_of(model, policy, cuts):
    """Value and violation of pi^1 .. pi^K by `policy_curve`, in chunks that end at `cuts`."""
    payoffs = np.column_stack([model.row_reward, model.row_violation.sum(axis=1)])
    curve = new_curve(model.layout, payoffs, model.first_slot, model.first_probability, policy.first)
    value, violation = np.empty(policy.episodes), np.empty(policy.episodes)
    columns = [policy.change_episode.copy(), policy.change_node.copy(), policy.change_row.copy()]
    for start, end in zip([0, *cuts], [*cuts, policy.episodes], strict=True):
        used = policy_curve(model.layout, curve, Changes(*columns), start + 1, value[start:end], violation[start:end])
        columns = [column[used:] for column in columns]
    return value, violation


@seeds(5)
def test_the_curve_is_the_evaluation_of_every_policy_on_the_way(seed):
    problem, rng = larger_problem(seed), np.random.default_rng(seed)
    model = compile_model(problem)
    policy = averaged_policy(model, random_tables(problem, rng, 30))
    parts = [evaluate(model, policy.policy(k)) for k in range(1, 31)]
    value, violation = curve_of(model, policy, [])
    assert value == pytest.approx([part.value for part in parts], rel=1e-12, abs=1e-12)
    assert violation == pytest.approx([part.violation for part in parts], rel=1e-12, abs=1e-12)


def test_the_curve_is_the_same_to_the_last_bit_however_it_is_cut():
    for seed in range(12):
        problem, rng = larger_problem(seed), np.random.default_rng(seed)
        model = compile_model(problem)
        policy = averaged_policy(model, random_tables(problem, rng, 40))
        cuts = sorted(rng.choice(np.arange(1, 40), size=5, replace=False).tolist())
        whole, cut = curve_of(model, policy, []), curve_of(model, policy, cuts)
        assert np.array_equal(whole, cut), seed


def test_a_curve_started_anew_from_a_later_policy_goes_on_with_the_same_bits():
    for seed in range(12):
        problem, rng = larger_problem(seed), np.random.default_rng(seed)
        model = compile_model(problem)
        tables = random_tables(problem, rng, 30)
        whole = curve_of(model, averaged_policy(model, tables), [])
        rest = curve_of(model, averaged_policy(model, tables[12:]), [])
        assert np.array_equal(np.array(whole)[:, 12:], rest), seed


@seeds(5)
def test_a_mixtures_totals_and_margins_are_those_of_its_policies(seed):
    problem, rng = larger_problem(seed), np.random.default_rng(seed)
    model = compile_model(problem)
    policy = averaged_policy(model, random_tables(problem, rng, 20))
    parts = [evaluate(model, policy.policy(k)) for k in range(1, 21)]
    payoffs = np.column_stack([model.row_reward, model.row_violation])
    first = (model.first_slot, model.first_probability, policy.first)
    curve = new_curve(model.layout, payoffs, *first)
    sums = np.zeros_like(curve.totals)
    changes = (policy.change_episode, policy.change_node, policy.change_row)
    summed_totals(model.layout, curve, Changes(*changes), policy.episodes, sums)
    assert sums[:, 0] == pytest.approx(sum(part.step_rewards for part in parts), rel=1e-12, abs=1e-12)
    assert sums[:, 1:] == pytest.approx(sum(part.step_violations for part in parts), rel=1e-12, abs=1e-12)
    assert np.array_equal(
        model.row_margin[curve.used].min(axis=0), np.min([part.worst_margin for part in parts], axis=0)
    )


def test_changes_after_the_last_episode_do_not_count():
    problem = random_problem(3, states=3, actions=3, horizon=3)
    model = compile_model(problem)
    tables = random_tables(problem, np.random.default_rng(0), 6)
    longer = averaged_policy(model, tables)
    shorter = type(longer)(model, 4, longer.first, longer.change_episode, longer.change_node, longer.change_row)
    assert evaluate(model, shorter).value == pytest.approx(
        evaluate(model, averaged_policy(model, tables[:4])).value, rel=1e-12
    )


def test_a_policy_that_never_violates_has_a_violation_probability_of_exactly_0():
    for seed in range(30):
        problem = random_problem(seed, safe_action=True, outcome_payoffs=bool(seed % 2), horizon=4)
        model = compile_model(problem)
        result = evaluate(model, Policy.from_rule(model, lambda step, state: 0))
        assert (result.violation, result.violation_probability) == (0.0, 0.0)
        assert (result.worst_margin >= 0).all()


def test_what_is_no_model_or_no_policy_or_anothers_policy_is_refused():
    problem = random_problem(1)
    model, other = compile_model(problem), compile_model(random_problem(2))
    policy = Policy.from_rule(model, lambda step, state: 0)
    with pytest.raises(PeakError, match="compile_model"):
        evaluate("problem", policy)
    with pytest.raises(PolicyError, match="not a policy"):
        evaluate(model, "always 0")
    with pytest.raises(PolicyError, match="belongs to"):
        evaluate(other, policy)
    with pytest.raises(PolicyError, match="is not a policy that can be evaluated"):
        evaluate(model, SimpleNamespace(model=model, action=None))


def test_an_evaluation_shows_its_numbers_and_keeps_its_arrays_from_being_written_to():
    model = compile_model(random_problem(4))
    result = evaluate(model, Policy.from_rule(model, lambda step, state: 0))
    assert f"value {result.value:.6g}" in repr(result)
    for array in (result.step_rewards, result.step_violations, result.worst_margin):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


def test_a_model_without_constraints_is_never_violated():
    model = compile_model(random_problem(7, constraints=0))
    result = evaluate(model, Policy.from_rule(model, lambda step, state: 0))
    assert result.step_violations.shape == (model.horizon, 0)
    assert (result.violation, result.violation_probability, len(result.worst_margin)) == (0.0, 0.0, 0)


def test_the_kernels_give_the_same_without_being_compiled():
    """A sample of this file with the JIT off; there numpy warns of the 64-bit overflow that the generator relies on."""
    tests = Path(__file__).parent
    here, curve = tests / "test_evaluation.py", "test_the_curve_is_the_evaluation_of_every_policy_on_the_way"
    selected = [
        f"{here}::{curve}",
        f"{here}::test_a_stochastic_policy_is_worth_what_its_trajectories_add_up_to[range(0, 40)]",
        f"{here}::test_a_mixtures_totals_and_margins_are_those_of_its_policies",
        f"{tests / 'test_simulation.py'}::test_equal_seeds_give_the_same_episodes_for_ever",
    ]
    quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore:overflow:RuntimeWarning"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, *selected],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=tests.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
