"""Compile a `Problem` to a `TabularModel`: breadth-first search over the reachable states.

Layer L_0 is the support of the first state, and L_{h+1} all next states of L_h. A stationary problem whose states recur
at several steps has one set of slots for all steps; a problem whose layers are disjoint (scheduling: the number of
finished jobs is the step), and every problem that depends on the step, is stored layer by layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from peakrl.checks import AT_MOST, LARGEST, ROUNDING, bound_above, check_distribution, check_each, is_usual
from peakrl.errors import PeakError, ProblemError, SettingsError
from peakrl.memory import check_tables
from peakrl.problem import NO_RANGE, NO_TRUTH_VALUES, Header, Outcome, Problem, header_of
from peakrl.progress import Progress
from peakrl.space import StateSpace
from peakrl.storage import SHARE, available_memory
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Floats, Payoffs

#: Approximate bytes of Python objects and arrays while a model is built, for the memory limit.
BYTES_A_STATE, BYTES_A_ROW, BYTES_AN_OUTCOME, BYTES_A_NUMBER = 500, 120, 60, 40
#: Types that `float` accepts although they are mistakes: a comparison in place of a difference, text.
NUMBERS = "the reward must be a number and the constraints a sequence of numbers, such as (1.0,)"
NO_NUMBERS = {bool, np.bool_, str}
PLAIN = {float, int}
#: Next slots and their probabilities.
Key = tuple[tuple[int, ...], tuple[float, ...]]
#: At most this many validated payoffs are cached.
MOST_KNOWN = 100_000


class Builder:
    """Collects slots, rows, shared distributions and payoff records while a problem is explored."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.lo, self.hi = header.reward_range
        size = max(1.0, abs(self.lo), abs(self.hi))
        self.reward_tolerance = ROUNDING * size if math.isfinite(size) else 0.0
        #: Rewards and constraint values within these limits are valid.
        self.least = max(self.lo - self.reward_tolerance, -LARGEST)
        self.most = min(self.hi + self.reward_tolerance, LARGEST)
        self.limits = tuple(min(bound * (1 + ROUNDING), LARGEST) for bound in header.constraint_bounds)
        self.known_payoffs: dict[tuple[Any, tuple[Any, ...]], tuple[float, ...]] = {}
        self.row_start = [0]
        self.row_action: list[int] = []
        self.row_distribution: list[int] = []
        self.row_payoff: list[int] = []
        self.actions: dict[Hashable, int] = {}
        self.distributions: dict[Key, int] = {}
        self.outcome_start = [0]
        self.outcome_next: list[int] = []
        self.outcome_probability: list[float] = []
        #: Payoffs of a row: one record if they do not depend on the outcome, else one for each outcome.
        self.payoff_keys: dict[tuple[tuple[float, ...], ...], int] = {}
        self.outcome_dependent = False
        #: Upper bound on the number of stored rewards and constraint values.
        self.numbers = 0

    def plain_payoff(self, reward: Any, constraints: tuple[Any, ...]) -> tuple[float, ...] | None:
        """Return (reward, constraints...) of plain numbers within their limits; None if `payoff` must check them."""
        limits = self.limits
        if len(constraints) != len(limits) or not self.least <= reward <= self.most:
            return None
        for value, limit in zip(constraints, limits, strict=True):
            if not -limit <= value <= limit:
                return None
        payoff = (float(reward), *map(float, constraints))
        # A payoff with a 0 is not cached: 0.0 and -0.0 are equal keys.
        if 0.0 not in payoff and len(self.known_payoffs) < MOST_KNOWN:
            self.known_payoffs[reward, constraints] = payoff
        return payoff

    def payoff(self, outcome: Outcome, where: object) -> tuple[float, ...]:
        """Return (reward, constraints...) of an outcome, or raise with a message that begins with `where`."""
        header = self.header
        earned: Any = outcome.reward
        given = outcome.constraints
        try:
            reward = float(earned)
            values = list(map(float, given))
        except (TypeError, ValueError, OverflowError):
            raise ProblemError(f"{where}: {NUMBERS}; got {outcome!r}") from None
        if not NO_NUMBERS.isdisjoint(map(type, given)) or isinstance(earned, str):
            form = NUMBERS if str in (type(earned), *map(type, given)) else NO_TRUTH_VALUES
            raise ProblemError(f"{where}: {form}; got {outcome!r}")
        if not is_usual(reward):
            raise ProblemError(f"{where}: the reward is {reward}; it must be a finite number{AT_MOST}")
        if not self.lo - self.reward_tolerance <= reward <= self.hi + self.reward_tolerance:
            raise ProblemError(f"{where}: reward {reward} lies outside reward_range {header.reward_range}")
        if len(values) != len(header.constraint_names):
            named = f"{len(header.constraint_names)} constraints; constraint_names is {header.constraint_names}"
            raise ProblemError(f"{where}: {len(values)} constraint values for {named}")
        for value, bound, name in zip(values, header.constraint_bounds, header.constraint_names, strict=True):
            if not is_usual(value):
                raise ProblemError(f"{where}: constraint {name!r} is {value}; it must be a finite number{AT_MOST}")
            if not abs(value) <= bound * (1 + ROUNDING):
                raise ProblemError(f"{where}: constraint {name!r} is {value}, beyond its bound of {bound}")
        return (reward, *values)

    def add_row(self, action: Hashable, merged: dict[tuple[int, tuple[float, ...]], float]) -> None:
        """Store a pair whose outcomes are {(next slot, payoff): probability}."""
        items = sorted(merged.items()) if len(merged) > 1 else merged.items()
        key = (tuple([slot for (slot, _), _ in items]), tuple([chance for _, chance in items]))
        records = tuple([payoff for (_, payoff), _ in items])
        if len(merged) == 1 or records.count(records[0]) == len(records):
            records = records[:1]
        else:
            self.outcome_dependent = True
        self.add_record(action, key, records)

    def add_plain_row(self, action: Hashable, merged: dict[int, float], payoff: tuple[float, ...]) -> None:
        """Store a pair whose outcomes {next slot: probability} all have the same payoff."""
        if len(merged) > 1:
            order = sorted(merged)
            self.add_record(action, (tuple(order), tuple([merged[slot] for slot in order])), (payoff,))
        else:
            self.add_record(action, (tuple(merged), tuple(merged.values())), (payoff,))

    def add_record(self, action: Hashable, key: Key, records: tuple[tuple[float, ...], ...]) -> None:
        """Store a pair with its next slots, their probabilities, and one payoff or one for each outcome."""
        self.row_distribution.append(self.distribution(key))
        known = self.payoff_keys.setdefault(records, len(self.payoff_keys))
        if known == len(self.payoff_keys) - 1:
            self.numbers += len(records) * len(records[0])
        self.row_payoff.append(known)
        self.row_action.append(self.actions.setdefault(action, len(self.actions)))

    def distribution(self, key: Key) -> int:
        """Return the index of a next-slot distribution; equal ones are stored once."""
        index = self.distributions.get(key)
        if index is None:
            index = len(self.outcome_start) - 1
            self.distributions[key] = index
            self.outcome_next.extend(key[0])
            self.outcome_probability.extend(key[1])
            self.outcome_start.append(len(self.outcome_next))
        return index

    def used(self, states: int) -> int:
        """Return about how many bytes are used."""
        kept = len(self.row_action) * BYTES_A_ROW + len(self.outcome_next) * BYTES_AN_OUTCOME
        return states * BYTES_A_STATE + kept + self.numbers * BYTES_A_NUMBER

    def end_slot(self) -> None:
        """End the rows of the current slot."""
        self.row_start.append(len(self.row_action))

    def end_layer(self) -> None:
        """End a layer; distributions are shared within a layer only, since the next slots of layers differ."""
        self.distributions.clear()

    def payoffs(self) -> Payoffs:
        """Return the payoff records: one for each row, or one for each outcome if any row needs that."""
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
        return Payoffs(int(self.outcome_dependent), row_payoff.astype(np.int32), table[:, 0], table[:, 1:])


