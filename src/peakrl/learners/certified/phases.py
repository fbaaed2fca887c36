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

The expected violation must be within epsilon as well. Before a certificate is issued, U is computed from the counts
alone, without earlier bounds, so that the certificate can be verified from the counts.

The j-th frozen candidate has 1/(j (j+1)) of p_L and p_C, the i-th attempt at certificate 2 has 1/(i (i+1)) of its part:

    value        L <= V^pi from the returns of the candidate since it was frozen
    violation    at most H sum c_i times the probability of a violation, bounded from the same episodes; 0 if every
                 pair that the candidate can take was tested and satisfied the constraints
    gaps         the mean of the largest gap of an episode, from episodes since the gaps were frozen; in states
                 discovered since then it is at most (H-h)(most-lo), and the largest is taken to be H (most-lo)

If nothing is random, value and violation of the candidate are known once its path was followed.

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
from dataclasses import asdict, dataclass

import numpy as np

from peakrl.certificates.certificate import BEST
from peakrl.checks import ROUNDING
from peakrl.learners.base import Task
from peakrl.learners.certified.bounds import FINE, LOWER, ROUGH, VIOLATION, mixed_bound
from peakrl.learners.certified.declared import UNMET, Declared
from peakrl.learners.certified.gaps import (
    counted_mean,
    estimate_policy,
    lower_values,
    measure_gaps,
    plan_candidate,
)
from peakrl.learners.certified.tables import (
    CANDIDATE,
    CHALLENGE,
    FIRST,
    GAUGED,
    GRID,
    JUDGED_BAD,
    LEAST,
    MOST,
    OPEN,
    OPTIMISTIC,
    PLAYED,
    SQUARES,
    SUM,
    TOP,
    VIOLATED,
    GrowingTables,
    Tables,
)
from peakrl.learners.certified.values import first_value, sweep
from peakrl.learners.infeasibility import DECLARED
from peakrl.numerics import sums_exactly
from peakrl.types import Bytes, Floats, Ints, Longs

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
ROUND, ROUND_DETERMINISTIC, SHARE = 50, 10, 0.1
#: In a round with a frozen candidate, the share of the candidate, and that of the challenger.
PART = 1 / 3
#: Episodes of the candidate that an attempt at certificate 2 may take: a share of all before, and a minimum.
EFFORT, EFFORT_LEAST = 0.15, 200
#: Returns needed to estimate the variance of a candidate's returns.
TELLING = 50


@dataclass
class Bounds:
    """The latest bounds on the candidate."""

    optimum_high: float
    #: Estimated value of the candidate, which proves nothing.
    estimate: float = -math.inf
    value_low: float = -math.inf
    violation_high: float = math.inf
    violation_probability_high: float = 1.0
    gap: float = math.inf
    #: Which of the two certificates gives the gap.
    by: float = 0.0


def shortfall(bounds: Bounds, epsilon: float, best: str = BEST[False]) -> str | None:
    """Return why bounds do not certify an epsilon, or None; `best` is what the policy is compared with."""
    if bounds.optimum_high == -math.inf:
        return "no policy satisfies every constraint: from an observed first state a violation is certain"
    if bounds.violation_probability_high == 0.0 and bounds.value_low > bounds.optimum_high:
        return "the bounds contradict each other"
    if not bounds.gap <= epsilon:
        return f"the policy may lie {bounds.gap:.6g} below the {best}, more than {epsilon:g}"
    if not bounds.violation_high <= epsilon:
        return f"the violation may be {bounds.violation_high:.6g}, more than {epsilon:g}"
    return None


