"""Schedules on the page: the learned order beside DT's.

A run file holds the model, not the jobs, but the jobs can be read off it. In the first state the constraint of job j
is D_j - p_j; after job i it is D_j - p_i - p_j; and where job j ends at C_j = D_j - f and is charged a tardiness T,
d_j = C_j - T. A job whose tardiness is never charged has a due time that does not matter: it is told as none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from peakrl.model.explore import as_model
from peakrl.model.schedule_states import ScheduleState, ScheduleStates
from peakrl.report.blocks import Block, Drawn, Text

if TYPE_CHECKING:
    from peakrl.learning.run import LearningRun
    from peakrl.model.tabular import TabularModel
    from peakrl.problems.scheduling.jobs import Job

#: More bars than these cannot be read.
MOST_JOBS = 60


class Known(NamedTuple):
    """A job as a model tells it."""

    name: Any
    processing: int
    #: None where it makes no difference to the objective.
    due: int | None
    deadline: int


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
    known = jobs_of(model)
    if known is None:
        return [Text("The jobs cannot be read off this model, so there is no chart of the order.")]
    jobs = [as_job(job, known) for job in known]
    orders = {"learned": order_of(run.policy), "DT": dt_order_or_least_late(jobs)}
    unknown = [job.name for job in known if job.due is None]
    blocks: list[Block] = []
    for name, order in orders.items():
        schedule = evaluate_order(jobs, order)
        bars = [
            {"job": str(bar.job), "start": bar.start, "end": bar.end, "deadline": bar.deadline,
             "due": None if bar.job in unknown else bar.due}
            for bar in schedule.bars
        ]  # fmt: skip
        words = {"learned": "Learned order", "DT": "DT's order"}[name]
        note = f"{' → '.join(map(str, order))}. Largest tardiness {schedule.max_tardiness}, "
        note += f"deadlines missed by {schedule.violation} in total."
        if unknown:
            note += " No due time is drawn where it makes no difference."
        blocks.append(Drawn(f"{place}-gantt-{name.lower()}", words, "gantt", {"bars": bars}, note))
    return blocks


def as_job(job: Known, known: Sequence[Known]) -> Job:
    """Return a job for DT; a due time that never matters is the end of all work."""
    from peakrl.problems.scheduling.jobs import Job

    total = sum(one.processing for one in known)
    return Job(job.processing, total if job.due is None else job.due, job.deadline, name=job.name)


def jobs_of(model: TabularModel) -> list[Known] | None:
    """Read the jobs with fixed times off a model; None where it does not tell, as with weighted late work."""
    start = int(model.first_slot[0])
    names = [model.action_of_row(row) for row in model.rows_of_slot(start)]
    first = {name: margin(model, start, name) for name in names}
    if len(names) < 2 or "weighted" in model.name:
        return None
    processing = {name: round(time_of(model, start, name, names, first)) for name in names}
    deadline = {name: round(first[name]) + processing[name] for name in names}
    due = due_times(model, deadline)
    return [Known(name, processing[name], due.get(name), deadline[name]) for name in names]


def time_of(
    model: TabularModel, start: int, name: Hashable, names: Sequence[Hashable], first: dict[Hashable, float]
) -> float:
    """Return p of a job: by how much another job's constraint shrinks when it is done before."""
    other = next(one for one in names if one != name)
    row = next(row for row in model.rows_of_slot(start) if model.action_of_row(row) == name)
    after = int(model.layout.outcome_next[model.layout.outcome_start[model.layout.row_distribution[row]]])
    return first[other] - margin(model, after, other)


def margin(model: TabularModel, slot: int, action: Hashable) -> float:
    """Return the constraint's value of an action in a stored state."""
    row = next(row for row in model.rows_of_slot(slot) if model.action_of_row(row) == action)
    return float(model.row_margin[row, 0])


def due_times(model: TabularModel, deadline: dict[Any, int]) -> dict[Hashable, int]:
    """Return the due time of every job that is charged a tardiness in some state."""
    due: dict[Hashable, int] = {}
    for slot in range(model.num_slots):
        rows = model.rows_of_slot(slot)
        if not rows:
            continue
        state: Any = model.state_of_slot(slot)
        for row in rows:
            name = model.action_of_row(row)
            if name not in due and model.row_reward[row] < 0:
                tardiness = (state[2] or 0) - float(model.row_reward[row])
                due[name] = round(deadline[name] - float(model.row_margin[row, 0]) - tardiness)
        if len(due) == len(deadline):
            break
    return due
