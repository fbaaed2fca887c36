"""The arrays of an energy-harvesting model, computed from its formulas.

Slots, rows, distributions and payoffs have the order of a breadth-first search, so that the model equals that of
`compile.explore` in every number.

A slot has the powers 0 .. b + e, so that a row's action and payoff record are its power. The future depends only on the
remaining level min(B, b + e - P) and on the distribution of the next arrival: rows that agree on both share one
distribution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from peakrl.compile import guard_memory
from peakrl.errors import ProblemError
from peakrl.problem import header_of
from peakrl.problems.harvesting.arrivals import FrozenArrivals, IndependentArrivals, MarkovArrivals
from peakrl.space import expand, starts_of
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Floats, Longs, Payoffs

if TYPE_CHECKING:
    from peakrl.problems.harvesting.problem import EnergyHarvesting

#: Bytes of each cell of the tables by (level, arrival) and (level, kind) of a search.
BYTES_A_CELL = 16


class Parts(NamedTuple):
    """Arrays that layered and stationary models build in different ways."""

    #: [slot]: battery level and arrival.
    level: Longs
    arrival: Longs
    #: [row]: power and distribution; the rows of a slot are contiguous.
    power: Longs
    distribution: Longs
    #: [distribution + 1], [outcome], [outcome].
    outcome_start: Longs
    outcome_next: Longs
    outcome_probability: Floats
    #: [step + 1]: first slot and first distribution of a step.
    layer_start: Longs
    distribution_start: Longs
    #: Does one set of slots serve every step?
    shared: bool
    first_probability: Floats


class Rows(NamedTuple):
    """The rows of some slots: slot (relative to the first), power, and the level that the power leaves."""

    slot: Longs
    power: Longs
    left: Longs


def rows_of(level: Longs, arrival: Longs, battery: int) -> Rows:
    """Return a row for each power 0 .. b + e of each slot."""
    available = level + arrival
    counts = available + 1
    slot = np.repeat(np.arange(len(counts)), counts)
    power = expand(np.zeros_like(counts), counts)
    return Rows(slot, power, np.minimum(battery, available[slot] - power))


def layered_model(problem: EnergyHarvesting, memory_limit: float) -> TabularModel:
    """Return the model of a frozen sequence: step h has the levels top_h, ..., 0 with the arrival E_h.

    top_0 = 0 and top_{h+1} = min(B, top_h + E_h). The distribution that leads to slot s with certainty has index s - 1.
    """
    process = problem.arrivals
    assert isinstance(process, FrozenArrivals)
    tops = [0]
    for energy in process.sequence:
        tops.append(min(problem.battery, tops[-1] + energy))
    top = np.array(tops)
    energies = np.array([*process.sequence, 0])
    rows = (top[:-1] + 1) * (energies[:-1] + 1) + top[:-1] * (top[:-1] + 1) // 2
    guard_memory(problem.name, int((top + 1).sum()), int(rows.sum()), problem.horizon, memory_limit)
    start = starts_of(top + 1)
    layer = np.repeat(np.arange(len(top)), top + 1)
    level = top[layer] - (np.arange(start[-1]) - start[layer])
    arrival = energies[layer]
    last = start[-2]
    row = rows_of(level[:last], arrival[:last], problem.battery)
    following = layer[:last][row.slot] + 1
    target = start[following] + top[following] - row.left
    return finish(
        problem,
        Parts(
            level=level,
            arrival=arrival,
            power=row.power,
            distribution=target - 1,
            outcome_start=np.arange(start[-1]),
            outcome_next=np.arange(1, start[-1]),
            outcome_probability=np.ones(start[-1] - 1),
            layer_start=start[:-1],
            distribution_start=start[1:] - 1,
            shared=False,
            first_probability=np.ones(1),
        ),
    )


def shared_model(problem: EnergyHarvesting, memory_limit: float) -> TabularModel:
    """Return the model of arrivals whose distribution does not depend on the step."""
    levels = min(problem.battery, problem.horizon * problem.arrivals.largest) + 1
    size = problem.arrivals.largest + 1
    if BYTES_A_CELL * levels * size > memory_limit:
        raise ProblemError(
            f"{problem.name!r} has up to {levels:,} battery levels and {size:,} arrivals: a table of them is beyond "
            f"the limit of {memory_limit / 1e9:.1f} GB. Use a coarser unit of energy, or raise memory_limit"
        )
    search = Search(problem, levels)
    for step in range(problem.horizon):
        if not len(search.layers[-1]):
            break  # every state is known
        search.expand(step, memory_limit)
    search.repeat_nothing(problem.horizon + 1 - len(search.layers))
    return finish(problem, search.parts())


class Search:
    """Breadth-first search over the states of a problem with stationary arrivals, by layers."""

    def __init__(self, problem: EnergyHarvesting, levels: int) -> None:
        self.problem = problem
        #: kinds[kind_of[e], e']: probability of e' after e; arrivals with equal distributions are of one kind.
        self.kinds, self.kind_of, first = next_distributions(problem.arrivals)
        kinds, size = self.kinds.shape
        #: [level, arrival] and [level, kind]: -1 if not yet reached.
        self.slot = np.full(levels * size, -1)
        self.distribution = np.full(levels * kinds, -1)
        self.distributions = 0
        self.first_probability = first[first > 0]
        arrivals = np.flatnonzero(first)
        self.slot[arrivals] = np.arange(len(arrivals))
        #: A slot's code is level * size + arrival.
        self.layers = [arrivals]
        self.rows: list[tuple[Longs, Longs]] = []
        self.outcomes: list[tuple[Longs, Longs, Floats]] = []
        self.distribution_start = [0]

    @property
    def num_slots(self) -> int:
        """Slots found so far."""
        return sum(map(len, self.layers))

    def expand(self, step: int, memory_limit: float) -> None:
        """Store the rows of the last layer, and the new distributions and slots that they lead to."""
        kinds, size = self.kinds.shape
        level, arrival = np.divmod(self.layers[-1], size)
        known = sum(len(power) for power, _ in self.rows)
        new_rows = int((level + arrival + 1).sum())
        guard_memory(self.problem.name, self.num_slots, known + new_rows, step, memory_limit)
        row = rows_of(level, arrival, self.problem.battery)
        pair = row.left * kinds + self.kind_of[arrival][row.slot]
        new_pairs = without_number(pair, self.distribution)
        self.distribution[new_pairs] = self.distributions + np.arange(len(new_pairs))
        self.rows.append((row.power, self.distribution[pair]))

        which, following = np.nonzero(self.kinds[new_pairs % kinds])
        code = (new_pairs // kinds)[which] * size + following
        new_slots = without_number(code, self.slot)
        self.slot[new_slots] = self.num_slots + np.arange(len(new_slots))
        self.layers.append(new_slots)
        target = self.slot[code]
        order = np.lexsort((target, which))
        probability = self.kinds[new_pairs[which] % kinds, following]
        self.outcomes.append((self.distributions + which, target[order], probability[order]))
        self.distributions += len(new_pairs)
        self.distribution_start.append(self.distributions)

    def repeat_nothing(self, steps: int) -> None:
        """Add steps without new states."""
        self.layers += [np.zeros(0, np.int64)] * steps
        self.distribution_start += [self.distributions] * steps

    def parts(self) -> Parts:
        """Return the arrays of the model."""
        level, arrival = np.divmod(np.concatenate(self.layers), self.kinds.shape[1])
        power, distribution = (np.concatenate(arrays) for arrays in zip(*self.rows, strict=True))
        of, target, probability = (np.concatenate(arrays) for arrays in zip(*self.outcomes, strict=True))
        outcome_start = np.searchsorted(of, np.arange(self.distributions + 1))
        sizes = [len(layer) for layer in self.layers]
        depth = np.repeat(np.arange(len(sizes)), sizes)
        # Slots are numbered by the step at which they first occur: a row that leads to the same or an earlier depth
        # shows that some state occurs at two steps. Its nearest next slot is the first, since they are sorted.
        counts = (level + arrival + 1)[: len(level) - sizes[-1]]
        row_depth = np.repeat(depth[: len(counts)], counts)
        nearest = depth[target[outcome_start[distribution]]]
        return Parts(
            level,
            arrival,
            power,
            distribution,
            outcome_start,
            target,
            probability,
            starts_of(sizes)[:-1],
            np.array(self.distribution_start),
            bool((nearest != row_depth + 1).any()),
            self.first_probability,
        )


def next_distributions(process: object) -> tuple[Floats, Longs, Floats]:
    """Return the distinct distributions of the next arrival [kind, arrival], each arrival's kind, and the first one."""
    if isinstance(process, IndependentArrivals):
        probabilities = np.array(process.probabilities)
        return probabilities[None], np.zeros(len(probabilities), np.int64), probabilities
    assert isinstance(process, MarkovArrivals)
    kinds, kind = np.unique(np.array(process.matrix), axis=0, return_inverse=True)
    return kinds, kind.ravel().astype(np.int64), np.array(process.initial)


