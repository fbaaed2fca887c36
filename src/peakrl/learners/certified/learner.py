"""The certified learner: settings, algorithm, and tables for models and environments.

`phases` decides what is played and when to stop; `bounds`, `values`, `gaps` and `confidence` hold the mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.errors import SettingsError
from peakrl.evaluation.curve import policy_value
from peakrl.learners.base import (
    Choices,
    Episode,
    LearnerSettings,
    ProofHistory,
    SamplingAlgorithm,
    Task,
    compiled,
)
from peakrl.learners.certified.confidence import (
    DEAD_FIRST,
    EPISODES,
    FROZEN,
    GAP,
    KIND,
    LEFT,
    PASSED,
    POLICIES,
    UPPER,
    VIOLATED_HIGH,
    Goal,
)
from peakrl.learners.certified.declared import (
    Declarations,
    ModelDeclarations,
    declared_on_model,
    environment_declarations,
)
from peakrl.learners.certified.environment import GrowingRounds
from peakrl.learners.certified.episodes import play_episodes, take_episode
from peakrl.learners.certified.evidence import cells_before, certificate, counted
from peakrl.learners.certified.phases import CANDIDATE, CHALLENGE, Rounds
from peakrl.learners.certified.tables import CELLS, OPEN, UNKEPT, Params, Scratch, Structure, Tables
from peakrl.learners.episode import Log
from peakrl.learners.infeasibility import DECLARED, Memory, Witness
from peakrl.learners.space import GrowingSpace
from peakrl.learners.tables import overwrite
from peakrl.sampling import Words
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Longs

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.gym.adapter import Rules
    from peakrl.learners.assumptions.assumptions import Assumptions

#: Declarations that forbid actions.
LIMITS = {"support", "constraints", "safe_policy"}
#: The candidate's exact value and violation are recorded on models of up to this many nodes.
MOST_JUDGED = 200_000


class Certified(LearnerSettings):
    """Settings of the certified learner, which stops once it can prove that its policy is good.

    The gap in value to the best safe policy and the expected violation are then at most epsilon, or at most a share
    epsilon of the best value (`relative`), except with probability `failure_probability`. `learn(..., episodes=...)` is
    a limit; `run.stop_reason` says why the run ended and `run.certificate` what is certified.
    """

    #: The largest gap to the best safe policy, and the largest expected violation; several are reached in order.
    epsilon: tuple[float, ...]
    #: Upper bound on the probability that a false certificate is issued.
    failure_probability: float = Field(default=0.05, gt=0, lt=1)
    #: Is epsilon a share of the value of the best safe policy?
    relative: bool = False

    def __init__(
        self, epsilon: float | Sequence[float], failure_probability: float = 0.05, relative: bool = False
    ) -> None:
        super().__init__(epsilon=epsilon, failure_probability=failure_probability, relative=relative)

    @field_validator("epsilon", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return tuple(given) if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str) else (given,)

    @field_validator("epsilon")
    @classmethod
    def _ordered(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if not given or not all(0 <= one < float("inf") for one in given):
            raise ValueError("it must be a number of at least 0, or several of them")
        return tuple(sorted(set(given), reverse=True))

    def make(self, task: Task) -> CertifiedLearner:
        """Return the algorithm for a target."""
        return CertifiedLearner(task, self)

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if a declaration needs a model, or bounds are missing."""
        environment_declarations(rules, assumptions)


