"""Linear programs over occupancy measures x_h(s,a) = P(in s at step h, taking a).

    max  sum_h sum_sa x_h(s,a) r(s,a)
    s.t. sum_a x_h(s,a) = inflow_h(s)                           inflow_0 = distribution of the first state
         inflow_{h+1}(s') = sum_d y_h(d) d(s')
         y_h(d) = sum of x_h(s,a) over the pairs whose next state has distribution d
         sum_hsa x_h(s,a) c_j(h,s,a) <= d_j                     for each limit j
         x, y >= 0

Only reachable nodes take part. The y keep the program as small as the model's storage: a distribution that many pairs
share occurs once. The policy is x_h(s,a) / sum_a x_h(s,a); it may be randomised, for a basic solution in at most as
many nodes as there are binding limits. If policies of different costs have the same value, the solver decides which
one is found.

A limit of 0 is satisfied exactly: pairs that would use it are left out. The multiplier lambda_j is the value of another
unit of d_j, in reward; for a limit of 0 it is not known.

The least expected cost of any policy needs no program, only backward induction (in plain numpy: nothing is compiled):

    C_h(s) = min_a ( c(s,a) + E[C_{h+1}(s')] ),  C_H = 0;    for one step alone: c there, and 0 before it

In a stationary model the cost k steps after the first is the cost k steps ahead of any: one pass gives all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import SMALLEST_BOUND
from peakrl.errors import PeakError
from peakrl.space import expand
from peakrl.types import Floats, Ints, Layout, Longs

#: Feasibility tolerances of the solver, the tightest that HiGHS takes; occupancy below the second is rounding.
TOLERANCE, NOISE = 1e-10, 1e-12


class Chain(Protocol):
    """The part of a model that a program reads."""

    @property
    def layout(self) -> Layout: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_entries(self) -> int: ...
    @property
    def step_of_slot(self) -> Longs: ...
    @property
    def reachable(self) -> NDArray[np.bool_]: ...
    @property
    def first_slot(self) -> Ints: ...
    @property
    def first_probability(self) -> Floats: ...


@dataclass(frozen=True)
class Flow:
    """The conservation of probability: equal @ (x, y) = supply."""

    #: [x]: node, step, row and entry; nodes from `after` on are after the last step.
    nodes: Longs
    steps: Longs
    rows: Longs
    entries: Longs
    after: int
    #: A sparse matrix, and the inflow of each of its lines.
    equal: Any
    supply: Floats


@dataclass(frozen=True)
class Occupancy:
    """An optimum."""

    #: [x]
    shares: Floats
    #: [limit]: how much of it is used, and the value of another unit; the latter is NaN for limits of 0.
    used: Floats
    multipliers: Floats


def flow(chain: Chain) -> Flow:
    """Return the conservation of probability of a model."""
    from scipy import sparse

    layout, stride = chain.layout, chain.layout.node_stride
    after = (layout.horizon - 1) * stride + int(layout.step_slots[-1, 1])
    nodes = np.flatnonzero(chain.reachable[:after])
    step = nodes // stride if stride else chain.step_of_slot[nodes]
    counts = np.diff(layout.row_start)[nodes - step * stride]
    acting = counts > 0  # otherwise the episode is over
    nodes, step, counts = nodes[acting], step[acting], counts[acting]
    slot = nodes - step * stride
    line = np.full(after, -1, np.int64)
    line[nodes] = np.arange(len(nodes))
    rows, steps = expand(layout.row_start[slot], counts), np.repeat(step, counts)

    going_on = np.flatnonzero(steps < layout.horizon - 1)
    number = len(layout.outcome_start) - 1
    keys, which = np.unique(steps[going_on] * number + layout.row_distribution[rows[going_on]], return_inverse=True)
    sizes = np.diff(layout.outcome_start)[keys % number]
    outcomes = expand(layout.outcome_start[keys % number], sizes)
    following = line[np.repeat((keys // number + 1) * stride, sizes) + layout.outcome_next[outcomes]]
    inner = np.flatnonzero(following >= 0)

    def matrix(values: Floats, lines: Longs, columns: Longs, shape: tuple[int, int]) -> Any:
        return sparse.csr_array((values, (lines, columns)), shape=shape)

    n, x, y = len(nodes), len(rows), len(keys)
    leaving = matrix(np.ones(x), np.repeat(np.arange(n), counts), np.arange(x), (n, x))
    source = np.repeat(np.arange(y), sizes)[inner]
    entering = matrix(-layout.outcome_probability[outcomes[inner]], following[inner], source, (n, y))
    shared = matrix(-np.ones(len(going_on)), which, going_on, (y, x))
    equal = sparse.block_array([[leaving, entering], [shared, sparse.eye_array(y)]], format="csr")
    supply = np.zeros(n + y)
    supply[line[chain.first_slot]] = chain.first_probability
    return Flow(np.repeat(nodes, counts), steps, rows, steps * layout.entry_stride + rows, after, equal, supply)


def most_reward(
    flow: Flow,
    reward: Floats,
    costs: Any,
    limits: Floats,
    span: float,
    closed: Longs | None = None,
) -> Occupancy | None:
    """Return an optimum, or None if the limits cannot be satisfied together.

    `reward` is [x], usually between 0 and `span`; `costs` is sparse, [limit, x]; `closed` columns stay 0.
    """
    x, columns = len(flow.rows), flow.equal.shape[1]
    objective = np.zeros(columns)
    objective[:x] = -reward / (span or 1.0)  # the scale keeps tolerances meaningful
    zero = limits == 0.0
    bounds = np.full(columns, np.inf)
    bounds[np.flatnonzero(costs[zero].sum(axis=0) > 0.0)] = 0.0
    if closed is not None:
        bounds[closed] = 0.0
    # Each line is divided by its largest coefficient.
    scale = line_maxima(costs)
    kept = np.flatnonzero(~zero & (scale > 0.0))
    lines, most = widened(scaled(costs[kept], scale[kept]), columns), limits[kept] / scale[kept]
    answer = run_solver(objective, flow.equal, flow.supply, lines, most, bounds)
    if answer is None:
        return None
    shares = np.asarray(answer.x[:x])
    multipliers = np.where(zero, np.nan, 0.0)
    multipliers[kept] = np.maximum(-answer.ineqlin.marginals[: len(kept)], 0.0) * (span or 1.0) / scale[kept]
    return Occupancy(shares, costs @ shares, multipliers)


def least_excess(flow: Flow, costs: Any, limits: Floats) -> tuple[float, Longs]:
    """Return the least t for which all limits d_j + t can be satisfied, and which of them are binding."""
    from scipy import sparse

    columns = flow.equal.shape[1] + 1
    scale = line_maxima(costs)
    scale[scale == 0.0] = 1.0
    wider = sparse.hstack(
        [widened(scaled(costs, scale), columns - 1), sparse.csr_array(-1.0 / scale[:, None])], format="csr"
    )
    equal = sparse.hstack([flow.equal, sparse.csr_array((flow.equal.shape[0], 1))], format="csr")
    objective = np.zeros(columns)
    objective[-1] = 1.0
    answer = run_solver(objective, equal, flow.supply, wider, limits / scale, np.full(columns, np.inf))
    return float(answer.fun), np.flatnonzero(answer.ineqlin.marginals < -TOLERANCE)


def line_maxima(lines: Any) -> Floats:
    """Return [line]: the largest coefficient, never so small that its inverse is infinite; 0 if there is none."""
    largest = np.zeros(lines.shape[0])
    lines = lines.tocoo()
    np.maximum.at(largest, lines.coords[0], lines.data)
    return np.where(largest > 0.0, np.maximum(largest, SMALLEST_BOUND), 0.0)


def scaled(lines: Any, scale: Floats) -> Any:
    """Return sparse lines, each divided by its number."""
    from scipy import sparse

    return sparse.csr_array(sparse.diags_array(1.0 / scale) @ lines) if len(scale) else lines


def widened(lines: Any, columns: int) -> Any:
    """Return sparse lines with empty columns added."""
    from scipy import sparse

    return sparse.csr_array((lines.data, lines.indices, lines.indptr), shape=(lines.shape[0], columns))


def run_solver(objective: Floats, equal: Any, supply: Floats, limits: Any, bound: Floats, most: Floats) -> Any:
    """Return the result of scipy, or None for an infeasible program (none of ours is unbounded)."""
    from scipy.optimize import linprog

    for presolve in (True, False):
        answer = linprog(
            objective, A_ub=limits, b_ub=bound, A_eq=equal, b_eq=supply,
            bounds=cast("Any", np.stack([np.zeros_like(most), most], axis=1)), method="highs",
            options={
                "presolve": presolve,
                "primal_feasibility_tolerance": TOLERANCE,
                "dual_feasibility_tolerance": TOLERANCE,
            },
        )  # fmt: skip
        if answer.status == 0:
            return answer
        if answer.status == 2:
            return None
    raise PeakError(f"the linear program of expected limits was not solved: {answer.message}")


def row_weights(chain: Chain, rows: Ints) -> Floats:
    """Return [entry]: weight 1 on the row of each node; a node of row -1 has none."""
    layout = chain.layout
    after = (layout.horizon - 1) * layout.node_stride + int(layout.step_slots[-1, 1])
    acting = np.flatnonzero(rows[:after] >= 0)
    step = acting // layout.node_stride if layout.node_stride else 0
    weights = np.zeros(chain.num_entries)
    weights[step * layout.entry_stride + rows[acting]] = 1.0
    return weights


def policy_weights(fallback: Floats, flow: Flow, shares: Floats) -> Floats:
    """Return [entry]: x_h(s,a) / sum_a x_h(s,a); the fallback's weights at nodes that are not reached."""
    weights = fallback.copy()
    shares = np.where(shares > NOISE, shares, 0.0)
    total = np.bincount(flow.nodes, shares, flow.after)[flow.nodes]
    reached = total > 0
    weights[flow.entries[reached]] = shares[reached] / total[reached]
    return weights


