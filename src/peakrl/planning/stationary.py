"""Policies without an end that never violate: discounted and average rewards, and reaching a set of states.

Every criterion is optimised over the actions that are safe for ever (`viability`), all of which lead to states with
such actions; T is the Bellman operator on them. All bounds hold for the real numbers: a computed T is off by at most

    e = 2^-52 (3 k + 16) (max |r| + max |v|),       k the largest number of outcomes of an action,

for distributions divided by their sums, which are 1 only up to rounding.

Discounted, factor g. With a <= T v - v <= b everywhere,  T v + a g / (1 - g) <= V* <= T v + b g / (1 - g),  since
T^n v >= T v + (g + .. + g^(n-1)) a, and the policy that is greedy for v attains the lower bound for the same reason
(MacQueen 1966). Between two applications of T the greedy policy is followed for some steps (modified policy iteration,
Puterman and Shin 1978): the bounds hold for every v.

Average. An end component is a set of states in which one can stay for ever and get from each to each; the maximal ones
are disjoint, and under every policy a walk ends in one of them (de Alfaro 1997). Within a component the largest gain is
the same everywhere, min (T v - v) <= gain <= max (T v - v) for every v, and the greedy policy attains the lower bound
(the bounds of Odoni). v <- (v + T v) / 2 converges also for periodic components: a coin may stay. Between them a policy
decides where to stay: x(s) = max over the actions that leave a component of E[x(s')], or the gain if it stays. Each
component is one state there, so no policy can avoid staying for ever, the equation has one solution, and iteration from
below and above converges to it (interval iteration, Haddad and Monmege 2018). A lower value is raised only to what the
action that is then noted earns with values that never fall, so the policy of the noted actions attains it. Without
collapsed components values from above would not fall: two states that lead to each other justify any number.

Reaching a set. Target states end the walk with gain 1, all components have gain 0; safety is required until then. On
the states from which the target is reached with probability 1 by actions that stay among them, the least expected time
is the least solution of t = 1 + min E[t'] : iteration from 0 gives lower bounds, and if 1 + E[t(s')] <= t(s) + d < t(s)
+ 1 for the greedy policy, its time is at most t / (1 - d).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peakrl.jit import kernel, loop
from peakrl.planning.backward import Pays, Share, Work, backup, links, shared_distributions
from peakrl.policy.tables import width_of
from peakrl.space import expand, frozen, read_only, starts_of
from peakrl.tabular import TabularModel
from peakrl.types import Bools, Floats, Ints, Layout, Longs
from peakrl.viability import FOREVER, falls

#: Steps for which a policy is followed between two improvements: at first, and at most.
FEW_STEPS, MANY_STEPS = 80, 1000
#: They end earlier, looked at after so many, when the changes of a step differ by a part of those of the improvement.
PIECE, SETTLED = 20, 0.01
#: Slots of a block of `follow`, whose values fit into the fastest cache.
BLOCK = 2048
#: Improvements without progress after which rounding is what keeps the bounds apart.
PATIENCE = 3


class Decisions(NamedTuple):
    """The actions among which to choose."""

    #: Transition structure with the rows of these actions only.
    layout: Layout
    #: [row]: expected reward.
    reward: Floats
    #: [row]: its row in the model.
    rows: Ints

    @property
    def acting(self) -> Bools:
        """[slot]: has it an action?"""
        return np.diff(self.layout.row_start) > 0

    @property
    def slot_of_row(self) -> Longs:
        """[row]: its slot."""
        return np.repeat(np.arange(len(self.layout.row_start) - 1), np.diff(self.layout.row_start))

    def only(self, keep: Bools) -> Decisions:
        """Return the actions [row] that are kept."""
        if keep.all():
            return self
        start = starts_of(keep)[self.layout.row_start]
        layout = self.layout._replace(
            row_start=frozen(start, np.int64, own=True),
            row_distribution=frozen(self.layout.row_distribution[keep], np.int32, own=True),
        )
        return Decisions(layout, self.reward[keep], self.rows[keep])

    def slip(self, values: Floats) -> float:
        """Return how far computed rewards and expectations of these values may be from the real numbers."""
        return self.unit * (float(np.abs(self.reward).max(initial=0.0)) + float(np.abs(values).max(initial=0.0)))

    @property
    def unit(self) -> float:
        """How far they may be off for each unit of the largest reward and value."""
        return 2.0**-52 * (3 * int(np.diff(self.layout.outcome_start).max()) + 16)


class Task(NamedTuple):
    """What every solver needs to know."""

    model: TabularModel
    #: How far apart bounds may be, relative to the value or the largest reward.
    tolerance: float
    #: [slot]: the distribution of the first state.
    start: Floats
    share: Share


class Bounds(NamedTuple):
    """What is achieved from each state, at most and at least, and by which policy."""

    #: [slot]: the policy earns at least this, no policy earns more than that.
    low: Floats
    high: Floats
    #: [slot]: the row of the model that the policy takes; -1 without one.
    rows: Ints
    #: [slot]: values whose Bellman residual proves it: discounted values, or the bias within components.
    values: Floats

    @property
    def negated(self) -> Bounds:
        """The same of minus the rewards, if there was nothing to decide."""
        return Bounds(-self.high, -self.low, self.rows, -self.values)

    def ends(self, start: Floats) -> tuple[float, float]:
        """Return the bounds for a distribution of first states, rounded outward."""
        first = np.flatnonzero(start)
        slip = 2.0**-51 * len(first) * float(np.abs([self.low[first], self.high[first]]).max())
        slip = slip if len(first) > 1 else 0.0
        return float(start[first] @ self.low[first]) - slip, float(start[first] @ self.high[first]) + slip


def decisions(model: TabularModel, reward: Floats) -> Decisions:
    """Return all actions of a stationary model, with distributions that sum to 1."""
    layout = model.one_step
    sums = np.add.reduceat(layout.outcome_probability, layout.outcome_start[:-1])
    if (sums != 1.0).any():
        chances = layout.outcome_probability / np.repeat(sums, np.diff(layout.outcome_start))
        layout = layout._replace(outcome_probability=frozen(chances, np.float64, own=True))
    return Decisions(layout, reward, np.arange(model.num_rows, dtype=np.int32))


class Step:
    """One step of value iteration: T v for v already discounted, and the greedy row of each slot."""

    def __init__(self, task: Task, among: Decisions) -> None:
        model, self.among, self.share = task.model, among, task.share
        self.width, self.most = width_of(model), model.max_actions
        link = links(among.layout)
        self.pays = Pays(read_only(among.reward), read_only(np.empty(0)), read_only(link))
        self.expected = np.empty(shared_distributions(model, link))
        self.choice = np.zeros(self.width * model.num_slots, np.uint8)

    def __call__(self, ahead: Floats, values: Floats) -> None:
        """Set `values` [slot] to the best of reward + E[ahead]; 0 without actions."""
        work = Work(0, 0, 0, ahead, self.expected, values, self.choice, self.width)
        backup(self.among.layout, self.most, work, self.pays, self.share)

    @property
    def chosen(self) -> Ints:
        """[slot]: the greedy row among the decisions; -1 without one."""
        row = self.among.layout.row_start[:-1].astype(np.int32)
        row += self.choice.view(f"<u{self.width}").astype(np.int32)
        row[~self.among.acting] = -1
        return row


class Chain(NamedTuple):
    """The Markov chain of a policy, its numbers side by side: each is read once a step."""

    #: [slot]: reward, and the next slot if it is certain (the slot itself without an action).
    reward: Floats
    link: Ints
    #: Slots with several next slots, in ascending order, and where the outcomes of each start.
    branching: Ints
    start: Longs
    #: [outcome]: next slot and probability.
    following: Ints
    chance: Floats


def chain_of(among: Decisions, link: Ints, chosen: Ints) -> Chain:
    """Return the chain of the policy that takes the decisions `chosen` [slot], -1 for none."""
    layout, none = among.layout, chosen < 0
    link = np.where(none, np.arange(len(chosen), dtype=np.int32), link[chosen])
    branching = np.flatnonzero(link < 0).astype(np.int32)
    begin, end = layout.outcome_start[~link[branching]], layout.outcome_start[1:][~link[branching]]
    link[branching] = 0
    outcomes = expand(begin, end - begin)
    return Chain(
        np.where(none, 0.0, among.reward[chosen]), link, branching, starts_of(end - begin),
        layout.outcome_next[outcomes], layout.outcome_probability[outcomes],
    )  # fmt: skip


@loop
def follow(chain: Chain, discount: float, values: Floats, other: Floats, steps: int) -> None:
    """Follow a policy for an even number of steps: values <- r + discount E[values].

    Slots with one next slot and those with several take turns, block by block: loops without unpredictable branches.
    Indices are unsigned, so that none is tested for being negative.
    """
    one, slots, branches = np.uint64(1), np.uint64(values.shape[0]), np.uint64(chain.branching.shape[0])
    for _ in range(steps):
        index, o, last = np.uint64(0), np.uint64(0), np.uint64(0)
        while last < slots:
            first, last = last, min(last + np.uint64(BLOCK), slots)
            for slot in range(first, last):
                other[slot] = chain.reward[slot] + discount * values[np.uint64(chain.link[slot])]
            while index < branches and np.uint64(chain.branching[index]) < last:
                here, end, total = np.uint64(chain.branching[index]), np.uint64(chain.start[index + one]), 0.0
                while o < end:
                    total += chain.chance[o] * values[np.uint64(chain.following[o])]
                    o += one
                other[here] = chain.reward[here] + discount * total
                index += one
        values, other = other, values


def taken(among: Decisions, chosen: Ints) -> Ints:
    """[slot]: the model's rows of chosen ones."""
    return np.where(chosen >= 0, among.rows[chosen], np.int32(-1)) if len(among.rows) else chosen


