"""Common parts of the episode kernels: the change log, one step on a model, and the record of an episode.

The next slot of a row with a single outcome is `sampler.link`. Otherwise an outcome is drawn; outcome j of the
distribution has the payoff record row_payoff + stride * j, the same for every j if stride is 0.
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
    """Draw an outcome of a row; return its payoff record and the next slot."""
    record, following = np.int64(row_payoff[row]), np.int64(sampler.link[row])
    if following < 0:
        distribution = ~following
        outcome = draw_outcome(generator, layout, sampler, distribution)
        record += stride * (outcome - layout.outcome_start[distribution])
        following = np.int64(layout.outcome_next[outcome])
    return record, following


@inlined
def note_episode(experience: Floats, counters: Longs, done: int, k: int, earned: float, violated: float) -> None:
    """Record episode done+k+1 in the counts of violations and, unless it is empty, in `experience`."""
    if violated > 0.0:
        counters[0] += 1
        counters[1] = done + k + 1
    if experience.shape[0] > 0:
        experience[k, 0] = earned
        experience[k, 1] = violated


@inlined
def log_change(log: Log, episode: int, node: int, row: int, changes: int) -> int:
    """Log that `node` takes `row` from `episode` on, unless the log is empty; return the new length of the log."""
    if log.node.shape[0] > 0:
        log.episode[changes] = episode
        log.node[changes] = node
        log.row[changes] = row
        changes += 1
    return changes
