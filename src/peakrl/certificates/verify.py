"""Check a stored certificate by its evidence, in numpy, with code of its own.

With what makes certificates it shares the sentences of `rests_on`, and in `verify_grid` interval arithmetic.

The check of its kind returns every number of the certificate that follows from its evidence, whether a violation is
known to be possible, how far values may be off by rounding, and what it rests on; a ValueError names what is invalid.
`verify` compares these numbers with those in the file, and what the certificate rests on is written again from the
evidence. No check can detect forged evidence: model, episodes and bounds that are forged to fit each other.

exact      The file contains a model, whose arrays must have the stored digest, and a policy. A pass backward under the
           policy gives value, violation and the probability of any; the same with "or" instead of sums, independent of
           underflow, whether any is possible. Another pass gives the optimum: an action is viable if it violates in no
           outcome (f < 0) and leads to viable states only; the best viable one is taken. Without
           an end: `verify_endless`.
sampled    The file contains the return and the violation of each episode, and the declarations. The bounds are those of
           `evaluation.bounds`, computed in their plain form with another search for nu.
learned    The certificate of a learner that stopped by itself: `verify_learned`.
logged     Bounds from a log: `verify_learned`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from peakrl.certificates import verify_endless, verify_learned
from peakrl.certificates.certificate import Certificate
from peakrl.certificates.rests_on import OPTIMUM, on_episodes, on_model
from peakrl.certificates.verify_grid import check_grid
from peakrl.errors import StorageError
from peakrl.records import Field, Record, fields_of
from peakrl.types import Floats

Read = Mapping[str, Any]
#: The numbers of a certificate, whether it may violate, how far its values may be off, and what it rests on.
Checked = tuple[dict[str, float | None], bool, float, tuple[str, ...]]
#: Relative difference of two computations of one number (also how far sums of probabilities may be from 1); products
#: below SMALL have lost digits.
APART, SMALL = 1e-9, 1e-280
VALUES = ("value_low", "value_high", "optimum_high", "gap")
#: What no evidence can show, by kind.
UNCHECKED = {
    "exact": "not checked, because a file cannot show it: that the system behaves as the model, and names",
    "sampled": "not checked, because a file cannot show it: that the returns are those of fresh episodes, names, and "
    "how often something else than the policy decided",
    "learned": "not checked, because a file cannot show it: that the counts came from episodes, and names",
    "logged": "not checked, because a file cannot show it: that the counts are those of the log, and names",
}
#: A model has at most so many steps.
MOST_STEPS = 10**6
#: The smallest positive number.
LEAST = 5e-324
#: Raises a ValueError unless a condition holds.
require = verify_learned.require
#: The parts of a model's digest, in this order.
HEAD = ("horizon", "stationary", "constraint_names", "reward_range", "constraint_bounds")
MODEL = {
    "stage_start": Field(np.int64, "stage", splits="staged"),
    "slot_state": Field(np.int32, "slot", low=0),
    "row_start": Field(np.int64, "slot", splits="row"),
    "row_action": Field(np.int32, "row", low=0),
    "row_distribution": Field(np.int32, "row", below="distribution"),
    "outcome_start": Field(np.int64, "distribution", splits="outcome"),
    "outcome_next": Field(np.int32, "outcome", below="slot"),
    "outcome_probability": Field(np.float64, "outcome", low=LEAST, high=1 + APART),
    "row_payoff": Field(np.int32, "row", below="payoff"),
    "reward": Field(np.float64, "payoff"),
    "constraints": Field(np.float64, ("payoff", "constraint")),
    "first_slot": Field(np.int32, "first", below="slot"),
    "first_probability": Field(np.float64, "first", low=LEAST, high=1 + APART),
}
POLICY = {
    "deterministic": {"rows": Field(np.int32, "node")},
    "stochastic": {"weights": Field(np.float64, "entry", low=0, high=1 + APART)},
    "averaged": {
        "first": Field(np.int32, "node"),
        "change_episode": Field(np.int32, "change", low=1),
        "change_node": Field(np.int32, "change", below="node"),
        "change_row": Field(np.int32, "change", below="row"),
    },
}


def verify(path: str | Path, target: Any = None) -> Certificate:
    """Recompute a stored certificate from its evidence; return it with `holds`, and `reason` if it does not hold.

    Only the evidence is trusted. A damaged file, or one that is not a certificate, is a `StorageError`.

    Parameters
    ----------
    path
        A file that `Certificate.save` wrote.
    target
        The continuous problem of a certificate of the kind "grid", whose dynamics no file can hold.

    Returns
    -------
    Certificate
        With the numbers that follow from the evidence.

    Examples
    --------
    >>> import peakrl, tempfile, os
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> path = os.path.join(tempfile.mkdtemp(), "optimal.certificate")
    >>> peakrl.certify(problem, peakrl.solve(problem).policy).save(path)
    >>> peakrl.verify(path).holds
    True
    """
    stored = Certificate.load(path)
    assert stored.evidence is not None  # a loaded certificate has evidence
    if stored.kind == "grid":
        return verified_on_grid(path, stored, target)
    try:
        with fields_of(path), np.errstate(all="ignore"):
            found, violates, apart, rests_on = CHECKS[stored.kind](
                stored, stored.evidence.plain, stored.evidence.arrays
            )
    except (ArithmeticError, MemoryError) as error:
        raise StorageError(f"{path} contains numbers that cannot be computed with: {error}") from error
    reason = differing(stored, found, apart) or judged(stored, violates, apart)
    return replace(stored, holds=reason is None, reason=reason, rests_on=(*rests_on, UNCHECKED[stored.kind]))


def verified_on_grid(path: str | Path, stored: Certificate, problem: Any) -> Certificate:
    """Return a certificate of a continuous problem with the result of its check."""
    if problem is None:
        raise StorageError(f"{path} is about a continuous problem, whose dynamics no file can hold: pass the problem")
    assert stored.evidence is not None
    with fields_of(path), np.errstate(all="ignore"):
        reason, rests_on = check_grid(problem, stored.evidence.plain, stored.evidence.arrays)
    if reason is None and (stored.violation_high != 0 or stored.violation_probability_high != 0):
        reason = "the file does not say that nothing is violated"
    if any(getattr(stored, name) is not None for name in (*VALUES, "epsilon")) or stored.failure_probability:
        reason = "the file states numbers that do not follow from its evidence"
    return replace(stored, holds=reason is None, reason=reason, rests_on=rests_on)


def differing(stored: Certificate, found: dict[str, float | None], apart: float) -> str | None:
    """Return the first number that differs from the evidence; None if all agree."""
    for name, number in found.items():
        given = getattr(stored, name)
        if given is None or number is None:
            same = given is number
        elif name in VALUES:  # sums of numbers of either sign
            same = abs(given - number) <= apart
        else:  # sums of positive numbers: relatively accurate, and 0 only if they are 0
            same = (given == 0) == (number == 0) and abs(given - number) <= APART * max(abs(given), abs(number), SMALL)
        if not same:
            return f"{name} is {given} in the file, but the evidence gives {number}"
    return None


def judged(stored: Certificate, violates: bool, apart: float) -> str | None:
    """Return why a certificate with these bounds does not hold; None if it holds."""
    low, high = stored.value_low, stored.value_high if stored.violation_high != 0 else stored.optimum_high
    if low is not None and high is not None and low > high + apart:
        return f"the bounds contradict each other: the value is at least {low} and at most {high}"
    if stored.epsilon is None:
        return "a constraint may be violated" if violates else None
    if stored.kind == "learned" and apart > stored.epsilon:
        return f"values can only be recomputed to {apart:.1e}, more than {stored.epsilon:g}"
    if stored.gap is None:
        return "no policy never violates, or nothing is known of the best one"
    if not stored.gap <= stored.epsilon:
        return f"the policy may lie {stored.gap:.6g} below the {stored.best}, more than {stored.epsilon:g}"
    if stored.violation_high is None or not stored.violation_high <= stored.epsilon:
        return f"the violation may be {stored.violation_high}, more than {stored.epsilon:g}"
    return None


# Model ----------------------------------------------------------------------------------------------------------------


def read_model(plain: Read, arrays: Read) -> SimpleNamespace:
    """Return the arrays of a model; a ValueError names what is invalid."""
    own = Record({"model": dict(plain)}, dict(arrays)).part("model")
    staged = int(own.arrays["stage_start"][-1])
    m = SimpleNamespace(
        **own.checked(MODEL, staged=staged), **{name: plain[name] for name in ("horizon", "stationary")}
    )
    m.stride, m.slots, m.rows = plain["stride"], len(m.slot_state), len(m.row_action)
    m.reward_range, m.constraint_bounds = numbers(plain["reward_range"]), numbers(plain["constraint_bounds"])
    numbers(plain["constraint_tolerances"])
    endless = m.horizon is None and m.stationary is True
    steps = type(m.horizon) is int and 1 <= m.horizon <= MOST_STEPS
    require(endless or (steps and type(m.stationary) is bool), "no horizon")
    require(type(m.stride) is int and m.stride in (0, 1), "the model has no such payoffs")
    require(digest_of(m, plain) == plain["digest"], "the arrays do not have the stored digest")
    require(len(m.stage_start) == (1 if m.stationary else m.horizon) + 1 and staged <= m.slots, "steps without states")
    size, acts, stages = np.diff(m.outcome_start), np.diff(m.row_start) > 0, np.diff(m.stage_start)
    sums = np.add.reduceat(m.outcome_probability, m.outcome_start[:-1])
    (low, high), payoffs = limits(m.reward_range), len(m.reward)
    sound = [
        size > 0, stages > 0, len(m.constraint_bounds) == len(plain["constraint_names"]) == m.constraints.shape[1],
        m.row_payoff + m.stride * (size[m.row_distribution] - 1) < payoffs, not acts[staged:].any(),
        abs(np.append(sums, m.first_probability.sum()) - 1) < APART, m.first_slot < m.stage_start[1],
        m.reward >= low, m.reward <= high, abs(m.constraints) <= np.array(m.constraint_bounds) * (1 + APART),
        np.add.reduceat(np.append(acts, False), m.stage_start[:-1]) > 0,
    ]  # fmt: skip
    require(all(map(np.all, sound)), "the arrays are not a valid model")
    if not m.stationary:  # every outcome leads to the next step
        stage = np.searchsorted(m.stage_start, np.arange(m.slots), side="right")
        own_stage = np.zeros(len(size), np.int64)
        own_stage[m.row_distribution] = row_stage = np.repeat(stage, np.diff(m.row_start))
        follows = np.minimum(stage[m.outcome_next], m.horizon + 1) - np.repeat(own_stage, size)
        require((own_stage[m.row_distribution] == row_stage).all() and (follows == 1).all(), "an outcome skips a step")
    ends = np.stack([m.stage_start[:-1], m.stage_start[1:]], axis=1)
    spans = np.array([used(m, first, last) for first, last in ends])
    m.step_slots, m.step_distributions = (
        np.repeat(part, (m.horizon or 1) // len(part), axis=0) for part in (ends, spans)
    )
    # Sums of products, step by step; the smallest numbers are rounded by a whole one of them.
    m.terms = max(size.max(), len(m.first_slot), np.diff(m.row_start).max())
    m.violated = np.maximum(-m.constraints, 0.0).sum(axis=1)
    return with_payoffs(m, m.violated, size[m.row_distribution])


def rounding(m: SimpleNamespace, policies: int, violates: bool) -> float:
    """Return how far two computations of a value may differ; one that violates nothing is not paid for violations."""
    paid = m.reward[(m.violated == 0.0) | violates]
    terms, most = (int(m.horizon) + 1) * (int(m.terms) + policies + 16), float(abs(paid).max(initial=0.0))
    return terms * (2.0**-52 * (int(m.horizon) + 1) * most + LEAST)


def numbers(given: Any) -> tuple[float, ...]:
    """Return finite numbers or raise."""
    require(isinstance(given, list) and all(type(one) is float and math.isfinite(one) for one in given), "no numbers")
    return tuple(given)


def limits(reward_range: tuple[float, ...]) -> tuple[float, float]:
    """Return the range of rewards with its margin for rounding: 2^-30 of its size, rounded up to a power of 2."""
    low, high = reward_range
    require(low <= high, "the rewards have no range")
    size = max(abs(low), abs(high))
    margin = math.ldexp(1.0, math.frexp(size)[1] - 30) if size else 0.0
    return low - margin, high + margin


def used(m: SimpleNamespace, first: int, last: int) -> tuple[int, int]:
    """Return the first and one past the last distribution of the rows of slots first .. last - 1."""
    chosen = m.row_distribution[m.row_start[first] : m.row_start[last]]
    return int(chosen.min()), int(chosen.max()) + 1


def digest_of(m: SimpleNamespace, plain: Read) -> str:
    """Return the fingerprint of a model's numbers: names, types, shapes and contents of its arrays."""
    head = {name: plain[name] for name in HEAD} | {"payoffs_by_outcome": m.stride > 0}
    digest = hashlib.blake2b(json.dumps(head).encode(), digest_size=16)
    for name in MODEL:
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


