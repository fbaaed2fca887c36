"""The training loop: a `Trainer` plays the episodes of an algorithm on a target; `drive` adds progress and checkpoints.

On a model a numba kernel samples many episodes in one call, and the history is exact: pi^k is evaluated for every
episode k at which it changed, so the averages of pi-bar^k are over all episodes, not over samples. Without randomness
the return of an episode is the value of its policy. For environments the history holds the returns and violations of
the episodes.

An environment has lanes (`gym.adapter`) that are stepped one by one, or several together. Episodes are counted in the
order in which they start; pi^k is the policy at the start of episode k, and the learner sees an episode when it is
over. Episode k of a single environment is reset with a seed derived from the run's seed and k, so that a resumed run
sees what an uninterrupted run would have seen. An episode that ends before the horizon earns nothing from then on.

A run that is planned in steps (`by_steps`, with a discount only) ends when they are taken. An environment without a
horizon is then reset only after it has ended by itself: an episode is cut off after a block of steps or a violation,
and goes on in the next one.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import LearnerError, PeakError, SettingsError, TargetError
from peakrl.evaluation.curve import policy_value
from peakrl.gym.adapter import LaneError, Lanes, ModelLane, Observed, SingleLane, Step, episode_seed
from peakrl.learners.assumptions import NOTHING, Assumptions, Limits, Observations
from peakrl.learners.base import Algorithm, Episode, LearnerSettings, Results, Sizes, Task
from peakrl.learners.episode import Changes, Log
from peakrl.learners.space import GrowingSpace, ModelSpace, steps_with
from peakrl.numerics import added
from peakrl.policy.fallback import Fallback
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.progress import Interrupts, Progress
from peakrl.sampling import seed_state
from peakrl.space import MOST_INDICES, StateSpace
from peakrl.tabular import TabularModel
from peakrl.training.history import History, Recorder
from peakrl.training.run import LearningRun, RunView, Watch
from peakrl.types import Floats, Ints, Longs

#: Target duration of a piece of work between two looks at the clock, in seconds.
SECONDS_A_PIECE = 0.5
#: Steps of a piece, at first and at most: kernels, lanes.
KERNEL_STEPS = 1 << 16, 1 << 20
LANE_STEPS = 1 << 6, 1 << 16
#: Without a history, the progress line shows the value of the current policy on models of up to this many nodes.
SHOWN_NODES = 200_000


class Lane:
    """An episode in progress."""

    def __init__(self, number: int, position: int) -> None:
        self.number, self.position = number, position
        #: Steps taken so far.
        self.step = 0
        #: Yields the number of an action and, after its step was sent, None; None until the first state was observed.
        self.walk: Any = None


class Trainer:
    """Plays episodes of an algorithm on a target; holds everything that a checkpoint stores."""

    def __init__(
        self,
        target: TabularModel | Lanes,
        settings: LearnerSettings,
        *,
        planned: int,
        by_steps: bool = False,
        seed: int,
        every: int,
        average: bool = True,
        assumptions: Assumptions = NOTHING,
        sampled: bool = False,
        discount: float | None = None,
    ) -> None:
        self.target, self.settings, self.assumptions, self.discount = target, settings, assumptions, discount
        #: Planned episodes; `by_steps` planned steps, of which no run has fewer than episodes.
        self.planned, self.by_steps = planned, by_steps
        self.seed, self.average = seed, average
        #: On a model: does the history hold returns of episodes instead of exact values?
        self.sampled = sampled
        self.generator = seed_state(np.uint64(seed))
        #: Complete episodes, and their steps.
        self.done = self.steps = 0
        #: Violating episodes, and the last of them.
        self.counters: Longs = np.zeros(2, np.int64)
        self.changes: list[Changes] = []
        #: None until the number of constraints is known, at the latest after the first step.
        self.algorithm: Algorithm | None = None
        self.recorder: Recorder | None = None
        self.space: ModelSpace | GrowingSpace
        #: [slot, column]: pi^k of the episode that was started last.
        self.greedy: NDArray[np.int64]
        #: Changes of the policy since the last complete episode.
        self._log = Log.of_size(0)
        #: Environments, and models whose learner has no kernel; None: a kernel plays.
        self.lanes: Lanes | None = None
        #: What declarations forbid in lanes; kernels have no rows that are forbidden.
        self.limits: Limits | None = None
        #: Episodes in a piece of work: at first, and at most.
        self.pieces = 1, 1
        #: Does an episode that was cut off go on in the next one? [lane]: the first slot of its walk, and the present.
        self._goes_on, self._walks = False, dict[int, tuple[int, int]]()
        if isinstance(target, TabularModel):
            self._begin_on_model(target, every)
        else:
            self._begin_on_environment(target, every)

    def _begin_on_model(self, model: TabularModel, every: int) -> None:
        self.space = ModelSpace(model, self.discount)
        model = self.space.model
        self.assumptions.check_model(model)
        algorithm = self.algorithm = self._make()
        if every:
            self.recorder = Recorder(every, None if self.sampled else model, randomised=algorithm.randomised)
        self.logs = self.average or (self.recorder is not None and self.recorder.curve is not None)
        if self.logs and model.num_nodes > MOST_INDICES:
            raise SettingsError(
                f"{model.name!r} has {model.num_nodes:,} states by step, more than the {MOST_INDICES:,} that a list of "
                'policy changes supports: learn with average=False and history="none"'
            )
        algorithm.grow(0, Log.of_size(0))
        limits = Limits.declared(self.assumptions, self.space)
        if limits is not None:
            limits.check_model(model)
            algorithm.forbid(limits.forbidden(0))
            if not algorithm.observes:
                # The states in which the first policy does not take the first row, which is declared to fail.
                before, now = self.space.first_rows(), algorithm.followed()
                nodes = np.flatnonzero((before >= 0) & (before != now)).astype(np.int32)
                changes: Changes = np.ones(len(nodes), np.int32), nodes, now[nodes]
                if self.average:
                    self.changes.append(changes)
                if self.recorder is not None and self.recorder.curve is not None:
                    self.recorder.curve.pending = list(changes)
        self.greedy = algorithm.greedy()
        if not algorithm.observes:
            steps = self.space.horizon
            self.pieces = max(1, KERNEL_STEPS[0] // steps), max(1, KERNEL_STEPS[1] // steps)
        else:
            self._use_lanes(ModelLane(model, self.generator))

    def _begin_on_environment(self, lanes: Lanes, every: int) -> None:
        rules, settings = lanes.rules, self.settings
        if self.assumptions.states is not None:
            rules.states, rules.observes_states = self.assumptions.states, not rules.aliased
        self.assumptions.check_environment(rules)
        settings.check_environment(rules, self.assumptions)
        stationary = rules.stationary or self.assumptions.stationary is True or self.discount is not None
        self._goes_on = self.by_steps and rules.steps is None
        if self.discount is not None:
            rules.steps = steps_with(self.discount, rules.steps, goes_on=self._goes_on)
        self.space = GrowingSpace(rules, by_step=settings.by_step or not stationary, discount=self.discount)
        self.greedy = np.zeros((0, self.space.columns), np.int64)
        self.recorder = Recorder(every) if every else None
        self.logs = self.average
        limits = self.limits = Limits.declared(self.assumptions, self.space)
        if limits is not None and limits.safe is not None and rules.constraints.count is None:
            rules.constraints.count = limits.safe.model.num_constraints
        self._use_lanes(lanes)

    def _use_lanes(self, lanes: Lanes) -> None:
        self.lanes, self.rules = lanes, lanes.rules
        self.pieces = max(1, LANE_STEPS[0] // self.rules.horizon), max(1, LANE_STEPS[1] // self.rules.horizon)
        #: Episodes that were started, and is the last one among them?
        self.started, self._final = 0, False
        self._running: list[Lane | None] = [None] * lanes.count
        #: Episodes that are over, by number, if they are learned from together.
        self._over: dict[int, Episode] = {}
        #: The lane in which something happens, for messages.
        self._position: int | None = None
        #: Reward and violation of episodes that are not recorded yet.
        self._returns: list[tuple[float, float]] = []
        #: The slots from this one on are not in the tables yet, but added at the end of the episode; None: at once.
        self._known: int | None = None
        #: How often slots were added.
        self._growths = 0
        self.observations = Observations(self.assumptions, self.space)
        #: Is anything declared that a step may contradict?
        self._watchful = self.limits is not None or self.observations.active
        if self.limits is not None:
            self.rules.idle = lambda first: first.offer[self._first_choice(first)]

    def _make(self) -> Algorithm:
        """Create the algorithm."""
        target, space = self.target, self.space
        if isinstance(space, ModelSpace):
            model: TabularModel | None = space.model
            sizes, names = Sizes.of_model(space.model, space.horizon), space.model.constraint_names
        else:
            assert not isinstance(target, TabularModel)
            sizes, names, model = Sizes.of_environment(target.rules), target.rules.constraint_names, None
        names = names or tuple(f"constraint {number}" for number in range(sizes.constraints))
        return self.settings.make(Task(self.space, sizes, self.planned, self.assumptions, model, self.seed, names))

    # Running -------------------------------------------------------------------------------------------------

    def advance(self, episodes: int) -> None:
        """Run some more episodes."""
        try:
            if self.lanes is not None:
                self._play_lanes(self.lanes, episodes)
            else:
                self._play_kernel(self.learned(), episodes)
            if self.stop_reason is not None:  # how far from the end of a piece depends on the clock: read it again
                self.greedy = self.learned().greedy()
        except (TargetError, LearnerError) as error:
            if self.algorithm is not None and self.done:
                error.run = self.result()
            raise

    def _record(self, done: int, count: int, experience: Floats, changes: Changes) -> None:
        """Record `count` episodes after the first `done`: reward and violation, and the changes of the policy."""
        if self.recorder is not None:
            self.recorder.add(done, count, experience, changes)
        if self.average and len(changes[0]):
            episode, node, row = (column.copy() for column in changes)
            self.changes.append((episode, node, row))

    @property
    def reached(self) -> int:
        """Complete episodes; `by_steps` their steps."""
        return self.steps if self.by_steps else self.done

    @property
    def stop_reason(self) -> str | None:
        """Why the algorithm stopped, or None."""
        return None if self.algorithm is None else self.algorithm.stop_reason

    def _play_kernel(self, algorithm: Algorithm, episodes: int) -> None:
        """Play episodes on a model: a kernel samples many in one call."""
        while episodes > 0 and algorithm.stop_reason is None:
            count = min(episodes, self.pieces[1])
            # The last episode runs alone, so that its policy can be read before the algorithm learns from it.
            if count > 1:
                self._run_kernel(algorithm, count - 1)
            if algorithm.stop_reason is None:
                self.greedy = algorithm.greedy()
                self._run_kernel(algorithm, 1)
            episodes -= count

    def _run_kernel(self, algorithm: Algorithm, count: int) -> None:
        if self.logs and not len(self._log.node):
            self._log = Log.of_size(algorithm.log_room + KERNEL_STEPS[1])
        while count > 0 and algorithm.stop_reason is None:
            experience = np.empty((count if self.recorder is not None else 0, 4 if algorithm.randomised else 2))
            self._log.clear()
            ran = algorithm.run(self.generator, self.done, count, self._log, experience, self.counters)
            self._record(self.done, ran, experience[:ran], self._log.changes)
            self.done, self.steps, count = self.done + ran, self.steps + ran * self.space.horizon, count - ran

    # Environments, and models whose learner has no kernel ------------------------------------------------------

    def _play_lanes(self, lanes: Lanes, episodes: int) -> None:
        """Play until `episodes` more are complete."""
        goal = self.done + episodes
        self.planned, self._position = max(self.planned, goal), None
        if self.algorithm is None and lanes.rules.constraints.count is not None:
            self.begin_algorithm()
        try:
            while self.done < goal and self.stop_reason is None:
                if self._over and not any(self._running):
                    self._complete(self._over.pop(min(self._over)))
                    continue
                self._start(lanes, goal)
                if isinstance(lanes, SingleLane):
                    self._play_whole(lanes)
                else:
                    self._step_together(lanes)
        except LaneError as error:
            cause = error.__cause__
            self._fail(str(error), error.lane, None if isinstance(cause, PeakError) else cause)
        except LearnerError as error:
            raise LearnerError(f"{self._where(self._position)}: {error}") from error.__cause__
        except PeakError as error:
            self._fail(str(error), self._position, error)
        finally:
            count, self._returns, returns = len(self._returns), [], self._returns
            self._record(self.done - count, count, np.array(returns).reshape(-1, 2), self._log.changes)
            self._log.clear()

    def _play_whole(self, lanes: SingleLane) -> None:
        """Play an episode to its end; new states are added then, if the algorithm says what it does there."""
        (lane,), algorithm = self._running, self.algorithm
        assert lane is not None  # `_start` has started an episode
        waits = algorithm is not None and self.limits is None and algorithm.place_when_new is not None
        self._position, self._known, walk = 0, self.space.slots if waits else None, lane.walk
        try:
            while True:
                walk.send(lanes.take(next(walk)))
        except StopIteration as over:
            played = over.value
        finally:
            first, self._known = self._known, None
            if first is not None and first < self.space.slots:
                self.grow(first)
        self._running[0] = None
        self._complete(played)

    def _step_together(self, lanes: Lanes) -> None:
        """Take one step in every lane."""
        actions: list[int | None] = [None] * len(self._running)
        for position, lane in enumerate(self._running):
            self._position = position
            if lane is not None and lane.walk is not None:
                actions[position] = next(lane.walk)
        for self._position, event in enumerate(lanes.advance(actions)):
            lane = self._running[self._position]
            if lane is None or event is None:
                continue
            if isinstance(event, Observed):
                lane.walk = self._walk(lane, event)
                continue
            try:
                lane.walk.send(event)
            except StopIteration as over:
                self._running[self._position] = None
                if self.learned().together:
                    self._over[lane.number] = over.value
                else:
                    self._complete(over.value)

    def begin_algorithm(self) -> Algorithm:
        """Create the algorithm, once the number of constraints is known."""
        self.algorithm = self._make()
        self.grow(0)
        return self.algorithm

    def _log_since(self, episode: int) -> Log:
        """Return the log with room for the next episode, whose changes hold from `episode` on."""
        if self.logs:
            self._log = self._log.with_room(self.learned().log_room)
        return self._log.since(episode)

    def grow(self, first: int) -> None:
        """Add the slots from `first` on to the tables, without what is declared to fail."""
        algorithm, log = self.learned(), self._log_since(max(self.started, 1))
        algorithm.grow(first, log)
        self._growths += 1
        if self.limits is not None and self.space.slots > self.space.ends:
            self._forbid(self.limits, max(first, self.space.ends), log if first else Log.of_size(0))
        if self._final:  # what the last episode follows in states that it is the first to meet
            self.greedy = np.concatenate([self.greedy, algorithm.greedy()[len(self.greedy) :]])

    def _forbid(self, limits: Limits, first: int, log: Log) -> None:
        """Forbid in new slots what is declared to fail, and log the rows that replace it."""
        algorithm, starts = self.learned(), self.space.layout.row_start
        row = int(starts[first])
        algorithm.forbid(limits.forbidden(row))
        if algorithm.observes:
            return  # it logs its rows itself
        for slot in range(first, self.space.slots) if len(log.node) else ():
            steps = np.arange(self.space.horizon) if self.space.shift else self.space.slot_step[slot : slot + 1]
            rows = np.array([algorithm.row(step, slot) for step in steps.tolist()])
            changed = rows != starts[slot]
            log.extend(steps[changed] * self.space.layout.node_stride + slot, rows[changed])

    def _start(self, lanes: Lanes, goal: int) -> None:
        """Start episodes in idle lanes, while the run has any left."""
        if None not in self._running:
            return
        free = [position for position, lane in enumerate(self._running) if lane is None]
        free, algorithm = free[: max(0, self.planned - self.started)], self.algorithm
        if algorithm is not None and algorithm.together:
            free = [] if any(self._running) else free[: algorithm.at_once]
        if not free:
            return
        numbers = range(self.started + 1, self.started + 1 + len(free))
        for position, number in zip(free, numbers, strict=True):
            self._running[position], self.started = Lane(number, position), number
            if algorithm is not None:
                algorithm.begin(number, self.generator, self._log_since(number))
        self._final = self.started >= goal and algorithm is not None
        if self._final and algorithm is not None:
            self.greedy = algorithm.greedy()
        new = [(place, number) for place, number in zip(free, numbers, strict=True) if place not in self._walks]
        resets, seeds = [place for place, _ in new], [episode_seed(self.seed, number) for _, number in new]
        first = dict(zip(resets, lanes.begin(resets, seeds), strict=True)) if new else {}
        for position in free:
            lane, seen = self._running[position], first.get(position)
            if lane is not None and (seen is not None or position in self._walks):
                lane.walk = self._walk(lane, seen)

    def _walk(self, lane: Lane, begun: Observed | None) -> Generator[int | None, Any, Episode]:
        """Play one episode: yield the number of an action, then None after its step was sent; return the episode.

        It begins in a first state or, with None, goes on where the lane's latest episode was cut off.
        """
        space, shift, last, seen = self.space, self.space.shift, self.rules.horizon - 1, None
        if self.by_steps:
            last = min(last, self.planned - self.steps - 1)
        if self.algorithm is None and begun is not None:  # the first step shows the number of constraints
            place = self._first_choice(begun)
            seen = yield begun.offer[place]
        algorithm = self.algorithm or self.begin_algorithm()
        first, slot = (self._slot_of(0, begun),) * 2 if begun is not None else self._walks.pop(lane.position)
        growths, observes = -1, algorithm.observes
        slots, rows, rewards = [slot], list[int](), list[float]()
        constraints: list[float] = []
        for lane.step in range(last + 1):
            if observes:
                row = algorithm.row(lane.step, slot)
            elif self._known is not None and slot >= self._known:
                assert isinstance(space, GrowingSpace)  # an environment
                row = space.starts[slot] + min(algorithm.place_when_new or 0, len(space.offers[slot]) - 1)
            else:
                if growths != self._growths:  # the tables were replaced
                    # A view of the array is read in a third of the time.
                    chosen, growths = memoryview(algorithm.choices()), self._growths  # type: ignore[arg-type]
                row = chosen[slot, lane.step * shift]
            if seen is not None:  # the first step has been taken
                row = int(space.layout.row_start[slot]) + place
            if self.limits is not None:
                self.limits.check_choice(lane.step, slot, row)
            if seen is None:
                seen = yield space.action_number(row)
            following, over = -1, seen.terminated or seen.truncated
            if lane.step < last and not over and seen.following is not None:
                following = space.find(lane.step + 1, seen.following)
            if following < 0:
                following = self._following(lane.step, seen)
            if self._watchful:
                violation = added(max(-value, 0.0) for value in seen.constraints)
                if self.limits is not None:
                    after = None if seen.over or seen.following is None else seen.following.state
                    self.limits.check_step(lane.step, slot, row, after, violation)
                self.observations.check(lane.step, row, seen, following, violation)
            if observes:
                algorithm.observe(lane.step, slot, row, seen, following)
            slot = following
            slots.append(slot)
            rows.append(row)
            rewards.append(seen.reward)
            constraints += seen.constraints
            # What goes on learns from a violation at once.
            if over or lane.step == last or (self._goes_on and min(seen.constraints, default=0.0) < 0.0):
                break
            seen = yield None  # others take their steps before the next choice
        if self._goes_on and not over:
            self._walks[lane.position] = first, slot
        return Episode.of(first, slots, rows, rewards, constraints)

    def _first_choice(self, first: Observed) -> int:
        """Return the position of the first allowed action, which is taken before there are tables."""
        if self.limits is None:
            return 0
        self._check_first(first)
        return self.limits.first_allowed(first.state, self._offered(first))

    def _offered(self, seen: Observed) -> list[Hashable]:
        return [self.rules.actions.labels[index] for index in seen.offer]

    def _check_first(self, first: Observed) -> None:
        if self.limits is not None:
            self.limits.check_first(first.state, self._offered(first))

    def _slot_of(self, step: int, seen: Observed) -> int:
        """Return the slot of a state; add it if it is new."""
        if step == 0:
            self._check_first(seen)
            self.observations.check_first(seen.state)
        slot = self.space.find(step, seen)
        if slot < 0:
            slot = self.space.add(step, seen)
            if self._known is None:
                self.grow(slot)
        return slot

    def _following(self, step: int, seen: Step) -> int:
        """Return the next slot; an end if the episode is over."""
        last = step + 1 == self.rules.horizon and self.discount is None
        shares = self.space.shared and not self.learned().observes
        if self.discount is not None and not seen.terminated:
            if seen.following is None:
                raise TargetError("the episode was cut off in a state without actions: what follows is not known")
            return self._slot_of(step + 1, seen.following)
        if seen.over and not last:
            self.check_early_end(step + 1)
            if shares and seen.truncated:
                raise TargetError(
                    f"the episode was cut off after {step + 1} steps of {self.rules.horizon}: what a step leads to "
                    "depends on the step, so make the horizon no longer than the environment's time limit, or do not "
                    "declare stationary"
                )
        elif seen.following is not None and (shares or not last):
            # If steps share what they learn, the state after the last step matters to earlier ones.
            return self._slot_of(step + 1, seen.following)
        return 0 if self.space.shared else step + 1

    def check_early_end(self, step: int) -> None:
        """Raise if 0, the reward of the steps left out, is outside of the reward range."""
        lo, hi = self.rules.reward_range
        most = self.assumptions.max_reward
        hi = hi if most is None else min(hi, most)
        if not lo <= 0.0 <= hi:
            raise TargetError(
                f"the episode is over with {self.rules.horizon - step} steps to go, which earn 0, but rewards lie in "
                f"{(lo, hi)}: widen reward_range so that it holds 0, or keep episodes as long as the horizon"
            )

    def _complete(self, played: Episode) -> None:
        """Learn from a finished episode and report it."""
        self.learned().learn(played, self.started, self._log_since(self.started + 1))
        earned, violated = (added(each.tolist()) for each in (played.reward, played.violation))
        self.done, self.steps = self.done + 1, self.steps + len(played.row)
        if violated > 0:
            self.counters[:] = self.counters[0] + 1, self.done
        self._returns.append((earned, violated))

    def _fail(self, message: str, position: int | None, cause: BaseException | None) -> NoReturn:
        """Raise an error that names episode and step."""
        if self.algorithm is not None:
            self.greedy = self.algorithm.greedy()
        raise TargetError(f"{self._where(position)}: {message}") from cause

    def _where(self, position: int | None) -> str:
        """Return episode and step of a lane, for messages."""
        lane = self._running[position] if position is not None else next(filter(None, self._running), None)
        if position is None and len(self._running) > 1:
            running = [each.number for each in self._running if each is not None]
            return f"episodes {', '.join(map(str, running))}" if running else f"episode {self.started}"
        return f"episode {self.started if lane is None else lane.number}, step {0 if lane is None else lane.step}"

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
        if isinstance(self.target, TabularModel) and self.target.num_nodes <= SHOWN_NODES and self.discount is None:
            return fields | policy_value(self.target, self.rows)
        return fields

    def result(self, *, watched: bool = False) -> LearningRun:
        """Return the run so far; if it is `watched`, a copy that does not change while learning continues."""
        algorithm, states = self.learned(), self.model
        if not watched:
            if self.lanes is None:
                self._log = Log.of_size(0)  # a large one
            if self.recorder is not None:
                self.recorder.rest()
        averaged = None
        if self.average:
            changes = self.space.ordered(self.change_list())
            averaged = AveragedPolicy(states, self.done, self.space.first_rows(), *changes)
        learned = Results(algorithm) if watched else algorithm

        ranks, fallback = algorithm.ranks(states), None
        if ranks is not None:
            forbids = None if self.limits is None else self.limits.forbids
            fallback = Fallback(states, ranks, limited=forbids is not None, forbids=forbids)

        def policy(rows: Ints, fallback: Fallback | None = None) -> Policy | StochasticPolicy:
            chances = algorithm.chances()
            return Policy(states, rows, learned, fallback) if chances is None else simplest_policy(states, chances)

        violations, last = (int(count) for count in self.counters)
        return LearningRun(
            model=states,
            settings=self.settings,
            assumptions=self.assumptions,
            episodes=self.done,
            steps=self.steps,
            seed=self.seed,
            discount=self.discount,
            history=History.empty() if self.recorder is None else self.recorder.history_after(0, self.done),
            violations=violations,
            last_violation_episode=last or None,
            feasible=algorithm.feasible(),
            infeasibility_proof=algorithm.proof(),
            stop_reason=algorithm.stop_reason,
            proof_history=algorithm.proof_history(),
            policy=policy(algorithm.decided(), fallback),
            behavior_policy=policy(self.rows),
            _averaged=averaged,
            _learned=learned,
            _trainer=None if watched else self,
        )


def drive(
    trainer: Trainer,
    goal: int,
    *,
    saver: Interrupts | None = None,
    progress: bool = False,
    watch: Watch | None = None,
) -> LearningRun:
    """Run until so many episodes, or steps, are done, with progress and checkpoints, and return the run."""
    view, unit = RunView(trainer, goal), "steps" if trainer.by_steps else "episodes"
    bar = Progress("Learning", total=goal, unit=unit, begin=trainer.reached, enabled=progress)
    interrupts = saver if saver is not None else Interrupts()
    with bar, interrupts:
        if watch is not None:
            watch(view)
        for reached in pieces(trainer, goal):
            if bar.visible:
                bar.reach(reached, **trainer.fields())
            if watch is not None:
                watch(view)  # before saving, so that a checkpoint is never ahead of what was watched
            interrupts.look(trainer, last=reached >= goal or trainer.stop_reason is not None)
    return trainer.result()


def pieces(trainer: Trainer, goal: int) -> Iterator[int]:
    """Advance to a number of episodes, or steps, piece by piece and yield how many are done."""
    size, largest = trainer.pieces
    while trainer.reached < goal and trainer.stop_reason is None:
        left = -(-(goal - trainer.reached) // (trainer.space.horizon if trainer.by_steps else 1))
        count, begun = min(size, left), time.perf_counter()
        trainer.advance(count)
        if count == size:
            took = max(time.perf_counter() - begun, 1e-9)
            size = min(max(1, int(size * min(4.0, max(0.25, SECONDS_A_PIECE / took)))), largest)
        yield trainer.reached
