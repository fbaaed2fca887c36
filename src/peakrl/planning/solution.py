"""`solve`: the original problem by backward induction.

    max E[sum_h r]  subject to  f_i >= 0 at every step with probability 1

It has a deterministic optimum, found by minimising the expected violation E[sum_h sum_i |f_i^-|] first and maximising
the reward second. The least violation is 0 exactly if the problem is feasible; otherwise the same recursion returns a
policy of least expected violation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import cached_property, singledispatch
from pathlib import Path
from types import EllipsisType
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_count, check_number
from peakrl.compile import Target, as_model
from peakrl.errors import SettingsError
from peakrl.numerics import LEAST
from peakrl.planning.backward import LEAST_COST, Pays, induction, pays_of, threads_for
from peakrl.planning.stationary import Task, decisions, discounted, reaching
from peakrl.planning.stationary import average as average_gain
from peakrl.policy.tables import Choices, Policy, StochasticPolicy, table_form
from peakrl.safety.safe_set import SafeSet
from peakrl.space import read_only
from peakrl.storage import ready
from peakrl.tabular import TabularModel
from peakrl.types import Floats
from peakrl.viability import FOREVER, steps_kept

PolicyKind = TypeVar("PolicyKind", bound=Policy | StochasticPolicy, covariant=True)


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Generic[PolicyKind]):
    """Result of a planner; numbers are expectations over the first state, in the problem's units.

    Examples
    --------
    >>> import peakrl
    >>> solution = peakrl.solve(peakrl.problems.scheduling_example(3))
    >>> solution.feasible, round(solution.violation, 4)
    (False, 0.2662)
    """

    #: The solved model.
    model: TabularModel
    #: The largest expected total reward; for `solve_modified` the modified reward W*.
    value: float
    #: Expected total violation of the original constraints under `policy`; for `average` and `reach` that of a step in
    #: the long run, which is 0 if all violations come early.
    violation: float
    #: Whether the constraints can be satisfied; for `solve_modified` whether its optimum violates nothing.
    feasible: bool
    #: An optimal policy: a `Policy`; for `solve_cmdp` a `StochasticPolicy` if actions must be drawn.
    policy: PolicyKind
    #: Returns V and C by node, called on first use; None: solve the original problem again.
    _tables: Callable[[], tuple[Floats, Floats]] | None = None
    _reason: str | None = None
    #: For `solve_cmdp`: the value of another unit of each limit; otherwise None.
    multipliers: Floats | None = None
    #: For `solve_cmdp`: how much of each limit is used.
    consumption: Floats | None = None
    #: [slot of step 0]: V and C, of `solve` for the original problem.
    _first: tuple[Floats, Floats] | None = None
    #: What `value` is, "discount 0.95", "average" or "reach"; None: the expected reward of an episode.
    criterion: str | None = None
    #: `policy` earns at least this, in real numbers.
    value_low: float | None = None
    #: No policy that never violates earns more, in real numbers.
    value_high: float | None = None
    #: [state]: `value_low` from each state, in the order of `model.state_labels`; NaN where no policy is safe.
    state_low: Floats | None = None
    #: [state]: `value_high` from each state.
    state_high: Floats | None = None
    #: [state]: relative values of an average criterion, up to a constant in each part that is never left.
    bias: Floats | None = None
    #: If no policy is safe for ever: for how many steps safety can be kept with probability 1.
    safe_steps: int | None = None
    #: For `reach`: the least expected number of steps among policies that reach the target with probability 1, which
    #: `policy` attains; None if there is none.
    expected_time: float | None = None

    def value_by_budget(self, name: str | None = None) -> dict[float, float]:
        """Return {budget: value} for every amount from which all constraints can be satisfied, in increasing order.

        For models of `with_budget`; each value equals that of a separate solve with that amount at the start. `name` is
        needed if there are several budgets: the others keep their first amounts.
        """
        model, first = self.model, self._first
        named = {axis.name: place for place, axis in enumerate(model.memory, 1) if axis.unit is not None}
        if first is None or not named or (name is None and len(named) > 1) or (name or next(iter(named))) not in named:
            wanted = f"one of {', '.join(map(repr, named))}" if named else "a model of with_budget(...)"
            raise SettingsError(f"value_by_budget({'' if name is None else repr(name)}) needs solve and {wanted}")
        place = named[name or next(iter(named))]
        axis, curve = model.memory[place - 1], dict[float, float]()
        labels: list[Any] = [model.state_of_slot(slot) for slot in model.first_slot.tolist()]
        for amount in range((axis.limit or 0) + 1):
            slots = [model.slot_of(0, (*label[:place], amount, *label[place + 1 :])) for label in labels]
            if not first[1][slots].any():
                budget = amount * (axis.unit or 1.0)
                budget = int(budget) if budget.is_integer() else round(budget, 12)
                curve[budget] = float(model.first_probability @ first[0][slots])
        return curve

    @cached_property
    def reason(self) -> str | None:
        """None if feasible, else why not."""
        return self._reason if self.feasible or self._reason is not None else self.safe_set.infeasible_reason

    @property
    def node_values(self) -> Floats:
        """[node]: `value` from each step and state on; computed on first use."""
        return self._by_node[0]

    @property
    def node_violations(self) -> Floats:
        """[node]: `violation` from each step and state on; computed on first use."""
        return self._by_node[1]

    @cached_property
    def _by_node(self) -> tuple[Floats, Floats]:
        if self._tables is not None:
            return self._tables()
        found = induction(self.model, original(self.model), values=True)
        return found.values, found.costs

    @property
    def safe_set(self) -> SafeSet:
        """The states and actions from which the constraints can be satisfied: `safe_set(model)`."""
        return SafeSet(self.model)

    def __repr__(self) -> str:
        verdict = "feasible" if self.feasible else "not feasible (see .reason)"
        if self.criterion is not None:
            verdict = f"{self.criterion}, {verdict}"
        return f"<Solution: value {self.value:.6g}, violation {self.violation:.6g}, {verdict}, policy {self.policy!r}>"


@singledispatch
def solve(
    target: Target,
    *,
    horizon: float | EllipsisType | None = ...,
    discount: float | None = None,
    average: bool = False,
    reach: States | None = None,
    tolerance: float = 1e-9,
    threads: int | None = None,
    policy_file: str | Path | None = None,
) -> Solution[Policy]:
    """Solve a model or problem: the largest expected reward without any violation.

    A `ContinuousProblem` takes the arguments of `peakrl.planning.solve_on_grid` instead.

    With `discount`, `average` or `reach` the result is a policy without an end, the same at every step; this needs a
    model in which nothing depends on the step, and its own horizon is ignored.

    Parameters
    ----------
    target
        A model or problem.
    horizon
        The number of steps, by default that of the target. If nothing depends on the step, it may be another.
    discount
        Maximise the discounted reward sum_h discount^h r_h for ever, 0 <= discount < 1.
    average
        Maximise the average reward of a step in the long run.
    reach
        Maximise the probability of ever reaching one of these states, or with `horizon` within so many steps: a
        collection, or a function of a state that returns a truth value. Safety is required until then.
    tolerance
        Of discounted and average values and probabilities: how far apart `value_low` and `value_high` may be, relative
        to the value or, if that is larger, to the largest reward of a step (1 for `reach`).
    threads
        The number of threads; by default all cores if the model is large. Results do not depend on it.
    policy_file
        Also write the policy there, for `load`.

    Returns
    -------
    Solution
        If every policy may violate, it has the policy of least expected violation (then of largest reward; without an
        end only where safety can be kept for ever) with feasible=False, and `reason` names a constraint, a state and
        a step at which every action violates.

    Examples
    --------
    >>> import peakrl
    >>> solution = peakrl.solve(peakrl.problems.energy_harvesting(peak_power=8))
    >>> solution.feasible
    True
    >>> walk = peakrl.TabularModel.from_arrays([[[0, 1], [1, 0]], [[0, 1], [1, 0]]], [[1, 0], [2, 0]], [], horizon=None)
    >>> round(peakrl.solve(walk, discount=0.5).value, 6), round(peakrl.solve(walk, average=True).value, 6)
    (3.0, 2.0)
    """
    ready(policy_file)
    threads = None if threads is None else check_count(threads, "threads")
    model = as_model(target)
    endless, lasting = horizon in (..., None, math.inf), discount is not None or average
    if lasting and not endless:
        raise SettingsError("discount= and average= are for policies without an end, which have no horizon=")
    if endless and (lasting or reach is not None):
        solution = without_end(model, (discount, average, reach), tolerance, threads)
    else:
        model = model if horizon is ... else model.with_horizon(horizon)
        solution = (
            by_induction(model, threads) if reach is None else within_horizon(model, in_set(model, reach), threads)
        )
    if policy_file is not None:
        solution.policy.save(policy_file)
    return solution


def by_induction(model: TabularModel, threads: int | None) -> Solution[Policy]:
    """Return the policy of the largest reward among those of least violation."""
    table = np.zeros(*table_form(model))
    found = induction(model, original(model), table=table, threads=threads)
    return Solution(
        model=model,
        value=at_start(model, found.first_values),
        violation=at_start(model, found.first_costs),
        feasible=not found.first_costs[model.first_slot].any(),
        policy=Policy(model, Choices(model, table)),
        _first=(found.first_values, found.first_costs),
    )


def original(model: TabularModel) -> Pays:
    """Return the rewards of the original problem, and its costs if anything may violate."""
    return pays_of(model, row_rewards(model), row_costs(model) if may_violate(model) else None)


def row_rewards(model: TabularModel) -> Floats:
    """Return [row]: the expected reward; the model's own array if each row has its own record, in order."""
    record, reward = model.payoffs.row_payoff, model.payoffs.reward
    own = model.payoffs.stride == 0 and len(record) == len(reward)
    return reward if own and bool((record == np.arange(len(record), dtype=np.int32)).all()) else model.row_reward


