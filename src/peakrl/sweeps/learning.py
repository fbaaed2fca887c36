"""The run of a sweep: learn on a problem, then evaluate exactly what was learned.

    gap = optimum - value,    excess = violation - least violation of any policy

for the last policy and for the averaged one. Everything here follows from the configuration: no clock, no machine.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.errors import SweepError
from peakrl.evaluation import evaluate
from peakrl.gym.env_spec import KIND as ENVIRONMENT
from peakrl.learners import learner_from
from peakrl.learners.base import LearnerSettings
from peakrl.planning import Solution, solve
from peakrl.policy.tables import Policy
from peakrl.specs.user_code import source_digest
from peakrl.sweeps.environments import environment_result
from peakrl.sweeps.problems import compiled_problem
from peakrl.sweeps.tasks import canonical
from peakrl.sweeps.worker import FOLDER
from peakrl.tabular import TabularModel
from peakrl.training.learn import Record, is_sampled, learn

FUNCTION = "peakrl.sweeps.learning:learn_run"
#: Among settings; no parameter of a learner can be called so.
SOURCE = "source file"


def learn_run(config: dict[str, Any]) -> dict[str, Any]:
    """Learn once and return what came out, ready to be stored."""
    episodes, seed, points = config["episodes"], config["seed"], config["points"]
    if config["problem"]["kind"] == ENVIRONMENT:
        return environment_result(config, learner_of(config["settings"], Path(FOLDER.get())), FOLDER.get())
    follow = seed if config["problem"].get("follow_seed") else 0
    model, best = prepared(canonical(config["problem"], "problem"), follow, FOLDER.get())
    if model.digest != config.get("model", model.digest):
        raise SweepError(f"the problem of seed {seed} has changed since the sweep was begun: start it again")
    settings = learner_of(config["settings"], Path(FOLDER.get()))
    run = learn(model, settings, episodes=episodes, seed=seed, history=interval(points, episodes, model))
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


def with_source(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return settings with the digest of the code that they name, so that an edited learner makes other runs."""
    named = settings.get("learner")
    digest = source_digest(named, folder, "learner") if isinstance(named, str) and ":" in named else None
    return settings if digest is None else {**settings, SOURCE: digest}


def learner_of(settings: dict[str, Any], folder: Path) -> LearnerSettings:
    """Return the settings of a run; the code that they name must be what it was when the sweep was begun."""
    plain = {name: value for name, value in settings.items() if name != SOURCE}
    if with_source(plain, folder) != settings:
        raise SweepError(f"{plain['learner']} has changed since the sweep was begun: start it again")
    return learner_from(plain, folder)


@lru_cache(maxsize=8)
def prepared(problem: str, seed: int, folder: str) -> tuple[TabularModel, Solution[Policy]]:
    """Return the compiled model and its optimum; a worker's next run is often on the same problem."""
    model = compiled_problem(json.loads(problem), seed, folder)
    return model, solve(model)


def interval(points: int, episodes: int, model: TabularModel) -> Record:
    """Return every how many episodes to record for about `points` points; none where the exact curve costs too much."""
    if points == 0 or is_sampled("auto", episodes, model):
        return "none"
    return max(1, -(-episodes // points))
