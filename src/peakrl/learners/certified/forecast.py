"""About how long certificate 1 will take: what to spend on upper values, and what on the candidate.

U_1 less the best value V falls like K^-1/2 in the number K of episodes, and n episodes of the candidate tell what it is
worth up to

    off(n) = sqrt( 2 var beta(n) / n ) + (mean - H lo) beta(n) / (3 n),     or (mean - H lo) log(1/d) / n for var = 0.

A candidate of value v of which n episodes were seen is certified, if the search goes on to f K episodes of which a
share counts for the candidate, and then all are the candidate's own, after about

    total(f) = f K + [ needed( epsilon - (U_1 - V) / sqrt(f) - (V - v) ) - n - share (f - 1) K ]+

needed(width) being the least n with off(n) <= width. Nothing is proved by any of this: it only decides what to do next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from peakrl.types import Floats

#: Numbers of episodes that are looked at, and how far the search may still go.
SIZES: Floats = 8.0 * 1.1 ** np.arange(295.0)
AHEAD: Floats = 1.05 ** np.arange(190.0)


@dataclass(frozen=True)
class Outlook:
    """What is known of the returns of a candidate."""

    #: [size]: off(n) for each of `SIZES`.
    off: Floats
    #: Episodes of a candidate that its violation takes.
    safe: float

    @classmethod
    def of(cls, mean: float, deviation: float, least: float, log_share: float, safe: float) -> Outlook:
        """Return the outlook for returns of a mean and a deviation; none is below `least`."""
        above = mean - least
        if deviation == 0.0:
            return cls(above * log_share / SIZES, safe)
        bet = log_share + 0.5 * np.log(np.pi * (SIZES + 0.5))
        return cls(np.asarray(np.sqrt(2 * deviation**2 * bet / SIZES) + above * bet / SIZES / 3), safe)

    def needed(self, width: Floats) -> Floats:
        """Return how many episodes of a candidate tell its value up to `width`."""
        place = np.searchsorted(-self.off, -width)
        found = np.append(SIZES, math.inf)[place]
        return np.asarray(np.where(width > 0.0, np.maximum(found, self.safe), math.inf))

    def totals(self, done: int, aim: float, high: float, best: float, value: float, seen: int, share: float) -> Floats:
        """[`AHEAD`]: total(f) for a candidate of a value, of which some episodes were seen."""
        width = aim - max(high - best, 0.0) / np.sqrt(AHEAD) - max(best - value, 0.0)
        rest = self.needed(width) - seen - share * (AHEAD - 1.0) * done
        return np.asarray(AHEAD * done + np.maximum(rest, 0.0))
