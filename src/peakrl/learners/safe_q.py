"""SafeQ: Q-learning with tight optimism, a memory of violations and updates of all steps at once.

An episode follows the greedy policy. After it, its transitions (h, s, a, r, f, s') are learned from, last one first, so
that information from the end of an episode reaches its beginning at once:

    t = N(s,a) += 1,   delta = R + W_{h+1}(s') - Q_h(s,a)
    Q_h(s,a) <- Q_h(s,a) + alpha delta,   W_h(s) = max_a Q_h(s,a),   W_H = 0

* Tight optimism: Q_h starts at span * (H - h), the largest reward of steps h .. H-1 above the range's lower end.
* Constraint memory: R = r - lo. An observed violation sets Q(s,a) to minus infinity at every step; W = -inf marks a
  dead end, and -inf propagates to every pair that was observed to lead to one. An entry at -inf stays there. In a dead
  end the action of least observed violation is taken. If a first state is a dead end, the problem is infeasible: the
  tables are reset, R = r - lo - penalty * violation, and nothing is forbidden any more. Penalties are rare and large,
  so from then on alpha = (H+1)/(H+m+t): the initial value counts for m visits, and no action is abandoned after one
  unlucky outcome.
* Shared steps: if nothing depends on the step, a transition updates Q_h(s,a) for every h, with one shared count.
* Discount g: delta = R + g W(s') - Q(s,a), with one table for all steps; Q starts at span / (1-g).
* Step sizes separate trend from noise (the bias-adjusted Kalman filter of George and Powell, 2006): with
  g = c/(c+t), smoothed error b <- (1-g) b + g delta and square v <- (1-g) v + g delta^2,

      alpha = 1 - (v - b^2) / ((1 + l) v),   l <- (1-alpha)^2 l + alpha^2,

  at least 1/t, and 1 at the first two visits. While the optimistic start decays, the errors agree in sign and alpha
  stays near 1; afterwards they cancel and alpha falls to that of an average. They never cancel completely, so after 20
  visits v - b^2 is replaced by (v - b^2) / (1-g)^2, at most v: otherwise 10,000 visits would count as 2,600.
* Trials: without a bonus, early bad luck may make the best action look worse than another, and it would never be tried
  again. After 1, 2, 4, 6, 9, 12, 16, .. visits of s (j^2 / 4, rounded down), the next visit therefore takes an action
  of the largest Q_h(s,a) + c sqrt(l m), c = 3. Here l is that of the step size and m the mean of
  delta^2 over all visits of the pair; the first error counts as the largest reward of a step, which covers what few
  visits may not have shown. Trials affect neither Q and W nor the returned policy, never take a forbidden
  action, and end with a proof of infeasibility.

Tables are [row, column] and [slot, column]; a column is a step in a stationary model, and a layered model, whose slots
belong to steps, has one column.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.checks import LARGEST_PENALTY
from peakrl.errors import SettingsError
from peakrl.jit import inlined, loop
from peakrl.learners.assumptions import (
    NO_GROUPS,
    Forbidden,
    Groups,
    check_max_reward,
    known_violations,
    make_groups,
)
from peakrl.learners.base import Episode, LearnerSettings, Sizes, TabularAlgorithm, Task
from peakrl.learners.constrained_q import slater_penalty
from peakrl.learners.episode import Log, Path, note, register
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES, Memory
from peakrl.learners.tables import table
from peakrl.tabular import modified_reward
from peakrl.types import Floats, Ints, Layout, Longs

#: c of the step size: the number of recent errors that it averages.
ERROR_WINDOW = 5.0
#: Visits after which the estimate of the noise is corrected.
SETTLED = 20
#: m: weight of the initial value after a proof of infeasibility, in visits.
PATIENCE = 20.0
#: c of the trials, in standard errors.
DOUBT = 3.0


class SafeQ(LearnerSettings):
    """Settings of the model-free learner: Q-learning with a memory of violations."""

    #: Try actions again, ever more rarely, that may be better than their estimate.
    trials: bool = True
    #: Penalty weight after a proof of infeasibility; by default it follows from 1 % of the tightest constraint bound.
    penalty: float | None = Field(default=None, ge=0, le=LARGEST_PENALTY)

    discounts = True

    def make(self, task: Task) -> SafeQLearner:
        """Return the algorithm for a target."""
        check_max_reward(task.model, task.assumptions.max_reward)
        return SafeQLearner(task, self)

    def penalty_of(self, sizes: Sizes) -> float:
        """Return the penalty weight."""
        if self.penalty is not None:
            return self.penalty
        return slater_penalty(0.01 * min(sizes.constraint_bounds, default=1.0), sizes, sizes.span)


class Tables(NamedTuple):
    """What is learned, and the constants that learning needs."""

    #: [row, column]
    q: Annotated[Floats, table("row", "column", low=-np.inf)]
    #: [slot, column + 1 in a stationary model]
    w: Annotated[Floats, table("slot", "after", low=-np.inf)]
    #: [slot, column]: greedy row.
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    #: [row]
    visits: Annotated[Ints, table("row", low=0, high="steps")]
    #: [row, 3]: b, v and l of the step size.
    errors: Annotated[Floats, table("row", 3)]
    #: With trials: [row] mean square of the errors; [slot] visits.
    square: Annotated[Floats, table("row", low=0, when="trials")]
    met: Annotated[Ints, table("slot", low=0, high="steps", when="trials")]
    #: [row]: the largest violation observed.
    max_violation: Annotated[Floats, table("row", low=0)]
    #: [row, column]: why it is known to fail (`learners.infeasibility`).
    witness: Annotated[Ints, table("row", "column", fill=NO_WITNESS, low=DECLARED, below="slot")]
    #: 1 if violations are penalised, not remembered; episode of the proof of infeasibility (0: none); its first state.
    penalises: Annotated[Longs, table(1, low=0, high=1)]
    proved: Annotated[Longs, table(1, low=0, high="done")]
    dead_first: Annotated[Longs, table(1, low=0, below="slot")]
    #: [slot]: its step in a layered model; [row]: its slot; [column]: buffer for greedy rows.
    slot_step: Annotated[Longs, table("slot", stored=False)]
    slot_of_row: Annotated[Ints, table("row", stored=False)]
    before: Annotated[Longs, table("column", stored=False)]
    #: Rows with the same constraints.
    groups: Groups
    #: [step]: initial value of Q; the largest reward of a step above the lower end `lowest`; weight of the next step.
    initial: Floats
    above: float
    lowest: float
    discount: float
    #: The first slots, this many, are ends of episodes.
    ends: int
    #: 1 if a column is a step (stationary), 0 if slots belong to steps (layered).
    shift: int


class SafeQLearner(TabularAlgorithm[Tables]):
    """SafeQ: learns backwards from an episode when it is over."""

    def __init__(self, task: Task, settings: SafeQ) -> None:
        space, sizes, assumptions = task.space, task.sizes, task.assumptions
        self.penalty = settings.penalty_of(sizes)
        self.depends_on, self._groups = assumptions.constraint_depends_on, NO_GROUPS
        self.place_when_new = 0 if self.depends_on is None else None
        (lo, hi), most = sizes.reward_range, assumptions.max_reward
        above = sizes.span if most is None else most - lo
        if not 0 < above <= sizes.span:
            raise SettingsError(f"max_reward is {most}; rewards lie between {lo:g} and {hi:g}, so it must too")
        super().__init__(
            task, Tables, {"trials": settings.trials}, groups=NO_GROUPS, initial=above * space.left[:-1], above=above,
            discount=space.discount or 1.0,
        )  # fmt: skip

    # Tables --------------------------------------------------------------------------------------------------

    def start(self, first: int, first_row: int, log: Log) -> None:
        """New entries start optimistic; rows whose group is known to violate are forbidden."""
        space, tables = self.space, self.tables
        if first == 0:
            tables.w[: space.ends] = self.end_values()
        fill_slots(tables, self.layout, max(first, space.ends))
        if self.task.model is not None:
            self.store.set(groups=self.groups)
        elif self.depends_on is not None and not tables.penalises[0]:
            self._join_groups(self.depends_on, first_row, log)

    @property
    def groups(self) -> Groups:
        """Rows that are declared to have the same constraints."""
        if self.depends_on is not None and len(self._groups.of_row) < self.space.rows:
            self._groups = make_groups(self.space, self.depends_on, self.task.model)
        return self._groups

    def _join_groups(self, depends_on: str, first: int, log: Log) -> None:
        """Forbid the rows from `first` on whose group is known to violate."""
        tables, layout = self.tables, self.layout
        violation = known_violations(self.space, depends_on, tables.max_violation, first)
        rows = first + np.flatnonzero(violation)
        tables.q[rows], tables.witness[rows] = -np.inf, VIOLATES
        tables.max_violation[rows] = violation[rows - first]
        for slot in np.unique(tables.slot_of_row[rows]).tolist():
            refresh(tables, layout, slot)
            changed = np.flatnonzero(tables.greedy[slot] != layout.row_start[slot])
            log.extend(changed * layout.node_stride + slot, tables.greedy[slot, changed])

    def forbid(self, declared: Forbidden) -> None:
        """Treat what is declared to fail as known to fail."""
        self.take_allowed(declared)
        tables, first = self.tables, declared.first
        tables.q[first:][declared.entries] = -np.inf
        tables.witness[first:][declared.entries & (tables.witness[first:] == NO_WITNESS)] = DECLARED
        tables.max_violation[first:] = np.maximum(tables.max_violation[first:], declared.max_violation)
        tables.w[declared.low :, : self.columns][declared.hopeless] = -np.inf

    @property
    def log_room(self) -> int:
        """A step may change its columns and, by a violation, those of its group; a proof changes all."""
        largest = int(np.diff(self.groups.start).max(initial=1))
        return self.space.horizon * self.columns * (1 + largest) + self.space.slots * self.store.sizes["after"]

    # Learning ------------------------------------------------------------------------------------------------

    def payoffs(self, reward: Floats, violation: Floats, constraints: Floats) -> Floats:
        """[.., column]: reward, violation, and the reward minus the penalty."""
        modified = modified_reward(reward, constraints, 0.0, self.penalty)
        return np.stack([reward, violation, modified], axis=1)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode, the last transition first."""
        if self.depends_on is not None and played.violation.any():
            self.store.set(groups=self.groups)
        super().learn(played, episode, log)

    # Results -------------------------------------------------------------------------------------------------

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the row of the largest Q; what is known to fail only if there is nothing else."""
        best = self.tables._replace(w=np.empty_like(self.tables.w), greedy=self.greedy())
        refresh_all(best, self.layout)
        return best.greedy

    def visits(self) -> Longs:
        """[row]: visits, since the proof of infeasibility if there is one."""
        return self.tables.visits.astype(np.int64)

    def values(self) -> Floats:
        """[entry]: the Q-table; minus infinity for actions that are known to fail."""
        return self.space.entries_of(self.tables.q)

    def memory(self) -> Memory:
        """What is known to fail, and why."""
        return Memory(self.tables.witness, self.tables.max_violation)


# Episodes ----------------------------------------------------------------------------------------------------


def learn_path(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from the `length` steps of an episode, the last one first."""
    columns = tables.q.shape[1]
    remembers = tables.penalises[0] == 0
    trials = tables.met.shape[0] > 0 and tables.proved[0] == 0
    for back in range(length):
        step = length - 1 - back
        slot, row, following = path.slot[step], path.row[step], path.following[step]
        if remembers and path.payoff[step, 1] > 0.0:
            forbid_group(tables, layout, row, path.payoff[step, 1], log)
        reward = path.payoff[step, 0 if remembers else 2] - tables.lowest
        for column in range(columns):
            tables.before[column] = tables.greedy[slot, column]
        update_row(tables, layout, row, following, reward, step * tables.shift)
        refresh(tables, layout, slot)
        if trials:
            tables.met[slot] += 1
            root = np.int64(math.sqrt(4 * tables.met[slot] + 1))
            if root * root >= 4 * tables.met[slot]:
                try_again(tables, layout, slot)
        note_changes(tables, layout, slot, log)
    first = path.first[0]
    if remembers and tables.w[first, 0] == -np.inf:
        tables.penalises[0], tables.proved[0], tables.dead_first[0] = 1, episode, first
        start_afresh(tables, layout, log)


