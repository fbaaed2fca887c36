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

Bounds from a log rest on its transitions instead: the lower values of its policy are averaged over the first states,
and so is the probability of a violation, CC_h = 1 where one was seen, else the upper mean of CC_{h+1}; d = 0.2 p / bets
for either, half of that for each side of the value of a given policy.

Tables by slot have one place more, the last, for a state that was not met: a declared map leads there by slot -1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from peakrl.certificates.rests_on import DECLARED, on_learning, on_log
from peakrl.records import Field, Record

#: Steps of the grids of returns and gaps; relative difference of two computations; halvings of the room of the best nu.
GRID, NEAR, HALVINGS = 1 << 16, 1e-9, 28
Read = Mapping[str, Any]
#: The arrays, by axes; a "node" is a slot at a step, an "entry" a row at a step, a "distribution" may be of the first
#: state. The axis "cell" is that of samples.
FIELDS = {
    "row_start": Field(np.int64, "slot", splits="row"),
    "slot_step": Field(np.int64, "slot", low=0),
    "distribution_of_row": Field(np.int32, "row", low=0),
    "group_of_row": Field(np.int32, "row", below="group"),
    "known": Field(np.int8, "row", low=0, high=1),
    "then_known": Field(np.int8, "row", low=0, high=1),
    "reward": Field(np.float64, "row", low=-1e30, high=1e30),
    "tested": Field(np.int8, "group", low=0, high=1),
    "max_violation": Field(np.float64, "group", low=0, high=1e300),
    "then_max_violation": Field(np.float64, "group", low=0, high=1e300),
    "forbidden": Field(np.int8, "entry", low=0, high=1),
    "candidate": Field(np.int64, "node", low=0),
    "gap": Field(np.float64, "node", low=0, high=1e300),
    "noise_next": Field(np.int32, "noise entry", low=-1),
    "cell_start": Field(np.int64, "distribution", low=0),
    "cell_next": Field(np.int32, "cell", low=-1),
    "cell_reward": Field(np.float64, "cell", low=-1e30, high=1e30),
    "cell_count": Field(np.int64, "cell", low=0, high=1e15),
    "then_count": Field(np.int64, "cell", low=0),
    "then_before": Field(np.int64, "cell", low=0),
    "samples": Field(np.int64, "distribution"),
    "then_samples": Field(np.int64, "distribution"),
    "returns_index": Field(np.int64, "return", low=0, high=GRID),
    "returns_count": Field(np.int64, "return", low=1, high=1e15),
    "gaps_index": Field(np.int64, "gap", low=0, high=GRID),
    "gaps_count": Field(np.int64, "gap", low=1, high=1e15),
}
FLAGS = ("stationary", "joint", "certain", "safe", "deterministic", "growing", "shared", "relative")
WHOLE = ("horizon", "noises", "policies", "attempts", "violated")


def check(declared: Any, plain: Read, arrays: Read) -> tuple[dict[str, float | None], bool, float, tuple[str, ...]]:
    """Return the numbers of a learned certificate, whether it may violate, their tolerance, and what it rests on."""
    d = read(declared, plain, arrays)
    _, first, top = upper_values(d, d.cell_count, d.known, d.max_violation)
    found = float(follow(d, d.cell_count, np.array([d.rows]), first, top, d.upper_share[-1:])[0])
    high = found + d.rounding if found > -np.inf else None  # no policy keeps every constraint
    low, chance = logged(d) if d.logged else returned(d)
    low = max(low - d.rounding, d.least * d.horizon)
    by_gaps = gaps_mean(d) + d.rounding if d.top >= 0 and d.gaps_count.any() else math.inf
    gap = None if high is None else min(high - low, by_gaps)
    require(high is None or chance > 0 or low <= high, "the bounds contradict each other")
    best = max(low if chance == 0 else d.least * d.horizon, -math.inf if high is None else -high, 0.0)
    most = high if chance * d.most_violation == 0 else None
    if d.logged and d.given:
        above = d.rounding - pursued(d, -d.reward_range[1], -d.reward_range[0], -1.0)
        most = min([above, d.horizon * d.reward_range[1]] + [high] * (most is not None))
    numbers = {
        "value_low": low, "optimum_high": high, "gap": gap, "value_high": most,
        "epsilon": None if d.logged else d.epsilon * (best if d.relative else 1.0),
        "violation_high": chance * d.horizon * d.most_violation,
        "violation_probability_high": chance, "episodes": d.episodes, "declared_safe": d.safe,
    }  # fmt: skip
    # If nothing is random, the same sums are computed in the same order.
    apart = 0.0 if d.deterministic else NEAR * d.horizon * d.size
    return numbers, chance > 0 and not d.logged, apart, tuple((on_log if d.logged else on_learning)(plain))


