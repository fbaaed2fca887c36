"""Limits on what is expected, in place of constraints that hold at every step: a linear programme.

With v_i = |min(f_i, 0)| the violation of constraint i at a step:

    total            E[ sum_h sum_i v_i ] <= d                          one limit
    per_constraint   E[ sum_h v_i ] <= d_i                              one for each constraint
    per_step         E[ v_i at step h ] <= d                            the paper's approximated problem
    union_chance     E[ steps of an episode with a violation ] <= p     so P(any violation) <= p, by the union bound
    chance           P(any violation in an episode) <= p                exactly: a flag in the state remembers it

At 0 all of them are the original problem, and are solved as such. A cost is a constraint of value -cost: its violation
is the cost itself, and `total` the usual constrained MDP (Altman, 1999). One limit is kept by a search for its price
(`planning.lagrangian`), several by a linear programme (`planning.occupancy`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peakrl.checks import check_number
from peakrl.compile import Target, as_model, compile_model
from peakrl.errors import SettingsError
from peakrl.planning.backward import value_of_mixture
from peakrl.planning.lagrangian import best_plan, best_within
from peakrl.planning.min_cost import least_words
from peakrl.planning.occupancy import Flow, flow, least_excess, most_reward, policy_weights, row_weights
from peakrl.planning.solution import Solution, at_start, row_costs, solve
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.problem import Outcome, Problem
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Floats

FORMS = ("total", "per_constraint", "per_step", "chance", "union_chance")
AnySolution = Solution[Policy | StochasticPolicy]
#: [entry]: the policy; and of each limit what another unit is worth, and how much of it is used.
Found = tuple[Floats, Floats, Floats]


@dataclass(frozen=True)
class Budget:
    """Limits on expected sums."""

    #: What is limited, in words.
    what: str
    #: [limit], in an array of the shape in which multipliers are told.
    limits: Floats
    #: Sparse, [limit, x]
    costs: Any
    #: [limit]: whom a reason names.
    names: tuple[str, ...]


def solve_cmdp(
    model: Target,
    *,
    total: float | None = None,
    per_constraint: Any = None,
    per_step: float | None = None,
    chance: float | None = None,
    union_chance: float | None = None,
) -> AnySolution:
    """Solve a problem with limits on expected violations, or on the chance of any, in place of peak constraints.

    Give exactly one limit: `total`; `per_constraint`, a number or one for each constraint; `per_step`; `chance`;
    `union_chance`. `multipliers` of the solution says what another unit of each limit is worth and `consumption` what
    is used of it: a number, [constraint] or [step, constraint]. Where the limit cannot be kept, the answer is `solve`'s
    policy of least violation with feasible=False, and `reason` names the least limit that can be.

    The policy is a `Policy` where no action has to be drawn, else a `StochasticPolicy`. That of `chance` belongs to the
    model with the flag, `solution.policy.model`: its states are (state, has anything been violated?). One limit takes
    some dozens of backward inductions. Several (`per_step`, `per_constraint` with several constraints) take a linear
    programme: at 80,000 (step, state, action) entries seconds, and time grows faster than the size.
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
    """Return the limits, or raise."""
    if form == "per_constraint" and isinstance(given, Iterable) and not isinstance(given, str):
        values = [check_number(value, f"per_constraint[{place}]", least=0) for place, value in enumerate(given)]
        if len(values) != model.num_constraints:
            names = ", ".join(model.constraint_names)
            raise SettingsError(f"per_constraint has {len(values)} numbers; {model.name!r} has the constraints {names}")
        return np.array(values)
    limit = check_number(given, form, least=0)
    if "chance" in form and limit > 1:
        raise SettingsError(f"{form} is {given!r}; it is a probability, at most 1")
    shape = {"per_constraint": (model.num_constraints,), "per_step": (model.horizon, model.num_constraints)}
    return np.full(shape.get(form, ()), limit)


def solved(model: TabularModel, form: str, limits: Floats) -> AnySolution:
    """Return the solution under limits of a form, not all of them 0."""
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
        _policy=simplest_policy(model, weights),
        _tables=lambda: (values, violations),
        multipliers=multipliers.reshape(limits.shape),
        consumption=used.reshape(limits.shape),
    )


def priced(model: TabularModel, form: str, limits: Floats, exact: Solution[Policy]) -> Found | str:
    """Return the optimum within one limit, or why there is none."""
    charges, limit = CHARGES[form](model), float(limits.ravel()[0])
    found = best_within(model, model.row_reward - model.reward_range[0], charges, limit)
    if found is None:
        because = f", because of {model.constraint_names[0]!r}" if form.startswith("per_") else ""
        least = least_words(best_plan(model, model.row_reward, charges, None).cost)
        return f"no policy keeps {WHAT[form]} within {limit:g}: the least that can be kept is {least}{because}"
    weights = found.where_reached(model, row_weights(model, exact.policy.rows))
    return weights, np.array(found.price), np.array(found.used)


