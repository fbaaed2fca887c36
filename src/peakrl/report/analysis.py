"""Analysis of a finished run: certificate, metrics, verdict, and tables for the page; each is computed on first use.

`peakrl train` prints it; the report page draws it.

Tables of a policy use m_h(s), the probability of state s at step h, D, a distribution of the next state, V, the exact
value of the policy, pi(h, s), its action, and viol, the expected violation of an action:

    presence(s) = sum_h m_h(s)        after(h, D) = sum_s' D(s') V_{h+1}(s')        and the same for the violation
    risk(h, s)  = m_h(s) viol(s, pi(h, s)),        which add up to the violation of an episode
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from peakrl.certificates.certificate import Certificate
from peakrl.certificates.certify import (
    below,
    can_average,
    can_solve,
    certificate_on_model,
    certify,
    filled_on_table,
    rounding_of,
)
from peakrl.checks import ROUNDING
from peakrl.evaluation import Evaluation, evaluate
from peakrl.evaluation.rollouts import RolloutStep, rollout
from peakrl.numerics import LEAST
from peakrl.planning import Solution, solve
from peakrl.planning.backward import value_of
from peakrl.planning.solution import row_costs
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.safety.safe_set import SafeSet
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs

if TYPE_CHECKING:
    from peakrl.theory import Audit
    from peakrl.training.run import LearningRun

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

    kind: Literal["infeasible", "safe", "violates", "certified", "not proved"]
    text: str


@dataclass(frozen=True)
class ModelAnalysis:
    """What depends on the model alone."""

    model: TabularModel
    #: The discount; None with a horizon.
    discount: float | None = None

    @cached_property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum; None if the model is too large to solve quickly."""
        return solve(self.model, discount=self.discount) if can_solve(self.model) else None

    @cached_property
    def best_metrics(self) -> Metrics | None:
        """Metrics of the optimum."""
        best = self.optimum
        if best is None:
            return None
        return Metrics(best.value, 0.0, best.violation, self.evaluate(best.policy).violation_probability)

    def evaluate(self, policy: Any) -> Evaluation:
        """Return the exact evaluation of a policy."""
        return evaluate(self.model, policy, **({} if self.discount is None else {"discount": self.discount}))

    @cached_property
    def safe_set(self) -> SafeSet:
        """The safe set of the model."""
        return SafeSet(self.model)

    def below_optimum(self, value: float) -> float | None:
        """Return the optimum minus a value, with rounding errors set to 0; None if the optimum is not known."""
        if (best := self.optimum) is None:
            return None
        rounding = rounding_of(self.model) if self.discount is None else ROUNDING * abs(best.value)
        return below(value, best.value, rounding)


