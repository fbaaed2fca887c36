"""What posterior sampling remembers and is run with (formulas: `learners.posterior_sampling.kernel`).

A *law* is what follows a row: its own, or one that several rows are declared to share. A *cell* is an outcome of a law
that was seen: where it led, what it earned and how it violated. The cells of a law are a list: `head[law]`, then
`link[cell]`, until -1. Tables of a plan are [slot, column]; a column is a step where steps share slots, and there is
just one where slots belong to steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.sampling import Words
from peakrl.types import Floats, Ints, Longs

#: What `Counts.status` holds: cells in use; episodes learned from; plans made; the episode of the proof of
#: infeasibility (0: none) and the first slot that died; after how many episodes the next plan is due; what plans and
#: what episodes have cost so far, in cells looked at.
CELLS, EPISODES, PLANS, PROVED, DEAD_FIRST, NEXT_PLAN, PLAN_WORK, STEP_WORK = range(8)
STATUS_SIZE = 8
#: Cells of a law from which on outcomes that differ only in what they earn share one.
MOST_KINDS = 64
#: End of a list of cells, and of slots.
NO_CELL = NO_SLOT = -1


class Counts(NamedTuple):
    """What was seen, and the law that was drawn from it."""

    status: Longs
    #: The learner's own random numbers.
    words: Words
    #: [slot]: episodes that began there.
    begun: Longs
    #: [law]: first cell, number of cells, how often it was seen, and how often by its latest draw; the ghost's share.
    head: Ints
    kinds: Ints
    visits: Longs
    drawn: Longs
    ghost: Floats
    #: [row]: how often it was taken; mean reward and violation where the law is shared, else 0; largest violation.
    tried: Longs
    row_reward: Floats
    row_cost: Floats
    harm: Floats
    #: [cell]: next slot, next cell of the same law, how often it came; mean reward and violation; drawn probability.
    cell_next: Ints
    cell_link: Ints
    cell_count: Longs
    cell_reward: Floats
    cell_cost: Floats
    cell_weight: Floats


class Plan(NamedTuple):
    """A plan by backward induction."""

    #: [slot, column], with a column of zeros after the last step where steps share slots.
    value: Floats
    cost: Floats
    #: [slot, column]: the chosen row.
    row: Longs


class Places(NamedTuple):
    """Where rows and slots belong."""

    horizon: int
    #: 1 where a column is a step, 0 where slots belong to steps
    shift: int
    node_stride: int
    #: [slot + 1]
    row_start: Longs
    #: [row]
    slot_of_row: Ints
    law_of_row: Ints
    #: [slot]: its step; [step]: the first of its slots; [slot]: the next one of the same step. Without meaning where
    #: steps share slots.
    slot_step: Longs
    step_head: Longs
    slot_link: Longs
    #: Rows whose constraints are declared to be the same, as in `practical_tables.Groups`; empty where none are.
    group_of_row: Ints
    group_start: Longs
    group_rows: Ints
    #: [row, column]: what is declared to fail; empty where nothing is.
    barred: NDArray[np.bool_]


class Rules(NamedTuple):
    """Numbers that the settings come to."""

    #: [step, 0 .. H]: the most and the least that can be earned from there on.
    most: Floats
    least: Floats
    #: Are laws shared by rows, so that rewards and violations are kept by row?
    shared: bool
    #: Mass of the ghost.
    ghost: float
    #: A plan is due when episodes have grown by this share.
    growth: float
    #: Work that plans may take before they have to keep to twice that of the episodes.
    credit: int
    #: Room in the change list that an episode may need.
    reserve: int


class Path(NamedTuple):
    """[step]: the episode at hand."""

    slot: Longs
    row: Longs
    following: Longs
    reward: Floats
    violation: Floats