def require(sound: Any, words: str) -> None:
    """Raise a ValueError unless a condition holds."""
    if not np.all(sound):
        raise ValueError(words)


def read(declared: Any, plain: Read, arrays: Read) -> SimpleNamespace:
    """Return the evidence; a ValueError says that it is none."""
    record, own = Record({}, dict(arrays)), declared.kind == "logged"
    fields = FIELDS | ({"weights": Field(np.float64, "entry", low=0, high=1 + NEAR)} if own else {})
    d = SimpleNamespace(**plain, **record.checked(fields), p=declared.failure_probability, logged=own)
    if own:
        flags = (d.given, d.several, d.kept, d.behavior)
        require(all(type(one) is bool for one in flags), "a flag is neither true nor false")
        require(d.several or not d.behavior, "a behaviour policy may take several actions")
        require(all(type(n) is int and n >= 0 for n in (d.inferred, d.missing, d.of_episodes)), "a number is not whole")
    require(all(type(getattr(d, name)) is bool for name in FLAGS), "a flag is neither true nor false")
    require(all(type(getattr(d, name)) is int and getattr(d, name) >= 0 for name in WHOLE), "a number is not whole")
    numbers = [*d.reward_range, *d.constraint_bounds, *d.constraint_tolerances, d.max_reward, d.epsilon, d.top]
    require(all(type(one) is float and abs(one) <= 1e300 for one in numbers), "a number is not finite")
    known = d.states is not None
    require(d.growing or not known, "a model has no declared number of states")
    require((d.actions is not None) == known, "numbers of states and actions come together")
    require(not known or (type(d.states) is type(d.actions) is int and min(d.states, d.actions) > 0), "no states")
    d.slots, d.rows, (d.least, most) = len(d.row_start) - 1, len(d.distribution_of_row), d.reward_range
    d.size, d.most_violation = max(abs(d.least), abs(most)), math.fsum(d.constraint_bounds) * (1 + NEAR)
    d.ends = 0 if not d.growing else 1 if d.stationary else d.horizon + 1
    d.may_end, met = d.ends > 0 and d.least <= 0 <= most, d.slots - d.ends
    d.complete = not d.growing or (d.stationary and met == d.states)
    check_ranges(d, most, met)
    check_indices(d)
    check_counts(d)
    check_declared(d)
    arrange(d)
    return d


