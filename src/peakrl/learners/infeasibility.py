"""What is known to fail, and the proof of infeasibility that follows from it.

An entry fails if it was observed to violate, is declared to, or was observed to lead to a state in which every entry
fails. A first state in which every entry fails proves that no policy satisfies every constraint.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import StorageError
from peakrl.learners.space import Space
from peakrl.policy.export import DEAD_END, FORBIDDEN, UNKNOWN, VIOLATED
from peakrl.types import Floats

#: Witness of an entry: not known to fail, observed to violate, declared to fail; otherwise the dead slot it led to.
NO_WITNESS, VIOLATES, DECLARED = -2, -1, -3


@dataclass(frozen=True)
class Witness:
    """One line of a proof of infeasibility: an action that is known to fail."""

    step: int
    state: Hashable
    action: Hashable
    #: The violation, or the state it led to, in which every action fails.
    violation: float | None
    dead_state: Hashable | None

    def __str__(self) -> str:
        seen = f"violates by {self.violation:g}" if self.violation is not None else f"leads to {self.dead_state!r}"
        return f"step {self.step}, state {self.state!r}, action {self.action!r} {seen}"


@dataclass(frozen=True)
class Memory:
    """What is known to fail, in the order of the tables."""

    #: [row, column]: NO_WITNESS, VIOLATES, DECLARED, or the dead slot that it led to.
    witness: NDArray[np.int32]
    #: [row]: the largest violation observed or declared.
    max_violation: Floats

    def known(self, space: Space) -> NDArray[np.int8]:
        """[entry]: codes of `policy.export`."""
        did = (self.max_violation > 0)[:, None]
        violates = (self.witness == VIOLATES) | ((self.witness == DECLARED) & did)
        failed = np.where(self.witness == NO_WITNESS, UNKNOWN, np.where(self.witness == DECLARED, FORBIDDEN, DEAD_END))
        return space.entries_of(np.where(violates, VIOLATED, failed).astype(np.int8))

    def proof(self, space: Space, first: int) -> list[Witness]:
        """Every observation that the proof rests on, from the dead first state on."""
        start, lines, ahead = space.layout.row_start, [], int(space.discount is None)
        queue = [(0, first)]
        seen = set(queue)
        for step, slot in queue:
            for row in range(int(start[slot]), int(start[slot + 1])):
                witness = int(self.witness[row, step * space.shift])
                if witness == NO_WITNESS:  # in a damaged file only
                    raise StorageError(
                        "the proof of infeasibility in this file is damaged: an action is not known to fail"
                    )
                led = witness >= 0
                lines.append(
                    Witness(
                        step,
                        space.state_of_slot(slot),
                        space.action_of_row(row),
                        None if led else float(self.max_violation[row]),
                        space.state_of_slot(witness) if led else None,
                    )
                )
                # Nothing is dead after the last step.
                if led and step + ahead < space.horizon and (step + ahead, witness) not in seen:
                    seen.add((step + ahead, witness))
                    queue.append((step + ahead, witness))
        return lines
