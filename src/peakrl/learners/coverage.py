"""Coverage of a policy: how likely it reaches a state in which its action was never tried.

An untried action may violate, whatever was learned. If nothing depends on the step, a pair counts as tried after one
visit at any step. On models the probability is exact; otherwise it is bounded from counts.

Bound from counts. A distribution was visited n times; outcome o (a next slot) occurred c(o) times, k outcomes in all.
Bet on the next outcome with

    q(o) = c(o) / (t + A)  for an outcome that occurred before,    q(new) = A / (t + A),    after t visits.

Each bet multiplies the stake by q/p, p the true probability. By Ville's inequality the stake of a fair bet ever reaches
1/d with probability at most d, whatever decides when the distribution is visited. Except with probability d,
at all times

    sum_o m(o) log 1/p(o)  <=  R = log G(n+A) - log G(A) - k log A - sum_o log G(c(o)) + log 1/d,    m(o) = c(o) - 1,

with G the gamma function; the first occurrences of the k outcomes are dropped, since p <= 1. Let S(o) be the
probability of no untried pair from o on (0 for outcomes that never occurred). The least sum_o p(o) S(o) over all such p
is, by duality,

    S  =  max over u >= 0 of  exp( (sum_o m(o) log((S(o) + u) / m(o)) - R) / N ) N  -  u,    N = sum_o m(o),

and every u gives a lower bound. By backward induction this bounds a policy, however it was chosen, because the
confidence sets of all distributions hold together: the j-th distribution to be visited has failure probability
d_total/(j(j+1)).

Tables are [slot, column] as in `learners.posterior_sampling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import kernel, loop
from peakrl.learners.base import Algorithm
from peakrl.learners.space import planning_order
from peakrl.numerics import times
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Layout, Longs

#: A: weight of a new outcome in the bets.
NEW = 0.5
#: Bisection for u: number of steps, and the interval.
HALVINGS, LEAST_SHIFT, MOST_SHIFT = 60, 1e-12, 1e6


class Outcomes(NamedTuple):
    """Counted outcomes: those of a distribution are start[distribution] .. start[distribution + 1]."""

    #: [row]
    distribution_of_row: Ints
    #: [distribution + 1]
    start: Longs
    #: [outcome]: next slot, and count.
    following: Longs
    count: Longs
    #: [slot]: episodes that began in it.
    begun: Longs


#: Confidence of bounds from counts.
CONFIDENCE = 0.95
#: A bound above this is reported as meaningless.
MEANINGLESS = 0.99
BY_MODEL = ("the model",)
FROM_COUNTS = (
    "the outcomes that were counted",
    "outcomes of a pair, and first states, are independent and identically distributed",
)
SAME_DISTRIBUTION = "nothing depends on the step, as the target declares"
NOTHING_KNOWN = ("nothing: this learner counts no outcomes",)


@dataclass(frozen=True)
class Coverage:
    """How likely `run.policy` reaches a state in which its action was never tried."""

    #: Number of (step, state) that the policy can reach with an untried action; for environments, of known ones.
    states: int
    #: Exact probability of reaching one in an episode; None for environments.
    probability: float | None
    #: Confidence of `probability_high`; it holds for the run as a whole, however its episodes were chosen.
    confidence: float
    #: Assumptions of the bound.
    rests_on: tuple[str, ...]
    #: Computes the bound on demand.
    bound: Callable[[], float] = field(repr=False, compare=False)

    @cached_property
    def probability_high(self) -> float:
        """Upper bound on the probability, from experience alone if the learner counts outcomes."""
        return self.bound()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "states": self.states, "probability": self.probability, "probability_high": self.probability_high,
            "confidence": self.confidence, "rests_on": list(self.rests_on), "text": str(self),
        }  # fmt: skip

    def __str__(self) -> str:
        if self.probability is not None:
            if self.states == 0:
                return "every reachable action was tried (exact, by the model)"
            return f"untried in {self.states:,} (step, state), probability {self.probability:.2g} (exact, by the model)"
        known = f"untried in {self.states:,} known (step, state)" if self.states else "tried in all known states"
        if self.rests_on == NOTHING_KNOWN:
            return f"{known}; no bound on the probability of reaching an untried action"
        if self.probability_high > MEANINGLESS:
            return f"{known}; too few outcomes to bound the probability of reaching an untried action"
        bound = f"probability at most {self.probability_high:.2g} (confidence {self.confidence:.0%})"
        return f"{known}; it reaches an untried action with {bound}"


def find_coverage(algorithm: Algorithm, rows: Ints, model: TabularModel | None) -> Coverage | None:
    """Return the coverage of a policy, `rows` [node]; `model` is None for environments.

    None if the learner does not count visits.
    """
    tried, outcomes = algorithm.tried(), algorithm.outcomes()
    if tried is None:
        return None
    probability: float | None = None
    if model is not None:
        mass, sent = np.zeros(model.num_slots), np.zeros(len(model.outcome_start) - 1)
        mass[model.first_slot] = model.first_probability
        states, probability = reach_untried(model.layout, mass, sent, read_only(rows), tried)
        states, probability = int(states), float(probability)
    if outcomes is None:
        if probability is not None:
            return Coverage(states, probability, 1.0, BY_MODEL, lambda: probability)
        return Coverage(met_untried(algorithm, tried), None, 1.0, NOTHING_KNOWN, lambda: 1.0)
    rests_on = (*FROM_COUNTS, SAME_DISTRIBUTION) if algorithm.space.shared else FROM_COUNTS
    if probability is not None:
        return Coverage(states, probability, CONFIDENCE, rests_on, lambda: by_counts(algorithm)[1])
    known, bound = by_counts(algorithm)
    return Coverage(known, None, CONFIDENCE, rests_on, lambda: bound)


def by_counts(algorithm: Algorithm) -> tuple[int, float]:
    """Return the number of known (step, state) that the policy reaches untried, and the bound on reaching any."""
    tried, outcomes, space = algorithm.tried(), algorithm.outcomes(), algorithm.space
    assert tried is not None
    assert outcomes is not None
    seen = int(np.count_nonzero(np.diff(outcomes.start))) + 1  # plus the distribution of the first state
    share = math.log(seen * (seen + 1) / (1.0 - CONFIDENCE))
    known, survival = survival_low(planning_order(space), space.shift, algorithm.chosen(), tried, outcomes, share)
    return int(known), 1.0 - float(survival)


def met_untried(algorithm: Algorithm, tried: NDArray[np.bool_]) -> int:
    """Count known states in which the action of the returned policy, at some step, was never tried."""
    start = algorithm.space.layout.row_start
    offers = np.diff(start) > 0
    return int(np.count_nonzero(~tried[algorithm.chosen()[offers]].all(axis=1)))


def collect(head: Ints, link: Ints, following: Ints, count: Longs, distributions: Ints, begun: Longs) -> Outcomes:
    """Return the outcomes of linked lists of cells, merged by next slot; `distributions` is [row]."""
    slots = max(len(begun), 1)
    keys, place = np.unique(owners(head, link) * slots + following, return_inverse=True)
    sums = np.bincount(place, weights=count, minlength=len(keys)).astype(np.int64)
    start = np.searchsorted(keys // slots, np.arange(len(head) + 1))
    return Outcomes(distributions.astype(np.int32), start, keys % slots, sums, np.array(begun))


def owners(head: Ints, link: Ints) -> Longs:
    """[cell]: the list that it belongs to; lists begin with `head`, and `link` [cell] leads on."""
    owner = np.full(len(link), -1, np.int64)
    at = head.astype(np.int64)
    here = np.flatnonzero(at >= 0)
    while here.size:  # one cell of every list at a time
        owner[at[here]] = here
        at[here] = link[at[here]]
        here = here[at[here] >= 0]
    return owner


@loop
def least_mean(count: Longs, survival: Floats, log_share: float) -> float:
    """Return S of a distribution from the counts of its outcomes and their own S; `log_share` is log 1/d."""
    n, total, limit = 0.0, 0.0, log_share
    for i in range(count.shape[0]):
        n += count[i]
        total += count[i] - 1.0
        limit -= math.lgamma(count[i]) + math.log(NEW)
    if total == 0.0:
        return 0.0
    limit += math.lgamma(n + NEW) - math.lgamma(NEW)
    low, high = 0.0, MOST_SHIFT
    if slope(count, survival, limit, total, 0.0) > 0.0:
        low = LEAST_SHIFT
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            if slope(count, survival, limit, total, middle) > 0.0:
                low = middle
            else:
                high = middle
    found = scale(count, survival, limit, total, low) * total - low
    return min(1.0, max(0.0, found))


@loop
def scale(count: Longs, survival: Floats, limit: float, total: float, shift: float) -> float:
    """Return exp((sum m log((S + u)/m) - R)/N)."""
    exponent = -limit
    for i in range(count.shape[0]):
        if count[i] > 1:
            if survival[i] + shift == 0.0:
                return 0.0
            exponent += (count[i] - 1.0) * math.log((survival[i] + shift) / (count[i] - 1.0))
    return math.exp(exponent / total)


@loop
def slope(count: Longs, survival: Floats, limit: float, total: float, shift: float) -> float:
    """Return the derivative of the dual objective in u."""
    mass = 0.0
    for i in range(count.shape[0]):
        if count[i] > 1:
            if survival[i] + shift == 0.0:
                return math.inf
            mass += (count[i] - 1.0) / (survival[i] + shift)
    return scale(count, survival, limit, total, shift) * mass - 1.0


@kernel
def survival_low(
    #: The slots with actions, last step first.
    order: Longs,
    #: 1 if a column is a step, 0 if slots belong to steps.
    shift: int,
    #: [slot, column]: the rows of the policy; [row]: was it ever taken?
    rows: Longs,
    tried: NDArray[np.bool_],
    outcomes: Outcomes,
    log_share: float,
) -> tuple[int, float]:
    """Return the number of known (step, slot) in which the policy's row is untried, and S of the first state."""
    slots, columns = rows.shape
    #: Is it reached by counted outcomes? Paths end at untried rows.
    reached, survival = np.zeros((slots, columns), np.bool_), np.ones((slots, columns + 1))
    began, start = np.flatnonzero(outcomes.begun), outcomes.start
    for slot in began:
        reached[slot, 0] = True
    for column in range(columns):
        for slot in order[::-1]:
            row = rows[slot, column]
            if reached[slot, column] and tried[row] and column + shift < columns:
                distribution = outcomes.distribution_of_row[row]
                for following in outcomes.following[start[distribution] : start[distribution + 1]]:
                    reached[following, column + shift] = True
    untried = 0
    for column in range(columns - 1, -1, -1):
        for slot in order:
            row = rows[slot, column]
            if reached[slot, column] and not tried[row]:
                untried += 1
                survival[slot, column] = 0.0
            elif reached[slot, column]:
                distribution = outcomes.distribution_of_row[row]
                own = slice(start[distribution], start[distribution + 1])
                ahead = survival[:, column + shift][outcomes.following[own]]
                survival[slot, column] = least_mean(outcomes.count[own], ahead, log_share)
    return untried, least_mean(outcomes.begun[began], survival[:, 0][began], log_share)


@loop
def reach_untried(
    layout: Layout, mass: Floats, sent: Floats, rows: Ints, tried: NDArray[np.bool_]
) -> tuple[int, float]:
    """Return how many (step, state) a policy, `rows` [node], can reach untried, and the probability of reaching any.

    Exact, by the model. What comes there goes no further; products do not vanish (`numerics`). `mass` [slot]
    is how likely an episode begins there, `sent` [distribution] is 0; both are overwritten.
    """
    states, probability = 0, 0.0
    for step in range(layout.horizon):
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            if mass[slot] > 0.0:
                row = rows[step * layout.node_stride + slot]
                if tried[row]:
                    sent[layout.row_distribution[row]] += mass[slot]
                else:
                    states += 1
                    probability += mass[slot]
                mass[slot] = 0.0
        for d in range(layout.step_distributions[step, 0], layout.step_distributions[step, 1]):
            if sent[d] > 0.0:
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    mass[layout.outcome_next[o]] += times(sent[d], layout.outcome_probability[o])
                sent[d] = 0.0
    return states, min(probability, 1.0)
