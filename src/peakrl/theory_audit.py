"""What a slack really buys: the paper's assumptions, checked on a model, and its lemmas, in numbers.

With V* the optimum, W* the modified optimum, pi_W its policy and V*_xi the relaxed optimum, what holds is

    V* <= W* <= V*_xi <= W* + eta * H * slack            for a feasible problem and eta = 2 H I (hi - lo) / gamma

but V* = W* only where pi_W violates nothing. A violation of up to the slack is free, so pi_W may violate for ever. The
audit solves both problems, evaluates pi_W on the original one, and tells the violation that the slack leaves free
and the value that is won by it. Where outcomes are not random, a violation larger than

    slack + H (hi - lo) I / eta                          (1.25 slack for the default eta, gamma = slack / 2)

costs more than all the rewards of an episode can make good, so it never pays.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from peakrl.checks import check_number
from peakrl.compile import Target, as_model
from peakrl.evaluation import Evaluation, evaluate
from peakrl.planning import Solution, solve, solve_modified, solve_relaxed
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.tabular import TabularModel
from peakrl.theory import PacPlan, default_penalty, pac_plan

#: The linear programme is solved unasked only for models with at most this many (step, state, action) entries.
SMALL = 20_000
#: Two exact computations of one value may differ by this much of it.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Check:
    """One assumption: does it hold, and what was seen."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True, eq=False)
