"""One good file of every kind that peakrl reads, and what a reader does with it: what `file_fuzzer` forges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from model_environment import ModelEnvironment
from peakrl import (
    Knowledge,
    Learner,
    LearnerSettings,
    certify,
    compile_model,
    energy_harvesting,
    evaluate,
    learn,
    learners,
    load_model,
    load_policy,
    load_run,
    load_safe_set,
    resume,
    safe_set,
    scheduling_example,
    solve,
    solve_relaxed,
    sweep,
    verify,
    write_report,
)
from peakrl.learning.active import ActiveRun
from peakrl.learning.checkpoint import write_run
from peakrl.problems.tables.problem import table_problem
from peakrl.report.page import make_page
from peakrl.storage import kind_of, read_record, write_record
from peakrl.sweeps.summary import read_records
from peakrl.targets.adapters import adapt
from random_problems import random_problem

#: Of files that are taken, every so many are laid out as a page, and every so many are written as one: that takes long.
LAID_OUT, DRAWN = 10, 250
#: They solve a linear programme every few episodes.
LINEAR = ("DOPE", "OptCMDP", "OptPessLP")


@dataclass
class Base:
    """A file, what it holds, how it is written again and what a reader does with it."""

    path: Path
    plain: dict[str, Any]
    arrays: dict[str, Any]
    write: Any
    use: Any


def settings_of(name, model):
    """Return a learner's settings, with what it cannot do without."""
    limit, best = {"total": 1.0}, solve(model).policy
    needed = {
        "AlgorithmOne": {"slack": 0.5}, "Certified": {"epsilon": 0.5},
        "DOPE": {"safe_policy": best, **limit}, "OptPessLP": {"safe_policy": best, **limit}, "OptCMDP": limit,
        "WeiMDP": limit, "TripleQ": limit,
        "OptDual": {"slater": 0.5, **limit}, "OptPrimalDual": {"slater": 0.5, **limit},
    }  # fmt: skip
    return learners.find_learner(name)(**needed.get(name, {}))


class First(Learner):
    """Takes the first action."""

    def act(self, step, state, actions):
        return actions[0]


def make_bases(folder):
    """Return {name: base}."""
    layered = compile_model(random_problem(8, states=3, actions=2, horizon=3, stationary=False, outcome_payoffs=True))
    shared = compile_model(random_problem(9, states=3, actions=2, horizon=2, stationary=True))
    doomed = compile_model(random_problem(26, states=2, actions=2, horizon=3, safe_action=False))
    jobs = compile_model(scheduling_example(1))
    tank = compile_model(energy_harvesting(battery=2, max_arrival=2, horizon=3))
    practical, posterior, paper = (
        LearnerSettings.practical(), LearnerSettings.posterior(), LearnerSettings.paper(0.5)
    )  # fmt: skip
    bases = {}

    def add(name, write, use):
        path = folder / name
        write(path)
        bases[name] = record(path, use)

    runs = {
        "run practical layered": (layered, practical), "run practical doomed": (doomed, practical),
        "run practical jobs": (jobs, practical), "run paper tank": (tank, paper),
        "run published layered": (layered, LearnerSettings.published(0.5)),
        "run posterior layered": (layered, posterior), "run posterior doomed": (doomed, posterior),
    }  # fmt: skip
    # MaskedQ is left out: it is given a function, which no file holds, and its tables are those of AlgorithmOne.
    names = [name for name in learners.LEARNERS if name != "MaskedQ"]
    runs |= {f"run {name}": (shared, settings_of(name, shared)) for name in names}
    for name, (model, settings) in runs.items():
        add(name, cut(model, settings), use_run)
    for name, settings in (("practical", practical), ("posterior", posterior), ("paper", paper)):
        add(f"environment {name}", cut(adapt(ModelEnvironment(shared, 5)), settings), partial(use_environment, shared))
    run, best = learn(layered, practical, episodes=40), solve(layered)
    add("run own", learn(shared, First(), episodes=20).save, read_run)
    add("policy", best.policy.save, partial(use_policy, layered))
    add("policy averaged", run.averaged_policy.save, partial(use_policy, layered))
    add("policy stochastic", solve_relaxed(layered, 0.1).policy.save, partial(use_policy, layered))
    for name, settings in (("posterior", posterior), ("paper", paper)):
        found = learn(ModelEnvironment(shared, 5), settings, episodes=40)
        add(f"policy {name} environment", found.policy.save, use_environment_policy)
        add(f"policy {name} environment averaged", found.averaged_policy.save, use_environment_policy)
    long = compile_model(random_problem(5, states=3, actions=2, horizon=40, stationary=True))
    kept = solve(long).policy
    assert kept.choices.form == "runs"
    add("policy by changes", kept.save, partial(use_policy, long))
    add("policy by steps", lambda path: solve(layered, policy_file=path), partial(use_policy, layered))
    add("model", layered.save, use_model)
    add("model shared", shared.save, use_model)
    met = learn(ModelEnvironment(layered, 5), practical, episodes=40)
    add("policy environment with steps", met.policy.save, use_environment_policy)
    add("safe set", lambda path: safe_set(shared).save(path, with_model=True), use_safe_set)
    add("safe set alone", safe_set(shared).save, lambda path: load_safe_set(path, shared).to_csv())
    add("certificate exact", certify(layered, best.policy).save, verify)
    sampled = certify(ModelEnvironment(shared, 5), solve(shared).policy, epsilon=1.0, episodes=50, seed=1)
    add("certificate sampled", sampled.save, verify)
    learned = learn(shared, LearnerSettings.certified(1.0), episodes=2000).certificate
    if learned is not None:
        add("certificate learned", learned.save, verify)
    plain = compile_model(random_problem(3, states=3, actions=2, horizon=2, stationary=True, outcome_payoffs=False))
    known = learn(plain, LearnerSettings.certified(1.0), episodes=2000, knowledge=Knowledge(outcome_groups=True))
    if known.certificate is not None:
        add("certificate learned with knowledge", known.certificate.save, verify)
    add(
        "certificate exact of an average",
        certify(shared, learn(shared, practical, episodes=9).averaged_policy).save,
        verify,
    )
    bases["sweep result"] = swept(folder / "sweep", {"kind": "scheduling_example", "number": 1})
    lake = {"kind": "gymnasium", "id": "FrozenLake-v1", "arguments": {"is_slippery": False}, "horizon": 6}
    bases["sweep result on an environment"] = swept(folder / "lakes", lake)
    bases["table"] = table(folder / "table.npz")
    return bases


