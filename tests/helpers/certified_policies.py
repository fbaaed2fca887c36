"""Certificates of every kind on random problems, for tests that store, forge and check them."""

from __future__ import annotations

import numpy as np

import peakrl
from helpers.random_policies import averaged_policy, chance_policy, random_chances, random_tables, table_policy
from helpers.random_problems import random_problem


def policies(problem, seed):
    """A policy of each form on a problem, and the optimum's."""
    model, rng = peakrl.compile_model(problem), np.random.default_rng(seed)
    tables = random_tables(problem, rng, 6)
    return [
        peakrl.solve(model).policy,
        table_policy(model, tables[0]),
        chance_policy(model, random_chances(problem, rng)),
        averaged_policy(model, tables),
    ]


def certificates(seed):
    """Exact and sampled certificates, with and without an epsilon, such that hold and such that do not."""
    problem = random_problem(seed)
    for policy in policies(problem, seed):
        for epsilon in (None, 0.0, 3.0):
            yield peakrl.certify(problem, policy, epsilon=epsilon)
        for epsilon in (None, 8.0):
            yield peakrl.certify(problem, policy, epsilon=epsilon, episodes=60, seed=seed)
