"""Products that do not vanish.

A product of positive numbers may be smaller than every floating-point number above 0 and come out as 0. For what must
not be 0 unless it is (is a violation possible?) it is rounded up instead, to the least number that there is:

    times(a, b) = a * b,  or +-LEAST where that is 0 and neither a nor b is

Sums of such products are 0 only where every term is: `x > 0` then says that x is possible, however unlikely.
"""

from __future__ import annotations

from peakrl.jit import inlined

#: The least floating-point number above 0.
LEAST = 5e-324


@inlined
def times(a: float, b: float) -> float:
    """Return a * b, away from 0 where that is too small for a floating-point number."""
    product = a * b
    if product == 0.0 and a != 0.0 and b != 0.0:
        product = LEAST if (a > 0.0) == (b > 0.0) else -LEAST
    return product