class CertifiedLearner(SamplingAlgorithm):
    """The certified learner on a space."""

    together: ClassVar[bool] = True

    def __init__(self, task: Task, settings: Certified) -> None:
        super().__init__(task)
        self.settings, self.shares_steps = settings, self.space.shared
        #: Episodes that have begun and are not over.
        self._begun = 0
        #: For each review with a candidate: episodes, gap, violation; exact value and violation or NaN.
        self._lines: list[tuple[float, ...]] = []
        #: The number of the last evaluated candidate, its value and violation.
        self._judged: tuple[int, float, float] = (0, math.nan, math.nan)
        given = settings.epsilon, settings.failure_probability, settings.relative
        self.rounds: Rounds
        self._growing: GrowingRounds | None = None
        if isinstance(self.space, GrowingSpace):
            declarations = environment_declarations(self.space.rules, task.assumptions)
            self._check_epsilon(declarations.deterministic)
            self.rounds = self._growing = certify_environment(self.space, *given, declarations)
            return
        model = compiled(task)
        declared = declared_on_model(model, task.assumptions)
        self._check_epsilon(declared.deterministic)
        self.rounds = certify_model(model, *given, declared)
        self.payoff = np.stack([model.payoffs.reward, model.record_violation], axis=1)

    def _check_epsilon(self, deterministic: bool) -> None:
        if min(self.settings.epsilon) == 0 and not deterministic:
            raise SettingsError(
                "epsilon is 0, which only Assumptions(deterministic=True) can reach: if outcomes are random, no number "
                "of episodes proves a policy to be the best"
            )

    def grow(self, first: int, log: Log) -> None:
        """Add the slots from `first` on; a model has all of them from the start."""
        if self._growing is None:
            return
        limited = not self.task.assumptions.declared().keys().isdisjoint(LIMITS)
        self._growing.grow(first, Log.of_size(0) if limited else log)  # the caller logs forbidden rows

    def forbid(self, first: int, forbidden: NDArray[np.bool_], max_violation: Floats) -> None:
        """Rule out what is declared to fail."""
        self.rounds.forbid(first, forbidden, max_violation, declared=self.task.assumptions.constraints is not None)

    # Learning ------------------------------------------------------------------------------------------------

    @property
    def until_review(self) -> int:
        """Episodes until its bounds may change next."""
        return max(1, int(self.rounds.status[LEFT]))

    @property
    def log_room(self) -> int:
        """A new block may change every node; an episode those of its path and, by a violation, of its groups."""
        nodes, horizon = len(self.rounds.candidate), self.space.horizon
        if self._growing is not None:  # a new slot may appear at any step
            largest = 1 if self._growing.declared.depends_on is None else self.space.rows
            return 2 * nodes + horizon * (2 + largest * self.columns)
        largest = int(np.diff(self.rounds.structure.group_start).max())
        return nodes + horizon * (1 + largest * self.columns)

    def place_when_new(self) -> int | None:
        """Candidate and greedy rows start with the first row of a new state, the challenger with the second."""
        if self._growing is None or self._growing.declared.depends_on is not None:
            return None  # groups may rule out rows of new states
        return int(self.rounds.status[KIND] == CHALLENGE)

    def choices(self) -> Choices:
        """Return the rows that are followed."""
        return Choices(self.rounds.rows, 0, self.rounds.structure.node_stride, 1)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run some episodes of the model, fewer if the log is full or the learner stops."""
        model, r, ran = compiled(self.task), self.rounds, 0
        while ran < episodes and self.stop_reason is None:
            count = play_episodes(
                model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
                r.structure, r.params, r.tables, r.scratch, r.rows, bool(r.live), r.gauge, r.evidence,
                generator, done + ran, min(episodes - ran, int(r.status[LEFT])), log, self.log_room,
                experience[ran:], counters,
            )  # fmt: skip
            ran += count
            if count == 0:
                break
            self._go_on(count, log)
        return ran

    def _go_on(self, count: int, log: Log) -> None:
        """Count episodes; log the rows of a new block."""
        r = self.rounds
        over = count >= r.status[LEFT]
        before = r.rows.copy() if over and len(log.node) else None
        reviews = r.reviews
        r.played(count)
        self.stop_reason = r.stop_reason
        if r.reviews > reviews and r.status[FROZEN]:
            self._note_review()
        if before is not None:
            nodes, logged = np.flatnonzero(before != r.rows), int(log.head[0])
            log.extend(nodes, r.rows[nodes])
            self._translate(log, logged)

    def _note_review(self) -> None:
        """Record the bounds of a review and, on models, the exact values, which no decision depends on."""
        r, model = self.rounds, self.task.model
        number = int(r.status[POLICIES])
        if model is not None and model.num_nodes <= MOST_JUDGED and self._judged[0] != number:
            exact = policy_value(model, self.decided())
            self._judged = number, exact["value"], exact["violation"]
        gap, violation = float(r.bounds[GAP]), float(r.bounds[VIOLATED_HIGH])
        self._lines.append((float(r.status[EPISODES]), gap, violation, *self._judged[1:]))

    def _translate(self, log: Log, first: int) -> None:
        """Convert nodes of the log from `first` on to the layout of the space, which leaves room between steps."""
        own, other = self.rounds.structure.node_stride, self.space.layout.node_stride
        if own != other:
            nodes = log.changes[1][first:]
            step, slot = np.divmod(nodes, own)
            nodes[:] = step * other + slot

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode, as `run` does."""
        r, length = self.rounds, played.length
        if self._growing is not None:
            self._growing.make_room(played.row[:length])
            if played.violation[:length].any():
                self._growing.settle_groups()
        path = r.scratch
        path.slot[:length], path.row[:length] = played.slot[:length], played.row[:length]
        path.following[:length] = played.following[:length]
        path.earned[:length], path.violated[:length] = played.reward[:length], played.violation[:length]
        gauge = r.gauge and self._begun > 0
        self._begun = max(0, self._begun - 1)
        logged = int(log.head[0])
        take_episode(r.structure, r.params, r.tables, path, length, bool(r.live), gauge, r.evidence, log)
        self._translate(log, logged)
        self._go_on(1, log)

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Count an episode that begins; evidence must have begun under the current candidate."""
        self._begun += 1

    @property
    def at_once(self) -> int:
        """Episodes that may run together: all follow the same decisions."""
        return self.until_review

    # Results -------------------------------------------------------------------------------------------------

    def _by_slot(self, nodes: NDArray[Any]) -> NDArray[np.int64]:
        """[slot, column] of an array by node."""
        slots = self.space.slots
        if not self.space.shared:
            return nodes[:slots, None].astype(np.int64)
        wide = nodes.reshape(self.space.horizon + 1, -1)
        return wide[: self.space.horizon, :slots].T.astype(np.int64)

    def _by_row(self, entries: NDArray[Any]) -> NDArray[Any]:
        """[row, column] of an array by entry."""
        return np.ascontiguousarray(entries.reshape(self.columns, -1)[:, : self.space.rows].T)

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the rows that the next episode follows."""
        return np.maximum(self._by_slot(self.rounds.rows), self.space.layout.row_start[:-1, None])

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the candidate, the subject of the certificate."""
        return np.maximum(self._by_slot(self.rounds.candidate), self.space.layout.row_start[:-1, None])

    def values(self) -> Floats:
        """[entry]: upper values; minus infinity for actions that are ruled out."""
        tables = self.rounds.tables
        return self.space.entries_of(self._by_row(np.where(tables.witness == OPEN, tables.upper, -np.inf)))

    def known(self) -> NDArray[np.int8]:
        """[entry]: actions that violated, or that led to a dead state."""
        return self.memory().known(self.space)

    def memory(self) -> Memory:
        """Return the violations that were observed."""
        structure, tables = self.rounds.structure, self.rounds.tables
        return Memory(self._by_row(tables.witness), tables.max_violation[structure.group_of_row[: self.space.rows]])

    def feasible(self) -> bool | None:
        """Return False if an observed first state is dead."""
        return False if self.rounds.status[DEAD_FIRST] != OPEN else None

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        return [] if self.feasible() is None else self.memory().proof(self.space, int(self.rounds.status[DEAD_FIRST]))

    @property
    def issued(self) -> list[dict[str, float]]:
        """Certified bounds, in the order of the epsilons."""
        return self.rounds.issued

    def proof_history(self) -> ProofHistory:
        """Return the bounds of each review with a candidate."""
        return ProofHistory.of(self._curve())

    def _curve(self) -> Floats:
        return np.array(self._lines, np.float64).reshape(-1, 5)

    def fields(self) -> dict[str, Any]:
        """Return certified gap, bound on the violation and about how many episodes are left."""
        r, left = self.rounds, self.rounds.forecast()
        found: dict[str, Any] = {}
        if r.status[FROZEN]:
            found = {"certified gap": float(r.bounds[GAP]), "violation at most": float(r.bounds[VIOLATED_HIGH])}
        return found | ({"about left": float(left)} if math.isfinite(left) and r.reviews else {})

    def certificate(self) -> Certificate:
        """Return the certificate, or the current bounds."""
        return certificate(self)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all tables by name."""
        r = self.rounds
        evidence = {f"evidence_{name}": array for name, array in r.evidence._asdict().items() if name != "gap"}
        own = {"status": r.status, "bounds": r.bounds, "passed": r.passed, "proved": self._curve()} | evidence
        if self._growing is not None:
            return {name: array for name, array in self._growing.compact().items() if name not in UNKEPT} | own
        rows = {"candidate": r.candidate, "followed": r.followed, "challenger": r.challenger}
        return r.tables._asdict() | rows | own | {"evidence_gap": r.evidence.gap} | r.frozen_counts._asdict()

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        curve = arrays["proved"]
        if curve.dtype != np.float64 or curve.ndim != 2 or curve.shape[1] != 5:
            raise ValueError(f"engine.proved has shape {curve.shape}")
        self._lines = [tuple(line) for line in curve.tolist()]
        if self._growing is None:
            super().load(arrays)
            return
        r = self.rounds
        for name, array in {"status": r.status, "bounds": r.bounds, "passed": r.passed}.items():
            overwrite(array, arrays[name], f"engine.{name}")
        for name, array in r.evidence._asdict().items():
            if name != "gap":
                overwrite(array, arrays[f"evidence_{name}"], f"engine.evidence_{name}")
        self._growing.restore(arrays)

    def check(self, done: int) -> None:
        """Check arrays of a file and set what follows from them."""
        check_restored(self, done)
        r = self.rounds
        if self._lines and r.status[FROZEN]:
            self._judged = int(r.status[POLICIES]), self._lines[-1][3], self._lines[-1][4]
        if r.status[DEAD_FIRST] != OPEN:
            self.stop_reason = r.stop_reason = "infeasible"
        elif r.status[PASSED] == len(r.goal.epsilons):
            self.stop_reason = r.stop_reason = "certified"


