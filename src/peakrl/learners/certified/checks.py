"""What arrays of a certified learner that come from a file must satisfy before a kernel sees them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from peakrl.learners.certified.confidence import (
    ATTEMPTS,
    CANDIDATES,
    CHALLENGES,
    DEAD_FIRST,
    EPISODES,
    FROZEN,
    KIND,
    LEFT,
    PASSED,
    POLICIES,
)
from peakrl.learners.certified.episodes import GAUGED, GRID, PLAYED, VIOLATED
from peakrl.learners.certified.evidence import cells_before, counted
from peakrl.learners.certified.phases import CANDIDATE
from peakrl.learners.certified.tables import BEFORE, CELLS, OPEN, SAMPLES
from peakrl.learners.infeasibility import DECLARED

if TYPE_CHECKING:
    from peakrl.learners.certified.learner import CertifiedLearner

#: Columns of the status that count something.
COUNTS = [CHALLENGES, CANDIDATES, POLICIES, ATTEMPTS, EPISODES]


def check_restored(learner: CertifiedLearner, done: int) -> None:
    """Raise ValueError where an array holds what cannot be after `done` episodes."""
    check_status(learner, done)
    check_rows(learner)
    check_counts(learner, done)
    check_numbers(learner)
    learner.proof()  # which must rest on something


def check_status(learner: CertifiedLearner, done: int) -> None:
    """Raise where the rounds stand where they cannot."""
    r = learner.rounds
    status, slots = r.status, learner.space.slots
    inside = 0 <= status[KIND] <= CANDIDATE and 0 <= status[PASSED] <= len(r.goal.epsilons)
    counted = status[EPISODES] == done and status[FROZEN] in (0, 1) and (status[COUNTS] >= 0).all()
    dead = status[DEAD_FIRST] == OPEN or 0 <= status[DEAD_FIRST] < slots
    over = status[PASSED] == len(r.goal.epsilons) or status[DEAD_FIRST] != OPEN
    if not (inside and counted and dead) or (status[LEFT] <= 0 and not over):
        raise ValueError("status is none that a run can have")
    if status[FROZEN] and status[POLICIES] == 0:
        raise ValueError("status tells of a frozen candidate before the first")


def check_rows(learner: CertifiedLearner) -> None:
    """Raise where a table of rows names one that its state has not, or a witness that is none."""
    r = learner.rounds
    slot = r.nodes - r.node_step * r.places.node_stride
    first, last = r.places.row_start[slot], r.places.row_start[slot + 1]
    for name in ("candidate", "followed", "challenger", "greedy"):
        table = r.tables.greedy if name == "greedy" else getattr(r, name)
        rows = table[r.nodes]
        unset = name != "greedy" and not table.any()
        if not unset and ((rows < first) | (rows >= last)).any():
            raise ValueError(f"{name} names a row that its state has not")
    if ((r.tables.witness < DECLARED) | (r.tables.witness >= learner.space.slots)).any():
        raise ValueError("witness names a state that there is not")


def check_counts(learner: CertifiedLearner, done: int) -> None:
    """Raise where counts do not add up, or a cell names a state that there is not."""
    r, slots = learner.rounds, learner.space.slots
    own = SimpleNamespace(**counted(r), cell_before=cells_before(r))
    room = np.diff(np.append(own.cell_start, len(own.cell_next)))
    for law, count, before in (
        (own.law, own.cell_count, own.cell_before),
        (own.then_law, own.then_count, own.then_before),
    ):
        if (law < 0).any() or (law[:, CELLS] > room).any() or (law[:, BEFORE] > law[:, SAMPLES]).any():
            raise ValueError("law counts what cannot be")
        if (count < 0).any() or (before < 0).any() or (before > count).any():
            raise ValueError("cells count what cannot be")
        if (np.add.reduceat(count, own.cell_start) != law[:, SAMPLES]).any():
            raise ValueError("the cells of a law do not add up to its samples")
    if r.places.noises and (own.law[0, CELLS] != r.places.noises or own.then_law[0, CELLS] not in (0, r.places.noises)):
        raise ValueError("law counts other noises than there are")
    if ((own.cell_next < 0) | (own.cell_next >= slots)).any():
        raise ValueError("a cell names a state that there is not")
    if own.law[-1, SAMPLES] != done:
        raise ValueError("first states do not add up to the episodes")
    evidence = r.evidence
    for number, column in ((PLAYED, evidence.returns), (GAUGED, evidence.gaps)):
        if len(column) != GRID + 1 or (column < 0).any() or column.sum() != evidence.counts[number]:
            raise ValueError("the returns of the candidate do not add up to its episodes")
    if not 0 <= evidence.counts[VIOLATED] <= evidence.counts[PLAYED] <= done:
        raise ValueError("the episodes of the candidate are more than there were")


def check_numbers(learner: CertifiedLearner) -> None:
    """Raise where a value is none that can be."""
    tables, evidence = learner.rounds.tables, learner.rounds.evidence
    for array in (tables.upper, tables.value, tables.top, tables.reward, tables.cell_reward, evidence.gap):
        if not np.isfinite(array).all():
            raise ValueError("a value is not finite")
    if not (tables.harm >= 0).all() or not np.isfinite(tables.harm).all() or not np.isfinite(evidence.scale).all():
        raise ValueError("a violation or a return is not finite")
    course = learner.proof_history()
    if len(course) and (np.diff(course.episode) <= 0).any():
        raise ValueError("the course of the proof is not in order")
    if (evidence.gap < 0).any() or (evidence.scale[2] >= 0 and evidence.gap.max() > evidence.scale[2]):
        raise ValueError("a gap lies outside of what was frozen")
