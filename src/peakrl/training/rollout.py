"""Episodes of lanes that are stepped one by one: an environment's, several environments', or those of a model.

Episodes are counted in the order in which they start; pi^k is the policy as it stood when episode k started, and an
episode is learned from when it is over. Episode k of a single environment is reset with a seed made from the run's seed
and k, so that a resumed run sees what an uninterrupted one would have seen. An episode that is over before the horizon
earns nothing from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NoReturn

import numpy as np

from peakrl.checks import ROUNDING
from peakrl.errors import LearnerError, PeakError, TargetError
from peakrl.gym.adapter import LaneError, Lanes, Observed, Step, episode_seed
from peakrl.learners.assumptions.contradictions import DeclarationCheck, Observations
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.assumptions.limits import Limits
from peakrl.learners.base import Algorithm, Episode, SamplingAlgorithm
from peakrl.learners.episode import Log
from peakrl.learners.space import Space
from peakrl.training.kernel_rollout import Ledger

#: Steps between two looks at the clock: at first, and at most.
LANE_STEPS = 1 << 10, 1 << 16
NO_CHANGES = Log(*(np.empty(0, np.int32) for _ in range(3)))


class Lane:
    """An episode in progress."""

    def __init__(self, number: int, played: Episode | None) -> None:
        self.number = number
        #: The first state, until it has a slot; None until it is shown.
        self.first: Observed | None = None
        self.slot = self.row = -1
        self.played = played
        #: Steps taken so far.
        self.step = 0


class LaneSource:
    """Lanes that are stepped one by one."""

    def __init__(
        self,
        lanes: Lanes,
        space: Space,
        knowledge: Knowledge,
        make: Callable[[], Algorithm],
        limits: Limits | None = None,
    ) -> None:
        self.limits, self.check = limits, None if limits is None else DeclarationCheck(limits)
        self.lanes, self.rules, self.space, self.knowledge, self._make = lanes, lanes.rules, space, knowledge, make
        self._running: list[Lane | None] = [None] * lanes.count
        self._free: list[Episode] = []
        #: Of episodes that run together: those that are over while others are not, and those to learn from now.
        self._over: list[Lane] = []
        self._waiting: list[Episode] = []
        self.observations = Observations(knowledge, space)
        #: Is anything declared that a step may contradict?
        self._watchful = self.check is not None or self.observations.active or knowledge.most_reward is not None
        #: Do new states wait for the end of the episode, and the first of those that do.
        self._waits = False
        self._unknown: int | None = None
        self.started = 0
        #: Has the last episode that is asked for been started?
        self._final = False
        horizon = self.rules.horizon
        self.pieces = max(1, LANE_STEPS[0] // horizon), max(1, LANE_STEPS[1] // horizon)
        self._log = NO_CHANGES
        self._changes = 0
        if limits is not None:
            self.rules.idle = lambda first: first.offer[self._first_choice(first)]

    def play(self, ledger: Ledger, episodes: int) -> None:
        """Play until so many more episodes are complete."""
        goal = ledger.done + episodes
        ledger.planned = max(ledger.planned, goal)
        place: int | None = None
        try:
            if ledger.algorithm is None and self.rules.constraints.count is not None:
                self._begin_algorithm(ledger)
            while ledger.done < goal and (ledger.algorithm is None or ledger.algorithm.stopped is None):
                if self._waiting and ledger.algorithm is not None:
                    self._complete(ledger, ledger.algorithm, self._waiting.pop(0))
                    continue
                self._start(ledger, goal)
                if self._play_whole(ledger):
                    continue
                actions: list[int | None] = [None] * len(self._running)
                for place, lane in enumerate(self._running):
                    if lane is not None and lane.first is not None:
                        actions[place] = self._choose(ledger, lane)
                for place, event in enumerate(self.lanes.advance(actions)):
                    lane = self._running[place]
                    if lane is None or event is None:
                        continue
                    if isinstance(event, Observed):
                        lane.first = event
                    else:
                        self._take(ledger, place, lane, event)
        except LaneError as error:
            cause = error.__cause__
            self._fail(ledger, str(error), error.lane, None if isinstance(cause, PeakError) else cause)
        except LearnerError as error:
            raise LearnerError(f"{self._where(place)}: {error}") from error.__cause__
        except PeakError as error:
            self._fail(ledger, str(error), place, error)

    def _begin_algorithm(self, ledger: Ledger) -> Algorithm:
        """Make the algorithm, once it is known how many constraints there are."""
        algorithm = ledger.algorithm = self._make()
        self._grow(ledger, algorithm, 0)
        return algorithm

    def begin_again(self, ledger: Ledger) -> None:
        """Make the algorithm of a run that is continued."""
        self.started = ledger.done
        self._begin_algorithm(ledger)

    def _room(self, ledger: Ledger, algorithm: Algorithm) -> Log:
        """Return the log with room for whatever comes next."""
        needed = self._changes + algorithm.log_room if ledger.logs else 0
        if len(self._log.node) < needed:
            larger = Log(*(np.empty(2 * needed, np.int32) for _ in range(3)))
            for new, old in zip(larger, self._log, strict=True):
                new[: self._changes] = old[: self._changes]
            self._log = larger
        return self._log

    def _grow(self, ledger: Ledger, algorithm: Algorithm, first: int) -> None:
        log = self._room(ledger, algorithm)
        self._changes = algorithm.grow(first, self.started, log, self._changes)
        if self.limits is not None and self.space.slots > self.space.ends:
            self._forbid(algorithm, self.limits, max(first, self.space.ends), log if first else NO_CHANGES)
        if self._final:  # what the last episode follows in states that it is the first to meet
            ledger.greedy = np.concatenate([ledger.greedy, algorithm.greedy()[len(ledger.greedy) :]])

    def _forbid(self, algorithm: Algorithm, limits: Limits, first: int, log: Log) -> None:
        """Tell the algorithm what is declared to fail in new slots, and note what it does there instead."""
        starts = self.space.layout.row_start
        row = int(starts[first])
        algorithm.forbid(row, *limits.forbidden(row))
        if not isinstance(algorithm, SamplingAlgorithm):
            return  # it notes by itself what it follows
        for slot in range(first, self.space.slots) if len(log.node) else ():
            steps = range(self.space.horizon) if self.space.shared else [int(self.space.slot_step[slot])]
            for step in steps:
                chosen = algorithm.row(step, slot)
                if chosen != starts[slot]:
                    node = step * self.space.layout.node_stride + slot
                    log.episode[self._changes], log.node[self._changes], log.row[self._changes] = (
                        max(self.started, 1), node, chosen
                    )  # fmt: skip
                    self._changes += 1

    def _start(self, ledger: Ledger, goal: int) -> None:
        """Start episodes in lanes without one, as long as the run has any left."""
        if None not in self._running:
            return
        free = [place for place, lane in enumerate(self._running) if lane is None]
        free, algorithm = free[: max(0, ledger.planned - self.started)], ledger.algorithm
        if algorithm is not None and algorithm.together:
            free = [] if any(self._running) else free[: algorithm.at_once]
        if not free:
            return
        numbers = range(self.started + 1, self.started + 1 + len(free))
        for place, number in zip(free, numbers, strict=True):
            self._running[place] = Lane(number, self._free.pop() if self._free else None)
            self.started = number
            if algorithm is not None:
                log = self._room(ledger, algorithm)
                self._changes = algorithm.begin(number, ledger.generator, log, self._changes)
        self._final = self.started >= goal and algorithm is not None
        if self._final and algorithm is not None:
            ledger.greedy = algorithm.greedy()
        seeds = [episode_seed(ledger.seed, number) for number in numbers]
        for place, seen in zip(free, self.lanes.begin(free, seeds), strict=True):
            lane = self._running[place]
            if lane is not None:
                lane.first = seen

    def _play_whole(self, ledger: Ledger) -> bool:
        """Play whole episodes, where there is a quicker way than step by step; say whether there is."""
        return False

    def _choose(self, ledger: Ledger, lane: Lane) -> int:
        """Return the number of the action to take."""
        algorithm, first = ledger.algorithm, lane.first
        assert first is not None  # asked only of lanes that have shown their first state
        if algorithm is None:
            return first.offer[self._first_choice(first)]
        if lane.slot < 0:
            lane.slot = self._place(ledger, algorithm, 0, first)
        lane.row = algorithm.row(lane.step, lane.slot)
        if self._watchful:
            self._check_choice(lane.step, lane.slot, lane.row)
        return self.space.action_number(lane.row)

    def _check_choice(self, step: int, slot: int, row: int) -> None:
        """Raise before an action is taken that nothing declared allows."""
        if self.check is not None:
            self.check.check_choice(step, self.space.state_of_slot(slot), self.space.action_of_row(row))

    def _first_choice(self, first: Observed) -> int:
        """Return the place of the action to take before there are tables: the first of those that are allowed."""
        if self.limits is None:
            return 0
        self._check_first(first)
        return self.limits.first_allowed(first.state, self._offered(first))

    def _offered(self, seen: Observed) -> list[Hashable]:
        return [self.rules.actions.labels[index] for index in seen.offer]

    def _check_first(self, first: Observed) -> None:
        if self.check is not None:
            self.check.check_first(first.state, self._offered(first))

    def _place(self, ledger: Ledger, algorithm: Algorithm, step: int, seen: Observed) -> int:
        """Return the slot of a state, stored if it is new."""
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

    def _take(self, ledger: Ledger, place: int, lane: Lane, seen: Step) -> None:
        """Take in one step of a lane."""
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
            self._running[place] = None
            self._end(ledger, algorithm, lane, lane.played)

    def _end(self, ledger: Ledger, algorithm: Algorithm, lane: Lane, played: Episode) -> None:
        """Learn from an episode that is over, or wait for those that run together with it."""
        if not algorithm.together:
            self._complete(ledger, algorithm, played)
            return
        self._over.append(lane)
        if not any(self._running):
            ordered = sorted(self._over, key=lambda one: one.number)
            self._waiting, self._over = [one.played for one in ordered if one.played is not None], []

    def _following(self, ledger: Ledger, algorithm: Algorithm, step: int, seen: Step) -> int:
        """Return the slot that a step led to; an end where the episode is over."""
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
            # Where steps share what they learn, also the state after the last step matters to earlier ones.
            return self._place(ledger, algorithm, step + 1, seen.following)
        return 0 if self.space.shared else step + 1

    def _check_early_end(self, step: int) -> None:
        """Raise where 0 for the steps that are left out is no reward that may be."""
        lo, hi = self.rules.reward_range
        most = self.knowledge.most_reward
        hi = hi if most is None else min(hi, most)
        if not lo <= 0.0 <= hi:
            raise TargetError(
                f"the episode is over with {self.rules.horizon - step} steps to go, which earn 0, but rewards lie in "
                f"{(lo, hi)}: widen reward_range so that it holds 0, or keep episodes as long as the horizon"
            )

    def _check_step(self, step: int, slot: int, row: int, seen: Step, following: int) -> None:
        """Raise where a step contradicts what is declared."""
        harm = sum(max(-value, 0.0) for value in seen.constraints)
        if self.check is not None:
            after = None if seen.over or seen.following is None else seen.following.state
            state, action = self.space.state_of_slot(slot), self.space.action_of_row(row)
            self.check.check_step(step, state, action, after, harm)
        most = self.knowledge.most_reward
        if most is not None and harm == 0 and seen.reward > most + ROUNDING * abs(most):
            raise TargetError(f"the reward is {seen.reward:g} without a violation, but most_reward is {most:g}")
        self.observations.check(step, row, seen, following)

    def _complete(self, ledger: Ledger, algorithm: Algorithm, played: Episode) -> None:
        """Learn from an episode that is over, and tell of it."""
        log = self._room(ledger, algorithm)
        self._changes = algorithm.learn(played, self.started, log, self._changes)
        earned, violated = sum(played.reward[: played.length].tolist()), sum(played.violation[: played.length].tolist())
        if violated > 0:
            ledger.counters[:] = ledger.counters[0] + 1, ledger.done + 1
        ledger.take(1, np.array([[earned, violated]]), self._log, self._changes)
        self._changes = 0
        played.length = 0
        self._free.append(played)

    def _fail(self, ledger: Ledger, message: str, place: int | None, cause: BaseException | None) -> NoReturn:
        """Raise what went wrong, and where."""
        if ledger.algorithm is not None:
            ledger.greedy = ledger.algorithm.greedy()
        raise TargetError(f"{self._where(place)}: {message}") from cause

    def _where(self, place: int | None) -> str:
        """Return the episode and the step that a lane is in."""
        lane = self._running[place] if place is not None else next(filter(None, self._running), None)
        if place is None and self.lanes.count > 1:
            running = [each.number for each in self._running if each is not None]
            return f"episodes {', '.join(map(str, running))}" if running else f"episode {self.started}"
        return f"episode {self.started if lane is None else lane.number}, step {0 if lane is None else lane.step}"

    def rest(self) -> None:
        """Nothing to let go of."""
