"""Policies: what to do at a step in a state, bound to the model they were made for.

`Policy` is a table of one action for each (step, state), `StochasticPolicy` a table of probabilities, and
`AveragedPolicy` the mixture of Theorem 1: draw an episode k uniformly from 1..K, then follow pi^k to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import MOST_EPISODES, check_count
from peakrl.errors import PolicyError
from peakrl.kernels.arrays import Floats, Ints, Longs
from peakrl.kernels.reachability import NO_NODE, NO_ROW, UNORDERED, change_fault
from peakrl.model.explore import Target, as_model, as_space
from peakrl.model.space import StateSpace, frozen
from peakrl.model.tabular import TabularModel
from peakrl.policy.choices import Choices
from peakrl.policy.draws import Draws, Seed
from peakrl.policy.export import ActionView, Exported, Learned, Table, action_views, decision, verdict

if TYPE_CHECKING:
    from peakrl.safety.safe_set import SafeSet

Rule = Callable[[int, Any], Hashable]


def first_rows(model: StateSpace) -> Ints:
    """[node]: each node's row of lowest index; -1 where a state has none."""
    start = model.row_start
    slots = np.where(start[1:] > start[:-1], start[:-1], -1).astype(np.int32)
    rows = by_node(model, slots)
    if model.stationary:
        rows[-model.num_slots :] = -1
    return rows


