"""The runs of `efficiency`, as functions of a plain configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.kernels.arrays import Floats
from peakrl.learning.active import ActiveRun
from peakrl.learning.knowledge import Knowledge
from peakrl.learning.practical import PracticalLearner
from peakrl.learning.run import learn
from peakrl.learning.settings import LearnerSettings
from peakrl.model.tabular import TabularModel
from peakrl.planning import solve
from peakrl.policy.tables import Policy
from peakrl.problems.spec import ProblemSpec

#: A policy counts as good when it is this close to the optimum (share of it) and violates nothing.
CLOSE = 0.01


def learn_transmitter(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn random arrivals; what is handed out at given episodes and, where asked for, the average of all followed."""
    model, places = ProblemSpec.from_dict(config["problem"]).compile(), config["places"]
    active = ActiveRun(
        model, LearnerSettings.from_dict(config["learner"]), planned=places[-1], seed=config["seed"],
        every=places[-1] if config["averaged"] else 0, average=False,
        knowledge=Knowledge.from_dict(config["knowledge"]),
    )  # fmt: skip
    found = []
    for place in places:
        active.advance(place - active.done)
        result = evaluate(model, Policy(model, active.learned().decided()))
        found.append((result.value, result.violation))
    value, violation = np.array(found).T
    violations, last = active.counters.tolist()
    curves = gaps(model, np.array(places, float), value, violation)
    if active.recorder is not None:
        averaged = float(active.recorder.history(active.done).averaged_value[-1])
        curves["averaged_gap"] = 100 * (1 - averaged / solve(model).value)
    return curves | {"violations": violations, "last_violation": last}


def gaps(model: TabularModel, episode: Floats, value: Floats, violation: Floats) -> dict[str, Any]:
    """Return gaps in per cent of the optimum, and from when on the policy stays close to it without violation."""
    gap = 100 * (1 - value / solve(model).value)
    bad = np.flatnonzero((np.abs(gap) > 100 * CLOSE) | (violation > 0))
    start = int(bad[-1]) + 1 if bad.size else 0
    settled = float(episode[start]) if start < len(episode) else None
    return {"episode": episode, "gap": gap, "violation": violation, "settled": settled}


def learn_schedule(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn a scheduling example that can be met: the last violation and the last policy that was not optimal."""
    model = ProblemSpec.from_dict(config["problem"]).compile()
    settings = LearnerSettings.from_dict(config["learner"])
    run = learn(model, settings, episodes=config["episodes"], seed=config["seed"], record=1, average=False)
    history = run.history
    wrong = (history.value < solve(model).value - 1e-9) | (history.violation > 0)
    return {
        "violations": run.violations,
        "last_violation": run.last_violation_episode or 0,
        "last_wrong": int(history.episode[wrong][-1]) if wrong.any() else 0,
    }


def learn_infeasible(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn the scheduling example that cannot be met: when that is proved, and what violation is left."""
    model = ProblemSpec.from_dict(config["problem"]).compile()
    settings = LearnerSettings.from_dict(config["learner"])
    active = ActiveRun(model, settings, planned=config["episodes"], seed=config["seed"], every=0, average=False)
    active.advance(config["episodes"])
    algorithm = active.learned()
    proved = algorithm.proved_in if isinstance(algorithm, PracticalLearner) else None
    violation = evaluate(model, Policy(model, active.rows)).violation
    least = solve(model).violation
    return {"proved": proved, "violation": violation, "excess": 100 * (violation / least - 1)}