def may_violate(model: TabularModel) -> bool:
    """Return whether any outcome violates a constraint."""
    return bool((model.payoffs.constraints < 0.0).any())


def row_costs(model: TabularModel) -> Floats:
    """Return [row]: the expected violation of all constraints together; above 0 if one may be violated."""
    records = model.record_violation
    cost = model.row_means(records)
    if model.payoffs.stride == 0:
        return cost
    # A small probability times a small violation may underflow, the probability alone does not.
    possible = model.row_means((records > 0.0).astype(np.float64)) > 0.0
    return np.where(possible, np.maximum(cost, LEAST_COST), 0.0)


def at_start(model: TabularModel, table: Floats) -> float:
    """Return the expectation over the first state of a table by node; never 0 by underflow."""
    expected, first = float(model.first_probability @ table[model.first_slot]), table[model.first_slot]
    return LEAST if expected == 0.0 and (first > 0.0).any() and (first >= 0.0).all() else expected


def within_horizon(model: TabularModel, target: NDArray[np.bool_], threads: int | None) -> Solution[Policy]:
    """Return the policy that most probably reaches a target [slot] within the horizon; safety is required until then.

    A row pays the probability of arriving, and those of the target stay where they are, at no cost.
    """
    if not model.stationary:
        raise SettingsError(f"reach= needs a model in which nothing depends on the step; {model.name!r} has steps")
    pays, ended = original(model), target[model.slot_of_row]
    arrives = np.add.reduceat(model.outcome_probability * target[model.outcome_next], model.outcome_start[:-1])
    pays = Pays(
        read_only(np.where(ended, 0.0, np.minimum(arrives, 1.0)[model.row_distribution])),
        read_only(np.where(ended, 0.0, pays.cost) if len(pays.cost) else pays.cost),
        read_only(np.where(ended, model.slot_of_row, pays.link).astype(np.int32)),
    )

    def tables() -> tuple[Floats, Floats]:
        nodes = induction(model, pays, values=True, threads=threads)
        return nodes.values + np.resize(target, len(nodes.values)), nodes.costs

    table = np.zeros(*table_form(model))
    found = induction(model, pays, table=table, threads=threads)
    return Solution(
        model=model, value=at_start(model, found.first_values + target), violation=at_start(model, found.first_costs),
        feasible=not found.first_costs[model.first_slot].any(), policy=Policy(model, Choices(model, table)),
        _tables=tables, criterion="reach",
    )  # fmt: skip