def check_ranges(d: SimpleNamespace, most: float, met: int) -> None:
    """Raise unless plain values can be those of a run."""
    require(0 < d.p < 1 and d.horizon >= 1 and d.epsilon >= 0, "p, horizon or epsilon is out of range")
    require(d.least <= d.max_reward <= most, "the rewards have no range")
    require(met > 0, "there are fewer states than ends of steps")  # which bounds the horizon
    require(all(bound > 0 for bound in d.constraint_bounds), "a bound on a constraint is not above 0")
    require(d.max_violation <= d.most_violation, "a violation is larger than its bound")
    most_met = 0 if d.states is None else d.states if d.stationary else d.states * d.horizon
    require(d.states is None or met <= most_met + (not d.stationary) * d.states, "more states than declared")
    require(d.states is None or np.diff(d.row_start) <= d.actions, "more actions than declared")
    require(d.growing or not d.shared, "only environments declare which pairs share a distribution")
    require(not (d.joint and d.deterministic), "nothing is random, and yet rewards depend on the outcome")
    require(not d.noises or not (d.joint or d.deterministic), "noises explain neither rewards nor what is not random")
    require(not d.noises or not d.growing or d.states is not None, "noises need a number of states")
    require(d.top >= 0 or d.top == -1, "the largest gap is negative")
    require((d.top >= 0) <= (d.attempts > 0) and (d.attempts > 0) <= (d.policies > 0), "attempts without a policy")
    full = d.horizon * (d.max_reward - d.least)
    require(
        (d.gap <= max(d.top, 0.0)).all() and (d.complete or d.top < 0 or d.top >= full), "a gap exceeds the largest one"
    )
    require(d.top <= full + NEAR * d.horizon * d.size, "a gap is larger than any value")
    frozen = [d.then_count, d.then_before, d.then_known, d.then_max_violation]
    require(
        d.logged or d.top >= 0 or not any(array.any() for array in frozen),
        "there are samples of gaps that were not frozen",
    )


def check_indices(d: SimpleNamespace) -> None:
    """Raise unless every index is one of its axis."""
    size, last, cells = np.diff(d.row_start), len(d.cell_start) - 1, len(d.cell_next)
    require(d.slots > 0 and d.rows > 0 and last > 0, "there are no states or no actions")
    require(d.distribution_of_row < last, "a pair has no distribution")
    require(d.shared or d.noises or not d.growing or len(d.distribution_of_row) == last, "pairs share a distribution")
    require(d.cell_start[0] == 0 and (np.diff(d.cell_start) > 0).all() and d.cell_start[-1] < cells, "cells overlap")
    unmet = d.growing and d.stationary and d.horizon > 1 and not d.noises
    require(d.cell_next < d.slots, "a sample leads to no state")
    require(d.cell_next[: d.cell_start[-1]] >= (-1 if unmet else 0), "a sample leads to no state")
    require((d.cell_next[d.cell_start[-1] :] >= d.ends).all(), "an episode begins at its end")
    require(len(d.noise_next) == d.rows * d.noises and (d.noise_next < d.slots).all(), "a noise leads to no state")
    require(not d.noises or (last == 1 and d.cell_start[-1] == d.noises), "the noises have no samples")
    require(d.slot_step <= d.horizon, "a state belongs to no step")
    require(not d.stationary or (d.slot_step == 0).all(), "a state belongs to a step of a stationary problem")
    require(len(d.forbidden) == d.rows * (d.horizon if d.stationary else 1), "forbidden actions have no entries")
    require(
        len(d.candidate) == len(d.gap) == d.slots * (d.horizon + 1 if d.stationary else 1), "the policy is no table"
    )
    require(size[: d.ends] == 0, "an end has actions")
    mine = d.candidate.reshape(-1, d.slots)[: d.horizon if d.stationary else 1]
    inside = (mine >= d.row_start[:-1]) & (mine < d.row_start[1:])
    require(not d.policies or inside[:, size > 0].all(), "the policy takes something that is not an action")
    digest = hashlib.blake2b(f"{d.candidate.dtype.str} {d.candidate.shape} ".encode() + d.candidate.tobytes())
    require(digest.hexdigest()[:32] == d.candidate_digest, "the returns belong to another policy")


