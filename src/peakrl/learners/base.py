"""The seam of learners: what an algorithm is told, what it is asked, and in which order.

An `Algorithm` keeps its tables on a space (`learners.space`) and knows nothing of where experience comes from.
Its life:

    settings.make(task)                 once, by `learn`; the task tells sizes, bounds and what is declared
    grow(first, ...)                    slots from `first` on are new: make room and fill it with the start
    forbid(first row, ...)              what is declared to fail of their rows (`learners.assumptions.limits`), if anything is
    begin(episode, ...)                 an episode starts: draw or plan, if that is its way
      row(step, slot), choices()        the row to take, and where all of them stand
      observe(...)                      what it came to; only where `observes` says that it cannot wait
    learn(played, episode, ...)         the episode is over
    decided(), followed(), values(), known(), feasible(), proof()            at any time, for whoever asks
    arrays(), check(done)               for a file: everything that learning has written, and whether it can be

On a compiled model a `SamplingAlgorithm` offers `run`: many episodes in one kernel, the drawing of outcomes included.
It gives the same, bit for bit, as the calls above on the same draws. Elsewhere episodes are played step by step
(`training.rollout`).

Changes of the policy that is followed are logged, so that every pi^k is known: from `episode` on, `node` takes `row`.
What is called from outside of a kernel returns the new length of the log; a log without room asks for nothing.

An algorithm whose policies draw their actions (`randomised`) draws a row for every node when an episode begins, and
logs what differs from the episode before. No node is met twice in an episode, so this is the drawn policy in law, and
everything that goes by the log holds as it is. `chances` tells what was drawn from; the history of a model takes value
and violation of pi^k from `run`, as those of the chances and not of the rows that were drawn.

Base class of the settings of learners.

The settings class of an algorithm stands beside the algorithm, and `peakrl.learners` lists all of them. In a file,
settings are plain values with the name of their class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from peakrl.certificates.certificate import Certificate
from peakrl.errors import SettingsError
from peakrl.learners.episode import Log
from peakrl.learners.growable import Table
from peakrl.learners.infeasibility import Memory, Witness
from peakrl.learners.space import Space
from peakrl.sampling import Words
from peakrl.tabular import TabularModel, modified_reward
from peakrl.types import Floats, Ints, Longs

if TYPE_CHECKING:
    from peakrl.gym.adapter import Rules
    from peakrl.learners.assumptions.knowledge import Knowledge
    from peakrl.learners.coverage import Outcomes
    from peakrl.tabular import TabularModel
    from peakrl.types import Floats


class LearnerSettings(BaseModel, ABC):
    """Settings of a learner, frozen and validated; `peakrl.learners` has a class for each algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)

    #: On an environment: does the algorithm need tables of its own for each step, whatever is stationary?
    by_step: ClassVar[bool] = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            kind = type(self)
            raise SettingsError(describe(error, f"not a setting of {kind.__name__}", list(kind.model_fields))) from None

    @abstractmethod
    def make(self, task: Task) -> Algorithm:
        """Return the algorithm, with its tables, for a target."""

    @property
    def bound_to_plan(self) -> str | None:
        """What of the run follows from the number of planned episodes, in a word; None where nothing does."""
        return None

    def tolerated(self) -> tuple[float, float | None]:
        """Return the violation that goes unpunished and the penalty beyond, where the learner has such settings."""
        return float(getattr(self, "slack", 0.0)), getattr(self, "penalty", None)

    def check_model(self, model: TabularModel) -> None:
        """Raise where the settings ask for what no policy does on a model."""
        return

    def check_environment(self, rules: Rules, knowledge: Knowledge) -> None:
        """Raise where the settings ask for what nobody has told of an environment."""
        return

    @property
    def aim(self) -> str | None:
        """What is to be kept on average, in words; None where nothing is."""
        return None

    def judged(self, step_violations: Floats) -> str | None:
        """Say what was to be kept on average, and what a policy of violations [step, constraint] has; None: nothing."""
        return None

    # Words and files -----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{type(self).__name__}({listed(self.model_dump(exclude_defaults=True))})"

    __str__ = __repr__

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return {"learner": type(self).__name__, **self.model_dump()}

    def brief(self) -> dict[str, Any]:
        """Return the same without what is left at its default."""
        return {"learner": type(self).__name__, **self.model_dump(exclude_defaults=True)}


