"""What is computed of a run once it is there, each when it is first asked for: certificate, figures, verdict.

`peakrl train` prints it, the report page and the live page draw it; none of them computes anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from peakrl.certificates.certificate import Certificate
from peakrl.certificates.certify import below, certificate_on_model
from peakrl.certificates.limits import can_average, can_explore, can_solve
from peakrl.certificates.on_table import certify_on_table, policy_on_table
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

#: Places with a risk that a page lists.
MOST_RISKS = 12


class Figures(NamedTuple):
    """What a policy comes to in an episode."""

    value: float
    #: The optimum less the value; None where the optimum is not known.
    below_optimum: float | None
    violation: float
    #: None where it was not computed.
    violation_probability: float | None


class Verdict(NamedTuple):
    """Where the problem and the last policy stand."""

    kind: Literal["infeasible", "safe", "violates"]
    text: str


@dataclass(frozen=True)
class ModelFindings:
    """What is computed of a model alone: a page that is built again while a run goes on keeps it."""

    model: TabularModel

    @cached_property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum; None where the model is too large for that to be quick."""
        return solve(self.model) if can_solve(self.model) else None

    @cached_property
    def best(self) -> Evaluation | None:
        """The exact figures of the optimum."""
        return None if self.optimum is None else self.evaluated(self.optimum.policy)

    def evaluated(self, policy: AnyPolicy) -> Evaluation:
        """Return the exact figures of a policy."""
        return evaluate(self.model, policy)

    @cached_property
    def audits(self) -> dict[tuple[float, float | None], Audit]:
        """Audits so far, by slack and penalty."""
        return {}

    def audited(self, slack: float, penalty: float | None) -> Audit:
        """Return what a slack leaves."""
        key = slack, penalty
        if key not in self.audits:
            self.audits[key] = audit_slack(self.model, slack, penalty, relaxed=False)
        return self.audits[key]

    @cached_property
    def safe_set(self) -> SafeSet:
        """From where, and by which actions, every constraint can still be kept."""
        return SafeSet(self.model)

    def safe_actions(self, nodes: Longs) -> Longs:
        """[node]: from how many actions some policy keeps every constraint to the end."""
        safe = self.safe_set
        return np.array([np.count_nonzero(safe.mask_of(node)) for node in nodes.tolist()], np.int64)

    def below_optimum(self, value: float) -> float | None:
        """Return how far a value lies below the optimum; what is only rounding counts as 0."""
        return None if self.optimum is None else below(value, self.optimum.value)


