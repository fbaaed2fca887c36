"""Products that do not underflow to 0.

A product of positive numbers may underflow to 0. For quantities that must be 0 only if they are (is a violation
possible?), it is rounded away from 0 instead, to the smallest positive number:

    times(a, b) = a * b,  or +-LEAST if that is 0 and neither a nor b is

A sum of such non-negative products is 0 only if every term is: `x > 0` then means that x is possible, however unlikely.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from peakrl.jit import inlined
from peakrl.types import Floats

#: The smallest positive floating-point number.
LEAST = 5e-324


def added(values: Iterable[float]) -> float:
    """Return a sum from left to right, as kernels add; `sum` is more exact from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


@inlined
def times(a: float, b: float) -> float:
    """Return a * b, rounded away from 0 if it underflows."""
    product = a * b
    if product == 0.0 and a != 0.0 and b != 0.0:
        product = LEAST if (a > 0.0) == (b > 0.0) else -LEAST
    return product


def sums_exactly(numbers: Floats, count: int) -> bool:
    """Return whether no sum of up to `count` of these numbers is rounded: all are multiples of a large enough unit."""
    size = count * float(np.abs(numbers).max(initial=0.0))
    unit = math.ldexp(1.0, math.frexp(size)[1] - 53) or LEAST
    return bool((np.fmod(numbers, unit) == 0.0).all())
