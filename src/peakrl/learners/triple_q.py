"""Triple-Q in its form for costs (after Wei, Liu and Ying, 2022): Q-tables of reward and of each cost, and queues.

Frames of F episodes; in episode k, at step h in state s (a greedy, ties to the lowest row; steps count from 0):

    a  = argmax_a Q_h(s,a) - sum_j (Z_j/eta) C^j_h(s,a)
    t  = N_h(s,a) += 1,   alpha = (chi+1)/(chi+t),   b = sqrt(alpha)
    Q_h(s,a)   <- (1-alpha) Q_h(s,a) + alpha (r + Q_{h+1}(s',a') + B b)
    C^j_h(s,a) <- max(0, (1-alpha) C^j_h(s,a) + alpha (c_j + C^j_{h+1}(s',a') - B_j b))

with a' the action taken in s', and all tables as they were before the episode. At the end of a frame

    N <- 0;   Q_h <- min(cap_h, Q_h + lift);   Z_j <- max(0, Z_j + mean over the frame of C^j_0(s_0,a_0) - d_j)

With limits for each step (`by_step`), c_j counts at its own step j // quantities only; the tables then hold the
expected violation of each constraint at each step ("H I tables"). They start at 0 and stay 0 after that step.

With K episodes, iota = log(sqrt(2 S A H) K), span = hi - lo and cap_h = hi (H-h), the constants are

    F = K^0.6,  chi = eta = K^0.2,  B = scale/4 H span sqrt(iota),  B_j likewise with the range of cost j
    lift = 2 scale H^3 span sqrt(iota)/eta,  limits lowered by `tightening`

The theorem sets the scales of bonus and lift to sqrt(128), and the tightening to 8 sqrt(S A H^6 (128 iota)^3)/K^0.2,
which exceeds every possible cost for realistic K. The defaults are therefore 0.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from peakrl.jit import loop
from peakrl.learners.assumptions import Forbidden
from peakrl.learners.base import TabularAlgorithm, Task
from peakrl.learners.cmdp_limits import BudgetSettings
from peakrl.learners.episode import Log, Path, note, register
from peakrl.learners.tables import table
from peakrl.types import Floats, Ints, Layout, Longs

FRAME_EXPONENT, QUEUE_EXPONENT = 0.6, 0.2
#: The first column of `Path.payoff` with a cost, after reward and violation.
COSTS = 2


class TripleQ(BudgetSettings):
    """Settings of Triple-Q; with `per_step` it has H I tables of costs."""

    by_step = True

    #: Scale of the exploration bonus.
    bonus: float = Field(default=0.0, ge=0)
    #: Scale of the lift of the reward table at the end of a frame.
    lift: float = Field(default=0.0, ge=0)
    #: Amount by which each limit is lowered.
    tightening: float = Field(default=0.0, ge=0)

    def make(self, task: Task) -> TripleQLearner:
        """Return the algorithm for a target."""
        return TripleQLearner(task, self)

    @property
    def bound_to_plan(self) -> str:
        """Frames and step sizes depend on the number of episodes."""
        return "frame"


class Tables(NamedTuple):
    """Tables of Triple-Q, and constants derived from settings and sizes."""

    #: [entry]
    q: Annotated[Floats, table("entry", low=-math.inf)]
    #: [entry, cost]
    cost: Annotated[Floats, table("entry", "cost", low=0.0)]
    #: [entry]: visits in this frame
    visits: Annotated[Ints, table("entry", low=0, high="frame")]
    #: [slot, column]
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    #: [cost]: Z, and the sum of C_0(s_0,a_0) over the episodes of the frame.
    queue: Annotated[Floats, table("cost", low=0.0)]
    estimate: Annotated[Floats, table("cost", low=0.0)]
    #: [slot]: its step, if slots belong to steps.
    slot_step: Annotated[Longs, table("slot", stored=False)]
    #: 1 if a column is a step, 0 if slots belong to steps.
    shift: int
    #: Episodes of a frame.
    frame: int
    chi: float
    eta: float
    #: B, and [cost] B_j.
    bonus: float
    cost_bonus: Floats
    lift: float
    #: [step]
    cap: Floats
    #: [cost]: d.
    limit: Floats
    #: Number of costs of a step.
    quantities: int
    by_step: bool


class TripleQLearner(TabularAlgorithm[Tables]):
    """Q-tables of reward and of each cost, and queues."""

    place_when_new = 0

    def __init__(self, task: Task, settings: TripleQ) -> None:
        sizes, episodes = task.sizes, task.episodes
        self.budget = budget = settings.budget(sizes)
        iota = math.log(math.sqrt(2 * sizes.states * sizes.actions * sizes.horizon) * episodes)
        eta, unit = episodes**QUEUE_EXPONENT, sizes.horizon * math.sqrt(max(iota, 0.0))
        super().__init__(
            task, Tables, {"cost": len(budget.limits)},
            frame=max(1, round(episodes**FRAME_EXPONENT)), chi=eta, eta=eta,
            bonus=settings.bonus / 4 * unit * sizes.span, cost_bonus=settings.bonus / 4 * unit * budget.ranges,
            lift=2 * settings.lift * sizes.horizon**2 * unit * sizes.span / eta,
            cap=sizes.reward_range[1] * np.arange(sizes.horizon, 0, -1.0),
            limit=budget.limits - settings.tightening, quantities=budget.quantities, by_step=budget.by_step,
        )  # fmt: skip

    def payoffs(self, reward: Floats, violation: Floats, constraints: Floats) -> Floats:
        """[.., column]: reward, violation, costs."""
        return np.column_stack([reward, violation, self.budget.charges(constraints)])

    @property
    def log_room(self) -> int:
        """The end of a frame may change every node, after the path of its last episode did."""
        return self.space.slots * self.columns + self.space.horizon

    def start(self, first: int, first_row: int, log: Log) -> None:
        """New entries start at the largest value and at cost 0."""
        space, tables = self.space, self.tables
        if space.shared:
            tables.q[:] = np.repeat(tables.cap, space.rows)
        else:
            tables.q[first_row:] = tables.cap[space.slot_step[space.slot_of_row[first_row:]]]

    def forbid(self, declared: Forbidden) -> None:
        """Set Q of forbidden entries to minus infinity, unless all actions of the state are forbidden."""
        self.take_allowed(declared)
        self.tables.q.reshape(self.columns, -1)[:, declared.first :].T[declared.avoidable] = -np.inf

    # Results -------------------------------------------------------------------------------------------------

    def multipliers(self) -> Floats:
        """[cost]: Z/eta."""
        return self.tables.queue / self.tables.eta

    def values(self) -> Floats:
        """[entry]: Q minus the priced costs."""
        value = self.tables.q - self.tables.cost @ self.multipliers()
        return self.space.entries_of(value.reshape(self.columns, -1).T)


@loop
def choose(tables: Tables, layout: Layout, step: int, slot: int, log: Log) -> None:
    """Update the greedy row of a node: the largest Q minus priced costs."""
    best, chosen = -math.inf, layout.row_start[slot]
    for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
        entry = step * layout.entry_stride + row
        value = tables.q[entry]
        for j in range(tables.queue.shape[0]):
            value -= tables.queue[j] / tables.eta * tables.cost[entry, j]
        if value > best:
            best, chosen = value, row
    column = step * tables.shift
    if tables.greedy[slot, column] != chosen:
        tables.greedy[slot, column] = chosen
        note(log, step * layout.node_stride + slot, chosen)


@loop
def update(tables: Tables, layout: Layout, path: Path, length: int) -> None:
    """Learn from an episode, first step first, so that every step uses the old values of the next."""
    costs = tables.queue.shape[0]
    for j in range(costs):
        tables.estimate[j] += tables.cost[path.row[0], j]
    for step in range(length):
        entry = step * layout.entry_stride + path.row[step]
        last = step + 1 == length
        ahead = entry if last else (step + 1) * layout.entry_stride + path.row[step + 1]
        tables.visits[entry] += 1
        alpha = (tables.chi + 1.0) / (tables.chi + tables.visits[entry])
        width = math.sqrt(alpha)
        target = path.payoff[step, 0] + (0.0 if last else tables.q[ahead]) + tables.bonus * width
        tables.q[entry] = (1.0 - alpha) * tables.q[entry] + alpha * target
        for j in range(costs):
            when = j // tables.quantities if tables.by_step else step
            if when >= step:
                charge = path.payoff[step, COSTS + j % tables.quantities] if when == step else 0.0
                target = charge + (0.0 if last else tables.cost[ahead, j]) - tables.cost_bonus[j] * width
                tables.cost[entry, j] = max(0.0, (1.0 - alpha) * tables.cost[entry, j] + alpha * target)


@loop
def end_frame(tables: Tables, layout: Layout, log: Log) -> None:
    """Update the queues and lift the reward table."""
    for j in range(tables.queue.shape[0]):
        tables.queue[j] = max(0.0, tables.queue[j] + tables.estimate[j] / tables.frame - tables.limit[j])
    tables.estimate[:] = 0.0
    tables.visits[:] = 0
    for slot in range(layout.row_start.shape[0] - 1):
        if layout.row_start[slot + 1] == layout.row_start[slot]:
            continue
        for column in range(tables.greedy.shape[1]):
            step = column if tables.shift == 1 else tables.slot_step[slot]
            for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                entry = step * layout.entry_stride + row
                tables.q[entry] = min(tables.cap[step], tables.q[entry] + tables.lift)
            choose(tables, layout, step, slot, log)


def learn(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from an episode; end the frame if it is its last."""
    update(tables, layout, path, length)
    for step in range(length):
        choose(tables, layout, step, path.slot[step], log)
    if episode % tables.frame == 0:
        end_frame(tables, layout, log)


register(Tables, learn=learn)
