"""Problems with continuous states: a room, CartPole, and a battery that is charged by harvested energy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.checks import check_count, check_number
from peakrl.errors import ProblemError

if TYPE_CHECKING:
    from peakrl.continuous import ContinuousProblem

__all__ = ["cartpole", "continuous_harvesting", "room_temperature"]

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
#: Gymnasium ends an episode of CartPole outside of these, and begins one within START of 0.
POSITION, ANGLE, START = 2.4, 12 * 2 * math.pi / 360, 0.05


def room_temperature(
    *, low: float = 18.0, high: float = 24.0, coldest: float = 0.0, warmest: float = 10.0, heater: float = 2.5
) -> ContinuousProblem:
    """Return the problem of a room that must not leave a range of temperatures, with a heater that is on or off.

        T' = T + 0.1 (outside - T) + heater a,    reward -a

    Parameters
    ----------
    low
        The lowest temperature.
    high
        The highest temperature.
    coldest
        The lowest temperature outside; it may be any from there to `warmest` at each step.
    warmest
        The highest temperature outside.
    heater
        Degrees that the heater adds in a step.

    Returns
    -------
    ContinuousProblem

    Examples
    --------
    >>> import peakrl
    >>> peakrl.safe_set(peakrl.problems.room_temperature(), cells=600).actions([18.5])
    [1]
    """
    from peakrl.continuous import ContinuousProblem  # imports Gymnasium, which imports this module

    check_number(heater, "heater", above=0.0, error=ProblemError)

    def step(x: Sequence[Any], a: Any, w: Sequence[Any]) -> list[Any]:
        (temperature,), (outside,) = x, w
        return [temperature + 0.1 * (outside - temperature) + heater * a]

    return ContinuousProblem(
        step, box={"temperature": (low, high)}, actions=[0, 1], disturbance={"outside": (coldest, warmest)},
        reward=lambda x, a: -1.0 * a + 0.0 * x[0], start=[(low + high) / 2], name="room temperature",
    )  # fmt: skip


def cartpole_step(x: Sequence[Any], a: Any, w: Sequence[Any]) -> list[Any]:
    """Return the next state of Gymnasium's CartPole-v1, bit by bit."""
    position, speed, angle, spin = x
    force = FORCE if a == 1 else -FORCE
    cosine, sine, total, moment = np.cos(angle), np.sin(angle), CART + POLE, POLE * HALF_LENGTH
    push = (force + moment * np.square(spin) * sine) / total
    turn = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * np.square(cosine) / total))
    faster = push - moment * turn * cosine / total
    return [position + SECONDS * speed, speed + SECONDS * faster, angle + SECONDS * spin, spin + SECONDS * turn]


def cartpole(*, block: int = 5, speed: float = 2.0, spin: float = 2.0) -> ContinuousProblem:
    """Return Gymnasium's CartPole-v1: keep the cart on its track and the pole upright, for ever.

    Parameters
    ----------
    block
        Number of actions that are chosen together. A single step moves the cart and the pole by less than any
        affordable cell, so that without blocks no cell is proved safe.
    speed
        The largest speed of the cart that is considered.
    spin
        The largest speed of the angle.

    Returns
    -------
    ContinuousProblem

    Examples
    --------
    >>> import peakrl
    >>> peakrl.problems.cartpole()
    <ContinuousProblem 'CartPole': position, speed, angle, spin; 2 actions>
    """
    from peakrl.continuous import ContinuousProblem  # imports Gymnasium, which imports this module

    limits = {"position": POSITION, "speed": speed, "angle": ANGLE, "spin": spin}
    return ContinuousProblem(
        cartpole_step, box={name: (-limit, limit) for name, limit in limits.items()}, actions=[0, 1], block=block,
        start=dict.fromkeys(limits, (-START, START)), reward=lambda x, a: 1.0, name="CartPole",
    )  # fmt: skip


def continuous_harvesting(
    *, battery: float = 20.0, peak_power: float = 8.0, levels: int = 9, harvest: float = 4.0, parts: int = 16
) -> ContinuousProblem:
    """Return the problem of a transmitter whose battery stores real amounts of harvested energy.

        charge' = min(charge - power + harvested, battery),    power <= charge,    reward log2(1 + power)

    Parameters
    ----------
    battery
        Capacity of the battery.
    peak_power
        Largest power.
    levels
        Number of powers, from 0 to the largest.
    harvest
        The energy of a step is uniform between 0 and this.
    parts
        Number of equally likely boxes into which that range is divided; bounds on values are tighter with more.

    Returns
    -------
    ContinuousProblem

    Examples
    --------
    >>> import peakrl
    >>> peakrl.safe_set(peakrl.problems.continuous_harvesting(), cells=200).share
    1.0
    """
    from peakrl.continuous import ContinuousProblem  # imports Gymnasium, which imports this module

    check_number(battery, "battery", above=0.0, error=ProblemError)
    powers = np.linspace(0.0, check_number(peak_power, "peak_power", least=0.0, error=ProblemError), levels).tolist()
    edges = np.linspace(0.0, harvest, check_count(parts, "parts", error=ProblemError) + 1)

    def step(x: Sequence[Any], a: Any, w: Sequence[Any]) -> list[Any]:
        return [np.minimum(x[0] - a + w[0], battery)]

    return ContinuousProblem(
        step, box={"charge": (0.0, battery)}, actions=powers, name="continuous harvesting", start=[battery / 2],
        disturbance=[{"harvested": ends} for ends in pairwise(edges)],
        constraints=lambda x, a: [x[0] - a], constraint_names=["enough energy"],
        reward=lambda x, a: math.log2(1 + a) + 0.0 * x[0],
    )  # fmt: skip
