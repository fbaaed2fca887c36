"""Orders of jobs from the textbooks, and the schedule that satisfies the limit.

    Johnson   two machines: first the jobs with times[j][0] < times[j][1] by the first time, then the others by falling
              second time. Optimal without a limit on power.
    NEH       (Nawaz, Enscore and Ham, 1983) jobs by falling total time, each inserted where the makespan of those so
              far, without a limit on power, is least.

Neither uses power. `order_policy` makes an order feasible: at every step, from the last machine to the first, an
operation begins as soon as the limit allows it until its end, together with what is running.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from peakrl.compile import Target, as_model
from peakrl.errors import ProblemError
from peakrl.policy.tables import Policy
from peakrl.problems.flow_shops.problem import Begin, FlowShop, ShopState

Order = tuple[int, ...]


class Operation(NamedTuple):
    """A job on a machine, both counted from 1: it runs in the steps start .. end - 1."""

    job: int
    machine: int
    start: int
    end: int


def johnson_order(problem: FlowShop) -> Order:
    """Return Johnson's order of a shop with two machines."""
    if problem.machines != 2:
        raise ProblemError(f"Johnson's rule is for two machines; this shop has {problem.machines}: use neh_order")
    jobs = range(1, len(problem.times) + 1)
    first = [job for job in jobs if problem.times[job - 1][0] < problem.times[job - 1][1]]
    last = [job for job in jobs if job not in first]
    by_first = sorted(first, key=lambda job: problem.times[job - 1][0])
    return (*by_first, *sorted(last, key=lambda job: -problem.times[job - 1][1]))


def neh_order(problem: FlowShop) -> Order:
    """Return the order of Nawaz, Enscore and Ham."""
    order: Order = ()
    for job in sorted(range(1, len(problem.times) + 1), key=lambda job: -sum(problem.times[job - 1])):
        tried = [(*order[:place], job, *order[place:]) for place in range(len(order) + 1)]
        order = min(tried, key=lambda one: makespan(problem, one))
    return order


def makespan(problem: FlowShop, order: Sequence[int]) -> int:
    """Return the makespan of an order without a limit on power."""
    ends = [0] * problem.machines
    for job in order:
        before = 0
        for machine, time in enumerate(problem.times[job - 1]):
            before = ends[machine] = max(before, ends[machine]) + time
    return ends[-1]


def keeping(problem: FlowShop, order: Sequence[int]) -> Callable[[int, Any], Begin]:
    """Return the rule that begins operations in an order of the jobs as the limit allows."""
    places = {job: place for place, job in enumerate(order)}
    missing = [job for job in range(1, len(problem.times) + 1) if job not in places]
    if missing or len(order) != len(problem.times):
        raise ProblemError(f"order is {tuple(order)}; it must name each of the jobs 1 to {len(problem.times)} once")

    def rule(step: int, state: ShopState) -> Begin:
        begin: list[int | None] = [None] * problem.machines
        running = list(state.left)
        for machine in reversed(range(problem.machines)):
            jobs = problem.startable(state, machine)
            if jobs:
                job = min(jobs, key=places.__getitem__)
                with_it = list(running)
                with_it[machine] = problem.times[job - 1][machine]
                if bears(problem, step, with_it):
                    begin[machine], running = job, with_it
        return tuple(begin)

    return rule


def bears(problem: FlowShop, step: int, left: Sequence[int]) -> bool:
    """Does the limit allow what is running, until its end or the horizon?"""
    steps = range(min(max(left), problem.horizon - step))
    return all(
        sum(power for power, rest in zip(problem.power, left, strict=True) if rest > ahead)
        <= problem.limits[step + ahead]
        for ahead in steps
    )


def order_policy(problem: FlowShop, order: Sequence[int], model: Target | None = None) -> Policy:
    """Return an order, made feasible, as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem, keeping(problem, order))


def schedule_of(problem: FlowShop, policy: Policy) -> tuple[Operation, ...]:
    """Return the operations of a policy by their start: a Gantt chart."""
    model = as_model(policy.model)
    state: Any = model.state_of_slot(int(model.first_slot[0]))
    found = []
    for step in range(problem.horizon):
        begin: Any = policy.action(step, state)
        for machine, job in enumerate(begin, start=1):
            if job is not None:
                found.append(Operation(job, machine, step, step + problem.times[job - 1][machine - 1]))
        state = problem.following(state, begin)
    return tuple(found)
