"""The model of a certificate, read from its arrays, and the largest value of a policy without violations.

The arrays must have the stored digest. With f < 0 a violation, one pass backward gives the optimum: an action is
viable if it violates in no outcome and leads to viable states only; the best viable action is taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

#: Probabilities sum to 1 within this.
APART = 1e-9
#: The parts of a model's digest, in this order.
HEAD = ("horizon", "stationary", "constraint_names", "reward_range", "constraint_bounds")
MEANING = ("stage_start", "slot_state", "row_start", "row_action", "row_distribution", "outcome_start", "outcome_next",
           "outcome_probability", "row_payoff", "reward", "constraints", "first_slot", "first_probability")  # fmt: skip


def require(sound: Any, words: str) -> None:
    """Raise a ValueError unless a condition holds."""
    if not sound:
        raise ValueError(words)


def read_model(plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> SimpleNamespace:
    """Return the arrays of a model; a ValueError names what is invalid."""
    own = {name: arrays[f"model.{name}"] for name in MEANING}
    m = SimpleNamespace(**own, **{name: plain[name] for name in ("horizon", "stationary", "stride")})
    m.reward_range, m.slots, m.rows = tuple(map(float, plain["reward_range"])), len(m.slot_state), len(m.row_action)
    size = np.diff(m.outcome_start)
    sums = np.add.reduceat(m.outcome_probability, m.outcome_start[:-1])
    sound = [
        digest_of(m, plain) == plain["digest"], m.stride in (0, 1), len(m.row_start) == m.slots + 1,
        np.diff(m.row_start) >= 0, size > 0,
        *(array >= 0 for name, array in own.items() if name not in ("reward", "constraints")),
        len(m.stage_start) == (1 if m.stationary else m.horizon) + 1, np.diff(m.stage_start) > 0,
        m.stage_start[0] == 0, m.stage_start[-1] <= m.slots,
        (m.row_start[0], m.row_start[-1]) == (0, m.rows),
        (m.outcome_start[0], m.outcome_start[-1]) == (0, len(m.outcome_next)),
        m.row_payoff + m.stride * (size[m.row_distribution] - 1) < len(m.reward), len(m.reward) == len(m.constraints),
        abs(np.append(sums, m.first_probability.sum()) - 1) < APART, np.isfinite(m.reward), np.isfinite(m.constraints),
    ]  # fmt: skip
    require(all(map(np.all, sound)), "the arrays do not have the stored digest, or are not a valid model")
    stages = np.stack([m.stage_start[:-1], m.stage_start[1:]], axis=1)
    spans = np.array([used(m, first, last) for first, last in stages])
    m.step_slots, m.step_distributions = (np.repeat(ends, m.horizon // len(ends), axis=0) for ends in (stages, spans))
    return with_payoffs(m, np.maximum(-m.constraints, 0.0).sum(axis=1), size[m.row_distribution])


def used(m: SimpleNamespace, first: int, last: int) -> tuple[int, int]:
    """Return the first and one past the last distribution of the rows of slots first .. last - 1."""
    chosen = m.row_distribution[m.row_start[first] : m.row_start[last]]
    return int(chosen.min()), int(chosen.max()) + 1


def digest_of(m: SimpleNamespace, plain: Mapping[str, Any]) -> str:
    """Return the fingerprint of a model's numbers: names, types, shapes and contents of its arrays."""
    head = {name: plain[name] for name in HEAD} | {"payoffs_by_outcome": m.stride > 0}
    digest = hashlib.blake2b(json.dumps(head).encode(), digest_size=16)
    for name in MEANING:
        array = getattr(m, name)
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def with_payoffs(m: SimpleNamespace, violated: Any, sizes: Any) -> SimpleNamespace:
    """Add what a row pays, or each outcome if payoffs depend on it; a row then has its own distribution."""
    if m.stride == 0:
        m.row_set, m.set_start, m.step_sets = m.row_distribution, m.outcome_start, m.step_distributions
        m.row_pay, m.row_violation = m.reward[m.row_payoff], violated[m.row_payoff]
        m.pay, m.violation = np.zeros((2, len(m.outcome_next)))
        return m
    owner, m.set_start = np.repeat(np.arange(m.rows), sizes), np.append(0, np.cumsum(sizes))
    within = np.arange(len(owner)) - m.set_start[owner]
    outcome, record = m.outcome_start[m.row_distribution][owner] + within, m.row_payoff[owner] + within
    m.outcome_probability, m.outcome_next = m.outcome_probability[outcome], m.outcome_next[outcome]
    m.row_pay, m.row_violation, m.pay, m.violation = *np.zeros((2, m.rows)), m.reward[record], violated[record]
    m.row_set, m.step_sets = np.arange(m.rows), m.row_start[m.step_slots]
    return m


def ahead(m: SimpleNamespace, step: int, after: Any, rows: Any) -> Any:
    """[4, row, policy]: value, violation, probability of any, above 0 if any can be; `after` has it by slot."""
    first, last = m.step_sets[step]
    part, begin = slice(m.set_start[first], m.set_start[last]), m.set_start[first:last] - m.set_start[first]
    likely, violated = m.outcome_probability[part, None], m.violation[part, None]
    value, violation, chance, risk = after[:, m.outcome_next[part]]
    then = np.stack([m.pay[part, None] + value, violated + violation, np.where(violated > 0, 1.0, chance)]) * likely
    can = ((violated > 0) | (risk > 0)) & (likely > 0)
    now = np.add.reduceat(np.append(then, [can], axis=0), begin, axis=1)
    now, own = now[:, m.row_set[rows] - first, np.arange(rows.shape[1])], m.row_violation[rows]
    now[0], now[1], now[2:] = now[0] + m.row_pay[rows], now[1] + own, np.where(own > 0, 1.0, now[2:])
    return now


def best_of(m: SimpleNamespace) -> float | None:
    """Return the value of the best policy that never violates; None if there is none."""
    after = np.zeros((4, m.slots, 1))
    for step in reversed(range(m.horizon)):
        first, last = m.step_slots[step]
        start = m.row_start[first : last + 1]
        now = ahead(m, step, after, np.arange(start[0], start[-1])[:, None])
        acting = np.flatnonzero(np.diff(start) > 0)
        best = np.maximum.reduceat(np.where(now[3] > 0, -np.inf, now[0]), start[acting] - start[0])
        after[0, acting + first], after[3, acting + first] = np.where(best > -np.inf, best, 0.0), best == -np.inf
    lost = after[3, m.first_slot].any()
    return None if lost else float(m.first_probability @ after[0, m.first_slot, 0])
