"""Time-uniform upper bounds of a mean by betting: a universal portfolio of two assets, solved in closed form.

X_1, X_2, .. <= b with one conditional mean m. With probability 1 - d, for all n and all nu >= b at once,

    m <= phi(nu) = nu - exp( mean log(nu - X_i) - beta/n ),   beta = log(1/d) + log(pi (n + 1/2)) / 2.

Since X_i may be replaced by any U_i >= X_i, nu <- any nu >= max(b, U_i), and nu be chosen after the data, the least phi
over nu >= B is a bound wherever b <= B; an inexact minimiser gives a valid, slightly larger one. A sequence with a
fixed b may also bet all it has, for log(1/d) at nu = b: half of d for each kind of bet.

Computed about c = mean U_i, with t_i = (c - U_i)/(nu - c), so that nothing cancels where nu is large:

    phi(nu) = c - (nu - c) expm1( mean log1p(t_i) - beta/n )
    F(nu)   = mean log(nu - U_i) + log mean 1/(nu - U_i) = mean log1p(t_i) + log1p( mean t_i^2/(1 + t_i) ),   F' <= 0.

The minimum is at F(nu) = beta/n, or at B where F(B) <= beta/n. 1/sqrt(F) is nearly linear in nu: a secant finds it in
one to four evaluations. nu stays below B + 10 sqrt(n) (B - min U_i).

The failure probability p is shared: p_U = 0.6 p, p_L = 0.2 p (a third each for L, the lower values and the gaps),
p_C = 0.2 p. If it is not known in advance how many bounds there will be, the i-th has the weight

    omega_i = 2^-k / ((k+1)(k+2))   for 2^k <= i < 2^(k+1),   which sum to 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import loop
from peakrl.types import Floats, Longs

#: Shares of the failure probability: upper values, lower values, violation.
UPPER, LOWER, VIOLATION = 0.6, 0.2, 0.2
#: 1/sqrt(F) may be off by this share; phi is flat at its minimum, so that the bound is off by its square.
ROUGH, FINE = 2e-2, 1e-5
MOST_STEPS = 40
#: A mean that is as near to the bound as this, relative to both, gives the bound itself.
NEAR = 1e-9


@loop
def beta(count: float, log_share: float) -> float:
    """Return log(1/d) + log(pi (n + 1/2)) / 2, given log(1/d)."""
    return log_share + 0.5 * math.log(math.pi * (count + 0.5))


@loop
def growth(value: Floats, count: Longs, size: int, total: float, mean: float, nu: float) -> tuple[float, float]:
    """Return mean log1p(t_i) and F at nu, which lies above the mean and is no less than any value."""
    scale = 1.0 / (nu - mean)
    logs, bend = 0.0, 0.0
    for i in range(size):
        if count[i] > 0:
            t = (mean - value[i]) * scale
            if t <= -1.0:  # nu is that value but for rounding: nothing can be won by this bet
                return -math.inf, math.inf
            logs += count[i] * math.log1p(t)
            bend += count[i] * t * t / (1.0 + t)
    logs /= total
    return logs, logs + math.log1p(bend / total)


@loop
def moments(value: Floats, count: Longs, size: int, total: float) -> tuple[float, float, float, float]:
    """Return mean, variance, least and largest of the values that count."""
    mean, least, most = 0.0, math.inf, -math.inf
    for i in range(size):
        if count[i] > 0:
            mean += count[i] * value[i]
            least = min(least, value[i])
            most = max(most, value[i])
    mean /= total
    variance = 0.0
    for i in range(size):
        if count[i] > 0:
            variance += count[i] * (value[i] - mean) ** 2
    return mean, variance / total, least, most


@loop
def upper_mean(
    #: [i]: values and how often each was seen; those that were not seen count for nothing.
    value: Floats,
    count: Longs,
    size: int,
    total: float,
    bound: float,
    #: log(1/d) of the bet of everything at nu = bound, and beta of any other bet.
    all_in: float,
    any_bet: float,
    #: Where to look first (nu of an earlier call), or anything not above `bound`.
    guess: float,
    precision: float,
) -> tuple[float, float]:
    """Return an upper bound of the mean of what is at most `bound`, and the nu that gave it."""
    mean, variance, least, most = moments(value, count, size, total)
    bound = max(bound, most)
    if not bound - mean > NEAR * (abs(bound) + abs(least)):
        return bound, bound
    best, best_nu = bound, bound
    target = any_bet / total
    if most < bound:
        logs, f = growth(value, count, size, total, mean, bound)
        best = mean - (bound - mean) * math.expm1(logs - all_in / total)
        if f <= target:
            return best, best_nu
    limit = bound + 10.0 * math.sqrt(total) * (bound - least)
    wanted = 1.0 / math.sqrt(target)
    floor = bound + 1e-6 * (bound - least)
    nu = guess if guess > bound else bound + 0.5 * (bound - mean) + math.sqrt(variance / (2.0 * target))
    before, before_y = -1.0, -1.0
    for _ in range(MOST_STEPS):
        nu = min(max(nu, floor), limit)
        logs, f = growth(value, count, size, total, mean, nu)
        here = mean - (nu - mean) * math.expm1(logs - target)
        if here < best:
            best, best_nu = here, nu
        y = 1.0 / math.sqrt(min(max(f, 1e-300), 1e300))
        if abs(y - wanted) < precision * wanted:
            break
        if before_y > 0.0 and y != before_y:
            following = nu + (wanted - y) * (nu - before) / (y - before_y)
        else:
            following = mean + (nu - mean) * wanted / y
        if following <= floor:
            following = 0.5 * (nu + bound)
        if (following >= limit and nu == limit) or following == nu:
            break
        before, before_y, nu = nu, y, following
    return best, best_nu


def mixed_bound(values: Floats, counts: NDArray[np.int64], total: float, bound: float, log_share: float) -> float:
    """Return the upper bound of a mean by both kinds of bets, half the share for each."""
    half = log_share + math.log(2)
    seen = np.flatnonzero(counts)
    values, counts, total = values[seen], counts[seen], float(total)
    high, _ = upper_mean(values, counts, len(seen), total, bound, half, beta(total, half), -math.inf, FINE)
    return high


def log_weight(index: Longs) -> Floats:
    """Return log(1/omega_i), i = 1, 2, .."""
    k = np.floor(np.log2(index))
    return np.asarray(k * math.log(2) + np.log((k + 1) * (k + 2)))