def programmed(model: TabularModel, form: str, limits: Floats, exact: Solution[Policy]) -> Found | str:
    """Return the optimum within several limits, or why there is none."""
    paths = flow(model)
    budget = BUDGETS[form](model, paths, limits)
    lo, hi = model.reward_range
    found = most_reward(paths, model.row_reward[paths.rows] - lo, budget.costs, limits.ravel(), hi - lo)
    if found is None:
        return why_not(paths, budget)
    weights = policy_weights(row_weights(model, exact.policy.rows), paths, found.shares)
    return weights, found.multipliers, found.used


def why_not(paths: Flow, budget: Budget) -> str:
    """Say what could be kept, and what stands against less."""
    limits = budget.limits.ravel()
    excess, binding = least_excess(paths, budget.costs, limits)
    named = [budget.names[place] for place in binding[:3].tolist()]
    more = f" and {len(binding) - 3} more" if len(binding) > 3 else ""
    because = f", because of {', '.join(named)}{more}" if named else ""
    if len(set(limits.tolist())) == 1:
        limit = float(limits[0])
        least = f"the least that can be kept is {least_words(limit + excess)}"
        return f"no policy keeps {budget.what} within {limit:g}: {least}{because}"
    return f"no policy keeps {budget.what} within its limit: each would have to be larger by {excess:.6g}{because}"


# What is limited -------------------------------------------------------------------------------------------------


def violations(model: TabularModel) -> Floats:
    """[row]: all violations together."""
    total: Floats = model.row_violation.sum(axis=1)
    return total


def breaking_chance(model: TabularModel) -> Floats:
    """[row]: how likely some constraint is violated."""
    return model.row_means((model.record_violation > 0.0).astype(np.float64))


def raising_chance(model: TabularModel) -> Floats:
    """[row] of a model with a flag: how likely it is raised."""
    labels: Any = model.state_labels  # (state, flag)
    first = np.array([not flag for _, flag in labels], np.float64)
    raising: Floats = breaking_chance(model) * first[model.slot_state[model.slot_of_row]]
    return raising


#: By form: what a row uses of the limit where there is one, and what is limited, in words.
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
    "chance": "the chance of any violation",
    "union_chance": "the expected number of violating steps",
}


def constraint_budget(model: TabularModel, paths: Flow, limits: Floats) -> Budget:
    """Each constraint on its own, over an episode."""
    from scipy import sparse

    names = tuple(repr(name) for name in model.constraint_names)
    return Budget(WHAT["per_constraint"], limits, sparse.csr_array(model.row_violation[paths.rows].T), names)


def step_budget(model: TabularModel, paths: Flow, limits: Floats) -> Budget:
    """Each constraint at each step."""
    from scipy import sparse

    violation = model.row_violation[paths.rows]
    column, constraint = np.nonzero(violation)
    lines = paths.steps[column] * model.num_constraints + constraint
    costs = sparse.csr_array((violation[column, constraint], (lines, column)), shape=(limits.size, len(paths.rows)))
    names = tuple(f"{name!r} at step {step}" for step in range(model.horizon) for name in model.constraint_names)
    return Budget(WHAT["per_step"], limits, costs, names)


#: Of several limits.
BUDGETS = {"per_constraint": constraint_budget, "per_step": step_budget}


class Flagged(Problem):
    """A model whose states remember whether anything has been violated: (state, has it?)."""

    def __init__(self, model: TabularModel) -> None:
        self._model = model
        self.name = f"{model.name}, with a flag"
        self.horizon, self.stationary = model.horizon, model.stationary
        self.constraint_names, self.constraint_bounds = model.constraint_names, model.constraint_bounds
        self.reward_range = model.reward_range

    def initial(self) -> list[tuple[float, Any]]:
        """Nothing has been violated at first."""
        model = self._model
        first = zip(model.first_probability.tolist(), model.first_slot.tolist(), strict=True)
        return [(chance, (model.state_of_slot(slot), False)) for chance, slot in first]

    def actions(self, step: int, state: Any) -> list[Any]:
        """As before."""
        slot = self._model.slot_of(step, state[0])
        return [self._model.action_of_row(row) for row in self._model.rows_of_slot(slot)]

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """As before; a violation raises the flag for good."""
        model, (label, flag) = self._model, state
        layout, payoffs = model.layout, model.payoffs
        row = model.row_of(step, label, action)
        law = layout.row_distribution[row]
        first, last = (int(edge) for edge in layout.outcome_start[law : law + 2])
        found = []
        for outcome in range(first, last):
            record = int(payoffs.row_payoff[row]) + payoffs.stride * (outcome - first)
            following = model.state_of_slot(int(layout.outcome_next[outcome]))
            raised = flag or bool(model.record_violation[record] > 0.0)
            chance, reward = float(layout.outcome_probability[outcome]), float(payoffs.reward[record])
            found.append(Outcome(chance, (following, raised), reward, tuple(payoffs.constraints[record].tolist())))
        return found
