"""Kernels in the suite: compiled once, half of them by each worker.

An empty cache costs minutes: a worker compiles what its tests come to, and without care the other one waits for just
that kernel. So before they collect tests, workers go through `SCENARIOS` from both ends; whoever comes first to a
kernel compiles it, the other reads it from the disk. `compile_log` counts.
"""

from __future__ import annotations

import contextlib

import peakrl
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from peakrl import LearnerSettings, learners
from peakrl.kernels.jit import source_digest
from peakrl.kernels.sampling import uniform

PLANNED = {
    "solve": peakrl.solve,
    "evaluate": lambda model: peakrl.evaluate(model, peakrl.solve(model).policy),
    "simulate": lambda model: peakrl.simulate(model, peakrl.solve(model).policy, episodes=2),
    "safe_set": peakrl.safe_set,
    "audit": lambda model: peakrl.audit(model, slack=0.1),
}
LEARNERS = {
    "posterior": LearnerSettings.posterior,
    "practical": LearnerSettings.practical,
    "paper": lambda: LearnerSettings.paper(slack=0.1),
    "published": lambda: LearnerSettings.published(slack=0.1),
    "deterministic": lambda: LearnerSettings.deterministic(phi=0.1),
    "SUCBVI": learners.SUCBVI,
    "TripleQ": lambda: learners.TripleQ(total=1.0),
    "OptCMDP": lambda: learners.OptCMDP.certainty_equivalent(total=1.0),
    "OptPrimalDual": lambda: learners.OptPrimalDual(total=1.0),
    "OptDual": lambda: learners.OptDual(total=1.0),
    "certified": lambda: LearnerSettings.certified(epsilon=0.5),
}
SCENARIOS = (*PLANNED, *((name, place) for name in LEARNERS for place in ("model", "environment")))


def go_through(scenario, model):
    """Come to the kernels of a scenario."""
    if scenario in PLANNED:
        PLANNED[scenario](model)
        return
    name, place = scenario
    target = model if place == "model" else ModelEnvironment(model, 0)
    str(peakrl.learn(target, LEARNERS[name](), episodes=500 if name == "certified" else 3))


def compile_share(backwards):
    """Compile what the other worker does not come to first; nothing where all of it was done before."""
    folder = getattr(uniform, "folder", None)  # none with the JIT off, or without a cache
    if folder is None or (stamp := folder.parent / f"compiled-{source_digest()}").exists():
        return
    model = peakrl.compile_model(random_problem(3, states=3, actions=2, horizon=3, constraints=1))
    for scenario in reversed(SCENARIOS) if backwards else SCENARIOS:
        with contextlib.suppress(Exception):  # what is wrong is for tests to tell
            go_through(scenario, model)
    stamp.touch()
