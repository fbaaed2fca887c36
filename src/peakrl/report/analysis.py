"""Analysis of a finished run: certificate, metrics, verdict, and tables for the page; each is computed on first use.

`peakrl train` prints it; the report page and the live page draw it.

Tables of a policy use m_h(s), the probability of state s at step h, D, a distribution of the next state, V, the exact
value of the policy, pi(h, s), its action, and viol, the expected violation of an action:

    presence(s) = sum_h m_h(s)        after(h, D) = sum_s' D(s') V_{h+1}(s')        and the same for the violation
    risk(h, s)  = m_h(s) viol(s, pi(h, s)),        which add up to the violation of an episode
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from peakrl.certificates.certificate import Certificate
from peakrl.certificates.certify import (
    below,
    can_average,
    can_explore,
    can_solve,
    certificate_on_model,
    certify_on_table,
    policy_on_table,
)
from peakrl.compile import as_model
from peakrl.errors import PeakError
from peakrl.evaluation import Evaluation, evaluate
from peakrl.evaluation.rollouts import RolloutStep, rollout
from peakrl.numerics import LEAST
from peakrl.planning import Solution, solve
from peakrl.planning.backward import value_of
from peakrl.planning.solution import row_costs
from peakrl.policy.tables import Policy
from peakrl.problems.scheduling.baselines import Schedule, dt_order_or_least_late, evaluate_order
from peakrl.problems.scheduling.problem import MachineScheduling, order_of
from peakrl.safety.safe_set import SafeSet
from peakrl.schedule_labels import ScheduleState, ScheduleStates
from peakrl.specs.spec import ProblemSpec
from peakrl.tabular import TabularModel
from peakrl.theory import Audit, audit_slack
from peakrl.types import Floats, Longs

if TYPE_CHECKING:
    from peakrl.planning import Solution
    from peakrl.policy.mixture import AnyPolicy
    from peakrl.training.trainer import LearningRun

PROVED_INFEASIBLE = (
    "infeasible, proved by the learner: every action sequence from an initial state was observed to fail"
)
#: Most entries of the table of risks.
MOST_RISKS = 12


class Metrics(NamedTuple):
    """Value and violation of a policy per episode."""

    value: float
    #: The optimum minus the value; None if the optimum is not known.
    below_optimum: float | None
    violation: float
    #: None if it was not computed.
    violation_probability: float | None


class Verdict(NamedTuple):
    """Is the problem feasible, and is the last policy safe?"""

    kind: Literal["infeasible", "safe", "violates"]
    text: str


@dataclass(frozen=True)
class ModelAnalysis:
    """What depends on the model alone; the live page computes it once."""

    model: TabularModel

    @cached_property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum; None if the model is too large to solve quickly."""
        return solve(self.model) if can_solve(self.model) else None

    @cached_property
    def best(self) -> Evaluation | None:
        """The exact evaluation of the optimal policy."""
        return None if self.optimum is None else self.evaluated(self.optimum.policy)

    def evaluated(self, policy: AnyPolicy) -> Evaluation:
        """Return the exact evaluation of a policy."""
        return evaluate(self.model, policy)

    @cached_property
    def audits(self) -> dict[tuple[float, float | None], Audit]:
        """Audits by slack and penalty."""
        return {}

    def audited(self, slack: float, penalty: float | None) -> Audit:
        """Return the audit of a slack."""
        key = slack, penalty
        if key not in self.audits:
            self.audits[key] = audit_slack(self.model, slack, penalty, relaxed=False)
        return self.audits[key]

    @cached_property
    def safe_set(self) -> SafeSet:
        """The safe set of the model."""
        return SafeSet(self.model)

    def safe_actions(self, nodes: Longs) -> Longs:
        """[node]: number of safe actions."""
        safe = self.safe_set
        return np.array([np.count_nonzero(safe.mask_of(node)) for node in nodes.tolist()], np.int64)

    def below_optimum(self, value: float) -> float | None:
        """Return the optimum minus a value, with rounding errors set to 0; None if the optimum is not known."""
        return None if self.optimum is None else below(value, self.optimum.value)


