"""Logs of a model: episodes of a logger, drawn by numpy alone."""

from __future__ import annotations

import contextlib

import numpy as np

from peakrl import Logs


def record(model, episodes, rng, weights=None, first=0):
    """Return the columns of a log in the order of time; `weights` [entry] are the logger's, by default uniform.

    States are numbers of slots and actions numbers of rows within their slot, so that nothing but counts is shared with
    the model's own sampling.
    """
    layout, start = model.layout, model.row_start
    if weights is None:
        weights = np.tile(
            np.repeat(1.0 / np.maximum(np.diff(start), 1), np.diff(start)), model.num_entries // model.num_rows
        )
    slot = model.first_slot[choose(model.first_probability[None].repeat(episodes, 0), rng)]
    columns = {name: [] for name in ("episode", "step", "state", "action", "reward", "constraint", "next_state")}
    for step in range(model.horizon):
        size = np.diff(start)[slot]
        rows = start[slot][:, None] + np.minimum(np.arange(size.max()), size[:, None] - 1)
        chance = weights[rows + step * model.entry_stride] * (np.arange(size.max()) < size[:, None])
        row = start[slot] + choose(chance, rng)
        d = layout.row_distribution[row]
        outcomes = np.diff(layout.outcome_start)[d]
        index = layout.outcome_start[d][:, None] + np.minimum(np.arange(outcomes.max()), outcomes[:, None] - 1)
        chance = layout.outcome_probability[index] * (np.arange(outcomes.max()) < outcomes[:, None])
        outcome = choose(chance, rng)
        after = layout.outcome_next[layout.outcome_start[d] + outcome]
        payoff = model.payoffs.row_payoff[row] + model.payoffs.stride * outcome
        values = (
            first + np.arange(episodes), np.full(episodes, step), slot, row - start[slot], model.payoffs.reward[payoff],
            model.payoffs.constraints[payoff].min(axis=1, initial=1.0), after,
        )  # fmt: skip
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
        slot = after
    return {name: np.stack(values, axis=1).ravel() for name, values in columns.items()}


def choose(chance, rng):
    """[line]: an index drawn with these chances [line, index]."""
    total = np.cumsum(chance, axis=1)
    return (rng.random(len(chance))[:, None] * total[:, -1:] >= total).sum(axis=1).clip(0, chance.shape[1] - 1)


def joined(*parts):
    """Return the columns of several logs, one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def logs_of(model, columns, **options):
    """Return the log of a model from its columns."""
    bound = max(1.0, float(np.abs(model.payoffs.constraints).max(initial=1.0)))
    kept = {
        "horizon": model.horizon, "reward_range": model.reward_range, "step": "step", "next_state": "next_state",
        "constraints": "constraint", "constraint_bounds": [bound],
        "actions": lambda slot: range(len(model.rows_of_slot(slot))),
    }  # fmt: skip
    return Logs.from_frame(columns, **kept | options)


def as_rule(policy):
    """Return a policy of the model as a function of the numbers of a log."""
    model = policy.model

    def act(step, slot, actions):
        node = step * model.node_stride + slot
        if node >= model.num_nodes or not len(model.rows_of_slot(slot)):
            return 0
        row = int(policy.rows[node])
        return row - int(model.row_start[slot]) if row >= 0 else 0

    return act


def uniform(step, state, actions):
    """A behaviour policy: all actions are equally likely."""
    return {action: 1 / len(actions) for action in actions}


def truth(model, run):
    """Return the policy of a run on a log, as one of the model; first actions in states that a random one lacks."""
    from peakrl import Policy
    from peakrl.errors import UnknownStateError
    from peakrl.policy.tables import StochasticPolicy, first_rows

    rows = first_rows(model).copy()
    if isinstance(run.policy, StochasticPolicy):
        weights = np.zeros(model.num_entries)
        by_step = weights.reshape(-1, model.num_rows)
        by_step[:, model.row_start[:-1][np.diff(model.row_start) > 0]] = 1.0
        for step, slot, _ in model.decisions():
            own = by_step[step if model.entry_stride else 0]
            with contextlib.suppress(UnknownStateError):
                chances = run.policy.probabilities(step, slot)
                for index, row in enumerate(model.rows_of_slot(slot)):
                    own[row] = chances.get(index, 0.0)
        return StochasticPolicy(model, weights)
    for step, slot, node in model.decisions():
        actions = [one for one in range(len(model.rows_of_slot(slot))) if one in run.model.action_labels]
        rows[node] = model.row_start[slot] + run.policy.action(step, slot, actions)
    return Policy(model, rows)
