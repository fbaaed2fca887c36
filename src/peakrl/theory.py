"""The paper's arithmetic and auxiliary problems: penalty, slack audit, PAC plan, modified and relaxed problem.

With S states, A actions, horizon H, I constraints and l(K) = log(S A H K / p), for rewards in [0, 1] and |f_i| <= 1:

    slack xi = eps / (6 H I)      slater gamma = xi / 2      penalty eta = 2 H I / gamma
    K >= c * I^2 H^6 S A l(K) / eps^2            Theorem 1: an (eps, p)-PAC policy
    K >= H^5 S^2 A^2 l(K)^3                      the regret bound that its proof uses
    K >= c * I^2 H^6 S A l(K) / (eps gamma)^2    Theorem 1 with the 1/gamma of eta = 2 H I / gamma included

The regret bound is proportional to eta, so the value gap is c' * (I / gamma) * sqrt(H^6 S A l / K); the printed proof
treats 1/gamma as a constant although gamma <= eps / (6 H I). Its bound on the violation does not depend on gamma. The
theorem is for H >= 2; at H = 1 it holds with eps / 2 in place of eps. Since l depends on K, each line is a fixed point.

The two auxiliary problems are

    modified:  max E[sum_h R]  with  R = r + (eta / I) * sum_i min(0, f_i^- + xi),  x^- = min(x, 0)
    relaxed:   max E[sum_h r]  subject to  E|f_i^-| <= xi  at each step, for each constraint

With V* the optimum, W* the modified optimum, pi_W its policy and V*_xi the relaxed optimum,

    V* <= W* <= V*_xi <= W* + eta * H * xi       if the problem is feasible and eta = 2 H I (hi - lo) / gamma

but V* = W* only if pi_W violates nothing. A violation of up to the slack is free, so pi_W may violate forever.
`audit_slack` solves both problems, evaluates pi_W on the original one, and reports the violation that the slack permits
and the value that is gained by it. If outcomes are deterministic, a violation larger than

    xi + H (hi - lo) I / eta                     (1.25 xi for the default eta, gamma = xi / 2)

costs more than all rewards of an episode can compensate.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from peakrl.checks import LARGEST_PENALTY, ROUNDING, check_count, check_fraction, check_number, reward_limits
from peakrl.compile import Target, as_model
from peakrl.errors import SettingsError
from peakrl.evaluation import Evaluation, evaluate
from peakrl.planning import Solution, solve, solve_cmdp
from peakrl.planning.backward import Pays, induction, pays_of, value_of
from peakrl.planning.cmdp import AnySolution
from peakrl.planning.solution import at_start, row_costs
from peakrl.policy.tables import Choices, Policy, StochasticPolicy, table_form
from peakrl.tabular import TabularModel, modified_reward
from peakrl.types import Floats

__all__ = ["Audit", "PacPlan", "audit_slack", "pac_plan", "solve_modified", "solve_relaxed"]

#: `audit_slack` solves the relaxed problem by default if the model has at most this many (step, state, action) entries.
SMALL = 20_000
#: Two exact computations of one value may differ by this much of it.
NOTHING = 1e-12


@dataclass(frozen=True)
class PacPlan:
    """What Theorem 1 requires, in the theorem's units (rewards in [0, 1], constraints in [-1, 1])."""

    #: xi = eps / (6 H I).
    slack: float
    #: gamma = xi / 2.
    slater: float
    #: eta = 2 H I / gamma.
    penalty: float
    #: l = log(S A H K / p) at K = `episodes`.
    log_term: float
    #: K: the smallest number from which on K >= c * I^2 H^6 S A l / eps^2.
    episodes: int
    #: K * H.
    steps: int
    #: The smallest number from which on K >= H^5 S^2 A^2 l^3, which the cited regret bound requires.
    regret_episodes: int
    #: The smallest number from which on K >= c * I^2 H^6 S A l / (eps * slater)^2, with the factor 1/slater^2 included.
    strict_episodes: int


