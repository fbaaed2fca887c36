"""The approximated problem: a linear programme over occupancy measures.

    max  sum_h sum_sa x_h(s,a) r(s,a)
    s.t. sum_a x_h(s,a) = inflow_h(s)                           inflow_0 = distribution of the first state
         inflow_{h+1}(s') = sum_d y_h(d) d(s')
         y_h(d) = sum of x_h(s,a) over the pairs whose next state has distribution d
         sum_sa x_h(s,a) E|f_i^-(s,a)| <= slack                 for each step h and constraint i
         x, y >= 0

Only nodes that can be reached take part. The y keep the programme as small as the model's storage: a distribution that
many pairs share is written once. A policy is read off as x_h(s,a) / sum_a x_h(s,a); it may have to draw its actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peakrl.checks import check_number
from peakrl.errors import PeakError
from peakrl.kernels.arrays import Floats, Ints, Longs
from peakrl.kernels.planning import value_of_mixture
from peakrl.model.explore import Target, as_model
from peakrl.model.space import expand
from peakrl.model.tabular import TabularModel
from peakrl.planning.exact import Solution, at_start, row_costs, solve
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy

#: Feasibility tolerances of the solver, the tightest that HiGHS takes; occupancy below the second is rounding.
TOLERANCE, NOISE = 1e-10, 1e-12


@dataclass(frozen=True)
class Programme:
    """The linear programme: minimise objective @ z with z = (x, y) >= 0."""

    #: [x]: node, step and row; nodes from `after` on lie behind the last step.
    nodes: Longs
    steps: Longs
    rows: Longs
    after: int
    objective: Floats
    #: Sparse matrices and right-hand sides: equal @ z = supply, limits @ z <= bound.
    equal: Any
    supply: Floats
    limits: Any
    bound: Floats
    #: [limit]: its step, its constraint and the number that its line was divided by.
    limit_step: Longs
    limit_constraint: Longs
    limit_scale: Floats


def solve_relaxed(model: Target, slack: float) -> Solution[Policy | StochasticPolicy]:
    """Solve the approximated problem: E|f_i^-| may reach `slack` at each step, for each constraint.

    The policy is a `Policy` where no action has to be drawn, else a `StochasticPolicy`. Where even the relaxed
    constraints cannot be met, the answer is `solve`'s policy of least violation with feasible=False. A programme of
    80,000 (step, state, action) entries takes seconds; time grows faster than the size.
    """
    slack = check_number(slack, "slack", least=0)
    model = as_model(model)
    exact = solve(model)
    if slack == 0.0:
        return exact  # E|f_i^-| = 0 is the original problem, and that one needs no tolerance
    programme = build(model, slack)
    occupancy = optimise(programme)
    if occupancy is None:
        return replace(exact, feasible=False, reason=why_infeasible(model, programme, slack))
    weights = policy_weights(model, exact.policy.rows, programme, occupancy)
    values = value_of_mixture(model.layout, model.num_nodes, model.row_reward, weights)
    violations = value_of_mixture(model.layout, model.num_nodes, row_costs(model), weights)
    return Solution(
        value=at_start(model, values),
        violation=at_start(model, violations),
        feasible=True,
        policy=simplest_policy(model, weights),
        reason=None,
        node_values=values,
        node_violations=violations,
    )


def build(model: TabularModel, slack: float) -> Programme:
    """Return the programme of a model."""
    nodes, steps, rows, after, equal, supply = flow(model)
    lo, hi = model.reward_range
    objective = np.zeros(equal.shape[1])
    # One unit flows through each step, so a common shift changes nothing; the scale keeps tolerances meaningful.
    objective[: len(rows)] = (lo - model.row_reward[rows]) / ((hi - lo) or 1.0)
    lines = limits(model, slack, steps, rows, equal.shape[1])
    return Programme(nodes, steps, rows, after, objective, equal, supply, *lines)


def flow(model: TabularModel) -> tuple[Longs, Longs, Longs, int, Any, Floats]:
    """Return node, step and row of every x, the first node after the last step, and the conservation of flow.

    The latter is a sparse matrix and what enters each of its lines from outside.
    """
    from scipy import sparse

    layout, stride = model.layout, model.layout.node_stride
    after = (model.horizon - 1) * stride + int(layout.step_slots[-1, 1])
    nodes = np.flatnonzero(model.reachable[:after])
    line = np.full(after, -1, np.int64)
    line[nodes] = np.arange(len(nodes))
    step = nodes // stride if stride else model.step_of_slot[nodes]
    slot = nodes - step * stride
    counts = np.diff(layout.row_start)[slot]
    rows, steps = expand(layout.row_start[slot], counts), np.repeat(step, counts)

    going_on = np.flatnonzero(steps < model.horizon - 1)
    number = len(layout.outcome_start) - 1
    keys, which = np.unique(steps[going_on] * number + layout.row_distribution[rows[going_on]], return_inverse=True)
    sizes = np.diff(layout.outcome_start)[keys % number]
    outcomes = expand(layout.outcome_start[keys % number], sizes)
    following = np.repeat((keys // number + 1) * stride, sizes) + layout.outcome_next[outcomes]

    def matrix(values: Floats, lines: Longs, columns: Longs, shape: tuple[int, int]) -> Any:
        return sparse.csr_array((values, (lines, columns)), shape=shape)

    n, x, y = len(nodes), len(rows), len(keys)
    leaving = matrix(np.ones(x), np.repeat(np.arange(n), counts), np.arange(x), (n, x))
    entering = matrix(-layout.outcome_probability[outcomes], line[following], np.repeat(np.arange(y), sizes), (n, y))
    shared = matrix(-np.ones(len(going_on)), which, going_on, (y, x))
    equal = sparse.block_array([[leaving, entering], [shared, sparse.eye_array(y)]], format="csr")
    supply = np.zeros(n + y)
    supply[line[model.first_slot]] = model.first_probability
    return np.repeat(nodes, counts), steps, rows, after, equal, supply


def limits(
    model: TabularModel, slack: float, steps: Longs, rows: Longs, columns: int
) -> tuple[Any, Floats, Longs, Longs, Floats]:
    """Return the lines sum x E|f_i^-| <= slack, each divided by its largest coefficient.

    A line whose largest coefficient is within the slack always holds, since one unit flows through a step.
    """
    from scipy import sparse

    coefficients = model.row_violation[rows]
    column, constraint = np.nonzero(coefficients)
    lines = steps[column] * model.num_constraints + constraint
    scale = np.zeros(model.horizon * model.num_constraints)
    np.maximum.at(scale, lines, coefficients[column, constraint])
    kept = np.flatnonzero(scale > slack)
    scale[scale == 0.0] = 1.0
    full = sparse.csr_array(
        (coefficients[column, constraint] / scale[lines], (lines, column)), shape=(len(scale), columns)
    )
    width = max(model.num_constraints, 1)
    return full[kept], slack / scale[kept], kept // width, kept % width, scale[kept]


def optimise(programme: Programme) -> Floats | None:
    """Return the x of an optimum, or None where there is none."""
    solution = run_solver(programme.objective, programme.equal, programme.supply, programme.limits, programme.bound)
    return None if solution is None else np.asarray(solution.x[: len(programme.rows)])


def run_solver(objective: Floats, equal: Any, supply: Floats, limits: Any, bound: Floats) -> Any:
    """Return scipy's answer for an optimum, or None for an infeasible programme (none of ours is unbounded)."""
    from scipy.optimize import linprog

    for presolve in (True, False):
        answer = linprog(
            objective, A_ub=limits, b_ub=bound, A_eq=equal, b_eq=supply, bounds=(0, None), method="highs",
            options={
                "presolve": presolve,
                "primal_feasibility_tolerance": TOLERANCE,
                "dual_feasibility_tolerance": TOLERANCE,
            },
        )  # fmt: skip
        if answer.status == 0:
            return answer
        if answer.status == 2:
            return None
    raise PeakError(f"the linear programme of the relaxed problem was not solved: {answer.message}")


