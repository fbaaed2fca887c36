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
* Step sizes: alpha = (H+1)/(H+t), or adaptive ones that separate trend from noise (the bias-adjusted Kalman filter of
  George and Powell, 2006): with g = c/(c+t), smoothed error b <- (1-g) b + g delta and square v <- (1-g) v + g delta^2,

      alpha = 1 - (v - b^2) / ((1 + l) v),   l <- (1-alpha)^2 l + alpha^2,

  at least 1/t, and 1 at the first two visits. While the optimistic start decays, the errors agree in sign and alpha
  stays near 1; afterwards they cancel and alpha falls to that of an average. They never cancel completely, so after 20
  visits v - b^2 is replaced by (v - b^2) / (1-g)^2, at most v: otherwise 10,000 visits would count as 2,600.
* Trials: without a bonus, early bad luck may make the best action look worse than another, and it would never be tried
  again. After 1, 2, 4, 6, 9, 12, 16, .. visits of s (j^2 / 4, rounded down), the next visit therefore takes an action
  of the largest Q_h(s,a) + c sqrt(l m), c = 3. Here l is that of the adaptive step size ((H+1)/(H+t) without it) and m
  the mean of delta^2 over all visits of the pair; the first error counts as the largest reward of a step, which covers
  what few visits may not have shown. Trials affect neither Q and W nor the returned policy, never take a forbidden
  action, and end with a proof of infeasibility.