def pac_plan(
    *,
    epsilon: float,
    failure_probability: float,
    states: int,
    actions: int,
    horizon: int,
    constraints: int,
    constant: float = 1.0,
) -> PacPlan:
    """Return settings and episodes for an (epsilon, failure_probability)-PAC policy by Theorem 1.

    Parameters
    ----------
    epsilon
        Accuracy of value and violation, for rewards in [0, 1].
    failure_probability
        p, the probability that the policy may be worse.
    states, actions, horizon, constraints
        S, A, H and I.
    constant
        The unspecified c of the theorem.

    Returns
    -------
    PacPlan
        `episodes` is the printed formula; `regret_episodes` and `strict_episodes` are the two further conditions in
        this module's docstring.

    Examples
    --------
    >>> from peakrl.theory import pac_plan
    >>> plan = pac_plan(epsilon=0.1, failure_probability=0.05, states=5, actions=2, horizon=3, constraints=1)
    >>> f"{plan.episodes:,}"
    '16,791,276'
    """
    epsilon, constant = check_number(epsilon, "epsilon", above=0), check_number(constant, "constant", above=0)
    p = check_fraction(failure_probability, "failure_probability")
    s, a = check_count(states, "states"), check_count(actions, "actions")
    h, i = check_count(horizon, "horizon"), check_count(constraints, "constraints")
    epsilon = epsilon / 2 if h == 1 else epsilon
    slack = epsilon / (6 * h * i)
    slater = slack / 2
    try:
        log_base = math.log(s * a * h) - math.log(p)
        factor = constant * (i**2 * h**6 * s * a) / epsilon / epsilon
        episodes = least_episodes(factor, log_base, 1)
        return PacPlan(
            slack=slack,
            slater=slater,
            penalty=2 * h * i / slater,
            log_term=log_base + math.log(episodes),
            episodes=episodes,
            steps=episodes * h,
            regret_episodes=least_episodes(float(h**5 * s**2 * a**2), log_base, 3),
            strict_episodes=least_episodes(factor / slater / slater, log_base, 1),
        )
    except (OverflowError, ZeroDivisionError):
        raise SettingsError(
            f"epsilon {epsilon:g} with {s} states, {a} actions, horizon {h} and {i} constraints needs more episodes "
            "than a float can represent; use a larger epsilon or a smaller problem"
        ) from None


def least_episodes(factor: float, log_base: float, power: int) -> int:
    """Return the smallest integer K from which on K >= factor * (log_base + log K)^power.

    K / (log_base + log K)^power decreases until log_base + log K = power and increases after it, so bisection to the
    right of that point finds K.
    """

    def enough(episodes: int) -> bool:
        needed = factor * (log_base + math.log(episodes)) ** power
        if not math.isfinite(needed):
            raise OverflowError
        return episodes >= needed

    high = max(1, math.ceil(math.exp(power - log_base)))
    if enough(high):
        while high > 1 and enough(high - 1):
            high -= 1
        return high
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def default_penalty(model: TabularModel, slack: float, slater: float | None = None) -> float:
    """Return eta = 2 * H * I * (hi - lo) / gamma in the model's units; gamma = `slater`, by default slack / 2.

    A reward range of width 0 and a number of constraints of 0 count as 1.
    """
    slack = check_number(slack, "slack", least=0)
    if slack == 0:
        raise SettingsError("slack is 0: give a penalty as well, since the default one is derived from a slack above 0")
    gamma = slack / 2 if slater is None else check_number(slater, "slater", above=0)
    if gamma > slack:
        raise SettingsError(f"slater is {gamma:g}; it must be no larger than the slack of {slack:g}")
    lo, hi = model.reward_range
    weight = 2.0 * model.horizon * max(model.num_constraints, 1) * ((hi - lo) or 1.0)
    penalty = weight / gamma if gamma > 0 else math.inf
    if not penalty <= LARGEST_PENALTY:
        limit = f"is larger than {LARGEST_PENALTY:g}"
        raise SettingsError(f"slack {slack:g} is too small: the penalty {weight:g} / {gamma:g} {limit}")
    return penalty