@dataclass(frozen=True)
class RunAnalysis:
    """Analysis of a run on a model."""

    run: LearningRun
    known: ModelAnalysis
    #: Must it be quick? (live page)
    at_once: bool = False

    @classmethod
    def of(cls, run: LearningRun, known: ModelAnalysis | None = None, *, at_once: bool = False) -> RunAnalysis:
        """Return the analysis of a run; `known` is the analysis of its model, if there is one already."""
        return cls(run, known or ModelAnalysis(as_model(run.model)), at_once)

    @property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum, if known."""
        return self.known.optimum

    @cached_property
    def last(self) -> Evaluation:
        """The exact evaluation of the last policy."""
        return self.known.evaluated(self.run.policy)

    @cached_property
    def certificate(self) -> Certificate:
        """The exact certificate of the last policy."""
        return certificate_on_model(self.known.model, self.run.policy, self.last, self.optimum)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate that the learner issued, if any, and the exact one."""
        learned = self.run.certificate
        return (self.certificate,) if learned is None else (learned, self.certificate)

    @cached_property
    def last_metrics(self) -> Metrics:
        """Metrics of the last policy."""
        return self._metrics(self.last)

    @cached_property
    def averaged_metrics(self) -> Metrics | None:
        """Metrics of the averaged policy, if there is one; from the history if it is large."""
        run = self.run
        if run._averaged is None:
            return None
        if can_average(run.averaged_policy, at_once=self.at_once):
            return self._metrics(self.known.evaluated(run.averaged_policy))
        if not len(run.history) or run.history.sampled or np.isnan(run.history.averaged_value[-1]):
            return None
        value, violation = float(run.history.averaged_value[-1]), float(run.history.averaged_violation[-1])
        return Metrics(value, self.known.below_optimum(value), violation, None)

    @cached_property
    def best_metrics(self) -> Metrics | None:
        """Metrics of the optimum."""
        best, optimum = self.known.best, self.optimum
        if best is None or optimum is None:
            return None
        return Metrics(optimum.value, 0.0, optimum.violation, best.violation_probability)

    def _metrics(self, found: Evaluation) -> Metrics:
        return Metrics(found.value, self.known.below_optimum(found.value), found.violation, found.violation_probability)

    @property
    def feasible(self) -> bool | None:
        """Is the problem feasible? By the learner's proof, or else the planner's; None if unknown."""
        if self.run.feasible is not None:
            return self.run.feasible
        return None if self.optimum is None else self.optimum.feasible

    @cached_property
    def verdict(self) -> Verdict:
        """Feasibility of the problem and safety of the last policy, in one sentence."""
        optimum, chance = self.optimum, self.certificate.violation_probability_high
        limit = "" if self.judged is None else f"; {self.judged}"
        if self.run.feasible is False:
            planner = f"; the planner confirms it: {optimum.reason}" if optimum and optimum.reason else ""
            least = f"; the least expected violation of any policy is {optimum.violation:.6g}" if optimum else ""
            text = PROVED_INFEASIBLE
            return Verdict("infeasible", f"{text}{least}{planner}")
        if optimum is not None and not optimum.feasible:
            return Verdict("infeasible", f"infeasible: {optimum.reason}".removesuffix("." if limit else "") + limit)
        known = "feasible (exact planner)" if optimum is not None else "feasibility unknown"
        if chance == 0:
            return Verdict("safe", f"{known}; the last policy never violates a constraint")
        text = f"{known}; the last policy violates a constraint with probability {chance:.6g}"
        return Verdict("violates", f"{text}{limit}")

    @property
    def judged(self) -> str | None:
        """How the last policy compares with the learner's limits on expected violations; None without such limits."""
        return self.run.settings.judged(self.last.step_violations)

    def audited(self, slack: float, penalty: float | None) -> Audit | None:
        """Return the audit of a slack; None if the model is too large or has no constraints."""
        if self.optimum is None or not self.known.model.num_constraints:
            return None
        return self.known.audited(slack, penalty)

    # Tables of the policy; for a stochastic policy, of its likeliest actions ------------------------------------

    @property
    def can_explore(self) -> bool:
        """Is the model small enough for the tables below?"""
        return can_explore(self.known.model)

    @cached_property
    def presence(self) -> Floats:
        """[slot]: expected number of visits per episode of the last policy."""
        return presence(self.known.model, self.run.policy.likeliest)

    @cached_property
    def node_tables(self) -> NodeTables:
        """[node]: probability, value and violation of the last policy."""
        return node_tables(self.known.model, self.run.policy.likeliest)

    @cached_property
    def risks(self) -> list[Risk]:
        """The nodes that contribute most to the violation of the last policy."""
        return risks(self.known.model, self.run.policy.likeliest, MOST_RISKS)

    @cached_property
    def episode(self) -> list[RolloutStep]:
        """One episode of the last policy: that of `peakrl.rollout` with seed 0."""
        return rollout(self.known.model, self.run.policy)

    def gaps(self, values: Floats) -> list[float | None]:
        """Return the gap of each value to the optimum; None if either is not known."""
        return [None if isnan(value) else self.known.below_optimum(value) for value in values.tolist()]

    def percent(self, gap: float | None) -> float | None:
        """Return a gap in percent of the optimum; None if that is undefined."""
        best = self.best_metrics
        if gap is None or best is None:
            return None
        return 0.0 if gap == 0 else 100.0 * gap / abs(best.value) if best.value else None

    def after_distributions(self, distributions: Longs) -> tuple[Floats, Floats]:
        """[step, distribution]: expected value and violation of the last policy after each distribution."""
        return after_distributions(self.known.model, self.run.policy.likeliest, distributions)

    @property
    def is_schedule(self) -> bool:
        """Is it a scheduling problem?"""
        return is_schedule(self.known.model)

    @cached_property
    def ordered(self) -> list[Ordered]:
        """The learned order of jobs and that of the DT rule, if they exist."""
        return ordered(self.known.model, self.run.policy.likeliest)

    # Plain values --------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return certificate, metrics and verdict as plain JSON-ready values."""
        metrics = {"policy": self.last_metrics, "averaged_policy": self.averaged_metrics, "optimum": self.best_metrics}
        return {
            **{name: None if found is None else found._asdict() for name, found in metrics.items()},
            "certificate": self.certificate.as_dict(),
            "learned_certificate": None if self.run.certificate is None else self.run.certificate.as_dict(),
            "feasible": self.feasible,
            "verdict": self.verdict.text,
            "reason": None if self.optimum is None else self.optimum.reason,
        }


