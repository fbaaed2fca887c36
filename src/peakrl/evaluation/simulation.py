"""Monte Carlo: follow a policy for many episodes and compute confidence intervals of the averages.

Intervals hold for every number of episodes, also for rare events: that of a mean comes from bets (`evaluation.bounds`)
if the range of rewards, or the bounds of constraints, are declared; the share of episodes that violate anything has the
exact interval of Clopper and Pearson. If a range is not declared the interval is *approximate*: mean +- t * s / sqrt(n)
with Student's t for n - 1 degrees of freedom, by the central limit theorem; that of the mean violation is unbounded
above if fewer than 20 episodes violate.

Simulated episodes are none of those that a learner with the same seed has seen: they have their own random stream.

A table policy is the mixture of K = 1 policy. In a mixture the episode k of 1..K is drawn first, then at each node the
row of the node's last change at or before k is found by bisection. A stochastic policy draws the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.checks import MOST_EPISODES, ROUNDING, check_confidence, check_count, check_seed, reward_limits
from peakrl.compile import as_model, is_problem
from peakrl.errors import PolicyError, SettingsError
from peakrl.evaluation.bounds import betting_interval, lower_mean
from peakrl.evaluation.statistics import Interval, clopper_pearson, mean_interval
from peakrl.jit import loop
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy, model_for
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.sampling import Words, draw_first, draw_outcome, seed_state, uniform
from peakrl.space import StateSpace, frozen
from peakrl.storage import SHARE, available_memory
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Layout, Longs, Payoffs, Sampler

if TYPE_CHECKING:
    from peakrl.evaluation.environments import Rule, Unknown


@loop
def row_in_force(first_row: int, episode: int, change_episode: Ints, change_row: Ints, start: int, end: int) -> int:
    """Return a node's row in pi^k, k = `episode`; its changes are start .. end, in order of episode."""
    before, after = start, end
    while before < after:
        middle = (before + after) // 2
        if change_episode[middle] <= episode:
            before = middle + 1
        else:
            after = middle
    return first_row if before == start else int(change_row[before - 1])


@loop
def draw_row(state: Words, weights: Floats, entries: int, first: int, last: int) -> int:
    """Return a row of first .. last drawn by its weight at entries + row."""
    left = uniform(state)
    chosen = first
    for row in range(first, last):
        weight = weights[entries + row]
        if weight > 0.0:
            chosen = row
            if left < weight:
                return row
            left -= weight
    # Rounding: the last row of positive weight takes the rest.
    return chosen


@loop
def simulate_episodes(
    layout: Layout,
    payoffs: Payoffs,
    sampler: Sampler,
    state: Words,
    weights: Floats,
    first_rows: Ints,
    policies: int,
    change_start: Longs,
    change_episode: Ints,
    change_row: Ints,
    rewards: Floats,
    violations: Floats,
) -> None:
    """Fill rewards and violations, [episode], with an episode's totals.

    The policy is `weights` [entry], or if that is empty the mixture of `policies` many: `first_rows` [node] and
    the changes grouped by node.
    """
    for n in range(rewards.shape[0]):
        episode = 1
        if policies > 1:
            episode += int(uniform(state) * policies)
        slot = draw_first(state, sampler)
        reward, violation = 0.0, 0.0
        for step in range(layout.horizon):
            node = step * layout.node_stride + slot
            if weights.shape[0] > 0:
                first, last = layout.row_start[slot], layout.row_start[slot + 1]
                row = draw_row(state, weights, step * layout.entry_stride, first, last)
            else:
                start, end = change_start[node], change_start[node + 1]
                row = row_in_force(np.int64(first_rows[node]), episode, change_episode, change_row, start, end)
            d = np.int64(layout.row_distribution[row])
            outcome = draw_outcome(state, layout, sampler, d)
            record = payoffs.row_payoff[row] + payoffs.stride * (outcome - layout.outcome_start[d])
            reward += payoffs.reward[record]
            for value in payoffs.constraints[record]:
                violation += max(-value, 0.0)
            slot = int(layout.outcome_next[outcome])
        rewards[n] = reward
        violations[n] = violation


