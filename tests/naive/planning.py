"""The best policies, by trying all of them, by recursion and by a linear programme for another solver."""

from __future__ import annotations

import math

import numpy as np

from naive.problems import decision_points, every_table, expected_sum, follow, plain_reward, total_violation


def best_of_all_tables(problem):
    """(violation, value): the least violation of any deterministic policy and the most reward at it."""
    scores = [
        (expected_sum(problem, follow(table), total_violation), expected_sum(problem, follow(table), plain_reward))
        for table in every_table(problem)
    ]
    least = min(violation for violation, _ in scores)
    return least, max(value for violation, value in scores if violation <= least + 1e-12)


def least_violation_then_reward(problem):
    """The same numbers by recursion, for problems with too many policies to try."""
    known = {}

    def best(step, state):
        if step == problem.horizon:
            return 0.0, 0.0
        if (step, state) not in known:
            scores = []
            for action in problem.actions(step, state):
                cost = value = 0.0
                for outcome in problem.outcomes(step, state, action):
                    if outcome.probability > 0:
                        cost_after, value_after = best(step + 1, outcome.next_state)
                        cost += outcome.probability * (total_violation(outcome) + cost_after)
                        value += outcome.probability * (outcome.reward + value_after)
                scores.append((cost, value))
            least = min(cost for cost, _ in scores)
            known[step, state] = least, max(value for cost, value in scores if cost <= least * (1 + 1e-12))
        return known[step, state]

    pairs = [(p, *best(0, state)) for p, state in problem.initial() if p > 0]
    return sum(p * cost for p, cost, _ in pairs), sum(p * value for p, _, value in pairs)


def occupancy_programme(problem, slack):
    """The approximated problem as printed, one variable for each (step, state, action), handed to cvxpy.

    Returns its optimal value, or None where there is no policy that keeps E|f_i^-| <= slack at every step.
    """
    import cvxpy

    points = decision_points(problem)
    keys = [(step, state, action) for step, state in points for action in problem.actions(step, state)]
    x = dict(zip(keys, cvxpy.Variable(len(keys), nonneg=True), strict=True))
    inflow = dict.fromkeys(points, 0.0)
    for p, state in problem.initial():
        if p > 0:
            inflow[0, state] += p
    value, used = 0.0, {}
    for (step, state, action), share in x.items():
        for outcome in problem.outcomes(step, state, action):
            if outcome.probability > 0:
                value += share * (outcome.probability * outcome.reward)
                if step < problem.horizon - 1:
                    inflow[step + 1, outcome.next_state] += share * outcome.probability
                for i, f in enumerate(outcome.constraints):
                    if f < 0:
                        used[step, i] = used.get((step, i), 0.0) + share * (outcome.probability * -f)
    flow = [
        sum(x[step, state, action] for action in problem.actions(step, state)) == arriving
        for (step, state), arriving in inflow.items()
    ]
    programme = cvxpy.Problem(cvxpy.Maximize(value), flow + [total <= slack for total in used.values()])
    # An interior-point solver, so that not even the method is ours; HiGHS would also clash with pyjobshop's copy.
    programme.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return None if programme.status == "infeasible" else float(programme.value)


def budget_programme(problem, used_by, limits, *, flag=False):
    """The most reward under limits on expected sums, one variable for each (step, state, flag, action), by cvxpy.

    `used_by(step, outcome, raised)` gives {limit: amount} of an outcome; `limits` maps the same keys to numbers. With
    `flag` a state remembers whether anything has been violated. Returns the optimal value; None where there is none.
    """
    import cvxpy

    inflow, value, used, rules = {}, 0.0, dict.fromkeys(limits, 0.0), []
    for p, state in problem.initial():
        if p > 0:
            inflow[state, False] = inflow.get((state, False), 0.0) + p
    for step in range(problem.horizon):
        following = {}
        for (state, raised), arriving in inflow.items():
            actions = list(problem.actions(step, state))
            shares = cvxpy.Variable(len(actions), nonneg=True)
            rules.append(cvxpy.sum(shares) == arriving)
            for share, action in zip(shares, actions, strict=True):
                for outcome in problem.outcomes(step, state, action):
                    if outcome.probability > 0:
                        value += share * (outcome.probability * outcome.reward)
                        for key, amount in used_by(step, outcome, raised).items():
                            used[key] += share * (outcome.probability * amount)
                        after = outcome.next_state, flag and (raised or any(f < 0 for f in outcome.constraints))
                        following[after] = following.get(after, 0.0) + share * outcome.probability
        inflow = following
    rules += [amount <= limits[key] for key, amount in used.items()]
    programme = cvxpy.Problem(cvxpy.Maximize(value), rules)
    programme.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return None if programme.status == "infeasible" else float(programme.value)


