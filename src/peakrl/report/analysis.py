"""What is computed of a run once it is there, each when it is first asked for: certificate, figures, verdict.

`peakrl train` prints it, the report page and the live page draw it; none of them computes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from peakrl.certificates.certificate import Certificate
from peakrl.certificates.certify import below, certificate_on_model
from peakrl.certificates.limits import can_average, can_explore, can_solve
from peakrl.compile import as_model
from peakrl.evaluation import Evaluation, evaluate
from peakrl.evaluation.rollouts import RolloutStep, rollout
from peakrl.planning import Solution, solve
from peakrl.report.policy_tables import NodeTables, Risk, after_laws, node_tables, presence, risks
from peakrl.report.schedules import Ordered, is_schedule, ordered
from peakrl.safety.safe_set import SafeSet
from peakrl.theory import Audit, audit_slack

if TYPE_CHECKING:
    from peakrl.policy.binding import AnyPolicy
    from peakrl.policy.tables import Policy
    from peakrl.tabular import TabularModel
    from peakrl.training.learn import LearningRun
    from peakrl.types import Floats, Longs

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