# Exact ----------------------------------------------------------------------------------------------------------------


def check_exact(stored: Any, plain: Read, arrays: Read) -> Checked:
    """Return the numbers of an exact certificate, whether it may violate, their rounding, and what it rests on."""
    m = read_model(plain["model"], arrays)
    if m.horizon is None:
        return verify_endless.check(m, plain, arrays)  # type: ignore[no-any-return]
    totals = np.zeros(4)
    for shares, table in tables_of(m, plain["policy"], arrays):
        totals += followed(m, shares, table)
    value, violation, chance, risk = totals.tolist()
    apart = rounding(m, len(arrays.get("policy.change_row", ())), risk > 0)
    least = LEAST * (risk > 0)  # a possible event has a positive probability, also if it underflows
    highest = optimum_of(m, plain["optimum"])
    gap = None if highest is None else highest - value
    gap = 0.0 if gap is not None and abs(gap) <= apart else gap
    found = {"failure_probability": 0.0, "value_low": value, "value_high": value, "optimum_high": highest, "gap": gap,
             "violation_high": max(violation, least), "violation_probability_high": min(1.0, max(chance, least)),
             "episodes": 0}  # fmt: skip
    return found, risk > 0, 2 * apart, tuple(on_model(plain, apart))


def optimum_of(m: SimpleNamespace, how: Any) -> float | None:
    """Return an upper bound for policies that never violate; None: there is none."""
    require(how in OPTIMUM, f"the optimum is {how!r}")
    return best_of(m) if how == "solved" else m.horizon * limits(m.reward_range)[1]


