"""`peakrl.problems.scheduling`: jobs on one machine with due times and deadlines, dispatching rules, job files."""

from __future__ import annotations

from peakrl.problems.scheduling.jobs import Job, read_jobs, uniform, with_time
from peakrl.problems.scheduling.orders import (
    InfeasibleSchedule,
    Schedule,
    draw_jobs,
    dt_order,
    dt_order_or_least_late,
    earliest_deadline_order,
    earliest_due_order,
    evaluate_order,
    gantt,
    infeasible_reason,
    order_rule,
    shortest_processing_order,
)
from peakrl.problems.scheduling.problem import (
    MachineScheduling,
    machine_scheduling,
    order_of,
    scheduling_example,
)

__all__ = [
    "InfeasibleSchedule", "Job", "MachineScheduling", "Schedule", "draw_jobs", "dt_order",
    "dt_order_or_least_late", "earliest_deadline_order", "earliest_due_order", "evaluate_order", "gantt",
    "infeasible_reason", "machine_scheduling", "order_of", "order_rule", "read_jobs", "scheduling_example",
    "shortest_processing_order", "uniform", "with_time",
]  # fmt: skip
