"""The averaged policy of Theorem 1: draw an episode k uniformly from 1..K, then follow pi^k to the end.

Also `AnyPolicy`, the union of all kinds of policies, and the check that a policy belongs to a model.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from peakrl.checks import MOST_EPISODES, check_count
from peakrl.compile import Target, as_model
from peakrl.errors import PolicyError
from peakrl.policy.export import ActionView, Exported, action_views
from peakrl.policy.tables import Draws, Policy, Seed, StochasticPolicy
from peakrl.records import Record
from peakrl.space import StateSpace, frozen
from peakrl.tabular import TabularModel
from peakrl.types import Ints, Longs


@dataclass(frozen=True, eq=False, repr=False)
class AveragedPolicy(Exported):
    """pi-bar of Theorem 1: one of the K policies of a run, drawn at the start of an episode.

    Stored exactly, as pi^1 and a list of changes: from an episode on, a node takes a row.
    """

    _column: ClassVar = ("from_episode",)

    #: The model or state space it belongs to.
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
                raise PolicyError(f"{name} must be a one-dimensional array of integers")
            if column.size and not -(2**31) <= column.min() <= column.max() < 2**31:
                raise PolicyError(f"{name} contains a number that does not fit into 32 bits")
            object.__setattr__(self, name, frozen(column, np.int32))
        episode, node, row = self.change_episode, self.change_node, self.change_row
        if not len(episode) == len(node) == len(row):
            raise PolicyError("the three columns of the change list have different lengths")
        check_count(self.episodes, "episodes of an averaged policy", 1, MOST_EPISODES, error=PolicyError)
        if (episode[:1] < 1).any() or (episode[1:] < episode[:-1]).any():
            raise PolicyError("the change list must be in order of episode, from 1 on")
        if ((node < 0) | (node >= self.model.num_nodes)).any():
            raise PolicyError(f"the change list names a node outside 0..{self.model.num_nodes - 1}")
        start, slot = self.model.row_start, node % self.model.num_slots
        if ((row < start[slot]) | (row >= start[slot + 1])).any():
            raise PolicyError("the change list names a row that is not an action of its state")

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
        """Return the action at `step` in `state` of the policy drawn by `reset`; call it first."""
        _ = self._draws.generator  # raises if `reset` was not called
        return self.action_in(self._draws.episode, step, state)

    def action_in(self, episode: int, step: int, state: Hashable) -> Hashable:
        """Return the action at `step` in `state` of pi^k, k = `episode`."""
        slot = self.model.slot_of(step, state)
        node = step * self.model.node_stride + slot
        start, episodes, rows = self.by_node
        low, high = int(start[node]), int(start[node + 1])
        index = low + int(np.searchsorted(episodes[low:high], episode, side="right"))
        return self.model.action_of_row(int(rows[index - 1] if index > low else self.first[node]))

    def probabilities(self, step: int, state: Hashable) -> dict[Hashable, float]:
        """Return {action: share of the K policies that take it}; an episode follows one of them throughout."""
        views = self.explain(step, state)
        return {view.action: view.probability for view in views if view.probability > 0}

    def explain(self, step: int, state: Hashable) -> list[ActionView]:
        """Return every action of the state with the share of the K policies that take it."""
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

    def _decisions(self, step: int, slot: int) -> Iterator[tuple[Any, ...]]:
        node = step * self.model.node_stride + slot
        yield int(self.first[node]), 1
        for episode, row in self._changes_of(node):
            yield row, episode

    def _head(self) -> dict[str, Any]:
        return super()._head() | {"episodes": self.episodes}

    def _stored(self) -> Record:
        names = ("first", "change_episode", "change_node", "change_row")
        return Record({"form": "averaged", "episodes": self.episodes}, {name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, mixture of {self.episodes:,} policies>"


AnyPolicy = Policy | StochasticPolicy | AveragedPolicy


def model_for(target: Target, policy: AnyPolicy) -> TabularModel:
    """Return the policy's model, which must equal `target` (problems are compiled for the comparison)."""
    own = getattr(policy, "model", None)
    if not isinstance(own, StateSpace) or not hasattr(policy, "action"):
        hint = "pass its .policy" if hasattr(policy, "policy") else "make one with Policy.from_rule(model, rule)"
        hint = "the problem comes first, then the policy" if isinstance(target, Exported) else hint
        raise PolicyError(f"{policy!r} is not a policy; {hint}")
    if own is not target:
        model = as_model(target)
        same = isinstance(own, TabularModel) and own.steps is None and own.same_dynamics(model)
        if not same and own.digest != model.digest:
            hint = "" if isinstance(own, TabularModel) else "; `certify` takes it, by the labels of states and actions"
            raise PolicyError(f"the policy belongs to {own!r}, not to {model!r}{hint}")
    return as_model(own)