def certify_model(
    model: TabularModel,
    epsilons: tuple[float, ...],
    failure_probability: float,
    relative: bool,
    declared: ModelDeclarations,
) -> Rounds:
    """Return the learner's rounds on a model."""
    structure = model_structure(model, declared)
    params = model_params(model, structure, failure_probability, declared)
    tables, scratch = start_tables(structure, params, model.num_nodes, model.num_entries)
    least, most = model.reward_range
    goal = Goal(
        epsilons,
        failure_probability,
        relative,
        least,
        most,
        model.horizon * float(sum(model.constraint_bounds)),
        lower_bets(model, params.joint),
        not params.joint or declared.constraints,
        declared.safe,
    )
    if declared.rewards is not None and not params.joint:
        tables.known[:] = 1
        tables.reward[:] = declared.rewards
    return Rounds(structure, params, tables, scratch, goal, model.num_nodes)


def certify_environment(
    space: GrowingSpace, epsilons: tuple[float, ...], failure_probability: float, relative: bool, declared: Declarations
) -> GrowingRounds:
    """Return the learner's rounds on an environment, whose states are discovered online."""
    rules = space.rules
    least, most = rules.reward_range
    bounds = rules.constraints.bounds or ()
    goal = Goal(
        epsilons,
        failure_probability,
        relative,
        least,
        most,
        rules.horizon * math.fsum(bounds),
        1,
        declared.certain,
        declared.safe,
    )
    return GrowingRounds(space, declared, goal, len(rules.actions))