def why_infeasible(model: TabularModel, programme: Programme, slack: float) -> str:
    """Return what slack it would take, and which constraints and steps stand against less.

    One more column t turns every limit into sum x E|f_i^-| <= slack + t; the least t is what is missing.
    """
    from scipy import sparse

    missing = sparse.csr_array(-1.0 / programme.limit_scale[:, None])
    wider = sparse.hstack([programme.limits, missing], format="csr")
    empty = sparse.csr_array((programme.equal.shape[0], 1))
    equal = sparse.hstack([programme.equal, empty], format="csr")
    objective = np.zeros(equal.shape[1])
    objective[-1] = 1.0
    answer = run_solver(objective, equal, programme.supply, wider, programme.bound)
    binding = np.flatnonzero(answer.ineqlin.marginals < -TOLERANCE)
    named = [
        f"{model.constraint_names[programme.limit_constraint[line]]!r} at step {programme.limit_step[line]}"
        for line in binding[:3].tolist()
    ]
    more = f" and {len(binding) - 3} more" if len(binding) > 3 else ""
    return (
        f"no policy keeps every expected violation within the slack of {slack:g}: the least slack that can be kept is "
        f"{slack + answer.fun:.6g}, because of {', '.join(named)}{more}"
    )


def policy_weights(model: TabularModel, fallback: Ints, programme: Programme, occupancy: Floats) -> Floats:
    """Return [entry]: x_h(s,a) / sum_a x_h(s,a); where nobody comes, all on the fallback's row [node]."""
    acting = np.flatnonzero(fallback[: programme.after] >= 0)
    step = acting // model.node_stride if model.stationary else 0
    weights = np.zeros(model.num_entries)
    weights[step * model.entry_stride + fallback[acting]] = 1.0

    occupancy = np.where(occupancy > NOISE, occupancy, 0.0)
    total = np.bincount(programme.nodes, occupancy, programme.after)[programme.nodes]
    met = total > 0
    entries = programme.steps * model.entry_stride + programme.rows
    weights[entries[met]] = occupancy[met] / total[met]
    return weights
