"""The certified learner: settings and algorithm.

`phases` decides what is played and when to stop; `bounds`, `values`, `gaps` and `confidence` hold the mathematics, and
`tables` the data, for models and environments alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.errors import SettingsError, TargetError
from peakrl.evaluation.curve import policy_value
from peakrl.learners.base import (
    Algorithm,
    Choices,
    Episode,
    LearnerSettings,
    ProofHistory,
    Task,
)
from peakrl.learners.certified.declared import Facts, OnEnvironment, OnModel, environment_facts
from peakrl.learners.certified.episodes import choose_row, learn_path
from peakrl.learners.certified.evidence import LIMITS, certificate, contradiction
from peakrl.learners.certified.phases import Goal, Rounds
from peakrl.learners.certified.tables import CHALLENGE, OPEN, Tables
from peakrl.learners.episode import Log, Path, Simulator, learn_played, register, run_episodes
from peakrl.learners.infeasibility import Memory
from peakrl.learners.space import GrowingSpace, ModelSpace
from peakrl.policy.fallback import NOT_KNOWN, SATISFIED, VIOLATED
from peakrl.sampling import Words
from peakrl.space import StateSpace
from peakrl.types import Floats, Longs

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.gym.adapter import Rules
    from peakrl.learners.assumptions import Assumptions, Forbidden

#: The candidate's exact value and violation are recorded on models of up to this many nodes.
MOST_JUDGED = 200_000
#: [`JUDGED_...`]: the rank of such an action in a new state.
RANK = np.array([NOT_KNOWN, SATISFIED, VIOLATED], np.int8)
register(Tables, choose=choose_row, learn=learn_path)


class Certified(LearnerSettings):
    """Settings of the certified learner, which stops once it can prove that its policy is good.

    The gap in value to the best safe policy and the expected violation are then at most epsilon, or at most a share
    epsilon of the size of the best safe value (`relative`), except with probability `failure_probability`.
    `learn(..., episodes=...)` is a limit; `run.stop_reason` says why the run ended and `run.certificate` what is
    certified.
    """

    #: The largest gap to the best safe policy, and the largest expected violation; several are reached in order.
    epsilon: tuple[float, ...]
    #: Upper bound on the probability that a false certificate is issued.
    failure_probability: float = Field(default=0.05, gt=0, lt=1)
    #: Is epsilon a share of the size of the best safe policy's value, by a lower bound of it?
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
        environment_facts(rules, assumptions)


def can_be_relative(facts: Facts) -> bool:
    """Return whether a lower bound of the size of the best safe value can be known.

    It is the value of a policy that never violates, if that can be certain; otherwise rewards must have one sign.
    """
    never = facts.certain or facts.safe or facts.violation == 0.0
    return never or facts.reward_range[0] > 0.0 or facts.most < 0.0


class CertifiedLearner(Algorithm):
    """The certified learner on a space."""

    together: ClassVar[bool] = True

    def __init__(self, task: Task, settings: Certified) -> None:
        super().__init__(task)
        space, assumptions, self.shares_steps = task.space, task.assumptions, task.space.shared
        #: Episodes that have begun and are not over.
        self._begun = 0
        #: For each review with a candidate: episodes, gap, violation; exact value and violation or NaN.
        self._lines: list[tuple[float, ...]] = []
        #: The number of the last evaluated candidate, its value and violation.
        self._judged: tuple[int, float, float] = (0, math.nan, math.nan)
        if isinstance(space, GrowingSpace):
            declared: OnEnvironment | OnModel = OnEnvironment(space, assumptions)
        else:
            assert isinstance(space, ModelSpace)
            declared = OnModel(space, assumptions)
            model, payoffs = space.model, space.model.payoffs
            payoff = np.stack([payoffs.reward, model.record_violation], axis=1)
            self.simulator = Simulator(model.layout, model.sampler, payoffs.stride, payoffs.row_payoff, payoff)
            self.path = Path.of_length(model.horizon, 2)
        if min(settings.epsilon) == 0 and not declared.facts.deterministic:
            raise SettingsError(
                "epsilon is 0, which only Assumptions(deterministic=True) can reach: if outcomes are random, no number "
                "of episodes proves a policy to be the best"
            )
        if settings.relative and not can_be_relative(declared.facts):
            raise SettingsError(
                "relative is True, but violations are only bounded from episodes, so that no lower bound of the best "
                "safe value can be known: give epsilon in units of value, or declare constraints, a support or a "
                "safe_policy"
            )
        self.rounds = Rounds(space, declared, Goal(settings.epsilon, settings.failure_probability, settings.relative))

    def grow(self, first: int, log: Log) -> None:
        """Add the slots from `first` on; log the rows that are followed there and are not the first."""
        r = self.rounds
        r.grow(first)
        if len(log.node) and self.task.assumptions.declared().keys().isdisjoint(LIMITS):  # or the caller logs them
            slots = np.arange(max(first, self.space.ends), self.space.slots)
            rows = r.rows[slots]
            slot, column = np.nonzero(rows != r.tables.row_start[slots][:, None])
            log.extend(column * r.tables.node_stride + slots[slot], rows[slot, column])

    def forbid(self, declared: Forbidden) -> None:
        """Rule out what is declared to fail."""
        self.rounds.forbid(declared, tested=self.task.assumptions.constraints is not None)

    # Learning ------------------------------------------------------------------------------------------------

    @property
    def until_review(self) -> int:
        """Episodes until its bounds may change next."""
        return max(1, self.rounds.status.left)

    @property
    def log_room(self) -> int:
        """A new block may change every node; an episode those of its path and, by a violation, of its groups."""
        t, largest = self.rounds.tables, 1
        if self.task.assumptions.constraint_depends_on is not None:
            largest = int(np.bincount(t.group_of_row, minlength=1).max())
        new = t.candidate.size if self.rounds.facts.growing else 0  # new slots may appear at any step
        return t.candidate.size + new + t.horizon * (2 + largest * self.columns)

    def place_when_new(self) -> int | None:
        """Candidate and greedy rows start with the first row of a new state, the challenger with the second."""
        if self.task.assumptions.constraint_depends_on is not None:
            return None  # groups may rule out rows of new states
        return int(self.rounds.status.kind == CHALLENGE)

    def choices(self) -> Choices:
        """Return the rows that are followed."""
        return Choices.by_column(self.rounds.rows)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run some episodes of the model, fewer if the log is full or the learner stops."""
        r, ran = self.rounds, 0
        while ran < episodes and self.stop_reason is None:
            if ran and 0 < len(log.node) < log.head[0] + self.log_room:
                break
            r.tables.mode[:] = r.live, r.gauge
            count = run_episodes(
                self.simulator, r.tables, self.path, generator, done + ran, min(episodes - ran, r.status.left),
                self.log_room, log, experience[ran:], counters,
            )  # fmt: skip
            ran += count
            self._go_on(count, log)
        return ran

    def _go_on(self, count: int, log: Log) -> None:
        """Count episodes; log the rows of a new block."""
        r = self.rounds
        before = r.rows.copy() if count >= r.status.left and len(log.node) else None
        reviews = r.reviews
        r.played(count)
        if r.contradicts:
            raise TargetError(contradiction(r, self.task.assumptions))
        self.stop_reason = r.stop_reason
        if r.reviews > reviews and r.status.frozen:
            self._note_review()
        if before is not None:
            column, slot = np.nonzero((before != r.rows).T)
            log.extend(column * r.tables.node_stride + slot, r.rows[slot, column])

    def _note_review(self) -> None:
        """Record the bounds of a review and, on models, the exact values, which no decision depends on."""
        r, model = self.rounds, self.task.model
        if model is not None and model.num_nodes <= MOST_JUDGED and self._judged[0] != r.status.policies:
            exact = policy_value(model, self.decided())
            self._judged = r.status.policies, exact["value"], exact["violation"]
        self._lines.append((float(r.status.episodes), r.bounds.gap, r.bounds.violation_high, *self._judged[1:]))

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode, as `run` does."""
        r, length = self.rounds, played.length
        r.store.reserve(length + 1)
        if played.violation[:length].any():
            r.settle()
        r.tables.mode[:] = r.live, r.gauge and self._begun > 0
        self._begun = max(0, self._begun - 1)
        path = Path(played.slot, played.row, played.following, np.stack([played.reward, played.violation], axis=1))
        learn_played(r.tables, self.space.layout, path, length, episode, log)
        self._go_on(1, log)

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Count an episode that begins; evidence must have begun under the current candidate."""
        self._begun += 1

    @property
    def at_once(self) -> int:
        """Episodes that may run together: all follow the same decisions."""
        return self.until_review

    # Results -------------------------------------------------------------------------------------------------

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the rows that the next episode follows."""
        return self.rounds.rows.copy()

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the candidate, the subject of the certificate."""
        return self.rounds.tables.candidate.copy()

    def ranks(self, states: StateSpace) -> NDArray[np.int8] | None:
        """Return the ranks of actions in new states, as the candidate has taken them since it was frozen."""
        depends_on = self.task.assumptions.constraint_depends_on
        if not isinstance(self.space, GrowingSpace):
            return None
        lines = states.num_states if depends_on == "pair" and not self.space.shared else 0
        rank = np.full((lines + 1, len(states.action_labels)), NOT_KNOWN, np.int8)
        if lines or depends_on == "action":
            t = self.rounds.tables
            judged = self.space.entries_of(t.judged[t.group_of_row][:, None])
            of_state = states.slot_state[states.slot_of_row] if lines else np.zeros(len(judged), np.int32)
            rank[of_state, states.row_action] = RANK[judged]
        return rank

    def values(self) -> Floats:
        """[entry]: upper values; minus infinity for actions that are ruled out."""
        t = self.rounds.tables
        return self.space.entries_of(np.where(t.witness == OPEN, t.upper, -np.inf))

    def memory(self) -> Memory:
        """Return the violations that were observed."""
        t = self.rounds.tables
        return Memory(t.witness, t.max_violation[t.group_of_row])

    @property
    def dead_first(self) -> int | None:
        """An observed first state that is dead."""
        return None if self.rounds.status.dead_first == OPEN else self.rounds.status.dead_first

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
        if r.status.frozen:
            found = {"certified gap": r.bounds.gap, "violation at most": r.bounds.violation_high}
        return found | ({"about left": left} if math.isfinite(left) and r.reviews else {})

    def certificate(self) -> Certificate:
        """Return the certificate, or the current bounds."""
        return certificate(self.rounds, self.task.assumptions, self.task.sizes.constraint_bounds)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all tables by name."""
        return self.rounds.arrays() | {"proved": self._curve()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        self._lines = [tuple(line) for line in arrays["proved"].reshape(-1, 5).tolist()]
        self.rounds.load(arrays)

    def check(self, done: int) -> None:
        """Check arrays of a file and set what follows from them."""
        r = self.rounds
        r.check(done)
        self.proof()
        if self._lines and r.status.frozen:
            self._judged = r.status.policies, self._lines[-1][3], self._lines[-1][4]
        self.stop_reason = r.stop_reason
