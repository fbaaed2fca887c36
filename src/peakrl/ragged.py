"""Lists of different lengths in flat arrays: numbering equal lists, selecting and checking them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import kernel
from peakrl.space import expand
from peakrl.types import Distributions, Floats, Ints, Longs

Integers = NDArray[np.integer[Any]]

HASH = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(32)
ONE = np.uint64(1)
#: Tolerance of the sum of probabilities.
ROUNDING = 1e-9


@kernel
def number_lists(start: Longs, left: Integers, right: Integers) -> tuple[Ints, Ints]:
    """Number lists of (left, right) integers in the order of their first occurrence; equal lists get the same number.

    Returns [list]: its number, and [number]: its first list. Uses an open-addressing hash table.
    """
    lists = start.shape[0] - 1
    size = 1
    while size < 2 * lists:
        size *= 2
    table = np.full(size, -1, np.int32)
    number = np.empty(lists, np.int32)
    first = np.empty(lists, np.int32)
    count = 0
    for this in range(lists):
        begin, length = start[this], start[this + 1] - start[this]
        place = list_hash(left, right, begin, length) & (size - 1)
        while table[place] >= 0:
            other = first[table[place]]
            if start[other + 1] - start[other] == length and same_words(left, right, begin, start[other], length):
                break
            place = (place + 1) & (size - 1)
        if table[place] < 0:
            table[place] = count
            first[count] = this
            count += 1
        number[this] = table[place]
    return number, first[:count].copy()


@kernel
def list_hash(left: Integers, right: Integers, begin: int, length: int) -> int:
    """Return a non-negative hash of a list."""
    h = np.uint64(length)
    for word in range(begin, begin + length):
        h = (h ^ np.uint64(left[word])) * HASH
        h ^= h >> SHIFT
        h = (h ^ np.uint64(right[word])) * HASH
        h ^= h >> SHIFT
    return np.int64(h >> ONE)


@kernel
def same_words(left: Integers, right: Integers, one: int, other: int, length: int) -> bool:
    """Do two lists of the same length agree?"""
    j = 0
    while j < length and left[one + j] == left[other + j] and right[one + j] == right[other + j]:
        j += 1
    return j == length


def shared_lists(start: Longs, following: Ints, probability: Floats, ends: Sequence[int]) -> Distributions:
    """Store equal next-slot lists once within each range of rows, which end at `ends`."""
    index, stops, members, chances, counts = [], [np.zeros(1, np.int64)], [], [], [0]
    begin = 0
    for end in ends:
        here, own = slice(int(start[begin]), int(start[end])), start[begin : end + 1] - start[begin]
        number, first = number_lists(own, following[here], probability[here].view(np.uint64))
        lists = own[1:], following[here], probability[here]
        if len(first) < len(number):
            sizes = np.diff(own)[first]
            chosen = expand(own[first], sizes)
            lists = np.cumsum(sizes), following[here][chosen], probability[here][chosen]
        index.append(number if counts[-1] == 0 else number + np.int32(counts[-1]))
        stops.append(lists[0] + stops[-1][-1])
        members.append(lists[1])
        chances.append(lists[2])
        counts.append(counts[-1] + len(first))
        begin = end
    return Distributions(joined(index), joined(stops), joined(members), joined(chances), np.array(counts))


def joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays; a single one is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def distribution_fault(start: Longs, probability: Floats) -> tuple[int, int, float, int]:
    """Check that lists are distributions.

    Returns the first member that is not a finite number of at least 0, the first list that does not sum to 1 (-1 if
    there is none) with its sum, and how many members are 0.
    """
    bad = ~((probability >= 0.0) & (probability < np.inf))
    if bad.any():
        return int(np.argmax(bad)), -1, 0.0, 0
    lists, zeros = len(start) - 1, int(np.count_nonzero(probability == 0.0))
    totals = np.bincount(np.repeat(np.arange(lists), np.diff(start)), probability, lists)
    wrong = np.abs(totals - 1.0) > ROUNDING
    if wrong.any():
        row = int(np.argmax(wrong))
        return -1, row, float(totals[row]), zeros
    return -1, -1, 1.0, zeros


@kernel
def repeated_member(start: Longs, member: Ints, members: int) -> int:
    """Return the first position at which a list repeats a member (0 .. members - 1); -1 if none does."""
    latest = np.full(members, -1, np.int64)
    for this in range(start.shape[0] - 1):
        for place in range(start[this], start[this + 1]):
            if latest[member[place]] == this:
                return place
            latest[member[place]] = this
    return -1
