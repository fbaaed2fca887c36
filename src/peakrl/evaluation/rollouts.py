"""`rollout`: one episode, step by step. It is the first episode of `simulate` with the same seed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peakrl.checks import check_seed
from peakrl.compile import as_model, is_problem
from peakrl.evaluation.simulation import STREAM, draw_row, layout_of, row_in_force
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy, model_for
from peakrl.policy.tables import StochasticPolicy
from peakrl.problem import violation_of
from peakrl.sampling import Words, draw_first, draw_outcome, seed_state, uniform
from peakrl.space import StateSpace
from peakrl.tabular import TabularModel
from peakrl.types import Layout

if TYPE_CHECKING:
    from peakrl.evaluation.environments import Unknown


class RolloutStep(NamedTuple):
    """One step of an episode."""

    #: Counted from 0.
    step: int
    #: The state at its begin; the observation if it is not made of whole numbers and words.
    state: Hashable
    #: The action of the policy.
    action: Hashable
    #: The reward.
    reward: float
    #: The value of each constraint, >= 0 if it is satisfied.
    constraints: tuple[float, ...]
    #: The next state; None if an environment reports that the episode is over.
    next_state: Hashable

    @property
    def violation(self) -> float:
        """The total violation of all constraints."""
        return violation_of(self.constraints)


def rollout(
    target: Any, policy: Any, *, seed: int = 0, unknown: Unknown = "random", steps: int | None = None
) -> list[RolloutStep]:
    """Follow `policy` for one episode on `target`, a model, a `Problem` or an environment, and return its steps.

    Parameters
    ----------
    target, policy, unknown, steps
        As for `simulate`.
    seed
        Equal seeds give equal episodes: the first that `simulate` follows with the same seed.

    Returns
    -------
    list of RolloutStep
        `step`, `state`, `action`, `reward`, `constraints`, ...

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> len(peakrl.rollout(problem, peakrl.solve(problem).policy, seed=1))
    20
    """
    seed = check_seed(seed)
    if not isinstance(target, StateSpace) and not is_problem(target):
        from peakrl.evaluation.environments import environment_rollout

        return [RolloutStep(*step) for step in environment_rollout(target, policy, seed, unknown, steps)]
    return model_rollout(model_for(as_model(target), policy), policy, seed, steps)


def model_rollout(model: TabularModel, policy: AnyPolicy, seed: int, length: int | None = None) -> list[RolloutStep]:
    """Return an episode on a model; draws come in the order of `evaluation.simulation.simulate_episodes`."""
    words, episode = seed_state(np.uint64(seed ^ STREAM)), 1
    if isinstance(policy, AveragedPolicy) and policy.episodes > 1:
        episode += int(uniform(words) * policy.episodes)
    return walk(
        model, layout_of(model, length), words, lambda step, slot: chosen_row(policy, words, step, slot, episode)
    )


def walk(model: TabularModel, layout: Layout, words: Words, choose: Callable[[int, int], int]) -> list[RolloutStep]:
    """Return an episode in which `choose` returns the row at a step in a slot."""
    payoffs, slot, steps = model.payoffs, int(draw_first(words, model.sampler)), []
    for step in range(layout.horizon):
        row = choose(step, slot)
        d = int(layout.row_distribution[row])
        outcome = int(draw_outcome(words, layout, model.sampler, d))
        record = int(payoffs.row_payoff[row]) + payoffs.stride * (outcome - int(layout.outcome_start[d]))
        following = int(layout.outcome_next[outcome])
        paid = float(payoffs.reward[record]), tuple(payoffs.constraints[record].tolist())
        state, action = model.state_of_slot(slot), model.action_of_row(row)
        steps.append(RolloutStep(step, state, action, *paid, model.state_of_slot(following)))
        slot = following
    return steps


def chosen_row(policy: AnyPolicy, words: Words, step: int, slot: int, episode: int) -> int:
    """Return the row that a policy takes; `episode` says which of a mixture's policies is followed."""
    space = policy.model
    node = step * space.node_stride + slot
    if isinstance(policy, StochasticPolicy):
        first, last = int(space.row_start[slot]), int(space.row_start[slot + 1])
        return int(draw_row(words, policy.weights, step * space.entry_stride, first, last))
    if isinstance(policy, AveragedPolicy):
        start, episodes, rows = policy.by_node
        here = int(start[node]), int(start[node + 1])
        return int(row_in_force(int(policy.first[node]), episode, episodes, rows, *here))
    return int(policy.rows[node])
