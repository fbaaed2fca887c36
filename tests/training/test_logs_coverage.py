"""Bounds from logs are false at most as often as allowed, and those of a broken procedure more often.

Each family has the log size at which its bounds begin to bite. Loggers are uniform, or adapt: after each block of
episodes they follow the policy that looks best so far, with some noise.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from helpers import certified_problems as problems
from helpers.random_problems import random_problem
from helpers.recorded_logs import as_rule, joined, logs_of, record, truth, uniform
from peakrl import Assumptions, Logs, Policy, compile_model, evaluate, learn, solve
from peakrl.learners import Pessimistic
from peakrl.problems import energy_harvesting, scheduling_example

HARVESTING = compile_model(energy_harvesting(horizon=3, battery=2, max_arrival=2, mean=1, std=1, peak_power=2))


def drawn(seed, **options):
    return compile_model(random_problem(seed, states=3, actions=2, horizon=3, **options))


#: Model, episodes of a log, declarations.
FAMILIES = {
    "jackpot": (problems.rare_jackpot(), 60, {}),
    "catastrophe": (problems.rare_catastrophe(), 60, {}),
    "tie": (problems.near_tie(), 40, {"stationary": True}),
    "first": (problems.rare_first(), 40, {}),
    "lottery": (compile_model(problems.Lottery()), 40, {}),
    "layered": (drawn(8, stationary=False, outcome_payoffs=False), 60, {"rewards": True}),
    "outcomes": (drawn(8, stationary=False, outcome_payoffs=True), 60, {}),
    "stationary": (drawn(9, stationary=True), 60, {"stationary": True, "states": 3}),
    "harvesting": (HARVESTING, 60, {"stationary": True, "states": 9, "rewards": True}),
    "scheduling": (compile_model(scheduling_example(1)), 60, {}),
}  # fmt: skip


def adaptive(model, episodes, rng):
    """A log of a logger that follows what looked best so far in half of its episodes; four blocks."""
    parts, size = [record(model, episodes // 4, rng)], episodes // 4
    uniform = uniform_weights(model)
    for block in range(1, 4):
        run = learn(logs_of(model, joined(*parts)), history="none")
        greedy = weights_of(truth(model, run))
        parts.append(record(model, size, rng, 0.5 * greedy + 0.5 * uniform, first=block * size))
    return joined(*parts)


def uniform_weights(model):
    sizes = np.diff(model.row_start)
    return np.tile(np.repeat(1.0 / np.maximum(sizes, 1), sizes), model.num_entries // model.num_rows)


def weights_of(policy):
    """[entry]: one for each taken row."""
    model = policy.model
    weights = uniform_weights(model)
    for step, slot, node in model.decisions():
        rows = np.array(model.rows_of_slot(slot))
        weights[rows + step * model.entry_stride] = rows == policy.rows[node]
    return weights


def false_bounds(model, declared, logs, p, best, policy=None, behavior=None):
    """Is any bound of the certificate of the chosen, or of a given, policy false?"""
    if policy is None:
        settings = Pessimistic(failure_probability=p, behavior=behavior)
        run = learn(logs, settings, assumptions=Assumptions(**declared), history="none")
        certificate, policy = run.certificate, truth(model, run)
    else:
        certificate = evaluate(logs, as_rule(policy), failure_probability=p, assumptions=Assumptions(**declared))
    exact = evaluate(model, policy)
    high = certificate.optimum_high
    return (
        exact.value < certificate.value_low - 1e-9
        or (best.feasible and (high is None or high < best.value - 1e-9))
        or exact.violation_probability > certificate.violation_probability_high + 1e-9
        or (not best.feasible and certificate.violation_high == 0)
    )


def numbers_of_false(name, count, collect, seed=0, behavior=None):
    """{p: in how many logs a bound is false}; bounds of a given policy must never be, for p of a millionth."""
    model, episodes, declared = FAMILIES[name]
    best, given = solve(model), Policy.from_rule(model, lambda step, state: first_action(model, step, state))
    bad = {0.2: 0, 0.5: 0}
    for number in range(count):
        logs = logs_of(model, collect(model, episodes, np.random.default_rng((seed, number))))
        for p in bad:
            bad[p] += false_bounds(model, declared, logs, p, best, behavior=behavior)
        if number % 5 == 0:
            assert not false_bounds(model, declared, logs, 1e-6, best, given)
    return bad


def first_action(model, step, state):
    return model.action_of_row(model.rows_of_slot(model.slot_of(step, state))[0])


@pytest.mark.parametrize("behavior", [None, uniform])
@pytest.mark.parametrize("name", ["jackpot", "outcomes"])
def test_bounds_are_false_at_most_as_often_as_allowed(name, behavior):
    for p, bad in numbers_of_false(name, 15, adaptive, behavior=behavior).items():
        assert binomtest(bad, 15, p, "greater").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("collect", "behavior"), [(record, None), (adaptive, None), (adaptive, uniform)])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_thousand_logs_of_every_family(name, collect, behavior):
    found = numbers_of_false(name, 1000, collect, seed=1, behavior=behavior)
    print(f"{name}, {collect.__name__}, behaviour {behavior}: false {found} of 1,000")
    for p, bad in found.items():
        assert binomtest(bad, 1000, p, "greater").pvalue > 1e-3


# Broken procedures: one step, one state, 10,000 actions that all earn 1 with probability 0.5 --------------------------

ACTIONS, TIMES = 10_000, 12


def bandit(actions, rng):
    """A log of these actions, an episode for each."""
    count = len(actions)
    zeros = np.zeros(count, np.int64)
    table = {"episode": np.arange(count), "state": zeros, "action": actions, "reward": rng.integers(0, 2, count)}
    return Logs.from_frame(table, horizon=1, reward_range=(0, 1), actions=range(ACTIONS))


def looks_best(logs):
    """The action that earned the most."""
    return int(np.bincount(logs.action, logs.reward, ACTIONS).argmax())


def bound_of(logs, action, p):
    """The lower bound of an action, which earns 0.5."""
    rule = lambda step, state, actions: action  # noqa: E731
    return evaluate(logs, rule, failure_probability=p, assumptions=Assumptions(stationary=True, states=1)).value_low


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_choosing_and_certifying_on_the_same_rows_is_false_more_often(p):
    bad = fresh = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        once, again = (bandit(rng.permutation(np.repeat(np.arange(ACTIONS), TIMES)), rng) for _ in range(2))
        bad += bound_of(once, looks_best(once), p) > 0.5
        fresh += bound_of(again, looks_best(once), p) > 0.5
    assert binomtest(bad, 6, p, "greater").pvalue < 0.02
    assert fresh <= 1


def test_alternate_episodes_of_a_logger_that_adapts_are_no_split():
    """Even episodes follow what looked best in the odd ones; chosen by the even, it is bounded by the odd ones."""
    bad = honest = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        odd = bandit(rng.permutation(np.repeat(np.arange(ACTIONS), TIMES)), rng)
        even = bandit(np.full(200, looks_best(odd)), rng)
        favourite = int(np.bincount(even.action, minlength=ACTIONS).argmax())  # whatever it earned there
        bad += bound_of(odd, favourite, 0.2) > 0.5
        honest += bound_of(even, favourite, 0.2) > 0.5  # in the order of time
    assert binomtest(bad, 6, 0.2, "greater").pvalue < 0.02
    assert honest <= 1
