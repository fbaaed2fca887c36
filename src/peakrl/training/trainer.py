"""A run in progress: an algorithm, where its experience comes from, the changes of its policy and the history."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import LearnerError, PeakError, SettingsError, TargetError
from peakrl.gym.adapter import Lanes, ModelLane, SingleLane
from peakrl.learners.assumptions.contradictions import DeclarationCheck
from peakrl.learners.assumptions.knowledge import NOTHING, Knowledge
from peakrl.learners.assumptions.limits import Limits
from peakrl.learners.base import Algorithm, LearnerSettings, SamplingAlgorithm, Sizes, Task
from peakrl.learners.episode import Log
from peakrl.learners.space import Changes, GrowingSpace, ModelSpace
from peakrl.policy.mixture import AveragedPolicy
from peakrl.progress import Progress
from peakrl.sampling import seed_state
from peakrl.space import MOST_INDICES, StateSpace
from peakrl.tabular import TabularModel
from peakrl.training.fast_rollout import SingleSource
from peakrl.training.history import Experience, Recorder, current_figures
from peakrl.training.kernel_rollout import KernelSource
from peakrl.training.learn import LearningRun
from peakrl.training.rollout import LaneSource
from peakrl.training.watch import RunView, Watch
from peakrl.types import Floats, Ints, Longs

if TYPE_CHECKING:
    from peakrl.training.checkpointing import Saver

#: How long a piece of work between two looks at the clock should take, in seconds.
SECONDS_A_PIECE = 0.5
#: A progress line tells the current value of a run without history on models of up to this many nodes.
SHOWN_NODES = 200_000


class ActiveRun:
    """Drives an algorithm on a target and keeps what comes out; everything that a checkpoint holds is here."""

    def __init__(
        self,
        target: TabularModel | Lanes,
        settings: LearnerSettings,
        *,
        planned: int,
        seed: int,
        every: int,
        average: bool = True,
        knowledge: Knowledge = NOTHING,
        sampled: bool = False,
    ) -> None:
        self.target, self.settings, self.knowledge = target, settings, knowledge
        self.planned, self.seed, self.average = planned, seed, average
        #: Does the history of a model hold what episodes earned in place of what policies are worth?
        self.sampled = sampled
        self.generator = seed_state(np.uint64(seed))
        self.done = 0
        #: Violating episodes, and the last of them.
        self.counters: Longs = np.zeros(2, np.int64)
        self.changes: list[Changes] = []
        #: None until the first step has told how many constraints there are, where nobody has said so before.
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
        self.knowledge.check_model(model)
        algorithm = self.algorithm = self._make()
        if every and self.sampled:
            self.recorder = Experience(every)
        elif every:
            self.recorder = Recorder(model, every, randomised=algorithm.randomised)
        exact = self.recorder.curve if isinstance(self.recorder, Recorder) else None
        self.logs = self.average or exact is not None
        if self.logs and model.num_nodes > MOST_INDICES:
            raise SettingsError(
                f"{model.name!r} has {model.num_nodes:,} states by step, and a change list numbers {MOST_INDICES:,}: "
                'learn with average=False and history="none"'
            )
        algorithm.grow(0, 0, Log(*(np.empty(0, np.int32) for _ in range(3))), 0)
        limits = Limits.declared(self.knowledge, self.space)
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
            self.source = LaneSource(lane, self.space, self.knowledge, lambda: algorithm)

    def _note_first(self, algorithm: Algorithm) -> None:
        """Note where the first policy is not the first row of every state, since that is declared to fail."""
        before, now = self.space.first_rows(), algorithm.followed()
        nodes = np.flatnonzero((before >= 0) & (before != now)).astype(np.int32)
        first: Changes = np.ones(len(nodes), np.int32), nodes, now[nodes]
        if self.average:
            self.changes.append(first)
        if isinstance(self.recorder, Recorder) and self.recorder.curve is not None:
            self.recorder.curve.pending = list(first)

    def _begin_on_lanes(self, lanes: Lanes, every: int) -> None:
        rules, settings = lanes.rules, self.settings
        if self.knowledge.states is not None:
            rules.states = self.knowledge.states
        settings.check_environment(rules, self.knowledge)
        # A declaration is the user's word that nothing depends on the step.
        stationary = rules.stationary or self.knowledge.stationary is True
        self.space = GrowingSpace(rules, by_step=settings.by_step or not stationary)
        self.greedy = np.zeros((0, rules.horizon if self.space.shared else 1), np.int64)
        self.recorder = Experience(every) if every else None
        self.logs = self.average
        limits = Limits.declared(self.knowledge, self.space)
        if limits is not None and limits.safe is not None and rules.constraints.count is None:
            rules.constraints.count = limits.safe.model.num_constraints
        source = SingleSource if isinstance(lanes, SingleLane) else LaneSource
        self.source = source(lanes, self.space, self.knowledge, self._make, limits)

    def begin_again(self) -> None:
        """Make the algorithm for the states that a file holds."""
        assert isinstance(self.source, LaneSource)
        self.source.begin_again(self)

    def _make(self) -> Algorithm:
        """Make the algorithm."""
        target = self.target
        if isinstance(target, TabularModel):
            sizes, names, model = Sizes.of_model(target), target.constraint_names, target
        else:
            sizes, names, model = Sizes.of_environment(target.rules), target.rules.constraint_names, None
        names = names or tuple(f"constraint {number}" for number in range(sizes.constraints))
        return self.settings.make(Task(self.space, sizes, self.planned, self.knowledge, model, self.seed, names))

    # Running -------------------------------------------------------------------------------------------------

    @property
    def pieces(self) -> tuple[int, int]:
        """Episodes between two looks at the clock: at first, and at most."""
        return self.source.pieces

    @property
    def recorded(self) -> bool:
        """Does anybody ask what episodes earned?"""
        return self.recorder is not None

    def advance(self, episodes: int) -> None:
        """Run some more episodes."""
        try:
            self.source.play(self, episodes)
            if self.stopped is not None:  # how far from the end of a piece is up to the clock: note it anew
                self.greedy = self.learned().greedy()
        except (TargetError, LearnerError) as error:
            if self.algorithm is not None and self.done:
                error.run = self.result()
            raise

    def take(self, count: int, experience: Floats, log: Log, changes: int) -> None:
        """Take in the next `count` episodes: reward and violation of each, and what they changed."""
        if self.recorder is not None:
            self.recorder.add(self.done, count, experience, log, changes)
        if self.average and changes:
            episode, node, row = (column[:changes].copy() for column in log)
            self.changes.append((episode, node, row))
        self.done += count

    @property
    def stopped(self) -> str | None:
        """Why the algorithm wants no more episodes."""
        return None if self.algorithm is None else self.algorithm.stopped

    # What came out -------------------------------------------------------------------------------------------

    @property
    def model(self) -> StateSpace:
        """What is learned on: the model, or the states of an environment that were met so far."""
        self.learned()
        return self.space.states()

    def learned(self) -> Algorithm:
        """Return the algorithm, which must have begun."""
        if self.algorithm is None:
            raise PeakError("nothing has been learned yet: not one step was taken")
        return self.algorithm

    @property
    def rows(self) -> Ints:
        """[node]: pi^k of the last episode that was run."""
        return self.space.nodes_of(self.greedy) if self.done else self.space.first_rows()

    def change_list(self) -> Changes:
        """All changes so far, joined: episode, node, row, in the numbers of the tables."""
        if len(self.changes) != 1:
            empty = (np.empty(0, np.int32),) * 3
            episode, node, row = (np.concatenate(part) for part in zip(empty, *self.changes, strict=True))
            self.changes = [(episode, node, row)]
        for column in self.changes[0]:
            column.flags.writeable = False  # nobody writes to it again, so the averaged policy need not copy it
        return self.changes[0]

    def fields(self) -> dict[str, Any]:
        """What a progress line says of the run."""
        fields: dict[str, Any] = {} if self.algorithm is None else self.algorithm.fields()
        fields |= {"violating": int(self.counters[0])}
        if self.recorder is not None:
            return fields | self.recorder.latest()
        if isinstance(self.target, TabularModel) and self.target.num_nodes <= SHOWN_NODES:
            return fields | current_figures(self.target, self.rows)
        return fields

    def result(self, *, watched: bool = False, over: bool = False) -> LearningRun:
        """What has been learned so far; `watched`: a copy that stays as it is while learning goes on.

        `over`: nothing goes on with this run, so that its policies may be made when they are asked for.
        """
        algorithm, states = self.learned(), self.model
        if not watched:
            self.source.rest()
            if isinstance(self.recorder, Recorder):
                self.recorder.rest()
        averaged = None
        if self.average:
            averaged = AveragedPolicy(
                states, self.done, self.space.first_rows(), *self.space.ordered(self.change_list())
            )
        return LearningRun.of(self, algorithm, states, averaged, watched=watched, over=over)


def drive(
    active: ActiveRun,
    episodes: int,
    *,
    saver: Saver | None = None,
    progress: bool = False,
    watch: Watch | None = None,
) -> LearningRun:
    """Run until `episodes` are done, with progress and checkpoints, and return what was learned."""
    from peakrl.training.checkpointing import Interrupts

    moment = RunView(active, episodes)
    bar = Progress("Learning", total=episodes, unit="episodes", begin=active.done, enabled=progress)
    keeper = saver if saver is not None else Interrupts()
    with bar, keeper:
        if watch is not None:
            watch(moment)
        for done in pieces(active, episodes, keeper.every):
            if bar.visible:
                bar.reach(done, **active.fields())
            if watch is not None:
                watch(moment)  # before a save: what was watched is never behind a checkpoint
            keeper.look(active, last=done == episodes or active.stopped is not None)
    return active.result()


def pieces(active: ActiveRun, episodes: int, every: int | None = None) -> Iterator[int]:
    """Advance to `episodes` piece by piece, telling after each how far it is; multiples of `every` end a piece."""
    size, largest = active.pieces
    while active.done < episodes and active.stopped is None:
        goal = episodes if every is None else min(episodes, (active.done // every + 1) * every)
        count, begun = min(size, goal - active.done), time.perf_counter()
        active.advance(count)
        if count == size:
            took = max(time.perf_counter() - begun, 1e-9)
            size = min(max(1, int(size * min(4.0, max(0.25, SECONDS_A_PIECE / took)))), largest)
        yield active.done
