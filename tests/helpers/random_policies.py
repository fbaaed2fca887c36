"""Random policies for tests, drawn on the readable problem and handed to the model by label."""

from __future__ import annotations

import numpy as np

import naive
from peakrl import Policy
from peakrl.policy import AveragedPolicy, StochasticPolicy


def random_table(problem, rng):
    """A deterministic policy as {(step, state): action}."""
    points = naive.decision_points(problem)
    return {
        point: list(problem.actions(*point))[int(rng.integers(len(list(problem.actions(*point)))))] for point in points
    }


def table_policy(model, table):
    return Policy.from_rule(model, lambda step, state: table[step, state])


def random_chances(problem, rng):
    """A stochastic policy as {(step, state): {action: chance}}; in a third of the states one action is sure."""
    chances = {}
    for point in naive.decision_points(problem):
        actions = list(problem.actions(*point))
        if rng.random() < 1 / 3:
            drawn = np.eye(len(actions))[int(rng.integers(len(actions)))]
        else:
            drawn = rng.dirichlet(np.ones(len(actions)))
        chances[point] = {action: float(p) for action, p in zip(actions, drawn, strict=True)}
    return chances


def chance_policy(model, chances):
    """The same as a StochasticPolicy; states that cannot be met take their first action."""
    layout = model.layout
    weights = np.zeros(model.num_entries)
    for step in range(model.horizon if model.stationary else 1):
        for slot in range(model.num_slots):
            if model.rows_of_slot(slot):
                weights[step * layout.entry_stride + layout.row_start[slot]] = 1.0
    for (step, state), by_action in chances.items():
        for action, chance in by_action.items():
            weights[step * layout.entry_stride + model.row_of(step, state, action)] = chance
    return StochasticPolicy(model, weights)


def random_tables(problem, rng, count):
    """pi^1 .. pi^K as dictionaries, each like the one before but for a few changes; some repeat it."""
    tables = [random_table(problem, rng)]
    while len(tables) < count:
        other = random_table(problem, rng)
        keep = rng.choice([0.0, 0.5, 0.9, 1.0])
        tables.append({point: tables[-1][point] if rng.random() < keep else other[point] for point in other})
    return tables


def averaged_policy(model, tables):
    """Their mixture, as the change list from one to the next."""
    rows = [table_policy(model, table).rows for table in tables]
    changes = [
        (episode + 2, node, rows[episode + 1][node])
        for episode in range(len(rows) - 1)
        for node in np.flatnonzero(rows[episode] != rows[episode + 1])
    ]
    columns = np.array(changes, np.int32).reshape(-1, 3).T
    return AveragedPolicy(model, len(tables), rows[0], *columns)