def built(
    builder: Builder,
    slots: list[Hashable],
    first_slots: Sequence[int],
    first_probability: Floats,
    layer_start: list[int],
    distribution_start: list[int],
    shared: bool,
) -> TabularModel:
    """Return the model of what was collected; if `shared`, one set of slots serves every step."""
    labels: dict[Hashable, int] = {}
    slot_state = [labels.setdefault(state, len(labels)) for state in slots]
    payoffs = builder.payoffs()
    return assemble(
        builder.header._replace(
            reward_range=reward_range(builder.header, payoffs),
            constraint_bounds=constraint_bounds(builder.header, payoffs),
        ),
        state_labels=list(labels),
        slot_state=slot_state,
        action_labels=list(builder.actions),
        row_action=builder.row_action,
        row_start=builder.row_start,
        row_distribution=builder.row_distribution,
        outcome_start=builder.outcome_start,
        outcome_next=builder.outcome_next,
        outcome_probability=builder.outcome_probability,
        payoffs=payoffs,
        first_slot=first_slots,
        first_probability=first_probability,
        layer_start=None if shared else layer_start,
        distribution_start=None if shared else distribution_start,
    )


def reward_range(header: Header, payoffs: Payoffs) -> tuple[float, float]:
    """Return the declared range, or that of the reachable outcomes."""
    if header.reward_range != NO_RANGE:
        return header.reward_range
    return float(payoffs.reward.min()), float(payoffs.reward.max())


