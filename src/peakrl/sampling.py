"""Random numbers and discrete draws.

The generator is xoshiro256++ (Blackman and Vigna, 2021), seeded through splitmix64 (Steele, Lea and Flood, 2014):
four 64-bit integers are its whole state, so a checkpoint holds it and results do not depend on numpy's release. A
uniform number is the upper 53 bits times 2^-53. A discrete draw uses Walker's alias method with one number: the
integer part of n*u picks a column, the fractional part decides between the column and its alias. If only one
outcome is possible nothing is drawn.

A normal number is drawn by Marsaglia's polar method, a gamma number of shape a >= 1 by Marsaglia and Tsang (2000): with
d = a - 1/3 and c = 1/sqrt(9d),

    v = (1 + c x)^3, x normal;  accept d v if  log u < x^2/2 + d - d v + d log v,  u uniform.

It holds if u < 1 - 0.0331 x^4, so that most draws need no logarithm.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import inlined, loop
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

U64 = np.uint64
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
ALL_BITS = (1 << 64) - 1
TO_UNIT = 1.0 / (1 << 53)
#: Replaces a uniform number of exactly 0, which has no logarithm.
LEAST_UNIFORM = 2.0**-54
SQUEEZE = 0.0331
_11, _17, _19, _23, _41, _45 = (U64(n) for n in (11, 17, 19, 23, 41, 45))

Words = NDArray[np.uint64]


def seed_state(seed: int | np.uint64) -> Words:
    """Return the four words that splitmix64 draws from `seed`; plain Python, since compiling it would take longer."""
    words, x = [], int(seed)
    for _ in range(4):
        x = (x + GOLDEN) & ALL_BITS
        z = ((x ^ (x >> 30)) * MIX_1) & ALL_BITS
        z = ((z ^ (z >> 27)) * MIX_2) & ALL_BITS
        words.append(z ^ (z >> 31))
    return np.array(words, U64)


@inlined
def next_word(state: Words) -> np.uint64:
    """Advance xoshiro256++ and return its next 64 bits."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    total = s0 + s3
    result = ((total << _23) | (total >> _41)) + s0
    shifted = s1 << _17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << _45) | (s3 >> _19)
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3
    return result


@inlined
def uniform(state: Words) -> float:
    """Return a uniform number in [0, 1)."""
    return np.float64(next_word(state) >> _11) * TO_UNIT


@loop
def draw_normal(state: Words) -> float:
    """Return a normal number."""
    while True:
        x = 2.0 * uniform(state) - 1.0
        y = 2.0 * uniform(state) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * math.sqrt(-2.0 * math.log(square) / square)


@loop
def draw_gamma(state: Words, shape: float) -> float:
    """Return a gamma number of unit scale and of a shape of at least 1."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = draw_normal(state)
        root = 1.0 + c * x
        if root > 0.0:
            v = root * root * root
            u = max(uniform(state), LEAST_UNIFORM)
            if u < 1.0 - SQUEEZE * x * x * x * x or math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v


@inlined
def draw_alias(state: Words, accept: Floats, alias: Ints, start: int, size: int) -> int:
    """Return an index in start .. start+size drawn from the alias table there; one of one is not drawn."""
    # Unsigned: a signed index would be checked for being negative.
    index = U64(start)
    if size > 1:
        scaled = uniform(state) * size
        column = np.int64(scaled)
        index += U64(column)
        # Both columns are read before the choice: a branch on it could not be predicted.
        other = U64(alias[index])
        index = index if scaled - column < accept[index] else other
    return np.int64(index)


@inlined
def draw_first(state: Words, sampler: Sampler) -> int:
    """Return the slot in which an episode starts."""
    size = sampler.first_slot.shape[0]
    choice = draw_alias(state, sampler.first_accept, sampler.first_alias, 0, size)
    return np.int64(sampler.first_slot[choice])


@inlined
def draw_outcome(state: Words, layout: Layout, sampler: Sampler, distribution: int) -> int:
    """Return the outcome index drawn from a distribution over next slots."""
    first = U64(distribution)
    start = layout.outcome_start[first]
    size = layout.outcome_start[first + U64(1)] - start
    return draw_alias(state, sampler.accept, sampler.alias, start, size)


def alias_tables(start: Longs, probability: Floats) -> tuple[Floats, Ints]:
    """Return Walker's tables (accept, alias) of the lists that begin at `start`; alias is an absolute index."""
    accept, alias = np.ones(len(probability)), np.arange(len(probability), dtype=np.int32)
    fill_tables(start, probability, accept, alias, *np.empty((2, int(np.diff(start).max(initial=0))), np.int64))
    return accept, alias


@loop
def fill_tables(start: Longs, probability: Floats, accept: Floats, alias: Ints, small: Longs, large: Longs) -> None:
    """Fill the tables by Vose's linear-time construction; `small` and `large` are buffers for a longest list."""
    for d in range(start.shape[0] - 1):
        size = start[d + 1] - start[d]
        smalls, larges = 0, 0
        for o in range(start[d], start[d + 1]):
            accept[o] = probability[o] * size
            if accept[o] < 1.0:
                small[smalls] = o
                smalls += 1
            else:
                large[larges] = o
                larges += 1
        while smalls > 0 and larges > 0:
            smalls -= 1
            poor, rich = small[smalls], large[larges - 1]
            alias[poor] = rich
            accept[rich] -= 1.0 - accept[poor]
            if accept[rich] < 1.0:
                larges -= 1
                small[smalls] = rich
                smalls += 1
        # What is left on either stack is 1 up to rounding; but a column of probability 0 must never be chosen.
        for i in range(larges):
            accept[large[i]] = 1.0
        for i in range(smalls):
            accept[small[i]] = 1.0
