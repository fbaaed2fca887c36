"""From a readable `Problem` to a `TabularModel`: breadth first, reachable states only.

Layers L_0 = support of the first state and L_{h+1} = every next state of L_h. A stationary problem whose states
come back at several steps keeps one set of slots for all steps; one whose layers are disjoint (scheduling: the
number of jobs done is the step), and every problem that depends on the step, is stored layer by layer.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from peakrl.errors import PeakError, ProblemError, SettingsError
from peakrl.header import NO_RANGE, ROUNDING, Header, each
from peakrl.kernels.arrays import Layout, Payoffs
from peakrl.model import TabularModel, check_distribution, check_sizes, frozen
from peakrl.problem import Outcome, Problem
from peakrl.progress import Progress

#: Rough bytes of Python objects and arrays while a model is being built, for the memory guard.
BYTES_A_STATE, BYTES_A_ROW, BYTES_AN_OUTCOME, BYTES_A_NUMBER = 500, 120, 60, 40


class Builder:
    """Collects slots, rows, shared distributions and payoff records while a problem is explored."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.lo, self.hi = header.reward_range
        size = max(1.0, abs(self.lo), abs(self.hi))
        self.reward_room = ROUNDING * size if math.isfinite(size) else 0.0
        self.row_start = [0]
        self.row_action: list[int] = []
        self.row_distribution: list[int] = []
        self.row_payoff: list[int] = []
        self.actions: dict[Hashable, int] = {}
        self.distributions: dict[tuple[tuple[int, ...], tuple[float, ...]], int] = {}
        self.outcome_start = [0]
        self.outcome_next: list[int] = []
        self.outcome_probability: list[float] = []
        #: A row's payoffs: one record where they do not depend on the outcome, else one for each outcome.
        self.payoff_keys: dict[tuple[tuple[float, ...], ...], int] = {}
        self.outcome_dependent = False
        #: Rewards and constraint values kept, at most.
        self.numbers = 0

    def payoff(self, outcome: Outcome, where: str) -> tuple[float, ...]:
        """Return (reward, constraints...) of a validated outcome."""
        header = self.header
        try:
            reward = float(outcome.reward)
            values = [float(f) for f in outcome.constraints]
        except (TypeError, ValueError, OverflowError):
            raise ProblemError(f"{where}: reward and constraints must be numbers, got {outcome!r}") from None
        if not math.isfinite(reward):
            raise ProblemError(f"{where}: the reward is {reward}; it must be a finite number")
        if not self.lo - self.reward_room <= reward <= self.hi + self.reward_room:
            raise ProblemError(f"{where}: reward {reward} lies outside reward_range {header.reward_range}")
        if len(values) != len(header.constraint_names):
            named = f"{len(header.constraint_names)} constraints; constraint_names is {header.constraint_names}"
            raise ProblemError(f"{where}: {len(values)} constraint values for {named}")
        for value, bound, name in zip(values, header.constraint_bounds, header.constraint_names, strict=True):
            if not math.isfinite(value):
                raise ProblemError(f"{where}: constraint {name!r} is {value}; it must be a finite number")
            if not abs(value) <= bound * (1 + ROUNDING):
                raise ProblemError(f"{where}: constraint {name!r} is {value}, beyond its bound of {bound}")
        return (reward, *values)

    def add_row(self, action: Hashable, merged: dict[tuple[int, tuple[float, ...]], float]) -> None:
        """Store a pair whose outcomes are {(next slot, payoff): probability}."""
        payoffs = {payoff for _, payoff in merged}
        if len(payoffs) == 1:
            by_next: dict[int, float] = {}
            for (slot, _), probability in merged.items():
                by_next[slot] = by_next.get(slot, 0.0) + probability
            order = sorted(by_next)
            key = (tuple(order), tuple(by_next[slot] for slot in order))
            records: tuple[tuple[float, ...], ...] = (next(iter(payoffs)),)
        else:
            self.outcome_dependent = True
            items = sorted(merged.items(), key=lambda item: item[0])
            key = (tuple(slot for (slot, _), _ in items), tuple(p for _, p in items))
            records = tuple(payoff for (_, payoff), _ in items)
        self.row_distribution.append(self.distribution(key))
        known = self.payoff_keys.setdefault(records, len(self.payoff_keys))
        if known == len(self.payoff_keys) - 1:
            self.numbers += len(records) * len(records[0])
        self.row_payoff.append(known)
        self.row_action.append(self.actions.setdefault(action, len(self.actions)))

    def distribution(self, key: tuple[tuple[int, ...], tuple[float, ...]]) -> int:
        """Return the index of a next-slot distribution, stored once."""
        index = self.distributions.get(key)
        if index is None:
            index = len(self.outcome_start) - 1
            self.distributions[key] = index
            self.outcome_next.extend(key[0])
            self.outcome_probability.extend(key[1])
            self.outcome_start.append(len(self.outcome_next))
        return index

    def used(self, states: int) -> int:
        """Return about how many bytes are in use."""
        kept = len(self.row_action) * BYTES_A_ROW + len(self.outcome_next) * BYTES_AN_OUTCOME
        return states * BYTES_A_STATE + kept + self.numbers * BYTES_A_NUMBER

    def end_slot(self) -> None:
        """Close the rows of the slot at hand."""
        self.row_start.append(len(self.row_action))

    def end_layer(self) -> None:
        """Distributions are shared within a layer only: another layer's next slots are others."""
        self.distributions.clear()

    def payoffs(self) -> Payoffs:
        """Lay the payoff records out, one a row, or one an outcome where any row needs that."""
        keys = list(self.payoff_keys)
        row_key = np.array(self.row_payoff, np.int64)
        if not self.outcome_dependent:
            table = np.array([key[0] for key in keys], np.float64)
            row_payoff = row_key
        else:
            sizes = np.diff(self.outcome_start)[self.row_distribution]
            firsts: dict[tuple[int, int], int] = {}
            records: list[tuple[float, ...]] = []
            row_payoff = np.empty(len(row_key), np.int64)
            for row, (key_index, size) in enumerate(zip(row_key.tolist(), sizes.tolist(), strict=True)):
                first = firsts.get((key_index, size))
                if first is None:
                    first = firsts[key_index, size] = len(records)
                    key = keys[key_index]
                    records.extend(key * size if len(key) == 1 else key)
                row_payoff[row] = first
            table = np.array(records, np.float64)
        return Payoffs(
            int(self.outcome_dependent),
            frozen(row_payoff, np.int32),
            frozen(table[:, 0], np.float64),
            frozen(table[:, 1:], np.float64),
        )


