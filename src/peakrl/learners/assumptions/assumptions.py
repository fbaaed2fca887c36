"""What users declare about a target (`Assumptions`), checked on models and prepared for kernels.

Declarations belong to the problem, not to the learner. A false declaration is an error on a model. On an environment it
is trusted until an observation contradicts it (`learners.assumptions.contradictions`).

`Assumptions(dynamics=(g, noises))` declares s' = g(s, a, noise), None at the end of an episode, with independent and
identically distributed noises. The noise of a step is identified by the next state, so two noises may not lead from the
same pair to the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from peakrl.checks import shown
from peakrl.errors import SettingsError, TargetError
from peakrl.learners.base import describe, listed
from peakrl.learners.space import Space
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Longs
from peakrl.visited import label_of

Dependence = Literal["pair", "action", "state"]
#: (step, state, action) -> value, or a key that pairs share.
Function = Callable[[int, Any, Any], Any]


class Assumptions(BaseModel):
    """What is declared about a target; None if not specified."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

    #: True: nothing depends on the step.
    stationary: bool | None = None
    #: Number of states; an upper bound for the certified learner.
    states: int | None = None
    #: Largest reward of a step without violation, if it is below the reward range.
    max_reward: float | None = None
    #: The reward of a pair: a function (step, state, action), or True: it is known from the model or, for environments,
    #: depends on nothing else.
    rewards: bool | Function | None = None
    #: What the constraints depend on: an observed violation counts for everything that shares it.
    constraint_depends_on: Dependence | None = None
    #: Which pairs share the distribution of the next state: True, as in the model, or a function (step, state, action)
    #: that returns the same key for them.
    shared_transitions: bool | Function | None = None
    #: (g, noises): the next state is g(state, action, noise), None at the end of an episode; the noises are independent
    #: and identically distributed, with an unknown distribution.
    dynamics: tuple[Callable[[Any, Any, Any], Any], tuple[Any, ...]] | None = None
    #: True: neither the first state nor any outcome is random.
    deterministic: bool | None = None
    #: A model or `Problem` whose possible outcomes include all real ones, with the real constraints; its probabilities
    #: may be wrong. Learners never leave its safe set.
    support: Any = None
    #: A function (step, state, action) -> constraint value or values, >= 0 if satisfied; other actions are never tried.
    constraints: Function | None = None
    #: A `Policy`, or a function (step, state) -> action or None, that satisfies every constraint wherever it returns an
    #: action. Learners follow it if nothing else is known to be safe.
    safe_policy: Any = None

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(
                describe(error, "not a declaration of Assumptions", list(type(self).model_fields))
            ) from None

    def __repr__(self) -> str:
        return f"Assumptions({listed(self.declared())})"

    __str__ = __repr__

    def check_model(self, model: TabularModel) -> None:
        """Raise if a declaration is false for the model, or redundant."""
        if self.stationary and not model.stationary:
            raise SettingsError(
                f"stationary is True, but in {model.name!r} states belong to steps: its dynamics depend on the step, "
                "or no state occurs at two steps. Leave stationary out"
            )
        if self.deterministic and not model.deterministic:
            raise SettingsError(f"deterministic is True, but in {model.name!r} something is random. Leave it out")
        if self.states is not None:
            raise SettingsError("states is declared, but a model has it already: leave it out")

    def declared(self) -> dict[str, Any]:
        """Return what is declared, by name."""
        return {name: value for name, value in self if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a file; functions are stored by name."""
        return {name: plain(value) for name, value in self.declared().items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Assumptions:
        """Restore declarations from `as_dict`; raise for functions."""
        for name, value in values.items():
            if isinstance(value, dict):
                what = " ".join(f"the {kind} {shown}" for kind, shown in value.items())
                raise SettingsError(f"{name} is {what}, which is not stored in files: pass it again")
        return cls(**values)


def plain(value: Any) -> Any:
    """Return a declaration as a plain value."""
    if isinstance(value, tuple):
        return {"function": getattr(value[0], "__qualname__", repr(value[0])), "noises": len(value[1])}
    if callable(value):
        return {"function": getattr(value, "__qualname__", repr(value))}
    return value if isinstance(value, bool | int | float | str) else {"object": repr(value)}


#: Nothing is declared.
NOTHING = Assumptions()
#: Relative tolerance of declared rewards.
ROUNDING = 1e-12


def distributions_of_rows(model: TabularModel | None, assumptions: Assumptions) -> Ints:
    """[row]: number of its declared distribution of the next state; empty if not declared."""
    if model is None:
        return np.empty(0, np.int32)
    groups = assumptions.shared_transitions
    if groups is True:
        return model.layout.row_distribution.astype(np.int32)
    if callable(groups):
        return grouped_distributions(model, groups)
    return np.empty(0, np.int32)


def grouped_distributions(model: TabularModel, key_of: Any) -> Ints:
    """[row]: number of its group, by a key function of step, state and action; checked against the model."""
    distributions = np.empty(model.num_rows, np.int32)
    numbers: dict[Any, int] = {}
    for step, (first, last) in enumerate(model.layout.step_slots.tolist()):
        if step and model.stationary:
            break
        for slot in range(first, last):
            for row in model.rows_of_slot(slot):
                key = (
                    0 if model.stationary else step,
                    key_of(step, model.state_of_slot(slot), model.action_of_row(row)),
                )
                distributions[row] = numbers.setdefault(key, len(numbers))
    first_of = np.full(len(numbers), -1)
    first_of[distributions[::-1]] = np.arange(model.num_rows)[::-1]
    own, shared = model.layout.row_distribution, model.layout.row_distribution[first_of[distributions]]
    wrong = np.flatnonzero(own != shared)
    if wrong.size:
        row, other = int(wrong[0]), int(first_of[distributions[wrong[0]]])
        raise SettingsError(
            f"shared_transitions puts {pair_label(model, row)} and {pair_label(model, other)} "
            "into one group, but their distributions of the next state differ"
        )
    return distributions


def distribution_starts(space: Space, distribution_of_row: Ints, start: Floats) -> Floats:
    """[distribution, column]: optimistic initial values, from `start` [column] or, in a layered model, [slot]."""
    distributions = int(distribution_of_row.max()) + 1
    if space.shared:
        return np.tile(start, (distributions, 1))
    by_distribution = np.zeros((distributions, 1))
    # All rows of a distribution belong to one step, because their next slots do.
    by_distribution[distribution_of_row, 0] = start[space.slot_of_row]
    return by_distribution


NO_INTS: Ints = np.empty(0, np.int32)


class Groups(NamedTuple):
    """Rows with the same constraints: group g is rows[start[g]] .. rows[start[g+1]]. Empty: each row is a group."""

    of_row: Ints
    start: Longs
    rows: Ints


NO_GROUPS = Groups(NO_INTS, np.zeros(1, np.int64), NO_INTS)


def group_keys(space: Space, depends_on: str) -> Longs:
    """[row]: number of what its constraints are declared to depend on."""
    state, action = space.slot_state[space.slot_of_row].astype(np.int64), space.row_action.astype(np.int64)
    if depends_on == "pair":
        return np.asarray(state * (int(action.max(initial=0)) + 1) + action)
    return state if depends_on == "state" else action


def make_groups(space: Space, depends_on: str, model: TabularModel | None) -> Groups:
    """Group the rows that are declared to have the same constraints; raise if the model contradicts."""
    _, group = np.unique(group_keys(space, depends_on), return_inverse=True)
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 2))
    if model is not None:
        check_groups(model, depends_on, group, order[start[:-1]])
    return Groups(group.astype(np.int32), start.astype(np.int64), order.astype(np.int32))


def known_violations(space: Space, depends_on: str, max_violation: Floats, first: int) -> Floats:
    """[row - first]: the largest violation of rows before `first` with the same constraints; 0 if none is known."""
    keys = group_keys(space, depends_on)
    largest = np.zeros(int(keys.max(initial=0)) + 1)
    np.maximum.at(largest, keys[:first], max_violation[:first])
    return np.asarray(largest[keys[first:]])


def check_groups(model: TabularModel, depends_on: str, group: NDArray[Any], first: NDArray[Any]) -> None:
    """Raise if only some rows of a group may violate."""
    fails: NDArray[np.bool_] = np.any(model.row_margin < 0, axis=1)
    mixed = np.flatnonzero(fails != fails[first][group])
    if mixed.size:
        row, other = int(mixed[0]), int(first[group[mixed[0]]])
        raise SettingsError(
            f'constraint_depends_on is "{depends_on}", but the constraints differ for '
            f"{pair_label(model, row)} and {pair_label(model, other)}"
        )


def pair_label(model: TabularModel, row: int) -> str:
    """Return "state s, action a" of a row."""
    return f"state {model.state_of_slot(int(model.slot_of_row[row]))!r}, action {model.action_of_row(row)!r}"


def check_max_reward(model: TabularModel | None, max_reward: float | None) -> None:
    """Raise if an outcome of a pair that never violates earns more than declared."""
    if max_reward is None or model is None:
        return
    earned = model.row_most_reward
    above = (model.row_margin >= 0).all(axis=1) & (earned > max_reward + ROUNDING * abs(max_reward))
    if above.any():
        row = int(np.flatnonzero(above)[0])
        raise SettingsError(
            f"max_reward is {max_reward}, but {pair_label(model, row)} earns {earned[row]:g} without a violation"
        )


Declared = tuple[Callable[[Any, Any, Any], Any], tuple[Any, ...]]


class Dynamics:
    """The next states of a pair, by noise."""

    def __init__(self, declared: Declared, space: Space) -> None:
        self.rule, self.noises = declared
        self.space = space
        #: [row]: computed on demand.
        self._reached: dict[int, dict[Hashable, int]] = {}

    def reached(self, row: int) -> dict[Hashable, int]:
        """Return {next state: index of the noise}, in the order of the noises."""
        if row not in self._reached:
            self._reached[row] = self._ask(row)
        return self._reached[row]

    def _ask(self, row: int) -> dict[Hashable, int]:
        state, action = self.space.state_of_slot(int(self.space.slot_of_row[row])), self.space.action_of_row(row)
        found: dict[Hashable, int] = {}
        for number, noise in enumerate(self.noises):
            after = label(self.rule(state, action, noise))
            if found.setdefault(after, number) != number:
                raise SettingsError(
                    f"dynamics leads from state {state!r}, action {action!r} to {named(after)} by the noises "
                    f"{self.noises[found[after]]!r} and {noise!r}, so that the next state does not identify the noise"
                )
        return found

    def check(self, row: int, after: Hashable) -> None:
        """Raise if no noise leads from a pair to the observed next state."""
        reached = self.reached(row)
        if after not in reached:
            state, action = self.space.state_of_slot(int(self.space.slot_of_row[row])), self.space.action_of_row(row)
            others = ", ".join(map(named, list(reached)[:5])) + (" and others" if len(reached) > 5 else "")
            raise TargetError(
                f"state {state!r}, action {action!r} led to {named(after)}, which no noise of the declared dynamics "
                f"explains: it can lead to {others} only"
            )


def label(reached: Any) -> Hashable:
    """Return the label of a state; None for the end."""
    try:
        hash(reached)
    except TypeError:
        try:
            return label_of(reached)
        except TargetError:
            raise SettingsError(f"dynamics leads to {shown(reached)}, which is not a state") from None
    known: Hashable = reached
    return known


def named(state: Hashable) -> str:
    """Return a state, or "the end"."""
    return "the end" if state is None else repr(state)
