"""Rollouts: play episodes for an algorithm and report them to a `Ledger`, the trainer.

`KernelSource`   a compiled model: a numba kernel samples many episodes in one call
`LaneSource`     lanes that are stepped one by one: one environment, several that step together, or a model whose
                 learner has no kernel
`SingleSource`   one environment: each episode is played to its end before the learner sees it

Lanes. Episodes are counted in the order in which they start; pi^k is the policy at the start of episode k, and the
learner sees an episode when it is over. Episode k of a single environment is reset with a seed derived from the run's
seed and k, so that a resumed run sees what an uninterrupted run would have seen. An episode that ends before the
horizon earns nothing from then on.

`SingleSource` gives the same result as `LaneSource`, bit for bit, with less work between two steps of the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import ROUNDING
from peakrl.errors import LearnerError, PeakError, TargetError
from peakrl.gym.adapter import NUMBERS, LaneError, Lanes, Observed, SingleLane, Step, episode_seed, failure, named
from peakrl.gym.constraints import Transition
from peakrl.learners.assumptions.assumptions import Assumptions
from peakrl.learners.assumptions.contradictions import DeclarationCheck, Observations
from peakrl.learners.assumptions.limits import Limits
from peakrl.learners.base import Algorithm, Episode, SamplingAlgorithm
from peakrl.learners.episode import Changes, Log
from peakrl.learners.space import GrowingSpace, Space
from peakrl.sampling import Words
from peakrl.types import Floats, Longs

#: Steps between two looks at the clock, at first and at most: kernels, lanes.
KERNEL_STEPS = 1 << 16, 1 << 20
LANE_STEPS = 1 << 10, 1 << 16
#: An episode: slots (the one after the last step included), rows, rewards and constraints, those of a step together.
Walked = tuple[list[int], list[int], list[float], list[float]]


class Ledger(Protocol):
    """Receives finished episodes: the trainer."""

    seed: int
    planned: int
    done: int
    generator: Words
    #: Violating episodes, and the last of them.
    counters: Longs
    #: Are changes of the policy logged?
    logs: bool
    algorithm: Algorithm | None
    #: [slot, column]: pi^k of the episode that was started last.
    greedy: NDArray[np.int64]

    @property
    def recorded(self) -> bool: ...

    def take(self, count: int, experience: Floats, changes: Changes) -> None: ...


class KernelSource:
    """Episodes of a compiled model, sampled in a kernel."""

    def __init__(self, algorithm: SamplingAlgorithm) -> None:
        self.algorithm = algorithm
        horizon = algorithm.space.horizon
        first = KERNEL_STEPS[1 if algorithm.quick else 0]
        #: Episodes in a piece of work: at first, and at most.
        self.pieces = max(1, first // horizon), max(1, KERNEL_STEPS[1] // horizon)
        self._log: Log | None = None

    def play(self, ledger: Ledger, episodes: int) -> None:
        """Play some more episodes."""
        while episodes > 0 and self.algorithm.stop_reason is None:
            count = min(episodes, self.pieces[1])
            # The last episode runs alone, so that its policy can be read before the algorithm learns from it.
            if count > 1:
                self._run(ledger, count - 1)
            if self.algorithm.stop_reason is None:
                ledger.greedy = self.algorithm.greedy()
                self._run(ledger, 1)
            episodes -= count

    def _run(self, ledger: Ledger, count: int) -> None:
        if self._log is None:
            size = self.algorithm.log_room + KERNEL_STEPS[1] if ledger.logs else 0
            self._log = Log.of_size(size)
        while count > 0 and self.algorithm.stop_reason is None:
            experience = np.empty((count if ledger.recorded else 0, 4 if self.algorithm.randomised else 2))
            self._log.clear()
            ran = self.algorithm.run(ledger.generator, ledger.done, count, self._log, experience, ledger.counters)
            ledger.take(ran, experience[:ran], self._log.changes)
            count -= ran

    def rest(self) -> None:
        """Free the log."""
        self._log = None


class Lane:
    """An episode in progress."""

    def __init__(self, number: int, played: Episode | None) -> None:
        self.number = number
        #: The first state; None until it was observed.
        self.first: Observed | None = None
        self.slot = self.row = -1
        self.played = played
        #: Steps taken so far.
        self.step = 0


class LaneSource:
    """Episodes of lanes that are stepped one by one."""

    def __init__(
        self,
        lanes: Lanes,
        space: Space,
        assumptions: Assumptions,
        make: Callable[[], Algorithm],
        limits: Limits | None = None,
    ) -> None:
        self.limits, self.check = limits, None if limits is None else DeclarationCheck(limits)
        self.lanes, self.rules, self.space, self.assumptions, self._make = lanes, lanes.rules, space, assumptions, make
        self._running: list[Lane | None] = [None] * lanes.count
        self._free: list[Episode] = []
        #: Of episodes that must end together: those that are over, and those to learn from now.
        self._over: list[Lane] = []
        self._waiting: list[Episode] = []
        self.observations = Observations(assumptions, space)
        #: Is anything declared that a step may contradict?
        self._watchful = self.check is not None or self.observations.active or assumptions.max_reward is not None
        #: Are new states added at the end of the episode, and the first of them.
        self._waits = False
        self._unknown: int | None = None
        self.started = 0
        #: Has the last episode been started?
        self._final = False
        horizon = self.rules.horizon
        self.pieces = max(1, LANE_STEPS[0] // horizon), max(1, LANE_STEPS[1] // horizon)
        self._log = Log.of_size(0)
        if limits is not None:
            self.rules.idle = lambda first: first.offer[self._first_choice(first)]

    def play(self, ledger: Ledger, episodes: int) -> None:
        """Play until `episodes` more are complete."""
        goal = ledger.done + episodes
        ledger.planned = max(ledger.planned, goal)
        position: int | None = None
        try:
            if ledger.algorithm is None and self.rules.constraints.count is not None:
                self._begin_algorithm(ledger)
            while ledger.done < goal and (ledger.algorithm is None or ledger.algorithm.stop_reason is None):
                if self._waiting and ledger.algorithm is not None:
                    self._complete(ledger, ledger.algorithm, self._waiting.pop(0))
                    continue
                self._start(ledger, goal)
                if self._play_whole(ledger):
                    continue
                actions: list[int | None] = [None] * len(self._running)
                for position, lane in enumerate(self._running):
                    if lane is not None and lane.first is not None:
                        actions[position] = self._choose(ledger, lane)
                for position, event in enumerate(self.lanes.advance(actions)):
                    lane = self._running[position]
                    if lane is None or event is None:
                        continue
                    if isinstance(event, Observed):
                        lane.first = event
                    else:
                        self._take(ledger, position, lane, event)
        except LaneError as error:
            cause = error.__cause__
            self._fail(ledger, str(error), error.lane, None if isinstance(cause, PeakError) else cause)
        except LearnerError as error:
            raise LearnerError(f"{self._where(position)}: {error}") from error.__cause__
        except PeakError as error:
            self._fail(ledger, str(error), position, error)

    def _begin_algorithm(self, ledger: Ledger) -> Algorithm:
        """Create the algorithm, once the number of constraints is known."""
        algorithm = ledger.algorithm = self._make()
        self._grow(ledger, algorithm, 0)
        return algorithm

    def begin_again(self, ledger: Ledger) -> None:
        """Create the algorithm of a resumed run."""
        self.started = ledger.done
        self._begin_algorithm(ledger)

    def _log_since(self, ledger: Ledger, algorithm: Algorithm, episode: int) -> Log:
        """Return the log with room for the next episode, whose changes hold from `episode` on."""
        if ledger.logs:
            self._log = self._log.with_room(algorithm.log_room)
        return self._log.since(episode)

    def _grow(self, ledger: Ledger, algorithm: Algorithm, first: int) -> None:
        log = self._log_since(ledger, algorithm, max(self.started, 1))
        algorithm.grow(first, log)
        if self.limits is not None and self.space.slots > self.space.ends:
            self._forbid(algorithm, self.limits, max(first, self.space.ends), log if first else Log.of_size(0))
        if self._final:  # what the last episode follows in states that it is the first to meet
            ledger.greedy = np.concatenate([ledger.greedy, algorithm.greedy()[len(ledger.greedy) :]])

    def _forbid(self, algorithm: Algorithm, limits: Limits, first: int, log: Log) -> None:
        """Forbid in new slots what is declared to fail, and log the rows that replace it."""
        starts = self.space.layout.row_start
        row = int(starts[first])
        algorithm.forbid(row, *limits.forbidden(row))
        if not isinstance(algorithm, SamplingAlgorithm):
            return  # it logs its rows itself
        for slot in range(first, self.space.slots) if len(log.node) else ():
            steps = np.arange(self.space.horizon) if self.space.shared else self.space.slot_step[slot : slot + 1]
            rows = np.array([algorithm.row(step, slot) for step in steps.tolist()])
            changed = rows != starts[slot]
            log.extend(steps[changed] * self.space.layout.node_stride + slot, rows[changed])

    def _start(self, ledger: Ledger, goal: int) -> None:
        """Start episodes in idle lanes, while the run has any left."""
        if None not in self._running:
            return
        free = [position for position, lane in enumerate(self._running) if lane is None]
        free, algorithm = free[: max(0, ledger.planned - self.started)], ledger.algorithm
        if algorithm is not None and algorithm.together:
            free = [] if any(self._running) else free[: algorithm.at_once]
        if not free:
            return
        numbers = range(self.started + 1, self.started + 1 + len(free))
        for position, number in zip(free, numbers, strict=True):
            self._running[position] = Lane(number, self._free.pop() if self._free else None)
            self.started = number
            if algorithm is not None:
                algorithm.begin(number, ledger.generator, self._log_since(ledger, algorithm, number))
        self._final = self.started >= goal and algorithm is not None
        if self._final and algorithm is not None:
            ledger.greedy = algorithm.greedy()
        seeds = [episode_seed(ledger.seed, number) for number in numbers]
        for position, seen in zip(free, self.lanes.begin(free, seeds), strict=True):
            lane = self._running[position]
            if lane is not None:
                lane.first = seen

    def _play_whole(self, ledger: Ledger) -> bool:
        """Play a whole episode at once if that is possible; return whether it was."""
        return False

    def _choose(self, ledger: Ledger, lane: Lane) -> int:
        """Return the action number to take."""
        algorithm, first = ledger.algorithm, lane.first
        assert first is not None  # the first state was observed
        if algorithm is None:
            return first.offer[self._first_choice(first)]
        if lane.slot < 0:
            lane.slot = self._slot_of(ledger, algorithm, 0, first)
        lane.row = algorithm.row(lane.step, lane.slot)
        if self._watchful:
            self._check_choice(lane.step, lane.slot, lane.row)
        return self.space.action_number(lane.row)

    def _check_choice(self, step: int, slot: int, row: int) -> None:
        """Raise if the declarations do not allow an action that is about to be taken."""
        if self.check is not None:
            self.check.check_choice(step, self.space.state_of_slot(slot), self.space.action_of_row(row))

    def _first_choice(self, first: Observed) -> int:
        """Return the position of the first allowed action, which is taken before there are tables."""
        if self.limits is None:
            return 0
        self._check_first(first)
        return self.limits.first_allowed(first.state, self._offered(first))

    def _offered(self, seen: Observed) -> list[Hashable]:
        return [self.rules.actions.labels[index] for index in seen.offer]

    def _check_first(self, first: Observed) -> None:
        if self.check is not None:
            self.check.check_first(first.state, self._offered(first))

    def _slot_of(self, ledger: Ledger, algorithm: Algorithm, step: int, seen: Observed) -> int:
        """Return the slot of a state; add it if it is new."""
        if step == 0:
            self._check_first(seen)
            self.observations.check_first(seen.state)
        slot = self.space.find(step, seen)
        if slot < 0:
            slot = self.space.add(step, seen)
            if not self._waits:
                self._grow(ledger, algorithm, slot)
            elif self._unknown is None:
                self._unknown = slot
        return slot

    def _take(self, ledger: Ledger, position: int, lane: Lane, seen: Step) -> None:
        """Process one step of a lane."""
        algorithm = ledger.algorithm
        if algorithm is None:
            algorithm = self._begin_algorithm(ledger)
        if lane.slot < 0:
            self._choose(ledger, lane)
        if lane.played is None:
            lane.played = Episode(self.rules.horizon, self.rules.constraints.count or 0)
        step, last = lane.step, lane.step + 1 == self.rules.horizon
        following = self._following(ledger, algorithm, step, seen)
        if self._watchful:
            self._check_step(step, lane.slot, lane.row, seen, following)
        lane.played.add(lane.slot, lane.row, following, seen.reward, seen.constraints)
        if algorithm.observes:
            algorithm.observe(lane.played)
        lane.slot, lane.step = following, step + 1
        if seen.over or last:
            self._running[position] = None
            self._end(ledger, algorithm, lane, lane.played)

    def _end(self, ledger: Ledger, algorithm: Algorithm, lane: Lane, played: Episode) -> None:
        """Learn from a finished episode, or wait for those that must end together with it."""
        if not algorithm.together:
            self._complete(ledger, algorithm, played)
            return
        self._over.append(lane)
        if not any(self._running):
            ordered = sorted(self._over, key=lambda one: one.number)
            self._waiting, self._over = [one.played for one in ordered if one.played is not None], []

    def _following(self, ledger: Ledger, algorithm: Algorithm, step: int, seen: Step) -> int:
        """Return the next slot; an end if the episode is over."""
        last = step + 1 == self.rules.horizon
        if seen.over and not last:
            self._check_early_end(step + 1)
            if algorithm.shares_steps and seen.truncated:
                raise TargetError(
                    f"the episode was cut off after {step + 1} steps of {self.rules.horizon}: what a step leads to "
                    "depends on the step, so make the horizon no longer than the environment's time limit, or set "
                    "share_steps=False"
                )
        elif seen.following is not None and (algorithm.shares_steps or not last):
            # If steps share what they learn, the state after the last step matters to earlier ones.
            return self._slot_of(ledger, algorithm, step + 1, seen.following)
        return 0 if self.space.shared else step + 1

    def _check_early_end(self, step: int) -> None:
        """Raise if 0, the reward of the steps left out, is outside of the reward range."""
        lo, hi = self.rules.reward_range
        most = self.assumptions.max_reward
        hi = hi if most is None else min(hi, most)
        if not lo <= 0.0 <= hi:
            raise TargetError(
                f"the episode is over with {self.rules.horizon - step} steps to go, which earn 0, but rewards lie in "
                f"{(lo, hi)}: widen reward_range so that it holds 0, or keep episodes as long as the horizon"
            )

    def _check_step(self, step: int, slot: int, row: int, seen: Step, following: int) -> None:
        """Raise if a step contradicts a declaration."""
        violation = sum(max(-value, 0.0) for value in seen.constraints)
        if self.check is not None:
            after = None if seen.over or seen.following is None else seen.following.state
            state, action = self.space.state_of_slot(slot), self.space.action_of_row(row)
            self.check.check_step(step, state, action, after, violation)
        most = self.assumptions.max_reward
        if most is not None and violation == 0 and seen.reward > most + ROUNDING * abs(most):
            raise TargetError(f"the reward is {seen.reward:g} without a violation, but max_reward is {most:g}")
        self.observations.check(step, row, seen, following)

    def _complete(self, ledger: Ledger, algorithm: Algorithm, played: Episode) -> None:
        """Learn from a finished episode and report it."""
        algorithm.learn(played, self.started, self._log_since(ledger, algorithm, self.started + 1))
        earned, violated = sum(played.reward[: played.length].tolist()), sum(played.violation[: played.length].tolist())
        if violated > 0:
            ledger.counters[:] = ledger.counters[0] + 1, ledger.done + 1
        ledger.take(1, np.array([[earned, violated]]), self._log.changes)
        self._log.clear()
        played.length = 0
        self._free.append(played)

    def _fail(self, ledger: Ledger, message: str, position: int | None, cause: BaseException | None) -> NoReturn:
        """Raise an error that names episode and step."""
        if ledger.algorithm is not None:
            ledger.greedy = ledger.algorithm.greedy()
        raise TargetError(f"{self._where(position)}: {message}") from cause

    def _where(self, position: int | None) -> str:
        """Return episode and step of a lane, for messages."""
        lane = self._running[position] if position is not None else next(filter(None, self._running), None)
        if position is None and self.lanes.count > 1:
            running = [each.number for each in self._running if each is not None]
            return f"episodes {', '.join(map(str, running))}" if running else f"episode {self.started}"
        return f"episode {self.started if lane is None else lane.number}, step {0 if lane is None else lane.step}"

    def rest(self) -> None:
        """Nothing to free."""


class SingleSource(LaneSource):
    """Episodes of a single environment, each played to its end."""

    lanes: SingleLane
    space: GrowingSpace

    def _play_whole(self, ledger: Ledger) -> bool:
        """Play an episode to its end and learn from it; return whether that was possible."""
        (lane,), algorithm = self._running, ledger.algorithm
        if lane is None or lane.first is None or lane.slot >= 0 or algorithm is None or algorithm.observes:
            return False
        played = lane.played or Episode(self.rules.horizon, self.rules.constraints.count or 0)
        position = algorithm.place_when_new() if self.limits is None else None
        self._waits = position is not None
        try:
            played.fill(*self._walk(ledger, algorithm, lane, lane.first, position or 0))
        finally:
            self._waits = False
            if self._unknown is not None:
                first, self._unknown = self._unknown, None
                self._grow(ledger, algorithm, first)
        self._running[0] = None
        self._complete(ledger, algorithm, played)
        return True

    def _walk(self, ledger: Ledger, algorithm: Algorithm, lane: Lane, first: Observed, position: int) -> Walked:
        """Play one episode; `position` is that of the action taken in states that are added at its end.

        The fast path is a step to a state that is a plain number and either known or added later; any other step goes
        through `SingleLane.after` and `_following`, which handle every case.
        """
        alone, space, rules, last = self.lanes, self.space, self.rules, self.rules.horizon - 1
        act, actions, advance, read = alone.action, alone.actions, alone.env.step, rules.constraints.read
        everything = rules.actions.everything
        (least, most), watchful, waits = rules.rewards, self._watchful, self._waits
        lookup, offers, numbers, starts = space.lookup, space.offers, space.numbers, space.starts
        slot, seen = self._slot_of(ledger, algorithm, 0, first), alone.observation
        chosen, begin, by_step, by_slot, known = self._choices(algorithm)
        slots, rows, rewards = [slot], [], []
        constraints: list[float] = []
        step = 0
        try:
            for step in range(last + 1):
                if slot < known:
                    row = chosen[begin + step * by_step + slot * by_slot]
                else:
                    row = starts[slot] + min(position, len(offers[slot]) - 1)
                if watchful:
                    self._check_choice(step, slot, row)
                action, following, new = actions[numbers[row]] if actions else act(numbers[row]), -1, None
                try:
                    result = advance(action)
                    if type(result) is tuple and len(result) == 5 and not watchful:
                        observation, reward, over, cut_off, info = result
                        goes_on = over is False and cut_off is False and step < last
                        if goes_on and type(observation) in NUMBERS and type(info) is dict:
                            following = lookup[step + 1].get(observation, -1)
                            if following >= 0:
                                offer = rules.seen(observation, info).offer if "action_mask" in info else everything
                                if offers[following] is not offer and offers[following] != offer:
                                    following = -1
                            elif waits:
                                new = rules.seen(observation, info)
                    if following >= 0 or new is not None:
                        if type(reward) is int and least <= reward <= most:
                            reward = float(reward)
                        elif type(reward) is not float or not least <= reward <= most:
                            reward = rules.reward(reward)
                        values = read(named(Transition, (step, seen, action, reward, observation, False, False, info)))
                        seen = observation
                except Exception as error:
                    raise failure(error) from error
                if new is not None:
                    following = space.add(step + 1, new)
                    if self._unknown is None:
                        self._unknown = known = following
                elif following < 0:
                    alone.at(step, seen)
                    taken = Step(*alone.after(action, result))
                    reward, values, over, seen = taken.reward, taken.constraints, taken.over, alone.observation
                    following = self._following(ledger, algorithm, step, taken)
                    chosen, begin, by_step, by_slot, known = self._choices(algorithm)
                    if watchful:
                        self._check_step(step, slot, row, taken, following)
                slot = following
                slots.append(slot)
                rows.append(row)
                rewards.append(reward)
                constraints += values
                if over:
                    break
        finally:
            lane.step = step
        return slots, rows, rewards, constraints

    def _choices(self, algorithm: Algorithm) -> tuple[Any, int, int, int, int]:
        """Return the rows that are taken, their layout, and the number of slots that have one."""
        rows, first, by_step, by_slot = algorithm.choices()
        known = self.space.slots if self._unknown is None else self._unknown
        return memoryview(rows), first, by_step, by_slot, known  # type: ignore[arg-type]  # an array is a buffer
