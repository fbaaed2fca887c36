"""What a policy that draws at random has drawn."""

from __future__ import annotations

import numpy as np

from peakrl.errors import PolicyError

Seed = int | np.random.Generator | None


class Draws:
    """What a policy that draws at random has drawn for the episode at hand."""

    def __init__(self) -> None:
        self._generator: np.random.Generator | None = None
        self.episode = 0

    def begin(self, seed: Seed) -> np.random.Generator:
        """Return the generator, made anew where a seed is given."""
        if seed is not None or self._generator is None:
            self._generator = np.random.default_rng(seed)
        return self._generator

    @property
    def generator(self) -> np.random.Generator:
        """The generator that `reset` left."""
        if self._generator is None:
            raise PolicyError("this policy draws at random: call its reset(seed) before an episode, then its action")
        return self._generator