def solve_modified(model: Target, slack: float, penalty: float | None = None) -> Solution[Policy]:
    """Solve the modified problem: no constraints; violations beyond `slack` reduce the reward.

    Ties between actions go to the first. Violations up to the slack are free, so the optimum may violate forever.

    Parameters
    ----------
    model
        A model or problem.
    slack
        xi, in the unit of the constraints.
    penalty
        eta; by default 2 * H * I * (hi - lo) / gamma with (lo, hi) the reward range and gamma = slack / 2.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import peakrl
    >>> peakrl.theory.solve_modified(peakrl.problems.scheduling_example(1), slack=0.5).value
    -1.0
    """
    model = as_model(model)
    if penalty is None:
        penalty = default_penalty(model, slack)
    slack, penalty = check_number(slack, "slack", least=0), check_number(penalty, "penalty", least=0)
    table = np.zeros(*table_form(model))
    found = induction(model, modified_pays(model, slack, penalty), table=table)
    policy = Policy(model, Choices(model, table))
    violation = evaluate(model, policy).violation
    reason = None
    if violation > 0:
        reason = (
            f"the modified optimum has an expected violation of {violation:.6g}: violations are free up to the slack "
            f"of {slack:g} and cost {penalty / max(model.num_constraints, 1):.6g} for each unit beyond it"
        )

    def tables() -> tuple[Floats, Floats]:
        """Return [node]: the modified value, and the expected violation under the modified optimum's policy."""
        costs = value_of(model.layout, model.num_nodes, row_costs(model), policy.rows)
        # Computed again: the solution would otherwise hold them for as long as it exists.
        return induction(model, modified_pays(model, slack, penalty), values=True).values, costs

    return Solution(
        model=model,
        value=at_start(model, found.first_values),
        violation=violation,
        feasible=reason is None,
        policy=policy,
        _reason=reason,
        _tables=tables,
    )


def modified_pays(model: TabularModel, slack: float, penalty: float) -> Pays:
    """Return what the rows pay in the modified problem."""
    records = modified_reward(model.payoffs.reward, model.payoffs.constraints, slack, penalty)
    return pays_of(model, model.row_means(records))


def solve_relaxed(model: Target, slack: float) -> AnySolution:
    """Solve the relaxed problem: E|f_i^-| may reach `slack` at each step, for each constraint.

    Equivalent to `solve_cmdp(model, per_step=slack)`. If the relaxed constraints cannot be satisfied either, the answer
    has feasible=False, as that of `solve`.

    Parameters
    ----------
    model
        A model or problem.
    slack
        xi, in the unit of the constraints.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import peakrl
    >>> peakrl.theory.solve_relaxed(peakrl.problems.scheduling_example(1), slack=0.5).value
    -1.0
    """
    return solve_cmdp(model, per_step=check_number(slack, "slack", least=0))