@dataclass(frozen=True)
class Sizes:
    """What the formulas need to know of a problem."""

    horizon: int
    constraints: int
    states: int
    actions: int
    reward_range: tuple[float, float]
    constraint_bounds: tuple[float, ...]

    @property
    def span(self) -> float:
        """Width of the reward range; 1 where all rewards are equal."""
        lo, hi = self.reward_range
        return hi - lo if hi > lo else 1.0

    @classmethod
    def of_model(cls, model: TabularModel) -> Sizes:
        """Return the sizes of a model."""
        return cls(
            model.horizon, model.num_constraints, model.max_states, model.max_actions,
            model.reward_range, model.constraint_bounds,
        )  # fmt: skip

    @classmethod
    def of_environment(cls, rules: Rules) -> Sizes:
        """Return the sizes of an environment; bounds that nobody gave count as 1."""
        constraints = rules.constraints.count or 0
        bounds = rules.constraints.bounds if rules.constraints.bounds is not None else (1.0,) * constraints
        return cls(rules.horizon, constraints, rules.states or 1, len(rules.actions), rules.reward_range, bounds)


@dataclass(frozen=True)
class Task:
    """What an algorithm is told of its target before the first episode."""

    space: Space
    sizes: Sizes
    #: How many are planned.
    episodes: int
    knowledge: Knowledge
    #: The model that experience is drawn from, for the kernels that draw and for checking declarations; never to plan.
    model: TabularModel | None = None
    #: Of the run.
    seed: int = 0
    constraint_names: tuple[str, ...] = ()


class Episode:
    """An episode as it was played, by step."""

    def __init__(self, horizon: int, constraints: int) -> None:
        self.length = 0
        #: [step]: where it was, what it took, where that led (an end where the episode is over).
        self.slot, self.row, self.following = (np.zeros(horizon, np.int64) for _ in range(3))
        #: [step]: what it earned, and the sum of the violations.
        self.reward, self.violation = np.zeros(horizon), np.zeros(horizon)
        #: [step, constraint]
        self.constraints = np.zeros((horizon, constraints))

    def add(self, slot: int, row: int, following: int, reward: float, constraints: tuple[float, ...]) -> float:
        """Note a step; return its violation."""
        step = self.length
        self.slot[step], self.row[step], self.following[step] = slot, row, following
        self.reward[step] = reward
        self.constraints[step] = constraints
        if len(constraints) == 1:  # the same number without an array
            violation = max(-constraints[0], 0.0)
        else:
            violation = float(np.maximum(-self.constraints[step : step + 1], 0.0).sum(axis=1)[0])
        self.violation[step] = violation
        self.length = step + 1
        return violation

    def fill(self, slots: list[int], rows: list[int], rewards: list[float], constraints: list[float]) -> None:
        """Note all steps at once, as `add` would one by one.

        The last of `slots` is where the last step led; `constraints` come one after another, those of a step together.
        """
        self.length = length = len(rows)
        self.slot[:length], self.row[:length], self.reward[:length] = slots[:-1], rows, rewards
        self.following[: length - 1], self.following[length - 1] = self.slot[1:length], slots[-1]
        given = self.constraints[:length]
        given.ravel()[:] = constraints
        if min(constraints, default=0.0) >= 0.0:
            self.violation[:length] = 0.0
        else:
            np.maximum(-given, 0.0).sum(axis=1, out=self.violation[:length])

    def modified_reward(self, slack: float, penalty: float) -> Floats:
        """[step]: as `TabularModel.modified_rewards`."""
        return modified_reward(self.reward[: self.length], self.constraints[: self.length], slack, penalty)