def constraint_bounds(header: Header, payoffs: Payoffs) -> tuple[float, ...]:
    """Return the declared bounds, or those of the reachable outcomes (1 if all values are 0)."""
    largest = np.abs(payoffs.constraints).max(axis=0, initial=0.0).tolist()
    declared = zip(header.constraint_bounds, largest, strict=True)
    return tuple(bound if math.isfinite(bound) else bound_above(seen) for bound, seen in declared)


#: Number of states of a stationary problem that are queried at a second step.
ASKED_AGAIN = 20
#: Memory use is checked after so many actions of a state, and after its last action.
PAUSE = 256
#: Returns the slot of a state; the second argument begins the message of an error.
SlotOf = Callable[[Hashable, object], Any]
#: What solvers take: a problem or its model. A space without known dynamics is an error.
Target = Problem | StateSpace


def as_model(target: Target, *, progress: bool = False) -> TabularModel:
    """Return a model as it is and a problem compiled; raise for anything else."""
    given: Any = target
    if isinstance(given, TabularModel):
        return given
    if is_problem(given):
        return compile_model(given, progress=progress)
    if isinstance(given, StateSpace):
        raise ProblemError(
            f"{given.name!r} is an environment, not a model: its rewards, constraints and dynamics are unknown. "
            "simulate(env, policy) estimates the value of a policy there; solve, evaluate and audit need a model "
            "(compile_model, TabularModel.from_arrays)"
        )
    hint = "compile_model(problem) returns the model of a problem"
    if isinstance(given, type):
        hint = f"it is a class: pass an instance, {given.__name__}(...)"
    elif hasattr(given, "reset") and hasattr(given, "step"):
        hint = "an environment does not reveal its model: learn, simulate and certify take it"
    raise SettingsError(f"{given!r} is neither a Problem nor a TabularModel; {hint}")


def as_space(target: Target) -> StateSpace:
    """Return the state space of a policy: a space as it is, for a problem that of its model."""
    return target if isinstance(target, StateSpace) else as_model(target)


def is_problem(target: Any) -> bool:
    """Is this a problem, or has it the same methods?"""
    methods = ("initial", "actions", "outcomes")
    return not isinstance(target, type) and all(callable(getattr(target, name, None)) for name in methods)


