import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from peakrl.errors import SettingsError
from peakrl.evaluation.statistics import (
    clopper_pearson,
    episodes_to_reach,
    improvement_probability,
    interquartile_mean,
    mean_interval,
)

numbers = st.floats(-1e6, 1e6)
#: Scipy's modules are loaded on the first call; few examples, since each draws many resamples.
patient = settings(max_examples=50)


@patient
@given(st.integers(1, 2000), st.floats(0.5, 0.9999))
def test_without_successes_the_exact_interval_has_its_closed_form(trials, confidence):
    bound = 1 - ((1 - confidence) / 2) ** (1 / trials)
    assert clopper_pearson(0, trials, confidence) == pytest.approx((0.0, bound), rel=1e-9)
    assert clopper_pearson(trials, trials, confidence) == pytest.approx((1 - bound, 1.0), rel=1e-9)


@patient
@given(st.integers(1, 300), st.data())
def test_at_the_ends_of_the_exact_interval_the_tails_are_half_of_the_rest(trials, data):
    successes = data.draw(st.integers(1, trials))
    low, high = clopper_pearson(successes, trials, 0.9)
    assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(0.05, rel=1e-6)
    if successes < trials:
        assert stats.binom.cdf(successes, trials, high) == pytest.approx(0.05, rel=1e-6)


def test_the_exact_interval_covers_the_truth_at_least_as_often_as_it_says():
    for p in (0.003, 0.1, 0.37, 0.5, 0.98):
        covered = sum(
            stats.binom.pmf(x, 40, p)
            for x in range(41)
            if clopper_pearson(x, 40, 0.95).low <= p <= clopper_pearson(x, 40, 0.95).high
        )
        assert covered >= 0.95


def test_the_interval_of_the_mean_of_two_values_has_its_closed_form():
    """Student's t with one degree of freedom is the Cauchy distribution, with quantile tan(pi (q - 1/2))."""
    low, high = mean_interval([1.0, 3.0], 0.95)
    half = math.tan(math.pi * (0.975 - 0.5)) * math.sqrt(2.0) / math.sqrt(2.0)
    assert (low, high) == pytest.approx((2.0 - half, 2.0 + half))


@patient
@given(st.lists(numbers, min_size=3, max_size=30), st.floats(0.5, 0.999))
def test_the_interval_of_the_mean_is_that_of_the_t_test(values, confidence):
    if np.ptp(values) < 1e-3:
        return
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    assert mean_interval(values, confidence) == pytest.approx(tuple(expected), rel=1e-6, abs=1e-6)


def test_equal_values_leave_no_doubt_about_their_mean():
    assert mean_interval([2.5] * 10) == (2.5, 2.5)


@patient
@given(st.lists(numbers, min_size=1, max_size=40))
def test_the_interquartile_mean_is_scipys_trimmed_mean(values):
    estimate = interquartile_mean(values, resamples=5)
    assert estimate.value == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


def test_the_interquartile_mean_ignores_outliers_in_either_outer_quarter():
    assert interquartile_mean([1e9, 1, 2, 3, 4, 5, 6, -1e9]).value == pytest.approx(3.5)


def test_the_bootstrap_interval_is_reproducible_and_narrows_with_more_runs():
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=20), rng.normal(size=400)
    estimate = interquartile_mean(few)
    assert estimate == interquartile_mean(few)
    assert estimate.low < estimate.value < estimate.high
    wide, narrow = (e.high - e.low for e in (estimate, interquartile_mean(many)))
    assert narrow < wide / 3  # sqrt(20) = 4.5 times as narrow, give or take


def test_the_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    """200 samples of 30 standard normal numbers: a share of 0.9 has a standard deviation of 0.02."""
    rng = np.random.default_rng(1)
    estimates = [interquartile_mean(rng.normal(size=30), confidence=0.9, resamples=300) for _ in range(200)]
    assert 0.82 <= np.mean([e.low <= 0.0 <= e.high for e in estimates]) <= 0.97


@patient
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_the_probability_of_improvement_is_mann_and_whitneys_u(better, worse):
    estimate = improvement_probability(better, worse, resamples=5)
    expected = stats.mannwhitneyu(better, worse).statistic / (len(better) * len(worse))
    assert estimate.value == pytest.approx(expected)
    assert 0.0 <= estimate.low <= estimate.high <= 1.0


@patient
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.5, 0.999))
def test_runs_that_are_all_better_leave_the_doubt_of_an_exact_binomial_interval(count, others, confidence):
    """Pair them off: k successes of k independent trials say as much, and (a/2)^(1/k) is Clopper and Pearson's end."""
    better, worse = np.arange(count) + 100.0, np.arange(others)
    end = clopper_pearson(min(count, others), min(count, others), confidence).low
    assert improvement_probability(better, worse, confidence=confidence, resamples=5) == pytest.approx((1, end, 1))
    assert improvement_probability(worse, better, confidence=confidence, resamples=5) == pytest.approx((0, 0, 1 - end))


