"""Where a policy was never: the count and the probability by brute force, and whether the bound from counts holds."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

from experiments.robustness import instance
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import Learner, compile_model, learn, solve
from peakrl.learners import UCBVI, ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.learners.coverage import (
    BY_MODEL,
    NOTHING_KNOWN,
    Outcomes,
    least_mean,
    reach_untried,
    survival_low,
)
from peakrl.training import load_run

COUNTING = {
    "posterior": PosteriorSampling(),
    "UCBVI": UCBVI(),
    "practical": SafeQ(),
    "Algorithm 1": ConstrainedQ.published(0.1),
}


class First(Learner):
    def act(self, step, state, actions):
        return actions[0]


def untried_of(problem, model, run):
    """Walk the readable problem: {(step, state)} where the policy's pair was not tried, and how likely one is met."""
    tried = run._learned.tried()
    mass, places, probability = {state: p for p, state in problem.initial()}, set(), 0.0
    for step in range(problem.horizon):
        following = {}
        for state, weight in mass.items():
            action = run.policy.action(step, state)
            if not tried[model.row_of(step, state, action)]:
                places.add((step, state))
                probability += weight
                continue
            for outcome in problem.outcomes(step, state, action):
                after = outcome.next_state
                following[after] = following.get(after, 0.0) + weight * outcome.probability
        mass = following
    return places, probability


@pytest.mark.parametrize("name", COUNTING)
@seeds(5)
def test_untried_places_and_their_probability_are_those_of_a_walk_through_the_problem(name, seed):
    problem = random_problem(seed)
    model = compile_model(problem)
    run = learn(model, COUNTING[name], episodes=8, seed=seed, history="none")
    places, probability = untried_of(problem, model, run)
    assert run.coverage.states == len(places)
    assert run.coverage.probability == pytest.approx(probability, abs=1e-12)


def survival_of(learner, step, slot):
    """S of the policy from a slot on, by recursion over everything that was seen to follow."""
    space, outcomes = learner.space, learner.outcomes()
    if step == space.horizon or space.layout.row_start[slot] == space.layout.row_start[slot + 1]:
        return 1.0
    row = learner.chosen()[slot, step if space.shared else 0]
    if not learner.tried()[row]:
        return 0.0
    distribution = outcomes.distribution_of_row[row]
    cells = range(outcomes.start[distribution], outcomes.start[distribution + 1])
    ahead = [survival_of(learner, step + 1, outcomes.following[cell]) for cell in cells]
    return least_mean(outcomes.count[list(cells)], np.array(ahead), share_of(outcomes))


def share_of(outcomes):
    """log of one over the failure probability of a distribution, the last one of all to be visited."""
    distributions = sum(last > first for first, last in pairwise(outcomes.start)) + 1
    return math.log(distributions * (distributions + 1) / 0.05)


@seeds(5)
def test_the_bound_of_a_policy_is_that_of_a_recursion_over_what_was_seen(seed):
    compare_with_recursion(learn(compile_model(random_problem(seed)), episodes=100, seed=seed, history="none"))


@pytest.mark.parametrize(("seed", "episodes"), [(3, 40), (12, 40), (22, 40), (27, 6), (12, 20)])
def test_so_it_is_where_the_policy_was_seen_to_lead_to_what_was_never_tried(seed, episodes):
    problem = random_problem(seed, states=4, actions=3, horizon=4)
    run = learn(compile_model(problem), episodes=episodes, seed=seed, history="none")
    assert run.coverage.states > 0
    assert run.coverage.probability_high < 1.0
    compare_with_recursion(run)


def compare_with_recursion(run):
    learner = run._learned
    outcomes = learner.outcomes()
    began = np.flatnonzero(outcomes.begun)
    ahead = np.array([survival_of(learner, 0, slot) for slot in began])
    least = least_mean(outcomes.begun[began], ahead, share_of(outcomes))
    assert run.coverage.probability_high == pytest.approx(1.0 - least, rel=1e-12)


def room_of(count, share):
    """R of a distribution: log G(n + A) - log G(A) one factor at a time, A = 1/2."""
    room = share + sum(math.log(t + 0.5) for t in range(int(sum(count))))
    return room - len(count) * math.log(0.5) - sum(math.log(math.factorial(int(c) - 1)) for c in count)


def worst_of_all(count, survival, share):
    """S of a distribution with two outcomes, by trying a million distributions."""
    first = np.linspace(0.0, 1.0, 1_000_001)[1:-1]
    allowed = (count[0] - 1) * -np.log(first) + (count[1] - 1) * -np.log1p(-first) <= room_of(count, share)
    return float((first * survival[0] + (1.0 - first) * survival[1])[allowed].min())


