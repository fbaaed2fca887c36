"""A rule of thumb for battery robots: work while there is a reserve, then return.

The sure distance of a cell is the number of steps that a robot needs at most to reach a charger, whatever slips occur:

    D(cell) = 0 on a charger, else 1 + min over moves of max over landings D,   infinite if no way is sure;
              landings in a pit count as infinite

The rule: on a charger, stay until the battery is full. Elsewhere, take the move whose landings are nearest to the goal
on average, in steps without slips, if each of them leaves more than the sure distance from there; else take the sure
way. It does not use probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from peakrl.compile import Target
from peakrl.policy.tables import Policy
from peakrl.problems.robots.floor import WAYS, Cell
from peakrl.problems.robots.problem import STAY, BatteryRobot

Distances = dict[Cell, float]


def sure_distances(problem: BatteryRobot) -> Distances:
    """Return the sure distance of every cell to a charger."""
    return distances(problem, problem.chargers, max)


def distances(problem: BatteryRobot, ends: frozenset[Cell], landing: Callable[[list[float]], float]) -> Distances:
    """Return the steps from every cell to one of `ends`; `landing` summarises the distances of a move's landings."""
    found = {cell: 0.0 if cell in ends else math.inf for cell in problem.floor.free}
    for _ in found:
        for cell in found.keys() - ends:
            found[cell] = min(found[cell], 1 + min(after(problem, cell, way, found, landing) for way in WAYS))
    return found


def after(
    problem: BatteryRobot, cell: Cell, way: str, found: Mapping[Cell, float], landing: Callable[[list[float]], float]
) -> float:
    """Return the distance that a move leaves, infinite if it may end in a pit."""
    ends = problem.landings(cell, way)
    return math.inf if ends.keys() & problem.floor.cells("o") else landing([found[end] for end in ends])


def return_in_time(problem: BatteryRobot) -> Callable[[int, Any], str]:
    """Return the rule."""
    home, goal = sure_distances(problem), distances(problem, problem.floor.cells("G"), min)

    def move(step: int, state: Any) -> str:
        cell, level = (state[0], state[1]), state[2]
        if cell in problem.chargers and level < problem.battery:
            return STAY
        best = min((*WAYS, STAY), key=lambda way: after(problem, cell, way, goal, fmean))
        # After the move at least one unit must be left, and one more for every step of the sure way.
        if after(problem, cell, best, home, max) <= level - 2:
            return best
        return STAY if cell in problem.chargers else min(WAYS, key=lambda way: after(problem, cell, way, home, max))

    return move


def return_in_time_policy(problem: BatteryRobot, model: Target | None = None) -> Policy:
    """Return the rule as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem, return_in_time(problem))
