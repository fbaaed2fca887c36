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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.jit import inlined, loop
from peakrl.learners.assumptions.limits import allowed_rows, avoidable
from peakrl.learners.base import Choices, Episode, SamplingAlgorithm, Task, check_ranges, compiled, used
from peakrl.learners.cmdp_limits import BudgetSettings
from peakrl.learners.episode import Log, lacks_room, note, note_episode, take_row
from peakrl.learners.growable import Table
from peakrl.learners.space import checked_rows
from peakrl.learners.tables import FINITE
from peakrl.sampling import Words, draw_first
from peakrl.types import Floats, Ints, Layout, Longs, Sampler


class Tables(NamedTuple):
    """Tables of Triple-Q."""

    #: [entry]
    q: Floats
    #: [entry, cost]
    cost: Floats
    #: [entry]: visits in this frame
    visits: Ints
    #: [slot, column]
    greedy: Longs
    #: [cost]: Z, and the sum of C_0(s_0,a_0) over the episodes of the frame.
    queue: Floats
    estimate: Floats


class Rules(NamedTuple):
    """Constants derived from settings and sizes."""

    #: Strides of the layout; 1 if a column is a step, 0 if slots belong to steps.
    node_stride: int
    entry_stride: int
    shift: int
    row_start: Longs
    slot_step: Longs
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


class Path(NamedTuple):
    """[step]: an episode. Charges are [step, quantity]."""

    slot: Longs
    row: Longs
    reward: Floats
    charge: Floats


FRAME_EXPONENT, QUEUE_EXPONENT = 0.6, 0.2


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


