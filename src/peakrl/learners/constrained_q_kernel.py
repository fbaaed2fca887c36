"""Algorithm 1: optimistic Q-learning on the modified reward, with one Q-table.

In episode k, at step h in slot s (a greedy, ties to the lowest row; W_H = 0; steps count from 0):

    observe r, f_i and s';  t = N_h(s,a) += 1;  alpha_t = (H+1)/(H+t)
    R = r - lo + (eta/I) sum_i min(0, min(f_i, 0) + xi)
    Q_h(s,a) <- (1-alpha_t) Q_h(s,a) + alpha_t (R + W_{h+1}(s') + b_t)
    W_h(s)   <- min(cap_h, max_a Q_h(s,a))

    bernstein: mu += W_{h+1}(s'), sigma += W_{h+1}(s')^2, var = sigma/t - (mu/t)^2,
               beta_t = min( c1 (sqrt(H/t (var + B^2 H) l) + B sqrt(H^7 S A) l/t), c2 B sqrt(H^3 l/t) ),
               b_t = (beta_t - (1-alpha_t) beta_{t-1}) / (2 alpha_t)
    hoeffding: b_t = c2 B sqrt(H^3 l/t)               (B bounds |R|)

Only the greedy entry of a node changes, so the largest of the others, `runner`, stays known: the actions of a node are
looked through again only when the greedy entry falls to it. An episode meets a node at most once and needs W_{h+1} as
it was before. It is therefore followed and learned from to its end first, without a branch on what is learned; the
nodes that fell are looked through afterwards. Tables that a setting does not need are passed as None; numba drops what
depends on them when it compiles. Indices are unsigned: a signed one would be tested for being negative.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.learners.episode import note_episode
from peakrl.sampling import U64, Words, draw_first, draw_outcome
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

ONE = U64(1)
#: Columns of `Tables.node` and, read as integers, of `Tables.choice`, which is the same memory: what a step needs of a
#: node lies in one cache line.
W, RUNNER, GREEDY = U64(0), U64(1), U64(2)
NODE_COLUMNS = U64(4)
#: Columns of a payoff record: modified reward R, plain reward, total violation.
MODIFIED, PLAIN, VIOLATION = U64(0), U64(1), U64(2)
PAYOFF_COLUMNS = U64(4)


class Tables(NamedTuple):
    """What Algorithm 1 remembers."""

    #: [entry]
    q: Floats
    visits: Ints
    #: [node * NODE_COLUMNS + column]: W, the largest Q of the actions that are not greedy, and (as an integer) the
    #: greedy row.
    node: Floats
    choice: Words


class Rates(NamedTuple):
    """What Algorithm 1 is run with."""

    horizon: int
    #: [t]: alpha_t as far as tabulated.
    alpha: Floats
    #: [step]: upper bound on W.
    cap: Floats


class ToRescan(NamedTuple):
    """[0 .. at most H]: the nodes of an episode whose greedy entry fell to their runner."""

    step: Words
    slot: Words


class Hoeffding(NamedTuple):
    """b_t = scale * sqrt(1/t), scale = c2 B sqrt(H^3 l)."""

    scale: float


class Bernstein(NamedTuple):
    """Tables [entry] and constants of the Bernstein bonus."""

    mu: Floats
    sigma: Floats
    beta: Floats
    #: c1, H l, B^2 H, B sqrt(H^7 S A) l, c2 B sqrt(H^3 l)
    c1: float
    root: float
    floor: float
    linear: float
    hoeffding: float


class Log(NamedTuple):
    """[change]: from `episode` on, `node` takes `row`."""

    episode: Ints
    node: Ints
    row: Ints


@loop
def fill_slots(layout: Layout, tables: Tables, start: float, step: int, low: int, high: int) -> None:
    """Set Q and W of slots low .. high of a step to their optimistic start and the greedy action to the first."""
    base = step * layout.entry_stride
    for slot in range(low, high):
        first, last = layout.row_start[slot], layout.row_start[slot + 1]
        cell = U64(step * layout.node_stride + slot) * NODE_COLUMNS
        tables.q[base + first : base + last] = start
        tables.choice[cell + GREEDY] = first
        tables.node[cell + W] = start if last > first else 0.0
        tables.node[cell + RUNNER] = start if last > first + 1 else -np.inf


@inlined
def bernstein_bonus(bonus: Bernstein, entry: U64, t: int, alpha: float, following: float) -> float:
    """Return b_t after adding one observation of the next value."""
    mu = bonus.mu[entry] + following
    sigma = bonus.sigma[entry] + following * following
    mean = mu / t
    variance = sigma / t - mean * mean
    spread = max(variance + bonus.floor, 0.0)  # rounding may leave less than nothing of huge values
    sharp = bonus.c1 * (math.sqrt(bonus.root / t * spread) + bonus.linear / t)
    beta = min(sharp, bonus.hoeffding * math.sqrt(1.0 / t))
    b = (beta - (1.0 - alpha) * bonus.beta[entry]) / (2.0 * alpha)
    bonus.mu[entry], bonus.sigma[entry], bonus.beta[entry] = mu, sigma, beta
    return b


@inlined
def hoeffding_bonus(bonus: Hoeffding, t: int) -> float:
    """Return b_t."""
    return bonus.scale * math.sqrt(1.0 / t)


@inlined
def update(
    tables: Tables,
    rates: Rates,
    hoeffding: Hoeffding | None,
    bernstein: Bernstein | None,
    step: U64,
    cell: U64,
    entry: U64,
    reward: float,
    following: float,
) -> bool:
    """Learn from one transition of the greedy entry; return whether it fell to the runner: then `rescan` the node.

    `cell` is where the node's columns begin, `reward` is R, `following` is W_{h+1}(s').
    """
    t = tables.visits[entry] + 1
    tables.visits[entry] = t
    alpha = rates.alpha[U64(t)] if t < rates.alpha.shape[0] else (rates.horizon + 1.0) / (rates.horizon + t)
    target = reward + following
    if hoeffding is not None:
        target += hoeffding_bonus(hoeffding, t)
    if bernstein is not None:
        target += bernstein_bonus(bernstein, entry, t, alpha, following)
    value = (1.0 - alpha) * tables.q[entry] + alpha * target
    tables.q[entry] = value
    tables.node[cell + W] = min(rates.cap[step], value)
    return value <= tables.node[cell + RUNNER]


@inlined
def rescan(layout: Layout, tables: Tables, rates: Rates, step: U64, slot: U64, cell: U64) -> bool:
    """Find a node's greedy row, the largest Q of the others, and W; return whether the greedy row changed."""
    base = step * U64(layout.entry_stride)
    first, last = U64(layout.row_start[slot]), U64(layout.row_start[slot + ONE])
    best, runner, greedy = tables.q[base + first], -np.inf, first
    for row in range(first + ONE, last):
        value = tables.q[base + row]
        # Written so that it compiles to minima and maxima: which of them wins cannot be predicted.
        lower = value if value < best else best
        runner = lower if lower > runner else runner
        greedy = row if value > best else greedy
        best = value if value > best else best
    changed = tables.choice[cell + GREEDY] != greedy
    tables.choice[cell + GREEDY] = greedy
    tables.node[cell + RUNNER] = runner
    tables.node[cell + W] = min(rates.cap[step], best)
    return changed