# Least costs ------------------------------------------------------------------------------------------------------


def least_cost(chain: Chain, charge: Floats) -> float:
    """Return the least expected sum of charges [row], at least 0, of an episode."""
    layout = chain.layout
    cost = np.zeros(len(layout.row_start) - 1)
    for h in range(layout.horizon - 1, -1, -1):
        cost = before(layout, h, cost, charge)
    return at_first(chain, cost)


def least_by_step(chain: Chain, charge: Floats) -> Floats:
    """[step]: the least expected charge of each step alone."""
    layout, nothing = chain.layout, np.zeros(len(chain.layout.row_start) - 1)
    if layout.node_stride:
        cost, found = before(layout, 0, nothing, charge), []
        for _ in range(layout.horizon):
            found.append(at_first(chain, cost))
            cost = before(layout, 0, cost, None)
        return np.array(found)
    found = []
    for step in range(layout.horizon):
        cost = before(layout, step, nothing, charge)
        for h in range(step - 1, -1, -1):
            cost = before(layout, h, cost, None)
        found.append(at_first(chain, cost))
    return np.array(found)


def at_first(chain: Chain, cost: Floats) -> float:
    """Return the mean of C_0 [slot] over the first states."""
    return float(chain.first_probability @ cost[chain.first_slot])


