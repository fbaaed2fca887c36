"""Problems that are asked about whole layers of states at once: the fast way from a user's code to a model.

A state is a tuple of whole numbers within declared ranges, and so one number, its *code*:

    code(x_1 .. x_n) = ((x_1 - low_1) * size_2 + (x_2 - low_2)) * size_3 + ...

Breadth first as in `explore`: `outcomes(step, state, action)` is asked for all states of a layer together, with an
array for each field, and a table by code finds which of the next states are new. States and rows come in the order in
which `explore` would have met them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakrl.checks import LARGEST, ROUNDING
from peakrl.errors import ProblemError
from peakrl.kernels.arrays import Floats, Longs, Payoffs
from peakrl.model.assemble import assemble
from peakrl.model.building import NO_TRUTH_VALUES, constraint_bounds, reward_range
from peakrl.model.explore import first_distribution, guard_memory
from peakrl.model.from_arrays import Rows, unique_lists
from peakrl.model.header import Header, header_of
from peakrl.model.problem import Outcome, Problem
from peakrl.model.space import starts_of
from peakrl.model.tabular import TabularModel

#: Different codes, at most: the table by code takes four bytes for each.
MOST_CODES = 1 << 30
NO_PAIRS: Longs = np.empty(0, np.int64)
Bools = NDArray[np.bool_]


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


class Layer(NamedTuple):
    """The rows of some states, one after another."""

    #: [state]: how many rows; [row]: which action, how many outcomes.
    rows: Longs
    action: Longs
    sizes: Longs
    #: [outcome]: next slot, probability, and reward with constraints [outcome, 1 + I].
    following: Longs
    probability: Floats
    payoff: Floats


class Layers:
    """The search: layer after layer, from the first states on."""

    def __init__(self, problem: ArrayProblem, memory_limit: float) -> None:
        self.problem, self.limit, self.header = problem, memory_limit, header_of(problem)
        self.actions = list(problem.all_actions)
        if not self.actions or len(set(self.actions)) < len(self.actions):
            raise ProblemError(f"all_actions of {self.header.name!r} must name at least one action, and none twice")
        self.low, self.size = ranges_of(problem, self.header.name)
        #: [code]: its slot, -1 where it has none.
        self.place = np.full(int(np.prod(self.size)), -1, np.int32)
        self.codes: list[Longs] = []
        self.slots = 0

    def model(self) -> TabularModel:
        """Search, and put the model together."""
        first_probability, first_states = first_distribution(self.problem, self.header.name)
        layer = self.coded(np.array(first_states, np.int64).reshape(len(first_states), -1), "initial()")
        if len(np.unique(layer)) < len(layer):
            raise ProblemError(f"initial() of {self.header.name!r} names a state twice")
        self.number(layer)
        parts, starts = [], [0, self.slots]
        for step in range(self.header.horizon):
            if not self.problem.stationary:
                self.place[layer] = -1
            parts.append(self.expand(step, layer))
            layer = self.codes[-1]
            starts.append(self.slots)
            if not len(layer):
                break
        if self.problem.stationary:
            self.check_stationary(self.codes[0])
        return self.assembled(parts, starts, first_probability)

    def check_stationary(self, layer: Longs) -> None:
        """Ask about the first states again at the last step: the answer must be what it was at the first."""
        state, last = self.fields(layer), self.header.horizon - 1
        for action in self.actions:
            offered = [self.offered(step, state, action, len(layer)) for step in (0, last)]
            same = np.array_equal(offered[0], offered[1])
            told = [self.told(step, state, action, offered[0]) for step in (0, last)] if same else []
            if not same or any(not np.array_equal(one, other) for one, other in zip(*told, strict=True)):
                raise ProblemError(
                    f"action {action!r} has other outcomes at step {last} than at step 0, though {self.header.name!r} "
                    "says stationary = True; leave that out where anything depends on the step"
                )

    def number(self, codes: Longs) -> None:
        """Give codes the next slots."""
        self.place[codes] = np.arange(self.slots, self.slots + len(codes), dtype=np.int32)
        self.slots += len(codes)
        self.codes.append(codes)

    def fields(self, codes: Longs) -> tuple[Longs, ...]:
        """Return the states of codes, an array for each field."""
        columns = []
        for low, size in zip(reversed(self.low), reversed(self.size), strict=True):
            codes, rest = np.divmod(codes, size)
            columns.append(rest + low)
        return tuple(reversed(columns))

    def coded(self, states: Longs, where: str) -> Longs:
        """Return the codes of states [state, field], or raise where a field leaves its range."""
        if states.shape[1] != len(self.low):
            raise ProblemError(f"{where}: a state has {states.shape[1]} fields; state_ranges names {len(self.low)}")
        inside = (states >= self.low) & (states < np.add(self.low, self.size))
        if not inside.all():
            state, field = np.argwhere(~inside)[0]
            name = list(self.problem.state_ranges)[field]
            raise ProblemError(f"{where}: field {name!r} is {states[state, field]}, outside its range in state_ranges")
        code = np.zeros(len(states), np.int64)
        for column, low, size in zip(states.T, self.low, self.size, strict=True):
            code = code * size + (column - low)
        return code

    def expand(self, step: int, layer: Longs) -> Layer:
        """Ask about all states of a layer; those met for the first time get slots and make the next one."""
        state = self.fields(layer)
        offered = np.stack([self.offered(step, state, action, len(layer)) for action in self.actions], axis=1)
        if not offered.any(axis=1).all():
            where = place_of(step, state, int(np.flatnonzero(~offered.any(axis=1))[0]))
            raise ProblemError(f"{where}: no action is on offer before the horizon; offer one that leads nowhere new")
        guard_memory(self.header.name, self.slots, int(offered.sum()), step, self.limit)
        told = [self.told(step, state, action, offered[:, number]) for number, action in enumerate(self.actions)]
        most = max(chance.shape[1] for chance, _, _ in told)
        chance = np.stack([padded(each[0], most) for each in told], axis=1)
        code = np.stack([padded(each[1], most) for each in told], axis=1)
        payoff = np.stack([padded(each[2], most) for each in told], axis=1)
        happens = (chance > 0.0) & offered[:, :, None]
        following = self.met(code[happens])
        rows = offered.sum(axis=1)
        return Layer(
            rows, np.nonzero(offered)[1], happens.sum(axis=2)[offered], following, chance[happens], payoff[happens]
        )

    def met(self, codes: Longs) -> Longs:
        """Return the slots of next states, new ones numbered in the order in which they are met."""
        fresh = codes[self.place[codes] < 0]
        new, first = np.unique(fresh, return_index=True)
        self.number(new[np.argsort(first)])
        return self.place[codes].astype(np.int64)

    def offered(self, step: int, state: tuple[Longs, ...], action: Hashable, count: int) -> Bools:
        """Return [state]: is the action on offer?"""
        told = np.asarray(self.problem.available(step, state, action))
        if told.dtype != np.bool_ or told.shape not in ((), (count,)):
            raise ProblemError(f"step {step}, action {action!r}: available() must give a truth value for each state")
        return np.broadcast_to(told, (count,))

    def told(self, step: int, state: tuple[Longs, ...], action: Hashable, offered: Bools) -> tuple[Any, Any, Any]:
        """Return probability and code [state, outcome] and payoff [state, outcome, 1 + I] of an action, checked."""
        asked = tuple(field[offered] for field in state)
        count, here = int(offered.sum()), f"step {step}, action {action!r}"
        outcomes = list(self.problem.outcomes(step, asked, action)) if count else []
        parts = [self.parts(outcome, count, here) for outcome in outcomes]
        if count and not parts:
            raise ProblemError(f"{here}: outcomes() gave nothing that can happen; probabilities must sum to 1")
        chance = np.stack([part[0] for part in parts], axis=1) if parts else np.zeros((0, 1))
        payoff = np.stack([part[2] for part in parts], axis=1) if parts else self.no_payoff()
        wrong = np.flatnonzero(~(np.abs(chance.sum(axis=1) - 1.0) <= ROUNDING) | ~(chance >= 0.0).all(axis=1))
        if wrong.size:
            where, total = place_of(step, asked, int(wrong[0])), chance[wrong[0]].sum()
            raise ProblemError(f"{where}, action {action!r}: probabilities sum to {total:.12g}, not to 1")
        self.check_payoffs(payoff, chance > 0.0, step, asked, action)
        code = np.zeros(chance.shape, np.int64)
        for number, part in enumerate(parts):
            possible = chance[:, number] > 0.0
            code[possible, number] = self.coded(part[1][possible], here)
        return spread(chance, offered), spread(code, offered), spread(payoff, offered)

    def no_payoff(self) -> Floats:
        """Return the payoffs of no state."""
        return np.zeros((0, 1, 1 + len(self.header.constraint_names)))

    def parts(self, outcome: Any, count: int, here: str) -> tuple[Floats, Longs, Floats]:
        """Return probability [state], next state [state, field] and payoff [state, 1 + I] of an outcome."""
        try:
            told, following, reward, constraints = Outcome(*outcome)
            chance = np.broadcast_to(np.asarray(told, np.float64), (count,))
            fields = [np.broadcast_to(np.asarray(field), (count,)) for field in following]  # type: ignore[attr-defined]  # a tuple of fields
            paid = [np.broadcast_to(np.asarray(number), (count,)) for number in (reward, *constraints)]
        except (TypeError, ValueError) as error:
            form = "Outcome(probability, next_state, reward, constraints), each part a number or one for each state"
            raise ProblemError(f"{here}: {outcome!r} is not an {form} ({error})") from None
        if any(field.dtype.kind not in "iu" for field in fields):
            raise ProblemError(f"{here}: a field of the next state is no whole number")
        if any(number.dtype.kind not in "iuf" for number in paid):
            raise ProblemError(f"{here}: {NO_TRUTH_VALUES}")
        if len(paid) != 1 + len(self.header.constraint_names):
            named = f"constraint_names is {self.header.constraint_names}"
            raise ProblemError(f"{here}: {len(paid) - 1} constraint values; {named}")
        return chance, np.stack(fields, axis=1).astype(np.int64), np.stack(paid, axis=1).astype(np.float64)

    def check_payoffs(self, payoff: Floats, possible: Bools, step: int, asked: Any, action: Hashable) -> None:
        """Raise where a reward or a constraint value passes its bounds."""
        (lo, hi), bounds = self.header.reward_range, self.header.constraint_bounds
        room = ROUNDING * max(1.0, abs(lo), abs(hi)) if np.isfinite([lo, hi]).all() else 0.0
        least = [max(lo - room, -LARGEST), *(-min(bound * (1 + ROUNDING), LARGEST) for bound in bounds)]
        most = [min(hi + room, LARGEST), *(min(bound * (1 + ROUNDING), LARGEST) for bound in bounds)]
        wrong = np.argwhere(~((payoff >= least) & (payoff <= most)) & possible[:, :, None])
        if wrong.size:
            state, number, which = wrong[0]
            what = "the reward" if which == 0 else f"constraint {self.header.constraint_names[which - 1]!r}"
            value, limits = payoff[state, number, which], f"from {least[which]:g} to {most[which]:g}"
            where = place_of(step, asked, int(state))
            raise ProblemError(f"{where}, action {action!r}: {what} is {value}; it must be a number {limits}")

    def assembled(self, parts: list[Layer], starts: list[int], first_probability: Floats) -> TabularModel:
        """Put everything that was met together."""
        rows, action, sizes, following, probability, payoff = (
            np.concatenate(each) for each in zip(*parts, strict=True)
        )
        row = np.repeat(np.arange(len(sizes)), sizes)
        # Most rows are in order already, which a stable sort makes use of.
        order = np.argsort(row * self.slots + following, kind="stable")
        following, probability, payoff = following[order], probability[order], payoff[order]
        heads = starts_of(sizes)[:-1]
        dependent = any(bool((each != np.repeat(each[heads], sizes)).any()) for each in payoff.T)
        if not dependent:
            payoff = payoff[heads]
            kept = np.flatnonzero(np.append(True, (np.diff(row) > 0) | (np.diff(following) != 0)))
            probability, following = np.add.reduceat(probability, kept), following[kept]
            sizes = np.bincount(row[kept], minlength=len(sizes))
        first = starts_of(sizes)
        payoffs = Payoffs(
            int(dependent), (first[:-1] if dependent else np.arange(len(sizes))).astype(np.int32),
            np.ascontiguousarray(payoff[:, 0]), np.ascontiguousarray(payoff[:, 1:]),
        )  # fmt: skip
        codes = np.concatenate(self.codes)
        names, slot_state = (codes, np.arange(len(codes))) if self.problem.stationary else in_order_met(codes)
        row_start = np.append(starts_of(rows), np.full(self.slots - len(rows), len(action)))
        ends = [len(action)] if self.problem.stationary else row_start[starts[1 : len(parts) + 1]].tolist()
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


def shared_lists(start: Longs, following: Longs, probability: Floats, ends: list[int]) -> tuple[Any, Longs]:
    """Store next-state lists that repeat within a stretch of rows once; return them and where each stretch begins."""
    index, outcome_ends, members, chances, counts = [], [np.zeros(1, np.int64)], [], [], [0]
    begin = 0
    for end in ends:
        here = slice(int(start[begin]), int(start[end]))
        stretch = start[begin : end + 1] - start[begin]
        rows = Rows(NO_PAIRS, NO_PAIRS, stretch, following[here].astype(np.int32), probability[here])
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


def padded(told: NDArray[Any], most: int) -> NDArray[Any]:
    """Return outcomes [state, outcome, ...] with so many columns, further ones of 0."""
    missing = most - told.shape[1]
    return np.pad(told, [(0, 0), (0, missing)] + [(0, 0)] * (told.ndim - 2)) if missing else told


def spread(told: NDArray[Any], offered: Bools) -> NDArray[Any]:
    """Return what was told of the states that offer an action as an array of all states, 0 for the others."""
    if offered.all():
        return told
    whole = np.zeros((len(offered), *told.shape[1:]), told.dtype)
    whole[offered] = told
    return whole


def place_of(step: int, state: tuple[Longs, ...], number: int) -> str:
    """Name one of the states that were asked about together."""
    return f"step {step}, state {tuple(int(field[number]) for field in state)!r}"