* Shared distributions (post-decision states): pairs that are declared to have the same distribution D of the next
  state learn it together:

      X_h(D) <- X_h(D) + alpha (W_{h+1}(s') - X_h(D)),   Q_h(s,a) = mean reward of (s,a) + X_h(D(s,a)),

  with the count of D in place of N(s,a), and the largest reward of a step as the mean of an untried pair. A
  distribution that was observed to lead to a dead end forbids all of its pairs. Q of a state is computed at its visits.

Tables are [row, column] and [slot, column]; a column is a step in a stationary model, and a layered model, whose slots
belong to steps, has one column.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.checks import LARGEST_PENALTY
from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.jit import inlined, loop
from peakrl.learners.assumptions.assumptions import (
    NO_GROUPS,
    Assumptions,
    Groups,
    check_max_reward,
    distribution_starts,
    distributions_of_rows,
    known_violations,
    make_groups,
)
from peakrl.learners.assumptions.limits import allowed_rows
from peakrl.learners.base import (
    Choices,
    Episode,
    LearnerSettings,
    SamplingAlgorithm,
    Sizes,
    Task,
    check_ranges,
    compiled,
    used,
)
from peakrl.learners.constants import levels, slater_penalty
from peakrl.learners.episode import Log, lacks_room, note, note_episode, take_row
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import DECLARED, NO_WITNESS, VIOLATES, Memory, Witness
from peakrl.learners.space import checked_rows
from peakrl.learners.tables import FINITE
from peakrl.sampling import Words, draw_first
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

#: Indices of `Tables.status`: are violations remembered (1) or penalised (0); episode of the proof of infeasibility
#: (0: none); the first state of that proof.
REMEMBERS, PROVED, DEAD_FIRST = 0, 1, 2
#: c of the adaptive step size: the number of recent errors that it averages.
ERROR_WINDOW = 5.0
#: Visits after which the estimate of the noise is corrected.
SETTLED = 20
#: m: weight of the initial value after a proof of infeasibility, in visits.
PATIENCE = 20.0
#: c of the trials, in standard errors.
DOUBT = 3.0
#: Largest count accepted from a file: counts have 31 bits, and learning goes on.
MOST_VISITS = 2**30


class SafeQ(LearnerSettings):
    """Settings of the model-free learner: Q-learning with a memory of violations. Each part can be switched off."""

    #: Q starts at the largest possible return; otherwise at a level that follows from the penalty.
    tight_optimism: bool = True
    #: Never repeat an action that was observed to violate, or to lead to a dead end.
    constraint_memory: bool = True
    #: A transition updates every step, if the target is stationary.
    share_steps: bool = True
    #: Step sizes that separate trend from noise; otherwise (H+1)/(H+t).
    adaptive_steps: bool = True
    #: Try actions again, ever more rarely, that may be better than their estimate.
    trials: bool = True
    #: Violations up to the slack are not penalised, if violations are not remembered.
    slack: float = Field(default=0.0, ge=0)
    #: Penalty weight; by default from the slack or, without slack, from 1 % of the tightest constraint bound.
    penalty: float | None = Field(default=None, ge=0, le=LARGEST_PENALTY)

    def make(self, task: Task) -> SafeQLearner:
        """Return the algorithm for a target."""
        assumptions = task.assumptions
        if assumptions.max_reward is not None and not (self.constraint_memory and self.tight_optimism):
            raise SettingsError("max_reward needs tight_optimism and constraint_memory")
        if assumptions.constraint_depends_on is not None and not self.constraint_memory:
            raise SettingsError("constraint_depends_on needs constraint_memory")
        check_max_reward(task.model, assumptions.max_reward)
        return SafeQLearner(task, self)

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if distributions are declared to be shared: their number is known on models only."""
        if assumptions.shared_transitions:
            raise SettingsError(
                "shared_transitions is declared, but SafeQ shares distributions on models only: leave it out"
            )

    def penalty_of(self, sizes: Sizes) -> float:
        """Return the penalty weight, used if violations are not remembered."""
        if self.penalty is not None:
            return self.penalty
        slater = self.slack / 2 if self.slack > 0 else 0.01 * min(sizes.constraint_bounds, default=1.0)
        return slater_penalty(slater, sizes, sizes.span)


class Tables(NamedTuple):
    """What is learned, and the constants that learning needs."""

    #: [row, column]
    q: Floats
    #: [slot, column + 1 in a stationary model]
    w: Floats
    #: [slot, column]: greedy row.
    greedy: Longs
    #: [place, column], one column if steps are shared; a place is a row, or a distribution if those are shared.
    visits: Ints
    #: [as visits, 3]: b, v and l of the adaptive step size; empty if it is not used.
    errors: Floats
    #: With trials: [as visits] mean square of the errors; [slot] visits.
    square: Floats
    met: Ints
    #: [row]: the largest violation observed.
    max_violation: Floats
    #: [row, column]: why it is known to fail (`learners.infeasibility`).
    witness: Ints
    status: Longs
    #: If distributions are shared: [distribution, column] X, and why it is minus infinity; [row] mean reward and count.
    x: Floats
    distribution_witness: Ints
    reward: Floats
    tried: Ints
    #: [row]: its distribution; empty if distributions are not shared. [distribution, column]: the initial X.
    distribution_of_row: Ints
    distribution_start: Floats
    #: Rows with the same constraints.
    groups: Groups
    row_start: Longs
    slot_of_row: Ints
    #: [slot]: its step in a layered model.
    slot_step: Longs
    node_stride: int
    horizon: int
    #: The first slots, this many, are ends of episodes.
    ends: int
    #: 1 if a column is a step (stationary), 0 if slots belong to steps (layered).
    shift: int
    #: Does a transition update every column?
    share: bool
    #: H of (H+1)/(H+t); c of the adaptive step size.
    offset: float
    #: [step]: initial value of Q; at the last step, the largest reward of a step.
    start: Floats
    #: [column]: buffer for greedy rows.
    before: Longs


class Path(NamedTuple):
    """[step]: the current episode; R is the reward above the lower end of its range, minus a penalty."""

    slot: Longs
    row: Longs
    following: Longs
    reward: Floats
    violation: Floats


class SafeQLearner(SamplingAlgorithm):
    """SafeQ: learns backwards from an episode when it is over."""

    checks_rows = True

    def __init__(self, task: Task, settings: SafeQ) -> None:
        super().__init__(task)
        sizes, shared, columns = task.sizes, self.space.shared, self.columns
        self.settings, self.depends_on = settings, task.assumptions.constraint_depends_on
        self.starts_first = self.depends_on is None
        self.shares_steps = settings.share_steps and shared
        self.slack, self.penalty, self.lowest = settings.slack, settings.penalty_of(sizes), sizes.reward_range[0]
        kind = "tight" if settings.tight_optimism else "stepwise"
        self.start = levels(kind, sizes, self.penalty, task.assumptions.max_reward).start
        self.distribution_of_row = distributions_of_rows(task.model, task.assumptions)
        distributions = int(self.distribution_of_row.max(initial=-1)) + 1
        counted = 1 if self.shares_steps else columns
        self.by_slot = {
            "w": Table(0.0, np.float64, columns + int(shared)),
            "greedy": Table(0, np.int64, columns),
            "met": Table(0, np.int32),
        }
        self.by_row = {
            "q": Table(0.0, np.float64, columns),
            "max_violation": Table(0.0, np.float64),
            "witness": Table(NO_WITNESS, np.int32, columns),
            "reward": Table(0.0, np.float64),
            "tried": Table(0, np.int32),
        }
        self.by_place = {
            "visits": Table(0, np.int32, counted),
            "errors": Table(0.0, np.float64, counted, 3),
            "square": Table(0.0, np.float64, counted),
        }
        #: Tables of parts that are switched off stay empty.
        off = [] if settings.trials else ["met", "square"]
        off += [] if settings.adaptive_steps else ["errors"]
        off += [] if distributions else ["reward", "tried"]
        self.off = frozenset(off)
        self.fixed: dict[str, NDArray[Any]] = {
            "status": np.array([int(settings.constraint_memory), 0, 0], np.int64),
            "x": np.empty((distributions, columns)),
            "distribution_witness": np.full((distributions, columns), NO_WITNESS, np.int32),
        }
        self._groups, self._before = NO_GROUPS, np.empty(columns, np.int64)
        slot, row, following = (np.zeros(sizes.horizon, np.int64) for _ in range(3))
        self.path = Path(slot, row, following, np.zeros(sizes.horizon), np.zeros(sizes.horizon))
        if task.model is not None:
            #: [record, 4]: r - lo, r - lo minus the penalty, reward, total violation.
            reward, modified = task.model.payoffs.reward, task.model.modified_rewards(self.slack, self.penalty)
            violation = task.model.record_violation
            self.payoff = np.stack([reward - self.lowest, modified - self.lowest, reward, violation], axis=1)

    # Tables --------------------------------------------------------------------------------------------------

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new entries start optimistic."""
        space, new_row = self.space, self.by_row["q"].size
        places = len(self.fixed["x"]) or space.rows
        for tables, size in ((self.by_slot, space.slots), (self.by_row, space.rows), (self.by_place, places)):
            for name, table in tables.items():
                table.grow(0 if name in self.off else size)
        self.tables = self._gather()
        if first == 0:
            forget(self.tables)
            left = np.arange(space.horizon, -1, -1) * (0.0 - self.lowest)  # after an early end rewards are 0
            self.tables.w[: space.ends] = left if space.shared else left[: space.ends, None]
        fill_slots(self.tables, max(first, space.ends))
        if self.task.model is None and self.depends_on is not None and self.remembers:
            self._join_groups(self.depends_on, new_row, log)

    def _gather(self) -> Tables:
        """Return the arrays for the kernels; growing may have reallocated them."""
        space, settings = self.space, self.settings
        rooms: dict[str, Any] = {
            name: table.room for tables in (self.by_slot, self.by_row, self.by_place) for name, table in tables.items()
        }
        steps, most = space.slot_step, self.start[-1]
        starts = np.empty((0, self.columns))
        if len(self.distribution_of_row):
            start = (self.start if space.shared else self.start[steps]) - most
            starts = distribution_starts(space, self.distribution_of_row, start)
        return Tables(
            **rooms, **self.fixed,
            distribution_of_row=self.distribution_of_row, distribution_start=starts,
            groups=self.groups if self.task.model is not None else NO_GROUPS,
            row_start=space.layout.row_start, slot_of_row=space.slot_of_row, slot_step=steps,
            node_stride=space.layout.node_stride, horizon=space.horizon, ends=space.ends,
            shift=int(space.shared), share=self.shares_steps,
            offset=ERROR_WINDOW if settings.adaptive_steps else float(space.horizon),
            start=self.start, before=self._before,
        )  # fmt: skip

    @property
    def groups(self) -> Groups:
        """Rows that are declared to have the same constraints."""
        if self.depends_on is not None and len(self._groups.of_row) < self.space.rows:
            self._groups = make_groups(self.space, self.depends_on, self.task.model)
        return self._groups

    def _join_groups(self, depends_on: str, first: int, log: Log) -> None:
        """Forbid the rows from `first` on whose group is known to violate."""
        tables, columns = self.tables, self.columns
        violation = known_violations(self.space, depends_on, tables.max_violation, first)
        rows = first + np.flatnonzero(violation)
        tables.q[rows], tables.witness[rows] = -np.inf, VIOLATES
        tables.max_violation[rows] = violation[rows - first]
        for slot in np.unique(self.space.slot_of_row[rows]).tolist():
            refresh(tables, slot, 0, columns)
            changed = np.flatnonzero(tables.greedy[slot] != tables.row_start[slot])
            log.extend(changed * tables.node_stride + slot, tables.greedy[slot, changed])

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Treat what is declared to fail as known to fail."""
        tables, rows = self.tables, slice(first, first + len(forbidden))
        tables.q[rows][forbidden] = -np.inf
        tables.witness[rows][forbidden & (tables.witness[rows] == NO_WITNESS)] = DECLARED
        tables.max_violation[rows] = np.maximum(tables.max_violation[rows], max_violation)
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        best, counts = allowed_rows(tables.row_start[low:], forbidden, first)
        greedy = tables.greedy[low : self.space.slots]
        greedy[:] = np.where(best >= 0, best, greedy)
        dead = (counts == 0) & (np.diff(tables.row_start[low:]) > 0)[:, None]
        tables.w[low : self.space.slots, : self.columns][dead] = -np.inf

    @property
    def log_room(self) -> int:
        """A step may change its columns and, by a violation, those of its group; a proof changes all."""
        largest = int(np.diff(self.groups.start).max(initial=1))
        steps, nodes = (
            self.task.sizes.horizon * self.columns,
            self.space.slots * (self.columns + int(self.space.shared)),
        )
        return steps * (1 + largest) + nodes

    # Learning ------------------------------------------------------------------------------------------------

    def choices(self) -> Choices:
        """The greedy rows."""
        return Choices.by_column(self.tables.greedy)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode, the last transition first."""
        length, violation = played.length, played.violation[: played.length]
        reward = played.reward[:length]
        if not self.remembers:
            reward = played.modified_reward(self.slack, self.penalty)
            np.maximum.at(self.tables.max_violation, played.row[:length], violation)
        elif self.depends_on is not None and violation.any():
            self.tables = self.tables._replace(groups=self.groups)
        path = Path(played.slot, played.row, played.following, reward - self.lowest, played.violation)
        learn_played(self.tables, path, length, episode, log)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full."""
        model = compiled(self.task)
        return learn_episodes(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
            self.tables, self.path, self.log_room, generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    # Results -------------------------------------------------------------------------------------------------

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the greedy rows."""
        return self.by_slot["greedy"].used.copy()

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the row of the largest Q; what is known to fail only if there is nothing else."""
        best = self.tables._replace(w=np.empty_like(self.tables.w), greedy=self.greedy())
        refresh_all(best)
        return best.greedy

    def visits(self) -> Longs:
        """[row]: visits, since the proof of infeasibility if there is one."""
        tried = self.by_row["tried"].used[:, None]
        return np.asarray((tried if len(tried) else self.by_place["visits"].used).sum(axis=1, dtype=np.int64))

    def values(self) -> Floats:
        """[entry]: the Q-table; minus infinity for actions that are known to fail."""
        return self.space.entries_of(self.by_row["q"].used)

    def known(self) -> NDArray[np.int8]:
        """[entry]: what is known to violate, or to lead to a dead end."""
        return self.memory().known(self.space, all_violations=self.task.model is None)

    def memory(self) -> Memory:
        """What is known to fail, and why."""
        return Memory(self.by_row["witness"].used, self.by_row["max_violation"].used)

    @property
    def remembers(self) -> bool:
        """Are violations remembered, not penalised?"""
        return bool(self.fixed["status"][REMEMBERS])

    @property
    def proved_in(self) -> int | None:
        """The episode that completed the proof of infeasibility."""
        return int(self.fixed["status"][PROVED]) or None

    def feasible(self) -> bool | None:
        """False if every action of a first state is known to fail."""
        return False if self.proved_in else None

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        return self.memory().proof(self.space, int(self.fixed["status"][DEAD_FIRST])) if self.proved_in else []

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return used(self.by_slot | self.by_row | self.by_place) | self.fixed

    def check(self, done: int) -> None:
        """Raise if a row, a witness or a number is out of range."""
        arrays, last = self.arrays(), self.space.slots - 1
        checked_rows(self.space, arrays["greedy"], self.columns, "engine.greedy")
        counted = (0, min(done * self.space.horizon, MOST_VISITS))
        check_ranges(
            arrays,
            {"witness": (DECLARED, last), "distribution_witness": (NO_WITNESS, last), "errors": (-FINITE, FINITE)}
            | dict.fromkeys(("visits", "tried", "met"), counted)
            | dict.fromkeys(("q", "w", "x"), (-np.inf, FINITE))
            | dict.fromkeys(("max_violation", "square"), (0.0, FINITE))
            | {"reward": (-FINITE, FINITE)},
        )
        remembers, proved, dead = self.fixed["status"].tolist()
        if remembers not in (0, 1) or not 0 <= proved <= done or not 0 <= dead <= last:
            raise ValueError("engine.status: a number is out of range")


# Episodes ----------------------------------------------------------------------------------------------------


@loop
def learn_episodes(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    payoff: Floats,
    tables: Tables,
    path: Path,
    #: Upper bound on the changes that an episode logs.
    reserve: int,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    #: [episode, 2]: observed reward and violation; may be empty.
    experience: Floats,
    counters: Longs,
) -> int:
    """Run up to `episodes` episodes from done+1 on; return how many.

    It stops early if the log might not hold the next episode.
    """
    for k in range(episodes):
        if k > 0 and lacks_room(log, reserve):
            return k
        slot = draw_first(generator, sampler)
        earned, violated = 0.0, 0.0
        kind = 1 - tables.status[REMEMBERS]
        for step in range(layout.horizon):
            row = tables.greedy[slot, step * tables.shift]
            record, following = take_row(generator, layout, sampler, stride, row_payoff, row)
            path.slot[step] = slot
            path.row[step] = row
            path.following[step] = following
            path.reward[step] = payoff[record, kind]
            path.violation[step] = payoff[record, 3]
            earned += payoff[record, 2]
            violated += payoff[record, 3]
            slot = following
        note_episode(experience, counters, done, k, earned, violated)
        log.head[1] = done + k + 2
        learn_path(tables, path, layout.horizon, done + k + 1, log)
    return episodes


@inlined
def learn_path(tables: Tables, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from the `length` steps of an episode."""
    columns = tables.q.shape[1]
    remembers = tables.status[REMEMBERS] == 1
    trials = tables.met.shape[0] > 0 and tables.status[PROVED] == 0
    for back in range(length):
        step = length - 1 - back
        slot, row, following, reward = path.slot[step], path.row[step], path.following[step], path.reward[step]
        if remembers and path.violation[step] > 0.0:
            forbid_group(tables, row, path.violation[step], log)
        own = step * tables.shift
        low = 0 if tables.share else own
        high = columns if tables.share else own + 1
        for column in range(low, high):
            tables.before[column] = tables.greedy[slot, column]
        if tables.x.shape[0] > 0:
            update_distribution(tables, row, following, reward, own, low, high)
            recompose(tables, slot, low, high)
        else:
            update_row(tables, row, following, reward, own, low, high)
        refresh(tables, slot, low, high)
        if trials:
            tables.met[slot] += 1
            root = np.int64(math.sqrt(4 * tables.met[slot] + 1))
            if root * root >= 4 * tables.met[slot]:
                try_again(tables, slot, low, high)
        note_changes(tables, slot, low, high, log)
    first = path.slot[0]
    if remembers and tables.w[first, 0] == -np.inf:
        tables.status[REMEMBERS] = 0
        tables.status[PROVED] = episode
        tables.status[DEAD_FIRST] = first
        start_afresh(tables, log)


@loop
def learn_played(tables: Tables, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from an episode of an environment."""
    learn_path(tables, path, length, episode, log)


# Updates -----------------------------------------------------------------------------------------------------


@inlined
def update_row(tables: Tables, row: int, following: int, reward: float, own: int, low: int, high: int) -> None:
    """Move Q of a row towards reward + W(following) in columns low .. high; `own` is that of the transition."""
    ahead = tables.shift
    target = reward + tables.w[following, own + ahead]
    alpha = step_size(tables, row, 0 if tables.share else low, tables.q[row, own], target)
    for column in range(low, high):
        old = tables.q[row, column]
        target = reward + tables.w[following, column + ahead]
        tables.q[row, column] = old + alpha * (target - old) if old > -np.inf else old
    for column in range(low, high):
        if tables.q[row, column] == -np.inf and tables.witness[row, column] == NO_WITNESS:
            tables.witness[row, column] = following


@inlined
def update_distribution(tables: Tables, row: int, following: int, reward: float, own: int, low: int, high: int) -> None:
    """Move a row's mean reward towards `reward`, and X of its distribution towards W(following)."""
    tries = tables.tried[row] + 1
    tables.tried[row] = tries
    kept = tables.reward[row] if tries > 1 else tables.start[-1]
    share = patient_rate(tables.horizon, tries) if tables.status[PROVED] > 0 else 1.0 / tries
    tables.reward[row] = kept + share * (reward - kept)
    distribution, ahead = tables.distribution_of_row[row], tables.shift
    old, target = tables.x[distribution, own], tables.w[following, own + ahead]
    alpha = step_size(tables, distribution, 0 if tables.share else low, old, target)
    for column in range(low, high):
        old = tables.x[distribution, column]
        target = tables.w[following, column + ahead]
        tables.x[distribution, column] = old + alpha * (target - old) if old > -np.inf else old
        if old > -np.inf and target == -np.inf:
            tables.distribution_witness[distribution, column] = following


@inlined
def recompose(tables: Tables, slot: int, low: int, high: int) -> None:
    """Compute Q of a slot from mean rewards and X; forbidden entries stay forbidden."""
    for row in range(tables.row_start[slot], tables.row_start[slot + 1]):
        distribution = tables.distribution_of_row[row]
        reward = tables.reward[row] if tables.tried[row] > 0 else tables.start[-1]
        for column in range(low, high):
            if tables.q[row, column] > -np.inf:
                tables.q[row, column] = reward + tables.x[distribution, column]
                if tables.x[distribution, column] == -np.inf:
                    tables.witness[row, column] = tables.distribution_witness[distribution, column]


@inlined
def step_size(tables: Tables, place: int, counted: int, old: float, target: float) -> float:
    """Count a visit of a row (or distribution) and return its step size; `old` and `target` are of its own column."""
    t = tables.visits[place, counted] + 1
    tables.visits[place, counted] = t
    if tables.status[PROVED] > 0:
        return patient_rate(tables.horizon, t)
    alpha = (tables.offset + 1.0) / (tables.offset + t)
    # The difference of two infinities is NaN.
    if old > -np.inf and target > -np.inf:
        if tables.square.shape[0] > 0:
            error = target - old if t > 1 else tables.start[-1]
            tables.square[place, counted] += (error * error - tables.square[place, counted]) / t
        if tables.errors.shape[0] > 0:
            alpha = adaptive_rate(tables.errors, place, counted, t, target - old, tables.offset)
    return alpha


@inlined
def patient_rate(horizon: int, t: int) -> float:
    """Return the step size of visit t after a proof of infeasibility."""
    return (horizon + 1.0) / (horizon + PATIENCE + t)


@inlined
def adaptive_rate(errors: Floats, place: int, counted: int, t: int, delta: float, smoothing: float) -> float:
    """Update the statistics with the error `delta` of visit t; return the step size."""
    weight = smoothing / (smoothing + t)
    bias = (1.0 - weight) * errors[place, counted, 0] + weight * delta
    square = (1.0 - weight) * errors[place, counted, 1] + weight * delta * delta
    spread = errors[place, counted, 2]
    alpha = 1.0
    if t > 2:
        least = 1.0 / t
        noise = square - bias * bias
        if t > SETTLED:
            noise = min(noise / ((1.0 - weight) * (1.0 - weight)), square)
        alpha = 1.0 - noise / ((1.0 + spread) * square) if square > 0.0 else least
        alpha = min(1.0, max(alpha, least))
    errors[place, counted, 0] = bias
    errors[place, counted, 1] = square
    errors[place, counted, 2] = (1.0 - alpha) * (1.0 - alpha) * spread + alpha * alpha
    return alpha


# Decisions ---------------------------------------------------------------------------------------------------


@inlined
def refresh(tables: Tables, slot: int, low: int, high: int) -> None:
    """Update W and the greedy rows of a slot in columns low .. high."""
    first, last = tables.row_start[slot], tables.row_start[slot + 1]
    for column in range(low, high):
        tables.w[slot, column] = tables.q[first, column]
        tables.greedy[slot, column] = first
    for row in range(first + 1, last):
        for column in range(low, high):
            value = tables.q[row, column]
            better = value > tables.w[slot, column]
            tables.greedy[slot, column] = row if better else tables.greedy[slot, column]
            tables.w[slot, column] = value if better else tables.w[slot, column]
    for column in range(low, high):
        if tables.w[slot, column] == -np.inf:
            mildest = first
            for row in range(first + 1, last):
                if tables.max_violation[row] < tables.max_violation[mildest]:
                    mildest = row
            tables.greedy[slot, column] = mildest


@loop
def refresh_all(tables: Tables) -> None:
    """Update W and the greedy rows of all slots that have any."""
    for slot in range(tables.greedy.shape[0]):
        if tables.row_start[slot + 1] > tables.row_start[slot]:
            refresh(tables, slot, 0, tables.q.shape[1])


@loop
def try_again(tables: Tables, slot: int, low: int, high: int) -> None:
    """Take the row of the largest Q plus `doubt` in columns low .. high, unless all are forbidden."""
    for column in range(low, high):
        most = -np.inf
        for row in range(tables.row_start[slot], tables.row_start[slot + 1]):
            place = np.int64(tables.distribution_of_row[row]) if tables.x.shape[0] > 0 else row
            value = tables.q[row, column] + doubt(tables, place, 0 if tables.share else column)
            if value > most:
                most = value
                tables.greedy[slot, column] = row


@inlined
def doubt(tables: Tables, place: int, counted: int) -> float:
    """Return c sqrt(l m) of a row (or distribution); 0 before its first visit."""
    spread = 0.0
    if tables.errors.shape[0] > 0:
        spread = tables.errors[place, counted, 2]
    elif tables.visits[place, counted] > 0:
        spread = (tables.offset + 1.0) / (tables.offset + tables.visits[place, counted])
    return DOUBT * math.sqrt(spread * tables.square[place, counted])


@inlined
def note_changes(tables: Tables, slot: int, low: int, high: int, log: Log) -> None:
    """Log the columns of a slot whose greedy row differs from `before`."""
    for column in range(low, high):
        row = tables.greedy[slot, column]
        if row != tables.before[column]:
            note(log, column * tables.node_stride + slot, row)


@loop
def forbid_group(tables: Tables, row: int, violation: float, log: Log) -> None:
    """Record that `row`, and every row with the same constraints, violates."""
    groups = tables.groups
    if groups.of_row.shape[0] == 0:
        forbid_row(tables, row, violation, log)
        return
    group = groups.of_row[row]
    for i in range(groups.start[group], groups.start[group + 1]):
        forbid_row(tables, groups.rows[i], violation, log)


@loop
def forbid_row(tables: Tables, row: int, violation: float, log: Log) -> None:
    """Record that `row` violates."""
    slot, columns = tables.slot_of_row[row], tables.q.shape[1]
    tables.max_violation[row] = max(tables.max_violation[row], violation)
    for column in range(columns):
        tables.before[column] = tables.greedy[slot, column]
        tables.q[row, column] = -np.inf
        if tables.witness[row, column] == NO_WITNESS:
            tables.witness[row, column] = VIOLATES
    refresh(tables, slot, 0, columns)
    note_changes(tables, slot, 0, columns, log)


# Starts ------------------------------------------------------------------------------------------------------


@loop
def start_afresh(tables: Tables, log: Log) -> None:
    """Reset all tables except the proof."""
    for slot in range(tables.ends, tables.row_start.shape[0] - 1):
        first = tables.row_start[slot]
        for column in range(tables.q.shape[1]):
            if tables.greedy[slot, column] != first:
                note(log, column * tables.node_stride + slot, first)
    forget(tables)
    fill_slots(tables, tables.ends)


@loop
def fill_slots(tables: Tables, low: int) -> None:
    """Initialise Q and W of the slots from `low` on; the first action is greedy."""
    for slot in range(low, tables.row_start.shape[0] - 1):
        first, last = tables.row_start[slot], tables.row_start[slot + 1]
        for column in range(tables.q.shape[1]):
            value = tables.start[column if tables.shift == 1 else tables.slot_step[slot]]
            tables.greedy[slot, column] = first
            tables.w[slot, column] = value if last > first else 0.0
            for row in range(first, last):
                tables.q[row, column] = value


@loop
def forget(tables: Tables) -> None:
    """Reset counts and distributions."""
    tables.visits[:] = 0
    tables.errors[:] = 0.0
    tables.tried[:] = 0
    tables.square[:] = 0.0
    tables.met[:] = 0
    for distribution in range(tables.x.shape[0]):
        for column in range(tables.x.shape[1]):
            tables.x[distribution, column] = tables.distribution_start[distribution, column]
