"""What the episodes of a run are reset with: a number made from the run's seed and the episode's, many at a time.

`numpy.random.SeedSequence((seed, episode)).generate_state(1)` for a whole stretch of episodes. It stirs four words of
32 bits: each is scrambled by a multiplier that changes from use to use, then every word is mixed into every other; the
first, scrambled once more, is the number. Arithmetic is modulo 2^32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Episodes whose seeds are made at once.
STRETCH = 256
POOL, HALF, MODULUS = 4, np.uint32(16), 1 << 32
Words = NDArray[np.uint32]


class Scrambler:
    """Scrambles words, every time by another multiplier."""

    def __init__(self, start: int, step: int) -> None:
        self.constant, self.step = start, step

    def __call__(self, word: Words) -> Words:
        before, self.constant = self.constant, self.constant * self.step % MODULUS
        mixed = (word ^ np.uint32(before)) * np.uint32(self.constant)
        return np.asarray(mixed ^ (mixed >> HALF))


def episode_seeds(seed: int, first: int, count: int) -> list[int]:
    """Return what episodes first .. first + count - 1 of a run are reset with."""
    words = [seed % MODULUS] + ([seed >> 32] if seed >= MODULUS else [])
    if first + count > MODULUS or len(words) >= POOL:
        return [int(np.random.SeedSequence((seed, first + k)).generate_state(1)[0]) for k in range(count)]
    entropy = [np.full(count, word, np.uint32) for word in words]
    entropy += [np.arange(first, first + count, dtype=np.uint32)]
    entropy += [np.zeros(count, np.uint32)] * (POOL - len(entropy))
    scramble = Scrambler(0x43B0D7E5, 0x931E8875)
    pool = [scramble(word) for word in entropy]
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                mixed = pool[target] * np.uint32(0xCA01F9DD) - scramble(pool[source]) * np.uint32(0x4973F715)
                pool[target] = mixed ^ (mixed >> HALF)
    seeds: list[int] = Scrambler(0x8B51F9DD, 0x58F38DED)(pool[0]).tolist()
    return seeds


class EpisodeSeeds:
    """The seeds of a run's episodes, made when they are asked for."""

    def __init__(self, seed: int) -> None:
        self.seed, self._first, self._made = seed, 0, list[int]()

    def __getitem__(self, episode: int) -> int:
        if not 0 <= episode - self._first < len(self._made):
            self._first, self._made = episode, episode_seeds(self.seed, episode, STRETCH)
        return self._made[episode - self._first]
