"""Bounds on the candidate from what was counted.

p_U = 0.6 p, p_L = 0.2 p (a third each for L, the lower values and the gaps), p_C = 0.2 p. The j-th frozen candidate has
1/(j (j+1)) of p_L and p_C, the i-th attempt at certificate 2 has 1/(i (i+1)) of its part:

    value        L <= V^pi from the returns of the candidate since it was frozen
    violation    at most H sum c_i times the probability of a violation, bounded from the same episodes; 0 if every
                 pair that the candidate can take was tested and satisfied the constraints
    gaps         the mean of the largest gap of an episode, from episodes since the gaps were frozen

If nothing is random, value and violation of the candidate are known once its path was followed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.assumptions.limits import allowed_rows
from peakrl.learners.certified.bounds import FINE, beta, upper_mean
from peakrl.learners.certified.episodes import GAUGED, GRID, PLAYED, VIOLATED, Evidence
from peakrl.learners.certified.gaps import lower_values
from peakrl.learners.certified.tables import OPEN, SAMPLES, Params, Scratch, Structure, Tables
from peakrl.learners.certified.values import sweep
from peakrl.learners.infeasibility import DECLARED
from peakrl.space import expand
from peakrl.types import Bytes, Floats, Longs

#: Shares of the failure probability: upper values, lower values, violation.
UPPER, LOWER, VIOLATION = 0.6, 0.2, 0.2
#: Columns of `Proofs.status`: kind of the current episodes and how many are left, episodes of the challenger and of the
#: candidate to come, is it frozen, its number, attempts, episodes so far, epsilons passed, a dead first slot.
KIND, LEFT, CHALLENGES, CANDIDATES, FROZEN, POLICIES, ATTEMPTS, EPISODES, PASSED, DEAD_FIRST = range(10)
#: Columns of `Proofs.bounds`: U_1, estimated value of the candidate, L, violation, its probability, gap, and which
#: of the two certificates gives it. A line of `Proofs.passed` has epsilon and the episodes so far as well.
HIGH, ESTIMATE, LOW, VIOLATED_HIGH, CHANCE_HIGH, GAP, KIND_OF_GAP = range(7)
LINE = ("optimum_high", "estimate", "value_low", "violation_high", "violation_probability_high", "gap", "by",
        "epsilon", "episodes", "candidate", "attempt")  # fmt: skip


@dataclass(frozen=True)
class Goal:
    """What to certify."""

    epsilons: tuple[float, ...]
    failure_probability: float
    relative: bool
    #: The range of a step's reward, and the largest violation of an episode.
    least: float
    most: float
    violation: float
    #: Union-bound size for the lower values (unused if states are discovered online).
    lower_bets: int
    #: Does a pair violate always or never, so that one observation decides?
    certain: bool
    #: Is everything safe that is not declared to fail (`Assumptions.support`, `safe_policy`)?
    safe: bool = False


class Counts(NamedTuple):
    """Counts and observations at the time when the gaps were frozen; names as in `Tables`."""

    then_distribution: Longs
    then_count: Longs
    then_before: Longs
    then_known: Bytes
    then_max_violation: Floats

    @classmethod
    def of(cls, tables: Tables) -> Counts:
        """Return empty arrays of the sizes of `tables`."""
        parts = (tables.distribution, tables.cell_count, tables.cell_before, tables.known, tables.max_violation)
        empty: list[Any] = [np.zeros_like(part) for part in parts]
        return cls(*empty)

    def take(self, tables: Tables) -> None:
        """Copy the counts of `tables`."""
        self.then_distribution[...] = tables.distribution
        self.then_count[...] = tables.cell_count
        self.then_before[...] = tables.cell_before
        self.then_known[...] = tables.known
        self.then_max_violation[...] = tables.max_violation


class Proofs:
    """Tables and evidence of the learner, and the bounds that follow from them."""

    def __init__(
        self, structure: Structure, params: Params, tables: Tables, scratch: Scratch, goal: Goal, nodes: int
    ) -> None:
        self.structure, self.params, self.tables, self.scratch, self.goal = structure, params, tables, scratch, goal
        horizon = structure.horizon
        self.status = np.zeros(10, np.int64)
        self.status[DEAD_FIRST] = OPEN
        self.bounds = np.array([horizon * params.most, -math.inf, -math.inf, math.inf, 1.0, math.inf, 0.0])
        self.candidate = np.zeros(nodes, np.int32)
        self.followed = np.zeros(nodes, np.int32)
        self.challenger = np.zeros(nodes, np.int32)
        scale = np.array([horizon * goal.least, horizon * goal.most, -1.0, 0.0, 0.0])
        self.evidence = Evidence(
            np.zeros(3, np.int64), np.zeros(GRID + 1, np.int64), np.zeros(GRID + 1, np.int64), np.zeros(nodes), scale
        )
        #: [epsilon, column]: the certified bounds of the epsilons that were passed.
        self.passed = np.zeros((len(goal.epsilons), len(LINE)))
        self.frozen_counts = Counts.of(tables)
        self._decisions()

    def _decisions(self) -> None:
        """Set the nodes that have actions."""
        structure = self.structure
        sizes = structure.step_last - structure.step_first
        slots = structure.slots[expand(structure.step_first, sizes)].astype(np.int64)
        step = np.repeat(np.arange(structure.horizon), sizes)
        offers = structure.row_start[slots] < structure.row_start[slots + 1]
        self.nodes, self.node_step = (step * structure.node_stride + slots)[offers], step[offers]

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats, *, declared: bool) -> None:
        """Rule out [row - first, column] of the rows from `first` on, new ones; `declared`: constraints are declared.

        All upper values of a new state are equal, so the first row that is left is greedy.
        """
        structure, tables = self.structure, self.tables
        rows = np.arange(first, first + len(forbidden))
        entries = np.arange(forbidden.shape[1]) * structure.entry_stride + rows[:, None]
        tables.witness[entries[forbidden & (tables.witness[entries] == OPEN)]] = DECLARED
        groups, always = structure.group_of_row[rows], forbidden.all(axis=1)
        np.maximum.at(tables.max_violation, groups[always], max_violation[always])
        if declared:
            tables.tested[groups[always | ~forbidden.any(axis=1)]] = 1
        low = int(structure.slot_of_row[first]) if len(rows) else len(structure.row_start) - 1
        starts = (
            structure.row_start[low : int(structure.slot_of_row[rows[-1]]) + 2]
            if len(rows)
            else structure.row_start[:1]
        )
        best, left = allowed_rows(starts, tables.witness[entries] != OPEN, first)
        for column in range(forbidden.shape[1]):
            nodes = column * structure.node_stride + np.arange(low, low + len(best))
            offers = np.diff(starts) > 0
            tables.dead[nodes[offers]] = left[offers, column] == 0
            some = left[:, column] > 0
            tables.greedy[nodes[some]] = best[some, column]
        self._take_greedy(low)

    def _take_greedy(self, low: int) -> None:
        """Set the candidate of a new run to the greedy rows."""
        self.candidate[:] = self.tables.greedy

    # Bounds --------------------------------------------------------------------------------------------------

    def share(self, part: float) -> float:
        """Return log(1/d) of a part of p for the current candidate."""
        j = int(self.status[POLICIES])
        return math.log(j * (j + 1) / (part * self.goal.failure_probability))

    def return_low(self) -> float:
        """Return L, from the returns of the candidate; exact if nothing is random."""
        if self.params.deterministic:
            return self._path_value()
        total = int(self.evidence.counts[PLAYED])
        least, most = self.evidence.scale[:2]
        if total == 0:
            return float(least)
        values = -(least + (most - least) / GRID * np.arange(GRID + 1))
        return -mixed_bound(values, self.evidence.returns, total, -least, self.share(LOWER / 3))

    def chance_high(self) -> float:
        """Return the bound on the probability that an episode of the candidate violates."""
        if self.stays() or self.keeps() or (self.params.deterministic and self._path_value() > -math.inf):
            return 0.0
        total, bad = int(self.evidence.counts[PLAYED]), int(self.evidence.counts[VIOLATED])
        if total == 0:
            return 1.0
        return mixed_bound(np.array([0.0, 1.0]), np.array([total - bad, bad]), total, 1.0, self.share(VIOLATION))

    def _path_value(self) -> float:
        """Return the value of the candidate if nothing is random; -inf if its path is not known to be safe."""
        structure, tables = self.structure, self.tables
        slot, rewards = int(tables.cell_next[structure.cell_start[-1]]), []
        for step in range(structure.horizon):
            if slot < structure.ends:
                break
            row = int(self.candidate[step * structure.node_stride + slot])
            distribution, group = int(structure.distribution_of_row[row]), int(structure.group_of_row[row])
            if (
                tables.distribution[distribution, SAMPLES] == 0
                or not tables.known[row]
                or not tables.tested[group]
                or tables.max_violation[group]
            ):
                return -math.inf
            rewards.append(float(tables.reward[row]))
            slot = int(tables.cell_next[structure.cell_start[distribution]])
        # Summed from the end, as U is: the two are equal bit for bit if the candidate is the best.
        total = 0.0
        for reward in reversed(rewards):
            total = reward + total
        return total

    def stays(self) -> bool:
        """Return whether the candidate is safe by declaration, in every state that is not dead."""
        if not self.goal.safe:
            return False
        entries = self.node_step * self.structure.entry_stride + self.candidate[self.nodes]
        forbidden = self.tables.witness[entries] == DECLARED
        return not bool((forbidden & (self.tables.dead[self.nodes] == 0)).any())

    def keeps(self) -> bool:
        """Return whether every pair that the candidate can take was tested and satisfied the constraints."""
        if not (self.goal.certain and self.params.complete):
            return False
        groups = self.structure.group_of_row[self.candidate[self.nodes]]
        return bool((self.tables.tested[groups] != 0).all() and (self.tables.max_violation[groups] == 0).all())

    def gap_high(self) -> float:
        """Return the bound on the mean of the largest frozen gap of an episode."""
        top, total = float(self.evidence.scale[2]), int(self.evidence.counts[GAUGED])
        if top < 0.0 or total == 0:
            return math.inf
        if top == 0.0:
            return 0.0
        values = (top / GRID * np.arange(GRID + 1)).astype(np.float64)
        return mixed_bound(values, self.evidence.gaps, total, top, self._attempt_share(int(self.status[ATTEMPTS])))

    def _attempt_share(self, attempt: int) -> float:
        return math.log(attempt * (attempt + 1) * 3 / (LOWER * self.goal.failure_probability))

    def fresh(self, *, apart: bool = False) -> Tables:
        """Return tables with upper values from the counts alone; `apart`: leave the learner's own tables unchanged."""
        horizon, most = self.structure.horizon, max(self.params.most, 0.0) if self.structure.ends else self.params.most
        tables = self.tables
        if apart:  # the sweep writes to these
            parts = {name: getattr(tables, name).copy() for name in ("witness", "dead", "guess")}
            tables = tables._replace(**parts)
        stride = self.structure.node_stride
        top = most * np.arange(horizon, -1.0, -1.0)
        upper, value = np.empty_like(tables.upper), tables.value.copy()
        if stride:
            upper[:] = np.repeat(top[:-1], self.structure.entry_stride)
        else:
            step_of_slot = np.zeros(len(self.structure.row_start) - 1, np.int64)
            step_of_slot[self.nodes] = self.node_step
            upper[:] = top[step_of_slot[self.structure.slot_of_row]]
        value[self.nodes] = top[self.node_step]
        own = tables._replace(
            upper=upper, value=value, top=top, greedy=tables.greedy.copy(), updated=tables.updated.copy()
        )
        sweep(self.structure, self.params, own, self.scratch, FINE)
        return own

    @property
    def tolerance(self) -> float:
        """Bound on the rounding error of a bound (docs/certified-learning.md)."""
        if self.params.deterministic:
            return 0.0
        largest = max(abs(self.goal.least), abs(self.goal.most))
        cells = int(self.tables.distribution[:, 1].max())
        return 2.0**-44 * self.structure.horizon**2 * largest * (cells + 16)

    def lower_logs(self) -> Floats:
        """[slot]: log of the number of bounds that share d."""
        return np.full(len(self.structure.row_start) - 1, math.log(self.goal.lower_bets))

    def lower_values_now(self) -> Floats:
        """[node]: lower bound of the candidate's value, from samples since it was frozen."""
        low = np.zeros(len(self.candidate))
        log_share = self.share(LOWER / 3) + self.lower_logs()
        lower_values(
            self.structure, self.params, self.tables, self.scratch, self.candidate, self.goal.least, log_share, low
        )
        return low


def mixed_bound(values: Floats, counts: NDArray[np.int64], total: float, bound: float, log_share: float) -> float:
    """Return the upper bound of a mean by both kinds of bets, half the share for each."""
    half = log_share + math.log(2)
    seen = np.flatnonzero(counts)
    values, counts, total = values[seen], counts[seen], float(total)
    high, _ = upper_mean(values, counts, len(seen), total, bound, half, beta(total, half), -math.inf, FINE)
    return high
