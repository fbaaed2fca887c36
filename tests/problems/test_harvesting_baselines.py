"""Baselines and bounds of energy harvesting: walks, recursions and other solvers say what is right."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from helpers.seeds import seeds
from naive import convex_optimum, harvest_expectation, harvest_optimum, harvest_total
from peakrl import Policy, compile_model, evaluate, simulate, solve
from peakrl.errors import PolicyError, ProblemError
from peakrl.problems import energy_harvesting
from peakrl.problems.harvesting import (
    balanced_rates,
    convex_bound,
    draw_arrivals,
    greedy_policy,
    greedy_rates,
    integer_bound,
)
from peakrl.problems.harvesting.known_arrivals import pull, tunnel

MEANS = (8, 9, 10, 11, 12)
#: Peak 15, bits, read off the published curves, whose 100 sequences are the authors' own.
PUBLISHED = {
    "greedy": (60.7, 63.7, 66.75, 69.1, 71.2),
    "balanced": (62.3, 65.0, 67.4, 69.3, 71.4),
    "learner": (63.75, 66.5, 68.85, 70.8, 72.6),
}


@pytest.mark.parametrize("peak", [0, 4, 8.5, 15])
def test_greedy_and_balanced_rates_are_those_of_a_plain_walk(peak):
    sequences = draw_arrivals(20, seed=9)
    wanted = {"battery": 12, "peak_power": peak, "log_base": 3}
    for rates, targets in (
        (greedy_rates(sequences, **wanted), [math.inf] * 20),
        (balanced_rates(sequences, **wanted), sequences.mean(axis=1)),
    ):
        walks = [
            harvest_total(row.tolist(), lambda h, b, e, m=target: min(m, peak, b + e), 12, base=3)
            for row, target in zip(sequences, targets, strict=True)
        ]
        np.testing.assert_allclose(rates, walks, rtol=1e-12)


@seeds(5)
def test_the_greedy_policy_of_a_frozen_sequence_walks_as_it_says(seed):
    problem = energy_harvesting(arrivals="frozen", seed=seed, peak_power=15)
    model = compile_model(problem)
    sequence = problem.arrivals.sequence
    walk = harvest_total(sequence, lambda h, b, e: min(15, b + e), 20)
    assert harvest_expectation(problem, greedy_policy(problem, model).action) == (pytest.approx(walk), 0.0)


def test_evaluate_and_simulate_take_the_baseline_policies():
    problem = energy_harvesting(peak_power=15, log_base=math.e)
    model = compile_model(problem)
    exact = evaluate(model, greedy_policy(problem, model))
    assert (exact.value, exact.violation) == (pytest.approx(46.069, abs=6e-4), 0.0)
    frozen = energy_harvesting(arrivals="frozen", seed=3)
    policy = greedy_policy(frozen)
    episodes = simulate(compile_model(frozen), policy, episodes=2)
    expected, _ = harvest_expectation(frozen, policy.action)
    assert episodes.value == pytest.approx(expected)


@pytest.mark.parametrize("peak", [0, 3, 8, 15.5])
def test_the_integer_bound_is_the_optimum_by_plain_recursion(peak):
    sequences = draw_arrivals(6, horizon=8, seed=4)
    bound = integer_bound(sequences, battery=11, peak_power=peak, log_base=math.e)
    np.testing.assert_allclose(
        bound, [harvest_optimum(row.tolist(), 11, peak, math.e) for row in sequences], atol=1e-12
    )


def test_the_integer_bound_is_what_solving_the_frozen_problem_gives():
    sequences = draw_arrivals(10, seed=8)
    solved = [solve(compile_model(energy_harvesting(arrivals=row, peak_power=15))).value for row in sequences]
    np.testing.assert_allclose(integer_bound(sequences, peak_power=15), solved, atol=1e-9)


def test_the_convex_bound_has_the_closed_forms_of_simple_sequences():
    with np.errstate(all="raise"):
        bound = convex_bound([[3, 0, 0], [0, 0, 0], [0, 0, 6], [20, 0, 0]], battery=10, peak_power=8)
    # Spread evenly; nothing to send; energy cannot go back in time; 8 first, so that the 10 kept are not spilled.
    np.testing.assert_allclose(bound, [3, 0, math.log2(7), math.log2(9) + 2 * math.log2(6)], atol=1e-6)
    np.testing.assert_allclose(convex_bound([[5]]), [math.log2(6)], atol=1e-6)
    assert convex_bound([[5, 5]], peak_power=0) == [0.0]


def random_instance(rng):
    """Arrivals of one length, a battery and a peak, all over the place."""
    horizon, battery = int(rng.integers(2, 25)), int(rng.integers(1, 21))
    return rng.integers(0, int(rng.integers(1, 30)), (1, horizon)), battery, float(rng.uniform(3, 100))


def check_water_filling(seed):
    sequences, battery, peak = random_instance(np.random.default_rng(seed))
    (exact,) = convex_bound(sequences, battery=battery, peak_power=peak, log_base=math.e)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        (other,) = convex_optimum(sequences, battery, peak)
    assert exact == pytest.approx(other, abs=1e-6)


@seeds(25)
def test_water_filling_is_the_convex_program_on_random_instances(seed):
    check_water_filling(seed)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 20), st.floats(0, 40))
@settings(max_examples=150, deadline=None)
def test_water_filling_can_be_done_and_is_no_worse_than_whole_powers(sequence, battery, peak):
    floor, ceiling = np.empty(len(sequence) + 1), np.empty(len(sequence) + 1)
    powers = np.empty(len(sequence))
    tunnel(np.array(sequence), float(battery), peak, floor, ceiling)
    pull(floor, ceiling, powers)
    level = 0.0
    for arrival, power in zip(sequence, powers.tolist(), strict=True):
        assert -1e-9 <= power <= min(peak, level + arrival) + 1e-9
        level = min(float(battery), level + arrival - power)
    (most,) = convex_bound(sequence, battery=battery, peak_power=peak)
    assert most == pytest.approx(np.log2(1 + powers).sum(), abs=1e-9)
    assert most >= integer_bound(sequence, battery=battery, peak_power=peak)[0] - 1e-9


@pytest.mark.slow
def test_the_bound_of_figure_3_is_that_of_the_convex_program():
    for mean in MEANS:
        sequences = draw_arrivals(50, mean=mean, seed=1)
        exact = convex_bound(sequences, peak_power=15, log_base=math.e)
        np.testing.assert_allclose(exact, convex_optimum(sequences.tolist(), 20, 15), atol=1e-6)


def test_the_convex_bound_agrees_with_another_solver():
    for row in draw_arrivals(4, horizon=8, std=8, seed=6):
        (bound,) = convex_bound(row, battery=12, peak_power=11, log_base=math.e)
        assert slsqp_bound(row, 12, 11) == pytest.approx(bound, abs=1e-5)


def slsqp_bound(row, battery, peak):
    """The same program in (power, level) by sequential quadratic programming."""
    horizon = len(row)

    def slack(x):
        power, level = x[:horizon], np.concatenate(([0.0], x[horizon:]))
        return level[:-1] + row - power - level[1:]

    found = optimize.minimize(
        lambda x: -np.log1p(x[:horizon]).sum(),
        np.zeros(2 * horizon),
        bounds=[(0, peak)] * horizon + [(0, battery)] * horizon,
        constraints={"type": "ineq", "fun": slack},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert found.success
    return -found.fun


def test_finer_and_finer_powers_approach_the_convex_bound_from_below():
    row = draw_arrivals(1, horizon=7, seed=11)[0].tolist()
    (bound,) = convex_bound(row, battery=9, peak_power=11)
    gaps = [bound - harvest_optimum(row, 9, 11, unit=unit) for unit in (1, 0.5, 0.125)]
    assert gaps[0] >= gaps[1] >= gaps[2] >= -1e-6
    assert gaps[2] < 1e-3
    assert gaps[0] == pytest.approx(bound - integer_bound(row, battery=9, peak_power=11)[0])


@pytest.mark.parametrize(("number", "mean"), enumerate(MEANS))
def test_baselines_stand_to_each_other_as_in_the_published_figure(number, mean):
    sequences = draw_arrivals(2_000, mean=mean)
    ours = {
        "greedy": greedy_rates(sequences, peak_power=15).mean(),
        "balanced": balanced_rates(sequences, peak_power=15).mean(),
        "learner": integer_bound(sequences, peak_power=15).mean(),  # where the published learner ends up
    }
    off = [ours[name] - PUBLISHED[name][number] for name in ours]
    assert max(off) - min(off) < 0.4
    assert max(map(abs, off)) < 1.2


@pytest.mark.slow
def test_hundreds_of_convex_bounds_lie_just_above_their_integer_bounds():
    for mean in MEANS:
        sequences = draw_arrivals(500, mean=mean, seed=1)
        gap = convex_bound(sequences, peak_power=15) - integer_bound(sequences, peak_power=15)
        assert gap.min() > -1e-5
        assert 0.005 < gap.mean() < 0.05


@pytest.mark.parametrize("function", [greedy_rates, balanced_rates, integer_bound, convex_bound])
def test_baselines_on_sequences_refuse_what_the_problem_refuses(function):
    for arguments, message in (
        ({"peak_power": -1}, "peak_power is -1"),
        ({"log_base": 1}, "log_base is 1"),
        ({"battery": 1.5}, "battery is 1.5"),
    ):
        with pytest.raises(ProblemError, match=message):
            function([[1, 2, 3]], **arguments)
    with pytest.raises(ProblemError, match=r"arrivals have shape \(0, 3\)"):
        function(np.empty((0, 3)))


def test_a_rule_that_asks_for_more_than_there_is_is_refused_by_the_policy():
    problem = energy_harvesting(arrivals=[1] * 20)
    with pytest.raises(PolicyError, match="not available"):
        Policy.from_rule(compile_model(problem), lambda step, state: sum(state) + 1)
