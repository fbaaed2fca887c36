"""One episode, step by step."""

import gymnasium
import numpy as np
import pytest

import peakrl
from helpers.random_policies import averaged_policy, chance_policy, random_chances, random_tables, table_policy
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import PeakError


def policies(seed):
    problem = random_problem(seed)
    model, rng = peakrl.compile_model(problem), np.random.default_rng(seed)
    tables = random_tables(problem, rng, 7)
    mixed = chance_policy(model, random_chances(problem, rng))
    return problem, (table_policy(model, tables[0]), mixed, averaged_policy(model, tables))


@seeds(5)
def test_a_rollout_is_the_first_episode_that_is_simulated_and_the_problem_allows_each_step(seed):
    problem, kinds = policies(seed)
    for policy in kinds:
        steps = peakrl.rollout(problem, policy, seed=seed)
        seen = peakrl.simulate(problem, policy, episodes=2, seed=seed)
        assert sum(step.reward for step in steps) == pytest.approx(seen.rewards[0], abs=1e-12)
        assert sum(step.violation for step in steps) == pytest.approx(seen.violations[0], abs=1e-12)
        assert [step.step for step in steps] == list(range(problem.horizon))
        for step in steps:
            outcomes = problem.outcomes(step.step, step.state, step.action)
            happened = (step.next_state, step.reward, step.constraints)
            assert happened in [(o.next_state, o.reward, tuple(o.constraints)) for o in outcomes if o.probability > 0]
        assert [step.next_state for step in steps[:-1]] == [step.state for step in steps[1:]]


def test_equal_seeds_give_equal_episodes_and_others_another():
    problem = peakrl.problems.energy_harvesting(horizon=8)
    policy = peakrl.problems.harvesting.greedy_policy(problem)
    episodes = [peakrl.rollout(problem, policy, seed=seed) for seed in (1, 1, 2)]
    assert episodes[0] == episodes[1] != episodes[2]


def test_an_environment_is_followed_as_it_is_simulated():
    problem = peakrl.problems.energy_harvesting(horizon=6, battery=3, max_arrival=3)
    env = peakrl.to_gymnasium(problem)
    run = peakrl.learn(env, episodes=3000)
    for policy in (run.policy, run.averaged_policy):
        steps = peakrl.rollout(env, policy, seed=3)
        seen = peakrl.simulate(env, policy, episodes=2, seed=3)
        assert sum(step.reward for step in steps) == pytest.approx(seen.rewards[0])
        assert sum(step.violation for step in steps) == seen.violations[0]
        assert len(steps) == 6
        assert [step.next_state for step in steps[:-1]] == [step.state for step in steps[1:]]


def test_an_environment_that_ends_has_no_state_after_its_last_step():
    def safe(transition):
        return 1.0

    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    env = peakrl.ConstrainedEnv(lake, horizon=20, reward_range=(0, 1), constraint=safe)
    steps = peakrl.rollout(env, peakrl.learn(env, episodes=300).policy)
    assert steps[-1].next_state is None
    assert all(step.constraints == (1.0,) for step in steps)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda problem, policy: peakrl.rollout(problem, policy, seed=-1), "seed is -1"),
        (lambda problem, policy: peakrl.rollout(problem, policy, seed=2**64), "from 0 to 2"),
        (lambda problem, policy: peakrl.rollout("lake", policy), "'lake' cannot be simulated"),
        (lambda problem, policy: peakrl.rollout(problem, lambda step, state: 0), "is not a policy"),
        (lambda problem, policy: peakrl.rollout(random_problem(99), policy), "belongs to"),
        (
            lambda problem, policy: peakrl.rollout(
                gymnasium.vector.SyncVectorEnv([lambda: peakrl.to_gymnasium(problem)] * 2), policy
            ),
            "pass a single environment",
        ),
    ],
)
def test_what_cannot_be_followed_is_named(call, message):
    problem, (policy, *_) = policies(1)
    with pytest.raises(PeakError, match=message):
        call(problem, policy)
