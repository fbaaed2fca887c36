"""Energy harvesting: arrivals, the problem, its compiled model, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr

from helpers.seeds import seeds
from naive import Xoshiro, harvest_expectation, harvest_value
from peakrl import PeakError, compile_model, solve
from peakrl.compile import explore
from peakrl.errors import ProblemError
from peakrl.problems import energy_harvesting, fading_channel
from peakrl.problems.harvesting import (
    EnergyHarvesting,
    FrozenArrivals,
    IndependentArrivals,
    MarkovArrivals,
    draw_arrivals,
    integer_bound,
)
from peakrl.problems.harvesting.arrivals import invert, log_normal_below, recorded_sequences, truncated_normal
from peakrl.problems.harvesting.baselines import greedy

MEANS = (8, 9, 10, 11, 12)
#: Peak 15, nats: exact values that the problem is known for.
OPTIMUM = (44.155, 45.753, 47.265, 48.675, 49.967)
GREEDY = (42.421, 44.286, 46.069, 47.742, 49.279)


def random_chain(rng, size):
    """A transition matrix with zeros, and with rows that repeat now and then."""
    matrix = rng.dirichlet(np.ones(size), size) * (rng.random((size, size)) < 0.5) + np.eye(size)[rng.permutation(size)]
    matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix[rng.integers(size, size=size)] if rng.random() < 0.3 else matrix


# Arrivals -----------------------------------------------------------------------------------------------------


def test_the_arrival_law_is_a_truncated_normal_that_is_then_rounded():
    for mean, std, top in [(10, 5, 20), (8.3, 2, 20), (0, 1, 3), (-4, 3, 6), (45, 4, 20), (2.5, 0.01, 9)]:
        normal = stats.truncnorm((0 - mean) / std, (top - mean) / std, mean, std)
        edges = np.clip(np.arange(top + 2) - 0.5, 0, top)
        np.testing.assert_allclose(truncated_normal(mean, std, top), np.diff(normal.cdf(edges)), atol=1e-9)


def test_the_logarithm_of_the_normal_law_is_scipys():
    places = np.concatenate([np.linspace(-200, 9, 2001), -np.logspace(0, 300, 61), [-30.0, -1.0, -np.inf, np.inf]])
    found = [log_normal_below(x) for x in places.tolist()]
    np.testing.assert_allclose(found, log_ndtr(places), rtol=3e-14)


@pytest.mark.parametrize(("mean", "std"), [(1e6, 1e-3), (-1e6, 1e-3), (10, 1e-300), (10, 1e300)])
def test_extreme_means_and_deviations_still_give_probabilities(mean, std):
    law = truncated_normal(mean, std, 20)
    assert law.sum() == pytest.approx(1)
    likely = {1e6: [20], -1e6: [0], 10: [10] if std < 1 else range(21)}[mean]
    assert law[list(likely)].sum() == pytest.approx(1)


def test_a_very_wide_normal_is_uniform_but_for_the_half_intervals_at_the_ends():
    for std in (1e5, 1e14):
        np.testing.assert_allclose(truncated_normal(10, std, 20), [1 / 40] + [1 / 20] * 19 + [1 / 40], rtol=1e-8)
    # Where the formula for narrow intervals takes over the law does not jump.
    for std in (500, 1000):
        below, above = (truncated_normal(10, std * factor, 20) for factor in (1 - 1e-9, 1 + 1e-9))
        np.testing.assert_allclose(below, above, rtol=1e-10)


def test_arrivals_are_drawn_by_inverting_the_law_at_the_generators_uniform_numbers():
    law = truncated_normal(9, 4, 12)
    generator = Xoshiro(77)
    twin = [
        [
            next(e for e, total in enumerate(np.cumsum(law)) if total > u)
            for u in (generator.uniform() for _ in range(5))
        ]
        for _ in range(40)
    ]
    np.testing.assert_array_equal(draw_arrivals(40, horizon=5, mean=9, std=4, max_arrival=12, seed=77), twin)


def test_a_uniform_number_on_a_step_of_the_law_belongs_to_the_next_arrival_that_is_possible():
    law = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    np.testing.assert_array_equal(invert(law, np.array([0.0, 0.25, 0.5, 1 - 2.0**-53])), [1, 1, 3, 3])


def test_a_seed_gives_the_same_sequence_for_ever():
    expected = (8, 9, 8, 1, 10, 1, 15, 15, 7, 3, 8, 3, 4, 4, 3, 9, 12, 4, 8, 9)
    assert energy_harvesting(arrivals="frozen").arrivals.sequence == expected


def test_a_sequence_does_not_depend_on_how_many_are_drawn_and_the_first_is_the_frozen_one():
    many = draw_arrivals(50, seed=3)
    np.testing.assert_array_equal(draw_arrivals(7, seed=3), many[:7])
    assert energy_harvesting(arrivals="frozen", seed=3).arrivals.sequence == tuple(many[0])
    assert (draw_arrivals(1, seed=4)[0] != many[0]).any()


def test_drawn_arrivals_follow_their_law():
    counts = np.bincount(draw_arrivals(5_000, seed=1).ravel(), minlength=21)
    assert stats.chisquare(counts, truncated_normal(10, 5, 20) * 100_000).pvalue > 1e-3


def test_markov_arrivals_follow_their_matrix_and_first_law():
    chain = MarkovArrivals([[0.2, 0.8, 0.0], [0.5, 0.0, 0.5], [0.1, 0.2, 0.7]], [0.3, 0.0, 0.7])
    drawn = chain.draw(20_000, 6, seed=2)
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=3) / len(drawn), chain.initial, atol=0.02)
    for before in range(3):
        after = drawn[:, 1:][drawn[:, :-1] == before]
        np.testing.assert_allclose(np.bincount(after, minlength=3) / len(after), chain.matrix[before], atol=0.02)


# The problem --------------------------------------------------------------------------------------------------


def test_a_step_follows_the_formulas():
    problem = energy_harvesting(horizon=2, battery=5, peak_power=3, arrivals=[4, 2])
    assert list(problem.initial()) == [(1.0, (0, 4))]
    assert list(problem.actions(1, (3, 2))) == [0, 1, 2, 3, 4, 5]
    (outcome,) = problem.outcomes(0, (4, 4), 1)
    assert outcome == (1.0, (5, 2), 1.0, (2.0,))  # two units are lost; log2(1 + 1) = 1; 3 - 1 = 2
    (outcome,) = problem.outcomes(0, (4, 4), 7)
    assert outcome == (1.0, (1, 2), 3.0, (-4.0,))


def test_nats_are_bits_times_the_logarithm_of_two():
    bits, nats = energy_harvesting(), energy_harvesting(log_base=math.e)
    np.testing.assert_allclose(nats.rates, np.array(bits.rates) * math.log(2), rtol=1e-14)
    assert bits.reward_range == (0.0, math.log2(41))
    assert bits.constraint_bounds == (32.0,)
    assert energy_harvesting(peak_power=35).constraint_bounds == (35.0,)


@pytest.mark.parametrize(("mean", "best", "naive_greedy"), zip(MEANS, OPTIMUM, GREEDY, strict=True))
def test_random_arrivals_have_the_known_values_at_peak_15(mean, best, naive_greedy):
    problem = energy_harvesting(peak_power=15, mean=mean, log_base=math.e)
    assert solve(compile_model(problem)).value == pytest.approx(best, abs=6e-4)
    assert harvest_expectation(problem, greedy(problem)) == (pytest.approx(naive_greedy, abs=6e-4), 0.0)
    assert harvest_value(problem.arrivals.probabilities, 20, 20, 15, max) == pytest.approx(best, abs=6e-4)


def test_random_arrivals_have_the_known_value_at_peak_8_and_greedy_reaches_it():
    problem = energy_harvesting(log_base=math.e)
    solution = solve(compile_model(problem))
    assert solution.value == pytest.approx(43.507, abs=5e-4)
    assert solution.feasible
    assert harvest_expectation(problem, greedy(problem))[0] == pytest.approx(solution.value, abs=1e-9)


def same_model(problem):
    fast, slow = compile_model(problem), explore(problem)
    assert fast.digest == slow.digest
    assert list(fast.state_labels) == list(slow.state_labels)
    assert list(fast.action_labels) == list(slow.action_labels)
    assert (fast.name, fast.stationary) == (slow.name, slow.stationary)
    for left, right in zip((*fast.layout, *fast.payoffs), (*slow.layout, *slow.payoffs), strict=True):
        assert np.asarray(left).dtype == np.asarray(right).dtype
    return fast


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"arrivals": "frozen"},
        {"arrivals": "frozen", "horizon": 1},
        {"horizon": 1},
        {"horizon": 3, "battery": 50, "max_arrival": 7},
        {"mean": 9.5, "std": 0.05, "battery": 7},
        {"arrivals": [0] * 20},
        {"arrivals": [20] * 25, "battery": 0, "log_base": math.e},
        {"battery": 0, "max_arrival": 0, "peak_power": 0},
        {"peak_power": 2.5, "battery": 3, "max_arrival": 4},
    ],
)
def test_the_model_is_that_of_the_search_state_by_state(arguments):
    same_model(energy_harvesting(**arguments))


@seeds(25)
def test_the_models_of_random_chains_and_sequences_are_those_of_the_search(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 5))
    sizes = {"horizon": int(rng.integers(1, 6)), "battery": int(rng.integers(0, 8)), "max_arrival": 6}
    same_model(energy_harvesting(arrivals=(random_chain(rng, size), rng.dirichlet(np.ones(size))), **sizes))
    same_model(energy_harvesting(arrivals=(random_chain(rng, size), int(rng.integers(size))), **sizes))
    same_model(energy_harvesting(arrivals=rng.integers(0, 7, size=8), **sizes))


def test_a_chain_that_never_comes_back_is_stored_layer_by_layer():
    onward = np.eye(6, k=1)
    onward[5, 5] = 1
    assert not same_model(energy_harvesting(arrivals=(onward, 0), horizon=5)).stationary
    assert same_model(energy_harvesting(arrivals=(onward, 0), horizon=8)).stationary


def test_models_hold_only_what_differs():
    assert len(compile_model(energy_harvesting()).outcome_next) == 441
    frozen = compile_model(energy_harvesting(arrivals="frozen"))
    assert frozen.deterministic
    assert frozen.num_slots == len(frozen.outcome_next) + 1


@pytest.mark.parametrize("arguments", [{}, {"arrivals": "frozen"}, {"max_arrival": 3000}])
def test_a_model_beyond_the_memory_limit_is_refused_before_it_is_built(arguments):
    problem = energy_harvesting(battery=10_000, **arguments)
    with pytest.raises(ProblemError, match=r"at least .* states .* memory_limit"):
        compile_model(problem, memory_limit=1e6)


def test_equal_arguments_give_equal_problems():
    chain = ([[0.5, 0.5], [1.0, 0.0]], 1)
    for arrivals in ("random", "frozen", [3] * 20, chain):
        first, second = (energy_harvesting(arrivals=arrivals) for _ in range(2))
        assert first == second
        assert hash(first) == hash(second)
    assert energy_harvesting(arrivals=chain) == energy_harvesting(arrivals=MarkovArrivals(*chain))
    assert energy_harvesting(peak_power=8) != energy_harvesting(peak_power=9)


def test_whole_numbers_may_come_as_numpy_numbers_or_floats_and_only_the_horizon_counts():
    plain = energy_harvesting(horizon=3, arrivals=[1, 2, 3])
    assert energy_harvesting(horizon=np.int64(3), battery=20.0, arrivals=np.array([1.0, 2.0, 3.0, 9.0])) == plain
    assert energy_harvesting(horizon=2, arrivals=(1, 2)).arrivals == FrozenArrivals((1, 2))
    assert energy_harvesting(horizon=3, arrivals=np.array([1, 2, 3], np.uint8)) == plain


# What is refused ----------------------------------------------------------------------------------------------

GOOD = [[0.5, 0.5], [0.25, 0.75]]


BAD_INPUT = [
    ({"arrivals": [1] * 5 + [2.5] + [1] * 14}, r"arrivals\[5\] is 2.5; it must be a whole number of at least 0"),
    ({"arrivals": [1] * 19 + [-1]}, r"arrivals\[19\] is -1"),
    ({"arrivals": [21] + [1] * 19}, r"arrivals\[0\] is 21; .*max_arrival"),
    ({"arrivals": [1] * 19}, "arrivals hold 19 steps; a horizon of 20"),
    ({"arrivals": np.ones((3, 20))}, r"arrivals have shape \(3, 20\); a problem replays one sequence"),
    ({"arrivals": None}, "arrivals must be an array of whole numbers"),
    ({"arrivals": [[1, 2], [3]]}, "rows of equal length"),
    ({"arrivals": "frosen"}, 'arrivals is \'frosen\'; it must be "random", "frozen"'),
    ({"arrivals": ([[0.5, 0.5], [0.5, 0.6]], 0)}, r"arrivals: matrix\[1\]: its probabilities sum to 1.1"),
    (
        {"arrivals": ([[0.5, 0.5], [1.5, -0.5]], 0)},
        r"arrivals: matrix\[1\]\[1\] is -0.5; it must be a finite number of at least 0",
    ),
    ({"arrivals": ([[0.5, 0.5]], 0)}, r"arrivals: matrix\[0\] holds 2 numbers; it must hold 1"),
    ({"arrivals": (GOOD, [1.0])}, "arrivals: first holds 1 numbers; it must hold 2"),
    ({"arrivals": (GOOD, [0.5, 0.4])}, "arrivals: first: its probabilities sum to 0.9"),
    ({"arrivals": (GOOD, 2)}, "arrivals: first is 2; it must be a whole number from 0 to 1"),
    ({"arrivals": (GOOD, 0), "max_arrival": 0}, "arrivals go up to 1; max_arrival is 0"),
    ({"peak_power": -1}, "peak_power is -1; it must be a finite number of at least 0"),
    ({"log_base": 1}, "log_base is 1; it must be a finite number above 1"),
    ({"battery": -1}, "battery is -1; it must be a whole number from 0 to 1,000,000"),
    ({"horizon": 0}, "horizon is 0; it must be a whole number from 1 to 1,000,000"),
    ({"max_arrival": -1}, "max_arrival is -1"),
    ({"std": 0}, "std is 0; it must be a finite number above 0"),
    ({"mean": math.nan}, "mean is nan; it must be a finite number"),
    ({"mean": 1e300}, r"mean is 1e\+300 and std 5: .* has no mass on 0..20"),
    ({"seed": -1}, "seed is -1"),
]


def test_bad_input_is_refused_with_its_name_and_position():
    for arguments, message in BAD_INPUT:
        with pytest.raises(ProblemError, match=message):
            energy_harvesting(**arguments)


def test_recorded_sequences_name_the_row_and_step_of_a_bad_number():
    sequences = np.full((4, 20), 3.0)
    sequences[2, 17] = 0.5
    with pytest.raises(PeakError, match=r"arrivals\[2, 17\] is 0.5"):
        recorded_sequences(sequences, horizon=20, max_arrival=20)
    with pytest.raises(PeakError, match=r"arrivals\[2, 17\] is 0.5"):
        integer_bound(sequences)
    sequences[2, 17] = 4
    assert recorded_sequences(sequences, horizon=12, max_arrival=20).shape == (4, 12)
    with pytest.raises(PeakError, match=r"arrivals have shape \(1, 4, 20\)"):
        recorded_sequences(sequences[None], horizon=20, max_arrival=20)


def test_a_problem_built_by_hand_is_checked_too():
    arrivals = IndependentArrivals((0.5, 0.5))
    assert EnergyHarvesting(arrivals, horizon=2, battery=1, max_arrival=1).stationary
    with pytest.raises(ProblemError, match=r"probabilities: its probabilities sum to 0\.75"):
        IndependentArrivals((0.5, 0.25))
    with pytest.raises(ProblemError, match="arrivals hold 2 steps"):
        EnergyHarvesting(FrozenArrivals((1, 2)), horizon=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        energy_harvesting().horizon = 3


def test_a_problem_shows_its_arrivals_without_their_table():
    assert "arrivals=<IndependentArrivals: 0 to 20, mean 10>, horizon=20" in repr(energy_harvesting())
    assert repr(MarkovArrivals([[0.5, 0.5], [0.0, 1.0]], 0)) == "<MarkovArrivals: 0 to 1>"


def test_a_transmitter_without_an_end():
    """One unit arrives at each step: by concavity no rate is above log2(2) on average, also with a battery."""
    steady = energy_harvesting(horizon=None, battery=3, arrivals=([[0, 1], [0, 1]], [0, 1]))
    assert solve(steady, average=True).value == pytest.approx(1.0, abs=1e-9)
    for problem in (steady, energy_harvesting(horizon=None, battery=4, max_arrival=3, mean=1, std=2)):
        assert compile_model(problem).digest == explore(problem).digest
    assert solve(fading_channel(horizon=None, battery=2, max_arrival=2), average=True).feasible
    for arrivals in ("frozen", [1, 2]):
        with pytest.raises(ProblemError, match="a sequence end"):
            energy_harvesting(horizon=math.inf, arrivals=arrivals)
