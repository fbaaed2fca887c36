"""RLSVI: value iteration on counted transitions with random rewards.

Randomised least-squares value iteration (Osband, Van Roy and Wen, 2016), in the tabular form of Russo (2019), explores
by noise in place of a bonus. Before every episode it plans by backward induction (steps count from 0; W_H = 0):

    Q_h(s,a) = min( cap_h, (sum of r - lo and W_{h+1}(s') over the n(s,a) visits) / (n(s,a) + 1) + w ),
    W_h(s)   = max_a Q_h(s,a),    w ~ N(0, sigma^2),    sigma = c span / sqrt(n(s,a) + 1) + cap_h / (n(s,a) + 1),

with fresh noise w for every (h, s, a), rewards in [lo, lo + span] and cap_h = span (H - h). The standard deviation
shrinks like a simplified Bernstein bonus, as in rlberry's implementation; the regret bound of Russo (2019) needs a
larger one, sigma^2 = S H^3 log(2 H S A k) span^2 / (2 (n + 1)) in episode k, and no minimum.

Pairs that were observed to violate or are declared to fail are not chosen if there is another. Like UCBVI it does not
recognise dead ends. The returned policy is the plan on the means, without noise and without the visit added to n; an
untried pair is worth lo at every step.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.jit import loop
from peakrl.learners.base import LearnerSettings, Task
from peakrl.learners.counts import NO_CELL, CountingAlgorithm, TransitionCounts, count_path
from peakrl.learners.episode import Log, Path, note, register
from peakrl.learners.space import planning_order
from peakrl.learners.tables import table
from peakrl.sampling import Words, draw_normal
from peakrl.types import Bytes, Floats, Layout, Longs


class RLSVI(LearnerSettings):
    """Settings of RLSVI."""

    #: c: standard deviation of the noise after one visit, in widths of the reward range.
    noise: float = Field(default=1.0, ge=0)

    def make(self, task: Task) -> RandomisedPlanner:
        """Return the algorithm for a target."""
        return RandomisedPlanner(task, self)


class Tables(NamedTuple):
    """Counted transitions, the latest plan and the random stream."""

    counts: TransitionCounts
    #: [slot, column (+ 1 if steps share slots)]: W.
    w: Annotated[Floats, table("slot", "after")]
    #: [slot, column]: the greedy row.
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    words: Annotated[Words, table(4)]
    #: [row, column]: 1 if declared to fail, which follows from the assumptions.
    forbidden: Annotated[Bytes, table("row", "column", stored=False)]
    #: [slot]: its step, if slots belong to steps.
    slot_step: Annotated[Longs, table("slot", stored=False)]
    #: Slots in the order of planning, last step first; any order if steps share slots.
    order: Longs
    #: 1 if a column is a step, 0 if slots belong to steps.
    shift: int
    #: Lowest reward, width of the reward range, c.
    lowest: float
    span: float
    noise: float


class RandomisedPlanner(CountingAlgorithm[Tables]):
    """Counted transitions, and the plan to follow."""

    place_when_new = 0
    stream = 0x726C737669

    def __init__(self, task: Task, settings: RLSVI) -> None:
        super().__init__(task, Tables, noise=settings.noise)

    def start(self, first: int, first_row: int, log: Log) -> None:
        """Set what planning reads of new slots."""
        if first < self.space.ends:
            self.tables.w[: self.space.ends] = self.end_values()
        self.store.set(order=planning_order(self.space))

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the plan on the means."""
        tables = self.tables
        means = tables._replace(w=tables.w.copy(), greedy=tables.greedy.copy(), words=tables.words.copy())
        plan(means, self.layout, 0.0, Log.of_size(0))
        return means.greedy


@loop
def plan(tables: Tables, layout: Layout, added: float, log: Log) -> None:
    """Plan with noise if `added`, the visits added to every row, is 1; on the means if it is 0."""
    columns, counts = tables.greedy.shape[1], tables.counts
    for back in range(columns):
        column = columns - 1 - back
        for index in range(tables.order.shape[0]):
            slot = tables.order[index]
            step = column if tables.shift == 1 else tables.slot_step[slot]
            cap = tables.span * (layout.horizon - step)
            best, chosen, mildest = -math.inf, -1, layout.row_start[slot]
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                if counts.max_violation[row] > 0.0 or tables.forbidden[row, column] == 1:
                    if counts.max_violation[row] < counts.max_violation[mildest]:
                        mildest = row
                    continue
                total = counts.reward[row] - counts.visits[row] * tables.lowest
                cell = counts.first[row]
                while cell != NO_CELL:
                    total += counts.count[cell] * tables.w[counts.following[cell], column + tables.shift]
                    cell = counts.before[cell]
                n = counts.visits[row] + added
                q = total / max(n, 1.0)
                if added > 0.0:
                    sigma = tables.noise * tables.span / math.sqrt(n) + cap / n
                    q = min(cap, q + sigma * draw_normal(tables.words))
                if q > best:
                    best, chosen = q, row
            if chosen < 0:  # everything is known to fail: value 0, and the least violation
                best, chosen = 0.0, mildest
            tables.w[slot, column] = best
            if tables.greedy[slot, column] != chosen:
                tables.greedy[slot, column] = chosen
                note(log, column * layout.node_stride + slot, chosen)


def plan_with_noise(tables: Tables, layout: Layout, generator: Words, episode: int, log: Log) -> None:
    """Plan before every episode."""
    plan(tables, layout, 1.0, log)


def count_episode(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Count an episode."""
    count_path(tables.counts, path, length)


register(Tables, begin=plan_with_noise, learn=count_episode)
