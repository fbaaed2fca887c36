"""Bounds on a mean that hold at all sample sizes at once, so that sampling may stop at any time.

Let X_1, X_2, .. <= b be drawn one after another, each with mean m given the past (b known before the first of them).
For every stake w in [0, 1] the capital M_n(w) = prod_i (1 - w + w (b - X_i) / (b - m)) of a gambler is a martingale.
Half is staked at w = 1, and half is spread over [0, 1] with density 1 / (pi sqrt(w (1 - w))), which does nearly as well
as the best w in hindsight: max_w M_n(w) <= sqrt(pi (n + 1/2)) * (its capital). By Ville's inequality the whole ever
reaches 1 / d with probability at most d. With w = (b - m) / (nu - m) this says, except with probability d, for ALL
n >= 1 and ALL nu >= b at once:

    m <= nu - exp( mean_i log(nu - X_i) - beta(nu, n) / n ),   beta(b, n) = log(2 / d),
                                                               beta(nu, n) = log(2 / d) + 1/2 log(pi (n + 1/2)) else.

nu may be picked after the data, and any nu is valid: the best one has F(nu) = beta / n where

    F(nu) = mean log(nu - X_i) + log mean 1 / (nu - X_i),       decreasing in nu.

With c = mean X_i the right side is c - (nu - c) expm1(mean log1p((c - X_i) / (nu - c)) - beta / n), which loses no
digits if nu is large. Lower bounds are upper bounds of -X.

For one n that is fixed beforehand `betting_interval` is narrower: stakes that are chosen from the past for that n
(Waudby-Smith and Ramdas 2024, section 4) need not pay for the best w in hindsight. For X_i in [0, 1] and confidence 1-a

    M(m) = 1/2 prod_i X_i / m + 1/2 prod_i (1 + w_i (X_i - m)),    w_i = min( sqrt(2 log(2/a) / (n s_{i-1})), 3/(4m) ),
    s_i = (1/4 + sum_{j<=i} (X_j - c_j)^2) / (i + 1),              c_i = (1/2 + sum_{j<=i} X_j) / (i + 1),

decreases in m, and has mean 1 if m is the mean of the X_i. By Markov's inequality the mean is at least the root of
M(m) = 2/a except with probability a/2; the upper end is that of 1 - X.
"""

from __future__ import annotations

import math

import numpy as np

from peakrl.evaluation.statistics import Interval
from peakrl.numerics import LEAST
from peakrl.types import Floats

#: Tolerance of the search for the best nu; an inexact nu is valid too.
CLOSE = 1e-7
#: Steps of the search for the end of an interval.
HALVINGS = 40


def upper_mean(values: Floats, most: float, failure: float) -> float:
    """Return an upper bound on the mean that `values` were drawn with; each is at most `most`."""
    count = len(values)
    if count == 0:
        return most
    # Computed from b - X_i >= 0 and nu - b >= 0, so that no digits are lost if the range is far from 0.
    distances, counts = np.unique(most - values, return_counts=True)
    shares = counts / count
    all_in = math.log(2.0 / failure) / count
    spread = all_in + log_term(count) / count
    room = best_room(distances, shares, spread, count)
    found = bound_at(distances, shares, 0.0, all_in), bound_at(distances, shares, room, spread)
    return most + min(0.0, *found)


def lower_mean(values: Floats, least: float, failure: float) -> float:
    """Return a lower bound on the mean that `values` were drawn with; each is at least `least`."""
    return -upper_mean(-values, -least, failure)


def betting_interval(values: Floats, least: float, most: float, confidence: float) -> Interval:
    """Return the interval of a mean for values from `least` to `most`, drawn one after another, their number fixed."""
    width, price = most - least, math.log(2.0 / (1.0 - confidence))
    if width == 0.0:
        return Interval(least, most)
    shares = np.clip((values - least) / width, 0.0, 1.0)
    return Interval(least + width * least_share(shares, price), most - width * least_share(1.0 - shares, price))


def least_share(shares: Floats, price: float) -> float:
    """Return the least mean that numbers in [0, 1] may have; `price` is log(2/a)."""
    number = np.arange(2, len(shares) + 2)
    squares = np.cumsum((shares - (0.5 + np.cumsum(shares)) / number) ** 2)
    variance = (0.25 + np.append(0.0, squares[:-1])) / (number - 1)
    stakes = np.sqrt(2.0 * price / (len(shares) * variance))
    with np.errstate(divide="ignore"):
        logs = float(np.log(shares).sum())

    def capital(mean: float) -> float:
        spread = float(np.log1p(np.minimum(stakes, 0.75 / mean) * (shares - mean)).sum())
        return float(np.logaddexp(logs - len(shares) * math.log(mean), spread)) - math.log(2.0)

    low, high = 0.0, float(shares.mean())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle > 0.0:
            low, high = (middle, high) if capital(middle) >= price else (low, middle)
    return low


def log_term(count: int) -> float:
    """Return 1/2 log(pi (n + 1/2)): the cost of not knowing the best stake."""
    return 0.5 * math.log(math.pi * (count + 0.5))


def bound_at(distances: Floats, shares: Floats, room: float, price: float) -> float:
    """Return the bound of nu = b + room, less b; `price` is beta / n."""
    mean = float(shares @ distances)
    if mean + room <= 0.0:  # every value is b
        return 0.0
    with np.errstate(divide="ignore"):
        growth = float(shares @ np.log1p((distances - mean) / (mean + room)))
    return -mean - (mean + room) * math.expm1(growth - price)


def best_room(distances: Floats, shares: Floats, price: float, count: int) -> float:
    """Return nu - b for the nu whose bound is least, nearly: where F(nu) is the price, or 0 where F is below it."""
    from scipy.optimize import brentq

    widest = float(distances[-1])
    if widest <= 0.0:
        return 0.0
    low, high = math.log(max(1e-9 * widest, LEAST)), math.log(10.0 * math.sqrt(count) * widest)
    if excess(low, distances, shares, price) <= 0.0:
        return 0.0
    return math.exp(brentq(excess, low, high, (distances, shares, price), xtol=CLOSE))


def excess(log_room: float, distances: Floats, shares: Floats, price: float) -> float:
    """Return log(F(nu) / price) for nu = b + exp(log_room)."""
    gaps = distances + math.exp(log_room)
    middle = float(shares @ gaps)
    found = float(shares @ np.log(gaps / middle)) + math.log(float(shares @ (middle / gaps)))
    return math.log(max(found, 1e-300) / price)