@dataclass(frozen=True)
class RunFindings:
    """A run on a model and what is computed of it."""

    run: LearningRun
    known: ModelFindings
    #: Is somebody waiting who must not wait long?
    at_once: bool = False

    @classmethod
    def of(cls, run: LearningRun, known: ModelFindings | None = None, *, at_once: bool = False) -> RunFindings:
        """Return the findings of a run; `known` is what was found out about its model before."""
        return cls(run, known or ModelFindings(as_model(run.model)), at_once)

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
        """All there are: the one that the learner issued itself, if it does, and the exact one."""
        learned = self.run.certificate
        return (self.certificate,) if learned is None else (learned, self.certificate)

    @cached_property
    def last_figures(self) -> Figures:
        """Those of the last policy."""
        return self._figures(self.last)

    @cached_property
    def averaged_figures(self) -> Figures | None:
        """Those of the averaged policy, if it was kept; from the history where that is quicker."""
        run = self.run
        if run._averaged is None:
            return None
        if can_average(run.averaged_policy, at_once=self.at_once):
            return self._figures(self.known.evaluated(run.averaged_policy))
        if not len(run.history) or run.history.sampled or np.isnan(run.history.averaged_value[-1]):
            return None
        value, violation = float(run.history.averaged_value[-1]), float(run.history.averaged_violation[-1])
        return Figures(value, self.known.below_optimum(value), violation, None)

    @cached_property
    def best_figures(self) -> Figures | None:
        """Those of the optimum."""
        best, optimum = self.known.best, self.optimum
        if best is None or optimum is None:
            return None
        return Figures(optimum.value, 0.0, optimum.violation, best.violation_probability)

    def _figures(self, found: Evaluation) -> Figures:
        return Figures(found.value, self.known.below_optimum(found.value), found.violation, found.violation_probability)

    @property
    def feasible(self) -> bool | None:
        """What is known of the problem: the learner's own proof, or the planner's."""
        if self.run.feasible is not None:
            return self.run.feasible
        return None if self.optimum is None else self.optimum.feasible

    @cached_property
    def verdict(self) -> Verdict:
        """Where the problem and the last policy stand, in a sentence."""
        optimum, chance = self.optimum, self.certificate.violation_probability_high
        limit = "" if self.judged is None else f"; {self.judged}"
        if self.run.feasible is False:
            planner = f"; the planner agrees: {optimum.reason}" if optimum and optimum.reason else ""
            least = f"; the least expected violation of any policy is {optimum.violation:.6g}" if optimum else ""
            text = "infeasible, proved by the learner: every way out of a first state was seen to fail"
            return Verdict("infeasible", f"{text}{least}{planner}")
        if optimum is not None and not optimum.feasible:
            return Verdict("infeasible", f"infeasible: {optimum.reason}".removesuffix("." if limit else "") + limit)
        known = "feasible, as the exact planner shows" if optimum is not None else "feasibility not known"
        if chance == 0:
            return Verdict("safe", f"{known}; the last policy never violates a constraint, in any outcome")
        text = f"{known}; the last policy violates a constraint with probability {chance:.6g}"
        return Verdict("violates", f"{text}{limit}")

    @property
    def judged(self) -> str | None:
        """What the learner was to keep on average, and what the last policy has; None where there is no such limit."""
        return self.run.settings.judged(self.last.step_violations)

    def audited(self, slack: float, penalty: float | None) -> Audit | None:
        """Return what a slack leaves; None where the model is too large, or has nothing to violate."""
        if self.optimum is None or not self.known.model.num_constraints:
            return None
        return self.known.audited(slack, penalty)

    # For pictures of the policy, of its likeliest actions where it draws them -----------------------------------

    @property
    def can_explore(self) -> bool:
        """Are the tables below small enough to make?"""
        return can_explore(self.known.model)

    @cached_property
    def presence(self) -> Floats:
        """[slot]: how often the last policy is expected to be there in an episode."""
        return presence(self.known.model, self.run.policy.likeliest)

    @cached_property
    def node_tables(self) -> NodeTables:
        """[node]: how likely the last policy is to be there, and what follows."""
        return node_tables(self.known.model, self.run.policy.likeliest)

    @cached_property
    def risks(self) -> list[Risk]:
        """Where the last policy violates most."""
        return risks(self.known.model, self.run.policy.likeliest, MOST_RISKS)

    @cached_property
    def episode(self) -> list[RolloutStep]:
        """One episode of the last policy, step by step: the one that `peakrl.rollout` shows with seed 0."""
        return rollout(self.known.model, self.run.policy)

    def gaps(self, values: Floats) -> list[float | None]:
        """Return how far each of these values lies below the optimum; None where one of the two is not known."""
        return [None if isnan(value) else self.known.below_optimum(value) for value in values.tolist()]

    def percent(self, gap: float | None) -> float | None:
        """Return a gap in percent of the optimum; None where that says nothing."""
        best = self.best_figures
        if gap is None or best is None:
            return None
        return 0.0 if gap == 0 else 100.0 * gap / abs(best.value) if best.value else None

    def after_laws(self, laws: Longs) -> tuple[Floats, Floats]:
        """[step, law]: value and violation that follow under the last policy."""
        return after_laws(self.known.model, self.run.policy.likeliest, laws)

    @property
    def is_schedule(self) -> bool:
        """Is it a run on jobs?"""
        return is_schedule(self.known.model)

    @cached_property
    def ordered(self) -> list[Ordered]:
        """The learned order of jobs and DT's, where there is one."""
        return ordered(self.known.model, self.run.policy.likeliest)

    # For files and machines ----------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return certificate, figures and verdict as plain JSON-ready values."""
        figures = {"policy": self.last_figures, "averaged_policy": self.averaged_figures, "optimum": self.best_figures}
        return {
            **{name: None if found is None else found._asdict() for name, found in figures.items()},
            "certificate": self.certificate.as_dict(),
            "learned_certificate": None if self.run.certificate is None else self.run.certificate.as_dict(),
            "feasible": self.feasible,
            "verdict": self.verdict.text,
            "reason": None if self.optimum is None else self.optimum.reason,
        }


# ------------------------------------------------------------
# Tables of a policy on a model: how often it is where, what follows there, and where it violates.
#
# With m_h(s) the probability to be in s at step h, D a law of the next state, V the exact value of the policy, pi(h, s)
# its action and viol the expected violation of an action:
#
#     presence(s) = sum_h m_h(s)        after(h, D) = sum_s' D(s') V_{h+1}(s')        and likewise for its violation
#     risk(h, s)  = m_h(s) viol(s, pi(h, s)),        which sum up to the violation of an episode


