"""A robot whose battery must never run dry, against closed forms and the rules written out again."""

from __future__ import annotations

import math
from functools import cache

import pytest

from peakrl import PeakError, solve
from peakrl.problems.robots import battery_robot

PLAN = ("..G...", ".#..#.", "...o..", "......", "CCSCCC")
AHEAD = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def most_reward(plan, battery, charge, slip, horizon):
    """The most expected steps on a goal with a battery that surely never runs dry, by trying everything."""
    sign = {(row, column): mark for row, line in enumerate(plan) for column, mark in enumerate(line) if mark != "#"}

    def to(cell, way):
        after = (cell[0] + AHEAD[way][0], cell[1] + AHEAD[way][1])
        return after if after in sign else cell

    def ends(cell, way):
        there = to(cell, way)
        sideways = ("left", "right") if way in ("up", "down") else ("up", "down")
        return [(1 - 2 * slip, there), *((slip, to(there, side)) for side in sideways)]

    @cache
    def most(step, cell, level):
        if step == horizon:
            return 0.0
        found = [-math.inf]
        for way in (*AHEAD, "stay"):
            after = min(battery, level + charge) if way == "stay" and sign[cell] in "CS" else level - 1
            landings = [(1.0, cell)] if way == "stay" else [end for end in ends(cell, way) if end[0] > 0]
            if after >= 1 and all(sign[end] != "o" for _, end in landings):
                found.append(sum(p * ((sign[end] == "G") + most(step + 1, end, after)) for p, end in landings))
        return max(found)

    return most(0, next(cell for cell, mark in sign.items() if mark == "S"), battery)


@pytest.mark.parametrize(
    "given",
    [
        {"plan": list(PLAN), "battery": 16, "charge": 4, "slip": 0.1, "horizon": 30},
        {"plan": ["G.o", "...", "CSC"], "battery": 5, "charge": 2, "slip": 0.3, "horizon": 12},
        {"plan": ["S..G"], "battery": 9, "charge": 3, "slip": 0.5, "horizon": 20},
    ],
)  # fmt: skip
def test_the_optimum_is_the_most_that_a_robot_earns_whose_battery_surely_never_runs_dry(given):
    best = solve(battery_robot(**given))
    assert best.feasible
    assert best.value == pytest.approx(most_reward(**given), abs=1e-12)


def test_in_a_corridor_without_slips_a_round_trip_earns_what_the_battery_leaves():
    # Three steps there, three back, the last unit is kept: of 10 units 3 are for standing on the goal, after arriving.
    corridor = battery_robot(plan=["S..G"], battery=10, charge=10, slip=0, horizon=10)
    assert solve(corridor).value == 1 + 10 - 1 - 3 - 0  # no need to come back before the end
    assert solve(battery_robot(plan=["S..G"], battery=10, charge=10, slip=0, horizon=20)).value == 4 + 7


SLIPS = [
    ({"plan": ["S.", "."]}, r"plan\[1\] is '.'; rows are strings, all of one length"),
    ({"plan": ["SX"]}, r"plan\[0\] holds 'X'"),
    ({"plan": [".."]}, "plan has 0 cells S"),
    ({"plan": "S."}, "plan is 'S.'; it must be a list of strings"),
    ({"slip": 0.6}, "slip is 0.6; it must be a finite number from 0 to 0.5: a slip to each side"),
    ({"battery": 0}, "battery is 0; it must be a whole number"),
]


def test_a_slip_is_named():
    for parameters, message in SLIPS:
        with pytest.raises(PeakError, match=message):
            battery_robot(**parameters)
