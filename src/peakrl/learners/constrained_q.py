"""Algorithm 1 of the paper: optimistic Q-learning on the modified reward, with one Q-table.

In episode k, at step h in state s (a greedy, ties to the lowest row; W_H = 0; steps count from 0; constants:
`learners.constants`):

    observe r, f_i and s';  t = N_h(s,a) += 1;  alpha_t = (H+1)/(H+t)
    R = r - lo + (eta/I) sum_i min(0, min(f_i, 0) + xi)
    Q_h(s,a) <- (1-alpha_t) Q_h(s,a) + alpha_t (R + W_{h+1}(s') + b_t)
    W_h(s)   <- min(cap_h, max_a Q_h(s,a))

    bernstein: mu += W_{h+1}(s'), sigma += W_{h+1}(s')^2, var = sigma/t - (mu/t)^2,
               beta_t = min( c1 (sqrt(H/t (var + B^2 H) l) + B sqrt(H^7 S A) l/t), c2 B sqrt(H^3 l/t) ),
               b_t = (beta_t - (1-alpha_t) beta_{t-1}) / (2 alpha_t)
    hoeffding: b_t = c2 B sqrt(H^3 l/t)               (B bounds |R|)

Optimistic Q-learning for episodic problems is due to Jin, Allen-Zhu, Bubeck and Jordan (2018); docs/references.md.

Only the greedy entry of a node changes, so the largest of the others, `runner`, stays known: the actions of a node are
scanned again only when the greedy entry falls to it. An episode visits a node at most once and needs W_{h+1} as it was
before. The kernel therefore plays and updates the whole episode first, without a branch on the updates, and scans the
nodes that fell afterwards. Tables that a setting does not need are passed as None; numba drops what depends on them.
Indices are unsigned: a signed one would be tested for being negative.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from peakrl.checks import LARGEST_PENALTY
from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.jit import inlined, loop
from peakrl.learners.assumptions import Assumptions, allowed_rows
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
from peakrl.learners.constants import Bonus, Levels, Start, level_of, levels, slater_penalty
from peakrl.learners.episode import Log, note, note_episode
from peakrl.learners.growable import Table
from peakrl.learners.space import checked_rows
from peakrl.learners.tables import FINITE
from peakrl.policy.export import UNKNOWN, VIOLATED
from peakrl.sampling import U64, Words, draw_first, draw_outcome
from peakrl.tabular import TabularModel, modified_reward
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

ONE = U64(1)
#: Columns of `Tables.node` and, as integers, of `Tables.choice`, which is the same memory: what a step needs to know
#: about a node lies in one cache line.
W, RUNNER, GREEDY = U64(0), U64(1), U64(2)
NODE_COLUMNS = U64(4)
#: Columns of a payoff record: modified reward R, plain reward, total violation.
MODIFIED, PLAIN, VIOLATION = U64(0), U64(1), U64(2)
PAYOFF_COLUMNS = U64(4)


class Tables(NamedTuple):
    """Tables of Algorithm 1."""

    #: [entry]
    q: Floats
    visits: Ints
    #: [node * NODE_COLUMNS + column]: W, the largest Q of the actions that are not greedy, and (as an integer) the
    #: greedy row.
    node: Floats
    choice: Words


class Rates(NamedTuple):
    """Learning rates and caps."""

    horizon: int
    #: [t]: alpha_t for small t.
    alpha: Floats
    #: [step]: upper bound on W.
    cap: Floats


class ToRescan(NamedTuple):
    """[0 .. at most H]: the nodes of an episode whose greedy entry fell to their runner."""

    step: Words
    slot: Words


class Hoeffding(NamedTuple):
    """b_t = scale * sqrt(1/t), scale = c2 B sqrt(H^3 l)."""

    scale: float


class Bernstein(NamedTuple):
    """Tables [entry] and constants of the Bernstein bonus."""

    mu: Floats
    sigma: Floats
    beta: Floats
    #: c1, H l, B^2 H, B sqrt(H^7 S A) l, c2 B sqrt(H^3 l)
    c1: float
    root: float
    floor: float
    linear: float
    hoeffding: float


#: Learning rates beyond this many visits are computed, not looked up.
TABULATED_RATES = 1 << 16
#: Columns of `Tables.node`, for use outside of kernels.
COLUMNS, VALUE, CHOSEN, NEXT_BEST = int(NODE_COLUMNS), int(W), int(GREEDY), int(RUNNER)


class ConstrainedQ(LearnerSettings):
    """Settings of the paper's Algorithm 1, in the units of the problem; see `paper`, `published`, `deterministic`."""

    by_step = True

    #: xi: violations up to the slack are not penalised; in the unit of the constraints.
    slack: float = Field(ge=0)
    #: Slater constant gamma; by default half the slack.
    slater: float | None = Field(default=None, gt=0)
    #: Penalty weight eta; by default it follows from slack and Slater constant, or from the exponent.
    penalty: float | None = Field(default=None, ge=0, le=LARGEST_PENALTY)
    #: Theorem 2's phi: eta = (K H)^phi.
    exponent: float | None = Field(default=None, gt=0, lt=0.5)
    #: Assume rewards in [0, 1] when deriving the penalty, as the published curves do.
    unit_rewards: bool = False
    #: Exploration bonus.
    bonus: Bonus = "none"
    #: Initial values (`learners.constants`).
    start: Start = "stepwise"
    #: Constant of the Bernstein bonus.
    c1: float = Field(default=0.001, ge=0)
    #: Constant of either bonus.
    c2: float = Field(default=0.001, ge=0)
    #: p: failure probability of the theorems.
    failure_probability: float = Field(default=0.05, gt=0, lt=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.penalty is None and self.exponent is None and self.slack == 0:
            raise ValueError("slack is 0: give a slack above 0, a penalty, or an exponent (Theorem 2)")
        if self.penalty is not None and self.exponent is not None:
            raise ValueError("penalty and exponent exclude each other: give one of them")
        if self.slater is not None and self.slater > self.slack:
            raise ValueError(f"slater is {self.slater}, above the slack of {self.slack}; it must be at most the slack")
        return self

    @classmethod
    def paper(cls, slack: float, *, bonus: Bonus = "bernstein", start: Start = "flat", **settings: Any) -> ConstrainedQ:
        """Algorithm 1 as printed: Bernstein bonus, flat start; also takes `slater`, `penalty` and the constants."""
        return cls(slack=slack, bonus=bonus, start=start, **settings)

    @classmethod
    def published(cls, slack: float) -> ConstrainedQ:
        """Settings of the paper's published curves: no bonus, stepwise start, eta = 2HI/gamma without scaling."""
        return cls(slack=slack, unit_rewards=True)

    @classmethod
    def deterministic(
        cls, phi: float, *, bonus: Bonus = "bernstein", start: Start = "flat", **settings: Any
    ) -> ConstrainedQ:
        """Theorem 2: no slack, a penalty that grows with the length of the run; the last policy counts."""
        return cls(slack=0.0, exponent=phi, bonus=bonus, start=start, **settings)

    def make(self, task: Task) -> OptimisticQ:
        """Return the algorithm for a target."""
        return OptimisticQ(task, self)

    @property
    def bound_to_plan(self) -> str | None:
        """The penalty of Theorem 2 and the bonus depend on the number of episodes."""
        return "penalty" if self.exponent is not None else "bonus" if self.bonus != "none" else None

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if a bonus needs sizes or bounds that are not declared."""
        if self.bonus != "none" and rules.states is None:
            raise SettingsError(
                f"bonus is {self.bonus!r}, which needs the number of states, and the observation space does not "
                "determine it: pass states="
            )
        if self.bonus != "none" and rules.constraints.bounds is None:
            raise SettingsError(
                f"bonus is {self.bonus!r}, which needs a bound on every constraint's absolute value: pass "
                "constraint_bounds="
            )

    def penalty_of(self, sizes: Sizes, episodes: int) -> float:
        """Return eta."""
        unit = 1.0 if self.unit_rewards else sizes.span
        if self.penalty is not None:
            return self.penalty
        if self.exponent is not None:
            return float((episodes * sizes.horizon) ** self.exponent * unit)
        return slater_penalty(self.slater if self.slater is not None else self.slack / 2, sizes, unit)


class OptimisticQ(SamplingAlgorithm):
    """Algorithm 1."""

    quick = True
    checks_rows = True
    starts_first = True

    def __init__(self, task: Task, settings: ConstrainedQ) -> None:
        super().__init__(task)
        self.slack, self.penalty = settings.slack, settings.penalty_of(task.sizes, task.episodes)
        self.levels: Levels = levels(settings.start, task.sizes, self.penalty)
        self.rates = make_rates(task.sizes.horizon, task.episodes, self.levels.cap)
        self.hoeffding, self._bernstein = make_bonuses(settings, self.penalty, task.sizes, task.episodes)
        self.bernstein: Bernstein | None = None
        names = ["q", "mu", "sigma", "beta"] if self._bernstein is not None else ["q"]
        #: [entry]
        self.by_entry = {name: Table(0.0, np.float64) for name in names} | {"visits": Table(0, np.int32)}
        #: [node * COLUMNS + column]
        self.node = Table(0.0, np.float64)
        #: [row]: the largest violation observed; not recorded on models.
        self.max_violation = Table(0.0, np.float64)
        self.to_rescan = ToRescan(np.empty(task.sizes.horizon, np.uint64), np.empty(task.sizes.horizon, np.uint64))
        self.lowest = task.sizes.reward_range[0]
        if task.model is not None:
            self.payoff = self._payoff_records(task.model)

    def modified(self, reward: Floats, constraints: Floats) -> Floats:
        """[..], [.., constraint] -> [..]: R + lo."""
        return modified_reward(reward, constraints, self.slack, self.penalty)

    def _payoff_records(self, model: TabularModel) -> Floats:
        """[record * 4 + column]: modified reward minus lo, reward, violation, padding."""
        payoffs = model.payoffs
        records = np.zeros((len(payoffs.reward), int(PAYOFF_COLUMNS)))
        records[:, 0] = self.modified(payoffs.reward, payoffs.constraints) - self.lowest
        records[:, 1], records[:, 2] = payoffs.reward, model.record_violation
        return records.ravel()

    @property
    def log_room(self) -> int:
        """Every step of an episode may change the greedy row of its node."""
        return self.task.sizes.horizon

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables; new entries start optimistic."""
        space, steps = self.space, self.columns
        nodes = space.slots * (steps + 1 if space.shared else 1)
        for table in self.by_entry.values():
            table.grow(space.rows * steps)
        self.node.grow(nodes * COLUMNS)
        if self.task.model is None:
            self.max_violation.grow(space.rows)
        q, visits, node = self.by_entry["q"].room, self.by_entry["visits"].room, self.node.room
        self.tables = Tables(q, visits, node, node.view(np.uint64))
        if self._bernstein is not None:
            mu, sigma, beta = (self.by_entry[name].room for name in ("mu", "sigma", "beta"))
            self.bernstein = self._bernstein._replace(mu=mu, sigma=sigma, beta=beta)
        self.layout, start = space.layout, self.levels.start
        if space.shared:
            for step in range(steps):
                fill_slots(self.layout, self.tables, start[step], step, first, space.slots)
        else:
            self._fill_by_step(first)
        if first < space.ends:
            left = np.arange(space.ends)[::-1] * (0.0 - self.lowest)
            node[VALUE : space.ends * COLUMNS : COLUMNS] = left

    def _fill_by_step(self, first: int) -> None:
        """As `fill_slots`, for slots that belong to many steps, in any order."""
        rows, level = self.layout.row_start[first:], self.levels.start[self.space.slot_step[first:]]
        sizes, nodes = np.diff(rows), slice(first * COLUMNS, self.space.slots * COLUMNS)
        self.tables.q[rows[0] : rows[-1]] = np.repeat(level, sizes)
        node = self.tables.node[nodes].reshape(-1, COLUMNS)
        node[:, VALUE], node[:, NEXT_BEST] = np.where(sizes > 0, level, 0.0), np.where(sizes > 1, level, -np.inf)
        self.tables.choice[nodes].reshape(-1, COLUMNS)[:, CHOSEN] = rows[:-1]

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Set Q of forbidden entries to minus infinity, unless all actions of the state are forbidden."""
        space, columns = self.space, self.columns
        low = int(space.slot_of_row[first]) if len(forbidden) else space.slots
        best, counts = allowed_rows(self.layout.row_start[low:], forbidden, first)
        left = np.repeat(counts > 0, np.diff(self.layout.row_start[low:]), axis=0)
        q = self.by_entry["q"].used.reshape(columns, -1)
        q[:, first:].T[forbidden & left] = -np.inf
        nodes = self.tables.node[: space.slots * columns * COLUMNS].reshape(columns, space.slots, COLUMNS)[:, low:]
        choice = self.tables.choice[: space.slots * columns * COLUMNS].reshape(nodes.shape[0], space.slots, COLUMNS)
        choice[:, low:, CHOSEN] = np.where(best.T >= 0, best.T, choice[:, low:, CHOSEN]).astype(np.uint64)
        nodes[:, :, NEXT_BEST][(counts == 1).T] = -np.inf

    def choices(self) -> Choices:
        """The greedy rows."""
        return Choices(self.tables.choice, CHOSEN, self.layout.node_stride * COLUMNS, COLUMNS)

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from every transition of an episode, the first one first."""
        length = played.length
        if played.violation[:length].any():
            np.maximum.at(self.max_violation.room, played.row[:length], played.violation[:length])
        modified = self.modified(played.reward[:length], played.constraints[:length])
        learn_played(
            self.layout, self.tables, self.rates, self.hoeffding, self.bernstein,
            played.slot, played.row, played.following, modified - self.lowest,
            log,
        )  # fmt: skip

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model."""
        model = compiled(self.task)
        learn_episodes(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
            self.tables, self.rates, self.hoeffding, self.bernstein, self.to_rescan,
            generator, done, episodes, log, experience, counters,
        )  # fmt: skip
        return episodes

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the greedy rows."""
        nodes = self.space.slots * self.columns
        rows = self.tables.choice[CHOSEN : nodes * COLUMNS : COLUMNS].astype(np.int64)
        return rows.reshape(self.columns, -1).T

    def visits(self) -> Longs:
        """[row]: how often it was taken, at any step."""
        return np.asarray(self.by_entry["visits"].used.reshape(self.columns, -1).sum(axis=0, dtype=np.int64))

    def values(self) -> Floats:
        """[entry]: the Q-table of the modified problem."""
        return self.space.entries_of(self.by_entry["q"].used.reshape(self.columns, -1).T)

    def known(self) -> NDArray[np.int8] | None:
        """[entry]: what was observed to violate; None for models."""
        if self.task.model is not None:
            return None
        return self.space.entries_of(np.where(self.max_violation.used > 0, VIOLATED, UNKNOWN).astype(np.int8)[:, None])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        own = {"max_violation": self.max_violation.used} if self.task.model is None else {}
        return used(self.by_entry) | {"node": self.node.used} | own

    def check(self, done: int) -> None:
        """Raise if a greedy row or a number is out of range."""
        checked_rows(self.space, self.greedy(), self.columns, "engine.node")
        arrays = self.arrays()
        arrays["node"] = np.delete(arrays["node"].reshape(-1, COLUMNS), CHOSEN, axis=1)
        check_ranges(
            arrays,
            {"visits": (0, done), "q": (-np.inf, FINITE), "node": (-np.inf, FINITE), "max_violation": (0.0, FINITE)}
            | dict.fromkeys(("mu", "sigma", "beta"), (-FINITE, FINITE)),
        )


def make_rates(horizon: int, episodes: int, cap: Floats) -> Rates:
    """Return alpha_t = (H+1)/(H+t) for up to TABULATED_RATES visits."""
    t = np.arange(min(episodes, TABULATED_RATES) + 1, dtype=np.float64)
    return Rates(horizon, (horizon + 1.0) / (horizon + t), cap)


def make_bonuses(
    settings: ConstrainedQ, penalty: float, sizes: Sizes, episodes: int
) -> tuple[Hoeffding | None, Bernstein | None]:
    """Return the constants of the selected bonus, without its tables; None for the others."""
    horizon = sizes.horizon
    bound, log_term = bonus_constants(settings, penalty, sizes, episodes)
    wide = settings.c2 * bound * math.sqrt(horizon**3 * log_term)
    if settings.bonus == "hoeffding":
        return Hoeffding(wide), None
    if settings.bonus == "bernstein":
        linear = bound * math.sqrt(horizon**7 * sizes.states * sizes.actions) * log_term
        none = np.empty(0)
        return None, Bernstein(none, none, none, settings.c1, horizon * log_term, bound**2 * horizon, linear, wide)
    return None, None


def bonus_constants(settings: ConstrainedQ, penalty: float, sizes: Sizes, episodes: int) -> tuple[float, float]:
    """Return B and l."""
    bound = level_of(penalty, sizes) * max(sizes.constraint_bounds, default=1.0)
    inside = sizes.states * sizes.actions * episodes * sizes.horizon / settings.failure_probability
    return bound, math.log(inside)


@loop
def fill_slots(layout: Layout, tables: Tables, start: float, step: int, low: int, high: int) -> None:
    """Initialise Q and W of slots low .. high of a step; the first action is greedy."""
    base = step * layout.entry_stride
    for slot in range(low, high):
        first, last = layout.row_start[slot], layout.row_start[slot + 1]
        cell = U64(step * layout.node_stride + slot) * NODE_COLUMNS
        tables.q[base + first : base + last] = start
        tables.choice[cell + GREEDY] = first
        tables.node[cell + W] = start if last > first else 0.0
        tables.node[cell + RUNNER] = start if last > first + 1 else -np.inf


@inlined
def bernstein_bonus(bonus: Bernstein, entry: U64, t: int, alpha: float, following: float) -> float:
    """Return b_t after adding one observation of the next value."""
    mu = bonus.mu[entry] + following
    sigma = bonus.sigma[entry] + following * following
    mean = mu / t
    variance = sigma / t - mean * mean
    spread = max(variance + bonus.floor, 0.0)  # rounding may make it negative for huge values
    sharp = bonus.c1 * (math.sqrt(bonus.root / t * spread) + bonus.linear / t)
    beta = min(sharp, bonus.hoeffding * math.sqrt(1.0 / t))
    b = (beta - (1.0 - alpha) * bonus.beta[entry]) / (2.0 * alpha)
    bonus.mu[entry], bonus.sigma[entry], bonus.beta[entry] = mu, sigma, beta
    return b


@inlined
def hoeffding_bonus(bonus: Hoeffding, t: int) -> float:
    """Return b_t."""
    return bonus.scale * math.sqrt(1.0 / t)


@inlined
def update(
    tables: Tables,
    rates: Rates,
    hoeffding: Hoeffding | None,
    bernstein: Bernstein | None,
    step: U64,
    cell: U64,
    entry: U64,
    reward: float,
    following: float,
) -> bool:
    """Update one entry; return whether it fell to the runner, so that the node needs a `rescan`.

    `cell` is the index of the node's first column, `reward` is R, `following` is W_{h+1}(s').
    """
    t = tables.visits[entry] + 1
    tables.visits[entry] = t
    alpha = rates.alpha[U64(t)] if t < rates.alpha.shape[0] else (rates.horizon + 1.0) / (rates.horizon + t)
    target = reward + following
    if hoeffding is not None:
        target += hoeffding_bonus(hoeffding, t)
    if bernstein is not None:
        target += bernstein_bonus(bernstein, entry, t, alpha, following)
    value = (1.0 - alpha) * tables.q[entry] + alpha * target
    tables.q[entry] = value
    tables.node[cell + W] = min(rates.cap[step], value)
    return value <= tables.node[cell + RUNNER]


@inlined
def rescan(layout: Layout, tables: Tables, rates: Rates, step: U64, slot: U64, cell: U64) -> bool:
    """Find a node's greedy row, the largest Q of the others, and W; return whether the greedy row changed."""
    base = step * U64(layout.entry_stride)
    first, last = U64(layout.row_start[slot]), U64(layout.row_start[slot + ONE])
    best, runner, greedy = tables.q[base + first], -np.inf, first
    for row in range(first + ONE, last):
        value = tables.q[base + row]
        # Written so that it compiles to minima and maxima: the branches would be unpredictable.
        lower = value if value < best else best
        runner = lower if lower > runner else runner
        greedy = row if value > best else greedy
        best = value if value > best else best
    changed = tables.choice[cell + GREEDY] != greedy
    tables.choice[cell + GREEDY] = greedy
    tables.node[cell + RUNNER] = runner
    tables.node[cell + W] = min(rates.cap[step], best)
    return changed


@loop
def learn_episodes(
    layout: Layout,
    sampler: Sampler,
    stride: int,
    row_payoff: Ints,
    #: [record * PAYOFF_COLUMNS + column]
    payoff: Floats,
    tables: Tables,
    rates: Rates,
    hoeffding: Hoeffding | None,
    bernstein: Bernstein | None,
    to_rescan: ToRescan,
    generator: Words,
    done: int,
    episodes: int,
    #: Log and experience may be empty.
    log: Log,
    #: [episode, 2]: observed reward and violation.
    experience: Floats,
    #: Number of episodes with violations so far, and the last of them.
    counters: Longs,
) -> None:
    """Run episodes done+1 .. done+episodes."""
    node_stride, entry_stride = U64(layout.node_stride), U64(layout.entry_stride)
    for k in range(episodes):
        slot = U64(draw_first(generator, sampler))
        here, base, falls = U64(0), U64(0), U64(0)
        earned, violated = 0.0, 0.0
        for step in range(U64(layout.horizon)):
            cell = (here + slot) * NODE_COLUMNS
            row = tables.choice[cell + GREEDY]
            record, link = U64(row_payoff[row]), sampler.link[row]
            if link >= 0:
                following_slot = U64(link)
            else:
                outcome = U64(draw_outcome(generator, layout, sampler, ~link))
                record += U64(stride) * (outcome - U64(layout.outcome_start[U64(~link)]))
                following_slot = U64(layout.outcome_next[outcome])
            record *= PAYOFF_COLUMNS
            earned += payoff[record + PLAIN]
            violated += payoff[record + VIOLATION]
            here += node_stride
            following = tables.node[(here + following_slot) * NODE_COLUMNS + W]
            fell = update(
                tables, rates, hoeffding, bernstein, step, cell, base + row, payoff[record + MODIFIED], following
            )
            # Always written, but only counted if it fell: no branch.
            to_rescan.step[falls], to_rescan.slot[falls] = step, slot
            falls += U64(fell)
            slot = following_slot
            base += entry_stride
        log.head[1] = done + k + 2
        for i in range(falls):
            step, slot = to_rescan.step[i], to_rescan.slot[i]
            node = step * node_stride + slot
            if rescan(layout, tables, rates, step, slot, node * NODE_COLUMNS):
                note(log, node, tables.choice[node * NODE_COLUMNS + GREEDY])
        note_episode(experience, counters, done, k, earned, violated)


@loop
def learn_played(
    layout: Layout,
    tables: Tables,
    rates: Rates,
    hoeffding: Hoeffding | None,
    bernstein: Bernstein | None,
    #: [step]: of the episode
    slots: Longs,
    rows: Longs,
    followings: Longs,
    #: [step]: R
    reward: Floats,
    log: Log,
) -> None:
    """Learn from an episode of an environment.

    In vector environments a row may have ceased to be greedy, because of the updates of another episode.
    """
    for step in range(reward.shape[0]):
        slot, row = U64(slots[step]), U64(rows[step])
        node = U64(step * layout.node_stride) + slot
        cell, entry = node * NODE_COLUMNS, U64(step * layout.entry_stride) + row
        ahead = U64((step + 1) * layout.node_stride + followings[step]) * NODE_COLUMNS
        overtaken = tables.choice[cell + GREEDY] != row
        fell = update(tables, rates, hoeffding, bernstein, U64(step), cell, entry, reward[step], tables.node[ahead + W])
        if (fell or overtaken) and rescan(layout, tables, rates, U64(step), slot, cell):
            note(log, node, tables.choice[cell + GREEDY])
