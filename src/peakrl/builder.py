"""Where a model is put together: rows, shared next-state distributions and payoffs, as a problem tells of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from peakrl.assemble import assemble
from peakrl.checks import AT_MOST, LARGEST, ROUNDING, bound_above, is_usual
from peakrl.errors import ProblemError
from peakrl.header import NO_RANGE, Header
from peakrl.problem import Outcome
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Payoffs

#: Rough bytes of Python objects and arrays while a model is being built, for the memory guard.
BYTES_A_STATE, BYTES_A_ROW, BYTES_AN_OUTCOME, BYTES_A_NUMBER = 500, 120, 60, 40
#: What an outcome tells, and what `float` would take for it all the same: a comparison left in place of a difference.
NUMBERS = "the reward must be a number and the constraints a sequence of numbers, such as (1.0,)"
NO_TRUTH_VALUES = "constraints must be numbers, >= 0 where they are met: False would count as 0, which is met"
NO_NUMBERS = {bool, np.bool_, str}
PLAIN = {float, int}
#: Next slots and their probabilities.
Key = tuple[tuple[int, ...], tuple[float, ...]]
#: Payoffs that were found in order are remembered up to this many.
MOST_KNOWN = 100_000


class Builder:
    """Collects slots, rows, shared distributions and payoff records while a problem is explored."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.lo, self.hi = header.reward_range
        size = max(1.0, abs(self.lo), abs(self.hi))
        self.reward_room = ROUNDING * size if math.isfinite(size) else 0.0
        #: Within these nothing is wrong with a reward and with constraint values.
        self.least, self.most = max(self.lo - self.reward_room, -LARGEST), min(self.hi + self.reward_room, LARGEST)
        self.limits = tuple(min(bound * (1 + ROUNDING), LARGEST) for bound in header.constraint_bounds)
        self.known_payoffs: dict[tuple[Any, tuple[Any, ...]], tuple[float, ...]] = {}
        self.row_start = [0]
        self.row_action: list[int] = []
        self.row_distribution: list[int] = []
        self.row_payoff: list[int] = []
        self.actions: dict[Hashable, int] = {}
        self.distributions: dict[Key, int] = {}
        self.outcome_start = [0]
        self.outcome_next: list[int] = []
        self.outcome_probability: list[float] = []
        #: A row's payoffs: one record where they do not depend on the outcome, else one for each outcome.
        self.payoff_keys: dict[tuple[tuple[float, ...], ...], int] = {}
        self.outcome_dependent = False
        #: Rewards and constraint values kept, at most.
        self.numbers = 0

    def plain_payoff(self, reward: Any, constraints: tuple[Any, ...]) -> tuple[float, ...] | None:
        """Return (reward, constraints...) of plain numbers within their limits; None: `payoff` looks more closely."""
        limits = self.limits
        if len(constraints) != len(limits) or not self.least <= reward <= self.most:
            return None
        for value, limit in zip(constraints, limits, strict=True):
            if not -limit <= value <= limit:
                return None
        payoff = (float(reward), *map(float, constraints))
        # One with a 0 is not kept: 0.0 and -0.0 would be taken for each other.
        if 0.0 not in payoff and len(self.known_payoffs) < MOST_KNOWN:
            self.known_payoffs[reward, constraints] = payoff
        return payoff

    def payoff(self, outcome: Outcome, where: object) -> tuple[float, ...]:
        """Return (reward, constraints...) of a validated outcome; `where` is told where it is none."""
        header = self.header
        earned: Any = outcome.reward
        told = outcome.constraints
        try:
            reward = float(earned)
            values = list(map(float, told))
        except (TypeError, ValueError, OverflowError):
            raise ProblemError(f"{where}: {NUMBERS}; got {outcome!r}") from None
        if not NO_NUMBERS.isdisjoint(map(type, told)) or isinstance(earned, str):
            form = NUMBERS if str in (type(earned), *map(type, told)) else NO_TRUTH_VALUES
            raise ProblemError(f"{where}: {form}; got {outcome!r}")
        if not is_usual(reward):
            raise ProblemError(f"{where}: the reward is {reward}; it must be a finite number{AT_MOST}")
        if not self.lo - self.reward_room <= reward <= self.hi + self.reward_room:
            raise ProblemError(f"{where}: reward {reward} lies outside reward_range {header.reward_range}")
        if len(values) != len(header.constraint_names):
            named = f"{len(header.constraint_names)} constraints; constraint_names is {header.constraint_names}"
            raise ProblemError(f"{where}: {len(values)} constraint values for {named}")
        for value, bound, name in zip(values, header.constraint_bounds, header.constraint_names, strict=True):
            if not is_usual(value):
                raise ProblemError(f"{where}: constraint {name!r} is {value}; it must be a finite number{AT_MOST}")
            if not abs(value) <= bound * (1 + ROUNDING):
                raise ProblemError(f"{where}: constraint {name!r} is {value}, beyond its bound of {bound}")
        return (reward, *values)

    def add_row(self, action: Hashable, merged: dict[tuple[int, tuple[float, ...]], float]) -> None:
        """Store a pair whose outcomes are {(next slot, payoff): probability}."""
        items = sorted(merged.items()) if len(merged) > 1 else merged.items()
        key = (tuple([slot for (slot, _), _ in items]), tuple([chance for _, chance in items]))
        records = tuple([payoff for (_, payoff), _ in items])
        if len(merged) == 1 or records.count(records[0]) == len(records):
            records = records[:1]
        else:
            self.outcome_dependent = True
        self.add_record(action, key, records)

    def add_plain_row(self, action: Hashable, merged: dict[int, float], payoff: tuple[float, ...]) -> None:
        """Store a pair whose outcomes {next slot: probability} are all paid the same."""
        if len(merged) > 1:
            order = sorted(merged)
            self.add_record(action, (tuple(order), tuple([merged[slot] for slot in order])), (payoff,))
        else:
            self.add_record(action, (tuple(merged), tuple(merged.values())), (payoff,))

    def add_record(self, action: Hashable, key: Key, records: tuple[tuple[float, ...], ...]) -> None:
        """Store a pair with its next slots and their probabilities, and one payoff or one for each of them."""
        self.row_distribution.append(self.distribution(key))
        known = self.payoff_keys.setdefault(records, len(self.payoff_keys))
        if known == len(self.payoff_keys) - 1:
            self.numbers += len(records) * len(records[0])
        self.row_payoff.append(known)
        self.row_action.append(self.actions.setdefault(action, len(self.actions)))

    def distribution(self, key: Key) -> int:
        """Return the index of a next-slot distribution, stored once."""
        index = self.distributions.get(key)
        if index is None:
            index = len(self.outcome_start) - 1
            self.distributions[key] = index
            self.outcome_next.extend(key[0])
            self.outcome_probability.extend(key[1])
            self.outcome_start.append(len(self.outcome_next))
        return index

    def used(self, states: int) -> int:
        """Return about how many bytes are in use."""
        kept = len(self.row_action) * BYTES_A_ROW + len(self.outcome_next) * BYTES_AN_OUTCOME
        return states * BYTES_A_STATE + kept + self.numbers * BYTES_A_NUMBER

    def end_slot(self) -> None:
        """Close the rows of the slot at hand."""
        self.row_start.append(len(self.row_action))

    def end_layer(self) -> None:
        """Distributions are shared within a layer only: another layer's next slots are others."""
        self.distributions.clear()

    def payoffs(self) -> Payoffs:
        """Lay the payoff records out, one a row, or one an outcome where any row needs that."""
        keys = list(self.payoff_keys)
        row_key = np.array(self.row_payoff, np.int64)
        if not self.outcome_dependent:
            table = np.array([key[0] for key in keys], np.float64)
            row_payoff = row_key
        else:
            sizes = np.diff(self.outcome_start)[self.row_distribution]
            firsts: dict[tuple[int, int], int] = {}
            records: list[tuple[float, ...]] = []
            row_payoff = np.empty(len(row_key), np.int64)
            for row, (key_index, size) in enumerate(zip(row_key.tolist(), sizes.tolist(), strict=True)):
                first = firsts.get((key_index, size))
                if first is None:
                    first = firsts[key_index, size] = len(records)
                    key = keys[key_index]
                    records.extend(key * size if len(key) == 1 else key)
                row_payoff[row] = first
            table = np.array(records, np.float64)
        return Payoffs(int(self.outcome_dependent), row_payoff.astype(np.int32), table[:, 0], table[:, 1:])


