"""A queue: serve customers at the least cost, and never turn one away.

State n: how many customers wait, 0 .. room. Action: a speed s, 0 .. fastest, of the server; min(n, s) customers leave.

    arrivals      k customers come after that, with probability arrivals[k]
    constraint    f = room - n' >= 0                 with n' = n - min(n, s) + k, and the next state min(n', room)
    reward        r = - waiting n - energy s^2

Nothing depends on the step: a queue may have no end (horizon None). It can be kept for ever if the fastest speed is at
least the largest number of arrivals, len(arrivals) - 1.

Baseline: full speed from a threshold of waiting customers on, speed 1 below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from peakrl.checks import check_count, check_horizon, check_number, check_numbers, check_probabilities
from peakrl.compile import Target
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.policy.tables import Policy
from peakrl.problem import Outcome, Problem
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember

__all__ = ["Queue", "queue", "threshold_policy"]

#: Most customers that may wait, and largest speed.
MOST_ROOM, MOST_SPEED = 100_000, 1_000


@dataclass(frozen=True)
class Queue(Problem):
    """The problem of one queue; `queue` builds it from plain arguments."""

    room: int = 20
    fastest: int = 3
    arrivals: tuple[float, ...] = (0.3, 0.4, 0.2, 0.1)
    waiting: float = 0.1
    energy: float = 1.0
    start: int = 0
    horizon: int | None = 48
    name: str = "queue"
    stationary: bool = field(default=True, init=False)
    constraint_names: Sequence[str] = field(default=("room",), init=False)

    def initial(self) -> list[tuple[float, int]]:
        """Return how many customers wait at first."""
        return [(1.0, self.start)]

    def actions(self, step: int, state: Any) -> range:
        """Return the speeds."""
        return range(self.fastest + 1)

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Return the next state for every number of arrivals."""
        left, reward = state - min(state, action), -self.waiting * state - self.energy * action**2
        return [
            Outcome(chance, min(left + new, self.room), reward, (self.room - left - new,))
            for new, chance in enumerate(self.arrivals)
            if chance > 0
        ]


@problem("queue", template=True)
def queue(
    *,
    room: int = 20,
    fastest: int = 3,
    arrivals: Sequence[float] = (0.3, 0.4, 0.2, 0.1),
    waiting: float = 0.1,
    energy: float = 1.0,
    start: int = 0,
    horizon: int | None = 48,
) -> Queue:
    """Return the problem of a queue in which no customer may be turned away.

    Parameters
    ----------
    room
        The constraint: how many customers may wait.
    fastest
        The largest speed, in customers a step; every whole number up to it can be chosen.
    arrivals
        Probabilities of 0, 1, 2, ... new customers in a step.
    waiting
        Cost of a waiting customer, a step.
    energy
        Cost of a step at speed 1; it grows with the square of the speed.
    start
        Customers that wait at first.
    horizon
        Steps; None: without an end.

    Returns
    -------
    Queue

    Examples
    --------
    >>> import peakrl
    >>> round(peakrl.solve(peakrl.problems.queue(horizon=None), average=True).value, 4)
    -1.7015
    """
    given = dict(locals())
    chances = check_numbers(arrivals, "arrivals", least=0.0, most=1.0)
    most = check_count(room, "room", 1, MOST_ROOM, error=ProblemError)
    made = Queue(
        most,
        check_count(fastest, "fastest", 1, MOST_SPEED, error=ProblemError),
        check_probabilities(chances, "arrivals", len(chances)),
        check_number(waiting, "waiting", least=0, error=ProblemError),
        check_number(energy, "energy", least=0, error=ProblemError),
        check_count(start, "start", 0, most, error=ProblemError),
        check_horizon(horizon, "horizon", MOST_STEPS, error=ProblemError),
    )
    return remember(made, "queue", given)


def threshold_policy(problem: Queue, threshold: int, *, model: Target | None = None) -> Policy:
    """Return full speed from `threshold` waiting customers on, else speed 1, as a table for the problem's model."""
    check_count(threshold, "threshold", 0, MOST_ROOM, error=ProblemError)

    def speed(step: int, state: int) -> int:
        return problem.fastest if state >= threshold else 1

    return Policy.from_rule(problem if model is None else model, speed)
