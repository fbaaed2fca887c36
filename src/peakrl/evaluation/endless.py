"""The exact value and violation of a policy without an end, by linear equations.

With P the transition matrix of the states under the policy, r, c and p the expected reward, the expected violation and
the probability of a violation of a step by state, m the distribution of the first state, and g a discount:

    discounted sums   (I - g P) v = r
    gain              sum over recurrent classes K of P(the walk ends in K) * sum over s in K of d_K(s) r(s),
                      d_K P = d_K on K, sum d_K = 1, and for transient states T:  visits (I - P_TT) = m_T
    ever violating    (I - N) x = p with N the moves without a violation, on the states U from which one can occur
    steps until then  (I - N) t = 1 on U, if no state outside of U can be reached

Outside of U the probability is 0, so a policy that cannot violate has 0, not a small number. I - N is invertible on U:
from each of its states the walk leaves U, or stops, with positive probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PolicyError
from peakrl.numerics import LEAST
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy
from peakrl.policy.tables import StochasticPolicy
from peakrl.space import expand, frozen
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs


@dataclass(frozen=True, eq=False, repr=False)
class EndlessEvaluation:
    """Exact value and violation of a policy without an end."""

    #: The discounted reward; without a discount the gain.
    value: float
    #: The average reward of a step in the long run.
    gain: float
    #: Discounted violation; without a discount the average violation of a step in the long run.
    violation: float
    #: Probability of ever violating a constraint.
    violation_probability: float
    #: Expected number of steps up to and with the first that violates; infinite if there may be none.
    steps_to_violation: float
    #: [state]: share of the steps that are spent in each state in the long run, in the order of `model.state_labels`.
    stationary_distribution: Floats
    #: [state]: `value` from each state.
    state_values: Floats
    #: [constraint]: the least value that can occur; below 0 if the constraint can be violated.
    worst_margin: Floats
    #: The discount; None for the average.
    discount: float | None

    def __repr__(self) -> str:
        what = "gain" if self.discount is None else f"value (discount {self.discount:g})"
        return (
            f"<EndlessEvaluation: {what} {self.value:.6g}, violation {self.violation:.6g}, "
            f"probability of ever violating {self.violation_probability:.6g}>"
        )


class Walk:
    """The Markov chain of a policy, by state."""

    def __init__(self, model: TabularModel, policy: AnyPolicy) -> None:
        from scipy.sparse import csr_array

        if isinstance(policy, AveragedPolicy):
            raise PolicyError(f"{policy!r} draws one of several policies for ever; evaluate them one by one")
        if isinstance(policy, StochasticPolicy):
            self.rows = np.flatnonzero(policy.weights > 0)
            self.weights = policy.weights[self.rows]
        else:
            self.rows = policy.rows[policy.rows >= 0].astype(np.int64)
            self.weights = np.ones(len(self.rows))
        self.model, self.slots = model, model.num_slots
        self.slot = np.searchsorted(model.row_start, self.rows, side="right") - 1
        sums = np.bincount(self.slot, self.weights, self.slots)
        self.weights = self.weights / sums[self.slot]
        first = model.outcome_start[model.row_distribution[self.rows]]
        sizes = model.outcome_start[model.row_distribution[self.rows] + 1] - first
        outcome, self.owner = expand(first, sizes), np.repeat(np.arange(len(self.rows)), sizes)
        chance = model.outcome_probability[outcome]
        chance = chance / np.bincount(self.owner, chance)[self.owner] * self.weights[self.owner]
        record = expand(model.payoffs.row_payoff[self.rows], sizes) if model.payoffs.stride else None
        record = np.repeat(model.payoffs.row_payoff[self.rows], sizes) if record is None else record
        violates = (model.payoffs.constraints[record] < 0.0).any(axis=1)
        edges = self.slot[self.owner], model.outcome_next[outcome].astype(np.int64)
        shape = (self.slots, self.slots)
        self.matrix: Any = csr_array((chance, edges), shape)
        kept = ~violates
        self.unharmed: Any = csr_array((chance[kept], (edges[0][kept], edges[1][kept])), shape)
        self.risk = np.bincount(edges[0][violates], chance[violates], self.slots).astype(np.float64)
        self.may = np.bincount(edges[0][violates], minlength=self.slots) > 0
        self.start = np.zeros(self.slots)
        self.start[model.first_slot] = model.first_probability / model.first_probability.sum()

    def mean(self, quantity: Floats) -> Floats:
        """Return [slot]: the expectation of a quantity [row] at a step."""
        return np.bincount(self.slot, self.weights * quantity[self.rows], self.slots).astype(np.float64)

    def reached(self) -> NDArray[np.bool_]:
        """[slot]: can it be reached?"""
        return spread(self.matrix.T.tocsr(), self.start > 0)


def spread(matrix: Any, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the states from which a marked one can be reached, itself included."""
    transposed = matrix.T.tocsr()
    marked, front = marked.copy(), np.flatnonzero(marked)
    while len(front):
        sizes = np.diff(transposed.indptr)[front]
        before = np.unique(transposed.indices[expand(transposed.indptr[front], sizes)])
        front = before[~marked[before]]
        marked[front] = True
    return marked


