"""Tables of a policy on a model: how often it is where, and what follows each law of the next state under it.

With m_h(s) the probability to be in s at step h, D a law of the next state and V the exact value of the policy:

    presence(s) = sum_h m_h(s)        after(h, D) = sum_s' D(s') V_{h+1}(s')        and likewise for its violation
"""

from __future__ import annotations

import numpy as np

from peakrl.kernels.arrays import Floats, Longs
from peakrl.kernels.planning import value_of
from peakrl.model.tabular import TabularModel
from peakrl.planning.exact import row_costs
from peakrl.policy.tables import Policy


def presence(model: TabularModel, policy: Policy) -> Floats:
    """[slot]: how often the policy is expected to be there in an episode."""
    layout = model.layout
    now = np.zeros(model.num_slots)
    now[model.first_slot] = model.first_probability
    total = now.copy()
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
        total += now
    return total


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