def compile_model(problem: Target, *, progress: bool = False, memory_limit: float | None = None) -> TabularModel:
    """Return the tabular model of the states that `problem` can reach.

    Parameters
    ----------
    problem
        A `Problem`, or an object with the same methods. If it has a method `tabulate(memory_limit)`, that builds the
        model. A model is returned as it is.
    progress
        Show a progress bar.
    memory_limit
        Bytes, by default three quarters of the free memory. A state space that would need more is an error with an
        estimate.
    """
    if isinstance(problem, StateSpace):
        return as_model(problem)
    tabulate = None if isinstance(problem, type) else getattr(problem, "tabulate", None)
    limit = available_memory() * SHARE if memory_limit is None else check_limit(memory_limit)
    if tabulate is not None:
        model: TabularModel = tabulate(limit)
    else:
        model = explore(problem, progress=progress, memory_limit=limit)
    check_tables(model.name, model.horizon, model.num_slots if model.stationary else 1, limit)
    spec = getattr(problem, "spec", None)
    return replace(model, spec=spec) if isinstance(spec, Mapping) and "kind" in spec else model


def check_limit(given: Any) -> float:
    """Return a number of bytes or raise."""
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not given >= 0:
        raise SettingsError(f"memory_limit is {given!r}; it must be a number of bytes")
    return float(given)


def explore(problem: Problem, *, progress: bool = False, memory_limit: float = math.inf) -> TabularModel:
    """Compile by querying one state after another."""
    header = header_of(problem)
    builder = Builder(header)
    stationary = bool(getattr(problem, "stationary", False))
    first_probability, first_states = first_distribution(problem, header.name)
    index: dict[Hashable, int] = {}
    slots: list[Hashable] = []

    def slot_of(state: Hashable, where: object) -> int:
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
                for _ in expand(problem, builder, step, slots[slot], index, slot_of):
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
    model = built(builder, slots, first_slots, first_probability, layer_start, distribution_start, shared)
    if shared:
        check_stationary(problem, builder, model)
    return model


def check_stationary(problem: Problem, builder: Builder, model: TabularModel) -> None:
    """Query a few states again at the last step at which they occur: the answer must equal that at the first."""
    met = model.reachable.reshape(-1, model.num_slots)[: model.horizon]
    for slot in np.linspace(0, model.num_slots - 1, min(model.num_slots, ASKED_AGAIN), dtype=int).tolist():
        steps = np.flatnonzero(met[:, slot])
        if len(steps) > 1:
            state, first, last = model.state_of_slot(slot), int(steps[0]), int(steps[-1])
            if answers_of(problem, builder, first, state) != answers_of(problem, builder, last, state):
                raise ProblemError(
                    f"state {state!r} has other actions or outcomes at step {last} than at step {first}, but "
                    f"{model.name!r} declares stationary = True; leave that out if anything depends on the step"
                )


def answers_of(problem: Problem, builder: Builder, step: int, state: Hashable) -> list[tuple[Hashable, Any]]:
    """Return the actions of a state, each with its outcomes; probabilities are rounded."""
    answers: list[tuple[Hashable, Any]] = []
    for action in problem.actions(step, state):
        where = Place(step, state, action)
        outcomes = each_outcome(problem.outcomes(step, state, action), where)
        merged = merge(outcomes, builder, where, {}, lambda following, _: following)
        answers.append((action, {outcome: round(chance, 9) for outcome, chance in merged.items()}))
    return answers


