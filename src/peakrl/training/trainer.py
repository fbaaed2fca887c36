"""The training loop: a `Trainer` drives an algorithm on a target, a `LearningRun` is what it returns.

On a model the history is exact: pi^k is evaluated for every episode k at which it changed, so the averages of pi-bar^k
are over all episodes, not over samples. Without randomness the return of an episode is the value of its policy. For
environments the history holds the returns and violations of the episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.certificates.certificate import Certificate
from peakrl.errors import LearnerError, PeakError, SettingsError, TargetError
from peakrl.evaluation.curve import policy_value
from peakrl.gym.adapter import Lanes, ModelLane, SingleLane
from peakrl.learners.assumptions.assumptions import NOTHING, Assumptions
from peakrl.learners.assumptions.contradictions import DeclarationCheck
from peakrl.learners.assumptions.limits import Limits
from peakrl.learners.base import Algorithm, LearnerSettings, ProofHistory, Results, SamplingAlgorithm, Sizes, Task
from peakrl.learners.coverage import Coverage, find_coverage
from peakrl.learners.episode import Changes, Log
from peakrl.learners.infeasibility import Memory, Witness
from peakrl.learners.space import GrowingSpace, ModelSpace
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.progress import Progress
from peakrl.sampling import seed_state
from peakrl.space import MOST_INDICES, StateSpace
from peakrl.tabular import TabularModel
from peakrl.training.history import Experience, History, Recorder
from peakrl.training.rollout import KernelSource, LaneSource, SingleSource
from peakrl.training.run_file import Interrupts, Saver, writer
from peakrl.types import Floats, Ints, Longs

#: Target duration of a piece of work between two looks at the clock, in seconds.
SECONDS_A_PIECE = 0.5
#: Without a history, the progress line shows the value of the current policy on models of up to this many nodes.
SHOWN_NODES = 200_000

Table = Policy | StochasticPolicy
FEASIBLE = {True: "feasible", False: "proved infeasible", None: "feasibility not proved"}


@dataclass(frozen=True, eq=False, repr=False)
class LearningRun:
    """Result of `learn`: the learned policy, the history and what the learner knows."""

    #: The model, or the states of an environment that were visited.
    model: StateSpace
    #: Settings of the learner.
    settings: LearnerSettings
    #: What was declared about the target.
    assumptions: Assumptions
    #: K: number of episodes.
    episodes: int
    #: Seed of the random numbers.
    seed: int
    #: Learning curve.
    history: History
    #: Number of episodes that violated a constraint.
    violations: int
    #: The last episode that violated a constraint (1-based), or None.
    last_violation_episode: int | None
    #: True or False if the learner proved it. None: unknown; the absence of violations proves nothing.
    feasible: bool | None
    #: The observations that `feasible = False` rests on, starting from a first state.
    infeasibility_proof: list[Witness]
    #: Why the run ended before the planned episodes, or None.
    stop_reason: str | None
    #: Bounds of a certified learner, review by review; None for other learners.
    proof_history: ProofHistory | None
    #: The policies, or functions that compute them on first use.
    _policy: Table | Callable[[], Table]
    _followed: Table | Callable[[], Table]
    _averaged: AveragedPolicy | None
    _learned: Algorithm | Results
    _trainer: Trainer | None = None

    @cached_property
    def policy(self) -> Table:
        """The learner's best decisions after the last episode, without exploration."""
        return self._policy() if callable(self._policy) else self._policy

    @cached_property
    def behavior_policy(self) -> Table:
        """pi^K, the policy of the last episode."""
        return self._followed() if callable(self._followed) else self._followed

    @property
    def averaged_policy(self) -> AveragedPolicy:
        """pi-bar of Theorem 1: the uniform mixture of pi^1 .. pi^K."""
        if self._averaged is None:
            raise PeakError("this run has no list of policy changes: learn(..., average=True) keeps one")
        return self._averaged

    @cached_property
    def q(self) -> Floats:
        """[entry]: the learner's estimate of each action's value (the Q-table of Q-learners)."""
        return self._learned.values().copy()

    @cached_property
    def certificate(self) -> Certificate | None:
        """What a certified learner proved about `policy`, or its current bounds; None for other learners."""
        return self._learned.certificate()

    @cached_property
    def issued(self) -> list[dict[str, float]]:
        """What a certified learner certified, one entry for each epsilon that it reached, in their order.

        Each entry holds `epsilon`, `episodes`, `gap`, `violation_high` and the other bounds at that time. The list is
        empty for other learners and for a run that is still learning.
        """
        return list(getattr(self._learned, "issued", ()))

    @property
    def proof_episode(self) -> int | None:
        """The episode that completed the proof of infeasibility; None without such a proof."""
        return getattr(self._learned, "proved_in", None)

    @property
    def stored_numbers(self) -> int | None:
        """Size of the learner's tables; None for a run that is still learning."""
        return None if isinstance(self._learned, Results) else sum(a.size for a in self._learned.arrays().values())

    @cached_property
    def coverage(self) -> Coverage | None:
        """States that `policy` may reach in which its action was never tried, and their probability.

        None for learners that do not count visits, for randomised policies and for a run that is still learning.
        """
        model = self.model if isinstance(self.model, TabularModel) else None
        if isinstance(self._learned, Results) or not isinstance(self.policy, Policy):
            return None
        return find_coverage(self._learned, self.policy.rows, model)

    @cached_property
    def visits(self) -> Longs | None:
        """[row]: how often the learner took each action, at any step; None for learners that do not count."""
        return self._learned.visits()

    @cached_property
    def infeasible_limits(self) -> str | None:
        """Why the limits are infeasible under the counts observed on an environment, or None.

        None also for learners that count nothing. On a model `learn` raises an error for such limits.
        """
        return self._learned.infeasible_limits()

    @property
    def multipliers(self) -> Floats | None:
        """[cost]: Lagrange multipliers of the limited violations; None for learners without such limits."""
        return self._learned.multipliers()

    @property
    def multiplier_curve(self) -> Floats | None:
        """[point, 1 + cost]: episode, and the multipliers then; None for learners without such a curve."""
        return self._learned.multiplier_curve()

    @property
    def averaged_multipliers(self) -> Floats | None:
        """[cost]: mean of `multiplier_curve`, the quantity that bounds on primal-dual learners refer to."""
        curve = self.multiplier_curve
        return None if curve is None or not len(curve) else curve[:, 1:].mean(axis=0)

    def memory(self) -> Memory | None:
        """Return the violations that the learner recorded; None for learners that record none."""
        return self._learned.memory()

    def save(self, path: str | Path) -> None:
        """Write the run, its model included, to one file for `peakrl.load` and `peakrl.resume`."""
        if self._trainer is None:
            raise PeakError("this run cannot be saved: it is a view of a run that is still learning")
        writer(self._trainer)(Path(path), self._trainer)

    def __repr__(self) -> str:
        last = f", last in episode {self.last_violation_episode:,}" if self.last_violation_episode else ""
        coverage = "" if self.coverage is None else f", policy {self.coverage}"
        limits = "" if self.infeasible_limits is None else f"; {self.infeasible_limits}"
        return (
            f"<LearningRun of {self.model.name!r}: {self.episodes:,} episodes, seed {self.seed}, "
            f"{self.violations:,} violating{last}, {FEASIBLE[self.feasible]}{coverage}{limits}>"
        )


