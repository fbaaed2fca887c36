"""`ArrayProblem`: a problem whose methods take many states at once, and its vectorised compilation.

A state is a tuple of integers within declared ranges, and so one integer, its code:

    code(x_1 .. x_n) = ((x_1 - low_1) * size_2 + (x_2 - low_2)) * size_3 + ...

The search is breadth-first as in `compile.explore`, some thousands of states of a layer at a time. The answers of the
problem are written to arrays [action, outcome, ..., state]; `collect_rows` checks them and goes through states, actions
and outcomes in order. A next state that has no slot yet gets the next one, so that states and rows have the order of
`explore`. Outcomes of probability 0 are dropped; those of a row are sorted by slot, and if payoffs do not depend on the
outcome, equal next states are merged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakrl.checks import LARGEST, ROUNDING
from peakrl.compile import first_distribution, guard_memory
from peakrl.errors import ProblemError
from peakrl.jit import inlined, kernel, loop
from peakrl.problem import NO_TRUTH_VALUES, Header, Outcome, Problem, header_of
from peakrl.ragged import shared_lists
from peakrl.space import starts_of
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Floats, Ints, Longs, Payoffs

#: Results of `collect_rows`.
NO_FAULT, NO_DISTRIBUTION, NO_PAYOFF, NO_FIELD = 0, 1, 2, 3


class Answers(NamedTuple):
    """Answers of a problem for some states; `collect_rows` checks them."""

    #: [action, state]: is the action available?
    offered: NDArray[np.bool_]
    #: [action, outcome, state]
    chance: Floats
    #: [action, outcome, field, state]: the next state.
    following: Longs
    #: [action, outcome, 1 + I, state]: the reward and the constraints.
    payoff: Floats


class Limits(NamedTuple):
    """Limits of fields and payoffs."""

    #: [field]: lowest value and number of values.
    low: Longs
    size: Longs
    #: [1 + I]: lowest and highest payoff.
    least: Floats
    most: Floats


class Found(NamedTuple):
    """Buffers for the rows of some states."""

    #: [row]: action, number of outcomes; [row, 1 + I]: payoff of the first outcome of the answer.
    action: Ints
    sizes: Ints
    payoff: Floats
    #: [outcome]: next slot, probability, and its number in the answer.
    following: Ints
    chance: Floats
    number: Ints
    #: [new state]: its code.
    fresh: Longs


class Counts(NamedTuple):
    """How much `collect_rows` has found, and what is wrong, if anything."""

    rows: int
    outcomes: int
    fresh: int
    #: Do payoffs depend on the outcome?
    dependent: bool
    fault: int
    #: State, action, outcome, and payoff or field that are wrong.
    state: int
    wrong_action: int
    outcome: int
    which: int


@inlined
def fault_of(answers: Answers, limits: Limits, s: int, a: int) -> tuple[int, int, int]:
    """Return what is wrong with a row, its outcome, and its payoff or field."""
    total, negative = 0.0, False
    for o in range(answers.chance.shape[1]):
        total += answers.chance[a, o, s]
        negative = negative or not answers.chance[a, o, s] >= 0.0
    if negative or not abs(total - 1.0) <= ROUNDING:
        return NO_DISTRIBUTION, 0, 0
    for o in range(answers.chance.shape[1]):
        if answers.chance[a, o, s] > 0.0:
            for q in range(answers.payoff.shape[2]):
                if not limits.least[q] <= answers.payoff[a, o, q, s] <= limits.most[q]:
                    return NO_PAYOFF, o, q
            for f in range(answers.following.shape[2]):
                if not 0 <= answers.following[a, o, f, s] - limits.low[f] < limits.size[f]:
                    return NO_FIELD, o, f
    return NO_FAULT, 0, 0


@kernel
def collect_rows(answers: Answers, limits: Limits, slot_of_code: Ints, slots: int, found: Found) -> Counts:
    """Write the rows of all states to `found`; new states are numbered from `slots` on."""
    rows, outcomes, fresh, dependent = 0, 0, 0, False
    actions, most, states = answers.chance.shape
    for s in range(states):
        for a in range(actions):
            if not answers.offered[a, s]:
                continue
            fault, outcome, which = fault_of(answers, limits, s, a)
            if fault != NO_FAULT:
                return Counts(rows, outcomes, fresh, dependent, fault, s, a, outcome, which)
            begin = outcomes
            for o in range(most):
                if answers.chance[a, o, s] > 0.0:
                    code = 0
                    for f in range(answers.following.shape[2]):
                        code = code * limits.size[f] + answers.following[a, o, f, s] - limits.low[f]
                    if slot_of_code[code] < 0:
                        slot_of_code[code] = slots + fresh
                        found.fresh[fresh] = code
                        fresh += 1
                    insert(found, begin, outcomes, slot_of_code[code], answers.chance[a, o, s], o)
                    for q in range(answers.payoff.shape[2]):
                        if outcomes == begin:
                            found.payoff[rows, q] = answers.payoff[a, o, q, s]
                        dependent = dependent or answers.payoff[a, o, q, s] != found.payoff[rows, q]
                    outcomes += 1
            found.action[rows], found.sizes[rows] = a, outcomes - begin
            rows += 1
    return Counts(rows, outcomes, fresh, dependent, NO_FAULT, 0, 0, 0, 0)


@inlined
def insert(found: Found, begin: int, end: int, slot: int, chance: float, number: int) -> None:
    """Insert an outcome into those of its row, begin .. end, after those of the same slot."""
    at = end
    while at > begin and found.following[at - 1] > slot:
        found.following[at], found.chance[at] = found.following[at - 1], found.chance[at - 1]
        found.number[at] = found.number[at - 1]
        at -= 1
    found.following[at], found.chance[at], found.number[at] = slot, chance, number


@loop
def merge_equal(sizes: Ints, following: Ints, chance: Floats) -> int:
    """Add up the probabilities of equal next slots of a row, in place; return the number of outcomes that remain."""
    read, write = 0, 0
    for row in range(sizes.shape[0]):
        begin, end = write, read + sizes[row]
        while read < end:
            if write > begin and following[write - 1] == following[read]:
                chance[write - 1] += chance[read]
            else:
                following[write], chance[write] = following[read], chance[read]
                write += 1
            read += 1
        sizes[row] = write - begin
    return write


class ArrayProblem(Problem):
    """A `Problem` whose states are tuples of integers and whose methods take many states at once.

    `outcomes` gets an array for each field of the state and returns `Outcome`s whose parts are arrays of that length or
    single numbers: use `np.minimum` in place of `min`. An outcome that is impossible in some of the states has the
    probability 0 there. An `ArrayProblem` can be used wherever a `Problem` can, also for single states.
    """

    #: {field: (lowest, highest)}, in the order of the fields in a state.
    state_ranges: Mapping[str, tuple[int, int]]
    #: Every action that is available in some state.
    all_actions: Sequence[Hashable]

    def available(self, step: int, state: tuple[Any, ...], action: Hashable) -> ArrayLike:
        """Return whether an action is available, an array of truth values or one for all states; by default it is."""
        return True

    @abstractmethod
    def outcomes(self, step: int, state: Any, action: Hashable) -> Iterable[Outcome]:
        """Return the possible outcomes of each of these states; the probabilities of each state sum to 1."""

    def actions(self, step: int, state: Hashable) -> list[Hashable]:
        """Return the available actions of a single state."""
        fields: Any = state
        return [action for action in self.all_actions if bool(np.all(self.available(step, fields, action)))]

    def tabulate(self, memory_limit: float) -> TabularModel:
        """Return the model; `compile_model` calls this."""
        return Layers(self, memory_limit).model()


#: Largest number of codes: the table by code takes four bytes for each.
MOST_CODES = 1 << 30
#: Number of states that are queried at once.
MOST_STATES = 1 << 13
FORM = "Outcome(probability, next_state, reward, constraints), each part a number or one for each state"
Bools = NDArray[np.bool_]
Fields = tuple[Longs, ...]
#: Probability, next state and payoffs of an outcome, each a number or one for each state.
Parts = tuple[Any, list[Any], list[Any]]


class Layer(NamedTuple):
    """The rows of some states."""

    #: [state]: number of rows; [row]: action, number of outcomes.
    rows: Longs
    action: Ints
    sizes: Ints
    #: [outcome]: next slot, probability.
    following: Ints
    probability: Floats
    #: Reward and constraints: [row, 1 + I], or [outcome, 1 + I] if they depend on the outcome.
    payoff: Floats


class Buffers:
    """Arrays that are reused for the next states."""

    def __init__(self) -> None:
        self.flat: dict[str, NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array with arbitrary content."""
        size = int(np.prod(shape))
        if name not in self.flat or len(self.flat[name]) < size:
            self.flat[name] = np.empty(size, dtype)
        return self.flat[name][:size].reshape(shape)


