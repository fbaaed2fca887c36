"""Random small problems for tests: every feature of `Problem` in combination, from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peakrl import Outcome, Problem


@dataclass(frozen=True)
class RandomProblem(Problem):
    """States 0..S-1 with tables drawn from a seed; see `random_problem` for the switches."""

    horizon: int
    tables: dict[tuple[int, int, int], list[Outcome]]
    offered: dict[tuple[int, int], list[int]]
    first: list[tuple[float, int]]
    reward_range: tuple[float, float]
    constraint_names: tuple[str, ...]
    constraint_bounds: tuple[float, ...]
    stationary: bool
    name: str = "random"

    def initial(self):
        return self.first

    def actions(self, step, state):
        return self.offered[0 if self.stationary else step, state]

    def outcomes(self, step, state, action):
        return self.tables[0 if self.stationary else step, state, action]


def random_problem(
    seed: int,
    *,
    states: int | None = None,
    actions: int | None = None,
    horizon: int | None = None,
    constraints: int | None = None,
    stationary: bool | None = None,
    outcome_payoffs: bool | None = None,
    safe_action: bool | None = None,
    integer_constraints: bool = False,
) -> RandomProblem:
    """Draw a problem. What is not given is drawn too; H = 1, one state and one action come up often.

    `safe_action` makes action 0 (always on offer) meet every constraint, so that the problem is feasible.
    """
    rng = np.random.default_rng(seed)
    states = int(rng.integers(1, 5)) if states is None else states
    actions = int(rng.integers(1, 4)) if actions is None else actions
    horizon = int(rng.integers(1, 5)) if horizon is None else horizon
    constraints = int(rng.integers(1, 5)) if constraints is None else constraints
    stationary = bool(rng.integers(2)) if stationary is None else stationary
    outcome_payoffs = bool(rng.integers(2)) if outcome_payoffs is None else outcome_payoffs
    safe_action = bool(rng.integers(2)) if safe_action is None else safe_action
    lo = float(rng.choice([0.0, -1.5, 2.0]))
    hi = lo + float(rng.choice([1.0, 3.0]))
    bounds = tuple(float(b) for b in rng.choice([1.0, 2.0, 4.0], constraints))
    tables, offered = {}, {}
    for step in range(1 if stationary else horizon):
        for state in range(states):
            on_offer = [a for a in range(actions) if a == 0 or rng.random() < 0.8]
            offered[step, state] = on_offer
            for action in on_offer:
                tables[step, state, action] = _outcomes(
                    rng,
                    state,
                    states,
                    (lo, hi),
                    bounds,
                    outcome_payoffs,
                    safe_action and action == 0,
                    integer_constraints,
                )
    if rng.random() < 0.5:
        first = [(1.0, int(rng.integers(states)))]
    else:
        first = [(float(p), s) for s, p in enumerate(rng.dirichlet(np.ones(states)))]
    names = tuple(f"f{i}" for i in range(constraints))
    return RandomProblem(horizon, tables, offered, first, (lo, hi), names, bounds, stationary)


def _outcomes(rng, state, states, lohi, bounds, outcome_payoffs, safe, integer):
    def payoff():
        reward = float(rng.uniform(*lohi))
        values = []
        for bound in bounds:
            value = float(rng.uniform(-bound, bound)) if rng.random() < 0.3 else float(rng.uniform(0, bound))
            value = float(np.trunc(value)) if integer else value
            values.append(abs(value) if safe else value)
        return reward, tuple(values)

    kind = rng.integers(4)
    if kind == 0:
        following, probability = [state], [1.0]  # absorbing
    elif kind == 1:
        following, probability = [int(rng.integers(states))], [1.0]
    else:
        following = [int(s) for s in rng.choice(states, size=int(rng.integers(1, states + 1)), replace=False)]
        probability = [float(p) for p in rng.dirichlet(np.ones(len(following)))]
    fixed = payoff()
    return [
        Outcome(p, s, *(payoff() if outcome_payoffs else fixed)) for p, s in zip(probability, following, strict=True)
    ]