@loop
def learn_episodes(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record * PAYOFF_COLUMNS + column]
    payoff: Floats,
    tables: Tables,
    rates: Rates,
    hoeffding: Hoeffding | None,
    bernstein: Bernstein | None,
    to_rescan: ToRescan,
    generator: Words,
    done: int,
    episodes: int,
    #: Both empty where nobody asks.
    log: Log,
    #: [episode, 2]: reward and violation as experienced.
    experience: Floats,
    #: violating episodes so far, the last of them
    counters: Longs,
) -> int:
    """Run episodes done+1 .. done+episodes; return how many changes were logged."""
    node_stride, entry_stride = U64(layout.node_stride), U64(layout.entry_stride)
    changes, keep = U64(0), log.node.shape[0] > 0
    for k in range(episodes):
        slot = U64(draw_first(generator, sampler))
        here, base, falls = U64(0), U64(0), U64(0)
        earned, violated = 0.0, 0.0
        for step in range(U64(layout.horizon)):
            cell = (here + slot) * NODE_COLUMNS
            row = tables.choice[cell + GREEDY]
            record, link = U64(row_payoff[row]), sampler.link[row]
            if link >= 0:
                following_slot = U64(link)
            else:
                outcome = U64(draw_outcome(generator, layout, sampler, ~link))
                record += U64(stride) * (outcome - U64(layout.outcome_start[U64(~link)]))
                following_slot = U64(layout.outcome_next[outcome])
            record *= PAYOFF_COLUMNS
            earned += payoff[record + PLAIN]
            violated += payoff[record + VIOLATION]
            here += node_stride
            following = tables.node[(here + following_slot) * NODE_COLUMNS + W]
            fell = update(
                tables, rates, hoeffding, bernstein, step, cell, base + row, payoff[record + MODIFIED], following
            )
            # Noted in any case, and counted where it fell: no branch.
            to_rescan.step[falls], to_rescan.slot[falls] = step, slot
            falls += U64(fell)
            slot = following_slot
            base += entry_stride
        for i in range(falls):
            step, slot = to_rescan.step[i], to_rescan.slot[i]
            node = step * node_stride + slot
            changed = rescan(layout, tables, rates, step, slot, node * NODE_COLUMNS)
            if changed and keep:
                log.episode[changes] = done + k + 2
                log.node[changes] = node
                log.row[changes] = tables.choice[node * NODE_COLUMNS + GREEDY]
                changes += ONE
        note_episode(experience, counters, done, k, earned, violated)
    return np.int64(changes)


@loop
def learn_played(
    layout: Layout,
    tables: Tables,
    rates: Rates,
    hoeffding: Hoeffding | None,
    bernstein: Bernstein | None,
    #: [step]: of the episode
    slots: Longs,
    rows: Longs,
    followings: Longs,
    #: [step]: R
    reward: Floats,
    episode: int,
    log: Log,
    changes: int,
) -> int:
    """Learn from an episode that was played elsewhere; return the new length of the log.

    A row need not be greedy any more: of environments that are stepped together another may have learned meanwhile.
    """
    keep = log.node.shape[0] > 0
    for step in range(reward.shape[0]):
        slot, row = U64(slots[step]), U64(rows[step])
        node = U64(step * layout.node_stride) + slot
        cell, entry = node * NODE_COLUMNS, U64(step * layout.entry_stride) + row
        ahead = U64((step + 1) * layout.node_stride + followings[step]) * NODE_COLUMNS
        overtaken = tables.choice[cell + GREEDY] != row
        fell = update(tables, rates, hoeffding, bernstein, U64(step), cell, entry, reward[step], tables.node[ahead + W])
        changed = False
        if fell or overtaken:
            changed = rescan(layout, tables, rates, U64(step), slot, cell)
        if changed and keep:
            log.episode[changes] = episode + 1
            log.node[changes] = node
            log.row[changes] = tables.choice[cell + GREEDY]
            changes += 1
    return changes