def check_counts(d: SimpleNamespace) -> None:
    """Raise unless the counts can be those of episodes."""
    samples = np.add.reduceat(d.cell_count, d.cell_start)
    require((samples == d.samples).all(), "the samples of a distribution are not those of its outcomes")
    then = np.add.reduceat(d.then_count, d.cell_start)
    require((then == d.then_samples).all(), "the samples of a distribution are not those of its outcomes")
    d.episodes, d.played, measured = int(samples[-1]), int(d.returns_count.sum()), int(d.gaps_count.sum())
    if d.logged:  # rows may be left out, and begin anywhere
        d.episodes = d.of_episodes
    require(d.logged or samples[:-1].sum() <= d.episodes * d.horizon, "there are more samples than steps of episodes")
    require(
        d.logged or max(d.policies, d.attempts, d.played) <= d.episodes,
        "there are more policies or returns than episodes",
    )
    require(d.violated <= d.played and measured <= d.played, "there are more violations or gaps than returns")
    require(d.policies or not d.played, "returns without a policy")
    require((np.diff(d.returns_index) > 0).all() and (np.diff(d.gaps_index) > 0).all(), "a histogram is not in order")
    require((d.then_before <= d.then_count).all() and (d.then_count <= d.cell_count).all(), "samples were lost")
    require((d.then_known <= d.known).all(), "rewards were forgotten")
    require((d.then_max_violation <= d.max_violation).all(), "violations were forgotten")
    require(d.tested[d.max_violation > 0] == 1, "a violation was observed that was never tested")
    least, most = d.reward_range
    own = slice(0, d.cell_start[-1])
    seen = d.cell_reward[own][d.cell_count[own] > 0] if d.joint else d.reward[d.known == 1]
    require((seen >= least) & (seen <= most), "a reward is outside of its range")
    if not d.joint:
        fine = (d.known == 1) & ((d.tested == 1) & (d.max_violation == 0))[d.group_of_row]
        require(d.reward[fine] <= d.max_reward, "a reward without a violation is above the largest one")
    if d.deterministic:
        outcomes = np.add.reduceat((d.cell_count > 0).astype(np.int64), d.cell_start)
        require(outcomes <= 1, "nothing is random, and yet there are two outcomes")
    if not d.logged and not d.noises and len(d.distribution_of_row) == len(d.cell_start) - 1 and not d.shared:
        for counts, taken in ((d.cell_count, samples), (d.then_count, then)):
            arrived = np.bincount(d.cell_next + 1, counts, d.slots + 1)[1:]
            left = np.diff(np.append(0, np.cumsum(taken[d.distribution_of_row]))[d.row_start])
            require(left <= arrived, "a state was left more often than it was reached")


def check_declared(d: SimpleNamespace) -> None:
    """Raise if a declaration is used that is not named, or one is named that does not exist."""
    require(isinstance(d.declared, dict) and all(name in DECLARED for name in d.declared), "a declaration is unknown")
    depends_on = d.declared.get("constraint_depends_on", "pair")
    require(depends_on in ("pair", "action", "state"), "constraints depend on something unknown")
    shared = d.shared or len(d.cell_start) - 1 < len(d.distribution_of_row)
    used = {
        "deterministic": d.deterministic,
        "dynamics": d.noises > 0,
        "max_reward": d.max_reward < d.reward_range[1],
        "constraint_depends_on": len(d.tested) < d.rows,
        "shared_transitions": shared and not d.noises,
        "support safe_policy": d.safe,
        "support": d.logged and d.kept,
        "support safe_policy constraints": d.forbidden.any(),
        "rewards deterministic": d.growing and not d.joint,
        "constraints deterministic": d.growing and d.certain,
    }
    for names, uses in used.items():
        require(not uses or not d.declared.keys().isdisjoint(names.split()), f"{names} is not declared, but used")


