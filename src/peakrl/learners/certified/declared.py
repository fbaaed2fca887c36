"""Declarations as the certified learner uses them: checked on models, trusted for environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from peakrl.errors import SettingsError
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions.assumptions import (
    ROUNDING,
    Assumptions,
    Declared,
    Dependence,
    Function,
    check_max_reward,
    distributions_of_rows,
    make_groups,
    pair_label,
)
from peakrl.learners.space import ModelSpace
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints

#: A larger declared number of states is ignored: weights by the order of first visits give tighter bounds.
MOST_STATES = 1 << 20
#: Tolerance for the probabilities of one noise in different rows.
CLOSE = 1e-9


@dataclass(frozen=True)
class Declarations:
    """Declarations about an environment."""

    #: The highest reward of a step (of steps without a violation, if that is declared).
    most: float
    #: May rewards depend on more than step, state and action? Then bounds are on reward plus next value.
    joint: bool
    deterministic: bool
    #: Does a pair violate always or never?
    certain: bool
    #: Is everything safe that is not declared to fail?
    safe: bool
    #: Upper bound on the number of states; None: not specified.
    states: int | None
    depends_on: Dependence | None
    #: (step, state, action) -> reward; None if rewards are observed.
    rewards: Function | None
    #: (step, state, action) -> key of the pairs that share a distribution of the next state; None: each has its own.
    distribution_key: Function | None
    #: The next state as a function of state, action and noise, and the noises; None if it is not declared.
    dynamics: Declared | None = None


@dataclass(frozen=True)
class ModelDeclarations:
    """Declarations about a model, as arrays by row."""

    #: [row]: pairs with the same number share the distribution of the next state; None: each has its own.
    distribution_of_row: Ints | None = None
    #: [row]: pairs with the same number share their constraints.
    group_of_row: Ints | None = None
    #: [row]: the reward, if it is known in advance.
    rewards: Floats | None = None
    max_reward: float | None = None
    deterministic: bool = False
    #: [row, noise]: the next slot.
    noise_next: Ints | None = None
    #: Are the constraints declared, and is safety declared?
    constraints: bool = False
    safe: bool = False


def declares_safety(assumptions: Assumptions) -> bool:
    """Return whether safety until the end of an episode is declared."""
    return assumptions.support is not None or assumptions.safe_policy is not None


def environment_declarations(rules: Rules, assumptions: Assumptions) -> Declarations:
    """Return the declarations about an environment; raise for those that the learner cannot use there."""
    if rules.constraints.bounds is None:
        raise SettingsError(
            "constraint_bounds is not given: a certificate bounds the violation, so pass constraint_bounds=, the "
            "largest violation of each constraint"
        )
    if assumptions.shared_transitions is True:
        raise SettingsError(
            "shared_transitions is True, which refers to the distributions that a model stores, but an environment has "
            "none: give a function (step, state, action) of the environment's labels whose value is the same for pairs "
            "that share the distribution of the next state"
        )
    deterministic = bool(assumptions.deterministic)
    joint = not assumptions.rewards and not deterministic
    for name in ("shared_transitions", "dynamics"):
        if joint and name in assumptions.declared():
            raise SettingsError(
                f"{name} is declared, but rewards may depend on the outcome: declare rewards as well, a function of "
                "(step, state, action), or True if a reward depends on step, state and action only"
            )
    if assumptions.dynamics is not None:
        check_noises(assumptions)
        if rules.states is None:
            raise SettingsError(
                "dynamics needs an upper bound on the number of states, since noises from before the first visit "
                "to a state count for it too: declare Assumptions(states=...)"
            )
    lo, hi = rules.reward_range
    most = hi if assumptions.max_reward is None else min(hi, assumptions.max_reward)
    if most < lo:
        raise SettingsError(f"max_reward is {most}; rewards lie between {lo:g} and {hi:g}, so it must too")
    return Declarations(
        most=most,
        joint=joint,
        deterministic=deterministic,
        certain=deterministic or assumptions.constraints is not None,
        safe=declares_safety(assumptions),
        states=known_states(rules.states, assumptions),
        depends_on=assumptions.constraint_depends_on,
        rewards=assumptions.rewards if callable(assumptions.rewards) else None,
        distribution_key=assumptions.shared_transitions if callable(assumptions.shared_transitions) else None,
        dynamics=assumptions.dynamics,
    )


def known_states(states: int | None, assumptions: Assumptions) -> int | None:
    """Return the upper bound on the number of states; None if it is not given or too large to help."""
    useful = states is not None and (states <= MOST_STATES or assumptions.dynamics is not None)
    return states if useful else None


def check_noises(assumptions: Assumptions) -> None:
    """Raise if declared dynamics have no noises."""
    assert assumptions.dynamics is not None
    if not assumptions.dynamics[1]:
        raise SettingsError("dynamics names no noises; it must be (function of state, action and noise, noises)")
    if assumptions.deterministic:
        raise SettingsError("dynamics is declared, but deterministic says that there is no noise. Leave one out")


def declared_on_model(model: TabularModel, assumptions: Assumptions) -> ModelDeclarations:
    """Return the declarations about a model as arrays; raise if one is false."""
    check_max_reward(model, assumptions.max_reward)
    groups = None
    if assumptions.constraint_depends_on is not None:
        groups = make_groups(ModelSpace(model), assumptions.constraint_depends_on, model).of_row
    distributions = None if assumptions.shared_transitions is None else distributions_of_rows(model, assumptions)
    if distributions is not None and model.payoffs.stride > 0 and not assumptions.deterministic:
        raise SettingsError(
            "shared_transitions is declared, but rewards depend on the outcome: pairs of one group would have to share "
            "the joint distribution of reward and next state, which it does not say. Leave it out"
        )
    return ModelDeclarations(
        distributions, groups, declared_rewards(model, assumptions), assumptions.max_reward,
        bool(assumptions.deterministic), declared_map(model, assumptions), assumptions.constraints is not None,
        declares_safety(assumptions),
    )  # fmt: skip


def declared_rewards(model: TabularModel, assumptions: Assumptions) -> Floats | None:
    """[row]: the declared rewards, or None."""
    if not assumptions.rewards:
        return None
    if model.payoffs.stride > 0:
        raise SettingsError("rewards are declared, but they depend on the outcome. Leave rewards out")
    if assumptions.rewards is True:
        return model.row_reward
    space = ModelSpace(model)
    declared = np.array([float(assumptions.rewards(*pair_of(space, row))) for row in range(model.num_rows)])
    wrong = np.flatnonzero(~(np.abs(declared - model.row_reward) <= ROUNDING * np.maximum(1.0, np.abs(declared))))
    if wrong.size:
        row = int(wrong[0])
        raise SettingsError(
            f"rewards says {declared[row]:g} for {pair_label(model, row)}, which earns {model.row_reward[row]:g}"
        )
    return declared


def pair_of(space: ModelSpace, row: int) -> tuple[int, Any, Any]:
    """Return step, state and action of a row; step 0 if all steps share it."""
    slot = int(space.slot_of_row[row])
    step = 0 if space.shared else int(space.slot_step[slot])
    return step, space.state_of_slot(slot), space.action_of_row(row)


def declared_map(model: TabularModel, assumptions: Assumptions) -> Ints | None:
    """[row, noise]: the declared next slot, or None."""
    if assumptions.dynamics is None:
        return None
    rule, noises = assumptions.dynamics
    if model.payoffs.stride > 0:
        raise SettingsError("dynamics is declared, but rewards depend on the outcome. Leave dynamics out")
    check_noises(assumptions)
    space, slots = ModelSpace(model), next_slots(model)
    following = np.empty((model.num_rows, len(noises)), np.int32)
    for row in range(model.num_rows):
        step, state, action = pair_of(space, row)
        for number, noise in enumerate(noises):
            reached = rule(state, action, noise)
            following[row, number] = slots.get((0 if space.shared else step + 1, reached), -1)
            if following[row, number] < 0:
                raise SettingsError(
                    f"dynamics leads from state {state!r}, action {action!r} by noise {noise!r} to {reached!r}, "
                    "which is not a state there"
                )
    check_map(model, following)
    return following


def next_slots(model: TabularModel) -> dict[tuple[int, Any], int]:
    """Return the slot of each state by step; step 0 if all steps share it."""
    if model.stationary:
        return {(0, model.state_of_slot(slot)): slot for slot in range(model.num_slots)}
    found: dict[tuple[int, Any], int] = {}
    ranges = model.layout.step_slots.tolist()
    for step, (first, last) in enumerate(ranges):
        found |= {(step, model.state_of_slot(slot)): slot for slot in range(first, last)}
    after = max(last for _, last in ranges)
    return found | {(model.horizon, model.state_of_slot(slot)): slot for slot in range(after, model.num_slots)}


def check_map(model: TabularModel, following: Ints) -> None:
    """Raise unless the next state of every row determines the noise, with one distribution of the noise for all."""
    layout, distribution = model.layout, np.full(following.shape[1], -1.0)
    for row in range(model.num_rows):
        where = pair_label(model, row)
        if len(set(following[row].tolist())) < following.shape[1]:
            raise SettingsError(f"dynamics: at {where} two noises lead to one state, which must determine the noise")
        d = layout.row_distribution[row]
        outcomes = slice(layout.outcome_start[d], layout.outcome_start[d + 1])
        chance = dict(zip(layout.outcome_next[outcomes].tolist(), layout.outcome_probability[outcomes], strict=True))
        own = np.array([chance.pop(int(slot), 0.0) for slot in following[row]])
        distribution = own if distribution[0] < 0 else distribution
        if chance or (np.abs(own - distribution) > CLOSE).any():
            raise SettingsError(f"dynamics: at {where} the next state does not have the declared distribution")