class Layers:
    """The breadth-first search."""

    def __init__(self, problem: ArrayProblem, memory_limit: float) -> None:
        self.problem, self.limit, self.header = problem, memory_limit, header_of(problem)
        self.actions = list(problem.all_actions)
        if not self.actions or len(set(self.actions)) < len(self.actions):
            raise ProblemError(f"all_actions of {self.header.name!r} must name at least one action, and none twice")
        self.low, self.size = ranges_of(problem, self.header.name)
        self.limits = limits_of(self.header, self.low, self.size)
        #: [code]: its slot, or -1.
        self.slot_of_code = np.full(int(np.prod(self.size)), -1, np.int32)
        self.codes: list[Longs] = []
        self.slots = self.rows = 0
        self.dependent = False
        self.buffers = Buffers()

    def model(self) -> TabularModel:
        """Search, and return the model."""
        first_probability, first_states = first_distribution(self.problem, self.header.name)
        layer = self.coded(np.array(first_states, np.int64).reshape(len(first_states), -1), "initial()")
        if len(np.unique(layer)) < len(layer):
            raise ProblemError(f"initial() of {self.header.name!r} names a state twice")
        self.slot_of_code[layer] = np.arange(len(layer))
        self.codes, self.slots = [layer], len(layer)
        parts, starts = [], [0, self.slots]
        for step in range(self.header.horizon):
            if not self.problem.stationary:
                self.slot_of_code[layer] = -1
            fresh = []
            for begin in range(0, len(layer), MOST_STATES):
                part, new = self.expand(step, self.fields(layer[begin : begin + MOST_STATES]))
                parts.append(part)
                fresh.append(new)
            layer = np.concatenate(fresh)
            self.codes.append(layer)
            starts.append(self.slots)
            if not len(layer):
                break
        if self.problem.stationary:
            self.check_stationary(self.fields(self.codes[0]))
        return self.assembled(parts, starts, first_probability)

    def check_stationary(self, state: Fields) -> None:
        """Query the first states again at the last step: the answer must equal that at step 0."""
        last = self.header.horizon - 1
        for action in self.actions:
            offered = [self.offered(step, state, action) for step in (0, last)]
            same = np.array_equal(offered[0], offered[1])
            if not same or self.answer(0, state, action, offered[0]) != self.answer(last, state, action, offered[0]):
                raise ProblemError(
                    f"action {action!r} has other outcomes at step {last} than at step 0, but {self.header.name!r} "
                    "declares stationary = True; leave that out if anything depends on the step"
                )

    def answer(self, step: int, state: Fields, action: Hashable, offered: Bools) -> list[list[float]]:
        """Return the outcomes of an action by outcome and part, with 0 in place of impossible outcomes."""
        found = []
        for chance, following, paid in self.asked(step, state, action, offered):
            happens = np.broadcast_to(chance, int(offered.sum())) > 0.0
            parts = (chance, *following, *paid)
            found += [np.where(happens, part, 0.0).tolist() for part in parts]
        return found

    def fields(self, codes: Longs) -> Fields:
        """Return the states of codes as an array for each field."""
        columns = []
        for low, size in zip(reversed(self.low), reversed(self.size), strict=True):
            codes, rest = np.divmod(codes, size)
            columns.append(rest + low)
        return tuple(reversed(columns))

    def coded(self, states: Longs, where: str) -> Longs:
        """Return the codes of states [state, field], or raise if a field is out of range."""
        self.check_fields(states.shape[1], where)
        outside = np.argwhere((states < self.low) | (states >= np.add(self.low, self.size)))
        if len(outside):
            state, field = outside[0]
            self.refuse_field(where, int(field), int(states[state, field]))
        code = np.zeros(len(states), np.int64)
        for column, low, size in zip(states.T, self.low, self.size, strict=True):
            code = code * size + (column - low)
        return code

    def check_fields(self, count: int, where: str) -> None:
        """Raise if a state has the wrong number of fields."""
        if count != len(self.low):
            raise ProblemError(f"{where}: a state has {count} fields; state_ranges names {len(self.low)}")

    def refuse_field(self, where: str, field: int, value: int) -> NoReturn:
        """Raise for a field that is out of range."""
        name = list(self.problem.state_ranges)[field]
        raise ProblemError(f"{where}: field {name!r} is {value}, outside its range in state_ranges")

    def expand(self, step: int, state: Fields) -> tuple[Layer, Longs]:
        """Query some states of a layer; return their rows, and the codes of new states."""
        answers = self.answers(step, state)
        rows = answers.offered.sum(axis=0)
        pairs = int(rows.sum())
        guard_memory(self.header.name, self.slots, self.rows + pairs, step, self.limit)
        most, paid = pairs * answers.chance.shape[1], answers.payoff.shape[2]
        found = Found(
            self.buffers.array("action", (pairs,), np.int32), self.buffers.array("sizes", (pairs,), np.int32),
            self.buffers.array("paid", (pairs, paid), np.float64), self.buffers.array("slot", (most,), np.int32),
            self.buffers.array("share", (most,), np.float64), self.buffers.array("number", (most,), np.int32),
            self.buffers.array("fresh", (most,), np.int64),
        )  # fmt: skip
        counts = Counts(*collect_rows(answers, self.limits, self.slot_of_code, self.slots, found))
        if counts.fault != NO_FAULT:
            self.refuse(step, state, answers, counts)
        self.slots, self.rows = self.slots + counts.fresh, self.rows + pairs
        self.dependent = self.dependent or counts.dependent
        many = counts.outcomes
        payoff = by_outcome(answers, found, rows, many) if counts.dependent else found.payoff.copy()
        outcomes = found.following[:many].copy(), found.chance[:many].copy()
        layer = Layer(rows, found.action.copy(), found.sizes.copy(), *outcomes, payoff)
        return layer, found.fresh[: counts.fresh].copy()

    def answers(self, step: int, state: Fields) -> Answers:
        """Query every action of some states."""
        count, paid = len(state[0]), 1 + len(self.header.constraint_names)
        offered = np.stack([self.offered(step, state, action) for action in self.actions])
        if not offered.any(axis=0).all():
            where = describe(step, state, int(np.flatnonzero(~offered.any(axis=0))[0]))
            raise ProblemError(f"{where}: no action is on offer before the horizon; offer one that leads nowhere new")
        by_action = [self.asked(step, state, action, offered[a]) for a, action in enumerate(self.actions)]
        shape = (len(self.actions), max(map(len, by_action)))
        answers = Answers(
            offered, self.buffers.array("chance", (*shape, count), np.float64),
            self.buffers.array("following", (*shape, len(self.low), count), np.int64),
            self.buffers.array("payoff", (*shape, paid, count), np.float64),
        )  # fmt: skip
        for a, answer in enumerate(by_action):
            answers.chance[a, len(answer) :] = 0.0
            here: Any = slice(None) if offered[a].all() else offered[a]
            for o, (chance, following, payoff) in enumerate(answer):
                answers.chance[a, o, here] = chance
                for f, field in enumerate(following):
                    answers.following[a, o, f, here] = field
                for q, number in enumerate(payoff):
                    answers.payoff[a, o, q, here] = number
        return answers

    def offered(self, step: int, state: Fields, action: Hashable) -> Bools:
        """Return [state]: is the action available?"""
        available, count = np.asarray(self.problem.available(step, state, action)), len(state[0])
        if available.dtype != np.bool_ or available.shape not in ((), (count,)):
            raise ProblemError(f"step {step}, action {action!r}: available() must give a truth value for each state")
        return np.broadcast_to(available, (count,))

    def asked(self, step: int, state: Fields, action: Hashable, offered: Bools) -> list[Parts]:
        """Return the outcomes of an action in the states in which it is available; raise if one is malformed."""
        count, here = int(np.count_nonzero(offered)), f"step {step}, action {action!r}"
        if not count:
            return []
        asked = state if count == len(offered) else tuple(field[offered] for field in state)
        answer = [self.parts(outcome, count, here) for outcome in self.problem.outcomes(step, asked, action)]
        if not answer:
            raise ProblemError(f"{here}: outcomes() gave nothing that can happen; probabilities must sum to 1")
        return answer

    def parts(self, outcome: Any, count: int, here: str) -> Parts:
        """Return the parts of an outcome as arrays, with one number or one for each state."""
        try:
            probability, following, reward, constraints = Outcome(*outcome)
            chance = np.asarray(probability, np.float64)
            fields = [np.asarray(field) for field in following]  # type: ignore[attr-defined]  # a tuple of fields
            paid = [np.asarray(number) for number in (reward, *constraints)]
            for part in (chance, *fields, *paid):
                if part.shape not in ((), (count,)):
                    raise ValueError(f"{part.shape} in place of {count} numbers")
        except (TypeError, ValueError) as error:
            raise ProblemError(f"{here}: {outcome!r} is not an {FORM} ({error})") from None
        if any(field.dtype.kind not in "iu" for field in fields):
            raise ProblemError(f"{here}: a field of the next state is not a whole number")
        if any(number.dtype.kind not in "iuf" for number in paid):
            raise ProblemError(f"{here}: {NO_TRUTH_VALUES}")
        self.check_fields(len(fields), here)
        if len(paid) != 1 + len(self.header.constraint_names):
            named = f"constraint_names is {self.header.constraint_names}"
            raise ProblemError(f"{here}: {len(paid) - 1} constraint values; {named}")
        return chance, fields, paid

    def refuse(self, step: int, state: Fields, answers: Answers, counts: Counts) -> NoReturn:
        """Raise the error about a row."""
        s, a, o, which = counts.state, counts.wrong_action, counts.outcome, counts.which
        where = f"{describe(step, state, s)}, action {self.actions[a]!r}"
        if counts.fault == NO_FIELD:
            self.refuse_field(where, which, int(answers.following[a, o, which, s]))
        if counts.fault == NO_PAYOFF:
            what = "the reward" if which == 0 else f"constraint {self.header.constraint_names[which - 1]!r}"
            ends = f"from {self.limits.least[which]:g} to {self.limits.most[which]:g}"
            raise ProblemError(f"{where}: {what} is {answers.payoff[a, o, which, s]}; it must be a number {ends}")
        raise ProblemError(f"{where}: probabilities sum to {answers.chance[a, :, s].sum():.12g}, not to 1")

    def assembled(self, parts: list[Layer], starts: list[int], first_probability: Floats) -> TabularModel:
        """Build the model."""
        if self.dependent:
            parts = [part._replace(payoff=for_each(part)) for part in parts]
        rows, action, sizes, following, probability, payoff = (
            np.concatenate(each) for each in zip(*parts, strict=True)
        )
        if not self.dependent:
            left = merge_equal(sizes, following, probability)
            following, probability = following[:left], probability[:left]
        first = starts_of(sizes)
        payoffs = Payoffs(
            int(self.dependent), (first[:-1] if self.dependent else np.arange(len(sizes))).astype(np.int32),
            np.ascontiguousarray(payoff[:, 0]), np.ascontiguousarray(payoff[:, 1:]),
        )  # fmt: skip
        codes = np.concatenate(self.codes)
        names, slot_state = (codes, np.arange(len(codes))) if self.problem.stationary else in_order_of_occurrence(codes)
        row_start = np.append(starts_of(rows), np.full(self.slots - len(rows), len(action)))
        last = np.minimum(starts[1:], len(rows))  # of each layer that was queried
        ends = [len(action)] if self.problem.stationary else row_start[last][:-1].tolist()
        lists, list_start = shared_lists(first, following, probability, ends)
        shared = self.problem.stationary
        return assemble(
            self.header,
            state_labels=list(zip(*(field.tolist() for field in self.fields(names)), strict=True)),
            slot_state=slot_state, action_labels=self.actions, row_action=action, row_start=row_start,
            row_distribution=lists[0], outcome_start=lists[1], outcome_next=lists[2], outcome_probability=lists[3],
            payoffs=payoffs, first_slot=np.arange(len(first_probability)), first_probability=first_probability,
            layer_start=None if shared else np.array(starts), distribution_start=None if shared else list_start,
        )  # fmt: skip