# Without an end ---------------------------------------------------------------------------------------------------

#: A set of states: a collection of labels, or a function of a label.
States = Collection[Hashable] | Callable[[Any], bool]


def without_end(
    model: TabularModel, criterion: tuple[float | None, bool, States | None], tolerance: float, threads: int | None
) -> Solution[Policy]:
    """Return the best policy without an end that never violates, or one that violates least."""
    discount, average, reach = criterion
    if (discount is not None) + bool(average) + (reach is not None) > 1:
        raise SettingsError("discount=, average= and reach= are different criteria: give one of them")
    if discount is not None and not 0.0 <= check_number(discount, "discount", least=0.0) < 1.0:
        raise SettingsError(f"discount is {discount!r}; it must be below 1 (average=True is its limit)")
    tolerance, model = check_number(tolerance, "tolerance", least=0.0), model.with_horizon(None)
    start, target = np.zeros(model.num_slots), in_set(model, reach)
    start[model.first_slot] = model.first_probability
    slot_kept, row_kept = steps_kept(model.one_step, model.keeps, target)
    feasible, time = bool((slot_kept[model.first_slot] == FOREVER).all()), None
    among = decisions(model, row_rewards(model) if feasible else -row_costs(model))
    safe = row_kept == FOREVER
    del row_kept
    if feasible:
        among = among.only(safe & ~np.repeat(target, np.diff(model.row_start)))
    with threads_for(model, threads) as share:
        task = Task(model, tolerance, start, share)
        if discount is not None:
            found = discounted(task, among, discount)
        elif reach is None or not feasible:
            found = average_gain(task, among)
        else:
            found, time = reaching(task, among, target)
        low, high, violation = *found.ends(start), 0.0
        if reach is not None and feasible:
            low, high = max(low, 0.0), min(high, 1.0)
        if not feasible:  # what is maximised is minus the violation: the value of the policy remains to be found
            # On average a violation that ends is 0, as `evaluate` says.
            violation = max(-(low + high) / 2, 0.0 if discount is None else LEAST)
            taken = np.isin(among.rows, found.rows)
            if reach is None:  # where safety can be kept for ever, so can the least violation: 0
                taken = np.where(np.repeat(slot_kept == FOREVER, np.diff(model.row_start)), safe, taken)
            own = among._replace(reward=row_rewards(model)).only(taken)
            found = average_gain(task, own) if discount is None else discounted(task, own, discount)
            low, high = found.ends(start)
    table = np.zeros(*table_form(model))
    table[0] = np.where(found.rows >= 0, found.rows - model.row_start[:-1], 0)
    inside = slot_kept == FOREVER if feasible else np.ones(model.num_slots, np.bool_)
    return Solution(
        model=model, value=(low + high) / 2, violation=violation, feasible=feasible,
        policy=Policy(model, Choices(model, table)), value_low=low, value_high=high,
        criterion="average" if average else "reach" if discount is None else f"discount {discount:g}",
        state_low=np.where(inside, found.low, np.nan), state_high=np.where(inside, found.high, np.nan),
        bias=found.values if average else None, expected_time=time,
        safe_steps=None if feasible else int(slot_kept[model.first_slot].min()),
    )  # fmt: skip


def in_set(model: TabularModel, states: States | None) -> NDArray[np.bool_]:
    """Return [slot]: is the state in a set?"""
    chosen = np.zeros(model.num_slots, np.bool_)
    if states is not None and not callable(states) and not isinstance(states, Collection):
        raise SettingsError(f"reach is {states!r}; it must be a collection of states, or a function of a state")
    if callable(states):
        chosen[:] = [bool(states(label)) for label in model.state_labels]
    elif states is not None:
        chosen[[model.slot_of(0, state) for state in states]] = True
    if states is not None and not chosen.any():
        raise SettingsError("reach: no state of the model is in the set")
    return chosen
