"""A message that explains why a problem is infeasible.

A node is unsafe if every policy may violate from there on. Then each of its actions either violates immediately or may
lead to another unsafe node; after the last step nothing is unsafe. So a path along actions that do not violate
themselves, always to an unsafe outcome, ends at a dead end: a node at which every action violates immediately. The path
takes the planner's action, the one of least violation, if that one does not violate by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peakrl.policy.tables import Choices
from peakrl.safety.reasons import MOVES_SHOWN, dead_end, every_action, shown
from peakrl.tabular import TabularModel
from peakrl.types import Floats


@dataclass(frozen=True)
class Move:
    """One move of the path: `row` is taken at `step` in `slot`."""

    step: int
    slot: int
    row: int


def explain(model: TabularModel, cost: Floats, choices: Choices) -> str:
    """Return the reason, given each node's least violation and the choices."""
    likely = np.argmax(np.where(cost[model.first_slot] > 0, model.first_probability, -1.0))
    moves, step, slot = walk_to_dead_end(model, cost, choices, int(model.first_slot[likely]))
    why = "no policy satisfies every constraint"
    if model.infeasible_reason is not None:
        why = f"{model.infeasible_reason}. Step by step"
    return (
        f"{why}: at step {step} in state {shown(model.state_of_slot(slot))} {every_action(dead_end(model, slot))}. "
        f"{path(model, moves, float(model.first_probability[likely]))}"
    )


def walk_to_dead_end(model: TabularModel, cost: Floats, choices: Choices, slot: int) -> tuple[list[Move], int, int]:
    """Return the moves from an unsafe first slot to a dead end, and that node."""
    layout = model.layout
    moves: list[Move] = []
    for step in range(model.horizon):
        candidates = (choices.row(step, slot), *model.rows_of_slot(slot))
        row = next((row for row in candidates if model.keeps[row]), None)
        if row is None:
            return moves, step, slot
        moves.append(Move(step, slot, row))
        d = layout.row_distribution[row]
        outcomes = slice(layout.outcome_start[d], layout.outcome_start[d + 1])
        following = layout.outcome_next[outcomes]
        unsafe = cost[(step + 1) * layout.node_stride + following] > 0
        slot = int(following[np.argmax(np.where(unsafe, layout.outcome_probability[outcomes], -1.0))])
    raise AssertionError("an unsafe state at the last step has an action that does not violate")


def path(model: TabularModel, moves: list[Move], probability: float) -> str:
    """Return how the dead end is reached."""
    if not moves:
        return f"It is a first state, with probability {probability:.6g}."
    texts = []
    for move in moves:
        state, action = model.state_of_slot(move.slot), model.action_of_row(move.row)
        texts.append(f"step {move.step}, state {shown(state)}, action {shown(action)}")
    if len(texts) > 2 * MOVES_SHOWN + 1:
        left_out = len(texts) - 2 * MOVES_SHOWN
        texts[MOVES_SHOWN:-MOVES_SHOWN] = [f"... {left_out} more steps ..."]
    return (
        f"It can be reached without a violation from a first state of probability {probability:.6g} "
        f"({' -> '.join(texts)}), and every other action on the path violates or may lead to a dead end as well."
    )
