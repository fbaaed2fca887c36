"""Arrivals of energy: E_0, E_1, ... whole numbers of energy units, one for each step.

A process has a distribution of the first arrival and one of the next arrival:

    independent   P(E_{h+1} = e) = p(e), the same at every step
    frozen        E_h is the h-th number of a sequence that every episode replays
    Markov        P(E_{h+1} = e' | E_h = e) = T[e, e'], and P(E_0 = e) = d(e)

The truncated normal distribution is that of X ~ normal(mean, std) given 0 <= X <= M, rounded: p(e) is the mass of X on
[e - 1/2, e + 1/2], cut at 0 and M. The values 0 and M thus have the mass of half an interval. (Rounding before
truncating would give them a whole one, and other optima than the published ones.)

Sequences are drawn by inversion, E = the least e with p(0) + ... + p(e) > u, from one stream of uniform numbers for
each seed. Sequence i of a seed does not depend on how many are drawn, and distributions of different means share their
random numbers, which reduces the variance of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from peakrl.checks import (
    LARGEST_SEED,
    check_chain,
    check_count,
    check_integers,
    check_number,
    check_probabilities,
)
from peakrl.errors import ProblemError
from peakrl.jit import kernel
from peakrl.sampling import Words, seed_state, uniform
from peakrl.types import Floats, Longs

#: (probability, arrival) pairs.
Distribution = list[tuple[float, int]]
#: Largest arrival and largest capacity: each unit is an action.
LARGEST_ENERGY = 1_000_000


class Arrivals:
    """Base of the processes: a distribution of the first arrival, and one of the next arrival given this one."""

    #: Is the distribution of the next arrival the same at every step?
    stationary: ClassVar[bool] = True
    #: [arrival]: distribution of the first one.
    initial: tuple[float, ...]

    @property
    def largest(self) -> int:
        """The largest possible arrival."""
        return len(self.initial) - 1

    def rows(self, step: int) -> tuple[tuple[float, ...], ...]:
        """Return [arrival][next arrival]: the transition matrix after `step`."""
        raise NotImplementedError

    def first(self) -> Distribution:
        """Return the distribution of the first arrival."""
        return pairs_of(self.initial)

    def following(self, step: int, arrival: Any) -> list[tuple[Any, int]]:
        """Return (probability, next arrival) pairs after that of `step`, for one arrival or an array of them."""
        chances = np.array(self.rows(step))
        return [(chances[arrival, following], following) for following in range(len(chances))]

    def draw(self, count: int, horizon: int, seed: int) -> Longs:
        """Return `count` sequences, [sequence, step]."""
        numbers = draw_uniforms(count, horizon, seed)
        arrivals = np.empty((count, horizon), np.int64)
        arrivals[:, 0] = invert(np.array(self.initial), numbers[:, 0])
        for step in range(1, horizon):
            for before, probabilities in enumerate(self.rows(step - 1)):
                here = arrivals[:, step - 1] == before
                arrivals[here, step] = invert(np.array(probabilities), numbers[here, step])
        return arrivals

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: 0 to {self.largest}>"


@dataclass(frozen=True, repr=False)
class IndependentArrivals(Arrivals):
    """Independent arrivals with the same distribution at every step: probabilities[e] is that of e."""

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", check_probabilities(self.probabilities, "probabilities"))
        object.__setattr__(self, "initial", self.probabilities)

    def __repr__(self) -> str:
        mean = sum(arrival * chance for arrival, chance in enumerate(self.probabilities))
        return f"<IndependentArrivals: 0 to {self.largest}, mean {mean:.4g}>"

    @classmethod
    def truncated_normal(cls, *, mean: float, std: float, max_arrival: int) -> IndependentArrivals:
        """Return normal(mean, std) truncated to [0, max_arrival], then rounded."""
        return cls(tuple(truncated_normal(mean, std, max_arrival).tolist()))

    def following(self, step: int, arrival: Any) -> Distribution:
        """Return the distribution of the arrival after that of `step`."""
        return self.first()

    def draw(self, count: int, horizon: int, seed: int) -> Longs:
        """Return `count` sequences, [sequence, step]."""
        return invert(np.array(self.probabilities), draw_uniforms(count, horizon, seed))


@dataclass(frozen=True)
class FrozenArrivals(Arrivals):
    """One sequence that every episode replays; after it arrivals are 0."""

    stationary: ClassVar[bool] = False
    sequence: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = check_integers(self.sequence, "arrivals")
        if numbers.ndim != 1:
            raise ProblemError(
                f"arrivals have shape {numbers.shape}; a problem replays one sequence, so give one row of them "
                "(a transition matrix needs the distribution of the first arrival, as (matrix, first))"
            )
        object.__setattr__(self, "sequence", tuple(numbers.tolist()))

    @property
    def largest(self) -> int:
        """The largest arrival of the sequence."""
        return max(self.sequence, default=0)

    def first(self) -> Distribution:
        """Return the first arrival."""
        return [(1.0, self.sequence[0])]

    def following(self, step: int, arrival: int) -> Distribution:
        """Return the arrival after the one of `step`."""
        return [(1.0, self.sequence[step + 1] if step + 1 < len(self.sequence) else 0)]

    def draw(self, count: int, horizon: int, seed: int) -> Longs:
        """Return the sequence `count` times; the seed is ignored."""
        return np.tile(np.array(self.sequence[:horizon], np.int64), (count, 1))


@dataclass(frozen=True, init=False, repr=False)
class MarkovArrivals(Arrivals):
    """A Markov chain of arrivals 0 .. n-1: matrix[e][e'], and the distribution of the first one (or its value)."""

    matrix: tuple[tuple[float, ...], ...]
    initial: tuple[float, ...]

    def __init__(self, matrix: Any, initial: Any) -> None:
        rows = check_chain(matrix, "matrix")
        if np.ndim(initial) == 0:
            arrival = whole_number(initial, "first", 0, len(rows) - 1)
            first = tuple(np.eye(len(rows))[arrival].tolist())
        else:
            first = check_probabilities(initial, "first", len(rows))
        object.__setattr__(self, "matrix", rows)
        object.__setattr__(self, "initial", first)

    def rows(self, step: int) -> tuple[tuple[float, ...], ...]:
        """Return the matrix."""
        return self.matrix


def pairs_of(probabilities: Iterable[float]) -> Distribution:
    """Return (probability, arrival) pairs of the possible arrivals."""
    return [(chance, arrival) for arrival, chance in enumerate(probabilities) if chance > 0]


def truncated_normal(mean: float, std: float, max_arrival: int) -> Floats:
    """Return [e]: the probabilities of normal(mean, std) truncated to [0, max_arrival] and then rounded."""
    mean = check_number(mean, "mean", error=ProblemError)
    std = check_number(std, "std", above=0, error=ProblemError)
    return rounded_normal(mean, std, whole_number(max_arrival, "max_arrival", 0, LARGEST_ENERGY)).copy()


@lru_cache(maxsize=64)
def rounded_normal(mean: float, std: float, top: int) -> Floats:
    """Return the result of `truncated_normal`, cached; many problems share one."""
    if top == 0:
        return np.ones(1)
    edges = np.concatenate(([0.0], np.arange(top) + 0.5, [float(top)]))
    with np.errstate(over="ignore"):  # a std near 0 puts edges at infinity, where the result is still right
        edge = (edges - mean) / std
        width = np.diff(edges) / std
    log_mass = log_normal_mass(edge[:-1], edge[1:], width)
    if not log_mass.max() > -math.inf:
        raise ProblemError(f"mean is {mean:g} and std {std:g}: the normal distribution has no mass on 0..{top}")
    mass = np.exp(log_mass - log_mass.max())
    return np.asarray(mass / mass.sum(), np.float64)


def log_normal_mass(low: Floats, high: Floats, width: Floats) -> Floats:
    """Return log(Phi(high) - Phi(low)) without the cancellation of far-off or narrow intervals; -inf if it is 0."""
    # The logarithm is accurate on the side on which Phi is small.
    near, far = np.where(low > 0, -low, high), np.where(low > 0, -high, low)
    with np.errstate(all="ignore"):
        log_near, log_far = (np.array([log_normal_below(x) for x in part.tolist()]) for part in (near, far))
        log_mass = log_near + np.log(-np.expm1(log_far - log_near))
        # A narrow interval: its width times the density in its middle, to second order in the width.
        middle = low + width / 2
        slim = np.log(width) - middle**2 / 2 - math.log(2 * math.pi) / 2 + np.log1p((middle**2 - 1) * width**2 / 24)
        chosen = np.where(width * np.maximum(1.0, np.abs(middle)) < 1e-3, slim, log_mass)
    return np.where(np.isnan(chosen), -math.inf, chosen)


def log_normal_below(x: float) -> float:
    """Return log(Phi(x)) up to a few units in its last place (importing scipy's log_ndtr takes 0.2 s)"""
    if x > -1:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    # erfc would nearly underflow: the asymptotic series 1 - 1/x^2 + 3/x^4 - 15/x^6 ...
    series = 0.0
    for term in range(11, 0, -2):
        series = -term / (x * x) * (1 + series)
    return -x * x / 2 - math.log(-x) - math.log(2 * math.pi) / 2 + math.log1p(series)


def draw_arrivals(
    count: int, *, horizon: int = 20, mean: float = 10, std: float = 5, max_arrival: int = 20, seed: int = 0
) -> Longs:
    """Return `count` sequences of the truncated normal distribution, [sequence, step].

    Sequence i depends on the seed and on i, not on `count`; sequence 0 is that of `arrivals="frozen"`.
    """
    probabilities = IndependentArrivals.truncated_normal(mean=mean, std=std, max_arrival=max_arrival)
    return probabilities.draw(whole_number(count, "count", 0), whole_number(horizon, "horizon", 1), seed)


def draw_uniforms(count: int, horizon: int, seed: int) -> Floats:
    """Return uniform numbers [sequence, step] from the stream of a seed."""
    state = seed_state(whole_number(seed, "seed", 0, LARGEST_SEED))
    return uniforms(state, count * horizon).reshape(count, horizon)


@kernel
def uniforms(state: Words, count: int) -> Floats:
    """Return the next `count` uniform numbers of a generator."""
    numbers = np.empty(count)
    for i in range(count):
        numbers[i] = uniform(state)
    return numbers


def invert(probabilities: Floats, numbers: Floats) -> Longs:
    """Return for each uniform number u the least e with p(0) + ... + p(e) > u."""
    cumulated = np.cumsum(probabilities)
    # Dividing makes the end exactly 1, so that no u < 1 lies beyond it.
    return np.searchsorted(cumulated / cumulated[-1], numbers, side="right").astype(np.int64)


# Validation ---------------------------------------------------------------------------------------------------


def recorded_sequences(given: Any, *, horizon: int, max_arrival: int) -> Longs:
    """Return validated arrivals [step] or [sequence, step], cut to the first `horizon` steps."""
    numbers = check_integers(given, "arrivals", max_arrival, otherwise=" (max_arrival)")
    if numbers.ndim not in (1, 2):
        raise ProblemError(f"arrivals have shape {numbers.shape}; they must be [step] or [sequence, step]")
    if numbers.shape[-1] < horizon:
        raise ProblemError(f"arrivals hold {numbers.shape[-1]} steps; a horizon of {horizon} needs at least as many")
    return np.ascontiguousarray(numbers[..., :horizon])


def as_sequences(given: Any, what: str, largest: int | None = None) -> Longs:
    """Return recorded arrivals [sequence, step]; a single sequence may have no first axis."""
    numbers = np.atleast_2d(check_integers(given, what, largest, otherwise=" (max_arrival)" if largest else ""))
    if numbers.ndim != 2 or numbers.size == 0:
        raise ProblemError(f"{what} have shape {np.shape(given)}; they must be [sequence, step] and not empty")
    return numbers


def whole_number(given: Any, what: str, least: int, most: int | None = None) -> int:
    """Return an int within bounds, or raise; a number such as 20.0 counts as whole."""
    value = given.item() if isinstance(given, np.generic | np.ndarray) and np.ndim(given) == 0 else given
    exact = int(value) if isinstance(value, float) and value.is_integer() else value
    return check_count(exact, what, least, most, error=ProblemError)
