"""`Assumptions`: what users declare about a target, prepared for kernels and compared with the target.

Declarations belong to the problem, not to the learner. A false declaration is an error on a model, before the first
episode: everything that the allowed actions can reach is checked, so that a message names a step and a state that can
occur. On an environment a declaration is trusted until an observation contradicts it.

`Limits`         actions that declarations forbid; learners avoid them from the first episode on:

    support=model      every action outside of the safe set of that model; it must have all possible outcomes and the
                       real constraints, but its probabilities may be wrong
    constraints=f      every action with f(step, state, action) < 0; dead ends are still learned
    safe_policy=pi     every action except that of pi, and except what a support proves: actions that violate nothing
                       and lead, by all outcomes of the support, to states in which pi has an action or another one is
                       proved in turn (`safety.safe_policy`)

`Observations`   what the steps of an environment may contradict beside these:

    deterministic    an action had another outcome, reward or constraint than before; another first state
    rewards          an action had another reward than declared or (True) than before
    max_reward       an action without a violation had a larger reward
    dynamics         an action led to a state to which no noise leads

`Assumptions(dynamics=(g, noises))` declares s' = g(s, a, noise), None at the end of an episode, with independent and
identically distributed noises. The noise of a step is identified by the next state, so two noises may not lead from the
same pair to the same state. Shared distributions and shared constraints may be random: no single observation
contradicts them. The number of states is checked where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from peakrl.checks import ROUNDING, shown
from peakrl.compile import as_model
from peakrl.errors import PolicyError, SettingsError, TargetError
from peakrl.gym.adapter import Rules, Step
from peakrl.learners.base import describe, listed
from peakrl.learners.space import GrowingSpace, ModelSpace, Space
from peakrl.safety.safe_policy import SafePolicy
from peakrl.safety.safe_set import SafeSet
from peakrl.specs.functions import described
from peakrl.tabular import TabularModel
from peakrl.types import Bools, Floats, Ints, Longs
from peakrl.visited import label_of

Refusal = type[SettingsError] | type[TargetError]
Dependence = Literal["pair", "action", "state"]
#: (step, state, action) -> value, or a key that pairs share.
Function = Callable[[int, Any, Any], Any]


class Assumptions(BaseModel):
    """What is declared about a target; None if not specified.

    A false declaration is an error on a model. On an environment it is trusted until an observation contradicts it.

    Examples
    --------
    >>> import peakrl
    >>> model = peakrl.compile_model(peakrl.problems.energy_harvesting(peak_power=3, battery=4, horizon=4))
    >>> run = peakrl.learn(model, episodes=200, assumptions=peakrl.Assumptions(support=model))
    >>> run.violations  # learners stay inside the safe set of the support
    0
    """

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

    def check_environment(self, rules: Rules) -> None:
        """Raise if a declaration has labels and the environment of a problem shows indices instead."""
        has_model = isinstance(getattr(self.safe_policy, "model", None), TabularModel)
        for name, labelled in (("support", self.support is not None), ("safe_policy", has_model)):
            if labelled and not rules.shows_labels:
                raise SettingsError(
                    f"{name} has labels of states and actions, but {rules.name} shows their indices (env.states, "
                    "env.actions), so that they do not match: learn on the problem itself, learn(problem, ...)"
                )

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
                kind, shown = next(iter(value.items()))
                raise SettingsError(
                    f"{name} was declared as the {kind} {shown}, which no file can hold: pass the same "
                    f"assumptions=peakrl.Assumptions({name}=...) to peakrl.load or peakrl.resume (commands cannot)"
                )
        return cls(**values)


def plain(value: Any) -> Any:
    """Return a declaration as a plain value."""
    if isinstance(value, tuple):
        return described(value[0]) | {"noises": repr(value[1])}
    if callable(value):
        return described(value)
    return value if isinstance(value, bool | int | float | str) else {"object": repr(value)}


#: Nothing is declared.
NOTHING = Assumptions()
NO_INTS: Ints = np.empty(0, np.int32)


# Shared distributions and constraints ---------------------------------------------------------------------------------


def pairs(space: Space, first: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield step (0 if all steps share it), state and action of the rows from `first` on."""
    slots, steps = space.slot_of_row, space.slot_step
    for row in range(first, space.rows):
        slot = int(slots[row])
        yield 0 if space.shared else int(steps[slot]), space.state_of_slot(slot), space.action_of_row(row)