def built(
    builder: Builder,
    slots: list[Hashable],
    first_slots: Sequence[int],
    first_probability: Floats,
    layer_start: list[int],
    distribution_start: list[int],
    shared: bool,
) -> TabularModel:
    """Freeze what was collected; with `shared` one set of slots serves every step."""
    labels: dict[Hashable, int] = {}
    slot_state = [labels.setdefault(state, len(labels)) for state in slots]
    payoffs = builder.payoffs()
    return assemble(
        builder.header._replace(
            reward_range=reward_range(builder.header, payoffs),
            constraint_bounds=constraint_bounds(builder.header, payoffs),
        ),
        state_labels=list(labels),
        slot_state=slot_state,
        action_labels=list(builder.actions),
        row_action=builder.row_action,
        row_start=builder.row_start,
        row_distribution=builder.row_distribution,
        outcome_start=builder.outcome_start,
        outcome_next=builder.outcome_next,
        outcome_probability=builder.outcome_probability,
        payoffs=payoffs,
        first_slot=first_slots,
        first_probability=first_probability,
        layer_start=None if shared else layer_start,
        distribution_start=None if shared else distribution_start,
    )


def reward_range(header: Header, payoffs: Payoffs) -> tuple[float, float]:
    """Return the range that a problem declares, or else the one of its reachable outcomes."""
    if header.reward_range != NO_RANGE:
        return header.reward_range
    return float(payoffs.reward.min()), float(payoffs.reward.max())


def constraint_bounds(header: Header, payoffs: Payoffs) -> tuple[float, ...]:
    """Return the bounds that a problem declares, or else those of its reachable outcomes (1 where all are 0)."""
    largest = np.abs(payoffs.constraints).max(axis=0, initial=0.0).tolist()
    declared = zip(header.constraint_bounds, largest, strict=True)
    return tuple(bound if math.isfinite(bound) else bound_above(seen) for bound, seen in declared)
