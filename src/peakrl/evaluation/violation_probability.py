"""The probability that an episode violates anything, as an expected total of another process.

That process is the model stopped at its first violation. A row pays the probability that it violates, and leads on
only in outcomes that do not:

* a row that never violates keeps its distribution over next slots,
* one that always does leads nowhere: a distribution without outcomes,
* one that does in some outcomes only (payoffs may depend on them) gets a distribution of its own with the others.

What a policy is paid there in an episode is P(some f_i < 0 at some step). It is a sum of first violations, not a
difference from 1, so that a policy that never violates gets exactly 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peakrl.space import expand, frozen, starts_of
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Layout, Longs


def stopped_at_violation(model: TabularModel) -> tuple[Layout, Floats]:
    """Return the layout of the stopped process, and the probability that a row violates, [row]."""
    layout = model.layout
    violates: NDArray[np.bool_] = np.any(model.payoffs.constraints < 0, axis=1)
    probability = model.row_means(violates.astype(np.float64))
    always = model.row_means((~violates).astype(np.float64)) == 0.0
    some = np.flatnonzero(~always & (probability > 0.0))
    kept, kept_sizes = harmless_outcomes(model, some, violates)
    # Each new distribution is a stretch of a pool: the old outcomes, then those kept of the rows `some`.
    pool_next = np.concatenate([layout.outcome_next, layout.outcome_next[kept]])
    pool_probability = np.concatenate([layout.outcome_probability, layout.outcome_probability[kept]])
    old_sizes = np.diff(layout.outcome_start)
    blocks, old_block, row_block = blocks_of(layout)
    nowhere = np.zeros(blocks, np.int64)
    sizes = np.concatenate([old_sizes, kept_sizes, nowhere])
    starts = np.concatenate([starts_of(np.concatenate([old_sizes, kept_sizes]))[:-1], nowhere])
    # A step's distributions must stand together: sort by block, old ones first.
    block = np.concatenate([old_block, row_block[some], np.arange(blocks)])
    order = np.argsort(block, kind="stable")
    index = np.argsort(order)
    row_distribution = index[layout.row_distribution]
    row_distribution[some] = index[len(old_sizes) + np.arange(len(some))]
    row_distribution[always] = index[len(old_sizes) + len(some) + row_block[always]]
    source = expand(starts[order], sizes[order])
    ends = starts_of(np.bincount(block, minlength=blocks))
    ranges = np.stack([ends[:-1], ends[1:]], axis=1)
    stopped = layout._replace(
        step_distributions=frozen(np.resize(ranges, (layout.horizon, 2)), np.int64),
        row_distribution=frozen(row_distribution, np.int32),
        outcome_start=frozen(starts_of(sizes[order]), np.int64, own=True),
        outcome_next=frozen(pool_next[source], np.int32),
        outcome_probability=frozen(pool_probability[source], np.float64),
    )
    return stopped, np.where(always, 1.0, probability)


def harmless_outcomes(model: TabularModel, rows: Longs, violates: NDArray[np.bool_]) -> tuple[Longs, Longs]:
    """Return the outcomes of `rows` that do not violate, row after row, and how many each row has."""
    layout = model.layout
    d = layout.row_distribution[rows]
    sizes = layout.outcome_start[d + 1] - layout.outcome_start[d]
    outcomes = expand(layout.outcome_start[d], sizes)
    within = outcomes - np.repeat(layout.outcome_start[d], sizes)
    harmless = ~violates[np.repeat(model.payoffs.row_payoff[rows], sizes) + model.payoffs.stride * within]
    owner = np.repeat(np.arange(len(rows)), sizes)
    return outcomes[harmless], np.bincount(owner[harmless], minlength=len(rows))


def blocks_of(layout: Layout) -> tuple[int, Longs, Longs]:
    """Return how many sets of distributions there are (one where all steps share them), and each one's and row's."""
    rows, distributions = len(layout.row_distribution), len(layout.outcome_start) - 1
    if layout.node_stride:
        return 1, np.zeros(distributions, np.int64), np.zeros(rows, np.int64)
    steps = np.arange(layout.horizon)
    rows_a_step = np.diff(layout.row_start[layout.step_slots], axis=1).ravel()
    distributions_a_step = np.diff(layout.step_distributions, axis=1).ravel()
    return layout.horizon, np.repeat(steps, distributions_a_step), np.repeat(steps, rows_a_step)
