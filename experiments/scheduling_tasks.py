"""Blocks of work of the scheduling figures: plain settings in, numbers and arrays out, in a worker process.

Objectives are positive (minus the value of a policy), in time units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.kernels.sampling import seed_state
from peakrl.learning.run import LearningRun, learn
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.planning import solve
from peakrl.policy.tables import Policy
from peakrl.problems.scheduling.baselines import (
    Schedule,
    draw_jobs,
    dt_order_or_least_late,
    earliest_deadline_order,
    evaluate_order,
    order_rule,
)
from peakrl.problems.scheduling.jobs import Job, with_time
from peakrl.problems.scheduling.problem import MachineScheduling, machine_scheduling
from peakrl.problems.spec import ProblemSpec


def learn_example(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn one of the examples with fixed times; nothing is random, so one run says all."""
    problem = example_of(config)
    model = compile_model(problem)
    best = solve(model)
    rules = {
        "DT": evaluate_order(problem.jobs, dt_order_or_least_late(problem.jobs)),
        "EDD": evaluate_order(problem.jobs, earliest_deadline_order(problem.jobs)),
    }
    return {
        **curves(run_on(model, config, seed=0)),
        "optimum": -best.value,
        "least violation": best.violation,
        **{f"{name} objective": float(schedule.max_tardiness) for name, schedule in rules.items()},
        **{f"{name} violation": float(schedule.violation) for name, schedule in rules.items()},
    }


def learn_anew(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run tests in which every episode draws its processing times: [test, place] curves, exact in each test."""
    problem = example_of(config)
    model = compile_model(problem)
    runs = [run_on(model, config, seed) for seed in config["tests"]]
    # One more draw of the times for each test: what DT (which sees them all) and EDD make of a single episode.
    drawn = [draw_jobs(problem.jobs, seed_state(np.uint64(seed))) for seed in config["tests"]]
    single = {
        "learner single objective": np.array([-run.history.episode_reward[-1] for run in runs]),
        "learner single violation": np.array([run.history.episode_violation[-1] for run in runs]),
    }
    return {**joined(runs), **single, **rules_on(drawn)}


def learn_once(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run tests that draw their processing times once and replay them: [test, place] curves."""
    problem = example_of(config)
    drawn = [draw_jobs(problem.jobs, seed_state(np.uint64(seed))) for seed in config["tests"]]
    models = [compile_model(machine_scheduling(jobs)) for jobs in drawn]
    runs = [run_on(model, config, seed) for model, seed in zip(models, config["tests"], strict=True)]
    best = [solve(model) for model in models]
    single = {
        "learner single objective": np.array([-run.history.value[-1] for run in runs]),
        "learner single violation": np.array([run.history.violation[-1] for run in runs]),
        "least violation": np.array([solution.violation for solution in best]),
        "objective at least violation": np.array([-solution.value for solution in best]),
    }
    return {**joined(runs), **single, **rules_on(drawn)}


def random_example(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exact yardsticks of an example with random times: least expected violation, EDD, and DT.

    DT sees the times of an episode beforehand, so its expectation goes over all that can be drawn.
    """
    problem = example_of(config)
    model = compile_model(problem)
    best, rule = solve(model), evaluate(model, deadline_policy(problem, model))
    objective, violation = expected_dt(problem)
    return {
        "least violation": best.violation,
        "objective at least violation": -best.value,
        "EDD objective": -rule.value,
        "EDD violation": rule.violation,
        "DT objective": objective,
        "DT violation": violation,
    }


def expected_dt(problem: MachineScheduling) -> tuple[float, float]:
    """Return DT's expected largest tardiness and violation where each episode's times are known beforehand."""
    objective = violation = 0.0
    for times in product(*(job.pairs for job in problem.jobs)):
        jobs = tuple(with_time(job, time) for job, (_, time) in zip(problem.jobs, times, strict=True))
        schedule = evaluate_order(jobs, dt_order_or_least_late(jobs))
        probability = math.prod(chance for chance, _ in times)
        objective += probability * schedule.max_tardiness
        violation += probability * schedule.violation
    return objective, violation


def example_of(config: Mapping[str, Any]) -> MachineScheduling:
    """Return the example that a task's configuration tells."""
    built = ProblemSpec.from_dict(config["problem"]).build()
    assert isinstance(built, MachineScheduling), config
    return built


def run_on(model: TabularModel, config: Mapping[str, Any], seed: int) -> LearningRun:
    """Return one run of the configured learner."""
    settings = LearnerSettings.from_dict(config["learner"])
    return learn(model, settings, episodes=config["episodes"], seed=seed, record=config["every"], average=False)


def curves(run: LearningRun) -> dict[str, Any]:
    """Return what is kept of a run: pi^k and the averaged policy of the first k episodes."""
    history = run.history
    return {
        "episode": history.episode,
        "objective": -history.value,
        "violation": history.violation,
        "averaged objective": -history.averaged_value,
        "averaged violation": history.averaged_violation,
        "last violation": run.last_violation_episode or 0,
    }


def joined(runs: list[LearningRun]) -> dict[str, Any]:
    """Return the curves of several runs, [test, place]."""
    columns = [curves(run) for run in runs]
    names = ("objective", "violation", "averaged objective", "averaged violation")
    return {"episode": columns[0]["episode"], **{name: np.stack([c[name] for c in columns]) for name in names}}


def rules_on(drawn: list[tuple[Job, ...]]) -> dict[str, Any]:
    """Return DT and EDD on drawn times, [test] each; DT sees all times beforehand, EDD needs none."""
    found: dict[str, list[Schedule]] = {
        "DT": [evaluate_order(jobs, dt_order_or_least_late(jobs)) for jobs in drawn],
        "EDD": [evaluate_order(jobs, earliest_deadline_order(jobs)) for jobs in drawn],
    }
    arrays: dict[str, Any] = {}
    for name, schedules in found.items():
        arrays[f"{name} objective"] = np.array([float(schedule.max_tardiness) for schedule in schedules])
        arrays[f"{name} violation"] = np.array([float(schedule.violation) for schedule in schedules])
    return arrays


def deadline_policy(problem: MachineScheduling, model: TabularModel) -> Policy:
    """Return EDD as a policy."""
    return Policy.from_rule(model, order_rule(earliest_deadline_order(problem.jobs)))
