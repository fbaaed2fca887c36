"""Budgets with probability 1: what is spent in an episode never exceeds what there is.

A budget starts with an amount b_0. The transition of each step costs c >= 0 and may refill r >= 0:

    b_{h+1} = min(limit, b_h - c + r),   and   b_h - c >= 0 must hold at every step with probability 1.

The amount that is left is part of the state, in whole steps of the budget (`memory`). The constraint's value is 0, or
minus the amount that was missing (at most `limit`).

References
----------
J. McMahan, X. Zhu. Anytime-Constrained Reinforcement Learning. AISTATS 2024, PMLR 238:4321-4329, arXiv:2311.05511.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from peakrl.checks import check_number
from peakrl.errors import ProblemError
from peakrl.types import Floats, Longs, MemoryAxis
from peakrl.wrappers.memory import Automaton, Transitions, with_memory

#: A function of (state, action, next_state), {action: amount}, or an amount of every step.
Amount = Callable[[Any, Any, Any], float] | Mapping[Any, float] | float
#: A full refill, in steps of a budget.
FULL = 2**40


@dataclass(frozen=True)
class Budget(Automaton):
    """An amount that must never be overspent; see `with_budget`.

    Examples
    --------
    >>> import peakrl
    >>> fuel = peakrl.Budget("fuel", limit=30, cost=lambda state, action, next_state: action)
    """

    #: Name of its constraint.
    name: str
    #: The most there can be, and the amount at the start of an episode unless `start` is given.
    limit: float
    #: What a transition costs: a function of (state, action, next_state), {action: cost} (others: 0) or a number.
    cost: Amount
    #: What a transition adds, after its cost is paid; `math.inf` fills up to the limit.
    refill: Amount | None = None
    #: Amounts are multiples of this.
    step: float = 1
    #: The amount at the start of an episode.
    start: float | None = None

    def __post_init__(self) -> None:
        check_number(self.step, f"step of budget {self.name!r}", above=0.0, error=ProblemError)
        if not self.name:
            raise ProblemError(f"name of a budget is {self.name!r}; it must be a text")
        if self.units(self.limit, "limit") < self.first:
            raise ProblemError(f"start of budget {self.name!r} is {self.start:g}, above its limit of {self.limit:g}")

    def units(self, amount: Any, what: str) -> int:
        """Return an amount in whole steps."""
        if what == "refill" and amount == math.inf:
            return FULL
        number = check_number(amount, f"{what} of budget {self.name!r}", least=0.0, error=ProblemError) / self.step
        if abs(number - round(number)) > 1e-9 * number or number >= FULL:
            raise ProblemError(
                f"{what} of budget {self.name!r} is {amount!r}, not a multiple of its step of {self.step:g}: round "
                "costs up, or declare a smaller step="
            )
        return round(number)

    @property
    def bound(self) -> float:
        """The largest violation of a step."""
        return float(max(self.capacity - 1, 1) * self.step)

    @property
    def capacity(self) -> int:
        """The number of amounts."""
        return self.units(self.limit, "limit") + 1

    @property
    def first(self) -> int:
        """The first amount, in whole steps."""
        return self.units(self.limit if self.start is None else self.start, "start")

    @property
    def firsts(self) -> range:
        """Every amount."""
        return range(self.capacity)

    @property
    def axis(self) -> MemoryAxis:
        """The description for models."""
        return MemoryAxis(self.name, self.first, self.capacity - 1, float(self.step))

    def amount(self, given: Amount | None, what: str, state: Any, action: Any, following: Any) -> int:
        """Return cost or refill of a transition in whole steps."""
        if given is None:
            return 0
        if isinstance(given, Mapping):
            return self.units(given.get(action, given.get(str(action), 0)), what)
        try:
            found = given(state, action, following) if callable(given) else given
            return self.units(int(found) if isinstance(found, bool | np.bool_) else found, what)
        except ProblemError as error:
            raise ProblemError(f"state {state!r}, action {action!r}, next state {following!r}: {error}") from None

    def advance(self, memory: int, state: Any, action: Any, following: Any) -> tuple[int, float]:
        """Return what is left after a transition, and minus the amount that was missing."""
        left = memory - self.amount(self.cost, "cost", state, action, following)
        after = min(max(left, 0) + self.amount(self.refill, "refill", state, action, following), self.capacity - 1)
        return after, max(min(left, 0), -max(self.capacity - 1, 1)) * self.step

    def reader(self, transitions: Transitions) -> Amounts:
        """Return the budget on the transitions of a model."""
        cost, refill = self.amounts(transitions)
        return Amounts(self.capacity - 1, max(self.capacity - 1, 1), self.step, cost, refill)

    def amounts(self, transitions: Transitions) -> tuple[Longs, Longs]:
        """Return [transition]: cost and refill in whole steps."""
        labels = set(map(str, transitions.model.action_labels))
        for given in (self.cost, self.refill):
            unknown = [key for key in given if str(key) not in labels] if isinstance(given, Mapping) else []
            if unknown:
                raise ProblemError(f"budget {self.name!r} names the action {unknown[0]!r}, which does not exist")
        return self.each(self.cost, "cost", transitions), self.each(self.refill, "refill", transitions)

    def each(self, given: Amount | None, what: str, transitions: Transitions) -> Longs:
        """Return [transition]: an amount in whole steps; only functions are asked about every transition."""
        model, count = transitions.model, len(transitions.row)
        if callable(given):
            return np.array([self.amount(given, what, *transitions.labels(index)) for index in range(count)], np.int64)
        by_action = [self.amount(given, what, None, action, None) for action in model.action_labels]
        return np.array(by_action, np.int64)[model.row_action[transitions.row]]

    def shortage(self, transitions: Transitions) -> str | None:
        """Return why the amount does not suffice, with the least that does; None if it suffices."""
        costs, first = self.amounts(transitions), transitions.model.first_slot

        def needed(capacity: float) -> float:
            return float(least_amounts(transitions, *costs, capacity)[0][first].max())

        what, limit = f"budget {self.name!r} of {self.first * self.step:g}", self.capacity - 1
        within = needed(limit)
        if within <= self.first:
            return None
        if within <= limit:
            return f"{what} does not suffice; the smallest that does is {within * self.step:g}"
        every, largest = least_amounts(transitions, *costs, math.inf)
        least = float(every[first].max())
        if math.isinf(least):
            return f"{what} does not suffice, and no other does"
        low, high = int(max(least, limit + 1)), int(largest)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if needed(middle) <= middle else (middle + 1, high)
        return f"{what} does not suffice; the smallest that does is {low * self.step:g}"


class Amounts:
    """The reader of a budget: memories are what is left, 0 .. limit, in whole steps of the budget."""

    def __init__(self, limit: int, bound: int, unit: float, cost: Longs, refill: Longs) -> None:
        self.memories = range(limit + 1)
        self.limit, self.bound, self.unit, self.cost, self.refill = limit, bound, unit, cost, refill

    def number(self, memory: Any) -> int:
        """Return an amount as it is."""
        return int(memory)

    def advance(self, memory: Longs, transition: Longs) -> tuple[Longs, Floats]:
        """Return what is left, and minus the amount that was missing."""
        left = memory - self.cost[transition]
        after = np.minimum(np.maximum(left, 0) + self.refill[transition], self.limit)
        return after, np.maximum(np.minimum(left, 0), -self.bound) * self.unit


def least_amounts(transitions: Transitions, cost: Longs, refill: Longs, capacity: float) -> tuple[Floats, float]:
    """Return [slot]: the least amount from which every constraint can be satisfied, inf: none; and the largest of all.

        need_H(s) = 0
        need_h(s) = min_a max_{s'} max(cost, cost - refill + need_{h+1}(s')),   inf if it exceeds the capacity

    over the actions a that violate no constraint of the model. Without an end this is repeated until nothing changes;
    what is needed for ever never exceeds the largest cost for each state.
    """
    model, start = transitions.model, transitions.start
    offers = np.flatnonzero(np.diff(model.row_start))
    need, largest = np.zeros(model.num_slots), 0.0
    capacity = min(capacity, model.num_slots * float(cost.max(initial=0))) if model.steps is None else capacity
    for _ in itertools.count() if model.steps is None else range(model.steps):
        before = need.copy()
        ahead = cost - refill + need[transitions.following]
        row = np.maximum.reduceat(np.maximum(cost, ahead), start[:-1])
        row[~model.keeps | (row > capacity)] = math.inf
        need[offers] = np.minimum.reduceat(row, model.row_start[offers])
        largest = max(largest, float(need[np.isfinite(need)].max(initial=0.0)))
        if model.steps is None and (need == before).all():
            break
    return need, largest


def with_budget(target: Any, *budgets: Budget) -> Any:
    """Return a problem, model or environment in which budgets are never overspent.

    Parameters
    ----------
    target
        A `Problem`, `ArrayProblem`, `TabularModel` or Gymnasium environment.
    budgets
        The budgets. What is left of each becomes part of the state, (state, left, ...), in whole steps of the budget.

    Returns
    -------
    Problem, TabularModel or gymnasium.Wrapper
        Like the target. `solve` then returns the best policy, and `solution.value_by_budget()` the values of all
        smaller budgets.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> peaks = peakrl.Budget("peaks", limit=3, cost=lambda state, action, next_state: action > 4)
    >>> curve = peakrl.solve(peakrl.with_budget(problem, peaks)).value_by_budget()
    >>> list(curve)
    [0, 1, 2, 3]
    """
    for each in budgets:
        if not isinstance(each, Budget):
            raise ProblemError(f"{each!r} is not a Budget, such as Budget('fuel', limit=30, cost=...)")
    return with_memory(target, budgets) if budgets else target
