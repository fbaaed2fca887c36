"""What a learned policy does in states of an environment that were not visited: part of what its certificate is about.

Actions have ranks; of those that are available the first one of the lowest rank is taken. Declarations may forbid
further actions. They are functions, which files and C headers cannot hold: without them the fallback does not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import shown
from peakrl.errors import PolicyError, UnknownStateError
from peakrl.policy.export import plain
from peakrl.space import StateSpace
from peakrl.visited import label_of

#: The constraints of the action are known to be satisfied, not known, or known to be violated.
SATISFIED, NOT_KNOWN, VIOLATED = 0, 1, 2
#: (step, state, actions) -> [action]: is it forbidden by declarations?
Forbids = Callable[[int, Any, Sequence[Hashable]], NDArray[np.bool_]]


class Fallback:
    """The rule of a policy for states that were not visited."""

    def __init__(
        self, space: StateSpace, rank: NDArray[np.int8], *, limited: bool = False, forbids: Forbids | None = None
    ) -> None:
        actions = len(space.action_labels)
        if rank.dtype != np.int8 or rank.shape not in ((1, actions), (space.num_states + 1, actions)):
            raise PolicyError(f"the ranks of actions are {rank.dtype} of shape {rank.shape}")
        if rank.size and not SATISFIED <= rank.min() <= rank.max() <= VIOLATED:
            raise PolicyError("a rank of an action is out of range")
        self.space = space
        #: [state, action] for states that were visited at another step; the last line is for all others.
        self.rank = rank
        #: Do declarations forbid further actions, and which; None if it is not known.
        self.limited, self.forbids = limited, forbids

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {label: number for number, label in enumerate(self.space.action_labels)}

    @cached_property
    def _kinds(self) -> set[type]:
        return set(map(type, self.space.state_labels))

    def action(self, step: int, state: Any, actions: Sequence[Hashable] | None = None) -> Hashable:
        """Return the action in a state that was not visited at `step`; `actions` are available, by default all."""
        label, offered = label_of(state), list(self.space.action_labels if actions is None else actions)
        if self.limited and self.forbids is None:
            raise UnknownStateError(
                f"state {label!r} was not visited at step {step} while learning; what the policy does there depends on "
                "declared functions, which a file does not hold: load the run with the same assumptions"
            )
        if self._kinds and type(label) not in self._kinds:
            like = self.space.state_labels[0]
            raise PolicyError(f"state {label!r} cannot occur on {self.space.name!r}, whose states are like {like!r}")
        foreign = [action for action in offered if action not in self._numbers]
        if foreign:
            raise PolicyError(f"{self.space.name!r} has no action {foreign[0]!r}; it has {shown(list(self._numbers))}")
        line = self.rank[min(self.space.state_number(label), len(self.rank) - 1)]
        rank = line[[self._numbers[action] for action in offered]]
        if self.forbids is not None:
            forbidden = self.forbids(step, label, offered)
            rank = np.where(forbidden & ~forbidden.all(), VIOLATED, rank)
        return offered[int(np.argmin(rank))]

    def preferred(self, line: int = -1) -> list[Any]:
        """Return the actions in the order of preference, for JSON."""
        return [plain(self.space.action_labels[number]) for number in np.argsort(self.rank[line], kind="stable")]

    def described(self) -> dict[str, Any]:
        """Return the rule for JSON: in a state without a decision, the first of these actions that is available."""
        states = [
            {"state": plain(label), "actions": self.preferred(line)}
            for line, label in enumerate(self.space.state_labels[: len(self.rank) - 1])
        ]
        return {"actions": self.preferred(), "states": states, "limited_by_declarations": self.limited}