# Tables of a policy on a model --------------------------------------------------------------------------------------


class Risk(NamedTuple):
    """A step and state in which a policy may violate a constraint."""

    step: int
    state: Hashable
    action: Hashable
    #: Probability of that state at that step.
    probability: float
    #: Expected violation in that state.
    violation: float
    #: probability * violation: the contribution to the violation of an episode.
    contribution: float


class NodeTables(NamedTuple):
    """[node]: probability of the node, value and violation from it on."""

    presence: Floats
    value: Floats
    violation: Floats


def presence(model: TabularModel, policy: Policy) -> Floats:
    """[slot]: expected number of visits per episode."""
    total = np.zeros(model.num_slots)
    for now in presences(model, policy):
        total += now
    return total


def node_tables(model: TabularModel, policy: Policy) -> NodeTables:
    """Return the probability, value and violation of each node under a policy."""
    layout, there = model.layout, np.zeros(model.num_nodes)
    for step, now in enumerate(presences(model, policy)):
        first, last = layout.step_slots[step].tolist()
        there[step * layout.node_stride + np.arange(first, last)] = now[first:last]
    value = value_of(layout, model.num_nodes, model.row_reward, policy.rows)
    return NodeTables(there, value, value_of(layout, model.num_nodes, row_costs(model), policy.rows))


