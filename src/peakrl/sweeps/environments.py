"""Environments in a sweep (`peakrl.gym.env_spec`): learned on step by step, and judged as well as can be.

Where the environment shows its table, what a run hands out is evaluated exactly on it, where a state that was never met
takes its first action, and the optimum is the table's. Of any other environment

    value, violation        means of fresh episodes of the policy, with intervals; nothing is known of an optimum
    curve                   means of stretches of the episodes of learning, exploration included

and `sampled` says so. The averaged policy is told by what its episodes earned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.certificates.episodes import stream_of
from peakrl.errors import SweepError
from peakrl.evaluation import evaluate, simulate
from peakrl.gym.adapter import adapt
from peakrl.gym.env_spec import KIND, EnvironmentSpec, LearningTarget
from peakrl.learners.base import LearnerSettings
from peakrl.planning import Solution, solve
from peakrl.policy.tables import Policy
from peakrl.report.environment_analysis import on_table
from peakrl.sweeps.tasks import canonical
from peakrl.tabular import TabularModel
from peakrl.training.history import History
from peakrl.training.learn import LearningRun, learn

#: Fresh episodes of the last policy, where no table tells what it is worth: a share of those of learning, within these.
SHARE, FEWEST, MOST = 0.1, 100, 1000


def describe_environment(spec: EnvironmentSpec, folder: Path) -> dict[str, Any]:
    """Return the configuration of an environment, with the digests of its table and of the code that it names."""
    return described_as(spec, spec.open(folder), folder)


def described_as(spec: EnvironmentSpec, target: LearningTarget, folder: Path) -> dict[str, Any]:
    """Return the configuration of an environment that was made; what it lacks is said before anything runs."""
    adapt(target.subject, **target.declared)
    digest = {} if target.table is None else {"model": target.table.digest}
    return undescribed(spec) | digest | spec.source_digests(folder)


def undescribed(spec: EnvironmentSpec) -> dict[str, Any]:
    """Return what can be said of an environment without making it."""
    return {"kind": KIND, "parameters": dict(spec.parameters)}


@lru_cache(maxsize=8)
def prepared(described: str, folder: str) -> tuple[EnvironmentSpec, TabularModel | None, Solution[Policy] | None]:
    """Return an environment, its table and the table's optimum; a worker's next run is often on the same."""
    config = json.loads(described)
    spec = EnvironmentSpec(config["parameters"])
    target = spec.open(folder)
    if described_as(spec, target, Path(folder)) != config:
        raise SweepError(f"{config['parameters']} has changed since the sweep was begun: start it again")
    return spec, target.table, None if target.table is None else solve(target.table)


def environment_result(config: Mapping[str, Any], settings: LearnerSettings, folder: str) -> dict[str, Any]:
    """Learn once on an environment and return what came out, as of any run of a sweep."""
    spec, table, best = prepared(canonical(config["problem"], "problem"), folder)
    target = spec.open_again(folder, table)
    run = learn(target.subject, settings, episodes=config["episodes"], seed=config["seed"], **target.declared)
    judged = sampled_figures(run, target) if table is None or best is None else exact_figures(run, table, best)
    return judged | {
        "averaged_value": float(run.history.averaged_value[-1]),
        "averaged_violation": float(run.history.averaged_violation[-1]),
        "averaged_violation_probability": run.violations / run.episodes,
        "violations": run.violations,
        "last_violation_episode": run.last_violation_episode,
        "feasible": run.feasible,
        **curve(run.history, config["points"]),
    }


def exact_figures(run: LearningRun, table: TabularModel, best: Solution[Policy]) -> dict[str, Any]:
    """Return what the last policy is worth by the table, and how far that is from the table's optimum."""
    last = evaluate(table, on_table(table, run.policy))
    return {
        "value": last.value,
        "violation": last.violation,
        "violation_probability": last.violation_probability,
        "optimum": best.value,
        "least_violation": best.violation,
        "problem_feasible": best.feasible,
        "gap": best.value - last.value,
        "averaged_gap": best.value - float(run.history.averaged_value[-1]),
    }


def sampled_figures(run: LearningRun, target: LearningTarget) -> dict[str, Any]:
    """Return what the last policy earned in fresh episodes, with intervals; of an optimum nothing is known."""
    episodes = int(np.clip(SHARE * run.episodes, FEWEST, MOST))
    known = ("horizon", "constraint", "constraint_bounds", "constraint_tolerances")
    declared = {name: given for name, given in target.declared.items() if name in known}
    seen = simulate(target.subject, run.policy, episodes=episodes, seed=stream_of(run.seed), **declared)
    return {
        "sampled": episodes,
        "value": seen.value,
        "value_low": seen.value_interval.low,
        "value_high": seen.value_interval.high,
        "violation": seen.violation,
        "violation_probability": seen.violation_frequency,
        "violation_probability_high": seen.violation_frequency_interval.high,
        **dict.fromkeys(("optimum", "least_violation", "problem_feasible", "gap", "averaged_gap")),
    }


def curve(history: History, points: int) -> dict[str, Any]:
    """Return means of about `points` stretches of episodes, as the columns of a curve that holds nothing exact."""
    if points == 0 or not len(history):
        return {}
    means = history.stretches(points)
    return {
        "sampled_curve": True,
        "history_episode": means.episode,
        "history_value": means.value,
        "history_violation": means.violation,
        "history_value_margin": means.value_margin,
        "history_violation_margin": means.violation_margin,
    }