def by_node(model: StateSpace, slots: NDArray[Any]) -> NDArray[Any]:
    """[node]: what holds for each slot, repeated step by step where the model is stationary."""
    return slots if len(slots) == model.num_nodes else np.tile(slots, model.num_nodes // len(slots))


def checked_rows(model: StateSpace, rows: NDArray[Any]) -> Ints:
    """Return [node] rows, read-only and with -1 where a state has none, or raise where one is not its state's."""
    if rows.shape != (model.num_nodes,):
        raise PolicyError(f"a policy of {model!r} has {model.num_nodes} nodes, not {rows.shape}")
    if rows.dtype.kind not in "iu":
        raise PolicyError(f"a policy's rows are whole numbers, not {rows.dtype}")
    start = model.row_start
    empty = first_rows(model) < 0
    least, most = by_node(model, start[:-1]), by_node(model, start[1:])
    wrong = ~empty & ((rows < least) | (rows >= most))
    if wrong.any():
        node = int(np.flatnonzero(wrong)[0])
        state = model.state_of_slot(node % model.num_slots)
        raise PolicyError(f"row {rows[node]} at node {node} is no action of state {state!r}")
    checked: Ints = np.where(empty, -1, rows.astype(np.int64)).astype(np.int32)  # of 8 unsigned bits, -1 is 255
    checked.flags.writeable = False
    return checked


def model_for(target: Target, policy: Policy | StochasticPolicy | AveragedPolicy) -> TabularModel:
    """Return the policy's model, which must equal `target` (a problem is compiled to find that out)."""
    own = getattr(policy, "model", None)
    if not isinstance(own, StateSpace) or not hasattr(policy, "action"):
        hint = "pass its .policy" if hasattr(policy, "policy") else "make one with Policy.from_rule(model, rule)"
        hint = "the problem comes first, then the policy" if isinstance(target, Exported) else hint
        raise PolicyError(f"{policy!r} is not a policy; {hint}")
    if own is not target:
        model = as_model(target)
        if own.digest != model.digest:
            raise PolicyError(f"the policy belongs to {own!r}, not to {model!r}")
    return as_model(own)


class Policy(Exported):
    """A deterministic policy: one action for each step and state."""

    def __init__(self, model: StateSpace, rows: NDArray[Any] | Choices, learned: Learned | None = None) -> None:
        #: What it was made for.
        self.model = model
        #: The learner that made it, which `explain` asks; None where it was not learned.
        self.learned = learned
        #: What it takes, in few bytes, where a planner made it; None where `rows` came as such.
        self.choices = rows if isinstance(rows, Choices) else None
        if not isinstance(rows, Choices):
            self.rows = checked_rows(model, np.asarray(rows))

    @cached_property
    def rows(self) -> Ints:
        """[node]: the chosen row; -1 where a state has no actions."""
        assert self.choices is not None
        return self.choices.all_rows()

    def step_rows(self, step: int) -> Ints:
        """[slot of the step]: the chosen rows."""
        if self.choices is not None:
            return self.choices.rows(step)
        (first, last), base = self.model.step_slots[step].tolist(), step * self.model.node_stride
        return self.rows[base + first : base + last]

    @classmethod
    def from_rule(cls, model: Target, rule: Rule) -> Policy:
        """Return the table of `rule(step, state) -> action`, asked at every state that can be reached."""
        if not callable(rule):
            raise PolicyError(f"{rule!r} is not a rule; it must be a function of step and state that returns an action")
        model = as_space(model)
        rows = first_rows(model).copy()
        lookup: dict[tuple[int, Hashable], int] = {}
        for step, slot, node in model.decisions():
            state = model.state_of_slot(slot)
            try:
                action = rule(step, state)
            except Exception as error:  # of the user's own code: theirs to read, and we know where it happened
                error.add_note(f"the rule raised this for step {step}, state {state!r}")
                raise
            try:
                row = lookup.get((slot, action))
            except TypeError:
                raise PolicyError(f"the rule's action {action!r} at step {step} is not hashable") from None
            if row is None:
                row = lookup[slot, action] = model.row_of(step, state, action)
            rows[node] = row
        return cls(model, rows)

    @property
    def deterministic(self) -> bool:
        """True: the same action whenever a state is met at a step."""
        return True

    @property
    def likeliest(self) -> Policy:
        """The policy itself, which draws nothing."""
        return self

    def row(self, step: int, slot: int) -> int:
        """Return the chosen row of a stored state."""
        if self.choices is not None:
            return self.choices.row(step, slot)
        return int(self.rows[step * self.model.node_stride + slot])

    def action(self, step: int, state: Hashable) -> Hashable:
        """Return the action at `step` in `state`; a state that the model does not know there is an error."""
        return self.model.action_of_row(self.row(step, self.model.slot_of(step, state)))

    def probabilities(self, step: int, state: Hashable) -> dict[Hashable, float]:
        """Return {action: probability}."""
        return {self.action(step, state): 1.0}

    def reset(self, seed: Seed = None) -> None:
        """Begin an episode: nothing is drawn."""

    def explain(self, step: int, state: Hashable) -> list[ActionView]:
        """Return what is known of every action on offer: its value, and whether it is known to fail."""
        slot = self.model.slot_of(step, state)
        return action_views(self.model, step, slot, {self.row(step, slot): 1.0}, *self._learned_tables)

    @cached_property
    def _learned_tables(self) -> tuple[Any, Any]:
        return (None, None) if self.learned is None else (self.learned.values(), self.learned.known())

    def to_c(self, path: str | Path, *, safe_set: SafeSet | None = None, name: str | None = None) -> str:
        """Write a C99 header: tables in the smallest integers and a function for the decision; return its text.

        With `safe_set` also one that says which actions are safe. All names in it begin with `name`, by default the
        file's. No memory is allocated and no library is called.
        """
        from peakrl.policy.c_header import write_header

        return write_header(self, path, safe_set, name)

    def _table(self) -> Table:
        model, known = self.model, self._learned_tables[1]
        rows = (decision(model, step, slot, self.row(step, slot), known) for step, slot, _ in model.decisions())
        return ("step", "state", "action", "safe"), rows

    def _choice(self, step: int, state: Hashable) -> Hashable:
        return self.action(step, state)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.choices is not None:
            return {"form": self.choices.form}, self.choices.arrays
        return {"form": "deterministic"}, {"rows": self.rows}


@dataclass(frozen=True, eq=False, repr=False)
class StochasticPolicy(Exported):
    """A policy that draws its action from a distribution at each step and state."""

    #: What it was made for.
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
        """True when every weight is 0 or 1."""
        return bool(np.isin(self.weights, (0.0, 1.0)).all())

    @cached_property
    def likeliest(self) -> Policy:
        """The likeliest action of each step and state, of equal ones the first: simpler, but another policy."""
        rows, sizes = first_rows(self.model).copy(), np.diff(self.model.row_start)
        slots = np.flatnonzero(sizes)
        first, by_step = self.model.row_start[slots], self.weights.reshape(-1, self.model.num_rows)
        most = np.repeat(np.maximum.reduceat(by_step, first, axis=1), sizes[slots], axis=1)
        numbers = np.where(by_step == most, np.arange(self.model.num_rows), self.model.num_rows)
        nodes = np.arange(len(by_step))[:, None] * self.model.node_stride + slots
        rows[nodes] = np.minimum.reduceat(numbers, first, axis=1)
        return Policy(self.model, rows)

    def probabilities(self, step: int, state: Hashable) -> dict[Hashable, float]:
        """Return {action: probability}, actions of probability 0 left out."""
        model = self.model
        base = step * model.entry_stride
        rows = model.rows_of_slot(model.slot_of(step, state))
        weights = {model.action_of_row(row): float(self.weights[base + row]) for row in rows}
        return {action: weight for action, weight in weights.items() if weight > 0}

    def reset(self, seed: Seed = None) -> None:
        """Begin an episode; a seed makes its draws repeatable."""
        self._draws.begin(seed)

    def action(self, step: int, state: Hashable) -> Hashable:
        """Draw the action at `step` in `state`; `reset` comes first."""
        generator = self._draws.generator
        chances = self.probabilities(step, state)
        place = int(np.searchsorted(np.cumsum(list(chances.values())), generator.random(), side="right"))
        return list(chances)[min(place, len(chances) - 1)]

    def explain(self, step: int, state: Hashable) -> list[ActionView]:
        """Return what is known of every action on offer, and how likely it is."""
        slot, base = self.model.slot_of(step, state), step * self.model.entry_stride
        chances = {row: float(self.weights[base + row]) for row in self.model.rows_of_slot(slot)}
        return action_views(self.model, step, slot, chances)

    def _table(self) -> Table:
        model = self.model
        rows = (
            (step, model.state_of_slot(slot), model.action_of_row(row), chance, verdict(model, step, row))
            for step, slot, _ in model.decisions()
            for row in model.rows_of_slot(slot)
            if (chance := float(self.weights[step * model.entry_stride + row])) > 0
        )
        return ("step", "state", "action", "probability", "safe"), rows

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"form": "stochastic"}, {"weights": self.weights}


