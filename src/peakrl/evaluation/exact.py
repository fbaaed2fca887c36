"""The exact value and violation of a policy, without sampling.

For a policy pi on a model with horizon H and constraints f_1 .. f_I, in the units in which the model was given:

    value     = sum_h E[r_h],     violation = sum_h sum_i E[|min(f_i, 0)|] at step h,
    violation_probability = P(some f_i < 0 at some step of an episode).

The averaged policy of Theorem 1 draws one of K policies for a whole episode, so each of its numbers is the mean over
pi^1 .. pi^K; a policy that was used for several episodes is evaluated once.

A violation and a probability are 0 only if nothing can be violated: a possible number that is too small for floating
point is returned as the least positive one, 5e-324.

The forward pass: with m_h(s) the probability of slot s at step h and w_h(row) that of its rows there,

    total[h, q] = sum_s m_h(s) sum_{rows of s} w_h(row) * q(row)

for every quantity q that rows pay. Probability moves on through the distributions that rows share: each collects what
all its rows send and spreads it over its outcomes once.

The probability of any violation is an expected total of the process that stops at its first violation. A row pays the
probability that it violates, and continues only in outcomes that do not: a row that never violates keeps its
distribution over next slots, any other gets one of the outcomes that do not violate, which may be empty. A sum of first
violations, not a difference from 1, is exactly 0 for a policy that never violates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_fraction
from peakrl.compile import Target
from peakrl.errors import PolicyError, SettingsError
from peakrl.evaluation.curve import Changes, new_curve, summed_totals
from peakrl.evaluation.endless import evaluate_endless
from peakrl.jit import loop
from peakrl.numerics import LEAST, times
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy, model_for
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.space import expand, frozen, read_only, spans, starts_of
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Layout, Longs


@loop
def forward_totals(
    layout: Layout,
    row_payoffs: Floats,
    first: int,
    rows: Ints,
    weights: Floats,
    mass: Floats,
    sent: Floats,
    used: NDArray[np.bool_],
    totals: Floats,
) -> None:
    """Add the totals [step - first, quantity] of steps from `first` on; mark in `used` the rows that may occur.

    The policy is `weights` [entry], or if that is empty `rows` [node], both from the step `first` on. `mass` [slot]
    is m_first and becomes that of the step after the last; `sent` [distribution] is scratch, all 0.
    """
    row_start, row_distribution, outcome_start = layout.row_start, layout.row_distribution, layout.outcome_start
    outcome_next, outcome_probability = layout.outcome_next, layout.outcome_probability
    table = weights.shape[0] == 0
    for number in range(totals.shape[0]):
        step, here, entries = first + number, number * layout.node_stride, number * layout.entry_stride
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            if mass[slot] == 0.0:
                continue
            first_row = np.int64(rows[here + slot]) if table else row_start[slot]
            last_row = first_row + 1 if table else row_start[slot + 1]
            for row in range(first_row, last_row):
                part = mass[slot] if table else times(mass[slot], weights[entries + row])
                if part > 0.0:
                    used[row] = True
                    sent[row_distribution[row]] += part
                    for q in range(totals.shape[1]):
                        totals[number, q] += times(part, row_payoffs[row, q])
            mass[slot] = 0.0
        for d in range(layout.step_distributions[step, 0], layout.step_distributions[step, 1]):
            if sent[d] > 0.0:
                for o in range(outcome_start[d], outcome_start[d + 1]):
                    mass[outcome_next[o]] += times(sent[d], outcome_probability[o])
                sent[d] = 0.0


def stopped_at_violation(model: TabularModel) -> tuple[Layout, Floats]:
    """Return the layout of the stopped process, and the probability that a row violates, [row]."""
    layout = model.layout
    violates: NDArray[np.bool_] = np.any(model.payoffs.constraints < 0, axis=1)
    some = np.flatnonzero(~model.keeps)
    kept, kept_sizes = violation_free_outcomes(model, some, violates)
    # Each new distribution is a slice of a pool: the old outcomes, then those kept of the rows `some`.
    pool_next = np.concatenate([layout.outcome_next, layout.outcome_next[kept]])
    pool_probability = np.concatenate([layout.outcome_probability, layout.outcome_probability[kept]])
    sizes = np.concatenate([np.diff(layout.outcome_start), kept_sizes])
    # The distributions of a stage must be adjacent: sort by stage, old ones first.
    stages = len(model.stage_start) - 1
    old_stage = np.repeat(np.arange(stages), np.diff(model.distribution_start))
    row_stage = np.repeat(np.arange(stages), np.diff(model.row_start[model.stage_start]))
    stage = np.concatenate([old_stage, row_stage[some]])
    order = np.argsort(stage, kind="stable")
    index = np.argsort(order)
    row_distribution = index[layout.row_distribution]
    row_distribution[some] = index[len(old_stage) :]
    source = expand(starts_of(sizes)[:-1][order], sizes[order])
    stopped = layout._replace(
        step_distributions=spans(model.horizon, starts_of(np.bincount(stage, minlength=stages))),
        row_distribution=frozen(row_distribution, np.int32),
        outcome_start=frozen(starts_of(sizes[order]), np.int64, own=True),
        outcome_next=frozen(pool_next[source], np.int32),
        outcome_probability=frozen(pool_probability[source], np.float64),
    )
    probability = model.row_means(violates.astype(np.float64))
    probability[some[kept_sizes == 0]] = 1.0  # probabilities sum to 1 up to rounding
    return stopped, probability


def violation_free_outcomes(model: TabularModel, rows: Longs, violates: NDArray[np.bool_]) -> tuple[Longs, Longs]:
    """Return the outcomes of `rows` that do not violate, row after row, and how many each row has."""
    layout = model.layout
    d = layout.row_distribution[rows]
    sizes = layout.outcome_start[d + 1] - layout.outcome_start[d]
    outcomes = expand(layout.outcome_start[d], sizes)
    within = outcomes - np.repeat(layout.outcome_start[d], sizes)
    free = ~violates[np.repeat(model.payoffs.row_payoff[rows], sizes) + model.payoffs.stride * within]
    owner = np.repeat(np.arange(len(rows)), sizes)
    return outcomes[free], np.bincount(owner[free], minlength=len(rows))


#: Rows of a planner's policy that are expanded at once.
MOST_NODES = 1 << 22
NO_WEIGHTS: Floats = frozen(np.empty(0), np.float64)
NO_ROWS: Ints = frozen(np.empty(0), np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Exact value and violation of a policy."""

    #: Expected reward of an episode.
    value: float
    #: Expected violation of an episode: the sum of |min(f_i, 0)| over all steps and constraints.
    violation: float
    #: Probability that an episode violates any constraint at any step.
    violation_probability: float
    #: [step]: expected reward.
    step_rewards: Floats
    #: [step, constraint]: expected violation.
    step_violations: Floats
    #: [constraint]: the least value of f_i that can occur; below 0 if the constraint can be violated.
    worst_margin: Floats

    def __repr__(self) -> str:
        margins = ", ".join(f"{margin:.6g}" for margin in self.worst_margin)
        return (
            f"<Evaluation: value {self.value:.6g}, violation {self.violation:.6g}, "
            f"violation probability {self.violation_probability:.6g}, worst margins [{margins}]>"
        )


