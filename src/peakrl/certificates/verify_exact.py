"""Check an exact certificate: the file holds the arrays of the model, which must have the digest that is told, and of
the policy. With f < 0 a violation, all in plain numpy:

    value, violation, probability of any     one pass backward under the policy
    can there be any                         the same with "or" in place of sums: nothing is too unlikely to count
    optimum                                  another pass, in which an action is viable if it violates in no outcome and
                                             leads to viable states only; the best viable action is taken
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Probabilities sum to 1 within this; a gap below the second part of the optimum is rounding.
APART, NOTHING = 1e-9, 1e-12
LAYOUT = ("step_slots", "step_distributions", "row_start", "row_distribution", "outcome_start", "outcome_next",
          "outcome_probability")  # fmt: skip
PAYOFFS, OWN = ("row_payoff", "reward", "constraints"), ("slot_state", "row_action", "first_slot", "first_probability")
Arrays = Mapping[str, NDArray[Any]]
#: At a step: the slots, where each one's rows begin, the rows that may be taken [row, policy], and how likely.
Taken = tuple[Any, Any, Any, Any]
Chosen = Callable[[int], Taken]


def check(told: Any, plain: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, float | None], bool, float]:
    """Return the numbers of an exact certificate, whether it may violate, and how large its values can be."""
    model = read_model(plain["model"], arrays)
    figures = np.zeros(4)
    for shares, chosen in policies_of(model, plain["policy"], arrays):
        figures += followed(model, shares, chosen)
    value, violation, chance, risk = figures.tolist()
    least = 5e-324 * (risk > 0)  # what can happen has a probability, even where it is too small for a number
    most = model.horizon * model.reward_range[1]  # what no policy can pass; "solved": no policy that never violates
    highest = best_of(model) if plain["optimum"] == "solved" else most
    gap = None if highest is None else highest - value
    gap = 0.0 if gap is not None and abs(gap) <= NOTHING * max(1.0, abs(value)) else gap
    found = {"failure_probability": 0.0, "value_low": value, "value_high": value, "optimum_high": highest, "gap": gap,
             "violation_high": max(violation, least), "violation_probability_high": min(1.0, max(chance, least)),
             "episodes": 0}  # fmt: skip
    return found, risk > 0, model.horizon * max(map(abs, model.reward_range))


def read_model(plain: Mapping[str, Any], arrays: Arrays) -> SimpleNamespace:
    """Return the arrays of a model; a ValueError says what cannot be."""
    own = {name: arrays[f"model.{name}"] for name in (*LAYOUT, *PAYOFFS, *OWN)}
    model = SimpleNamespace(**own, **{name: plain[name] for name in ("horizon", "stationary", "stride")})
    model.reward_range = tuple(map(float, plain["reward_range"]))
    slots, rows, sizes = len(model.slot_state), len(model.row_action), np.diff(model.outcome_start)
    last = model.row_payoff + model.stride * (sizes[model.row_distribution] - 1)
    sums = np.add.reduceat(model.outcome_probability, model.outcome_start[:-1])
    starts, ends = (model.row_start[0], model.outcome_start[0]), (model.row_start[-1], model.outcome_start[-1])
    counted = [own[name].min(initial=0) for name in own if name not in ("reward", "constraints")]
    sound = (
        digest_of(model, plain) == plain["digest"] and model.stride in (0, 1) and min(counted) >= 0 < sizes.min()
        and model.step_slots.shape == model.step_distributions.shape == (model.horizon, 2)
        and (len(model.row_start), starts, ends) == (slots + 1, (0, 0), (rows, len(model.outcome_next)))
        and (np.diff(model.row_start) >= 0).all() and last.max(initial=0) < len(model.reward) == len(model.constraints)
        and (abs(np.append(sums, model.first_probability.sum()) - 1) < APART).all()
        and np.isfinite(model.reward).all() and np.isfinite(model.constraints).all()
    )  # fmt: skip
    require(sound, "the arrays are not those of the model whose digest is told, or of none that can be")
    return with_laws(model)


def require(sound: Any, words: str) -> None:
    """Raise unless something is as it must be."""
    if not sound:
        raise ValueError(words)


def digest_of(model: SimpleNamespace, plain: Mapping[str, Any]) -> str:
    """Return the fingerprint of a model's numbers."""
    bounds = tuple(map(float, plain["constraint_bounds"]))
    strides = (len(model.slot_state), len(model.row_action)) if model.stationary else (0, 0)
    told = (model.horizon, model.stationary, tuple(plain["constraint_names"])), (model.reward_range, bounds)
    parts = [repr(one).encode() for one in told] + [np.int64(one).tobytes() for one in (model.horizon, *strides)]
    parts += [getattr(model, name).tobytes() for name in LAYOUT] + [np.int64(model.stride).tobytes()]
    parts += [getattr(model, name).tobytes() for name in (*PAYOFFS, *OWN)]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def with_laws(model: SimpleNamespace) -> SimpleNamespace:
    """Add what a row pays, or where that depends on the outcome what each outcome pays; a row then has its own law."""
    harm, rows = np.maximum(-model.constraints, 0.0).sum(axis=1), len(model.row_action)
    model.row_law, model.law_start = model.row_distribution, model.outcome_start
    if model.stride == 0:
        model.step_laws, record = model.step_distributions, model.row_payoff
        model.row_pay, model.row_harm = model.reward[record], harm[record]
        model.pay, model.harm = np.zeros((2, len(model.outcome_next)))
        return model
    sizes = np.diff(model.outcome_start)[model.row_law]
    owner = np.repeat(np.arange(rows), sizes)
    within = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
    outcome, record = model.outcome_start[model.row_law][owner] + within, model.row_payoff[owner] + within
    model.outcome_probability, model.outcome_next = model.outcome_probability[outcome], model.outcome_next[outcome]
    model.row_pay, model.row_harm, model.pay, model.harm = *np.zeros((2, rows)), model.reward[record], harm[record]
    model.row_law, model.law_start = np.arange(rows), np.append(0, np.cumsum(sizes))
    model.step_laws = model.row_start[model.step_slots]
    return model