def solved(matrix: Any, states: Longs, right: Floats, *, scale: float = 1.0, transposed: bool = False) -> Floats:
    """Return x with (I - scale M) x = right, on some states."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import splu

    if not len(states):
        return np.zeros_like(right)
    system = (eye_array(len(states)) - scale * matrix[states][:, states]).tocsc()
    found: Floats = splu(system.T.tocsc() if transposed else system).solve(np.asarray(right, np.float64))
    return found


def evaluate_endless(model: TabularModel, policy: AnyPolicy, discount: float | None) -> EndlessEvaluation:
    """Evaluate a policy of a model without an end."""
    walk = Walk(model, policy)
    reward, violation = walk.mean(model.row_reward), walk.mean(model.row_violation.sum(axis=1))
    share, gains = long_run(walk, np.stack([reward, violation]))
    if discount is None:
        values, harms = gains
    else:
        everywhere = np.arange(walk.slots)
        values, harms = (solved(walk.matrix, everywhere, each, scale=discount) for each in (reward, violation))
    seen = walk.reached()
    chance, steps = first_violation(walk, seen)
    least = LEAST if chance > 0.0 else 0.0
    return EndlessEvaluation(
        value=float(walk.start @ values),
        gain=float(share @ reward),
        violation=max(float(walk.start @ harms), least if discount is not None else 0.0),
        violation_probability=chance,
        steps_to_violation=steps,
        stationary_distribution=frozen(share, np.float64),
        state_values=frozen(values, np.float64),
        worst_margin=frozen(model.row_margin[walk.rows[seen[walk.slot]]].min(axis=0), np.float64),
        discount=discount,
    )


def long_run(walk: Walk, quantities: Floats) -> tuple[Floats, Floats]:
    """Return the long-run share of each state, and [quantity, slot] the gain from each state."""
    from scipy.sparse.csgraph import connected_components

    count, part = connected_components(walk.matrix, connection="strong")
    edges = walk.matrix.tocoo()
    left = np.unique(part[edges.row[part[edges.row] != part[edges.col]]])
    recurrent = np.setdiff1d(np.arange(count), left)
    passing = np.flatnonzero(np.isin(part, left))
    visits = solved(walk.matrix, passing, walk.start[passing], transposed=True)
    arrived = walk.start + walk.matrix[passing].T @ visits
    share, gains = np.zeros(walk.slots), np.zeros((len(quantities), walk.slots))
    for each in recurrent:
        states = np.flatnonzero(part == each)
        own = stationary(walk.matrix[states][:, states])
        share[states] = own * arrived[states].sum()
        gains[:, states] = (quantities[:, states] @ own)[:, None]
    into = walk.matrix[passing] @ gains.T
    gains[:, passing] = solved(walk.matrix, passing, into).T
    return share, gains


def stationary(matrix: Any) -> Floats:
    """Return the stationary distribution of an irreducible chain: d P = d, with the first state's weight 1, scaled."""
    others = np.arange(1, matrix.shape[0])
    weights = np.ones(matrix.shape[0])
    weights[1:] = solved(matrix, others, matrix[[0]].toarray()[0, 1:], transposed=True)
    share: Floats = weights / weights.sum()
    return share


def first_violation(walk: Walk, seen: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the probability of ever violating, and the expected number of steps up to then."""
    exposed = spread(walk.unharmed, walk.may)
    if not (exposed & seen).any():
        return 0.0, math.inf
    states = np.flatnonzero(exposed)
    chances = np.zeros(walk.slots)
    chances[states] = solved(walk.unharmed, states, walk.risk[states])
    chance = min(1.0, max(float(walk.start @ chances), LEAST))
    unharmed = spread(walk.unharmed.T.tocsr(), walk.start > 0)
    if (unharmed & ~exposed).any():
        return chance, math.inf
    return 1.0, float(walk.start[states] @ solved(walk.unharmed, states, np.ones(len(states))))