def compile_model(problem: Problem, *, progress: bool = False, memory_limit: float | None = None) -> TabularModel:
    """Return the tabular model of the states that `problem` can reach.

    `memory_limit` (bytes; by default three quarters of what the machine has free) stops a state space that would
    not fit, with an estimate, before memory runs out. A problem that knows a faster way to its arrays may offer it as
    a method `tabulate(memory_limit)`.
    """
    tabulate = getattr(problem, "tabulate", None)
    limit = available_memory() * 0.75 if memory_limit is None else check_limit(memory_limit)
    if tabulate is not None:
        model: TabularModel = tabulate(limit)
        return model
    return explore(problem, progress=progress, memory_limit=limit)


def check_limit(given: Any) -> float:
    """Return a number of bytes or raise."""
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not given >= 0:
        raise SettingsError(f"memory_limit is {given!r}; it must be a number of bytes")
    return float(given)


def explore(problem: Problem, *, progress: bool = False, memory_limit: float = math.inf) -> TabularModel:
    """Compile by asking the problem about one state after another."""
    header = Header(problem)
    builder = Builder(header)
    stationary = bool(getattr(problem, "stationary", False))
    first_probability, first_states = first_distribution(problem, header.name)
    index: dict[Hashable, int] = {}
    slots: list[Hashable] = []

    def slot_of(state: Hashable, where: str) -> int:
        try:
            slot = index.get(state)
        except TypeError:
            raise ProblemError(f"{where}: state {state!r} is not hashable; use a tuple or a frozen dataclass") from None
        if slot is None:
            slot = index[state] = len(slots)
            slots.append(state)
        return slot

    first_slots = [slot_of(state, "initial()") for state in first_states]
    if len(set(first_slots)) < len(first_slots):
        raise ProblemError(f"initial() of {header.name!r} names a state twice")
    layer_start = [0, len(slots)]
    distribution_start = [0]
    with Progress("Compiling", unit="pairs", enabled=progress) as bar:
        for step in range(header.horizon):
            if not stationary:
                index = {}
            for slot in range(layer_start[step], layer_start[step + 1]):
                for _ in expand(problem, builder, step, slots[slot], slot_of):
                    used = builder.used(len(slots))
                    if used > memory_limit:
                        refuse_size(header.name, len(slots), len(builder.row_action), step, used, memory_limit)
                if len(builder.row_start) % 256 == 0:
                    bar.reach(len(builder.row_action), states=len(slots), step=step)
            if not stationary:
                builder.end_layer()
            layer_start.append(len(slots))
            distribution_start.append(len(builder.outcome_start) - 1)
    builder.row_start.extend([len(builder.row_action)] * (len(slots) + 1 - len(builder.row_start)))
    shared = stationary and revisits(builder, layer_start)
    return assemble(builder, slots, first_slots, first_probability, layer_start, distribution_start, shared)


