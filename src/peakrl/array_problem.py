"""`ArrayProblem`: a problem whose methods take many states at once, and its vectorised compilation.

A state is a tuple of integers within declared ranges, and so one integer, its code:

    code(x_1 .. x_n) = ((x_1 - low_1) * size_2 + (x_2 - low_2)) * size_3 + ...

The search is breadth-first as in `compile.explore`, some thousands of states of a layer at a time. The answers of the
problem are written to arrays [action, outcome, ..., state]; `collect_rows` checks them and goes through states, actions
and outcomes in order. A next state that has no slot yet gets the next one, so that states and rows have the order of
`explore`. Outcomes of probability 0 are dropped; those of a row are sorted by slot, and outcomes with the same next
state and payoff are merged.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakrl.checks import ROUNDING
from peakrl.compile import ANOTHER_STEP, first_distribution, guard_memory
from peakrl.errors import ProblemError
from peakrl.jit import inlined, kernel
from peakrl.problem import NO_TRUTH_VALUES, Outcome, Problem, header_of, payoff_limits
from peakrl.ragged import shared_lists
from peakrl.space import in_order_of_occurrence, starts_of
from peakrl.tabular import TabularModel, assemble
from peakrl.types import Bools, Floats, Ints, Longs, Payoffs

#: Largest number of codes: the table by code takes four bytes for each.
MOST_CODES = 1 << 30
#: Number of states that are queried at once.
MOST_STATES = 1 << 13
FORM = "Outcome(probability, next_state, reward, constraints), each part a number or one for each state"
Fields = tuple[Longs, ...]
#: Probability, next state and payoffs of an outcome, each a number or one for each state.
Parts = tuple[Any, list[Any], list[Any]]
#: What `collect_rows` may find wrong.
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
    """The rows of some states."""

    #: [state]: number of rows; [row]: action, number of outcomes.
    rows: Longs
    action: Ints
    sizes: Ints
    #: [outcome]: next slot and probability; [outcome, 1 + I]: reward and constraints.
    following: Ints
    chance: Floats
    payoff: Floats
    #: [new state]: its code.
    fresh: Longs
    #: Do payoffs depend on the outcome?
    dependent: bool
    #: What is wrong, if anything; and state, action, outcome, and payoff or field.
    fault: tuple[int, int, int, int, int]


class ArrayProblem(Problem):
    """A `Problem` whose states are tuples of integers and whose methods take many states at once.

    `outcomes` gets an array for each field of the state and returns `Outcome`s whose parts are arrays of that length or
    single numbers: use `np.minimum` in place of `min`. An outcome that is impossible in some of the states has the
    probability 0 there. An `ArrayProblem` can be used wherever a `Problem` can, also for single states.

    Examples
    --------
    >>> import numpy as np
    >>> import peakrl
    >>> class Stock(peakrl.ArrayProblem):
    ...     name, horizon, stationary, constraint_names = "stock", 5, True, ("never empty",)
    ...     all_actions = range(3)
    ...     state_ranges = {"stock": (0, 10)}
    ...     def initial(self):
    ...         return [(1.0, (3,))]
    ...     def outcomes(self, step, state, order):
    ...         (stock,) = state
    ...         for probability, demand in ((0.5, 1), (0.5, 2)):
    ...             left = stock - demand
    ...             yield peakrl.Outcome(probability, (np.clip(left, 0, 8) + order,), -1.0 * stock, (left,))
    >>> peakrl.solve(Stock()).feasible
    True
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


