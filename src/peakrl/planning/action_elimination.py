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

from peakrl.planning.action_elimination_kernel import largest_excess, layer_change, may_be_best, may_be_least
from peakrl.planning.backward_kernel import Pays, Work
from peakrl.planning.parallel import Share
from peakrl.policy.choices import type_of
from peakrl.space import starts_of
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Layout, Longs
from peakrl.viability import Bools

#: Rows are looked at after so many steps, then after half as many again each time, while so many are still to come.
FIRST_LOOK, FURTHER, STEPS_LEFT = 24, 1.5, 12
#: What is left is copied where it is at most this share of what there was.
WORTHWHILE = 0.75
#: About so many slots are asked first whether it is worth while to ask all of them.
SAMPLE = 20_000
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

    def chosen(self, first: int, last: int) -> tuple[Longs, NDArray[Any]]:
        """Return the open ones among the slots first .. last, and which of all its actions each of them chose."""
        assert self.open is not None
        assert self.number is not None
        assert self.room is not None
        slots = self.open[slice(*np.searchsorted(self.open, (first, last)))]
        return slots, self.number[self.layout.row_start[slots] + self.room[slots]]


@dataclass(frozen=True)
class Sizes:
    """What bounds rounding, of all rows of a model."""

    #: m, and e with the rounding of its own sum.
    outcomes: int
    excess: float
    #: max|r|
    paid: float


def sizes_of(layout: Layout, rewards: Floats) -> Sizes:
    """Return the sizes of a model that pays so much, [row]."""
    outcomes = int(np.diff(layout.outcome_start).max())
    excess = float(largest_excess(layout.outcome_start, layout.outcome_probability)) + outcomes * UNIT
    return Sizes(outcomes, excess, max(abs(float(rewards.min())), abs(float(rewards.max()))))


def margin_of(sizes: Sizes, least: float, most: float, size: float, steps: int) -> float:
    """Return how far below the best an action must be never to be chosen in `steps` further steps."""
    outcomes, excess, paid = sizes.outcomes, sizes.excess, sizes.paid
    if not steps * excess <= 0.5 or steps * (outcomes + 2) >= 2**45:
        return np.inf
    change = max(abs(least), abs(most))
    bound = 2 * size + 4 * steps * change + paid
    delta = 2 * (outcomes + 2) * UNIT * (paid + bound)
    kappa = 2 * steps * excess * (change + 2 * delta)
    drift = steps * (most - least + 8 * delta + 2 * kappa) + 2 * excess * steps * (change + 4 * delta + kappa)
    return (1.0 + 1e-9) * (drift + 6 * delta)


def candidates_left(model: TabularModel, now: Candidates, work: Work, sizes: Sizes, share: Share) -> Candidates:
    """Return the rows that may be chosen at a step before `work.step`, which is done; `now` where too few are gone."""
    each, start = 2 if len(now.pays.cost) else 1, now.layout.row_start
    if each == 2 and not np.array_equal(work.ahead[1::2], work.values[1::2]):
        return now
    margin = margin_of(sizes, *change_of(work, each, start, share), work.step)
    #: [row]: does it stay? [slot]: how many do?
    stays, left = np.empty(len(now.pays.reward), np.bool_), np.zeros(model.num_slots, np.int64)
    look, slots = may_be_best if each == 1 else may_be_least, model.num_slots
    stride = max(1, slots // SAMPLE)
    if not look(now.layout, work, now.pays, margin, stays, left, 0, slots, stride):
        return now
    if left.sum() > WORTHWHILE * (start[1::stride] - start[:-1:stride]).sum():
        return now
    if stride > 1:
        found = share(lambda a, b: look(now.layout, work, now.pays, margin, stays, left, a, b, 1), start, 0, slots)
        if not all(found) or left.sum() > WORTHWHILE * len(stays):
            return now
    return without(model, now, stays, left, share)


def change_of(work: Work, each: int, start: Longs, share: Share) -> tuple[float, float, float]:
    """Return the least and the largest change of a value at this step, and the largest size of all."""
    found = share(
        lambda a, b: layer_change(work.ahead[each * a : each * b], work.values[each * a : each * b], each),
        start, 0, len(start) - 1,
    )  # fmt: skip
    least, most, size = zip(*found, strict=True)
    return min(least), max(most), max(size)


def without(model: TabularModel, now: Candidates, stays: Bools, left: Longs, share: Share) -> Candidates:
    """Return only the rows that stay, so many of each slot."""
    before, start, total = now.layout.row_start, starts_of(left), int(left.sum())
    number = np.empty(total, type_of(model))
    pays = Pays(np.empty(total), np.empty(total if len(now.pays.cost) else 0), np.empty(total, np.int32))

    def pick(first: int, last: int) -> None:
        rows, places = slice(before[first], before[last]), slice(start[first], start[last])
        stay = stays[rows]
        pays.reward[places], pays.link[places] = now.pays.reward[rows][stay], now.pays.link[rows][stay]
        if len(pays.cost):
            pays.cost[places] = now.pays.cost[rows][stay]
        number[places] = numbers_of(now, first, last)[stay]

    share(pick, before, 0, model.num_slots)
    for array in (*pays, start):
        array.flags.writeable = False
    room = np.zeros(model.num_slots, type_of(model))
    return Candidates(now.layout._replace(row_start=start), pays, number, np.flatnonzero(left > 1), room)


def numbers_of(now: Candidates, first: int, last: int) -> NDArray[Any]:
    """[row of the slots first .. last]: which of its slot's actions it is."""
    start = now.layout.row_start[first : last + 1]
    if now.number is not None:
        return now.number[start[0] : start[-1]]
    return np.arange(start[0], start[-1]) - np.repeat(start[:-1], np.diff(start))
