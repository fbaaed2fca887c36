"""Bounds on the candidate from what was counted.

The j-th frozen candidate has 1/(j (j+1)) of p_L and p_C, the i-th attempt at certificate 2 has 1/(i (i+1)) of its part:

    value        L <= V^pi from the returns of the candidate since it was frozen
    violation    at most H sum c_i times the probability of a violation, bounded from the same episodes; 0 if every
                 pair that the candidate can take was tested and satisfied the constraints
    gaps         the mean of the largest gap of an episode, from episodes since the gaps were frozen; in states
                 discovered since then it is at most (H-h)(most-lo), and the largest is taken to be H (most-lo)

If nothing is random, value and violation of the candidate are known once its path was followed.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.checks import ROUNDING
from peakrl.learners.certified.bounds import FINE, LOWER, VIOLATION, mixed_bound
from peakrl.learners.certified.declared import UNMET
from peakrl.learners.certified.gaps import lower_values
from peakrl.learners.certified.tables import (
    FIRST,
    GAUGED,
    GRID,
    LEAST,
    MOST,
    OPEN,
    PLAYED,
    TOP,
    VIOLATED,
    SpaceTables,
    Tables,
)
from peakrl.learners.certified.values import sweep
from peakrl.learners.infeasibility import DECLARED
from peakrl.numerics import sums_exactly
from peakrl.types import Bytes, Floats, Ints, Longs


class Proofs(SpaceTables):
    """Tables and evidence of the learner, and the bounds that follow from them."""

    def share(self, part: float) -> float:
        """Return log(1/d) of a part of p for the current candidate."""
        j = self.status.policies
        return math.log(j * (j + 1) / (part * self.failure_probability))

    def attempt_share(self, attempt: int) -> float:
        """Return log(1/d) of an attempt at certificate 2."""
        return math.log(attempt * (attempt + 1) * 3 / (LOWER * self.failure_probability))

    def return_low(self) -> float:
        """Return L, from the returns of the candidate; exact if nothing is random."""
        if self.facts.deterministic:
            return self._path_value()
        total, (least, most) = int(self.tables.counts[PLAYED]), self.tables.scale[[LEAST, MOST]]
        if total == 0:
            return float(least)
        values = -(least + (most - least) / GRID * np.arange(GRID + 1))
        return -mixed_bound(values, self.tables.returns, total, -least, self.share(LOWER / 3))

    def chance_high(self) -> float:
        """Return the bound on the probability that an episode of the candidate violates."""
        if not self.facts.violation or self.stays() or self.keeps():
            return 0.0
        if self.facts.deterministic and self._path_value() > -math.inf:
            return 0.0
        total, bad = int(self.tables.counts[PLAYED]), int(self.tables.counts[VIOLATED])
        if total == 0:
            return 1.0
        return mixed_bound(np.array([0.0, 1.0]), np.array([total - bad, bad]), total, 1.0, self.share(VIOLATION))

    def _path_value(self) -> float:
        """Return the value of the candidate if nothing is random; -inf if its path is not known to be safe."""
        t, rewards = self.tables, []
        slot = int(t.cell_next[t.cell_first[FIRST]])
        for step in range(t.horizon):
            if slot < t.ends:
                break
            row = int(t.candidate[slot, step * t.shift])
            distribution, group = int(t.distribution_of_row[row]), int(t.group_of_row[row])
            if not (t.known[row] and t.tested[group]) or t.max_violation[group]:
                return -math.inf
            rewards.append(float(t.reward[row]))
            if step + 1 == t.horizon:
                break
            slot = int(t.cell_next[t.cell_first[distribution]]) if t.samples[distribution] else UNMET
            if slot == UNMET:
                return -math.inf
        # Summed from the end, as U is: the two are equal bit for bit if the candidate is the best.
        total = 0.0
        for reward in reversed(rewards):
            total = reward + total
        return total

    def _decided(self) -> tuple[Longs, Ints, Bytes]:
        """Return [slot with actions, column] the candidate's rows, why they are ruled out, and whether it is dead."""
        t = self.tables
        rows = t.candidate[t.slots]
        return rows, t.witness[rows, np.arange(self.columns)], t.dead[t.slots, : self.columns]

    def stays(self) -> bool:
        """Return whether the candidate is safe by declaration, in every state that is not dead."""
        _, witness, dead = self._decided()
        return self.facts.safe and not bool(((witness == DECLARED) & (dead == 0)).any())

    def known_bad(self) -> bool:
        """Return whether the candidate takes an action that is ruled out in a state that is not dead."""
        _, witness, dead = self._decided()
        return bool(((witness != OPEN) & (dead == 0)).any())

    def keeps(self) -> bool:
        """Return whether every pair that the candidate can take was tested and satisfied the constraints."""
        if not (self.facts.certain and self.tables.complete):
            return False
        groups = self.tables.group_of_row[self._decided()[0]]
        return bool(self.tables.tested[groups].all() and not self.tables.max_violation[groups].any())

    def gap_high(self) -> float:
        """Return the bound on the mean of the largest frozen gap of an episode."""
        top, total = float(self.tables.scale[TOP]), int(self.tables.counts[GAUGED])
        if top < 0.0 or total == 0:
            return math.inf
        if top == 0.0:
            return 0.0
        values = (top / GRID * np.arange(GRID + 1)).astype(np.float64)
        return mixed_bound(values, self.tables.gaps, total, top, self.attempt_share(self.status.attempts))

    def fresh(self) -> Tables:
        """Return tables with upper values from the counts alone; the learner's own tables stay unchanged."""
        t, top = self.tables, self.start
        upper, value = top[self.steps(np.arange(self.space.slots))][t.slot_of_row], t.value.copy()
        value[t.slots, : self.columns] = top[self.steps(t.slots)]
        kept = {name: getattr(t, name).copy() for name in ("witness", "dead", "greedy", "updated")}
        own = t._replace(upper=upper, value=value, top=top, guess=np.full_like(t.guess, -np.inf), **kept)
        sweep(own, FINE)
        return own

    @property
    def tolerance(self) -> float:
        """Bound on the rounding error of a bound (docs/certified-learning.md); 0 if nothing can be rounded."""
        t, size = self.tables, max(map(abs, self.facts.reward_range))
        if t.deterministic:
            earned = np.append(t.reward[t.known == 1], [t.least, t.most])
            return 0.0 if sums_exactly(earned, t.horizon) else 2.0**-52 * t.horizon**2 * size
        cells = int(np.bincount(t.cell_distribution[: t.cells[0]], minlength=1).max())
        repeated = 4 * ROUNDING * t.horizon * size if self.facts.growing and not t.joint else 0.0
        return 2.0**-44 * t.horizon**2 * size * (cells + 16) + repeated

    def lower_values_now(self) -> Floats:
        """[slot, column]: lower bound of the candidate's value, from samples since it was frozen."""
        t, low = self.tables, np.zeros_like(self.tables.value)
        logs = self.declared.lower_logs(t.slot_of_row, len(t.samples), self.space.ends)
        lower_values(t, t.candidate, self.share(LOWER / 3) + logs, low)
        return low
