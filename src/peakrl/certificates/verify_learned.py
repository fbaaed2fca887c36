"""Check the certificate of a learner that stopped by itself, from its counts and returns, in plain numpy.

The formulas (theorem and proof: docs/certified-learner.md), p the failure probability, one bet for each law and step:

    upper mean     of U_i <= B: least over nu >= B of  nu - exp( mean log(nu - U_i) - beta/n ),
                   beta = log(1/d) + log(pi (n + 1/2)) / 2
    upper values   W_h(s) = max over a of  r + [upper mean of W_{h+1} over the samples],  d = 0.6 p / bets, over actions
                   that were not seen to violate, or to lead to a state all of whose actions are ruled out
    value          lower mean of the returns of the policy since it was chosen, the j-th,  d = 0.2 p / (3 j (j+1))
    gaps           g_h(s) = best upper value of another action less the lower value of the policy, from samples since
                   then; their mean largest one in the i-th attempt,  d = 0.2 p / (3 i (i+1))
    violation      of so many episodes so many violated,  d = 0.2 p / (j (j+1))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
GRID, NEAR, HALVINGS = 1 << 16, 1e-9, 28


def check(
    told: Any, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, float | None], bool, float]:
    """Return the numbers of a learned certificate, whether it may violate, and how large its values can be."""
    d = read(told, plain, arrays)
    upper, dead = upper_values(d, d.law, d.cell_count, d.known, d.harm)
    first = d.cell_start[-1] + np.arange(d.law[-1, 1])
    starts, counts = d.cell_next[first], d.cell_count[first]
    feasible = not dead[0][starts[counts > 0]].any()
    tops, share = largest(d, upper, dead, 0), shares(d)[-1:]
    high = float(upper_means(upper[0][starts][None], counts[None], tops, share)[0]) if feasible else None
    if feasible and d.deterministic:
        high = float(upper[0][starts[0]])
    low, chance = returned(d)
    by_gaps = gaps_mean(d) if d.frozen and d.top >= 0 else math.inf
    gap = None if high is None else min(high - low, by_gaps)
    epsilon = d.epsilon * (max(low, -(high or 0.0), 0.0) if d.relative else 1.0)
    violation = chance * d.horizon * math.fsum(d.constraint_bounds)
    found: dict[str, float | None] = {
        "value_low": low, "optimum_high": high, "gap": gap, "epsilon": epsilon,
        "value_high": high if chance == 0 else None, "violation_high": violation,
        "violation_probability_high": chance, "episodes": int(d.law[-1, 0]),
    }  # fmt: skip
    return found, chance > 0, d.horizon * max(map(abs, d.reward_range)) or 1.0


def read(told: Any, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SimpleNamespace:
    """Return the evidence; a ValueError says what cannot be."""
    d = SimpleNamespace(**plain, **arrays, p=told.failure_probability)
    slots, rows, laws = len(d.row_start) - 1, len(d.law_of_row), len(d.cell_start)
    lo, hi = d.reward_range
    d.may_end = d.ends > 0 and lo <= 0 <= hi
    d.barred = d.barred.reshape(-1, rows)
    d.column = np.arange(d.horizon) if d.stationary else np.zeros(d.horizon, int)
    d.rows_of = [np.arange(d.row_start[s], d.row_start[s + 1]) for s in range(slots)]
    d.slots_at = [
        np.array([s for s in range(slots) if len(d.rows_of[s]) and (d.stationary or d.slot_step[s] == h)], int)
        for h in range(d.horizon)
    ]
    ends = np.append(d.cell_start[1:], len(d.cell_next))
    good = 0 < d.p < 1 and d.law.shape == d.then_law.shape == (laws, 2) and (ends - d.cell_start >= d.law[:, 1]).all()
    good &= d.horizon >= 1 and (np.diff(d.row_start) >= 0).all() and d.row_start[0] == 0 and d.row_start[-1] == rows
    for law, count in ((d.law, d.cell_count), (d.then_law, d.then_count)):
        good &= (count >= 0).all() and bool((np.add.reduceat(count, d.cell_start) == law[:, 0]).all())
    good &= (d.then_count <= d.cell_count).all() and (d.then_before <= d.then_count).all() and (d.harm >= 0).all()
    good &= (d.then_harm <= d.harm).all() and (d.then_known <= d.known).all() and (d.tested[d.harm > 0] == 1).all()
    good &= d.returns_count.sum() == d.played and 0 <= d.violated <= d.played <= d.law[-1, 0]
    good &= np.isfinite(d.gap).all() and (d.gap >= 0).all() and (d.top < 0 or d.gap.max(initial=0.0) <= d.top + NEAR)
    met, full = slots - d.ends, d.horizon * (d.most_reward - lo)
    good &= d.ends == (0 if not d.growing else 1 if d.stationary else d.horizon + 1)
    good &= d.complete if not d.growing else not d.complete or (d.stationary and met == d.states)
    good &= d.complete or d.top < 0 or abs(d.top - full) <= NEAR * max(1.0, full)
    last = d.cell_start[-1]
    inside = d.reward[d.known == 1] if not d.joint else d.cell_reward[:last][d.cell_count[:last] > 0]
    room = NEAR * max(1.0, *map(abs, d.reward_range))
    good &= bool(((inside >= d.reward_range[0] - room) & (inside <= d.reward_range[1] + room)).all())
    if not good or d.most_reward > d.reward_range[1]:
        raise ValueError("counts, returns or sizes are none that a run can have")
    return d


def shares(d: SimpleNamespace) -> Numbers:
    """[law]: log(1/d) of the bets of upper values on it; the last one is that of the first state."""
    steps = (d.horizon if d.joint else d.horizon - 1) if d.stationary else 1
    laws, share = len(d.cell_start), math.log(1 / (0.6 * d.p))
    if d.growing and d.states is None:
        by_step = np.append(np.full(laws - 1, math.log(max(1, steps))), 0.0)
        return np.asarray(share + weights(np.append(np.arange(2, laws + 1), 1)) + by_step)
    if d.growing:
        bets = d.states * d.actions * (max(1, steps) if d.stationary else d.horizon)
    else:
        bets = (len(d.law_of_row) if d.noises else laws - 1) * steps
    return np.full(laws, share + math.log(bets + 1))


def lower_shares(d: SimpleNamespace) -> Numbers:
    """[slot]: by how many, or by which weights, lower values share what they may fail by, as a logarithm."""
    slots, steps = len(d.row_start) - 1, (d.horizon if d.joint else d.horizon - 1) if d.stationary else 1
    if d.growing and d.states is None:
        return np.asarray(weights(np.maximum(np.arange(slots) - d.ends + 1, 1)) + math.log(max(1, steps)))
    number = d.states * (1 if d.stationary else d.horizon) if d.growing else slots
    return np.full(slots, math.log(max(1, number * (max(1, steps) if d.growing else steps))))


def weights(index: NDArray[Any]) -> Numbers:
    """Return log(1/omega_i) of weights that sum to 1: omega_i = 2^-k / ((k+1)(k+2)), 2^k <= i < 2^(k+1)."""
    k = np.floor(np.log2(index))
    return np.asarray(k * math.log(2) + np.log((k + 1) * (k + 2)))


def samples(d: SimpleNamespace, rows: NDArray[Any], law: NDArray[Any], count: NDArray[Any]) -> tuple[Any, Any, Any]:
    """Return next slots, rewards and counts of the samples of some rows, [row, cell]."""
    laws = d.law_of_row[rows]
    size = law[laws, 1]
    cells = d.cell_start[laws][:, None] + np.arange(max(int(size.max(initial=0)), 1))
    inside = np.arange(cells.shape[1]) < size[:, None]
    cells = np.where(inside, cells, 0)
    number = np.minimum(np.arange(cells.shape[1]), d.noises - 1)
    following = d.noise_next.reshape(-1, d.noises)[rows][:, number] if d.noises else d.cell_next[cells]
    return following, d.cell_reward[cells], np.where(inside, count[cells], 0)


def upper_values(
    d: SimpleNamespace, law: NDArray[Any], count: NDArray[Any], known: NDArray[Any], harm: Numbers
) -> tuple[list[Numbers], list[Any]]:
    """Return W by step [slot] and which states are dead; `d.upper` holds U by step [row], -inf where ruled out."""
    slots, share = len(d.row_start) - 1, shares(d)
    values, dead = [np.zeros(slots)] * (d.horizon + 1), [np.zeros(slots, bool)] * (d.horizon + 1)
    d.upper = [np.empty(0)] * d.horizon
    for h in range(d.horizon - 1, -1, -1):
        rows = np.concatenate([np.empty(0, int), *(d.rows_of[s] for s in d.slots_at[h])])
        # One line for each law, which its rows share; where there is a map, each row has its own.
        _, one, each = np.unique(rows if d.noises else d.law_of_row[rows], return_index=True, return_inverse=True)
        following, reward, counts = samples(d, rows[one], law, count)
        ends = (dead[h + 1][following] & (counts > 0)).any(axis=1)
        above = largest(d, values, dead, h + 1) + (d.most_reward if d.joint else 0.0)
        follows = values[h + 1][following] + (reward if d.joint else 0.0)
        if h == d.horizon - 1 and not d.joint:
            bound = np.zeros(len(one))
        elif d.deterministic:
            bound = np.where(counts.sum(axis=1) > 0, follows[:, 0], above)
        else:
            mine = share[d.law_of_row[rows[one]]]
            bound = upper_means(follows, np.where(ends[:, None], 0, counts), above, mine)
        ruled_out = (harm[d.group_of_row[rows]] > 0) | ends[each] | (d.barred[d.column[h], rows] == 1)
        bound = bound[each]
        own = 0.0 if d.joint else np.where(known[rows] == 1, d.reward[rows], d.most_reward)
        u = np.full(len(d.law_of_row), -np.inf)
        u[rows] = np.where(ruled_out, -np.inf, np.minimum(own + bound, d.most_reward * (d.horizon - h)))
        best = np.zeros(slots)
        for s in d.slots_at[h]:
            best[s] = u[d.rows_of[s]].max()
        values[h], dead[h], d.upper[h] = best, best == -np.inf, u
    return values, dead


def largest(d: SimpleNamespace, values: list[Numbers], dead: list[Any], h: int) -> float:
    """Return the largest W of a step among states that are not dead, and those that may still be met."""
    if h == d.horizon:
        return 0.0
    alive = values[h][d.slots_at[h]][~dead[h][d.slots_at[h]]]
    if not d.complete or not alive.size:
        return float(d.most_reward * (d.horizon - h))
    return float(max(alive.max(), 0.0) if d.may_end else alive.max())


def upper_means(values: Any, counts: Any, bound: float, share: Any, all_in: float | None = None) -> Numbers:
    """Return, line by line, the upper bound of a mean; the bound itself where nothing was seen."""
    total = counts.sum(axis=1)
    share = np.broadcast_to(share, total.shape)
    if not total.all():
        result, some = np.full(len(total), bound), total > 0
        if some.any():
            result[some] = upper_means(values[some], counts[some], bound, share[some], all_in)
        return result
    n, seen = total[:, None], counts > 0
    least = np.where(seen, values, np.inf).min(axis=1)[:, None]
    most = np.maximum(np.where(seen, values, -np.inf).max(axis=1)[:, None], bound)
    mean = np.where(seen, counts * np.where(seen, values, 0.0), 0.0).sum(axis=1)[:, None] / n
    beta = (share[:, None] + 0.5 * np.log(np.pi * (n + 0.5))) / n

    def at(nu: Any, price: Any) -> tuple[Any, Any]:
        t = np.where(seen, (mean - values) / (nu - mean), 0.0)
        logs = (counts * np.log1p(t)).sum(axis=1)[:, None] / n
        bend = (counts * t * t / (1.0 + t)).sum(axis=1)[:, None] / n
        return mean - (nu - mean) * np.expm1(logs - price), logs + np.log1p(bend)

    spread = most - least
    low, high = 1e-6 * spread, 10.0 * np.sqrt(n) * spread
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        beyond = at(most + middle, beta)[1] > beta
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    best = np.fmin(at(most + np.sqrt(low * high), beta)[0], most)
    sure = at(most, beta if all_in is None else all_in / n)[0]
    best = np.where(np.isfinite(sure), np.fmin(best, sure), best)
    near = ~(most - mean > NEAR * (abs(most) + abs(least)))
    return np.asarray(np.where(near, most, best)[:, 0])


def mixed(values: Any, counts: Any, bound: float, log_share: float) -> float:
    """Return the upper bound of a mean by two kinds of bets, half for each."""
    half = log_share + math.log(2)
    return float(upper_means(np.array(values)[None], np.array(counts)[None], bound, half, half)[0])


def returned(d: SimpleNamespace) -> tuple[float, float]:
    """Return the lower bound of the value and the upper bound of the chance of a violation."""
    least, most = (d.horizon * end for end in d.reward_range)
    if not d.frozen:
        return least, 1.0
    share = math.log(d.policies * (d.policies + 1) / (0.2 * d.p))
    if d.deterministic:
        return walked(d)
    grid = least + (most - least) / GRID * d.returns_index
    low = max(least, -mixed(-grid, d.returns_count, -least, share + math.log(3))) if d.played else least
    if d.safe and all(stays(d, h) for h in range(d.horizon)):
        return low, 0.0
    groups = d.group_of_row[np.concatenate([chosen(d, h) for h in range(d.horizon)])]
    if d.certain and d.complete and (d.tested[groups] == 1).all() and (d.harm[groups] == 0).all():
        return low, 0.0
    return low, mixed([0.0, 1.0], [d.played - d.violated, d.violated], 1.0, share) if d.played else 1.0


def walked(d: SimpleNamespace) -> tuple[float, float]:
    """Return value and violation where nothing is random: one walk."""
    slot, earned = int(d.cell_next[d.cell_start[-1]]), []
    for h in range(d.horizon):
        if slot < d.ends:
            break
        row = d.candidate[h * (len(d.row_start) - 1) + slot if d.stationary else slot]
        law, group = d.law_of_row[row], d.group_of_row[row]
        if not (d.law[law, 0] and d.known[row] and d.tested[group]) or d.harm[group] > 0:
            return d.horizon * d.reward_range[0], 1.0
        earned.append(float(d.reward[row]))
        slot = int(d.cell_next[d.cell_start[law]])
    total = 0.0
    for one in reversed(earned):
        total = one + total
    return total, 0.0


def stays(d: SimpleNamespace, h: int) -> bool:
    """Does the policy take nothing that is declared to fail, wherever anything else is left?"""
    barred, rows = d.barred[d.column[h]] == 1, chosen(d, h)
    return all(not barred[row] or barred[d.rows_of[s]].all() for s, row in zip(d.slots_at[h], rows, strict=True))


def chosen(d: SimpleNamespace, h: int) -> NDArray[Any]:
    """Return the policy's rows at a step; a ValueError where one belongs to another state."""
    slots = d.slots_at[h]
    rows = d.candidate[h * (len(d.row_start) - 1) + slots if d.stationary else slots]
    if ((rows < d.row_start[slots]) | (rows >= d.row_start[slots + 1])).any():
        raise ValueError("the policy takes an action that a state has not")
    return np.asarray(rows)


