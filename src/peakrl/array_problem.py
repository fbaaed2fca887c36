"""Breadth-first search over packed states: the rows of some states at once, as a problem tells of them.

A state is a tuple of whole numbers within ranges, and so one number, its code:

    code(x_1 .. x_n) = ((x_1 - low_1) * size_2 + (x_2 - low_2)) * size_3 + ...

`place` [code] holds the slot of a state, -1 where it has none. States, their actions and what may come of them are gone
through in order, and a next state that has no slot gets the next one. Outcomes of probability 0 are left out; those of
a row are put in the order of their slots.

A user's numbers are looked at here for the first time: one may be NaN, which a `loop` must not meet.


Problems that are asked about many states at once: the fast way from a user's code to a model.

A state is a tuple of whole numbers within declared ranges, and so one number, its code (`array_kernels`). Breadth
first as in `explore`: `outcomes(step, state, action)` is asked for many states of a layer together, with an array for
each field, and a table by code finds which of the next states are new. States and rows come in the order in which
`explore` would have met them.


The search behind `ArrayProblem`: layer after layer, some thousands of states at a time.

What a problem tells of them is written into arrays [action, outcome, ..., state]; `array_kernels` checks it, finds the
next states and lays the rows out. Outcomes of a row that lead to the same state are one where payoffs do not depend on
what happens next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakrl.checks import LARGEST, ROUNDING
from peakrl.compile import constraint_bounds, first_distribution, guard_memory, reward_range
from peakrl.errors import ProblemError
from peakrl.from_arrays import Rows, unique_lists
from peakrl.jit import inlined, kernel, loop
from peakrl.problem import NO_TRUTH_VALUES, Header, Outcome, Problem, header_of
from peakrl.space import starts_of
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Floats, Ints, Longs, Payoffs

#: What `collect_rows` finds.
NO_FAULT, NO_DISTRIBUTION, NO_PAYOFF, NO_FIELD = 0, 1, 2, 3


class Told(NamedTuple):
    """What a problem says of some states, checked by `collect_rows`."""

    #: [action, state]: is it on offer?
    offered: NDArray[np.bool_]
    #: [action, outcome, state]
    chance: Floats
    #: [action, outcome, field, state]: the next state.
    following: Longs
    #: [action, outcome, 1 + I, state]: the reward and the constraints.
    payoff: Floats


class Limits(NamedTuple):
    """What fields and payoffs must keep to."""

    #: [field]: the least value and the number of values.
    low: Longs
    size: Longs
    #: [1 + I]: the least and the largest payoff.
    least: Floats
    most: Floats


class Found(NamedTuple):
    """Room for the rows of some states."""

    #: [row]: which action, how many outcomes; [row, 1 + I]: what the first of them as told pays.
    action: Ints
    sizes: Ints
    payoff: Floats
    #: [outcome]: next slot, probability, and which one as told.
    following: Ints
    chance: Floats
    number: Ints
    #: [new state]: its code.
    fresh: Longs


class Counts(NamedTuple):
    """How much `collect_rows` has found, and what is wrong where anything is."""

    rows: int
    outcomes: int
    fresh: int
    #: Do payoffs depend on what happens next?
    dependent: bool
    fault: int
    #: The state, the action, the outcome and the payoff or field that are wrong.
    state: int
    wrong_action: int
    outcome: int
    which: int


@inlined
def fault_of(told: Told, limits: Limits, s: int, a: int) -> tuple[int, int, int]:
    """Return what is wrong with a row, with the outcome and the payoff or field."""
    total, negative = 0.0, False
    for o in range(told.chance.shape[1]):
        total += told.chance[a, o, s]
        negative = negative or not told.chance[a, o, s] >= 0.0
    if negative or not abs(total - 1.0) <= ROUNDING:
        return NO_DISTRIBUTION, 0, 0
    for o in range(told.chance.shape[1]):
        if told.chance[a, o, s] > 0.0:
            for q in range(told.payoff.shape[2]):
                if not limits.least[q] <= told.payoff[a, o, q, s] <= limits.most[q]:
                    return NO_PAYOFF, o, q
            for f in range(told.following.shape[2]):
                if not 0 <= told.following[a, o, f, s] - limits.low[f] < limits.size[f]:
                    return NO_FIELD, o, f
    return NO_FAULT, 0, 0


@kernel
def collect_rows(told: Told, limits: Limits, place: Ints, slots: int, found: Found) -> Counts:
    """Put the rows of all states into `found`, and number the states that are new from `slots` on."""
    rows, outcomes, fresh, dependent = 0, 0, 0, False
    actions, most, states = told.chance.shape
    for s in range(states):
        for a in range(actions):
            if not told.offered[a, s]:
                continue
            fault, outcome, which = fault_of(told, limits, s, a)
            if fault != NO_FAULT:
                return Counts(rows, outcomes, fresh, dependent, fault, s, a, outcome, which)
            begin = outcomes
            for o in range(most):
                if told.chance[a, o, s] > 0.0:
                    code = 0
                    for f in range(told.following.shape[2]):
                        code = code * limits.size[f] + told.following[a, o, f, s] - limits.low[f]
                    if place[code] < 0:
                        place[code] = slots + fresh
                        found.fresh[fresh] = code
                        fresh += 1
                    insert(found, begin, outcomes, place[code], told.chance[a, o, s], o)
                    for q in range(told.payoff.shape[2]):
                        if outcomes == begin:
                            found.payoff[rows, q] = told.payoff[a, o, q, s]
                        dependent = dependent or told.payoff[a, o, q, s] != found.payoff[rows, q]
                    outcomes += 1
            found.action[rows], found.sizes[rows] = a, outcomes - begin
            rows += 1
    return Counts(rows, outcomes, fresh, dependent, NO_FAULT, 0, 0, 0, 0)


@inlined
def insert(found: Found, begin: int, end: int, slot: int, chance: float, number: int) -> None:
    """Put an outcome among those of its row that are there already, begin .. end, behind those of its slot."""
    at = end
    while at > begin and found.following[at - 1] > slot:
        found.following[at], found.chance[at] = found.following[at - 1], found.chance[at - 1]
        found.number[at] = found.number[at - 1]
        at -= 1
    found.following[at], found.chance[at], found.number[at] = slot, chance, number


@loop
def merge_equal(sizes: Ints, following: Ints, chance: Floats) -> int:
    """Add the probabilities of equal next slots of a row up, in place; return how many outcomes are left."""
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
        return Layers(self, memory_limit).model()


#: Different codes, at most: the table by code takes four bytes for each.
MOST_CODES = 1 << 30
#: So many states are asked about at once.
MOST_STATES = 1 << 13
NO_PAIRS: Longs = np.empty(0, np.int64)
FORM = "Outcome(probability, next_state, reward, constraints), each part a number or one for each state"
Bools = NDArray[np.bool_]
Fields = tuple[Longs, ...]
#: An outcome's probability, next state and payoffs, each a number or one for each state.
Parts = tuple[Any, list[Any], list[Any]]


class Layer(NamedTuple):
    """The rows of some states, one after another."""

    #: [state]: how many rows; [row]: which action, how many outcomes.
    rows: Longs
    action: Ints
    sizes: Ints
    #: [outcome]: next slot, probability.
    following: Ints
    probability: Floats
    #: Reward and constraints: [row, 1 + I], or [outcome, 1 + I] where they depend on what happens next.
    payoff: Floats


class Room:
    """Arrays that are used again for the next states."""

    def __init__(self) -> None:
        self.flat: dict[str, NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array, what is in it left from before."""
        size = int(np.prod(shape))
        if name not in self.flat or len(self.flat[name]) < size:
            self.flat[name] = np.empty(size, dtype)
        return self.flat[name][:size].reshape(shape)


