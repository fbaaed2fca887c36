"""Base classes of learners: settings, the task, and the life cycle of an algorithm.

The settings class of a learner (`LearnerSettings`) stands beside its `Algorithm`; `peakrl.learners` lists all of them.
An algorithm keeps its tables (`learners.tables`) on a space (`learners.space`) and does not know where experience comes
from:

    settings.make(task)                 once, by `learn`; the task has sizes, bounds and assumptions
    grow(first, ...)                    slots from `first` on are new: enlarge the tables
    forbid(declared)                    which of the new rows are declared to fail (`learners.assumptions`)
    begin(episode, ...)                 an episode starts: draw or plan, if necessary
      row(step, slot), choices()        the row to take, and the table of all rows to take
      observe(...)                      the outcome of a step; only called if `observes` is True
    learn(played, episode, ...)         the episode is over
    decided(), followed(), values(), known(), feasible(), proof()            at any time
    arrays(), load(arrays), check(done)                                      for run files

On a compiled model `run` plays many episodes in one kernel, which also draws the outcomes. It gives bit for bit the
same results as the calls above with the same random numbers. On environments, and for algorithms that observe every
step, episodes are played step by step (`training.trainer`).

Most algorithms are a `TabularAlgorithm`, which has all of this but the initial values of new states (`start`) and
the results; how it learns stands in the hooks of its tables (`learners.episode`).

With a discount (`discounts`) tables have one column. What follows a step is in the same column, and the state in which
an episode is cut off keeps its value; only an end has value 0.

Changes of the behaviour policy are noted in a `Log`, so that every pi^k is known: from an episode on, a node takes a
row. Whoever calls the methods above has set that episode.

A `randomised` algorithm draws a row for every node when an episode begins and logs the differences to the previous
episode. No node is visited twice in an episode, so the trajectory has the distribution of the randomised policy.
`chances` returns the probabilities; on models, `run` reports the exact value and violation of the randomised policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from peakrl.certificates.certificate import Certificate
from peakrl.errors import SettingsError
from peakrl.learners.episode import (
    HOOKS,
    Log,
    Path,
    Simulator,
    begin_played,
    do_nothing,
    learn_played,
    run_episodes,
)
from peakrl.learners.infeasibility import Memory, Witness
from peakrl.learners.space import Space
from peakrl.learners.tables import TableStore, overwrite
from peakrl.sampling import Words, seed_state
from peakrl.space import StateSpace
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Longs

if TYPE_CHECKING:
    from peakrl.gym.adapter import Rules, Step
    from peakrl.learners.assumptions import Assumptions, Forbidden
    from peakrl.learners.coverage import Outcomes


T = TypeVar("T")


class LearnerSettings(BaseModel, ABC):
    """Base class of settings: frozen and validated; `peakrl.learners` has a subclass for each algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)

    #: For environments: does the algorithm need separate tables for each step, even if the target is stationary?
    by_step: ClassVar[bool] = False
    #: Can it learn with a discount, with one column of tables?
    discounts: ClassVar[bool] = False

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
        """Name of the quantity that depends on the planned number of episodes; None if nothing does."""
        return None

    def tolerated(self) -> tuple[float, float | None]:
        """Return the slack (violation without penalty) and the penalty weight, if the learner has such settings."""
        return float(getattr(self, "slack", 0.0)), getattr(self, "penalty", None)

    def check_model(self, model: TabularModel) -> None:
        """Raise if no policy of the model can meet the settings."""
        return

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if the environment does not declare what the settings need."""
        return

    @property
    def aim(self) -> str | None:
        """Description of the limits on expected violations; None if there are none."""
        return None

    def judged(self, step_violations: Floats) -> str | None:
        """Compare the limits with a policy's expected violations [step, constraint]; None without limits."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({listed(self.model_dump(exclude_defaults=True))})"

    __str__ = __repr__

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a file; `peakrl.learners.learner_from` reads them."""
        return {"learner": type(self).__name__, **self.model_dump()}

    def brief(self) -> dict[str, Any]:
        """Return `as_dict` without default values."""
        return {"learner": type(self).__name__, **self.model_dump(exclude_defaults=True)}


@dataclass(frozen=True)
class Sizes:
    """Sizes and bounds of a target, for the formulas."""

    horizon: int
    constraints: int
    states: int
    actions: int
    reward_range: tuple[float, float]
    constraint_bounds: tuple[float, ...]

    @property
    def span(self) -> float:
        """Width of the reward range; 1 if all rewards are equal."""
        lo, hi = self.reward_range
        return hi - lo if hi > lo else 1.0

    @classmethod
    def of_model(cls, model: TabularModel, steps: int | None = None) -> Sizes:
        """Return the sizes of a model; an episode has `steps` steps if it has no end."""
        return cls(
            steps or model.horizon, model.num_constraints, model.max_states, model.max_actions,
            model.reward_range, model.constraint_bounds,
        )  # fmt: skip

    @classmethod
    def of_environment(cls, rules: Rules) -> Sizes:
        """Return the sizes of an environment; missing bounds count as 1."""
        constraints = rules.constraints.count or 0
        bounds = rules.constraints.bounds if rules.constraints.bounds is not None else (1.0,) * constraints
        return cls(rules.horizon, constraints, rules.states or 1, len(rules.actions), rules.reward_range, bounds)


@dataclass(frozen=True)
class Task:
    """What an algorithm knows about its target before the first episode."""

    space: Space
    sizes: Sizes
    #: Planned number of episodes.
    episodes: int
    assumptions: Assumptions
    #: The model that kernels draw experience from and declarations are checked on; never used to plan.
    model: TabularModel | None = None
    seed: int = 0
    constraint_names: tuple[str, ...] = ()


class Episode(NamedTuple):
    """The trajectory of one episode."""

    #: The first state's slot; of the walk, if the episode goes on where the one before was cut off.
    first: int
    #: [step]: slot, row taken, next slot (an end slot if the episode is over).
    slot: Longs
    row: Longs
    following: Longs
    #: [step]: reward, and sum of the violations.
    reward: Floats
    violation: Floats
    #: [step, constraint]
    constraints: Floats

    @classmethod
    def of(
        cls, first: int, slots: list[int], rows: list[int], rewards: list[float], constraints: list[float]
    ) -> Episode:
        """Return an episode.

        `slots` has one entry more than `rows`: the slot after the last step. `constraints` is flat, step by step.
        """
        visited, given = np.array(slots, np.int64), np.array(constraints, np.float64).reshape(len(rows), -1)
        violation = np.where(given < 0.0, -given, 0.0).sum(axis=1)
        taken, earned = np.array(rows, np.int64), np.array(rewards, np.float64)
        return cls(first, visited[:-1], taken, visited[1:], earned, violation, given)


@dataclass(frozen=True, repr=False)
class ProofHistory:
    """What the certified learner had proved, one entry for each check of its stopping rule."""

    #: Episodes so far.
    episode: Longs
    #: Upper bound on the suboptimality of the candidate policy.
    gap: Floats
    #: Upper bound on its violation.
    violation: Floats
    #: Exact value of the candidate; NaN if unknown (environments and large models).
    value: Floats
    #: Exact violation of the candidate.
    true_violation: Floats

    @classmethod
    def of(cls, lines: Floats) -> ProofHistory:
        """Return the history with the lines [time, column]."""
        return cls(lines[:, 0].astype(np.int64), *(np.ascontiguousarray(column) for column in lines.T[1:]))

    def __len__(self) -> int:
        return len(self.episode)

    def __repr__(self) -> str:
        least = f", the least gap {self.gap.min():.6g}" if len(self) else ""
        return f"<ProofHistory of {len(self):,} points{least}>"


class Algorithm(ABC):
    """Base class of learning algorithms; override the methods you need."""

    #: Must `observe` be called after every step, also on models, or is `learn` at the end of the episode enough?
    observes: ClassVar[bool] = False
    #: In vector environments: must all episodes begin together and be learned from in that order, after all are over?
    together: ClassVar[bool] = False
    #: Index of the action that it takes in a new state (the last action if there are fewer): new states are then added
    #: at the end of the episode, all at once. None: a state must be added first.
    place_when_new: int | None = None
    #: Are its policies randomised?
    randomised: ClassVar[bool] = False

    def __init__(self, task: Task) -> None:
        self.task, self.space = task, task.space
        #: Reason to stop; None as long as it needs more episodes.
        self.stop_reason: str | None = None

    @property
    def columns(self) -> int:
        """Number of columns of its tables."""
        return self.space.columns

    @property
    def log_room(self) -> int:
        """Upper bound on the changes that the next episode logs."""
        return 2 * self.space.slots * self.columns

    @property
    def at_once(self) -> int:
        """How many episodes may begin together."""
        return 1

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables for the slots from `first` on."""
        return

    def forbid(self, declared: Forbidden) -> None:
        """Forbid what is declared to fail in new rows."""
        if declared.entries.any():
            raise SettingsError("this learner cannot use support, constraints or safe_policy: leave them out")

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Prepare for an episode."""
        return

    def observe(self, step: int, slot: int, row: int, seen: Step, following: int) -> None:
        """Process a step of an episode in progress."""
        return

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Learn from an episode that is over."""
        return

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model until done or until the log is full; return how many.

        `experience` is [episode, 2]: reward and violation, or empty. If the algorithm is `randomised` it is
        [episode, 4], with the exact value and violation of the policy that the episode was drawn from.
        """
        raise NotImplementedError  # subclasses with `observes` have no kernel

    def choices(self) -> NDArray[Any]:
        """[slot, column]: a view of the rows to take; called again after `grow`."""
        raise NotImplementedError  # subclasses with `observes` override `row` instead

    def row(self, step: int, slot: int) -> int:
        """Return the row to take."""
        return int(self.choices()[slot, step * self.space.shift])

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the rows of the behaviour policy of the next episode."""
        return np.array(self.choices(), np.int64)

    def followed(self) -> Ints:
        """[node]: the behaviour policy in the order of a model."""
        return self.space.nodes_of(self.greedy())

    def chances(self) -> Floats | None:
        """[entry]: action probabilities of the latest episode's policy; None if it is deterministic."""
        return None

    def ranks(self, states: StateSpace) -> NDArray[np.int8] | None:
        """Return the ranks of actions in states that were not visited (`policy.fallback`); None: it does not decide."""
        return None

    def chosen(self) -> NDArray[np.int64]:
        """[slot, column]: the rows of the returned policy: the best decision so far, without exploration."""
        return self.greedy()

    def decided(self) -> Ints:
        """[node]: the returned policy in the order of a model."""
        return self.space.nodes_of(self.chosen())

    @abstractmethod
    def values(self) -> Floats:
        """[entry]: estimated value of each action."""

    def known(self) -> NDArray[np.int8] | None:
        """[entry]: what is known to fail (codes of `policy.export`); None if this is not recorded."""
        memory = self.memory()
        return None if memory is None else memory.known(self.space)

    def memory(self) -> Memory | None:
        """What is known to fail, and why; None if this is not recorded."""
        return None

    def visits(self) -> Longs | None:
        """[row]: how often it was taken, at any step; None if this is not counted."""
        return None

    def tried(self) -> NDArray[np.bool_] | None:
        """[row]: was it ever taken? None if visits are not counted."""
        visits = self.visits()
        return None if visits is None else np.asarray(visits > 0)

    def outcomes(self) -> Outcomes | None:
        """Counted transitions and first states; None if they are not counted."""
        return None

    def multipliers(self) -> Floats | None:
        """[cost]: Lagrange multiplier of each limit on an expected violation; None if there are no such limits."""
        return None

    def multiplier_curve(self) -> Floats | None:
        """[point, 1 + cost]: episode and multipliers; None if this is not recorded."""
        return None

    def infeasible_limits(self) -> str | None:
        """Why the limits on expected violations are infeasible under the empirical model; None if not known to be."""
        return None

    @property
    def dead_first(self) -> int | None:
        """A first state in which every action is known to fail; None if there is none."""
        return None

    def feasible(self) -> bool | None:
        """False after a proof that no policy satisfies every constraint."""
        return None if self.dead_first is None or not self.space.observes_states else False

    def proof(self) -> list[Witness]:
        """Every observation that the proof of infeasibility rests on, from the first state on; none without a proof."""
        first = self.dead_first if self.feasible() is False else None
        memory = None if first is None else self.memory()
        return [] if first is None or memory is None else memory.proof(self.space, first)

    def certificate(self) -> Certificate | None:
        """Certificate of the returned policy; None if the learner proves nothing."""
        return None

    def proof_history(self) -> ProofHistory | None:
        """What had been proved at each check of the stopping rule; None for learners without one."""
        return None

    def fields(self) -> dict[str, Any]:
        """Fields of a progress line."""
        return {}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays from a file; the tables have their sizes already."""
        for name, array in self.arrays().items():
            overwrite(array, arrays[name], f"engine.{name}")

    @property
    def not_resumable(self) -> str | None:
        """Why a loaded run cannot be resumed; None if it can."""
        return None

    def check(self, done: int) -> None:
        """Raise ValueError if loaded arrays are out of range after `done` episodes: kernels trust every index."""
        return


class Results:
    """Copy of an algorithm's results at one moment, with the same methods, for runs that are watched in progress."""

    def __init__(self, algorithm: Algorithm) -> None:
        names = ("values", "known", "visits", "memory", "multipliers", "multiplier_curve")
        self._results = {name: deepcopy(getattr(algorithm, name)()) for name in names}
        # Expensive to compute: only available at the end of a run.
        self._results |= {"certificate": None, "infeasible_limits": None}

    def __getattr__(self, name: str) -> Callable[[], Any]:
        if name.startswith("_") or name not in self._results:
            raise AttributeError(f"a run that is watched has no {name}")
        return lambda: self._results[name]