def table_of(algorithm: Algorithm, states: StateSpace, rows: Callable[[], Ints], learned: Algorithm | Results) -> Table:
    """Return a policy of an algorithm: its action probabilities if it is randomised, else these rows [node]."""
    chances = algorithm.chances()
    return Policy(states, rows(), learned) if chances is None else simplest_policy(states, chances)


class Trainer:
    """Drives an algorithm on a target; holds everything that a checkpoint stores."""

    def __init__(
        self,
        target: TabularModel | Lanes,
        settings: LearnerSettings,
        *,
        planned: int,
        seed: int,
        every: int,
        average: bool = True,
        assumptions: Assumptions = NOTHING,
        sampled: bool = False,
    ) -> None:
        self.target, self.settings, self.assumptions = target, settings, assumptions
        self.planned, self.seed, self.average = planned, seed, average
        #: On a model: does the history hold returns of episodes instead of exact values?
        self.sampled = sampled
        self.generator = seed_state(np.uint64(seed))
        self.done = 0
        #: Violating episodes, and the last of them.
        self.counters: Longs = np.zeros(2, np.int64)
        self.changes: list[Changes] = []
        #: None until the number of constraints is known, at the latest after the first step.
        self.algorithm: Algorithm | None = None
        self.recorder: Recorder | Experience | None = None
        self.space: ModelSpace | GrowingSpace
        #: [slot, column]: pi^k of the episode that was started last.
        self.greedy: NDArray[np.int64]
        self.source: KernelSource | LaneSource
        if isinstance(target, TabularModel):
            self._begin_on_model(target, every)
        else:
            self._begin_on_lanes(target, every)

    def _begin_on_model(self, model: TabularModel, every: int) -> None:
        self.space = ModelSpace(model)
        self.assumptions.check_model(model)
        algorithm = self.algorithm = self._make()
        if every and self.sampled:
            self.recorder = Experience(every)
        elif every:
            self.recorder = Recorder(model, every, randomised=algorithm.randomised)
        exact = self.recorder.curve if isinstance(self.recorder, Recorder) else None
        self.logs = self.average or exact is not None
        if self.logs and model.num_nodes > MOST_INDICES:
            raise SettingsError(
                f"{model.name!r} has {model.num_nodes:,} states by step, more than the {MOST_INDICES:,} that a list of "
                'policy changes supports: learn with average=False and history="none"'
            )
        algorithm.grow(0, Log.of_size(0))
        limits = Limits.declared(self.assumptions, self.space)
        if limits is not None:
            DeclarationCheck(limits).check_model(model)
            algorithm.forbid(0, *limits.forbidden(0))
            if isinstance(algorithm, SamplingAlgorithm):
                self._note_first(algorithm)
        self.greedy = algorithm.greedy()
        if isinstance(algorithm, SamplingAlgorithm):
            self.source = KernelSource(algorithm)
        else:
            lane = ModelLane(model, self.generator)
            self.source = LaneSource(lane, self.space, self.assumptions, lambda: algorithm)

    def _note_first(self, algorithm: Algorithm) -> None:
        """Log the states in which the first policy does not take the first row, which is declared to fail."""
        before, now = self.space.first_rows(), algorithm.followed()
        nodes = np.flatnonzero((before >= 0) & (before != now)).astype(np.int32)
        first: Changes = np.ones(len(nodes), np.int32), nodes, now[nodes]
        if self.average:
            self.changes.append(first)
        if isinstance(self.recorder, Recorder) and self.recorder.curve is not None:
            self.recorder.curve.pending = list(first)

    def _begin_on_lanes(self, lanes: Lanes, every: int) -> None:
        rules, settings = lanes.rules, self.settings
        if self.assumptions.states is not None:
            rules.states = self.assumptions.states
        settings.check_environment(rules, self.assumptions)
        stationary = rules.stationary or self.assumptions.stationary is True
        self.space = GrowingSpace(rules, by_step=settings.by_step or not stationary)
        self.greedy = np.zeros((0, rules.horizon if self.space.shared else 1), np.int64)
        self.recorder = Experience(every) if every else None
        self.logs = self.average
        limits = Limits.declared(self.assumptions, self.space)
        if limits is not None and limits.safe is not None and rules.constraints.count is None:
            rules.constraints.count = limits.safe.model.num_constraints
        source = SingleSource if isinstance(lanes, SingleLane) else LaneSource
        self.source = source(lanes, self.space, self.assumptions, self._make, limits)

    def begin_again(self) -> None:
        """Create the algorithm for the states of a file."""
        assert isinstance(self.source, LaneSource)
        self.source.begin_again(self)

    def _make(self) -> Algorithm:
        """Create the algorithm."""
        target = self.target
        if isinstance(target, TabularModel):
            sizes, names, model = Sizes.of_model(target), target.constraint_names, target
        else:
            sizes, names, model = Sizes.of_environment(target.rules), target.rules.constraint_names, None
        names = names or tuple(f"constraint {number}" for number in range(sizes.constraints))
        return self.settings.make(Task(self.space, sizes, self.planned, self.assumptions, model, self.seed, names))

    # Running -------------------------------------------------------------------------------------------------

    @property
    def recorded(self) -> bool:
        """Are the returns of episodes recorded?"""
        return self.recorder is not None

    def advance(self, episodes: int) -> None:
        """Run some more episodes."""
        try:
            self.source.play(self, episodes)
            if self.stop_reason is not None:  # how far from the end of a piece depends on the clock: read it again
                self.greedy = self.learned().greedy()
        except (TargetError, LearnerError) as error:
            if self.algorithm is not None and self.done:
                error.run = self.result()
            raise

    def take(self, count: int, experience: Floats, changes: Changes) -> None:
        """Record the next `count` episodes: reward and violation of each, and the changes of the policy."""
        if self.recorder is not None:
            self.recorder.add(self.done, count, experience, changes)
        if self.average and len(changes[0]):
            episode, node, row = (column.copy() for column in changes)
            self.changes.append((episode, node, row))
        self.done += count

    @property
    def stop_reason(self) -> str | None:
        """Why the algorithm stopped, or None."""
        return None if self.algorithm is None else self.algorithm.stop_reason

    # Results -------------------------------------------------------------------------------------------------

    @property
    def model(self) -> StateSpace:
        """The model, or the states of an environment that were visited so far."""
        self.learned()
        return self.space.states()

    def learned(self) -> Algorithm:
        """Return the algorithm, which must have begun."""
        if self.algorithm is None:
            raise PeakError("nothing has been learned yet: no step was taken")
        return self.algorithm

    @property
    def rows(self) -> Ints:
        """[node]: pi^k of the last episode."""
        return self.space.nodes_of(self.greedy) if self.done else self.space.first_rows()

    def change_list(self) -> Changes:
        """All changes so far, joined: episode, node, row, in the indices of the tables."""
        if len(self.changes) != 1:
            empty = (np.empty(0, np.int32),) * 3
            episode, node, row = (np.concatenate(part) for part in zip(empty, *self.changes, strict=True))
            self.changes = [(episode, node, row)]
        for column in self.changes[0]:
            column.flags.writeable = False  # so that the averaged policy need not copy it
        return self.changes[0]

    def fields(self) -> dict[str, Any]:
        """Return the fields of the progress line."""
        fields: dict[str, Any] = {} if self.algorithm is None else self.algorithm.fields()
        fields |= {"violating": int(self.counters[0])}
        if self.recorder is not None:
            return fields | self.recorder.latest()
        if isinstance(self.target, TabularModel) and self.target.num_nodes <= SHOWN_NODES:
            return fields | policy_value(self.target, self.rows)
        return fields

    def result(self, *, watched: bool = False, over: bool = False) -> LearningRun:
        """Return the run so far.

        `watched`: return a copy that does not change while learning continues. `over`: the run does not continue, so
        its policies may be computed on first use.
        """
        algorithm, states = self.learned(), self.model
        if not watched:
            self.source.rest()
            if isinstance(self.recorder, Recorder):
                self.recorder.rest()
        averaged = None
        if self.average:
            changes = self.space.ordered(self.change_list())
            averaged = AveragedPolicy(states, self.done, self.space.first_rows(), *changes)
        learned = Results(algorithm) if watched else algorithm

        def table(rows: Callable[[], Ints]) -> Table | Callable[[], Table]:
            make = partial(table_of, algorithm, states, rows, learned)
            return make if over and algorithm.checks_rows else make()

        violations, last = (int(count) for count in self.counters)
        return LearningRun(
            model=states,
            settings=self.settings,
            assumptions=self.assumptions,
            episodes=self.done,
            seed=self.seed,
            history=History.empty() if self.recorder is None else self.recorder.history(self.done),
            violations=violations,
            last_violation_episode=last or None,
            feasible=algorithm.feasible(),
            infeasibility_proof=algorithm.proof(),
            stop_reason=algorithm.stop_reason,
            proof_history=algorithm.proof_history(),
            _policy=table(algorithm.decided),
            _followed=table(partial(getattr, self, "rows")),  # a lambda could not be pickled by users
            _averaged=averaged,
            _learned=learned,
            _trainer=None if watched else self,
        )


