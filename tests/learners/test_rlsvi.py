"""RLSVI: its plan against a plain twin with the same random numbers, and what it learns."""

from __future__ import annotations

import math

import numpy as np

from helpers.random_problems import random_problem
from helpers.seeds import seeds
from naive import Xoshiro
from peakrl import Assumptions, compile_model, evaluate, learn, resume, simulate, solve, to_gymnasium
from peakrl.learners import RLSVI
from peakrl.learners.counts import counted_outcomes
from peakrl.learners.rlsvi import RandomisedPlanner
from peakrl.learners.space import planning_order
from peakrl.problems import energy_harvesting
from peakrl.training.trainer import Trainer

SMALL = energy_harvesting(horizon=5, battery=5, max_arrival=5, mean=3, std=2, peak_power=3, log_base=math.e)


def normal(generator):
    """A normal number by the polar method."""
    while True:
        x, y = 2 * generator.uniform() - 1, 2 * generator.uniform() - 1
        if 0 < x * x + y * y < 1:
            return x * math.sqrt(-2 * math.log(x * x + y * y) / (x * x + y * y))


def plan_of(algorithm, generator=None):
    """{(step, slot): row} by the formulas, without noise if there is no generator; slots in the order of planning."""
    space, counts, seen = algorithm.space, algorithm.tables.counts, counted_outcomes(algorithm.tables.counts)
    (lo, hi), starts = algorithm.task.sizes.reward_range, space.layout.row_start
    ahead, plan = {}, {}
    for step in reversed(range(space.horizon)):
        cap, values = (hi - lo) * (space.horizon - step), {}
        for slot in planning_order(algorithm.space).tolist():
            q = {}
            for row in range(starts[slot], starts[slot + 1]) if space.shared or space.slot_step[slot] == step else ():
                if counts.max_violation[row] == 0:
                    cells, n = range(seen.start[row], seen.start[row + 1]), counts.visits[row]
                    total = sum(seen.count[cell] * ahead.get(int(seen.following[cell]), 0.0) for cell in cells)
                    total += counts.reward[row] - lo * n
                    q[row] = total / max(n, 1)
                    if generator:
                        sigma = 0.7 * (hi - lo) / math.sqrt(n + 1) + cap / (n + 1)
                        q[row] = min(cap, total / (n + 1) + sigma * normal(generator))
            values[slot] = max(q.values(), default=0.0)
            if q:
                plan[step, slot] = max(q, key=q.__getitem__)
        ahead = values
    return plan


def agrees(rows, plan):
    """Does a table [slot, column] hold the rows of a plan?"""
    return all(rows[slot, min(step, rows.shape[1] - 1)] == row for (step, slot), row in plan.items())


@seeds(5)
def test_its_plans_agree_with_a_plain_twin(seed):
    model, generator = compile_model(random_problem(seed)), Xoshiro(seed ^ RandomisedPlanner.stream)
    active = Trainer(model, RLSVI(noise=0.7), planned=100, seed=seed, every=0, average=False)
    for _ in range(20):
        assert agrees(active.learned().chosen(), plan_of(active.learned()))
        expected = plan_of(active.learned(), generator)
        active.advance(1)
        assert agrees(active.learned().greedy(), expected)


def test_it_comes_close_to_the_optimum_and_stops_violating():
    model = compile_model(SMALL)
    run = learn(model, RLSVI(), episodes=4_000)
    result = evaluate(model, run.policy)
    assert result.value > 0.99 * solve(model).value
    assert result.violation == 0
    assert 0 < run.last_violation_episode < 4_000


def test_a_run_cut_in_two_equals_the_whole(tmp_path):
    whole = learn(SMALL, RLSVI(), episodes=90, seed=3)
    learn(SMALL, RLSVI(), episodes=37, seed=3, checkpoint=tmp_path / "run")
    continued = resume(tmp_path / "run", episodes=90)
    assert np.array_equal(continued.policy.rows, whole.policy.rows)
    assert np.array_equal(continued.averaged_policy.change_row, whole.averaged_policy.change_row)


def test_an_environment_is_learned():
    env = to_gymnasium(SMALL)
    run = learn(env, RLSVI(), episodes=1_000, assumptions=Assumptions(stationary=True))
    assert simulate(env, run.policy, episodes=500, seed=1).value > 0.95 * solve(SMALL).value
