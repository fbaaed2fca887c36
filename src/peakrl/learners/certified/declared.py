"""Declarations as the certified learner uses them: checked on models, trusted for environments.

How many bounds share p_U, one for each state and step and one for the first state: the optimum is bounded if the upper
value of one best action of each state is valid, whichever it is; so is the value of a policy by the lower values of its
actions.

    model          min(states, distributions) (H-1) + 1, or states (H-1) + 1 if dynamics are declared
    environment    S (H-1) + 1 if there are at most S states; otherwise the i-th state in the order of first visits has
                   the weight omega_(i+1) (`bounds`), the first state of an episode omega_1

H instead of H-1 if rewards depend on the outcome, and 1 instead of H-1 if every distribution belongs to one step. If
pairs share distributions, these are numbered in the order of first visits instead of states, since the samples of one
may begin before a state is discovered. If s' = g(s, a, noise) is declared, all noises so far count for every pair, also
for one discovered later: its bound is one of a number that is fixed from the start, so S must be known.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from peakrl.checks import ROUNDING
from peakrl.errors import SettingsError, TargetError
from peakrl.evaluation.simulation import largest_violation
from peakrl.gym.adapter import Rules
from peakrl.learners.assumptions import (
    Assumptions,
    Dynamics,
    check_max_reward,
    distributions_of_rows,
    make_groups,
    numbered,
    pair_label,
    pairs,
)
from peakrl.learners.certified.bounds import log_weight
from peakrl.learners.space import GrowingSpace, ModelSpace
from peakrl.types import Floats, Ints, Longs

#: In place of the next slot if declared dynamics lead to a state that was not visited.
UNMET = -1
#: The distribution of the noise, if dynamics are declared.
NOISE = 1
#: A larger declared number of states is ignored: weights by the order of first visits give tighter bounds.
MOST_STATES = 1 << 20
#: Relative tolerance for the probabilities of one noise in different rows; `Proofs.tolerance` covers it.
CLOSE = 2.0**-44


@dataclass(frozen=True)
class Facts:
    """What is known about a target before the first episode."""

    #: The range of a step's reward with its margin for rounding, and the highest one (of steps without a violation, if
    #: that is declared).
    reward_range: tuple[float, float]
    most: float
    #: The largest violation of an episode.
    violation: float
    #: May rewards depend on more than step, state and action? Then bounds are on reward plus next value.
    joint: bool
    deterministic: bool
    #: Does a pair violate always or never, so that one observation decides?
    certain: bool
    #: Is everything safe that is not declared to fail (`Assumptions.support`, `safe_policy`)?
    safe: bool
    #: Number of noises, if dynamics are declared.
    noises: int = 0
    #: Are states discovered online? Then the upper bound on their number (None: not specified) and that of actions.
    growing: bool = False
    states: int | None = None
    actions: int | None = None


class Declared(ABC):
    """Declarations about the rows of a space, and how many bounds share the failure probability."""

    facts: Facts
    #: Number of bounds that share a part of p, without the one on the first state; None: weights.
    bets: int | None
    #: Number of steps with bounds of their own, for weights.
    steps: int = 1
    #: May pairs share a distribution?
    shared: bool = False
    #: Upper bound on the number of cells; 0 if it is not known.
    cells: int = 0

    @abstractmethod
    def rows(self, first: int) -> tuple[Longs, Longs, Floats | None]:
        """Return distribution, group and declared reward (None: not declared) of the rows from `first` on."""

    @abstractmethod
    def lead(self, noise_next: Ints, first: int) -> None:
        """Set [row, noise] the next slots of the noises from, and to, the slots from `first` on."""

    def bet_logs(self, distributions: Longs | range, slots: Longs | Ints, several: bool = False) -> Floats:
        """[distribution]: log of the number of bets that share d, or of the inverse weight.

        `slots` has a slot of each, counted from 1, and 0 for the first state. A bet is needed for each step and state:
        on one best action, or on the action of a policy; on all of them if a policy takes `several`.
        """
        if self.bets is not None:
            each = self.facts.actions or 1 if several else 1
            return np.full(len(distributions), math.log(self.bets * each + 1))
        order = np.asarray(distributions if self.shared or several else slots)
        return log_weight(order + 1) + np.where(order > 0, math.log(self.steps), 0.0)


def highest_reward(reward_range: tuple[float, float], assumptions: Assumptions) -> float:
    """Return the highest reward of a step without a violation, with its margin for rounding."""
    most, declared = reward_range[1], assumptions.max_reward
    return most if declared is None else min(most, declared + ROUNDING * abs(declared))


def declares_safety(assumptions: Assumptions) -> bool:
    """Return whether safety until the end of an episode is declared."""
    return assumptions.support is not None or assumptions.safe_policy is not None


def check_noises(assumptions: Assumptions) -> int:
    """Return the number of noises; raise if declared dynamics have none."""
    if assumptions.dynamics is None:
        return 0
    if not assumptions.dynamics[1]:
        raise SettingsError("dynamics names no noises; it must be (function of state, action and noise, noises)")
    if assumptions.deterministic:
        raise SettingsError("dynamics is declared, but deterministic says that there is no noise. Leave one out")
    return len(assumptions.dynamics[1])


# Environments -----------------------------------------------------------------------------------------------------


def environment_facts(rules: Rules, assumptions: Assumptions) -> Facts:
    """Return what is known about an environment; raise for declarations that the learner cannot use there."""
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
    noises = check_noises(assumptions)
    if noises and rules.states is None:
        raise SettingsError(
            "dynamics needs an upper bound on the number of states, since noises from before the first visit "
            "to a state count for it too: declare Assumptions(states=...)"
        )
    most = highest_reward(rules.rewards, assumptions)
    if most < rules.rewards[0]:
        lo, hi = rules.reward_range
        raise SettingsError(
            f"max_reward is {assumptions.max_reward}; rewards lie between {lo:g} and {hi:g}, so it must too"
        )
    useful = rules.states is not None and (rules.states <= MOST_STATES or noises > 0)
    return Facts(
        reward_range=rules.rewards,
        most=most,
        violation=largest_violation(rules.horizon, rules.constraints.bounds),
        joint=joint,
        deterministic=deterministic,
        certain=deterministic or assumptions.constraints is not None,
        safe=declares_safety(assumptions),
        noises=noises,
        growing=True,
        states=rules.states if useful else None,
        actions=len(rules.actions),
    )


class OnEnvironment(Declared):
    """Declarations about an environment."""

    def __init__(self, space: GrowingSpace, assumptions: Assumptions) -> None:
        facts = self.facts = environment_facts(space.rules, assumptions)
        self.space, self.assumptions = space, assumptions
        self._dynamics = None if assumptions.dynamics is None else Dynamics(assumptions.dynamics, space)
        #: Numbers of the keys of distributions and groups that several rows share, in the order of first visits.
        self._distributions: dict[Hashable, int] = {}
        self._groups: dict[Hashable, int] = {}
        #: By (step, state): the (row, noise) that lead to it, if it was not visited.
        self._unmet: dict[tuple[int, Hashable], list[tuple[int, int]]] = {}
        self.steps = max(1, space.horizon if facts.joint else space.horizon - 1) if space.shared else 1
        self.bets, self.shared = None, callable(assumptions.shared_transitions)
        if facts.states is not None and facts.actions is not None:
            steps = self.steps if space.shared else space.horizon
            self.bets = facts.states * steps

    def rows(self, first: int) -> tuple[Longs, Longs, Floats | None]:
        """Return distribution, group and declared reward (None: not declared) of the rows from `first` on."""
        self._check_number()
        space, given = self.space, self.assumptions
        groups = np.arange(first, space.rows)
        distributions, rewards = groups + 1, None
        if self._dynamics is not None:
            distributions[:] = NOISE
        elif callable(given.shared_transitions):
            distributions = numbered(space, first, given.shared_transitions, self._distributions) + 1
        if given.constraint_depends_on is not None:
            states, actions = space.slot_state[space.slot_of_row[first:]].tolist(), space.row_action[first:].tolist()
            same = {"pair": zip(states, actions, strict=True), "state": states, "action": actions}
            keys = same[given.constraint_depends_on]
            groups[:] = [self._groups.setdefault(key, len(self._groups)) for key in keys]
        if callable(given.rewards):
            rewards = np.array([float(given.rewards(*pair)) for pair in pairs(space, first)])
        return distributions, groups, rewards

    def _check_number(self) -> None:
        """Raise if there are more states (at a step, if steps have their own) than declared."""
        most = self.facts.states
        for met in self.space.lookup:
            if most is not None and len(met) > most:
                newest = next(itertools.islice(met, most, None))
                raise TargetError(f"state {newest!r} is one more than the {most} declared states")

    def lead(self, noise_next: Ints, first: int) -> None:
        """Set [row, noise] the next slots of the noises from, and to, the slots from `first` on."""
        space = self.space
        assert self._dynamics is not None
        for slot in range(first, space.slots):
            step = int(space.slot_step[slot])
            for row, noise in self._unmet.pop((step, space.labels[slot]), ()):
                noise_next[row, noise] = slot
            after = 0 if space.shared else step + 1
            if after == space.horizon and not space.shared:
                continue  # the last step leads to its end, and the noise is unknown
            for row in range(space.starts[slot], space.starts[slot] + len(space.offers[slot])):
                for state, noise in self._dynamics.reached(row).items():
                    noise_next[row, noise] = after if state is None else space.lookup[after].get(state, UNMET)
                    if noise_next[row, noise] == UNMET:
                        self._unmet.setdefault((after, state), []).append((row, noise))


# Models -----------------------------------------------------------------------------------------------------------


class OnModel(Declared):
    """Declarations about a model; raises if one is false."""

    def __init__(self, space: ModelSpace, assumptions: Assumptions) -> None:
        model = space.model
        check_max_reward(model, assumptions.max_reward)
        depends_on, rows = assumptions.constraint_depends_on, np.arange(model.num_rows)
        self._groups = rows if depends_on is None else make_groups(space, depends_on, model).of_row.astype(np.int64)
        shared = bool(assumptions.shared_transitions)
        distributions = distributions_of_rows(space, assumptions) if shared else rows
        by_outcome, deterministic = model.payoffs.stride > 0, bool(assumptions.deterministic)
        if shared and by_outcome and not deterministic:
            raise SettingsError(
                "shared_transitions is declared, but rewards depend on the outcome: pairs of one group would have to "
                "share the joint distribution of reward and next state, which it does not say. Leave it out"
            )
        self._rewards = declared_rewards(space, assumptions)
        noises = check_noises(assumptions)
        self._noise_next = declared_dynamics(space, assumptions) if noises else None
        (least, most), earned = model.reward_range, model.payoffs.reward
        reward_range = min(least, float(earned.min())), max(most, float(earned.max()))
        self.facts = Facts(
            reward_range=reward_range,
            most=highest_reward(reward_range, assumptions),
            violation=largest_violation(model.horizon, model.constraint_bounds),
            joint=by_outcome and not deterministic,
            deterministic=deterministic,
            certain=deterministic or not by_outcome or assumptions.constraints is not None,
            safe=declares_safety(assumptions),
            noises=noises,
        )
        # A cell for each outcome; stored distributions that are declared equal may differ in their number of outcomes.
        sizes = np.zeros(int(distributions.max()) + 1, np.int64)
        np.maximum.at(sizes, distributions, np.diff(model.layout.outcome_start)[model.layout.row_distribution])
        self.cells = (noises or int(sizes.sum())) + model.num_slots
        self._distributions = np.full(model.num_rows, NOISE) if noises else distributions + 1
        steps = 1
        if model.stationary:
            steps = model.horizon if self.facts.joint else model.horizon - 1
        self.bets = (model.num_slots if noises else min(model.num_slots, len(sizes))) * steps

    def rows(self, first: int) -> tuple[Longs, Longs, Floats | None]:
        """Return distribution, group and declared reward (None: not declared) of all rows."""
        return self._distributions, self._groups, self._rewards

    def lead(self, noise_next: Ints, first: int) -> None:
        """Set [row, noise] the next slots of the noises."""
        assert self._noise_next is not None
        noise_next[...] = self._noise_next


def declared_rewards(space: ModelSpace, assumptions: Assumptions) -> Floats | None:
    """[row]: the declared rewards, or None."""
    model = space.model
    if not assumptions.rewards:
        return None
    if model.payoffs.stride > 0:
        raise SettingsError("rewards are declared, but they depend on the outcome. Leave rewards out")
    if assumptions.rewards is True:
        return model.row_reward
    declared = np.array([float(assumptions.rewards(*pair)) for pair in pairs(space, 0)])
    scale = max(map(abs, model.reward_range))
    wrong = np.flatnonzero(~(np.abs(declared - model.row_reward) <= ROUNDING * scale))
    if wrong.size:
        row = int(wrong[0])
        raise SettingsError(
            f"rewards says {declared[row]:g} for {pair_label(model, row)}, which earns {model.row_reward[row]:g}"
        )
    return model.row_reward


def declared_dynamics(space: ModelSpace, assumptions: Assumptions) -> Ints:
    """[row, noise]: the declared next slot; raise unless the noise has one distribution in all rows."""
    model, layout = space.model, space.model.layout
    if model.payoffs.stride > 0:
        raise SettingsError("dynamics is declared, but rewards depend on the outcome. Leave dynamics out")
    assert assumptions.dynamics is not None
    dynamics, noises = Dynamics(assumptions.dynamics, space), assumptions.dynamics[1]
    slots = {(int(step), model.state_of_slot(slot)): slot for slot, step in enumerate(model.step_of_slot)}
    following, distribution = np.empty((model.num_rows, len(noises)), np.int32), None
    for row, (step, state, action) in enumerate(pairs(space, 0)):
        for reached, noise in dynamics.reached(row).items():
            following[row, noise] = slots.get((0 if space.shared else step + 1, reached), UNMET)
            if following[row, noise] == UNMET:
                raise SettingsError(
                    f"dynamics leads from state {state!r}, action {action!r} by noise {noises[noise]!r} to "
                    f"{reached!r}, which is not a state there"
                )
        d = layout.row_distribution[row]
        outcomes = slice(layout.outcome_start[d], layout.outcome_start[d + 1])
        chance = dict(zip(layout.outcome_next[outcomes].tolist(), layout.outcome_probability[outcomes], strict=True))
        own = np.array([chance.pop(int(slot), 0.0) for slot in following[row]])
        distribution = own if distribution is None else distribution
        if chance or (np.abs(own - distribution) > CLOSE * distribution).any():
            raise SettingsError(
                f"dynamics: at {pair_label(model, row)} the next state does not have the declared distribution"
            )
    return following
