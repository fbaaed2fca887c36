"""The best order of some twenty jobs with fixed times, without a table of states (`subset_orders`)."""

from __future__ import annotations

from collections.abc import Iterable

from peakrl.checks import check_choice
from peakrl.errors import ProblemError
from peakrl.problems.scheduling.baselines import (
    OBJECTIVES,
    InfeasibleSchedule,
    Schedule,
    evaluate_order,
    fixed_jobs,
    infeasible_reason,
)
from peakrl.problems.scheduling.jobs import Job, name_of
from peakrl.problems.scheduling.tables import job_table

#: Largest number of jobs, and of labels; every set of jobs has at least one label of 40 bytes.
MOST_JOBS, MOST_LABELS = 22, 50_000_000


def best_order(jobs: Iterable[Job], *, objective: str = "total_tardiness") -> Schedule:
    """Return the schedule of least objective among those that meet every deadline; processing times must be fixed.

    The same optimum as `solve(machine_scheduling(jobs, objective=...))`, for up to 22 jobs, also with release times.
    Raises `InfeasibleSchedule` if no order meets every deadline.
    """
    from peakrl.problems.scheduling.subset_orders import subset_labels

    named = fixed_jobs(jobs, "best_order")
    which = OBJECTIVES.index(check_choice(objective, "objective", OBJECTIVES, error=ProblemError))
    if len(named) > MOST_JOBS:
        raise ProblemError(f"jobs holds {len(named)}; best_order goes through every set of jobs, at most {MOST_JOBS}")
    start, _, _, before, last = subset_labels(job_table(named, which), MOST_LABELS)
    if start[0] < 0:
        raise ProblemError(
            f"jobs: their release times leave more than {MOST_LABELS:,} candidate orders; plan fewer jobs"
        )
    if start[-2] == start[-1]:
        raise InfeasibleSchedule(infeasible_reason(named) or "no order meets every deadline with these release times")
    # The cost falls along a front, so its last label is the cheapest.
    label, backwards = int(start[-1]) - 1, []
    while label > 0:
        backwards.append(name_of(named[last[label]]))
        label = int(before[label])
    return evaluate_order(named, tuple(reversed(backwards)))
