"""Slow, obvious twins of the certified learner's kernels, from the formulas, in plain Python on labels and counts."""

from __future__ import annotations

import math
from collections import Counter


def upper_mean(sample, bound, all_in, any_bet):
    """The least of nu - exp(mean log(nu - x) - beta/n) over nu >= bound, by a fine search; `sample` is {x: count}."""
    n = sum(sample.values())
    bound = max([bound, *sample])

    def phi(nu, price):
        if nu <= max(sample):
            return nu
        logs = sum(count * math.log(nu - x) for x, count in sample.items()) / n
        return nu - math.exp(logs - price / n)

    spread = bound - min(sample)
    if spread == 0:
        return bound
    best = phi(bound, all_in)
    low, high = math.log(1e-6), math.log(10 * math.sqrt(n))
    for _ in range(200):
        left, right = low + (high - low) * 0.382, low + (high - low) * 0.618
        if phi(bound + spread * math.exp(left), any_bet) < phi(bound + spread * math.exp(right), any_bet):
            high = right
        else:
            low = left
    return min(best, phi(bound + spread * math.exp(low), any_bet), bound)


def beta(n, log_share):
    return log_share + 0.5 * math.log(math.pi * (n + 0.5))


class Counted:
    """What was seen, by step, state and action in labels: read off a learner's tables by way of its model."""

    def __init__(self, learner):
        self.t, self.model = learner.tables, learner.space.model
        self.steps = range(self.model.horizon)
        self.joint = bool(self.t.joint)

    def states(self, step):
        if step == self.model.horizon:
            return []
        first, last = self.model.layout.step_slots[step]
        return [slot for slot in range(first, last) if len(self.model.rows_of_slot(slot))]

    def samples(self, row, fresh=False):
        """Counter of (next slot, reward of the outcome) of a row; `fresh`: those since the candidate was frozen."""
        t, seen = self.t, Counter()
        cell = int(t.cell_first[t.distribution_of_row[row]])
        while cell >= 0:
            count = int(t.cell_count[cell]) - (int(t.cell_before[cell]) if fresh else 0)
            if count:
                seen[int(t.cell_next[cell]), float(t.cell_reward[cell]) if self.joint else 0.0] += count
            cell = int(t.cell_after[cell])
        return seen

    def fails(self, row):
        return self.t.max_violation[self.t.group_of_row[row]] > 0

    def reward(self, row):
        return float(self.t.reward[row]) if self.t.known[row] else None


def upper_values(seen, most, log_share):
    """{(step, row): U or None where ruled out} and {(step, slot): W or None where dead}.

    A state that offers nothing (met only after the last step) is worth 0 at every step.
    """
    horizon = seen.model.horizon
    u, w = {}, {}
    for step in reversed(seen.steps):
        alive = [w[step + 1, s] for s in seen.states(step + 1) if w[step + 1, s] is not None]
        above = max(alive) if alive else most * (horizon - step - 1)
        for slot in seen.states(step):
            for row in seen.model.rows_of_slot(slot):
                u[step, row] = one_upper(seen, w, step, row, above, most, log_share)
            left = [u[step, row] for row in seen.model.rows_of_slot(slot) if u[step, row] is not None]
            w[step, slot] = max(left) if left else None
    return u, w


def one_upper(seen, w, step, row, above, most, log_share):
    sample, last = seen.samples(row), step == seen.model.horizon - 1
    if seen.fails(row) or (not last and any(w.get((step + 1, slot), 0.0) is None for slot, _ in sample)):
        return None
    ceiling = above + (most if seen.joint else 0.0)
    if last and not seen.joint:
        follows = 0.0
    elif not sample:
        follows = ceiling
    else:
        values = Counter()
        for (slot, reward), count in sample.items():
            values[reward + w.get((step + 1, slot), 0.0)] += count
        bet = beta(sum(values.values()), log_share)
        follows = upper_mean(values, ceiling, bet, bet)
    reward = seen.reward(row)
    own = 0.0 if seen.joint else most if reward is None else reward
    return min(most * (seen.model.horizon - step), own + follows)


def lower_values(seen, rows, least, log_share):
    """{(step, slot): LL} of a policy {(step, slot): row}."""
    horizon, low = seen.model.horizon, {}
    for step in reversed(seen.steps):
        last = step == horizon - 1
        floor = 0.0 if last else min(low[step + 1, slot] for slot in seen.states(step + 1))
        for slot in seen.states(step):
            row = rows[step, slot]
            sample, reward = seen.samples(row, fresh=True), seen.reward(row)
            worst = least * (horizon - step)
            if not seen.joint and reward is None:
                low[step, slot] = worst
                continue
            under = floor + (least if seen.joint else 0.0)
            if last and not seen.joint:
                follows = 0.0
            elif not sample:
                follows = under
            else:
                values = Counter()
                for (following, gained), count in sample.items():
                    values[-(gained + low.get((step + 1, following), 0.0))] += count
                bet = beta(sum(values.values()), log_share)
                follows = -upper_mean(values, -under, bet, bet)
            low[step, slot] = max(worst, follows + (0.0 if seen.joint else reward))
    return low


def candidate(seen, u, least, most, wide, fewest=0):
    """{(step, slot): (V, E)} of the pessimistic policy where some pair is known, and its rows."""
    horizon, value, estimate, rows = seen.model.horizon, {}, {}, {}
    for step in reversed(seen.steps):
        low = least * (horizon - step - 1)
        width = max((v for (at, _), v in value.items() if at == step + 1), default=0.0) - low
        width += (most - least) * seen.joint
        for slot in seen.states(step):
            options = []
            for row in seen.model.rows_of_slot(slot):
                sample, reward = seen.samples(row), seen.reward(row)
                few = sum(sample.values()) < max(fewest, 1)
                if u[step, row] is None or few or (not seen.joint and reward is None):
                    continue
                n = sum(sample.values())
                follows = [
                    (count, gained + value.get((step + 1, s), 0.0), gained + estimate.get((step + 1, s), 0.0))
                    for (s, gained), count in sample.items()
                ]
                mean = sum(count * v for count, v, _ in follows) / n
                variance = max(sum(count * v * v for count, v, _ in follows) / n - mean**2, 0.0)
                plain = sum(count * e for count, _, e in follows) / n
                own = 0.0 if seen.joint else reward
                doubt = (fewest == 0) * math.sqrt(variance / n) + (
                    width / (n + 1) if wide else (mean - low) / (2 * n + 2)
                )
                options.append((own + mean - doubt, own + plain, row))
            best = max(options, key=lambda option: option[0], default=(low + least, low + least, None))
            value[step, slot], estimate[step, slot], rows[step, slot] = best
            if wide:
                value[step, slot] = max(value[step, slot], low + least)
    return value, estimate, rows
