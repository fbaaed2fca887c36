"""Policies: the action of each step and state, bound to the model they were made for.

`Policy` is a table of one action for each (step, state), `StochasticPolicy` a table of probabilities. A mixture of
policies is in `policy.mixture`. A deterministic policy is stored as `Choices`: the index of the action among those of
its state, row = row_start[slot] + choice, which usually needs one byte instead of the four of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from peakrl.compile import Target, as_space
from peakrl.errors import PolicyError, UnknownStateError
from peakrl.policy.export import ActionView, Exported, Learned, action_views
from peakrl.policy.fallback import Fallback
from peakrl.records import Record
from peakrl.space import StateSpace
from peakrl.types import Floats, Ints

if TYPE_CHECKING:
    from peakrl.safety.safe_set import SafeSet

Rule = Callable[[int, Any], Hashable]
Seed = int | np.random.Generator | None
#: The types of choices by width in bytes, lowest byte first.
TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}


class Draws:
    """The random state of a policy for the current episode."""

    def __init__(self) -> None:
        self._generator: np.random.Generator | None = None
        self.episode = 0

    def begin(self, seed: Seed) -> np.random.Generator:
        """Return the generator; a new one if a seed is given."""
        if seed is not None or self._generator is None:
            self._generator = np.random.default_rng(seed)
        return self._generator

    @property
    def generator(self) -> np.random.Generator:
        """The generator of the last `reset`."""
        if self._generator is None:
            raise PolicyError("this policy draws at random: call reset(seed) before an episode, then action")
        return self._generator


def width_of(space: StateSpace) -> int:
    """Return the bytes of a choice: the fewest that number the actions of every state."""
    return 1 if space.max_actions <= 1 << 8 else 2 if space.max_actions <= 1 << 16 else 4


def table_form(space: StateSpace) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of a table of choices."""
    shape = (space.lines, space.num_slots) if space.stationary else (space.num_slots,)
    return shape, TYPES[width_of(space)]


class Choices:
    """The table of a deterministic policy; read-only. Planners and files pass the table, learners rows."""

    def __init__(self, space: StateSpace, table: NDArray[Any]) -> None:
        table.flags.writeable = False
        self.space = space
        #: [step, slot] for stationary models, else [slot].
        self.table = table

    @classmethod
    def checked(cls, space: StateSpace, table: NDArray[Any]) -> Choices:
        """Return choices from a file, or raise if one is not an action of its state."""
        shape, dtype = table_form(space)
        if table.shape != shape or table.dtype != dtype:
            raise PolicyError(f"choices of {space!r} are {dtype} of shape {shape}, not {table.dtype} of {table.shape}")
        most = np.maximum(np.diff(space.row_start), 1) - 1
        for step, (first, last) in enumerate(space.step_slots.tolist()):
            here = table[step] if space.stationary else table[first:last]
            if (here > most[first:last]).any():
                raise PolicyError(f"a choice at step {step} is not an action of its state")
        return cls(space, table)

    @classmethod
    def of_rows(cls, space: StateSpace, rows: NDArray[Any]) -> Choices:
        """Return choices from [node] rows; raise if one is not an action of its state."""
        if rows.shape != (space.num_nodes,):
            raise PolicyError(f"a policy of {space!r} has {space.num_nodes} nodes, not {rows.shape}")
        if rows.dtype.kind not in "iu":
            raise PolicyError(f"the rows of a policy are integers, not {rows.dtype}")
        shape, dtype = table_form(space)
        choices = rows[: math.prod(shape)].reshape(shape) - space.row_start[:-1]
        sizes = np.diff(space.row_start)
        choices[..., sizes == 0] = 0
        wrong = (choices < 0) | (choices >= np.maximum(sizes, 1))
        if wrong.any():
            node = int(np.flatnonzero(wrong)[0])
            state = space.state_of_slot(node % space.num_slots)
            raise PolicyError(f"row {rows[node]} at node {node} is not an action of state {state!r}")
        return cls(space, choices.astype(dtype))

    def row(self, step: int, slot: int) -> int:
        """Return the chosen row of a stored state; -1 if it has none."""
        start = self.space.row_start
        number = int(self.table[min(step, len(self.table) - 1), slot] if self.space.stationary else self.table[slot])
        return int(start[slot]) + number if start[slot + 1] > start[slot] else -1

    def rows(self, begin: int, end: int) -> Ints:
        """[slot of each step from `begin` to before `end`]: the chosen rows; -1 if a state has none."""
        space, start = self.space, self.space.row_start
        if space.stationary:
            rows, slots = self.table[begin:end].astype(np.int32), slice(None)
        else:
            slots = slice(int(space.stage_start[begin]), int(space.stage_start[end]))
            rows = self.table[slots].astype(np.int32)
        rows += start[:-1][slots].astype(np.int32)
        rows[..., np.diff(start)[slots] == 0] = -1
        return rows.reshape(-1)

    def all_rows(self) -> Ints:
        """[node]: the chosen rows, -1 after the last step."""
        rows = np.full(self.space.num_nodes, -1, np.int32)
        known = self.rows(0, self.space.lines)
        rows[: len(known)] = known
        rows.flags.writeable = False
        return rows