@dataclass(frozen=True)
class RunView:
    """A run in progress, as passed to `learn(..., watch=...)`; valid until that function returns.

    Watching does not change a run: a view reads, and `run()` copies.
    """

    trainer: Trainer
    #: Number of episodes at the end of the run.
    goal: int

    @property
    def model(self) -> Any:
        """The model, or the states of an environment that were visited so far."""
        return self.trainer.model

    @property
    def settings(self) -> LearnerSettings:
        """Settings of the learner."""
        return self.trainer.settings

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.trainer.seed

    @property
    def episodes(self) -> int:
        """Episodes so far."""
        return self.trainer.done

    @property
    def violations(self) -> int:
        """Episodes so far that violated a constraint."""
        return int(self.trainer.counters[0])

    def history_after(self, episode: int, *, latest: bool = False) -> History:
        """Return the points recorded after an episode; with `latest` also the latest episode, recorded or not."""
        recorder = self.trainer.recorder
        if recorder is None or not self.episodes:
            return History.empty()
        return recorder.history_after(episode, self.episodes if latest else 0)

    def proof_history_after(self, episode: int) -> ProofHistory | None:
        """Return the bounds of a certified learner after an episode; None for other learners."""
        proved = None if self.trainer.algorithm is None else self.trainer.algorithm.proof_history()
        return None if proved is None else proved.after(episode)

    def run(self) -> LearningRun:
        """Return a copy of the run so far."""
        return self.trainer.result(watched=True)


