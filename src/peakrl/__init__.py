"""peakrl: decision problems whose constraints must hold at every step, with probability 1.

Learn policies from experience, solve known models exactly, and certify either. Start with::

    import peakrl

    model = peakrl.compile_model(peakrl.energy_harvesting(peak_power=8))
    best = peakrl.solve(model)
    run = peakrl.learn(model, episodes=50_000)
    print(peakrl.evaluate(model, run.policy), best.value)

Names are imported when they are first used, so that `import peakrl` is instant.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from peakrl.envs.registration import register_with_gymnasium as _register_with_gymnasium

__version__ = "0.2.0"

__all__ = [
    "ArrayProblem",
    "Audit",
    "AveragedPolicy",
    "Certificate",
    "Evaluation",
    "History",
    "Job",
    "Knowledge",
    "Learner",
    "LearnerSettings",
    "LearningRun",
    "Outcome",
    "PacPlan",
    "PeakError",
    "Policy",
    "Problem",
    "ProblemSpec",
    "ProofHistory",
    "RolloutStep",
    "SafeSet",
    "Simulation",
    "Solution",
    "StochasticPolicy",
    "TabularModel",
    "audit",
    "certify",
    "compile_model",
    "energy_harvesting",
    "evaluate",
    "from_gymnasium",
    "learn",
    "learn_in_stages",
    "learn_many",
    "load_model",
    "load_policy",
    "load_run",
    "load_safe_set",
    "machine_scheduling",
    "pac_plan",
    "resume",
    "rollout",
    "safe_set",
    "scheduling_example",
    "shield",
    "simulate",
    "solve",
    "solve_budget",
    "solve_modified",
    "solve_relaxed",
    "sweep",
    "to_gymnasium",
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
        "peakrl.model.array_problem": ("ArrayProblem",),
        "peakrl.model.explore": ("compile_model",),
        "peakrl.problems.harvesting.problem": ("energy_harvesting",),
        "peakrl.problems.spec": ("ProblemSpec",),
        "peakrl.problems.scheduling.jobs": ("Job",),
        "peakrl.problems.scheduling.problem": ("machine_scheduling", "scheduling_example"),
        "peakrl.errors": ("PeakError",),
        "peakrl.evaluation": ("Evaluation", "RolloutStep", "Simulation", "evaluate", "rollout", "simulate"),
        "peakrl.learning.history": ("History", "ProofHistory"),
        "peakrl.learning.run": ("LearningRun", "learn", "learn_in_stages"),
        "peakrl.learning.knowledge": ("Knowledge",),
        "peakrl.learning.own": ("Learner",),
        "peakrl.learning.settings": ("LearnerSettings",),
        "peakrl.model.tabular": ("TabularModel",),
        "peakrl.planning": ("Solution", "solve", "solve_budget", "solve_modified", "solve_relaxed"),
        "peakrl.policy.averaged": ("AveragedPolicy",),
        "peakrl.policy.tables": ("Policy", "StochasticPolicy"),
        "peakrl.policy.files": ("load_policy",),
        "peakrl.model.files": ("load_model",),
        "peakrl.model.problem": ("Outcome", "Problem"),
        "peakrl.safety.safe_set": ("SafeSet", "load_safe_set", "safe_set"),
        "peakrl.safety.shield": ("shield",),
        "peakrl.theory": ("PacPlan", "pac_plan"),
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


def _namespaces() -> Mapping[str, str]:
    """The learners, and what belongs to one problem: `peakrl.harvesting.greedy_policy`."""
    from peakrl.problems.registry import namespaces

    return {"learners": "peakrl.learners", **namespaces()}


#: What lay at the top before it had a namespace, which it can still be imported from in this release.
_ALIASES = {
    name: namespace
    for namespace, names in {
        "harvesting": ("balanced_policy", "greedy_policy"),
        "scheduling": (
            "dt_order", "evaluate_order", "infeasible_reason", "order_of", "order_rule", "read_jobs", "uniform",
        ),
    }.items()
    for name in names
}  # fmt: skip

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
    from peakrl.learning.history import History, ProofHistory
    from peakrl.learning.knowledge import Knowledge
    from peakrl.learning.many import learn_many
    from peakrl.learning.own import Learner
    from peakrl.learning.run import LearningRun, learn, learn_in_stages
    from peakrl.learning.settings import LearnerSettings
    from peakrl.model.array_problem import ArrayProblem
    from peakrl.model.explore import compile_model
    from peakrl.model.files import load_model
    from peakrl.model.problem import Outcome, Problem
    from peakrl.model.tabular import TabularModel
    from peakrl.planning import Solution, solve, solve_budget, solve_modified, solve_relaxed
    from peakrl.policy.averaged import AveragedPolicy
    from peakrl.policy.files import load_policy
    from peakrl.policy.tables import Policy, StochasticPolicy
    from peakrl.problems import harvesting as harvesting
    from peakrl.problems import scheduling as scheduling
    from peakrl.problems.harvesting import balanced_policy as balanced_policy
    from peakrl.problems.harvesting import greedy_policy as greedy_policy
    from peakrl.problems.harvesting.problem import energy_harvesting
    from peakrl.problems.scheduling import dt_order as dt_order
    from peakrl.problems.scheduling import evaluate_order as evaluate_order
    from peakrl.problems.scheduling import infeasible_reason as infeasible_reason
    from peakrl.problems.scheduling import order_of as order_of
    from peakrl.problems.scheduling import order_rule as order_rule
    from peakrl.problems.scheduling import read_jobs as read_jobs
    from peakrl.problems.scheduling import uniform as uniform
    from peakrl.problems.scheduling.jobs import Job
    from peakrl.problems.scheduling.problem import machine_scheduling, scheduling_example
    from peakrl.problems.spec import ProblemSpec
    from peakrl.report.page import write_report
    from peakrl.safety.safe_set import SafeSet, load_safe_set, safe_set
    from peakrl.safety.shield import shield
    from peakrl.sweeps.sweeping import sweep
    from peakrl.theory import PacPlan, pac_plan


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value: Any = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _ALIASES:
        value = getattr(__getattr__(_ALIASES[name]), name)
    elif not name.startswith("_") and name in _namespaces():
        value = importlib.import_module(_namespaces()[name])
    else:
        raise AttributeError(f"module 'peakrl' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_namespaces(), "__version__"])


_register_with_gymnasium()
