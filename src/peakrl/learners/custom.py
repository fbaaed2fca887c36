"""Learners of the user's own, in plain Python: `peakrl.Learner`.

Life cycle: `begin(task)` once; then in every episode `act` and `observe` in turn, step after step, and `end_episode`.
`decide` returns the action without exploration, at any time. Such a learner plays step by step on models and
environments alike (`training.trainer`).

The behaviour policy is sampled: `decide` is called for every reachable state (for environments: every visited state)
when the number of episodes has grown by 2 %, less often on large models, and counts until the next time.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr

from peakrl.errors import LearnerError, SettingsError
from peakrl.gym.adapter import Step
from peakrl.learners.assumptions import Forbidden
from peakrl.learners.base import Algorithm, Episode, LearnerSettings, Task
from peakrl.learners.episode import Log
from peakrl.learners.space import checked_rows
from peakrl.sampling import Words
from peakrl.specs.user_code import load_named
from peakrl.types import Floats

#: The behaviour policy is sampled when episodes have grown by this share, for at most this many states an episode.
SAMPLE_GROWTH, STATES_PER_EPISODE = 0.02, 1000


@dataclass(frozen=True)
class LearnerTask:
    """What a learner of the user's own knows before the first episode."""

    horizon: int
    #: Least and largest reward of a step.
    reward_range: tuple[float, float]
    constraint_names: tuple[str, ...]
    #: Bound on the absolute value of each constraint.
    constraint_bounds: tuple[float, ...]
    #: True if nothing depends on the step.
    stationary: bool
    #: Planned number of episodes.
    episodes: int
    #: Random numbers, determined by the seed of the run.
    rng: np.random.Generator


class Learner:
    """Base class of learners of the user's own: override `act` and what else you need.

    `begin` is called once, `act` and `observe` at every step, `end_episode` after every episode; `decide` returns the
    action without exploration.

    Examples
    --------
    >>> import peakrl
    >>> class Random(peakrl.Learner):
    ...     def begin(self, task):
    ...         self.rng = task.rng
    ...     def act(self, step, state, actions):
    ...         return actions[self.rng.integers(len(actions))]
    >>> peakrl.learn(peakrl.problems.energy_harvesting(peak_power=8), Random(), episodes=20).episodes
    20
    """

    def begin(self, task: LearnerTask) -> None:
        """Prepare for a run; reset what an earlier run left."""

    def act(self, step: int, state: Any, actions: Sequence[Any]) -> Any:
        """Return one of `actions`."""
        raise LearnerError(f"{type(self).__name__} has no method act(self, step, state, actions)")

    def observe(
        self, step: int, state: Any, action: Any, reward: float, constraints: tuple[float, ...], next_state: Any
    ) -> None:
        """Process a transition; constraints are satisfied if >= 0; next_state is None at the end."""

    def end_episode(self) -> None:
        """Process the end of an episode."""

    def decide(self, step: int, state: Any, actions: Sequence[Any]) -> Any:
        """Return the action without exploration; by default `act`."""
        return self.act(step, state, actions)


class OwnLearner(LearnerSettings):
    """Settings of a learner of the user's own: its class and its arguments."""

    #: "file.py:Class" or "module:Class".
    source: str
    #: Arguments of the class.
    parameters: dict[str, Any] = Field(default_factory=dict)
    _instance: Learner | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, learner: Any, source: str | None = None, parameters: Mapping[str, Any] | None = None) -> OwnLearner:
        """Return the settings of an instance."""
        kind = type(learner)
        if isinstance(learner, type):
            raise SettingsError(f"learner is the class {learner.__name__}; pass an instance, {learner.__name__}(...)")
        if kind.act is Learner.act:
            raise LearnerError(f"{kind.__name__} has no method act(self, step, state, actions); it must have one")
        for name in ("begin", "act", "observe", "end_episode", "decide"):
            if not callable(getattr(learner, name)):
                raise LearnerError(f"{kind.__name__}.{name} is {getattr(learner, name)!r}; it must be a method")
        made = cls(source=source or f"{kind.__module__}:{kind.__qualname__}", parameters=dict(parameters or {}))
        made._instance = learner
        return made

    @classmethod
    def load(cls, source: str, parameters: Mapping[str, Any], folder: str | Path) -> OwnLearner:
        """Run the code that "file.py:Class" names and create the learner."""
        found = load_named(source, Path(folder), "learner")
        if not (isinstance(found, type) and issubclass(found, Learner)):
            raise SettingsError(f"learner {source!r} is not a subclass of peakrl.Learner")
        try:
            return cls.of(found(**parameters), source, parameters)
        except TypeError as error:
            raise SettingsError(f"learner {source!r} with {dict(parameters)}: {error}") from None

    def make(self, task: Task) -> OwnAlgorithm:
        """Return the algorithm for a target; without an instance it only holds the stored decisions."""
        return OwnAlgorithm(task, self._instance, self.source)

    def fresh(self) -> OwnLearner:
        """Return the same settings with a copy of the instance, for parallel runs."""
        return self if self._instance is None else self.of(copy.deepcopy(self._instance), self.source, self.parameters)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return {"learner": self.source, **self.parameters}

    brief = as_dict

    def __repr__(self) -> str:
        return repr(self._instance) if self._instance is not None else f"OwnLearner({self.source!r})"

    __str__ = __repr__


