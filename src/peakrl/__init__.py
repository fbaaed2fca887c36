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

from peakrl.envs.registration import register_with_gymnasium as _register_with_gymnasium

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "AveragedPolicy",
    "Certificate",
    "Evaluation",
    "History",
    "Job",
    "Knowledge",
    "LearnerSettings",
    "LearningRun",
    "Outcome",
    "PacPlan",
    "PeakError",
    "Policy",
    "Problem",
    "ProblemSpec",
    "RolloutStep",
    "SafeSet",
    "Simulation",
    "Solution",
    "StochasticPolicy",
    "TabularModel",
    "audit",
    "balanced_policy",
    "certify",
    "compile_model",
    "dt_order",
    "energy_harvesting",
    "evaluate",
    "evaluate_order",
    "from_gymnasium",
    "greedy_policy",
    "infeasible_reason",
    "learn",
    "learn_many",
    "load_policy",
    "load_run",
    "load_safe_set",
    "machine_scheduling",
    "order_of",
    "order_rule",
    "pac_plan",
    "read_jobs",
    "resume",
    "rollout",
    "safe_set",
    "scheduling_example",
    "shield",
    "simulate",
    "solve",
    "solve_modified",
    "solve_relaxed",
    "sweep",
    "to_gymnasium",
    "uniform",
    "verify",
    "write_report",
]

#: Where each of them lives.
_HOMES = {
    name: module
    for module, names in {
        "peakrl.auditing": ("Audit", "audit"),
        "peakrl.certificates": ("Certificate", "verify"),
        "peakrl.certifying": ("certify",),
        "peakrl.model.explore": ("compile_model",),
        "peakrl.problems.harvesting.problem": ("energy_harvesting",),
        "peakrl.problems.spec": ("ProblemSpec",),
        "peakrl.problems.scheduling.job_files": ("read_jobs",),
        "peakrl.problems.scheduling.jobs": ("Job", "uniform"),
        "peakrl.problems.scheduling.problem": ("machine_scheduling", "scheduling_example", "order_of"),
        "peakrl.errors": ("PeakError",),
        "peakrl.evaluation": ("Evaluation", "RolloutStep", "Simulation", "evaluate", "rollout", "simulate"),
        "peakrl.learning.history": ("History",),
        "peakrl.learning.run": ("LearningRun", "learn"),
        "peakrl.learning.knowledge": ("Knowledge",),
        "peakrl.learning.settings": ("LearnerSettings",),
        "peakrl.model.tabular": ("TabularModel",),
        "peakrl.planning": ("Solution", "solve", "solve_modified", "solve_relaxed"),
        "peakrl.policy.tables": ("AveragedPolicy", "Policy", "StochasticPolicy"),
        "peakrl.policy.files": ("load_policy",),
        "peakrl.model.problem": ("Outcome", "Problem"),
        "peakrl.safety.safe_set": ("SafeSet", "load_safe_set", "safe_set"),
        "peakrl.safety.shield": ("shield",),
        "peakrl.theory": ("PacPlan", "pac_plan"),
        "peakrl.problems.scheduling.baselines": (
            "dt_order",
            "evaluate_order",
            "infeasible_reason",
            "order_rule",
        ),
        "peakrl.problems.harvesting.baselines": (
            "balanced_policy",
            "greedy_policy",
        ),
        "peakrl.envs": ("to_gymnasium",),
        "peakrl.envs.reading": ("from_gymnasium",),
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
    from peakrl import learners as learners
    from peakrl.auditing import Audit, audit
    from peakrl.certificates import Certificate, verify
    from peakrl.certifying import certify
    from peakrl.envs import to_gymnasium
    from peakrl.envs.reading import from_gymnasium
    from peakrl.errors import PeakError
    from peakrl.evaluation import Evaluation, RolloutStep, Simulation, evaluate, rollout, simulate
    from peakrl.learning.checkpoint import load_run, resume
    from peakrl.learning.history import History
    from peakrl.learning.knowledge import Knowledge
    from peakrl.learning.many import learn_many
    from peakrl.learning.run import LearningRun, learn
    from peakrl.learning.settings import LearnerSettings
    from peakrl.model.explore import compile_model
    from peakrl.model.problem import Outcome, Problem
    from peakrl.model.tabular import TabularModel
    from peakrl.planning import Solution, solve, solve_modified, solve_relaxed
    from peakrl.policy.files import load_policy
    from peakrl.policy.tables import AveragedPolicy, Policy, StochasticPolicy
    from peakrl.problems.harvesting.baselines import balanced_policy, greedy_policy
    from peakrl.problems.harvesting.problem import energy_harvesting
    from peakrl.problems.scheduling.baselines import dt_order, evaluate_order, infeasible_reason, order_rule
    from peakrl.problems.scheduling.job_files import read_jobs
    from peakrl.problems.scheduling.jobs import Job, uniform
    from peakrl.problems.scheduling.problem import machine_scheduling, order_of, scheduling_example
    from peakrl.problems.spec import ProblemSpec
    from peakrl.report.page import write_report
    from peakrl.safety.safe_set import SafeSet, load_safe_set, safe_set
    from peakrl.safety.shield import shield
    from peakrl.sweeps.sweeping import sweep
    from peakrl.theory import PacPlan, pac_plan


def __getattr__(name: str) -> Any:
    if name == "learners":
        return importlib.import_module("peakrl.learners")
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'peakrl' has no attribute {name!r}") from None
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


_register_with_gymnasium()