class Audit:
    """The answer of `audit`; print it, or take its numbers from `as_dict()`."""

    #: Of the model.
    name: str
    #: What was asked about, in the constraints' own unit.
    slack: float
    #: eta: what a unit of violation beyond the slack costs, shared by the constraints.
    penalty: float
    #: The paper's assumptions: `name`, `holds`, `detail` of each.
    checks: tuple[Check, ...]
    #: "states", "pairs", ...: how large the model is.
    sizes: dict[str, int] = field(repr=False)
    #: The original problem solved.
    optimum: Solution[Policy] = field(repr=False)
    #: The modified problem solved.
    modified: Solution[Policy] = field(repr=False)
    #: The relaxed problem solved; None where that was not asked for.
    relaxed: Solution[Policy | StochasticPolicy] | None = field(repr=False)
    #: The modified optimum's policy on the original problem.
    modified_evaluation: Evaluation = field(repr=False)
    #: A violation above this never pays where outcomes are not random.
    deterred_violation: float
    #: The least violation that the model knows; None where it knows none.
    smallest_violation: float | None
    #: Does any action have more than one outcome?
    random_outcomes: bool
    #: The accuracy that this slack serves in Theorem 1, in the theorem's units.
    epsilon: float
    #: The same as a distance from the optimal value, in the model's units.
    promised_value_gap: float
    #: The same as a violation, in the model's units.
    promised_violation: float
    #: p of Theorem 1: how likely it may fail.
    failure_probability: float
    #: c of Theorem 1, which it leaves open.
    constant: float
    #: What Theorem 1 asks for; None for a slack of 0.
    plan: PacPlan | None

    @property
    def free_violation(self) -> float:
        """Expected violation, an episode, that the modified optimum keeps for ever."""
        return float(self.modified_evaluation.violation)

    @property
    def value_won(self) -> float:
        """What the modified optimum earns beyond the optimum (below 0: what it loses)."""
        won = float(self.modified_evaluation.value) - self.optimum.value
        return won if abs(won) > ROUNDING * max(1.0, abs(self.optimum.value)) else 0.0

    @property
    def exact(self) -> bool:
        """True when the modified optimum violates nothing and is worth what the optimum is."""
        return self.optimum.feasible and self.free_violation == 0.0 and self.value_won == 0.0

    @property
    def deterred_by_rule(self) -> bool:
        """True when the rule alone proves that no violation of the model ever pays."""
        if not self.optimum.feasible or self.random_outcomes:
            return False
        return self.smallest_violation is None or self.smallest_violation > self.deterred_violation

    def as_dict(self) -> dict[str, Any]:
        """Return every number as plain JSON-ready values."""
        return {
            "name": self.name,
            "slack": self.slack,
            "penalty": self.penalty,
            "sizes": dict(self.sizes),
            "checks": [asdict(check) for check in self.checks],
            "feasible": self.optimum.feasible,
            "reason": self.optimum.reason,
            "optimum_value": self.optimum.value,
            "optimum_violation": self.optimum.violation,
            "modified_value": self.modified.value,
            "modified_policy_value": float(self.modified_evaluation.value),
            "relaxed_value": self.relaxed.value if self.relaxed is not None and self.relaxed.feasible else None,
            "free_violation": self.free_violation,
            "free_violation_probability": float(self.modified_evaluation.violation_probability),
            "value_won": self.value_won,
            "exact": self.exact,
            "deterred_violation": finite_or_none(self.deterred_violation),
            "smallest_violation": self.smallest_violation,
            "random_outcomes": self.random_outcomes,
            "deterred_by_rule": self.deterred_by_rule,
            "epsilon": self.epsilon,
            "promised_value_gap": self.promised_value_gap,
            "promised_violation": self.promised_violation,
            "failure_probability": self.failure_probability,
            "constant": self.constant,
            "plan": None if self.plan is None else asdict(self.plan),
        }

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if not check.holds]
        found = f"what fails: {', '.join(failed)}" if failed else f"all {len(self.checks)} assumptions hold"
        return (
            f"<Audit of {self.name!r}: slack {self.slack:g}, {found}, violation left free {self.free_violation:.6g}, "
            f"value won by it {self.value_won:.6g}; print it for the whole report>"
        )

    def __str__(self) -> str:
        lines = [f"Audit of {self.name!r} with slack {self.slack:g} and penalty {self.penalty:g}"]
        lines += ["", "Size"] + [f"  {label:<22}{count:,}" for label, count in self.sizes.items()]
        lines += ["", "Assumptions"]
        lines += [f"  {'yes' if check.holds else 'NO':<5}{check.name}: {check.detail}" for check in self.checks]
        lines += ["", "Optima"] + [f"  {label:<44}{text}" for label, text in self._optima()]
        lines += ["", "What the slack leaves"] + [f"  {label:<44}{text}" for label, text in self._slack_lines()]
        lines += ["", "Theorem 1"] + [f"  {label:<44}{text}" for label, text in self._theorem_lines()]
        return "\n".join(lines)

    def _optima(self) -> list[tuple[str, str]]:
        lines = [("original, V*", f"{self.optimum.value:.9g}")]
        if not self.optimum.feasible:
            lines.append(("  at the least expected violation", f"{self.optimum.violation:.9g}"))
        lines.append(("modified, W*", f"{self.modified.value:.9g}"))
        if self.relaxed is not None:
            relaxed = f"{self.relaxed.value:.9g}" if self.relaxed.feasible else f"none: {self.relaxed.reason}"
            lines.append(("relaxed, V*_xi", relaxed))
        return lines

    def _slack_lines(self) -> list[tuple[str, str]]:
        smallest = "none" if self.smallest_violation is None else f"{self.smallest_violation:.6g}"
        note = " (a rule for outcomes that are not random)" if self.random_outcomes else ""
        return [
            ("violation left free, an episode", f"{self.free_violation:.9g}"),
            ("  probability of any violation", f"{self.modified_evaluation.violation_probability:.6g}"),
            ("value won by it", f"{self.value_won:.9g}"),
            ("modified optimum is the optimum", "yes" if self.exact else "no"),
            ("violations that never pay are above", f"{self.deterred_violation:.6g}{note}"),
            ("smallest violation in the model", smallest),
        ]

    def _theorem_lines(self) -> list[tuple[str, str]]:
        if self.plan is None:
            return [("needs a slack above 0", "-")]
        return [
            ("promises a value within", f"{self.promised_value_gap:.6g}"),
            ("  and a violation within", f"{self.promised_violation:.6g}"),
            ("  with probability", f"{1 - self.failure_probability:g}"),
            (f"episodes, with its constant c = {self.constant:g}", f"{self.plan.episodes:.6g}"),
            ("  for its regret bound to hold", f"{self.plan.regret_episodes:.6g}"),
            ("  with nothing hidden in the constant", f"{self.plan.strict_episodes:.6g}"),
        ]