def numbered(space: Space, first: int, key_of: Function, numbers: dict[Any, int]) -> Longs:
    """[row - first]: the number of its step and key; a new one gets the next of `numbers`."""
    keys = ((pair[0], key_of(*pair)) for pair in pairs(space, first))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def distributions_of_rows(space: ModelSpace, assumptions: Assumptions) -> Longs:
    """[row]: number of its declared distribution of the next state."""
    key_of, model = assumptions.shared_transitions, space.model
    own = model.row_distribution
    if not callable(key_of):
        return own.astype(np.int64)
    distributions = numbered(space, 0, key_of, {})
    _, first = np.unique(distributions, return_index=True)
    wrong = np.flatnonzero(own != own[first[distributions]])
    if wrong.size:
        row, other = int(wrong[0]), int(first[distributions[wrong[0]]])
        raise SettingsError(
            f"shared_transitions puts {pair_label(model, row)} and {pair_label(model, other)} "
            "into one group, but their distributions of the next state differ"
        )
    return distributions


class Groups(NamedTuple):
    """Rows with the same constraints: group g is rows[start[g]] .. rows[start[g+1]]. Empty: each row is a group."""

    of_row: Ints
    start: Longs
    rows: Ints


NO_GROUPS = Groups(NO_INTS, np.zeros(1, np.int64), NO_INTS)


def group_keys(space: Space, depends_on: str, rows: Longs | slice = slice(None)) -> Longs:
    """[row]: number of what the constraints of these rows are declared to depend on."""
    state, action = space.slot_state[space.slot_of_row[rows]].astype(np.int64), space.row_action[rows].astype(np.int64)
    if depends_on == "pair":
        return np.asarray(state * (int(action.max(initial=0)) + 1) + action)
    return state if depends_on == "state" else action


def make_groups(space: Space, depends_on: str, model: TabularModel | None) -> Groups:
    """Group the rows that are declared to have the same constraints; raise if the model contradicts."""
    _, group = np.unique(group_keys(space, depends_on), return_inverse=True)
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 2))
    if model is not None:
        fails: NDArray[np.bool_] = np.any(model.row_margin < 0, axis=1)
        first = order[start[:-1]][group]
        mixed = np.flatnonzero(fails != fails[first])
        if mixed.size:
            row, other = int(mixed[0]), int(first[mixed[0]])
            raise SettingsError(
                f'constraint_depends_on is "{depends_on}", but the constraints differ for '
                f"{pair_label(model, row)} and {pair_label(model, other)}"
            )
    return Groups(group.astype(np.int32), start.astype(np.int64), order.astype(np.int32))


def known_violations(space: Space, depends_on: str, max_violation: Floats, first: int) -> Floats:
    """[row - first]: the largest violation of rows before `first` with the same constraints; 0 if none is known."""
    bad = np.flatnonzero(max_violation[:first])
    keys = group_keys(space, depends_on, np.append(bad, np.arange(first, space.rows)))
    _, group = np.unique(keys, return_inverse=True)
    largest = np.zeros(len(group))
    np.maximum.at(largest, group[: len(bad)], max_violation[bad])
    return np.asarray(largest[group[len(bad) :]])


def pair_label(space: Space | TabularModel, row: int) -> str:
    """Return "state s, action a" of a row."""
    return f"state {space.state_of_slot(int(space.slot_of_row[row]))!r}, action {space.action_of_row(row)!r}"


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


