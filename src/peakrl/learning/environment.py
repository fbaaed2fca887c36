"""`learn` on a Gymnasium environment.

Episodes are counted in the order in which they start, and pi^k is the greedy table as it stood when episode k started
(in environments that are stepped together, what others learn meanwhile is used at once). Episode k of a single
environment is reset with a seed made from the run's seed and k, so that a resumed run sees what an uninterrupted one
would have seen. What the environment does against the rules, or raises, ends the run as a `TargetError` that names
episode and step; its `run` is the run so far.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PeakError, SettingsError, TargetError
from peakrl.kernels.arrays import Floats, Ints
from peakrl.learning.engines import OneTransition, check_settings
from peakrl.learning.episodes import OneEpisode
from peakrl.learning.history import History
from peakrl.learning.settings import LearnerSettings
from peakrl.policy.tables import AveragedPolicy, Policy
from peakrl.targets.adapters import LaneError, Lanes, Seen, Step, adapt, episode_seed, is_environment
from peakrl.targets.states import VisitedStates

if TYPE_CHECKING:
    from peakrl.learning.run import LearningRun
    from peakrl.learning.watching import Watch

Record = Literal["auto", "none"] | int

#: Steps of an environment between two looks at the clock: at first, and at most.
FIRST_STEPS, STEPS_A_CHUNK = 1 << 10, 1 << 16
#: "auto" records this many points.
AUTO_POINTS = 1000


class Experience:
    """What episodes earned and violated, as history: nothing exact is known of an environment."""

    def __init__(self, every: int) -> None:
        self.every = every
        #: Of the recorded episodes: number, reward, violation.
        self.rows: list[tuple[int, float, float]] = []
        self.last = (0, np.nan, np.nan)

    def add(self, episode: int, reward: float, violation: float) -> None:
        """Take in an episode."""
        self.last = (episode, reward, violation)
        if episode % self.every == 0:
            self.rows.append(self.last)

    def latest(self) -> dict[str, float]:
        """Reward and violation of the latest episode."""
        return {"reward": self.last[1], "violation": self.last[2]}

    def history(self) -> History:
        """Everything recorded, the latest episode included."""
        table = self.table()
        unknown = [np.full(len(table), np.nan) for _ in range(4)]
        return History(
            table[:, 0].astype(np.int64),
            value=unknown[0],
            violation=unknown[1],
            averaged_value=unknown[2],
            averaged_violation=unknown[3],
            episode_reward=table[:, 1].copy(),
            episode_violation=table[:, 2].copy(),
        )

    def table(self) -> Floats:
        """[point, 3], the latest episode last."""
        rows = self.rows if not self.last[0] or self.last[0] % self.every == 0 else [*self.rows, self.last]
        return np.array(rows, np.float64).reshape(-1, 3)

    def load(self, table: Floats) -> None:
        """Take over a stored table."""
        rows = [(int(episode), float(reward), float(violation)) for episode, reward, violation in table.tolist()]
        self.rows = [row for row in rows if row[0] % self.every == 0]
        self.last = rows[-1] if rows else self.last


class Lane:
    """An episode in progress."""

    def __init__(self, episode: int) -> None:
        self.episode = episode
        self.step = 0
        #: The first state, until it has a slot; None until it is shown.
        self.first: Seen | None = None
        self.slot = self.row = -1
        self.reward = self.violation = 0.0


class EnvironmentLearner:
    """A run on an environment in progress; it is driven as `learning.run.Learner` is.

    For a checkpoint between two calls of `advance`: `plain()`, `labels()` and `arrays()` hold everything that was
    learned, and `load(plain, labels, arrays)` on a new learner of the same arguments takes it over. Episodes in
    progress in other lanes of a vectorised environment are not part of it.
    """

    def __init__(
        self, lanes: Lanes, settings: LearnerSettings, *, planned: int, seed: int, every: int, average: bool = True
    ) -> None:
        check_settings(lanes.rules, settings)
        self.target, self.rules, self.settings = lanes, lanes.rules, settings
        self.planned, self.seed, self.average = planned, seed, average
        self.counters = np.zeros(2, np.int64)
        self.recorder = Experience(every) if every else None
        self.done = self.started = 0
        #: None until the first step has told how many constraints there are, where nobody has said so before.
        self.engine: OneTransition | OneEpisode | None = None
        #: [slot, column]: pi^k of the episode that was started last before `advance` came to its end.
        self.greedy: NDArray[np.int64] = np.zeros((0, 1), np.int64)
        self._lanes: list[Lane | None] = [None] * lanes.count
        #: Episodes between two looks at the clock: at first, and at most.
        self.pieces = max(1, FIRST_STEPS // self.rules.horizon), max(1, STEPS_A_CHUNK // self.rules.horizon)
        if self.rules.constraints.count is not None:
            self._make_engine()

    def _make_engine(self) -> OneTransition | OneEpisode:
        constraints = self.rules.constraints.count or 0
        common = (self.rules, self.settings, self.planned, constraints, self.average)
        practical = self.settings.practical_learner
        engine = OneEpisode(*common, self.target.count) if practical else OneTransition(*common)
        self.engine = engine
        return engine

    # Running -------------------------------------------------------------------------------------------------

    def advance(self, episodes: int) -> None:
        """Run until `episodes` more are complete."""
        goal = self.done + episodes
        self.planned = max(self.planned, goal)
        place: int | None = None
        try:
            while self.done < goal:
                self._begin(goal)
                actions: list[int | None] = [None] * len(self._lanes)
                for place, lane in enumerate(self._lanes):
                    if lane is not None and lane.first is not None:
                        actions[place] = self._choose(lane)
                for place, event in enumerate(self.target.advance(actions)):
                    lane = self._lanes[place]
                    if lane is None or event is None:
                        continue
                    if isinstance(event, Seen):
                        lane.first = event
                    else:
                        self._learn(place, lane, event)
        except LaneError as error:
            self._fail(str(error), error.lane, error.__cause__)
        except PeakError as error:
            self._fail(str(error), place, error)

    def _begin(self, goal: int) -> None:
        """Start episodes in lanes without one, as long as the run has any left."""
        if None not in self._lanes:
            return
        free = [place for place, lane in enumerate(self._lanes) if lane is None]
        free = free[: max(0, self.planned - self.started)]
        if not free:
            return
        numbers = range(self.started + 1, self.started + 1 + len(free))
        for place, number in zip(free, numbers, strict=True):
            self._lanes[place] = Lane(number)
        self.started += len(free)
        if self.started >= goal and self.engine is not None:
            self.greedy = self.engine.greedy()
        seeds = [episode_seed(self.seed, number) for number in numbers]
        for place, seen in zip(free, self.target.begin(free, seeds), strict=True):
            lane = self._lanes[place]
            if lane is not None:
                lane.first = seen

    def _choose(self, lane: Lane) -> int:
        """Return the number of the greedy action."""
        engine, first = self.engine, lane.first
        assert first is not None  # asked only of lanes that have shown their first state
        if engine is None:
            return first.offer[0]  # nothing is known: the first, as everywhere
        if lane.slot < 0:
            lane.slot = engine.place(0, first, self.started)
        lane.row = engine.row(lane.step, lane.slot)
        return int(engine.atlas.row_action.room[lane.row])

    def _learn(self, place: int, lane: Lane, seen: Step) -> None:
        """Take in one step of a lane."""
        engine = self.engine
        if engine is None:
            engine = self._make_engine()
        if lane.slot < 0:
            self._choose(lane)
        following, violation = engine.observe(place, lane.step, lane.slot, lane.row, seen, self.started)
        lane.reward += seen.reward
        lane.violation += violation
        lane.step += 1
        lane.slot = following
        if seen.over or lane.step == self.rules.horizon:
            engine.finish(place, self.started)
            self._complete(lane)
            self._lanes[place] = None

    def _complete(self, lane: Lane) -> None:
        self.done += 1
        if lane.violation > 0:
            self.counters[:] = self.counters[0] + 1, self.done
        if self.recorder is not None:
            self.recorder.add(self.done, lane.reward, lane.violation)

    def _fail(self, message: str, place: int | None, cause: BaseException | None) -> NoReturn:
        """Raise what went wrong, with where and with the run so far."""
        lane = self._lanes[place] if place is not None else next(filter(None, self._lanes), None)
        if place is None and self.target.count > 1:
            running = [each.episode for each in self._lanes if each is not None]
            where = f"episodes {', '.join(map(str, running))}" if running else f"episode {self.started}"
        else:
            where = f"episode {self.started if lane is None else lane.episode}, step {0 if lane is None else lane.step}"
        error = TargetError(f"{where}: {message}")
        if self.engine is not None and self.done:
            self.greedy = self.engine.greedy()
            error.run = self.result()
        raise error from cause

    # What came out -------------------------------------------------------------------------------------------

    @property
    def model(self) -> VisitedStates:
        """The states met so far."""
        return self._engine().atlas.states(self._engine().sizes.constraints)

    def _engine(self) -> OneTransition | OneEpisode:
        if self.engine is None:
            raise PeakError("nothing has been learned yet: not one step was taken")
        return self.engine

    def fields(self) -> dict[str, Any]:
        """What a progress line says of the run."""
        fields: dict[str, Any] = {"violating": int(self.counters[0])}
        if self.recorder is not None:
            fields |= self.recorder.latest()
        return fields

    def result(self) -> LearningRun:
        """What has been learned so far."""
        from peakrl.learning.run import LearningRun

        engine, states = self._engine(), self.model
        tables = InOrder(engine)
        policy = Policy(states, tables.nodes(self.greedy), tables)
        averaged = None
        if self.average:
            averaged = AveragedPolicy(states, self.done, tables.nodes(None), *tables.changes())
        violations, last = (int(count) for count in self.counters)
        return LearningRun(
            model=states,
            settings=self.settings,
            episodes=self.done,
            seed=self.seed,
            policy=policy,
            history=self.recorder.history() if self.recorder is not None else History.empty(),
            violations=violations,
            last_violation_episode=last or None,
            feasible=engine.feasible(),
            _averaged=averaged,
            proof=engine.proof(),
            _engine=tables,
            _learner=self,
        )

    # Files ---------------------------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """Return the numbers that a checkpoint's manifest must hold."""
        return {"done": self.done, "constraints": self._engine().sizes.constraints, "planned": self.planned}

    def labels(self) -> list[Hashable]:
        """Return the state of every slot but those of the end, in the order in which they were met."""
        atlas = self._engine().atlas
        return atlas.labels[atlas.ends :]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything that learning has written, by name."""
        engine = self._engine()
        recorded = self.recorder.table() if self.recorder is not None else np.empty((0, 3))
        own: dict[str, NDArray[Any]] = {
            "counters": self.counters,
            "greedy": self.greedy,
            "recorded": recorded,
            "changes": engine.changes.table(),
        }
        own |= {name: part.used for name, part in engine.parts().items()}
        if isinstance(engine, OneEpisode):
            own |= {"status": engine.status, "noise": engine.noise}
        return own | {f"atlas.{name}": part for name, part in engine.atlas.arrays().items()}

    def load(self, plain: Mapping[str, Any], labels: Sequence[Hashable], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `plain`, `labels` and `arrays` once held."""
        self.done = self.started = int(plain["done"])
        self.rules.constraints.count = int(plain["constraints"])
        engine = self._make_engine()
        engine.atlas.load(labels, {name: arrays[f"atlas.{name}"] for name in engine.atlas.arrays()})
        engine.load(dict(arrays))
        engine.changes.load(arrays["changes"])
        self.counters[:] = arrays["counters"]
        self.greedy = np.array(arrays["greedy"], np.int64)
        if self.recorder is not None:
            self.recorder.load(arrays["recorded"])


