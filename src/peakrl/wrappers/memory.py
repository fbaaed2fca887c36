"""Problems with memory: the product of a problem and deterministic automata that read its transitions.

An automaton (`Budget`, `Monitor`) has a memory m, which starts at m_0 and is updated by the transition of each step:

    (m_{h+1}, f_{h+1}) = advance(m_h, s_h, a_h, s_{h+1})

The product has the states (s, m), or (s, m, m', ...) of several automata, the actions, probabilities and rewards of the
problem, and f >= 0 as one more constraint for each automaton. A policy of the product is a policy of the problem that
remembers m, which is enough: f depends on the past through m alone. So the best policy of the product is the best of
all policies that depend on the whole past.

A model's product is searched layer by layer as in `compile`. It contains every first memory of `firsts`, all amounts of
a budget, although an episode starts with one of them: one backward induction gives the values of all. The outcomes of
a row keep the order that they have in the problem's model, so that sums of floating-point numbers, and hence values, do
not depend on which memories the product contains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from peakrl.compile import compile_model, guard_memory, is_problem, payoffs_of
from peakrl.errors import ProblemError, SettingsError
from peakrl.gym.adapter import five_values, is_environment, kept
from peakrl.gym.constrained_env import reported
from peakrl.gym.constraints import CONSTRAINTS, COST, numbers
from peakrl.problem import Header, Outcome, Problem, header_of, undeclared
from peakrl.ragged import shared_lists
from peakrl.space import expand, starts_of
from peakrl.spaces import unlabelled_part
from peakrl.storage import SHARE, available_memory
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Floats, Longs, MemoryAxis
from peakrl.visited import label_of

#: Products of the numbers of states and memories are 64-bit integers.
MOST_CODES = 2**62
#: A monitor has at most this many states.
MOST_MEMORIES = 1 << 16
#: Spaces whose actions have labels.
LISTED = (spaces.Discrete, spaces.MultiDiscrete)


class Transitions(NamedTuple):
    """Every (row, outcome) of a model, in order."""

    model: TabularModel
    #: [row + 1]: where the outcomes of each row start.
    start: Longs
    #: [outcome]: its slot, its row, its next slot and its probability.
    slot: Longs
    row: Longs
    following: Longs
    probability: Floats

    def labels(self, index: int) -> tuple[Hashable, Hashable, Hashable]:
        """Return state, action and next state without the memory of automata."""
        model = self.model
        action = model.action_of_row(int(self.row[index]))
        return base_of(model, int(self.slot[index])), action, base_of(model, int(self.following[index]))


class Automaton:
    """Base of what `with_budget` and `with_monitor` add to a problem."""

    #: Name of its constraint.
    name: str
    #: The first memory, unless `first` is another.
    start: Any

    @property
    def bound(self) -> float:
        """The largest violation of a step."""
        return 1.0

    @property
    def capacity(self) -> int:
        """The largest number of memories."""
        return MOST_MEMORIES

    @property
    def first(self) -> Any:
        """The first memory."""
        return self.start

    @property
    def firsts(self) -> Sequence[Hashable]:
        """The first memories that the product contains."""
        return (self.first,)

    @property
    def axis(self) -> MemoryAxis:
        """The description for models."""
        return MemoryAxis(self.name)

    def advance(self, memory: Any, state: Any, action: Any, following: Any) -> tuple[Any, float]:
        """Return the next memory, and the value of the constraint."""
        raise NotImplementedError

    def reader(self, transitions: Transitions) -> Reader:
        """Return the automaton on the transitions of a model."""
        raise NotImplementedError


class Reader(Protocol):
    """An automaton on the transitions of a model; memories are numbered."""

    #: [number]: the memory.
    @property
    def memories(self) -> Sequence[Hashable]: ...

    def number(self, memory: Hashable) -> int: ...
    def advance(self, memory: Longs, transition: Longs) -> tuple[Longs, Floats]: ...


def with_memory(target: Any, automata: Sequence[Automaton]) -> Any:
    """Return the product of a problem, model or environment with automata."""
    if isinstance(target, TabularModel):
        check_names(target.constraint_names, automata)
        return product(target, automata, available_memory() * SHARE)
    if is_problem(target):
        own = isinstance(target, ProblemWithMemory)
        base, before = (target.base, target.automata) if own else (target, ())
        return ProblemWithMemory(base, (*before, *automata))
    if is_environment(target):
        own = isinstance(target, EnvWithMemory)
        env, before = (target.env, target.automata) if own else (target, ())
        return EnvWithMemory(env, (*before, *automata))
    raise SettingsError(f"{target!r} is neither a Problem nor a TabularModel nor a Gymnasium environment")


def check_names(names: Iterable[str], automata: Sequence[Automaton]) -> None:
    """Raise if two constraints have the same name."""
    taken = set(names)
    for each in automata:
        if each.name in taken:
            raise ProblemError(f"a constraint named {each.name!r} exists already: pass another name=")
        taken.add(each.name)


class ProblemWithMemory(Problem):
    """The product of a problem with automata; its states are (state, memory, ...)."""

    def __init__(self, base: Problem, automata: tuple[Automaton, ...]) -> None:
        header = header_of(base)
        check_names(header.constraint_names, automata)
        self.base, self.automata = base, automata
        self.name, self.horizon = header.name, header.horizon
        self.constraint_names = (*header.constraint_names, *(each.name for each in automata))
        self.reward_range = base.reward_range
        self.stationary = bool(getattr(base, "stationary", False))
        bounds, tolerances = (getattr(base, f"constraint_{name}", None) for name in ("bounds", "tolerances"))
        if not undeclared(bounds) or not header.constraint_names:
            self.constraint_bounds = (*(bounds or ()), *(each.bound for each in automata))
        if not undeclared(tolerances):
            self.constraint_tolerances = (*header.tolerances, *(0.0 for _ in automata))

    def initial(self) -> list[tuple[float, Hashable]]:
        """Return the first states, with the first memory."""
        first = tuple(each.first for each in self.automata)
        return [(probability, (state, *first)) for probability, state in self.base.initial()]

    def actions(self, step: int, state: Any) -> Iterable[Hashable]:
        """Return the actions of the problem."""
        return self.base.actions(step, state[0])

    def outcomes(self, step: int, state: Any, action: Hashable) -> list[Outcome]:
        """Return the outcomes of the problem, with the next memory and the constraints of the automata."""
        found, (here, *memories) = [], state
        for each in self.base.outcomes(step, here, action):
            outcome = Outcome(*each)
            pairs = zip(self.automata, memories, strict=True)
            after = [one.advance(memory, here, action, outcome.next_state) for one, memory in pairs]
            following = (outcome.next_state, *(memory for memory, _ in after))
            values = (*outcome.constraints, *(value for _, value in after))
            found.append(Outcome(outcome.probability, following, outcome.reward, values))
        return found

    def tabulate(self, memory_limit: float) -> TabularModel:
        """Return the model; `compile_model` calls this."""
        return product(compile_model(self.base, memory_limit=memory_limit), self.automata, memory_limit)


def base_of(model: TabularModel, slot: int) -> Hashable:
    """Return the label of a state without the memory of automata."""
    label: Any = model.state_of_slot(slot)
    base: Hashable = label[0] if model.memory else label
    return base


def transitions_of(model: TabularModel) -> Transitions:
    """Return every (row, outcome) of a model."""
    sizes = np.diff(model.outcome_start)[model.row_distribution]
    outcomes = expand(model.outcome_start[model.row_distribution], sizes)
    rows = np.repeat(np.arange(model.num_rows), sizes)
    following = model.outcome_next[outcomes].astype(np.int64)
    slots = np.repeat(model.slot_of_row, sizes)
    return Transitions(model, starts_of(sizes), slots, rows, following, model.outcome_probability[outcomes])


# The product of a model ---------------------------------------------------------------------------------------------


def product(model: TabularModel, automata: Sequence[Automaton], memory_limit: float) -> TabularModel:
    """Return the product of a model with automata; it says which budget is the smallest if none suffices."""
    found = Product(model, automata, memory_limit).model()
    if found.safe.slots(0)[found.first_slot].all():
        return found
    return replace(found, infeasible_reason=too_small(model, automata, memory_limit) or model.infeasible_reason)


def too_small(model: TabularModel, automata: Sequence[Automaton], memory_limit: float) -> str | None:
    """Return which budgets are too small and the least that suffice, the rest unchanged; None if it is feasible."""
    reasons = []
    for index, each in enumerate(automata):
        if each.axis.unit is not None:
            others = [*automata[:index], *automata[index + 1 :]]
            rest = Product(model, others, memory_limit).model() if others else model
            reason = each.shortage(transitions_of(rest))  # type: ignore[attr-defined]  # it is a budget
            if reason is None:
                return None  # it suffices, with all the others
            reasons.append(reason)
    return "; ".join(reasons) or None


class Product:
    """The search."""

    def __init__(self, model: TabularModel, automata: Sequence[Automaton], memory_limit: float) -> None:
        self.base, self.automata, self.limit = model, automata, memory_limit
        self.transitions = transitions_of(model)
        self.readers = [each.reader(self.transitions) for each in automata]
        self.capacities = [each.capacity for each in automata]
        if math.prod(self.capacities) * model.num_slots > MOST_CODES:
            names = ", ".join(repr(each.name) for each in automata)
            raise ProblemError(f"{model.name!r} has too many states with {names}: lower limits, or a larger step")

    def coded(self, slot: Longs, memories: Sequence[Longs]) -> Longs:
        """Return a number for each (slot, memory, ...)."""
        code = slot
        for memory, capacity in zip(memories, self.capacities, strict=True):
            code = code * capacity + memory
        return code

    def decoded(self, code: Longs) -> tuple[Longs, list[Longs]]:
        """Return slots and memories of numbers."""
        memories = []
        for capacity in reversed(self.capacities):
            code, memory = np.divmod(code, capacity)
            memories.append(memory)
        return code, memories[::-1]

    def first_codes(self, every: bool) -> Longs:
        """Return the numbers of the first states, with every first memory or with that of an episode."""
        numbers = [
            [reader.number(memory) for memory in (each.firsts if every else [each.first])]
            for each, reader in zip(self.automata, self.readers, strict=True)
        ]
        first = self.base.first_slot.astype(np.int64)
        return np.concatenate(
            [self.coded(first, [np.full(len(first), m) for m in each]) for each in itertools.product(*numbers)]
        )

    def model(self) -> TabularModel:
        """Search, and return the model."""
        base, transitions = self.base, self.transitions
        layer = np.unique(self.first_codes(every=True))
        codes, known, starts = [layer], layer, [0, len(layer)]
        rows_of, next_codes, values, total = [], [], [], 0
        for step in itertools.count() if base.steps is None else range(base.steps):
            slot, memories = self.decoded(layer)
            counts = np.diff(base.row_start)[slot]
            row = expand(base.row_start[slot], counts)
            sizes = np.diff(transitions.start)[row]
            index = expand(transitions.start[row], sizes)
            owner = np.repeat(np.repeat(np.arange(len(slot)), counts), sizes)
            total += len(row)
            numbers = (1 + len(self.automata)) * 8 * len(index)
            guard_memory(base.name, starts[-1], total, step, self.limit, numbers)
            after = [reader.advance(m[owner], index) for reader, m in zip(self.readers, memories, strict=True)]
            reached = self.coded(transitions.following[index], [memory for memory, _ in after])
            rows_of.append(row)
            next_codes.append(reached)
            values.append(np.stack([value for _, value in after], axis=1))
            fresh = np.unique(reached)
            layer = fresh[~np.isin(fresh, known, assume_unique=True)]
            known = np.union1d(known, layer) if base.stationary else layer
            codes.append(layer)
            starts.append(starts[-1] + len(layer))
            if not len(layer):
                break
        return self.assembled(
            np.concatenate(codes), starts, np.concatenate(rows_of), np.concatenate(next_codes), np.concatenate(values)
        )

    def assembled(self, codes: Longs, starts: list[int], row: Longs, reached: Longs, values: Floats) -> TabularModel:
        """Build the model."""
        base, transitions = self.base, self.transitions
        order = np.argsort(codes, kind="stable")

        def slots_of(wanted: Longs) -> Longs:
            return order[np.searchsorted(codes, wanted, sorter=order)]

        slot, memories = self.decoded(codes)
        expanded = starts[-1] if base.steps is None else starts[min(base.steps, len(starts) - 1)]
        counts = np.where(np.arange(len(codes)) < expanded, np.diff(base.row_start)[slot], 0)
        sizes = np.diff(transitions.start)[row]
        index, start, row_start = expand(transitions.start[row], sizes), starts_of(sizes), starts_of(counts)
        ends = [len(row)] if base.stationary else row_start[starts[1 : base.lines + 1]].tolist()
        names, slot_state = codes, np.arange(len(codes))
        if not base.stationary:  # a state that occurs at several steps has one label
            names, slot_state = self.states(slot, memories)
            slot, memories = self.decoded(names)
        memory = [
            [reader.memories[m] for m in each.tolist()] for reader, each in zip(self.readers, memories, strict=True)
        ]
        labels = (base.state_of_slot(each) for each in slot.tolist())
        parts = (label if base.memory else (label,) for label in labels)
        first = slots_of(self.first_codes(every=False))
        found = assemble(
            Header(
                base.name, base.steps, (*base.constraint_names, *(each.name for each in self.automata)),
                base.reward_range, (*base.constraint_bounds, *(each.bound for each in self.automata)),
                (*base.constraint_tolerances, *(0.0 for _ in self.automata)) if base.constraint_tolerances else (),
            ),
            shared_lists(start, slots_of(reached).astype(np.int32), transitions.probability[index], ends),
            payoffs_of(self.paid(row, start, sizes, values), start),
            state_labels=[(*label, *rest) for label, *rest in zip(parts, *memory, strict=True)],
            slot_state=slot_state,
            action_labels=base.action_labels,
            row_action=base.row_action[row],
            row_start=row_start,
            first_slot=first,
            first_probability=base.first_probability.copy(),
            layer_start=None if base.stationary else starts,
        )  # fmt: skip
        return replace(found, memory=(*base.memory, *(each.axis for each in self.automata)))

    def states(self, slot: Longs, memories: list[Longs]) -> tuple[Longs, Longs]:
        """Return the number of a slot and memories for each distinct state, and [slot]: the index of its state."""
        state = self.coded(self.base.slot_state[slot].astype(np.int64), memories)
        _, first, index = np.unique(state, return_index=True, return_inverse=True)
        return self.coded(slot, memories)[first], index

    def paid(self, row: Longs, start: Longs, sizes: Longs, values: Floats) -> Floats:
        """Return the rewards and constraints of each outcome."""
        own = self.base.payoffs
        place = np.arange(len(values)) - np.repeat(start[:-1], sizes)
        record = np.repeat(own.row_payoff[row].astype(np.int64), sizes) + own.stride * place
        return np.column_stack([own.reward[record], own.constraints[record], values])


# Environments ------------------------------------------------------------------------------------------------------


class EnvWithMemory(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations are (observation, memory, ...) and whose `info` has a constraint for each."""

    def __init__(self, env: Any, automata: tuple[Automaton, ...]) -> None:
        if not isinstance(env, gymnasium.Env):
            raise SettingsError(f"{env!r} is not a single Gymnasium environment; wrap each one of a vectorised one")
        super().__init__(env)
        self.automata, self._memories = automata, [each.first for each in automata]
        self._state: Any = None
        self._labelled = unlabelled_part(env.observation_space) is None
        ranges = [memories_of(each) for each in automata]
        added = [spaces.Discrete(len(each), start=each.start) for each in ranges]
        self.observation_space = spaces.Tuple((env.observation_space, *added))
        own, extra = dict(env.metadata.get("peakrl", {})), dict[str, Any]()
        more: dict[str, list[Any]] = {
            "constraint_bounds": [each.bound for each in automata],
            "constraint_tolerances": [0.0] * len(automata),
            "constraint_names": [each.name for each in automata],
        }
        for name, values in more.items():
            if own.get(name) or (own.get("constraint_bounds") == () and name != "constraint_tolerances"):
                extra[name] = (*(own.get(name) or ()), *values)
        if own.get("states") is not None:
            extra["states"] = own["states"] * int(np.prod([len(each) for each in ranges]))
        self.metadata = {**env.metadata, "peakrl": {**own, **extra}}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with the first memories."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._memories, self._state = [each.first for each in self.automata], self._read(observation)
        return (observation, *self._memories), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step, update the memories and write the constraints into `info`."""
        observation, reward, terminated, truncated, info = five_values(self.env.step(action))
        following = self._read(observation)
        label = label_of(action) if isinstance(self.action_space, LISTED) else action
        pairs = zip(self.automata, self._memories, strict=True)
        after = [each.advance(memory, self._state, label, following) for each, memory in pairs]
        self._memories, self._state = [memory for memory, _ in after], following
        own: tuple[float, ...] = ()
        if "constraints" in info:
            own = numbers(info["constraints"], CONSTRAINTS)
        elif "cost" in info:
            own = tuple(0.0 - value for value in numbers(info["cost"], COST))
        values = (*own, *(value for _, value in after))
        return (observation, *self._memories), reward, terminated, truncated, {**info, **reported(values)}

    def _read(self, observation: Any) -> Any:
        """Return the state as automata get it: the label of the observation, or a copy of it if it has none."""
        return label_of(observation) if self._labelled else kept(observation)


def memories_of(automaton: Any) -> range:
    """Return the memories of an automaton as a range of whole numbers."""
    found = range(automaton.capacity) if automaton.axis.unit is not None else automaton.states
    if not isinstance(found, range):
        raise SettingsError(f"monitor {automaton.name!r}: an environment needs states=range(...), all of its memories")
    return found
