"""Check an exact certificate of a policy without an end, in one pass over the model, in numpy.

Each bound has a proof: two numbers g and h by state, and one inequality for every action that is considered. With a
discount (g = 0), or of the average reward of a step, if for a number c of any sign

    h + c >= r + discount E[h'],    discounted sums are at most  h + c / (1 - discount)
    g >= E[g']  and  g + h + c >= r + E[h'],    gains are at most  g + c

(add up the second inequality over n steps, and divide by n). The probability of reaching a set is the gain if its
states earn 1 for ever and nothing else earns anything. Any g and h will do: forged ones give bounds that are wide, not
wrong.

    high         the actions of the policy, r the reward         low    the same, r minus the reward
    violations   the actions of the policy, r the violation      best   all actions that may be safe for ever

A state is not safe for ever if each of its actions violates or may lead to a state with a smaller number of steps
`kept`; every other action that does not violate and leads to states without a number counts as safe, which can only
raise the bound of the optimum. Distributions are divided by their sums, and every bound is moved outward by what
rounding can do. E[g'] must stay below g in real numbers, for a loss at every step adds up: either no next state has a
larger g, or the computed E[g'] is smaller by more than its rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from peakrl.certificates.rests_on import on_model, on_target
from peakrl.records import Field, Record

FOREVER = 2**31 - 1
#: How far the numbers of the file may be from those of the evidence at most, relative to the largest value there is.
APART = 1e-9
#: The proofs are g and h by state.
ARRAYS = {
    "rows": Field(np.int32, "slot"),
    "kept": Field(np.int32, "slot", low=0),
    "target": Field(np.int32, "slot", low=0, high=1),
    **{name: Field(np.float64, (2, "slot")) for name in ("low", "high", "violations", "best")},
}


def check(m: SimpleNamespace, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """Return what `verify.check_exact` returns, for a model without an end."""
    own, discount = Record({}, dict(arrays)).part("endless").checked(ARRAYS, slot=m.slots), plain["discount"]
    target, sizes = own["target"] > 0, np.diff(m.row_start)
    reach = bool(target.any())
    if discount is not None and (reach or type(discount) is not float or not 0.0 <= discount < 1.0):
        raise ValueError(f"the discount is {discount!r}")
    m.row_slot, m.discount, m.closed = np.repeat(np.arange(m.slots), sizes), discount, target | (sizes == 0)
    m.ends = target | (np.isin(np.arange(m.slots), m.outcome_next) & m.closed)
    acting = np.flatnonzero(~m.closed)
    rows = own["rows"][acting].astype(np.int64)
    if not ((rows >= m.row_start[acting]) & (rows < m.row_start[acting + 1])).all():
        raise ValueError("the policy takes something that is not an action")
    harms = (m.row_violation > 0) | np.logical_or.reduceat(m.violation > 0, m.set_start[:-1])[m.row_set]
    risky = reachable(m, dict(zip(acting.tolist(), rows.tolist(), strict=True)), harms)
    # Minus the reward for the lower bound; of reaching a set only its states earn anything.
    (low, _), (high, off) = (
        bound(m, own[name], rows, sign * (not reach) * m.row_pay, sign * (not reach) * m.pay, sign * target)
        for name, sign in (("low", -1.0), ("high", 1.0))
    )
    low = -low
    violation: float | None = 0.0
    if risky:  # until a set is reached it has no average
        violation = None if reach else bound(m, own["violations"], rows, m.row_violation, m.violation, 0.0 * target)[0]
    best, highest = safe_rows(m, np.where(target, FOREVER, own["kept"]), harms), None
    if best is not None:
        highest = bound(m, own["best"], best, (not reach) * m.row_pay, (not reach) * m.pay, 1.0 * target)[0]
    if reach:
        low, high, highest = max(low, 0.0), min(high, 1.0), highest and min(highest, 1.0)
    gap = None if highest is None else highest - low
    found = {"failure_probability": 0.0, "value_low": low, "value_high": high, "optimum_high": highest, "gap": gap,
             "violation_high": violation, "violation_probability_high": float(risky), "episodes": 0}  # fmt: skip
    # A proof with huge numbers bounds nothing; it must not confirm the numbers of the file either.
    most = 1.0 if reach else float(np.abs(m.reward).max()) / (1.0 - (discount or 0.0))
    return found, risky, min(off, APART * most), (*on_model(plain, off), *on_target(int(target.sum())))


def bound(m: SimpleNamespace, proof: Any, rows: Any, row_pay: Any, pay: Any, for_ever: Any) -> tuple[float, float]:
    """Return an upper bound at the first states if one of `rows` is taken, and how far rounding may move it.

    Where a walk ends, it earns `for_ever` [slot] at each step.
    """
    (gain, bias), slot, starts, factor = proof, m.row_slot[rows], m.set_start[:-1], m.discount
    if m.discount is not None:
        gain = np.zeros(m.slots)
    else:
        factor = 1.0
        most = np.maximum.reduceat(gain[m.outcome_next], starts)[m.row_set[rows]]
        falls = mean(m, gain[m.outcome_next])[rows] + slip(m, gain) <= gain[slot]
        if not ((most <= gain[slot]) | falls).all():
            raise ValueError("an action increases the gain that is claimed")
    now = row_pay[rows] + mean(m, pay + factor * bias[m.outcome_next])[rows]
    ended = for_ever[m.ends] - (1.0 - factor) * bias[m.ends] - gain[m.ends]
    change, off = np.append(now - bias[slot] - gain[slot], ended), slip(m, gain, bias, row_pay, pay)
    table, often = (gain, 1.0) if m.discount is None else (bias, 1.0 / (1.0 - m.discount))
    first = float(m.first_probability @ table[m.first_slot] / m.first_probability.sum())
    most, off = often * float(change.max()), 2 * often * off
    off += 2.0**-49 * (float(np.abs(table[m.first_slot]).max()) * len(m.first_slot) + abs(most))
    return first + most + off, 4 * off


def mean(m: SimpleNamespace, quantity: Any) -> Any:
    """[row]: the expectation of a quantity by outcome."""
    chance, starts = m.outcome_probability, m.set_start[:-1]
    return (np.add.reduceat(chance * quantity, starts) / np.add.reduceat(chance, starts))[m.row_set]


def slip(m: SimpleNamespace, *arrays: Any) -> float:
    """Return how far a computed expectation of sums of these arrays may be off."""
    size = sum(float(np.abs(each).max(initial=0.0)) for each in arrays)
    return 2.0**-52 * (int(np.diff(m.set_start).max()) + 8) * size


def reachable(m: SimpleNamespace, row_of: dict[int, int], harms: Any) -> bool:
    """Return whether the policy can ever violate a constraint before the target."""
    found = set(m.first_slot.tolist())
    left = list(found)
    while left:
        slot = left.pop()
        if m.closed[slot]:
            continue
        row = row_of[slot]
        if harms[row]:
            return True
        own = m.row_set[row]
        new = set(m.outcome_next[m.set_start[own] : m.set_start[own + 1]].tolist()) - found
        found |= new
        left += new
    return False


def safe_rows(m: SimpleNamespace, kept: Any, harms: Any) -> Any:
    """Return the actions that may be safe for ever; None if no policy is."""
    nearest, own = np.minimum.reduceat(kept[m.outcome_next], m.set_start[:-1])[m.row_set], kept[m.row_slot]
    if not (harms | (nearest < own))[own < FOREVER].all():
        raise ValueError("a state is called unsafe that may be safe for ever")
    if (kept[m.first_slot] < FOREVER).any():
        return None
    return np.flatnonzero(~harms & (nearest == FOREVER) & (own == FOREVER) & ~m.closed[m.row_slot])
