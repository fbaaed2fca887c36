"""Exact arithmetic as the judge: what is possible is never 0, on models whose numbers are as small as numbers get.

The twin works with fractions on the readable problem: every float is a fraction, and fractions do not underflow.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from peakrl import Outcome, Policy, Problem, TabularModel, compile_model, evaluate, safe_set, solve
from peakrl.numerics import LEAST, times
from peakrl.policy import AveragedPolicy, StochasticPolicy
from peakrl.theory import solve_modified

#: Compiling tells of violations as small as these.
pytestmark = pytest.mark.filterwarnings("ignore:.*may be rounding:RuntimeWarning")
TINY = (5e-324, 1e-300, 1e-200, 1e-162, 1e-20, 0.25)
VALUES = (0.0, -0.0, 1.0, 1e-300, -5e-324, -1e-300, -1e-20, -1.0)


class Extreme(Problem):
    """A small problem drawn from a seed: tiny probabilities and tiny violations, payoffs that depend on the outcome."""

    constraint_names = ("f", "g")
    constraint_bounds = (1.0, 1.0)
    reward_range = (0.0, 1.0)

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.horizon, self.stationary = int(rng.integers(1, 5)), bool(rng.integers(2))
        self.states, self.safe = int(rng.integers(1, 4)), rng.random()
        self.first = drawn_law(rng, self.states)
        self.table = {
            (step, state, action): self.drawn(rng)
            for step in range(1 if self.stationary else self.horizon)
            for state in range(self.states)
            for action in range(2)
        }

    def drawn(self, rng):
        """Draw the outcomes of an action; most meet the constraints, so that problems are often feasible."""
        own = rng.random() < 0.5
        payoff = self.payoff(rng)
        return [Outcome(p, state, *(self.payoff(rng) if own else payoff)) for p, state in drawn_law(rng, self.states)]

    def payoff(self, rng):
        values = [float(rng.choice(VALUES)) if rng.random() > 0.7 + self.safe / 4 else 1.0 for _ in range(2)]
        return float(rng.choice([0.0, 1e-300, 1.0])), tuple(values)

    def initial(self):
        return self.first

    def actions(self, step, state):
        return (0, 1)

    def outcomes(self, step, state, action):
        return self.table[0 if self.stationary else step, state, action]


def drawn_law(rng, states):
    """Draw (probability, state) pairs, one of them likely, the others as unlikely as floats get."""
    chosen = rng.permutation(states)[: int(rng.integers(1, states + 1))].tolist()
    small = [float(rng.choice(TINY[:-1])) for _ in chosen[1:]]
    return [(1.0 - sum(small), chosen[0]), *zip(small, chosen[1:], strict=True)]


def exact(problem, chances):
    """Return the violation and its probability of a policy {(step, state): {action: weight}} as fractions."""
    mass = {state: Fraction(p) for p, state in problem.initial()}
    free = dict(mass)
    violation, first_time = Fraction(0), Fraction(0)
    for step in range(problem.horizon):
        following, still = {}, {}
        for state, here in mass.items():
            for action, weight in chances(step, state).items():
                for p, to, _, values in problem.outcomes(step, state, action):
                    part = here * Fraction(weight) * Fraction(p)
                    lost = sum(Fraction(-f) for f in values if f < 0)
                    violation += part * lost
                    following[to] = following.get(to, 0) + part
                    clean = free.get(state, Fraction(0)) * Fraction(weight) * Fraction(p)
                    if lost:
                        first_time += clean
                    else:
                        still[to] = still.get(to, 0) + clean
        mass, free = following, still
    return violation, first_time


def safe_actions(problem):
    """Return {(step, state): actions that keep every constraint for certain}, from the definition."""
    kept = {}
    for step in reversed(range(problem.horizon)):
        for state in range(problem.states):
            kept[step, state] = [
                action
                for action in problem.actions(step, state)
                if all(
                    min(outcome.constraints) >= 0
                    and (step + 1 == problem.horizon or kept[step + 1, outcome.next_state])
                    for outcome in problem.outcomes(step, state, action)
                )
            ]
    return kept


def agree(figure, truth, seed):
    """A figure is 0 exactly where the truth is, and close to it where floats can say it."""
    assert (figure == 0.0) == (truth == 0), (seed, figure, float(truth))
    if truth > Fraction(1e-270):
        assert abs(Fraction(figure) - truth) <= truth * Fraction(1e-9), seed


def reachable(model):
    """Yield (step, state) of every node that can be reached."""
    for step, (first, last) in enumerate(model.layout.step_slots.tolist()):
        base = step * model.layout.node_stride
        for slot in range(first, last):
            if model.reachable[base + slot]:
                yield step, model.state_of_slot(slot)


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(block, marks=pytest.mark.slow) for block in range(2, 8))])
def test_what_is_possible_is_never_0_and_what_is_impossible_always_is(block):
    """2,000 models in 8 blocks: feasibility, safe set, and figures of tables, mixtures and averaged policies."""
    vanishing = feasible = 0
    for seed in range(250 * block, 250 * block + 250):
        problem = Extreme(seed)
        model, rng = compile_model(problem), np.random.default_rng(seed)
        kept, safe, solution = safe_actions(problem), safe_set(model), solve(model)
        assert solution.feasible == all(kept[0, state] for _, state in problem.initial()), seed
        feasible += solution.feasible
        for step, state in reachable(model):
            assert safe.contains(state, step) == bool(kept[step, state]), seed
            assert list(safe.actions(state, step)) == kept[step, state], seed
        assert (solution.violation == 0.0) == solution.feasible, seed
        agree(evaluate(model, solution.policy).violation, exact(problem, taking(solution.policy))[0], seed)
        modified = solve_modified(model, slack=0.5, penalty=0.0)
        agree(modified.violation, exact(problem, taking(modified.policy))[0], seed)
        vanishing += check_policies(problem, model, rng, seed)
    assert vanishing > 20, "models whose probabilities underflow must come up, or nothing was tested"
    assert 20 < feasible < 230


def check_policies(problem, model, rng, seed):
    """Compare three kinds of policies; return whether plain products would have been 0."""
    tables = [Policy.from_rule(model, lambda step, state: int(rng.integers(2))) for _ in range(3)]
    truths = [exact(problem, taking(table)) for table in tables]
    for table, truth in zip(tables, truths, strict=True):
        check(evaluate(model, table), truth, seed)
    small = float(rng.choice(TINY))
    weights = np.tile([1.0 - small, small], model.num_entries // 2)
    mixed = StochasticPolicy(model, weights)
    check(evaluate(model, mixed), exact(problem, mixed.probabilities), seed)
    check(evaluate(model, averaged(model, tables)), [sum(parts) / 10 for parts in weighted(truths)], seed)
    return any(0 < figure < Fraction(5e-324) for truth in truths for figure in truth)


def check(evaluation, truth, seed):
    agree(evaluation.violation, truth[0], seed)
    agree(evaluation.violation_probability, truth[1], seed)
    assert bool((evaluation.worst_margin < 0).any()) == (truth[0] > 0), seed
    assert bool(evaluation.step_violations.any()) == (truth[0] > 0), seed


def taking(table):
    return lambda step, state: {table.action(step, state): 1.0}


def averaged(model, tables):
    """Return the mixture that follows the first table for 5 episodes, the second for 4 and the third for 1."""
    changes = []
    for episode, before, after in ((6, tables[0], tables[1]), (10, tables[1], tables[2])):
        nodes = np.flatnonzero(before.rows != after.rows)
        changes += [(episode, node, after.rows[node]) for node in nodes]
    columns = np.array(changes, np.int32).reshape(-1, 3).T
    return AveragedPolicy(model, 10, tables[0].rows, *columns)


def weighted(truths):
    return zip(*[(share * a, share * b) for share, (a, b) in zip((5, 4, 1), truths, strict=True)], strict=True)


def test_a_violation_of_the_least_size_at_a_quarter_of_the_time_is_told():
    """5e-324 with probability 0.25: the product is no floating-point number above 0."""
    both = np.array([[[0.25, 0.75]], [[0.0, 1.0]]])
    model = TabularModel.from_arrays(both, np.zeros((2, 1)), [[[-5e-324], [0.0]]], 3, initial=[0.25, 0.75])
    policy = Policy.from_rule(model, lambda step, state: 0)
    assert evaluate(model, policy).violation > 0
    assert evaluate(model, policy).violation_probability == 0.25
    assert not solve(model).feasible
    assert solve(model).violation > 0


def test_a_probability_below_all_floating_point_numbers_is_told():
    """1e-200 twice in a row: a probability of 1e-400, in tables, mixtures and averaged policies."""
    rare = np.zeros((3, 1, 3))
    rare[0, 0, :2], rare[1, 0, ::2], rare[2, 0, 2] = (1.0, 1e-200), (1.0, 0.0), 1.0
    rare[1, 0, 2], rare[1, 0, 0] = 1e-200, 1.0
    model = TabularModel.from_arrays(rare, np.zeros((3, 1)), [[[0.0], [0.0], [-1.0]]], 3)
    rows = Policy.from_rule(model, lambda step, state: 0)
    empty = np.zeros(0, np.int32)
    for policy in (
        rows,
        StochasticPolicy(model, np.ones(9)),
        AveragedPolicy(model, 10, rows.rows, empty, empty, empty),
    ):
        found = evaluate(model, policy)
        assert (found.violation, found.violation_probability) == (5e-324, 5e-324)
        assert found.worst_margin[0] == -1.0


def test_a_product_is_the_exact_one_unless_that_is_too_small():
    numbers = (0.0, -0.0, 1.0, -2.0, 5e-324, -5e-324, 1e-200, -1e-160, 1e300)
    for a in numbers:
        for b in numbers:
            truth = Fraction(a) * Fraction(b)
            product = times(a, b)
            assert (product == 0.0) == (truth == 0)
            assert product * float(np.sign(a) * np.sign(b)) >= 0
            if abs(truth) > Fraction(1e-300):
                assert product == a * b
            elif truth:
                assert abs(product) >= LEAST