def tables_of(m: SimpleNamespace, plain: Read, arrays: Read) -> Iterator[tuple[Any, Any]]:
    """Yield the policies that are mixed, some at a time: their shares, and rows [node, policy] or weights [entry]."""
    form, steps = plain["form"], m.horizon if m.stationary else 1
    require(form in POLICY, f"the policy has the unknown form {form!r}")
    nodes = m.slots * (steps + 1 if m.stationary else 1)
    own = Record({}, dict(arrays)).part("policy").checked(POLICY[form], node=nodes, entry=m.rows * steps, row=m.rows)
    if form == "stochastic":
        yield np.ones(1), own["weights"]
    elif form == "deterministic":
        yield np.ones(1), own["rows"][:, None]
    else:
        count, rows = plain["episodes"], own["first"].copy()
        episode, node, row = (own[f"change_{name}"] for name in ("episode", "node", "row"))
        require(type(count) is int and count >= 1 and (np.diff(episode) >= 0).all(), "the changes are not in order")
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


# Sampled --------------------------------------------------------------------------------------------------------------


def check_sampled(stored: Any, plain: Read, arrays: Read) -> Checked:
    """Return the numbers of a sampled certificate, whether a violation was observed, and the range of its values."""
    episodes = {"returns": Field(np.float64, "episode"), "violations": Field(np.float64, "episode", low=0)}
    returns, violations = Record({}, dict(arrays)).checked(episodes).values()
    horizon, (low, high), most = ends(plain)
    inside = (low <= returns) & (returns <= high) & (violations <= most)
    require(inside.all() and len(returns) > 0, "an episode is outside of the declared range")
    require(0 < stored.failure_probability < 1, "no failure probability was declared")
    require(plain["optimum"] in OPTIMUM, "nothing says what is known of the optimum")
    counts = [plain["unvisited_steps"], plain["replaced_steps"] or 0]
    require(all(type(count) is int and count >= 0 for count in counts), "a number is not whole")
    require(plain["unvisited"] is not None or not any(counts), "a policy on a model knows every state")
    numbers(plain["constraint_tolerances"])
    part = stored.failure_probability / (4 if most else 2)
    slip = 2.0**-48 * (horizon + 16) * max(abs(low), abs(high))
    found: dict[str, float | None] = {
        "episodes": len(returns),
        "value_low": max(low, -highest_mean(-returns, -low, part) - slip),
        "value_high": min(high, highest_mean(returns, high, part) + slip),
        "violation_high": None if math.isinf(most) else highest_mean(violations, most, part) if most else 0.0,
        "violation_probability_high": highest_mean((violations > 0).astype(np.float64), 1.0, part) if most else 0.0,
        "optimum_high": high,
    }
    best: float | None = high
    if plain["optimum"] == "solved":
        model = read_model(plain["model"], arrays)
        names = ("horizon", "reward_range", "constraint_bounds", "constraint_tolerances", "digest")
        same = all(plain[name] == plain["model"][name] for name in names)
        require(same and not plain["may_end_early"], "the declarations differ from the model")
        found["optimum_high"] = best = best_of(model)
    least = found["value_low"]
    found["gap"] = None if best is None or least is None else best - least
    return found, bool((violations > 0).any()), APART * (high - low), tuple(on_episodes(plain))


