"""The runs of `certificates`, as functions of a plain configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.learning.active import ActiveRun
from peakrl.learning.certified.learner import Certified, CertifiedLearner
from peakrl.learning.knowledge import Knowledge
from peakrl.model.tabular import TabularModel
from peakrl.planning import solve
from peakrl.policy.tables import Policy
from peakrl.problems.spec import ProblemSpec
from peakrl.theory import pac_plan

#: What exact values may be off by.
ROUNDING = 1e-9


def learn_certified(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn until the smallest share is certified; the episodes that each took, and how many certificates are false."""
    model = ProblemSpec.from_dict(config["problem"]).compile()
    best = solve(model).value
    epsilons = [share * abs(best) for share in config["shares"]]
    settings = Certified(epsilon=tuple(epsilons), failure_probability=config["failure_probability"])
    active = ActiveRun(
        model, settings, planned=config["episodes"], seed=config["seed"], every=0, average=False,
        knowledge=Knowledge.from_dict(config["knowledge"]),
    )  # fmt: skip
    learner = active.learned()
    assert isinstance(learner, CertifiedLearner)
    false, judged = 0, 0
    while active.done < config["episodes"] and learner.stopped is None:
        active.advance(min(learner.until_review, config["episodes"] - active.done))
        for line in learner.rounds.issued[judged:]:
            found = evaluate(model, Policy(model, learner.decided()))
            wrong = best - found.value > line["gap"] + ROUNDING or found.violation > line["violation_high"] + ROUNDING
            false, judged = false + int(wrong), judged + 1
    lines = learner.rounds.issued
    episodes = [line["episodes"] for line in lines] + [math.inf] * (len(epsilons) - len(lines))
    theorem = [asked(model, epsilon, config["failure_probability"]) for epsilon in epsilons]
    return {
        "episodes": np.array(episodes), "theorem": np.array(theorem), "issued": len(lines), "false": false,
        "violations": int(active.counters[0]),
    }  # fmt: skip


def asked(model: TabularModel, epsilon: float, failure_probability: float) -> float:
    """Return what Theorem 1 asks for, with constant 1."""
    low, high = model.reward_range
    plan = pac_plan(
        epsilon=epsilon / (high - low), failure_probability=failure_probability, states=model.max_states,
        actions=model.max_actions, horizon=model.horizon, constraints=max(1, model.num_constraints),
    )  # fmt: skip
    return float(plan.episodes)