# Updates -----------------------------------------------------------------------------------------------------


@inlined
def update_row(tables: Tables, layout: Layout, row: int, following: int, reward: float, own: int) -> None:
    """Move Q of a row towards reward + W(following) in every column; `own` is that of the transition."""
    columns, ahead = tables.q.shape[1], tables.shift
    target = reward + tables.discount * tables.w[following, own + ahead]
    alpha = step_size(tables, layout, row, tables.q[row, own], target)
    for column in range(columns):
        old = tables.q[row, column]
        target = reward + tables.discount * tables.w[following, column + ahead]
        tables.q[row, column] = old + alpha * (target - old) if old > -np.inf else old
    for column in range(columns):
        if tables.q[row, column] == -np.inf and tables.witness[row, column] == NO_WITNESS:
            tables.witness[row, column] = following


@inlined
def step_size(tables: Tables, layout: Layout, row: int, old: float, target: float) -> float:
    """Count a visit of a row and return its step size; `old` and `target` are of its own column."""
    t = tables.visits[row] + 1
    tables.visits[row] = t
    if tables.proved[0] > 0:
        return (layout.horizon + 1.0) / (layout.horizon + PATIENCE + t)
    alpha = (ERROR_WINDOW + 1.0) / (ERROR_WINDOW + t)
    # The difference of two infinities is NaN.
    if old > -np.inf and target > -np.inf:
        if tables.square.shape[0] > 0:
            error = target - old if t > 1 else tables.above
            tables.square[row] += (error * error - tables.square[row]) / t
        alpha = adaptive_rate(tables.errors, row, t, target - old)
    return alpha


