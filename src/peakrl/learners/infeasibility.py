"""What a learner has seen fail, and the proof of infeasibility that follows where nothing else is left.

An entry fails where it was seen to violate, where it is declared to, or where it was seen to lead to a state in which
every entry fails. A first state in which every entry fails proves that no policy keeps every constraint.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import StorageError
from peakrl.learners.space import Space
from peakrl.policy.export import BARRED, DEAD_END, UNKNOWN, VIOLATED
from peakrl.types import Floats

#: Witness of a forbidden entry: none yet, seen to violate, declared to fail; a slot: seen to lead to that dead one.
NO_WITNESS, VIOLATES, DECLARED = -2, -1, -3


@dataclass(frozen=True)
class Witness:
    """One line of a proof of infeasibility: an action that was seen to fail."""

    step: int
    state: Hashable
    action: Hashable
    #: The violation seen, or the state it led to from which no action is left.
    violation: float | None
    dead_state: Hashable | None

    def __str__(self) -> str:
        seen = f"violates by {self.violation:g}" if self.violation is not None else f"leads to {self.dead_state!r}"
        return f"step {self.step}, state {self.state!r}, action {self.action!r} {seen}"


@dataclass(frozen=True)
class Memory:
    """What has been seen to fail, in the order of the tables."""

    #: [row, column]: nothing (-2), violates (-1), declared (-3), else the slot that it led to and that is a dead end.
    witness: NDArray[np.int32]
    #: [row]: the largest violation seen.
    max_violation: Floats

    def known(self, space: Space, *, violated_only: bool = False) -> NDArray[np.int8]:
        """[entry]: what is known (`policy.export`); `violated_only`: whatever did max_violation counts as VIOLATED."""
        did = (self.max_violation > 0)[:, None]
        violates = (self.witness == VIOLATES) | ((self.witness == DECLARED) & did) | (violated_only & did)
        failed = np.where(self.witness == NO_WITNESS, UNKNOWN, np.where(self.witness == DECLARED, BARRED, DEAD_END))
        return space.entries_of(np.where(violates, VIOLATED, failed).astype(np.int8))

    def proof(self, space: Space, first: int) -> list[Witness]:
        """Every observation that the proof rests on, from the dead first state on."""
        start, lines = space.layout.row_start, []
        queue = [(0, first)]
        seen = set(queue)
        for step, slot in queue:
            for row in range(int(start[slot]), int(start[slot + 1])):
                witness = int(self.witness[row, step if space.shared else 0])
                if witness == NO_WITNESS:  # of a forged file only: what learning proves rests on what it saw
                    raise StorageError("the run tells of a proof that rests on an action never seen to fail")
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
                # After the last step nothing is dead: a forged file that says so leads nowhere.
                if led and step + 1 < space.horizon and (step + 1, witness) not in seen:
                    seen.add((step + 1, witness))
                    queue.append((step + 1, witness))
        return lines
