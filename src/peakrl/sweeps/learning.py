"""The run of a sweep: learn on a problem, then evaluate exactly what was learned.

    gap = optimum - value,    excess = violation - least violation of any policy

for the last policy and for the averaged one. Everything here follows from the configuration: no clock, no machine.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.learning.own import learner_from
from peakrl.learning.run import Record, learn, recording_interval
from peakrl.model.tabular import TabularModel
from peakrl.planning import Solution, solve
from peakrl.policy.tables import Policy
from peakrl.runs.tasks import canonical
from peakrl.runs.worker import FOLDER
from peakrl.sweeps.problems import compiled_problem

FUNCTION = "peakrl.sweeps.learning:learn_run"


def learn_run(config: dict[str, Any]) -> dict[str, Any]:
    """Learn once and return what came out, ready to be stored."""
    episodes, seed, points = config["episodes"], config["seed"], config["points"]
    follow = seed if config["problem"].get("follow_seed") else 0
    model, best = prepared(canonical(config["problem"], "problem"), follow, FOLDER.get())
    settings = learner_from(config["settings"], FOLDER.get())
    run = learn(model, settings, episodes=episodes, seed=seed, record=interval(points, episodes, model))
    last, mean = evaluate(model, run.policy), evaluate(model, run.averaged_policy)
    history = run.history.columns() if len(run.history) else {}
    return {
        "value": last.value,
        "violation": last.violation,
        "violation_probability": last.violation_probability,
        "averaged_value": mean.value,
        "averaged_violation": mean.violation,
        "averaged_violation_probability": mean.violation_probability,
        "optimum": best.value,
        "least_violation": best.violation,
        "problem_feasible": best.feasible,
        "gap": best.value - last.value,
        "averaged_gap": best.value - mean.value,
        "violations": run.violations,
        "last_violation_episode": run.last_violation_episode,
        "feasible": run.feasible,
        **{f"history_{name}": np.ascontiguousarray(column) for name, column in history.items()},
    }


@lru_cache(maxsize=8)
def prepared(problem: str, seed: int, folder: str) -> tuple[TabularModel, Solution[Policy]]:
    """Return the compiled model and its optimum; a worker's next run is often on the same problem."""
    model = compiled_problem(json.loads(problem), seed, folder)
    return model, solve(model)


def interval(points: int, episodes: int, model: TabularModel) -> Record:
    """Return every how many episodes to record for about `points` points; none where the exact curve costs too much."""
    if points == 0 or recording_interval("auto", episodes, model) == 0:
        return "none"
    return max(1, -(-episodes // points))
