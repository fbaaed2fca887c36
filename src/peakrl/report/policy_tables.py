"""Tables of a policy on a model: how often it is where, what follows there, and where it violates.

With m_h(s) the probability to be in s at step h, D a law of the next state, V the exact value of the policy, pi(h, s)
its action and viol the expected violation of an action:

    presence(s) = sum_h m_h(s)        after(h, D) = sum_s' D(s') V_{h+1}(s')        and likewise for its violation
    risk(h, s)  = m_h(s) viol(s, pi(h, s)),        which sum up to the violation of an episode
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np

from peakrl.numerics import LEAST
from peakrl.planning.solution import row_costs
from peakrl.planning.values import value_of
from peakrl.policy.tables import Policy
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs


class Risk(NamedTuple):
    """A place where a policy may violate a constraint."""

    step: int
    state: Hashable
    action: Hashable
    #: Of being there in an episode.
    probability: float
    #: Expected there, given that the policy is.
    violation: float
    #: What it adds to the violation of an episode.
    contribution: float


class NodeTables(NamedTuple):
    """[node]: what a policy does and meets from each step and state on."""

    presence: Floats
    value: Floats
    violation: Floats


def presence(model: TabularModel, policy: Policy) -> Floats:
    """[slot]: how often the policy is expected to be there in an episode."""
    total = np.zeros(model.num_slots)
    for now in presences(model, policy):
        total += now
    return total


def node_tables(model: TabularModel, policy: Policy) -> NodeTables:
    """Return how likely the policy is to be at each step and state, and what follows there."""
    layout, there = model.layout, np.zeros(model.num_nodes)
    for step, now in enumerate(presences(model, policy)):
        first, last = layout.step_slots[step].tolist()
        there[step * layout.node_stride + np.arange(first, last)] = now[first:last]
    value = value_of(layout, model.num_nodes, model.row_reward, policy.rows)
    return NodeTables(there, value, value_of(layout, model.num_nodes, row_costs(model), policy.rows))


def risks(model: TabularModel, policy: Policy, most: int) -> list[Risk]:
    """Return the places that add most to the violation of an episode, at most so many; none where nothing can be."""
    costs, found = row_costs(model), []
    for step, now in enumerate(presences(model, policy)):
        slots = np.flatnonzero(now)
        rows = policy.rows[step * model.layout.node_stride + slots]
        harmful = np.flatnonzero((rows >= 0) & (costs[rows] > 0))
        parts = now[slots[harmful]] * costs[rows[harmful]]
        for place in harmful[np.argsort(-parts, kind="stable")[:most]].tolist():
            slot, row = int(slots[place]), int(rows[place])
            labels = model.state_of_slot(slot), model.action_of_row(row)
            part = max(float(now[slot] * costs[row]), LEAST)  # what can happen is never told as 0
            found.append(Risk(step, *labels, float(now[slot]), float(costs[row]), part))
    return sorted(found, key=lambda one: -one.contribution)[:most]


def presences(model: TabularModel, policy: Policy) -> Iterator[Floats]:
    """Yield for each step [slot]: the probability that the policy is there."""
    layout = model.layout
    now = np.zeros(model.num_slots)
    now[model.first_slot] = model.first_probability
    yield now
    for step in range(model.horizon - 1):
        slots = np.flatnonzero(now)
        rows = policy.rows[step * layout.node_stride + slots]
        acting = rows >= 0
        following = np.zeros(model.num_slots)
        for slot, row in zip(slots[acting].tolist(), rows[acting].tolist(), strict=True):
            law = layout.row_distribution[row]
            part = slice(layout.outcome_start[law], layout.outcome_start[law + 1])
            np.add.at(following, layout.outcome_next[part], now[slot] * layout.outcome_probability[part])
        now = following
        yield now


def after_laws(model: TabularModel, policy: Policy, laws: Longs) -> tuple[Floats, Floats]:
    """[step, law]: value and violation that follow each of these laws under the policy."""
    value = value_of(model.layout, model.num_nodes, model.row_reward, policy.rows)
    violation = value_of(model.layout, model.num_nodes, row_costs(model), policy.rows)
    return by_law(model, value, laws), by_law(model, violation, laws)


def by_law(model: TabularModel, table: Floats, laws: Longs) -> Floats:
    """[step, law]: the expectation over each law of a table by node of the next step; one step in a layered model."""
    layout = model.layout
    stride = layout.node_stride
    steps = range(1, model.horizon + 1) if stride else range(1)
    weight, following = layout.outcome_probability, layout.outcome_next
    sums = [np.add.reduceat(weight * table[step * stride + following], layout.outcome_start[:-1]) for step in steps]
    return np.stack(sums)[:, laws]