class Layers:
    """The breadth-first search."""

    def __init__(self, problem: ArrayProblem, memory_limit: float) -> None:
        self.problem, self.limit, self.header = problem, memory_limit, header_of(problem)
        self.actions = list(problem.all_actions)
        if not self.actions or len(set(self.actions)) < len(self.actions):
            raise ProblemError(f"all_actions of {self.header.name!r} must name at least one action, and none twice")
        self.low, self.size = ranges_of(problem, self.header.name)
        fields = np.array(self.low, np.int64), np.array(self.size, np.int64)
        self.limits = Limits(
            *fields, *map(np.array, payoff_limits(self.header.reward_range, self.header.constraint_bounds))
        )
        #: [code]: its slot, or -1.
        self.slot_of_code = np.full(int(np.prod(self.size)), -1, np.int32)
        self.codes: list[Longs] = []
        self.slots = self.rows = 0
        self.dependent = False

    def model(self) -> TabularModel:
        """Search, and return the model."""
        first_probability, first_states = first_distribution(self.problem, self.header.name)
        layer = self.coded(np.array(first_states, np.int64).reshape(len(first_states), -1), "initial()")
        if len(np.unique(layer)) < len(layer):
            raise ProblemError(f"initial() of {self.header.name!r} names a state twice")
        self.slot_of_code[layer] = np.arange(len(layer))
        self.codes, self.slots = [layer], len(layer)
        parts: list[Found] = []
        starts = [0, self.slots]
        for step in itertools.count() if self.header.horizon is None else range(self.header.horizon):
            if not self.problem.stationary:
                self.slot_of_code[layer] = -1
            chunks = (layer[begin : begin + MOST_STATES] for begin in range(0, len(layer), MOST_STATES))
            found = [self.expand(step, self.fields(codes)) for codes in chunks]
            parts += found
            layer = np.concatenate([part.fresh for part in found])
            self.codes.append(layer)
            starts.append(self.slots)
            if not len(layer):
                break
        if self.problem.stationary:
            self.check_stationary(self.fields(self.codes[0]))
        return self.assembled(parts, starts, first_probability)

    def check_stationary(self, state: Fields) -> None:
        """Query the first states again at the last step: the answer must equal that at step 0."""
        last = ANOTHER_STEP if self.header.horizon is None else self.header.horizon - 1
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

    def expand(self, step: int, state: Fields) -> Found:
        """Query some states of a layer; return their rows, with one payoff each unless it depends on the outcome."""
        answers = self.answers(step, state)
        self.rows += int(answers.offered.sum())
        guard_memory(self.header.name, self.slots, self.rows, step, self.limit)
        found = Found(*collect_rows(answers, self.limits, self.slot_of_code, self.slots))
        if found.fault[0] != NO_FAULT:
            self.refuse(step, state, answers, *found.fault)
        self.slots += len(found.fresh)
        self.dependent = self.dependent or found.dependent
        return found if found.dependent else found._replace(payoff=found.payoff[starts_of(found.sizes)[:-1]])

    def answers(self, step: int, state: Fields) -> Answers:
        """Query every action of some states."""
        count = len(state[0])
        offered = np.stack([self.offered(step, state, action) for action in self.actions])
        if not offered.any(axis=0).all():
            where = describe(step, state, int(np.flatnonzero(~offered.any(axis=0))[0]))
            raise ProblemError(f"{where}: no action is on offer before the horizon; offer one that leads nowhere new")
        by_action = [self.asked(step, state, action, offered[a]) for a, action in enumerate(self.actions)]
        shape = (len(self.actions), max(map(len, by_action)))
        answers = Answers(
            offered, np.zeros((*shape, count)), np.empty((*shape, len(self.low), count), np.int64),
            np.empty((*shape, len(self.limits.least), count)),
        )  # fmt: skip
        for a, answer in enumerate(by_action):
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

    def refuse(
        self, step: int, state: Fields, answers: Answers, fault: int, s: int, a: int, o: int, which: int
    ) -> NoReturn:
        """Raise the error about a row."""
        where = f"{describe(step, state, s)}, action {self.actions[a]!r}"
        if fault == NO_FIELD:
            self.refuse_field(where, which, int(answers.following[a, o, which, s]))
        if fault == NO_PAYOFF:
            what = "the reward" if which == 0 else f"constraint {self.header.constraint_names[which - 1]!r}"
            ends = f"from {self.limits.least[which]:g} to {self.limits.most[which]:g}"
            raise ProblemError(f"{where}: {what} is {answers.payoff[a, o, which, s]}; it must be a number {ends}")
        raise ProblemError(f"{where}: probabilities sum to {answers.chance[a, :, s].sum():.12g}, not to 1")

    def assembled(self, parts: list[Found], starts: list[int], first_probability: Floats) -> TabularModel:
        """Build the model."""
        if self.dependent:  # payoffs of all parts by outcome
            parts = [
                part if part.dependent else part._replace(payoff=np.repeat(part.payoff, part.sizes, axis=0))
                for part in parts
            ]
        rows, action, sizes, following, probability, payoff = (
            np.concatenate(each) for each in zip(*(part[:6] for part in parts), strict=True)
        )
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
        return assemble(
            self.header,
            shared_lists(first, following, probability, ends),
            payoffs,
            state_labels=list(zip(*(field.tolist() for field in self.fields(names)), strict=True)),
            slot_state=slot_state,
            action_labels=self.actions,
            row_action=action,
            row_start=row_start,
            first_slot=np.arange(len(first_probability)),
            first_probability=first_probability,
            layer_start=None if self.problem.stationary else starts,
        )


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
def collect_rows(answers: Answers, limits: Limits, slot_of_code: Ints, slots: int) -> Found:
    """Return the rows of all states, up to the first fault; new states are numbered from `slots` on."""
    actions, most, states = answers.chance.shape
    pairs = answers.offered.sum()
    counts, action, sizes = np.zeros(states, np.int64), np.empty(pairs, np.int32), np.empty(pairs, np.int32)
    following, chance = np.empty(pairs * most, np.int32), np.empty(pairs * most)
    payoff, fresh = np.empty((pairs * most, answers.payoff.shape[2])), np.empty(pairs * most, np.int64)
    rows, end, new, dependent, fault = 0, 0, 0, False, (NO_FAULT, 0, 0, 0, 0)
    for s in range(states):
        for a in range(actions):
            if not answers.offered[a, s] or fault[0] != NO_FAULT:
                continue
            kind, outcome, which = fault_of(answers, limits, s, a)
            if kind != NO_FAULT:
                fault = (kind, s, a, outcome, which)
                continue
            begin = end
            for o in range(most):
                if not answers.chance[a, o, s] > 0.0:
                    continue
                dependent = dependent or (end > begin and not pays(answers.payoff, a, o, s, payoff, begin))
                code = 0
                for f in range(answers.following.shape[2]):
                    code = code * limits.size[f] + answers.following[a, o, f, s] - limits.low[f]
                if slot_of_code[code] < 0:
                    slot_of_code[code] = slots + new
                    fresh[new] = code
                    new += 1
                slot = slot_of_code[code]
                at = end
                while at > begin and following[at - 1] > slot:
                    at -= 1
                same = at
                while same > begin and following[same - 1] == slot:
                    if pays(answers.payoff, a, o, s, payoff, same - 1):
                        break
                    same -= 1
                if same > begin and following[same - 1] == slot:
                    chance[same - 1] += answers.chance[a, o, s]
                    continue
                for later in range(end, at, -1):
                    following[later], chance[later] = following[later - 1], chance[later - 1]
                    payoff[later] = payoff[later - 1]
                following[at], chance[at] = slot, answers.chance[a, o, s]
                for q in range(payoff.shape[1]):
                    payoff[at, q] = answers.payoff[a, o, q, s]
                end += 1
            action[rows], sizes[rows] = a, end - begin
            counts[s] += 1
            rows += 1
    return Found(
        counts, action, sizes, following[:end].copy(), chance[:end].copy(), payoff[:end].copy(), fresh[:new].copy(),
        dependent, fault,
    )  # fmt: skip


@inlined
def pays(answered: Floats, a: int, o: int, s: int, payoff: Floats, outcome: int) -> bool:
    """Does the answered outcome of an action pay the same as a stored one?"""
    same = True
    for q in range(payoff.shape[1]):
        same = same and answered[a, o, q, s] == payoff[outcome, q]
    return same


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


def describe(step: int, state: tuple[Longs, ...], number: int) -> str:
    """Describe one of the states that were queried together, for messages."""
    return f"step {step}, state {tuple(int(field[number]) for field in state)!r}"
