"""Judge a policy that was learned on an environment exactly, on the transition table that the environment shows.

In a state that was not visited while learning, the policy takes the first action of the table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from peakrl.certificates.certificate import Certificate
from peakrl.certificates.certify import certificate_on_model
from peakrl.certificates.limits import can_solve
from peakrl.errors import UnknownStateError
from peakrl.evaluation import evaluate
from peakrl.planning import solve
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.tabular import TabularModel

FILLED = "in a state that was not visited while learning the policy takes the first action of the table"


def policy_on_table(table: TabularModel, policy: Any) -> Policy | StochasticPolicy:
    """Return what a policy does on the table; in states that it does not know, the first action."""
    weights = np.zeros(table.num_entries)
    first = table.row_start[:-1][np.diff(table.row_start) > 0]
    weights.reshape(-1, table.num_rows)[:, first] = 1.0
    for step, slot, _ in table.decisions():
        base = step * table.entry_stride
        with suppress(UnknownStateError):
            probabilities = policy.probabilities(step, table.state_of_slot(slot))
            for row in table.rows_of_slot(slot):
                weights[base + row] = probabilities.get(table.action_of_row(row), 0.0)
    return simplest_policy(table, weights)


def certify_on_table(table: TabularModel, policy: Any, epsilon: float | None = None) -> Certificate:
    """Return the exact certificate, on the table, of a policy that was learned on the environment."""
    filled = policy_on_table(table, policy)
    optimum = solve(table) if can_solve(table) else None
    certificate = certificate_on_model(table, filled, evaluate(table, filled), optimum, epsilon)
    return replace(certificate, rests_on=(*certificate.rests_on, FILLED))
