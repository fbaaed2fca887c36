"""The certified learner: settings and algorithm.

`phases` decides what is played and when to stop; `bounds`, `values` and `gaps` hold the mathematics, and
`tables` the data, for models and environments alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.errors import SettingsError, TargetError
from peakrl.evaluation.curve import policy_value
from peakrl.learners.base import Episode, LearnerSettings, ProofHistory, Task
from peakrl.learners.certified.declared import NOISE, Declared, Facts, OnEnvironment, OnModel, environment_facts
from peakrl.learners.certified.evidence import certificate, contradiction
from peakrl.learners.certified.phases import Bounds, Rounds
from peakrl.learners.certified.tables import CANDIDATE, CHALLENGE, OPEN, OPTIMISTIC, TOP, Status, Tables
from peakrl.learners.certified.values import choose_row, learn_path
from peakrl.learners.episode import Log, register
from peakrl.learners.infeasibility import Memory
from peakrl.learners.space import GrowingSpace, ModelSpace
from peakrl.learners.tables import alike
from peakrl.policy.fallback import NOT_KNOWN, SATISFIED, VIOLATED
from peakrl.sampling import Words
from peakrl.space import StateSpace
from peakrl.types import Floats, Longs

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.gym.adapter import Rules
    from peakrl.learners.assumptions import Assumptions

#: The candidate's exact value and violation are recorded on models of up to this many nodes.
MOST_JUDGED = 200_000
#: Squares of smaller rewards underflow.
LEAST_SIZE = 1e-150
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
    failure_probability: float = Field(default=0.05, gt=1e-100, lt=1)
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


class CertifiedLearner(Rounds):
    """The certified learner on a space."""

    together: ClassVar[bool] = True

    def __init__(self, task: Task, settings: Certified) -> None:
        space, assumptions = task.space, task.assumptions
        #: Episodes that have begun and are not over.
        self._begun = 0
        #: For each review with a candidate: episodes, gap, violation; exact value and violation or NaN.
        self._lines: list[tuple[float, ...]] = []
        #: The number of the last evaluated candidate, its value and violation.
        self._judged: tuple[int, float, float] = (0, math.nan, math.nan)
        declared: Declared
        declared = OnModel(space, assumptions) if isinstance(space, ModelSpace) else OnEnvironment(space, assumptions)
        if 0.0 < (size := max(map(abs, declared.facts.reward_range))) < LEAST_SIZE:
            raise SettingsError(f"rewards are at most {size:g} in size, too small for bounds: use another unit")
        if min(settings.epsilon) == 0 and not declared.facts.deterministic:
            raise SettingsError(
                "epsilon is 0, which only Assumptions(deterministic=True) can reach: if outcomes are random, no number "
                "of episodes proves a policy to be the best"
            )
        if settings.relative and not can_be_relative(declared.facts):
            raise SettingsError(
                "relative is True, but violations are only bounded from episodes, so that no lower bound of the best "
                "safe value can be known: give epsilon in units of value, or declare a support or a safe_policy (or "
                "constraints, if no state without a safe action can be reached)"
            )
        super().__init__(task, declared, settings.epsilon, settings.failure_probability, settings.relative)

    # Learning ------------------------------------------------------------------------------------------------

    @property
    def at_once(self) -> int:
        """Episodes that may run together: all follow the same decisions, until the bounds may change next."""
        return max(1, self.status.left)

    @property
    def log_room(self) -> int:
        """A new block may change every node; an episode those of its path and, by a violation, of its groups."""
        t, largest = self.tables, 1
        if self.task.assumptions.constraint_depends_on is not None:
            largest = int(np.bincount(t.group_of_row, minlength=1).max())
        new = t.candidate.size if self.facts.growing else 0  # new slots may appear at any step
        return t.candidate.size + new + t.horizon * (2 + largest * self.columns)

    @property
    def place_when_new(self) -> int | None:  # type: ignore[override]  # depends on the kind of the episode
        """Candidate and greedy rows start with the first row of a new state, the challenger with the second."""
        if self.task.assumptions.constraint_depends_on is not None:
            return None  # groups may rule out rows of new states
        return int(self.status.kind == CHALLENGE)

    def choices(self) -> NDArray[Any]:
        """[slot, column]: the rows that the next episode follows."""
        return self.rows

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run some episodes of the model, fewer if the log is full or the learner stops."""
        ran = 0
        while ran < episodes and self.stop_reason is None:
            if ran and 0 < len(log.node) < log.head[0] + self.log_room:
                break
            self.tables.mode[:] = self.status.kind == OPTIMISTIC, self.gauge
            count = min(episodes - ran, self.status.left)
            count = super().run(generator, done + ran, count, log, experience[ran:], counters)
            ran += count
            self._go_on(count, log)
        return ran

    def _go_on(self, count: int, log: Log) -> None:
        """Count episodes; log the rows of a new block."""
        before = self.rows.copy() if count >= self.status.left and len(log.node) else None
        reviews = self.reviews
        self.played(count)
        if self.contradicts:
            raise TargetError(contradiction(self))
        self.stop_reason = self.enough()
        if self.reviews > reviews and self.status.frozen:
            # The exact values of models are recorded, too; no decision depends on them.
            model, policies = self.task.model, self.status.policies
            if model is not None and model.num_nodes <= MOST_JUDGED and self._judged[0] != policies:
                exact = policy_value(model, self.decided())
                self._judged = policies, exact["value"], exact["violation"]
            bounds = self.bounds
            self._lines.append((float(self.status.episodes), bounds.gap, bounds.violation_high, *self._judged[1:]))
        if before is not None:
            column, slot = np.nonzero((before != self.rows).T)
            log.extend(column * self.tables.node_stride + slot, self.rows[slot, column])

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode, as `run` does."""
        self.store.reserve(len(played.row) + 1)
        if played.violation.any():
            self.settle()
        self.tables.mode[:] = self.status.kind == OPTIMISTIC, self.gauge and self._begun > 0
        self._begun = max(0, self._begun - 1)
        super().learn(played, episode, log)
        self._go_on(1, log)

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Count an episode that begins; evidence must have begun under the current candidate."""
        self._begun += 1

    # Results -------------------------------------------------------------------------------------------------

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the candidate, the subject of the certificate."""
        return self.tables.candidate.copy()

    def ranks(self, states: StateSpace) -> NDArray[np.int8] | None:
        """Return the ranks of actions in new states, as the candidate has taken them since it was frozen."""
        depends_on = self.task.assumptions.constraint_depends_on
        if not isinstance(self.space, GrowingSpace):
            return None
        lines = states.num_states if depends_on == "pair" and not self.space.shared else 0
        rank = np.full((lines + 1, len(states.action_labels)), NOT_KNOWN, np.int8)
        if lines or depends_on == "action":
            t = self.tables
            judged = self.space.entries_of(t.judged[t.group_of_row][:, None])
            of_state = states.slot_state[states.slot_of_row] if lines else np.zeros(len(judged), np.int32)
            rank[of_state, states.row_action] = RANK[judged]
        return rank

    def values(self) -> Floats:
        """[entry]: upper values; minus infinity for actions that are ruled out."""
        t = self.tables
        return self.space.entries_of(np.where(t.witness == OPEN, t.upper, -np.inf))

    def memory(self) -> Memory:
        """Return the violations that were observed."""
        t = self.tables
        return Memory(t.witness, t.max_violation[t.group_of_row])

    @property
    def dead_first(self) -> int | None:
        """An observed first state that is dead."""
        return None if self.status.dead_first == OPEN else self.status.dead_first

    def proof_history(self) -> ProofHistory | None:
        """Return the bounds of each review with a candidate."""
        return ProofHistory.of(self._curve())

    def _curve(self) -> Floats:
        return np.array(self._lines, np.float64).reshape(-1, 5)

    def fields(self) -> dict[str, Any]:
        """Return certified gap, bound on the violation and about how many episodes are left."""
        left, found = self.forecast(), dict[str, Any]()
        if self.status.frozen:
            found = {"certified gap": self.bounds.gap, "violation at most": self.bounds.violation_high}
        return found | ({"about left": left} if math.isfinite(left) and self.reviews else {})

    def certificate(self) -> Certificate:
        """Return the certificate, or the current bounds."""
        return certificate(self)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all tables by name."""
        bounds, lines = np.array(astuple(self.bounds)), [list(line.values()) for line in self.issued]
        return super().arrays() | {
            "status": np.array(astuple(self.status), np.int64), "bounds": bounds,
            "passed": np.array(lines).reshape(-1, len(bounds) + 4), "proved": self._curve(),
        }  # fmt: skip

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        super().load(arrays)
        own = {name: alike(like, arrays[name], f"engine.{name}") for name, like in self.arrays().items()
               if name in ("status", "bounds")}  # fmt: skip
        self.status, self.bounds = Status(*own["status"].tolist()), Bounds(*own["bounds"].tolist())
        names = [*asdict(self.bounds), "epsilon", "episodes", "candidate", "attempt"]
        lines = arrays["passed"].reshape(-1, len(names)).tolist()
        self.issued = [dict(zip(names, line, strict=True)) for line in lines]
        self._lines = [tuple(line) for line in arrays["proved"].reshape(-1, 5).tolist()]

    def check(self, done: int) -> None:
        """Raise ValueError if what was loaded is out of range, or contradicts itself; set what follows from it."""
        super().check(done)
        t, status, dead_first, noises = self.tables, self.status, self.status.dead_first, self.facts.noises
        in_range = 0 <= status.kind <= CANDIDATE and (dead_first == OPEN or 0 <= dead_first < self.space.slots)
        in_range &= status.left != 0 or self.enough() is not None
        if not in_range or min(astuple(status)[:-1]) < 0 or status.episodes != done:
            raise ValueError("engine.status is out of range")
        owner = t.cell_distribution[: t.cells[0]]
        if noises and ((owner == NOISE) != (np.arange(len(owner)) < noises)).any():
            raise ValueError("engine.cell_distribution has a wrong number of noises")
        if 0 <= t.scale[TOP] < t.gap.max(initial=0.0):  # gaps become indices of a grid over [0, top]
            raise ValueError("engine.gap is out of range")
        self.sort_cells()
        t.samples[:] = 0
        np.add.at(t.samples, t.cell_distribution[: t.cells[0]], t.cell_count[: t.cells[0]])
        self.settle()
        if self._lines and status.frozen:
            self._judged = status.policies, self._lines[-1][3], self._lines[-1][4]
        self.stop_reason = self.enough()
