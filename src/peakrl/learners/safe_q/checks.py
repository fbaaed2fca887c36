"""Tables of SafeQ from a file: whatever a kernel will trust is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peakrl.learners.base import refuse_no_numbers
from peakrl.learners.constraint_memory import DECLARED, NO_WITNESS

if TYPE_CHECKING:
    from peakrl.learners.safe_q.learner import PracticalLearner

#: 31 bits count visits: a file that tells of more than half of that leaves too little room for what is to come.
MOST_VISITS = 2**30


def check_practical(learner: PracticalLearner, done: int) -> None:
    """Raise where an index leads nowhere or a count cannot be after `done` episodes."""
    space, start = learner.space, learner.layout.row_start
    rows, has = learner.by_slot["greedy"].used, (np.diff(start) > 0)[:, None]
    if (((rows < start[:-1, None]) | (rows >= start[1:, None])) & has).any():
        raise ValueError("a greedy row is none of its state's")
    most = min(done * space.horizon, MOST_VISITS)
    limits = {
        "visits": (0, most), "witness": (DECLARED, space.slots - 1),
        "law_witness": (NO_WITNESS, space.slots - 1), "tried": (0, most), "met": (0, most),
    }  # fmt: skip
    arrays = learner.arrays()
    for name, (least, most) in limits.items():
        array = arrays.get(name, np.empty(0))
        if array.size and not (array.min() >= least and array.max() <= most):
            raise ValueError(f"engine.{name} holds a number that cannot be")
    remembers, proved, dead = learner.fixed["status"].tolist()
    if remembers not in (0, 1) or not 0 <= proved <= done or not 0 <= dead < space.slots:
        raise ValueError("engine.status holds a number that cannot be")
    refuse_no_numbers(arrays, ("q", "w", "x"), lost=True)
    refuse_no_numbers(arrays, ("errors", "harm", "reward", "square"))
    spread = arrays["errors"][..., 1:] if "errors" in arrays else np.empty(0)
    squares = arrays.get("square", np.empty(0))
    if min(part.min(initial=0.0) for part in (arrays["harm"], squares, spread)) < 0.0:
        raise ValueError("engine.harm, engine.square or engine.errors is below 0")
    check_lost(learner)
    check_witnesses(learner)
    if proved and (dead < space.ends or not has[dead] or (not space.shared and space.slot_step[dead] != 0)):
        raise ValueError("engine.status names a first state that is none")
    learner.proof()


def check_lost(learner: PracticalLearner) -> None:
    """Raise where an action is given up without a reason, or a state of which an action is not: proofs rest on it."""
    q, start = learner.by_row["q"].used, learner.layout.row_start
    lost = q == -np.inf
    if (lost & (learner.by_row["witness"].used == NO_WITNESS)).any():
        raise ValueError("engine.q gives up an action that was never seen to fail")
    if ((learner.fixed["x"] == -np.inf) & (learner.fixed["law_witness"] == NO_WITNESS)).any():
        raise ValueError("engine.x gives up a law that was never seen to fail")
    some = np.flatnonzero(np.diff(start) > 0)
    if some.size:
        left = ~np.logical_and.reduceat(lost, start[some], axis=0)
        if (left & (learner.by_slot["w"].used[some, : q.shape[1]] == -np.inf)).any():
            raise ValueError("engine.w gives up a state that has an action left")


def check_witnesses(learner: PracticalLearner) -> None:
    """Raise where an action is said to lead to a dead state that is not one of the next step: proofs end."""
    space, witness = learner.space, learner.by_row["witness"].used
    rows, columns = np.nonzero(witness >= 0)
    dead = witness[rows, columns]
    if (dead < space.ends).any() or not (np.diff(learner.layout.row_start)[dead] > 0).all():
        raise ValueError("engine.witness names the end of an episode")
    steps = columns if space.shared else space.slot_step[space.slot_of_row[rows]]
    after = steps + 1 if space.shared else space.slot_step[dead]
    if (after != steps + 1).any() or (after >= space.horizon).any():
        raise ValueError("engine.witness names a state of another step than the next")
