"""Check an exact certificate: the file contains a model (`verify_model`) and a policy. In plain numpy:

value, violation, probability of any     one pass backward under the policy
whether any is possible                  the same with "or" instead of sums, independent of underflow
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from peakrl.certificates.verify_model import APART, ahead, best_of, read_model, require

#: A gap below this part of the optimum is rounding.
NOTHING = 1e-12


def check(
    stored: Any, plain: Mapping[str, Any], arrays: Mapping[str, Any]
) -> tuple[dict[str, float | None], bool, float]:
    """Return the numbers of an exact certificate, whether it may violate, and how large its values can be."""
    m = read_model(plain["model"], arrays)
    totals = sum(followed(m, shares, table) for shares, table in tables_of(m, plain["policy"], arrays))
    value, violation, chance, risk = totals.tolist()
    least = 5e-324 * (risk > 0)  # a possible event has a positive probability, also if it underflows
    most = m.horizon * m.reward_range[1]  # an upper bound for all policies; "solved": for those that never violate
    highest = best_of(m) if plain["optimum"] == "solved" else most
    gap = None if highest is None else highest - value
    gap = 0.0 if gap is not None and abs(gap) <= NOTHING * max(1.0, abs(value)) else gap
    found = {"failure_probability": 0.0, "value_low": value, "value_high": value, "optimum_high": highest, "gap": gap,
             "violation_high": max(violation, least), "violation_probability_high": min(1.0, max(chance, least)),
             "episodes": 0}  # fmt: skip
    return found, risk > 0, m.horizon * max(map(abs, m.reward_range))


def tables_of(m: SimpleNamespace, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the policies that are mixed, some at a time: their shares, and rows [node, policy] or weights [entry]."""
    if plain["form"] == "stochastic":
        yield np.ones(1), arrays["policy.weights"]
    elif plain["form"] == "deterministic":
        yield np.ones(1), arrays["policy.rows"][:, None]
    else:
        require(plain["form"] == "averaged", f"the policy has the unknown form {plain['form']!r}")
        count, rows = int(plain["episodes"]), arrays["policy.first"].copy()
        episode, node, row = (arrays[f"policy.change_{name}"] for name in ("episode", "node", "row"))
        require(count >= 1 and (np.diff(episode) >= 0).all(), "the changes of the policy are not in order")
        since = np.unique(np.append(np.clip(episode, 1, count + 1), [1, count + 1]))
        ends = np.searchsorted(episode, since, side="right")  # changes up to each of these episodes
        count_at_once = max(1, min(256, 4_000_000 // (len(rows) + len(m.outcome_next))))
        for first in range(0, len(since) - 1, count_at_once):
            batch = since[first : first + count_at_once + 1]
            table = np.empty((len(rows), len(batch) - 1), np.int64)
            for index in range(len(batch) - 1):
                now = slice(ends[first + index - 1] if first + index else 0, ends[first + index])
                rows[node[now]] = row[now]
                table[:, index] = rows
            yield np.diff(batch) / count, table


def followed(m: SimpleNamespace, shares: Any, table: Any) -> Any:
    """Return value, violation, the probability of any, and above 0 if there can be any, under policies in shares."""
    after = np.zeros((4, m.slots, len(shares)))
    for step in reversed(range(m.horizon)):
        slots, begin, rows, weights = chosen(m, step, table)
        now = ahead(m, step, after, rows)
        now[:3], now[3] = now[:3] * weights, now[3] * (weights > 0)
        after[:, slots] = np.add.reduceat(now, begin, axis=1)
    first = after[:, m.first_slot]
    totals = np.einsum("csk,s,k->c", first, m.first_probability, shares)
    totals[3] = first[3, m.first_probability > 0].max()
    return totals


def chosen(m: SimpleNamespace, step: int, table: Any) -> tuple[Any, Any, Any, Any]:
    """Return the slots of a step, where each one's rows begin, the rows that may be taken [row, policy], how likely."""
    first, last = m.step_slots[step]
    slots = np.flatnonzero(np.diff(m.row_start[first : last + 1]) > 0) + first
    if table.ndim == 2:
        rows = table[slots + step * m.slots * bool(m.stationary)].astype(np.int64)
        inside = (rows >= m.row_start[slots, None]) & (rows < m.row_start[slots + 1, None])
        require(inside.all(), "the policy takes something that is not an action")
        return slots, np.arange(len(slots)), rows, np.ones((len(slots), 1))
    rows = np.arange(m.row_start[first], m.row_start[last])
    weights, begin = table[rows + step * m.rows * bool(m.stationary)], m.row_start[slots] - rows[0]
    sums = abs(np.add.reduceat(weights, begin) - 1)
    require((weights >= 0).all() and (sums < APART).all(), "the policy's probabilities are invalid")
    return slots, begin, rows[:, None], weights[:, None]