# Actions that declarations forbid -----------------------------------------------------------------------------------


class Forbidden(NamedTuple):
    """What declarations forbid in the rows from `first` on, which are those of the slots from `low` on."""

    first: int
    low: int
    #: [row - first, column]
    entries: Bools
    #: [row - first]: declared violation of the row itself; 0 if it leads to violations or is not known to be safe.
    max_violation: Floats
    #: [slot - low, column]: the first row that is not forbidden (-1: none), and the number of such rows.
    best: Longs
    counts: Longs
    #: [slot - low]: number of rows.
    sizes: Longs

    @classmethod
    def of(cls, space: Space, first: int, entries: Bools, max_violation: Floats) -> Forbidden:
        """Return what these entries leave to every slot."""
        low = int(space.slot_of_row[first]) if len(entries) else space.slots
        row_start = space.layout.row_start[low:]
        sizes = np.diff(row_start)
        starts = row_start[:-1][sizes > 0] - first
        best = np.full((len(sizes), entries.shape[1]), -1)
        counts = np.zeros_like(best)
        if len(starts):
            never, numbers = np.int64(2**62), np.arange(first, first + len(entries))[:, None]
            lowest = np.minimum.reduceat(np.where(entries, never, numbers), starts, axis=0)
            best[sizes > 0] = np.where(lowest < never, lowest, -1)
            counts[sizes > 0] = np.add.reduceat(~entries, starts, axis=0, dtype=np.int64)
        return cls(first, low, entries, max_violation, best, counts, sizes)

    @property
    def avoidable(self) -> Bools:
        """[row - first, column]: what is forbidden, unless the slot has nothing else."""
        found: Bools = self.entries & np.repeat(self.counts > 0, self.sizes, axis=0)
        return found

    @property
    def hopeless(self) -> Bools:
        """[slot - low, column]: has the slot rows, all of them forbidden?"""
        return np.asarray((self.counts == 0) & (self.sizes > 0)[:, None])

    def replaced(self, rows: NDArray[Any]) -> Longs:
        """[slot - low, column]: the first rows that are not forbidden; `rows` if there is none."""
        return np.where(self.best >= 0, self.best, rows)


