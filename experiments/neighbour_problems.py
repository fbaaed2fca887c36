"""The problems on which all ways to deal with constraints are set side by side, small enough for exact answers.

    inventory          stock s, order a <= room - s, then a random demand d; expected cost within a limit
                       cost    (4 + 2a if a > 0) + s + a, over the most that it can be
                       reward  sum of 0.08 d P(s' | s, a) over the demands d <= s + a, over the most that it can be
    grid               four moves on a walled square, a share of them at random; every step on an obstacle costs 1
                       reward  100 on the goal, elsewhere how much nearer it is than the corner (18, 1)
    tiny harvesting    the paper's transmitter with battery 4, peak 3 and 6 slots; a peak constraint
    transmitter        the paper's, at its full size with peak 15 and random arrivals, in nats
    scheduling         the paper's Example 2

The first two have limits on an expected cost, as constrained MDPs do. The cost is written as a constraint of value
-cost, so that the violation of an episode is its cost: `solve_budget(problem, total=limit)` is the benchmark's problem.
Inventory and grid are those of the public experiments with DOPE and with Triple-Q, rebuilt from their definitions; in
the inventory's reward P(s' | s, a) is the probability of everything that leads to s', as it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from peakrl.errors import SettingsError
from peakrl.model.problem import Outcome, Problem
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.scheduling.problem import scheduling_example

#: Of the inventory: how likely a demand of 0, 1, ... is.
DEMAND = (0.3, 0.2, 0.2, 0.2, 0.05, 0.05)
#: Of the grid: its side, walls included, the seed of its map and the share of inner cells that are obstacles.
SIDE, MAP_SEED, OBSTACLES = 20, 1234, 0.4
START = (SIDE - 2, SIDE - 2)
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
Cell = tuple[int, int]


class Inventory(Problem):
    """Orders before the demand is known, at an expected cost."""

    name = "inventory"
    horizon = 7
    constraint_names = ("cost",)
    stationary = True
    room = len(DEMAND) - 1

    def initial(self) -> list[tuple[float, int]]:
        """The stock is empty at first."""
        return [(1.0, 0)]

    def actions(self, step: int, state: Any) -> range:
        """No more than there is room for."""
        return range(self.room - state + 1)

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Sell what is asked for, as far as it goes."""
        reward = self._sales(state + action) / self._most_sales
        cost = self._cost(state, action) / self._most_cost
        return [Outcome(chance, after, reward, (-cost,)) for after, chance in self._law(state + action).items()]

    def _law(self, held: int) -> dict[int, float]:
        law: dict[int, float] = {}
        for demand, chance in enumerate(DEMAND):
            after = max(held - demand, 0)
            law[after] = law.get(after, 0.0) + chance
        return law

    def _sales(self, held: int) -> float:
        law = self._law(held)
        return sum(law[held - demand] * 0.08 * demand for demand in range(held + 1))

    def _cost(self, held: int, order: int) -> float:
        return (4.0 + 2.0 * order if order else 0.0) + held + order

    @cached_property
    def _most_sales(self) -> float:
        return max(map(self._sales, range(self.room + 1)))

    @cached_property
    def _most_cost(self) -> float:
        pairs = [(held, order) for held in range(self.room + 1) for order in self.actions(0, held)]
        return max(self._cost(*pair) for pair in pairs)


class ObstacleGrid(Problem):
    """A walk to the goal past obstacles, some moves at random."""

    name = "grid"
    horizon = 25
    constraint_names = ("obstacles",)
    stationary = True

    def __init__(self, slip: float = 0.03) -> None:
        self.slip = slip
        # numpy guarantees this generator's numbers for good.
        draws = np.random.RandomState(MAP_SEED)
        inner = [(row, column) for row in range(2, SIDE - 2) for column in range(1, SIDE - 1)]
        self.obstacles = frozenset(cell for cell in inner if draws.random_sample() <= OBSTACLES)
        self.goal = (1, int(draws.random_sample() * (SIDE - 3)) + 1)

    def initial(self) -> list[tuple[float, Cell]]:
        """From the corner."""
        return [(1.0, START)]

    def actions(self, step: int, state: Any) -> Iterable[str]:
        """Four moves, also into a wall, which leave the walker where it is."""
        return MOVES

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Move as told, except for the share of moves that are random."""
        chances: dict[Cell, float] = {}
        for move in MOVES:
            chance = self.slip / len(MOVES) + (1.0 - self.slip if move == action else 0.0)
            after = self._beside(state, move)
            chances[after] = chances.get(after, 0.0) + chance
        return [
            Outcome(chance, cell, self._reward(cell), (-1.0 if cell in self.obstacles else 0.0,))
            for cell, chance in chances.items()
            if chance > 0
        ]

    def _beside(self, cell: Cell, move: str) -> Cell:
        row, column = cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]
        return (row, column) if 0 < row < SIDE - 1 and 0 < column < SIDE - 1 else cell

    def _reward(self, cell: Cell) -> float:
        return 100.0 if cell == self.goal else math.dist((SIDE - 2, 1), self.goal) - math.dist(cell, self.goal)


def tiny_harvesting() -> Problem:
    """Return the transmitter with arrivals 0 .. 4, all as likely, in nats."""
    uniform = [0.2] * 5
    return energy_harvesting(
        horizon=6, battery=4, peak_power=3, max_arrival=4, log_base=math.e,
        arrivals={"matrix": [uniform] * 5, "first": uniform},
    )  # fmt: skip


def transmitter() -> Problem:
    """Return the paper's transmitter."""
    return energy_harvesting(peak_power=15, log_base=math.e)


def scheduling() -> Problem:
    """Return the paper's Example 2."""
    return scheduling_example(2)


def thrifty(step: int, state: Any) -> int:
    """Send with one unit of power, if there is one."""
    held: int = min(1, sum(state))
    return held


def earliest_deadline(step: int, state: Any) -> Any:
    """Do the job whose deadline comes first, which meets every deadline if any order does, due times aside."""
    left = [job for job in scheduling_example(2).jobs if job.name not in state.done]
    return min(left, key=lambda job: job.deadline).name


@dataclass(frozen=True)
class CommonProblem:
    """A problem that all methods share."""

    make: Callable[[], Problem]
    #: On the expected total violation of an episode; of a peak problem 0.
    limit: float
    #: A limit that leaves room: what meets it is a safe policy to begin with; or a rule that never violates.
    safe_limit: float = 0.0
    safe_rule: Callable[[int, Any], Any] | None = None


#: By name.
PROBLEMS = {
    "inventory": CommonProblem(Inventory, limit=3.5, safe_limit=0.7),
    "grid": CommonProblem(ObstacleGrid, limit=1.0, safe_limit=0.5),
    "tiny harvesting": CommonProblem(tiny_harvesting, limit=0.0, safe_rule=thrifty),
    "transmitter": CommonProblem(transmitter, limit=0.0, safe_rule=thrifty),
    "scheduling": CommonProblem(scheduling, limit=0.0, safe_rule=earliest_deadline),
}


def common_problem(name: str) -> CommonProblem:
    """Return a problem by name, or raise."""
    if name not in PROBLEMS:
        raise SettingsError(f"{name!r} is no problem of the comparison; there are {', '.join(PROBLEMS)}")
    return PROBLEMS[name]
