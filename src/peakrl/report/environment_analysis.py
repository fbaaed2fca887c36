"""What is computed of a run on an environment: exactly by the table that it shows, otherwise only what was counted.

A state that was never met takes its first action on the table: a policy has nothing to say of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.certificates.certificate import Certificate
from peakrl.certificates.certify import certificate_on_model
from peakrl.errors import UnknownStateError
from peakrl.evaluation import Evaluation
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.report.analysis import Figures, ModelFindings

if TYPE_CHECKING:
    from peakrl.planning import Solution
    from peakrl.tabular import TabularModel
    from peakrl.training.learn import LearningRun

FILLED = "in a state that learning never met the policy takes the first action, as the table lists them"


def on_table(model: TabularModel, policy: Any) -> Policy | StochasticPolicy:
    """Return what a policy does on the table; where it knows nothing, the first action."""
    weights = np.zeros(model.num_entries)
    first = model.row_start[:-1][np.diff(model.row_start) > 0]
    weights.reshape(-1, model.num_rows)[:, first] = 1.0
    for step, slot, _ in model.decisions():
        rows, base = model.rows_of_slot(slot), step * model.entry_stride
        with suppress(UnknownStateError):
            chances = policy.probabilities(step, model.state_of_slot(slot))
            for row in rows:
                weights[base + row] = chances.get(model.action_of_row(row), 0.0)
    return simplest_policy(model, weights)


def certified_on_table(model: TabularModel, policy: Any, epsilon: float | None = None) -> Certificate:
    """Return the exact certificate, by the table, of a policy that was learned on the environment."""
    known, filled = ModelFindings(model), on_table(model, policy)
    found = certificate_on_model(model, filled, known.evaluated(filled), known.optimum, epsilon)
    return replace(found, rests_on=(*found.rests_on, FILLED))


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
        return None if self.known is None else self.known.evaluated(on_table(self.known.model, self.run.policy))

    @cached_property
    def certificate(self) -> Certificate | None:
        """The exact certificate of the last policy."""
        return None if self.table is None else certified_on_table(self.table, self.run.policy)

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
