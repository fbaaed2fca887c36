"""The run of a sweep: learn on a problem, then evaluate exactly what was learned.

    gap = optimum - value,    excess = violation - least violation of any policy

for the last policy and for the averaged one. Everything here follows from the configuration: no clock, no machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.certificates.episodes import stream_of
from peakrl.certificates.on_table import policy_on_table
from peakrl.errors import SweepError
from peakrl.evaluation import evaluate, simulate
from peakrl.gym.env_spec import KIND, EnvironmentSpec, LearningTarget
from peakrl.gym.env_spec import KIND as ENVIRONMENT
from peakrl.gym.targets import adapt
from peakrl.learners import learner_from
from peakrl.learners.base import LearnerSettings
from peakrl.planning import Solution, solve
from peakrl.policy.tables import Policy
from peakrl.specs.spec import ProblemSpec
from peakrl.specs.user_code import source_digest
from peakrl.sweeps.tasks import canonical
from peakrl.sweeps.worker import FOLDER
from peakrl.tabular import TabularModel
from peakrl.training.history import History
from peakrl.training.learn import Record, is_sampled, learn
from peakrl.training.trainer import LearningRun

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


# ------------------------------------------------------------
# Environments in a sweep (`peakrl.gym.env_spec`): learned on step by step, and judged as well as can be.
#
# Where the environment shows its table, what a run hands out is evaluated exactly on it, where a state that was never met
# takes its first action, and the optimum is the table's. Of any other environment
#
#     value, violation        means of fresh episodes of the policy, with intervals; nothing is known of an optimum
#     curve                   means of stretches of the episodes of learning, exploration included
#
# and `sampled` says so. The averaged policy is told by what its episodes earned.

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
def prepared_environment(
    described: str, folder: str
) -> tuple[EnvironmentSpec, TabularModel | None, Solution[Policy] | None]:
    """Return an environment, its table and the table's optimum; a worker's next run is often on the same."""
    config = json.loads(described)
    spec = EnvironmentSpec(config["parameters"])
    target = spec.open(folder)
    if described_as(spec, target, Path(folder)) != config:
        raise SweepError(f"{config['parameters']} has changed since the sweep was begun: start it again")
    return spec, target.table, None if target.table is None else solve(target.table)


def environment_result(config: Mapping[str, Any], settings: LearnerSettings, folder: str) -> dict[str, Any]:
    """Learn once on an environment and return what came out, as of any run of a sweep."""
    spec, table, best = prepared_environment(canonical(config["problem"], "problem"), folder)
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
    last = evaluate(table, policy_on_table(table, run.policy))
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


# ------------------------------------------------------------
# The problems of a sweep: {"kind": ..., "parameters": {...}}, the words of problem files (`peakrl.specs.spec`).
#
# A problem comes with the digest of its compiled model, and with that of the file which it depends on but does not hold
# (a table, a function of the user's own), so that results of an older version are not taken for those of the present one,
# whatever it was that changed: the file, one that it imports, or peakrl. One that follows the seed takes the run's seed
# for its own; its digest is that of seed 0, and where code makes it each run holds the digest of its own model.


def describe_problem(spec: ProblemSpec, *, follow_seed: bool, folder: Path) -> dict[str, Any]:
    """Return a problem's configuration, checked: it can be built."""
    first = seeded(spec, 0, follow=follow_seed)
    built = first.build(folder)
    # What was read from a file of jobs is part of the problem, and takes the place of the file's name.
    read = {} if spec.runs_code or built.spec is None else built.spec
    config = undigested(spec, follow_seed=follow_seed)
    config["parameters"] = {name: read.get(name, value) for name, value in spec.parameters.items()}
    source = spec.source_digest(folder)
    return config | {"model": first.compile(folder).digest} | ({"source": source} if source else {})


def undigested(spec: ProblemSpec, *, follow_seed: bool) -> dict[str, Any]:
    """Return what can be said of a problem without building it."""
    config = {"kind": spec.kind, "parameters": dict(spec.parameters)}
    return config | ({"follow_seed": True} if follow_seed else {})


def digest_of_run(config: Mapping[str, Any], seed: int, folder: Path) -> dict[str, str]:
    """Return the digest of a run's model by name, where the problem's own does not tell it."""
    if not (config.get("follow_seed") and ProblemSpec(config["kind"], config["parameters"]).runs_code):
        return {}
    return {"model": compiled_problem(config, seed, folder).digest}


def compiled_problem(config: Mapping[str, Any], seed: int, folder: str | Path = ".") -> TabularModel:
    """Return the model that a configuration describes; `seed` is the run's, for problems that follow it."""
    spec = ProblemSpec(config["kind"], config["parameters"])
    if spec.source_digest(folder) != config.get("source"):
        raise changed(spec)
    follow = config.get("follow_seed", False)
    model = seeded(spec, seed, follow=follow).compile(folder)
    if not follow and model.digest != config.get("model", model.digest):
        raise changed(spec)
    return model


def changed(spec: ProblemSpec) -> SweepError:
    """Return what to say of a problem that is no longer what it was."""
    return SweepError(f"what {spec.as_dict()} stands for has changed since the sweep was begun: start it again")


def seeded(spec: ProblemSpec, seed: int, *, follow: bool) -> ProblemSpec:
    """Return the problem of a run."""
    return spec.with_parameters({"seed": seed}) if follow else spec
