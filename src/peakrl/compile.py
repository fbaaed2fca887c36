"""Compile a `Problem` to a `TabularModel`: breadth-first search over the reachable states.

Layer L_0 is the support of the first state, and L_{h+1} all next states of L_h. A stationary problem whose states recur
at several steps has one set of slots for all steps; a problem whose layers are disjoint (scheduling: the number of
finished jobs is the step), and every problem that depends on the step, is stored layer by layer.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import le
from typing import Any, NamedTuple

import numpy as np

from peakrl.checks import AT_MOST, ROUNDING, check_count, check_distribution, check_each, is_usual
from peakrl.errors import PeakError, ProblemError, SettingsError
from peakrl.memory import check_tables
from peakrl.problem import NO_TRUTH_VALUES, Header, Outcome, Problem, header_of, payoff_limits
from peakrl.progress import Progress
from peakrl.ragged import number_lists, shared_lists
from peakrl.space import StateSpace, expand, starts_of
from peakrl.storage import SHARE, available_memory
from peakrl.tabular import TabularModel, assemble, warn_of_signs
from peakrl.types import Floats, Ints, Longs, Payoffs

#: Approximate bytes of Python objects and arrays while a model is built, for the memory limit.
BYTES_A_STATE, BYTES_A_ROW, BYTES_AN_OUTCOME, BYTES_A_NUMBER = 500, 120, 60, 40
#: Types that `float` accepts although they are mistakes: a comparison in place of a difference, text.
NUMBERS = "the reward must be a number and the constraints a sequence of numbers, such as (1.0,)"
NO_NUMBERS = {bool, np.bool_, str}
#: A reward and the values of the constraints.
Payoff = tuple[float, ...]
#: Number of states of a stationary problem that are queried at a second step.
ASKED_AGAIN = 20
#: A problem without an end is queried again at this step, which is no multiple of days or weeks.
ANOTHER_STEP = 13
#: Kinds of problems that users write; others are built in, and the signs of their constraints are right.
OF_USERS = (None, "tables", "python")
#: A warning says after how many states a search is still going on, and an error ends it after how many by default.
MANY_STATES, MOST_STATES = 100_000, 2_000_000
#: Memory use is checked after so many actions of a state, and after its last action.
PAUSE = 256
#: Returns the slot of a state; the second argument begins the message of an error.
SlotOf = Callable[[Hashable, object], Any]


class Search:
    """The breadth-first search, which queries one state after another."""

    def __init__(self, problem: Problem, memory_limit: float, max_states: int) -> None:
        self.problem, self.limit, self.header = problem, memory_limit, header_of(problem)
        self.max_states, self._begun, self._warned = max_states, time.perf_counter(), False
        self.stationary = bool(getattr(problem, "stationary", False))
        self.whole = "" if self.header.horizon is None else f" of {self.header.horizon}"
        #: The least and the largest valid reward and values of the constraints.
        self.least, self.most = payoff_limits(self.header.reward_range, self.header.constraint_bounds)
        #: [slot]: its state; and the slots of the states of the next layer, or of all states of a stationary problem.
        self.slots: list[Hashable] = []
        self.index: dict[Hashable, int] = {}
        #: [slot]: number of rows; [row]: action and number of outcomes; [outcome]: next slot, probability and payoff.
        self.counts: list[int] = []
        self.row_action: list[int] = []
        self.sizes: list[int] = []
        self.following, self.chances, self.payoffs = array("q"), array("d"), array("q")
        #: Number of each action and of each payoff.
        self.actions: dict[Hashable, int] = {}
        self.payoff_index: dict[Payoff, int] = {}

    def model(self, progress: bool) -> TabularModel:
        """Search, and return the model."""
        name = self.header.name
        first_probability, first_states = first_distribution(self.problem, name)
        first_slots = [self.slot_of(state, "initial()") for state in first_states]
        if len(set(first_slots)) < len(first_slots):
            raise ProblemError(f"initial() of {name!r} names a state twice")
        layer_start = [0, len(self.slots)]
        with Progress("Compiling", unit="pairs", enabled=progress) as bar:
            for step in itertools.count() if self.header.horizon is None else range(self.header.horizon):
                if self.header.horizon is None and layer_start[-1] == layer_start[-2]:
                    break  # every state has been queried
                if not self.stationary:
                    self.index = {}
                for slot in range(layer_start[step], layer_start[step + 1]):
                    self.expand(step, self.slots[slot])
                    if not bar.visible:
                        self.warn_of_number(step)
                    if len(self.counts) % 256 == 0:
                        bar.reach(len(self.row_action), states=len(self.slots), step=step)
                layer_start.append(len(self.slots))
        labels: dict[Hashable, int] = {}
        found = Found(
            np.array(self.counts, np.int64), np.array(self.row_action, np.int64), np.array(self.sizes, np.int64),
            np.array(self.following, np.int32), np.array(self.chances),
            np.array(list(self.payoff_index), np.float64)[np.array(self.payoffs)],
        )  # fmt: skip
        model = assembled(
            self.header,
            found,
            layer_start,
            stationary=self.stationary,
            slot_state=[labels.setdefault(state, len(labels)) for state in self.slots],
            state_labels=list(labels),
            action_labels=list(self.actions),
            first_slot=first_slots,
            first_probability=first_probability,
        )
        if model.stationary:
            self.check_stationary(model)
        return model

    def warn_of_number(self, step: int) -> None:
        """Warn, once, if there are many states."""
        found, name = len(self.slots), self.header.name
        if found > MANY_STATES and not self._warned:
            self._warned = True
            rate = found / (time.perf_counter() - self._begun)
            warnings.warn(
                f"{name!r} has {found:,} states up to step {step}{self.whole}, and the search continues "
                f"at {rate:,.0f} states/s up to max_states={self.max_states:,}. Floats in states hardly ever repeat: "
                "round them. compile_model(problem, progress=True) shows how far it is",
                RuntimeWarning,
                stacklevel=2,
            )

    def slot_of(self, state: Hashable, where: object) -> int:
        """Return the slot of a state, a new one if it has none; `where` begins the message of an error."""
        try:
            slot = self.index.get(state)
        except TypeError:
            raise ProblemError(f"{where}: state {state!r} is not hashable; use a tuple or a frozen dataclass") from None
        if slot is None:
            if len(self.slots) == self.max_states:
                raise ProblemError(
                    f"{where}: {self.header.name!r} has more than {self.max_states:,} states, the last one {state!r}. "
                    "Coarsen the states (floats hardly ever repeat), or pass compile_model(problem, max_states=...); a "
                    "function that a problem file names may return the model"
                )
            slot = self.index[state] = len(self.slots)
            self.slots.append(state)
        return slot

    def expand(self, step: int, state: Hashable) -> None:
        """Store every action of a state with its outcomes."""
        where = place = Place(step, state)
        seen: set[Hashable] = set()
        try:
            for action in iterate(self.problem.actions(step, state), place, "actions"):
                where = Place(step, state, action)
                refuse_action(action, seen, where)
                seen.add(action)
                outcomes = iterate(self.problem.outcomes(step, state, action), where, "outcomes")
                self.add_row(action, self.merge(outcomes, where, self.slot_of))
                if len(seen) % PAUSE == 0:
                    self.guard_memory(step)
        except PeakError:
            raise
        except Exception as error:  # raised by the user's code: pass it on with a note
            error.add_note(f"{self.header.name!r} raised this when it was queried at {where}")
            raise
        if not seen:
            raise ProblemError(f"{place}: no action is on offer before the horizon; offer one that leads nowhere new")
        self.counts.append(len(seen))
        self.guard_memory(step)

    def merge(self, outcomes: Iterable[Any], where: Place, slot_of: SlotOf) -> dict[tuple[Any, Payoff], float]:
        """Return {(next slot, payoff): probability} of validated outcomes; equal outcomes are added up."""
        merged: dict[tuple[Any, Payoff], float] = {}
        total, payoff, before = 0.0, None, Outcome(0.0, None, 0.0)
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
            if payoff is None or reward is not before.reward or constraints is not before.constraints:
                payoff, before = self.payoff(outcome, where), outcome  # often all outcomes have the same
            if probability > 0.0:
                key = (slot_of(following, where), payoff)
                merged[key] = merged[key] + probability if key in merged else probability
        if total == 0.0:
            raise ProblemError(f"{where}: outcomes() gave nothing that can happen; probabilities must sum to 1")
        if abs(total - 1.0) > ROUNDING:
            raise ProblemError(f"{where}: probabilities sum to {total:.12g}, not to 1")
        return merged

    def payoff(self, outcome: Outcome, where: object) -> tuple[float, ...]:
        """Return (reward, constraints...) of an outcome, or raise with a message that begins with `where`."""
        header, given = self.header, outcome.constraints
        reward: Any = outcome.reward
        try:
            paid = (float(reward), *map(float, given))
        except (TypeError, ValueError, OverflowError):
            raise ProblemError(f"{where}: {NUMBERS}; got {outcome!r}") from None
        types = set(map(type, given))
        if not types.isdisjoint(NO_NUMBERS) or isinstance(reward, str):
            form = NUMBERS if str in (type(reward), *types) else NO_TRUTH_VALUES
            raise ProblemError(f"{where}: {form}; got {outcome!r}")
        if len(paid) != len(self.most):
            named = f"{len(header.constraint_names)} constraints; constraint_names is {header.constraint_names}"
            raise ProblemError(f"{where}: {len(paid) - 1} constraint values for {named}")
        if all(map(le, self.least, paid)) and all(map(le, paid, self.most)):
            return paid
        index = next(i for i, value in enumerate(paid) if not self.least[i] <= value <= self.most[i])
        what, limit = "the reward", f", outside of reward_range {header.reward_range}"
        if index > 0:
            what = f"constraint {header.constraint_names[index - 1]!r}"
            limit = f", beyond its bound of {header.constraint_bounds[index - 1]}"
        limit = limit if is_usual(paid[index]) else f"; it must be a finite number{AT_MOST}"
        raise ProblemError(f"{where}: {what} is {paid[index]}{limit}")

    def add_row(self, action: Hashable, merged: dict[tuple[int, Payoff], float]) -> None:
        """Store a pair whose outcomes are {(next slot, payoff): probability}."""
        for (slot, payoff), chance in sorted(merged.items()):
            self.following.append(slot)
            self.chances.append(chance)
            self.payoffs.append(self.payoff_index.setdefault(payoff, len(self.payoff_index)))
        self.sizes.append(len(merged))
        self.row_action.append(self.actions.setdefault(action, len(self.actions)))

    def check_stationary(self, model: TabularModel) -> None:
        """Query a few states again at the last step at which they occur: the answer must equal that at the first."""
        met = model.reachable.reshape(-1, model.num_slots)[: model.lines]
        if model.steps is None:
            met = np.tile(met, (ANOTHER_STEP + 1, 1))
        for slot in np.linspace(0, model.num_slots - 1, min(model.num_slots, ASKED_AGAIN), dtype=int).tolist():
            steps = np.flatnonzero(met[:, slot])
            if len(steps) > 1:
                state, first, last = model.state_of_slot(slot), int(steps[0]), int(steps[-1])
                if self.answers_of(first, state) != self.answers_of(last, state):
                    raise ProblemError(
                        f"state {state!r} has other actions or outcomes at step {last} than at step {first}, but "
                        f"{model.name!r} declares stationary = True; leave that out if anything depends on the step"
                    )

    def answers_of(self, step: int, state: Hashable) -> list[tuple[Hashable, Any]]:
        """Return the actions of a state, each with its outcomes; probabilities are rounded."""
        answers: list[tuple[Hashable, Any]] = []
        for action in self.problem.actions(step, state):
            where = Place(step, state, action)
            outcomes = iterate(self.problem.outcomes(step, state, action), where, "outcomes")
            merged = self.merge(outcomes, where, lambda following, _: following)
            answers.append((action, {outcome: round(chance, 9) for outcome, chance in merged.items()}))
        return answers

    def guard_memory(self, step: int) -> None:
        """Raise if the model so far, with all Python objects, takes more than the memory limit."""
        numbers = len(self.payoff_index) * len(self.most)
        more = len(self.following) * BYTES_AN_OUTCOME + numbers * BYTES_A_NUMBER
        guard_memory(self.header.name, len(self.slots), len(self.row_action), step, self.limit, more)


class Found(NamedTuple):
    """What a search found, in its order; the outcomes of a row are sorted by slot."""

    #: [slot]: number of rows; slots without an entry have none.
    counts: Longs
    #: [row]: action and number of outcomes.
    action: Longs
    sizes: Longs
    #: [outcome]: next slot and probability; [outcome, 1 + I]: reward and constraints.
    following: Ints
    chance: Floats
    paid: Floats


def assembled(
    header: Header, found: Found, layer_start: Sequence[int], *, stationary: bool, **arrays: Any
) -> TabularModel:
    """Return the model of a search, which stores equal distributions and payoffs once.

    Slots of step h begin at layer_start[h], of those that are reached after the last step at layer_start[-2]. A
    `stationary` problem is stored layer by layer only if no state with actions occurs at two steps.
    """
    start = starts_of(found.sizes)
    counts = np.zeros(layer_start[-1], np.int64)
    counts[: len(found.counts)] = found.counts
    row_start = starts_of(counts)
    shared = stationary and (header.horizon is None or revisits(found, start, counts, layer_start))
    ends = [len(found.sizes)] if shared else row_start[layer_start[1:-1]].tolist()
    return assemble(
        header,
        shared_lists(start, found.following, found.chance, ends),
        payoffs_of(found.paid, start),
        row_action=found.action,
        row_start=row_start,
        layer_start=None if shared else layer_start,
        **arrays,
    )


def revisits(found: Found, start: Longs, counts: Longs, layer_start: Sequence[int]) -> bool:
    """Does some state with actions occur at two steps? (Slots are numbered by their first step.)"""
    depth = np.repeat(np.arange(len(layer_start) - 1), np.diff(layer_start))
    # The nearest next slot of a row is enough: outcomes are sorted by slot, so by depth.
    nearest = depth[found.following[start[:-1]]]
    return bool((nearest != np.repeat(depth, counts) + 1).any())


def payoffs_of(paid: Floats, start: Longs) -> Payoffs:
    """Return payoff records, given [outcome, 1 + I]: one for each row, or one for each outcome if any row needs that.

    The outcomes of a row are start[row] .. start[row + 1].
    """
    dependent = bool((paid != np.repeat(paid[start[:-1]], np.diff(start), axis=0)).any())
    if not dependent:
        paid, start = paid[start[:-1]], np.arange(len(start))
    number = np.zeros(len(paid), np.int32)
    for column in paid.T:  # 0.0 and -0.0 are one number
        number, _ = number_lists(np.arange(len(paid) + 1), number, (column + 0.0).view(np.uint64))
    record, first = number_lists(start, number, np.zeros(len(paid), np.uint64))
    sizes = np.diff(start)[first]
    table = paid[expand(start[first], sizes)]
    return Payoffs(int(dependent), starts_of(sizes)[record].astype(np.int32), table[:, 0], table[:, 1:])


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


def compile_model(
    problem: Target, *, progress: bool = False, memory_limit: float | None = None, max_states: int = MOST_STATES
) -> TabularModel:
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
    max_states
        A search that finds more states, counted by step unless the problem is stationary, is an error; a warning comes
        after 100,000. It does not apply to problems with a method `tabulate`.

    Returns
    -------
    TabularModel

    Examples
    --------
    >>> import peakrl
    >>> model = peakrl.compile_model(peakrl.problems.energy_harvesting(peak_power=8))
    >>> model.num_states, model.num_pairs
    (441, 9261)
    """
    if isinstance(problem, StateSpace):
        return as_model(problem)
    tabulate = None if isinstance(problem, type) else getattr(problem, "tabulate", None)
    limit = available_memory() * SHARE if memory_limit is None else check_limit(memory_limit)
    if tabulate is not None:
        model: TabularModel = tabulate(limit)
    else:
        most = check_count(max_states, "max_states")
        model = explore(problem, progress=progress, memory_limit=limit, max_states=most)
    check_tables(model.name, model.lines, model.num_slots if model.stationary else 1, limit)
    spec = getattr(problem, "spec", None)
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    if kind in OF_USERS:
        warn_of_signs(model)
    return replace(model, spec=spec) if isinstance(spec, Mapping) and kind is not None else model


