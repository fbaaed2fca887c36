"""Check a stored certificate by its own numbers, with code that shares nothing with what made it: numpy, no kernels.

The check of its kind returns every number of the certificate that follows from its evidence, whether a violation is
known to be possible, and the scale of its values; a ValueError says what cannot be. Here that is held against what the
file tells. What no check can see is whether the evidence was honestly come by: whoever forges model, episodes and
bounds to fit each other has forged a certificate.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from peakrl.certificates import verify_exact, verify_learned, verify_sampled
from peakrl.certificates.certificate import Certificate
from peakrl.errors import StorageError
from peakrl.storage import fields_of

#: Two ways to one number may differ by this much of what such a number can be; products below SMALL have lost digits.
APART, SMALL = 1e-9, 1e-280
VALUES = ("value_low", "value_high", "optimum_high", "gap")
CHECKS = {"exact": verify_exact.check, "sampled": verify_sampled.check, "learned": verify_learned.check}


def verify(path: str | Path) -> Certificate:
    """Return the certificate in a file with `holds` as its own numbers bear it out, and the reason where they do not.

    Nothing is taken on trust but the evidence itself. A file that is damaged, or no certificate, is a `StorageError`.
    """
    told = Certificate.load(path)
    assert told.evidence is not None  # what was read from a file has some
    try:
        with fields_of(path), np.errstate(all="ignore"):
            found, violates, scale = CHECKS[told.kind](told, told.evidence.plain, told.evidence.arrays)
    except (ArithmeticError, MemoryError) as error:
        raise StorageError(f"{path} holds numbers that cannot be computed with: {error}") from error
    reason = differing(told, found, scale) or judged(told, violates)
    return replace(told, holds=reason is None, reason=reason)


def differing(told: Certificate, found: dict[str, float | None], scale: float) -> str | None:
    """Return the first number that the evidence does not give; None where it gives all."""
    for name, number in found.items():
        said = getattr(told, name)
        if said is None or number is None:
            same = said is number
        elif name in VALUES:  # sums of numbers of either sign
            same = abs(said - number) <= APART * scale
        else:  # sums of positive numbers: right in their own digits, and 0 only where they are 0
            same = (said == 0) == (number == 0) and abs(said - number) <= APART * max(abs(said), abs(number), SMALL)
        if not same:
            return f"{name} is {said} in the file, but its evidence gives {number}"
    return None


def judged(told: Certificate, violates: bool) -> str | None:
    """Return what keeps a certificate with these bounds from holding; None where nothing does."""
    if told.epsilon is None:
        return "a constraint may be violated" if violates else None
    if told.gap is None:
        return "there is no policy that never violates, or nothing is known of the best of them"
    if not told.gap <= told.epsilon:
        return f"the policy may lie {told.gap:.6g} below the best safe one, more than {told.epsilon:g}"
    if told.violation_high is None or not told.violation_high <= told.epsilon:
        return f"the violation may be {told.violation_high}, more than {told.epsilon:g}"
    return None