def risks(model: TabularModel, policy: Policy, most: int) -> list[Risk]:
    """Return the `most` largest contributions to the violation of an episode."""
    costs, found = row_costs(model), []
    for step, now in enumerate(presences(model, policy)):
        slots = np.flatnonzero(now)
        rows = policy.rows[step * model.layout.node_stride + slots]
        violating = np.flatnonzero((rows >= 0) & (costs[rows] > 0))
        parts = now[slots[violating]] * costs[rows[violating]]
        for place in violating[np.argsort(-parts, kind="stable")[:most]].tolist():
            slot, row = int(slots[place]), int(rows[place])
            labels = model.state_of_slot(slot), model.action_of_row(row)
            part = max(float(now[slot] * costs[row]), LEAST)  # a possible violation is never shown as 0
            found.append(Risk(step, *labels, float(now[slot]), float(costs[row]), part))
    return sorted(found, key=lambda one: -one.contribution)[:most]


def presences(model: TabularModel, policy: Policy) -> Iterator[Floats]:
    """Yield for each step [slot]: the probability of the state under the policy."""
    layout = model.layout
    now = np.zeros(model.num_slots)
    now[model.first_slot] = model.first_probability
    yield now
    for step in range(model.horizon - 1):
        slots = np.flatnonzero(now)
        rows = policy.rows[step * layout.node_stride + slots]
        acting = rows >= 0
        following = np.zeros(model.num_slots)
        for slot, row in zip(slots[acting].tolist(), rows[acting].tolist(), strict=True):
            distribution = layout.row_distribution[row]
            part = slice(layout.outcome_start[distribution], layout.outcome_start[distribution + 1])
            np.add.at(following, layout.outcome_next[part], now[slot] * layout.outcome_probability[part])
        now = following
        yield now


def after_distributions(model: TabularModel, policy: Policy, distributions: Longs) -> tuple[Floats, Floats]:
    """[step, distribution]: expected value and violation of the policy after each of these distributions."""
    value = value_of(model.layout, model.num_nodes, model.row_reward, policy.rows)
    violation = value_of(model.layout, model.num_nodes, row_costs(model), policy.rows)
    return by_distribution(model, value, distributions), by_distribution(model, violation, distributions)


def by_distribution(model: TabularModel, table: Floats, distributions: Longs) -> Floats:
    """[step, distribution]: expectation of a table by node of the next step; one step in a layered model."""
    layout = model.layout
    stride = layout.node_stride
    steps = range(1, model.horizon + 1) if stride else range(1)
    weight, following = layout.outcome_probability, layout.outcome_next
    sums = [np.add.reduceat(weight * table[step * stride + following], layout.outcome_start[:-1]) for step in steps]
    return np.stack(sums)[:, distributions]


# Schedules ----------------------------------------------------------------------------------------------------------


class Ordered(NamedTuple):
    """An order of jobs and its objective."""

    #: "learned" or "DT".
    maker: str
    order: tuple[Hashable, ...]
    schedule: Schedule
    #: Name and value of the objective.
    objective: str
    cost: float


def is_schedule(model: TabularModel) -> bool:
    """Is it a model of a scheduling problem?"""
    return isinstance(model.state_labels, ScheduleStates) or isinstance(model.state_labels[0], ScheduleState)


def ordered(model: TabularModel, policy: Policy) -> list[Ordered]:
    """Return the order of the policy and of the DT rule; nothing if times are random or the jobs are unknown."""
    problem = problem_of(model) if is_schedule(model) and model.deterministic else None
    if problem is None:
        return []
    found, orders = [], [("learned", order_of(policy))]
    if not any(job.release for job in problem.jobs):  # the DT rule assumes that every job is available at time 0
        orders.append(("DT", dt_order_or_least_late(problem.jobs)))
    for maker, order in orders:
        schedule = evaluate_order(problem.jobs, order)
        cost = float(schedule.objective(problem.objective))
        found.append(Ordered(maker, tuple(order), schedule, problem.objective, cost))
    return found


def problem_of(model: TabularModel) -> MachineScheduling | None:
    """Return the scheduling problem that the model was compiled from, or None."""
    # The specification may come from an untrusted file: build nothing that needs code or another file.
    try:
        spec = None if model.spec is None else ProblemSpec.from_dict(model.spec)
        problem = spec.build() if spec is not None and spec.self_contained else None
    except PeakError:
        return None
    if not isinstance(problem, MachineScheduling) or problem.fixed_times != model.deterministic:
        return None
    return problem if [job.name for job in problem.jobs] == list(model.action_labels) else None