#: Separates the random stream of a simulation from that of a learner with the same seed.
STREAM = 0x73696D756C617465
#: A return and a violation.
BYTES_AN_EPISODE = 16
#: Without declared bounds the mean violation has an upper end from this many violating episodes on.
ENOUGH_VIOLATING = 20
NO_WEIGHTS: Floats = frozen(np.empty(0), np.float64)
NO_ROWS: Ints = frozen(np.empty(0), np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """Result of `simulate`."""

    #: The number of episodes.
    episodes: int
    #: The confidence level of every interval below.
    confidence: float
    #: Mean reward of an episode.
    value: float
    #: Standard deviation of an episode's reward.
    value_std: float
    #: Interval of the mean reward: `low`, `high`; approximate if `reward_range` is not declared.
    value_interval: Interval
    #: Mean violation of an episode, all steps and constraints.
    violation: float
    #: Standard deviation of an episode's violation.
    violation_std: float
    #: Interval of the mean violation; approximate if `constraint_bounds` are not declared.
    violation_interval: Interval
    #: Share of the episodes that violated anything.
    violation_frequency: float
    #: Its exact interval.
    violation_frequency_interval: Interval
    #: Which of the means have an approximate interval, of "value" and "violation".
    approximate: tuple[str, ...]
    #: The number of steps in states unknown to the policy, at which `unknown` decided.
    unknown_steps: int
    #: [episode]: its reward.
    rewards: Floats
    #: [episode]: its violation.
    violations: Floats

    def __repr__(self) -> str:
        return (
            f"<Simulation of {self.episodes:,} episodes, {self.confidence:.6g} intervals: "
            f"value {self.value:.6g} {self._shown('value')}, violation {self.violation:.6g} {self._shown('violation')}"
            f", violation frequency {self.violation_frequency:.6g} {show(self.violation_frequency_interval)}"
            f"{self._unknown}>"
        )

    def _shown(self, name: str) -> str:
        return show(getattr(self, f"{name}_interval")) + (" (approximate)" if name in self.approximate else "")

    @property
    def _unknown(self) -> str:
        return f"; {self.unknown_steps:,} steps in states unknown to the policy" if self.unknown_steps else ""


def show(interval: Interval) -> str:
    """Return an interval as text."""
    return f"[{interval.low + 0.0:.6g}, {interval.high:.6g}]"


def simulate(
    target: Any,
    policy: AnyPolicy | Rule,
    *,
    episodes: int,
    seed: int = 0,
    confidence: float = 0.95,
    unknown: Unknown = "random",
    steps: int | None = None,
) -> Simulation:
    """Follow `policy` for `episodes` episodes on `target`: a model, a `Problem` or an environment.

    Parameters
    ----------
    target
        A model, a problem or an environment.
    policy
        A policy of peakrl. On an environment, whose observations and actions may be continuous, also a function
        observation -> action or (step, state, actions) -> action, or a model of Stable-Baselines3 (`predict`,
        deterministic); behind a shield it may ask for any action.
    episodes
        Number of episodes.
    seed
        Equal seeds give equal episodes; they are never those of `learn` with the same seed.
    confidence
        Of the intervals.
    unknown
        What decides in a state that was not visited while learning on an environment, unless the policy has a fallback
        (that of the certified learner): "random" draws an available action, "raise" raises an error, and a function
        (step, state, actions) -> action is called. `unknown_steps` of the result counts these steps.
    steps
        Steps of an episode if the target, or the policy, has no end.

    Returns
    -------
    Simulation
        Means and frequencies with their intervals.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> found = peakrl.simulate(problem, peakrl.solve(problem).policy, episodes=2000)
    >>> low, high = found.value_interval
    >>> low < 62.767 < high
    True
    """
    episodes = check_count(episodes, "episodes", 2, most_kept())
    confidence = check_confidence(confidence)
    seed = check_seed(seed)
    if not isinstance(target, StateSpace) and not is_problem(target):
        from peakrl.evaluation.environments import environment_episodes

        rewards, violations, uses, rules = environment_episodes(target, policy, episodes, seed, unknown, steps)
        most = largest_violation(rules.horizon, rules.constraints.bounds)
        ends = return_range(rules.horizon, rules.reward_range, may_end_early=True)
        return summary(rewards, violations, uses, ends, most, confidence)
    model = model_for(as_model(target), policy)
    layout = layout_of(model, steps)
    most = largest_violation(layout.horizon, model.constraint_bounds)
    ends = return_range(layout.horizon, model.reward_range, may_end_early=False)
    return summary(*model_episodes(model, policy, episodes, seed, layout), 0, ends, most, confidence)


def layout_of(model: TabularModel, steps: int | None) -> Layout:
    """Return the layout of an episode; `steps` is given if there is no end, and only then."""
    if model.steps is not None:
        if steps is not None:
            raise SettingsError(f"steps={steps!r} is for what has no end; here an episode has {model.steps}")
        return model.layout
    if steps is None:
        raise SettingsError(f"{model.name!r} has no end: pass steps=, the steps of an episode")
    return model.one_step._replace(horizon=check_count(steps, "steps"))


def return_range(horizon: int, reward_range: tuple[float, float], may_end_early: bool) -> tuple[float, float]:
    """Return the least and the largest return; rewards may exceed their range by rounding."""
    low, high = reward_limits(reward_range)
    if may_end_early:  # steps that are not taken earn nothing
        low, high = min(low, 0.0), max(high, 0.0)
    return horizon * low, horizon * high


def largest_violation(horizon: int, bounds: Sequence[float] | None) -> float:
    """Return the largest violation of an episode; infinity if the constraints have no declared bounds."""
    return math.inf if bounds is None else horizon * (1 + ROUNDING) * math.fsum(bounds)


def most_kept() -> int:
    """Return how many episodes fit into the free memory: a return and a violation of each."""
    return int(min(MOST_EPISODES, available_memory() * SHARE // BYTES_AN_EPISODE))


def model_episodes(
    model: TabularModel, policy: AnyPolicy, episodes: int, seed: int, layout: Layout | None = None
) -> tuple[Floats, Floats]:
    """Return the reward and the violation of each episode on a model; `layout` may have another number of steps."""
    model = model_for(model, policy)
    if isinstance(policy, Policy):
        weights, rows, policies, changes = NO_WEIGHTS, policy.rows, 1, no_changes(model)
    elif isinstance(policy, StochasticPolicy):
        weights, rows, policies, changes = policy.weights, NO_ROWS, 1, no_changes(model)
    elif isinstance(policy, AveragedPolicy):
        weights, rows, policies, changes = NO_WEIGHTS, policy.first, policy.episodes, policy.by_node
    else:
        raise PolicyError(f"{policy!r} is not a policy that can be simulated")
    state = seed_state(np.uint64(seed ^ STREAM))
    rewards, violations = np.empty(episodes), np.empty(episodes)
    simulate_episodes(
        layout or model.layout,
        model.payoffs,
        model.sampler,
        state,
        weights,
        rows,
        policies,
        *changes,
        rewards,
        violations,
    )
    return rewards, violations


def no_changes(model: TabularModel) -> tuple[Longs, Ints, Ints]:
    """Return an empty list of changes, grouped by node."""
    return frozen(np.zeros(model.num_nodes + 1), np.int64), NO_ROWS, NO_ROWS


def violation_interval(violations: Floats, most: float, confidence: float) -> Interval:
    """Return the interval of the mean violation; `most` is the largest violation of an episode."""
    if math.isfinite(most):
        return betting_interval(violations, 0.0, most, confidence)
    few = np.count_nonzero(violations) < ENOUGH_VIOLATING
    high = math.inf if few else mean_interval(violations, confidence).high
    return Interval(max(lower_mean(violations, 0.0, (1.0 - confidence) / 2.0), 0.0), high)


def summary(
    rewards: Floats,
    violations: Floats,
    unknown_steps: int,
    ends: tuple[float, float],
    most_violation: float,
    confidence: float,
) -> Simulation:
    """Return the statistics of episodes; `ends` are the least and the largest return."""
    episodes, violating, ranged = len(rewards), int((violations > 0).sum()), all(map(math.isfinite, ends))
    declared = {"value": ranged, "violation": math.isfinite(most_violation)}
    return Simulation(
        episodes=episodes,
        confidence=confidence,
        value=float(rewards.mean()),
        value_std=float(rewards.std(ddof=1)),
        value_interval=betting_interval(rewards, *ends, confidence) if ranged else mean_interval(rewards, confidence),
        violation=float(violations.mean()),
        violation_std=float(violations.std(ddof=1)),
        violation_interval=violation_interval(violations, most_violation, confidence),
        violation_frequency=violating / episodes,
        violation_frequency_interval=clopper_pearson(violating, episodes, confidence),
        approximate=tuple(name for name, known in declared.items() if not known),
        unknown_steps=unknown_steps,
        rewards=frozen(rewards, np.float64),
        violations=frozen(violations, np.float64),
    )
