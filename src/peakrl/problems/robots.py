"""Battery robot: earn at a goal on a slippery floor, and reach a charger before the battery is empty.

State (row, column, b): the cell, and the remaining units of the battery. Actions: up, right, down, left and stay.

    move          to the adjacent cell, and with probability `slip` each one further to its right or left (seen along
                  the direction of the move); walls and the border stop it
    battery       b' = b - 1 for every action, but b' = min(B, b + charge) if it stays on a charger
    constraints   f_battery = b' - 1 >= 0: some is left;   f_pit = 1, or -1 if it ends in a pit
    reward        r = 1 if it ends on a goal, else 0

A slip never undoes a move but adds to it: if a robot could be thrown back again and again, no battery would suffice
with certainty. With an empty battery it does not move.

A floor is drawn as text:

    S start and charger    G goal    C charger    o pit    # wall    . nothing

A cell is (row, column), from the upper left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from peakrl.checks import check_count, check_number
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome, Problem
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember

__all__ = ["BatteryRobot", "Floor", "RobotState", "battery_robot"]

PLAN = (
    "..G...",
    ".#..#.",
    "...o..",
    "......",
    "CCSCCC",
)
STAY = "stay"
LARGEST_BATTERY = 100_000
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
WAYS = tuple(MOVES)
SIGNS = "SGCo#."
LONGEST_SIDE = 100
Cell = tuple[int, int]


@dataclass(frozen=True)
class Floor:
    """A floor plan: one string for each row, all of one length."""

    plan: tuple[str, ...]

    @classmethod
    def read(cls, given: Any, what: str = "plan") -> Floor:
        """Return the floor of a list of strings, or raise."""
        if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
            raise ProblemError(f"{what} is {given!r}; it must be a list of strings, one for each row of the floor")
        for place, row in enumerate(given):
            if not isinstance(row, str) or not row or len(row) != len(given[0]):
                raise ProblemError(f"{what}[{place}] is {row!r}; rows are strings, all of one length")
            strange = next((sign for sign in row if sign not in SIGNS), None)
            if strange is not None:
                raise ProblemError(f"{what}[{place}] holds {strange!r}; a floor is made of {' '.join(SIGNS)}")
        if max(len(given), len(given[0])) > LONGEST_SIDE:
            raise ProblemError(f"{what} is longer than {LONGEST_SIDE} cells on a side: every cell is a state")
        return cls(tuple(given))

    def cells(self, signs: str) -> frozenset[Cell]:
        """Return the cells that have one of these signs."""
        return frozenset(
            (row, column) for row, line in enumerate(self.plan) for column, sign in enumerate(line) if sign in signs
        )

    @cached_property
    def free(self) -> frozenset[Cell]:
        """Cells that are not walls."""
        return self.cells("SGCo.")

    def beside(self, cell: Cell, way: str) -> Cell:
        """Return the adjacent cell, or the cell itself if there is a wall or the border."""
        after = (cell[0] + MOVES[way][0], cell[1] + MOVES[way][1])
        return after if after in self.free else cell

    def sides(self, way: str) -> tuple[str, str]:
        """Return the directions to the right and to the left of a direction."""
        at = WAYS.index(way)
        return WAYS[(at + 1) % len(WAYS)], WAYS[at - 1]


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


@problem("battery_robot", template=True, episodes=50_000, parts=("row", "column", "battery"))
def battery_robot(
    *, plan: Sequence[str] = PLAN, battery: int = 16, charge: int = 4, slip: float = 0.1, horizon: int = 30
) -> BatteryRobot:
    """Return the problem of a robot whose battery must never be empty.

    Parameters
    ----------
    plan
        The floor: S start and charger, G goal, C charger, o pit, # wall, . nothing.
    battery
        Capacity in units; every action takes one.
    charge
        Units that a step on a charger adds.
    slip
        Probability of a slip to each side.
    horizon
        Steps.

    Returns
    -------
    BatteryRobot

    Examples
    --------
    >>> import peakrl
    >>> peakrl.solve(peakrl.problems.battery_robot()).feasible
    True
    """
    given = dict(locals())
    floor = Floor.read(plan)
    if len(floor.cells("S")) != 1:
        raise ProblemError(f"plan has {len(floor.cells('S'))} cells S; a robot starts at one")
    made = BatteryRobot(
        floor,
        check_count(battery, "battery", 1, LARGEST_BATTERY, error=ProblemError),
        check_count(charge, "charge", 1, LARGEST_BATTERY, error=ProblemError),
        check_number(slip, "slip", least=0, most=0.5, otherwise=": a slip to each side", error=ProblemError),
        check_count(horizon, "horizon", 1, MOST_STEPS, error=ProblemError),
    )
    return remember(made, "battery_robot", given)
