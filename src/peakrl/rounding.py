"""Violations that may be nothing but rounding: 0.3 - (0.1 + 0.2) is -5.6e-17, and forbids an action for ever.

Constraints are exact unless a problem declares a tolerance, so such a pair stays forbidden; but it is told once.
"""

from __future__ import annotations

import warnings

import numpy as np

from peakrl.checks import ROUNDING
from peakrl.tabular import TabularModel


def tell_of_rounding(model: TabularModel) -> None:
    """Warn where pairs violate by so little that it may be rounding, and name what would forgive it."""
    lows, bounds = model.payoffs.constraints, np.array(model.constraint_bounds)
    if not ((lows < 0.0) & (lows >= -ROUNDING * bounds)).any():
        return
    margin = model.row_margin
    small = (margin < 0.0).any(axis=1) & (margin >= -ROUNDING * bounds).all(axis=1)
    count = int(small.sum())
    if count:
        row = int(np.argmax(small))
        slot = int(np.searchsorted(model.layout.row_start, row, side="right")) - 1
        index = int(np.argmin(margin[row]))
        who = f"{count:,} pair{'' if count == 1 else 's'} of {model.name!r}, such as state "
        who += f"{model.state_of_slot(slot)!r} with action {model.action_of_row(row)!r},"
        found = float(margin[row, index]), float(bounds[index])
        warnings.warn(rounding_words(who, model.constraint_names[index], *found), RuntimeWarning, stacklevel=2)


def rounding_words(who: str, name: str, value: float, bound: float) -> str:
    """Return what to say of a violation that may be rounding."""
    return (
        f"{who} violate by what may be rounding: constraint {name!r} is {value:.3g}, and its bound is {bound:g}. That "
        f"counts as a violation; if it is none, declare constraint_tolerances, here {ROUNDING * bound:.3g}"
    )
