"""Algorithm 1 of the paper: optimistic Q-learning on the modified reward, with one Q-table.

In episode k, at step h in state s (a greedy, ties to the lowest row; W_H = 0; steps count from 0):

    observe r, f_i and s';  t = N_h(s,a) += 1;  alpha_t = (H+1)/(H+t)
    R = r - lo + (eta/I) sum_i min(0, min(f_i, 0) + xi)
    Q_h(s,a) <- (1-alpha_t) Q_h(s,a) + alpha_t (R + W_{h+1}(s') + b_t)
    W_h(s)   <- min(cap_h, max_a Q_h(s,a))

    bernstein: mu += W_{h+1}(s'), sigma += W_{h+1}(s')^2, var = sigma/t - (mu/t)^2,
               beta_t = min( c1 (sqrt(H/t (var + B^2 H) l) + B sqrt(H^7 S A) l/t), c2 B sqrt(H^3 l/t) ),
               b_t = (beta_t - (1-alpha_t) beta_{t-1}) / (2 alpha_t)
    hoeffding: b_t = c2 B sqrt(H^3 l/t)               (B bounds |R|)

The constants, with I constraints, rewards in [lo, hi], span = hi - lo and K episodes:

    slack xi, Slater constant gamma <= xi (xi/2 by default), penalty eta = 2 H I span / gamma
    Theorem 2 instead: xi = 0, eta = (K H)^phi span, 0 < phi < 1/2
    initial value and cap of Q from step h on: eta H (flat), eta (H-h) (stepwise), span (H-h) (tight)
    bonus: |R| <= B = eta max_i bound_i,  l = log(S A K H / p)

Optimistic Q-learning for episodic problems is due to Jin, Allen-Zhu, Bubeck and Jordan (2018); docs/references.md.

Only the greedy entry of a node changes, so the largest of the others, `runner`, stays known: the actions of a node are
scanned again only when the greedy entry falls to it. An episode visits a node at most once and needs W_{h+1} as it was
before. On models the kernel therefore plays and updates the whole episode first, without a branch on the updates, and
scans the nodes that fell afterwards, in a loop of its own: the common one plays first and updates then. Indices are
unsigned: a signed one would be tested for being negative.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from peakrl.checks import LARGEST_PENALTY
from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.jit import inlined, loop
from peakrl.learners.assumptions import Assumptions, Forbidden
from peakrl.learners.base import LearnerSettings, Sizes, TabularAlgorithm, Task
from peakrl.learners.episode import Log, Path, Simulator, note, note_episode, register
from peakrl.learners.tables import check_rows, table
from peakrl.sampling import U64, Words, draw_first, draw_outcome
from peakrl.tabular import modified_reward
from peakrl.types import Floats, Ints, Layout, Longs

Bonus = Literal["bernstein", "hoeffding", "none"]
Start = Literal["flat", "stepwise", "tight"]

ONE = U64(1)
#: Columns of `Tables.node` and, as integers, of `Tables.choice`, which is the same memory: what a step needs to know
#: about a node lies in one cache line.
W, RUNNER, GREEDY = U64(0), U64(1), U64(2)
NODE_COLUMNS = U64(4)
#: Columns of a payoff record: reward, total violation, modified reward R, and padding.
PLAIN, VIOLATION, MODIFIED = U64(0), U64(1), U64(2)
PAYOFF_COLUMNS = U64(4)
#: Learning rates beyond this many visits are computed, not looked up.
TABULATED_RATES = 1 << 16


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
    #: Initial values.
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


class Tables(NamedTuple):
    """What is learned, and the constants that learning needs."""

    #: [entry]
    q: Annotated[Floats, table("entry", low=-np.inf)]
    visits: Annotated[Ints, table("entry", low=0, high="done")]
    #: [node * NODE_COLUMNS + column]: W, the largest Q of the actions that are not greedy, and (as an integer) the
    #: greedy row.
    node: Annotated[Floats, table("node", low=-np.inf)]
    choice: Words
    #: [entry]: sums and beta of the Bernstein bonus.
    mu: Annotated[Floats, table("entry", when="bernstein")]
    sigma: Annotated[Floats, table("entry", when="bernstein")]
    beta: Annotated[Floats, table("entry", when="bernstein")]
    #: [0 .. at most H]: the nodes of an episode whose greedy entry fell to their runner.
    fell_step: Annotated[Words, table("step", stored=False)]
    fell_slot: Annotated[Words, table("step", stored=False)]
    #: [t]: alpha_t for small t. [step]: upper bound on W.
    alpha: Floats
    cap: Floats
    #: Is there a bonus? Its constants: c1, H l, B^2 H, B sqrt(H^7 S A) l, c2 B sqrt(H^3 l).
    bonus: bool
    c1: float
    root: float
    floor: float
    linear: float
    wide: float


class OptimisticQ(TabularAlgorithm[Tables]):
    """Algorithm 1."""

    place_when_new = 0

    def __init__(self, task: Task, settings: ConstrainedQ) -> None:
        sizes, horizon = task.sizes, task.sizes.horizon
        self.slack, self.penalty = settings.slack, settings.penalty_of(sizes, task.episodes)
        self.lowest = sizes.reward_range[0]
        self.initial, cap = start_and_cap(settings.start, sizes, self.penalty)
        bound, log_term = bonus_constants(settings, self.penalty, sizes, task.episodes)
        t = np.arange(min(task.episodes, TABULATED_RATES) + 1, dtype=np.float64)
        super().__init__(
            task, Tables,
            {"node": 0, "bernstein": settings.bonus == "bernstein"},
            choice=np.empty(0, np.uint64), alpha=(horizon + 1.0) / (horizon + t), cap=cap,
            bonus=settings.bonus != "none", c1=settings.c1, root=horizon * log_term,
            floor=bound**2 * horizon, linear=bound * math.sqrt(horizon**7 * sizes.states * sizes.actions) * log_term,
            wide=settings.c2 * bound * math.sqrt(horizon**3 * log_term),
        )  # fmt: skip

    # Tables --------------------------------------------------------------------------------------------------

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables."""
        space = self.space
        nodes = space.slots * (space.horizon + 1 if space.shared else 1)
        self.store.sizes["node"] = nodes * int(NODE_COLUMNS)
        super().grow(first, log)

    def start(self, first: int, first_row: int, log: Log) -> None:
        """New entries start optimistic; the first action is greedy."""
        space, start, rows = self.space, self.initial, self.layout.row_start[first:]
        self.store.set(choice=self.tables.node.view(np.uint64))
        node, choice = self._by_node(self.tables.node)[:, first:], self._by_node(self.tables.choice)[:, first:]
        level = start[:, None] if space.shared else start[space.slot_step[first:]]
        actions = np.diff(rows)
        node[..., W] = np.where(actions > 0, level, 0.0)
        node[..., RUNNER] = np.where(actions > 1, level, -np.inf)
        choice[..., GREEDY] = rows[:-1]
        self._by_row(self.tables.q)[:, first_row:] = level if space.shared else np.repeat(level, actions)
        if first < space.ends:
            node[0, : space.ends, W] = np.arange(space.ends)[::-1] * (0.0 - self.lowest)

    def _by_node(self, table: NDArray[Any]) -> NDArray[Any]:
        """[column, slot, NODE_COLUMNS]: a view."""
        nodes = self.columns * self.space.slots
        return table.reshape(-1, int(NODE_COLUMNS))[:nodes].reshape(self.columns, -1, int(NODE_COLUMNS))

    def _by_row(self, table: NDArray[Any]) -> NDArray[Any]:
        """[column, row]: a view."""
        return table.reshape(self.columns, -1)

    def forbid(self, declared: Forbidden) -> None:
        """Set Q of forbidden entries to minus infinity, unless all actions of the state are forbidden."""
        self._by_row(self.tables.q)[:, declared.first :].T[declared.avoidable] = -np.inf
        greedy = self._by_node(self.tables.choice)[:, declared.low :, GREEDY]
        greedy[:] = declared.replaced(greedy.T).T
        self._by_node(self.tables.node)[:, declared.low :, RUNNER][(declared.counts == 1).T] = -np.inf

    # Learning ------------------------------------------------------------------------------------------------

    def modified(self, reward: Floats, constraints: Floats) -> Floats:
        """[..], [.., constraint] -> [..]: R + lo."""
        return modified_reward(reward, constraints, self.slack, self.penalty)

    def payoffs(self, reward: Floats, violation: Floats, constraints: Floats) -> Floats:
        """[.., PAYOFF_COLUMNS]: reward, violation, R."""
        records = np.zeros((len(reward), int(PAYOFF_COLUMNS)))
        records[:, 0], records[:, 1], records[:, 2] = (
            reward,
            violation,
            self.modified(reward, constraints) - self.lowest,
        )
        return records

    @property
    def log_room(self) -> int:
        """Every step of an episode may change the greedy row of its node."""
        return self.space.horizon

    def choices(self) -> NDArray[Any]:
        """[slot, column]: the greedy rows."""
        return self._by_node(self.tables.choice)[..., GREEDY].T

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model."""
        payoff = self.simulator.payoff.reshape(-1)
        learn_episodes(self.simulator, payoff, self.tables, generator, done, episodes, log, experience, counters)
        return episodes

    # Results -------------------------------------------------------------------------------------------------

    def visits(self) -> Longs:
        """[row]: how often it was taken, at any step."""
        return np.asarray(self._by_row(self.tables.visits).sum(axis=0, dtype=np.int64))

    def values(self) -> Floats:
        """[entry]: the Q-table of the modified problem."""
        return self.space.entries_of(self._by_row(self.tables.q).T)

    def check(self, done: int) -> None:
        """Raise if a loaded value is out of range, or a greedy row is not one of its state."""
        super().check(done)
        check_rows(self.greedy(), self.layout.row_start, "engine.node")


def start_and_cap(start: Start, sizes: Sizes, penalty: float) -> tuple[Floats, Floats]:
    """Return [step] the initial values and the caps of Q."""
    remaining = np.arange(sizes.horizon, 0, -1, dtype=np.float64)
    if start == "tight":
        return sizes.span * remaining, sizes.span * remaining
    level = max(penalty, sizes.span)
    flat = np.full(sizes.horizon, level * sizes.horizon)
    return flat if start == "flat" else level * remaining, flat


def slater_penalty(slater: float, sizes: Sizes, unit: float) -> float:
    """Return eta = 2 H I span / gamma."""
    weight = 2 * sizes.horizon * max(sizes.constraints, 1) * unit
    if not weight <= slater * LARGEST_PENALTY:
        said = f"a Slater constant of {slater:g} is too small, or the rewards are too large"
        raise SettingsError(f"{said}: the penalty {weight:g} / {slater:g} is larger than {LARGEST_PENALTY:g}")
    return weight / slater


def bonus_constants(settings: ConstrainedQ, penalty: float, sizes: Sizes, episodes: int) -> tuple[float, float]:
    """Return B and l."""
    bound = max(penalty, sizes.span) * max(sizes.constraint_bounds, default=1.0)
    inside = sizes.states * sizes.actions * episodes * sizes.horizon / settings.failure_probability
    return bound, math.log(inside)


@inlined
def bernstein_bonus(tables: Tables, entry: U64, t: int, alpha: float, following: float) -> float:
    """Return b_t after adding one observation of the next value."""
    mu = tables.mu[entry] + following
    sigma = tables.sigma[entry] + following * following
    mean = mu / t
    variance = sigma / t - mean * mean
    spread = max(variance + tables.floor, 0.0)  # rounding may make it negative for huge values
    sharp = tables.c1 * (math.sqrt(tables.root / t * spread) + tables.linear / t)
    beta = min(sharp, tables.wide * math.sqrt(1.0 / t))
    b = (beta - (1.0 - alpha) * tables.beta[entry]) / (2.0 * alpha)
    tables.mu[entry], tables.sigma[entry], tables.beta[entry] = mu, sigma, beta
    return b


@inlined
def update(tables: Tables, horizon: int, step: U64, cell: U64, entry: U64, reward: float, following: float) -> bool:
    """Update one entry; return whether it fell to the runner, so that the node needs a `rescan`.

    `cell` is the index of the node's first column, `reward` is R, `following` is W_{h+1}(s').
    """
    t = tables.visits[entry] + 1
    tables.visits[entry] = t
    alpha = tables.alpha[U64(t)] if t < tables.alpha.shape[0] else (horizon + 1.0) / (horizon + t)
    target = reward + following
    if tables.bonus:
        bernstein = tables.mu.shape[0] > 0
        target += bernstein_bonus(tables, entry, t, alpha, following) if bernstein else tables.wide * math.sqrt(1.0 / t)
    value = (1.0 - alpha) * tables.q[entry] + alpha * target
    tables.q[entry] = value
    tables.node[cell + W] = min(tables.cap[step], value)
    return value <= tables.node[cell + RUNNER]


@inlined
def rescan(tables: Tables, layout: Layout, step: U64, slot: U64, log: Log) -> None:
    """Find a node's greedy row, the largest Q of the others, and W; log the greedy row if it changed."""
    node = step * U64(layout.node_stride) + slot
    base, cell = step * U64(layout.entry_stride), node * NODE_COLUMNS
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
    tables.node[cell + W] = min(tables.cap[step], best)
    if changed:
        note(log, node, greedy)


