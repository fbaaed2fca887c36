"""Backward induction over a model (`kernels.backward`): layer by layer, on any number of threads.

In a stationary model a layer of values is a function of the next one alone. Where two that follow each other are equal,
number by number, so are all before them, and the choices with them: the induction ends there, whatever the horizon.
Where values go on changing, actions that can be chosen no more are left out on the way (`settling`).

Threads share the slots of a step. Each slot is worked out by itself, so results are the same for any number of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.kernels.arrays import Floats, Ints, Longs
from peakrl.kernels.backward import Pays, Work, expect_harm, expect_reward, least_harm, most_reward
from peakrl.model.budgets import BYTES_WITH_VALUES, check_tables
from peakrl.model.space import read_only
from peakrl.model.tabular import TabularModel
from peakrl.planning.keeping import Keeper
from peakrl.planning.settling import FIRST_LOOK, FURTHER, STEPS_LEFT, Candidates, candidates_left
from peakrl.policy.choices import Choices, width_of

#: A thread of its own pays from about this many pairs of a step on.
PAIRS_A_THREAD = 20_000
#: Expectations are worked out once for each distribution where rows are at least so many times as numerous.
SHARED = 1.5
#: What goes on threads: a function of the first and one past the last of what it does.
Part = Callable[[int, int], None]
Share = Callable[[Part, Longs, int, int], None]
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
    return recursion.found()


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
            work_out(self.model, self.left, work, share)
            self.keep(work)
            if self.model.stationary and STEPS_LEFT <= step <= self.next_look:
                self.left, self.next_look = candidates_left(self.model, self.left, work), look_after(self.model, step)
            self.ahead, self.here = self.here, self.ahead
            if self.model.stationary and step > 0 and equal(self.ahead, self.here):
                self.repeat(step)
                break

    def work_of(self, step: int) -> Work:
        """Return what a step is worked out from and into."""
        first, last = self.model.step_slots[step].tolist()
        there = 0 if self.model.stationary else last
        line = NO_LINE if self.keeper is None or self.left.settled else self.left.line(self.keeper.line(step))
        width = width_of(self.model)
        return Work(step, first, there, self.ahead, self.expected, self.here, line.view(np.uint8), width)

    def keep(self, work: Work) -> None:
        """Keep what was worked out, as far as somebody asks for it."""
        if self.keeper is not None and len(work.choice):
            if self.left.open is None:
                self.keeper.keep(work.step)
            else:
                self.keeper.keep_open(work.step, self.left.open, self.left.numbers())
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

    def found(self) -> Induction:
        """Return what came out."""
        harm = self.each == 2
        return Induction(
            first_values=self.ahead[:: self.each],
            first_costs=self.ahead[1::2] if harm else np.zeros(len(self.ahead)),
            choices=None if self.keeper is None else self.keeper.choices(),
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


def work_out(model: TabularModel, left: Candidates, work: Work, share: Share) -> None:
    """Do one step: expectations where rows share them, then the slots."""
    layout, pays = left.layout, left.pays
    harm = len(pays.cost) > 0
    if len(work.expected):
        expect = expect_harm if harm else expect_reward
        share(lambda a, b: expect(layout, work, a, b), layout.outcome_start, *layout.step_distributions[work.step])
    slots = layout.step_slots[work.step]
    if harm:
        share(lambda a, b: harm_part(model.max_actions, left, work, a, b), layout.row_start, *slots)
    else:
        share(lambda a, b: most_reward(layout, work, pays, a, b), layout.row_start, *slots)


def harm_part(actions: int, left: Candidates, work: Work, first: int, last: int) -> None:
    """Do the slots first .. last, of at most so many actions, where a cost can come up."""
    least_harm(left.layout, work, left.pays, np.empty(2 * actions), first, last)


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


@contextmanager
def threads_for(model: TabularModel, threads: int | None) -> Iterator[Share]:
    """Yield what does a step's work on so many threads; None: on every core, as far as steps are long enough."""
    most = model.num_rows // (1 if model.stationary else model.horizon) // PAIRS_A_THREAD
    number = max(1, min(len(os.sched_getaffinity(0)) if threads is None else threads, most))
    if number == 1:
        yield lambda part, _, first, last: part(int(first), int(last))
        return
    with ThreadPoolExecutor(number) as pool:

        def share(part: Part, starts: Longs, first: int, last: int) -> None:
            """Cut first .. last into parts of about equal work, `starts` telling where each one's work begins."""
            ends = np.linspace(int(starts[first]), int(starts[last]), number + 1)
            cuts = np.searchsorted(starts[first : last + 1], ends) + first
            cuts[0], cuts[-1] = first, last
            for done in [pool.submit(part, a, b) for a, b in pairwise(cuts.tolist())]:
                done.result()

        yield share