class Choices(NamedTuple):
    """Where the rows stand that an episode takes: `rows[first + step * by_step + slot * by_slot]`."""

    rows: NDArray[Any]
    first: int
    by_step: int
    by_slot: int

    @classmethod
    def by_column(cls, rows: NDArray[Any]) -> Choices:
        """Of a table [slot, column]."""
        columns = rows.shape[1]
        return cls(rows.reshape(-1), 0, int(columns > 1), columns)


@dataclass(frozen=True, repr=False)
class ProofHistory:
    """What a learner that stops by itself had proved, one entry for each time that it looked."""

    #: Episodes so far.
    episode: Longs
    #: How far its candidate may lie below the best safe policy, and its violation at most.
    gap: Floats
    #: The bound on the violation.
    violation: Floats
    #: The candidate's exact value; not a number where nobody knows it: on an environment, or a large model.
    value: Floats
    #: The candidate's exact violation.
    true_violation: Floats

    @classmethod
    def of(cls, lines: Floats) -> ProofHistory:
        """Return the history of lines [time, column]."""
        return cls(lines[:, 0].astype(np.int64), *(np.ascontiguousarray(column) for column in lines.T[1:]))

    def __len__(self) -> int:
        return len(self.episode)

    def __repr__(self) -> str:
        least = f", the least gap {self.gap.min():.6g}" if len(self) else ""
        return f"<ProofHistory of {len(self):,} points{least}>"

    def after(self, episode: int) -> ProofHistory:
        """Return what came after an episode."""
        later = self.episode > episode
        return ProofHistory(*(getattr(self, field.name)[later] for field in fields(self)))