class InOrder:
    """The tables of an engine in the order of a model: step after step (see `Atlas.order`)."""

    def __init__(self, engine: OneTransition | OneEpisode) -> None:
        self.engine, self.atlas = engine, engine.atlas
        self.slots, self.rows = self.atlas.order()
        self.new_row = np.empty(self.atlas.rows, np.int64)
        self.new_row[self.rows] = np.arange(len(self.rows))
        self.new_slot = np.full(self.atlas.slots, -1)
        self.new_slot[self.slots] = np.arange(len(self.slots))

    def nodes(self, greedy: NDArray[np.int64] | None) -> Ints:
        """[node]: the rows of a policy [slot, column]; slots that it lacks (None: all) take their first row."""
        first = self.atlas.row_start.used[:-1]
        columns = 1 if self.atlas.by_step else self.atlas.rules.horizon
        table = np.repeat(first[:, None], columns, axis=1)
        if greedy is not None:
            table[: len(greedy)] = greedy
        rows = self.new_row[table[self.slots]].T
        if not self.atlas.by_step:
            rows = np.concatenate([rows, np.full((1, len(self.slots)), -1)])
        nodes: Ints = rows.ravel().astype(np.int32)
        return nodes

    def entries(self, table: NDArray[Any]) -> NDArray[Any]:
        """[entry] of a table [row, column]."""
        return np.ascontiguousarray(table[self.rows].T).ravel()

    def values(self) -> Floats:
        """[entry]: the Q-table."""
        return self.entries(self.engine.values())

    def known(self) -> NDArray[np.int8]:
        """[entry]: what was seen to fail."""
        return self.entries(self.engine.known())

    def changes(self) -> tuple[Ints, Ints, Ints]:
        """The change list: episode, node, row."""
        episode, step, slot, row = self.engine.changes.table().T
        node = self.new_slot[slot] + (0 if self.atlas.by_step else step.astype(np.int64) * len(self.slots))
        order = np.argsort(episode, kind="stable")
        first, second, third = (column[order].astype(np.int32) for column in (episode, node, self.new_row[row]))
        return first, second, third