#: Called at the beginning and after each piece of work, about twice a second; an exception ends the run.
Watch = Callable[[RunView], None]


def drive(
    trainer: Trainer,
    episodes: int,
    *,
    saver: Saver | None = None,
    progress: bool = False,
    watch: Watch | None = None,
) -> LearningRun:
    """Run until `episodes` are done, with progress and checkpoints, and return the run."""
    view = RunView(trainer, episodes)
    bar = Progress("Learning", total=episodes, unit="episodes", begin=trainer.done, enabled=progress)
    interrupts = saver if saver is not None else Interrupts()
    with bar, interrupts:
        if watch is not None:
            watch(view)
        for done in pieces(trainer, episodes, interrupts.every):
            if bar.visible:
                bar.reach(done, **trainer.fields())
            if watch is not None:
                watch(view)  # before saving, so that a checkpoint is never ahead of what was watched
            interrupts.look(trainer, last=done == episodes or trainer.stop_reason is not None)
    return trainer.result()


def pieces(trainer: Trainer, episodes: int, every: int | None = None) -> Iterator[int]:
    """Advance to `episodes` piece by piece and yield the episodes done; multiples of `every` end a piece."""
    size, largest = trainer.source.pieces
    while trainer.done < episodes and trainer.stop_reason is None:
        goal = episodes if every is None else min(episodes, (trainer.done // every + 1) * every)
        count, begun = min(size, goal - trainer.done), time.perf_counter()
        trainer.advance(count)
        if count == size:
            took = max(time.perf_counter() - begun, 1e-9)
            size = min(max(1, int(size * min(4.0, max(0.25, SECONDS_A_PIECE / took)))), largest)
        yield trainer.done
