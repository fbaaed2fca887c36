"""Gamma numbers, from which a Dirichlet draw is made.

A normal number is drawn by Marsaglia's polar method, a gamma number of shape a >= 1 from it by Marsaglia and Tsang
(2000): with d = a - 1/3 and c = 1/sqrt(9d),

    v = (1 + c x)^3, x normal;  d v is taken where  log u < x^2/2 + d - d v + d log v,  u uniform, else again.

Wherever u < 1 - 0.0331 x^4 that holds, and no logarithm is needed (their "squeeze").
For a shape below 1: gamma(a) = gamma(a + 1) u^(1/a). Gamma numbers of shapes a_1 .. a_m, divided by their sum, are
Dirichlet(a_1 .. a_m).
"""

from __future__ import annotations

import math

from peakrl.jit import loop
from peakrl.sampling import Words, uniform

#: Stands for a uniform number of exactly 0, whose logarithm there is not.
LEAST_UNIFORM = 2.0**-54
SQUEEZE = 0.0331


@loop
def draw_normal(state: Words) -> float:
    """Return a normal number."""
    while True:
        x = 2.0 * uniform(state) - 1.0
        y = 2.0 * uniform(state) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * math.sqrt(-2.0 * math.log(square) / square)


@loop
def draw_gamma(state: Words, shape: float) -> float:
    """Return a gamma number of unit scale."""
    large = shape if shape >= 1.0 else shape + 1.0
    d = large - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = draw_normal(state)
        root = 1.0 + c * x
        if root > 0.0:
            v = root * root * root
            u = max(uniform(state), LEAST_UNIFORM)
            if u < 1.0 - SQUEEZE * x * x * x * x or math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                break
    if shape < 1.0:
        return d * v * max(uniform(state), LEAST_UNIFORM) ** (1.0 / shape)
    return d * v
