"""`solve`: the original problem by backward induction.

    max E[sum_h r]  subject to  f_i >= 0 at every step with probability 1

It has a deterministic optimum, found by minimising the expected violation E[sum_h sum_i |f_i^-|] first and maximising
the reward second. The least violation is 0 exactly if the problem is feasible; otherwise the same recursion returns a
policy of least expected violation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, Literal, TypeVar, get_args

import numpy as np

from peakrl.checks import check_choice, check_count
from peakrl.compile import Target, as_model
from peakrl.errors import PolicyError, SettingsError
from peakrl.numerics import LEAST
from peakrl.planning.backward import LEAST_COST, Pays, induction, pays_of
from peakrl.planning.reasons import explain
from peakrl.policy.files import choices_table
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.safety.safe_set import SafeSet
from peakrl.tabular import TabularModel
from peakrl.types import Floats

PolicyKind = TypeVar("PolicyKind", bound=Policy | StochasticPolicy, covariant=True)
#: What `solve` keeps of its answer.
Keep = Literal["policy", "value", "all"]


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Generic[PolicyKind]):
    """What a planner found; numbers are expectations over the first state, in the problem's own units."""

    #: What was solved.
    model: TabularModel
    #: The most total reward; for `solve_modified` the most total modified reward W*.
    value: float
    #: Expected total violation of the original constraints under `policy`.
    violation: float
    #: Can the solved problem's constraints be met? For `solve_modified`: does its optimum violate nothing?
    feasible: bool
    _policy: PolicyKind | None
    #: Returns V and C by node, called on first use; None: solve the original problem again.
    _tables: Callable[[], tuple[Floats, Floats]] | None = None
    _reason: str | None = None
    #: Of `solve_cmdp`: what another unit of each limit is worth; None where no limit on expectations was solved for.
    multipliers: Floats | None = None
    #: Of `solve_cmdp`: how much of each limit is used.
    consumption: Floats | None = None

    @property
    def policy(self) -> PolicyKind:
        """One that attains it: a `Policy`; for `solve_cmdp` a `StochasticPolicy` where actions must be drawn."""
        if self._policy is None:
            raise PolicyError('this solution was asked for its value only; solve(model, keep="policy") has a policy')
        return self._policy

    @cached_property
    def reason(self) -> str | None:
        """None when feasible, else why not."""
        return self._reason if self.feasible or self._reason is not None else why_infeasible(self.model)

    @property
    def node_values(self) -> Floats:
        """[node]: `value` from each step and state on; worked out when first asked for, unless `keep` was "all"."""
        return self._by_node[0]

    @property
    def node_violations(self) -> Floats:
        """[node]: `violation` from each step and state on; worked out when first asked for."""
        return self._by_node[1]

    @cached_property
    def _by_node(self) -> tuple[Floats, Floats]:
        if self._tables is not None:
            return self._tables()
        found = induction(self.model, original(self.model), choices=False, values=True)
        return found.values, found.costs

    @property
    def safe_set(self) -> SafeSet:
        """From where, and by which actions, the original constraints can be kept: `safe_set(model)`."""
        return SafeSet(self.model)

    def __repr__(self) -> str:
        verdict = "feasible" if self.feasible else "not feasible (see .reason)"
        held = "no policy kept" if self._policy is None else f"policy {self._policy!r}"
        return f"<Solution: value {self.value:.6g}, violation {self.violation:.6g}, {verdict}, {held}>"


def solve(
    model: Target, *, keep: Keep = "policy", threads: int | None = None, policy_file: str | Path | None = None
) -> Solution[Policy]:
    """Solve the original problem, given as a model or as a `Problem`: the most reward without any violation.

    Where every policy may violate, the policy of least expected violation (then most reward) is returned with
    feasible=False, and `reason` names the constraint, the state and the step that leave no way out.

    `keep`: "policy" (what changes from step to step, at most a byte for each step and state, more where a state offers
    over 256 actions), "value" (nothing but the numbers) or "all" (the values by step and state as well, 16 bytes each;
    otherwise they are worked out when asked for). `threads`: how many work on it, by default every core where the model
    is large; the result is the same. `policy_file`: also write the policy there, for `load`; one that takes a
    byte for each step and state is written while it is found and stays on disk, so that it need not fit into memory.
    """
    check_choice(keep, "keep", get_args(Keep))
    threads = None if threads is None else check_count(threads, "threads")
    model, planned = as_model(model), keep != "value"
    if policy_file is not None and not planned:
        raise SettingsError('policy_file is given, but keep="value" keeps no policy; leave one of them out')
    with choices_table(model, policy_file) if planned else nullcontext() as table:
        found = induction(model, original(model), choices=planned, values=keep == "all", threads=threads, table=table)
    policy = None if found.choices is None else Policy(model, found.choices)
    return Solution(
        model=model,
        value=at_start(model, found.first_values),
        violation=at_start(model, found.first_costs),
        feasible=not found.first_costs[model.first_slot].any(),
        _policy=policy,
        _tables=(lambda: (found.values, found.costs)) if keep == "all" else None,
    )


def original(model: TabularModel) -> Pays:
    """Return what the original problem's rows pay: rewards, and costs where anything may violate."""
    return pays_of(model, row_rewards(model), row_costs(model) if may_violate(model) else None)


def why_infeasible(model: TabularModel) -> str:
    """Return why no policy keeps every constraint."""
    found = induction(model, original(model), values=True)
    assert found.choices is not None
    return explain(model, found.costs, found.choices)


def row_rewards(model: TabularModel) -> Floats:
    """Return [row]: the expected reward; the model's own array where each row has a record of its own, in order."""
    record, reward = model.payoffs.row_payoff, model.payoffs.reward
    own = model.payoffs.stride == 0 and len(record) == len(reward)
    return reward if own and bool((record == np.arange(len(record), dtype=np.int32)).all()) else model.row_reward


def may_violate(model: TabularModel) -> bool:
    """Does anything that can happen violate a constraint?"""
    return bool((model.payoffs.constraints < 0.0).any())


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
