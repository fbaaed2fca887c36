"""The original problem and the modified one, by backward induction.

    original:  max E[sum_h r]  subject to  f_i >= 0 at every step with probability 1
    modified:  max E[sum_h R]  with  R = r + (penalty / I) * sum_i min(0, f_i^- + slack),  x^- = min(x, 0)

The original problem has a deterministic optimum. It is found by minimising the expected violation
E[sum_h sum_i |f_i^-|] first and maximising the reward second: the least violation is 0 exactly where the problem is
feasible, and where it is not the same recursion gives the most harmless policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from peakrl.checks import check_number
from peakrl.kernels.arrays import Floats, Ints
from peakrl.kernels.planning import LEAST_COST, plan, value_of
from peakrl.kernels.products import LEAST
from peakrl.model.explore import Target, as_model
from peakrl.model.tabular import TabularModel
from peakrl.planning.reasons import explain
from peakrl.policy.tables import Policy, StochasticPolicy, first_rows
from peakrl.safety.safe_set import SafeSet
from peakrl.theory import default_penalty

PolicyKind = TypeVar("PolicyKind", bound=Policy | StochasticPolicy, covariant=True)


@dataclass(frozen=True, eq=False)
class Solution(Generic[PolicyKind]):
    """What a planner found; numbers are expectations over the first state, in the problem's own units."""

    #: The most total reward; for `solve_modified` the most total modified reward W*.
    value: float
    #: Expected total violation of the original constraints under `policy`.
    violation: float
    #: Can the solved problem's constraints be met? For `solve_modified`: does its optimum violate nothing?
    feasible: bool
    #: One that attains it: a `Policy`; for `solve_budget` a `StochasticPolicy` where actions must be drawn.
    policy: PolicyKind
    #: None when feasible, else why not.
    reason: str | None
    #: [node]: `value` from each step and state on.
    node_values: Floats
    #: [node]: `violation` from each step and state on.
    node_violations: Floats
    #: Of `solve_budget`: what another unit of each limit is worth; None where no limit on expectations was solved for.
    multipliers: Floats | None = None
    #: Of `solve_budget`: how much of each limit is used.
    consumption: Floats | None = None

    @property
    def safe_set(self) -> SafeSet:
        """From where, and by which actions, the original constraints can be kept: `safe_set(model)`."""
        return SafeSet(as_model(self.policy.model))

    def __repr__(self) -> str:
        verdict = "feasible" if self.feasible else "not feasible (see .reason)"
        return f"<Solution: value {self.value:.6g}, violation {self.violation:.6g}, {verdict}, policy {self.policy!r}>"


def solve(model: Target) -> Solution[Policy]:
    """Solve the original problem, given as a model or as a `Problem`: the most reward without any violation.

    Where every policy may violate, the policy of least expected violation (then most reward) is returned with
    feasible=False, and `reason` names the constraint, the state and the step that leave no way out.
    """
    model = as_model(model)
    value, cost, choice = plan(model.layout, model.num_nodes, model.row_reward, row_costs(model))
    feasible = not cost[model.first_slot].any()
    return Solution(
        value=at_start(model, value),
        violation=at_start(model, cost),
        feasible=feasible,
        policy=table_policy(model, choice),
        reason=None if feasible else explain(model, cost, choice),
        node_values=value,
        node_violations=cost,
    )


def solve_modified(model: Target, slack: float, penalty: float | None = None) -> Solution[Policy]:
    """Solve the modified problem: no constraints, violations beyond `slack` are charged to the reward.

    `penalty` is eta; by default 2 * H * I * (hi - lo) / gamma with (lo, hi) the reward range and gamma = slack / 2.
    Ties between actions go to the first. Violations up to the slack are free, so the optimum may violate for ever.
    """
    model = as_model(model)
    if penalty is None:
        penalty = default_penalty(model, slack)
    slack, penalty = check_number(slack, "slack", least=0), check_number(penalty, "penalty", least=0)
    reward = model.row_means(model.modified_rewards(slack, penalty))
    value, _, choice = plan(model.layout, model.num_nodes, reward, np.zeros(model.num_rows))
    cost = value_of(model.layout, model.num_nodes, row_costs(model), choice)
    violation = at_start(model, cost)
    reason = None
    if violation > 0:
        reason = (
            f"the modified optimum has an expected violation of {violation:.6g}: violations are free up to the slack "
            f"of {slack:g} and cost {penalty / max(model.num_constraints, 1):.6g} for each unit beyond it"
        )
    return Solution(
        value=at_start(model, value),
        violation=violation,
        feasible=reason is None,
        policy=table_policy(model, choice),
        reason=reason,
        node_values=value,
        node_violations=cost,
    )


def table_policy(model: TabularModel, choice: Ints) -> Policy:
    """Return the policy of a table of rows by node; where the planner chose none (-1) any row will do."""
    return Policy(model, np.where(choice >= 0, choice, first_rows(model)))


def row_costs(model: TabularModel) -> Floats:
    """Return [row]: the expected violation of all constraints together; above 0 wherever one may be violated."""
    records = model.record_violation
    cost = model.row_means(records)
    if model.payoffs.stride == 0:
        return cost
    # A small probability times a small violation may underflow, the probability alone does not.
    possible = model.row_means((records > 0.0).astype(np.float64)) > 0.0
    return np.where(possible, np.maximum(cost, LEAST_COST), 0.0)


def at_start(model: TabularModel, table: Floats) -> float:
    """Return the expectation over the first state of a table by node; of one that is never negative 0 means 0."""
    expected, first = float(model.first_probability @ table[model.first_slot]), table[model.first_slot]
    return LEAST if expected == 0.0 and (first > 0.0).any() and (first >= 0.0).all() else expected
