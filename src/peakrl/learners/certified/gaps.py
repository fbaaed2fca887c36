"""The candidate policy, and how far it can be from the best, state by state.

The candidate is greedy on the counted transitions, with one standard error of pessimism:

    Q_h(s,a) = r + m - ( sqrt(var/n) + (m - (H-h-1) lo) / (2 (n+1)) )

m and var are the mean and the variance of V_{h+1}(s') over the samples, for pairs that were tried and are not ruled
out. Without such a pair it takes the first pair that was tried and did not violate, else the first that is not ruled
out, else the first, with V = (H-h) lo. E estimates its value without the pessimism.

On a log, where no episode can correct a choice, the last term is w / (n+1), w = max V_{h+1} - (H-h-1) lo, plus the
range of the rewards if they depend on the outcome: a Bernstein bound with the constants 1 (Li et al.). Of two pairs
that look alike it prefers the one that was tried more often. If a behaviour decides in states in which no pair has
enough samples, the standard error is left out: those samples and the last term are caution enough.

Lower values of the frozen candidate pi, from the samples since it was frozen (the last step first; LL_H = 0):

    LL_h(s) = (H-h) lo                       if the reward of (s, pi_h(s)) is not known
            = r + min_s' LL_{h+1}(s')        if its distribution has no new sample
            = r - [ upper bound of the mean of -LL_{h+1}(s') over the new samples, nu >= max_s' -LL_{h+1}(s') ]

If rewards depend on the outcome, the bound is on -(r + LL_{h+1}(s')). If the states are not known in advance,
min_s' LL_{h+1} is (H-h-1) lo, and so is LL_{h+1} of a state that was not visited. The gap of a state, 0 if the state is
dead or has no other action:

    g_h(s) = max( 0, max of U_h(s,a) over a != pi_h(s) not ruled out, less LL_h(s) )

    V* - V^pi <= E_pi max_h g_h(s_h)

The challenger goes to the largest gap: D_h(s) = max(g_h(s), mean of D_{h+1}(s') over the samples) is the value of
optimal stopping; if g attains D it takes the best other action, otherwise it follows pi.

References
----------
G. Li, L. Shi, Y. Chen, Y. Chi, Y. Wei. Settling the sample complexity of model-based offline reinforcement learning.
Annals of Statistics 52(1):233-260, 2024, doi:10.1214/23-AOS2342.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.bounds import FINE, beta, upper_mean
from peakrl.learners.certified.declared import UNMET
from peakrl.learners.certified.tables import FIRST, OPEN, Tables
from peakrl.learners.certified.values import least_violating, next_slot
from peakrl.types import Floats, Longs


@loop
def counted_moments(
    t: Tables, joint: bool, value: Floats, estimate: Floats, step: int, row: int, unmet: float
) -> tuple[float, float, float]:
    """Return mean and variance of V_{h+1}(s') over the samples of a row's distribution, and the mean of E_{h+1}(s').

    If the reward depends on the outcome, it is included. V and E of a state that was not visited are `unmet`.
    """
    distribution, column = np.int64(t.distribution_of_row[row]), (step + 1) * t.shift
    total, cell = t.samples[distribution], t.cell_first[distribution]
    mean, square, plain = 0.0, 0.0, 0.0
    while cell >= 0:
        count = t.cell_count[cell]
        if count > 0:
            following = next_slot(t, row, cell)
            reward = t.cell_reward[cell] if joint else 0.0
            after = reward + (unmet if following == UNMET else value[following, column])
            mean += count * after
            square += count * after**2
            plain += count * (reward + (unmet if following == UNMET else estimate[following, column]))
        cell = t.cell_after[cell]
    mean /= total
    return mean, max(square / total - mean * mean, 0.0), plain / total


@loop
def fallback(t: Tables, column: int, slot: int) -> int:
    """Return a row for a node without a pair that was tried and is not ruled out."""
    open_row = -1
    for row in range(t.row_start[slot], t.row_start[slot + 1]):
        if t.witness[row, column] == OPEN:
            if t.tested[t.group_of_row[row]]:
                return row
            open_row = row if open_row < 0 else open_row
    return open_row if open_row >= 0 else least_violating(t, slot)


@loop
def plan_candidate(
    t: Tables,
    rows: Longs,
    value: Floats,
    estimate: Floats,
    #: The larger doubt of the two?
    wide: bool,
    #: Pairs with fewer samples do not count; where none is left, rows is ~row. 0: one sample is enough.
    fewest: int,
) -> None:
    """Set rows, V and E [slot, column] of the policy."""
    top = 0.0
    for step in range(t.horizon - 1, -1, -1):
        low, column = t.least * (t.horizon - step - 1), step * t.shift
        width, top = top - low + (t.most - t.least if t.joint else 0.0), low + t.least
        for i in range(t.step_slots[step, 0], t.step_slots[step, 1]):
            slot = np.int64(t.slots[i])
            best, plain, choice = -math.inf, 0.0, -1
            for row in range(t.row_start[slot], t.row_start[slot + 1]):
                samples = t.samples[t.distribution_of_row[row]]
                read = (t.joint or t.known[row]) and t.tested[t.group_of_row[row]]
                if t.witness[row, column] != OPEN or samples < max(fewest, 1) or not read:
                    continue
                mean, variance, estimated = counted_moments(t, t.joint, value, estimate, step, row, low)
                thin = (width if wide else (mean - low) / 2) / (samples + 1)
                error = 0.0 if fewest > 0 else math.sqrt(variance / samples)
                doubt = 0.0 if t.deterministic else error + thin
                own = 0.0 if t.joint else t.reward[row]
                if own + mean - doubt > best:
                    best, plain, choice = own + mean - doubt, own + estimated, row
            if choice < 0:
                choice = fallback(t, column, slot)
                choice = ~choice if fewest > 0 else choice
                best = plain = low + t.least
            best = max(best, low + t.least) if wide else best
            top = max(top, best)
            rows[slot, column], value[slot, column], estimate[slot, column] = choice, best, plain


@loop
def estimate_policy(t: Tables, rows: Longs, estimate: Floats) -> None:
    """Set E [slot, column] of a policy on the counted transitions; a step without samples earns the least reward."""
    for step in range(t.horizon - 1, -1, -1):
        rest, column = t.least * (t.horizon - step - 1), step * t.shift
        for i in range(t.step_slots[step, 0], t.step_slots[step, 1]):
            slot = np.int64(t.slots[i])
            row = np.int64(rows[slot, column])
            if t.samples[t.distribution_of_row[row]] == 0 or not (t.joint or t.known[row]):
                estimate[slot, column] = t.least * (t.horizon - step)
            else:
                _, _, plain = counted_moments(t, t.joint, estimate, estimate, step, row, rest)
                estimate[slot, column] = plain + (0.0 if t.joint else t.reward[row])


@loop
def counted_mean(t: Tables, value: Floats) -> float:
    """Return the mean of a table [slot, column] over the observed first states."""
    total, cell = 0.0, t.cell_first[FIRST]
    while cell >= 0:
        total += t.cell_count[cell] * value[t.cell_next[cell], 0]
        cell = t.cell_after[cell]
    return total / max(t.samples[FIRST], 1)


LOG_TWO = math.log(2)
#: Not a literal False, for which numba would compile `counted_moments` again.
NOT_JOINT = np.bool_(False)


@loop
def least_following(
    t: Tables,
    distribution: int,
    step: int,
    row: int,
    low: Floats,
    #: Does a sample include its reward? Is nothing left to be bounded after the last step?
    joint: bool,
    settled: bool,
    #: The value of a next state that was not visited, and a lower bound of every value; is it fixed in advance?
    unmet: float,
    floor: float,
    fixed: bool,
    log_share: float,
) -> float:
    """Return the lower bound of the mean of `low` after a row, from new samples; `row` is -1 for the first state."""
    column = (step + 1) * t.shift
    if step == t.horizon - 1 and settled:
        return 0.0
    size, samples, cell = 0, 0, t.cell_first[distribution]
    while cell >= 0:
        t.sample_count[size] = t.cell_count[cell] - t.cell_before[cell]
        following = next_slot(t, row, cell)
        after = unmet if following == UNMET else low[following, column]
        t.sample_value[size] = -after - (t.cell_reward[cell] if joint else 0.0)
        samples += t.sample_count[size]
        size += 1
        cell = t.cell_after[cell]
    if t.deterministic:
        return -t.sample_value[0] if t.samples[distribution] > 0 else floor
    if samples == 0:
        return floor
    total, share = np.float64(samples), log_share + (LOG_TWO if fixed else 0.0)
    bet = beta(total, share)
    all_in = share if fixed else bet
    bound, _ = upper_mean(t.sample_value, t.sample_count, size, total, -floor, all_in, bet, -math.inf, FINE)
    return -bound


@loop
def lower_values(
    t: Tables,
    rows: Longs,
    #: [distribution]: log(1/d) of one bet.
    log_share: Floats,
    low: Floats,
) -> None:
    """Set LL [slot, column] of the frozen policy `rows`."""
    floor, settled = 0.0, not t.joint
    for step in range(t.horizon - 1, -1, -1):
        lowest, column = math.inf, step * t.shift
        rest = t.least * (t.horizon - step - 1)
        for i in range(t.step_slots[step, 0], t.step_slots[step, 1]):
            slot = np.int64(t.slots[i])
            row = np.int64(rows[slot, column])
            if not t.joint and not t.known[row]:
                low[slot, column] = t.least + rest
            else:
                under = (t.least if t.joint else 0.0) + (floor if t.complete else rest)
                distribution = np.int64(t.distribution_of_row[row])
                follows = least_following(
                    t, distribution, step, row, low, t.joint, settled, rest, under, NOT_JOINT, log_share[distribution]
                )
                low[slot, column] = max(t.least + rest, follows + (0.0 if t.joint else t.reward[row]))
            lowest = min(lowest, low[slot, column])
        floor = min(lowest, 0.0) if t.ends > 0 else lowest


@loop
def other_action(t: Tables, column: int, slot: int, row: int) -> tuple[float, int]:
    """Return the largest U of the other actions that are not ruled out, and its row (-1: none)."""
    best, choice = -math.inf, -1
    for other in range(t.row_start[slot], t.row_start[slot + 1]):
        if other != row and t.witness[other, column] == OPEN and t.upper[other, column] > best:
            best, choice = t.upper[other, column], other
    return best, choice


@loop
def measure_gaps(
    t: Tables,
    rows: Longs,
    low: Floats,
    gap: Floats,
    #: [slot, column]: D, to be filled; it must hold 0 after the last step and at ends.
    stopping: Floats,
    challenger: Longs,
) -> float:
    """Set g, D and the challenger's rows [slot, column]; return the largest g."""
    top = 0.0
    for step in range(t.horizon - 1, -1, -1):
        unmet, column = (t.most - t.least) * (t.horizon - step - 1), step * t.shift
        for i in range(t.step_slots[step, 0], t.step_slots[step, 1]):
            slot = np.int64(t.slots[i])
            row = np.int64(rows[slot, column])
            best, other = other_action(t, column, slot, row)
            here = max(0.0, best - low[slot, column]) if other >= 0 and not t.dead[slot, column] else 0.0
            top = max(top, here)
            later = 0.0
            if t.samples[t.distribution_of_row[row]] > 0:
                later, _, _ = counted_moments(t, NOT_JOINT, stopping, stopping, step, row, unmet)
            gap[slot, column] = here
            stopping[slot, column] = max(here, later)
            challenger[slot, column] = other if here > 0.0 and here >= later else row
    return top