@dataclass(frozen=True)
class Check:
    """One assumption of the paper: whether it holds, and the observed numbers."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True, eq=False)
class Audit:
    """Result of `audit_slack`; print it, or read its numbers from `as_dict()`."""

    #: The model's name.
    name: str
    #: xi, in the unit of the constraints.
    slack: float
    #: eta: the price of a unit of violation beyond the slack, divided by the number of constraints.
    penalty: float
    #: The paper's assumptions: `name`, `holds` and `detail` of each.
    checks: tuple[Check, ...]
    #: Sizes of the model: "states", "pairs", ...
    sizes: dict[str, int] = field(repr=False)
    #: Solution of the original problem.
    optimum: Solution[Policy] = field(repr=False)
    #: Solution of the modified problem.
    modified: Solution[Policy] = field(repr=False)
    #: Solution of the relaxed problem; None if it was not requested.
    relaxed: Solution[Policy | StochasticPolicy] | None = field(repr=False)
    #: Evaluation of the modified optimum's policy on the original problem.
    modified_evaluation: Evaluation = field(repr=False)
    #: A violation above this never pays if outcomes are deterministic.
    deterred_violation: float
    #: The smallest possible violation; None if the model has none.
    smallest_violation: float | None
    #: Whether any action has more than one outcome.
    random_outcomes: bool
    #: The accuracy that belongs to this slack in Theorem 1, in the theorem's units.
    epsilon: float
    #: The same as a distance from the optimal value, in the model's units.
    promised_value_gap: float
    #: The same as a violation, in the model's units.
    promised_violation: float
    #: p of Theorem 1: the probability that it may fail.
    failure_probability: float
    #: c of Theorem 1, which the theorem does not specify.
    constant: float
    #: What Theorem 1 requires; None for a slack of 0.
    plan: PacPlan | None

    @property
    def free_violation(self) -> float:
        """Expected violation per episode of the modified optimum's policy."""
        return float(self.modified_evaluation.violation)

    @property
    def value_won(self) -> float:
        """Value of the modified optimum's policy minus the optimal value."""
        won = float(self.modified_evaluation.value) - self.optimum.value
        return won if abs(won) > NOTHING * max(abs(self.modified_evaluation.value), abs(self.optimum.value)) else 0.0

    @property
    def exact(self) -> bool:
        """True if the modified optimum violates nothing and has the optimal value."""
        return self.optimum.feasible and self.free_violation == 0.0 and self.value_won == 0.0

    @property
    def deterred_by_rule(self) -> bool:
        """True if `deterred_violation` alone proves that no violation of the model pays."""
        if not self.optimum.feasible or self.random_outcomes:
            return False
        return self.smallest_violation is None or self.smallest_violation > self.deterred_violation

    def as_dict(self) -> dict[str, Any]:
        """Return every number as a value that JSON can represent."""
        plain = (
            "name", "slack", "penalty", "sizes", "free_violation", "value_won", "exact", "smallest_violation",
            "random_outcomes", "deterred_by_rule", "epsilon", "promised_value_gap", "promised_violation",
            "failure_probability", "constant",
        )  # fmt: skip
        return {name: getattr(self, name) for name in plain} | {
            "checks": [asdict(check) for check in self.checks],
            "feasible": self.optimum.feasible,
            "reason": self.optimum.reason,
            "optimum_value": self.optimum.value,
            "optimum_violation": self.optimum.violation,
            "modified_value": self.modified.value,
            "modified_policy_value": float(self.modified_evaluation.value),
            "relaxed_value": self.relaxed.value if self.relaxed is not None and self.relaxed.feasible else None,
            "relaxed_reason": None if self.relaxed is None else self.relaxed.reason,
            "free_violation_probability": float(self.modified_evaluation.violation_probability),
            "deterred_violation": self.deterred_violation if math.isfinite(self.deterred_violation) else None,
            "plan": None if self.plan is None else asdict(self.plan),
        }

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if not check.holds]
        found = f"fails: {', '.join(failed)}" if failed else f"all {len(self.checks)} assumptions hold"
        return (
            f"<Audit of {self.name!r}: slack {self.slack:g}, {found}, permitted violation {self.free_violation:.6g}, "
            f"value gained {self.value_won:.6g}; print it for the full report>"
        )

    def __str__(self) -> str:
        values = self.as_dict()
        checks, sizes, plan = values.pop("checks"), values.pop("sizes"), values.pop("plan")
        lines = [f"Audit of {values.pop('name')!r}", "", "Assumptions"]
        lines += [f"  {'yes' if check['holds'] else 'NO':<5}{check['name']}: {check['detail']}" for check in checks]
        theorem = {"requires a slack above 0": None} if plan is None else plan
        for title, rows in (("Size", sizes), ("Result", values), ("Theorem 1", theorem)):
            lines += ["", title]
            for name, value in rows.items():
                shown = "-" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)
                lines.append(f"  {name.replace('_', ' '):<32}{shown}")
        return "\n".join(lines)


