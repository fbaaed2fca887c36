"""peakrl: decision problems whose constraints must hold at every step, with probability 1.

Learn policies from experience, solve known models exactly, and certify either. Start with::

    import peakrl

    model = peakrl.compile_model(peakrl.problems.energy_harvesting(peak_power=8))
    best = peakrl.solve(model)
    run = peakrl.learn(model, episodes=50_000)
    print(peakrl.evaluate(model, run.policy), best.value)

Names are imported when they are first used, so that `import peakrl` is instant. Types of results that are not listed
here are in the packages `peakrl.evaluation`, `peakrl.training`, `peakrl.policy`, `peakrl.specs` and `peakrl.theory`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peakrl import problems as problems  # registers the kinds of problems
from peakrl import wrappers as _wrappers  # noqa: F401  registers [[budget]] and [[monitor]]
from peakrl.gym.registration import register_with_gymnasium as _register_with_gymnasium
from peakrl.version import __version__ as __version__

#: Modules that are public names themselves: `peakrl.learners.SafeQ`.
_NAMESPACES = ("learners", "problems", "theory")

#: The module of every other public name.
_HOMES = {
    name: f"peakrl.{module}"
    for module, names in {
        "array_problem": ("ArrayProblem",),
        "certificates.certificate": ("Certificate",),
        "certificates.certify": ("certify",),
        "certificates.verify": ("verify",),
        "compile": ("compile_model",),
        "continuous": ("ContinuousProblem",),
        "errors": ("PeakError",),
        "evaluation": ("evaluate", "rollout", "simulate"),
        "formats.prism": ("read_prism",),
        "formats.umb": ("read_umb", "write_umb"),
        "gym.constrained_env": ("ConstrainedEnv",),
        "gym.export": ("to_gymnasium",),
        "gym.transition_table": ("from_gymnasium",),
        "learners.assumptions": ("Assumptions",),
        "learners.custom": ("Learner",),
        "planning": ("Solution", "solve", "solve_cmdp"),
        "policy.tables": ("Policy",),
        "problem": ("Outcome", "Problem"),
        "report.graph": ("show",),
        "report.page": ("write_report",),
        "safety.safe_set": ("SafeSet", "safe_set"),
        "safety.shield": ("shield",),
        "sweeps.grid": ("sweep",),
        "tabular": ("TabularModel",),
        "training.learn": ("learn", "resume"),
        "training.load": ("load",),
        "training.logs": ("Logs",),
        "training.many": ("learn_many",),
        "training.run": ("LearningRun",),
        "wrappers.budgets": ("Budget", "with_budget"),
        "wrappers.discretize": ("Discretize",),
        "wrappers.monitors": ("Monitor", "with_monitor"),
        "wrappers.peak_reward": ("PeakReward",),
    }.items()
    for name in names
}

__all__ = sorted([*_HOMES, *_NAMESPACES])

if TYPE_CHECKING:
    from peakrl import learners as learners
    from peakrl import theory as theory
    from peakrl.array_problem import ArrayProblem as ArrayProblem
    from peakrl.certificates.certificate import Certificate as Certificate
    from peakrl.certificates.certify import certify as certify
    from peakrl.certificates.verify import verify as verify
    from peakrl.compile import compile_model as compile_model
    from peakrl.continuous import ContinuousProblem as ContinuousProblem
    from peakrl.errors import PeakError as PeakError
    from peakrl.evaluation import evaluate as evaluate
    from peakrl.evaluation import rollout as rollout
    from peakrl.evaluation import simulate as simulate
    from peakrl.formats.prism import read_prism as read_prism
    from peakrl.formats.umb import read_umb as read_umb
    from peakrl.formats.umb import write_umb as write_umb
    from peakrl.gym.constrained_env import ConstrainedEnv as ConstrainedEnv
    from peakrl.gym.export import to_gymnasium as to_gymnasium
    from peakrl.gym.transition_table import from_gymnasium as from_gymnasium
    from peakrl.learners.assumptions import Assumptions as Assumptions
    from peakrl.learners.custom import Learner as Learner
    from peakrl.planning import Solution as Solution
    from peakrl.planning import solve as solve
    from peakrl.planning import solve_cmdp as solve_cmdp
    from peakrl.policy.tables import Policy as Policy
    from peakrl.problem import Outcome as Outcome
    from peakrl.problem import Problem as Problem
    from peakrl.report.graph import show as show
    from peakrl.report.page import write_report as write_report
    from peakrl.safety.safe_set import SafeSet as SafeSet
    from peakrl.safety.safe_set import safe_set as safe_set
    from peakrl.safety.shield import shield as shield
    from peakrl.sweeps.grid import sweep as sweep
    from peakrl.tabular import TabularModel as TabularModel
    from peakrl.training.learn import learn as learn
    from peakrl.training.learn import resume as resume
    from peakrl.training.load import load as load
    from peakrl.training.logs import Logs as Logs
    from peakrl.training.many import learn_many as learn_many
    from peakrl.training.run import LearningRun as LearningRun
    from peakrl.wrappers.budgets import Budget as Budget
    from peakrl.wrappers.budgets import with_budget as with_budget
    from peakrl.wrappers.discretize import Discretize as Discretize
    from peakrl.wrappers.monitors import Monitor as Monitor
    from peakrl.wrappers.monitors import with_monitor as with_monitor
    from peakrl.wrappers.peak_reward import PeakReward as PeakReward


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value: Any = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _NAMESPACES:
        value = importlib.import_module(f"peakrl.{name}")
    else:
        raise AttributeError(f"module 'peakrl' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


_register_with_gymnasium()