def gaps_mean(d: SimpleNamespace) -> float:
    """Return the bound of the mean largest gap; a ValueError where the gaps are not what the counts give."""
    _, dead = upper_values(d, d.then_law, d.then_count, d.then_known, d.then_harm)
    slots, least = len(d.row_start) - 1, d.reward_range[0]
    share = math.log(3 * d.policies * (d.policies + 1) / (0.2 * d.p)) + lower_shares(d)
    low, floor = np.zeros(slots), 0.0
    for h in range(d.horizon - 1, -1, -1):
        at, rows = d.slots_at[h], chosen(d, h)
        following, reward, counts = samples(d, rows, d.then_law, d.then_count - d.then_before)
        under = (floor if d.complete else least * (d.horizon - h - 1)) + (least if d.joint else 0.0)
        follows = -upper_means(-(low[following] + (reward if d.joint else 0.0)), counts, -under, share[at])
        follows = np.zeros(len(rows)) if h == d.horizon - 1 and not d.joint else follows
        own = 0.0 if d.joint else np.where(d.then_known[rows] == 1, d.reward[rows], -np.inf)
        now = np.zeros(slots)
        now[at] = np.maximum(own + follows, least * (d.horizon - h))
        low, floor = now, float(min(now[at].min(), 0.0) if d.may_end else now[at].min())
        others = d.upper[h].copy()
        others[rows] = -np.inf
        best = np.array([others[d.rows_of[s]].max() for s in at])
        gap = np.where(dead[h][at] | (best == -np.inf), 0.0, np.maximum(0.0, best - low[at]))
        kept = d.gap[h * slots + at if d.stationary else at]
        near = NEAR * d.horizon * max(1.0, *map(abs, d.reward_range))
        full = (d.horizon - h) * (d.most_reward - least) if d.growing else np.inf  # of a state met later
        if ((np.abs(gap - kept) > near) & (np.abs(kept - full) > near)).any():
            raise ValueError("the gaps are not what the counts give")
    if d.gaps_count.sum() == 0:
        return math.inf
    own = math.log(3 * d.attempts * (d.attempts + 1) / (0.2 * d.p))
    return mixed(d.top / GRID * d.gaps_index, d.gaps_count, d.top, own) if d.top > 0 else 0.0