def record(path, use):
    plain, arrays = read_record(path, kind_of(path))
    return Base(
        path, plain, arrays, lambda path, plain, arrays: write_record(path, plain.pop("kind"), plain, arrays), use
    )


def cut(target, settings):
    """Return what writes a run of 60 episodes that was cut after 40."""
    active = ActiveRun(target, settings, planned=60, seed=3, every=5, average=True)
    active.advance(8 if type(settings).__name__ in LINEAR else 40)
    return lambda path: write_run(path, active)


def swept(folder, problem):
    """The result of a sweep, which is summed up."""
    described = {
        "folder": str(folder), "seeds": 1, "episodes": 20, "points": 5,
        "problems": [problem], "settings": [{"learner": "practical"}],
    }  # fmt: skip
    assert sweep(described, workers=1).made == 1
    (path,) = folder.rglob("*.run")
    return record(path, lambda path: read_records(folder))


def table(path):
    """The arrays of a problem."""
    arrays = {
        "transitions": np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [0.0, 1.0]]]),
        "rewards": np.array([[1.0, 0.0], [0.5, -0.5]]),
        "constraints": np.array([[[1.0, -1.0], [0.5, 0.0]]]),
        "initial": np.array([0.5, 0.5]),
        "available": np.array([[True, True], [True, False]]),
    }
    np.savez(path, **arrays)
    return Base(
        path,
        {},
        arrays,
        lambda path, plain, arrays: np.savez(path, **arrays),
        lambda path: solve(table_problem(path, 3)),
    )


# What readers do ------------------------------------------------------------------------------------------------------


def read_run(path):
    run = load_run(path)
    repr(run), run.q, [str(line) for line in run.proof]
    evaluate(run.model, run.policy)
    if run._averaged is not None:
        evaluate(run.model, run.averaged_policy)
    return run


def use_run(path):
    """Read a run, evaluate what it learned and continue it; draw some."""
    run = read_run(path)
    if run.episodes < 10_000:
        resume(path, episodes=run.episodes + 3, checkpoint=False)
    use_run.taken = getattr(use_run, "taken", 0) + 1
    if use_run.taken % LAID_OUT == 0:
        make_page(path)
    if use_run.taken % DRAWN == 1:
        write_report(path, path.with_suffix(".html"))


def use_environment(model, path):
    load_run(path)  # without the environment all that is known of it stands in the file
    run = load_run(path, env=ModelEnvironment(model, 5))
    repr(run), run.q, [str(line) for line in run.proof], run.policy.to_csv()
    if run.episodes < 10_000:
        resume(path, env=ModelEnvironment(model, 5), episodes=run.episodes + 3, checkpoint=False)


def use_policy(model, path):
    policy = load_policy(path, model)
    evaluate(model, policy)
    policy.to_csv()


def use_environment_policy(path):
    policy = load_policy(path)
    policy.to_csv(), policy.table(0), repr(policy)
    policy.reset(1)
    for step, slot, _ in policy.model.decisions():
        policy.action(step, policy.model.state_of_slot(slot))


def use_model(path):
    model = load_model(path)
    solve(model), repr(model), model.digest
    learn(model, episodes=2, record="none")


def use_safe_set(path):
    load_safe_set(path).to_csv()
