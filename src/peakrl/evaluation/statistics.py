"""Statistics of episodes and of repeated runs: pure functions of numbers, nothing drawn.

* Share of successes: Clopper and Pearson's exact interval (`scipy.stats.binomtest`).
* Mean: x-bar +- t_{n-1}(1-a/2) * s / sqrt(n), a = 1 - confidence.
* Interquartile mean: the mean of what is left when the lowest and the highest quarter (rounded down) are dropped;
  robust to outlying runs, with a percentile bootstrap interval.
* Probability of improvement: theta = P(X > Y) + P(X = Y)/2 over all pairs of runs, which is Mann and Whitney's
  U / (n m). U averages over ways of pairing k = min(n, m) runs off, each a mean of k independent numbers in [0, 1], so
  that Chernoff's bound holds for it whatever the distributions (Hoeffding 1963, section 5):
  P(U/(n m) >= x) <= exp(-k KL(x, theta)) for x >= theta, and alike below, with
  KL(x, q) = x log(x/q) + (1-x) log((1-x)/(1-q)).
  The interval is where both bounds are at least a/2. With 10 runs a side or more it is the percentile bootstrap's,
  but reaches at least (a/2)^(1/k) and 1 - (a/2)^(1/k): what happens to one in fewer may not have come up in k runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from peakrl.checks import check_confidence, check_count
from peakrl.errors import SettingsError
from peakrl.types import Floats

#: So many runs a side make a bootstrap of them worth having.
ENOUGH_RUNS = 10


class Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A statistic with its confidence interval."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Return the exact two-sided interval of a probability from `successes` among `trials`."""
    from scipy.stats import binomtest

    trials = check_count(trials, "trials", least=1)
    successes = check_count(successes, "successes", least=0)
    if successes > trials:
        raise SettingsError(f"successes are {successes} of {trials} trials; there cannot be more than trials")
    found = binomtest(successes, trials).proportion_ci(check_confidence(confidence), method="exact")
    return Interval(float(found.low), float(found.high))


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return Student's interval of the mean of two or more values."""
    from scipy.special import stdtrit

    sample = check_sample(values, "values", least=2)
    tail = (1.0 - check_confidence(confidence)) / 2.0
    half = float(stdtrit(len(sample) - 1, 1.0 - tail) * sample.std(ddof=1) / math.sqrt(len(sample)))
    mean = float(sample.mean())
    return Interval(mean - half, mean + half)


def interquartile_mean(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Return the mean of the middle half of `values` with its percentile bootstrap interval."""
    from scipy.stats import trim_mean

    sample = check_sample(values, "values", least=1)
    middle = partial(trim_mean, proportiontocut=0.25)
    low, high = bootstrap((sample,), middle, confidence, resamples, seed)
    return Estimate(float(middle(sample)), low, high)


def improvement_probability(
    better: ArrayLike, worse: ArrayLike, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Return how likely a run of `better` is above a run of `worse`, a tie counting half, with its interval.

    The interval claims no more than so many runs can show: 3 runs that are all above 3 others give [0.29, 1], and 10
    that equal 10 others give [0.35, 0.65].
    """
    first, second = check_sample(better, "better", least=1), check_sample(worse, "worse", least=1)
    value, runs = float(share_above(first, second)), min(len(first), len(second))
    tail = (1.0 - check_confidence(confidence)) / 2.0
    if runs < ENOUGH_RUNS:
        return Estimate(value, least_mean(value, runs, tail), 1.0 - least_mean(1.0 - value, runs, tail))
    low, high = bootstrap((first, second), share_above, confidence, resamples, seed)
    # What occurs in less than a share 1 - surest of the runs may not have occurred yet, and may count fully either way.
    surest = tail ** (1.0 / runs)
    return Estimate(value, min(low, surest * value), max(high, 1.0 - surest * (1.0 - value)))


def least_mean(seen: float, count: int, tail: float) -> float:
    """Return the least mean of numbers in [0, 1] for which Chernoff allows `count` of them to average `seen`."""
    from scipy.special import rel_entr

    most = -math.log(tail) / count
    low, high = 0.0, seen
    for _ in range(60):
        middle = (low + high) / 2
        too_far = rel_entr(seen, middle) + rel_entr(1.0 - seen, 1.0 - middle) > most
        low, high = (middle, high) if too_far else (low, middle)
    return low


def share_above(better: Floats, worse: Floats, axis: int = -1) -> Any:
    """Return P(better > worse) + P(equal)/2 over all pairs along `axis`."""
    from scipy.stats import rankdata

    # By ranks, ties at their mean rank: U = sum of ranks - n(n+1)/2. The pairs themselves may be too many to hold.
    count, others = better.shape[axis], worse.shape[axis]
    ranks = rankdata(np.concatenate([better, worse], axis=axis), axis=axis)
    total = np.take(ranks, np.arange(count), axis=axis).sum(axis=axis)
    return (total - count * (count + 1) / 2) / (count * others)


def bootstrap(
    samples: tuple[Floats, ...], statistic: Callable[..., Any], confidence: float, resamples: int, seed: int
) -> Interval:
    """Return the percentile bootstrap interval."""
    from scipy.stats import bootstrap as scipy_bootstrap

    # Scipy wants two values at least; one value, twice, is resampled to the same thing as one.
    samples = tuple(np.repeat(sample, 2) if len(sample) == 1 else sample for sample in samples)
    confidence = check_confidence(confidence)
    resamples = check_count(resamples, "resamples", least=1)
    result = scipy_bootstrap(
        samples,
        statistic,
        confidence_level=confidence,
        n_resamples=resamples,
        method="percentile",
        vectorized=True,
        batch=64,
        random_state=np.random.default_rng(check_count(seed, "seed", least=0)),
    )
    return Interval(float(result.confidence_interval.low), float(result.confidence_interval.high))


def episodes_to_reach(episodes: ArrayLike, distance: ArrayLike, tolerance: float) -> int | None:
    """Return the first of `episodes` from which on `distance` stays at or below `tolerance`; None if it never does."""
    when, gap = check_sample(episodes, "episodes", least=1), check_sample(distance, "distance", least=1)
    if when.shape != gap.shape:
        raise SettingsError(f"there are {len(when)} episodes for {len(gap)} distances; there must be as many")
    if (np.diff(when) <= 0).any():
        raise SettingsError("episodes must be in increasing order")
    limit = float(check_sample([tolerance], "tolerance", least=1)[0])
    above = np.flatnonzero(gap > limit)
    position = int(above[-1]) + 1 if above.size else 0
    return int(when[position]) if position < len(when) else None


def check_sample(values: ArrayLike, what: str, *, least: int) -> Floats:
    """Return finite numbers as a flat array or raise."""
    try:
        sample = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingsError(f"{what} must be a sequence of numbers, got {values!r}") from None
    if sample.ndim != 1 or len(sample) < least:
        raise SettingsError(f"{what} have shape {sample.shape}; they must be a sequence of at least {least} numbers")
    bad = np.flatnonzero(~np.isfinite(sample))
    if bad.size:
        raise SettingsError(f"{what}: number {bad[0]} is {sample[bad[0]]}; it must be finite")
    return sample
