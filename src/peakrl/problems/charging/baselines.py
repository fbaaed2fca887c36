"""Charging without a plan: at once, or as late as possible.

With spare_h = limit - l_h, the remaining capacity of the connection in this hour:

    at once   the car that leaves first takes as much as its rate, its need and the capacity allow, then the next one
    as late   no more than necessary: c_i = the part of n_i that is left over once every later hour before the departure
              is filled, from the last one backwards, with the capacity that the largest possible household load leaves

Neither uses prices. With one car, `as late` satisfies both constraints whenever that is possible; with several, it
serves the one that leaves last first, and may violate a constraint (see `evaluate`).
"""

from __future__ import annotations

import math
from typing import Any

from peakrl.compile import Target
from peakrl.policy.tables import Policy
from peakrl.problems.charging.problem import VehicleCharging


def at_once(problem: VehicleCharging, step: int, state: Any) -> Any:
    """Return the charges of `at once`."""
    room = spare_capacity(problem, state[0])
    charges = [0] * len(problem.cars)
    for place in sorted(range(len(charges)), key=lambda place: problem.cars[place].departure):
        car, needed = problem.needs(state)[place]
        if step < car.departure:
            charges[place] = max(0, min(car.rate, needed, room))
            room -= charges[place]
    return problem.action(charges)


def as_late(problem: VehicleCharging, step: int, state: Any) -> Any:
    """Return the charges of `as late`."""
    due = [needed if step < car.departure else 0 for car, needed in problem.needs(state)]
    for hour in range(problem.horizon - 1, step, -1):
        room = spare_capacity(problem, problem.most_load[hour])
        for place in sorted(range(len(due)), key=lambda place: -problem.cars[place].departure):
            car = problem.cars[place]
            if hour < car.departure:
                put_off = max(0, min(car.rate, due[place], room))
                due[place], room = due[place] - put_off, room - put_off
    return problem.action([min(car.rate, left) for car, left in zip(problem.cars, due, strict=True)])


def spare_capacity(problem: VehicleCharging, load: int) -> int:
    """Return the remaining capacity of the connection in whole kWh."""
    return math.floor(problem.limit - load)


def at_once_policy(problem: VehicleCharging, model: Target | None = None) -> Policy:
    """Return `at once` as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem, lambda step, state: at_once(problem, step, state))


def as_late_policy(problem: VehicleCharging, model: Target | None = None) -> Policy:
    """Return `as late` as a table for the problem's model (compiled here unless given)."""
    return Policy.from_rule(model or problem, lambda step, state: as_late(problem, step, state))
