"""The candidate policy, and how far it can be from the best, state by state.

The candidate is greedy on the counted transitions, with one standard error of pessimism:

    Q_h(s,a) = r + m - ( sqrt(var/n) + (m - (H-h-1) lo) / (2 (n+1)) )

m and var are the mean and the variance of V_{h+1}(s') over the samples, for pairs that were tried and are not ruled
out. Without such a pair it takes the first pair that was tried and did not violate, else the first that is not ruled
out, else the first, with V = (H-h) lo. E estimates its value without the pessimism.

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
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.bounds import FINE, beta, upper_mean
from peakrl.learners.certified.tables import BEFORE, CELLS, OPEN, SAMPLES, UNMET, Params, Scratch, Structure, Tables
from peakrl.learners.certified.values import least_violating, next_slot
from peakrl.types import Floats, Ints


@loop
def counted_moments(
    structure: Structure,
    tables: Tables,
    joint: bool,
    value: Floats,
    estimate: Floats,
    step: int,
    row: int,
    unmet: float,
) -> tuple[float, float, float]:
    """Return mean and variance of V_{h+1}(s') over the samples of a row's distribution, and the mean of E_{h+1}(s').

    If the reward depends on the outcome, it is included. V and E of a state that was not visited are `unmet`.
    """
    distribution = np.int64(structure.distribution_of_row[row])
    base, total = structure.cell_start[distribution], tables.distribution[distribution, SAMPLES]
    mean, square, plain = 0.0, 0.0, 0.0
    for i in range(tables.distribution[distribution, CELLS]):
        count = tables.cell_count[base + i]
        if count > 0:
            following = next_slot(structure, tables, row, distribution, i)
            node = (step + 1) * structure.node_stride + following
            reward = tables.cell_reward[base + i] if joint else 0.0
            after = reward + (unmet if following == UNMET else value[node])
            mean += count * after
            square += count * after**2
            plain += count * (reward + (unmet if following == UNMET else estimate[node]))
    mean /= total
    return mean, max(square / total - mean * mean, 0.0), plain / total


@loop
def fallback(structure: Structure, tables: Tables, step: int, slot: int) -> int:
    """Return a row for a node without a pair that was tried and is not ruled out."""
    open_row = -1
    for row in range(structure.row_start[slot], structure.row_start[slot + 1]):
        if tables.witness[step * structure.entry_stride + row] == OPEN:
            if tables.tested[structure.group_of_row[row]]:
                return row
            open_row = row if open_row < 0 else open_row
    return open_row if open_row >= 0 else least_violating(structure, tables, slot)


@loop
def plan_candidate(
    structure: Structure, params: Params, tables: Tables, least: float, rows: Ints, value: Floats, estimate: Floats
) -> None:
    """Set rows, V and E [node] of the policy; `least` is the lowest reward of a step."""
    for step in range(structure.horizon - 1, -1, -1):
        low = least * (structure.horizon - step - 1)
        for i in range(structure.step_first[step], structure.step_last[step]):
            slot = np.int64(structure.slots[i])
            if structure.row_start[slot] == structure.row_start[slot + 1]:
                continue
            best, plain, choice = -math.inf, 0.0, -1
            for row in range(structure.row_start[slot], structure.row_start[slot + 1]):
                samples = tables.distribution[structure.distribution_of_row[row], SAMPLES]
                read = (params.joint or tables.known[row]) and tables.tested[structure.group_of_row[row]]
                if tables.witness[step * structure.entry_stride + row] != OPEN or samples == 0 or not read:
                    continue
                mean, variance, estimated = counted_moments(
                    structure, tables, params.joint, value, estimate, step, row, low
                )  # fmt: skip
                doubt = (
                    0.0 if params.deterministic else math.sqrt(variance / samples) + (mean - low) / (2 * samples + 2)
                )
                own = 0.0 if params.joint else tables.reward[row]
                if own + mean - doubt > best:
                    best, plain, choice = own + mean - doubt, own + estimated, row
            node = step * structure.node_stride + slot
            if choice < 0:
                choice = fallback(structure, tables, step, slot)
                best = plain = low + least
            rows[node], value[node], estimate[node] = choice, best, plain


@loop
def estimate_policy(
    structure: Structure, params: Params, tables: Tables, least: float, rows: Ints, estimate: Floats
) -> None:
    """Set E [node] of a policy on the counted transitions; a step without samples counts as `least`."""
    for step in range(structure.horizon - 1, -1, -1):
        for i in range(structure.step_first[step], structure.step_last[step]):
            slot = np.int64(structure.slots[i])
            if structure.row_start[slot] == structure.row_start[slot + 1]:
                continue
            node = step * structure.node_stride + slot
            row = np.int64(rows[node])
            if tables.distribution[structure.distribution_of_row[row], SAMPLES] == 0 or not (
                params.joint or tables.known[row]
            ):
                estimate[node] = least * (structure.horizon - step)
            else:
                rest = least * (structure.horizon - step - 1)
                _, _, plain = counted_moments(structure, tables, params.joint, estimate, estimate, step, row, rest)
                estimate[node] = plain + (0.0 if params.joint else tables.reward[row])


@loop
def counted_mean(structure: Structure, tables: Tables, value: Floats) -> float:
    """Return the mean of a table [node] over the observed first states."""
    distribution = tables.distribution.shape[0] - 1
    total = 0.0
    for i in range(
        structure.cell_start[distribution],
        structure.cell_start[distribution] + tables.distribution[distribution, CELLS],
    ):
        total += tables.cell_count[i] * value[tables.cell_next[i]]
    return total / max(tables.distribution[distribution, SAMPLES], 1)


#: Not a literal False, for which numba would compile `counted_moments` again.
NOT_JOINT = np.bool_(False)


@loop
def least_following(
    structure: Structure,
    params: Params,
    tables: Tables,
    scratch: Scratch,
    step: int,
    row: int,
    low: Floats,
    floor: float,
    log_share: float,
) -> float:
    """Return the lower bound of the next value after a row, from new samples; `floor` bounds every next value."""
    distribution = np.int64(structure.distribution_of_row[row])
    samples = tables.distribution[distribution, SAMPLES] - tables.distribution[distribution, BEFORE]
    if step == structure.horizon - 1 and not params.joint:
        return 0.0
    if samples == 0 and not params.deterministic:
        return floor
    base, size = structure.cell_start[distribution], tables.distribution[distribution, CELLS]
    for i in range(size):
        scratch.count[i] = tables.cell_count[base + i] - tables.cell_before[base + i]
        following = next_slot(structure, tables, row, distribution, i)
        rest = params.least * (structure.horizon - step - 1)
        after = rest if following == UNMET else low[(step + 1) * structure.node_stride + following]
        scratch.value[i] = -after - (tables.cell_reward[base + i] if params.joint else 0.0)
    if params.deterministic:
        return -scratch.value[0] if tables.distribution[distribution, SAMPLES] > 0 else floor
    total = np.float64(samples)
    bet = beta(total, log_share)
    bound, _ = upper_mean(scratch.value, scratch.count, size, total, -floor, bet, bet, -math.inf, FINE)
    return -bound


@loop
def lower_values(
    structure: Structure,
    params: Params,
    tables: Tables,
    scratch: Scratch,
    rows: Ints,
    least: float,
    #: [slot]: log(1/d) of one bet.
    log_share: Floats,
    low: Floats,
) -> None:
    """Set LL [node] of the frozen policy `rows`."""
    floor = 0.0
    for step in range(structure.horizon - 1, -1, -1):
        lowest = math.inf
        rest = least * (structure.horizon - step - 1)
        for i in range(structure.step_first[step], structure.step_last[step]):
            slot = np.int64(structure.slots[i])
            if structure.row_start[slot] == structure.row_start[slot + 1]:
                continue
            node = step * structure.node_stride + slot
            row = np.int64(rows[node])
            if not params.joint and not tables.known[row]:
                low[node] = least + rest
            else:
                under = (least if params.joint else 0.0) + (floor if params.complete else rest)
                follows = least_following(
                    structure, params, tables, scratch, step, row, low, under, log_share[slot]
                )  # fmt: skip
                low[node] = max(least + rest, follows + (0.0 if params.joint else tables.reward[row]))
            lowest = min(lowest, low[node])
        floor = min(lowest, 0.0) if structure.ends > 0 else lowest


@loop
def other_action(structure: Structure, tables: Tables, step: int, slot: int, row: int) -> tuple[float, int]:
    """Return the largest U of the other actions that are not ruled out, and its row (-1: none)."""
    best, choice = -math.inf, -1
    for other in range(structure.row_start[slot], structure.row_start[slot + 1]):
        entry = step * structure.entry_stride + other
        if other != row and tables.witness[entry] == OPEN and tables.upper[entry] > best:
            best, choice = tables.upper[entry], other
    return best, choice


@loop
def measure_gaps(
    structure: Structure,
    params: Params,
    tables: Tables,
    rows: Ints,
    low: Floats,
    gap: Floats,
    #: [node]: D, to be filled; it must hold 0 after the last step and at ends.
    stopping: Floats,
    challenger: Ints,
) -> float:
    """Set g, D and the challenger's rows [node]; return the largest g."""
    top = 0.0
    for step in range(structure.horizon - 1, -1, -1):
        for i in range(structure.step_first[step], structure.step_last[step]):
            slot = np.int64(structure.slots[i])
            if structure.row_start[slot] == structure.row_start[slot + 1]:
                continue
            node = step * structure.node_stride + slot
            row = np.int64(rows[node])
            best, other = other_action(structure, tables, step, slot, row)
            gap[node] = max(0.0, best - low[node]) if other >= 0 and not tables.dead[node] else 0.0
            top = max(top, gap[node])
            later = 0.0
            if tables.distribution[structure.distribution_of_row[row], SAMPLES] > 0:
                unmet = (params.most - params.least) * (structure.horizon - step - 1)
                later, _, _ = counted_moments(structure, tables, NOT_JOINT, stopping, stopping, step, row, unmet)
            stopping[node] = max(gap[node], later)
            challenger[node] = other if gap[node] > 0.0 and gap[node] >= later else row
    return top