def audit(
    model: Target,
    slack: float,
    penalty: float | None = None,
    *,
    failure_probability: float = 0.05,
    constant: float = 1.0,
    relaxed: bool | None = None,
) -> Audit:
    """Return what `slack` (and `penalty`, by default 2 H I (hi - lo) / (slack / 2)) means for a model or a `Problem`.

    `relaxed` asks for the relaxed optimum too, a linear programme; by default only small models get it. A slack of 0
    needs a penalty and has no Theorem 1. `failure_probability` and `constant` are those of `pac_plan`.
    """
    slack = check_number(slack, "slack", least=0)
    model = as_model(model)
    penalty = default_penalty(model, slack) if penalty is None else check_number(penalty, "penalty", least=0)
    wants_relaxed = model.num_entries <= SMALL if relaxed is None else relaxed
    optimum, modified = solve(model), solve_modified(model, slack, penalty)
    count, (lo, hi) = max(model.num_constraints, 1), model.reward_range
    bound = max(model.constraint_bounds, default=1.0)
    # The theorem is for rewards of range 1 and constraints bounded by 1; at H = 1 it needs twice the epsilon.
    epsilon = 6 * model.horizon * count * slack / bound * (2 if model.horizon == 1 else 1)
    violations = -model.payoffs.constraints[model.payoffs.constraints < 0]
    return Audit(
        name=model.name,
        slack=slack,
        penalty=penalty,
        checks=tuple(check_assumptions(model, slack, optimum)),
        sizes=model_sizes(model),
        optimum=optimum,
        modified=modified,
        relaxed=solve_relaxed(model, slack) if wants_relaxed else None,
        modified_evaluation=evaluate(model, modified.policy),
        deterred_violation=slack + model.horizon * (hi - lo) * count / penalty if penalty > 0 else math.inf,
        smallest_violation=float(violations.min()) if violations.size else None,
        random_outcomes=bool((np.diff(model.layout.outcome_start) > 1).any()),
        epsilon=epsilon,
        promised_value_gap=epsilon * (hi - lo),
        promised_violation=epsilon * bound,
        failure_probability=failure_probability,
        constant=constant,
        plan=None
        if slack == 0
        else pac_plan(
            epsilon=epsilon,
            failure_probability=failure_probability,
            states=model.max_states,
            actions=model.max_actions,
            horizon=model.horizon,
            constraints=count,
            constant=constant,
        ),
    )


def check_assumptions(model: TabularModel, slack: float, optimum: Solution[Policy]) -> list[Check]:
    """Return the paper's assumptions one by one."""
    reward, (lo, hi) = model.payoffs.reward, model.reward_range
    room = 1e-9 * max(1.0, abs(lo), abs(hi))
    seen = f"{reward.min():.6g} to {reward.max():.6g}"
    inside = bool(reward.min() >= lo - room and reward.max() <= hi + room)
    shift = "as they are" if lo >= 0 else f"after a shift by {-lo:.6g} a step, which favours no policy"
    checks = [
        Check("rewards keep their declared range", inside, f"{seen}, declared {lo:.6g} to {hi:.6g}"),
        Check("rewards are at least 0", inside, shift),
    ]
    for name, bound, values in zip(
        model.constraint_names, model.constraint_bounds, model.payoffs.constraints.T, strict=True
    ):
        checks += check_constraint(name, bound, float(values.min()), float(values.max()), slack)
    by_pair = model.payoffs.stride == 0
    detail = "what happens next changes neither"
    if not by_pair:
        detail = "what happens next changes them, beyond what the paper covers; each outcome's own are counted"
    checks.append(Check("state and action alone decide reward and constraints", by_pair, detail))
    reason = optimum.reason or "solved without any violation"
    checks.append(Check("some policy never violates", optimum.feasible, reason))
    return checks


def check_constraint(name: str, bound: float, least: float, most: float, slack: float) -> list[Check]:
    """Return what can be said of one constraint whose values lie in least .. most."""
    size = max(-least, most)
    sign = "may be met and may be violated"
    if most < 0:
        sign = "every action violates it: is its sign right (>= 0 is met)?"
    elif least >= 0:
        sign = "never violated, so it constrains nothing: is its sign right (>= 0 is met)?"
    checks = [
        Check(f"{name!r} keeps its bound", size <= bound * (1 + 1e-9), f"{least:.6g} to {most:.6g}, bound {bound:.6g}"),
        Check(f"{name!r} can be met", most >= 0, sign),
    ]
    if least < 0:
        detail = f"its violations reach {-least:.6g}" + ("" if -least > slack else ", so none is ever charged")
        checks.append(Check(f"{name!r} outweighs the slack", -least > slack, detail))
    return checks


def model_sizes(model: TabularModel) -> dict[str, int]:
    """Return how large a model is."""
    return {
        "horizon": model.horizon,
        "states": model.num_states,
        "pairs": model.num_pairs,
        "constraints": model.num_constraints,
        "most states at a step": model.max_states,
        "most actions": model.max_actions,
        "stored outcomes": len(model.layout.outcome_next),
        "bytes": model.nbytes,
    }


def finite_or_none(number: float) -> float | None:
    """Return a number that JSON can hold."""
    return number if math.isfinite(number) else None