@inlined
def adaptive_rate(errors: Floats, row: int, t: int, delta: float) -> float:
    """Update the statistics with the error `delta` of visit t; return the step size."""
    weight = ERROR_WINDOW / (ERROR_WINDOW + t)
    bias = (1.0 - weight) * errors[row, 0] + weight * delta
    square = (1.0 - weight) * errors[row, 1] + weight * delta * delta
    spread = errors[row, 2]
    alpha = 1.0
    if t > 2:
        least = 1.0 / t
        noise = square - bias * bias
        if t > SETTLED:
            noise = min(noise / ((1.0 - weight) * (1.0 - weight)), square)
        alpha = 1.0 - noise / ((1.0 + spread) * square) if square > 0.0 else least
        alpha = min(1.0, max(alpha, least))
    errors[row, 0] = bias
    errors[row, 1] = square
    errors[row, 2] = (1.0 - alpha) * (1.0 - alpha) * spread + alpha * alpha
    return alpha


# Decisions ---------------------------------------------------------------------------------------------------


@inlined
def refresh(tables: Tables, layout: Layout, slot: int) -> None:
    """Update W and the greedy rows of a slot."""
    first, last, columns = layout.row_start[slot], layout.row_start[slot + 1], tables.q.shape[1]
    for column in range(columns):
        tables.w[slot, column] = tables.q[first, column]
        tables.greedy[slot, column] = first
    for row in range(first + 1, last):
        for column in range(columns):
            value = tables.q[row, column]
            better = value > tables.w[slot, column]
            tables.greedy[slot, column] = row if better else tables.greedy[slot, column]
            tables.w[slot, column] = value if better else tables.w[slot, column]
    for column in range(columns):
        if tables.w[slot, column] == -np.inf:
            mildest = first
            for row in range(first + 1, last):
                if tables.max_violation[row] < tables.max_violation[mildest]:
                    mildest = row
            tables.greedy[slot, column] = mildest