class TripleQLearner(SamplingAlgorithm):
    """Q-tables of reward and of each cost, and queues."""

    starts_first = True

    def __init__(self, task: Task, settings: TripleQ) -> None:
        super().__init__(task)
        self.budget = settings.budget(task.sizes)
        costs, horizon = len(self.budget.limits), task.sizes.horizon
        self.by_entry = {
            "q": Table(0.0, np.float64), "cost": Table(0.0, np.float64, costs), "visits": Table(0, np.int32)
        }  # fmt: skip
        self.by_slot = {"greedy": Table(0, np.int64, self.columns)}
        #: Z, and the sums of the frame.
        self.queue, self.estimate = np.zeros(costs), np.zeros(costs)
        slot, row = (np.zeros(horizon, np.int64) for _ in range(2))
        self.path = Path(slot, row, np.zeros(horizon), np.zeros((horizon, self.budget.quantities)))
        self.constants = self._constants(settings)
        if task.model is not None:
            self.payoff = np.stack([task.model.payoffs.reward, task.model.record_violation], axis=1)
            self.charges = self.budget.charges(task.model.payoffs.constraints)

    def _constants(self, settings: TripleQ) -> dict[str, Any]:
        sizes, episodes, budget = self.task.sizes, self.task.episodes, self.budget
        iota = math.log(math.sqrt(2 * sizes.states * sizes.actions * sizes.horizon) * episodes)
        eta, unit = episodes**QUEUE_EXPONENT, sizes.horizon * math.sqrt(max(iota, 0.0))
        return {
            "frame": max(1, round(episodes**FRAME_EXPONENT)), "chi": eta, "eta": eta,
            "bonus": settings.bonus / 4 * unit * sizes.span, "cost_bonus": settings.bonus / 4 * unit * budget.ranges,
            "lift": 2 * settings.lift * sizes.horizon**2 * unit * sizes.span / eta,
            "cap": sizes.reward_range[1] * np.arange(sizes.horizon, 0, -1.0),
            "limit": budget.limits - settings.tightening, "quantities": budget.quantities, "by_step": budget.by_step,
        }  # fmt: skip

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new entries start at the largest value and at cost 0."""
        space = self.space
        before = self.by_entry["q"].size // self.columns
        for table in self.by_entry.values():
            table.grow(space.rows * self.columns)
        self.by_slot["greedy"].grow(space.slots)
        start = space.layout.row_start
        self.by_slot["greedy"].room[first : space.slots] = start[first:-1, None]
        cap, q = self.constants["cap"], self.by_entry["q"].used
        if space.shared:
            q[:] = np.repeat(cap, space.rows)
        else:
            q[before:] = cap[space.slot_step[space.slot_of_row[before:]]]
        rooms = {name: table.room for name, table in (self.by_entry | self.by_slot).items()}
        self.tables = Tables(queue=self.queue, estimate=self.estimate, **rooms)
        # Copies: the arrays of a model are read-only, which would compile another specialisation.
        places: dict[str, Any] = {"row_start": np.array(start), "slot_step": np.array(space.slot_step)}
        places |= {"node_stride": space.layout.node_stride, "entry_stride": space.layout.entry_stride}
        self.rules = Rules(shift=int(space.shared), **places, **self.constants)

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Set Q of forbidden entries to minus infinity, unless all actions of the state are forbidden."""
        start = self.space.layout.row_start
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        best, _ = allowed_rows(start[low:], forbidden, first)
        q = self.by_entry["q"].used.reshape(self.columns, -1)
        q[:, first:].T[avoidable(start[low:], forbidden, first)] = -np.inf
        greedy = self.by_slot["greedy"].used[low:]
        greedy[:] = np.where(best >= 0, best, greedy)

    def choices(self) -> Choices:
        """The greedy rows."""
        return Choices.by_column(self.tables.greedy)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode."""
        length, path = played.length, self.path
        path.slot[:length], path.row[:length] = played.slot[:length], played.row[:length]
        path.reward[:length] = played.reward[:length]
        path.charge[:length] = self.budget.charges(played.constraints[:length])
        learn_path(self.tables, self.rules, path, length, log, episode)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full."""
        model = compiled(self.task)
        return learn_triple_q(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff, self.charges,
            self.tables, self.rules, self.path, generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    # Results -------------------------------------------------------------------------------------------------

    def multipliers(self) -> Floats:
        """[cost]: Z/eta."""
        return self.queue / float(self.constants["eta"])

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the greedy rows."""
        return self.by_slot["greedy"].used.copy()

    def values(self) -> Floats:
        """[entry]: Q minus the priced costs."""
        value = self.by_entry["q"].used - self.by_entry["cost"].used @ self.multipliers()
        return self.space.entries_of(value.reshape(self.columns, -1).T)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return used(self.by_entry | self.by_slot) | {"queue": self.queue, "estimate": self.estimate}

    def check(self, done: int) -> None:
        """Raise if a row or a number is out of range."""
        arrays = self.arrays()
        checked_rows(self.space, arrays["greedy"], self.columns, "engine.greedy")
        check_ranges(
            arrays,
            {"q": (-np.inf, FINITE), "visits": (0, self.constants["frame"])}
            | dict.fromkeys(("cost", "queue", "estimate"), (0.0, FINITE)),
        )


@inlined
def greedy_row(tables: Tables, rules: Rules, step: int, slot: int) -> int:
    """Return the row of the largest Q minus priced costs."""
    best, chosen = -math.inf, rules.row_start[slot]
    for row in range(rules.row_start[slot], rules.row_start[slot + 1]):
        entry = step * rules.entry_stride + row
        value = tables.q[entry]
        for j in range(tables.queue.shape[0]):
            value -= tables.queue[j] / rules.eta * tables.cost[entry, j]
        if value > best:
            best, chosen = value, row
    return np.int64(chosen)


@loop
def choose(tables: Tables, rules: Rules, step: int, slot: int, log: Log) -> None:
    """Update the greedy row of a node."""
    row, column = greedy_row(tables, rules, step, slot), step * rules.shift
    if tables.greedy[slot, column] != row:
        tables.greedy[slot, column] = row
        note(log, step * rules.node_stride + slot, row)


@loop
def update(tables: Tables, rules: Rules, path: Path, length: int) -> None:
    """Learn from an episode, first step first, so that every step uses the old values of the next."""
    costs = tables.queue.shape[0]
    for j in range(costs):
        tables.estimate[j] += tables.cost[path.row[0], j]
    for step in range(length):
        entry = step * rules.entry_stride + path.row[step]
        last = step + 1 == length
        ahead = entry if last else (step + 1) * rules.entry_stride + path.row[step + 1]
        tables.visits[entry] += 1
        alpha = (rules.chi + 1.0) / (rules.chi + tables.visits[entry])
        width = math.sqrt(alpha)
        target = path.reward[step] + (0.0 if last else tables.q[ahead]) + rules.bonus * width
        tables.q[entry] = (1.0 - alpha) * tables.q[entry] + alpha * target
        for j in range(costs):
            when = j // rules.quantities if rules.by_step else step
            if when >= step:
                charge = path.charge[step, j % rules.quantities] if when == step else 0.0
                target = charge + (0.0 if last else tables.cost[ahead, j]) - rules.cost_bonus[j] * width
                tables.cost[entry, j] = max(0.0, (1.0 - alpha) * tables.cost[entry, j] + alpha * target)


@loop
def end_frame(tables: Tables, rules: Rules, log: Log) -> None:
    """Update the queues and lift the reward table."""
    for j in range(tables.queue.shape[0]):
        tables.queue[j] = max(0.0, tables.queue[j] + tables.estimate[j] / rules.frame - rules.limit[j])
    tables.estimate[:] = 0.0
    tables.visits[:] = 0
    for slot in range(rules.row_start.shape[0] - 1):
        if rules.row_start[slot + 1] == rules.row_start[slot]:
            continue
        for column in range(tables.greedy.shape[1]):
            step = column if rules.shift == 1 else rules.slot_step[slot]
            for row in range(rules.row_start[slot], rules.row_start[slot + 1]):
                entry = step * rules.entry_stride + row
                tables.q[entry] = min(rules.cap[step], tables.q[entry] + rules.lift)
            choose(tables, rules, step, slot, log)


@loop
def learn_path(tables: Tables, rules: Rules, path: Path, length: int, log: Log, episode: int) -> None:
    """Learn from an episode; end the frame if it is its last."""
    update(tables, rules, path, length)
    for step in range(length):
        choose(tables, rules, step, path.slot[step], log)
    if episode % rules.frame == 0:
        end_frame(tables, rules, log)


@loop
def learn_triple_q(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record, 2]: reward, total violation
    payoff: Floats,
    #: [record, quantity]
    charges: Floats,
    tables: Tables,
    rules: Rules,
    path: Path,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    experience: Floats,
    counters: Longs,
) -> int:
    """Run up to `episodes` episodes from done+1 on; return how many."""
    for k in range(episodes):
        if k > 0 and lacks_room(log, tables.greedy.size + layout.horizon):
            return k
        slot = draw_first(generator, sampler)
        earned, violated = 0.0, 0.0
        for step in range(layout.horizon):
            row = tables.greedy[slot, step * rules.shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.slot[step], path.row[step], path.reward[step] = slot, row, payoff[record, 0]
            for c in range(charges.shape[1]):
                path.charge[step, c] = charges[record, c]
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        log.head[1] = done + k + 2
        learn_path(tables, rules, path, layout.horizon, log, done + k + 1)
        note_episode(experience, counters, done, k, earned, violated)
    return episodes
