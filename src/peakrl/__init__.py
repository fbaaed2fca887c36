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

from peakrl import problems as problems  # registers the kinds of problems
from peakrl.gym.registration import register_with_gymnasium as _register_with_gymnasium
from peakrl.version import __version__ as __version__

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
    "audit_slack",
    "certify",
    "compile_model",
    "energy_harvesting",
    "evaluate",
    "from_gymnasium",
    "learn",
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
    "solve_cmdp",
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
        "peakrl.certificates.certificate": ("Certificate",),
        "peakrl.certificates.verify": ("verify",),
        "peakrl.certificates.certify": ("certify",),
        "peakrl.array_problem": ("ArrayProblem",),
        "peakrl.compile": ("compile_model",),
        "peakrl.problems.harvesting.problem": ("energy_harvesting",),
        "peakrl.specs.spec": ("ProblemSpec",),
        "peakrl.problems.scheduling.jobs": ("Job",),
        "peakrl.problems.scheduling.problem": ("machine_scheduling", "scheduling_example"),
        "peakrl.errors": ("PeakError",),
        "peakrl.evaluation": ("Evaluation", "RolloutStep", "Simulation", "evaluate", "rollout", "simulate"),
        "peakrl.training.history": ("History",),
        "peakrl.learners.base": ("ProofHistory",),
        "peakrl.training.learn": ("learn", "load_run", "resume"),
        "peakrl.training.trainer": ("LearningRun",),
        "peakrl.learners.assumptions.knowledge": ("Knowledge",),
        "peakrl.learners.custom": ("Learner",),
        "peakrl.tabular": ("TabularModel",),
        "peakrl.planning": ("Solution", "solve", "solve_cmdp"),
        "peakrl.policy.mixture": ("AveragedPolicy",),
        "peakrl.policy.tables": ("Policy", "StochasticPolicy"),
        "peakrl.policy.files": ("load_policy",),
        "peakrl.model_file": ("load_model",),
        "peakrl.problem": ("Outcome", "Problem"),
        "peakrl.safety.safe_set": ("SafeSet", "load_safe_set", "safe_set"),
        "peakrl.safety.shield": ("shield",),
        "peakrl.theory": ("Audit", "PacPlan", "audit_slack", "pac_plan", "solve_modified", "solve_relaxed"),
        "peakrl.gym.export": ("to_gymnasium",),
        "peakrl.gym.transition_table": ("from_gymnasium",),
        "peakrl.training.many": ("learn_many",),
        "peakrl.report.page": ("write_report",),
        "peakrl.sweeps.grid": ("sweep",),
    }.items()
    for name in names
}


def _namespaces() -> Mapping[str, str]:
    """The learners, and what belongs to one problem: `peakrl.harvesting.greedy_policy`."""
    return {"learners": "peakrl.learners", **{name: f"peakrl.problems.{name}" for name in problems.NAMESPACES}}


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
    from peakrl.array_problem import ArrayProblem
    from peakrl.certificates.certificate import Certificate
    from peakrl.certificates.certify import certify
    from peakrl.certificates.verify import verify
    from peakrl.compile import compile_model
    from peakrl.errors import PeakError
    from peakrl.evaluation import Evaluation, RolloutStep, Simulation, evaluate, rollout, simulate
    from peakrl.gym.export import to_gymnasium
    from peakrl.gym.transition_table import from_gymnasium
    from peakrl.learners.assumptions.knowledge import Knowledge
    from peakrl.learners.base import ProofHistory
    from peakrl.learners.custom import Learner
    from peakrl.model_file import load_model
    from peakrl.planning import Solution, solve, solve_cmdp
    from peakrl.policy.files import load_policy
    from peakrl.policy.mixture import AveragedPolicy
    from peakrl.policy.tables import Policy, StochasticPolicy
    from peakrl.problem import Outcome, Problem
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
    from peakrl.report.page import write_report
    from peakrl.safety.safe_set import SafeSet, load_safe_set, safe_set
    from peakrl.safety.shield import shield
    from peakrl.specs.spec import ProblemSpec
    from peakrl.sweeps.grid import sweep
    from peakrl.tabular import TabularModel
    from peakrl.theory import Audit, PacPlan, audit_slack, pac_plan, solve_modified, solve_relaxed
    from peakrl.training.history import History
    from peakrl.training.learn import learn, load_run, resume
    from peakrl.training.many import learn_many
    from peakrl.training.trainer import LearningRun


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
    return sorted([*__all__, *_namespaces(), "problems", "__version__"])


_register_with_gymnasium()
