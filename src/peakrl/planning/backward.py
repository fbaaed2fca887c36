"""Backward induction over a model (`planning.backward_kernel`): layer by layer, on any number of threads.

In a stationary model a layer of values is a function of the next one alone. Where two that follow each other are equal,
number by number, so are all before them, and the choices with them: the induction ends there, whatever the horizon.
Where values go on changing, actions that can be chosen no more are left out on the way (`settling`).

Threads share the slots of a step (`sharing`). Each slot is worked out by itself, so results are the same for any number
of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.memory import BYTES_WITH_VALUES, check_tables
from peakrl.planning.action_elimination import (
    FIRST_LOOK,
    FURTHER,
    STEPS_LEFT,
    Candidates,
    Sizes,
    candidates_left,
    sizes_of,
)
from peakrl.planning.backward_kernel import Pays, Work, expect_harm, expect_reward, least_harm, most_reward
from peakrl.planning.parallel import Share, threads_for
from peakrl.planning.policy_store import Changes, Keeper
from peakrl.policy.choices import Choices, width_of
from peakrl.space import read_only
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Longs

#: Expectations are worked out once for each distribution where rows are at least so many times as numerous.
SHARED = 1.5
Room = Callable[[], NDArray[Any]]
NO_LINE: NDArray[Any] = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Induction:
    """What backward induction found."""

    #: [slot of step 0]: V and C.
    first_values: Floats
    first_costs: Floats
    #: What is chosen at each step; None where it is not kept.
    choices: Choices | None
    #: [node]: V and C; empty where they are not kept.
    values: Floats
    costs: Floats


def induction(
    model: TabularModel, pays: Pays, *, choices: bool = True, values: bool = False, threads: int | None = None,
    room: Room | None = None,
) -> Induction:  # fmt: skip
    """Go through the steps from the last to the first, and keep the choices and the values by node where asked.

    `room` makes the table of choices of all steps, where it is needed; by default in memory.
    """
    if values:
        every_step = model.num_slots if model.stationary else 1
        check_tables(model.name, model.horizon, every_step, each=BYTES_WITH_VALUES)
    recursion = Recursion(model, pays, Keeper(model, room) if choices else None, values)
    with threads_for(model, threads) as share:
        recursion.run(share)
        return recursion.found(share)


class Recursion:
    """The two layers of a backward induction, and what is kept of those that were."""

    def __init__(self, model: TabularModel, pays: Pays, keeper: Keeper | None, values: bool) -> None:
        self.model, self.each = model, 2 if len(pays.cost) else 1
        #: [slot]: V, or V and C in turns, of the step after and of the one at hand.
        self.ahead, self.here = (np.zeros(self.each * widest_layer(model)) for _ in range(2))
        self.expected = np.empty(self.each * shared_distributions(model, pays.link))
        self.keeper = keeper
        #: [node, V and C]
        self.tables = np.zeros((model.num_nodes if values else 0, self.each))
        self.left, self.next_look = Candidates(model.layout, pays), model.horizon - FIRST_LOOK

    def run(self, share: Share) -> None:
        """Do the steps, until nothing changes any more."""
        for step in range(self.model.horizon - 1, -1, -1):
            work = self.work_of(step)
            self.keep(work, self.work_out(work, share))
            if self.model.stationary and STEPS_LEFT <= step <= self.next_look:
                self.left = candidates_left(self.model, self.left, work, self.sizes, share)
                self.next_look = look_after(self.model, step)
            self.ahead, self.here = self.here, self.ahead
            if self.model.stationary and step > 0 and equal(self.ahead, self.here):
                self.repeat(step)
                break

    @cached_property
    def sizes(self) -> Sizes:
        """What bounds the rounding of every step."""
        return sizes_of(self.left.layout, self.left.pays.reward)

    def work_of(self, step: int) -> Work:
        """Return what a step is worked out from and into."""
        first, last = self.model.step_slots[step].tolist()
        there = 0 if self.model.stationary else last
        line = NO_LINE if self.keeper is None or self.left.settled else self.left.line(self.keeper.line(step))
        width = width_of(self.model)
        return Work(step, first, there, self.ahead, self.expected, self.here, line.view(np.uint8), width)

    def work_out(self, work: Work, share: Share) -> list[Changes]:
        """Do one step: expectations where rows share them, then the slots and what is chosen anew in them."""
        layout = self.left.layout
        if len(work.expected):
            expect = expect_harm if self.each == 2 else expect_reward
            share(lambda a, b: expect(layout, work, a, b), layout.outcome_start, *layout.step_distributions[work.step])
        return share(lambda a, b: self.part(work, a, b), layout.row_start, *layout.step_slots[work.step])

    def part(self, work: Work, first: int, last: int) -> Changes:
        """Do the slots first .. last; return what they choose otherwise than at the step after."""
        left = self.left
        if self.each == 2:
            scratch = np.empty(2 * self.model.max_actions)
            least_harm(left.layout, work, left.pays, scratch, first, last)
        else:
            most_reward(left.layout, work, left.pays, first, last)
        if self.keeper is None or not len(work.choice):
            return None
        if left.open is None:
            return self.keeper.changed(work.step, first, last)
        return self.keeper.changed_among(work.step, first, last, *left.chosen(first, last))

    def keep(self, work: Work, changes: list[Changes]) -> None:
        """Keep what was worked out, as far as somebody asks for it."""
        if self.keeper is not None and len(work.choice):
            self.keeper.keep(work.step, changes)
        if len(self.tables):
            first, last = self.model.step_slots[work.step].tolist()
            place = work.step * self.model.node_stride + first
            layer = self.here[: self.each * (last - first)]
            self.tables[place : place + last - first] = layer.reshape(-1, self.each)

    def repeat(self, step: int) -> None:
        """Keep the values of a step for all before it."""
        if len(self.tables):
            size = self.model.num_slots
            self.tables[: step * size].reshape(step, -1)[:] = self.ahead[: self.each * size]

    def found(self, share: Share) -> Induction:
        """Return what came out."""
        harm = self.each == 2
        return Induction(
            first_values=self.ahead[:: self.each],
            first_costs=self.ahead[1::2] if harm else np.zeros(len(self.ahead)),
            choices=None if self.keeper is None else self.keeper.choices(share),
            values=np.ascontiguousarray(self.tables[:, 0]),
            costs=np.ascontiguousarray(self.tables[:, 1]) if harm else np.zeros(len(self.tables)),
        )


def widest_layer(model: TabularModel) -> int:
    """Return the most slots that any step has, that after the last included."""
    if model.stationary:
        return model.num_slots
    return max(model.max_states, model.num_slots - int(model.step_slots[-1, 1]))


def look_after(model: TabularModel, step: int) -> int:
    """Return at which step to look next for actions that can be left out, after `step`."""
    return model.horizon - int(FURTHER * (model.horizon - step))


def equal(one: Floats, other: Floats) -> bool:
    """Are two layers the same? Most are not, and differ early on."""
    return np.array_equal(one[:1000], other[:1000]) and np.array_equal(one, other)


def shared_distributions(model: TabularModel, link: Ints) -> int:
    """Return the most distributions that a step has; 0 where hardly any is shared by rows of several outcomes."""
    several = int((np.diff(model.outcome_start) > 1).sum())
    if int((link < 0).sum()) < SHARED * several or several == 0:
        return 0
    return int(np.diff(model.step_distributions, axis=1).max())


def pays_of(model: TabularModel, reward: Floats, cost: Floats | None = None) -> Pays:
    """Return what rows pay, [row], and where they lead; without `cost` none can come up."""
    return Pays(read_only(reward), read_only(np.empty(0) if cost is None else cost), read_only(links(model)))


def links(model: TabularModel) -> Ints:
    """[row]: the next slot, counted from the first of the next step, where it is certain; else ~distribution."""
    start, there = model.outcome_start, 0 if model.stationary else next_first(model)
    alone = (np.diff(start) == 1) & (model.outcome_probability[start[:-1]] == 1.0)
    number = np.arange(len(alone), dtype=np.int32)
    link = np.where(alone, model.outcome_next[start[:-1]] - there, ~number).astype(np.int32)
    return link[model.row_distribution]


def next_first(model: TabularModel) -> Longs:
    """[distribution] of a layered model: the first slot of the step that it leads to."""
    return np.repeat(model.step_slots[:, 1], np.diff(model.step_distributions, axis=1)[:, 0])
