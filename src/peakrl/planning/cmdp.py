"""`solve_cmdp`: limits on expected violations instead of constraints that hold at every step.

With v_i = |min(f_i, 0)| the violation of constraint i at a step:

    total            E[ sum_h sum_i v_i ] <= d                          one limit
    per_constraint   E[ sum_h v_i ] <= d_i                              one for each constraint
    per_step         E[ v_i at step h ] <= d                            the paper's approximated problem
    union_chance     E[ steps of an episode with a violation ] <= p     so P(any violation) <= p, by the union bound
    chance           P(any violation in an episode) <= p                exactly: a flag in the state remembers it

At 0 all of them are the original problem, and are solved as such. A cost is a constraint of value -cost: its violation
is the cost itself, and `total` the usual constrained MDP (Altman, 1999). One limit is solved by a search for its
Lagrange multiplier (`planning.lagrangian`), several by a linear program (`planning.occupancy`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from peakrl.checks import check_number
from peakrl.compile import Target, as_model, compile_model
from peakrl.errors import SettingsError
from peakrl.planning.backward import value_of_mixture
from peakrl.planning.lagrangian import best_plan, best_within
from peakrl.planning.occupancy import (
    Flow,
    flow,
    least_excess,
    least_words,
    most_reward,
    policy_weights,
    row_weights,
)
from peakrl.planning.solution import Solution, at_start, row_costs, solve
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.problem import Outcome, Problem
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Floats

FORMS = ("total", "per_constraint", "per_step", "chance", "union_chance")
AnySolution = Solution[Policy | StochasticPolicy]
#: [entry]: the policy; and for each limit the value of another unit, and how much of it is used.
Found = tuple[Floats, Floats, Floats]


def solve_cmdp(
    model: Target,
    *,
    total: float | None = None,
    per_constraint: Any = None,
    per_step: float | None = None,
    chance: float | None = None,
    union_chance: float | None = None,
) -> AnySolution:
    """Solve a constrained MDP: limits on expected violations, or on their probability, instead of peak constraints.

    Parameters
    ----------
    model
        A model or problem.
    total, per_constraint, per_step, chance, union_chance
        Exactly one limit: on the expected sum of all violations of an episode; on that of each constraint (a number or
        one for each); on that of each constraint at each step; on the probability that an episode violates; on the
        expected number of its violating steps, which bounds that probability.

    Returns
    -------
    Solution
        `multipliers` has the marginal value of each limit and `consumption` how much of it is used: a number,
        [constraint] or [step, constraint]. The policy is a `StochasticPolicy` if actions must be drawn. The policy of
        `chance` belongs to the model with a flag, `solution.policy.model`: its states are (state, anything violated).
        If the limit is infeasible, the result is the policy of least violation with feasible=False, and `reason` names
        the least feasible limit.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.scheduling_example(3)
    >>> round(peakrl.solve_cmdp(problem, total=1.0).value, 3) > round(peakrl.solve(problem).value, 3)
    True

    Notes
    -----
    One limit takes dozens of backward inductions; several limits (`per_step`, `per_constraint` with several
    constraints) a linear program: seconds for 80,000 (step, state, action) entries, and more than proportionally longer
    for larger ones.
    """
    form, given = the_limit(
        total=total, per_constraint=per_constraint, per_step=per_step, chance=chance, union_chance=union_chance
    )
    model = as_model(model)
    limits = checked_limits(form, given, model)
    if not limits.any():
        return solve(model)
    if form == "chance":
        model = compile_model(Flagged(model))
    return solved(model, form, limits)


def the_limit(**given: Any) -> tuple[str, Any]:
    """Return the one limit that is given, by name."""
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        found = f"{' and '.join(named)} are given" if named else "no limit is given"
        raise SettingsError(f"{found}; give one of {', '.join(FORMS)}")
    return next(iter(named.items()))


def checked_limits(form: str, given: Any, model: TabularModel) -> Floats:
    """Return the limits, checked."""
    if form == "per_constraint" and isinstance(given, Iterable) and not isinstance(given, str):
        values = [check_number(value, f"per_constraint[{index}]", least=0) for index, value in enumerate(given)]
        if len(values) != model.num_constraints:
            names = ", ".join(model.constraint_names)
            raise SettingsError(f"per_constraint has {len(values)} numbers; {model.name!r} has the constraints {names}")
        return np.array(values)
    limit = check_number(given, form, least=0)
    if "chance" in form and limit > 1:
        raise SettingsError(f"{form} is {given!r}; it must be a probability, at most 1")
    shape = {"per_constraint": (model.num_constraints,), "per_step": (model.horizon, model.num_constraints)}
    return np.full(shape.get(form, ()), limit)


def solved(model: TabularModel, form: str, limits: Floats) -> AnySolution:
    """Return the solution under limits that are not all 0."""
    exact = solve(model)
    found = priced(model, form, limits, exact) if limits.size == 1 else programmed(model, form, limits, exact)
    if isinstance(found, str):
        return replace(exact, feasible=False, _reason=found)
    weights, multipliers, used = found
    weights = read_only(weights)
    values = value_of_mixture(model.layout, model.num_nodes, model.row_reward, weights)
    violations = value_of_mixture(model.layout, model.num_nodes, row_costs(model), weights)
    return Solution(
        model=model,
        value=at_start(model, values),
        violation=at_start(model, violations),
        feasible=True,
        policy=simplest_policy(model, weights),
        _tables=lambda: (values, violations),
        multipliers=multipliers.reshape(limits.shape),
        consumption=used.reshape(limits.shape),
    )


def priced(model: TabularModel, form: str, limits: Floats, exact: Solution[Policy]) -> Found | str:
    """Return the optimum within one limit, or the reason why it is infeasible."""
    charges, limit = CHARGES[form](model), float(limits.ravel()[0])
    found = best_within(model, model.row_reward - model.reward_range[0], charges, limit)
    if found is None:
        because = f", because of {model.constraint_names[0]!r}" if form.startswith("per_") else ""
        least = least_words(best_plan(model, model.row_reward, charges, None).cost)
        return f"no policy limits {WHAT[form]} to {limit:g}: the least feasible limit is {least}{because}"
    weights = found.where_reached(model, row_weights(model, exact.policy.rows))
    return weights, np.array(found.price), np.array(found.used)


def programmed(model: TabularModel, form: str, limits: Floats, exact: Solution[Policy]) -> Found | str:
    """Return the optimum within several limits, or the reason why they are infeasible."""
    paths, (lo, hi) = flow(model), model.reward_range
    costs = limited_costs(model, paths, form)
    found = most_reward(paths, model.row_reward[paths.rows] - lo, costs, limits.ravel(), hi - lo)
    if found is None:
        return why_not(model, form, paths, costs, limits.ravel())
    weights = policy_weights(row_weights(model, exact.policy.rows), paths, found.shares)
    return weights, found.multipliers, found.used


def why_not(model: TabularModel, form: str, paths: Flow, costs: Any, limits: Floats) -> str:
    """Return why limits are infeasible: the least excess, and the binding limits."""
    excess, binding = least_excess(paths, costs, limits)
    places = (divmod(index, model.num_constraints) for index in binding[:3].tolist())
    at = " at step {}" if form == "per_step" else ""
    named = [repr(model.constraint_names[constraint]) + at.format(step) for step, constraint in places]
    more = f" and {len(binding) - 3} more" if len(binding) > 3 else ""
    because = f", because of {', '.join(named)}{more}" if named else ""
    if len(set(limits.tolist())) == 1:
        limit = float(limits[0])
        least = f"the least feasible limit is {least_words(limit + excess)}"
        return f"no policy limits {WHAT[form]} to {limit:g}: {least}{because}"
    return f"no policy satisfies the limits on {WHAT[form]}: each would have to be larger by {excess:.6g}{because}"


# Limited quantities -------------------------------------------------------------------------------------------------


def violations(model: TabularModel) -> Floats:
    """[row]: all violations together."""
    total: Floats = model.row_violation.sum(axis=1)
    return total


def breaking_chance(model: TabularModel) -> Floats:
    """[row]: the probability that some constraint is violated."""
    return model.row_means((model.record_violation > 0.0).astype(np.float64))


def raising_chance(model: TabularModel) -> Floats:
    """[row] of a model with a flag: the probability that it is raised."""
    labels: Any = model.state_labels  # (state, flag)
    first = np.array([not flag for _, flag in labels], np.float64)
    raising: Floats = breaking_chance(model) * first[model.slot_state[model.slot_of_row]]
    return raising


#: By form: what a row uses of a single limit, and a description of the limited quantity.
CHARGES = {
    "total": violations,
    "per_constraint": violations,
    "per_step": violations,
    "chance": raising_chance,
    "union_chance": breaking_chance,
}
WHAT = {
    "total": "the expected total violation",
    "per_constraint": "the expected violation of every constraint",
    "per_step": "the expected violation of every constraint at every step",
    "chance": "the probability of any violation",
    "union_chance": "the expected number of violating steps",
}


def limited_costs(model: TabularModel, paths: Flow, form: str) -> Any:
    """Return sparse [limit, x]: the violation of each constraint; with `per_step` at each step."""
    from scipy import sparse

    violation = model.row_violation[paths.rows]
    column, constraint = np.nonzero(violation)
    steps, each = (model.horizon, paths.steps[column]) if form == "per_step" else (1, 0)
    lines, shape = each * model.num_constraints + constraint, (steps * model.num_constraints, len(paths.rows))
    return sparse.csr_array((violation[column, constraint], (lines, column)), shape=shape)


class Flagged(Problem):
    """A model whose states are (state, whether anything has been violated)."""

    def __init__(self, model: TabularModel) -> None:
        self._model = model
        self.name = f"{model.name}, with a flag"
        self.horizon, self.stationary = model.horizon, model.stationary
        self.constraint_names, self.constraint_bounds = model.constraint_names, model.constraint_bounds
        self.reward_range = model.reward_range

    def initial(self) -> list[tuple[float, Any]]:
        """The first states, with the flag not raised."""
        model = self._model
        first = zip(model.first_probability.tolist(), model.first_slot.tolist(), strict=True)
        return [(chance, (model.state_of_slot(slot), False)) for chance, slot in first]

    def actions(self, step: int, state: Any) -> list[Any]:
        """The actions of the model."""
        slot = self._model.slot_of(step, state[0])
        return [self._model.action_of_row(row) for row in self._model.rows_of_slot(slot)]

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """The outcomes of the model; a violation raises the flag."""
        model, payoffs, (label, flag) = self._model, self._model.payoffs, state
        row = model.row_of(step, label, action)
        record, found = int(payoffs.row_payoff[row]), []
        chances = model.outcome_probability[model.outcomes_of_row(row)].tolist()
        for chance, slot in zip(chances, model.next_slots(row), strict=True):
            constraints = tuple(payoffs.constraints[record].tolist())
            following = model.state_of_slot(slot), flag or min(constraints, default=0.0) < 0.0
            found.append(Outcome(chance, following, float(payoffs.reward[record]), constraints))
            record += payoffs.stride
        return found