def lower_bets(model: TabularModel, joint: bool) -> int:
    """Return the number of bounds for the lower values of a policy."""
    if not model.stationary:
        return model.num_slots
    return max(1, model.num_slots * (model.horizon if joint else model.horizon - 1))


def model_structure(model: TabularModel, declared: ModelDeclarations) -> Structure:
    """Return the index structure of a model."""
    layout = model.layout
    rows = model.num_rows
    slot_of_row = np.repeat(np.arange(model.num_slots), np.diff(layout.row_start)).astype(np.int32)
    distribution = (
        np.arange(rows, dtype=np.int32)
        if declared.distribution_of_row is None
        else declared.distribution_of_row.astype(np.int32)
    )
    noises = 0
    sizes = np.zeros(int(distribution.max()) + 1, np.int64)
    # A cell for each outcome; stored distributions that are declared equal may differ in their number of outcomes.
    np.maximum.at(sizes, distribution, np.diff(layout.outcome_start)[layout.row_distribution])
    if declared.noise_next is not None:
        noises = declared.noise_next.shape[1]
        distribution, sizes = np.zeros(rows, np.int32), np.array([noises])
    group = np.arange(rows) if declared.group_of_row is None else declared.group_of_row
    start, members = grouped(group)
    return Structure(
        model.horizon, layout.node_stride, layout.entry_stride, 0, layout.row_start.copy(),
        *step_slots(model), distribution, group.astype(np.int32), slot_of_row, start, members,
        np.concatenate([[0], np.cumsum(sizes)[:-1], [sizes.sum()]]).astype(np.int64),
        noises, np.empty(0, np.int32) if declared.noise_next is None else declared.noise_next.astype(np.int32).ravel(),
    )  # fmt: skip


