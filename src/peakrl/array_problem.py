"""Problems that are asked about many states at once: the fast way from a user's code to a model.

A state is a tuple of whole numbers within declared ranges, and so one number, its code (`array_kernels`). Breadth
first as in `explore`: `outcomes(step, state, action)` is asked for many states of a layer together, with an array for
each field, and a table by code finds which of the next states are new. States and rows come in the order in which
`explore` would have met them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from peakrl.problem import Outcome, Problem
from peakrl.tabular import TabularModel


class ArrayProblem(Problem):
    """A `Problem` whose states are tuples of whole numbers and whose methods take many states at once.

    `outcomes` gets an array for each field of the state and returns `Outcome`s whose parts are arrays of that length or
    single numbers: write `np.minimum` where a `Problem` would write `min`. An outcome that some states do not have gets
    the probability 0 there. Everything that takes a `Problem` takes it, and single states may be asked about as well.
    """

    #: {name of a field: (least, largest)}, in the order of the fields in a state.
    state_ranges: Mapping[str, tuple[int, int]]
    #: Every action that any state offers.
    all_actions: Sequence[Hashable]

    def available(self, step: int, state: tuple[Any, ...], action: Hashable) -> ArrayLike:
        """Return where an action is on offer, an array of truth values or one for all; by default it always is."""
        return True

    @abstractmethod
    def outcomes(self, step: int, state: Any, action: Hashable) -> Iterable[Outcome]:
        """Return what may happen in each of these states; the probabilities of each sum to 1."""

    def actions(self, step: int, state: Hashable) -> list[Hashable]:
        """Return the actions on offer in a single state."""
        fields: Any = state
        return [action for action in self.all_actions if bool(np.all(self.available(step, fields, action)))]

    def tabulate(self, memory_limit: float) -> TabularModel:
        """Return the model, as `compile_model` asks for it."""
        from peakrl.array_layers import Layers

        return Layers(self, memory_limit).model()