def first_rows(model: StateSpace) -> Ints:
    """[node]: each node's first row; -1 if a state has none."""
    return Choices(model, np.zeros(*table_form(model))).all_rows().copy()


class Policy(Exported):
    """A deterministic policy: one action for each step and state.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> cautious = peakrl.Policy.from_rule(problem, lambda step, state: min(sum(state), 4))
    >>> cautious.action(3, (5, 10))
    4
    """

    def __init__(
        self,
        model: StateSpace,
        rows: NDArray[Any] | Choices,
        learned: Learned | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        #: The model or state space it belongs to.
        self.model = model
        #: The learner that made it, for `explain`; None if it was not learned.
        self.learned = learned
        #: What it does in states of an environment that were not visited; None if that is an error.
        self.fallback = fallback
        #: The table of decisions.
        self.choices = rows if isinstance(rows, Choices) else Choices.of_rows(model, np.asarray(rows))

    @cached_property
    def rows(self) -> Ints:
        """[node]: the chosen row; -1 if a state has no actions."""
        return self.choices.all_rows()

    @classmethod
    def from_rule(cls, model: Target, rule: Rule) -> Policy:
        """Return the table of `rule(step, state) -> action`, called for every reachable state."""
        if not callable(rule):
            raise PolicyError(f"{rule!r} is not a rule; it must be a function of step and state that returns an action")
        model = as_space(model)
        rows = first_rows(model)
        for step, slot, node in model.decisions():
            state = model.state_of_slot(slot)
            try:
                action = rule(step, state)
            except Exception as error:  # of user code: add where it happened
                error.add_note(f"the rule raised this for step {step}, state {state!r}")
                raise
            rows[node] = model.row_of(step, state, action)
        return cls(model, rows)

    @property
    def deterministic(self) -> bool:
        """True: the action depends on step and state only."""
        return True

    @property
    def likeliest(self) -> Policy:
        """The policy itself."""
        return self

    def row(self, step: int, slot: int) -> int:
        """Return the chosen row of a stored state."""
        return self.choices.row(step, slot)

    def action(self, step: int, state: Hashable, actions: Sequence[Hashable] | None = None) -> Hashable:
        """Return the action at `step` in `state`.

        An unknown state is an error unless the policy has a fallback, which takes one of `actions`, by default of all.
        """
        try:
            slot = self.model.slot_of(step, state)
        except UnknownStateError:
            if self.fallback is None:
                raise
            return self.fallback.action(step, state, actions)
        return self.model.action_of_row(self.row(step, slot))

    def probabilities(self, step: int, state: Hashable) -> dict[Hashable, float]:
        """Return {action: probability}."""
        return {self.action(step, state): 1.0}

    def reset(self, seed: Seed = None) -> None:
        """Begin an episode; no effect on a deterministic policy."""

    def explain(self, step: int, state: Hashable) -> list[ActionView]:
        """Return every action of the state with its value and whether it is known to be unsafe."""
        slot = self.model.slot_of(step, state)
        return action_views(self.model, step, slot, {self.row(step, slot): 1.0}, *self._learned)

    @cached_property
    def _learned(self) -> tuple[Any, Any]:
        return (None, None) if self.learned is None else (self.learned.values(), self.learned.known())

    def to_c(self, path: str | Path, *, safe_set: SafeSet | None = None, name: str | None = None) -> str:
        """Write a C99 header with tables in the smallest integers and a lookup function; return its text.

        With `safe_set` also a function that returns which actions are safe. All names in it begin with `name`, by
        default the file's. No memory is allocated and no library is called.
        """
        from peakrl.policy.c_header import write_header

        return write_header(self, path, safe_set, name)

    def _decisions(self, step: int, slot: int) -> Iterator[tuple[Any, ...]]:
        yield (self.row(step, slot),)

    def _choice(self, step: int, state: Hashable) -> Hashable:
        return self.action(step, state)

    def _head(self) -> dict[str, Any]:
        return super()._head() | ({} if self.fallback is None else {"fallback": self.fallback.described()})

    def _stored(self) -> Record:
        record = Record({"form": "deterministic"}, {"choices": self.choices.table})
        if self.fallback is not None:
            record.plain["limited"], record.arrays["fallback"] = self.fallback.limited, self.fallback.rank
        return record


@dataclass(frozen=True, eq=False, repr=False)
class StochasticPolicy(Exported):
    """A policy that draws its action from a distribution at each step and state."""

    _column: ClassVar = ("probability",)

    #: The model or state space it belongs to.
    model: StateSpace
    #: [entry]: probability of the row at the step.
    weights: Floats
    _draws: Draws = field(default_factory=Draws, init=False, repr=False)

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, np.float64)
        if weights.shape != (self.model.num_entries,):
            raise PolicyError(f"a policy of {self.model!r} has {self.model.num_entries} weights, not {weights.shape}")
        start = self.model.row_start
        some = np.diff(start) > 0
        by_step = weights.reshape(-1, self.model.num_rows)
        sums = np.add.reduceat(by_step, start[:-1][some], axis=1)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and np.allclose(sums, 1.0, rtol=0, atol=1e-9)):
            raise PolicyError("a stochastic policy's probabilities must be at least 0 and sum to 1 in every state")
        weights = weights.copy()
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    @property
    def deterministic(self) -> bool:
        """True if every weight is 0 or 1."""
        return bool(np.isin(self.weights, (0.0, 1.0)).all())

    @cached_property
    def likeliest(self) -> Policy:
        """The policy of the most probable action of each step and state, the first if several are."""
        rows, sizes = first_rows(self.model), np.diff(self.model.row_start)
        slots = np.flatnonzero(sizes)
        first, by_step = self.model.row_start[slots], self.weights.reshape(-1, self.model.num_rows)
        most = np.repeat(np.maximum.reduceat(by_step, first, axis=1), sizes[slots], axis=1)
        numbers = np.where(by_step == most, np.arange(self.model.num_rows), self.model.num_rows)
        nodes = np.arange(len(by_step))[:, None] * self.model.node_stride + slots
        rows[nodes] = np.minimum.reduceat(numbers, first, axis=1)
        return Policy(self.model, rows)

    def probabilities(self, step: int, state: Hashable) -> dict[Hashable, float]:
        """Return {action: probability} of the actions with a positive probability."""
        model = self.model
        base = step * model.entry_stride
        rows = model.rows_of_slot(model.slot_of(step, state))
        weights = {model.action_of_row(row): float(self.weights[base + row]) for row in rows}
        return {action: weight for action, weight in weights.items() if weight > 0}

    def reset(self, seed: Seed = None) -> None:
        """Begin an episode; a seed makes its draws repeatable."""
        self._draws.begin(seed)

    def action(self, step: int, state: Hashable) -> Hashable:
        """Draw the action at `step` in `state`; call `reset` first."""
        generator = self._draws.generator
        chances = self.probabilities(step, state)
        index = int(np.searchsorted(np.cumsum(list(chances.values())), generator.random(), side="right"))
        return list(chances)[min(index, len(chances) - 1)]

    def explain(self, step: int, state: Hashable) -> list[ActionView]:
        """Return every action of the state with its probability."""
        slot, base = self.model.slot_of(step, state), step * self.model.entry_stride
        chances = {row: float(self.weights[base + row]) for row in self.model.rows_of_slot(slot)}
        return action_views(self.model, step, slot, chances)

    def _decisions(self, step: int, slot: int) -> Iterator[tuple[Any, ...]]:
        for row in self.model.rows_of_slot(slot):
            chance = float(self.weights[step * self.model.entry_stride + row])
            if chance > 0:
                yield row, chance

    def _stored(self) -> Record:
        return Record({"form": "stochastic"}, {"weights": self.weights})


def simplest_policy(model: StateSpace, weights: Floats) -> Policy | StochasticPolicy:
    """Return the policy with these weights [entry]: a `Policy` if it is deterministic."""
    mixed = StochasticPolicy(model, weights)
    return mixed.likeliest if mixed.deterministic else mixed
