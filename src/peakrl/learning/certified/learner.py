"""The certified learner: its settings, and its life on a target (`learning.algorithm`).

What it does when: `learning.certified.rounds`. What it computes: `kernels.certified`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.errors import SettingsError
from peakrl.kernels.arrays import Floats, Longs
from peakrl.kernels.certified.episodes import play_episodes, take_episode
from peakrl.kernels.certified.tables import OPEN, VIOLATES
from peakrl.kernels.learning import Log
from peakrl.kernels.sampling import Words
from peakrl.learning.algorithm import Episode, SamplingAlgorithm, Task, compiled
from peakrl.learning.certified.proofs import DEAD_FIRST, LEFT, PASSED
from peakrl.learning.certified.setup import certify_model, declared_on_model
from peakrl.learning.proofs import Memory, Witness
from peakrl.learning.settings import LearnerSettings
from peakrl.policy.export import DEAD_END, UNKNOWN, VIOLATED

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.learning.knowledge import Knowledge
    from peakrl.targets.adapters import Rules


class Certified(LearnerSettings):
    """Settings of the certified learner: what to certify, and how surely."""

    presets = ("certified",)

    #: The gap to the best safe policy, and the expected violation, that are asked for; several are passed in turn.
    epsilon: tuple[float, ...]
    #: Probability, at most, that a certificate is issued and false.
    failure_probability: float = Field(default=0.05, gt=0, lt=1)
    #: Is epsilon a share of the value of the best safe policy?
    relative: bool = False

    @field_validator("epsilon", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return tuple(given) if isinstance(given, list | tuple) else (given,)

    @field_validator("epsilon")
    @classmethod
    def _ordered(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if not given or not all(0 <= one < float("inf") for one in given):
            raise ValueError("it must be a number of at least 0, or several of them")
        return tuple(sorted(set(given), reverse=True))

    def make(self, task: Task) -> CertifiedLearner:
        """Return the algorithm for a target."""
        return CertifiedLearner(task, self)

    def check_environment(self, rules: Rules, knowledge: Knowledge) -> None:
        """Raise: an environment does not tell its states in advance, which the bounds rest on."""
        raise SettingsError(
            "the certified learner works on models and Problems; for an environment learn with another learner, and "
            "certify what comes out: peakrl.certify(env, policy, epsilon=...)"
        )


class CertifiedLearner(SamplingAlgorithm):
    """The certified learner on a space."""

    def __init__(self, task: Task, settings: Certified) -> None:
        super().__init__(task)
        self.settings, self.model = settings, compiled(task)
        self.declared = declared_on_model(self.model, task.knowledge)
        if min(settings.epsilon) == 0 and not self.declared.deterministic:
            raise SettingsError(
                "epsilon is 0, which only Knowledge(deterministic=True) can give: where outcomes are random, no number "
                "of episodes proves a policy to be the best"
            )
        self.rounds = certify_model(
            self.model, settings.epsilon, settings.failure_probability, settings.relative, self.declared
        )
        payoffs = self.model.payoffs
        self.payoff = np.stack([payoffs.reward, np.maximum(-payoffs.constraints, 0.0).sum(axis=1)], axis=1)
        self.shares_steps = self.space.shared

    # Learning ------------------------------------------------------------------------------------------------

    @property
    def until_review(self) -> int:
        """Episodes until its bounds may change next."""
        return max(1, int(self.rounds.status[LEFT]))

    @property
    def log_room(self) -> int:
        """A new block may change every node; an episode those of its path and, by a violation, of its groups."""
        largest = int(np.diff(self.rounds.places.group_start).max())
        nodes = len(self.rounds.candidate)
        return nodes + self.space.horizon * (1 + largest * self.columns)

    def row(self, step: int, slot: int) -> int:
        """Return the row that is followed."""
        return int(self.rounds.rows[step * self.rounds.places.node_stride + slot])

    def run(
        self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs
    ) -> tuple[int, int]:
        """Run some episodes of the model, fewer where the log fills up or it has seen enough."""
        model, r, ran, changes = self.model, self.rounds, 0, 0
        while ran < episodes and self.stopped is None:
            rest = Log(*(column[changes:] for column in log))
            count, more = play_episodes(
                model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
                r.places, r.terms, r.tables, r.scratch, r.rows, bool(r.live), r.gauge, r.evidence,
                generator, done + ran, min(episodes - ran, int(r.status[LEFT])), rest, self.log_room,
                experience[ran:], counters,
            )  # fmt: skip
            ran, changes = ran + count, changes + more
            if count == 0:
                break
            changes = self._go_on(count, done + ran + 1, log, changes)
        return ran, changes

    def _go_on(self, count: int, episode: int, log: Log, changes: int) -> int:
        """Note that episodes are over; a new block is logged from `episode` on."""
        r = self.rounds
        over = count >= r.status[LEFT]
        before = r.rows.copy() if over and len(log.node) else None
        r.played(count)
        self.stopped = r.stopped
        if before is None:
            return changes
        nodes = np.flatnonzero(before != r.rows)
        end = changes + len(nodes)
        log.episode[changes:end], log.node[changes:end], log.row[changes:end] = episode, nodes, r.rows[nodes]
        return end

    def learn(self, played: Episode, episode: int, log: Log, changes: int) -> int:
        """Learn from an episode, as `run` does."""
        r, length = self.rounds, played.length
        path = r.scratch
        path.slot[:length], path.row[:length] = played.slot[:length], played.row[:length]
        path.following[:length] = played.following[:length]
        path.earned[:length], path.violated[:length] = played.reward[:length], played.violation[:length]
        changes = take_episode(
            r.places, r.terms, r.tables, path, length, bool(r.live), r.gauge, r.evidence, episode, log, changes
        )
        return self._go_on(1, episode + 1, log, changes)

    # What came out -------------------------------------------------------------------------------------------

    def _by_slot(self, nodes: NDArray[Any]) -> NDArray[np.int64]:
        """[slot, column] of an array by node."""
        if not self.space.shared:
            return nodes[:, None].astype(np.int64)
        return nodes.reshape(-1, self.space.slots)[: self.space.horizon].T.astype(np.int64)

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: what the next episode follows."""
        return np.maximum(self._by_slot(self.rounds.rows), self.space.layout.row_start[:-1, None])

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the candidate, which a certificate is about."""
        return np.maximum(self._by_slot(self.rounds.candidate), self.space.layout.row_start[:-1, None])

    def values(self) -> Floats:
        """[entry]: upper values; minus infinity where an action is ruled out."""
        tables = self.rounds.tables
        return np.where(tables.witness == OPEN, tables.upper, -np.inf)

    def known(self) -> NDArray[np.int8]:
        """[entry]: what has been seen to violate, or to lead where only violations are left."""
        witness = self.rounds.tables.witness
        return np.where(witness == OPEN, UNKNOWN, np.where(witness == VIOLATES, VIOLATED, DEAD_END)).astype(np.int8)

    def memory(self) -> Memory:
        """What has been seen to fail, and how."""
        places, tables = self.rounds.places, self.rounds.tables
        witness = tables.witness.reshape(self.columns, -1).T
        return Memory(np.ascontiguousarray(witness), tables.harm[places.group_of_row])

    def feasible(self) -> bool | None:
        """False when a first state has been seen to leave no way out."""
        return False if self.rounds.status[DEAD_FIRST] != OPEN else None

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        if self.feasible() is None:
            return []
        r, lines = self.rounds, []
        queue = [(0, int(r.status[DEAD_FIRST]))]
        seen = set(queue)
        for step, slot in queue:
            for row in range(int(r.places.row_start[slot]), int(r.places.row_start[slot + 1])):
                witness = int(r.tables.witness[step * r.places.entry_stride + row])
                violates = witness == VIOLATES
                harm = float(r.tables.harm[r.places.group_of_row[row]])
                lines.append(
                    Witness(
                        step, self.space.state_of_slot(slot), self.space.action_of_row(row),
                        harm if violates else None, None if violates else self.space.state_of_slot(witness),
                    )
                )  # fmt: skip
                if not violates and (step + 1, witness) not in seen:
                    seen.add((step + 1, witness))
                    queue.append((step + 1, witness))
        return lines

    def certificate(self) -> Certificate:
        """Return what is certified; before anything is, the bounds as they stand."""
        from peakrl.learning.certified.evidence import certificate

        return certificate(self)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written."""
        r = self.rounds
        tables = r.tables._asdict()
        evidence = {f"evidence_{name}": array for name, array in r.evidence._asdict().items()}
        own = {
            "status": r.status, "bounds": r.bounds, "candidate": r.candidate, "followed": r.followed,
            "challenger": r.challenger, "passed": r.passed,
        }  # fmt: skip
        return tables | evidence | own | r.frozen_counts._asdict()

    def check(self, done: int) -> None:
        """Raise where arrays from a file hold what cannot be."""
        from peakrl.learning.certified.checks import check_restored

        check_restored(self, done)
        r = self.rounds
        if r.status[DEAD_FIRST] != OPEN:
            self.stopped = r.stopped = "infeasible"
        elif r.status[PASSED] == len(r.goal.epsilons):
            self.stopped = r.stopped = "certified"