def policies_of(
    model: SimpleNamespace, plain: Mapping[str, Any], arrays: Arrays
) -> Iterator[tuple[Any, Callable[[int], Taken]]]:
    """Yield the policies that are mixed, some at a time: their shares, and what they do at a step."""
    start = model.row_start
    acting = [np.flatnonzero(np.diff(start[first : last + 1]) > 0) + first for first, last in model.step_slots]
    nodes = (np.arange(model.horizon) if model.stationary else np.zeros(model.horizon, int)) * len(model.slot_state)

    def tabled(rows: Any, step: int) -> Taken:
        slots = acting[step]
        mine = rows[slots + nodes[step]].astype(np.int64)
        require(
            ((mine >= start[slots, None]) & (mine < start[slots + 1, None])).all(), "the policy takes what is no action"
        )
        return slots, np.arange(len(slots)), mine, np.ones((len(slots), 1))

    def drawn(step: int) -> Taken:
        slots, rows = acting[step], np.arange(*start[model.step_slots[step]])
        weights = arrays["policy.weights"][rows + step * start[-1] * bool(model.stationary)]
        begin = start[slots] - rows[0]
        sums = abs(np.add.reduceat(weights, begin) - 1)
        require((weights >= 0).all() and (sums < APART).all(), "the policy's probabilities are none")
        return slots, begin, rows[:, None], weights[:, None]

    if plain["form"] == "stochastic":
        yield np.ones(1), drawn
    elif plain["form"] == "deterministic":
        yield np.ones(1), partial(tabled, arrays["policy.rows"][:, None])
    elif plain["form"] == "averaged":
        count, rows = int(plain["episodes"]), arrays["policy.first"].copy()
        episode, node, row = (arrays[f"policy.change_{name}"] for name in ("episode", "node", "row"))
        require(count >= 1 and (np.diff(episode) >= 0).all(), "the changes of the policy are not in order")
        since = np.unique(np.append(np.clip(episode, 1, count + 1), [1, count + 1])).tolist()
        room = max(1, min(256, 4_000_000 // (len(rows) + len(model.outcome_next))))
        for first in range(0, len(since) - 1, room):
            batch = since[first : first + room + 1]
            table = np.empty((len(rows), len(batch) - 1), np.int64)
            for place, begin in enumerate(batch[:-1]):
                now = slice(*np.searchsorted(episode, [begin if place + first else 0, begin + 1]))
                rows[node[now]] = row[now]
                table[:, place] = rows
            yield np.diff(batch) / count, partial(tabled, table)
    else:
        require(False, f"the policy is of form {plain['form']!r}, which is not known")


def followed(model: SimpleNamespace, shares: Any, chosen: Chosen) -> NDArray[np.float64]:
    """Return value, violation, the probability of any, and above 0 if there can be any, under policies in shares."""
    after = np.zeros((4, len(model.slot_state), len(shares)))
    for step in reversed(range(model.horizon)):
        slots, begin, rows, weights = chosen(step)
        now = ahead(model, step, after, rows)
        now[:3] *= weights
        now[3] *= weights > 0
        after[:, slots] = np.add.reduceat(now, begin, axis=1)
    first = after[:, model.first_slot]
    figures: NDArray[np.float64] = np.einsum("csk,s,k->c", first, model.first_probability, shares)
    figures[3] = first[3, model.first_probability > 0].max()
    return figures


def best_of(model: SimpleNamespace) -> float | None:
    """Return the value of the best policy that never violates; None where there is none."""
    after = np.zeros((4, len(model.slot_state), 1))
    for step in reversed(range(model.horizon)):
        first, last = model.step_slots[step]
        start = model.row_start[first : last + 1]
        now = ahead(model, step, after, np.arange(start[0], start[-1])[:, None])
        acting = np.flatnonzero(np.diff(start) > 0)
        best = np.maximum.reduceat(np.where(now[3] > 0, -np.inf, now[0]), start[acting] - start[0])
        after[0, acting + first], after[3, acting + first] = np.where(best > -np.inf, best, 0.0), best == -np.inf
    lost = after[3, model.first_slot].any()
    return None if lost else float(model.first_probability @ after[0, model.first_slot, 0])


def ahead(model: SimpleNamespace, step: int, after: Any, rows: Any) -> Any:
    """[4, row, policy]: value, violation, probability of any, above 0 if any can be; `after` has it by slot."""
    first, last = model.step_laws[step]
    begin, end = model.law_start[first:last] - model.law_start[first], model.law_start[last]
    part = slice(model.law_start[first], end)
    likely, harm = model.outcome_probability[part, None], model.harm[part, None]
    value, violation, chance, risk = after[:, model.outcome_next[part]]
    then = np.stack([model.pay[part, None] + value, harm + violation, np.where(harm > 0, 1.0, chance)]) * likely
    can = ((harm > 0) | (risk > 0)) & (likely > 0)
    sums = np.concatenate([np.add.reduceat(then, begin, axis=1), np.add.reduceat(can[None] * 1.0, begin, axis=1)])
    law, hurts = model.row_law[rows] - first, model.row_harm[rows]
    now = sums[:, law, np.arange(rows.shape[1])]
    now[0], now[1] = now[0] + model.row_pay[rows], now[1] + hurts
    now[2:] = np.where(hurts > 0, 1.0, now[2:])
    return now