def first_distribution(problem: Problem, name: str) -> tuple[np.ndarray, list[Hashable]]:
    """Return the probabilities and states of initial(), those of probability 0 left out."""
    pairs = list(each(problem.initial(), f"initial() of {name!r}", "(probability, state) pairs"))
    try:
        probability = np.array([float(p) for p, _ in pairs])
        states = [state for _, state in pairs]
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"initial() of {name!r} must give (probability, state) pairs, got {pairs!r}") from None
    check_distribution(probability, f"of initial() of {name!r}")
    keep = probability > 0
    return probability[keep], [state for state, kept in zip(states, keep, strict=True) if kept]


def expand(problem: Problem, builder: Builder, step: int, state: Hashable, slot_of: Any) -> Iterator[None]:
    """Store every action of a state with its outcomes, one at a time."""
    where = place = f"step {step}, state {state!r}"
    seen: set[Hashable] = set()
    try:
        for action in each(problem.actions(step, state), f"{place}: actions()", "actions"):
            where = f"{place}, action {action!r}"
            refuse_action(action, seen, where)
            seen.add(action)
            outcomes = each(problem.outcomes(step, state, action), f"{where}: outcomes()", "outcomes")
            builder.add_row(action, merge(outcomes, builder, where, slot_of))
            yield
    except PeakError:
        raise
    except Exception as error:  # of the user's own code: theirs to read, and we know where it happened
        error.add_note(f"{builder.header.name!r} raised this when it was asked about {where}")
        raise
    if not seen:
        raise ProblemError(f"{place}: no action is on offer before the horizon; offer one that leads nowhere new")
    builder.end_slot()


def refuse_action(action: Any, seen: set[Hashable], where: str) -> None:
    """Raise where an action cannot be told apart from others."""
    try:
        twice = action in seen
    except TypeError:
        raise ProblemError(f"{where}: the action is not hashable") from None
    if twice:
        raise ProblemError(f"{where}: the action is offered twice")


def merge(
    outcomes: Iterable[Any], builder: Builder, where: str, slot_of: Any
) -> dict[tuple[int, tuple[float, ...]], float]:
    """Return {(next slot, payoff): probability} of validated outcomes, equal ones added up."""
    merged: dict[tuple[int, tuple[float, ...]], float] = {}
    total = 0.0
    for given in outcomes:
        outcome = given if isinstance(given, Outcome) else as_outcome(given, where)
        try:
            probability = float(outcome.probability)
        except (TypeError, ValueError, OverflowError):
            raise ProblemError(f"{where}: probability {outcome.probability!r} is not a number") from None
        if not 0.0 <= probability <= 1.0 + ROUNDING:
            raise ProblemError(f"{where}: probability {probability} is not a number from 0 to 1")
        total += probability
        payoff = builder.payoff(outcome, where)
        if probability > 0.0:
            key = (slot_of(outcome.next_state, where), payoff)
            merged[key] = merged.get(key, 0.0) + probability
    if abs(total - 1.0) > ROUNDING:
        raise ProblemError(f"{where}: probabilities sum to {total:.12g}, not to 1")
    return merged


def as_outcome(given: Any, where: str) -> Outcome:
    """Accept a plain tuple in place of an Outcome."""
    try:
        return Outcome(*given)
    except TypeError:
        form = "Outcome(probability, next_state, reward, constraints)"
        raise ProblemError(f"{where}: {given!r} is not an {form}") from None