def learn_environment(
    env: Any,
    settings: LearnerSettings,
    *,
    episodes: int,
    seed: int,
    record: Record,
    average: bool,
    progress: bool,
    watch: Watch | None = None,
    checkpoint: Any = None,
    checkpoint_every: Any = None,
    **declared: Any,
) -> LearningRun:
    """Learn on a Gymnasium environment; `declared` goes to `targets.adapters.adapt`."""
    from peakrl.learning.run import check_count, drive

    if not is_environment(env):
        raise SettingsError(
            f"target is {type(env).__name__}; it must be a Problem, a TabularModel or a Gymnasium environment"
        )
    if record not in ("auto", "none"):
        check_count(record, 'record (other than "auto" and "none")')
    every = {"auto": max(1, episodes // AUTO_POINTS), "none": 0}[record] if isinstance(record, str) else int(record)
    lanes = adapt(env, **declared)
    learner = EnvironmentLearner(lanes, settings, planned=episodes, seed=seed, every=every, average=average)
    if checkpoint is None:
        if checkpoint_every is not None:
            raise SettingsError("checkpoint_every says how often to save; checkpoint must say where")
        return drive(learner, episodes, progress=progress, watch=watch)
    from peakrl.learning.checkpoint import writer
    from peakrl.learning.environment_files import continued_environment
    from peakrl.learning.saver import Saver

    saver = Saver(checkpoint, checkpoint_every, writer(learner))
    return drive(continued_environment(checkpoint, learner), episodes, saver=saver, progress=progress, watch=watch)
