"""peakrl: decision problems whose constraints must hold at every step, with probability 1.

Learn policies from experience, solve known models exactly, and certify either. Start with::

    import peakrl

    model = peakrl.compile_model(peakrl.energy_harvesting(peak_power=8))
    best = peakrl.solve(model)
    run = peakrl.learn(model, peakrl.LearnerSettings.practical(), episodes=50_000)
    print(peakrl.evaluate(model, run.policy), best.value)

Names are imported when they are first used, so that `import peakrl` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peakrl.gym.registration import register_with_gymnasium as _register_with_gymnasium

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "AveragedPolicy",
    "Evaluation",
    "History",
    "Job",
    "LearnerSettings",
    "LearningRun",
    "Outcome",
    "PacPlan",
    "PeakError",
    "Policy",
    "Problem",
    "RolloutStep",
    "Simulation",
    "Solution",
    "StochasticPolicy",
    "TabularModel",
    "audit",
    "balanced_policy",
    "compile_model",
    "dt_order",
    "energy_harvesting",
    "evaluate",
    "evaluate_order",
    "greedy_policy",
    "infeasible_reason",
    "learn",
    "learn_many",
    "load_policy",
    "load_run",
    "machine_scheduling",
    "order_of",
    "order_rule",
    "pac_plan",
    "read_jobs",
    "resume",
    "rollout",
    "scheduling_example",
    "simulate",
    "solve",
    "solve_modified",
    "solve_relaxed",
    "sweep",
    "to_gymnasium",
    "uniform",
    "write_report",
]

#: Where each of them lives.
_HOMES = {
    name: module
    for module, names in {
        "peakrl.auditing": ("Audit", "audit"),
        "peakrl.compilation": ("compile_model",),
        "peakrl.environments.energy_harvesting": ("energy_harvesting",),
        "peakrl.environments.job_files": ("read_jobs",),
        "peakrl.environments.jobs": ("Job", "uniform"),
        "peakrl.environments.machine_scheduling": ("machine_scheduling", "scheduling_example", "order_of"),
        "peakrl.errors": ("PeakError",),
        "peakrl.evaluation": ("Evaluation", "RolloutStep", "Simulation", "evaluate", "rollout", "simulate"),
        "peakrl.learning.history": ("History",),
        "peakrl.learning.run": ("LearningRun", "learn"),
        "peakrl.learning.settings": ("LearnerSettings",),
        "peakrl.model": ("TabularModel",),
        "peakrl.planning": ("Solution", "solve", "solve_modified", "solve_relaxed"),
        "peakrl.policy": ("AveragedPolicy", "Policy", "StochasticPolicy"),
        "peakrl.policy_files": ("load_policy",),
        "peakrl.problem": ("Outcome", "Problem"),
        "peakrl.theory": ("PacPlan", "pac_plan"),
        "peakrl.environments.schedules": (
            "dt_order",
            "evaluate_order",
            "infeasible_reason",
            "order_rule",
        ),
        "peakrl.environments.transmission": (
            "balanced_policy",
            "greedy_policy",
        ),
        "peakrl.gym": ("to_gymnasium",),
        "peakrl.learning.checkpoint": (
            "load_run",
            "resume",
        ),
        "peakrl.learning.many": ("learn_many",),
        "peakrl.report.page": ("write_report",),
        "peakrl.sweeps.sweeping": ("sweep",),
    }.items()
    for name in names
}

if TYPE_CHECKING:
    from peakrl.auditing import Audit, audit
    from peakrl.compilation import compile_model
    from peakrl.environments.energy_harvesting import energy_harvesting
    from peakrl.environments.job_files import read_jobs
    from peakrl.environments.jobs import Job, uniform
    from peakrl.environments.machine_scheduling import machine_scheduling, order_of, scheduling_example
    from peakrl.environments.schedules import dt_order, evaluate_order, infeasible_reason, order_rule
    from peakrl.environments.transmission import balanced_policy, greedy_policy
    from peakrl.errors import PeakError
    from peakrl.evaluation import Evaluation, RolloutStep, Simulation, evaluate, rollout, simulate
    from peakrl.gym import to_gymnasium
    from peakrl.learning.checkpoint import load_run, resume
    from peakrl.learning.history import History
    from peakrl.learning.many import learn_many
    from peakrl.learning.run import LearningRun, learn
    from peakrl.learning.settings import LearnerSettings
    from peakrl.model import TabularModel
    from peakrl.planning import Solution, solve, solve_modified, solve_relaxed
    from peakrl.policy import AveragedPolicy, Policy, StochasticPolicy
    from peakrl.policy_files import load_policy
    from peakrl.problem import Outcome, Problem
    from peakrl.report.page import write_report
    from peakrl.sweeps.sweeping import sweep
    from peakrl.theory import PacPlan, pac_plan


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'peakrl' has no attribute {name!r}") from None
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


_register_with_gymnasium()
