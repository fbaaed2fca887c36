"""Single-machine scheduling with deadlines (the paper's second experiment).

At step h, h jobs are done. In state s = (done, time t, largest tardiness so far m), job a, which takes p, has

    C   = max(t, r_a) + p                           its end; T = max(0, C - d_a) is its tardiness
    f   = D_a - C >= 0                              its deadline is met
    r   = -max(0, T - m)                            max tardiness;   m' = max(m, T)
    r   = -T                                        total tardiness
    r   = -w_a min(p, T)                            weighted late work: the part of p done after the due time
    r   = -w_a C   or   -w_a T                      weighted completion, weighted tardiness

so that the rewards of an episode sum to minus the objective. A state holds only what finished jobs do not determine:
t unless times are fixed and no job is released later, m unless the objective is a sum over jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from peakrl.compile import as_model
from peakrl.errors import PolicyError, ProblemError
from peakrl.policy.tables import Policy
from peakrl.problem import Outcome, Problem
from peakrl.problems.scheduling.jobs import Job, as_table, latest_end, name_of, named_jobs, uniform, with_jobs
from peakrl.problems.scheduling.orders import OBJECTIVES, Order, cost_growth, infeasible_reason
from peakrl.problems.scheduling.tables import ScheduleArrays
from peakrl.schedule_labels import JobName, ScheduleState
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember
from peakrl.tabular import TabularModel


@dataclass(frozen=True)
class MachineScheduling(Problem):
    """Jobs on one machine, one after another; every deadline must be met. Created by `machine_scheduling`."""

    jobs: tuple[Job, ...]
    objective: str = "max_tardiness"
    name: str = "machine scheduling"
    horizon: int = field(init=False, repr=False, compare=False)
    reward_range: tuple[float, float] = field(init=False, repr=False, compare=False)
    constraint_bounds: Sequence[float] = field(init=False, repr=False, compare=False)

    constraint_names = ("deadline",)
    # Outcomes do not depend on the step, which is the number of finished jobs.
    stationary = True

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ProblemError(f"objective {self.objective!r} is unknown; there are {', '.join(OBJECTIVES)}")
        jobs = named_jobs(self.jobs)
        total = latest_end(jobs)
        # The costliest step is a job that comes last; the farthest from a deadline is a job that comes first or last.
        largest = max(self._cost(job, total, job.longest, 0) for job in jobs)
        bound = max(max(job.deadline - job.release - job.shortest, total - job.deadline) for job in jobs)
        object.__setattr__(self, "jobs", jobs)
        object.__setattr__(self, "horizon", len(jobs))
        object.__setattr__(self, "reward_range", (0.0 - largest, 0.0))
        object.__setattr__(self, "constraint_bounds", (float(bound) if bound > 0 else 1.0,))

    @property
    def fixed_times(self) -> bool:
        """Is no processing time random?"""
        return all(job.fixed for job in self.jobs)

    @property
    def keeps_time(self) -> bool:
        """Is the time part of a state?"""
        return any(job.release > 0 or not job.fixed for job in self.jobs)

    @property
    def latest_end(self) -> int:
        """A time by which all jobs are done, in any order."""
        return latest_end(self.jobs)

    @property
    def keeps_worst(self) -> bool:
        """Is the largest tardiness so far part of a state?"""
        return self.objective == "max_tardiness"

    @cached_property
    def _by_name(self) -> dict[JobName, Job]:
        return {name_of(job): job for job in self.jobs}

    def initial(self) -> Iterable[tuple[float, ScheduleState]]:
        """Return the state in which no job is done."""
        return [(1.0, ScheduleState((), 0 if self.keeps_time else None, 0 if self.keeps_worst else None))]

    def actions(self, step: int, state: Any) -> Iterable[JobName]:
        """Return the unfinished jobs, in the order of the instance."""
        return [name for name in self._by_name if name not in state.done]

    def outcomes(self, step: int, state: Any, action: Any) -> Iterable[Outcome]:
        """Return one outcome for each possible processing time."""
        job = self._job(state, action)
        start = max(self.time(state), job.release)
        for probability, duration in job.pairs:
            cost = self._cost(job, start + duration, duration, state.worst or 0)
            following = self._following(state, job, start + duration)
            yield Outcome(probability, following, 0.0 - cost, (float(job.deadline - start - duration),))

    def time(self, state: ScheduleState) -> int:
        """Return the time at which the finished jobs of `state` ended."""
        if state.time is not None:
            return state.time
        return sum(self._by_name[name].longest for name in state.done)

    def state_after(self, order: Sequence[JobName], times: Mapping[JobName, int] | None = None) -> ScheduleState:
        """Return the state after `order`; `times` holds the values of random processing times."""
        ((_, state),) = self.initial()
        for name in order:
            job = self._job(state, name)
            start = max(self.time(state), job.release)
            state = self._following(state, job, start + self._duration(job, times or {}))
        return state

    def tabulate(self, memory_limit: float) -> TabularModel:
        """Return the compiled model, equal to that of `compile.explore`, much faster."""
        model = ScheduleArrays(self).tabulate(memory_limit)
        return replace(model, infeasible_reason=infeasible_reason(self.jobs))

    def _job(self, state: ScheduleState, name: Any) -> Job:
        """Return an unfinished job."""
        if name not in self._by_name:
            raise ProblemError(f"job {name!r} is unknown; the jobs are {', '.join(map(repr, self._by_name))}")
        if name in state.done:
            raise ProblemError(f"job {name!r} has been done already in {state!r}")
        return self._by_name[name]

    def _following(self, state: ScheduleState, job: Job, end: int) -> ScheduleState:
        done = tuple(name for name in self._by_name if name == job.name or name in state.done)
        worst = None if state.worst is None else max(state.worst, end - job.due)
        return ScheduleState(done, end if self.keeps_time else None, worst)

    def _cost(self, job: Job, end: int, duration: int, worst: int) -> float:
        """Return by how much the objective grows."""
        return float(cost_growth(self.objective, job.weight, job.due, end, duration, worst))

    def _duration(self, job: Job, times: Mapping[JobName, int]) -> int:
        if job.fixed:
            return job.longest
        possible = [time for _, time in job.pairs]
        if times.get(name_of(job)) not in possible:
            raise ProblemError(f"times must hold the processing time of job {job.name!r}: one of {possible}")
        return times[name_of(job)]


#: Tables of the paper: (processing, due, deadline) of each job.
_EXAMPLES: dict[int, tuple[tuple[Any, int, int], ...]] = {
    1: ((3, 22, 30), (5, 30, 28), (7, 33, 35), (9, 15, 18), (10, 18, 21)),
    2: (
        (2, 75, 70), (3, 70, 70), (5, 65, 70), (8, 60, 100), (13, 88, 90),
        (21, 35, 40), (34, 59, 60), (17, 100, 130), (19, 100, 110),
    ),
    3: (
        (uniform(2, 4), 22, 30), (uniform(4, 6), 30, 28), (uniform(3, 8), 33, 35),
        (uniform(8, 11), 15, 18), (uniform(8, 11), 12, 23),
    ),
}  # fmt: skip
#: Example 1 as a problem file.
EXAMPLE = [
    dict(zip(("name", "processing", "due", "deadline"), (name, *times), strict=True))
    for name, times in zip(("saw", "drill", "mill", "paint", "pack"), _EXAMPLES[1], strict=True)
]


@problem(
    "machine_scheduling",
    reader=with_jobs,
    files=("jobs",),
    template=True,
    example={"jobs": EXAMPLE},
    episodes=5_000,
)
def machine_scheduling(jobs: Iterable[Job], *, objective: str = "max_tardiness") -> MachineScheduling:
    """Return the problem of jobs on one machine with due times and deadlines.

    A policy's value is minus the expected objective. Actions are the names of jobs (1, 2, ... for jobs without a name),
    states are `ScheduleState`, the horizon is the number of jobs.

    Parameters
    ----------
    jobs
        Each a `Job`; in a file tables with processing, due and deadline, optionally weight, name and release, or the
        name of a CSV file with these columns. processing is a whole number, a range "2-4" (each number equally
        likely), or [probability, time] pairs.
    objective
        "max_tardiness", "total_tardiness", "weighted_late_work", "weighted_completion" (the sum of weighted completion
        times) or "weighted_tardiness".

    Returns
    -------
    MachineScheduling

    Examples
    --------
    >>> import peakrl
    >>> Job = peakrl.problems.Job
    >>> problem = peakrl.problems.machine_scheduling([Job(3, due=5, deadline=9), Job(2, due=2, deadline=4)])
    >>> peakrl.solve(problem).value
    0.0
    """
    named = named_jobs(jobs)
    made = MachineScheduling(named, objective, f"machine scheduling, {len(named)} jobs, {objective}")
    parameters = {"jobs": [as_table(job) for job in named], "objective": objective}
    return remember(made, "machine_scheduling", parameters)


@problem(
    "scheduling_example",
    commands={f"scheduling-{number}": {"number": number} for number in _EXAMPLES},
)
def scheduling_example(number: int = 1, *, objective: str = "max_tardiness") -> MachineScheduling:
    """Return Example 1, 2 or 3 of the paper; Example 3 has random processing times.

    Parameters
    ----------
    number
        1, 2 or 3.
    objective
        As in `machine_scheduling`.

    Returns
    -------
    MachineScheduling

    Examples
    --------
    >>> import peakrl
    >>> peakrl.solve(peakrl.problems.scheduling_example(1)).value
    -1.0
    """
    if isinstance(number, bool) or number not in list(_EXAMPLES):
        raise ProblemError(f"number is {number!r}; there are the scheduling examples 1, 2 and 3")
    jobs = named_jobs(Job(*row) for row in _EXAMPLES[number])
    made = MachineScheduling(jobs, objective, f"scheduling example {number}, {objective}")
    return remember(made, "scheduling_example", {"number": int(number), "objective": objective})


def order_of(policy: Policy) -> Order:
    """Return the order in which a policy does the jobs of a model with fixed times."""
    model = as_model(policy.model)
    if not model.deterministic:
        raise PolicyError(f"{model!r} has random processing times: a policy has no single order there")
    slot, order = int(model.first_slot[0]), []
    for step in range(model.horizon):
        row = policy.row(step, slot)
        order.append(model.action_of_row(row))
        slot = int(model.outcome_next[model.outcome_start[model.row_distribution[row]]])
    return tuple(order)  # type: ignore[arg-type]  # a scheduling model's actions are names of jobs
