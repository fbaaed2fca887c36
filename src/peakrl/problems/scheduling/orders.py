"""Orders of jobs on one machine: their cost, and the classical rules that create them.

If jobs are done in an order, each as soon as it is released and its predecessor has ended, C_j is the completion time
of job j, and

    tardiness            T_j = max(0, C_j - d_j)
    objectives           max_j T_j,   sum_j T_j,   sum_j w_j min(p_j, T_j),   sum_j w_j C_j,   sum_j w_j T_j
    slack                D_j - C_j, below 0 if the deadline is missed

DT (Koulamas and Kyparisis, 2001) minimises the largest tardiness under deadlines. It works backwards: among the jobs
whose deadline allows them to be last of those that remain, the one with the largest due time is last; then the same for
the rest. If there is no such job, no order meets every deadline. It requires that all jobs are released at time 0;
with release times `solve` finds the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from peakrl.checks import check_seed
from peakrl.errors import ProblemError
from peakrl.problems.scheduling.jobs import Job, name_of, named_jobs, with_time
from peakrl.sampling import Words, seed_state
from peakrl.sampling import uniform as draw_uniform
from peakrl.schedule_labels import JobName

Order = tuple[JobName, ...]
OBJECTIVES = ("max_tardiness", "total_tardiness", "weighted_late_work", "weighted_completion", "weighted_tardiness")


def cost_growth(objective: str, weight: float, due: int, end: Any, duration: int, worst: Any) -> Any:
    """Return by how much an objective grows when a job ends at `end`; `worst` is the largest tardiness before.

    max (0, T - worst),   T,   w min(p, T),   w C   or   w T,   with C the end, T = max(0, C - d) and p the duration.
    """
    tardiness = np.maximum(0, end - due)
    if objective == "max_tardiness":
        return np.maximum(0, tardiness - worst)
    if objective == "total_tardiness":
        return tardiness
    if objective == "weighted_late_work":
        return weight * np.minimum(duration, tardiness)
    return weight * (end if objective == "weighted_completion" else tardiness)


class InfeasibleSchedule(ProblemError):
    """No order of the jobs meets every deadline."""


class Bar(NamedTuple):
    """One bar of a Gantt chart."""

    job: JobName
    start: int
    end: int
    due: int
    deadline: int

    @property
    def slack(self) -> int:
        """Time left before the deadline; below 0 if it is missed."""
        return self.deadline - self.end

    @property
    def tardiness(self) -> int:
        """Time after the due time."""
        return max(0, self.end - self.due)


@dataclass(frozen=True)
class Schedule:
    """An order of jobs and its cost."""

    order: Order
    bars: tuple[Bar, ...]
    max_tardiness: int
    total_tardiness: int
    weighted_late_work: float
    weighted_completion: float
    weighted_tardiness: float

    @property
    def completion(self) -> dict[JobName, int]:
        """{job: time at which it ends}, in order."""
        return {bar.job: bar.end for bar in self.bars}

    @property
    def slack(self) -> dict[JobName, int]:
        """{job: time left before its deadline}, in order."""
        return {bar.job: bar.slack for bar in self.bars}

    @property
    def violation(self) -> int:
        """Time by which deadlines are missed, summed over jobs."""
        return sum(max(0, -bar.slack) for bar in self.bars)

    @property
    def feasible(self) -> bool:
        """Is every deadline met?"""
        return self.violation == 0

    def objective(self, name: str) -> float:
        """Return one of the objectives by its name."""
        if name not in OBJECTIVES:
            raise ProblemError(f"objective {name!r} is unknown; there are {', '.join(OBJECTIVES)}")
        return float(getattr(self, name))


def gantt(jobs: Iterable[Job], order: Sequence[JobName]) -> tuple[Bar, ...]:
    """Return the bars of the jobs done in `order`, each as soon as it can be; processing times must be fixed."""
    by_name = _by_name(fixed_jobs(jobs, "an order"))
    _check_order(order, by_name)
    bars, time = [], 0
    for name in order:
        job = by_name[name]
        start = max(time, job.release)
        time = start + job.longest
        bars.append(Bar(name, start, time, job.due, job.deadline))
    return tuple(bars)


def evaluate_order(jobs: Iterable[Job], order: Sequence[JobName]) -> Schedule:
    """Return completion times, objectives and slack of the jobs done in `order`; processing times must be fixed."""
    named = named_jobs(jobs)
    by_name = _by_name(named)
    bars = gantt(named, order)
    tardiness = [bar.tardiness for bar in bars]
    late_work = sum(by_name[bar.job].weight * min(bar.end - bar.start, bar.tardiness) for bar in bars)
    completion = sum(by_name[bar.job].weight * bar.end for bar in bars)
    late = sum(by_name[bar.job].weight * bar.tardiness for bar in bars)
    return Schedule(tuple(order), bars, max(tardiness), sum(tardiness), late_work, completion, late)


# Rules ---------------------------------------------------------------------------------------------------------


def dt_order(jobs: Iterable[Job]) -> Order:
    """Return the order of least largest tardiness among those that meet every deadline (fixed times only).

    Raises `InfeasibleSchedule`, which names jobs that cannot all meet their deadlines, if no order does.
    """
    named = fixed_jobs(jobs, "DT")
    _all_there(named, "DT")
    reason = infeasible_reason(named)
    if reason is not None:
        raise InfeasibleSchedule(reason)
    return _backwards(named)[0]


def infeasible_reason(jobs: Iterable[Job]) -> str | None:
    """Return which jobs cannot all meet their deadlines, or None.

    With random times every job may take its longest time, so that deadlines can be met with certainty exactly if they
    can be met with the longest times. Release times are ignored: None means that without them every deadline can be
    met.
    """
    _, stuck = _backwards(named_jobs(jobs))
    if not stuck:
        return None
    total, last = sum(job.longest for job in stuck), max(stuck, key=lambda job: job.deadline)
    take = "take" if all(job.fixed for job in stuck) else "may take"
    return (
        f"no order meets every deadline: jobs {', '.join(str(job.name) for job in stuck)} {take} {total} time units "
        f"together, so one of them ends at {total} or later, and the latest of their deadlines is {last.deadline} "
        f"(job {last.name}, which would miss it by {total - last.deadline})"
    )


def dt_order_or_least_late(jobs: Iterable[Job]) -> Order:
    """Return the order of DT; if no job may be last, the one with the latest deadline is, and is late."""
    return _backwards(fixed_jobs(jobs, "DT"))[0]


def _backwards(jobs: Sequence[Job]) -> tuple[Order, tuple[Job, ...]]:
    """Return the order of DT, and the first set of jobs of which none could be last (empty: feasible)."""
    remaining, end = list(jobs), sum(job.longest for job in jobs)
    backwards: list[JobName] = []
    stuck: tuple[Job, ...] = ()
    while remaining:
        allowed = [job for job in remaining if job.deadline >= end]
        if not allowed:
            stuck = stuck or tuple(remaining)
            latest = max(job.deadline for job in remaining)
            allowed = [job for job in remaining if job.deadline == latest]
        # Ties go to the job that comes later in the instance, so that the order stays that of the instance.
        last = max(reversed(allowed), key=lambda job: job.due)
        backwards.append(name_of(last))
        remaining.remove(last)
        end -= last.longest
    return tuple(reversed(backwards)), stuck


def earliest_deadline_order(jobs: Iterable[Job]) -> Order:
    """Return the jobs by deadline (EDD in the paper): it meets every deadline if any order does."""
    return _sorted(jobs, lambda job: job.deadline)


def earliest_due_order(jobs: Iterable[Job]) -> Order:
    """Return the jobs by due time: the least largest tardiness without deadlines."""
    return _sorted(jobs, lambda job: job.due)


def shortest_processing_order(jobs: Iterable[Job]) -> Order:
    """Return the jobs by (expected) processing time."""
    return _sorted(jobs, lambda job: job.mean)


def order_rule(order: Sequence[JobName]) -> Callable[[int, Any], Hashable]:
    """Return the rule that does the first job of `order` not yet done, for `Policy.from_rule`."""
    fixed = tuple(order)

    def rule(step: int, state: Any) -> Hashable:
        for name in fixed:
            if name not in state.done:
                return name
        raise ProblemError(f"order {fixed} names no job that is left to do in {state!r} at step {step}")

    return rule


# Random times ----------------------------------------------------------------------------------------------------


def draw_jobs(jobs: Iterable[Job], seed: int = 0) -> tuple[Job, ...]:
    """Return the jobs with their processing times drawn; equal seeds give equal times."""
    state = seed_state(check_seed(seed))
    return tuple(job if job.fixed else with_time(job, _draw_time(job, state)) for job in named_jobs(jobs))


def _draw_time(job: Job, state: Words) -> int:
    left = draw_uniform(state)
    for probability, time in job.pairs:
        left -= probability
        if left < 0.0:
            return time
    return job.longest


# Checks ----------------------------------------------------------------------------------------------------------


def _by_name(jobs: Iterable[Job]) -> dict[JobName, Job]:
    return {name_of(job): job for job in jobs}


def fixed_jobs(jobs: Iterable[Job], what: str) -> tuple[Job, ...]:
    """Return the named jobs, or raise if a processing time is random."""
    named = named_jobs(jobs)
    for job in named:
        if not job.fixed:
            raise ProblemError(f"job {job.name!r} has a random processing time; {what} is defined for fixed times only")
    return named


def _all_there(jobs: Iterable[Job], what: str) -> None:
    """Raise if a job is released after time 0."""
    for job in jobs:
        if job.release > 0:
            raise ProblemError(
                f"job {job.name!r} is released at {job.release}; {what} requires that all jobs are released at time 0 "
                "(`solve` finds the best order with release times)"
            )


def _check_order(order: Sequence[JobName], jobs: Mapping[JobName, Job]) -> None:
    if len(order) != len(jobs) or set(order) != set(jobs):
        raise ProblemError(f"order is {tuple(order)}; it must name each job once: {', '.join(map(repr, jobs))}")


def _sorted(jobs: Iterable[Job], key: Callable[[Job], float]) -> Order:
    """Sort by a key, ties in the order of the instance."""
    return tuple(name_of(job) for job in sorted(named_jobs(jobs), key=key))
