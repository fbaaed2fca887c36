"""A permutation flow shop under a limit on power: every job passes machine 1, 2, ..., m, in the same order on each.

Job j takes times[j][k] steps on machine k, without a pause, and machine k draws power[k] while it runs. At the start of
a step, every idle machine may begin its next job, or wait; on machine 1 any job may be next.

    drawn         p = sum of power[k] over the machines that run in this step
    constraints   f_power = limit_h - p >= 0;   f_finished = - (jobs not done) >= 0 after the last step
    reward        r = -1 for each step that begins with an unfinished job: the value is minus the makespan

State (waiting, line, begun, left): the jobs that no machine has begun; those in the shop, the farthest first; for each
machine how many of the line it has begun, and how many steps its job still takes (0: idle). Finished jobs are in
neither. Jobs are numbered from 1; an action is the job that each machine begins, or None.

An order of the jobs is made feasible by `order_policy`: at every step, from the last machine to the first, an operation
begins as soon as the limit allows it until its end, together with what is running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from peakrl.checks import check_count, check_number, check_numbers
from peakrl.compile import Target
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.policy.tables import Policy
from peakrl.problem import Outcome, Problem
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember

__all__ = ["FlowShop", "ShopState", "flow_shop", "order_policy"]

TIMES = ((2, 3, 1), (1, 2, 3), (3, 1, 2))
POWER = (4.0, 3.0, 2.0)
MOST_JOBS, MOST_MACHINES, LONGEST = 12, 8, 1_000
#: The job that each machine begins, or None.
Begin = tuple[int | None, ...]
Order = tuple[int, ...]


class ShopState(NamedTuple):
    """The progress of the jobs."""

    waiting: tuple[int, ...]
    line: tuple[int, ...]
    begun: tuple[int, ...]
    left: tuple[int, ...]


@dataclass(frozen=True)
class FlowShop(Problem):
    """The problem of one shop; `flow_shop` builds it from plain arguments."""

    times: tuple[tuple[int, ...], ...]
    power: tuple[float, ...]
    #: [step]: limit on the total power.
    limits: tuple[float, ...]
    name: str = "flow shop"
    constraint_names: Sequence[str] = field(default=("power", "finished"), init=False)
    reward_range: tuple[float, float] = field(default=(-1.0, 0.0), init=False, repr=False)
    stationary: bool = field(default=False, init=False)
    horizon: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", len(self.limits))

    @property
    def machines(self) -> int:
        """The number of machines."""
        return len(self.power)

    def initial(self) -> list[tuple[float, ShopState]]:
        """Return the state in which every job waits."""
        idle = (0,) * self.machines
        return [(1.0, ShopState(tuple(range(1, len(self.times) + 1)), (), idle, idle))]

    def startable(self, state: ShopState, machine: int) -> tuple[int, ...]:
        """Return the jobs that a machine may begin: any waiting job on the first, the next of the line on others."""
        if state.left[machine]:
            return ()
        if machine == 0:
            return state.waiting
        before = state.begun[machine - 1] - (state.left[machine - 1] > 0)
        return state.line[state.begun[machine] : before][:1]

    def actions(self, step: int, state: Any) -> Iterable[Begin]:
        """Return every choice of what idle machines begin, including those that exceed the limit."""
        return product(*((None, *self.startable(state, machine)) for machine in range(self.machines)))

    def drawn(self, state: ShopState, begin: Begin) -> float:
        """Return the power that is drawn in a step."""
        runs = (left > 0 or job is not None for left, job in zip(state.left, begin, strict=True))
        return sum(power for power, running in zip(self.power, runs, strict=True) if running)

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Return the state of the shop one step later, which is not random."""
        after = self.following(state, action)
        reward = -1.0 if state.waiting or state.line else 0.0
        undone = len(after.waiting) + len(after.line) if step + 1 == self.horizon else 0
        return [Outcome(1.0, after, reward, (self.limits[step] - self.drawn(state, action), 0.0 - undone))]

    def following(self, state: ShopState, begin: Begin) -> ShopState:
        """Return the state after a step."""
        waiting = tuple(job for job in state.waiting if job != begin[0])
        line = state.line if begin[0] is None else (*state.line, begin[0])
        begun = tuple(count + (job is not None) for count, job in zip(state.begun, begin, strict=True))
        left = tuple(
            (old if job is None else self.times[job - 1][machine]) - 1
            for machine, (old, job) in enumerate(zip(state.left, begin, strict=True))
        )
        left = tuple(max(steps, 0) for steps in left)
        if begun[-1] and not left[-1]:  # the farthest job has left the last machine
            line, begun = line[1:], tuple(count - 1 for count in begun)
        return ShopState(waiting, line, begun, left)


@problem("flow_shop", template=True, parts=("waiting", "line", "begun", "left"))
def flow_shop(
    *,
    power: Sequence[float] = POWER,
    limit: float | Sequence[float] = 6.0,
    times: Sequence[Sequence[int]] = TIMES,
    horizon: int | None = None,
) -> FlowShop:
    """Return the problem of jobs that pass machine after machine; a policy's value is minus the makespan.

    Parameters
    ----------
    power
        What each machine draws while it runs.
    limit
        The constraint: what may be drawn at once; a number, or a list by step.
    times
        Steps that each job takes on each machine.
    horizon
        Time by which every job must be done; by default the sum of all times, enough for one operation after another.
    """
    given = dict(locals())
    draws = check_numbers(power, "power", least=0)
    if len(draws) > MOST_MACHINES:
        raise ProblemError(f"power holds {len(draws)} machines; there may be {MOST_MACHINES}")
    table = check_times(times, len(draws))
    total = sum(map(sum, table))
    steps = total if horizon is None else check_count(horizon, "horizon", 1, MOST_STEPS, error=ProblemError)
    made = FlowShop(table, draws, check_limits(limit, min(steps, MOST_STEPS)))
    return remember(made, "flow_shop", given)


def check_times(given: Any, machines: int) -> tuple[tuple[int, ...], ...]:
    """Return [job][machine], or raise with the job that is wrong."""
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
        raise ProblemError(f"times is {given!r}; it must be a list of jobs, each a list of times by machine")
    jobs = tuple(check_row(row, f"times[{place}]", machines) for place, row in enumerate(given))
    if not 1 <= len(jobs) <= MOST_JOBS:
        raise ProblemError(f"times holds {len(jobs)} jobs; there may be 1 to {MOST_JOBS}: states multiply with each")
    return jobs


def check_row(given: Any, what: str, machines: int) -> tuple[int, ...]:
    """Return the times of one job."""
    numbers = check_numbers(given, what)
    if len(numbers) != machines:
        raise ProblemError(f"{what} holds {len(numbers)} times; power names {machines} machines")
    places = enumerate(given)
    return tuple(check_count(time, f"{what}[{place}]", 1, LONGEST, error=ProblemError) for place, time in places)


def check_limits(given: Any, steps: int) -> tuple[float, ...]:
    """Return the limit by step."""
    if hasattr(given, "__iter__"):
        return check_numbers(given, "limit", steps=steps, least=0)[:steps]
    return (check_number(given, "limit", least=0, error=ProblemError),) * steps


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