def evaluate(model: Any, policy: Any, **options: Any) -> Evaluation:
    """Compute the exact value and violation of a policy on the model or problem that it belongs to.

    Nothing is sampled: the distribution over states is propagated step by step. On `Logs` the result is a `Certificate`
    with bounds (`peakrl.training.evaluate_on_logs`).

    Parameters
    ----------
    model
        A model or problem, or `Logs`.
    policy
        A policy of that model: deterministic, stochastic or averaged.
    options
        For policies without an end: `discount`. For logs: `failure_probability` and `assumptions`.

    Returns
    -------
    Evaluation
        `value`, `violation`, `violation_probability`, the same by step, and `worst_margin`. Without an end: value and
        violation discounted, or on average, `gain`, the probability of ever violating, `steps_to_violation` and the
        `stationary_distribution`.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> found = peakrl.evaluate(problem, peakrl.solve(problem).policy)
    >>> round(found.value, 3), found.violation_probability
    (62.767, 0.0)
    """
    return evaluate_on(model, policy, **options)


@singledispatch
def evaluate_on(model: Target, policy: AnyPolicy, *, discount: float | None = None) -> Evaluation:
    """Evaluate a policy; other targets than models register themselves."""
    model = model_for(model, policy)
    if discount is not None:
        discount = check_fraction(discount, "discount", otherwise="; discounts are for policies without an end")
    if model.steps is None:
        found: Any = evaluate_endless(model, policy, discount)
        return found  # another kind of result
    if discount is not None:
        raise SettingsError(f"the policy has {model.span}: only policies without an end are discounted")
    payoffs = np.column_stack([model.row_reward, model.row_violation])
    totals, used = expected_totals(model, model.layout, payoffs, policy)
    worst_margin = model.row_margin[used].min(axis=0)
    return Evaluation(
        value=float(totals[:, 0].sum()),
        violation=float(totals[:, 1:].sum()),
        violation_probability=violation_probability(model, policy) if (worst_margin < 0).any() else 0.0,
        step_rewards=frozen(totals[:, 0], np.float64),
        step_violations=frozen(totals[:, 1:], np.float64),
        worst_margin=frozen(worst_margin, np.float64),
    )