def by_outcome(answers: Answers, found: Found, rows: Longs, many: int) -> Floats:
    """Return [outcome, 1 + I]: payoffs of the outcomes that were found."""
    state, row = np.repeat(np.arange(len(rows)), rows), np.repeat(np.arange(len(found.sizes)), found.sizes)
    paid: Floats = answers.payoff[found.action[row], found.number[:many], :, state[row]]
    return paid


def for_each(part: Layer) -> Floats:
    """Return [outcome, 1 + I]: payoffs that may be by row."""
    by_row = len(part.payoff) == len(part.sizes)
    return np.repeat(part.payoff, part.sizes, axis=0) if by_row else part.payoff


def limits_of(header: Header, low: list[int], size: list[int]) -> Limits:
    """Return the limits of fields and payoffs."""
    (lo, hi), bounds = header.reward_range, header.constraint_bounds
    tolerance = ROUNDING * max(1.0, abs(lo), abs(hi)) if np.isfinite([lo, hi]).all() else 0.0
    widest = [min(bound * (1 + ROUNDING), LARGEST) for bound in bounds]
    least = [max(lo - tolerance, -LARGEST), *(-bound for bound in widest)]
    most = [min(hi + tolerance, LARGEST), *widest]
    return Limits(np.array(low, np.int64), np.array(size, np.int64), np.array(least), np.array(most))


def ranges_of(problem: ArrayProblem, name: str) -> tuple[list[int], list[int]]:
    """Return the lowest value and the number of values of each field."""
    try:
        ranges = [(int(low), int(high)) for low, high in problem.state_ranges.values()]
    except (AttributeError, TypeError, ValueError):
        raise ProblemError(f"state_ranges of {name!r} must be a mapping of fields to (least, largest)") from None
    sizes = [high - low + 1 for low, high in ranges]
    if not sizes or min(sizes) < 1:
        raise ProblemError(f"state_ranges of {name!r} must name at least one field, and no range may be empty")
    if float(np.prod(np.array(sizes, np.float64))) > MOST_CODES:
        raise ProblemError(f"state_ranges of {name!r} allow more than {MOST_CODES:,} states: narrow the ranges")
    return [low for low, _ in ranges], sizes


def in_order_of_occurrence(codes: Longs) -> tuple[Longs, Longs]:
    """Return the distinct codes in the order of their first occurrence, and for each code the index among them."""
    unique, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return unique[order], rank[inverse]


def describe(step: int, state: tuple[Longs, ...], number: int) -> str:
    """Describe one of the states that were queried together, for messages."""
    return f"step {step}, state {tuple(int(field[number]) for field in state)!r}"
