"""Bounds, upper and lower values, candidates and gaps agree with plain twins on random problems."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import naive_certified
from peakrl import Knowledge, LearnerSettings, compile_model, learn
from peakrl.kernels.certified import bounds
from peakrl.kernels.certified.bounds import FINE, ROUGH, beta, upper_mean
from peakrl.kernels.certified.candidates import plan_candidate
from peakrl.kernels.certified.gaps import measure_gaps
from peakrl.kernels.certified.tables import OPEN
from peakrl.learning.certified.proofs import FROZEN
from random_problems import random_problem

SEEDS = range(20)


def learned(seed, episodes=160):
    """A certified learner after some episodes of a random problem, on its way to what it cannot reach."""
    model = compile_model(random_problem(seed))
    run = learn(model, LearnerSettings.certified(1e-3), episodes=episodes, seed=seed, record="none", average=False)
    return run._active.algorithm


@pytest.mark.parametrize("seed", range(30))
def test_upper_means_are_the_least_over_nu(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 7))
    values = generator.normal(size=size) * 10.0 ** generator.integers(-3, 4)
    counts = generator.integers(1, 10 ** int(generator.integers(1, 6)), size)
    bound = values.max() + float(generator.choice([0.0, 0.1, 5.0])) * (np.ptp(values) + 1.0)
    total, share = float(counts.sum()), float(generator.uniform(0.1, 20))
    bet = beta(total, share)
    expected = naive_certified.upper_mean(
        Counter(dict(zip(values.tolist(), counts.tolist(), strict=True))), bound, share, bet
    )
    for precision, close in ((FINE, 1e-8), (ROUGH, 2e-3)):
        found, nu = upper_mean(values, counts, size, total, bound, share, bet, -math.inf, precision)
        width = max(bound - float(values @ counts) / total, 1e-12)
        assert nu >= bound
        assert -1e-9 * width - 1e-12 * abs(bound) <= found - expected <= close * width + 2e-9 * abs(bound)


@pytest.mark.parametrize(("precision", "usual"), [(ROUGH, 2.2), (FINE, 3.0)])
def test_the_best_nu_is_found_in_few_evaluations(precision, usual, monkeypatch):
    """Two and nearly three on average over these samples; a start or a step that is wrong takes twice as many."""
    evaluations = []
    growth, moments = (getattr(kernel, "py_func", kernel) for kernel in (bounds.growth, bounds.moments))
    monkeypatch.setattr(bounds, "growth", lambda *given: evaluations.append(1) or growth(*given))
    monkeypatch.setattr(bounds, "moments", moments)
    for seed in range(100):
        generator = np.random.default_rng(seed)
        size = int(generator.integers(1, 7))
        values = generator.normal(size=size) * 10.0 ** generator.integers(-3, 4)
        counts = generator.integers(1, 10 ** int(generator.integers(1, 6)), size)
        bound = values.max() + float(generator.choice([0.0, 0.1, 5.0])) * (np.ptp(values) + 1.0)
        total, share = float(counts.sum()), float(generator.uniform(0.1, 20))
        search = getattr(upper_mean, "py_func", upper_mean)
        search(values, counts, size, total, bound, share, beta(total, share), -math.inf, precision)
    assert len(evaluations) <= 100 * usual


@pytest.mark.parametrize("apart", [1e-7, 1e-8, 3e-9, 1e-9, 1e-12, 0.0])
def test_values_that_hardly_differ_give_a_bound_between_their_mean_and_the_largest(apart):
    for value in (-43.0, 1.0, 7e5):
        values, counts = value * (1 + np.array([0.0, apart])), np.array([999, 1])
        bound = float(values.max())
        found, _ = upper_mean(values, counts, 2, 1000.0, bound, 20.0, 25.0, -math.inf, FINE)
        assert values @ counts / 1000 - 1e-12 * abs(value) <= found <= bound


def test_a_thousand_millions_of_samples_lose_no_digits():
    # Two values a hair apart, and a bound far above: the mean stands out by its own size, not by that of nu.
    values, counts = np.array([1.0, 1.0 + 1e-6]), np.array([500_000_000, 500_000_000])
    bet = beta(1e9, 10.0)
    found, _ = upper_mean(values, counts, 2, 1e9, 100.0, bet, bet, -math.inf, FINE)
    deviation = 0.5e-6
    assert 0 <= found - (1 + deviation) <= 1e-3


@pytest.mark.parametrize("seed", SEEDS)
def test_upper_values_follow_from_the_counts(seed):
    learner = learned(seed)
    r, model = learner.rounds, learner.space.model
    fresh = r.fresh()
    u, w = naive_certified.upper_values(naive_certified.Counted(learner), r.terms.most, float(r.terms.log_share[0]))
    scale = 1e-8 * model.horizon * max(1.0, *map(abs, model.reward_range))
    for (step, row), value in u.items():
        entry = step * r.places.entry_stride + row
        assert (fresh.witness[entry] != OPEN) == (value is None)
        assert value is None or abs(fresh.upper[entry] - value) <= scale
    for (step, slot), value in w.items():
        assert bool(fresh.dead[step * r.places.node_stride + slot]) == (value is None)


@pytest.mark.parametrize("seed", SEEDS)
def test_lower_values_and_gaps_follow_from_the_samples_since_freezing(seed):
    learner = learned(seed)
    r, model = learner.rounds, learner.space.model
    if learner.stopped:
        return
    if not r.status[FROZEN]:
        r._freeze(r.candidate.copy())
        model_run(learner, 50)
    low = r.lower_values_now()
    seen = naive_certified.Counted(learner)
    steps, nodes = r.node_step.tolist(), r.nodes.tolist()
    slots = [node - step * r.places.node_stride for step, node in zip(steps, nodes, strict=True)]
    rows = {(step, slot): int(r.candidate[node]) for step, slot, node in zip(steps, slots, nodes, strict=True)}
    share = r.share(0.2 / 3) + math.log(r.goal.lower_bets)
    expected = naive_certified.lower_values(seen, rows, r.goal.least, share)
    scale = 1e-8 * model.horizon * max(1.0, *map(abs, model.reward_range))
    gap, stopping, challenger = np.zeros_like(low), np.zeros_like(low), np.zeros(len(low), np.int32)
    top = measure_gaps(r.places, r.terms, r.tables, r.candidate, low, gap, stopping, challenger)
    largest = 0.0
    for step, slot, node in zip(steps, slots, nodes, strict=True):
        assert abs(low[node] - expected[step, slot]) <= scale
        others = [
            r.tables.upper[step * r.places.entry_stride + row]
            for row in model.rows_of_slot(slot)
            if row != rows[step, slot] and r.tables.witness[step * r.places.entry_stride + row] == OPEN
        ]
        wanted = max(0.0, max(others) - expected[step, slot]) if others and not r.tables.dead[node] else 0.0
        assert abs(gap[node] - wanted) <= scale
        largest = max(largest, wanted)
    assert abs(top - largest) <= scale


def model_run(learner, episodes):
    """Let a learner play some more."""
    from peakrl.kernels.learning import Log
    from peakrl.kernels.sampling import seed_state

    no_log = Log(*(np.empty(0, np.int32) for _ in range(3)))
    learner.run(seed_state(np.uint64(9)), 160, episodes, no_log, np.empty((0, 2)), np.zeros(2, np.int64))


@pytest.mark.parametrize("seed", SEEDS)
def test_candidates_are_greedy_on_the_counts_with_some_pessimism(seed):
    learner = learned(seed)
    r = learner.rounds
    u, _ = naive_certified.upper_values(naive_certified.Counted(learner), r.terms.most, float(r.terms.log_share[0]))
    r.tables.witness[:] = r.fresh().witness
    nodes = len(r.candidate)
    rows, value, estimate = np.zeros(nodes, np.int32), np.zeros(nodes), np.zeros(nodes)
    plan_candidate(r.places, r.terms, r.tables, r.goal.least, rows, value, estimate)
    values, estimates, chosen = naive_certified.candidate(naive_certified.Counted(learner), u, r.goal.least)
    for (step, slot), expected in values.items():
        node = step * r.places.node_stride + slot
        assert value[node] == pytest.approx(expected, abs=1e-6)
        if chosen[step, slot] is not None and rows[node] == chosen[step, slot]:
            assert estimate[node] == pytest.approx(estimates[step, slot], abs=1e-6)


def test_every_bet_has_its_part_of_the_failure_probability():
    for seed in SEEDS:
        problem = random_problem(seed)
        model = compile_model(problem)
        settings = LearnerSettings.certified(0.1, failure_probability=0.1)
        r = learn(model, settings, episodes=1, record="none", average=False)._active.algorithm.rounds
        joint = model.payoffs.stride > 0
        steps = (model.horizon if joint else model.horizon - 1) if model.stationary else 1
        assert float(r.terms.log_share[0]) == pytest.approx(math.log((model.num_rows * steps + 1) / 0.06))
        states = model.num_slots * (steps if model.stationary else 1)
        assert r.goal.lower_bets == max(1, states)


def test_outcome_groups_share_one_bet():
    model = compile_model(random_problem(3, states=4, actions=3, horizon=4, stationary=True, outcome_payoffs=False))
    run = learn(
        model, LearnerSettings.certified(0.1), episodes=1, record="none", average=False,
        knowledge=Knowledge(outcome_groups=True),
    )  # fmt: skip
    laws = len(np.unique(model.layout.row_distribution))
    share = math.log((laws * 3 + 1) / (0.6 * 0.05))
    assert float(run._active.algorithm.rounds.terms.log_share[0]) == pytest.approx(share)
