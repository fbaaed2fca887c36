"""The order that a policy does its jobs in beside DT's, for runs that tell which jobs they are about."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from peakrl.errors import PeakError
from peakrl.policy.tables import Policy
from peakrl.problems.scheduling.baselines import Schedule, dt_order_or_least_late, evaluate_order
from peakrl.problems.scheduling.problem import MachineScheduling, order_of
from peakrl.schedule_labels import ScheduleState, ScheduleStates
from peakrl.specs.spec import ProblemSpec
from peakrl.tabular import TabularModel


class Ordered(NamedTuple):
    """An order of jobs and what it comes to."""

    #: Who made it: "learned" or "DT".
    maker: str
    order: tuple[Hashable, ...]
    schedule: Schedule
    #: Its name, and what it comes to.
    objective: str
    cost: float


def is_schedule(model: TabularModel) -> bool:
    """Is it the model of a scheduling problem?"""
    return isinstance(model.state_labels, ScheduleStates) or isinstance(model.state_labels[0], ScheduleState)


def ordered(model: TabularModel, policy: Policy) -> list[Ordered]:
    """Return the policy's order and DT's; none where times are random or the model does not tell its jobs."""
    problem = problem_of(model) if is_schedule(model) and model.deterministic else None
    if problem is None:
        return []
    found, orders = [], [("learned", order_of(policy))]
    if not any(job.release for job in problem.jobs):  # DT is for jobs that are all there at time 0
        orders.append(("DT", dt_order_or_least_late(problem.jobs)))
    for maker, order in orders:
        schedule = evaluate_order(problem.jobs, order)
        cost = float(schedule.objective(problem.objective))
        found.append(Ordered(maker, tuple(order), schedule, problem.objective, cost))
    return found


def problem_of(model: TabularModel) -> MachineScheduling | None:
    """Return the problem that a model says it was made from, where it is one of jobs and the model's own."""
    # A file may say anything: nothing is built that needs code or a further file.
    try:
        spec = None if model.spec is None else ProblemSpec.from_dict(model.spec)
        problem = spec.build() if spec is not None and spec.self_contained else None
    except PeakError:
        return None
    if not isinstance(problem, MachineScheduling) or problem.fixed_times != model.deterministic:
        return None
    return problem if [job.name for job in problem.jobs] == list(model.action_labels) else None
