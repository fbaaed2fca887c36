"""`learn`: run a learner on a model and keep what came out.

History is exact: pi^k is evaluated for every episode k (only where it changed), so that the averages of pi-bar^k are
over all episodes so far, not over samples. Where nothing is random, what an episode earns is its policy's value.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from peakrl.errors import PeakError, SettingsError
from peakrl.kernels.arrays import Floats, Ints, Longs
from peakrl.kernels.learning import Log
from peakrl.kernels.sampling import seed_state
from peakrl.learning.algorithm_one import AlgorithmOne
from peakrl.learning.history import History, Recorder, current_figures
from peakrl.learning.practical import Practical, Witness
from peakrl.learning.settings import LearnerSettings
from peakrl.learning.watching import Moment, Watch
from peakrl.model.explore import as_model, is_problem
from peakrl.model.space import MOST_INDICES, StateSpace
from peakrl.model.tabular import TabularModel
from peakrl.policy.tables import AveragedPolicy, Policy, first_rows
from peakrl.progress import Progress

if TYPE_CHECKING:
    from peakrl.learning.environment import EnvironmentLearner, InOrder
    from peakrl.learning.saver import Saver
    from peakrl.targets.constraints import ConstraintFunction

#: Steps between two looks at the clock (progress, checkpoints and interrupts): at first, at most; and how long they
#: should take, in seconds.
FIRST_STEPS, STEPS_A_CHUNK, SECONDS_A_CHUNK = 1 << 16, 1 << 20, 0.5
#: 32-bit counts and episode numbers.
MOST_EPISODES = 2**31 - 2
#: "auto" records this many points, and nothing where the exact curve might have to look at more outcomes than this.
AUTO_POINTS, AUTO_WORK = 1000, 1e10
#: A progress line tells the current value of a run without history on models of up to this many nodes.
SHOWN_NODES = 200_000

Record = Literal["auto", "none"] | int
FEASIBLE = {True: "feasible", False: "proved infeasible", None: "feasibility not proved"}


class Learner:
    """A run in progress: an engine with its tables, the generator, the change list and the history."""

    def __init__(
        self,
        model: TabularModel,
        settings: LearnerSettings,
        *,
        planned: int,
        seed: int,
        every: int,
        average: bool = True,
    ) -> None:
        self.model, self.settings, self.planned, self.seed, self.average = model, settings, planned, seed, average
        engine = Practical if settings.practical_learner else AlgorithmOne
        self.engine: AlgorithmOne | Practical = engine(model, settings, planned)
        self.generator = seed_state(np.uint64(seed))
        self.done = 0
        #: Violating episodes, and the last of them.
        self.counters: Longs = np.zeros(2, np.int64)
        #: pi^k of the last episode that was run.
        self.rows: Ints = first_rows(model)
        self.changes: list[tuple[Ints, ...]] = []
        self.recorder = Recorder(model, every) if every else None
        #: Episodes between two looks at the clock: at first, and at most.
        # A step of Algorithm 1 takes well under a microsecond on any model: its first piece need not be a small one.
        first = FIRST_STEPS if settings.practical_learner else STEPS_A_CHUNK
        self.pieces = max(1, first // model.horizon), max(1, STEPS_A_CHUNK // model.horizon)
        keep = average or (self.recorder is not None and not model.deterministic)
        if keep and model.num_nodes > MOST_INDICES:
            raise SettingsError(
                f"{model.name!r} has {model.num_nodes:,} states by step, and a change list numbers {MOST_INDICES:,}: "
                'learn with average=False and record="none"'
            )
        self._room = self.engine.log_room + STEPS_A_CHUNK if keep else 0
        self._log: Log | None = None

    def advance(self, episodes: int) -> None:
        """Run some more episodes."""
        while episodes > 0:
            count = min(episodes, self.pieces[1])
            # The last episode apart, so that its policy can be noted before it learns from it.
            if count > 1:
                self._run(count - 1)
            self.rows = self.engine.rows()
            self._run(1)
            episodes -= count

    def _run(self, count: int) -> None:
        if self._log is None:
            self._log = Log(*(np.empty(self._room, np.int32) for _ in range(3)))
        log = self._log
        while count > 0:
            experience = np.empty((count if self.recorder is not None else 0, 2))
            ran, changes = self.engine.run(self.generator, self.done, count, log, experience, self.counters)
            if self.recorder is not None:
                self.recorder.add(self.done, ran, experience[:ran], log, changes)
            if self.average and changes:
                self.changes.append(tuple(column[:changes].copy() for column in log))
            self.done += ran
            count -= ran

    def change_list(self) -> tuple[Ints, ...]:
        """All changes so far, joined: episode, node, row."""
        if len(self.changes) != 1:
            empty = (np.empty(0, np.int32),) * 3
            self.changes = [tuple(np.concatenate(part) for part in zip(empty, *self.changes, strict=True))]
        for column in self.changes[0]:
            column.flags.writeable = False  # nobody writes to it again, so the averaged policy need not copy it
        return self.changes[0]

    def result(self) -> LearningRun:
        """What has been learned so far."""
        self._log = None  # room that the result, which keeps this learner for `save`, has no use for
        averaged = None
        if self.average:
            averaged = AveragedPolicy(self.model, self.done, first_rows(self.model), *self.change_list())
            self.changes = [(averaged.change_episode, averaged.change_node, averaged.change_row)]
        violations, last = (int(c) for c in self.counters)
        return LearningRun(
            model=self.model,
            settings=self.settings,
            episodes=self.done,
            seed=self.seed,
            policy=Policy(self.model, self.rows, self.engine),
            history=self.recorder.history(self.done) if self.recorder is not None else History.empty(),
            violations=violations,
            last_violation_episode=last or None,
            feasible=self.engine.feasible(),
            _averaged=averaged,
            proof=self.engine.proof() if isinstance(self.engine, Practical) else [],
            _engine=self.engine,
            _learner=self,
        )


@dataclass(frozen=True, eq=False, repr=False)
class LearningRun:
    """What a run has learned, and how it went."""

    #: What was learned on; of an environment, the states that were met.
    model: StateSpace
    #: Of the learner.
    settings: LearnerSettings
    #: K: how many were played.
    episodes: int
    #: Of the random numbers.
    seed: int
    #: pi^K, the policy of the last episode.
    policy: Policy
    #: How it went, point by point.
    history: History
    #: How many episodes violated a constraint.
    violations: int
    #: The last that did (1-based); None if none did.
    last_violation_episode: int | None
    #: True or False where the learner has proved it; None: unknown, since not violating so far proves nothing.
    feasible: bool | None
    _averaged: AveragedPolicy | None
    #: What `feasible = False` rests on: every observation, from the first state on.
    proof: list[Witness]
    _engine: AlgorithmOne | Practical | InOrder
    _learner: Learner | EnvironmentLearner | None = None

    @property
    def averaged_policy(self) -> AveragedPolicy:
        """pi-bar of Theorem 1: the uniform mixture of pi^1 .. pi^K."""
        if self._averaged is None:
            raise PeakError("this run kept no change list: learn(..., average=True) keeps one")
        return self._averaged

    @cached_property
    def q(self) -> Floats:
        """[entry]: the Q-table of the modified problem, as learned."""
        return self._engine.values().copy()

    def save(self, path: str | Path) -> None:
        """Write the run, its model included, to one file for `peakrl.load_run` and `peakrl.resume`."""
        from peakrl.learning.checkpoint import writer

        if self._learner is None:
            raise PeakError("this run cannot be saved: what it learned with was not kept")
        writer(self._learner)(Path(path), self._learner)

    def __repr__(self) -> str:
        last = f", last in episode {self.last_violation_episode:,}" if self.last_violation_episode else ""
        return (
            f"<LearningRun of {self.model.name!r}: {self.episodes:,} episodes, seed {self.seed}, "
            f"{self.violations:,} violating{last}, {FEASIBLE[self.feasible]}>"
        )


def learn(
    target: Any,
    settings: LearnerSettings | None = None,
    *,
    episodes: int,
    seed: int = 0,
    horizon: int | None = None,
    record: Record = "auto",
    average: bool = True,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    progress: bool = False,
    watch: Watch | None = None,
    reward_range: tuple[float, float] | None = None,
    constraint_bounds: Sequence[float] | None = None,
    constraint: ConstraintFunction | None = None,
    states: int | None = None,
) -> LearningRun:
    """Learn a policy for `target` from experience and return the run.

    `target` is a model, a `Problem` (compiled here) or a Gymnasium environment; `settings` are
    `LearnerSettings.practical()` unless given.
    `record`: "auto" (about a thousand points; none on models so large that exact curves would take minutes), "none" (no
    history, full speed), or every how many episodes. `average=False` keeps no averaged policy, so that memory does not
    grow with the run. `checkpoint` names a file that the run is saved to every `checkpoint_every` episodes (None: about
    every half minute), when it is interrupted and at its end; if it holds the same run already, that one goes on from
    there. `watch` is called about twice a second with the run as it stands (`episodes`, `goal`, `violations`,
    `history_after(episode)`, `run()`); the result is the same with and without it.

    The rest is for environments that do not declare it themselves: `horizon`, the `reward_range` (lowest, highest) of a
    step, `constraint_bounds`, a `constraint` function of the transition (>= 0 is met; otherwise constraints are read
    from `info`), and, where a bonus is used, about how many `states` there are. See docs/gymnasium.md.
    """
    if settings is None:
        settings = LearnerSettings.practical()
    if not isinstance(settings, LearnerSettings):
        raise SettingsError(f"settings is {settings!r}; it must be settings such as LearnerSettings.practical()")
    check_count(episodes, "episodes")
    check_seed(seed)
    if is_problem(target):
        target = as_model(target, progress=progress)
    if not isinstance(target, TabularModel):
        from peakrl.learning.environment import learn_environment

        return learn_environment(
            target, settings, episodes=episodes, seed=seed, record=record, average=average, checkpoint=checkpoint,
            checkpoint_every=checkpoint_every, progress=progress, watch=watch, horizon=horizon,
            reward_range=reward_range, constraint_bounds=constraint_bounds, constraint=constraint, states=states,
        )  # fmt: skip
    if horizon is not None and horizon != target.horizon:
        raise SettingsError(f"horizon is {horizon}, but the model's is {target.horizon}; leave it out for a model")
    refuse_for_model(
        reward_range=reward_range, constraint_bounds=constraint_bounds, constraint=constraint, states=states
    )
    every = recording_interval(record, episodes, target)
    learner = Learner(target, settings, planned=episodes, seed=seed, every=every, average=average)
    if checkpoint is None:
        if checkpoint_every is not None:
            raise SettingsError("checkpoint_every says how often to save; checkpoint must say where")
        return drive(learner, episodes, progress=progress, watch=watch)
    from peakrl.learning.checkpoint import continued, writer
    from peakrl.learning.saver import Saver

    saver = Saver(checkpoint, checkpoint_every, writer(learner))
    return drive(continued(checkpoint, learner), episodes, saver=saver, progress=progress, watch=watch)


def drive(
    learner: Learner | EnvironmentLearner,
    episodes: int,
    *,
    saver: Saver | None = None,
    progress: bool = False,
    watch: Watch | None = None,
) -> LearningRun:
    """Run a learner until `episodes` are done, with progress and checkpoints, and return what it learned."""
    moment = Moment(learner, episodes)
    bar = Progress("Learning", total=episodes, unit="episodes", begin=learner.done, enabled=progress)
    with bar, saver or nullcontext():
        if watch is not None:
            watch(moment)
        for done in steps(learner, episodes, saver.every if saver else None):
            if bar.visible:
                bar.reach(done, **learner_fields(learner))
            if watch is not None:
                watch(moment)  # before a save: what was watched is never behind a checkpoint
            if saver:
                saver.look(learner, last=done == episodes)
    return learner.result()


def steps(learner: Learner | EnvironmentLearner, episodes: int, every: int | None = None) -> Iterator[int]:
    """Advance to `episodes` in pieces, telling after each how far it is; multiples of `every` end a piece."""
    size, largest = learner.pieces
    while learner.done < episodes:
        goal = episodes if every is None else min(episodes, (learner.done // every + 1) * every)
        count, begun = min(size, goal - learner.done), time.perf_counter()
        learner.advance(count)
        if count == size:
            took = max(time.perf_counter() - begun, 1e-9)
            size = min(max(1, int(size * min(4.0, max(0.25, SECONDS_A_CHUNK / took)))), largest)
        yield learner.done


def learner_fields(learner: Learner | EnvironmentLearner) -> dict[str, Any]:
    """What a progress line says of a run."""
    if not isinstance(learner, Learner):
        return learner.fields()
    fields: dict[str, Any] = {"violating": int(learner.counters[0])}
    if learner.recorder is not None:
        fields |= learner.recorder.latest()
    elif learner.model.num_nodes <= SHOWN_NODES:
        fields |= current_figures(learner.model, learner.rows)
    return fields


def refuse_for_model(**arguments: Any) -> None:
    """Raise where something is given that only an environment needs."""
    for name, value in arguments.items():
        if value is not None:
            raise SettingsError(f"{name} is given, but a model has it already; leave it out for a model")


def check_count(value: Any, what: str, most: int = MOST_EPISODES) -> None:
    """Raise unless `value` is a whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise SettingsError(f"{what} is {value!r}; it must be a whole number from 1 to {most:,}")


def check_seed(value: Any) -> None:
    """Raise unless `value` can seed the generator."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**64:
        raise SettingsError(f"seed is {value!r}; it must be a whole number from 0 to 2^64 - 1")


def recording_interval(record: Record, episodes: int, model: TabularModel) -> int:
    """Return every how many episodes to record; 0 for never."""
    if record == "none":
        return 0
    if record == "auto":
        work = 0.0 if model.deterministic else float(episodes) * model.num_outcomes
        return max(1, episodes // AUTO_POINTS) if work <= AUTO_WORK else 0
    try:
        check_count(record, "record")
    except SettingsError as error:
        raise SettingsError(f'{error}, "auto" or "none"') from None
    return int(record)