def arrange(d: SimpleNamespace) -> None:
    """Add what stands at each step, and bring maps and joint rewards into the form of all others."""
    size, cells = np.diff(d.row_start), np.diff(np.append(d.cell_start, len(d.cell_next)))
    d.rounding = 2.0**-44 * d.horizon**2 * d.size * (int(cells.max()) + 16)
    if d.growing and not d.joint:
        d.rounding += 4 * NEAR * d.horizon * d.size
    if d.deterministic:
        earned = np.append(d.reward[d.known == 1], [d.least, d.max_reward])
        unit = math.ldexp(1.0, math.frexp(d.horizon * float(abs(earned).max()))[1] - 53) or 5e-324
        d.rounding = 2.0**-52 * d.horizon**2 * d.size * bool(np.fmod(earned, unit).any())
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
        require(d.growing or at.slots.size, "a step has no states")
        d.at.append(at)
        if d.logged:
            at.weight = d.weights.reshape(-1, d.rows)[h * d.stationary][at.rows]
            whole = np.add.reduceat(at.weight, at.begin) if len(at.rows) else at.weight
            at.used = whole > 0
            require((whole == 0) | (abs(whole - 1) <= NEAR), "the policy's probabilities are invalid")
            require(d.several | (at.weight == 0) | (at.weight == 1), "the policy takes several actions unsaid")
        else:
            at.weight = np.isin(at.rows, at.mine)
    d.lower_share = bets(d)
    d.upper_share = d.lower_share - math.log(0.6 * d.p)


def bets(d: SimpleNamespace, several: bool = False) -> Any:
    """[distribution]: log of the number of bets: one for each step and state (or action), one for the first state."""
    distributions, steps = len(d.cell_start), (d.horizon if d.joint else d.horizon - 1) if d.stationary else 1
    if not d.growing:
        return np.full(distributions, math.log(min(d.slots, distributions - 1) * steps + 1))
    if d.states is not None:
        number = d.states * (max(1, steps) if d.stationary else d.horizon) * (d.actions if several else 1)
        return np.full(distributions, math.log(number + 1))
    order = np.repeat(np.arange(d.slots), np.diff(d.row_start)) - d.ends + 1  # in the order of being met
    order = np.arange(1, distributions) if d.shared or several else order
    return np.append(weights(order + 1) + math.log(max(1, steps)), math.log(2.0))


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


def follow(
    d: Any, counts: Any, rows: Any, after: Any, ceiling: float, share: Any, sign: float = 1.0, fixed: bool = False
) -> Any:
    """[row]: the upper mean of reward (times `sign`) plus `after` where its samples lead; -inf where one of them is.

    If the ceiling is `fixed` in advance, by two kinds of bets.
    """
    distributions = d.distribution_of_row[rows]
    sizes = d.room[distributions]
    start = np.cumsum(sizes) - sizes
    cells = np.repeat(d.cell_start[distributions] - start, sizes) + np.arange(sizes.sum())
    counts, values = counts[cells], sign * d.cell_reward[cells] + after[d.cell_next[cells]]
    if d.deterministic:
        return np.where(counts[start] > 0, values[start], ceiling)
    share = share + math.log(2) if fixed else share
    return upper_means(values, counts, sizes, ceiling, share, share if fixed else None)


def upper_means(values: Any, counts: Any, sizes: Any, ceiling: float, share: Any, all_in: Any = None) -> Any:
    """Return upper means of so many values each: `ceiling` itself where nothing was seen, -inf where that was."""
    start = np.cumsum(sizes) - sizes
    n, seen = np.add.reduceat(counts, start), counts > 0
    least = np.minimum.reduceat(np.where(seen, values, np.inf), start)
    values = np.where(seen, values, np.repeat(least, sizes))  # what was not seen counts for nothing
    most, mean = np.maximum(np.maximum.reduceat(values, start), ceiling), np.add.reduceat(counts * values, start) / n
    beta, off = (share + 0.5 * np.log(np.pi * (n + 0.5))) / n, np.repeat(mean, sizes) - values

    def at(nu: Any, price: Any) -> tuple[Any, Any]:
        t = off / np.repeat(nu - mean, sizes)
        logs, bend = np.add.reduceat(counts * np.log1p(t), start), np.add.reduceat(counts * t * t / (1.0 + t), start)
        return mean - (nu - mean) * np.expm1(logs / n - price), logs / n + np.log1p(bend / n)

    low, high = 1e-6 * (most - least), 10.0 * np.sqrt(n) * (most - least)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        beyond = at(most + middle, beta)[1] > beta
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    best = np.fmin(at(most + np.sqrt(low * high), beta)[0], at(most, beta if all_in is None else all_in / n)[0])
    best = np.where(most - mean > NEAR * (abs(most) + abs(least)), np.fmin(best, most), most)
    return np.select([n == 0, least == -np.inf], [ceiling, -np.inf], best)


