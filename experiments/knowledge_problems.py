"""The problems on which the value of knowing is measured, each with what can truly be declared of it.

energy harvesting   the paper's transmitter, peak power 8, random arrivals; the constraint depends on the action
scheduling 2        the paper's second example
slippery grid       four moves on 5 x 6 cells with pits; a move slips to either side; never into a pit
thermostat          heat a house for a day at the least cost; its temperature must stay in a band by the hour, and
                    the weather is random (`peakrl.heating`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from peakrl.model.problem import Outcome, Problem
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.heating.problem import thermostat
from peakrl.problems.robots.floor import WAYS, Cell, Floor
from peakrl.problems.scheduling.problem import scheduling_example


class SlipperyGrid(Problem):
    """From the lower left to the goal, past pits that a slip must not lead into."""

    name = "slippery grid"
    horizon = 20
    constraint_names = ("no pit",)
    stationary = True
    #: S start, G goal, o pit.
    floor = Floor(
        (
            "......",
            "..o...",
            "....o.",
            ".o....",
            "S....G",
        )
    )
    slip = 0.1

    def initial(self) -> list[tuple[float, Cell]]:
        """At S."""
        return [(1.0, next(iter(self.floor.cells("S"))))]

    def actions(self, step: int, state: Any) -> Iterable[str]:
        """Four moves, also into the border, which leave the walker where it is."""
        return WAYS

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Move as told, or to one of its sides."""
        right, left = self.floor.sides(action)
        chances: dict[Cell, float] = {}
        for way, chance in ((action, 1.0 - 2 * self.slip), (right, self.slip), (left, self.slip)):
            after = self.floor.beside(state, way)
            chances[after] = chances.get(after, 0.0) + chance
        pits, goals = self.floor.cells("o"), self.floor.cells("G")
        return [
            Outcome(chance, cell, 1.0 if cell in goals else 0.0, (-1.0 if cell in pits else 1.0,))
            for cell, chance in chances.items()
        ]


#: By name.
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "energy harvesting": lambda: energy_harvesting(peak_power=8),
    "scheduling 2": lambda: scheduling_example(2),
    "slippery grid": SlipperyGrid,
    "thermostat": thermostat,
}
#: What the constraints depend on, where that is less than the pair at its step.
DEPENDS_ON = {"energy harvesting": "action"}
