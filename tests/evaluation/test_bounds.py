"""The bounds on a mean: what a dense search finds, and wrong no more often than they may be at all times together."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.seeds import seeds
from peakrl.evaluation import bounds
from peakrl.evaluation.bounds import betting_interval, lower_mean, upper_mean

LONGEST = 3000
#: Every sample size at first, then ever fewer: a bound is looked at whenever one likes.
LOOKS = sorted({*range(1, 40), *(int(1.12**k) for k in range(33, 71))} - {0})
#: (probability, value) of a draw of at most 1: rare jackpots and catastrophes, a fair coin, nearly always the most.
LOTTERIES = {
    "a rare jackpot": ((0.004, 1.0), (0.996, 0.0)),
    "a rare catastrophe": ((0.99, 1.0), (0.01, -30.0)),
    "a fair coin": ((0.5, 1.0), (0.5, 0.0)),
    "three in ten": ((0.3, 1.0), (0.7, 0.0)),
    "a narrow band far below": ((0.5, -9.0), (0.5, -9.1)),
}


def dense(values, most, failure):
    """The bound by its formula, over a dense grid of nu."""
    count = len(values)
    one, spread = math.log(2 / failure), math.log(2 / failure) + 0.5 * math.log(math.pi * (count + 0.5))
    with np.errstate(divide="ignore"):
        found = [most, most - math.exp(np.log(most - values).mean() - one / count)]
        rooms = np.geomspace(1e-7, 1e4, 3000) * max(most - values.min(), 1e-12)
        found += [most + room - math.exp(np.log(most + room - values).mean() - spread / count) for room in rooms]
    return min(found)


@seeds(5)
def test_the_bound_is_the_least_that_a_dense_search_finds(seed):
    rng = np.random.default_rng(seed)
    count, failure = int(rng.integers(1, 200)), float(rng.choice([0.5, 0.05, 1e-4]))
    draws = [rng.random(count), rng.random(count) < 0.05, rng.random(count) ** 8, np.full(count, 0.25)][seed % 4]
    most = float(rng.choice([1.0, 1.5]))
    values = np.asarray(draws, float)
    # A grid of 3,000 meets the minimum within 1 % in nu, where the bound is flat.
    assert upper_mean(values, most, failure) == pytest.approx(dense(values, most, failure), abs=2e-5)
    assert upper_mean(values, most, failure) <= dense(values, most, failure) + 1e-12


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-6])
def test_the_bound_of_any_number_of_heads_is_the_least_over_nu(failure):
    """Two values have a closed form for each nu; somewhere along the way from 0 to 60 heads the best nu leaves b."""
    count, most = 60, 1.25
    spread = math.log(2 / failure) + 0.5 * math.log(math.pi * (count + 0.5))
    rooms = np.concatenate([[0.0], np.geomspace(1e-9, 1e3, 60_000)])
    prices = np.where(rooms > 0, spread, math.log(2 / failure))
    for heads in range(count + 1):
        logs = (heads * np.log(most + rooms - 1) + (count - heads) * np.log(most + rooms)) / count
        least = float((most + rooms - np.exp(logs - prices / count)).min())
        values = np.repeat([1.0, 0.0], [heads, count - heads])
        assert upper_mean(values, most, failure) == pytest.approx(min(least, most), abs=1e-7), heads


def test_the_best_nu_is_found_in_few_evaluations(monkeypatch):
    """Eleven on average over these samples, twenty at most."""
    evaluations, plain = [], bounds.excess
    monkeypatch.setattr(bounds, "excess", lambda *given: evaluations.append(1) or plain(*given))
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 3000))
        draws = [rng.random(count), rng.random(count) < 0.05, rng.random(count) ** 8, rng.normal(size=count)][seed % 4]
        before = len(evaluations)
        upper_mean(np.asarray(draws, float), float(draws.max()) + rng.choice([0, 1e-3, 1.0]), 0.05)
        assert len(evaluations) - before <= 20
    assert len(evaluations) <= 60 * 11.5


@given(
    values=st.lists(st.floats(-5, 5), min_size=1, max_size=60),
    room=st.sampled_from([0.0, 1e-12, 1.0, 1e6]),
    failure=st.sampled_from([0.9, 0.05, 1e-12]),
    shift=st.sampled_from([0.0, 1e6, -1e6]),
)
def test_bounds_enclose_the_mean_and_stay_in_the_range_and_shift_with_it(values, room, failure, shift):
    sample = np.array(values) + shift
    most, least = float(sample.max()) + room, float(sample.min()) - room
    high, low = upper_mean(sample, most, failure), lower_mean(sample, least, failure)
    rounding = 1e-9 * (1 + abs(shift))
    assert least <= low <= sample.mean() + rounding
    assert sample.mean() - rounding <= high <= most
    moved = upper_mean(sample - shift, most - shift, failure) + shift
    assert high == pytest.approx(moved, abs=1e-6 * (1 + room))


def test_no_episode_tells_nothing_and_none_that_violates_tells_about_three_in_so_many():
    assert upper_mean(np.empty(0), 7.0, 0.05) == 7.0
    # With all zeros the all-in bet is best: b (1 - (d / 2)^(1/n)).
    assert upper_mean(np.zeros(1000), 1.0, 0.1) == pytest.approx(1 - 0.05 ** (1 / 1000), rel=1e-12)


def wrong_at_any_time(lottery, failure, runs, seed):
    """The share of runs in which a bound lies below the mean at any of many looks."""
    (chance, win), (_, lose) = lottery
    mean = chance * win + (1 - chance) * lose
    wins = np.cumsum(np.random.default_rng(seed).random((runs, LONGEST)) < chance, axis=1)[:, np.array(LOOKS) - 1]
    wrong = np.zeros(runs, bool)
    for place, count in enumerate(LOOKS):
        for won in np.unique(wins[:, place]).tolist():
            values = np.repeat([win, lose], [won, count - won])
            if upper_mean(values, 1.0, failure) < mean:
                wrong |= wins[:, place] == won
    return wrong.mean()


RUNS = 2000


@pytest.mark.parametrize("failure", [0.5, 0.2])
def test_over_all_looks_together_a_bound_is_wrong_at_most_as_often_as_it_may_be(failure):
    for seed, (name, lottery) in enumerate(LOTTERIES.items()):
        share = wrong_at_any_time(lottery, failure, RUNS, seed)
        # The seeds are fixed; a share of exactly `failure` would pass 3 standard errors above it once in 700 times.
        assert share <= failure + 3 * math.sqrt(failure * (1 - failure) / RUNS), name


@pytest.mark.parametrize("failure", [0.5, 0.2])
def test_a_bound_that_picks_its_stake_afterwards_and_pays_nothing_for_it_fails_that_test(failure, monkeypatch):
    monkeypatch.setattr(bounds, "log_term", lambda count: -math.log(2))  # log(1/d) alone, for every nu
    share = wrong_at_any_time(LOTTERIES["three in ten"], failure, RUNS, 0)
    assert share > failure + 3 * math.sqrt(failure * (1 - failure) / RUNS)


def by_grid(values, confidence):
    """The interval by its formula, one number after another, over a dense grid of means in (0, 1)."""
    price = 2 / (1 - confidence)

    def least(shares):
        allowed = 1.0
        for mean in np.linspace(0.9995, 0.0005, 1000):
            sure, staked, total, squares = 0.5, 0.5, 0.0, 0.0
            for number, share in enumerate(shares):
                stake = math.sqrt(2 * math.log(price) / (len(shares) * (0.25 + squares) / (number + 1)))
                sure *= share / mean
                staked *= 1 + min(stake, 0.75 / mean) * (share - mean)
                total += share
                squares += (share - (0.5 + total) / (number + 2)) ** 2
            if sure + staked < price:
                allowed = mean
        return allowed

    return least(values), 1 - least([1 - value for value in values])


@seeds(3)
def test_the_interval_of_bets_is_what_its_formula_gives(seed):
    rng = np.random.default_rng(seed)
    values = [rng.random(40), (rng.random(40) < 0.1) * 1.0, rng.random(40) ** 8][seed % 3]
    low, high = betting_interval(3.0 * values - 1.0, -1.0, 2.0, 0.9)
    assert (low, high) == pytest.approx([3 * end - 1 for end in by_grid(values.tolist(), 0.9)], abs=3.1e-3)


@pytest.mark.parametrize("name", LOTTERIES)
def test_the_interval_of_bets_misses_the_mean_no_more_often_than_it_says(name):
    # 200 intervals at 0.95: 10 misses are allowed, and 25 are 4.9 standard deviations more. Student's interval of the
    # rare jackpot misses whenever none is drawn, 110 times of 200.
    lottery, rng = LOTTERIES[name], np.random.default_rng(1)
    chances, prizes = np.transpose(lottery)
    drawn = rng.choice(prizes, size=(200, 150), p=chances)
    ends = [betting_interval(values, prizes.min(), 1.0, 0.95) for values in drawn]
    assert sum(not low <= chances @ prizes <= high for low, high in ends) <= 25
