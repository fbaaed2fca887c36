"""Q-tables of the neighbouring algorithms from their formulas, with dictionaries."""

from __future__ import annotations

import math

from naive.draws import Walk


def masked_q(problem, model, allowed, episodes, seed):
    """Q-learning on the actions that `allowed(step, state, actions)` leaves; Q by (step, state), and pi^1..pi^K."""

    def update(table, action, alpha, reward, constraints, following):
        table[action] = (1 - alpha) * table[action] + alpha * (reward + following)

    return _q_learning(problem, model, episodes, seed, update, lambda value: value, allowed)


def maximin_game(problem, model, penalty, episodes, seed):
    """The game as it stands: a table entry for each pick of the opponent, and the least of them counts."""

    def update(table, action, alpha, reward, constraints, following):
        charged = [0.0, *(penalty * max(-f, 0.0) for f in constraints)]
        before = table[action] if isinstance(table[action], list) else [table[action]] * len(charged)
        lo = model.reward_range[0]
        table[action] = [
            (1 - alpha) * q + alpha * (((reward + lo) - charge) - lo + following)
            for q, charge in zip(before, charged, strict=True)
        ]

    def least(value):
        return min(value) if isinstance(value, list) else value

    return _q_learning(problem, model, episodes, seed, update, least, lambda step, state, actions: actions)


def _q_learning(problem, model, episodes, seed, update, worth, allowed):
    walk, horizon = Walk(problem, seed), model.horizon
    lo, hi = model.reward_range
    cap = [(hi - lo if hi > lo else 1.0) * (horizon - h) for h in range(horizon)]
    q, n, w, trace = {}, {}, {}, []
    for _ in range(episodes):
        state, chosen = walk.reset(), {}
        for h in range(horizon):
            table = q.setdefault((h, state), dict.fromkeys(allowed(h, state, walk.actions()), cap[h]))
            action = max(table, key=lambda a: worth(table[a]))
            chosen[h, state] = action
            following, reward, constraints = walk.step(action)
            n[h, state, action] = t = n.get((h, state, action), 0) + 1
            ahead = 0.0 if h == horizon - 1 else w.get((h + 1, following), cap[h + 1])
            update(table, action, (horizon + 1.0) / (horizon + t), reward - lo, constraints, ahead)
            w[h, state] = min(cap[h], max(map(worth, table.values())))
            state = following
        trace.append(chosen)
    return q, trace


def triple_q(problem, horizon, most, charges, limits, numbers, episodes, seed):
    """Triple-Q; returns Q and the costs by (step, state, action), the queues, and pi^1..pi^K.

    `charges(step, violations)` lists what a step costs; `numbers` are frame, chi, eta, bonus, cost_bonus and lift.
    """
    walk, costs = Walk(problem, seed), len(limits)
    q, c, n, trace = {}, {}, {}, []
    queue, estimate = [0.0] * costs, [0.0] * costs

    def worth(key):
        value = q.setdefault(key, most * (horizon - key[0]))
        for j in range(costs):
            value -= queue[j] / numbers["eta"] * c.setdefault(key, [0.0] * costs)[j]
        return value

    for episode in range(1, episodes + 1):
        state, steps, chosen = walk.reset(), [], {}
        for h in range(horizon):
            action = max(walk.actions(), key=lambda a: worth((h, state, a)))
            chosen[h, state] = action
            following, reward, constraints = walk.step(action)
            steps.append(((h, state, action), reward, charges(h, [max(-f, 0.0) for f in constraints])))
            state = following
        estimate = [total + cost for total, cost in zip(estimate, c[steps[0][0]], strict=True)]
        old_q, old_c = dict(q), {key: list(cost) for key, cost in c.items()}
        for h, (key, reward, charged) in enumerate(steps):
            n[key] = n.get(key, 0) + 1
            alpha = (numbers["chi"] + 1.0) / (numbers["chi"] + n[key])
            width = math.sqrt(alpha)
            ahead = steps[h + 1][0] if h + 1 < horizon else None
            after = old_q[ahead] if ahead else 0.0
            q[key] = (1 - alpha) * q[key] + alpha * (reward + after + numbers["bonus"] * width)
            for j in range(costs):
                if charged[j] is not None:
                    after = old_c[ahead][j] if ahead else 0.0
                    target = charged[j] + after - numbers["cost_bonus"][j] * width
                    c[key][j] = max(0.0, (1 - alpha) * c[key][j] + alpha * target)
        if episode % numbers["frame"] == 0:
            moved = [z + e / numbers["frame"] - d for z, e, d in zip(queue, estimate, limits, strict=True)]
            queue, estimate, n = [max(0.0, z) for z in moved], [0.0] * costs, {}
            for key in q:
                q[key] = min(most * (horizon - key[0]), q[key] + numbers["lift"])
        trace.append(chosen)
    return q, c, queue, trace
