"""The practical learner on what an environment shows (rules: `kernels.practical`; ends: `learning.engines`)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import ROUNDING
from peakrl.errors import TargetError
from peakrl.kernels.arrays import Floats, Longs
from peakrl.kernels.learning import Log
from peakrl.kernels.practical_tables import (
    DEAD_FIRST,
    NO_LOOK,
    NO_WITNESS,
    PROVED,
    REMEMBERS,
    VIOLATES,
    Groups,
    Options,
    Path,
    PracticalTables,
)
from peakrl.kernels.transitions import learn_recorded
from peakrl.learning.engines import Engine, payoffs
from peakrl.learning.growing import Atlas, Growing
from peakrl.learning.practical import ERROR_WINDOW, Witness
from peakrl.learning.settings import LearnerSettings
from peakrl.model.files import within
from peakrl.policy.export import DEAD_END, UNKNOWN, VIOLATED
from peakrl.targets.adapters import Rules, Step


class OneEpisode(Engine):
    """The practical learner, which learns from an episode when it is over, backwards."""

    def __init__(
        self, rules: Rules, settings: LearnerSettings, episodes: int, constraints: int, keep: bool, lanes: int
    ) -> None:
        # A share_steps of True is the user's word that nothing depends on the step.
        self.shared = rules.stationary or settings.share_steps is True
        horizon = rules.horizon
        atlas = Atlas(rules, by_step=not self.shared, ends=1 if self.shared else horizon + 1)
        super().__init__(rules, settings, episodes, constraints, atlas, keep)
        self.share = self.shared if settings.share_steps is None else settings.share_steps
        columns, counted = horizon if self.shared else 1, horizon if self.shared and not self.share else 1
        self.q, self.visits = Growing(0.0, np.float64, columns), Growing(0, np.int32, counted)
        self.w = Growing(0.0, np.float64, columns + int(self.shared))
        self.choice = Growing(0, np.int64, columns)
        self.errors = Growing(0.0, np.float64, counted, 3)
        self.look = Growing(NO_LOOK, np.int64)
        self.latest_next, self.latest_reward = Growing(0, np.int32, counted), Growing(0.0, np.float64, counted)
        self.noise = np.zeros(2 if settings.second_looks else 0)
        self.witness = Growing(NO_WITNESS, np.int32, columns)
        self.start = Growing(0.0, np.float64)
        self.status = np.array([int(settings.constraint_memory), 0, 0], np.int64)
        #: Rows whose constraints are declared to be the same, by what they depend on; and how they are known to fail.
        self.groups: dict[Hashable, list[int]] = {}
        self.failed: dict[Hashable, float] = {}
        self.before = np.empty(columns, np.int64)
        self.paths = [Path(*(np.zeros(horizon, np.int64) for _ in range(4))) for _ in range(lanes)]
        self.payoff = [np.zeros((horizon, 4)) for _ in range(lanes)]
        self.length = [0] * lanes
        for part in self._by_slot():
            part.grow(atlas.ends)
        self._fill_ends()

    def _by_slot(self) -> list[Growing]:
        """Return the tables that have a place for each slot."""
        return [self.w, self.choice, self.start] + ([self.look] if self.settings.second_looks else [])

    def _by_row(self) -> list[Growing]:
        """Return the tables that have a place for each row."""
        adaptive = [self.errors] if self.settings.adaptive_steps else []
        looks = [self.latest_next, self.latest_reward] if self.settings.second_looks else []
        return [self.q, self.visits, self.witness, *adaptive, *looks]

    def _fill_ends(self) -> None:
        """Set the value of an end that comes before each step."""
        left = np.arange(self.rules.horizon, -1, -1) * (0.0 - self.lowest)
        if self.shared:
            self.w.room[0] = left
        else:
            self.w.room[: self.atlas.ends, 0] = left

    def _fill(self, step: int, slot: int, episode: int) -> None:
        first, last = self.atlas.rows_of(slot)
        start = self.constants.start if self.shared else self.constants.start[step : step + 1]
        for part in self._by_slot():
            part.grow(slot + 1)
        for part in self._by_row():
            part.grow(last)
        self.start.room[slot] = start[0]
        self.q.room[first:last] = start
        self.w.room[slot, : len(start)] = start
        self.choice.room[slot] = first
        if self.settings.constraint_depends_on is not None:
            self._join_groups(step, slot, episode)

    def _join_groups(self, step: int, slot: int, episode: int) -> None:
        """Enter the rows of a new slot; what others of their group were seen to do holds for them as well."""
        first, last = self.atlas.rows_of(slot)
        for row in range(first, last):
            key = self._key(slot, row)
            self.groups.setdefault(key, []).append(row)
            if key in self.failed and self.status[REMEMBERS]:
                self.q.room[row] = -np.inf
                self.harm.room[row] = self.failed[key]
                self.witness.room[row] = VIOLATES
        q = self.q.room[first:last]
        self.w.room[slot, : q.shape[1]] = q.max(axis=0)
        best = np.where(q.max(axis=0) > -np.inf, q.argmax(axis=0), self.harm.room[first:last].argmin())
        self.choice.room[slot] = first + best
        for column in np.flatnonzero(best).tolist():
            self.changes.note(episode, column if self.shared else step, slot, first + int(best[column]))

    def _key(self, slot: int, row: int) -> Hashable:
        state, action = self.atlas.labels[slot], int(self.atlas.row_action.room[row])
        kind = self.settings.constraint_depends_on
        return state if kind == "state" else action if kind == "action" else (state, action)

    def row(self, step: int, slot: int) -> int:
        """Return the greedy row."""
        return int(self.choice.room[slot, step if self.shared else 0])

    def observe(self, lane: int, step: int, slot: int, row: int, seen: Step, episode: int) -> tuple[int, float]:
        """Record a transition; return the next slot (-1 at the end) and the violation."""
        horizon, last = self.rules.horizon, step + 1 == self.rules.horizon
        following = 0 if self.shared else step + 1  # the slot of the end
        if seen.over and not last:
            self.end_value(step + 1)
            if self.share and seen.truncated:
                raise TargetError(
                    f"the episode was cut off after {step + 1} steps of {horizon}: what a step leads to depends on the "
                    "step, so make the horizon no longer than the environment's time limit, or set share_steps=False"
                )
        elif seen.following is not None and (self.share or not last):
            # Where steps share what they learn, also the state after the last step matters to earlier ones.
            following = self.place(step + 1, seen.following, episode)
        modified, violation = payoffs(seen, self.settings.slack, self.constants.penalty)
        most = self.settings.most_reward
        if most is not None and violation == 0 and seen.reward > most + ROUNDING * abs(most):
            raise TargetError(f"the reward is {seen.reward:g} without a violation, but most_reward is {most:g}")
        path, record = self.paths[lane], self.payoff[lane]
        path.slot[step], path.row[step], path.record[step], path.following[step] = slot, row, step, following
        record[step] = seen.reward - self.lowest, modified - self.lowest, seen.reward, violation
        self.length[lane] = step + 1
        if violation > self.harm.room[row] and not self.status[REMEMBERS]:
            self.harm.room[row] = violation
        return (-1 if seen.over or last else following), violation

    def finish(self, lane: int, episode: int) -> None:
        """Learn from the recorded episode."""
        length = self.length[lane]
        violating = self.payoff[lane][:length, 3] > 0
        remembers = bool(self.status[REMEMBERS])
        groups = self._groups(bool(violating.any()) and remembers)
        if remembers and self.settings.constraint_depends_on is not None:
            for step in np.flatnonzero(violating).tolist():
                key = self._key(int(self.paths[lane].slot[step]), int(self.paths[lane].row[step]))
                self.failed[key] = max(self.failed.get(key, 0.0), float(self.payoff[lane][step, 3]))
        columns = self.q.room.shape[1]
        largest = int(np.diff(groups.start).max()) if violating.any() else 0
        # Every step may change its own columns, every violation those of its group, a proof all.
        room = columns * (length + int(violating.sum()) * largest + self.atlas.slots) if self.changes.keep else 0
        log = Log(*(np.empty(room, np.int32) for _ in range(3)))
        stride = (2**31 - 1) // (self.rules.horizon + 1 if self.shared else 1)
        count = learn_recorded(
            self.atlas.layout(stride), self.payoff[lane], self._tables(), groups, self._options(),
            self.paths[lane], self.before, length, episode, log,
        )  # fmt: skip
        if remembers and not self.status[REMEMBERS]:
            self._fill_ends()  # the kernel started afresh, ends included
        for place in range(count):
            column, slot = divmod(int(log.node[place]), stride)
            step = column if self.shared else int(self.atlas.slot_step.room[slot])
            self.changes.note(episode + 1, step, slot, int(log.row[place]))

    def _tables(self) -> PracticalTables:
        errors = self.errors.room if self.settings.adaptive_steps else self.errors.room[:0]
        looks = [part.room for part in (self.look, self.latest_next, self.latest_reward)]
        look, latest_next, latest_reward = looks if self.settings.second_looks else [room[:0] for room in looks]
        return PracticalTables(
            self.q.room, self.visits.room, self.w.room, self.choice.room, errors, self.harm.room,
            self.witness.room, self.status,
            look=look, latest_next=latest_next, latest_reward=latest_reward, noise=self.noise,
        )  # fmt: skip

    def _options(self) -> Options:
        offset = ERROR_WINDOW if self.settings.adaptive_steps else float(self.rules.horizon)
        start = self.constants.start if self.shared else self.start.room
        return Options(int(self.shared), self.share, offset, start, 0)

    def _groups(self, needed: bool) -> Groups:
        """Return the groups of rows; only a violation asks for them."""
        nothing: Longs = np.zeros(1, np.int64)
        if not needed:
            none = nothing.astype(np.int32)
            return Groups(none, np.zeros(2, np.int64), none, none)
        rows = self.atlas.rows
        slot_of_row = self.atlas.slot_of_row.used
        if self.settings.constraint_depends_on is None:
            each = np.arange(rows + 1)
            return Groups(each[:-1].astype(np.int32), each, each[:-1].astype(np.int32), slot_of_row)
        members = list(self.groups.values())
        sizes = np.array([len(group) for group in members])
        order = np.concatenate([np.array(group, np.int32) for group in members])
        of_row = np.empty(rows, np.int32)
        of_row[order] = np.repeat(np.arange(len(members)), sizes)
        return Groups(of_row, np.concatenate([[0], np.cumsum(sizes)]), order, slot_of_row)

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the greedy rows."""
        return self.choice.used.copy()

    def values(self) -> Floats:
        """[row, column]: Q; minus infinity where an action is known to fail."""
        return self.q.used

    def known(self) -> NDArray[np.int8]:
        """[row, column]: what was seen to violate, or to lead where only violations are left."""
        witness = self.witness.used
        known = np.where(witness == NO_WITNESS, UNKNOWN, np.where(witness == VIOLATES, VIOLATED, DEAD_END))
        known[self.harm.used > 0] = VIOLATED
        return known.astype(np.int8)

    def feasible(self) -> bool | None:
        """False when the first state has been seen to leave no way out."""
        return False if self.status[PROVED] else None

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on."""
        if not self.status[PROVED]:
            return []
        atlas, lines = self.atlas, []
        labels = self.rules.actions.labels
        queue = [(0, int(self.status[DEAD_FIRST]))]
        seen = set(queue)
        for step, slot in queue:
            for row in range(*atlas.rows_of(slot)):
                witness = int(self.witness.room[row, step if self.shared else 0])
                violates = witness == VIOLATES
                harm = float(self.harm.room[row]) if violates else None
                dead = None if violates else atlas.labels[witness]
                action = labels[int(atlas.row_action.room[row])]
                lines.append(Witness(step, atlas.labels[slot], action, harm, dead))
                if not violates and (step + 1, witness) not in seen:
                    seen.add((step + 1, witness))
                    queue.append((step + 1, witness))
        return lines

    def parts(self) -> dict[str, Growing]:
        """Every table that grows, by name."""
        return {
            "q": self.q, "visits": self.visits, "w": self.w, "choice": self.choice, "errors": self.errors,
            "harm": self.harm, "witness": self.witness, "start": self.start,
            "look": self.look, "latest_next": self.latest_next, "latest_reward": self.latest_reward,
        }  # fmt: skip

    def load(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `parts` held, once the atlas is back."""
        for name, part in self.parts().items():
            if part.size or name in arrays:  # files of schema 1 know nothing of second looks, nor do their settings
                part.load(arrays[name])
        self.status[:] = arrays["status"]
        self.noise[:] = arrays.get("noise", self.noise[:0])
        if not within(self.latest_next.used, self.atlas.slots):
            raise ValueError("latest_next names a state that there is not")
        if self.settings.constraint_depends_on is not None:
            self.groups, self.failed = {}, {}
            for slot in range(self.atlas.ends, self.atlas.slots):
                for row in range(*self.atlas.rows_of(slot)):
                    key = self._key(slot, row)
                    self.groups.setdefault(key, []).append(row)
                    if self.harm.room[row] > 0:
                        self.failed[key] = float(self.harm.room[row])