def audit_slack(
    model: Target,
    slack: float,
    penalty: float | None = None,
    *,
    failure_probability: float = 0.05,
    constant: float = 1.0,
    relaxed: bool | None = None,
) -> Audit:
    """Check the paper's assumptions on a model or problem, and compute what a slack permits.

    Parameters
    ----------
    model
        A model or problem.
    slack, penalty
        xi and eta; eta is 2 H I (hi - lo) / (slack / 2) by default. A slack of 0 requires a penalty.
    failure_probability, constant
        As for `pac_plan`.
    relaxed
        Whether to solve the relaxed problem too, a linear program; by default only for small models.

    Returns
    -------
    Audit
        Print it, or read its numbers from `as_dict()`.

    Examples
    --------
    >>> import peakrl
    >>> audit = peakrl.theory.audit_slack(peakrl.problems.scheduling_example(1), slack=0.5)
    >>> audit.exact  # the modified optimum violates nothing and has the optimal value
    True
    """
    slack = check_number(slack, "slack", least=0)
    model = as_model(model)
    penalty = default_penalty(model, slack) if penalty is None else check_number(penalty, "penalty", least=0)
    wants_relaxed = model.num_entries <= SMALL if relaxed is None else relaxed
    optimum, charged = solve(model), solve_modified(model, slack, penalty)
    count, (lo, hi) = max(model.num_constraints, 1), model.reward_range
    bound = max(model.constraint_bounds, default=1.0)
    # The theorem assumes rewards of range 1 and constraints bounded by 1; at H = 1 epsilon is doubled.
    epsilon = 6 * model.horizon * count * slack / bound * (2 if model.horizon == 1 else 1)
    violations = -model.payoffs.constraints[model.payoffs.constraints < 0]
    plan = None if slack == 0 else pac_plan(
        epsilon=epsilon, failure_probability=failure_probability, constant=constant, states=model.max_states,
        actions=model.max_actions, horizon=model.horizon, constraints=count,
    )  # fmt: skip
    return Audit(
        name=model.name,
        slack=slack,
        penalty=penalty,
        checks=tuple(check_assumptions(model, slack, optimum)),
        sizes={
            "horizon": model.horizon,
            "states": model.num_states,
            "pairs": model.num_pairs,
            "constraints": model.num_constraints,
            "max states per step": model.max_states,
            "max actions": model.max_actions,
            "stored outcomes": len(model.layout.outcome_next),
            "bytes": model.nbytes,
        },
        optimum=optimum,
        modified=charged,
        relaxed=solve_relaxed(model, slack) if wants_relaxed else None,
        modified_evaluation=evaluate(model, charged.policy),
        deterred_violation=slack + model.horizon * (hi - lo) * count / penalty if penalty > 0 else math.inf,
        smallest_violation=float(violations.min()) if violations.size else None,
        random_outcomes=bool((np.diff(model.layout.outcome_start) > 1).any()),
        epsilon=epsilon,
        promised_value_gap=epsilon * (hi - lo),
        promised_violation=epsilon * bound,
        failure_probability=failure_probability,
        constant=constant,
        plan=plan,
    )


def check_assumptions(model: TabularModel, slack: float, optimum: Solution[Policy]) -> list[Check]:
    """Return a check of each assumption of the paper."""
    reward, (lo, hi) = model.payoffs.reward, model.reward_range
    least, most = reward_limits(model.reward_range)
    seen = f"{reward.min():.6g} to {reward.max():.6g}"
    inside = bool(least <= reward.min() and reward.max() <= most)
    shift = f"after a shift by {-lo:.6g} per step, which does not change the order of policies"
    checks = [
        Check("rewards stay in their declared range", inside, f"{seen}, declared {lo:.6g} to {hi:.6g}"),
        Check("rewards are at least 0", inside, "as they are" if lo >= 0 else shift),
    ]
    for name, bound, values in zip(
        model.constraint_names, model.constraint_bounds, model.payoffs.constraints.T, strict=True
    ):
        checks += check_constraint(name, bound, float(values.min()), float(values.max()), slack)
    by_pair = model.payoffs.stride == 0
    detail = "the next state has no influence"
    if not by_pair:
        detail = "the next state has an influence, which the paper does not cover; each outcome is counted by itself"
    checks.append(Check("state and action determine reward and constraints", by_pair, detail))
    reason = optimum.reason or "solved without any violation"
    checks.append(Check("some policy never violates", optimum.feasible, reason))
    return checks


def check_constraint(name: str, bound: float, least: float, most: float, slack: float) -> list[Check]:
    """Return checks of one constraint whose values range from `least` to `most`."""
    size = max(-least, most)
    sign = "can be satisfied and can be violated"
    if most < 0:
        sign = "every action violates it: check its sign (>= 0 is satisfied)"
    elif least >= 0:
        sign = "never violated, so it has no effect: check its sign (>= 0 is satisfied)"
    checks = [
        Check(
            f"{name!r} stays within its bound",
            size <= bound * (1 + ROUNDING),
            f"{least:.6g} to {most:.6g}, bound {bound:.6g}",
        ),
        Check(f"{name!r} can be satisfied", most >= 0, sign),
    ]
    if least < 0:
        detail = f"its violations reach {-least:.6g}" + ("" if -least > slack else ", so none is charged")
        checks.append(Check(f"{name!r} can exceed the slack", -least > slack, detail))
    return checks