class Limits:
    """What declarations forbid on a space."""

    def __init__(self, assumptions: Assumptions, space: Space) -> None:
        self.space = space
        self.function = assumptions.constraints
        if space.discount is not None and assumptions.safe_policy is not None:
            raise SettingsError("a safe_policy has a horizon: with a discount declare support or constraints instead")
        self.policy = None if assumptions.safe_policy is None else SafePolicy(assumptions.safe_policy)
        #: What the support proves to be safe, given the safe policy if there is one.
        self.safe: SafeSet | None = None
        if assumptions.support is not None:
            support = as_model(assumptions.support)
            support = support if space.discount is None else support.with_horizon(None)
            self.safe = SafeSet(support) if self.policy is None else self.policy.widened(support)
        #: [row of the support]: its next states, computed on demand.
        self._known: dict[int, set[Hashable]] = {}

    @staticmethod
    def declared(assumptions: Assumptions, space: Space) -> Limits | None:
        """Return the limits; None if nothing is forbidden by declarations."""
        if assumptions.support is None and assumptions.constraints is None and assumptions.safe_policy is None:
            return None
        return Limits(assumptions, space)

    @property
    def proves(self) -> bool:
        """Are only actions allowed that are proved or declared to be safe?"""
        return self.safe is not None or self.policy is not None

    # What is forbidden ---------------------------------------------------------------------------------------

    def forbidden(self, first: int) -> Forbidden:
        """Return what is forbidden of the rows from `first` on."""
        space = self.space
        columns = space.columns
        forbidden = np.zeros((space.rows - first, columns), np.bool_)
        max_violation = np.zeros(space.rows - first)
        if self.safe is not None and self.same(self.safe.model):
            forbidden |= ~self.safe.entries.reshape(-1, space.rows).T
        elif self.proves:
            forbidden |= self._unproved(first, columns)
        if self.function is not None:
            values = self.declared_values(first)
            forbidden |= values < 0
            max_violation = np.maximum(-values.min(axis=1, initial=0.0), 0.0)
        return Forbidden.of(space, first, forbidden, max_violation)

    def same(self, support: TabularModel) -> bool:
        """Is the support the model that is learned on?"""
        own = self.space.states() if self.space.ends == 0 else None
        return isinstance(own, TabularModel) and (own is support or own.digest == support.digest)

    def _steps(self, slot: int) -> range:
        """Return the steps of the columns of a slot."""
        if self.space.shift:
            return range(self.space.horizon)
        step = int(self.space.slot_step[slot])
        return range(step, step + 1)

    def _unproved(self, first: int, columns: int) -> Bools:
        """[row - first, column]: what is neither proved nor declared to be safe."""
        space, start = self.space, self.space.layout.row_start
        unproved = np.ones((space.rows - first, columns), np.bool_)
        for slot in range(int(space.slot_of_row[first]) if first < space.rows else space.slots, space.slots):
            low, high = int(start[slot]), int(start[slot + 1])
            state, actions = space.state_of_slot(slot), [space.action_of_row(row) for row in range(low, high)]
            for column, step in enumerate(self._steps(slot)):
                unproved[low - first : high - first, column] = ~self.proved(step, state, actions)
        return unproved

    def proved(self, step: int, state: Hashable, actions: Sequence[Hashable]) -> Bools:
        """Return [action]: is it proved safe by the support, or the action of the safe policy?"""
        allowed = np.zeros(len(actions), np.bool_)
        if self.safe is not None:
            try:
                mask = self.safe.mask(state, step)
                allowed[:] = [action in self._numbers and mask[self._numbers[action]] for action in actions]
            except PolicyError:  # the support does not have the state
                pass
        if self.policy is not None and actions:
            own = self.policy.action(step, state)
            allowed |= [own is not None and action == own for action in actions]
        return allowed

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        """Numbers of the actions of the support."""
        assert self.safe is not None
        return {label: number for number, label in enumerate(self.safe.model.action_labels)}

    # The declared constraints --------------------------------------------------------------------------------

    def declared_values(self, first: int) -> Floats:
        """[row - first, column]: the least declared constraint value."""
        space = self.space
        values = np.zeros((space.rows - first, space.columns))
        for line, (own, state, action) in zip(values, pairs(space, first), strict=True):
            steps = range(space.horizon) if space.shift else (own,)
            line[:] = [self.declared_value(step, state, action) for step in steps]
        return values

    def declared_value(self, step: int, state: Hashable, action: Hashable) -> float:
        """Return the least declared constraint value."""
        assert self.function is not None
        given = self.function(step, state, action)
        try:
            values: Floats = np.asarray(given, np.float64).ravel()
            if np.asarray(given).dtype == np.bool_:  # False would count as 0, which is satisfied
                values = np.array([np.nan])
        except (TypeError, ValueError):
            values = np.array([np.nan])
        if not np.isfinite(values).all():
            raise SettingsError(
                f"constraints(step, state, action) returned {given!r} for step {step}, state {state!r}, action "
                f"{action!r}; it must return a number, or one for each constraint, >= 0 if satisfied"
            )
        return float(values.min(initial=0.0)) if values.size else 0.0

    def forbids(self, step: int, state: Hashable, actions: Sequence[Hashable]) -> Bools:
        """[action]: is it forbidden in a state, which need not be known?"""
        forbidden = ~self.proved(step, state, actions) if self.proves else np.zeros(len(actions), np.bool_)
        if self.function is not None:
            forbidden |= [self.declared_value(step, state, action) < 0 for action in actions]
        return forbidden

    def first_allowed(self, state: Hashable, labels: list[Hashable]) -> int:
        """Return the index of the first allowed action of the first step, before there are tables."""
        return int(np.argmin(self.forbids(0, state, labels)))

    # Comparison with a model ---------------------------------------------------------------------------------

    def check_model(self, model: TabularModel) -> None:
        """Raise if the model contradicts a declaration."""
        if self.function is not None:
            self._check_function(model)
        if not self.proves:
            return
        for slot in model.first_slot.tolist():
            actions = [model.action_of_row(row) for row in model.rows_of_slot(slot)]
            self.check_first(model.state_of_slot(slot), actions, SettingsError)
        if self.policy is not None or self.safe is None or not self.same(self.safe.model):
            self._walk(model)

    def _check_function(self, model: TabularModel) -> None:
        wrong = np.argwhere((self.declared_values(0) >= 0) != model.keeps[:, None])
        if wrong.size:
            row = int(wrong[0][0])
            says = "is satisfied" if model.keeps[row] else "may be violated"
            state = model.state_of_slot(int(model.slot_of_row[row]))
            raise SettingsError(
                f"constraints is not the constraint of the model: in state {state!r}, action "
                f"{model.action_of_row(row)!r}, a constraint {says}"
            )

    def _walk(self, model: TabularModel) -> None:
        """Check every allowed action of every state that allowed actions can reach."""
        declared, here, before = self.forbidden(0), set(model.first_slot.tolist()), set[int]()
        for step in range(model.steps or model.num_slots):
            column, after = step * self.space.shift, set[int]()
            before |= here
            for slot in sorted(here):
                state = model.state_of_slot(slot)
                if not declared.counts[slot, column]:
                    raise SettingsError(self._nothing_left(step, state))
                for row in model.rows_of_slot(slot):
                    if declared.entries[row, column]:
                        continue
                    violation = -float(model.row_margin[row].min(initial=0.0))
                    for following in model.next_slots(row):
                        after.add(following)
                        try:
                            self.check_step(step, slot, row, model.state_of_slot(following), violation)
                        except TargetError as error:
                            raise SettingsError(f"at step {step} on {model.name!r}, {error}") from None
            here = after if model.steps else after - before

    def _violates(self, step: int, state: Hashable, action: Hashable, unknown: bool) -> bool:
        """Does an action violate the declared constraints? `unknown` if none are declared."""
        return unknown if self.function is None else self.declared_value(step, state, action) < 0

    def _own(self, step: int, state: Hashable, action: Hashable) -> bool:
        """Is it the action of the safe policy?"""
        named = None if self.policy is None else self.policy.action(step, state)
        return named is not None and named == action

    def _following(self, step: int, state: Hashable, action: Hashable) -> set[Hashable] | None:
        """Return the next states of an action in the support; None if the support does not have the action."""
        if self.safe is None:
            return None
        support = self.safe.model
        try:
            row = support.row_of(step, state, action)
        except PolicyError:
            return None
        if row not in self._known:
            self._known[row] = {support.state_of_slot(slot) for slot in support.next_slots(row)}
        return self._known[row]

    def check_first(self, state: Hashable, actions: list[Hashable], error: Refusal = TargetError) -> None:
        """Raise if nothing is known to be safe in a first state."""
        if not self.proves or self.proved(0, state, actions).any():
            return
        if self.policy is not None and self.safe is None:
            named = self.policy.action(0, state)
            why = self.policy.first_fault(state) if named is None else f"its action {named!r} is not on offer there"
            raise error(f"safe_policy does not keep the constraints from the first state {state!r} on: {why}")
        assert self.safe is not None
        try:
            inside = self.safe.contains(state)
        except PolicyError as unknown:
            raise error(f"the first state {state!r} is outside of the declared support: {unknown}") from None
        if inside:
            raise error(f"of what is safe in the first state {state!r}, by the declared support, nothing is on offer")
        action = self.safe.model.action_of_row(self.safe.model.rows_of_slot(self.safe.model.slot_of(0, state))[0])
        raise error(
            f"no policy is safe from the first state {state!r} on, by the declared support: "
            f"{self.safe.reason(state, action)}"
        )

    # Comparison with the steps of an environment -------------------------------------------------------------

    def check_choice(self, step: int, slot: int, row: int) -> None:
        """Raise if no declaration allows the action, because no other was left."""
        state, action = self.space.state_of_slot(slot), self.space.action_of_row(row)
        if self.proves and not self.proved(step, state, [action]).any():
            raise TargetError(self._nothing_left(step, state))

    def _nothing_left(self, step: int, state: Hashable) -> str:
        """Return why no action of a state is allowed."""
        named = None if self.policy is None else self.policy.action(step, state)
        what = "nothing is" if named is None else f"nothing but action {named!r}, which is not on offer, is"
        if named is not None and self._violates(step, state, named, False):
            return (
                f"constraints says that the safe policy's action {named!r} violates at step {step} in state {state!r}"
            )
        return f"{what} known to be safe at step {step} in state {state!r}, by what is declared"

    def check_step(
        self, step: int, slot: int, row: int, following: Hashable | None, violation: float, *, chosen: bool = True
    ) -> None:
        """Raise if a step contradicts a declaration; `following` is None at the end.

        Without `chosen` the action need not be one that declarations allow: a log may have any.
        """
        state, action = self.space.state_of_slot(slot), self.space.action_of_row(row)
        where = f"action {action!r} in state {state!r}"
        safe = self.proves and (chosen or bool(self.proved(step, state, [action]).any()))
        if following is not None and (step + 1 < self.space.horizon or self.space.discount is not None):
            self._check_following(step, state, action, following, where, safe=safe)
        if safe and violation > 0:
            says = "it is the safe policy's" if self._own(step, state, action) else "by the declared support it is safe"
            raise TargetError(f"{where} violated by {violation:g}, but {says}")
        if self._violates(step, state, action, violation > 0) != (violation > 0):
            seen = f"violated by {violation:g}" if violation > 0 else "violated nothing"
            raise TargetError(
                f"{where} {seen}, which is not what the declared constraints say. If that depends on the outcome, "
                "declare a support instead"
            )

    def _check_following(
        self, step: int, state: Hashable, action: Hashable, following: Hashable, where: str, *, safe: bool
    ) -> None:
        known = self._following(step, state, action)
        if known is not None and following not in known:
            raise TargetError(
                f"{where} led to {following!r}, which is outside of the declared support: by that it can lead to "
                f"{', '.join(sorted(map(repr, known))[:5])}{' and others' if len(known) > 5 else ''} only"
            )
        if safe and self.policy is not None and not self._goes_on(step + 1, following):
            raise TargetError(f"{where} led to {following!r}, in which the safe policy has no action: it is not safe")

    def _goes_on(self, step: int, state: Hashable) -> bool:
        """Is any action known to be safe in a state?"""
        assert self.policy is not None
        if self.policy.action(step, state) is not None:
            return True
        try:
            return self.safe is not None and self.safe.contains(state, step)
        except PolicyError:
            return False


