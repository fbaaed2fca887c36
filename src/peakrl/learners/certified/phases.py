"""How the certified learner spends its episodes, and when it stops.

Episodes come in rounds, each a tenth of all before it: all greedy in U until a candidate is frozen, then a third of
them, a third by the challenger and a third by the candidate. After a round every bound is updated (a *review*):

    candidate    frozen once U_1 less its estimated value is at most 4 epsilon; replaced if it is known to violate, or
                 if another is epsilon/20 better and, without the returns of this one, is still forecast to be certified
                 sooner; the j-th frozen one has 1/(j (j+1)) of p_L and p_C
    certificate 1    U_1 - L <= epsilon, L from the returns of the candidate since it was frozen
    certificate 2    the mean of the largest gap of an episode (`gaps`) <= epsilon; gaps are frozen when they look small
                     enough, and episodes of the candidate from then on count; the i-th attempt has 1/(i (i+1)) of its
                     share

The expected violation must be within epsilon as well. The bounds: `confidence`. Before a certificate is issued, U is
computed from the counts alone, without earlier bounds, so that the certificate can be verified from the counts.

The forecast. U_1 less the best value V falls like K^-1/2 in the number K of episodes, and n episodes of the candidate
determine its value up to

    off(n) = sqrt( 2 var beta(n) / n ) + (mean - H lo) beta(n) / (3 n),     or (mean - H lo) log(1/d) / n for var = 0.

A candidate of value v with n episodes so far is certified, if the search continues to f K episodes of which a share
belongs to the candidate, and all episodes after that are its own, after about

    total(f) = f K + [ needed( epsilon - (U_1 - V) / sqrt(f) - (V - v) ) - n - share (f - 1) K ]+

episodes; needed(width) is the least n with off(n) <= width. The forecast proves nothing, it only
guides the next episodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from peakrl.learners.certified.bounds import FINE, ROUGH
from peakrl.learners.certified.confidence import (
    ATTEMPTS,
    CANDIDATES,
    CHALLENGES,
    CHANCE_HIGH,
    DEAD_FIRST,
    EPISODES,
    ESTIMATE,
    FROZEN,
    GAP,
    HIGH,
    KIND,
    KIND_OF_GAP,
    LEFT,
    LINE,
    LOW,
    LOWER,
    PASSED,
    POLICIES,
    VIOLATED_HIGH,
    VIOLATION,
    Goal,
    Proofs,
)
from peakrl.learners.certified.episodes import GAUGED, PLAYED
from peakrl.learners.certified.gaps import counted_mean, estimate_policy, measure_gaps, plan_candidate
from peakrl.learners.certified.tables import BEFORE, OPEN, SAMPLES, Params, Scratch, Structure, Tables
from peakrl.learners.certified.values import first_value, sweep
from peakrl.types import Floats, Ints

#: The grids of n and of f in the forecast.
SIZES: Floats = 8.0 * 1.1 ** np.arange(295.0)
AHEAD: Floats = 1.05 ** np.arange(190.0)


@dataclass(frozen=True)
class Forecast:
    """Forecast of the episodes until a certificate, from the returns of a candidate."""

    #: [size]: off(n) for each of `SIZES`.
    off: Floats
    #: Episodes of the candidate that the bound on its violation needs.
    safe: float

    @classmethod
    def of(cls, mean: float, deviation: float, least: float, log_share: float, safe: float) -> Forecast:
        """Return the forecast for returns of at least `least` with this mean and standard deviation."""
        above = mean - least
        if deviation == 0.0:
            return cls(above * log_share / SIZES, safe)
        bet = log_share + 0.5 * np.log(np.pi * (SIZES + 0.5))
        return cls(np.asarray(np.sqrt(2 * deviation**2 * bet / SIZES) + above * bet / SIZES / 3), safe)

    def needed(self, width: Floats) -> Floats:
        """Return how many episodes of a candidate determine its value up to `width`."""
        place = np.searchsorted(-self.off, -width)
        found = np.append(SIZES, math.inf)[place]
        return np.asarray(np.where(width > 0.0, np.maximum(found, self.safe), math.inf))

    def totals(self, done: int, aim: float, high: float, best: float, value: float, seen: int, share: float) -> Floats:
        """[`AHEAD`]: total(f) for a candidate of value `value` with `seen` episodes so far."""
        width = aim - max(high - best, 0.0) / np.sqrt(AHEAD) - max(best - value, 0.0)
        rest = self.needed(width) - seen - share * (AHEAD - 1.0) * done
        return np.asarray(AHEAD * done + np.maximum(rest, 0.0))


#: A candidate is frozen if U_1 is within ARM epsilon of its value, and replaced by one that is STICK epsilon better.
ARM, STICK = 4.0, 0.05
#: Episodes of a round: the minimum (also for deterministic problems), and the share of all before it.
FIRST, FIRST_DETERMINISTIC, SHARE = 50, 10, 0.1
#: In a round with a frozen candidate, the share of the candidate, and that of the challenger.
PART = 1 / 3
#: Episodes of the candidate that an attempt at certificate 2 may take: a share of all before, and a minimum.
EFFORT, EFFORT_LEAST = 0.15, 200
#: Returns needed to estimate the variance of a candidate's returns.
TELLING = 50
#: Kinds of episodes.
OPTIMISTIC, CHALLENGE, CANDIDATE = 0, 1, 2


class Rounds(Proofs):
    """Blocks of episodes and the reviews between them."""

    def __init__(
        self, structure: Structure, params: Params, tables: Tables, scratch: Scratch, goal: Goal, nodes: int
    ) -> None:
        super().__init__(structure, params, tables, scratch, goal, nodes)
        #: Reviews so far.
        self.reviews = 0
        self.status[LEFT] = FIRST_DETERMINISTIC if params.deterministic else FIRST
        self.stop_reason: str | None = None

    # Episodes ------------------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """Are the next episodes greedy in U?"""
        return bool(self.status[KIND] == OPTIMISTIC)

    @property
    def gauge(self) -> bool:
        """Are the next episodes evidence for the frozen candidate?"""
        return bool(self.status[KIND] == CANDIDATE and self.status[FROZEN])

    @property
    def rows(self) -> Ints:
        """[node]: the rows that the next episode follows."""
        return self.tables.greedy if self.live else self.followed

    def played(self, episodes: int) -> None:
        """Count episodes; at the end of a block start the next one, or review."""
        status = self.status
        status[EPISODES] += episodes
        status[LEFT] -= episodes
        if status[LEFT] > 0:
            return
        if status[CHALLENGES] > 0:
            self._block(CHALLENGE, int(status[CHALLENGES]), self.challenger)
            status[CHALLENGES] = 0
        elif status[CANDIDATES] > 0:
            self._block(CANDIDATE, int(status[CANDIDATES]), self.candidate)
            status[CANDIDATES] = 0
        else:
            self.review()

    def _block(self, kind: int, episodes: int, rows: Ints | None = None) -> None:
        self.status[KIND], self.status[LEFT] = kind, episodes
        if rows is not None:
            self.followed[:] = rows

    def _round(self) -> None:
        """Plan a round of all three kinds; if nothing is random, one episode of the candidate suffices."""
        if self.params.deterministic:
            self._block(OPTIMISTIC, FIRST_DETERMINISTIC - 1)
            self.status[CHALLENGES], self.status[CANDIDATES] = 0, 1
            return
        episodes = max(FIRST, int(self._growth() * self.status[EPISODES]))
        part = max(1, int(PART * episodes)) if self.status[FROZEN] else 0
        self._block(OPTIMISTIC, max(1, episodes - 2 * part))
        self.status[CHALLENGES] = self.status[CANDIDATES] = part

    def _growth(self) -> float:
        """Return the next round as a share of all episodes so far: less if that may suffice (gaps fall like K^-1/2)."""
        if not self.status[FROZEN]:
            return SHARE
        beyond = float(self.bounds[GAP]) / max(self.aim(), 1e-300)
        return min(SHARE, max(1.05 * (beyond * beyond - 1.0), 0.2 * SHARE))

    def _finish(self, episodes: int) -> None:
        """Plan episodes of the candidate alone."""
        self.status[CHALLENGES] = self.status[CANDIDATES] = 0
        self._block(CANDIDATE, episodes, self.candidate)

    # Reviews -------------------------------------------------------------------------------------------------

    def review(self) -> None:
        """Update every bound, issue certificates, and plan the next episodes."""
        self.reviews += 1
        sweep(self.structure, self.params, self.tables, self.scratch, ROUGH)
        high, dead = first_value(self.structure, self.params, self.tables, self.scratch, ROUGH)
        if dead != OPEN:
            self.status[DEAD_FIRST] = dead
            self.stop_reason = "infeasible"
            return
        self.bounds[HIGH] = high
        self._choose(high)
        if not self.status[FROZEN]:
            self._round()
            return
        while self.status[PASSED] < len(self.goal.epsilons) and self._certified():
            self.status[PASSED] += 1
        if self.status[PASSED] == len(self.goal.epsilons):
            self.stop_reason = "certified"
            return
        self._plan()

    def epsilon(self) -> float:
        """Return the gap to reach, in units of value; 0 for a relative one without a bound on the value yet."""
        wanted = self.goal.epsilons[min(int(self.status[PASSED]), len(self.goal.epsilons) - 1)]
        if not self.goal.relative:
            return wanted
        return wanted * max(float(self.bounds[LOW]), -float(self.bounds[HIGH]), 0.0)

    def forecast(self) -> float:
        """Estimate the episodes left: gaps fall like K^-1/2, the bound on the violation like 1/K."""
        done, aim = int(self.status[EPISODES]), self.aim()
        gap = float(self.bounds[GAP]) if self.status[FROZEN] else float(self.bounds[HIGH] - self.bounds[ESTIMATE])
        if not (aim > 0.0 and math.isfinite(gap)):
            return math.inf
        safe = float(self.bounds[VIOLATED_HIGH]) / aim if self.status[FROZEN] else 0.0
        beyond = max((gap / aim) ** 2, safe)
        return max(0.0, done * (beyond - 1.0)) if math.isfinite(beyond) else math.inf

    def aim(self) -> float:
        """Return the gap to reach for planning; a relative one uses the estimated value."""
        if not self.goal.relative:
            return self.epsilon()
        wanted = self.goal.epsilons[min(int(self.status[PASSED]), len(self.goal.epsilons) - 1)]
        return wanted * abs(float(self.bounds[ESTIMATE]))

    def _choose(self, high: float) -> None:
        """Keep the candidate, or replace it."""
        nodes = len(self.candidate)
        rows, value, estimate = np.zeros(nodes, np.int32), np.zeros(nodes), np.zeros(nodes)
        plan_candidate(self.structure, self.params, self.tables, self.goal.least, rows, value, estimate)
        best = counted_mean(self.structure, self.tables, estimate)
        if not self.status[FROZEN]:
            self.bounds[ESTIMATE] = best
        if not self.status[FROZEN] and high - best > ARM * self.aim():
            self.candidate[:] = rows
            return
        now = self._estimate(self.candidate)
        if not self.status[FROZEN] or self._known_bad() or self._sooner(high, best, now):
            self._freeze(rows)
            now = best
        self.bounds[ESTIMATE] = now

    def _sooner(self, high: float, best: float, now: float) -> bool:
        """Return whether a new candidate of value `best` is forecast to be certified before the current one."""
        if best - now <= STICK * self.aim():
            return False
        forecast = self._returns_forecast()
        if forecast is None:
            return True
        done, aim, seen = int(self.status[EPISODES]), self.aim(), int(self.evidence.counts[PLAYED])
        other = forecast.totals(done, aim, high, best, best, 0, PART).min()
        return bool(other < forecast.totals(done, aim, high, best, now, seen, PART).min())

    def _returns_forecast(self) -> Forecast | None:
        """Return the forecast for the candidate; None if it has too few returns or nothing is random."""
        total, scale, aim = int(self.evidence.counts[PLAYED]), self.evidence.scale, self.aim()
        if total < TELLING or self.params.deterministic or not aim > 0.0:
            return None
        mean = float(scale[3]) / total
        deviation = math.sqrt(max(float(scale[4]) / total - mean * mean, 0.0))
        share = self.share(LOWER / 3) + math.log(2)
        safe = 0.0 if self.keeps() else self.goal.violation * (self.share(VIOLATION) + math.log(2)) / aim
        return Forecast.of(mean, deviation, float(scale[0]), share, safe)

    def _estimate(self, rows: Ints) -> float:
        estimate = np.zeros(len(rows))
        estimate_policy(self.structure, self.params, self.tables, self.goal.least, rows, estimate)
        return counted_mean(self.structure, self.tables, estimate)

    def _known_bad(self) -> bool:
        """Return whether the candidate takes an action that is ruled out in a state that is not dead."""
        entries = self.node_step * self.structure.entry_stride + self.candidate[self.nodes]
        ruled_out = self.tables.witness[entries] != OPEN
        return bool((ruled_out & (self.tables.dead[self.nodes] == 0)).any())

    def _freeze(self, rows: Ints) -> None:
        """Freeze a candidate: its evidence starts now."""
        self.candidate[:] = rows
        self.status[FROZEN] = 1
        self.status[POLICIES] += 1
        self.tables.distribution[:, BEFORE] = self.tables.distribution[:, SAMPLES]
        self.tables.cell_before[:] = self.tables.cell_count
        evidence = self.evidence
        evidence.counts[:] = 0
        evidence.returns[:] = 0
        evidence.gaps[:] = 0
        evidence.gap[:] = 0.0
        evidence.scale[2:] = -1.0, 0.0, 0.0
        self.bounds[LOW], self.bounds[GAP] = -math.inf, math.inf
        self.challenger[:] = rows

    # Certificates -------------------------------------------------------------------------------------------

    def _certified(self) -> bool:
        """Update the bounds; issue and return True if the candidate is certified for the current epsilon."""
        bounds = self.bounds
        bounds[LOW] = self.return_low()
        bounds[CHANCE_HIGH] = self.chance_high()
        bounds[VIOLATED_HIGH] = bounds[CHANCE_HIGH] * self.goal.violation
        by_gap = self.gap_high()
        bounds[GAP] = min(bounds[HIGH] - bounds[LOW], by_gap)
        bounds[KIND_OF_GAP] = 2.0 if by_gap < bounds[HIGH] - bounds[LOW] else 1.0
        limit = self.epsilon() - self.tolerance
        if bounds[GAP] > limit or bounds[VIOLATED_HIGH] > self.epsilon():
            return False
        if by_gap > limit:
            high, _ = first_value(self.structure, self.params, self.fresh(), self.scratch, FINE)
            if high - bounds[LOW] > limit:
                return False
            bounds[HIGH], bounds[GAP] = high, high - bounds[LOW]
        self._issue()
        return True

    def _issue(self) -> None:
        status = self.status
        more = self.epsilon(), status[EPISODES], status[POLICIES], status[ATTEMPTS]
        self.passed[status[PASSED]] = [*self.bounds, *more]

    @property
    def issued(self) -> list[dict[str, float]]:
        """Certified bounds, in the order of the epsilons."""
        return [dict(zip(LINE, line, strict=True)) for line in self.passed[: self.status[PASSED]].tolist()]

    # Plans ---------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Plan the next episodes for a frozen candidate that is not certified yet."""
        alone = 0 if self.params.deterministic else (self._last_episodes() or self._try_gaps())
        if alone > 0:
            self._finish(alone)
        else:
            self._round()

    def _last_episodes(self) -> int:
        """Return the number of episodes of the candidate alone that come next; 0 to continue the search."""
        forecast, done = self._returns_forecast(), int(self.status[EPISODES])
        if forecast is None:
            return 0
        high, value, seen = float(self.bounds[HIGH]), float(self.bounds[ESTIMATE]), int(self.evidence.counts[PLAYED])
        totals = forecast.totals(done, self.aim(), high, value, value, seen, PART)
        rest = float(totals[0]) - done
        if not 0.0 < rest < math.inf or totals.min() < totals[0]:
            return 0
        return int(min(max(50.0, 0.02 * done, 0.7 * rest), max(EFFORT_LEAST, 0.5 * done)))

    def _try_gaps(self) -> int:
        """Freeze the gaps if few enough episodes of the candidate may certify them; return how many, or 0."""
        low = self.lower_values_now()
        gap, stopping, challenger = np.zeros_like(low), np.zeros_like(low), np.zeros(len(low), np.int32)
        aim, next_share = self.aim(), self._attempt_share(int(self.status[ATTEMPTS]) + 1) + math.log(2)
        effort = EFFORT * int(self.status[EPISODES]) + EFFORT_LEAST

        def episodes_needed(tables: Tables) -> float:
            top = measure_gaps(self.structure, self.params, tables, self.candidate, low, gap, stopping, challenger)
            mean = counted_mean(self.structure, self.tables, stopping)
            if not self.params.complete:  # a state that was not visited may have the largest possible gap
                top = max(top, self.structure.horizon * (self.params.most - self.goal.least))
            self._largest = top
            margin = 0.95 * aim - 1.1 * mean
            return max(top * next_share, 1e-300) / margin if margin > 0.0 else math.inf

        good = episodes_needed(self.tables) <= effort
        self.challenger[:] = challenger
        needed = episodes_needed(self.fresh()) if good else math.inf
        if needed > effort:
            return 0
        self.status[ATTEMPTS] += 1
        self.evidence.gap[:] = gap
        self.evidence.scale[2] = self._largest
        self.evidence.gaps[:] = 0
        self.evidence.counts[GAUGED] = 0
        self.frozen_counts.take(self.tables)
        return int(min(effort, 1.25 * needed + EFFORT_LEAST))
