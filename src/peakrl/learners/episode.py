"""Common parts of the episode kernels: the change log, one step on a model, and the record of an episode.

The next slot of a row with a single outcome is `sampler.link`. Otherwise an outcome is drawn; outcome j of the
distribution has the payoff record row_payoff + stride * j, the same for every j if stride is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import inlined
from peakrl.sampling import Words, draw_outcome
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

Changes = tuple[Ints, Ints, Ints]


class Log(NamedTuple):
    """Changes of the behaviour policy: from `episode` on, `node` takes `row`. A log of size 0 keeps nothing."""

    #: [change]
    episode: Ints
    node: Ints
    row: Ints
    #: Number of changes, and the episode from which the next ones hold.
    head: Longs

    @classmethod
    def of_size(cls, size: int) -> Log:
        """Return an empty log."""
        episode, node, row = (np.empty(size, np.int32) for _ in range(3))
        return cls(episode, node, row, np.zeros(2, np.int64))

    def since(self, episode: int) -> Log:
        """Return the log itself, after setting the episode from which the next changes hold."""
        self.head[1] = episode
        return self

    def with_room(self, room: int) -> Log:
        """Return a log with the same changes and room for more: itself if it is large enough."""
        needed = int(self.head[0]) + room
        if len(self.node) >= needed:
            return self
        larger = Log.of_size(2 * needed)
        larger.head[:] = self.head
        for new, old in zip(larger.changes, self.changes, strict=True):
            new[:] = old
        return larger

    def extend(self, nodes: NDArray[Any], rows: NDArray[Any] | int) -> None:
        """Append many changes."""
        if len(self.node):
            begin, end = self.head[0], self.head[0] + len(nodes)
            self.episode[begin:end], self.node[begin:end], self.row[begin:end] = self.head[1], nodes, rows
            self.head[0] = end

    @property
    def changes(self) -> Changes:
        """The changes, as views: episode, node, row."""
        end = self.head[0]
        return self.episode[:end], self.node[:end], self.row[:end]

    def clear(self) -> None:
        """Remove all changes."""
        self.head[0] = 0


@inlined
def note(log: Log, node: int, row: int) -> None:
    """Append a change, unless the log has size 0."""
    if log.node.shape[0] > 0:
        end = log.head[0]
        log.episode[end] = log.head[1]
        log.node[end] = node
        log.row[end] = row
        log.head[0] = end + 1


@inlined
def lacks_room(log: Log, changes: int) -> bool:
    """Return whether so many more changes may not fit into the log."""
    return 0 < log.node.shape[0] < log.head[0] + changes


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