class Layers:
    """The search: layer after layer, from the first states on."""

    def __init__(self, problem: ArrayProblem, memory_limit: float) -> None:
        self.problem, self.limit, self.header = problem, memory_limit, header_of(problem)
        self.actions = list(problem.all_actions)
        if not self.actions or len(set(self.actions)) < len(self.actions):
            raise ProblemError(f"all_actions of {self.header.name!r} must name at least one action, and none twice")
        self.low, self.size = ranges_of(problem, self.header.name)
        self.limits = limits_of(self.header, self.low, self.size)
        #: [code]: its slot, -1 where it has none.
        self.place = np.full(int(np.prod(self.size)), -1, np.int32)
        self.codes: list[Longs] = []
        self.slots = self.rows = 0
        self.dependent = False
        self.room = Room()

    def model(self) -> TabularModel:
        """Search, and put the model together."""
        first_probability, first_states = first_distribution(self.problem, self.header.name)
        layer = self.coded(np.array(first_states, np.int64).reshape(len(first_states), -1), "initial()")
        if len(np.unique(layer)) < len(layer):
            raise ProblemError(f"initial() of {self.header.name!r} names a state twice")
        self.place[layer] = np.arange(len(layer))
        self.codes, self.slots = [layer], len(layer)
        parts, starts = [], [0, self.slots]
        for step in range(self.header.horizon):
            if not self.problem.stationary:
                self.place[layer] = -1
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
        """Ask about the first states again at the last step: the answer must be what it was at the first."""
        last = self.header.horizon - 1
        for action in self.actions:
            offered = [self.offered(step, state, action) for step in (0, last)]
            same = np.array_equal(offered[0], offered[1])
            if not same or self.answer(0, state, action, offered[0]) != self.answer(last, state, action, offered[0]):
                raise ProblemError(
                    f"action {action!r} has other outcomes at step {last} than at step 0, though {self.header.name!r} "
                    "says stationary = True; leave that out where anything depends on the step"
                )

    def answer(self, step: int, state: Fields, action: Hashable, offered: Bools) -> list[list[float]]:
        """Return what an action may lead to, by outcome and part; nothing of what has the probability 0."""
        found = []
        for chance, following, paid in self.asked(step, state, action, offered):
            happens = np.broadcast_to(chance, int(offered.sum())) > 0.0
            parts = (chance, *following, *paid)
            found += [np.where(happens, part, 0.0).tolist() for part in parts]
        return found

    def fields(self, codes: Longs) -> Fields:
        """Return the states of codes, an array for each field."""
        columns = []
        for low, size in zip(reversed(self.low), reversed(self.size), strict=True):
            codes, rest = np.divmod(codes, size)
            columns.append(rest + low)
        return tuple(reversed(columns))

    def coded(self, states: Longs, where: str) -> Longs:
        """Return the codes of states [state, field], or raise where a field leaves its range."""
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
        """Raise where a state has other fields than it should."""
        if count != len(self.low):
            raise ProblemError(f"{where}: a state has {count} fields; state_ranges names {len(self.low)}")

    def refuse_field(self, where: str, field: int, value: int) -> NoReturn:
        """Raise for a field that leaves its range."""
        name = list(self.problem.state_ranges)[field]
        raise ProblemError(f"{where}: field {name!r} is {value}, outside its range in state_ranges")

    def expand(self, step: int, state: Fields) -> tuple[Layer, Longs]:
        """Ask about some states of a layer; return their rows, and the codes of those met for the first time."""
        told = self.told(step, state)
        rows = told.offered.sum(axis=0)
        pairs = int(rows.sum())
        guard_memory(self.header.name, self.slots, self.rows + pairs, step, self.limit)
        most, paid = pairs * told.chance.shape[1], told.payoff.shape[2]
        found = Found(
            self.room.array("action", (pairs,), np.int32), self.room.array("sizes", (pairs,), np.int32),
            self.room.array("paid", (pairs, paid), np.float64), self.room.array("slot", (most,), np.int32),
            self.room.array("share", (most,), np.float64), self.room.array("number", (most,), np.int32),
            self.room.array("fresh", (most,), np.int64),
        )  # fmt: skip
        counts = Counts(*collect_rows(told, self.limits, self.place, self.slots, found))
        if counts.fault != NO_FAULT:
            self.refuse(step, state, told, counts)
        self.slots, self.rows = self.slots + counts.fresh, self.rows + pairs
        self.dependent = self.dependent or counts.dependent
        many = counts.outcomes
        payoff = by_outcome(told, found, rows, many) if counts.dependent else found.payoff.copy()
        outcomes = found.following[:many].copy(), found.chance[:many].copy()
        layer = Layer(rows, found.action.copy(), found.sizes.copy(), *outcomes, payoff)
        return layer, found.fresh[: counts.fresh].copy()

    def told(self, step: int, state: Fields) -> Told:
        """Ask about every action of some states, and lay the answers out."""
        count, paid = len(state[0]), 1 + len(self.header.constraint_names)
        offered = np.stack([self.offered(step, state, action) for action in self.actions])
        if not offered.any(axis=0).all():
            where = place_of(step, state, int(np.flatnonzero(~offered.any(axis=0))[0]))
            raise ProblemError(f"{where}: no action is on offer before the horizon; offer one that leads nowhere new")
        answers = [self.asked(step, state, action, offered[a]) for a, action in enumerate(self.actions)]
        shape = (len(self.actions), max(map(len, answers)))
        told = Told(
            offered, self.room.array("chance", (*shape, count), np.float64),
            self.room.array("following", (*shape, len(self.low), count), np.int64),
            self.room.array("payoff", (*shape, paid, count), np.float64),
        )  # fmt: skip
        for a, answer in enumerate(answers):
            told.chance[a, len(answer) :] = 0.0
            here: Any = slice(None) if offered[a].all() else offered[a]
            for o, (chance, following, payoff) in enumerate(answer):
                told.chance[a, o, here] = chance
                for f, field in enumerate(following):
                    told.following[a, o, f, here] = field
                for q, number in enumerate(payoff):
                    told.payoff[a, o, q, here] = number
        return told

    def offered(self, step: int, state: Fields, action: Hashable) -> Bools:
        """Return [state]: is the action on offer?"""
        told, count = np.asarray(self.problem.available(step, state, action)), len(state[0])
        if told.dtype != np.bool_ or told.shape not in ((), (count,)):
            raise ProblemError(f"step {step}, action {action!r}: available() must give a truth value for each state")
        return np.broadcast_to(told, (count,))

    def asked(self, step: int, state: Fields, action: Hashable, offered: Bools) -> list[Parts]:
        """Return what an action may lead to in the states that offer it, each outcome of the right form."""
        count, here = int(np.count_nonzero(offered)), f"step {step}, action {action!r}"
        if not count:
            return []
        asked = state if count == len(offered) else tuple(field[offered] for field in state)
        answer = [self.parts(outcome, count, here) for outcome in self.problem.outcomes(step, asked, action)]
        if not answer:
            raise ProblemError(f"{here}: outcomes() gave nothing that can happen; probabilities must sum to 1")
        return answer

    def parts(self, outcome: Any, count: int, here: str) -> Parts:
        """Return the parts of an outcome as arrays of as many numbers as states, or of one."""
        try:
            told, following, reward, constraints = Outcome(*outcome)
            chance = np.asarray(told, np.float64)
            fields = [np.asarray(field) for field in following]  # type: ignore[attr-defined]  # a tuple of fields
            paid = [np.asarray(number) for number in (reward, *constraints)]
            for part in (chance, *fields, *paid):
                if part.shape not in ((), (count,)):
                    raise ValueError(f"{part.shape} in place of {count} numbers")
        except (TypeError, ValueError) as error:
            raise ProblemError(f"{here}: {outcome!r} is not an {FORM} ({error})") from None
        if any(field.dtype.kind not in "iu" for field in fields):
            raise ProblemError(f"{here}: a field of the next state is no whole number")
        if any(number.dtype.kind not in "iuf" for number in paid):
            raise ProblemError(f"{here}: {NO_TRUTH_VALUES}")
        self.check_fields(len(fields), here)
        if len(paid) != 1 + len(self.header.constraint_names):
            named = f"constraint_names is {self.header.constraint_names}"
            raise ProblemError(f"{here}: {len(paid) - 1} constraint values; {named}")
        return chance, fields, paid

    def refuse(self, step: int, state: Fields, told: Told, counts: Counts) -> NoReturn:
        """Raise for what is wrong with a row."""
        s, a, o, which = counts.state, counts.wrong_action, counts.outcome, counts.which
        where = f"{place_of(step, state, s)}, action {self.actions[a]!r}"
        if counts.fault == NO_FIELD:
            self.refuse_field(where, which, int(told.following[a, o, which, s]))
        if counts.fault == NO_PAYOFF:
            what = "the reward" if which == 0 else f"constraint {self.header.constraint_names[which - 1]!r}"
            ends = f"from {self.limits.least[which]:g} to {self.limits.most[which]:g}"
            raise ProblemError(f"{where}: {what} is {told.payoff[a, o, which, s]}; it must be a number {ends}")
        raise ProblemError(f"{where}: probabilities sum to {told.chance[a, :, s].sum():.12g}, not to 1")

    def assembled(self, parts: list[Layer], starts: list[int], first_probability: Floats) -> TabularModel:
        """Put everything that was met together."""
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
        names, slot_state = (codes, np.arange(len(codes))) if self.problem.stationary else in_order_met(codes)
        row_start = np.append(starts_of(rows), np.full(self.slots - len(rows), len(action)))
        last = np.minimum(starts[1:], len(rows))  # of each layer that was asked about
        ends = [len(action)] if self.problem.stationary else row_start[last][:-1].tolist()
        lists, list_start = shared_lists(first, following, probability, ends)
        shared = self.problem.stationary
        return assemble(
            with_bounds(self.header, payoffs),
            state_labels=list(zip(*(field.tolist() for field in self.fields(names)), strict=True)),
            slot_state=slot_state, action_labels=self.actions, row_action=action, row_start=row_start,
            row_distribution=lists[0], outcome_start=lists[1], outcome_next=lists[2], outcome_probability=lists[3],
            payoffs=payoffs, first_slot=np.arange(len(first_probability)), first_probability=first_probability,
            layer_start=None if shared else np.array(starts), distribution_start=None if shared else list_start,
        )  # fmt: skip