def before(layout: Layout, step: int, after: Floats, charge: Floats | None) -> Floats:
    """[slot]: C of a step, 0 elsewhere, given C of the step after; without `charge` nothing is charged."""
    low, high = layout.step_slots[step]
    first, last = layout.step_distributions[step]
    begin, end = layout.outcome_start[first], layout.outcome_start[last]
    start = layout.row_start[low : high + 1]
    cost = np.zeros(len(after))
    offering = np.flatnonzero(np.diff(start))
    if len(offering):
        outcomes = layout.outcome_probability[begin:end] * after[layout.outcome_next[begin:end]]
        ahead = np.add.reduceat(outcomes, layout.outcome_start[first:last] - begin)
        rows = ahead[layout.row_distribution[start[0] : start[-1]] - first]
        rows = rows if charge is None else rows + charge[start[0] : start[-1]]
        cost[low + offering] = np.minimum.reduceat(rows, start[offering] - start[0])
    return cost


def within(cost: float, limit: float) -> bool:
    """Return whether a cost is within a limit, up to rounding."""
    return cost <= limit * (1.0 + TOLERANCE)


def least_words(least: float) -> str:
    """Return the least feasible limit in six digits, rounded so that it is feasible."""
    words = f"{least:.6g}"
    return words if within(least, float(words)) else f"{Context(6, ROUND_CEILING).create_decimal(least):g}"


def most_words(most: float) -> str:
    """Return a maximum in six digits, rounded down so that it can be attained."""
    words = f"{most:.6g}"
    return words if within(float(words), most) else f"{Context(6, ROUND_FLOOR).create_decimal(most):g}"