class Algorithm(ABC):
    """One learner's tables on a space; a new learner overrides what differs from the least that there is here."""

    #: Must it see every step at once, or is the end of the episode soon enough?
    observes: ClassVar[bool] = False
    #: Does what it learns at one step hold for all?
    shares_steps: bool = False
    #: Where several episodes run side by side: must all of them begin together, by what was decided before, and be
    #: learned from in the order in which they began, once all are over?
    together: ClassVar[bool] = False
    #: Does it take the first row of a state that it has not met before? Then such states can wait for the end of the
    #: episode, when it is told of all of them at once.
    starts_first: bool = False
    #: Do its policies draw their actions?
    randomised: ClassVar[bool] = False
    #: Does `check` vouch for every row that it follows or hands out? Then the policies of a run from a file can wait
    #: until somebody asks for them.
    vouches: ClassVar[bool] = False

    def __init__(self, task: Task) -> None:
        self.task, self.space = task, task.space
        #: Why it wants no more episodes; None while it does.
        self.stopped: str | None = None

    @property
    def columns(self) -> int:
        """Columns of its tables."""
        return self.space.horizon if self.space.shared else 1

    @property
    def log_room(self) -> int:
        """Room in the log that the next episode may need."""
        return 2 * self.space.slots * self.columns

    @property
    def at_once(self) -> int:
        """How many episodes may begin together."""
        return 1

    def grow(self, first: int, episode: int, log: Log, changes: int) -> int:
        """Make room for the slots from `first` on."""
        return changes

    def forbid(self, first: int, forbidden: NDArray[np.bool_], harm: Floats) -> None:
        """Never take what [row - first, column] marks of the rows from `first` on, new ones: it is declared to fail.

        `harm` is by how much a row itself violates, 0 where it only leads to violations.
        """
        if forbidden.any():
            raise SettingsError(
                "this learner cannot be told beforehand what fails: leave support, constraints and safe_policy out"
            )

    def begin(self, episode: int, generator: Words, log: Log, changes: int) -> int:
        """Prepare for an episode."""
        return changes

    def observe(self, played: Episode) -> None:
        """Take in the latest step of an episode in progress."""
        return

    def learn(self, played: Episode, episode: int, log: Log, changes: int) -> int:
        """Learn from an episode that is over."""
        return changes

    def place_when_new(self) -> int | None:
        """Return the place of the row that it takes in a state not met before, or the last where there are fewer.

        None: it must be told of the state first.
        """
        return 0 if self.starts_first else None

    def choices(self) -> Choices:
        """Say where the rows stand that are taken; asked again whenever tables may have moved."""
        raise NotImplementedError  # by those that `observe`: they have a `row` of their own

    def row(self, step: int, slot: int) -> int:
        """Return the row to take."""
        rows, first, by_step, by_slot = self.choices()
        return int(rows[first + step * by_step + slot * by_slot])

    @abstractmethod
    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the rows that the next episode follows."""

    def followed(self) -> Ints:
        """[node]: the same in the order of a model."""
        return self.space.nodes_of(self.greedy())

    def chances(self) -> Floats | None:
        """[entry]: how likely each row was in the episode begun last, to follow and to hand out; None: rows say it."""
        return None

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the rows to hand out: the best decision as things stand, without exploration."""
        return self.greedy()

    def decided(self) -> Ints:
        """[node]: the same in the order of a model."""
        return self.space.nodes_of(self.chosen())

    @abstractmethod
    def values(self) -> Floats:
        """[entry]: what it holds each action to be worth."""

    def known(self) -> NDArray[np.int8] | None:
        """[entry]: what has been seen to fail (`policy.export`); None where no such record is kept."""
        return None

    def memory(self) -> Memory | None:
        """What has been seen to fail, and how; None where no such record is kept."""
        return None

    def visits(self) -> Longs | None:
        """[row]: how often it was taken, at any step; None where that is not counted."""
        return None

    def tried(self) -> NDArray[np.bool_] | None:
        """[row]: was it ever taken? None where visits are not counted."""
        visits = self.visits()
        return None if visits is None else np.asarray(visits > 0)

    def outcomes(self) -> Outcomes | None:
        """What followed each row, and where episodes began; None where that is not counted."""
        return None

    def multipliers(self) -> Floats | None:
        """[cost]: what a unit of each limited violation is held to be worth; None where no expectation is limited."""
        return None

    def multiplier_curve(self) -> Floats | None:
        """[point, 1 + cost]: episode, and the multipliers then; None where that is not kept."""
        return None

    def unkept(self) -> str | None:
        """Why limits on expectations cannot be kept, by what was counted; None where they can, or nobody knows."""
        return None

    def feasible(self) -> bool | None:
        """False where it has proved that no policy keeps every constraint."""
        return None

    def proof(self) -> list[Witness]:
        """Every observation that such a proof rests on, from the first state on."""
        return []

    def certificate(self) -> Certificate | None:
        """What a learner that stops by itself has proved of what it hands out; None where it proves nothing."""
        return None

    def proof_history(self) -> ProofHistory | None:
        """What had been proved at each time that a learner that stops by itself looked; None of other learners."""
        return None

    def fields(self) -> dict[str, Any]:
        """What a progress line says of it."""
        return {}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `arrays` gave, in tables of the same sizes."""
        for name, array in self.arrays().items():
            overwrite(array, arrays[name], f"engine.{name}")

    @property
    def not_resumable(self) -> str | None:
        """Why a run from a file cannot go on; None where it can."""
        return None

    def check(self, done: int) -> None:
        """Raise ValueError where arrays from a file hold what cannot be after `done` episodes."""
        return


class Held:
    """What an algorithm held at one moment, for a run that is looked at while it goes on."""

    def __init__(self, algorithm: Algorithm) -> None:
        known, memory, visits = algorithm.known(), algorithm.memory(), algorithm.visits()
        self._visits = None if visits is None else visits.copy()
        self._values, self._known = algorithm.values().copy(), None if known is None else known.copy()
        self._memory = None if memory is None else Memory(memory.witness.copy(), memory.harm.copy())
        self._multipliers, self._multiplier_curve = algorithm.multipliers(), algorithm.multiplier_curve()
        #: Computing them takes time, and a run that is watched goes on: they are asked for at the end.
        self._certificate: Certificate | None = None
        self._unkept: str | None = None

    def values(self) -> Floats:
        """[entry]: what each action was held to be worth."""
        return self._values

    def known(self) -> NDArray[np.int8] | None:
        """[entry]: what had been seen to fail."""
        return self._known

    def visits(self) -> Longs | None:
        """[row]: how often it had been taken."""
        return self._visits

    def memory(self) -> Memory | None:
        """How it had been seen to fail."""
        return self._memory

    def multipliers(self) -> Floats | None:
        """[cost]: what a unit of each limited violation was held to be worth."""
        return self._multipliers

    def multiplier_curve(self) -> Floats | None:
        """[point, 1 + cost]: the same along the way."""
        return self._multiplier_curve

    def unkept(self) -> str | None:
        """Why limits could not be kept, by what had been counted."""
        return self._unkept

    def certificate(self) -> Certificate | None:
        """What it had proved."""
        return self._certificate


class SamplingAlgorithm(Algorithm):
    """An algorithm whose kernel plays many episodes of a compiled model at once."""

    #: Is a step of its kernel so quick on any model that its first piece of work may be a large one?
    quick: ClassVar[bool] = False

    @abstractmethod
    def run(
        self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs
    ) -> tuple[int, int]:
        """Run some episodes on the model, fewer where the log fills up; return their number and that of the changes.

        `experience` is [episode, 2], reward and violation of each, or empty; where the algorithm is `randomised`
        [episode, 4], with the exact value and violation of the policy that the episode was drawn from.
        """


def refuse_no_numbers(arrays: dict[str, NDArray[Any]], names: Collection[str], *, lost: bool = False) -> None:
    """Raise ValueError where tables from a file hold no number; `lost`: minus infinity is one, of what must fail."""
    for name in names:
        array = arrays.get(name, np.empty(0))
        if array.size and not (array.max() < np.inf and (array.min() > -np.inf or (lost and array.min() == -np.inf))):
            raise ValueError(f"engine.{name} holds what is no number")


def compiled(task: Task) -> TabularModel:
    """Return the model that a kernel draws from."""
    assert task.model is not None  # `training.kernel_rollout` asks for kernels on models only
    return task.model


def used(tables: dict[str, Table]) -> dict[str, NDArray[Any]]:
    """Return what is in use of growing tables."""
    return {name: table.used for name, table in tables.items()}


def alike(like: NDArray[Any], array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return `array`, or raise where its type or shape is not that of `like`."""
    if array.dtype != like.dtype or array.shape != like.shape:
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, not {like.dtype} of shape {like.shape}")
    return array


def overwrite(target: NDArray[Any], source: NDArray[Any], name: str) -> None:
    """Copy bytes: in one table whole numbers stand in columns of floats."""
    target.view(np.uint8)[...] = alike(target, source, name).view(np.uint8)


def listed(values: Mapping[str, Any]) -> str:
    """Return arguments as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def describe(error: ValidationError, unknown: str, known: Collection[str] = ()) -> str:
    """Return pydantic's errors as one sentence that names each field and its value.

    `unknown` says what a field that does not exist is not; `known` are those that exist.
    """
    found = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            near = get_close_matches(field, known, 1)
            meant = f"; do you mean {near[0]}?" if near else ""
            found.append(f"{field} is {unknown}{meant}" + (f" (it has {', '.join(known)})" if known else ""))
        elif item["type"] == "missing":
            found.append(f"{error.title} needs {field}: give {field}=...")
        else:
            found.append(f"{field} is {item['input']!r}: {message}" if field else message)
    return "; ".join(found)