def by_outcome(told: Told, found: Found, rows: Longs, many: int) -> Floats:
    """Return [outcome, 1 + I]: what each of the outcomes that were found pays."""
    state, row = np.repeat(np.arange(len(rows)), rows), np.repeat(np.arange(len(found.sizes)), found.sizes)
    paid: Floats = told.payoff[found.action[row], found.number[:many], :, state[row]]
    return paid


def for_each(part: Layer) -> Floats:
    """Return [outcome, 1 + I]: payoffs that may be by row."""
    by_row = len(part.payoff) == len(part.sizes)
    return np.repeat(part.payoff, part.sizes, axis=0) if by_row else part.payoff


def limits_of(header: Header, low: list[int], size: list[int]) -> Limits:
    """Return what fields and payoffs must keep to."""
    (lo, hi), bounds = header.reward_range, header.constraint_bounds
    room = ROUNDING * max(1.0, abs(lo), abs(hi)) if np.isfinite([lo, hi]).all() else 0.0
    widest = [min(bound * (1 + ROUNDING), LARGEST) for bound in bounds]
    least, most = [max(lo - room, -LARGEST), *(-bound for bound in widest)], [min(hi + room, LARGEST), *widest]
    return Limits(np.array(low, np.int64), np.array(size, np.int64), np.array(least), np.array(most))