def violation_probability(model: TabularModel, policy: AnyPolicy) -> float:
    """Return P(an episode violates anything): the expected total of the process that stops there."""
    layout, probability = stopped_at_violation(model)
    totals, _ = expected_totals(model, layout, probability[:, None], policy)
    return min(1.0, float(totals.sum()))  # a sum of probabilities may exceed 1 by rounding


def expected_totals(
    model: TabularModel, layout: Layout, payoffs: Floats, policy: AnyPolicy
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the expected totals [step, quantity], and which rows may occur."""
    if isinstance(policy, AveragedPolicy):
        first = (model.first_slot, model.first_probability)
        curve = new_curve(layout, payoffs, *first, policy.first)
        changes = Changes(policy.change_episode, policy.change_node, policy.change_row)
        sums = np.zeros_like(curve.totals)
        summed_totals(layout, curve, changes, policy.episodes, sums)
        return np.where(sums > 0.0, np.maximum(sums / policy.episodes, LEAST), sums / policy.episodes), curve.used
    if not isinstance(policy, Policy | StochasticPolicy):
        raise PolicyError(f"{policy!r} is not a policy that can be evaluated")
    used = np.zeros(model.num_rows, np.bool_)
    mass, sent = np.zeros(model.num_slots), np.zeros(len(layout.outcome_start) - 1)
    mass[model.first_slot] = model.first_probability
    totals = np.zeros((model.horizon, payoffs.shape[1]))
    for begin, end, rows, weights in stretches(model, policy):
        forward_totals(layout, payoffs, begin, read_only(rows), weights, mass, sent, used, totals[begin:end])
    return totals, used


def stretches(model: TabularModel, policy: Policy | StochasticPolicy) -> Iterator[tuple[int, int, Ints, Floats]]:
    """Yield steps first .. last with the rows [node] and weights [entry] of a policy there: a few steps at a time.

    A planner's policy takes a byte for each node, and its rows four: not all of them are expanded at once.
    """
    if isinstance(policy, StochasticPolicy):
        yield 0, model.horizon, NO_ROWS, policy.weights
    elif not model.stationary:
        yield 0, model.horizon, policy.rows, NO_WEIGHTS
    else:
        several = max(1, MOST_NODES // model.num_slots)
        for first in range(0, model.horizon, several):
            last = min(first + several, model.horizon)
            yield first, last, frozen(policy.choices.rows(first, last), np.int32, own=True), NO_WEIGHTS
