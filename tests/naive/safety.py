"""Slow, obvious twins of the safe set: every policy tried, and a walk outwards for the way to a dead end."""

from __future__ import annotations

import naive


def violates(problem, step, state, action):
    return any(min(o.constraints, default=0.0) < 0 for o in problem.outcomes(step, state, action) if o.probability > 0)


def following(problem, step, state, action):
    return {o.next_state for o in problem.outcomes(step, state, action) if o.probability > 0}


def keeps_all(problem, table, step, state):
    """Does a policy, from this state on, violate nothing whatever comes?"""
    here = {state}
    for h in range(step, problem.horizon):
        if any(violates(problem, h, s, table[h, s]) for s in here):
            return False
        here = {after for s in here for after in following(problem, h, s, table[h, s])}
    return True


def safe_by_every_policy(problem):
    """{(step, state, action)} that some policy takes and from there on violates nothing with certainty."""
    safe = set()
    points = naive.decision_points(problem)
    for table in naive.every_table(problem):
        for step, state in points:
            if (step, state, table[step, state]) not in safe and keeps_all(problem, table, step, state):
                safe.add((step, state, table[step, state]))
    return safe


def moves_to_dead_end(problem, safe, step, state, action):
    """How many moves it is from an unsafe action, itself not counted, to a state whose every action violates.

    Outwards, one move after the other, through actions that violate nothing themselves and states that are not safe.
    """
    if violates(problem, step, state, action):
        return 0
    alive = {(h, s) for h, s, _ in safe}
    here, moves = {state}, 0
    chosen = {state: [action]}
    while True:
        here = {
            after
            for s in here
            for a in chosen.get(s) or problem.actions(step, s)
            if not violates(problem, step, s, a)
            for after in following(problem, step, s, a)
            if step + 1 < problem.horizon and (step + 1, after) not in alive
        }
        chosen, step, moves = {}, step + 1, moves + 1
        if not here:
            return None
        if any(all(violates(problem, step, s, a) for a in problem.actions(step, s)) for s in here):
            return moves


def safe_with_promises(problem, promised):
    """{(step, state, action)} that is promised, or proved to lead only where something is promised or proved."""
    safe = {(*at, action) for at, action in promised.items()}
    points = naive.decision_points(problem)
    for step in reversed(range(problem.horizon)):
        alive = {s for h, s, _ in safe if h == step + 1}
        for state in (s for h, s in points if h == step):
            for action in problem.actions(step, state):
                on = step + 1 == problem.horizon or following(problem, step, state, action) <= alive
                if on and not violates(problem, step, state, action):
                    safe.add((step, state, action))
    return safe
