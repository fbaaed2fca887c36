"""Why an action is not safe: the shortest way from it to a violation that cannot be avoided any more.

Either the action may violate by itself, or it may lead to a state that is not safe. From there the way goes on by
actions that do not violate themselves, always to a next state that is not safe, to the nearest dead end, a state whose
every action violates at once (`viability` has the distance). Nothing on the way would help: every action of every
state on it is unsafe too.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from peakrl.tabular import TabularModel
from peakrl.types import Ints

#: How many actions of a dead end are spelled out, and how many moves at either end of the way.
ACTIONS_SHOWN, MOVES_SHOWN = 3, 3
LABEL_WIDTH = 80


class Breach(NamedTuple):
    """A constraint that an action may violate."""

    #: Its name.
    constraint: str
    #: The least value that may come out, below 0.
    least: float
    #: The largest.
    most: float

    def __str__(self) -> str:
        return f"{self.constraint!r} {'by up to' if self.least < self.most else 'by'} {-self.least:.6g}"


@dataclass(frozen=True)
class Move:
    """One move on the way to a dead end: what is done, and what may come of it."""

    #: When it is made.
    step: int
    #: Where.
    state: Hashable
    #: What is done there; it violates nothing itself.
    action: Hashable
    #: A state that it may lead to and from which no policy is safe.
    next_state: Hashable
    #: How likely that is; what counts is that it may happen.
    probability: float

    def __str__(self) -> str:
        where = f"step {self.step}, state {shown(self.state)}, action {shown(self.action)}"
        return f"{where} may lead to {shown(self.next_state)} (probability {self.probability:.6g})"


@dataclass(frozen=True)
class Reason:
    """Why an action is not safe; `print` tells it in words."""

    #: From the action to the dead end; empty where the action may violate by itself.
    moves: tuple[Move, ...]
    #: When something is violated.
    step: int
    #: Where that happens.
    state: Hashable
    #: {action: what it may violate}: of the action itself, or of every action of the dead end.
    breaks: dict[Hashable, tuple[Breach, ...]]

    @property
    def violates(self) -> bool:
        """May the action violate by itself?"""
        return not self.moves

    def __str__(self) -> str:
        if self.violates:
            ((action, breaches),) = self.breaks.items()
            return f"at step {self.step} in state {shown(self.state)} {blame(action, breaches)}"
        texts = [str(move) for move in self.moves]
        if len(texts) > 2 * MOVES_SHOWN + 1:
            texts[MOVES_SHOWN:-MOVES_SHOWN] = [f"... {len(texts) - 2 * MOVES_SHOWN} more steps ..."]
        end = f"at step {self.step} in state {shown(self.state)} {every_action(self.breaks)}"
        return f"{' -> '.join(texts)}; {end}. Every other action on the way is unsafe as well"


def every_action(breaks: dict[Hashable, tuple[Breach, ...]]) -> str:
    """Return what is violated where every action violates something."""
    if not breaks:
        return "the episode was to be over, so that nothing is known of it"
    texts = [blame(*each) for each in islice(breaks.items(), ACTIONS_SHOWN)]
    more = f"; and so do {len(breaks) - ACTIONS_SHOWN} more" if len(breaks) > ACTIONS_SHOWN else ""
    return f"every action violates at once ({'; '.join(texts)}{more})"


def blame(action: Hashable, breaches: tuple[Breach, ...]) -> str:
    """Return which constraints an action may break and by how much."""
    return f"action {shown(action)} breaks {' and '.join(map(str, breaches))}"


def breaches_of(model: TabularModel, row: int) -> tuple[Breach, ...]:
    """Return the constraints that a row may violate."""
    first = int(model.payoffs.row_payoff[row])
    d = model.layout.row_distribution[row]
    outcomes = int(model.layout.outcome_start[d + 1] - model.layout.outcome_start[d])
    values = model.payoffs.constraints[first : first + (outcomes if model.payoffs.stride else 1)]
    found = zip(model.constraint_names, values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True)
    return tuple(Breach(*each) for each in found if each[1] < 0)


def dead_end(model: TabularModel, slot: int) -> dict[Hashable, tuple[Breach, ...]]:
    """Return {action: what it may violate} of a state."""
    return {model.action_of_row(row): breaches_of(model, row) for row in model.rows_of_slot(slot)}


def reason_of(model: TabularModel, distance: Ints, step: int, slot: int, row: int) -> Reason:
    """Return why a row that is not safe is not; `distance` is [node]."""
    if not model.keeps[row]:
        return Reason((), step, model.state_of_slot(slot), {model.action_of_row(row): breaches_of(model, row)})
    moves = []
    while True:
        following, probability = nearest_outcome(model, distance, step, row)
        state, after = model.state_of_slot(slot), model.state_of_slot(following)
        moves.append(Move(step, state, model.action_of_row(row), after, probability))
        step, slot = step + 1, following
        if distance[step * model.layout.node_stride + slot] == 0:
            break
        row = nearest_row(model, distance, step, slot)
    return Reason(tuple(moves), step, model.state_of_slot(slot), dead_end(model, slot))


def nearest_row(model: TabularModel, distance: Ints, step: int, slot: int) -> int:
    """Return the first row that starts a shortest way from an unsafe state to a dead end."""
    wanted = distance[step * model.layout.node_stride + slot] - 1
    for row in model.rows_of_slot(slot):
        if model.keeps[row]:
            following, _ = nearest_outcome(model, distance, step, row)
            if distance[(step + 1) * model.layout.node_stride + following] == wanted:
                return row
    raise AssertionError("no action of an unsafe state is as near to a dead end as the state is")


def nearest_outcome(model: TabularModel, distance: Ints, step: int, row: int) -> tuple[int, float]:
    """Return the unsafe next slot of a row that is nearest to a dead end (of several the likeliest), and how likely."""
    layout = model.layout
    d = layout.row_distribution[row]
    outcomes = slice(layout.outcome_start[d], layout.outcome_start[d + 1])
    following = layout.outcome_next[outcomes]
    away = distance[(step + 1) * layout.node_stride + following]
    nearest = away == away[away >= 0].min()
    place = int(np.argmax(np.where(nearest, layout.outcome_probability[outcomes], -1.0)))
    return int(following[place]), float(layout.outcome_probability[outcomes][place])


def shown(value: Hashable) -> str:
    """Return a label as text that stays readable in a message."""
    text = repr(value)
    return text if len(text) <= LABEL_WIDTH else text[: LABEL_WIDTH - 3] + "..."