def extended_programme(seen, model, log_term, scale, limit):
    """OptCMDP's programme on counts, a variable for each (step, slot, row, next slot), by cvxpy.

    `seen` is {row: (n, mean reward, mean charge, {next slot: count})} and {first slot: share}; log_term = scale L.
    Returns the most reward above the lowest, or None where the limit cannot be kept. Last, a state "beyond" stands for
    what nothing is known of: it earns the whole span at each step and costs nothing.
    """
    import cvxpy

    (table, inflow), rules, value, used = seen, [], 0.0, 0.0
    lo, hi = model.reward_range
    inflow = dict(inflow)
    for step in range(model.horizon):
        following, last = {}, step == model.horizon - 1
        here = range(model.num_slots) if model.stationary else np.flatnonzero(model.step_of_slot == step).tolist()
        there = range(model.num_slots) if model.stationary else np.flatnonzero(model.step_of_slot == step + 1).tolist()
        value += inflow.get("beyond", 0.0) * (hi - lo)
        following["beyond"] = inflow.get("beyond", 0.0)
        for slot in here:
            rows = model.rows_of_slot(slot)
            shares = cvxpy.Variable(len(rows), nonneg=True)
            rules.append(cvxpy.sum(shares) == inflow.get(slot, 0.0))
            for share, row in zip(shares, rows, strict=True):
                n, reward, charge, counts = table[row]
                value += share * (reward - lo if n else hi - lo)
                used += share * charge
                if not n:
                    following["beyond"] += share
                elif not last:
                    z = cvxpy.Variable(len(there), nonneg=True)
                    rules.append(cvxpy.sum(z) == share)
                    for each, after in zip(z, there, strict=True):
                        p = counts.get(after, 0) / n
                        flat = 14 / 3 * log_term / n
                        beta = min(1.0, 2 * math.sqrt(p * (1 - p) * scale * log_term / n) + flat)
                        rules += [each <= (p + beta) * share, each >= (p - beta) * share]
                        following[after] = following.get(after, 0.0) + each
        inflow = following
    programme = cvxpy.Problem(cvxpy.Maximize(value), [*rules, used <= limit])
    programme.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return None if programme.status == "infeasible" else float(programme.value)


def optimistic_plan(rows_of, horizon, seen, reward, forbidden, span, bonus):
    """Return [step][slot]: greedy rows on counted transitions, where `rows_of` lists the rows of each slot.

    seen[row] lists (next slot, count) in order.
    """
    following, plan = [0.0] * len(rows_of), []
    for left in range(1, horizon + 1):
        values, chosen = [], []
        for rows in rows_of:
            q = {}
            for row in rows:
                n = sum(count for _, count in seen[row])
                q[row] = span * left
                if n:
                    mean = sum(count * following[place] for place, count in seen[row]) / n
                    square = sum(count * following[place] * following[place] for place, count in seen[row]) / n
                    deviation = math.sqrt(max(square - mean * mean, 0.0) / n)
                    q[row] = min(span * left, reward[row] + mean + bonus * deviation)
            allowed = [row for row in rows if not forbidden[row]]
            chosen.append(max(allowed, key=q.__getitem__))
            values.append(q[chosen[-1]])
        following = values
        plan.insert(0, chosen)
    return plan


def backward_tables(model):
    """V, C and the chosen row by (step, slot), with the sums of a model in their own order: equal bit for bit."""
    layout, reward, cost = model.layout, model.row_reward.tolist(), row_violations(model)
    start, link = layout.row_start.tolist(), layout.row_distribution.tolist()
    ends, following = layout.outcome_start.tolist(), layout.outcome_next.tolist()
    chance = layout.outcome_probability.tolist()
    values, costs, rows = {}, {}, {}
    for step in reversed(range(model.horizon)):
        for slot in range(*layout.step_slots[step].tolist()):
            scores = []
            for row in range(start[slot], start[slot + 1]):
                v = c = 0.0
                for o in range(ends[link[row]], ends[link[row] + 1]):
                    v += chance[o] * values.get((step + 1, following[o]), 0.0)
                    c += chance[o] * costs.get((step + 1, following[o]), 0.0)
                scores.append((cost[row] + c, reward[row] + v, row))
            if scores:
                limit = min(c for c, _, _ in scores) * (1.0 + 1e-12)
                c, v, row = max((s for s in scores if s[0] <= limit), key=lambda s: s[1])
                values[step, slot], costs[step, slot], rows[step, slot] = v, c, row
    return values, costs, rows


def row_violations(model):
    """[row]: the expected violation, from the payoff records; not for numbers so small that products vanish."""
    payoffs, layout = model.payoffs, model.layout
    records = [sum(max(-f, 0.0) for f in record) for record in payoffs.constraints.tolist()]
    costs = []
    for row, d in enumerate(layout.row_distribution.tolist()):
        outcomes = range(int(layout.outcome_start[d]), int(layout.outcome_start[d + 1]))
        first = int(payoffs.row_payoff[row])
        if payoffs.stride == 0:
            costs.append(records[first])
        else:
            costs.append(sum(float(layout.outcome_probability[o]) * records[first + j] for j, o in enumerate(outcomes)))
    return costs
