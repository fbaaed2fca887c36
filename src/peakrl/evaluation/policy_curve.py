"""Exact value and violation of every policy of a run, from the list of its changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peakrl.evaluation.curve import policy_curve
from peakrl.evaluation.curve_tables import Curve, start_curve
from peakrl.policy.tables import first_rows
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints


class PolicyCurve:
    """Exact value and violation of every pi^k (formulas: `evaluation.curve`)."""

    def __init__(self, model: TabularModel, rows: Ints | None = None) -> None:
        self.model = model
        #: [node]: the policy of the latest episode.
        self.rows: Ints = first_rows(model) if rows is None else rows
        self._tables: Curve | None = None
        #: Changes that apply to later episodes: episode, node, row.
        self.pending: list[Ints] = [np.empty(0, np.int32)] * 3

    @property
    def tables(self) -> Curve:
        """Tables of the current policy, built on first use."""
        if self._tables is None:
            model, violation = self.model, self.model.row_violation.sum(axis=1)
            first = (model.first_slot, model.first_probability)
            self._tables = start_curve(model.layout, model.row_reward, violation, *first, self.rows)
            self.rows = self._tables.rows
        return self._tables

    def rest(self) -> None:
        """Free the tables; they are rebuilt from the policy if needed."""
        self._tables = None

    def advance(self, done: int, count: int, log: Sequence[Ints], changes: int) -> Floats:
        """Return [episode, 2] for episodes done+1 .. done+count."""
        columns = [np.concatenate([old, new[:changes]]) for old, new in zip(self.pending, log, strict=True)]
        value, violation = np.empty(count), np.empty(count)
        for column in columns:
            column.flags.writeable = False  # as the change list of an averaged policy is
        episode, node, row = columns
        used = policy_curve(self.model.layout, self.tables, episode, node, row, done + 1, value, violation)
        self.pending = [column[used:] for column in columns]
        return np.stack([value, violation], axis=1)


def policy_value(model: TabularModel, rows: Ints) -> dict[str, float]:
    """Return the exact value and violation of the policy `rows` [node]."""
    nothing = [np.empty(0, np.int32)] * 3
    rows = np.where(first_rows(model) < 0, np.int32(-1), rows)  # states without actions may hold any number
    value, violation = PolicyCurve(model, rows).advance(0, 1, nothing, 0)[0].tolist()
    return {"value": value, "violation": violation}