class Rounds(GrowingTables):
    """Blocks of episodes, and the reviews between them."""

    def __init__(
        self, task: Task, declared: Declared, epsilons: tuple[float, ...], failure_probability: float, relative: bool
    ) -> None:
        super().__init__(task, declared, failure_probability)
        self.epsilons, self.relative = epsilons, relative
        self.bounds = Bounds(self.space.horizon * declared.facts.most)
        #: Certified bounds, in the order of the epsilons.
        self.issued: list[dict[str, float]] = []
        #: Reviews so far.
        self.reviews = 0
        self.status.left = ROUND_DETERMINISTIC if declared.facts.deterministic else ROUND

    def enough(self) -> str | None:
        """Return why no more episodes are needed."""
        if self.status.dead_first != OPEN:
            return "infeasible" if self.space.observes_states else "no action left"
        return "certified" if len(self.issued) == len(self.epsilons) else None

    @property
    def contradicts(self) -> bool:
        """Does a policy that never violates earn more than any such policy can? Then a declaration is false."""
        safe = self.facts.growing and self.bounds.violation_probability_high == 0.0
        return safe and self.bounds.value_low > self.bounds.optimum_high

    # Episodes ------------------------------------------------------------------------------------------------

    @property
    def gauge(self) -> bool:
        """Are the next episodes evidence for the frozen candidate?"""
        return self.status.kind == CANDIDATE and bool(self.status.frozen)

    def played(self, episodes: int) -> None:
        """Count episodes; at the end of a block start the next one, or review."""
        status = self.status
        status.episodes += episodes
        status.left -= episodes
        if status.left > 0:
            return
        if status.challenges > 0:
            self._block(CHALLENGE, status.challenges, self.tables.challenger)
            status.challenges = 0
        elif status.candidates > 0:
            self._block(CANDIDATE, status.candidates, self.tables.candidate)
            status.candidates = 0
        else:
            self.review()

    def _block(self, kind: int, episodes: int, rows: Longs | None = None) -> None:
        self.status.kind, self.status.left = kind, episodes
        if rows is not None:
            self.tables.followed[:] = rows

    def _round(self) -> None:
        """Plan a round of all three kinds; if nothing is random, one episode of the candidate suffices."""
        status = self.status
        if self.facts.deterministic:
            self._block(OPTIMISTIC, ROUND_DETERMINISTIC - 1)
            status.challenges, status.candidates = 0, 1
            return
        growth = SHARE
        if status.frozen:  # less if that may suffice: gaps fall like K^-1/2
            beyond = self.bounds.gap / max(self.aim(), 1e-300)
            growth = min(SHARE, max(1.05 * (beyond * beyond - 1.0), 0.2 * SHARE))
        episodes = max(ROUND, int(growth * status.episodes))
        part = max(1, int(PART * episodes)) if status.frozen else 0
        self._block(OPTIMISTIC, max(1, episodes - 2 * part))
        status.challenges = status.candidates = part

    # Reviews -------------------------------------------------------------------------------------------------

    def review(self) -> None:
        """Update every bound, issue certificates, and plan the next episodes."""
        self.settle()
        self.sort_cells()
        self.reviews += 1
        sweep(self.tables, ROUGH)
        high, dead = first_value(self.tables, ROUGH)
        if dead != OPEN:
            self.status.dead_first = int(dead)
            return
        self.bounds.optimum_high = high
        self._choose(high)
        if not self.status.frozen:
            self._round()
            return
        while self.enough() is None and self._certified():
            epsilon = self.in_units(self._wanted(), self.bounds)
            more = {"epsilon": epsilon, "episodes": self.status.episodes,
                    "candidate": self.status.policies, "attempt": self.status.attempts}  # fmt: skip
            self.issued.append({name: float(value) for name, value in (asdict(self.bounds) | more).items()})
        if self.enough() is not None:
            return
        alone = 0 if self.facts.deterministic else (self._last_episodes() or self._try_gaps())
        if alone > 0:  # episodes of the candidate alone
            self.status.challenges = self.status.candidates = 0
            self._block(CANDIDATE, alone, self.tables.candidate)
        else:
            self._round()

    def _wanted(self) -> float:
        """Return the current epsilon."""
        return self.epsilons[min(len(self.issued), len(self.epsilons) - 1)]

    def in_units(self, epsilon: float, bounds: Bounds) -> float:
        """Return an epsilon in units of value: itself, or a share of a lower bound of the size of the best safe value.

        V* is at least the value of a policy that never violates, at least H lo, and at most U_1.
        """
        if not self.relative:
            return epsilon
        never = bounds.violation_probability_high == 0.0
        low = bounds.value_low if never else self.facts.reward_range[0] * self.space.horizon
        return epsilon * max(low, -bounds.optimum_high, 0.0)

    def aim(self) -> float:
        """Return the gap to reach for planning; a relative one uses the estimated value."""
        return self._wanted() * abs(self.bounds.estimate) if self.relative else self._wanted()

    def forecast(self) -> float:
        """Estimate the episodes left: gaps fall like K^-1/2, the bound on the violation like 1/K."""
        bounds, aim = self.bounds, self.aim()
        gap = bounds.gap if self.status.frozen else bounds.optimum_high - bounds.estimate
        if not (aim > 0.0 and math.isfinite(gap)):
            return math.inf
        safe = bounds.violation_high / aim if self.status.frozen else 0.0
        beyond = max((gap / aim) ** 2, safe)
        return max(0.0, self.status.episodes * (beyond - 1.0)) if math.isfinite(beyond) else math.inf

    def _choose(self, high: float) -> None:
        """Keep the candidate, or replace it."""
        t, frozen = self.tables, self.status.frozen
        rows, value, estimate = t.candidate.copy(), np.zeros_like(t.value), np.zeros_like(t.value)
        plan_candidate(t, rows, value, estimate, wide=False, fewest=0)
        best = counted_mean(t, estimate)
        if not frozen:
            self.bounds.estimate = best
        if not frozen and high - best > ARM * self.aim():
            t.candidate[:] = rows
            return
        now_estimate = np.zeros_like(t.value)
        estimate_policy(t, t.candidate, now_estimate)
        now = counted_mean(t, now_estimate)
        if not frozen or self.known_bad() or self._sooner(high, best, now):
            self.freeze(rows)
            now = best
        self.bounds.estimate = now

    def _sooner(self, high: float, best: float, now: float) -> bool:
        """Return whether a new candidate of value `best` is forecast to be certified before the current one."""
        if best - now <= STICK * self.aim():
            return False
        forecast = self.returns_forecast()
        if forecast is None:
            return True
        done, aim, seen = self.status.episodes, self.aim(), int(self.tables.counts[PLAYED])
        other = forecast.totals(done, aim, high, best, best, 0, PART).min()
        return bool(other < forecast.totals(done, aim, high, best, now, seen, PART).min())

    def returns_forecast(self) -> Forecast | None:
        """Return the forecast for the candidate; None if it has too few returns or nothing is random."""
        total, scale, aim = int(self.tables.counts[PLAYED]), self.tables.scale, self.aim()
        if total < TELLING or self.facts.deterministic or not aim > 0.0:
            return None
        mean = float(scale[SUM]) / total
        deviation = math.sqrt(max(float(scale[SQUARES]) / total - mean * mean, 0.0))
        share = self.share(LOWER / 3) + math.log(2)
        safe = 0.0 if self.keeps() else self.facts.violation * (self.share(VIOLATION) + math.log(2)) / aim
        return Forecast.of(mean, deviation, float(scale[LEAST]), share, safe)

    def freeze(self, rows: Longs) -> None:
        """Freeze a candidate: its evidence starts now, and what is known now determines its actions in new states."""
        t = self.tables
        self.status.frozen = 1
        self.status.policies += 1
        t.candidate[:] = t.challenger[:] = rows
        t.cell_before[:] = t.cell_count
        t.counts[:] = t.returns[:] = t.gaps[:] = 0
        t.gap[:] = 0.0
        t.scale[TOP:] = -1.0, 0.0, 0.0
        t.judged[:] = np.where(t.max_violation > 0, JUDGED_BAD, t.tested)
        self.bounds = Bounds(self.bounds.optimum_high, self.bounds.estimate)

    # Certificates -------------------------------------------------------------------------------------------

    def _certified(self) -> bool:
        """Update the bounds; return whether the candidate is certified for the current epsilon, by the counts alone."""
        self.bounds = self.bounds_with(self.bounds.optimum_high)
        if shortfall(self.bounds, self.in_units(self._wanted(), self.bounds)) is not None:
            return False
        self.bounds = self.bounds_now()
        return shortfall(self.bounds, self.in_units(self._wanted(), self.bounds)) is None

    def bounds_now(self) -> Bounds:
        """Return all bounds from the counts alone, which are the numbers of a certificate."""
        high, dead = first_value(self.fresh(), FINE)
        return self.bounds_with(high + self.tolerance if dead == OPEN else -math.inf)

    def bounds_with(self, high: float) -> Bounds:
        """Return the bounds on the candidate, given the one on the optimum; rounding is included."""
        least, tolerance = self.facts.reward_range[0] * self.space.horizon, self.tolerance
        if not self.status.frozen:
            return Bounds(high, self.bounds.estimate, least, self.facts.violation, 1.0, high - least, 1.0)
        low, chance = max(self.return_low() - tolerance, least), self.chance_high()
        by_value, by_gap = high - low, self.gap_high() + tolerance
        by = 2.0 if by_gap < by_value else 1.0
        return Bounds(high, self.bounds.estimate, low, chance * self.facts.violation, chance, min(by_value, by_gap), by)

    # Plans ---------------------------------------------------------------------------------------------------

    def _last_episodes(self) -> int:
        """Return the number of episodes of the candidate alone that come next; 0 to continue the search."""
        forecast, done = self.returns_forecast(), self.status.episodes
        if forecast is None:
            return 0
        high, value, seen = self.bounds.optimum_high, self.bounds.estimate, int(self.tables.counts[PLAYED])
        totals = forecast.totals(done, self.aim(), high, value, value, seen, PART)
        rest = float(totals[0]) - done
        if not 0.0 < rest < math.inf or totals.min() < totals[0]:
            return 0
        return int(min(max(50.0, 0.02 * done, 0.7 * rest), max(EFFORT_LEAST, 0.5 * done)))

    def _try_gaps(self) -> int:
        """Freeze the gaps if few enough episodes of the candidate may certify them; return how many, or 0."""
        t, low = self.tables, self.lower_values_now()
        gap, stopping, challenger = np.zeros_like(t.gap), np.zeros_like(low), t.challenger.copy()
        aim, next_share = self.aim(), self.attempt_share(self.status.attempts + 1) + math.log(2)
        effort = EFFORT * self.status.episodes + EFFORT_LEAST

        def measured(tables: Tables) -> tuple[float, float]:
            """Return the largest gap, and the episodes needed to certify the gaps."""
            top = measure_gaps(tables, t.candidate, low, gap, stopping, challenger)
            mean = counted_mean(t, stopping)
            if not t.complete:  # a state that was not visited may have the largest possible gap
                top = max(top, t.horizon * (t.most - t.least))
            margin = 0.95 * aim - 1.1 * mean
            return top, max(top * next_share, 1e-300) / margin if margin > 0.0 else math.inf

        _, needed = measured(t)
        t.challenger[:] = challenger
        if needed > effort:
            return 0
        top, needed = measured(self.fresh())
        if needed > effort:
            return 0
        self.status.attempts += 1
        t.gap[:], t.scale[TOP] = gap, top
        t.gaps[:] = t.counts[GAUGED] = 0
        t.then_count[:], t.then_before[:] = t.cell_count, t.cell_before
        t.then_known[:], t.then_max_violation[:] = t.known, t.max_violation
        return int(min(effort, 1.25 * needed + EFFORT_LEAST))

    # Bounds on the candidate -----------------------------------------------------------------------------------

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
        t, top = self.tables, self.ceilings
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
        lower_values(t, t.candidate, self.share(LOWER / 3) + self.bet_logs(), low)
        return low

    def bet_logs(self, several: bool = False) -> Floats:
        """[distribution]: log of the number of bets that share d (`Declared.bet_logs`)."""
        slots = np.append(0, self.tables.slot_of_row - self.space.ends + 1)
        return self.declared.bet_logs(range(len(self.tables.samples)), slots, several)
