"""Episodes drawn at random: one stream of numbers, one episode after another.

A table policy is the mixture of K = 1 policy. In a mixture the episode k of 1..K is drawn first, then at each node
the row of the node's last change at or before k is looked up by bisection. A stochastic policy draws the row.
"""

from __future__ import annotations

import numpy as np

from peakrl.jit import loop
from peakrl.sampling import Words, draw_first, draw_outcome, uniform
from peakrl.types import Floats, Ints, Layout, Longs, Payoffs, Sampler


@loop
def row_in_force(first_row: int, episode: int, change_episode: Ints, change_row: Ints, start: int, end: int) -> int:
    """Return a node's row in pi^k, k = `episode`; its changes stand at start .. end, in order of episode."""
    before, after = start, end
    while before < after:
        middle = (before + after) // 2
        if change_episode[middle] <= episode:
            before = middle + 1
        else:
            after = middle
    return first_row if before == start else int(change_row[before - 1])


@loop
def draw_row(state: Words, weights: Floats, entries: int, first: int, last: int) -> int:
    """Return a row of first .. last drawn by its weight at entries + row."""
    left = uniform(state)
    chosen = first
    for row in range(first, last):
        weight = weights[entries + row]
        if weight > 0.0:
            chosen = row
            if left < weight:
                return row
            left -= weight
    # Rounding left a little over: the last row of positive weight takes it.
    return chosen


@loop
def simulate_episodes(
    layout: Layout,
    payoffs: Payoffs,
    sampler: Sampler,
    state: Words,
    weights: Floats,
    first_rows: Ints,
    policies: int,
    change_start: Longs,
    change_episode: Ints,
    change_row: Ints,
    rewards: Floats,
    violations: Floats,
) -> None:
    """Fill rewards and violations, [episode], with an episode's totals.

    The policy is `weights` [entry], or where that is empty the mixture of `policies` many: `first_rows` [node] and
    the changes grouped by node.
    """
    for n in range(rewards.shape[0]):
        episode = 1
        if policies > 1:
            episode += int(uniform(state) * policies)
        slot = draw_first(state, sampler)
        reward, violation = 0.0, 0.0
        for step in range(layout.horizon):
            node = step * layout.node_stride + slot
            if weights.shape[0] > 0:
                first, last = layout.row_start[slot], layout.row_start[slot + 1]
                row = draw_row(state, weights, step * layout.entry_stride, first, last)
            else:
                start, end = change_start[node], change_start[node + 1]
                row = row_in_force(np.int64(first_rows[node]), episode, change_episode, change_row, start, end)
            d = np.int64(layout.row_distribution[row])
            outcome = draw_outcome(state, layout, sampler, d)
            record = payoffs.row_payoff[row] + payoffs.stride * (outcome - layout.outcome_start[d])
            reward += payoffs.reward[record]
            for value in payoffs.constraints[record]:
                violation += max(-value, 0.0)
            slot = int(layout.outcome_next[outcome])
        rewards[n] = reward
        violations[n] = violation
