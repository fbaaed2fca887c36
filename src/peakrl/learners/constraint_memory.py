"""What the practical learner remembers and is run with (formulas: `learners.safe_q.kernel`).

Tables are [row, column] and [slot, column]; a column is a step in a stationary model, and there is just one in a
layered model, whose slots belong to a step already. A law is a distribution over next slots that several rows may
share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peakrl.types import Floats, Ints, Longs

#: Where `PracticalTables.status` holds: are constraints remembered (1) or penalised (0); the episode of the proof of
#: infeasibility (0: none); the first slot that died.
REMEMBERS, PROVED, DEAD_FIRST = 0, 1, 2
#: After the proof of infeasibility: how many visits the optimistic start is worth.
PATIENCE = 20.0
#: Visits after which errors that seem to agree must do so by more than chance.
SETTLED = 20
#: Standard errors that a trial grants.
DOUBT = 3.0
#: Tables of parts that are switched off.
NO_FLOATS: Floats = np.empty((0, 0))
NO_REWARDS: Floats = np.empty(0)
NO_INTS: Ints = np.empty(0, np.int32)
NO_WITNESSES: Ints = np.empty((0, 0), np.int32)
#: Witness of a forbidden entry: none yet, seen to violate, declared to fail; a slot: seen to lead to that dead one.
NO_WITNESS, VIOLATES, DECLARED = -2, -1, -3


class PracticalTables(NamedTuple):
    """What the practical learner remembers."""

    #: [row, column]
    q: Floats
    #: [row, column, or one column where the count is shared]; by law where outcomes are shared.
    visits: Ints
    #: [slot, column + 1 in a stationary model]
    w: Floats
    #: [slot, column]: greedy row.
    greedy: Longs
    #: [as visits, 3]: b, v and l of the adaptive step size; nothing where it is not used.
    errors: Floats
    #: [row]: the largest violation seen.
    harm: Floats
    #: [row, column]
    witness: Ints
    status: Longs
    #: Where laws are learned: X [law, column], why it is minus infinity [law, column], mean reward and count [row].
    x: Floats = NO_FLOATS
    law_witness: Ints = NO_WITNESSES
    reward: Floats = NO_REWARDS
    tried: Ints = NO_INTS
    #: Where there are trials: [as visits] the mean square of its errors, and [slot] how often it was met.
    square: Floats = NO_FLOATS
    met: Ints = NO_INTS


class Groups(NamedTuple):
    """Rows whose constraints are the same: rows[start[g]] .. rows[start[g+1]] are group g."""

    of_row: Ints
    start: Longs
    rows: Ints
    slot_of_row: Ints
    #: [row]: its law of the next state; empty where laws are not learned.
    law_of_row: Ints = NO_INTS


class Path(NamedTuple):
    """[step]: the episode at hand."""

    slot: Longs
    row: Longs
    record: Longs
    following: Longs


class Options(NamedTuple):
    """Numbers that the settings come to."""

    #: 1 where a column is a step (stationary), 0 where slots belong to steps (layered)
    shift: int
    #: does one transition teach every column?
    share: bool
    #: H of (H+1)/(H+t); c of the adaptive step size
    offset: float
    #: [column]: optimistic start in a stationary model; [slot] in a layered one
    start: Floats
    #: room in the change list that the next episode may need
    reserve: int
    #: so many slots, the first ones, are the end of an episode
    ends: int = 0
    #: Where laws are learned: the most that one step can earn, and the start of X.
    most: float = 0.0
    law_start: Floats = NO_FLOATS