def mixed(values: Any, counts: Any, ceiling: float, share: float) -> float:
    """Return the upper mean by two kinds of bets, half for each."""
    half = share + math.log(2)
    values, counts = np.array(values), np.array(counts)
    return float(upper_means(values, counts, np.array([len(values)]), ceiling, half, half)[0])


def returned(d: SimpleNamespace) -> tuple[float, float]:
    """Return the lower bound of the value and the upper bound of the chance of a violation."""
    least, most = (d.horizon * end for end in d.reward_range)
    if not d.policies:
        return least, 1.0
    kept = (d.tested[d.group_of_row] == 1) & (d.max_violation[d.group_of_row] == 0)
    if d.deterministic:  # known once its own path was walked
        *_, (_, values) = lower_values(d, d.cell_count, kept & (d.known == 1), np.zeros(len(d.cell_start)))
        value = float(values[d.cell_next[d.cell_start[-1]]])
        if value > -np.inf:
            require(not d.violated, "the policy violated where it cannot")
            return value, 0.0
    share, low = math.log(d.policies * (d.policies + 1) / (0.2 * d.p)), least
    if d.played and not d.deterministic:
        grid = least + (most - least) / GRID * d.returns_index
        low = max(least, -mixed(-grid, d.returns_count, -least, share + math.log(3)))
    read = d.certain and d.complete and all(kept[at.mine].all() for at in d.at)
    if read or not d.constraint_bounds or (d.safe and all(map(stays, d.at))):
        require(not d.violated, "the policy violated where it cannot")
        return low, 0.0
    return low, mixed([0.0, 1.0], [d.played - d.violated, d.violated], 1.0, share) if d.played else 1.0


def logged(d: SimpleNamespace) -> tuple[float, float]:
    """Return the lower bound of the value and the upper bound of the chance of a violation, by the rows of a log."""
    mine = (at.weight[np.searchsorted(at.rows, at.mine)] for at in d.at)
    own = d.given or all(((weight == 1) | (d.behavior & (weight > 0))).all() for weight in mine)
    require(own, "the weights are not those of the policy")
    low = pursued(d, d.reward_range[0], d.reward_range[1], 1.0)
    kept = (d.tested[d.group_of_row] == 1) & (d.max_violation[d.group_of_row] == 0)
    sound = d.certain and d.complete and all(at.used.all() and kept[at.rows[at.weight > 0]].all() for at in d.at)
    if sound or not d.constraint_bounds or (d.kept if d.given else d.safe and all(map(stays, d.at))):
        return low, 0.0
    return low, min(1.0, -pursued(d, 0.0, 0.0, 0.0))


