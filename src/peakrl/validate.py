"""Checks of a model that was read from a file: kernels rely on them.

Every number that a kernel indexes with is checked for its range, its order and its step:

    slots of a step    contiguous, from 0 on; slots after the last step have no rows
    rows of a slot     divided by `row_start`; distinct actions, and a distribution of the same step
    a distribution     at least one outcome, positive probabilities that sum to 1, next slots of the next step
    payoffs            a record for every outcome, finite, within the declared range and bounds
    first slots        distinct slots of step 0, with probabilities that sum to 1

`model_file` checks types, and that a reachable state has an action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import LARGEST, ROUNDING, SMALLEST_BOUND, check_distribution
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.ragged import distribution_fault, repeated_member
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Layout

#: A model may name at most this many actions that no state has.
MOST_UNUSED_NAMES = 1_000_000


def fault(model: TabularModel) -> str | None:
    """Return the first thing that is wrong with a model, or None."""
    for faults in (head_faults, index_faults, step_faults, number_faults, name_faults):
        # Each check relies on those before it.
        for wrong, words in faults(model):
            if wrong:
                return words
    return None


Faults = Iterator[tuple[bool, str]]


def head_faults(model: TabularModel) -> Faults:
    """Names, ranges, and lengths of arrays."""
    layout, payoffs, slots, rows = model.layout, model.payoffs, model.num_slots, model.num_rows
    names, bounds, (lo, hi) = model.constraint_names, model.constraint_bounds, model.reward_range
    yield not 1 <= layout.horizon <= MOST_STEPS, f"its horizon is {layout.horizon}"
    yield slots < 1 or rows < 1, "it has no states or no actions"
    yield len(set(names)) < len(names), f"its constraints {names} repeat a name"
    yield len(bounds) != len(names), f"it has {len(bounds)} bounds for {len(names)} constraints"
    yield (
        not all(SMALLEST_BOUND <= bound <= LARGEST for bound in bounds),
        f"its constraint bounds {bounds} do not all lie between {SMALLEST_BOUND:g} and {LARGEST:g}",
    )
    yield not -LARGEST <= lo <= hi <= LARGEST, f"its rewards range from {lo} to {hi}"
    yield payoffs.stride not in (0, 1), f"its payoffs have a stride of {payoffs.stride}"
    steps = (layout.horizon, 2)
    yield not layout.step_slots.shape == layout.step_distributions.shape == steps, "its steps do not have two ends each"
    lengths = len(layout.row_distribution) == len(payoffs.row_payoff) == rows
    yield not lengths, "its pairs do not have one distribution and one payoff each"
    yield len(layout.outcome_probability) != len(layout.outcome_next), "its outcomes do not have one probability each"
    yield payoffs.constraints.shape != (len(payoffs.reward), len(names)), "its payoffs lack a value of a constraint"
    yield not len(model.first_slot) == len(model.first_probability) > 0, "its first states lack a probability"
    yield model.num_states > slots, f"it names {model.num_states:,} states and stores {slots:,}"
    yield len(model.action_labels) > rows + MOST_UNUSED_NAMES, f"it names {len(model.action_labels):,} actions"


def index_faults(model: TabularModel) -> Faults:
    """Indices are within range."""
    layout, payoffs, slots, rows = model.layout, model.payoffs, model.num_slots, model.num_rows
    distributions, records = len(layout.outcome_start) - 1, len(payoffs.reward)
    yield not partitions(layout.row_start, slots, rows), "its pairs are not divided into states"
    yield not partitions(layout.outcome_start, distributions, len(layout.outcome_next)), "its outcomes are not divided"
    sizes = np.diff(layout.outcome_start)
    yield bool(sizes.min(initial=1) < 1), "a pair leads nowhere"
    yield not within(layout.row_distribution, distributions), "a pair has no distribution"
    yield not within(layout.outcome_next, slots), "an outcome leads to no state"
    yield not within(model.slot_state, model.num_states), "a stored state has no name"
    yield not within(model.row_action, len(model.action_labels)), "a pair's action has no name"
    yield not within(model.first_slot, slots), "a first state is not one of its states"
    yield not within(payoffs.row_payoff, records), "a pair has no payoff"
    if payoffs.stride:
        last = payoffs.row_payoff.astype(np.int64) + sizes[layout.row_distribution] - 1
        yield not within(last, records), "an outcome has no payoff"


def step_faults(model: TabularModel) -> Faults:
    """Slots, rows and distributions belong to one step and lead to the next."""
    layout, slots, distributions = model.layout, model.num_slots, len(model.layout.outcome_start) - 1
    if model.stationary:
        yield not same_every_step(layout.step_slots, slots), "its steps do not share all states"
        yield not same_every_step(layout.step_distributions, distributions), "its steps do not share all distributions"
        own = np.array_equal(model.slot_state, np.arange(slots)) and model.num_states == slots
        yield not own, "its states are not stored in the order of their names"
        return
    yield not follow(layout.step_slots), "its steps' states do not follow each other"
    yield not follow(layout.step_distributions), "its steps' distributions do not follow each other"
    end = int(layout.step_slots[-1, 1])
    yield not end < slots, "no state follows the last step"
    yield int(layout.step_distributions[-1, 1]) != distributions, "a distribution belongs to no step"
    yield int(layout.row_start[end]) != model.num_rows, "a state after the last step offers actions"
    yield int(model.first_slot.max()) >= layout.step_slots[0, 1], "a first state belongs to a later step"
    first_rows = layout.row_start[layout.step_slots[:, 0]]
    yield not rising(first_rows, model.num_rows), "a step offers no action"
    own_distributions = stays(layout.row_distribution, first_rows, layout.step_distributions)
    yield not own_distributions, "a pair has a distribution of another step"
    first_outcomes = layout.outcome_start[layout.step_distributions[:, 0]]
    yield not stays(layout.outcome_next, first_outcomes, next_slots(layout, slots)), "an outcome leads to another step"


def number_faults(model: TabularModel) -> Faults:
    """Probabilities, rewards and constraint values."""
    layout, payoffs = model.layout, model.payoffs
    position, row, total, zeros = distribution_fault(layout.outcome_start, layout.outcome_probability)
    yield position >= 0, f"outcome {position} has no probability"
    yield row >= 0, f"the probabilities of distribution {row} sum to {total:.12g}"
    yield zeros > 0, "an outcome has probability 0"
    try:
        check_distribution(model.first_probability, "of the first state")
    except ProblemError as error:
        yield True, str(error)
    yield not model.first_probability.min() > 0, "a first state has probability 0"
    (lo, hi), rewards = model.reward_range, payoffs.reward
    tolerance = ROUNDING * max(1.0, abs(lo), abs(hi))
    # min and max of an array with NaN are NaN, and comparisons with NaN are false.
    yield not lo - tolerance <= rewards.min() <= rewards.max() <= hi + tolerance, f"a reward lies outside {(lo, hi)}"
    columns = zip(model.constraint_names, model.constraint_bounds, payoffs.constraints.T, strict=True)
    for name, bound, values in columns:
        limit = bound * (1 + ROUNDING)
        yield not -limit <= values.min() <= values.max() <= limit, f"constraint {name!r} exceeds its bound of {bound}"


def name_faults(model: TabularModel) -> Faults:
    """States of a step, actions of a state and first states are distinct."""
    layout, states, actions = model.layout, model.num_states, len(model.action_labels)
    whole = np.array([0, len(model.first_slot)])
    yield repeated_member(read_only(whole), model.first_slot, model.num_slots) >= 0, "a first state is named twice"
    yield repeated_member(layout.row_start, model.row_action, actions) >= 0, "a state offers an action twice"
    if not model.stationary:
        starts = np.append(layout.step_slots[:, 0], [layout.step_slots[-1, 1], model.num_slots])
        yield repeated_member(read_only(starts), model.slot_state, states) >= 0, "a step has a state twice"


def within(index: NDArray[Any], size: int) -> bool:
    """Do all numbers lie in 0 .. size - 1?"""
    return index.size == 0 or bool(index.min() >= 0 and index.max() < size)


def partitions(start: NDArray[np.int64], parts: int, end: int) -> bool:
    """Does `start` divide 0 .. end into `parts` pieces?"""
    return len(start) == parts + 1 and start[0] == 0 and start[-1] == end and not (start[1:] < start[:-1]).any()


def same_every_step(ends: NDArray[np.int64], size: int) -> bool:
    """Does every step use all of 0 .. size?"""
    return bool((ends[:, 0] == 0).all() and (ends[:, 1] == size).all())


def follow(ends: NDArray[np.int64]) -> bool:
    """Are the ranges of the steps contiguous, from 0 on, and not empty?"""
    return bool(ends[0, 0] == 0 and (ends[1:, 0] == ends[:-1, 1]).all() and (ends[:, 0] < ends[:, 1]).all())


def rising(starts: NDArray[np.int64], end: int) -> bool:
    """Are the ranges that begin at `starts`, the last of which ends at `end`, not empty?"""
    return bool((np.diff(np.append(starts, end)) > 0).all())


def stays(index: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
    """Does each part of `index` (they begin at `starts`) stay within its own range of numbers?"""
    least, most = np.minimum.reduceat(index, starts), np.maximum.reduceat(index, starts)
    return bool((least >= ends[:, 0]).all() and (most < ends[:, 1]).all())


def next_slots(layout: Layout, slots: int) -> NDArray[np.int64]:
    """[step, 2]: first slot of the next step, and one past its last."""
    return np.append(layout.step_slots[1:], [[layout.step_slots[-1, 1], slots]], axis=0)