class Risk(NamedTuple):
    """A place where a policy may violate a constraint."""

    step: int
    state: Hashable
    action: Hashable
    #: Of being there in an episode.
    probability: float
    #: Expected there, given that the policy is.
    violation: float
    #: What it adds to the violation of an episode.
    contribution: float


class NodeTables(NamedTuple):
    """[node]: what a policy does and meets from each step and state on."""

    presence: Floats
    value: Floats
    violation: Floats


def presence(model: TabularModel, policy: Policy) -> Floats:
    """[slot]: how often the policy is expected to be there in an episode."""
    total = np.zeros(model.num_slots)
    for now in presences(model, policy):
        total += now
    return total


def node_tables(model: TabularModel, policy: Policy) -> NodeTables:
    """Return how likely the policy is to be at each step and state, and what follows there."""
    layout, there = model.layout, np.zeros(model.num_nodes)
    for step, now in enumerate(presences(model, policy)):
        first, last = layout.step_slots[step].tolist()
        there[step * layout.node_stride + np.arange(first, last)] = now[first:last]
    value = value_of(layout, model.num_nodes, model.row_reward, policy.rows)
    return NodeTables(there, value, value_of(layout, model.num_nodes, row_costs(model), policy.rows))


def risks(model: TabularModel, policy: Policy, most: int) -> list[Risk]:
    """Return the places that add most to the violation of an episode, at most so many; none where nothing can be."""
    costs, found = row_costs(model), []
    for step, now in enumerate(presences(model, policy)):
        slots = np.flatnonzero(now)
        rows = policy.rows[step * model.layout.node_stride + slots]
        harmful = np.flatnonzero((rows >= 0) & (costs[rows] > 0))
        parts = now[slots[harmful]] * costs[rows[harmful]]
        for place in harmful[np.argsort(-parts, kind="stable")[:most]].tolist():
            slot, row = int(slots[place]), int(rows[place])
            labels = model.state_of_slot(slot), model.action_of_row(row)
            part = max(float(now[slot] * costs[row]), LEAST)  # what can happen is never told as 0
            found.append(Risk(step, *labels, float(now[slot]), float(costs[row]), part))
    return sorted(found, key=lambda one: -one.contribution)[:most]


def presences(model: TabularModel, policy: Policy) -> Iterator[Floats]:
    """Yield for each step [slot]: the probability that the policy is there."""
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
            law = layout.row_distribution[row]
            part = slice(layout.outcome_start[law], layout.outcome_start[law + 1])
            np.add.at(following, layout.outcome_next[part], now[slot] * layout.outcome_probability[part])
        now = following
        yield now


def after_laws(model: TabularModel, policy: Policy, laws: Longs) -> tuple[Floats, Floats]:
    """[step, law]: value and violation that follow each of these laws under the policy."""
    value = value_of(model.layout, model.num_nodes, model.row_reward, policy.rows)
    violation = value_of(model.layout, model.num_nodes, row_costs(model), policy.rows)
    return by_law(model, value, laws), by_law(model, violation, laws)


def by_law(model: TabularModel, table: Floats, laws: Longs) -> Floats:
    """[step, law]: the expectation over each law of a table by node of the next step; one step in a layered model."""
    layout = model.layout
    stride = layout.node_stride
    steps = range(1, model.horizon + 1) if stride else range(1)
    weight, following = layout.outcome_probability, layout.outcome_next
    sums = [np.add.reduceat(weight * table[step * stride + following], layout.outcome_start[:-1]) for step in steps]
    return np.stack(sums)[:, laws]


# ------------------------------------------------------------
# The order that a policy does its jobs in beside DT's, for runs that tell which jobs they are about.


class Ordered(NamedTuple):
    """An order of jobs and what it comes to."""

    #: Who made it: "learned" or "DT".
    maker: str
    order: tuple[Hashable, ...]
    schedule: Schedule
    #: Its name, and what it comes to.
    objective: str
    cost: float


def is_schedule(model: TabularModel) -> bool:
    """Is it the model of a scheduling problem?"""
    return isinstance(model.state_labels, ScheduleStates) or isinstance(model.state_labels[0], ScheduleState)


def ordered(model: TabularModel, policy: Policy) -> list[Ordered]:
    """Return the policy's order and DT's; none where times are random or the model does not tell its jobs."""
    problem = problem_of(model) if is_schedule(model) and model.deterministic else None
    if problem is None:
        return []
    found, orders = [], [("learned", order_of(policy))]
    if not any(job.release for job in problem.jobs):  # DT is for jobs that are all there at time 0
        orders.append(("DT", dt_order_or_least_late(problem.jobs)))
    for maker, order in orders:
        schedule = evaluate_order(problem.jobs, order)
        cost = float(schedule.objective(problem.objective))
        found.append(Ordered(maker, tuple(order), schedule, problem.objective, cost))
    return found


