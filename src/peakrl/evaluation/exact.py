"""The exact value and violation of a policy, without sampling.

For a policy pi on a model with horizon H and constraints f_1 .. f_I, in the units in which the model was given:

    value     = sum_h E[r_h],     violation = sum_h sum_i E[|min(f_i, 0)|] at step h,
    violation_probability = P(some f_i < 0 at some step of an episode).

The averaged policy of Theorem 1 draws one of K policies for a whole episode, so each of its figures is the mean over
pi^1 .. pi^K; a policy that stayed in force for several episodes is evaluated once.

A violation and a probability are 0 only where nothing can be violated, however unlikely it is: what is possible and too
small for a floating-point number is given as the least one, 5e-324.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from peakrl.checks import check_number
from peakrl.compile import Target
from peakrl.errors import PolicyError
from peakrl.evaluation.curve import summed_totals
from peakrl.evaluation.curve_tables import may_vanish, new_curve
from peakrl.evaluation.exact_kernel import forward_totals
from peakrl.evaluation.violation_probability import stopped_at_violation
from peakrl.numerics import LEAST
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy, model_for
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.space import frozen, read_only
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Layout

#: What two exact computations of the same value may differ by, for each unit of it.
ROUNDING = 1e-9
#: Rows of a planner's policy that are laid out at once.
MOST_NODES = 1 << 22
NO_WEIGHTS: Floats = frozen(np.empty(0), np.float64)
NO_ROWS: Ints = frozen(np.empty(0), np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What a policy earns and violates, exactly."""

    #: Expected reward of an episode.
    value: float
    #: Expected violation of an episode: |min(f_i, 0)| added up over all steps and constraints.
    violation: float
    #: Probability that an episode violates any constraint at any step.
    violation_probability: float
    #: [step]: expected reward.
    step_rewards: Floats
    #: [step, constraint]: expected violation.
    step_violations: Floats
    #: [constraint]: the least value of f_i that can come up; below 0 where the constraint can be violated.
    worst_margin: Floats

    def is_pac(self, epsilon: float, optimum: Any) -> bool:
        """Is this within `epsilon` of the optimal value, and its violation at most `epsilon`?

        `optimum` is the optimal value or anything with a `value`. Rounding (1e-9 of the optimum) is forgiven.
        """
        epsilon = check_number(epsilon, "epsilon", least=0)
        best = check_number(getattr(optimum, "value", optimum), "optimum")
        room = epsilon + ROUNDING * max(1.0, abs(best))
        return bool(best - self.value <= room and self.violation <= epsilon)

    def __repr__(self) -> str:
        margins = ", ".join(f"{margin:.6g}" for margin in self.worst_margin)
        return (
            f"<Evaluation: value {self.value:.6g}, violation {self.violation:.6g}, "
            f"violation probability {self.violation_probability:.6g}, worst margins [{margins}]>"
        )


def evaluate(model: Target, policy: AnyPolicy) -> Evaluation:
    """Return what `policy` earns and violates on the model or `Problem` that it was made for, exactly."""
    model = model_for(model, policy)
    payoffs = np.column_stack([model.row_reward, model.row_violation])
    totals, worst_margin = expected_totals(model, model.layout, payoffs, model.row_margin, policy)
    return Evaluation(
        value=float(totals[:, 0].sum()),
        violation=float(totals[:, 1:].sum()),
        violation_probability=violation_probability(model, policy) if (worst_margin < 0).any() else 0.0,
        step_rewards=frozen(totals[:, 0], np.float64),
        step_violations=frozen(totals[:, 1:], np.float64),
        worst_margin=frozen(worst_margin, np.float64),
    )


def violation_probability(model: TabularModel, policy: AnyPolicy) -> float:
    """Return P(an episode violates anything): what the process stopped at the first violation is paid."""
    layout, probability = stopped_at_violation(model)
    totals, _ = expected_totals(model, layout, probability[:, None], np.empty((model.num_rows, 0)), policy)
    return min(1.0, float(totals.sum()))  # a sum of probabilities may pass 1 by rounding


def expected_totals(
    model: TabularModel, layout: Layout, payoffs: Floats, margins: Floats, policy: AnyPolicy
) -> tuple[Floats, Floats]:
    """Return what each step pays [step, quantity], and the least of each margin that can come up."""
    if isinstance(policy, AveragedPolicy):
        first = (model.first_slot, model.first_probability)
        dense = False if may_vanish(layout, payoffs, model.first_probability) else None
        curve = new_curve(layout, payoffs, margins, *first, policy.first, dense)
        changes = (policy.change_episode, policy.change_node, policy.change_row)
        sums = np.zeros_like(curve.totals)
        summed_totals(layout, curve, *changes, policy.episodes, sums)
        return np.where(sums > 0.0, np.maximum(sums / policy.episodes, LEAST), sums / policy.episodes), curve.worst
    if not isinstance(policy, Policy | StochasticPolicy):
        raise PolicyError(f"{policy!r} is none of the policies that can be evaluated")
    used = np.zeros(model.num_rows, np.bool_)
    mass, sent = np.zeros(model.num_slots), np.zeros(len(layout.outcome_start) - 1)
    mass[model.first_slot] = model.first_probability
    totals = np.zeros((model.horizon, payoffs.shape[1]))
    for begin, end, rows, weights in stretches(model, policy):
        forward_totals(layout, payoffs, begin, read_only(rows), weights, mass, sent, used, totals[begin:end])
    return totals, margins[used].min(axis=0)


def stretches(model: TabularModel, policy: Policy | StochasticPolicy) -> Iterator[tuple[int, int, Ints, Floats]]:
    """Yield steps first .. last with the rows [node] and weights [entry] of a policy there: a few steps at a time.

    A planner's policy takes a byte for each node, and its rows four: not all of them are laid out at once.
    """
    if isinstance(policy, StochasticPolicy):
        yield 0, model.horizon, NO_ROWS, policy.weights
    elif policy.choices is None or not model.stationary:
        yield 0, model.horizon, policy.rows, NO_WEIGHTS
    else:
        several = max(1, MOST_NODES // model.num_slots)
        for first in range(0, model.horizon, several):
            last = min(first + several, model.horizon)
            rows = np.concatenate([policy.step_rows(step) for step in range(first, last)])
            yield first, last, frozen(rows, np.int32, own=True), NO_WEIGHTS
