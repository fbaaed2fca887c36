"""Schedules on the page: the learned order beside DT's, for runs that tell which jobs they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.errors import PeakError
from peakrl.model.explore import as_model
from peakrl.model.schedule_states import ScheduleState, ScheduleStates
from peakrl.report.blocks import Block, Drawn, Text

if TYPE_CHECKING:
    from peakrl.learning.run import LearningRun
    from peakrl.model.tabular import TabularModel
    from peakrl.problems.scheduling.problem import MachineScheduling

#: More bars than these cannot be read.
MOST_JOBS = 60


def is_schedule(model: TabularModel) -> bool:
    """Is it the model of a scheduling problem?"""
    return isinstance(model.state_labels, ScheduleStates) or isinstance(model.state_labels[0], ScheduleState)


def schedule_blocks(run: LearningRun, place: str) -> list[Block]:
    """Return the Gantt charts of the learned order and of DT's; nothing where the problem is no schedule."""
    from peakrl.problems.scheduling.baselines import dt_order_or_least_late, evaluate_order
    from peakrl.problems.scheduling.problem import order_of

    model = as_model(run.model)
    if not is_schedule(model):
        return []
    if not model.deterministic:
        return [
            Text("Processing times are random, so the policy has no single order: the explorer shows what it does.")
        ]
    if model.horizon > MOST_JOBS:
        return [Text(f"{model.horizon} jobs are too many for a chart on a page.")]
    problem = problem_of(model)
    if problem is None:
        return [Text("The run does not tell its jobs, so there is no chart of the order.")]
    orders = {"learned": order_of(run.policy), "DT": dt_order_or_least_late(problem.jobs)}
    blocks: list[Block] = []
    for name, order in orders.items():
        schedule = evaluate_order(problem.jobs, order)
        bars = [
            {"job": str(bar.job), "start": bar.start, "end": bar.end, "deadline": bar.deadline, "due": bar.due}
            for bar in schedule.bars
        ]
        words = {"learned": "Learned order", "DT": "DT's order"}[name]
        cost = f"{problem.objective.replace('_', ' ').capitalize()} {schedule.objective(problem.objective):g}"
        note = f"{' → '.join(map(str, order))}. {cost}, deadlines missed by {schedule.violation} in total."
        blocks.append(Drawn(f"{place}-gantt-{name.lower()}", words, "gantt", {"bars": bars}, note))
    return blocks


def problem_of(model: TabularModel) -> MachineScheduling | None:
    """Return the problem that a model says it was made from, where it is one of jobs and the model's own."""
    from peakrl.problems.scheduling.problem import MachineScheduling
    from peakrl.problems.spec import ProblemSpec

    told = model.spec or {}
    # A file may say anything: nothing but jobs that it lists itself is built, no code and no further file.
    if told.get("kind") not in ("machine_scheduling", "scheduling_example") or isinstance(told.get("jobs"), str):
        return None
    try:
        problem = ProblemSpec.from_dict(told).build()
    except PeakError:
        return None
    if not isinstance(problem, MachineScheduling) or [job.name for job in problem.jobs] != list(model.action_labels):
        return None
    return problem