# Observations of an environment ---------------------------------------------------------------------------------------

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
        if row in self._reached:
            return self._reached[row]
        state, action = self.space.state_of_slot(int(self.space.slot_of_row[row])), self.space.action_of_row(row)
        found: dict[Hashable, int] = {}
        for number, noise in enumerate(self.noises):
            after = label(self.rule(state, action, noise))
            if found.setdefault(after, number) != number:
                raise SettingsError(
                    f"dynamics leads from {pair_label(self.space, row)} to {named(after)} by the noises "
                    f"{self.noises[found[after]]!r} and {noise!r}, so that the next state does not identify the noise"
                )
        self._reached[row] = found
        return found

    def check(self, row: int, after: Hashable) -> None:
        """Raise if no noise leads from a pair to the observed next state."""
        reached = self.reached(row)
        if after not in reached:
            others = ", ".join(map(named, list(reached)[:5])) + (" and others" if len(reached) > 5 else "")
            raise TargetError(
                f"{pair_label(self.space, row)} led to {named(after)}, which no noise of the declared dynamics "
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


class Observations:
    """Compares observations with the declarations deterministic, rewards, max_reward and dynamics."""

    def __init__(self, assumptions: Assumptions, space: Space) -> None:
        self.assumptions, self.space = assumptions, space
        self._remembers = bool(assumptions.deterministic or assumptions.rewards)
        #: Is anything declared that a step may contradict?
        self.active = self._remembers or assumptions.dynamics is not None or assumptions.max_reward is not None
        self._map = None if assumptions.dynamics is None else Dynamics(assumptions.dynamics, space)
        #: The size of rewards, by their range.
        self._size = max(map(abs, space.rules.reward_range)) if isinstance(space, GrowingSpace) else math.inf
        self._first: Hashable = None
        self._begun = False
        #: [row]: reward, constraints and next slot.
        self._seen: dict[int, tuple[float, tuple[float, ...], int]] = {}

    def check_first(self, state: Hashable) -> None:
        """Check the first state of an episode."""
        if not self.assumptions.deterministic:
            return
        if self._begun and state != self._first:
            raise TargetError(f"the episode began in {state!r}, an earlier one in {self._first!r}: {NOT_RANDOM}")
        self._begun, self._first = True, state

    def check(self, step: int, row: int, seen: Step, following: int, violation: float) -> None:
        """Check one step; `following` is below 0 if it is missing."""
        most = self.assumptions.max_reward
        if most is not None and violation == 0 and seen.reward > most + ROUNDING * abs(most):
            raise TargetError(f"the reward is {seen.reward:g} without a violation, but max_reward is {most:g}")
        ended = step + 1 == self.space.horizon and following < self.space.ends  # perhaps by the time limit
        shows = following >= 0 and (step + 1 < self.space.horizon or self.space.shared) and not ended
        if self._remembers:
            before = self._seen.setdefault(row, (seen.reward, seen.constraints, -1))
            self._check_reward(step, row, seen.reward, before[0])
            if self.assumptions.deterministic:
                self._check_outcome(row, seen, before, following if shows else -1)
        if self._map is not None and shows:
            self._map.check(row, self._state(following))

    def _check_reward(self, step: int, row: int, reward: float, before: float) -> None:
        expected: Any = before
        if callable(self.assumptions.rewards):
            expected = self.assumptions.rewards(step, self.space.state_of_slot(int(self.space.slot_of_row[row])),
                                          self.space.action_of_row(row))  # fmt: skip
        size = self._size if math.isfinite(self._size) else max(abs(reward), abs(expected))
        if abs(reward - expected) > (0.0 if self.assumptions.deterministic else ROUNDING * size):
            says = "by the declared rewards" if callable(self.assumptions.rewards) else "and before"
            raise TargetError(f"{pair_label(self.space, row)} earned {reward!r}, {says} {float(expected)!r}")

    def _check_outcome(
        self, row: int, seen: Step, before: tuple[float, tuple[float, ...], int], following: int
    ) -> None:
        """Raise unless constraints and next state are the same as before."""
        if seen.constraints != before[1]:
            raise TargetError(
                f"{pair_label(self.space, row)} gave constraints {seen.constraints}, before {before[1]}: {NOT_RANDOM}"
            )
        if following < 0:
            return
        if before[2] < 0:
            self._seen[row] = (*before[:2], following)
        elif before[2] != following:
            now, then = named(self._state(following)), named(self._state(before[2]))
            raise TargetError(f"{pair_label(self.space, row)} led to {now}, before to {then}: {NOT_RANDOM}")

    def _state(self, slot: int) -> Hashable | None:
        """Return the state of a slot; None for an end."""
        return None if slot < self.space.ends else self.space.state_of_slot(slot)


NOT_RANDOM = "but deterministic is declared"
