"""Battery robot: earn at a goal on a slippery floor, and reach a charger before the battery is empty.

State (row, column, b): the cell, and the remaining units of the battery. Actions: up, right, down, left and stay.

    move          to the adjacent cell, and with probability `slip` each one further to its right or left (seen along
                  the direction of the move); walls and the border stop it
    battery       b' = b - 1 for every action, but b' = min(B, b + charge) if it stays on a charger
    constraints   f_battery = b' - 1 >= 0: some is left;   f_pit = 1, or -1 if it ends in a pit
    reward        r = 1 if it ends on a goal, else 0

A slip never undoes a move but adds to it: if a robot could be thrown back again and again, no battery would suffice
with certainty. With an empty battery it does not move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peakrl.checks import check_count, check_number
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome, Problem
from peakrl.problems.robots.floor import WAYS, Cell, Floor
from peakrl.specs.spec import remember

PLAN = (
    "..G...",
    ".#..#.",
    "...o..",
    "......",
    "CCSCCC",
)
STAY = "stay"
LARGEST_BATTERY = 100_000


class RobotState(NamedTuple):
    """Cell of a robot, and remaining units of its battery."""

    row: int
    column: int
    battery: int


@dataclass(frozen=True)
class BatteryRobot(Problem):
    """The problem of one robot; `battery_robot` builds it from plain arguments."""

    floor: Floor
    battery: int = 16
    charge: int = 4
    slip: float = 0.1
    horizon: int = 30
    name: str = "battery robot"
    constraint_names: Sequence[str] = field(default=("battery", "pit"), init=False)
    reward_range: tuple[float, float] = field(default=(0.0, 1.0), init=False, repr=False)
    stationary: bool = field(default=True, init=False)
    spec: Mapping[str, Any] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def chargers(self) -> frozenset[Cell]:
        """Cells with a charger, including the start."""
        return self.floor.cells("CS")

    def initial(self) -> list[tuple[float, RobotState]]:
        """Return the start with a full battery."""
        ((row, column),) = self.floor.cells("S")
        return [(1.0, RobotState(row, column, self.battery))]

    def actions(self, step: int, state: Any) -> Iterable[str]:
        """Return four moves, also into walls, and stay."""
        return (*WAYS, STAY)

    def landings(self, cell: Cell, action: str) -> dict[Cell, float]:
        """Return the possible landings of an action, with their probabilities."""
        if action == STAY:
            return {cell: 1.0}
        ahead = self.floor.beside(cell, action)
        chances = {ahead: 1.0 - 2 * self.slip}
        for side in self.floor.sides(action):
            aside = self.floor.beside(ahead, side)
            chances[aside] = chances.get(aside, 0.0) + self.slip
        return {after: chance for after, chance in chances.items() if chance > 0}

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Return the possible landings with the remaining battery."""
        row, column, level = state
        here = (row, column)
        charging = action == STAY and here in self.chargers
        left = min(self.battery, level + self.charge) if charging else max(level - 1, 0)
        stuck = level == 0 and not charging
        goals, pits = self.floor.cells("G"), self.floor.cells("o")
        return [
            Outcome(
                chance,
                RobotState(*cell, left),
                1.0 if cell in goals else 0.0,
                (-1.0 if stuck else left - 1.0, -1.0 if cell in pits else 1.0),
            )
            for cell, chance in self.landings(here, STAY if stuck else action).items()
        ]


def battery_robot(
    *, plan: Sequence[str] = PLAN, battery: int = 16, charge: int = 4, slip: float = 0.1, horizon: int = 30
) -> BatteryRobot:
    """Return the problem of a robot on the floor of `plan`, a list of strings.

    S start (a charger too), G goal, C charger, o pit, # wall, . nothing. `battery` is its capacity in steps, `charge`
    what a step on a charger adds, `slip` the probability of a slip to each side.
    """
    given = dict(locals())
    floor = Floor.read(plan)
    if len(floor.cells("S")) != 1:
        raise ProblemError(f"plan has {len(floor.cells('S'))} cells S; a robot starts at one")
    problem = BatteryRobot(
        floor,
        check_count(battery, "battery", 1, LARGEST_BATTERY, error=ProblemError),
        check_count(charge, "charge", 1, LARGEST_BATTERY, error=ProblemError),
        checked_slip(slip),
        check_count(horizon, "horizon", 1, MOST_STEPS, error=ProblemError),
    )
    return remember(problem, "battery_robot", given)


def checked_slip(value: Any) -> float:
    """Return the probability of a slip to each side."""
    slip = check_number(value, "slip", least=0, error=ProblemError)
    if slip > 0.5:
        raise ProblemError(f"slip is {slip:g}; it is the probability of a slip to each side, at most 0.5")
    return slip