# Runs on environments -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvironmentAnalysis:
    """Analysis of a run on an environment: exact on the transition table, if the environment shows one."""

    run: LearningRun
    #: The transition table; None: nothing is computed exactly.
    table: TabularModel | None

    @cached_property
    def known(self) -> ModelAnalysis | None:
        """The analysis of the table."""
        return None if self.table is None else ModelAnalysis(self.table)

    @property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum on the table; None if unknown."""
        return None if self.known is None else self.known.optimum

    @cached_property
    def last(self) -> Evaluation | None:
        """The exact evaluation of the last policy."""
        return None if self.known is None else self.known.evaluated(policy_on_table(self.known.model, self.run.policy))

    @cached_property
    def certificate(self) -> Certificate | None:
        """The exact certificate of the last policy."""
        return None if self.table is None else certify_on_table(self.table, self.run.policy)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate that the learner issued, if any, and the exact one."""
        return tuple(one for one in (self.run.certificate, self.certificate) if one is not None)

    @property
    def feasible(self) -> bool | None:
        """Is it feasible? By the learner's proof, or else the planner's on the table; None if unknown."""
        if self.run.feasible is not None or self.optimum is None:
            return self.run.feasible
        return self.optimum.feasible

    @property
    def verdict(self) -> str:
        """Feasibility of the environment and safety of the last policy, in one sentence."""
        exact, proved = self.certificate, self.run.certificate
        limit = "" if self.judged is None else f"; {self.judged}"
        if self.run.feasible is False:
            return PROVED_INFEASIBLE
        if self.feasible is False and self.optimum is not None:
            text = f"infeasible (exact planner on the environment's table): {self.optimum.reason}"
            return text.removesuffix("." if limit else "") + limit
        if exact is not None and exact.violation_probability_high == 0:
            return "the last policy never violates a constraint (exact on the environment's table)"
        if exact is not None:
            chance = f"with probability {exact.violation_probability_high:.6g}"
            return f"the last policy violates a constraint {chance} (exact on the environment's table){limit}"
        if proved is not None and proved.holds:
            return f"certified from observations: {proved.claim}"
        return "nothing is proved about the last policy: the environment has no transition table"

    @property
    def judged(self) -> str | None:
        """How the last policy compares with the learner's limits on expected violations; None if unknown."""
        return None if self.last is None else self.run.settings.judged(self.last.step_violations)

    def as_dict(self) -> dict[str, Any]:
        """Return certificate, metrics and verdict as plain JSON-ready values, with the keys of runs on models."""
        optimum = self.optimum
        best = None if self.known is None else self.known.best
        metrics = {"policy": self._policy(), "averaged_policy": None, "experience": self._experience()}
        if optimum is not None and best is not None:
            metrics["optimum"] = Metrics(optimum.value, 0.0, optimum.violation, best.violation_probability)
        return {
            "optimum": None,
            **{name: None if found is None else found._asdict() for name, found in metrics.items()},
            "certificate": None if self.certificate is None else self.certificate.as_dict(),
            "learned_certificate": None if self.run.certificate is None else self.run.certificate.as_dict(),
            "feasible": self.feasible,
            "verdict": self.verdict,
            "reason": None if optimum is None else optimum.reason,
        }

    def _policy(self) -> Metrics | None:
        if self.last is None or self.known is None:
            return None
        below = self.known.below_optimum(self.last.value)
        return Metrics(self.last.value, below, self.last.violation, self.last.violation_probability)

    def _experience(self) -> Metrics | None:
        """Means over all training episodes, exploration included."""
        history = self.run.history
        if not len(history):
            return None
        value = float(history.averaged_value[-1])
        below = None if self.known is None else self.known.below_optimum(value)
        return Metrics(value, below, float(history.averaged_violation[-1]), self.run.violations / self.run.episodes)
