"""The arrays of an energy-harvesting model, straight from its formulas.

Slots, rows, distributions and payoffs come in the order in which a breadth-first search meets them, so that a model
built here is the same, number for number, as one that `compile.explore` builds.

Two facts make that short. A slot offers the powers 0 .. b + e, so a row's action and payoff record are its power.
And all that matters for what follows is the level left, min(B, b + e - P), and the law of the next arrival: rows
that agree on both share one distribution.
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

#: Of the tables by (level, arrival) and (level, law) that a search keeps.
BYTES_A_CELL = 16


class Parts(NamedTuple):
    """What differs between the two ways of storing a model."""

    #: [slot]: battery level and arrival.
    level: Longs
    arrival: Longs
    #: [row]: power and distribution; rows of a slot follow each other.
    power: Longs
    distribution: Longs
    #: [distribution + 1], [outcome], [outcome].
    outcome_start: Longs
    outcome_next: Longs
    outcome_probability: Floats
    #: [step + 1]: where a step's slots and distributions begin.
    layer_start: Longs
    distribution_start: Longs
    #: Does one set of slots serve every step?
    shared: bool
    first_probability: Floats


class Rows(NamedTuple):
    """The rows of some slots: which slot (counted within them), its power, and the level that the power leaves."""

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

    top_0 = 0 and top_{h+1} = min(B, top_h + E_h). The distribution that leads to slot s (certainly) has number s - 1.
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
    """Return the model of arrivals whose law does not depend on the step."""
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
            break  # every state is known: a long horizon brings no new ones
        search.expand(step, memory_limit)
    search.repeat_nothing(problem.horizon + 1 - len(search.layers))
    return finish(problem, search.parts())


class Search:
    """Breadth first over the states of a problem with stationary arrivals, a layer at a time."""

    def __init__(self, problem: EnergyHarvesting, levels: int) -> None:
        self.problem = problem
        #: laws[law_of[e], e']: the probability of e' after e; arrivals with the same law are of one kind.
        self.laws, self.law_of, first = laws_of(problem.arrivals)
        kinds, size = self.laws.shape
        #: [level, arrival] and [level, kind]: -1 where not met yet.
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
        """Slots met so far."""
        return sum(map(len, self.layers))

    def expand(self, step: int, memory_limit: float) -> None:
        """Store the rows of the last layer and the distributions and slots that they are the first to lead to."""
        kinds, size = self.laws.shape
        level, arrival = np.divmod(self.layers[-1], size)
        known = sum(len(power) for power, _ in self.rows)
        new_rows = int((level + arrival + 1).sum())
        guard_memory(self.problem.name, self.num_slots, known + new_rows, step, memory_limit)
        row = rows_of(level, arrival, self.problem.battery)
        pair = row.left * kinds + self.law_of[arrival][row.slot]
        new_pairs = unmet(pair, self.distribution)
        self.distribution[new_pairs] = self.distributions + np.arange(len(new_pairs))
        self.rows.append((row.power, self.distribution[pair]))

        which, following = np.nonzero(self.laws[new_pairs % kinds])
        code = (new_pairs // kinds)[which] * size + following
        new_slots = unmet(code, self.slot)
        self.slot[new_slots] = self.num_slots + np.arange(len(new_slots))
        self.layers.append(new_slots)
        target = self.slot[code]
        order = np.lexsort((target, which))
        probability = self.laws[new_pairs[which] % kinds, following]
        self.outcomes.append((self.distributions + which, target[order], probability[order]))
        self.distributions += len(new_pairs)
        self.distribution_start.append(self.distributions)

    def repeat_nothing(self, steps: int) -> None:
        """Add steps that meet no new state."""
        self.layers += [np.zeros(0, np.int64)] * steps
        self.distribution_start += [self.distributions] * steps

    def parts(self) -> Parts:
        """Return what was found."""
        level, arrival = np.divmod(np.concatenate(self.layers), self.laws.shape[1])
        power, distribution = (np.concatenate(arrays) for arrays in zip(*self.rows, strict=True))
        of, target, probability = (np.concatenate(arrays) for arrays in zip(*self.outcomes, strict=True))
        outcome_start = np.searchsorted(of, np.arange(self.distributions + 1))
        sizes = [len(layer) for layer in self.layers]
        depth = np.repeat(np.arange(len(sizes)), sizes)
        # Slots are numbered by the step that meets them first: a row that leads back to an earlier or the same
        # depth shows that some state occurs at two steps. Its nearest next slot is the first, since they are sorted.
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


def laws_of(process: object) -> tuple[Floats, Longs, Floats]:
    """Return the different laws of the next arrival [kind, arrival], each arrival's kind, and the first law."""
    if isinstance(process, IndependentArrivals):
        law = np.array(process.probabilities)
        return law[None], np.zeros(len(law), np.int64), law
    assert isinstance(process, MarkovArrivals)
    laws, kind = np.unique(np.array(process.matrix), axis=0, return_inverse=True)
    return laws, kind.ravel().astype(np.int64), np.array(process.initial)


def unmet(codes: Longs, number: Longs) -> Longs:
    """Return the codes that have no number yet, each once, in the order in which they come first."""
    distinct, first = np.unique(codes, return_index=True)
    ordered = distinct[np.argsort(first)]
    return ordered[number[ordered] < 0]


def finish(problem: EnergyHarvesting, parts: Parts) -> TabularModel:
    """Freeze the parts."""
    header = header_of(problem)
    counts = parts.level + parts.arrival + 1
    counts[parts.layer_start[header.horizon] :] = 0  # met only after the last step
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
    """Return the different states in the order in which slots name them first, and each slot's."""
    code = level * (int(arrival.max()) + 1) + arrival
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    chosen = first[order]
    return list(zip(level[chosen].tolist(), arrival[chosen].tolist(), strict=True)), place[inverse]
