"""Check an exact certificate of a discounted policy without an end, in one pass over the model, in numpy.

The evidence has values v of the policy, h of its violations (as costs) and u of the best safe policy, and by state the
number of steps for which safety can be kept. With T_p the Bellman operator of the policy, T that of safe actions and g
the discount, each bound is one inequality for all states:

    a <= T_p v - v <= b    gives    T_p v + a g / (1 - g)  <=  V_p  <=  T_p v + b g / (1 - g),      the same for h,
    T u - u <= b           gives    V* <= T u + b g / (1 - g)

for any v, h and u: forged values give bounds that are wide, not wrong. A state is not safe for ever if each of its
actions violates or may lead to a state with a smaller number; every other action that does not violate and leads to
states without a number counts as safe, which can only raise the bound of the optimum. Distributions are divided by
their sums; bounds are moved outward by what rounding can do to a backup.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from peakrl.certificates.rests_on import on_model
from peakrl.records import Field, Record

FOREVER = 2**31 - 1
ARRAYS = {
    "rows": Field(np.int32, "slot"),
    "kept": Field(np.int32, "slot", low=0),
    **{name: Field(np.float64, "slot") for name in ("values", "violations", "best")},
}


def check(m: SimpleNamespace, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """Return what `verify.check_exact` returns, for a model without an end."""
    own, discount = Record({}, dict(arrays)).part("endless").checked(ARRAYS, slot=m.slots), plain["discount"]
    if type(discount) is not float or not 0.0 <= discount < 1.0:
        raise ValueError(f"the discount is {discount!r}")
    acting = np.flatnonzero(np.diff(m.row_start) > 0)
    rows = own["rows"][acting].astype(np.int64)
    if not ((rows >= m.row_start[acting]) & (rows < m.row_start[acting + 1])).all():
        raise ValueError("the policy takes something that is not an action")
    sets = m.set_start[:-1]
    harms = (m.row_violation > 0) | np.logical_or.reduceat(m.violation > 0, sets)[m.row_set]
    risky = reachable(m, dict(zip(acting.tolist(), rows.tolist(), strict=True)), harms)
    low, high = bounds(m, discount, own["values"], acting, ahead(m, discount, own["values"], m.row_pay, m.pay)[rows])
    ahead_violation = ahead(m, discount, own["violations"], m.row_violation, m.violation)[rows]
    violation = bounds(m, discount, own["violations"], acting, ahead_violation)[1] if risky else 0.0
    highest = optimum(m, discount, own, harms)
    gap = None if highest is None else highest - low
    found = {"failure_probability": 0.0, "value_low": low, "value_high": high, "optimum_high": highest, "gap": gap,
             "violation_high": violation, "violation_probability_high": float(risky), "episodes": 0}  # fmt: skip
    size = max(float(np.abs(own[name]).max()) for name in ("values", "best"))
    apart = 8 * slip(m, size) / (1.0 - discount)
    return found, risky, apart, tuple(on_model(plain, apart))


def ahead(m: SimpleNamespace, discount: float, values: Any, row_pay: Any, pay: Any) -> Any:
    """[row]: what it pays, and the discounted values of the next states."""
    chance, start = m.outcome_probability, m.set_start[:-1]
    mean = np.add.reduceat(chance * (pay + discount * values[m.outcome_next]), start) / np.add.reduceat(chance, start)
    return row_pay + mean[m.row_set]


def slip(m: SimpleNamespace, size: float) -> float:
    """Return how far a computed backup of values of this size may be off."""
    paid = float(max(np.abs(m.reward).max(), m.violated.max(initial=0.0)))
    return 2.0**-52 * (3 * int(np.diff(m.set_start).max()) + 16) * (size + paid)


def bounds(m: SimpleNamespace, discount: float, values: Any, slots: Any, applied: Any) -> tuple[float, float]:
    """Return the bounds at the first states; `applied` is the backup of `values` in these slots."""
    off = slip(m, float(np.abs(values).max()))
    change, grown, backed = applied - values[slots], discount / (1.0 - discount), np.zeros(m.slots)
    backed[slots] = applied
    first = float(m.first_probability @ backed[m.first_slot] / m.first_probability.sum())
    least, most = grown * (float(change.min()) - off), grown * (float(change.max()) + off)
    off += 2.0**-49 * (abs(first) * len(m.first_slot) + max(abs(least), abs(most)))
    return first + least - off, first + most + off


def reachable(m: SimpleNamespace, row_of: dict[int, int], harms: Any) -> bool:
    """Return whether the policy can ever violate a constraint."""
    found = set(m.first_slot.tolist())
    left = list(found)
    while left:
        row = row_of[left.pop()]
        if harms[row]:
            return True
        own = m.row_set[row]
        new = set(m.outcome_next[m.set_start[own] : m.set_start[own + 1]].tolist()) - found
        found |= new
        left += new
    return False


def optimum(m: SimpleNamespace, discount: float, own: Mapping[str, Any], harms: Any) -> float | None:
    """Return an upper bound for policies that never violate; None if there is none."""
    kept, sizes = own["kept"], np.diff(m.row_start)
    slot = np.repeat(np.arange(m.slots), sizes)
    nearest = np.minimum.reduceat(kept[m.outcome_next], m.set_start[:-1])[m.row_set]
    if not (harms | (nearest < kept[slot]))[kept[slot] < FOREVER].all():
        raise ValueError("a state is called unsafe that may be safe for ever")
    if (kept[m.first_slot] < FOREVER).any():
        return None
    allowed = ~harms & (nearest == FOREVER) & (kept[slot] == FOREVER)
    worth = np.where(allowed, ahead(m, discount, own["best"], m.row_pay, m.pay), -np.inf)
    best = np.full(m.slots, -np.inf)
    np.maximum.at(best, slot, worth)
    slots = np.flatnonzero(best > -np.inf)
    return bounds(m, discount, own["best"], slots, best[slots])[1]
