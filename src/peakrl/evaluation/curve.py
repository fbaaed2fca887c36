"""Exact totals of every policy that learning goes through, episode by episode.

Rows share distributions over next slots; let d and e stand for such distributions. For a policy pi, a step h and a
quantity q that rows pay (the reward, the violation of a constraint)

    mu_h(d)   = P(the row chosen at step h has distribution d),
    p_h(d, q) = E[q paid at step h+1 | d at step h],

so that step h+1 pays sum_d mu_h(d) p_h(d, q), and mu_h moves on through the outcomes of the distributions.

There are far fewer distributions than states if rows share them (energy harvesting: 21 against 441), and a change
of one action touches only the p(d) of distributions that lead to its state. Those are computed again from the policy,
never corrected by differences: every number is a function of the current policy alone, and a curve is the same to the
last bit for any division into chunks. Steps before the first change with positive probability are not recomputed.
Products do not underflow (`numerics.times`), so that a possible event never has the probability 0.

A (step, distribution) is a *link*: link = link_start[step] + d - step_distributions[step, 0].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import inlined, loop
from peakrl.numerics import times
from peakrl.policy.tables import first_rows
from peakrl.space import read_only, starts_of
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Layout, Longs


class Changes(NamedTuple):
    """[change]: from an episode on, a node takes a row; in order of episode."""

    episode: Ints
    node: Ints
    row: Ints


class Curve(NamedTuple):
    """A changing policy and its totals; made by `new_curve`, updated in place."""

    #: [row, quantity]: what a row pays.
    row_payoffs: Floats
    #: [node]: the current policy; what its row pays ([node, quantity]), and the row's distribution.
    rows: Ints
    payoffs: Floats
    distribution: Ints
    #: The distributions that may lead to a slot are user[user_start[slot] .. user_start[slot + 1]].
    user_start: Longs
    user: Ints
    #: [slot]: its step in a layered model; empty in a stationary one.
    slot_step: Ints
    #: Where an episode may start and how likely; and the same as a mask, [slot].
    first_slot: Ints
    first_probability: Floats
    may_start: NDArray[np.bool_]
    #: [step + 1]: first link of a step.
    link_start: Longs
    #: [link]: mu.
    mass: Floats
    #: [link, quantity]: p, and whether it must be recomputed.
    ahead: Floats
    stale: NDArray[np.bool_]
    #: How many links of a step have mass, and which, listed from the step's first link on.
    active_count: Longs
    active: Ints
    #: [step, quantity]: what the policy pays.
    totals: Floats
    #: [row]: may it occur under any policy so far?
    used: NDArray[np.bool_]


NO_CHANGES = Changes(*[np.empty(0, np.int32)] * 3)


def users_of_slots(layout: Layout) -> tuple[Longs, Ints]:
    """Return for each slot the distributions that may lead to it: start [slot + 1], distribution."""
    owner = np.repeat(np.arange(len(layout.outcome_start) - 1, dtype=np.int32), np.diff(layout.outcome_start))
    counts = np.bincount(layout.outcome_next, minlength=len(layout.row_start) - 1)
    return starts_of(counts), owner[np.argsort(layout.outcome_next, kind="stable")]


def new_curve(
    layout: Layout,
    row_payoffs: Floats,
    first_slot: Ints,
    first_probability: Floats,
    rows: Ints,
) -> Curve:
    """Return tables for the policy `rows` ([node]; copied)."""
    quantities, link_start = row_payoffs.shape[1], starts_of(np.diff(layout.step_distributions, axis=1).ravel())
    links = int(link_start[-1])
    user_start, user = users_of_slots(layout)
    slots, some = len(layout.row_start) - 1, rows >= 0
    slot_step = np.zeros(0 if layout.node_stride else slots, np.int32)
    if not layout.node_stride:
        for step, (first, last) in enumerate(layout.step_slots):
            slot_step[first:last] = step
    may_start = np.zeros(slots, np.bool_)
    may_start[first_slot] = True
    return Curve(
        row_payoffs=row_payoffs,
        rows=rows.astype(np.int32),
        payoffs=np.where(some[:, None], row_payoffs[rows], 0.0),
        distribution=np.where(some, layout.row_distribution[rows], 0).astype(np.int32),
        user_start=user_start,
        user=user,
        slot_step=slot_step,
        first_slot=first_slot,
        first_probability=first_probability,
        may_start=may_start,
        link_start=link_start,
        mass=np.zeros(links),
        ahead=np.zeros((links, quantities)),
        stale=np.ones(links, np.bool_),
        active_count=np.zeros(layout.horizon, np.int64),
        active=np.zeros(links, np.int32),
        totals=np.zeros((layout.horizon, quantities)),
        used=np.zeros(len(row_payoffs), np.bool_),
    )


@loop
def policy_curve(layout: Layout, curve: Curve, changes: Changes, episode: int, value: Floats, violation: Floats) -> int:
    """Fill value[j] and violation[j] with those of pi^k, k = episode + j; return how many changes were applied.

    Changes are in order of episode; one of episode k holds from pi^k on. Those of later episodes than asked for
    are left for the next call: pass what follows the returned count.
    """
    # Not the literal 0: numba would compile `apply_changes` for it apart.
    position, count, totals = np.int64(0), changes.episode.shape[0], curve.totals
    reward, cost = 0.0, 0.0
    for j in range(value.shape[0]):
        if j == 0 or (position < count and changes.episode[position] <= episode + j):
            position, step = apply_changes(layout, curve, changes, position, episode + j)
            recompute(layout, curve, step)
            reward, cost = 0.0, 0.0
            for h in range(layout.horizon):
                reward += totals[h, 0]
                cost += totals[h, 1]
        value[j] = reward
        violation[j] = cost
    return position


@loop
def summed_totals(layout: Layout, curve: Curve, changes: Changes, episodes: int, sums: Floats) -> None:
    """Add to `sums` the totals [step, quantity] of pi^1 .. pi^K; what stays in force for n episodes counts n times."""
    position, episode = np.int64(0), np.int64(1)
    while episode <= episodes:
        position, step = apply_changes(layout, curve, changes, position, episode)
        recompute(layout, curve, step)
        following = int(changes.episode[position]) if position < changes.episode.shape[0] else episodes + 1
        count = min(following, episodes + 1) - episode
        for step in range(layout.horizon):
            for q in range(sums.shape[1]):
                sums[step, q] += count * curve.totals[step, q]
        episode += count


@loop
def apply_changes(layout: Layout, curve: Curve, changes: Changes, position: int, episode: int) -> tuple[int, int]:
    """Apply the changes from `position` on that hold by `episode`.

    Return the position after them and the first step at which one of them matters (the horizon where none does).
    """
    rows, distribution, payoffs, row_payoffs = curve.rows, curve.distribution, curve.payoffs, curve.row_payoffs
    user_start, user, mass, stale = curve.user_start, curve.user, curve.mass, curve.stale
    row_distribution, link_start, stride = layout.row_distribution, curve.link_start, layout.node_stride
    earliest, count = layout.horizon, changes.episode.shape[0]
    while position < count and changes.episode[position] <= episode:
        node, row = changes.node[position], changes.row[position]
        position += 1
        if rows[node] == row:
            continue
        rows[node] = row
        distribution[node] = row_distribution[row]
        for q in range(payoffs.shape[1]):
            payoffs[node, q] = row_payoffs[row, q]
        step = int(node // stride if stride > 0 else curve.slot_step[node])
        slot = node - step * stride
        if step == 0:
            earliest = 0 if curve.may_start[slot] else earliest
            continue
        base = link_start[step - 1] - layout.step_distributions[step - 1, 0]
        for u in range(user_start[slot], user_start[slot + 1]):
            stale[base + user[u]] = True
            if mass[base + user[u]] > 0.0:
                earliest = min(earliest, step)
    return position, earliest


@inlined
def recompute(layout: Layout, curve: Curve, step: int) -> None:
    """Compute mu and the totals of `step` and every later one; of all steps where none has been."""
    if step == 0 or curve.active_count[0] == 0:
        begin(layout, curve)
        step = 1
    advance(layout, curve, step)


@loop
def begin(layout: Layout, curve: Curve) -> None:
    """Step 0, from the distribution of the first state."""
    mass, count = curve.mass, 0
    mass[: curve.link_start[1]] = 0.0
    curve.totals[0] = 0.0
    for i in range(curve.first_slot.shape[0]):
        node, probability = curve.first_slot[i], curve.first_probability[i]
        for q in range(curve.totals.shape[1]):
            curve.totals[0, q] += times(probability, curve.payoffs[node, q])
        curve.used[curve.rows[node]] = True
        link = curve.distribution[node] - layout.step_distributions[0, 0]
        if mass[link] == 0.0:
            curve.active[count] = link
            count += 1
        mass[link] += probability
    curve.active_count[0] = count


@inlined
def look_ahead(layout: Layout, curve: Curve, link: int, d: int, here: int) -> None:
    """Set what the outcomes of a distribution that may occur are expected to pay."""
    start, last = layout.outcome_start[d], layout.outcome_start[d + 1]
    following, probability, payoffs = layout.outcome_next, layout.outcome_probability, curve.payoffs
    for q in range(payoffs.shape[1]):
        paid = 0.0
        for o in range(start, last):
            paid += times(probability[o], payoffs[here + following[o], q])
        curve.ahead[link, q] = paid
    for o in range(start, last):
        curve.used[curve.rows[here + following[o]]] = True


@loop
def advance(layout: Layout, curve: Curve, step: int) -> None:
    """`step` and every later one, outcome by outcome through the links that have mass."""
    mass, ahead, stale = curve.mass, curve.ahead, curve.stale
    outcome_start, following, probability = layout.outcome_start, layout.outcome_next, layout.outcome_probability
    active, active_count, totals, distribution = curve.active, curve.active_count, curve.totals, curve.distribution
    for h in range(step, layout.horizon):
        here, source, target = h * layout.node_stride, curve.link_start[h - 1], curve.link_start[h]
        shift, base = layout.step_distributions[h - 1, 0] - source, target - layout.step_distributions[h, 0]
        for i in range(active_count[h]):
            mass[active[target + i]] = 0.0
        totals[h] = 0.0
        count = 0
        for i in range(active_count[h - 1]):
            link = np.int64(active[source + i])
            m, start, last = mass[link], outcome_start[link + shift], outcome_start[link + shift + 1]
            if stale[link]:
                stale[link] = False
                look_ahead(layout, curve, link, link + shift, here)
            for q in range(totals.shape[1]):
                totals[h, q] += times(m, ahead[link, q])
            for o in range(start, last):
                to, part = base + distribution[here + following[o]], times(m, probability[o])
                if mass[to] == 0.0:
                    active[target + count] = to
                    count += 1
                mass[to] += part
        active_count[h] = count


class PolicyCurve:
    """Exact value and violation of every pi^k (formulas: `evaluation.curve`)."""

    def __init__(self, model: TabularModel, rows: Ints | None = None) -> None:
        self.model = model
        #: [node]: the policy of the latest episode.
        self.rows: Ints = first_rows(model) if rows is None else rows
        self._tables: Curve | None = None
        #: Changes that apply to later episodes: episode, node, row.
        self.pending: Sequence[Ints] = NO_CHANGES

    @property
    def tables(self) -> Curve:
        """Tables of the current policy, built on first use."""
        if self._tables is None:
            model = self.model
            payoffs = np.stack([model.row_reward, model.row_violation.sum(axis=1)], axis=1)
            first = (model.first_slot, model.first_probability)
            self._tables = new_curve(model.layout, payoffs, *first, self.rows)
            self.rows = self._tables.rows
        return self._tables

    def rest(self) -> None:
        """Free the tables; they are rebuilt from the policy if needed."""
        self._tables = None

    def advance(self, done: int, count: int, changes: Sequence[Ints]) -> Floats:
        """Return [episode, 2] for episodes done+1 .. done+count."""
        columns = [read_only(np.concatenate(both)) for both in zip(self.pending, changes, strict=True)]
        value, violation = np.empty(count), np.empty(count)
        used = policy_curve(self.model.layout, self.tables, Changes(*columns), done + 1, value, violation)
        self.pending = [column[used:] for column in columns]
        return np.stack([value, violation], axis=1)


def policy_value(model: TabularModel, rows: Ints) -> dict[str, float]:
    """Return the exact value and violation of the policy `rows` [node]."""
    rows = np.where(first_rows(model) < 0, np.int32(-1), rows)  # states without actions may hold any number
    value, violation = PolicyCurve(model, rows).advance(0, 1, NO_CHANGES)[0].tolist()
    return {"value": value, "violation": violation}
