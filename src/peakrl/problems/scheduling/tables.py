"""The states of a scheduling problem as integers, so that its model is built from arrays (`ArrayProblem`).

A state is (done, time, worst): a bitmask of the finished jobs, the time (0 if it follows from them) and the largest
tardiness so far (0 if the objective does not need it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.array_problem import ArrayProblem
from peakrl.compile import guard_memory
from peakrl.problem import Outcome
from peakrl.problems.scheduling.jobs import name_of
from peakrl.problems.scheduling.orders import cost_growth
from peakrl.schedule_labels import ScheduleStates
from peakrl.space import check_sizes
from peakrl.tabular import TabularModel
from peakrl.types import Bools, Longs

if TYPE_CHECKING:
    from peakrl.problems.scheduling.problem import MachineScheduling


class ScheduleArrays(ArrayProblem):
    """A scheduling problem whose states are integers and whose methods take many states at once."""

    stationary = True

    def __init__(self, problem: MachineScheduling) -> None:
        self.problem, self.jobs = problem, problem.jobs
        self.name, self.horizon, self.constraint_names = problem.name, problem.horizon, problem.constraint_names
        self.reward_range, self.constraint_bounds = problem.reward_range, problem.constraint_bounds
        self.names = tuple(map(name_of, self.jobs))
        self.all_actions = self.names
        end = problem.latest_end
        self.state_ranges = {
            "done": (0, 2 ** len(self.jobs) - 1),
            "time": (0, end if problem.keeps_time else 0),
            "worst": (0, end if problem.keeps_worst else 0),
        }

    def initial(self) -> list[tuple[float, tuple[int, int, int]]]:
        """Return the state in which no job is done."""
        return [(1.0, (0, 0, 0))]

    def available(self, step: int, state: Any, action: Any) -> Bools:
        """Return whether a job is left to do."""
        left: Bools = state[0] >> self.names.index(action) & 1 == 0
        return left

    def outcomes(self, step: int, state: Any, action: Any) -> Iterator[Outcome]:
        """Return one outcome for each possible processing time."""
        done, time, worst = state
        number = self.names.index(action)
        job = self.jobs[number]
        if not self.problem.keeps_time:
            time = sum((done >> i & 1) * other.longest for i, other in enumerate(self.jobs))
        for probability, duration in job.pairs:
            end = np.maximum(time, job.release) + duration
            cost = cost_growth(self.problem.objective, job.weight, job.due, end, duration, worst)
            following = (
                done | 1 << number,
                end if self.problem.keeps_time else 0,
                np.maximum(worst, end - job.due) if self.problem.keeps_worst else 0,
            )
            yield Outcome(probability, following, 0.0 - cost, (job.deadline - end,))

    def labels(self, fields: tuple[Longs, ...]) -> ScheduleStates:
        """Return the labels of states, decoded on access."""
        done, time, worst = (field.astype(np.uint64) for field in fields)
        timed, keeps_worst = self.problem.keeps_time, self.problem.keeps_worst
        return ScheduleStates(self.names, done, time << np.uint64(32) | worst, timed=timed, worst=keeps_worst)

    def tabulate(self, memory_limit: float) -> TabularModel:
        """Return the model; every set of jobs is a state."""
        states, pairs = 2 ** len(self.jobs), len(self.jobs) * 2 ** (len(self.jobs) - 1)
        check_sizes(self.name, states=states, pairs=pairs)
        guard_memory(self.name, states, pairs, 0, memory_limit)
        return super().tabulate(memory_limit)