def without_number(codes: Longs, number: Longs) -> Longs:
    """Return the distinct codes that have no number yet, in the order of their first occurrence."""
    distinct, first = np.unique(codes, return_index=True)
    ordered = distinct[np.argsort(first)]
    return ordered[number[ordered] < 0]


def finish(problem: EnergyHarvesting, parts: Parts) -> TabularModel:
    """Build the model."""
    header = header_of(problem)
    counts = parts.level + parts.arrival + 1
    counts[parts.layer_start[header.horizon] :] = 0  # reached only after the last step
    labels, slot_state = states_of(parts.level, parts.arrival)
    powers = int(parts.power.max()) + 1
    constraints = problem.peak_power - np.arange(powers, dtype=np.float64)
    return assemble(
        header,
        state_labels=labels,
        slot_state=slot_state,
        action_labels=list(range(powers)),
        row_action=parts.power,
        row_start=starts_of(counts),
        row_distribution=parts.distribution,
        outcome_start=parts.outcome_start,
        outcome_next=parts.outcome_next,
        outcome_probability=parts.outcome_probability,
        payoffs=Payoffs(0, parts.power.astype(np.int32), np.array(problem.rates[:powers]), constraints[:, None]),
        first_slot=np.arange(len(parts.first_probability)),
        first_probability=parts.first_probability,
        layer_start=None if parts.shared else parts.layer_start,
        distribution_start=None if parts.shared else parts.distribution_start,
    )


def states_of(level: Longs, arrival: Longs) -> tuple[list[tuple[int, int]], Longs]:
    """Return the distinct states in the order in which they first occur, and each slot's index among them."""
    code = level * (int(arrival.max()) + 1) + arrival
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    chosen = first[order]
    return list(zip(level[chosen].tolist(), arrival[chosen].tolist(), strict=True)), place[inverse]