class OwnAlgorithm(Algorithm):
    """Calls a learner of the user's own."""

    observes = True

    def __init__(self, task: Task, learner: Learner | None, source: str) -> None:
        super().__init__(task)
        self.learner, self.source = learner, source
        self.name = source.rpartition(":")[2]
        #: By slot and column: rows and their actions.
        self._offers: dict[tuple[int, int], tuple[list[int], tuple[Hashable, ...]]] = {}
        #: [row, column]: declared to fail.
        self._forbidden: NDArray[np.bool_] = np.zeros((0, self.columns), np.bool_)
        self._table: NDArray[np.int64] = np.zeros((0, self.columns), np.int64)
        self._next_sample = 1
        if learner is not None:
            sizes = task.sizes
            bounds, names = sizes.constraint_bounds, task.constraint_names
            rng = np.random.default_rng(np.random.SeedSequence((task.seed, 1)))
            spec = LearnerTask(sizes.horizon, sizes.reward_range, names, bounds, self.space.shared, task.episodes, rng)
            self._call("begin", spec)

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the learner; an exception becomes a LearnerError that names the method."""
        if self.learner is None:
            raise LearnerError(f"{self.source} is needed to continue: pass it as learner=")
        try:
            return getattr(self.learner, method)(*arguments)
        except LearnerError:
            raise
        except Exception as error:  # user code may raise anything
            raise LearnerError(f"{self._named(method)} raised {type(error).__name__}: {error}") from error

    def _named(self, method: str) -> str:
        """Return the name of the method that was run: `decide` is `act` unless overridden."""
        inherited = method == "decide" and getattr(type(self.learner), "decide", None) is Learner.decide
        return f"{self.name}.{'act' if inherited else method}"

    def forbid(self, declared: Forbidden) -> None:
        """Do not offer what is declared to fail, unless there is nothing else."""
        self._forbidden = np.concatenate([self._forbidden[: declared.first], declared.entries])

    def _offer(self, step: int, slot: int) -> tuple[list[int], tuple[Hashable, ...]]:
        """Return the available rows of a slot, and their actions."""
        column = step if self.space.shared else 0
        if (slot, column) not in self._offers:
            every = range(*self.space.layout.row_start[slot : slot + 2].tolist())
            rows = [row for row in every if row >= len(self._forbidden) or not self._forbidden[row, column]] or list(
                every
            )
            self._offers[slot, column] = rows, tuple(self.space.action_of_row(row) for row in rows)
        return self._offers[slot, column]

    def _ask(self, method: str, step: int, slot: int) -> int:
        """Call a method; return the row of its action."""
        state, (rows, offer) = self.space.state_of_slot(slot), self._offer(step, slot)
        action = self._call(method, step, state, offer)
        try:
            return rows[offer.index(action)]
        except ValueError:
            shown = ", ".join(map(repr, offer[:12])) + (", ..." if len(offer) > 12 else "")
            raise LearnerError(
                f"{self._named(method)} returned {action!r} at step {step} in state {state!r}; there are {shown}"
            ) from None

    # Learning ------------------------------------------------------------------------------------------------

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Sample the behaviour policy if it is due."""
        if episode < self._next_sample:
            return
        self._next_sample = episode + max(
            1, int(SAMPLE_GROWTH * episode), self.space.slots * self.columns // STATES_PER_EPISODE
        )
        table = self.decisions()
        first = self.space.layout.row_start[:-1, None]
        before = np.broadcast_to(first, table.shape).copy()
        before[: len(self._table)] = self._table
        slots, columns = np.nonzero(table != before)
        log.extend(columns * self.space.layout.node_stride + slots, table[slots, columns])
        self._table = table

    def row(self, step: int, slot: int) -> int:
        """Return the row that the learner takes."""
        return self._ask("act", step, slot)

    def observe(self, step: int, slot: int, row: int, seen: Step, following: int) -> None:
        """Pass a step to the learner."""
        over = step + 1 == self.space.horizon or following < self.space.ends
        self._call(
            "observe", step, self.space.state_of_slot(slot), self.space.action_of_row(row), seen.reward,
            tuple(seen.constraints), None if over else self.space.state_of_slot(following),
        )  # fmt: skip

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Pass the end of the episode to the learner."""
        self._call("end_episode")

    # Results -------------------------------------------------------------------------------------------------

    def decisions(self) -> NDArray[np.int64]:
        """[slot, column]: what the learner decides now, in all reachable states."""
        start = self.space.layout.row_start
        table = np.repeat(start[:-1, None], self.columns, axis=1)
        for step, slot in self.space.decisions():
            table[slot, step if self.space.shared else 0] = self._ask("decide", step, slot)
        return table

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the latest sample of the behaviour policy."""
        return self._table

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: what the learner decides now."""
        return self._table if self.learner is None else self.decisions()

    def values(self) -> Floats:
        """[entry]: NaN, since the learner's values are not known."""
        return self.space.entries_of(np.full((self.space.rows, self.columns), np.nan))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The latest sample of the behaviour policy; the learner itself is not stored."""
        return {"table": self._table}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the latest sample of the behaviour policy."""
        known = checked_rows(self.space, arrays["table"], self.columns, "engine.table")
        # States visited after the latest sample count as taking their first action.
        self._table = np.repeat(self.space.layout.row_start[:-1, None].astype(np.int64), self.columns, axis=1)
        self._table[: len(known)] = known

    @property
    def not_resumable(self) -> str | None:
        """The state of the learner is not stored."""
        return f"{self.source} does not store what it has learned, so its runs cannot be resumed: learn again"
