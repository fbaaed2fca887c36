"""Where a policy may come to and what it does was never tried there: how many such places, and how likely one is met.

A pair counts as tried once it was taken at any step where nothing depends on the step. What was never tried may violate
whatever was learned: it was not seen to be safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.base import Algorithm
from peakrl.learners.coverage_kernel import Courses, Outcomes, reach_untried, survival_low, way_of
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Ints, Longs

#: How surely a bound from counts holds.
CONFIDENCE = 0.95
#: A bound above this says nothing.
MEANINGLESS = 0.99
BY_MODEL = ("the model",)
FROM_COUNTS = (
    "the outcomes that were counted",
    "outcomes of a pair, and first states, are independent draws of one law",
)
SAME_LAW = "nothing depends on the step, as the target declares"
NOTHING_KNOWN = ("nothing: this learner counts no outcomes",)


@dataclass(frozen=True)
class Untried:
    """Where `run.policy` may come to and its action was never tried."""

    #: (step, state) that the policy can reach; of an environment, those among what was met.
    states: int
    #: Of coming to one in an episode, exact; None of an environment, where nobody knows it.
    probability: float | None
    #: How surely `probability_high` holds: a statement about the run as a whole, however its episodes were chosen.
    confidence: float
    #: What that bound needs to be true.
    rests_on: tuple[str, ...]
    #: Works the bound out; where the model is known few ask for it.
    bound: Callable[[], float] = field(repr=False, compare=False)

    @cached_property
    def probability_high(self) -> float:
        """An upper bound on the probability, from experience alone where the learner counts outcomes."""
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
                return "tried wherever it can come to (exact, by the model)"
            return f"untried in {self.states:,} (step, state), probability {self.probability:.2g} (exact, by the model)"
        if self.rests_on == NOTHING_KNOWN:
            return f"untried in {self.states:,} states that were met, probability not bounded"
        known = f"untried in {self.states:,} known (step, state)" if self.states else "tried wherever learning came by"
        if self.probability_high > MEANINGLESS:
            return f"{known}; too little was counted to bound how likely it comes to a place where it was not tried"
        bound = f"probability at most {self.probability_high:.2g} (confidence {self.confidence:.0%})"
        return f"{known}; it comes to a place where it was not tried with {bound}"


def find_untried(algorithm: Algorithm, rows: Ints, model: TabularModel | None) -> Untried | None:
    """Return what is known of a policy's untried places; `rows` is [node] of `model`, None for an environment.

    None where the learner counts no visits.
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
            return Untried(states, probability, 1.0, BY_MODEL, lambda: probability)
        return Untried(met_untried(algorithm, tried), None, 1.0, NOTHING_KNOWN, lambda: 1.0)
    rests_on = (*FROM_COUNTS, SAME_LAW) if algorithm.space.shared else FROM_COUNTS
    if probability is not None:
        return Untried(states, probability, CONFIDENCE, rests_on, lambda: by_counts(algorithm)[1])
    known, bound = by_counts(algorithm)
    return Untried(known, None, CONFIDENCE, rests_on, lambda: bound)


def by_counts(algorithm: Algorithm) -> tuple[int, float]:
    """Return how many (step, state) that were met lie on the policy's ways untried, and the bound on coming to any."""
    tried, outcomes, space = algorithm.tried(), algorithm.outcomes(), algorithm.space
    assert tried is not None
    assert outcomes is not None
    seen = int(np.count_nonzero(np.diff(outcomes.start))) + 1  # the law of the first state is one more
    share = math.log(seen * (seen + 1) / (1.0 - CONFIDENCE))
    courses = Courses(space.horizon, int(space.shared), np.array(space.layout.row_start), algorithm.chosen(), tried)
    known, survival = survival_low(courses, outcomes, way_of(courses, outcomes), share)
    return int(known), 1.0 - float(survival)


def met_untried(algorithm: Algorithm, tried: NDArray[np.bool_]) -> int:
    """Count states that were met and whose handed-out action, at some step, was never tried."""
    start = algorithm.space.layout.row_start
    offers = np.diff(start) > 0
    return int(np.count_nonzero(~tried[algorithm.chosen()[offers]].all(axis=1)))


def collect(head: Ints, link: Ints, following: Ints, count: Longs, laws: Ints, begun: Longs) -> Outcomes:
    """Return outcomes from lists of cells, those of one next slot together; `laws` is [row]."""
    owner = np.full(len(link), -1, np.int64)
    at = head.astype(np.int64)
    here = np.flatnonzero(at >= 0)
    while here.size:  # one cell of every list at a time
        owner[at[here]] = here
        at[here] = link[at[here]]
        here = here[at[here] >= 0]
    slots = max(len(begun), 1)
    keys, place = np.unique(owner * slots + following, return_inverse=True)
    sums = np.bincount(place, weights=count, minlength=len(keys)).astype(np.int64)
    start = np.searchsorted(keys // slots, np.arange(len(head) + 1))
    return Outcomes(laws.astype(np.int32), start, keys % slots, sums, np.array(begun))
