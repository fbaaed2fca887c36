"""One run of a sweep: learn, then evaluate the policy. The result depends on the configuration alone.

    gap = optimum - value        for the last policy and the averaged one

A problem, {"kind": ..., "parameters": {...}}, carries the digest of its compiled model and of the source files that it
names, so that results of an older version are not reused.

Environments with a transition table are evaluated exactly on it (`certificates.certify`). For others, `sampled` is the
number of new episodes that value and violation are means of; the optimum is unknown, and the curve consists of means of
training episodes, exploration included. The averaged policy is represented by its training episodes.

With a `discount` in place of a horizon values are discounted sums, exact only, and there is neither an averaged policy
nor a curve.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.certificates.certify import policy_on_table
from peakrl.errors import SweepError
from peakrl.evaluation import evaluate, simulate
from peakrl.gym.env_spec import EnvironmentSpec, LearningTarget, described_target
from peakrl.learners import learner_from
from peakrl.learners.base import LearnerSettings
from peakrl.planning import Solution, solve
from peakrl.policy.tables import Policy
from peakrl.specs.spec import ProblemSpec
from peakrl.specs.user_code import is_name, source_digest
from peakrl.sweeps.executor import FOLDER
from peakrl.sweeps.store import canonical
from peakrl.tabular import TabularModel
from peakrl.training.history import History
from peakrl.training.learn import Record, is_sampled, learn
from peakrl.training.run import LearningRun

FUNCTION = "peakrl.sweeps.learning:learn_run"
#: Key among settings that cannot be a parameter of a learner.
SOURCE = "source file"
#: New episodes for the last policy without a table: a share of the training episodes, within limits.
SHARE, FEWEST, MOST = 0.1, 100, 1000


# A run --------------------------------------------------------------------------------------------------------------


def learn_run(config: dict[str, Any]) -> dict[str, Any]:
    """Learn once and return the values and arrays to store."""
    episodes, seed, points, folder = config["episodes"], config["seed"], config["points"], FOLDER.get()
    settings = learner_of(config["settings"], Path(folder))
    discount = config["problem"]["parameters"].get("discount")
    spec, table, best = prepared(canonical(config["problem"], "problem"), folder)
    if discount is not None:
        assert table is not None  # others are refused
        subject = spec.open_again(folder, table).subject if isinstance(spec, EnvironmentSpec) else table
        run = learn(subject, settings, episodes=episodes, seed=seed, history="none", discount=discount)
        endless, averaged, curve = table.with_horizon(None), {}, {}
        policy = run.policy if subject is table else policy_on_table(endless, run.policy)
        last = exact_metrics(endless, policy, discount)
    elif isinstance(spec, EnvironmentSpec):
        target = spec.open_again(folder, table)
        run = learn(target.subject, settings, episodes=episodes, seed=seed)
        averaged = {
            "averaged_value": float(run.history.averaged_value[-1]),
            "averaged_violation": float(run.history.averaged_violation[-1]),
            "averaged_violation_probability": run.violations / run.episodes,
        }
        curve = sampled_curve(run.history, points)
        if table is None:
            last = sampled_metrics(run, target)
        else:
            last = exact_metrics(table, policy_on_table(table, run.policy))
    else:
        assert table is not None  # problems are compiled
        run = learn(table, settings, episodes=episodes, seed=seed, history=interval(points, episodes, table))
        averages = exact_metrics(table, run.averaged_policy)
        averaged = {f"averaged_{name}": value for name, value in averages.items()}
        columns = run.history.columns() if len(run.history) else {}
        curve = {f"history_{name}": np.ascontiguousarray(column) for name, column in columns.items()}
        last = exact_metrics(table, run.policy)
    return {
        **last,
        **averaged,
        "optimum": None if best is None else best.value,
        "least_violation": None if best is None else best.violation,
        "problem_feasible": None if best is None else best.feasible,
        "gap": None if best is None else best.value - last["value"],
        "averaged_gap": None if best is None or discount is not None else best.value - averaged["averaged_value"],
        "violations": run.violations,
        "last_violation_episode": run.last_violation_episode,
        "feasible": run.feasible,
        **curve,
    }


def exact_metrics(table: TabularModel, policy: Any, discount: float | None = None) -> dict[str, Any]:
    """Return the exact metrics of a policy."""
    found = evaluate(table, policy, discount=discount)
    return {
        "value": found.value,
        "violation": found.violation,
        "violation_probability": found.violation_probability,
    }


def sampled_metrics(run: LearningRun, target: LearningTarget) -> dict[str, Any]:
    """Return the metrics of the last policy in new episodes, with intervals."""
    episodes = int(np.clip(SHARE * run.episodes, FEWEST, MOST))
    seen = simulate(target.subject, run.policy, episodes=episodes, seed=run.seed)
    return {
        "sampled": episodes,
        "value": seen.value,
        "value_low": seen.value_interval.low,
        "value_high": seen.value_interval.high,
        "violation": seen.violation,
        "violation_probability": seen.violation_frequency,
        "violation_probability_high": seen.violation_frequency_interval.high,
    }


def interval(points: int, episodes: int, model: TabularModel) -> Record:
    """Return the interval for about `points` points of history; "none" if the exact curve is too expensive."""
    if points == 0 or is_sampled("auto", episodes, model):
        return "none"
    return max(1, -(-episodes // points))


def sampled_curve(history: History, points: int) -> dict[str, Any]:
    """Return a sampled curve of about `points` means over consecutive episodes."""
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


# Problems and settings as configurations ----------------------------------------------------------------------------


def described(spec: ProblemSpec | EnvironmentSpec, folder: Path) -> tuple[dict[str, Any], TabularModel | None]:
    """Return the configuration of a problem or an environment with all digests, and its model or transition table."""
    config: dict[str, Any] = {"kind": spec.kind, "parameters": dict(spec.parameters)}
    if isinstance(spec, EnvironmentSpec):
        table, digests = spec.open(folder).table, spec.source_digests(folder)
        if table is None and "discount" in spec.parameters:
            raise SweepError(
                "discounted values are exact only: an environment without a transition table (env.unwrapped.P) needs "
                "a horizon in place of discount"
            )
    else:
        built = spec.build(folder)
        # The content of a file of jobs replaces its name.
        read = {} if spec.runs_code or built.spec is None else built.spec
        config["parameters"] = {name: read.get(name, value) for name, value in spec.parameters.items()}
        table, source = spec.compile(folder), spec.source_digest(folder)
        digests = {} if source is None else {"source": source}
    return config | digests | ({} if table is None else {"model": table.digest}), table


@lru_cache(maxsize=8)
def prepared(
    problem: str, folder: str
) -> tuple[ProblemSpec | EnvironmentSpec, TabularModel | None, Solution[Policy] | None]:
    """Return the problem or environment of a configuration, its model and the optimum.

    Cached, since workers often repeat a problem.
    """
    config = json.loads(problem)
    spec = described_target({"kind": config["kind"], **config["parameters"]})
    now, table = described(spec, Path(folder))
    if canonical(now, "problem") != problem:
        raise SweepError(f"the problem {spec.as_dict()} has changed since the sweep was started: start it again")
    return spec, table, None if table is None else solve(table, discount=config["parameters"].get("discount"))


def with_source(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return settings with the digest of the source file of a custom learner."""
    named = settings.get("learner")
    digest = source_digest(named, folder, "learner") if is_name(named) else None
    return settings if digest is None else {**settings, SOURCE: digest}


def learner_of(settings: dict[str, Any], folder: Path) -> LearnerSettings:
    """Return the settings of a run; raise if the source file of a custom learner has changed."""
    plain = {name: value for name, value in settings.items() if name != SOURCE}
    if with_source(plain, folder) != settings:
        raise SweepError(f"{plain['learner']} has changed since the sweep was started: start it again")
    return learner_from(plain, folder)
