"""Environments in a sweep: learned on step by step through Gymnasium, judged exactly by the table that they show.

    [[problems]]
    name = "lake"
    kind = "gymnasium"
    id = "FrozenLake-v1"                  # as `gymnasium.make` takes it, and what else it takes:
    arguments = { is_slippery = false }
    constraint = "lake.py:holes"          # a function of the transition, as `learn` takes it; runs code (--trust)
    horizon = 8                           # by default the environment's own time limit

What a run hands out is evaluated on the table (`from_gymnasium`), where a state that was never met takes its first
action, and the optimum is the table's; so the environment must show one. The averaged policy is told by what its
episodes earned. No curve is kept: what single policies were worth on the way is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.envs.reading import from_gymnasium
from peakrl.errors import ProblemError, SweepError, UnknownStateError
from peakrl.evaluation import evaluate
from peakrl.learning.run import LearningRun, learn
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.planning import Solution, solve
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.problems.registry import unknown_key
from peakrl.runs.tasks import canonical
from peakrl.user_code import load_named, source_digest

KIND = "gymnasium"
PARAMETERS = ("id", "arguments", "constraint", "horizon")


def check_environment(parameters: Mapping[str, Any], where: str) -> None:
    """Raise where a table of a sweep file is not how an environment is told."""
    for name in parameters:
        if name not in PARAMETERS:
            raise SweepError(unknown_key(f"{where}.{name}", name, list(PARAMETERS)))
    if "id" not in parameters:
        raise SweepError(f"{where}.id is missing; it must name an environment of Gymnasium's")
    for name in ("id", "constraint"):
        if not isinstance(parameters.get(name, ""), str):
            raise SweepError(f"{where}.{name} is {parameters[name]!r}; it must be a text")
    if not isinstance(parameters.get("arguments", {}), Mapping):
        raise SweepError(f"{where}.arguments is {parameters['arguments']!r}; it must be a table of values by name")


def describe_environment(parameters: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the configuration of an environment, with the digests of its table and of the code that it names."""
    model = table_of(parameters, folder)
    named = parameters.get("constraint")
    source = None if named is None else source_digest(named, folder, "constraint")
    config = {"kind": KIND, "parameters": dict(parameters), "model": model.digest}
    return config | ({"source": source} if source else {})


def made(parameters: Mapping[str, Any], folder: Path) -> tuple[Any, Any]:
    """Return the environment and its constraint function."""
    import gymnasium

    try:
        env = gymnasium.make(parameters["id"], **parameters.get("arguments", {}))
    except (gymnasium.error.Error, TypeError, ValueError, ImportError) as error:
        raise ProblemError(f"id: gymnasium cannot make {parameters['id']!r}: {error}") from error
    named = parameters.get("constraint")
    return env, None if named is None else load_named(named, folder, "constraint")


def table_of(parameters: Mapping[str, Any], folder: Path) -> TabularModel:
    """Return the table that an environment shows."""
    env, function = made(parameters, folder)
    return compile_model(from_gymnasium(env, horizon=parameters.get("horizon"), constraint=function))


@lru_cache(maxsize=8)
def prepared(described: str, folder: str) -> tuple[TabularModel, Solution[Policy]]:
    """Return the table of an environment and its optimum; a worker's next run is often on the same."""
    config = json.loads(described)
    model = table_of(config["parameters"], Path(folder))
    if describe_environment(config["parameters"], Path(folder)) != config:
        raise SweepError(f"{config['parameters']} has changed since the sweep was begun: start it again")
    return model, solve(model)


def learn_environment(
    config: Mapping[str, Any], settings: LearnerSettings, folder: str
) -> tuple[LearningRun, TabularModel, Solution[Policy]]:
    """Learn on the environment of a run; return its table and the table's optimum as well."""
    model, best = prepared(canonical(config["problem"], "problem"), folder)
    env, function = made(config["problem"]["parameters"], Path(folder))
    run = learn(
        env, settings, episodes=config["episodes"], seed=config["seed"], horizon=model.horizon,
        reward_range=model.reward_range, constraint=function, constraint_bounds=model.constraint_bounds,
    )  # fmt: skip
    return run, model, best


def on_table(model: TabularModel, policy: Any) -> StochasticPolicy:
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
    return StochasticPolicy(model, weights)


def environment_result(config: Mapping[str, Any], settings: LearnerSettings, folder: str) -> dict[str, Any]:
    """Learn once on an environment and return what came out, as of any run of a sweep."""
    run, model, best = learn_environment(config, settings, folder)
    last, history = evaluate(model, on_table(model, run.policy)), run.history
    averaged = float(history.averaged_value[-1])
    return {
        "value": last.value,
        "violation": last.violation,
        "violation_probability": last.violation_probability,
        "averaged_value": averaged,
        "averaged_violation": float(history.averaged_violation[-1]),
        "averaged_violation_probability": run.violations / run.episodes,
        "optimum": best.value,
        "least_violation": best.violation,
        "problem_feasible": best.feasible,
        "gap": best.value - last.value,
        "averaged_gap": best.value - averaged,
        "violations": run.violations,
        "last_violation_episode": run.last_violation_episode,
        "feasible": run.feasible,
    }
