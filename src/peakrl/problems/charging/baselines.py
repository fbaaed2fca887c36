"""How cars are charged without a plan: at once, or as late as possible.

With room_h = limit - l_h, what the connection has left in this hour:

    at once   the car that leaves first takes as much as its rate, its need and the room allow, then the next one
    as late   no more than what the hours to come may fail to hold: c_i = the part of n_i that is left over once every
              later hour before the departure is filled, from the last one backwards, with the room that the most hungry
              household would leave then

Neither looks at prices. `as late` keeps both constraints with one car wherever that is possible at all; with several it
serves the one that leaves last first, and `evaluate` says whether that is enough.
"""

from __future__ import annotations

import math
from typing import Any

from peakrl.compile import Target
from peakrl.policy.tables import Policy
from peakrl.problems.charging.problem import VehicleCharging


def at_once(problem: VehicleCharging, step: int, state: Any) -> Any:
    """Return what is charged at once."""
    room = room_of(problem, state[0])
    charges = [0] * len(problem.cars)
    for place in sorted(range(len(charges)), key=lambda place: problem.cars[place].departure):
        car, needed = problem.needs(state)[place]
        if step < car.departure:
            charges[place] = max(0, min(car.rate, needed, room))
            room -= charges[place]
    return problem.action(charges)


def as_late(problem: VehicleCharging, step: int, state: Any) -> Any:
    """Return what cannot be put off."""
    due = [needed if step < car.departure else 0 for car, needed in problem.needs(state)]
    for hour in range(problem.horizon - 1, step, -1):
        room = room_of(problem, problem.most_load[hour])
        for place in sorted(range(len(due)), key=lambda place: -problem.cars[place].departure):
            car = problem.cars[place]
            if hour < car.departure:
                put_off = max(0, min(car.rate, due[place], room))
                due[place], room = due[place] - put_off, room - put_off
    return problem.action([min(car.rate, left) for car, left in zip(problem.cars, due, strict=True)])


def room_of(problem: VehicleCharging, load: int) -> int:
    """Return the whole kWh that the connection has left."""
    return math.floor(problem.limit - load)


def at_once_policy(problem: VehicleCharging, model: Target | None = None) -> Policy:
    """Return `at once` as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem, lambda step, state: at_once(problem, step, state))


def as_late_policy(problem: VehicleCharging, model: Target | None = None) -> Policy:
    """Return `as late` as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem, lambda step, state: as_late(problem, step, state))
