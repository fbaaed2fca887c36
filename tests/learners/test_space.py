"""Tables on a space: which row is best in each state."""

from __future__ import annotations

import numpy as np

from helpers.random_problems import random_problem
from peakrl import compile_model
from peakrl.learners.safe_q.learner import best_rows
from peakrl.learners.space import ModelSpace


def best_row(values, max_violation, rows):
    """The row of the largest value, of those of -inf only the one of least max_violation; the lowest of equals."""
    lost = all(values[row] == -np.inf for row in rows)
    return min(rows, key=lambda row: (max_violation[row] if lost else -values[row], row))


def test_the_best_row_of_each_state_is_the_one_that_a_plain_search_finds():
    rng = np.random.default_rng(5)
    for seed in range(20):
        model = compile_model(random_problem(seed))
        space = ModelSpace(model)
        columns = model.horizon if space.shared else 1
        values = rng.integers(0, 3, (model.num_rows, columns)).astype(float)
        values[rng.random(values.shape) < 0.7] = -np.inf  # often in every row of a state
        max_violation = rng.integers(1, 4, model.num_rows).astype(float)
        found = best_rows(space, values, max_violation)
        for slot in range(model.num_slots):
            rows = model.rows_of_slot(slot)
            for column in range(columns if rows else 0):
                assert found[slot, column] == best_row(values[:, column], max_violation, rows)