@dataclass(frozen=True)
class RunAnalysis:
    """Analysis of a run on a model or an environment.

    Exact results of a run on an environment need its transition table. Without it `known` is None, and only
    feasibility, verdict, the learner's own certificate and the metrics of experience are available.
    """

    run: LearningRun
    #: The analysis of the model or of the transition table.
    known: ModelAnalysis | None

    @classmethod
    def of(cls, run: LearningRun, *, table: TabularModel | None = None) -> RunAnalysis:
        """Return the analysis of a run on its model, or on the transition table of its environment."""
        model = run.model if isinstance(run.model, TabularModel) else table
        if model is not None and (run.discount is not None or model.steps is None):
            model = model.with_horizon(run.model.steps)
        return cls(run, None if model is None else ModelAnalysis(model, run.discount))

    @property
    def on_environment(self) -> bool:
        """Was the run on an environment?"""
        return not isinstance(self.run.model, TabularModel)

    @property
    def exact(self) -> ModelAnalysis:
        """The analysis of the model or of the transition table, which must be known."""
        assert self.known is not None
        return self.known

    @property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum, if known."""
        return None if self.known is None else self.known.optimum

    @cached_property
    def policy(self) -> Policy | StochasticPolicy:
        """The last policy; on an environment what it does on the table."""
        return self._on_table[0] if self.on_environment else self.run.policy

    @property
    def filled(self) -> bool:
        """Are there states on the table of an environment that the last policy does not know?"""
        return self.on_environment and self._on_table[1]

    @cached_property
    def _on_table(self) -> tuple[Policy | StochasticPolicy, bool]:
        return filled_on_table(self.exact.model, self.run.policy)

    @cached_property
    def last(self) -> Evaluation:
        """The exact evaluation of the last policy."""
        return self.exact.evaluate(self.policy)

    @cached_property
    def certificate(self) -> Certificate:
        """The exact certificate of the last policy."""
        if self.on_environment or self.run.discount is not None:
            return certify(self.exact.model, self.run.policy, discount=self.run.discount)
        return certificate_on_model(self.exact.model, self.run.policy, self.last, self.optimum)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate that the learner issued, if any, and the exact one, if there is one."""
        learned = () if self.run.certificate is None else (self.run.certificate,)
        return learned if self.known is None else (*learned, self.certificate)

    @cached_property
    def metrics(self) -> dict[str, Metrics]:
        """Metrics of the last policy, the averaged policy, the experience on an environment and the optimum."""
        found = {
            "policy": None if self.known is None else self._metrics(self.last),
            "averaged_policy": None if self.on_environment else self._averaged(),
            "experience": self._experience(self.run.violations / self.run.episodes) if self.on_environment else None,
            "optimum": None if self.known is None else self.known.best_metrics,
        }
        return {name: metrics for name, metrics in found.items() if metrics is not None}

    def _metrics(self, found: Evaluation) -> Metrics:
        gap = self.exact.below_optimum(found.value)
        return Metrics(found.value, gap, found.violation, found.violation_probability)

    def _averaged(self) -> Metrics | None:
        """From the history if the averaged policy is large."""
        run = self.run
        if run._averaged is None or run.discount is not None:
            return None
        if can_average(run.averaged_policy):
            return self._metrics(evaluate(self.exact.model, run.averaged_policy))
        return None if run.history.sampled else self._experience(None)

    def _experience(self, violation_probability: float | None) -> Metrics | None:
        """Means over all training episodes, exploration included."""
        history = self.run.history
        if self.run.discount is not None:  # its history is not discounted
            return None
        if not len(history) or isnan(history.averaged_value[-1]):
            return None
        value, violation = float(history.averaged_value[-1]), float(history.averaged_violation[-1])
        gap = None if self.known is None else self.known.below_optimum(value)
        return Metrics(value, gap, violation, violation_probability)

    @property
    def feasible(self) -> bool | None:
        """Is the problem feasible? By the learner's proof, or else the planner's; None if unknown."""
        if self.run.feasible is not None or self.optimum is None:
            return self.run.feasible
        return self.optimum.feasible

    @cached_property
    def verdict(self) -> Verdict:
        """Feasibility of the problem and safety of the last policy, in one sentence."""
        learned, optimum = self.run.certificate, self.optimum
        limit = "" if self.judged is None else f"; {self.judged}"
        if self.run.feasible is False:
            text = PROVED_INFEASIBLE
            if optimum is not None and not self.on_environment:
                text += f"; the least expected violation of any policy is {optimum.violation:.6g}"
                text += f"; the planner confirms it: {optimum.reason}" if optimum.reason else ""
            return Verdict("infeasible", text)
        if optimum is not None and not optimum.feasible:
            who = " (exact planner on the environment's table)" if self.on_environment else ""
            text = f"infeasible{who}: {optimum.reason}"
            return Verdict("infeasible", text.removesuffix("." if limit else "") + limit)
        if self.known is None:
            if learned is not None and learned.holds:
                return Verdict("certified", f"certified from observations: {learned.claim}")
            text = "nothing is proved about the last policy: the environment has no transition table"
            return Verdict("not proved", text)
        begin = "feasibility unknown; " if optimum is None else "feasible (exact planner); "
        begin, end = ("", " (exact on the environment's table)") if self.on_environment else (begin, "")
        chance = self.certificate.violation_probability_high
        if chance == 0:
            return Verdict("safe", f"{begin}the last policy never violates a constraint{end}")
        often = f"with probability {chance:.6g}"
        return Verdict("violates", f"{begin}the last policy violates a constraint {often}{end}{limit}")

    @property
    def judged(self) -> str | None:
        """How the last policy compares with the learner's limits on expected violations; None without such limits."""
        known = self.known is not None and self.run.discount is None
        return self.run.settings.judged(self.last.step_violations) if known else None

    @property
    def audit(self) -> Audit | None:
        """The audit of the learner's slack; None without one, or if the model is large or has no constraints."""
        slack, penalty = self.run.settings.tolerated()
        if not slack or self.optimum is None or not self.exact.model.num_constraints:
            return None
        from peakrl.theory import audit_slack

        return audit_slack(self.exact.model, slack, penalty, relaxed=False)

    @cached_property
    def tables(self) -> PolicyTables:
        """Tables of the last policy; of its likeliest actions if it is stochastic."""
        return PolicyTables(self.exact.model, self.run.policy.likeliest)

    @cached_property
    def episode(self) -> list[RolloutStep]:
        """One episode of the last policy: that of `peakrl.rollout` with seed 0."""
        return rollout(self.exact.model, self.run.policy)

    def gaps(self, values: Floats) -> Floats:
        """Return the gap of each value to the optimum; NaN if either is not known."""
        if self.optimum is None:
            return np.full(len(values), nan)
        best, rounding = self.optimum.value, rounding_of(self.exact.model)
        return np.array([nan if isnan(value) else below(value, best, rounding) for value in values.tolist()])

    def percent(self, gap: float | None) -> float | None:
        """Return a gap in percent of the optimum; None if that is undefined."""
        if gap is None or self.optimum is None:
            return None
        best = self.optimum.value
        return 0.0 if gap == 0 else 100.0 * gap / abs(best) if best else None

    def as_dict(self) -> dict[str, Any]:
        """Return certificate, metrics and verdict as plain JSON-ready values."""
        learned = self.run.certificate
        names = ("policy", "averaged_policy", *(["experience"] if self.on_environment else []), "optimum")
        return {
            **dict.fromkeys(names),
            **{name: found._asdict() for name, found in self.metrics.items()},
            "certificate": None if self.known is None else self.certificate.as_dict(),
            "learned_certificate": None if learned is None else learned.as_dict(),
            "feasible": self.feasible,
            "verdict": self.verdict.text,
            "reason": None if self.optimum is None else self.optimum.reason,
        }


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