def shared_lists(start: Longs, following: Ints, probability: Floats, ends: list[int]) -> tuple[Any, Longs]:
    """Store next-state lists that repeat within a stretch of rows once; return them and where each stretch begins."""
    index, outcome_ends, members, chances, counts = [], [np.zeros(1, np.int64)], [], [], [0]
    begin = 0
    for end in ends:
        here = slice(int(start[begin]), int(start[end]))
        stretch = start[begin : end + 1] - start[begin]
        rows = Rows(NO_PAIRS, NO_PAIRS, stretch, following[here], probability[here])
        own, stops, picked, weights = unique_lists(rows)
        index.append(own + counts[-1])
        outcome_ends.append(stops + outcome_ends[-1][-1])
        members.append(picked)
        chances.append(weights)
        counts.append(counts[-1] + len(stops))
        begin = end
    return tuple(np.concatenate(each) for each in (index, outcome_ends, members, chances)), np.array(counts)


def ranges_of(problem: ArrayProblem, name: str) -> tuple[list[int], list[int]]:
    """Return the least value and the number of values of each field."""
    try:
        ranges = [(int(low), int(high)) for low, high in problem.state_ranges.values()]
    except (AttributeError, TypeError, ValueError):
        raise ProblemError(f"state_ranges of {name!r} must be a mapping of fields to (least, largest)") from None
    sizes = [high - low + 1 for low, high in ranges]
    if not sizes or min(sizes) < 1:
        raise ProblemError(f"state_ranges of {name!r} must name a field at least, and none whose range is empty")
    if float(np.prod(np.array(sizes, np.float64))) > MOST_CODES:
        raise ProblemError(f"state_ranges of {name!r} allow more than {MOST_CODES:,} states: narrow the ranges")
    return [low for low, _ in ranges], sizes


def with_bounds(header: Header, payoffs: Payoffs) -> Header:
    """Return a header whose bounds are declared or else read off."""
    return header._replace(
        reward_range=reward_range(header, payoffs), constraint_bounds=constraint_bounds(header, payoffs)
    )


def in_order_met(codes: Longs) -> tuple[Longs, Longs]:
    """Return different codes in the order of their first place, and for each place which of them it is."""
    unique, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return unique[order], rank[inverse]


def place_of(step: int, state: tuple[Longs, ...], number: int) -> str:
    """Name one of the states that were asked about together."""
    return f"step {step}, state {tuple(int(field[number]) for field in state)!r}"
