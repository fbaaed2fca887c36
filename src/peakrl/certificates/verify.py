"""Check a stored certificate by its evidence, with code that shares nothing with what made it: numpy, no kernels.

The check of its kind returns every number of the certificate that follows from its evidence, whether a violation is
known to be possible, and the scale of its values; a ValueError names what is invalid. `verify` compares these numbers
with those in the file. No check can detect forged evidence: model, episodes and bounds that are forged to fit each
other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from peakrl.certificates import verify_exact, verify_learned, verify_sampled
from peakrl.certificates.certificate import Certificate
from peakrl.errors import StorageError
from peakrl.records import fields_of

#: Relative difference of two computations of one number; products below SMALL have lost digits.
APART, SMALL = 1e-9, 1e-280
VALUES = ("value_low", "value_high", "optimum_high", "gap")
CHECKS = {"exact": verify_exact.check, "sampled": verify_sampled.check, "learned": verify_learned.check}


def verify(path: str | Path) -> Certificate:
    """Recompute a stored certificate from its evidence; return it with `holds`, and `reason` if it does not hold.

    Only the evidence is trusted. A damaged file, or one that is not a certificate, is a `StorageError`.
    """
    stored = Certificate.load(path)
    assert stored.evidence is not None  # a loaded certificate has evidence
    try:
        with fields_of(path), np.errstate(all="ignore"):
            found, violates, scale = CHECKS[stored.kind](stored, stored.evidence.plain, stored.evidence.arrays)
    except (ArithmeticError, MemoryError) as error:
        raise StorageError(f"{path} contains numbers that cannot be computed with: {error}") from error
    reason = differing(stored, found, scale) or judged(stored, violates)
    return replace(stored, holds=reason is None, reason=reason)


def differing(stored: Certificate, found: dict[str, float | None], scale: float) -> str | None:
    """Return the first number that differs from the evidence; None if all agree."""
    for name, number in found.items():
        given = getattr(stored, name)
        if given is None or number is None:
            same = given is number
        elif name in VALUES:  # sums of numbers of either sign
            same = abs(given - number) <= APART * scale
        else:  # sums of positive numbers: relatively accurate, and 0 only if they are 0
            same = (given == 0) == (number == 0) and abs(given - number) <= APART * max(abs(given), abs(number), SMALL)
        if not same:
            return f"{name} is {given} in the file, but the evidence gives {number}"
    return None


def judged(stored: Certificate, violates: bool) -> str | None:
    """Return why a certificate with these bounds does not hold; None if it holds."""
    if stored.epsilon is None:
        return "a constraint may be violated" if violates else None
    if stored.gap is None:
        return "no policy never violates, or nothing is known of the best one"
    if not stored.gap <= stored.epsilon:
        return f"the policy may lie {stored.gap:.6g} below the best safe one, more than {stored.epsilon:g}"
    if stored.violation_high is None or not stored.violation_high <= stored.epsilon:
        return f"the violation may be {stored.violation_high}, more than {stored.epsilon:g}"
    return None