def ends(plain: Read) -> tuple[int, tuple[float, float], float]:
    """Return the steps, the range of returns of an episode, and its largest violation, as declared; with rounding."""
    horizon, bounds = plain["horizon"], plain["constraint_bounds"]
    require(type(horizon) is int and horizon >= 1 and type(plain["may_end_early"]) is bool, "there are no episodes")
    low, high = limits(numbers(plain["reward_range"]))
    if plain["may_end_early"]:
        low, high = min(low, 0.0), max(high, 0.0)
    require(bounds is None or all(bound > 0 for bound in numbers(bounds)), "a bound on a constraint is not above 0")
    most = math.inf if bounds is None else horizon * (1 + APART) * math.fsum(bounds)
    return horizon, (horizon * low, horizon * high), most


def highest_mean(values: Floats, most: float, failure: float) -> float:
    """Return the bound of `evaluation.bounds`, by narrowing down the best nu from both sides."""
    count, one = len(values), math.log(2.0 / failure)
    if count == 0:
        return most

    def bound(room: float, price: float) -> float:
        return most + room - math.exp(float(np.log(most - values + room).mean()) - price / count)

    spread = max(most - float(values.min()), 1e-300)
    price, low, high = one + 0.5 * math.log(math.pi * (count + 0.5)), 1e-9 * spread, 10 * math.sqrt(count) * spread
    for _ in range(40):
        left, right = low * (high / low) ** 0.382, low * (high / low) ** 0.618
        low, high = (low, right) if bound(left, price) < bound(right, price) else (left, high)
    return min(most, bound(0.0, one), bound(low, price))


CHECKS = {
    "exact": check_exact,
    "sampled": check_sampled,
    "learned": verify_learned.check,
    "logged": verify_learned.check,
}