@dataclass(frozen=True)
class PolicyTables:
    """Exact tables of a policy on a model."""

    model: TabularModel
    policy: Policy

    @cached_property
    def value(self) -> Floats:
        """[node]: expected reward from the node on."""
        return value_of(self.model.layout, self.model.num_nodes, self.model.row_reward, self.policy.rows)

    @cached_property
    def violation(self) -> Floats:
        """[node]: expected violation from the node on."""
        return value_of(self.model.layout, self.model.num_nodes, row_costs(self.model), self.policy.rows)

    @cached_property
    def probability(self) -> Floats:
        """[node]: probability of the node."""
        layout, there = self.model.layout, np.zeros(self.model.num_nodes)
        for step, now in enumerate(self.by_step()):
            first, last = layout.step_slots[step].tolist()
            there[step * layout.node_stride + np.arange(first, last)] = now[first:last]
        return there

    @property
    def presence(self) -> Floats:
        """[slot]: expected number of visits per episode."""
        total = np.zeros(self.model.num_slots)
        for now in self.by_step():
            total += now
        return total

    def risks(self, most: int = MOST_RISKS) -> list[Risk]:
        """Return the `most` largest contributions to the violation of an episode."""
        model, costs, found = self.model, row_costs(self.model), []
        for step, now in enumerate(self.by_step()):
            slots = np.flatnonzero(now)
            rows = self.policy.rows[step * model.layout.node_stride + slots]
            violating = np.flatnonzero((rows >= 0) & (costs[rows] > 0))
            parts = now[slots[violating]] * costs[rows[violating]]
            for place in violating[np.argsort(-parts, kind="stable")[:most]].tolist():
                slot, row = int(slots[place]), int(rows[place])
                labels = model.state_of_slot(slot), model.action_of_row(row)
                part = max(float(now[slot] * costs[row]), LEAST)  # a possible violation is never shown as 0
                found.append(Risk(step, *labels, float(now[slot]), float(costs[row]), part))
        return sorted(found, key=lambda one: -one.contribution)[:most]

    def by_step(self) -> Iterator[Floats]:
        """Yield for each step [slot]: the probability of the state."""
        model, layout = self.model, self.model.layout
        now = np.zeros(model.num_slots)
        now[model.first_slot] = model.first_probability
        yield now
        for step in range(model.horizon - 1):
            slots = np.flatnonzero(now)
            rows = self.policy.rows[step * layout.node_stride + slots]
            acting = rows >= 0
            following = np.zeros(model.num_slots)
            for slot, row in zip(slots[acting].tolist(), rows[acting].tolist(), strict=True):
                distribution = layout.row_distribution[row]
                part = slice(layout.outcome_start[distribution], layout.outcome_start[distribution + 1])
                np.add.at(following, layout.outcome_next[part], now[slot] * layout.outcome_probability[part])
            now = following
            yield now

    def after(self, table: Floats, distributions: Longs) -> Floats:
        """[step, distribution]: expectation of a table by node of the next step; one step in a layered model."""
        layout, stride = self.model.layout, self.model.layout.node_stride
        steps = range(1, self.model.horizon + 1) if stride else range(1)
        weight, following = layout.outcome_probability, layout.outcome_next
        sums = [np.add.reduceat(weight * table[step * stride + following], layout.outcome_start[:-1]) for step in steps]
        return np.stack(sums)[:, distributions]
