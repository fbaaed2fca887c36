"""`ArrayProblem`: a problem whose methods take many states at once, and its vectorised compilation.

A state is a tuple of integers within declared ranges, and so one integer, its code:

    code(x_1 .. x_n) = ((x_1 - low_1) * size_2 + (x_2 - low_2)) * size_3 + ...

The search is breadth-first as in `compile.explore`, many states of a layer at a time. The answers of the problem are
put into the order in which `explore` queries single states, so that the model is the same. Outcomes of probability 0
are dropped; those of a row are sorted by slot, and outcomes with the same next state and payoff are merged.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from peakrl.checks import ROUNDING
from peakrl.compile import ANOTHER_STEP, BYTES_AN_OUTCOME, Found, assembled, first_distribution, guard_memory
from peakrl.errors import ProblemError
from peakrl.problem import NO_TRUTH_VALUES, Outcome, Problem, header_of, payoff_limits
from peakrl.space import in_order_of_occurrence
from peakrl.tabular import TabularModel
from peakrl.types import Bools, Floats, Longs

#: Largest number of codes.
MOST_CODES = 1 << 62
#: Largest number of outcomes of the states that are queried at once.
MOST_ANSWERS = 1 << 19
FORM = "Outcome(probability, next_state, reward, constraints), each part a number or one for each state"
Fields = tuple[Longs, ...]
#: Probability, next state and payoffs of an outcome, each a number or one for each state.
Parts = tuple[Any, list[Any], list[Any]]


class Answers(NamedTuple):
    """Checked answers of a problem for some states, in the order of states, actions and outcomes."""

    #: [state, action]: is the action available?
    offered: Bools
    #: [outcome]: its row, its probability (above 0) and the code of the next state.
    row: Longs
    chance: Floats
    code: Longs
    #: [1 + I, outcome]: the reward and the constraints.
    paid: Floats


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

    def actions(self, step: int, state: Hashable) -> Sequence[Hashable]:
        """Return the available actions of a single state."""
        fields: Any = state
        return [action for action in self.all_actions if bool(np.all(self.available(step, fields, action)))]

    def labels(self, fields: Fields) -> Sequence[Hashable]:
        """Return the labels of states: tuples of their fields."""
        return list(zip(*(field.tolist() for field in fields), strict=True))

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
        #: Sorted codes of the next layer, or of all states of a stationary problem, and their slots.
        self.known, self.slot_of_known = np.empty(0, np.int64), np.empty(0, np.int64)
        #: The codes of new states, in the order of their slots.
        self.fresh: list[Longs] = []
        #: Numbers of states, pairs and outcomes so far, and largest number of outcomes of an action.
        self.slots, self.rows, self.outcomes, self.most = 0, 0, 0, MOST_ANSWERS

    def model(self) -> TabularModel:
        """Search, and return the model."""
        first_probability, first_states = first_distribution(self.problem, self.header.name)
        fields = np.array(first_states, np.int64).reshape(len(first_states), -1)
        self.check_fields(fields.shape[1], "initial()")
        outside = np.argwhere((fields < self.low) | (fields >= np.add(self.low, self.size)))
        for state, field in outside[:1].tolist():
            self.refuse_field("initial()", field, int(fields[state, field]))
        first = self.slots_of(self.coded(fields.T))
        if self.slots < len(first):
            raise ProblemError(f"initial() of {self.header.name!r} names a state twice")
        parts: list[Found] = []
        starts, layer = [0, self.slots], np.concatenate(self.fresh)
        for step in itertools.count() if self.header.horizon is None else range(self.header.horizon):
            before = len(self.fresh)
            if not self.problem.stationary:
                self.known, self.slot_of_known = self.known[:0], self.slot_of_known[:0]
            while len(layer):
                count = max(1, MOST_ANSWERS // (len(self.actions) * self.most))
                parts.append(self.expand(step, self.fields(layer[:count])))
                layer = layer[count:]
            starts.append(self.slots)
            if starts[-1] == starts[-2]:
                break
            layer = np.concatenate(self.fresh[before:])
        if self.problem.stationary:
            self.check_stationary(self.fields(self.fresh[0]))
        found = Found(*map(np.concatenate, zip(*parts, strict=True)))
        names, slot_state = in_order_of_occurrence(np.concatenate(self.fresh))
        used, action = in_order_of_occurrence(found.action)
        return assembled(
            self.header,
            found._replace(action=action),
            starts,
            stationary=bool(self.problem.stationary),
            state_labels=self.problem.labels(self.fields(names)),
            slot_state=slot_state,
            action_labels=[self.actions[index] for index in used.tolist()],
            first_slot=first,
            first_probability=first_probability,
        )

    def check_stationary(self, state: Fields) -> None:
        """Query the first states again at the last step: the answer must equal that at step 0."""
        last = ANOTHER_STEP if self.header.horizon is None else self.header.horizon - 1
        first, again = self.answers(0, state), self.answers(last, state)
        if not all(np.array_equal(one, other) for one, other in zip(first, again, strict=True)):
            raise ProblemError(
                f"the first states have other actions or outcomes at step {last} than at step 0, but "
                f"{self.header.name!r} declares stationary = True; leave that out if anything depends on the step"
            )

    def fields(self, codes: Longs) -> Fields:
        """Return the states of codes as an array for each field."""
        columns = []
        for low, size in zip(reversed(self.low), reversed(self.size), strict=True):
            codes, rest = np.divmod(codes, size)
            columns.append(rest + low)
        return tuple(reversed(columns))

    def coded(self, fields: Longs) -> Longs:
        """Return the codes of states [field, state]."""
        code: Longs = np.zeros(fields.shape[1], np.int64)
        for field, low, size in zip(fields, self.low, self.size, strict=True):
            code = code * size + (field - low)
        return code

    def slots_of(self, codes: Longs) -> Longs:
        """Return the slots of states; new ones are numbered in the order of their first occurrence."""
        distinct, index = in_order_of_occurrence(codes)
        place = np.searchsorted(self.known, distinct)
        there = np.isin(distinct, self.known)
        slots = np.empty(len(distinct), np.int64)
        slots[there] = self.slot_of_known[place[there]]
        fresh = distinct[~there]
        slots[~there] = self.slots + np.arange(len(fresh))
        order = np.argsort(fresh)
        into = place[~there][order]
        self.known = np.insert(self.known, into, fresh[order])
        self.slot_of_known = np.insert(self.slot_of_known, into, slots[~there][order])
        self.fresh.append(fresh)
        self.slots += len(fresh)
        return slots[index]

    def check_fields(self, count: int, where: str) -> None:
        """Raise if a state has the wrong number of fields."""
        if count != len(self.low):
            raise ProblemError(f"{where}: a state has {count} fields; state_ranges names {len(self.low)}")

    def refuse_field(self, where: str, field: int, value: int) -> NoReturn:
        """Raise for a field that is out of range."""
        name = list(self.problem.state_ranges)[field]
        raise ProblemError(f"{where}: field {name!r} is {value}, outside its range in state_ranges")

    def expand(self, step: int, state: Fields) -> Found:
        """Query some states of a layer and return their rows."""
        offered, row, chance, code, paid = self.answers(step, state)
        self.rows += int(offered.sum())
        self.outcomes += len(row)
        slot = self.slots_of(code)
        order = np.argsort(row * self.slots + slot, kind="stable")
        if (np.diff((row * self.slots + slot)[order]) == 0).any():
            order = np.lexsort((*paid[::-1], slot, row))
        row, slot, paid = row[order], slot[order], paid[:, order]
        differs = (np.diff(row) != 0) | (np.diff(slot) != 0) | (np.diff(paid) != 0).any(axis=0)
        first = np.flatnonzero(np.append(True, differs))
        total = np.bincount(np.append(0, np.cumsum(differs)), chance[order]).astype(np.float64)
        return Found(
            offered.sum(axis=1), np.nonzero(offered)[1], np.bincount(row[first]), slot[first].astype(np.int32), total,
            paid[:, first].T,
        )  # fmt: skip

    def answers(self, step: int, state: Fields) -> Answers:
        """Query every action of some states."""
        offered = np.stack([self.offered(step, state, action) for action in self.actions], axis=1)
        if not offered.any(axis=1).all():
            where = describe(step, state, int(np.argmin(offered.any(axis=1))))
            raise ProblemError(f"{where}: no action is on offer before the horizon; offer one that leads nowhere new")
        pairs, more = self.rows + int(offered.sum()), self.outcomes * BYTES_AN_OUTCOME
        guard_memory(self.header.name, self.slots, pairs, step, self.limit, more)
        row_of = (np.cumsum(offered) - 1).reshape(offered.shape)
        columns: list[tuple[Any, ...]] = []
        self.most = 1
        for a, action in enumerate(self.actions):
            answer = self.asked(step, state, action, offered[:, a])
            self.most = max(self.most, len(answer))
            rows = row_of[offered[:, a], a]
            columns += (np.broadcast_arrays(rows, chance, *fields, *paid) for chance, fields, paid in answer)
        row, chance, *rest = map(np.concatenate, zip(*columns, strict=True))
        order = np.argsort(row, kind="stable")
        row, chance, count = row[order], chance[order], len(self.low)
        following, paid = np.array(rest[:count], np.int64)[:, order], np.array(rest[count:], np.float64)[:, order]
        self.check(step, state, offered, row, chance, following, paid)
        happens = chance > 0.0
        return Answers(offered, row[happens], chance[happens], self.coded(following[:, happens]), paid[:, happens])

    def check(
        self, step: int, state: Fields, offered: Bools, row: Longs, chance: Floats, following: Longs, paid: Floats
    ) -> None:
        """Raise if probabilities, next states or payoffs are wrong."""

        def where(wrong: int) -> str:
            number, action = np.argwhere(offered)[wrong]
            return f"{describe(step, state, number)}, action {self.actions[action]!r}"

        total = np.bincount(row, np.where(chance >= 0.0, chance, np.nan))
        for wrong in np.flatnonzero(~(np.abs(total - 1.0) <= ROUNDING)).tolist():
            raise ProblemError(f"{where(wrong)}: probabilities sum to {total[wrong]:.12g}, not to 1")
        happens = chance > 0.0
        for f, (field, low, size) in enumerate(zip(following, self.low, self.size, strict=True)):
            for wrong in np.flatnonzero(happens & ~((low <= field) & (field < low + size))).tolist():
                self.refuse_field(where(row[wrong]), f, int(field[wrong]))
        names = ("the reward", *(f"constraint {name!r}" for name in self.header.constraint_names))
        limits = payoff_limits(self.header.reward_range, self.header.constraint_bounds)
        for what, numbers, least, most in zip(names, paid, *limits, strict=True):
            for wrong in np.flatnonzero(happens & ~((least <= numbers) & (numbers <= most))).tolist():
                ends = f"from {least:g} to {most:g}"
                raise ProblemError(f"{where(row[wrong])}: {what} is {numbers[wrong]}; it must be a number {ends}")

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
