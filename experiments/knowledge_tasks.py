"""The runs of `knowledge`, as functions of a plain configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.learning.active import ActiveRun
from peakrl.learning.knowledge import Knowledge
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.paper.knowledge_problems import DEPENDS_ON, PROBLEMS
from peakrl.planning import solve
from peakrl.policy.tables import Policy

#: The rungs of the ladder, from nothing on; whoever knows everything need not learn.
NOTHING, DEPENDS, FUNCTION, SUPPORT, GROUPS = (
    "nothing", "constraint depends on action", "constraint function", "support", "support, groups",
)  # fmt: skip
#: A policy counts as good when it is this close to the optimum (share of it) and violates nothing.
CLOSE = 0.01


def learn_knowing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn with what a rung declares; the policy that would be handed out at given episodes, and all violations."""
    model = compile_model(PROBLEMS[config["problem"]]())
    best = solve(model).value
    active = ActiveRun(
        model, LearnerSettings.from_dict(config["learner"]), planned=config["places"][-1], seed=config["seed"],
        every=0, average=False, knowledge=declared(model, config["problem"], config["rung"]),
    )  # fmt: skip
    gap, violation = [], []
    for place in config["places"]:
        active.advance(place - active.done)
        found = evaluate(model, Policy(model, active.learned().decided()))
        gap.append(100 * (best - found.value) / abs(best))
        violation.append(found.violation)
    bad = np.flatnonzero((np.array(gap) > 100 * CLOSE) | (np.array(violation) > 0))
    start = int(bad[-1]) + 1 if bad.size else 0
    return {
        "gap": np.array(gap), "violation": np.array(violation), "violations": int(active.counters[0]),
        "settled": float(config["places"][start]) if start < len(gap) else None,
    }  # fmt: skip


def declared(model: TabularModel, problem: str, rung: str) -> Knowledge:
    """Return what is declared on a rung; all of it is true."""
    if rung == DEPENDS:
        return Knowledge(constraint_depends_on=DEPENDS_ON[problem])
    if rung == FUNCTION:
        return Knowledge(constraints=constraint_function(model))
    if rung == SUPPORT:
        return Knowledge(support=model)
    return Knowledge(support=model, outcome_groups=True) if rung == GROUPS else Knowledge()


def constraint_function(model: TabularModel) -> Any:
    """Return the least that the constraints may come to, as a function of step, state and action."""
    least = model.row_margin.min(axis=1)
    known = {
        (step, model.state_of_slot(slot), model.action_of_row(row)): float(least[row])
        for step, (first, last) in enumerate(model.layout.step_slots.tolist())
        for slot in range(first, last)
        for row in model.rows_of_slot(slot)
    }
    return lambda step, state, action: known[step, state, action]
