"""Lists that stand one after another in flat arrays, against lists of Python's."""

from __future__ import annotations

import numpy as np

import naive
from helpers.seeds import seeds
from peakrl.ragged import distribution_fault, number_lists, repeated_member
from peakrl.space import read_only


def flat(lists, dtype):
    """Where each list begins, and the members of all."""
    start = np.concatenate(([0], np.cumsum([len(members) for members in lists], dtype=np.int64)))
    return read_only(start), read_only(np.array([member for members in lists for member in members], dtype))


def random_lists(rng, most, draw):
    return [[draw() for _ in range(rng.integers(0, 4))] for _ in range(rng.integers(1, most))]


@seeds(25)
def test_equal_lists_are_numbered_as_by_a_dictionary(seed):
    rng = np.random.default_rng(seed)
    lists = random_lists(rng, 60, lambda: tuple(rng.integers(0, 3, 2).tolist()))
    start, words = flat(lists, np.uint64)
    words = words.reshape(-1, 2)
    number, first = number_lists(np.array(start), words[:, 0].copy(), words[:, 1].copy())
    assert (number.tolist(), first.tolist()) == naive.number_lists(lists)


def test_what_is_no_distribution_is_found():
    for lists in [
        [[0.5, 0.5], [], [0.0, 0.25, 0.75]],
        [[0.5, 0.5], [0.0, 0.25, 0.75], [1.0, 0.0]],
        [[1.0], [-0.5, 1.5]],
        [[0.0, 1.0], [float("nan")]],
        [[0.0, 1.0], [float("inf")]],
        [[1.0], [0.5, 0.6, 0.0], [2.0]],
        [[1.0], [1.0 - 0.9e-9], [1.0 + 0.9e-9], [1.0 + 1.1e-9]],
        [[1.0], [1.0 - 1.1e-9]],
        [],
    ]:
        assert distribution_fault(*flat(lists, np.float64)) == naive.distribution_fault(lists)


@seeds(25)
def test_the_first_member_that_is_named_twice_is_found(seed):
    rng = np.random.default_rng(seed)
    lists = random_lists(rng, 4, lambda: int(rng.integers(0, 7)))
    assert repeated_member(*flat(lists, np.int32), 7) == naive.repeated_member(lists)