@loop
def learn_episodes(
    simulator: Simulator,
    #: [record * PAYOFF_COLUMNS + column]
    payoff: Floats,
    tables: Tables,
    generator: Words,
    done: int,
    episodes: int,
    log: Log,
    experience: Floats,
    counters: Longs,
) -> None:
    """Run episodes done+1 .. done+episodes; see `learners.episode.run_episodes`."""
    layout, sampler = simulator.layout, simulator.sampler
    node_stride, entry_stride = U64(layout.node_stride), U64(layout.entry_stride)
    for k in range(episodes):
        slot = U64(draw_first(generator, sampler))
        here, base, falls = U64(0), U64(0), U64(0)
        earned, violated = 0.0, 0.0
        for step in range(U64(layout.horizon)):
            cell = (here + slot) * NODE_COLUMNS
            row = tables.choice[cell + GREEDY]
            record, link = U64(simulator.row_payoff[row]), sampler.link[row]
            if link >= 0:
                following_slot = U64(link)
            else:
                outcome = U64(draw_outcome(generator, layout, sampler, ~link))
                record += U64(simulator.stride) * (outcome - U64(layout.outcome_start[U64(~link)]))
                following_slot = U64(layout.outcome_next[outcome])
            record *= PAYOFF_COLUMNS
            earned += payoff[record + PLAIN]
            violated += payoff[record + VIOLATION]
            here += node_stride
            following = tables.node[(here + following_slot) * NODE_COLUMNS + W]
            fell = update(tables, layout.horizon, step, cell, base + row, payoff[record + MODIFIED], following)
            # Always written, but only counted if it fell: no branch.
            tables.fell_step[falls], tables.fell_slot[falls] = step, slot
            falls += U64(fell)
            slot = following_slot
            base += entry_stride
        log.head[1] = done + k + 2
        for i in range(falls):
            rescan(tables, layout, tables.fell_step[i], tables.fell_slot[i], log)
        note_episode(experience, counters, done, k, earned, violated)


def learn_path(tables: Tables, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from an episode of an environment.

    In vector environments a row may have ceased to be greedy, because of the updates of another episode.
    """
    for step in range(U64(length)):
        slot, row = U64(path.slot[step]), U64(path.row[step])
        cell, entry = (step * U64(layout.node_stride) + slot) * NODE_COLUMNS, step * U64(layout.entry_stride) + row
        ahead = ((step + ONE) * U64(layout.node_stride) + U64(path.following[step])) * NODE_COLUMNS
        overtaken = tables.choice[cell + GREEDY] != row
        reward, following = path.payoff[step, MODIFIED], tables.node[ahead + W]
        if update(tables, layout.horizon, step, cell, entry, reward, following) or overtaken:
            rescan(tables, layout, step, slot, log)


register(Tables, learn=learn_path)
