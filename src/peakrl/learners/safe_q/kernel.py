"""SafeQ: Q-learning with tight optimism, a memory of violations and updates of all steps at once.

An episode follows the greedy policy. After it, its transitions (h, s, a, r, f, s') are learned from, last one first, so
that information from the end of an episode reaches its beginning at once:

    t = N(s,a) += 1,   delta = R + W_{h+1}(s') - Q_h(s,a)
    Q_h(s,a) <- Q_h(s,a) + alpha delta,   W_h(s) = max_a Q_h(s,a),   W_H = 0

* Tight optimism: Q_h starts at span * (H - h), the largest reward of steps h .. H-1 above the range's lower end.
* Constraint memory: R = r - lo. An observed violation sets Q(s,a) to minus infinity at every step; W = -inf marks a
  dead end, and -inf propagates to every pair that was observed to lead to one. An entry at -inf stays there. In a dead
  end the action of least observed violation is taken. If a first state is a dead end, the problem is infeasible: the
  tables are reset, R = r - lo - penalty * violation, and nothing is forbidden any more. Penalties are rare and large,
  so from then on alpha = (H+1)/(H+m+t): the initial value counts for m visits, and no action is abandoned after one
  unlucky outcome.
* Shared steps: if nothing depends on the step, a transition updates Q_h(s,a) for every h, with one shared count.
* Step sizes: alpha = (H+1)/(H+t), or adaptive ones that separate trend from noise (the bias-adjusted Kalman filter of
  George and Powell, 2006): with g = c/(c+t), smoothed error b <- (1-g) b + g delta and square v <- (1-g) v + g delta^2,

      alpha = 1 - (v - b^2) / ((1 + l) v),   l <- (1-alpha)^2 l + alpha^2,

  at least 1/t, and 1 at the first two visits. While the optimistic start decays, the errors agree in sign and alpha
  stays near 1; afterwards they cancel and alpha falls to that of an average. They never cancel completely, so after 20
  visits v - b^2 is replaced by (v - b^2) / (1-g)^2, at most v: otherwise 10,000 visits would count as 2,600.
* Trials: without a bonus, early bad luck may make the best action look worse than another, and it would never be tried
  again. After 1, 2, 4, 6, 9, 12, 16, .. visits of s (j^2 / 4, rounded down), the next visit therefore takes an action
  of the largest Q_h(s,a) + c sqrt(l m), c = 3. Here l is that of the adaptive step size ((H+1)/(H+t) without it) and m
  the mean of delta^2 over all visits of the pair; the first error counts as the largest reward of a step, which covers
  what few visits may not have shown. Trials affect neither Q and W nor the returned policy, never take a forbidden
  action, and end with a proof of infeasibility.
* Shared distributions (post-decision states): pairs that are declared to have the same distribution D of the next
  state learn it together:

      X_h(D) <- X_h(D) + alpha (W_{h+1}(s') - X_h(D)),   Q_h(s,a) = mean reward of (s,a) + X_h(D(s,a)),

  with the count of D in place of N(s,a), and the largest reward of a step as the mean of an untried pair. A
  distribution that was observed to lead to a dead end forbids all of its pairs. Q of a state is computed at its visits.

Tables are [row, column] and [slot, column]; a column is a step in a stationary model, and a layered model, whose slots
belong to steps, has one column.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from peakrl.jit import inlined, loop
from peakrl.learners.assumptions.assumptions import NO_INTS, Groups
from peakrl.learners.episode import Log, lacks_room, note, note_episode, take_row
from peakrl.learners.infeasibility import NO_WITNESS, VIOLATES
from peakrl.sampling import Words, draw_first
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

#: Indices of `Tables.status`: are violations remembered (1) or penalised (0); episode of the proof of infeasibility
#: (0: none); the first state of that proof.
REMEMBERS, PROVED, DEAD_FIRST = 0, 1, 2
#: m: weight of the initial value after a proof of infeasibility, in visits.
PATIENCE = 20.0
#: Visits after which the estimate of the noise is corrected.
SETTLED = 20
#: c of the trials, in standard errors.
DOUBT = 3.0
#: Tables of parts that are switched off.
NO_FLOATS: Floats = np.empty((0, 0))
NO_REWARDS: Floats = np.empty(0)
NO_WITNESSES: Ints = np.empty((0, 0), np.int32)


class Tables(NamedTuple):
    """Tables of SafeQ."""

    #: [row, column]
    q: Floats
    #: [row, column], one column if steps are shared; [distribution, column] if distributions are shared.
    visits: Ints
    #: [slot, column + 1 in a stationary model]
    w: Floats
    #: [slot, column]: greedy row.
    greedy: Longs
    #: [as visits, 3]: b, v and l of the adaptive step size; empty if it is not used.
    errors: Floats
    #: [row]: the largest violation observed.
    max_violation: Floats
    #: [row, column]
    witness: Ints
    status: Longs
    #: If distributions are shared: [distribution, column] X, and why it is minus infinity; [row] mean reward and count.
    x: Floats = NO_FLOATS
    distribution_witness: Ints = NO_WITNESSES
    reward: Floats = NO_REWARDS
    tried: Ints = NO_INTS
    #: With trials: [as visits] mean square of the errors; [slot] visits.
    square: Floats = NO_FLOATS
    met: Ints = NO_INTS


class Path(NamedTuple):
    """[step]: the current episode."""

    slot: Longs
    row: Longs
    record: Longs
    following: Longs


class Options(NamedTuple):
    """Constants derived from settings and sizes."""

    #: 1 if a column is a step (stationary), 0 if slots belong to steps (layered)
    shift: int
    #: Does a transition update every column?
    share: bool
    #: H of (H+1)/(H+t); c of the adaptive step size
    offset: float
    #: Initial value: [column] in a stationary model, [slot] in a layered one.
    start: Floats
    #: Upper bound on the changes that an episode logs.
    reserve: int
    #: The first slots, this many, are ends of episodes.
    ends: int = 0
    #: If distributions are shared: the largest reward of a step, and the initial X.
    most: float = 0.0
    distribution_start: Floats = NO_FLOATS


@loop
def fill_slots(layout: Layout, tables: Tables, options: Options, low: int) -> None:
    """Initialise Q and W of the slots from `low` on; the first action is greedy."""
    for slot in range(low, layout.row_start.shape[0] - 1):
        first, last = layout.row_start[slot], layout.row_start[slot + 1]
        for column in range(tables.q.shape[1]):
            value = options.start[column] if options.shift == 1 else options.start[slot]
            tables.greedy[slot, column] = first
            tables.w[slot, column] = value if last > first else 0.0
            for row in range(first, last):
                tables.q[row, column] = value


@loop
def forget(tables: Tables, options: Options) -> None:
    """Reset counts and distributions."""
    tables.visits[:] = 0
    tables.errors[:] = 0.0
    tables.tried[:] = 0
    tables.square[:] = 0.0
    tables.met[:] = 0
    for distribution in range(tables.x.shape[0]):
        for column in range(tables.x.shape[1]):
            tables.x[distribution, column] = options.distribution_start[distribution, column]


@inlined
def refresh(layout: Layout, tables: Tables, slot: int, low: int, high: int) -> None:
    """Update W and the greedy rows of a slot in columns low .. high."""
    first, last = layout.row_start[slot], layout.row_start[slot + 1]
    for column in range(low, high):
        tables.w[slot, column] = tables.q[first, column]
        tables.greedy[slot, column] = first
    for row in range(first + 1, last):
        for column in range(low, high):
            value = tables.q[row, column]
            better = value > tables.w[slot, column]
            tables.greedy[slot, column] = row if better else tables.greedy[slot, column]
            tables.w[slot, column] = value if better else tables.w[slot, column]
    for column in range(low, high):
        if tables.w[slot, column] == -np.inf:
            mildest = first
            for row in range(first + 1, last):
                if tables.max_violation[row] < tables.max_violation[mildest]:
                    mildest = row
            tables.greedy[slot, column] = mildest


@inlined
def doubt(tables: Tables, options: Options, place: int, counted: int) -> float:
    """Return c sqrt(l m) of a row (or distribution); 0 before its first visit."""
    spread = 0.0
    if tables.errors.shape[0] > 0:
        spread = tables.errors[place, counted, 2]
    elif tables.visits[place, counted] > 0:
        spread = (options.offset + 1.0) / (options.offset + tables.visits[place, counted])
    return DOUBT * math.sqrt(spread * tables.square[place, counted])


@loop
def try_again(layout: Layout, tables: Tables, groups: Groups, options: Options, slot: int, low: int, high: int) -> None:
    """Take the row of the largest Q plus `doubt` in columns low .. high, unless all are forbidden."""
    for column in range(low, high):
        most = -np.inf
        for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
            place = np.int64(groups.distribution_of_row[row]) if tables.x.shape[0] > 0 else row
            value = tables.q[row, column] + doubt(tables, options, place, 0 if options.share else column)
            if value > most:
                most = value
                tables.greedy[slot, column] = row


@inlined
def note_changes(
    layout: Layout,
    tables: Tables,
    log: Log,
    before: Longs,
    slot: int,
    low: int,
    high: int,
) -> None:
    """Log the columns of a slot whose greedy row differs from `before`."""
    for column in range(low, high):
        row = tables.greedy[slot, column]
        if row != before[column]:
            note(log, column * layout.node_stride + slot, row)


@loop
def forbid(
    layout: Layout,
    tables: Tables,
    groups: Groups,
    log: Log,
    before: Longs,
    row: int,
    violation: float,
) -> None:
    """Record that `row`, and every row with the same constraints, violates."""
    columns = tables.q.shape[1]
    group = groups.of_row[row]
    for i in range(groups.start[group], groups.start[group + 1]):
        other = groups.rows[i]
        slot = groups.slot_of_row[other]
        tables.max_violation[other] = max(tables.max_violation[other], violation)
        for column in range(columns):
            before[column] = tables.greedy[slot, column]
            tables.q[other, column] = -np.inf
            if tables.witness[other, column] == NO_WITNESS:
                tables.witness[other, column] = VIOLATES
        refresh(layout, tables, slot, 0, columns)
        note_changes(layout, tables, log, before, slot, 0, columns)


@loop
def start_afresh(layout: Layout, tables: Tables, options: Options, log: Log) -> None:
    """Reset all tables except the proof."""
    for slot in range(options.ends, layout.row_start.shape[0] - 1):
        first = layout.row_start[slot]
        for column in range(tables.q.shape[1]):
            if tables.greedy[slot, column] != first:
                note(log, column * layout.node_stride + slot, first)
    forget(tables, options)
    fill_slots(layout, tables, options, options.ends)


@inlined
def learn_path(
    layout: Layout,
    payoff: Floats,
    tables: Tables,
    groups: Groups,
    options: Options,
    path: Path,
    before: Longs,
    length: int,
    episode: int,
    log: Log,
) -> None:
    """Learn from the `length` steps of an episode."""
    columns = tables.q.shape[1]
    remembers = tables.status[REMEMBERS] == 1
    distributions = tables.x.shape[0] > 0
    trials = tables.met.shape[0] > 0 and tables.status[PROVED] == 0
    for back in range(length):
        step = length - 1 - back
        slot, row, record, following = path.slot[step], path.row[step], path.record[step], path.following[step]
        if remembers and payoff[record, 3] > 0.0:
            forbid(layout, tables, groups, log, before, row, payoff[record, 3])
        own = step * options.shift
        low = 0 if options.share else own
        high = columns if options.share else low + 1
        reward = payoff[record, 0] if remembers else payoff[record, 1]
        for column in range(low, high):
            before[column] = tables.greedy[slot, column]
        if distributions:
            note_reward(layout, tables, options, row, reward)
            update_distribution(layout, tables, groups, options, row, following, own, low, high)
            recompose(layout, tables, groups, options.most, slot, low, high)
        else:
            update_row(layout, tables, options, row, following, reward, own, low, high)
        refresh(layout, tables, slot, low, high)
        if trials:
            tables.met[slot] += 1
            root = np.int64(math.sqrt(4 * tables.met[slot] + 1))
            if root * root >= 4 * tables.met[slot]:
                try_again(layout, tables, groups, options, slot, low, high)
        note_changes(layout, tables, log, before, slot, low, high)
    first = path.slot[0]
    if remembers and tables.w[first, 0] == -np.inf:
        tables.status[REMEMBERS] = 0
        tables.status[PROVED] = episode
        tables.status[DEAD_FIRST] = first
        start_afresh(layout, tables, options, log)


@loop
def learn_episodes(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 4]: r - lo, r - lo minus the penalty, reward, total violation.
    payoff: Floats,
    tables: Tables,
    groups: Groups,
    options: Options,
    path: Path,
    #: [column]
    before: Longs,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    #: [episode, 2]: observed reward and violation; may be empty.
    experience: Floats,
    counters: Longs,
) -> int:
    """Run up to `episodes` episodes from done+1 on; return how many.

    It stops early if the log might not hold the next episode.
    """
    horizon = layout.horizon
    for k in range(episodes):
        if k > 0 and lacks_room(log, options.reserve):
            return k
        slot = draw_first(generator, sampler)
        earned, violated = 0.0, 0.0
        for step in range(horizon):
            row = tables.greedy[slot, step * options.shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.slot[step] = slot
            path.row[step] = row
            path.record[step] = record
            path.following[step] = following
            earned += payoff[record, 2]
            violated += payoff[record, 3]
            slot = following
        note_episode(experience, counters, done, k, earned, violated)
        log.head[1] = done + k + 2
        learn_path(layout, payoff, tables, groups, options, path, before, horizon, done + k + 1, log)
    return episodes


@loop
def learn_played(
    layout: Layout,
    #: [step, 4]: columns as for `learn_episodes`; the step is the record.
    payoff: Floats,
    tables: Tables,
    groups: Groups,
    options: Options,
    path: Path,
    before: Longs,
    length: int,
    episode: int,
    log: Log,
) -> None:
    """Learn from an episode of an environment."""
    learn_path(layout, payoff, tables, groups, options, path, before, length, episode, log)


@inlined
def adaptive_rate(errors: Floats, row: int, counted: int, t: int, delta: float, smoothing: float) -> float:
    """Update the statistics with the error `delta` of visit t; return the step size."""
    weight = smoothing / (smoothing + t)
    bias = (1.0 - weight) * errors[row, counted, 0] + weight * delta
    square = (1.0 - weight) * errors[row, counted, 1] + weight * delta * delta
    spread = errors[row, counted, 2]
    alpha = 1.0
    if t > 2:
        least = 1.0 / t
        noise = square - bias * bias
        if t > SETTLED:
            noise = min(noise / ((1.0 - weight) * (1.0 - weight)), square)
        alpha = 1.0 - noise / ((1.0 + spread) * square) if square > 0.0 else least
        alpha = min(1.0, max(alpha, least))
    errors[row, counted, 0] = bias
    errors[row, counted, 1] = square
    errors[row, counted, 2] = (1.0 - alpha) * (1.0 - alpha) * spread + alpha * alpha
    return alpha


@inlined
def patient_rate(horizon: int, t: int) -> float:
    """Return the step size of visit t after a proof of infeasibility."""
    return (horizon + 1.0) / (horizon + PATIENCE + t)


@inlined
def step_size(
    layout: Layout, tables: Tables, options: Options, place: int, counted: int, old: float, target: float
) -> float:
    """Count a visit of a row (or distribution) and return its step size; `old` and `target` are of its own column."""
    t = tables.visits[place, counted] + 1
    tables.visits[place, counted] = t
    if tables.status[PROVED] > 0:
        return patient_rate(layout.horizon, t)
    alpha = (options.offset + 1.0) / (options.offset + t)
    # The difference of two infinities is NaN.
    if old > -np.inf and target > -np.inf:
        if tables.square.shape[0] > 0:
            error = target - old if t > 1 else options.most
            tables.square[place, counted] += (error * error - tables.square[place, counted]) / t
        if tables.errors.shape[0] > 0:
            alpha = adaptive_rate(tables.errors, place, counted, t, target - old, options.offset)
    return alpha


@inlined
def update_row(
    layout: Layout,
    tables: Tables,
    options: Options,
    row: int,
    following: int,
    reward: float,
    own: int,
    low: int,
    high: int,
) -> None:
    """Move Q of a row towards reward + W(following) in columns low .. high."""
    counted = 0 if options.share else low
    ahead = options.shift
    alpha = step_size(
        layout, tables, options, row, counted, tables.q[row, own], reward + tables.w[following, own + ahead]
    )  # fmt: skip
    for column in range(low, high):
        old = tables.q[row, column]
        target = reward + tables.w[following, column + ahead]
        tables.q[row, column] = old + alpha * (target - old) if old > -np.inf else old
    for column in range(low, high):
        if tables.q[row, column] == -np.inf and tables.witness[row, column] == NO_WITNESS:
            tables.witness[row, column] = following


@inlined
def note_reward(layout: Layout, tables: Tables, options: Options, row: int, reward: float) -> None:
    """Move a row's mean reward towards `reward`."""
    tries = tables.tried[row] + 1
    tables.tried[row] = tries
    kept = tables.reward[row] if tries > 1 else options.most
    share = patient_rate(layout.horizon, tries) if tables.status[PROVED] > 0 else 1.0 / tries
    tables.reward[row] = kept + share * (reward - kept)


