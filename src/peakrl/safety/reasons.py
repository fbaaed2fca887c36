"""Why an action is not safe: the shortest path from it to a violation that cannot be avoided.

Either the action may violate by itself, or it may lead to a state that is not safe. From there the path continues with
actions that do not violate themselves, always to a next state that is not safe, to the nearest dead end, a state whose
every action violates immediately (`viability` has the distance). Every action of every state on the path is unsafe.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from peakrl.tabular import TabularModel
from peakrl.types import Ints

#: The number of actions of a dead end in a message, and of moves at either end of the path.
ACTIONS_SHOWN, MOVES_SHOWN = 3, 3
LABEL_WIDTH = 80


class Breach(NamedTuple):
    """A constraint that an action may violate."""

    #: Its name.
    constraint: str
    #: The least possible value, below 0.
    least: float
    #: The largest possible value.
    most: float

    def __str__(self) -> str:
        return f"{self.constraint!r} {'by up to' if self.least < self.most else 'by'} {-self.least:.6g}"


@dataclass(frozen=True)
class Move:
    """One move of the path to a dead end."""

    #: The step.
    step: int
    #: The state.
    state: Hashable
    #: The action, which violates nothing itself.
    action: Hashable
    #: A possible next state from which no policy is safe.
    next_state: Hashable
    #: The probability of that next state.
    probability: float

    def __str__(self) -> str:
        where = f"step {self.step}, state {shown(self.state)}, action {shown(self.action)}"
        return f"{where} may lead to {shown(self.next_state)} (probability {self.probability:.6g})"


@dataclass(frozen=True)
class Reason:
    """Why an action is not safe; `str` returns a sentence."""

    #: From the action to the dead end; empty if the action may violate by itself.
    moves: tuple[Move, ...]
    #: The step of the violation.
    step: int
    #: The state of the violation.
    state: Hashable
    #: {action: what it may violate}: of the action itself, or of every action of the dead end.
    breaks: dict[Hashable, tuple[Breach, ...]]

    @property
    def violates(self) -> bool:
        """Whether the action may violate by itself."""
        return not self.moves

    def __str__(self) -> str:
        if self.violates:
            ((action, breaches),) = self.breaks.items()
            return f"at step {self.step} in state {shown(self.state)} {blame(action, breaches)}"
        return f"{self.path}; {self.end}. Every other action on the path is unsafe as well"

    @property
    def path(self) -> str:
        """The moves to the dead end."""
        texts = [str(move) for move in self.moves]
        if len(texts) > 2 * MOVES_SHOWN + 1:
            texts[MOVES_SHOWN:-MOVES_SHOWN] = [f"... {len(texts) - 2 * MOVES_SHOWN} more steps ..."]
        return " -> ".join(texts)

    @property
    def end(self) -> str:
        """The dead end."""
        return f"at step {self.step} in state {shown(self.state)} {every_action(self.breaks)}"


def every_action(breaks: dict[Hashable, tuple[Breach, ...]]) -> str:
    """Return what is violated in a dead end."""
    if not breaks:
        return "the model has no actions, since the episode should be over"
    texts = [blame(*each) for each in islice(breaks.items(), ACTIONS_SHOWN)]
    more = f"; and {len(breaks) - ACTIONS_SHOWN} more" if len(breaks) > ACTIONS_SHOWN else ""
    return f"every action violates immediately ({'; '.join(texts)}{more})"


def blame(action: Hashable, breaches: tuple[Breach, ...]) -> str:
    """Return which constraints an action may violate and by how much."""
    return f"action {shown(action)} violates {' and '.join(map(str, breaches))}"


def breaches_of(model: TabularModel, row: int) -> tuple[Breach, ...]:
    """Return the constraints that a row may violate."""
    first, outcomes = int(model.payoffs.row_payoff[row]), len(model.next_slots(row))
    values = model.payoffs.constraints[first : first + (outcomes if model.payoffs.stride else 1)]
    found = zip(model.constraint_names, values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True)
    return tuple(Breach(*each) for each in found if each[1] < 0)


def dead_end(model: TabularModel, slot: int) -> dict[Hashable, tuple[Breach, ...]]:
    """Return {action: what it may violate} of a state."""
    return {model.action_of_row(row): breaches_of(model, row) for row in model.rows_of_slot(slot)}


def why_infeasible(model: TabularModel, distance: Ints) -> str:
    """Return why no policy satisfies every constraint: the way from the likeliest unsafe first state to a dead end."""
    unsafe = np.where(distance[model.first_slot] >= 0, model.first_probability, -1.0)
    slot, probability = int(model.first_slot[np.argmax(unsafe)]), float(unsafe.max())
    reason = way_to_dead_end(model, distance, 0, slot)
    known = model.infeasible_reason
    why = "no policy satisfies every constraint" if known is None else f"{known}. Step by step"
    if reason.violates:
        return f"{why}: {reason.end}. It is a first state, with probability {probability:.6g}."
    return (
        f"{why}: {reason.end}. It can be reached without a violation from a first state of probability "
        f"{probability:.6g} ({reason.path}), and every other action on the path is unsafe as well."
    )


def reason_of(model: TabularModel, distance: Ints, step: int, slot: int, row: int) -> Reason:
    """Return why an unsafe row is not safe; `distance` is [node]."""
    if not model.keeps[row]:
        return Reason((), step, model.state_of_slot(slot), {model.action_of_row(row): breaches_of(model, row)})
    return way_to_dead_end(model, distance, step, slot, row)


def way_to_dead_end(model: TabularModel, distance: Ints, step: int, slot: int, row: int | None = None) -> Reason:
    """Return a shortest way from an unsafe state to a dead end; it begins with `row` if one is given."""
    moves: list[Move] = []
    while row is not None or distance[step * model.node_stride + slot] > 0:
        row = nearest_row(model, distance, step, slot) if row is None else row
        following, probability = nearest_outcome(model, distance, step, row)
        state, after = model.state_of_slot(slot), model.state_of_slot(following)
        moves.append(Move(step, state, model.action_of_row(row), after, probability))
        step, slot, row = step + 1, following, None
    return Reason(tuple(moves), step, model.state_of_slot(slot), dead_end(model, slot))


def nearest_row(model: TabularModel, distance: Ints, step: int, slot: int) -> int:
    """Return the first row of a shortest path from an unsafe state to a dead end."""
    wanted = distance[step * model.node_stride + slot] - 1
    for row in model.rows_of_slot(slot):
        if model.keeps[row]:
            following, _ = nearest_outcome(model, distance, step, row)
            if distance[(step + 1) * model.node_stride + following] == wanted:
                return row
    raise AssertionError("no action of an unsafe state is as near to a dead end as the state is")


def nearest_outcome(model: TabularModel, distance: Ints, step: int, row: int) -> tuple[int, float]:
    """Return the unsafe next slot nearest to a dead end (the most probable of several), and its probability."""
    outcomes = model.outcomes_of_row(row)
    following, probability = model.outcome_next[outcomes], model.outcome_probability[outcomes]
    away = distance[(step + 1) * model.node_stride + following]
    nearest = away == away[away >= 0].min()
    index = int(np.argmax(np.where(nearest, probability, -1.0)))
    return int(following[index]), float(probability[index])


def shown(value: Hashable) -> str:
    """Return a label as text of limited length for messages."""
    text = repr(value)
    return text if len(text) <= LABEL_WIDTH else text[: LABEL_WIDTH - 3] + "..."
