"""One plan or improvement of the primal-dual learners from the formulas, with lists."""

from __future__ import annotations

import math


def widths(seen, numbers):
    """[row]: b, where seen[row] lists (next slot, count)."""
    found = []
    for cells in seen:
        n = sum(count for _, count in cells)
        if n == 0:
            found.append(0.0)
        elif numbers["hoeffding"]:
            found.append(numbers["bonus"] * math.sqrt(numbers["states"] * numbers["log_term"] / (n + 1)))
        else:
            shares = [count / n for _, count in cells] + [0.0] * (numbers["states"] - len(cells))
            log_term = numbers["log_term"]
            box = [2 * math.sqrt(p * (1 - p) * log_term / n) + 14 / 3 * log_term / n for p in shares]
            found.append(numbers["bonus"] * sum(min(1.0, each) for each in box))
    return found


def lagrangian_sweep(rows_of, horizon, seen, reward, charge, price, numbers, policy=None, heat=0.0):
    """Value a plan (or a policy, [step][row]) on counts; slots of every step alike.

    `reward` and `charge` are means by row, the latter [row][quantity]. Returns [step][slot] rows of the plan, [slot]
    the costs from the first step on, and [step][row] L.
    """
    costs = len(price)
    width = widths(seen, numbers)
    value, cost = [0.0] * len(rows_of), [[0.0] * costs for _ in rows_of]
    plans, gains = [], []
    for step in reversed(range(horizon)):
        gain, plan, now, paid = [0.0] * len(seen), [], [], []
        for rows in rows_of:
            cap = (numbers["span"] + heat * math.log(len(rows) or 1)) * (horizon - step)
            found = {}
            for row in rows:
                n = sum(count for _, count in seen[row])
                if n == 0:
                    q, c = cap, [0.0] * costs
                else:
                    total = n + numbers["hoeffding"]
                    q = reward[row] - numbers["lowest"] + numbers["span"] * width[row]
                    q = min(cap, q + sum(count * value[slot] for slot, count in seen[row]) / total)
                    c = []
                    for j in range(costs):
                        of, quantity = divmod(j, numbers["quantities"])
                        own = charge[row][quantity] if not numbers["by_step"] or of == step else 0.0
                        own -= numbers["ranges"][j] * width[row]
                        own += sum(count * cost[slot][j] for slot, count in seen[row]) / total
                        c.append(0.0 if numbers["by_step"] and of < step else max(0.0, own))
                gain[row] = q - sum(lam * each for lam, each in zip(price, c, strict=True))
                found[row] = q, c
            if policy is None:
                best = max(rows, key=gain.__getitem__) if rows else -1
                plan.append(best)
                now.append(found[best][0] if rows else 0.0)
                paid.append(found[best][1] if rows else [0.0] * costs)
            else:
                chances = {row: policy[step][row] for row in rows}
                now.append(sum(p * (found[row][0] - heat * math.log(p)) for row, p in chances.items() if p > 0))
                paid.append([sum(p * found[row][1][j] for row, p in chances.items()) for j in range(costs)])
        value, cost = now, paid
        plans.insert(0, plan)
        gains.insert(0, gain)
    return plans, cost, gains


def improved(rows_of, policy, gains, step_size, heat, mixing):
    """[step][row]: pi'^(1 - step T) exp(step L), as probabilities."""
    found = [list(each) for each in policy]
    for step, gain in enumerate(gains):
        for rows in rows_of:
            mixed = [(1 - mixing) * policy[step][row] + mixing / len(rows) for row in rows]
            exponents = [
                (1 - step_size * heat) * math.log(p) + step_size * gain[row] for p, row in zip(mixed, rows, strict=True)
            ]
            weights = [math.exp(each - max(exponents)) for each in exponents]
            for row, weight in zip(rows, weights, strict=True):
                found[step][row] = weight / sum(weights)
    return found