def grouped(group: Ints | Longs) -> tuple[Longs, Ints]:
    """Return where each group's rows begin, and the rows in that order."""
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(np.asarray(group)[order], np.arange(int(group.max()) + 2))
    return start.astype(np.int64), order.astype(np.int32)


def step_slots(model: TabularModel) -> tuple[Longs, Longs, Ints]:
    """Return the slots of each step: first, one past the last, and the slots in that order."""
    ranges = model.layout.step_slots
    return (
        ranges[: model.horizon, 0].copy(),
        ranges[: model.horizon, 1].copy(),
        np.arange(model.num_slots, dtype=np.int32),
    )


def model_params(
    model: TabularModel, structure: Structure, failure_probability: float, declared: ModelDeclarations
) -> Params:
    """Return the parameters of the bounds on a model."""
    least, most = model.reward_range
    joint = model.payoffs.stride > 0 and not declared.deterministic
    distributions = len(structure.cell_start) - 1
    bets = model.num_rows if structure.noises else distributions
    if model.stationary:
        bets *= model.horizon if joint else model.horizon - 1
    share = math.log((bets + 1) / (UPPER * failure_probability))
    most = most if declared.max_reward is None else min(most, declared.max_reward)
    return Params(least, most, joint, declared.deterministic, True, np.full(distributions + 1, share))


def start_tables(structure: Structure, params: Params, nodes: int, entries: int) -> tuple[Tables, Scratch]:
    """Return the initial tables, and scratch arrays."""
    horizon, rows = structure.horizon, len(structure.distribution_of_row)
    distributions, cells = len(structure.cell_start), int(structure.cell_start[-1]) + len(structure.row_start)
    most = max(params.most, 0.0) if structure.ends else params.most
    top = most * np.arange(horizon, -1.0, -1.0)
    groups, guesses = len(structure.group_start) - 1, max(distributions, rows + 1 if structure.noises else 0)
    tables = Tables(
        upper=np.zeros(entries), witness=np.full(entries, OPEN, np.int32), updated=np.zeros(entries, np.int64),
        guess=np.full((horizon + 1, guesses), -math.inf), value=np.zeros(nodes), dead=np.zeros(nodes, np.int8),
        greedy=np.zeros(nodes, np.int32), top=top, known=np.zeros(rows, np.int8), reward=np.zeros(rows),
        tested=np.zeros(groups, np.int8), max_violation=np.zeros(groups),
        distribution=np.zeros((distributions, 3), np.int64), cell_next=np.zeros(cells, np.int32),
        cell_reward=np.zeros(cells), cell_count=np.zeros(cells, np.int64), cell_before=np.zeros(cells, np.int64),
    )  # fmt: skip
    for step in range(horizon):
        slots = structure.slots[structure.step_first[step] : structure.step_last[step]].astype(np.int64)
        slots = slots[structure.row_start[slots] < structure.row_start[slots + 1]]
        tables.value[step * structure.node_stride + slots] = top[step]
        tables.greedy[step * structure.node_stride + slots] = structure.row_start[slots]
        for slot in slots.tolist():
            first, last = structure.row_start[slot], structure.row_start[slot + 1]
            tables.upper[step * structure.entry_stride + first : step * structure.entry_stride + last] = top[step]
    if structure.noises:
        tables.distribution[0, CELLS] = structure.noises
    slot, row, following = (np.zeros(horizon + 1, np.int64) for _ in range(3))
    scratch = Scratch(
        value=np.empty(cells), count=np.empty(cells, np.int64),
        bound_step=np.empty(distributions, np.int64), bound_value=np.empty(distributions),
        bound_dead=np.empty(distributions, np.int64),
        slot=slot, row=row, following=following, earned=np.zeros(horizon + 1), violated=np.zeros(horizon + 1),
    )  # fmt: skip
    return tables, scratch