@loop
def refresh_all(tables: Tables, layout: Layout) -> None:
    """Update W and the greedy rows of all slots that have any."""
    for slot in range(tables.greedy.shape[0]):
        if layout.row_start[slot + 1] > layout.row_start[slot]:
            refresh(tables, layout, slot)


@loop
def try_again(tables: Tables, layout: Layout, slot: int) -> None:
    """Take the row of the largest Q + c sqrt(l m) in every column, unless all are forbidden."""
    for column in range(tables.q.shape[1]):
        most = -np.inf
        for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
            value = tables.q[row, column] + DOUBT * math.sqrt(tables.errors[row, 2] * tables.square[row])
            if value > most:
                most = value
                tables.greedy[slot, column] = row


@inlined
def note_changes(tables: Tables, layout: Layout, slot: int, log: Log) -> None:
    """Log the columns of a slot whose greedy row differs from `before`."""
    for column in range(tables.greedy.shape[1]):
        row = tables.greedy[slot, column]
        if row != tables.before[column]:
            note(log, column * layout.node_stride + slot, row)


@loop
def forbid_group(tables: Tables, layout: Layout, row: int, violation: float, log: Log) -> None:
    """Record that `row`, and every row with the same constraints, violates."""
    groups = tables.groups
    if groups.of_row.shape[0] == 0:
        forbid_row(tables, layout, row, violation, log)
        return
    group = groups.of_row[row]
    for i in range(groups.start[group], groups.start[group + 1]):
        forbid_row(tables, layout, np.int64(groups.rows[i]), violation, log)