# Discounted -------------------------------------------------------------------------------------------------------


def discounted(task: Task, among: Decisions, discount: float) -> Bounds:
    """Return bounds as narrow as the tolerance, unless rounding prevents it."""
    step, acting = Step(task, among), among.acting
    values, applied = np.zeros(len(acting)), np.zeros(len(acting))
    size, steps, narrowest, since = float(np.abs(among.reward).max(initial=0.0)), FEW_STEPS, np.inf, 0
    before = np.full(len(acting), -1, np.int32)
    grown, unit = discount / (1.0 - discount) * (1.0 + 2.0**-50), among.unit
    first = np.flatnonzero(task.start)
    while True:
        step(discount * values, applied)
        change, slip = applied - values, unit * (size + float(max(values.max(), -values.min())))
        least = float(change.min(where=acting, initial=np.inf)) - slip
        most = float(change.max(where=acting, initial=-np.inf)) + slip
        width = grown * (most - least) + 2 * slip
        mean = float(task.start[first] @ applied[first])
        wanted = task.tolerance * max(abs(mean + grown * (least + most) / 2), size)
        since, narrowest = (0, width) if width < 0.9 * narrowest else (since + 1, narrowest)
        if width <= wanted or (since >= PATIENCE and most - least <= 8 * slip) or since > MANY_STEPS:
            break
        del change
        chosen = step.chosen
        steps = min(2 * steps, MANY_STEPS) if np.array_equal(chosen, before) else FEW_STEPS
        before = chosen
        values[:] = applied
        chain = chain_of(among, step.pays.link, chosen)
        enough = max(SETTLED * (most - least), wanted / (2 * grown + 1))
        for _ in range(steps // PIECE):
            follow(chain, discount, values, applied, PIECE)
            if float(np.ptp(values - applied)) <= enough:
                break
        del chain
    del change
    low = applied + grown * least * (1 if least < 0 else 1 - 2.0**-49) - slip
    high = applied + grown * most * (1 if most > 0 else 1 - 2.0**-49) + slip
    low[~acting] = high[~acting] = 0.0
    return Bounds(low, high, taken(among, step.chosen), applied)


# Average ----------------------------------------------------------------------------------------------------------


def end_components(among: Decisions) -> tuple[Longs, Bools]:
    """Return [slot] the maximal end component, -1 in none, and [row]: does it stay in its component?"""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    layout, slots = among.layout, len(among.layout.row_start) - 1
    sizes = np.diff(layout.outcome_start)[layout.row_distribution]
    following = layout.outcome_next[expand(layout.outcome_start[layout.row_distribution], sizes)]
    origin = among.slot_of_row
    owner, inner = np.repeat(np.arange(len(origin)), sizes), np.ones(len(origin), np.bool_)
    while True:
        kept = inner[owner]
        edges = csr_array((np.ones(kept.sum(), np.int8), (origin[owner[kept]], following[kept])), (slots, slots))
        _, component = connected_components(edges, connection="strong")
        leaves = np.zeros(len(origin), np.bool_)
        leaves[owner[kept & (component[origin[owner]] != component[following])]] = True
        if not leaves.any():
            break
        inner &= ~leaves
    staying = np.zeros(slots, np.bool_)
    staying[origin[inner]] = True
    numbers = np.full(slots, -1, np.int64)
    numbers[staying] = np.unique(component[staying], return_inverse=True)[1]
    return numbers, inner


def average(task: Task, among: Decisions) -> Bounds:
    """Return bounds on the gain."""
    component, inner = end_components(among)
    inside = among.only(inner)
    step, acting = Step(task, inside), inside.acting
    values, applied = np.zeros(len(acting)), np.zeros(len(acting))
    order = np.flatnonzero(acting)[np.argsort(component[acting], kind="stable")]
    first = np.flatnonzero(np.diff(component[order], prepend=-1))
    wanted, narrowest, since = task.tolerance * float(np.abs(among.reward).max(initial=0.0)), np.inf, 0
    while True:
        step(values, applied)
        change, slip = (applied - values)[order], inside.slip(values)
        low, high = np.minimum.reduceat(change, first) - slip, np.maximum.reduceat(change, first) + slip
        width = float((high - low).max())
        since, narrowest = (0, width) if width < 0.9 * narrowest else (since + 1, narrowest)
        if width <= wanted / 2 or (since >= PATIENCE and width <= 8 * slip) or since > 100 * MANY_STEPS:
            break
        values[order] += change / 2
        values[order] -= np.repeat(values[order[first]], np.diff(first, append=len(order)))
    stay = np.full((2, len(acting)), np.nan)
    stay[:, acting] = low[component[acting]], high[component[acting]]
    settled = settle(task, among, (component, inner), stay, step.chosen, wanted)
    return settled._replace(values=values)


@kernel
def approach(layout: Layout, goal: Bools) -> Ints:
    """Return [slot]: a row after which the goal may be nearer, -1 in the goal and where it cannot be reached."""
    rows, near, changed = np.full(goal.shape[0], -1, np.int32), goal.copy(), True
    while changed:
        changed = False
        for index in range(goal.shape[0]):
            slot = goal.shape[0] - 1 - index
            if near[slot]:
                continue
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                d = layout.row_distribution[row]
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    if near[layout.outcome_next[o]]:
                        near[slot] = True
                if near[slot]:
                    rows[slot], changed = row, True
                    break
    return rows


def grouped(component: Longs) -> tuple[Longs, int]:
    """Return [slot] the number of its end component, or one of its own, and how many there are."""
    alone = component < 0
    group = np.where(alone, component.max(initial=-1) + np.cumsum(alone), component)
    return group, int(group.max()) + 1


def settle(
    task: Task, among: Decisions, parts: tuple[Longs, Bools], stay: Floats, stayed: Ints, wanted: float
) -> Bounds:
    """Return bounds on the gain of where a walk ends, as narrow as `wanted` at the first states.

    `parts` are the end components and their rows; `stay` [low and high, slot] is what staying for ever in a component,
    or ending in a slot without actions, earns (NaN: it cannot), with the row `stayed` [slot] among those that stay.
    """
    component, inner = parts
    group, groups = grouped(component)
    free = ~np.isnan(stay[0])
    most, least = float(stay[1, free].max()), float(stay[0, free].min())
    ends = np.full((2, groups), -np.inf)
    ends[:, group[free]] = stay[:, free]
    low, high = np.maximum(ends[0], least), ends[1].copy()
    leaving = among.only(~inner)._replace(reward=np.zeros(int((~inner).sum())))
    step, acting = Step(task, leaving), leaving.acting
    first, start = np.flatnonzero(task.start), task.start[task.start > 0]
    #: [group]: the row that leaves, -1 to stay.
    exits = np.full(groups, -1, np.int64)
    no_stay = acting & np.isneginf(ends[0])[group]
    high[group[acting]] = most
    exits[group[no_stay]] = leaving.layout.row_start[:-1][no_stay]
    applied, best = np.zeros(len(acting)), np.empty(groups)
    slip, since, narrowest = leaving.slip(stay[:, free]), 0, np.inf
    while acting.any():
        width = float(start @ (high - low)[group[first]])
        since, narrowest = (0, width) if width < narrowest else (since + 1, narrowest)
        if width <= wanted or since > MANY_STEPS:
            break
        before = low
        step(low[group], applied)
        best[:] = -np.inf
        np.maximum.at(best, group[acting], applied[acting])
        raised = best - slip > low
        here = np.flatnonzero(acting & raised[group] & (applied == best[group]))
        exits[group[here]] = step.chosen[here]
        low = np.where(raised, best - slip, low)
        step(high[group], applied)
        best[:] = ends[1]
        np.maximum.at(best, group[acting], applied[acting] + slip)
        lowered = np.minimum(high, best)
        if np.array_equal(lowered, high) and np.array_equal(low, before):
            break
        high = lowered
    # Where a component is left, all its states go to the state with the exit; the others stay.
    inside, exit_of = among.only(inner), exits[group]
    at_exit = acting & (exit_of >= leaving.layout.row_start[:-1]) & (exit_of < leaving.layout.row_start[1:])
    going = approach(inside.layout, read_only(at_exit | (exit_of < 0)))
    rows = np.where(exit_of < 0, taken(inside, stayed), taken(inside, going))
    rows[at_exit] = leaving.rows[exit_of[at_exit]]
    return Bounds(low[group], high[group], rows.astype(np.int32), np.zeros(len(acting)))


# Reaching a set of states -----------------------------------------------------------------------------------------


def reaching(task: Task, among: Decisions, target: Bools) -> tuple[Bounds, float | None]:
    """Return bounds on the probability of reaching the target, whose slots have no actions, and the least time.

    The time is None unless the target is reached with probability 1.
    """
    parts = end_components(among)
    stay = np.full((2, len(target)), np.nan)
    stay[:, parts[0] >= 0] = 0.0
    stay[:, target] = 1.0
    inside = among.only(parts[1])
    stayed = np.where(inside.acting, inside.layout.row_start[:-1], -1).astype(np.int32)
    found = settle(task, among, parts, stay, stayed, task.tolerance)
    found = found._replace(low=np.clip(found.low, 0.0, 1.0), high=np.clip(found.high, 0.0, 1.0))
    sure = among.only(certain(among, target))
    reached = sure.acting | target
    if not reached[task.start > 0].all():
        return found, None
    timed, ones = quickest(task, sure), np.where(reached, 1.0, found.low)
    rows = np.where(timed.rows >= 0, timed.rows, found.rows)
    low, high = timed.ends(task.start)
    return Bounds(ones, np.maximum(found.high, ones), rows, found.values), (low + high) / 2


def certain(among: Decisions, target: Bools) -> Bools:
    """Return [row]: actions of the states from which the target is reached with probability 1, that stay among them.

    States that cannot reach the target are removed, with all actions that may lead to them, until none is left.
    """
    kept = np.ones(len(among.rows), np.bool_)
    while True:
        now = among.only(kept)
        lost = ~target & (approach(now.layout, read_only(target)) < 0)
        if not lost[now.acting].any():
            return kept
        left = np.where(target, FOREVER, np.where(lost, 0, np.diff(now.layout.row_start))).astype(np.int32)
        _, falls_in = falls(now.layout, np.ones(len(now.rows), np.bool_), left)
        kept[kept] = (falls_in == FOREVER) & ~lost[now.slot_of_row]


def quickest(task: Task, among: Decisions) -> Bounds:
    """Return bounds on the least expected time until there is no action."""
    costs = among._replace(reward=np.full(len(among.rows), -1.0))
    step, acting = Step(task, costs), among.acting
    values, applied = np.zeros(len(acting)), np.zeros(len(acting))
    down = 1.0 - costs.slip(np.ones(1))
    for _ in range(MANY_STEPS * MANY_STEPS):
        step(values, applied)  # minus the time
        rise = float(np.max((values - applied)[acting], initial=0.0)) + costs.slip(values)
        applied *= down
        if rise < 1.0:
            high = -values / (1.0 - rise) * (1.0 + 2.0**-50)
            if float(task.start @ (high + applied)) <= task.tolerance * -float(task.start @ applied):
                break
        values, applied = applied, values
    return Bounds(-applied, high, taken(costs, step.chosen), -values)


# Proofs -----------------------------------------------------------------------------------------------------------


def proof(task: Task, among: Decisions, found: Bounds, discount: float | None) -> Floats:
    """Return g and h [2, slot] that prove the upper bounds: g >= E[g'] and g + h >= r + discount E[h'] for all actions.

    Discounted, g is 0 and h the values, but for a number added everywhere. Else g are the upper bounds, and h is the
    bias within components plus what makes up for leaving them: a price times t, where t = n steps of value iteration
    for the largest number of times that any policy leaves one. Whenever one is left, E[t'] is smaller by 1 - rise.
    """
    if discount is not None:
        return np.stack([np.zeros_like(found.values), found.values])
    component, inner = end_components(among)
    group, groups = grouped(component)
    leaving = among.only(~inner)
    acting, applied, times = leaving.acting, np.zeros(len(group)), np.zeros(groups)
    gain = np.where(np.isfinite(found.high), found.high, 0.0)
    Step(task, leaving)(found.values, applied)
    price = float((applied - found.values - gain)[acting].max(initial=0.0))
    count = Step(task, leaving._replace(reward=np.ones(len(leaving.rows))))
    for steps in range(100 * MANY_STEPS):
        count(times[group], applied)
        before, times = times, np.zeros(groups)
        np.maximum.at(times, group[acting], applied[acting])
        rise = float(np.max(times - before))
        if rise <= 0.5 or (steps >= MANY_STEPS and rise < 1.0 - 1e-6):
            break
    return np.stack([gain, found.values + price / max(1.0 - rise, 1e-6) * times[group]])


def proved(task: Task, among: Decisions, discount: float | None, target: Bools) -> tuple[Bounds, Floats]:
    """Return the bounds of a discount, of reaching the target, or of the average, with the proof of the upper ones."""
    if discount is not None:
        found = discounted(task, among, discount)
    else:
        found = reaching(task, among, target)[0] if target.any() else average(task, among)
    return found, proof(task, among, found, discount)
