"""When an action can be left out for certain: stationary models with long horizons.

Let W_n be the values with n steps to go as they are computed, W_{n+1} = T W_n but for rounding, and at some n

    lo <= W_{n+1}(s) - W_n(s) <= hi  for all s,      M = max(|lo|, |hi|),      R steps still to come.

T is monotone, and T(W + c) = T W + c for a constant c. So T W_n <= W_n + hi gives T^2 W_n <= T W_n + hi and so on:
every later difference lies between lo and hi as well, whether values converge or grow, and W_{n+j} - W_n between j*lo
and j*hi. What an action gains on another of its state meanwhile is a difference of two expectations of W_{n+j} - W_n,
at most j*(hi - lo). An action whose Q_n is further than R*(hi - lo) below the best of its state is therefore never
chosen again, and is left out. Actions that tie stay, all of them. (A state without actions has W = 0 and counts with
the difference 0.)

Computed numbers are not exact. With u = 2^-53, m the most outcomes of an action, e the most by which the probabilities
of an action miss 1 in sum (R*e <= 1/2 or nothing is left out) and

    B = 2 max|W| + 4 R M + max|r|         bounds every value still to come,
    delta = 2 (m + 2) u (max|r| + B)      bounds the rounding of one Q, of one difference of values or of Q,
    kappa = 2 R e (M + 2 delta)           bounds how far lo and hi move since T(W + c) = T W + c*(1 +- e),

T W_n - W_n lies within 2 delta of lo .. hi, computed W_{n+j} within 2 j delta of T^j W_n (T enlarges differences by at
most 1 + e, and (1 + e)^R <= 2), so W_{n+j} - W_n within j*(4 delta + kappa) of j*lo .. j*hi, and the margin is

    R (hi - lo + 8 delta + 2 kappa)  +  2 e R (M + 4 delta + kappa)  +  6 delta.

Where costs can come up, T takes the best of the actions A(s) of least cost. Nothing is left out until no cost has
changed from one step to the next, number by number, and the actions that stay in a state have one and the same cost:
then costs and A(s) remain what they are, whichever of those actions is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.kernels.arrays import Floats, Layout, Longs
from peakrl.kernels.backward import Pays, Work
from peakrl.kernels.safety import Bools
from peakrl.kernels.settling import largest_excess, layer_change, may_be_best, may_be_least
from peakrl.model.space import starts_of
from peakrl.model.tabular import TabularModel
from peakrl.policy.choices import type_of

#: Rows are looked at after so many steps, then after half as many again each time, while so many are still to come.
FIRST_LOOK, FURTHER, STEPS_LEFT = 24, 1.5, 12
#: What is left is copied where it is at most this share of what there was.
WORTHWHILE = 0.75
UNIT = 2.0**-53


@dataclass(frozen=True)
class Candidates:
    """The rows that may still be chosen, and what they pay."""

    layout: Layout
    pays: Pays
    #: [row]: which of its slot's actions it is; None while every row is there.
    number: NDArray[Any] | None = None
    #: The slots with several rows left.
    open: Longs | None = None
    #: [slot]: room for the choice among the rows that are left.
    room: NDArray[Any] | None = None

    @property
    def settled(self) -> bool:
        """Is one action left in each state?"""
        return self.open is not None and not len(self.open)

    def line(self, whole: NDArray[Any]) -> NDArray[Any]:
        """Return where choices are written to: `whole` [slot] while every row is there."""
        return whole if self.room is None else self.room

    def numbers(self) -> NDArray[Any]:
        """[open slot]: which of all its actions was chosen."""
        assert self.open is not None
        assert self.number is not None
        assert self.room is not None
        chosen: NDArray[Any] = self.number[self.layout.row_start[self.open] + self.room[self.open]]
        return chosen


def margin_of(layout: Layout, rewards: Floats, least: float, most: float, size: float, steps: int) -> float:
    """Return how far below the best an action must be never to be chosen in `steps` further steps."""
    outcomes = int(np.diff(layout.outcome_start).max())
    excess = float(largest_excess(layout.outcome_start, layout.outcome_probability)) + outcomes * UNIT
    if not steps * excess <= 0.5 or steps * (outcomes + 2) >= 2**45:
        return np.inf
    change = max(abs(least), abs(most))
    paid = max(abs(float(rewards.min())), abs(float(rewards.max())))
    bound = 2 * size + 4 * steps * change + paid
    delta = 2 * (outcomes + 2) * UNIT * (paid + bound)
    kappa = 2 * steps * excess * (change + 2 * delta)
    drift = steps * (most - least + 8 * delta + 2 * kappa) + 2 * excess * steps * (change + 4 * delta + kappa)
    return (1.0 + 1e-9) * (drift + 6 * delta)


def candidates_left(model: TabularModel, now: Candidates, work: Work) -> Candidates:
    """Return the rows that may be chosen at a step before `work.step`, which is done; `now` where too few are gone."""
    each = 2 if len(now.pays.cost) else 1
    if each == 2 and not np.array_equal(work.ahead[1::2], work.values[1::2]):
        return now
    least, most, size = layer_change(work.ahead, work.values, each)
    margin = margin_of(now.layout, now.pays.reward, least, most, size, work.step)
    stays, slots = np.empty(len(now.pays.reward), np.bool_), model.num_slots
    if each == 1:
        may_be_best(now.layout, work, now.pays, margin, stays, 0, slots)
    elif not may_be_least(now.layout, work, now.pays, margin, stays, 0, slots):
        return now
    return now if stays.sum() > WORTHWHILE * len(stays) else without(model, now, stays)


def without(model: TabularModel, now: Candidates, stays: Bools) -> Candidates:
    """Return only the rows that stay."""
    start = now.layout.row_start
    number = now.number
    if number is None:
        number = (np.arange(model.num_rows, dtype=np.int32) - np.repeat(start[:-1], np.diff(start))).astype(
            type_of(model)
        )
    counts = np.diff(starts_of(stays)[start])
    pays = Pays(
        now.pays.reward[stays], now.pays.cost[stays] if len(now.pays.cost) else now.pays.cost, now.pays.link[stays]
    )
    for array in pays:
        array.flags.writeable = False
    row_start = starts_of(counts)
    row_start.flags.writeable = False
    room = np.zeros(model.num_slots, type_of(model))
    return Candidates(now.layout._replace(row_start=row_start), pays, number[stays], np.flatnonzero(counts > 1), room)
