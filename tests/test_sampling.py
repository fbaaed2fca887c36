import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import naive
from peakrl.sampling import alias_tables, draw_alias, next_word, seed_state, uniform
from peakrl.space import frozen

#: Published with the generators: splitmix64.c from the seed 1234567, xoshiro256plusplus.c from the state 1, 2, 3, 4.
SPLITMIX = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
XOSHIRO = [
    41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205,
    9973669472204895162, 14011001112246962877, 12406186145184390807, 15849039046786891736, 10450023813501588000,
]  # fmt: skip

words = st.integers(0, 2**64 - 1)
#: Compiling takes its time on the first call.
patient = settings(deadline=None)


def test_the_seeding_gives_the_published_numbers_of_splitmix64():
    assert seed_state(np.uint64(1234567)).tolist() == SPLITMIX


def test_the_generator_gives_the_published_numbers_of_xoshiro256plusplus():
    state = np.array([1, 2, 3, 4], np.uint64)
    assert [int(next_word(state)) for _ in XOSHIRO] == XOSHIRO


@patient
@given(words)
def test_any_seed_gives_the_numbers_of_plain_integer_arithmetic(seed):
    state, twin = seed_state(np.uint64(seed)), naive.Xoshiro(seed)
    assert [uniform(state) for _ in range(20)] == [twin.uniform() for _ in range(20)]
    assert state.tolist() == twin.state


def test_uniform_numbers_end_at_0_and_just_below_1():
    """The next word is rotl(s0 + s3, 23) + s0: all zeros and all ones where s0 is 0 and s3 is that."""
    assert uniform(np.array([0, 1, 2, 0], np.uint64)) == 0.0
    assert uniform(np.array([0, 1, 2, 2**64 - 1], np.uint64)) == 1.0 - 2.0**-53


def tables(start, probability):
    """Alias tables of read-only arrays, as models have them: the kernel is compiled for these already."""
    return alias_tables(frozen(start, np.int64), frozen(probability, np.float64))


def split(sizes, drawn):
    """Distributions of the given sizes out of a stretch of positive numbers, one after the other."""
    start = np.concatenate([[0], np.cumsum(sizes)])
    probability = np.concatenate([drawn[a:b] / drawn[a:b].sum() for a, b in itertools.pairwise(start)])
    return start.astype(np.int64), probability


@patient
@given(st.lists(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=12), min_size=1, max_size=6))
def test_alias_tables_hold_exactly_the_probabilities_they_were_made_from(lists):
    start, probability = split([len(part) for part in lists], np.concatenate(lists))
    accept, alias = tables(start, probability)
    rebuilt = np.zeros(len(probability))
    for first, last in itertools.pairwise(start):
        for column in range(first, last):
            rebuilt[column] += accept[column] / (last - first)
            rebuilt[alias[column]] += (1.0 - accept[column]) / (last - first)
            assert first <= alias[column] < last
    assert ((accept >= 0) & (accept <= 1)).all()
    assert rebuilt == pytest.approx(probability, abs=1e-14)


def test_draws_follow_their_distribution():
    """Chi-square at 0.001 with fixed seeds: of six checks none is expected to fail, and none does."""
    for size in (1, 2, 3, 7, 21, 100):
        probability = np.random.default_rng(size).dirichlet(np.full(size, 3.0))
        start = np.array([0, size], np.int64)
        accept, alias = tables(start, probability)
        state = seed_state(np.uint64(size))
        counts = np.bincount([draw_alias(state, accept, alias, 0, size) for _ in range(40_000)], minlength=size)
        if size == 1:
            assert counts.tolist() == [40_000]
        else:
            assert stats.chisquare(counts, probability * 40_000).pvalue > 0.001


def test_a_single_outcome_draws_no_number():
    state = seed_state(np.uint64(5))
    before = state.copy()
    assert draw_alias(state, np.ones(4), np.zeros(4, np.int32), 3, 1) == 3
    assert np.array_equal(state, before)


def test_an_outcome_of_tiny_probability_is_not_promoted_by_rounding():
    """Leftovers of the construction are set to 1: none of them may be a column that hardly ever comes up."""
    for size in (2, 3, 5, 33, 100):
        probability = np.full(size, (1.0 - 1e-300) / (size - 1))
        probability[size // 2] = 1e-300
        accept, alias = tables(np.array([0, size], np.int64), probability)
        assert accept[size // 2] < 1e-290
        assert not np.isin(size // 2, alias[np.arange(size) != size // 2][accept[np.arange(size) != size // 2] < 1.0])
