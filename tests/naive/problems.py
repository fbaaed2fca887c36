"""What can happen in a problem and what it comes to: trajectories, expectations and every policy there is."""

from __future__ import annotations

import itertools


def plain_reward(outcome):
    return outcome.reward


def total_violation(outcome):
    return sum(max(-f, 0.0) for f in outcome.constraints)


def modified_reward(outcome, slack, penalty):
    """R = r + (penalty / I) * sum_i min(0, f_i^- + slack) of one outcome."""
    count = max(len(outcome.constraints), 1)
    return outcome.reward + penalty / count * sum(min(0.0, min(f, 0.0) + slack) for f in outcome.constraints)


def decision_points(problem):
    """Every (step, state) that some policy can meet before the horizon, in order of the step."""
    layer, points = {state for p, state in problem.initial() if p > 0}, []
    for step in range(problem.horizon):
        points += [(step, state) for state in layer]
        layer = {
            outcome.next_state
            for state in layer
            for action in problem.actions(step, state)
            for outcome in problem.outcomes(step, state, action)
            if outcome.probability > 0
        }
    return points


def expected_sum(problem, chances, quantity):
    """E[sum over steps of quantity(outcome)] where chances(step, state) = {action: probability}: forwards."""
    here, total = {}, 0.0
    for p, state in problem.initial():
        here[state] = here.get(state, 0.0) + p
    for step in range(problem.horizon):
        there = {}
        for state, reached in here.items():
            if reached == 0:
                continue
            for action, chance in chances(step, state).items():
                for outcome in problem.outcomes(step, state, action):
                    weight = reached * chance * outcome.probability
                    total += weight * quantity(outcome)
                    there[outcome.next_state] = there.get(outcome.next_state, 0.0) + weight
        here = there
    return total


def every_table(problem):
    """Every deterministic policy, as a dictionary (step, state) -> action."""
    points = decision_points(problem)
    for actions in itertools.product(*(list(problem.actions(*point)) for point in points)):
        yield dict(zip(points, actions, strict=True))


def follow(table):
    """The policy of a dictionary, as `expected_sum` asks for it."""
    return lambda step, state: {table[step, state]: 1.0}


def trajectories(problem, chances, step=0, state=None):
    """Every (probability, outcomes) that an episode can turn out as, where chances(step, state) = {action: chance}."""
    if state is None:
        for p, first in problem.initial():
            if p > 0:
                yield from ((p * q, outcomes) for q, outcomes in trajectories(problem, chances, 0, first))
        return
    if step == problem.horizon:
        yield 1.0, []
        return
    for action, chance in chances(step, state).items():
        for outcome in problem.outcomes(step, state, action):
            if chance * outcome.probability > 0:
                for q, rest in trajectories(problem, chances, step + 1, outcome.next_state):
                    yield chance * outcome.probability * q, [outcome, *rest]


def evaluate_by_trajectories(problem, chances):
    """What an evaluation reports, by adding up every trajectory (states must not be None)."""
    steps, count = range(problem.horizon), range(len(problem.constraint_names))
    paths = list(trajectories(problem, chances))
    return {
        "value": sum(p * sum(o.reward for o in outcomes) for p, outcomes in paths),
        "violation": sum(p * sum(total_violation(o) for o in outcomes) for p, outcomes in paths),
        "violation_probability": sum(p for p, outcomes in paths if any(total_violation(o) > 0 for o in outcomes)),
        "step_rewards": [sum(p * outcomes[h].reward for p, outcomes in paths) for h in steps],
        "step_violations": [
            [sum(p * max(-outcomes[h].constraints[i], 0.0) for p, outcomes in paths) for i in count] for h in steps
        ],
        "worst_margin": [min(o.constraints[i] for _, outcomes in paths for o in outcomes) for i in count],
    }


def mean_of_evaluations(results):
    """The evaluation of a policy that is drawn once an episode, uniformly, from those that were evaluated."""

    def mean(values):
        if isinstance(values[0], list):
            return [mean(list(members)) for members in zip(*values, strict=True)]
        return sum(values) / len(values)

    merged = {name: mean([result[name] for result in results]) for name in results[0] if name != "worst_margin"}
    merged["worst_margin"] = [min(margins) for margins in zip(*(r["worst_margin"] for r in results), strict=True)]
    return merged


def safe_entries(problem):
    """Every (step, state, action) from which all constraints can still be met for certain, backwards by definition."""
    alive = {(problem.horizon, None)}
    safe = set()
    states = {state for _, state in decision_points(problem)}
    for step in reversed(range(problem.horizon)):
        for state in states:
            try:
                actions = list(problem.actions(step, state))
            except KeyError:
                continue
            for action in actions:
                outcomes = [o for o in problem.outcomes(step, state, action) if o.probability > 0]
                if all(
                    total_violation(o) == 0 and (step + 1 == problem.horizon or (step + 1, o.next_state) in alive)
                    for o in outcomes
                ):
                    safe.add((step, state, action))
                    alive.add((step, state))
    return safe
