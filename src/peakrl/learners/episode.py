"""What the episode loops of all learners have in common: one step on a model, and the note of an episode's outcome.

A row that leads to one slot has it as `sampler.link`. Of any other, an outcome is drawn; number j of its distribution
pays by record row_payoff + stride * j, which is the same for every j where stride is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peakrl.jit import inlined
from peakrl.sampling import Words, draw_outcome
from peakrl.types import Floats, Ints, Layout, Longs, Sampler


class Log(NamedTuple):
    """[change]: from `episode` on, `node` takes `row`."""

    episode: Ints
    node: Ints
    row: Ints


@inlined
def take_row(
    generator: Words, layout: Layout, sampler: Sampler, stride: int, row_payoff: Ints, row: int
) -> tuple[int, int]:
    """Return the record of what a row pays this time, and the slot that it leads to."""
    record, following = np.int64(row_payoff[row]), np.int64(sampler.link[row])
    if following < 0:
        distribution = ~following
        outcome = draw_outcome(generator, layout, sampler, distribution)
        record += stride * (outcome - layout.outcome_start[distribution])
        following = np.int64(layout.outcome_next[outcome])
    return record, following


@inlined
def note_episode(experience: Floats, counters: Longs, done: int, k: int, earned: float, violated: float) -> None:
    """Note what episode done+k+1 came to: in the counts of violations and, where anybody asks, in `experience`."""
    if violated > 0.0:
        counters[0] += 1
        counters[1] = done + k + 1
    if experience.shape[0] > 0:
        experience[k, 0] = earned
        experience[k, 1] = violated
