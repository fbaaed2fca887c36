"""Check the certificate of a learner that stopped by itself, from its counts and returns, in plain numpy.

The formulas (theorem and proof: docs/certified-learning.md), p the failure probability, one bet for each
distribution and step:

    upper mean     of U_i <= B: least over nu >= B of  nu - exp( mean log(nu - U_i) - beta/n ),
                   beta = log(1/d) + log(pi (n + 1/2)) / 2
    upper values   W_h(s) = max over a of  r + [upper mean of W_{h+1} over the samples],  d = 0.6 p / bets, over actions
                   that were not seen to violate, or to lead to a state all of whose actions are ruled out (W = -inf)
    value          lower mean of the returns of the policy since it was chosen, the j-th,  d = 0.2 p / (3 j (j+1))
    gaps           g_h(s) = best upper value of another action less the lower value of the policy, from samples since
                   then; their mean largest one in the i-th attempt,  d = 0.2 p / (3 i (i+1))
    violation      of so many episodes so many violated,  d = 0.2 p / (j (j+1))

Tables by slot have one place more, the last, for a state that was not met: a declared map leads there by slot -1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

#: Steps of the grids of returns and gaps; what counts as equal; halvings of the room in which the best nu lies.
GRID, NEAR, HALVINGS = 1 << 16, 1e-9, 28
Read = Mapping[str, Any]


def check(declared: Any, plain: Read, arrays: Read) -> tuple[dict[str, float | None], bool, float]:
    """Return the numbers of a learned certificate, whether it may violate, and how large its values can be."""
    d = read(declared, plain, arrays)
    _, first, top = upper_values(d, d.cell_count, d.known, d.max_violation)
    found = float(follow(d, d.cell_count, np.array([d.rows]), first, top, d.upper_share[-1:])[0])
    high = found if found > -np.inf else None  # no policy keeps every constraint
    low, chance = returned(d)
    by_gaps = gaps_mean(d) if d.frozen and d.top >= 0 and d.gaps_count.any() else math.inf
    gap = None if high is None else min(high - low, by_gaps)
    numbers = {
        "value_low": low, "optimum_high": high, "gap": gap, "value_high": high if chance == 0 else None,
        "epsilon": d.epsilon * (max(low, -(high or 0.0), 0.0) if d.relative else 1.0),
        "violation_high": chance * d.horizon * math.fsum(d.constraint_bounds), "violation_probability_high": chance,
        "episodes": int(d.distribution[-1, 0]),
    }  # fmt: skip
    return numbers, chance > 0, d.horizon * max(map(abs, d.reward_range)) or 1.0


def read(declared: Any, plain: Read, arrays: Read) -> SimpleNamespace:
    """Return the evidence; a ValueError says that it is none."""
    d = SimpleNamespace(**plain, **arrays, p=declared.failure_probability)
    d.slots, d.rows, (d.least, most) = len(d.row_start) - 1, len(d.distribution_of_row), d.reward_range
    size, mine = np.diff(d.row_start), d.candidate.reshape(-1, d.slots)[: d.horizon if d.stationary else 1]
    d.may_end, met, last = d.ends > 0 and d.least <= 0 <= most, d.slots - d.ends, d.cell_start[-1]
    read = d.cell_reward[:last][d.cell_count[:last] > 0] if d.joint else d.reward[d.known == 1]
    d.near, full = NEAR * max(1.0, *map(abs, d.reward_range)), d.horizon * (d.max_reward - d.least)
    sound = [
        0 < d.p < 1, d.horizon >= 1, d.max_reward <= most, d.row_start[0] == 0, size >= 0, d.row_start[-1] == d.rows,
        len(d.candidate) == d.slots * (d.horizon + 1 if d.stationary else 1), d.stationary or d.horizon <= d.slots,
        np.add.reduceat(d.cell_count, d.cell_start) == d.distribution[:, 0],
        np.add.reduceat(d.then_count, d.cell_start) == d.then_distribution[:, 0],
        d.then_before >= 0, d.then_before <= d.then_count, d.then_count <= d.cell_count, d.then_known <= d.known,
        d.then_max_violation >= 0, d.then_max_violation <= d.max_violation, d.tested[d.max_violation > 0] == 1,
        d.returns_count >= 0, d.gaps_count >= 0, d.returns_count.sum() == d.played, d.gaps_count.sum() <= d.played,
        0 <= d.violated <= d.played <= d.distribution[-1, 0],
        *(0 <= index.min(initial=0) <= index.max(initial=0) <= GRID for index in (d.returns_index, d.gaps_index)),
        np.isfinite(d.gap), d.gap >= 0, d.top < 0 or d.gap.max(initial=0.0) <= d.top + NEAR,
        d.ends == (0 if not d.growing else 1 if d.stationary else d.horizon + 1),
        d.complete if not d.growing else not d.complete or (d.stationary and met == d.states),
        d.complete or d.top < 0 or abs(d.top - full) <= NEAR * max(1.0, full),
        read >= d.least - d.near, read <= most + d.near, len(d.noise_next) == d.rows * d.noises,
        not d.frozen or ((mine >= d.row_start[:-1]) & (mine < d.row_start[1:]))[:, size > 0].all(),
        not d.noises or (last == d.noises and not (d.growing and d.states is None)),
    ]  # fmt: skip
    if not all(map(np.all, sound)):
        raise ValueError("counts, returns or sizes are none that a run can have")
    arrange(d, size)
    return d


def arrange(d: SimpleNamespace, size: Any) -> None:
    """Add what stands at each step, and bring maps and joint rewards into the form of all others."""
    if d.noises:  # every row is its own distribution, with all noises
        for name in ("cell_count", "then_count", "then_before"):
            counts = getattr(d, name)
            setattr(d, name, np.append(np.tile(counts[: d.noises], d.rows), counts[d.noises :]))
        d.distribution_of_row, d.cell_start = np.arange(d.rows), np.arange(d.rows + 1) * d.noises
        d.cell_next = np.append(d.noise_next, d.cell_next[d.noises :])
    if d.joint:  # rewards come with the outcome, none with the pair
        d.reward, d.known, d.then_known = np.zeros(d.rows), np.ones(d.rows), np.ones(d.rows)
    else:
        d.cell_reward = np.zeros(len(d.cell_next))
    # The first state is what follows one row more.
    d.distribution_of_row = np.append(d.distribution_of_row, len(d.cell_start) - 1)
    d.room = np.diff(np.append(d.cell_start, len(d.cell_next)))
    forbidden, d.at = d.forbidden.reshape(-1, d.rows) == 1, []
    for h in range(d.horizon):
        here = (size > 0) & (d.stationary | (d.slot_step == h))
        at = SimpleNamespace(h=h, slots=np.flatnonzero(here), rows=np.flatnonzero(np.repeat(here, size)))
        at.begin, at.node = np.cumsum(size[at.slots]) - size[at.slots], at.slots + h * d.slots * d.stationary
        at.mine, at.forbidden = d.candidate[at.node], forbidden[h * d.stationary]
        d.at.append(at)
    d.upper_share, d.lower_share = shares(d)


def shares(d: SimpleNamespace) -> tuple[Any, Any]:
    """Return log(1/d) of bets on upper values [distribution], and the log of the number of lower bets [slot]."""
    distributions, steps = len(d.cell_start), (d.horizon if d.joint else d.horizon - 1) if d.stationary else 1
    if d.growing and d.states is None:  # weights that sum to 1, by the order of being met; the first state comes first
        order, steps = np.append(np.arange(2, distributions + 1), 1), math.log(max(1, steps))
        upper = weights(order) + np.where(order > 1, steps, 0.0)
        return upper - math.log(0.6 * d.p), weights(np.maximum(np.arange(d.slots) - d.ends + 1, 1)) + steps
    states = d.states * (1 if d.stationary else d.horizon) if d.growing else d.slots
    pairs, steps = (states * d.actions, max(1, steps)) if d.growing else (distributions - 1, steps)
    upper, lower = math.log(pairs * steps + 1) - math.log(0.6 * d.p), math.log(max(1, states * steps))
    return np.full(distributions, upper), np.full(d.slots, lower)


def weights(index: Any) -> Any:
    """Return log(1/omega_i), omega_i = 2^-k / ((k+1)(k+2)) for 2^k <= i < 2^(k+1)."""
    k = np.floor(np.log2(index))
    return k * math.log(2) + np.log((k + 1) * (k + 2))


def upper_values(d: SimpleNamespace, counts: Any, known: Any, max_violation: Any) -> tuple[list[Any], Any, float]:
    """Return U by step [row there], W of the first step [slot], both -inf where ruled out, and the largest such W."""
    upper, after, top = [np.empty(0)] * d.horizon, np.zeros(d.slots + 1), 0.0
    for at in reversed(d.at):
        distributions, one, each = np.unique(d.distribution_of_row[at.rows], return_index=True, return_inverse=True)
        ceiling, most = top + (d.max_reward if d.joint else 0.0), d.max_reward * (d.horizon - at.h)
        bound = follow(d, counts, at.rows[one], after, ceiling, d.upper_share[distributions])[each]
        own = np.where(known[at.rows] == 1, d.reward[at.rows], d.max_reward)
        ruled_out = (max_violation[d.group_of_row[at.rows]] > 0) | at.forbidden[at.rows]
        upper[at.h] = np.where(ruled_out, -np.inf, np.minimum(own + bound, most))
        after = np.append(np.zeros(d.slots), max(most, 0.0) if d.may_end else most)
        after[at.slots] = best = np.maximum.reduceat(upper[at.h], at.begin)
        alive = best[best > -np.inf]
        top = float(alive.max(initial=0.0 if d.may_end else -np.inf)) if d.complete and alive.size else most
    return upper, after, top


def follow(d: Any, counts: Any, rows: Any, after: Any, ceiling: float, share: Any, sign: float = 1.0) -> Any:
    """[row]: the upper mean of reward (times `sign`) plus `after` where its samples lead; -inf where one of them is."""
    distributions = d.distribution_of_row[rows]
    within = np.arange(d.room[distributions].max(initial=1))
    inside = within < d.room[distributions][:, None]
    cells = np.where(inside, d.cell_start[distributions][:, None] + within, 0)
    counts, values = np.where(inside, counts[cells], 0), sign * d.cell_reward[cells] + after[d.cell_next[cells]]
    if d.deterministic:
        return np.where(counts[:, 0] > 0, values[:, 0], ceiling)
    return upper_means(values, counts, ceiling, share)


def upper_means(values: Any, counts: Any, ceiling: float, share: Any, all_in: float | None = None) -> Any:
    """Return, line by line, the upper mean: `ceiling` itself where nothing was seen, -inf where that was."""
    n, seen = counts.sum(axis=1, keepdims=True), counts > 0
    least = np.where(seen, values, np.inf).min(axis=1, keepdims=True)
    values = np.where(seen, values, least)  # what was not seen counts for nothing
    most, mean = np.maximum(values.max(axis=1, keepdims=True), ceiling), (counts * values).sum(1, keepdims=True) / n
    beta = (np.reshape(share, (-1, 1)) + 0.5 * np.log(np.pi * (n + 0.5))) / n

    def at(nu: Any, price: Any) -> tuple[Any, Any]:
        t = (mean - values) / (nu - mean)
        logs, bend = (counts * np.log1p(t)).sum(1, keepdims=True), (counts * t * t / (1.0 + t)).sum(1, keepdims=True)
        return mean - (nu - mean) * np.expm1(logs / n - price), logs / n + np.log1p(bend / n)

    low, high = 1e-6 * (most - least), 10.0 * np.sqrt(n) * (most - least)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        beyond = at(most + middle, beta)[1] > beta
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    best = np.fmin(at(most + np.sqrt(low * high), beta)[0], at(most, beta if all_in is None else all_in / n)[0])
    best = np.where(most - mean > NEAR * (abs(most) + abs(least)), np.fmin(best, most), most)
    return np.select([n == 0, least == -np.inf], [ceiling, -np.inf], best)[:, 0]


def mixed(values: Any, counts: Any, ceiling: float, share: float) -> float:
    """Return the upper mean by two kinds of bets, half for each."""
    half = share + math.log(2)
    return float(upper_means(np.array(values)[None], np.array(counts)[None], ceiling, half, half)[0])


def returned(d: SimpleNamespace) -> tuple[float, float]:
    """Return the lower bound of the value and the upper bound of the chance of a violation."""
    least, most = (d.horizon * end for end in d.reward_range)
    if not d.frozen:
        return least, 1.0
    kept = (d.tested[d.group_of_row] == 1) & (d.max_violation[d.group_of_row] == 0)
    if d.deterministic:  # known once its own path was walked
        *_, (_, values) = lower_values(d, d.cell_count, kept & (d.known == 1), np.zeros(d.slots))
        value = float(values[d.cell_next[d.cell_start[-1]]])
        return (value, 0.0) if value > -np.inf else (least, 1.0)
    share, low = math.log(d.policies * (d.policies + 1) / (0.2 * d.p)), least
    if d.played:
        grid = least + (most - least) / GRID * d.returns_index
        low = max(least, -mixed(-grid, d.returns_count, -least, share + math.log(3)))
    read = d.certain and d.complete and all(kept[at.mine].all() for at in d.at)
    if read or (d.safe and all(map(stays, d.at))):
        return low, 0.0
    return low, mixed([0.0, 1.0], [d.played - d.violated, d.violated], 1.0, share) if d.played else 1.0


def stays(at: SimpleNamespace) -> bool:
    """Does the policy take nothing that is declared to fail, wherever anything else is left?"""
    return not (at.forbidden[at.mine] & ~np.logical_and.reduceat(at.forbidden[at.rows], at.begin)).any()


def lower_values(d: SimpleNamespace, counts: Any, known: Any, share: Any) -> Iterator[tuple[Any, Any]]:
    """Yield steps, the last first, and what the policy is worth there [slot]; where nothing is random, it or -inf."""
    after, floor = np.zeros(d.slots + 1), 0.0
    for at in reversed(d.at):
        rest = -np.inf if d.deterministic else d.least * (d.horizon - at.h)
        under = (floor if d.complete and not d.deterministic else rest - d.least) + (d.least if d.joint else 0.0)
        follows = -follow(d, counts, at.mine, -after, -under, share[at.slots], -1.0)
        low = np.maximum(np.where(known[at.mine] == 1, d.reward[at.mine], -np.inf) + follows, rest)
        after, floor = np.append(np.zeros(d.slots), rest), low.min(initial=0.0 if d.may_end else np.inf)
        after[at.slots] = low
        yield at, after


def gaps_mean(d: SimpleNamespace) -> float:
    """Return the bound of the mean largest gap; a ValueError where gaps are not what counts give, more if growing."""
    upper, _, _ = upper_values(d, d.then_count, d.then_known, d.then_max_violation)
    share = math.log(3 * d.policies * (d.policies + 1) / (0.2 * d.p)) + d.lower_share
    for at, low in lower_values(d, d.then_count - d.then_before, d.then_known, share):
        alive = np.maximum.reduceat(upper[at.h], at.begin) > -np.inf
        upper[at.h][np.searchsorted(at.rows, at.mine)] = -np.inf
        above = np.maximum.reduceat(upper[at.h], at.begin) - low[at.slots]
        off = d.gap[at.node] - np.where(alive, np.maximum(0.0, above), 0.0)
        if (abs(np.minimum(off, 0.0) if d.growing else off) > d.horizon * d.near).any():
            raise ValueError("the gaps are not what the counts give")
    own = math.log(3 * d.attempts * (d.attempts + 1) / (0.2 * d.p))
    return mixed(d.top / GRID * d.gaps_index, d.gaps_count, d.top, own)