def first_distribution(problem: Problem, name: str) -> tuple[np.ndarray, list[Hashable]]:
    """Return probabilities and states of initial(), without those of probability 0."""
    pairs = list(check_each(problem.initial(), f"initial() of {name!r}", "(probability, state) pairs"))
    if not pairs:
        raise ProblemError(f"initial() of {name!r} gave no first state; it must give (probability, state) pairs")
    try:
        probability = np.array([float(p) for p, _ in pairs])
        states = [state for _, state in pairs]
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"initial() of {name!r} must give (probability, state) pairs, got {pairs!r}") from None
    check_distribution(probability, f"of initial() of {name!r}")
    keep = probability > 0
    return probability[keep], [state for state, kept in zip(states, keep, strict=True) if kept]


class Place:
    """Where a problem was queried; formatted only for messages, since most queries succeed."""

    __slots__ = ("action", "state", "step")

    def __init__(self, step: int, state: Hashable, *action: Hashable) -> None:
        self.step, self.state, self.action = step, state, action

    def __str__(self) -> str:
        shown = "".join(f", action {action!r}" for action in self.action)
        return f"step {self.step}, state {self.state!r}{shown}"


def expand(
    problem: Problem, builder: Builder, step: int, state: Hashable, index: dict[Hashable, int], slot_of: SlotOf
) -> Iterator[None]:
    """Store every action of a state with its outcomes; yield after the last, and in between if there are many."""
    where = place = Place(step, state)
    seen: set[Hashable] = set()
    try:
        for action in iterate(problem.actions(step, state), place, "actions"):
            where = Place(step, state, action)
            refuse_action(action, seen, where)
            seen.add(action)
            given = problem.outcomes(step, state, action)
            plain = merge_plain(given, builder, where, index, slot_of) if type(given) in (list, tuple) else None
            if plain is None:
                builder.add_row(action, merge(each_outcome(given, where), builder, where, index, slot_of))
            else:
                builder.add_plain_row(action, *plain)
            if len(seen) % PAUSE == 0:
                yield
    except PeakError:
        raise
    except Exception as error:  # raised by the user's code: pass it on with a note
        error.add_note(f"{builder.header.name!r} raised this when it was queried at {where}")
        raise
    if not seen:
        raise ProblemError(f"{place}: no action is on offer before the horizon; offer one that leads nowhere new")
    builder.end_slot()
    yield


def refuse_action(action: Any, seen: set[Hashable], where: Place) -> None:
    """Raise if an action is not hashable or occurs twice."""
    try:
        twice = action in seen
    except TypeError:
        raise ProblemError(f"{where}: the action is not hashable") from None
    if twice:
        raise ProblemError(f"{where}: the action is offered twice")


def each_outcome(given: Any, where: Place) -> Iterator[Any]:
    """Return an iterator over the outcomes of an action."""
    if isinstance(given, Outcome):
        raise ProblemError(f"{where}: outcomes() gave a single Outcome; it must give a sequence: [Outcome(...)]")
    return iterate(given, where, "outcomes")


def iterate(given: Any, where: Place, of: str) -> Iterator[Any]:
    """Return an iterator over actions or outcomes; a string, which would be iterated by letters, is an error."""
    if isinstance(given, str):
        raise ProblemError(f"{where}: {of}() gave {given!r}; it must be a sequence of {of}")
    return iter(given) if type(given) in (list, tuple) else check_each(given, f"{where}: {of}()", of)


def merge_plain(
    outcomes: Any, builder: Builder, where: Place, index: Mapping[Hashable, int], slot_of: SlotOf
) -> tuple[dict[int, float], tuple[float, ...]] | None:
    """Return {next slot: probability} and the payoff, if all outcomes have the same payoff and nothing is unusual.

    None means that `merge` must check the outcomes.
    """
    if not outcomes or type(outcomes[0]) is not Outcome:
        return None
    _, _, reward, constraints = outcomes[0]
    if type(constraints) is not tuple or type(reward) not in PLAIN or not PLAIN.issuperset(map(type, constraints)):
        return None
    payoff = builder.known_payoffs.get((reward, constraints)) or builder.plain_payoff(reward, constraints)
    if payoff is None:
        return None
    merged: dict[int, float] = {}
    total = 0.0
    for outcome in outcomes:
        if type(outcome) is not Outcome:
            return None
        probability, following, earned, values = outcome
        if values is not constraints or earned is not reward or type(probability) is not float or not probability > 0.0:
            return None
        total += probability
        try:
            slot = index[following]
        except (KeyError, TypeError):
            slot = slot_of(following, where)
        merged[slot] = merged.get(slot, 0.0) + probability
    return (merged, payoff) if abs(total - 1.0) <= ROUNDING else None