class TabularAlgorithm(Algorithm, Generic[T]):
    """An algorithm whose tables are declared (`learners.tables`) and whose hooks run in one loop (`learners.episode`).

    `kind` is the named tuple of its tables. Axes with these names get their lengths from the space: slot, row, entry
    [column * rows + row], step, column, and after [column, and one for the end if steps share slots]; `sizes` are the
    lengths of further axes. `constants` are the fields that are not tables; these need not be passed: shift (1 if a
    column is a step, 0 if slots belong to steps), ends, lowest and span (of the rewards), and `order`, which is empty
    until it is set to `planning_order(space)`. Tables named slot_step [slot] and slot_of_row [row] are set when they
    grow, `words` is seeded. Tables named `proved` and `dead_first` hold the episode of a proof of infeasibility (0:
    none) and its first state.
    """

    #: Separates the learner's random stream from that of the target's outcomes.
    stream: ClassVar[int] = 0

    #: The episodes from one plan to the next are at most this many, or as many as there were before.
    batch = 10

    def __init__(
        self, task: Task, kind: type[T], sizes: Mapping[str, int] = MappingProxyType({}), **constants: Any
    ) -> None:
        super().__init__(task)
        space, shift = self.space, self.space.shift
        own = {"slot": 0, "row": 0, "entry": 0, "cell": 0, "step": space.horizon, "column": self.columns}
        known = {"shift": shift, "ends": space.ends, "lowest": task.sizes.reward_range[0], "span": task.sizes.span,
                 "order": np.empty(0, np.int64)}  # fmt: skip
        self.store = TableStore(kind, own | {"after": self.columns + shift} | dict(sizes), **(known | constants))
        self.layout = space.layout

    @property
    def tables(self) -> T:
        """The tables that kernels get."""
        return self.store.tables

    @cached_property
    def simulator(self) -> Simulator:
        """The model that episodes are drawn from."""
        model = compiled(self.task)
        payoff = self.payoffs(model.payoffs.reward, model.record_violation, model.payoffs.constraints)
        return Simulator(self.space.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, payoff)

    @cached_property
    def path(self) -> Path:
        """Buffers for an episode of the model."""
        return Path.of_length(self.space.horizon, self.simulator.payoff.shape[1])

    def payoffs(self, reward: Floats, violation: Floats, constraints: Floats) -> Floats:
        """[.., column]: reward, violation, and what else `learn` needs; of [..], [..] and [.., constraint]."""
        return np.stack([reward, violation], axis=1)

    def grow(self, first: int, log: Log) -> None:
        """Enlarge the tables for the slots from `first` on."""
        space, first_row = self.space, self.store.sizes["row"]
        self.layout = space.layout
        self.store.grow(slot=space.slots, row=space.rows, entry=space.rows * self.columns)
        self.store.fill_rows(first, self.layout.row_start)
        for name, new in (("slot_step", first), ("slot_of_row", first_row)):
            if hasattr(self.tables, name):
                getattr(self.tables, name)[new:] = getattr(space, name)[new:]
        if first == 0 and hasattr(self.tables, "words"):
            self.tables.words[:] = seed_state(self.task.seed ^ self.stream)
        self.start(first, first_row, log)

    def start(self, first: int, first_row: int, log: Log) -> None:
        """Set the initial values of the slots from `first` and the rows from `first_row` on, if they are not `fill`."""
        return

    def end_values(self) -> Floats:
        """[end, column (+ 1 if steps share slots)]: value of an end, whose rewards are 0, counted from the lowest."""
        left = self.space.left * (0.0 - self.task.sizes.reward_range[0])
        return left[None, :] if self.space.shift else left[: self.space.ends, None]

    def take_allowed(self, declared: Forbidden) -> None:
        """Take the first row that is not forbidden, if there is one."""
        self.tables.greedy[declared.low :] = declared.replaced(self.tables.greedy[declared.low :])  # type: ignore[attr-defined]

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Call the hook `begin`."""
        if HOOKS[self.store.kind].begin is not do_nothing:
            begin_played(self.tables, self.layout, generator, episode, log)

    def choices(self) -> NDArray[Any]:
        """[slot, column]: the greedy rows."""
        return self.tables.greedy  # type: ignore[attr-defined,no-any-return]  # others override it

    def learn(self, played: Episode, episode: int, log: Log) -> None:
        """Call the hook `learn`."""
        self.store.reserve(len(played.row))
        payoff = self.payoffs(played.reward, played.violation, played.constraints)
        path = Path(np.array([played.first]), played.slot, played.row, played.following, payoff)
        learn_played(self.tables, self.layout, path, len(played.row), episode, log)

    def run(self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs) -> int:
        """Run episodes of the model, fewer if the log is full or the learner pauses."""
        self.store.reserve(self.space.horizon)
        return run_episodes(
            self.simulator, self.tables, self.path, generator, done, episodes, self.log_room, log, experience, counters
        )

    @property
    def proved_in(self) -> int | None:
        """The episode that completed the proof of infeasibility."""
        return int(self.tables.proved[0]) or None if hasattr(self.tables, "proved") else None

    @property
    def dead_first(self) -> int | None:
        """A first state in which every action is known to fail; None if there is none."""
        return int(self.tables.dead_first[0]) if self.proved_in else None  # type: ignore[attr-defined]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return self.store.arrays()

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the tables from a file."""
        self.store.load(arrays)

    def check(self, done: int) -> None:
        """Raise ValueError if a loaded value is out of its declared range, which may name the numbers below."""
        next_plan = done + 1 + max(done, self.batch)
        numbers = {"done": done, "steps": done * self.space.horizon, "next_plan": next_plan}
        self.store.check(self.layout.row_start, numbers)


def compiled(task: Task) -> TabularModel:
    """Return the model that a kernel draws from."""
    assert task.model is not None  # `Trainer` runs kernels on models only
    return task.model


def listed(values: Mapping[str, Any]) -> str:
    """Return keyword arguments as source text."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def describe(error: ValidationError, unknown: str, known: Collection[str] = ()) -> str:
    """Return pydantic's errors as one sentence that names each field and its value.

    `unknown` completes "<field> is ..." for a field that does not exist; `known` are the existing fields.
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