def check_limit(given: Any) -> float:
    """Return a number of bytes or raise."""
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not given >= 0:
        raise SettingsError(f"memory_limit is {given!r}; it must be a number of bytes")
    return float(given)


def explore(
    problem: Problem, *, progress: bool = False, memory_limit: float = math.inf, max_states: int = MOST_STATES
) -> TabularModel:
    """Compile by querying one state after another."""
    return Search(problem, memory_limit, max_states).model(progress)


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


def refuse_action(action: Any, seen: set[Hashable], where: Place) -> None:
    """Raise if an action is not hashable or occurs twice."""
    try:
        twice = action in seen
    except TypeError:
        raise ProblemError(f"{where}: the action is not hashable") from None
    if twice:
        raise ProblemError(f"{where}: the action is offered twice")


def iterate(given: Any, where: Place, of: str) -> Iterator[Any]:
    """Return an iterator over actions or outcomes; a string or a single outcome, which has parts, is an error."""
    if isinstance(given, Outcome):
        raise ProblemError(f"{where}: {of}() gave a single Outcome; it must give a sequence: [Outcome(...)]")
    if isinstance(given, str):
        raise ProblemError(f"{where}: {of}() gave {given!r}; it must be a sequence of {of}")
    return iter(given) if type(given) in (list, tuple) else check_each(given, f"{where}: {of}()", of)


def as_outcome(given: Any, where: Place) -> Outcome:
    """Return an Outcome, also of a plain tuple."""
    try:
        return Outcome(*given)
    except TypeError:
        form = "Outcome(probability, next_state, reward, constraints)"
        raise ProblemError(f"{where}: {given!r} is not an {form}") from None


def guard_memory(name: str, states: int, rows: int, step: int, limit: float, more: float = 0.0) -> None:
    """Raise if a model of this size, and `more` bytes, would not fit."""
    used = states * BYTES_A_STATE + rows * BYTES_A_ROW + more
    if used > limit:
        raise ProblemError(
            f"{name!r} has at least {states:,} states and {rows:,} pairs by step {step}, about {used / 1e9:.3g} GB: "
            f"more than the limit of {limit / 1e9:.3g} GB. Coarsen the states, or raise memory_limit"
        )
