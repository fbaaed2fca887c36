"""Algorithm 1 from its formulas, with dictionaries."""

from __future__ import annotations

import math

from naive.draws import Walk


def algorithm_one(problem, model, settings, episodes, seed, *, penalty, bound, log_term, start, cap):
    """Algorithm 1 from its formulas, with dictionaries; returns Q and the policies pi^1..pi^K met on the way.

    Keys are (step, state); the constants are those that the formulas name, given by the test. Of the model
    only sizes and the reward range are asked.
    """
    walk = Walk(problem, seed)
    horizon, count = model.horizon, max(model.num_constraints, 1)
    states, actions = model.max_states, model.max_actions
    lo = model.reward_range[0]
    q, n, mu, sigma, beta, w = {}, {}, {}, {}, {}, {}
    trace = []
    for _ in range(episodes):
        state = walk.reset()
        chosen = {}
        for h in range(horizon):
            table = q.setdefault((h, state), dict.fromkeys(walk.actions(), start[h]))
            action = max(table, key=lambda a: table[a])  # ties: the first, which is the lowest row
            chosen[h, state] = action
            following, r, f = walk.step(action)
            modified = r
            modified += (penalty / count) * sum(min(0.0, min(x, 0.0) + settings.slack) for x in f) if f else 0.0
            reward = modified - lo
            next_w = 0.0 if h == horizon - 1 else w.get((h + 1, following), start[h + 1])
            key = (h, state, action)
            t = n[key] = n.get(key, 0) + 1
            alpha = (horizon + 1.0) / (horizon + t)
            target = reward + next_w
            wide = settings.c2 * bound * math.sqrt(horizon**3 * log_term)
            if settings.bonus == "hoeffding":
                target += wide * math.sqrt(1.0 / t)
            if settings.bonus == "bernstein":
                mu[key] = mu.get(key, 0.0) + next_w
                sigma[key] = sigma.get(key, 0.0) + next_w * next_w
                variance = sigma[key] / t - (mu[key] / t) * (mu[key] / t)
                linear = bound * math.sqrt(horizon**7 * states * actions) * log_term
                sharp = settings.c1 * (math.sqrt(horizon * log_term / t * (variance + bound**2 * horizon)) + linear / t)
                new = min(sharp, wide * math.sqrt(1.0 / t))
                target += (new - (1.0 - alpha) * beta.get(key, 0.0)) / (2.0 * alpha)
                beta[key] = new
            table[action] = (1.0 - alpha) * table[action] + alpha * target
            w[h, state] = min(cap[h], max(table.values()))
            state = following
        trace.append(chosen)
    return q, trace