def simplest_policy(model: StateSpace, weights: Floats) -> Policy | StochasticPolicy:
    """Return the policy with these weights [entry]: a table of one action each where no action has to be drawn."""
    mixed = StochasticPolicy(model, weights)
    return mixed.likeliest if mixed.deterministic else mixed


@dataclass(frozen=True, eq=False, repr=False)
class AveragedPolicy(Exported):
    """pi-bar of Theorem 1: one of the K policies that learning went through, drawn at the start of an episode.

    Stored exactly, as changes: pi^1 is given, and each change says which node takes which row from which episode on.
    """

    #: What it was made for.
    model: StateSpace
    #: K, the number of policies mixed.
    episodes: int
    #: [node]: the rows of pi^1.
    first: Ints
    #: [change], in order: from this episode on (1-based) ...
    change_episode: Ints
    #: [change]: ... this node ...
    change_node: Ints
    #: [change]: ... takes this row.
    change_row: Ints
    _draws: Draws = field(default_factory=Draws, init=False, repr=False)

    def __post_init__(self) -> None:
        rows = Policy(self.model, self.first).rows  # validates pi^1
        object.__setattr__(self, "first", rows)
        for name in ("change_episode", "change_node", "change_row"):
            column = np.asarray(getattr(self, name))
            if column.ndim != 1 or (column.dtype.kind not in "iu" and column.size):
                raise PolicyError(f"{name} must be a flat array of whole numbers")
            if column.size and not -(2**31) <= column.min() <= column.max() < 2**31:
                raise PolicyError(f"{name} holds a number that does not fit into 32 bits")
            object.__setattr__(self, name, frozen(column, np.int32))
        episode, node, row = self.change_episode, self.change_node, self.change_row
        if not len(episode) == len(node) == len(row):
            raise PolicyError("the three columns of the change list have different lengths")
        check_count(self.episodes, "episodes of an averaged policy", 1, MOST_EPISODES, error=PolicyError)
        node_slot = np.resize(np.arange(self.model.num_slots, dtype=np.int32), self.model.num_nodes)
        fault = change_fault(self.model.row_start, node_slot, episode, node, row)
        if fault == UNORDERED:
            raise PolicyError("the change list must be in order of episode, from 1 on")
        if fault == NO_NODE:
            raise PolicyError(f"the change list names a node outside 0..{self.model.num_nodes - 1}")
        if fault == NO_ROW:
            raise PolicyError("the change list names a row that is no action of its state")

    @property
    def num_changes(self) -> int:
        """Length of the change list."""
        return len(self.change_episode)

    @property
    def nbytes(self) -> int:
        """Bytes of the change list."""
        return self.change_episode.nbytes + self.change_node.nbytes + self.change_row.nbytes

    @cached_property
    def by_node(self) -> tuple[Longs, Ints, Ints]:
        """The changes grouped by node: start [node + 1], episode [change], row [change]."""
        order = np.argsort(self.change_node, kind="stable")
        start = np.searchsorted(self.change_node[order], np.arange(self.model.num_nodes + 1))
        grouped = frozen(self.change_episode[order], np.int32), frozen(self.change_row[order], np.int32)
        return frozen(start, np.int64), *grouped

    def policy(self, episode: int) -> Policy:
        """Return pi^k for k = `episode`, 1..K."""
        if not 1 <= episode <= self.episodes:
            raise PolicyError(f"episode {episode} is outside 1..{self.episodes}")
        rows = self.first.copy()
        count = int(np.searchsorted(self.change_episode, episode, side="right"))
        # Later changes of a node overwrite earlier ones: numpy assigns in order.
        rows[self.change_node[:count]] = self.change_row[:count]
        return Policy(self.model, rows)

    def sample(self, seed: int | np.random.Generator = 0) -> Policy:
        """Draw an episode uniformly and return its policy, to be followed for one whole episode."""
        generator = np.random.default_rng(seed)
        return self.policy(int(generator.integers(1, self.episodes + 1)))

    def reset(self, seed: Seed = None) -> int:
        """Begin an episode: draw which of the K policies it follows, and return its number.

        A seed makes this draw and those after it repeatable.
        """
        self._draws.episode = int(self._draws.begin(seed).integers(1, self.episodes + 1))
        return self._draws.episode

    def action(self, step: int, state: Hashable) -> Hashable:
        """Return the action at `step` in `state` of the policy drawn by `reset`, which comes first."""
        _ = self._draws.generator  # which says so where `reset` is missing
        return self.action_in(self._draws.episode, step, state)

    def action_in(self, episode: int, step: int, state: Hashable) -> Hashable:
        """Return the action at `step` in `state` of pi^k, k = `episode`."""
        slot = self.model.slot_of(step, state)
        node = step * self.model.node_stride + slot
        start, episodes, rows = self.by_node
        low, high = int(start[node]), int(start[node + 1])
        place = low + int(np.searchsorted(episodes[low:high], episode, side="right"))
        return self.model.action_of_row(int(rows[place - 1] if place > low else self.first[node]))

    def probabilities(self, step: int, state: Hashable) -> dict[Hashable, float]:
        """Return {action: share of the K policies that take it}; an episode follows one of them throughout."""
        views = self.explain(step, state)
        return {view.action: view.probability for view in views if view.probability > 0}

    def explain(self, step: int, state: Hashable) -> list[ActionView]:
        """Return every action on offer with the share of the K policies that take it."""
        slot = self.model.slot_of(step, state)
        node = step * self.model.node_stride + slot
        shares: dict[int, float] = {}
        since, row = 1, int(self.first[node])
        for episode, following in (*self._changes_of(node), (self.episodes + 1, -1)):
            until = min(episode, self.episodes + 1)
            shares[row] = shares.get(row, 0.0) + (until - since) / self.episodes
            since, row = until, following
        return action_views(self.model, step, slot, shares)

    def _changes_of(self, node: int) -> list[tuple[int, int]]:
        start, episodes, rows = self.by_node
        here = slice(int(start[node]), int(start[node + 1]))
        return list(zip(episodes[here].tolist(), rows[here].tolist(), strict=True))

    def _table(self) -> Table:
        model = self.model
        rows = (
            (step, model.state_of_slot(slot), episode, model.action_of_row(row), verdict(model, step, row))
            for step, slot, node in model.decisions()
            for episode, row in ((1, int(self.first[node])), *self._changes_of(node))
        )
        return ("step", "state", "from_episode", "action", "safe"), rows

    def _head(self) -> dict[str, Any]:
        return super()._head() | {"episodes": self.episodes}

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        names = ("first", "change_episode", "change_node", "change_row")
        return {"form": "averaged", "episodes": self.episodes}, {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, mixture of {self.episodes:,} policies>"


AnyPolicy = Policy | StochasticPolicy | AveragedPolicy
