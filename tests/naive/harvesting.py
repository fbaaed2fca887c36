"""Energy harvesting, straight from its formulas."""

from __future__ import annotations

import math

from naive.problems import expected_sum, plain_reward, total_violation


def harvest_total(sequence, power_at, battery, base=2):
    """Walk one sequence: power_at(step, level, arrival) says what to send."""
    level, total = 0, 0.0
    for step, arrival in enumerate(sequence):
        power = power_at(step, level, arrival)
        assert 0 <= power <= level + arrival
        total += math.log(1 + power) / math.log(base)
        level = min(battery, level + arrival - power)
    return total


def convex_optimum(sequences, battery, peak):
    """The most that real powers <= peak earn on each sequence, in nats: the convex program as printed, by cvxpy."""
    import cvxpy

    horizon = len(sequences[0])
    power, energy = cvxpy.Variable(horizon), cvxpy.Parameter(horizon, nonneg=True)
    # Both ends are fixed (what is left after the last step is worth nothing): the solver has less to decide.
    level = cvxpy.hstack([0.0, *([cvxpy.Variable(horizon - 1)] if horizon > 1 else []), 0.0])
    rules = [power >= 0, power <= peak, level >= 0, level <= battery, power <= level[:-1] + energy - level[1:]]
    program = cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(cvxpy.log1p(power))), rules)
    totals = []
    for sequence in sequences:
        energy.value = [float(arrival) for arrival in sequence]
        if any(sequence):  # else nothing can be sent, and the program has no interior to start from
            program.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9, enforce_dpp=True)
        totals.append(float(program.value) if any(sequence) else 0.0)
    return totals


def harvest_optimum(sequence, battery, peak, base=2, unit=1.0):
    """The most that powers 0, unit, 2 unit, ... <= peak earn on a sequence, by recursion on the units left."""
    memo = {}

    def best(step, level):
        if step == len(sequence):
            return 0.0
        if (step, level) not in memo:
            available = level + round(sequence[step] / unit)
            memo[step, level] = max(
                math.log(1 + send * unit) / math.log(base)
                + best(step + 1, min(round(battery / unit), available - send))
                for send in range(min(math.floor(peak / unit + 1e-9), available) + 1)
            )
        return memo[step, level]

    return best(0, 0)


def harvest_value(law, horizon, battery, peak, choose, base=math.e):
    """Expected total with independent arrivals of a law; choose(options) picks among (total, power) pairs."""
    value = [0.0] * (battery + 1)
    for _ in range(horizon):
        earlier = []
        for level in range(battery + 1):
            total = 0.0
            for arrival, probability in enumerate(law):
                have = level + arrival
                options = [
                    (math.log(1 + power) / math.log(base) + value[min(battery, have - power)], power)
                    for power in range(min(peak, have) + 1)
                ]
                total += probability * choose(options)[0]
            earlier.append(total)
        value = earlier
    return value[0]


def harvest_expectation(problem, rule):
    """Expected total reward and violation of rule(step, state) -> power."""

    def chances(step, state):
        return {rule(step, state): 1.0}

    return expected_sum(problem, chances, plain_reward), expected_sum(problem, chances, total_violation)