@inlined
def update_distribution(
    layout: Layout,
    tables: Tables,
    groups: Groups,
    options: Options,
    row: int,
    following: int,
    own: int,
    low: int,
    high: int,
) -> None:
    """Move X of a row's distribution towards W(following) in columns low .. high."""
    distribution = groups.distribution_of_row[row]
    counted = 0 if options.share else low
    ahead = options.shift
    alpha = step_size(
        layout, tables, options, distribution, counted, tables.x[distribution, own], tables.w[following, own + ahead]
    )
    for column in range(low, high):
        old = tables.x[distribution, column]
        target = tables.w[following, column + ahead]
        tables.x[distribution, column] = old + alpha * (target - old) if old > -np.inf else old
        if old > -np.inf and target == -np.inf:
            tables.distribution_witness[distribution, column] = following


@inlined
def recompose(layout: Layout, tables: Tables, groups: Groups, most: float, slot: int, low: int, high: int) -> None:
    """Compute Q of a slot from mean rewards and X; forbidden entries stay forbidden."""
    for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
        distribution = groups.distribution_of_row[row]
        reward = tables.reward[row] if tables.tried[row] > 0 else most
        for column in range(low, high):
            if tables.q[row, column] > -np.inf:
                tables.q[row, column] = reward + tables.x[distribution, column]
                if tables.x[distribution, column] == -np.inf:
                    tables.witness[row, column] = tables.distribution_witness[distribution, column]
