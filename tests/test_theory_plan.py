"""Theorem 1: the averaged policy is (epsilon, p)-PAC, and the test that says so can tell a broken learner.

Constants of the test: epsilon = 0.25 and p = 0.1, slack epsilon/(6HI), Bernstein bonus with c1 = c2 = 1e-4, stepwise
start, K = 2,000 episodes, 200 seeds. If at most a share p of all runs fails, the number of failures among 200 seeds is
stochastically below Binomial(200, p); a p-value below 0.001 then comes up with probability at most 0.001 a problem.
The optimistic learner without a penalty runs into the violations of the unconstrained optimum, so its runs fail.
"""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from helpers.random_problems import random_problem
from peakrl import compile_model, evaluate, learn, solve
from peakrl.learners import ConstrainedQ

EPSILON, FAILURE, EPISODES, SEEDS = 0.25, 0.1, 2_000, 200
#: Random problems in which the unconstrained optimum earns more and violates by more than epsilon.
PROBLEMS = (125, 291, 345)


def failures(seed, penalty):
    """How many of the runs are not (epsilon, p)-PAC: by exact value and violation of the averaged policy."""
    model = compile_model(random_problem(seed, states=3, actions=3, horizon=3, constraints=2, safe_action=True))
    optimum = solve(model)
    assert optimum.feasible
    assert model.reward_range == (0.0, 1.0)
    slack = EPSILON / (6 * model.horizon * model.num_constraints)
    settings = ConstrainedQ.paper(slack, penalty=penalty, start="stepwise", c1=1e-4, c2=1e-4)
    count = 0
    for run_seed in range(SEEDS):
        run = learn(model, settings, episodes=EPISODES, seed=run_seed, history=EPISODES, average=run_seed == 0)
        gap = optimum.value - run.history.averaged_value[-1]
        failed = gap > EPSILON or run.history.averaged_violation[-1] > EPSILON
        if run_seed == 0:
            found = evaluate(model, run.averaged_policy)
            assert (optimum.value - found.value > EPSILON or found.violation > EPSILON) == failed
        count += failed
    return count


@pytest.mark.parametrize("seed", PROBLEMS)
def test_the_share_of_runs_that_are_not_pac_is_consistent_with_p(seed):
    assert binomtest(failures(seed, None), SEEDS, FAILURE, alternative="greater").pvalue > 0.001


@pytest.mark.parametrize("seed", PROBLEMS)
def test_a_learner_without_penalty_fails_the_same_test(seed):
    assert binomtest(failures(seed, 0.0), SEEDS, FAILURE, alternative="greater").pvalue < 1e-6
