"""The policy to certify: greedy on the counted transitions, with one standard error of pessimism.

    Q_h(s,a) = r + m - k ( sqrt(var/n) + (m - (H-h-1) lo) / (2 (n+1)) )

with m and var the mean and the variance of V_{h+1}(s') as counted, over pairs that were tried and are not ruled out;
where there is none, the first pair that was read and did not violate, else the first that is not ruled out, else the
first, with V = (H-h) lo. k = 1. A plain estimate E of its value, without the pessimism, goes with it.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.jit import loop
from peakrl.learners.certified.tables import CELLS, OPEN, SAMPLES, UNMET, Places, Tables, Terms
from peakrl.learners.certified.values import mildest, next_slot
from peakrl.types import Floats, Ints


@loop
def counted_moments(
    places: Places, tables: Tables, joint: bool, value: Floats, estimate: Floats, step: int, row: int, unmet: float
) -> tuple[float, float, float]:
    """Return mean and variance of V_{h+1}(s') over the samples of a row's law, and the mean of E_{h+1}(s').

    Where the reward depends on the outcome it is part of all three. V and E of a state that was not met are `unmet`.
    """
    law = np.int64(places.law_of_row[row])
    base, total = places.cell_start[law], tables.law[law, SAMPLES]
    mean, square, plain = 0.0, 0.0, 0.0
    for i in range(tables.law[law, CELLS]):
        count = tables.cell_count[base + i]
        if count > 0:
            following = next_slot(places, tables, row, law, i)
            node = (step + 1) * places.node_stride + following
            reward = tables.cell_reward[base + i] if joint else 0.0
            after = reward + (unmet if following == UNMET else value[node])
            mean += count * after
            square += count * after**2
            plain += count * (reward + (unmet if following == UNMET else estimate[node]))
    mean /= total
    return mean, max(square / total - mean * mean, 0.0), plain / total


@loop
def fallback(places: Places, tables: Tables, step: int, slot: int) -> int:
    """Return a row for a node where no pair is known well enough."""
    open_row = -1
    for row in range(places.row_start[slot], places.row_start[slot + 1]):
        if tables.witness[step * places.entry_stride + row] == OPEN:
            if tables.tested[places.group_of_row[row]]:
                return row
            open_row = row if open_row < 0 else open_row
    return open_row if open_row >= 0 else mildest(places, tables, slot)


@loop
def plan_candidate(
    places: Places, terms: Terms, tables: Tables, least: float, rows: Ints, value: Floats, estimate: Floats
) -> None:
    """Set rows, V and E [node] of the policy; `least` is the least that a step can earn."""
    for step in range(places.horizon - 1, -1, -1):
        low = least * (places.horizon - step - 1)
        for i in range(places.step_first[step], places.step_last[step]):
            slot = np.int64(places.slots[i])
            if places.row_start[slot] == places.row_start[slot + 1]:
                continue
            best, plain, choice = -math.inf, 0.0, -1
            for row in range(places.row_start[slot], places.row_start[slot + 1]):
                samples = tables.law[places.law_of_row[row], SAMPLES]
                read = (terms.joint or tables.known[row]) and tables.tested[places.group_of_row[row]]
                if tables.witness[step * places.entry_stride + row] != OPEN or samples == 0 or not read:
                    continue
                mean, variance, estimated = counted_moments(
                    places, tables, terms.joint, value, estimate, step, row, low
                )  # fmt: skip
                doubt = 0.0 if terms.deterministic else math.sqrt(variance / samples) + (mean - low) / (2 * samples + 2)
                own = 0.0 if terms.joint else tables.reward[row]
                if own + mean - doubt > best:
                    best, plain, choice = own + mean - doubt, own + estimated, row
            node = step * places.node_stride + slot
            if choice < 0:
                choice = fallback(places, tables, step, slot)
                best = plain = low + least
            rows[node], value[node], estimate[node] = choice, best, plain


@loop
def estimate_policy(places: Places, terms: Terms, tables: Tables, least: float, rows: Ints, estimate: Floats) -> None:
    """Set E [node] of a policy on the counted transitions; `least` a step where nothing is known."""
    for step in range(places.horizon - 1, -1, -1):
        for i in range(places.step_first[step], places.step_last[step]):
            slot = np.int64(places.slots[i])
            if places.row_start[slot] == places.row_start[slot + 1]:
                continue
            node = step * places.node_stride + slot
            row = np.int64(rows[node])
            if tables.law[places.law_of_row[row], SAMPLES] == 0 or not (terms.joint or tables.known[row]):
                estimate[node] = least * (places.horizon - step)
            else:
                rest = least * (places.horizon - step - 1)
                _, _, plain = counted_moments(places, tables, terms.joint, estimate, estimate, step, row, rest)
                estimate[node] = plain + (0.0 if terms.joint else tables.reward[row])


@loop
def counted_mean(places: Places, tables: Tables, value: Floats) -> float:
    """Return the mean of a table [node] over the first states seen."""
    law = tables.law.shape[0] - 1
    total = 0.0
    for i in range(places.cell_start[law], places.cell_start[law] + tables.law[law, CELLS]):
        total += tables.cell_count[i] * value[tables.cell_next[i]]
    return total / max(tables.law[law, SAMPLES], 1)