@loop
def forbid_row(tables: Tables, layout: Layout, row: int, violation: float, log: Log) -> None:
    """Record that `row` violates."""
    slot, columns = tables.slot_of_row[row], tables.q.shape[1]
    tables.max_violation[row] = max(tables.max_violation[row], violation)
    for column in range(columns):
        tables.before[column] = tables.greedy[slot, column]
        tables.q[row, column] = -np.inf
        if tables.witness[row, column] == NO_WITNESS:
            tables.witness[row, column] = VIOLATES
    refresh(tables, layout, slot)
    note_changes(tables, layout, slot, log)


# Starts ------------------------------------------------------------------------------------------------------


@loop
def start_afresh(tables: Tables, layout: Layout, log: Log) -> None:
    """Reset all tables except the proof."""
    for slot in range(tables.ends, layout.row_start.shape[0] - 1):
        first = layout.row_start[slot]
        for column in range(tables.q.shape[1]):
            if tables.greedy[slot, column] != first:
                note(log, column * layout.node_stride + slot, first)
    tables.visits[:] = 0
    tables.errors[:] = 0.0
    tables.square[:] = 0.0
    tables.met[:] = 0
    fill_slots(tables, layout, tables.ends)


@loop
def fill_slots(tables: Tables, layout: Layout, low: int) -> None:
    """Initialise Q and W of the slots from `low` on; the first action is greedy."""
    for slot in range(low, layout.row_start.shape[0] - 1):
        first, last = layout.row_start[slot], layout.row_start[slot + 1]
        for column in range(tables.q.shape[1]):
            value = tables.initial[column if tables.shift == 1 else tables.slot_step[slot]]
            tables.greedy[slot, column] = first
            tables.w[slot, column] = value if last > first else 0.0
            for row in range(first, last):
                tables.q[row, column] = value


register(Tables, learn=learn_path)
