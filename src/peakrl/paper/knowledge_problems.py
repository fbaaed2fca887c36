"""The problems on which the value of knowing is measured, each with what can truly be declared of it.

energy harvesting   the paper's transmitter, peak power 8, random arrivals; the constraint depends on the action
scheduling 2        the paper's second example
slippery grid       four moves on 5 x 6 cells with pits; a move slips to either side; never into a pit
thermostat          heat a house for a day at the least cost; its temperature must stay in a band by the hour, and
                    the weather is random: the state is (half degrees inside, weather)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from peakrl.model.problem import Outcome, Problem
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.scheduling.problem import scheduling_example

Cell = tuple[int, int]
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}


class SlipperyGrid(Problem):
    """From the lower left to the goal, past pits that a slip must not lead into."""

    name = "slippery grid"
    horizon = 20
    constraint_names = ("no pit",)
    stationary = True
    #: S start, G goal, o pit.
    plan = (
        "......",
        "..o...",
        "....o.",
        ".o....",
        "S....G",
    )
    slip = 0.1

    def initial(self) -> list[tuple[float, Cell]]:
        """At S."""
        return [(1.0, next(iter(self._cells("S"))))]

    def actions(self, step: int, state: Any) -> Iterable[str]:
        """Four moves, also into the border, which leave the walker where it is."""
        return MOVES

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Move as told, or to one of its sides."""
        ways = list(MOVES)
        at = ways.index(action)
        chances: dict[Cell, float] = {}
        for turn, chance in ((0, 1.0 - 2 * self.slip), (1, self.slip), (-1, self.slip)):
            after = self._beside(state, ways[(at + turn) % len(ways)])
            chances[after] = chances.get(after, 0.0) + chance
        pits, goals = self._cells("o"), self._cells("G")
        return [
            Outcome(chance, cell, 1.0 if cell in goals else 0.0, (-1.0 if cell in pits else 1.0,))
            for cell, chance in chances.items()
        ]

    def _cells(self, mark: str) -> set[Cell]:
        return {(row, column) for row, line in enumerate(self.plan) for column, sign in enumerate(line) if sign == mark}

    def _beside(self, cell: Cell, move: str) -> Cell:
        row, column = cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]
        inside = 0 <= row < len(self.plan) and 0 <= column < len(self.plan[0])
        return (row, column) if inside else cell


#: Degrees outside, twice: the thermostat counts in halves.
OUTSIDE = {"cold": -4, "mild": 8, "sunny": 18}
NEXT_WEATHER = {
    "cold": {"cold": 0.8, "mild": 0.2},
    "mild": {"cold": 0.15, "mild": 0.7, "sunny": 0.15},
    "sunny": {"mild": 0.3, "sunny": 0.7},
}
#: Of a kWh, by hour.
PRICE = (0.18,) * 6 + (0.34,) * 4 + (0.22,) * 6 + (0.40,) * 5 + (0.18,) * 3


class Thermostat(Problem):
    """A kW for an hour warms the house by a degree; a tenth of the difference to the outside is lost."""

    name = "thermostat"
    horizon = 24
    constraint_names = ("not too cold", "not too hot")
    stationary = False

    def initial(self) -> list[tuple[float, tuple[int, str]]]:
        """19 degrees."""
        return [(0.4, (38, "cold")), (0.6, (38, "mild"))]

    def actions(self, step: int, state: Any) -> range:
        """Whole kilowatts."""
        return range(5)

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """The weather turns; how warm it gets is certain."""
        halves, weather = state
        after = round(halves + 2 * action - (halves - OUTSIDE[weather]) / 10)
        low, high = (40, 45) if 7 <= step + 1 < 22 else (34, 45)
        kept = min(max(after, 30), 50)  # where a violation may lead, so that states stay few
        met = (float(after - low), float(high - after))
        return [
            Outcome(chance, (kept, following), -PRICE[step] * action, met)
            for following, chance in NEXT_WEATHER[weather].items()
        ]


#: By name.
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "energy harvesting": lambda: energy_harvesting(peak_power=8),
    "scheduling 2": lambda: scheduling_example(2),
    "slippery grid": SlipperyGrid,
    "thermostat": Thermostat,
}
#: What the constraints depend on, where that is less than the pair at its step.
DEPENDS_ON = {"energy harvesting": "action"}