def pursued(d: SimpleNamespace, least: float, most: float, sign: float) -> float:
    """Return the lower bound of the mean of what the policy earns, times `sign`; minus the chance to violate for 0."""
    counts, chance, first = d.cell_count - d.then_before, sign == 0, np.array([d.rows])
    counts = d.cell_count if d.deterministic else counts
    share = bets(d, d.several) + math.log((1 if chance or not d.given else 2) / (0.2 * d.p))
    failed = (d.max_violation[d.group_of_row] > 0) | (d.certain & (d.tested[d.group_of_row] == 0))
    own = np.where(d.known == 1, sign * d.reward, least) if not chance else np.zeros(d.rows)
    after, floor, rest = np.zeros(d.slots + 1), 0.0, 0.0
    for at in reversed(d.at):
        fixed = not (d.complete and (d.certain or not chance))
        under = (-1.0 if fixed else floor) if chance else (floor if d.complete else rest) + (least if d.joint else 0.0)
        follows = np.zeros(len(at.rows))
        if at.h < d.horizon - 1 or not (d.certain if chance else not d.joint):
            follows = -follow(d, counts, at.rows, -after, -under, share[d.distribution_of_row[at.rows]], -sign, fixed)
        entry = np.where(failed[at.rows], -1.0, follows) if chance else own[at.rows] + follows
        rest = -1.0 if chance else least * (d.horizon - at.h)
        low = np.where(at.used, np.maximum(np.add.reduceat(at.weight * entry, at.begin), rest), rest)
        after, floor = np.append(np.zeros(d.slots), rest), low.min(initial=0.0 if d.may_end else np.inf)
        after[at.slots] = low
    under = float(low.min()) if d.complete else rest  # no episode begins at its end
    return -float(follow(d, counts, first, -after, -under, share[-1:], 0.0, not d.complete)[0])


def stays(at: SimpleNamespace) -> bool:
    """Does the policy take nothing that is declared to fail, wherever anything else is left?"""
    forbidden = at.forbidden[at.rows]
    taken = np.logical_or.reduceat(forbidden & (at.weight > 0), at.begin)
    return not (taken & ~np.logical_and.reduceat(forbidden, at.begin)).any()


def lower_values(d: SimpleNamespace, counts: Any, known: Any, share: Any) -> Iterator[tuple[Any, Any]]:
    """Yield steps, the last first, and what the policy is worth there [slot]; where nothing is random, it or -inf."""
    after, floor = np.zeros(d.slots + 1), 0.0
    for at in reversed(d.at):
        rest = -np.inf if d.deterministic else d.least * (d.horizon - at.h)
        under = (floor if d.complete and not d.deterministic else rest - d.least) + (d.least if d.joint else 0.0)
        follows = -follow(d, counts, at.mine, -after, -under, share[d.distribution_of_row[at.mine]], -1.0)
        low = np.maximum(np.where(known[at.mine] == 1, d.reward[at.mine], -np.inf) + follows, rest)
        after, floor = np.append(np.zeros(d.slots), rest), low.min(initial=0.0 if d.may_end else np.inf)
        after[at.slots] = low
        yield at, after


def gaps_mean(d: SimpleNamespace) -> float:
    """Return the bound of the mean largest gap; a ValueError where gaps are not what the counts give."""
    upper, _, _ = upper_values(d, d.then_count, d.then_known, d.then_max_violation)
    share = math.log(3 * d.policies * (d.policies + 1) / (0.2 * d.p)) + d.lower_share
    for at, low in lower_values(d, d.then_count - d.then_before, d.then_known, share):
        alive = np.maximum.reduceat(upper[at.h], at.begin) > -np.inf
        upper[at.h][np.searchsorted(at.rows, at.mine)] = -np.inf
        above = np.maximum.reduceat(upper[at.h], at.begin) - low[at.slots]
        off = d.gap[at.node] - np.where(alive, np.maximum(0.0, above), 0.0)
        new = d.gap[at.node] - (d.horizon - at.h) * (d.max_reward - d.least)  # of states that were met later
        wrong = np.minimum(abs(off), abs(new)) if d.growing else abs(off)
        require(wrong <= NEAR * d.horizon * d.size, "the gaps are not what the counts give")
    own = math.log(3 * d.attempts * (d.attempts + 1) / (0.2 * d.p))
    return mixed(d.top / GRID * d.gaps_index, d.gaps_count, d.top, own)
