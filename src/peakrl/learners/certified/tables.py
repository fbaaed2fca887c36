"""What the certified learner stores: where states, laws and constraint groups stand, and what was seen and concluded.

A *law* is a set of pairs whose next states (with their rewards, where those depend on the outcome) have one law; where
nothing is declared each row is its own. The law of the first state is the last one. The samples of a law are kept as
cells: a next slot, the reward that came with it, and how often. A *group* is a set of rows whose constraints are the
same. Index spaces: `types`.

Where the next state is declared to be g(s, a, noise), there is one law, that of the noise: its cells are the noises,
and the next slot of a cell depends on the row. A next state of an environment that was not met has no slot: UNMET.
"""

from __future__ import annotations

from typing import NamedTuple

from peakrl.types import Bytes, Floats, Ints, Longs

#: Why an entry is ruled out: it is not, it was seen to violate, or the dead slot that it was seen to lead to.
OPEN, VIOLATES = -2, -1
#: Columns of `Tables.law`: samples, cells in use, samples before the candidate was frozen.
SAMPLES, CELLS, BEFORE = 0, 1, 2
#: In place of the next slot where a declared map leads to a state that was not met.
UNMET = -1


class Places(NamedTuple):
    """Where things stand; an environment's grow as states are met."""

    horizon: int
    node_stride: int
    entry_stride: int
    #: The first so many slots are ends of episodes.
    ends: int
    #: [slot + 1]
    row_start: Longs
    #: The slots of a step: slots[step_first[step]] .. slots[step_last[step]].
    step_first: Longs
    step_last: Longs
    slots: Ints
    #: [row]
    law_of_row: Ints
    group_of_row: Ints
    slot_of_row: Ints
    #: Rows of a group: group_rows[group_start[g]] .. group_rows[group_start[g + 1]].
    group_start: Longs
    group_rows: Ints
    #: [law]: its first cell.
    cell_start: Longs
    #: Where s' = g(s, a, noise) is declared: how many noises there are, and [row * noises + noise]: the next slot.
    noises: int
    noise_next: Ints


class Terms(NamedTuple):
    """Numbers that settings and declarations come to."""

    #: The least and the most that one step can earn (of steps that never violate, where that is declared).
    least: float
    most: float
    #: Does the reward depend on the outcome? Then bets are on reward plus next value together.
    joint: bool
    deterministic: bool
    #: Are all states known? Then the largest W of a step bounds those never met.
    complete: bool
    #: [law]: log(1/d) of one bet on it.
    log_share: Floats


class Tables(NamedTuple):
    """What was seen and what follows from it."""

    #: [entry]: U, why ruled out, and the samples of its law at the latest update.
    upper: Floats
    witness: Ints
    updated: Longs
    #: [step, law]: the nu that was best there; just one line where every law belongs to one step.
    guess: Floats
    #: [node]: W, is it dead, greedy row.
    value: Floats
    dead: Bytes
    greedy: Ints
    #: [step]: B, at least every W of the step.
    top: Floats
    #: [row]: is its reward known, and which it is.
    known: Bytes
    reward: Floats
    #: [group]: was it read, and the largest violation.
    tested: Bytes
    harm: Floats
    #: [law, 3]
    law: Longs
    #: [cell]: next slot, reward (where it depends on the outcome), samples, samples before the candidate was frozen.
    cell_next: Ints
    cell_reward: Floats
    cell_count: Longs
    cell_before: Longs


class Scratch(NamedTuple):
    """Room to work in; nothing in it is remembered."""

    #: [cell of one law]
    value: Floats
    count: Longs
    #: [law]: the step for which `law_bound` holds, and the bound of what follows (-inf: leads to a dead slot).
    law_step: Longs
    law_bound: Floats
    law_dead: Longs
    #: [step + 1]: the episode at hand.
    slot: Longs
    row: Longs
    following: Longs
    earned: Floats
    violated: Floats