def merge(
    outcomes: Iterable[Any], builder: Builder, where: Place, index: Mapping[Hashable, Any], slot_of: SlotOf
) -> dict[tuple[int, tuple[float, ...]], float]:
    """Return {(next slot, payoff): probability} of validated outcomes; equal outcomes are added up.

    `index` holds the slots of known states; `slot_of` adds others.
    """
    merged: dict[tuple[int, tuple[float, ...]], float] = {}
    total, known = 0.0, builder.known_payoffs
    for each in outcomes:
        outcome = each if isinstance(each, Outcome) else as_outcome(each, where)
        given, following, reward, constraints = outcome
        try:
            probability = given if type(given) is float else float(given)
        except (TypeError, ValueError, OverflowError):
            raise ProblemError(f"{where}: probability {given!r} is not a number") from None
        if not 0.0 <= probability <= 1.0 + ROUNDING:
            raise ProblemError(f"{where}: probability {probability} is not a number from 0 to 1")
        total += probability
        if type(constraints) is tuple and PLAIN.issuperset(map(type, constraints)) and type(reward) in PLAIN:
            payoff = known.get((reward, constraints)) or builder.plain_payoff(reward, constraints)
            payoff = payoff or builder.payoff(outcome, where)
        else:
            payoff = builder.payoff(outcome, where)
        if probability > 0.0:
            try:
                slot = index[following]
            except (KeyError, TypeError):
                slot = slot_of(following, where)
            key = (slot, payoff)
            merged[key] = merged[key] + probability if key in merged else probability
    if total == 0.0:
        raise ProblemError(f"{where}: outcomes() gave nothing that can happen; probabilities must sum to 1")
    if abs(total - 1.0) > ROUNDING:
        raise ProblemError(f"{where}: probabilities sum to {total:.12g}, not to 1")
    return merged


def as_outcome(given: Any, where: Place) -> Outcome:
    """Return an Outcome, also of a plain tuple."""
    try:
        return Outcome(*given)
    except TypeError:
        form = "Outcome(probability, next_state, reward, constraints)"
        raise ProblemError(f"{where}: {given!r} is not an {form}") from None


def revisits(builder: Builder, layer_start: list[int]) -> bool:
    """Does some state with actions occur at two steps? (Slots are numbered by the step at which they first occur.)"""
    depth = np.repeat(np.arange(len(layer_start) - 1), np.diff(layer_start))
    rows_depth = np.repeat(depth, np.diff(builder.row_start))
    starts = np.array(builder.outcome_start[:-1])[builder.row_distribution]
    # The nearest next slot of a row is enough: outcomes are sorted by slot, so by depth.
    nearest = depth[np.array(builder.outcome_next)[starts]]
    return bool((nearest != rows_depth + 1).any())


def guard_memory(name: str, states: int, rows: int, step: int, limit: float) -> None:
    """Raise if a model of this size would not fit."""
    used = states * BYTES_A_STATE + rows * BYTES_A_ROW
    if used > limit:
        refuse_size(name, states, rows, step, used, limit)


def refuse_size(name: str, states: int, rows: int, step: int, used: float, limit: float) -> NoReturn:
    """Raise for a model that does not fit."""
    raise ProblemError(
        f"{name!r} has at least {states:,} states and {rows:,} pairs by step {step}, about {used / 1e9:.3g} GB: "
        f"more than the limit of {limit / 1e9:.3g} GB. Coarsen the states, or raise memory_limit"
    )