def problem_of(model: TabularModel) -> MachineScheduling | None:
    """Return the problem that a model says it was made from, where it is one of jobs and the model's own."""
    # A file may say anything: nothing is built that needs code or a further file.
    try:
        spec = None if model.spec is None else ProblemSpec.from_dict(model.spec)
        problem = spec.build() if spec is not None and spec.self_contained else None
    except PeakError:
        return None
    if not isinstance(problem, MachineScheduling) or problem.fixed_times != model.deterministic:
        return None
    return problem if [job.name for job in problem.jobs] == list(model.action_labels) else None


# ------------------------------------------------------------
# What is computed of a run on an environment: exactly by the table that it shows, otherwise only what was counted.
#
# A state that was never met takes its first action on the table: a policy has nothing to say of it.


@dataclass(frozen=True)
class EnvironmentFindings:
    """A run on an environment, and what is computed of it."""

    run: LearningRun
    #: The table that the environment shows; None: nothing exact is known.
    table: TabularModel | None

    @cached_property
    def known(self) -> ModelFindings | None:
        """What is computed of the table alone."""
        return None if self.table is None else ModelFindings(self.table)

    @property
    def optimum(self) -> Solution[Policy] | None:
        """The best that can be done, by the table; None where that is not known."""
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
        """All there are: the one that the learner issued itself, if it does, and the exact one."""
        return tuple(one for one in (self.run.certificate, self.certificate) if one is not None)

    @property
    def feasible(self) -> bool | None:
        """What is known of the problem: the learner's own proof, or the planner's on the table."""
        if self.run.feasible is not None or self.optimum is None:
            return self.run.feasible
        return self.optimum.feasible

    @property
    def verdict(self) -> str:
        """Where the environment and the last policy stand, in a sentence."""
        exact, proved = self.certificate, self.run.certificate
        limit = "" if self.judged is None else f"; {self.judged}"
        if self.run.feasible is False:
            return "infeasible, proved by the learner: every way out of a first state was seen to fail"
        if self.feasible is False and self.optimum is not None:
            text = f"infeasible, by the table that the environment shows: {self.optimum.reason}"
            return text.removesuffix("." if limit else "") + limit
        if exact is not None and exact.violation_probability_high == 0:
            return "the last policy never violates a constraint, by the table that the environment shows"
        if exact is not None:
            chance = f"with probability {exact.violation_probability_high:.6g}"
            return f"the last policy violates a constraint {chance}, by the environment's table{limit}"
        if proved is not None and proved.holds:
            return f"certified from experience: {proved.claim}"
        return "nothing is proved of the last policy: the environment shows no table to judge it by"

    @property
    def judged(self) -> str | None:
        """What the learner was to keep on average, and what the last policy has; None where nobody can tell."""
        return None if self.last is None else self.run.settings.judged(self.last.step_violations)

    def as_dict(self) -> dict[str, Any]:
        """Return certificate, figures and verdict as plain JSON-ready values, by the names of runs on models."""
        optimum = self.optimum
        best = None if self.known is None else self.known.best
        figures = {"policy": self._policy(), "averaged_policy": None, "experience": self._experience()}
        if optimum is not None and best is not None:
            figures["optimum"] = Figures(optimum.value, 0.0, optimum.violation, best.violation_probability)
        return {
            "optimum": None,
            **{name: None if found is None else found._asdict() for name, found in figures.items()},
            "certificate": None if self.certificate is None else self.certificate.as_dict(),
            "learned_certificate": None if self.run.certificate is None else self.run.certificate.as_dict(),
            "feasible": self.feasible,
            "verdict": self.verdict,
            "reason": None if optimum is None else optimum.reason,
        }

    def _policy(self) -> Figures | None:
        if self.last is None or self.known is None:
            return None
        below = self.known.below_optimum(self.last.value)
        return Figures(self.last.value, below, self.last.violation, self.last.violation_probability)

    def _experience(self) -> Figures | None:
        """Means of all episodes, exploration included."""
        history = self.run.history
        if not len(history):
            return None
        value = float(history.averaged_value[-1])
        below = None if self.known is None else self.known.below_optimum(value)
        return Figures(value, below, float(history.averaged_violation[-1]), self.run.violations / self.run.episodes)