def revisits(builder: Builder, layer_start: list[int]) -> bool:
    """Does some state with actions occur at two steps? (Slots are numbered by the step that meets them first.)"""
    depth = np.repeat(np.arange(len(layer_start) - 1), np.diff(layer_start))
    rows_depth = np.repeat(depth, np.diff(builder.row_start))
    starts = np.array(builder.outcome_start[:-1])[builder.row_distribution]
    # The nearest next slot of a row is enough: outcomes are sorted by slot, so by depth.
    nearest = depth[np.array(builder.outcome_next)[starts]]
    return bool((nearest != rows_depth + 1).any())


def assemble(
    builder: Builder,
    slots: list[Hashable],
    first_slots: Sequence[int],
    first_probability: np.ndarray,
    layer_start: list[int],
    distribution_start: list[int],
    shared: bool,
) -> TabularModel:
    """Freeze what was collected."""
    header = builder.header
    check_sizes(header.name, states=len(slots), pairs=len(builder.row_action), outcomes=len(builder.outcome_next))
    labels: dict[Hashable, int] = {}
    slot_state = [labels.setdefault(state, len(labels)) for state in slots]
    horizon = header.horizon
    if shared:
        # One set of slots for every step; those met only after the last step have no rows.
        step_slots = np.array([[0, len(slots)]] * horizon)
        step_distributions = np.array([[0, len(builder.outcome_start) - 1]] * horizon)
    else:
        step_slots = np.stack([layer_start[:horizon], layer_start[1 : horizon + 1]], axis=1)
        step_distributions = np.stack([distribution_start[:-1], distribution_start[1:]], axis=1)
    payoffs = builder.payoffs()
    return TabularModel(
        name=header.name,
        constraint_names=header.constraint_names,
        reward_range=reward_range(header, payoffs),
        constraint_bounds=constraint_bounds(header, payoffs),
        stationary=shared,
        state_labels=list(labels),
        slot_state=frozen(np.array(slot_state), np.int32),
        action_labels=list(builder.actions),
        row_action=frozen(np.array(builder.row_action), np.int32),
        layout=Layout(
            horizon,
            len(slots) if shared else 0,
            len(builder.row_action) if shared else 0,
            frozen(step_slots, np.int64),
            frozen(step_distributions, np.int64),
            frozen(np.array(builder.row_start), np.int64),
            frozen(np.array(builder.row_distribution), np.int32),
            frozen(np.array(builder.outcome_start), np.int64),
            frozen(np.array(builder.outcome_next), np.int32),
            frozen(np.array(builder.outcome_probability), np.float64),
        ),
        payoffs=payoffs,
        first_slot=frozen(np.array(first_slots), np.int32),
        first_probability=frozen(first_probability, np.float64),
    )


def reward_range(header: Header, payoffs: Payoffs) -> tuple[float, float]:
    """Return the range that a problem declares, or else the one of its reachable outcomes."""
    if header.reward_range != NO_RANGE:
        return header.reward_range
    return float(payoffs.reward.min()), float(payoffs.reward.max())


def constraint_bounds(header: Header, payoffs: Payoffs) -> tuple[float, ...]:
    """Return the bounds that a problem declares, or else those of its reachable outcomes (1 where all are 0)."""
    largest = np.abs(payoffs.constraints).max(axis=0, initial=0.0).tolist()
    declared = zip(header.constraint_bounds, largest, strict=True)
    return tuple(bound if math.isfinite(bound) else seen or 1.0 for bound, seen in declared)


def guard_memory(name: str, states: int, rows: int, step: int, limit: float) -> None:
    """Stop before the machine does."""
    used = states * BYTES_A_STATE + rows * BYTES_A_ROW
    if used > limit:
        refuse_size(name, states, rows, step, used, limit)


def refuse_size(name: str, states: int, rows: int, step: int, used: float, limit: float) -> NoReturn:
    """Raise for a model that does not fit."""
    raise ProblemError(
        f"{name!r} has at least {states:,} states and {rows:,} pairs by step {step}, about {used / 1e9:.3g} GB: "
        f"more than the limit of {limit / 1e9:.3g} GB. Coarsen the states, or raise memory_limit"
    )


def available_memory() -> float:
    """Return the bytes of memory that are free now; infinity where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024.0
    except (OSError, ValueError, IndexError):
        pass
    return math.inf
