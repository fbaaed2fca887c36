"""The runs of `certificates`, as functions of a plain configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.learning.active import ActiveRun
from peakrl.learning.certified.learner import Certified, CertifiedLearner
from peakrl.learning.knowledge import Knowledge
from peakrl.model.tabular import TabularModel
from peakrl.paper.certificate_problems import drawn
from peakrl.planning import solve
from peakrl.policy.tables import Policy
from peakrl.problems.spec import ProblemSpec
from peakrl.theory import pac_plan

#: What exact values may be off by.
ROUNDING = 1e-9


def learn_certified(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn until the smallest share is certified; the episodes that each took, and how many certificates are false."""
    problem = config["problem"]
    model = drawn(**problem) if "family" in problem else ProblemSpec.from_dict(problem).compile()
    best = solve(model).value
    epsilons = [share * abs(best) for share in config["shares"]]
    settings = Certified(epsilon=tuple(epsilons), failure_probability=config["failure_probability"])
    active = ActiveRun(
        model, settings, planned=config["episodes"], seed=config["seed"], every=0, average=False,
        knowledge=declared(config["declared"], model),
    )  # fmt: skip
    made = judge(active, model, best, config["episodes"])
    theorem = [asked(model, epsilon, config["failure_probability"]) for epsilon in epsilons]
    return {**made, "theorem": np.array(theorem), "violations": int(active.counters[0])}


def judge(active: ActiveRun, model: TabularModel, best: float, most: int) -> dict[str, Any]:
    """Run a certified learner to its end; the episodes of every certificate, how many there are and how many false."""
    learner = active.learned()
    assert isinstance(learner, CertifiedLearner)
    false, judged = 0, 0
    while active.done < most and learner.stopped is None:
        active.advance(min(learner.until_review, most - active.done))
        for line in learner.rounds.issued[judged:]:
            found = evaluate(model, Policy(model, learner.decided()))
            wrong = best - found.value > line["gap"] + ROUNDING or found.violation > line["violation_high"] + ROUNDING
            false, judged = false + int(wrong), judged + 1
    lines, asked_for = learner.rounds.issued, len(learner.rounds.goal.epsilons)
    episodes = [line["episodes"] for line in lines] + [math.inf] * (asked_for - len(lines))
    return {"episodes": np.array(episodes), "issued": len(lines), "false": false}


def declared(names: list[str], model: TabularModel) -> Knowledge:
    """Return what is declared, by name."""
    values: dict[str, Any] = {}
    for name in names:
        values |= DECLARATIONS[name](model)
    return Knowledge(**values)


def energy_map(model: TabularModel) -> dict[str, Any]:
    """Energy harvesting: what is left in the battery follows from the action, the next arrival is the noise."""
    states: Any = model.state_labels
    battery, arrivals = max(state[0] for state in states), sorted({state[1] for state in states})

    def after(state: tuple[int, int], action: int, arrival: int) -> tuple[int, int]:
        return min(battery, sum(state) - action), arrival

    return {"outcome_map": (after, tuple(arrivals))}


def most_safe_reward(model: TabularModel) -> dict[str, Any]:
    """The most that a pair earns that never violates."""
    return {"most_reward": float(model.row_reward[model.keeps].max())}


#: What can be declared of a model, by the name that a configuration gives it.
DECLARATIONS: dict[str, Callable[[TabularModel], dict[str, Any]]] = {
    "groups": lambda model: {"outcome_groups": True},
    "action": lambda model: {"constraint_depends_on": "action"},
    "rewards": lambda model: {"rewards": True},
    "deterministic": lambda model: {"deterministic": True},
    "most reward": most_safe_reward,
    "outcome map": energy_map,
}


def asked(model: TabularModel, epsilon: float, failure_probability: float) -> float:
    """Return what Theorem 1 asks for, with constant 1."""
    low, high = model.reward_range
    plan = pac_plan(
        epsilon=epsilon / (high - low), failure_probability=failure_probability, states=model.max_states,
        actions=model.max_actions, horizon=model.horizon, constraints=max(1, model.num_constraints),
    )  # fmt: skip
    return float(plan.episodes)