def check_restored(learner: CertifiedLearner, done: int) -> None:
    """Raise ValueError if arrays of a file hold values or indices that kernels must not see."""
    r, slots, goals = learner.rounds, learner.space.slots, len(learner.rounds.goal.epsilons)
    status, evidence, tables = r.status, r.evidence, r.tables
    if not (0 <= status[KIND] <= CANDIDATE and 0 <= status[PASSED] <= goals and status[EPISODES] == done):
        raise ValueError("engine.status is out of range")
    alive = status[DEAD_FIRST] == OPEN
    due = status[LEFT] == 0 and alive and status[PASSED] < goals
    if not (alive or 0 <= status[DEAD_FIRST] < slots) or (status[:DEAD_FIRST] < 0).any() or due:
        raise ValueError("engine.status is out of range")
    check_rows(learner)
    check_cells(r, slots)
    for array in (tables.upper, tables.value, tables.top, tables.reward, tables.cell_reward, evidence.scale):
        if not np.isfinite(array).all():
            raise ValueError("a value is not finite")
    if not ((tables.max_violation >= 0) & np.isfinite(tables.max_violation)).all():
        raise ValueError("a violation is not a number of at least 0")
    for counts in (evidence.counts, evidence.returns, evidence.gaps):
        if (counts < 0).any():
            raise ValueError("a count of the evidence is negative")
    top = evidence.scale[2]  # gaps become indices of a grid over [0, top]
    if not ((evidence.gap >= 0) & (evidence.gap < np.inf)).all() or 0 <= top < evidence.gap.max():
        raise ValueError("a gap is out of range")
    learner.proof()


def check_rows(learner: CertifiedLearner) -> None:
    """Raise ValueError if a table names a row of another state, or a witness does not exist."""
    r = learner.rounds
    slot = r.nodes - r.node_step * r.structure.node_stride
    first, last = r.structure.row_start[slot], r.structure.row_start[slot + 1]
    for name in ("candidate", "followed", "challenger", "greedy"):
        table = r.tables.greedy if name == "greedy" else getattr(r, name)
        rows = table[r.nodes]
        unset = name != "greedy" and not table.any()
        if not unset and ((rows < first) | (rows >= last)).any():
            raise ValueError(f"{name} names a row of another state")
    if ((r.tables.witness < DECLARED) | (r.tables.witness >= learner.space.slots)).any():
        raise ValueError("witness names a state that does not exist")


def check_cells(r: Rounds, slots: int) -> None:
    """Raise ValueError if a distribution has more cells than there is room for, or a cell a wrong count or state."""
    own, noises = SimpleNamespace(**counted(r), cell_before=cells_before(r)), r.structure.noises
    room = np.diff(np.append(own.cell_start, len(own.cell_next)))
    for table in (own.distribution, own.then_distribution):
        if (table < 0).any() or (table[:, CELLS] > room).any():
            raise ValueError("engine.distribution is out of range")
    if noises and (own.distribution[0, CELLS] != noises or own.then_distribution[0, CELLS] not in (0, noises)):
        raise ValueError("engine.distribution has a wrong number of noises")
    for counts in (own.cell_count, own.cell_before, own.then_count, own.then_before):
        if (counts < 0).any():
            raise ValueError("a count of a cell is negative")
    if ((own.cell_next < 0) | (own.cell_next >= slots)).any():
        raise ValueError("a cell names a state that does not exist")