def test_runs_that_are_all_equal_leave_the_doubt_of_an_exact_binomial_interval():
    # At least this share of pairs is tied, and the others are all above or all below.
    tied = clopper_pearson(10, 10, 0.95).low
    expected = (0.5, tied / 2, 1 - tied / 2)
    assert improvement_probability([1.0] * 10, [1.0] * 10) == pytest.approx(expected)


@pytest.mark.parametrize(("count", "p"), [(1, 0.02), (2, 0.3), (3, 0.5), (5, 0.7), (3, 0.9), (5, 0.97)])
def test_the_probability_of_improvement_of_few_runs_is_covered_as_often_as_promised(count, p):
    """Runs that succeed with probability p, against sure halves and against runs alike: all that can happen."""
    chance = [stats.binom.pmf(x, count, p) for x in range(count + 1)]
    runs = [[1.0] * x + [0.0] * (count - x) for x in range(count + 1)]
    against_half = [improvement_probability(mine, [0.5] * count) for mine in runs]
    assert sum(c for c, e in zip(chance, against_half, strict=True) if e.low <= p <= e.high) >= 0.95
    covered = 0.0
    for mine, c in zip(runs, chance, strict=True):
        for other, d in zip(runs, chance, strict=True):
            estimate = improvement_probability(mine, other)
            covered += c * d * (estimate.low <= 0.5 <= estimate.high)
    assert covered >= 0.95


def test_with_many_runs_the_probability_of_improvement_is_as_sure_as_the_bootstrap():
    rng = np.random.default_rng(2)
    better, worse = rng.normal(0.5, size=200), rng.normal(size=150)
    estimate = improvement_probability(better, worse)
    assert estimate.low < stats.norm.cdf(0.5 / math.sqrt(2)) < estimate.high
    assert estimate.high - estimate.low < 0.13


def test_the_interval_of_the_probability_of_improvement_mirrors_with_the_sides():
    few, more = [1.0, 4.0, 5.0], [2.0, 3.0, 4.0, 0.0]
    one, other = improvement_probability(few, more), improvement_probability(more, few)
    assert one.low < one.value < one.high
    assert other == pytest.approx((1 - one.value, 1 - one.high, 1 - one.low))


def test_single_runs_give_a_point_and_compared_they_say_next_to_nothing():
    assert interquartile_mean([3.0]) == (3.0, 3.0, 3.0)
    assert improvement_probability([2.0], [1.0]) == pytest.approx((1.0, 0.025, 1.0))


def test_the_episodes_to_reach_a_tolerance_count_only_if_it_is_kept():
    episodes = [1, 10, 100, 1000, 10000]
    assert episodes_to_reach(episodes, [5.0, 0.1, 3.0, 0.5, 0.2], 0.5) == 1000
    assert episodes_to_reach(episodes, [0.5, 0.1, 0.3, 0.5, 0.2], 0.5) == 1
    assert episodes_to_reach(episodes, [0.5, 0.1, 0.3, 0.5, 0.6], 0.5) is None


@patient
@given(st.lists(st.integers(0, 3), min_size=1, max_size=15), st.integers(0, 3))
def test_the_episode_reached_is_the_first_with_all_later_distances_within_tolerance(distance, tolerance):
    reached = episodes_to_reach(range(len(distance)), distance, tolerance)
    if reached is None:
        assert distance[-1] > tolerance
    else:
        assert max(distance[reached:]) <= tolerance
        assert reached == 0 or distance[reached - 1] > tolerance


@pytest.mark.parametrize(
    ("call", "culprit"),
    [
        (lambda: clopper_pearson(5, 4), "successes are 5 of 4"),
        (lambda: clopper_pearson(0, 0), "trials"),
        (lambda: clopper_pearson(1, 4, 1.5), "confidence"),
        (lambda: mean_interval([1.0]), "values"),
        (lambda: mean_interval([1.0, math.nan]), "number 1 is nan"),
        (lambda: mean_interval([[1.0, 2.0]]), "values have shape"),
        (lambda: interquartile_mean([]), "values"),
        (lambda: interquartile_mean([1.0, 2.0], resamples=0), "resamples"),
        (lambda: interquartile_mean([1.0, 2.0], seed=-1), "seed"),
        (lambda: improvement_probability([1.0], []), "worse"),
        (lambda: improvement_probability([math.inf], [1.0]), "better"),
        (lambda: episodes_to_reach([1, 2], [0.1], 0.5), "2 episodes for 1"),
        (lambda: episodes_to_reach([2, 1], [0.1, 0.1], 0.5), "increasing"),
        (lambda: episodes_to_reach([1], [0.1], math.nan), "tolerance"),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, culprit):
    with pytest.raises(SettingsError, match=culprit):
        call()