@pytest.mark.parametrize(("well", "badly"), [(90, 30), (40, 2), (7, 50)])
def test_a_place_that_was_met_often_and_never_tried_counts_as_met_with_the_worst_distribution_of_all(well, badly):
    """Two steps; the first led to slot 1, where the action was tried, and to slot 2, where it was not."""
    share, total = 4.0, well + badly
    rows, tried = np.arange(4).reshape(-1, 1), np.array([True, True, False])
    distributions, start = np.arange(3, dtype=np.int32), np.array([0, 2, 3, 3])
    begun = np.array([total, 0, 0, 0])
    outcomes = Outcomes(distributions, start, np.array([1, 2, 3]), np.array([well, badly, well]), begun)
    untried, survival = survival_low(np.array([1, 2, 0]), 0, rows, tried, outcomes, share)
    once, first = (math.exp(-room_of([count], share) / (count - 1)) for count in (well, total))
    assert untried == 1
    assert survival == pytest.approx(first * worst_of_all((well, badly), (once, 0.0), share), abs=2e-6)


def test_a_probability_of_meeting_what_was_never_tried_is_at_most_1():
    model = compile_model(random_problem(1))
    mass, sent = np.zeros(model.num_slots), np.zeros(len(model.outcome_start) - 1)
    mass[:2] = 0.5, 0.5 + 2**-52
    tried = np.zeros(model.num_rows, bool)
    assert reach_untried(model.layout, mass, sent, solve(model).policy.rows, tried) == (2, 1.0)


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")  # SciPy 1.13
@seeds(5)
def test_the_least_mean_of_a_distribution_is_that_of_a_general_optimiser(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 5))
    count, survival = rng.integers(1, 60, size), np.round(rng.random(size), 2)
    count[0] += 1
    survival[rng.random(size) < 0.3] = 0.0
    share = 4.0
    limit, weight = room_of(count, share), count - 1.0
    found = minimize(
        lambda p: float(p @ survival),
        np.maximum(weight, 0.5) / np.maximum(weight, 0.5).sum() * 0.99,
        bounds=[(1e-9, 1.0)] * size,
        constraints=[
            {"type": "ineq", "fun": lambda p: 1.0 - p.sum()},
            {"type": "ineq", "fun": lambda p: limit + float(weight @ np.log(p))},
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert least_mean(count, survival, share) == pytest.approx(found.fun, abs=1e-5)


def test_the_bound_from_counts_holds_in_at_least_95_per_cent_of_200_runs():
    # Short runs, so that there is something left to meet: the exact probability is above 0 in more than half of them.
    held = positive = 0
    for number in range(200):
        problem = random_problem(number % 40)
        settings = UCBVI() if number % 3 == 0 else PosteriorSampling()
        run = learn(
            compile_model(problem), settings, episodes=(3, 10, 30, 100)[number % 4], seed=number, history="none"
        )
        found = run.coverage
        positive += found.probability > 0
        held += found.probability <= found.probability_high
    assert held >= 190
    assert positive >= 50


def test_the_bound_is_worth_something_after_10_000_episodes_and_falls_with_more():
    # 0.10 after 10,000 episodes; what was never seen can hardly be bounded below 1 in so many episodes.
    model = instance("dense", 300)
    few, many = (learn(model, episodes=count, history="none").coverage for count in (1_000, 10_000))
    assert many.probability_high < 0.15
    assert few.probability_high > 3 * many.probability_high
    assert many.confidence == 0.95


def test_an_environment_is_told_the_same_bound_and_no_exact_probability():
    model = compile_model(random_problem(3))
    settings = PosteriorSampling()
    on_model = learn(model, settings, episodes=60, seed=5, history="none").coverage
    there = learn(ModelEnvironment(model, 5), settings, episodes=60, seed=5, history="none").coverage
    assert there.probability is None
    assert there.probability_high == pytest.approx(on_model.probability_high, rel=1e-9)
    assert "at most" in str(there)


def test_who_counts_no_outcomes_says_so_and_who_counts_nothing_says_nothing(tmp_path):
    model = compile_model(random_problem(3))
    assert learn(model, SafeQ(), episodes=5).coverage.rests_on == BY_MODEL
    there = learn(ModelEnvironment(model, 5), SafeQ(), episodes=5).coverage
    assert (there.probability_high, there.rests_on) == (1.0, NOTHING_KNOWN)
    assert learn(model, First(), episodes=5).coverage is None


def test_it_is_part_of_what_a_run_prints_and_survives_a_file(tmp_path):
    model = compile_model(random_problem(3))
    run = learn(model, episodes=20, seed=1)
    run.save(tmp_path / "kept.run")
    assert str(run.coverage) in repr(run)
    assert load_run(tmp_path / "kept.run").coverage == run.coverage
