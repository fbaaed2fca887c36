"""The arrays of an energy-harvesting model, computed from its formulas.

Slots, rows, distributions and payoffs have the order of a breadth-first search, so that the model equals that of
`compile.explore` in every number.

A slot has the powers 0 .. b + e, so that a row's action and payoff record are its power. The future depends only on the
remaining level min(B, b + e - P) and on the distribution of the next arrival: rows that agree on both share one
distribution. A slot's code is b * (largest arrival + 1) + e.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.compile import guard_memory
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import header_of
from peakrl.problems.harvesting.arrivals import Arrivals, FrozenArrivals, IndependentArrivals
from peakrl.space import expand, in_order_of_occurrence, starts_of
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Distributions, Floats, Longs, Payoffs

if TYPE_CHECKING:
    from peakrl.problems.harvesting.energy import EnergyHarvesting

#: Bytes of each cell of the tables by (level, arrival) and (level, kind) of a search.
BYTES_A_CELL = 16


def tabulate(problem: EnergyHarvesting, memory_limit: float) -> TabularModel:
    """Return the model."""
    horizon = MOST_STEPS if problem.horizon is None else problem.horizon
    levels = min(problem.battery, horizon * problem.arrivals.largest) + 1
    size = problem.arrivals.largest + 1
    if BYTES_A_CELL * levels * size > memory_limit:
        raise ProblemError(
            f"{problem.name!r} has up to {levels:,} battery levels and {size:,} arrivals: a table of them is beyond "
            f"the limit of {memory_limit / 1e9:.1f} GB. Use a coarser unit of energy, or raise memory_limit"
        )
    search = Search(problem, levels, size)
    for step in range(horizon):
        if not len(search.layers[-1]):
            break  # every state is known
        search.expand(step, memory_limit)
    return search.model()


class Search:
    """Breadth-first search by layers. If arrivals are stationary, states and distributions keep their numbers."""

    def __init__(self, problem: EnergyHarvesting, levels: int, size: int) -> None:
        self.problem, self.levels, self.size = problem, levels, size
        chances, arrivals = zip(*problem.arrivals.first(), strict=True)
        self.first_probability = np.array(chances)
        #: [level, arrival] and [level, kind]: -1 if it has no number yet.
        self.slot, self.distribution = np.full(levels * size, -1), np.empty(0, np.int64)
        self.layers: list[Longs] = [np.array(arrivals)]
        self.slot[self.layers[0]] = np.arange(len(arrivals))
        self.slots, self.distributions, self.num_rows = len(arrivals), [0], 0
        #: By layer: power and distribution of each row; number of outcomes of each distribution, next slots, chances.
        self.rows: list[tuple[Longs, Longs]] = []
        self.outcomes: list[tuple[Longs, Longs, Floats]] = []
        self.kinds, self.kind_of = next_distributions(problem.arrivals, 0)

    def expand(self, step: int, memory_limit: float) -> None:
        """Store the rows of the last layer, and the new distributions and slots that they lead to."""
        if not self.problem.stationary:
            self.slot[self.layers[-1]] = -1
            self.kinds, self.kind_of = next_distributions(self.problem.arrivals, step)
        kinds = len(self.kinds)
        if step == 0 or not self.problem.stationary:
            self.distribution = np.full(self.levels * kinds, -1)
        level, arrival = np.divmod(self.layers[-1], self.size)
        available = level + arrival
        self.num_rows += int((available + 1).sum())
        guard_memory(self.problem.name, self.slots, self.num_rows, step, memory_limit)
        of_row = np.repeat(np.arange(len(level)), available + 1)
        power = expand(np.zeros_like(available), available + 1)
        left = np.minimum(self.problem.battery, available[of_row] - power)
        pair = left * kinds + self.kind_of[arrival][of_row]
        new_pairs = without_number(pair, self.distribution)
        self.distribution[new_pairs] = self.distributions[-1] + np.arange(len(new_pairs))
        self.rows.append((power, self.distribution[pair]))

        which, following = np.nonzero(self.kinds[new_pairs % kinds])
        code = (new_pairs // kinds)[which] * self.size + following
        new_slots = without_number(code, self.slot)
        self.slot[new_slots] = self.slots + np.arange(len(new_slots))
        target = self.slot[code]
        order = np.lexsort((target, which))
        probability = self.kinds[new_pairs[which] % kinds, following]
        self.outcomes.append((np.bincount(which, minlength=len(new_pairs)), target[order], probability[order]))
        self.layers.append(new_slots)
        self.slots += len(new_slots)
        self.distributions.append(self.distributions[-1] + len(new_pairs))

    def model(self) -> TabularModel:
        """Return the model of what was found."""
        sizes = [len(layer) for layer in self.layers]
        codes, layer_start = np.concatenate(self.layers), starts_of(sizes)
        power, distribution = joined(self.rows)
        outcomes, target, probability = joined(self.outcomes)
        outcome_start = starts_of(outcomes)
        counts = np.add(*np.divmod(codes, self.size)) + 1
        counts[layer_start[-2] :] = 0  # reached only after the last step
        # Slots are numbered by the step at which they first occur: a row that leads to the same or an earlier depth
        # shows that some state occurs at two steps. Its nearest next slot is the first, since they are sorted.
        depth = np.repeat(np.arange(len(sizes)), sizes)
        shared = bool((depth[target[outcome_start[distribution]]] != np.repeat(depth, counts) + 1).any())
        labels, slot_state = in_order_of_occurrence(codes)
        powers = int(power.max()) + 1
        constraints = self.problem.peak_power - np.arange(powers, dtype=np.float64)
        rewards = np.array(self.problem.rates[:powers])
        return assemble(
            header_of(self.problem),
            Distributions(distribution, outcome_start, target, probability, self.distributions),
            Payoffs(0, power.astype(np.int32), rewards, constraints[:, None]),
            state_labels=list(zip(*(part.tolist() for part in np.divmod(labels, self.size)), strict=True)),
            slot_state=slot_state,
            action_labels=list(range(powers)),
            row_action=power,
            row_start=starts_of(counts),
            first_slot=np.arange(len(self.first_probability)),
            first_probability=self.first_probability,
            layer_start=None if shared else layer_start,
        )


def next_distributions(process: Arrivals, step: int) -> tuple[Floats, Longs]:
    """Return the distinct distributions of the next arrival, [kind, arrival], and [arrival]: its kind."""
    if isinstance(process, IndependentArrivals | FrozenArrivals):
        kinds = np.zeros((1, process.largest + 1))
        for chance, arrival in process.following(step, 0):
            kinds[0, arrival] = chance
        return kinds, np.zeros(process.largest + 1, np.int64)
    kinds, kind = np.unique(np.array(process.rows(step)), axis=0, return_inverse=True)
    return kinds, kind.ravel().astype(np.int64)


def without_number(codes: Longs, number: Longs) -> Longs:
    """Return the distinct codes that have no number yet, in the order of their first occurrence."""
    distinct, first = np.unique(codes, return_index=True)
    ordered = distinct[np.argsort(first)]
    return ordered[number[ordered] < 0]


def joined(layers: list[Any]) -> list[NDArray[Any]]:
    """Return the arrays of all layers, joined."""
    return [np.concatenate(arrays) for arrays in zip(*layers, strict=True)]
