"""What posterior sampling comes to on problems of some size: minutes, so marked slow."""

from __future__ import annotations

import math

import gymnasium
import pytest

from benchmarks.models import sparse_model
from helpers.shielded_environments import large_holes, latest
from peakrl import Assumptions, ConstrainedEnv, Policy, compile_model, evaluate, from_gymnasium, learn, solve
from peakrl.errors import UnknownStateError
from peakrl.learners.posterior_sampling import CREDIT, DRAW_WORK
from peakrl.problems import energy_harvesting

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("peak", "episodes", "limit"), [(8, 1_000, 0.015), (8, 5_000, 0.0015), (15, 5_000, 0.01)])
def test_random_arrivals_come_within_their_share_of_the_optimum_without_a_violation(peak, episodes, limit):
    model = compile_model(energy_harvesting(peak_power=peak, log_base=math.e))
    best = solve(model).value
    for seed in range(100, 103):
        run = learn(model, episodes=episodes, seed=seed, history="none", average=False)
        found = evaluate(model, run.policy)
        assert found.violation == 0
        assert found.value >= (1 - limit) * best


def test_the_large_slippery_lake_is_solved_within_1_per_cent_by_20_000_episodes():
    env = gymnasium.make(latest("FrozenLake8x8"), is_slippery=True)
    model = compile_model(from_gymnasium(env, horizon=100, constraint=large_holes))
    best = solve(model)
    found = evaluate(model, learn(model, episodes=20_000, seed=100, history="none", average=False).policy)
    assert found.value == pytest.approx(best.value, rel=0.01)
    # Rare ways into a hole may not have been seen yet: 3e-4 with this seed.
    assert found.violation_probability < 1e-3


def test_taxi_with_its_own_200_steps_is_optimal_within_a_fifth_by_4_000_episodes():
    # Seed 7, on the table and on the environment, was looked at before: the optimum itself.
    env = gymnasium.make(latest("Taxi"))
    model = compile_model(from_gymnasium(env, horizon=200))
    best = solve(model).value
    on_table = learn(model, episodes=4_000, seed=100, history="none", average=False)
    assert evaluate(model, on_table.policy).value >= best - 0.2
    met = learn(
        ConstrainedEnv(env, horizon=200, reward_range=(-10, 20), constraint_bounds=()), episodes=4_000, seed=100,
        history="none", average=False,
    ).policy  # fmt: skip

    def rule(step, state):
        try:
            return met.action(step, state)
        except UnknownStateError:  # the end of an episode, and what was never met at that step
            return 0

    assert evaluate(model, Policy.from_rule(model, rule)).value >= best - 0.2


def test_taxi_with_a_discount_is_optimal_within_a_fifth_with_plans_200_times_smaller():
    env = gymnasium.make(latest("Taxi"))
    model = compile_model(from_gymnasium(env, horizon=200))
    declared = ConstrainedEnv(env, horizon=200, reward_range=(-10, 20), constraint_bounds=())
    options = {"history": "none", "average": False, "seed": 100}
    run = learn(declared, episodes=4_000, discount=0.99, **options)

    def rule(step, state):
        return run.policy.action(step, state) if state in run.policy.model.state_labels else 0

    assert evaluate(model, Policy.from_rule(model, rule)).value >= solve(model).value - 0.2
    by_step = learn(declared, episodes=10, assumptions=Assumptions(stationary=True), **options)

    def a_state(run):
        tables = run._learned.tables
        return (tables.value.size + tables.cost.size + tables.greedy.size) / len(tables.value)

    assert a_state(by_step) >= 200 * a_state(run)


def test_a_space_of_a_million_pairs_is_planned_lazily_and_learned_all_the_same():
    model = sparse_model(100_000)
    run = learn(model, episodes=20_000, seed=100, history="none", average=False)
    tables = run._learned.tables
    one_plan = model.horizon * (model.num_rows + int(tables.cells[0])) + DRAW_WORK * int(tables.cells[0])
    assert tables.plan_work[0] <= CREDIT + 2 * tables.step_work[0] + one_plan
    # A plan for every half per cent more episodes would be some 1,000 of them.
    assert tables.plans[0] < 100
    best = solve(model)
    assert evaluate(model, run.policy).value >= 0.95 * best.value
