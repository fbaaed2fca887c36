"""Bounds, upper and lower values, candidates and gaps agree with plain twins on random problems."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from helpers.plain_kernels import plain_python
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from naive import certified as naive_certified
from peakrl import Assumptions, compile_model, learn
from peakrl.learners import Certified
from peakrl.learners.certified import bounds, gaps, values
from peakrl.learners.certified.bounds import FINE, ROUGH, beta, upper_mean
from peakrl.learners.certified.declared import UNMET
from peakrl.learners.certified.gaps import estimate_policy, measure_gaps, plan_candidate
from peakrl.learners.certified.tables import GRID, OPEN, SUM
from peakrl.learners.episode import Log, Path
from peakrl.sampling import seed_state


def learned(seed, episodes=160):
    """A certified learner after some episodes of a random problem, on its way to what it cannot reach."""
    model = compile_model(random_problem(seed))
    run = learn(model, Certified(1e-3), episodes=episodes, seed=seed, history="none", average=False)
    return run._trainer.algorithm


@seeds(25)
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


def test_values_that_hardly_differ_give_a_bound_between_their_mean_and_the_largest():
    for apart in [1e-7, 1e-8, 3e-9, 1e-9, 1e-12, 0.0]:
        for value in (-43.0, 1.0, 7e5):
            values, counts = value * (1 + np.array([0.0, apart])), np.array([999, 1])
            bound = float(values.max())
            found, _ = upper_mean(values, counts, 2, 1000.0, bound, 20.0, 25.0, -math.inf, FINE)
            assert values @ counts / 1000 - 1e-12 * abs(value) <= found <= bound


def test_nothing_is_won_by_a_bet_on_the_largest_value_itself_and_nothing_divided_by_0():
    value, count = np.array([1.0, 0.0]), np.array([2, 1])
    with plain_python(bounds):
        assert bounds.growth(value, count, 2, 3.0, 0.5, 1.0) == (-math.inf, math.inf)
    for size in (0.0, -2.5):
        same = np.full(2, size)
        assert upper_mean(same, count, 2, 3.0, size, 4.0, 4.0, -math.inf, FINE)[0] == size


@pytest.mark.parametrize("unseen", [-50.0, 0.9, 50.0])
def test_a_value_that_never_came_does_not_count(unseen):
    value, count = np.array([0.25, unseen, 0.75, 0.5]), np.array([3, 0, 2, 4])
    seen = count > 0
    whole = upper_mean(value, count, 4, 9.0, 1.0, 4.0, 4.0, -math.inf, FINE)
    assert whole == upper_mean(value[seen], count[seen], 3, 9.0, 1.0, 4.0, 4.0, -math.inf, FINE)


def test_a_thousand_millions_of_samples_lose_no_digits():
    # Two values a hair apart, and a bound far above: the mean stands out by its own size, not by that of nu.
    values, counts = np.array([1.0, 1.0 + 1e-6]), np.array([500_000_000, 500_000_000])
    bet = beta(1e9, 10.0)
    found, _ = upper_mean(values, counts, 2, 1e9, 100.0, bet, bet, -math.inf, FINE)
    deviation = 0.5e-6
    assert 0 <= found - (1 + deviation) <= 1e-3


@seeds(20)
def test_upper_values_follow_from_the_counts(seed):
    learner = learned(seed)
    r, model = learner, learner.space.model
    fresh = r.fresh()
    u, w = naive_certified.upper_values(naive_certified.Counted(learner), fresh.most, float(fresh.log_share[0]))
    scale = 1e-8 * model.horizon * max(1.0, *map(abs, model.reward_range))
    for (step, row), value in u.items():
        assert (fresh.witness[row, step * fresh.shift] != OPEN) == (value is None)
        assert value is None or abs(fresh.upper[row, step * fresh.shift] - value) <= scale
    for (step, slot), value in w.items():
        assert fresh.dead[slot, step * fresh.shift] == (value is None)
    assert set(r.tables.dead.ravel()) <= {0, 1}


@seeds(20)
def test_lower_values_and_gaps_follow_from_the_samples_since_freezing(seed):
    learner = learned(seed)
    r, model = learner, learner.space.model
    if learner.stop_reason:
        return
    if not r.status.frozen:
        r.freeze(r.tables.candidate.copy())
        learner.run(seed_state(np.uint64(9)), 160, 50, Log.of_size(0), np.empty((0, 2)), np.zeros(2, np.int64))
    t, low, seen = r.tables, r.lower_values_now(), naive_certified.Counted(learner)
    nodes = [(step, slot) for step in seen.steps for slot in seen.states(step)]
    rows = {(step, slot): int(t.candidate[slot, step * t.shift]) for step, slot in nodes}
    share = r.share(0.2 / 3) + math.log(r.declared.bets + 1)
    expected = naive_certified.lower_values(seen, rows, t.least, share)
    scale = 1e-8 * model.horizon * max(1.0, *map(abs, model.reward_range))
    gap, stopping, challenger = np.zeros_like(t.gap), np.zeros_like(low), np.zeros_like(t.challenger)
    top = measure_gaps(t, t.candidate, low, gap, stopping, challenger)
    largest = 0.0
    for step, slot in nodes:
        column = step * t.shift
        assert abs(low[slot, column] - expected[step, slot]) <= scale
        others = [
            t.upper[row, column]
            for row in model.rows_of_slot(slot)
            if row != rows[step, slot] and t.witness[row, column] == OPEN
        ]
        wanted = max(0.0, max(others) - expected[step, slot]) if others and not t.dead[slot, column] else 0.0
        assert abs(gap[slot, column] - wanted) <= scale
        largest = max(largest, wanted)
    assert abs(top - largest) <= scale


@pytest.mark.parametrize(("wide", "fewest"), [(False, 0), (True, 0), (True, 4)])
@seeds(20)
def test_candidates_are_greedy_on_the_counts_with_some_pessimism(wide, fewest, seed):
    learner = learned(seed)
    r, t, seen = learner, learner.tables, naive_certified.Counted(learner)
    u, _ = naive_certified.upper_values(seen, t.most, float(t.log_share[0]))
    t.witness[:] = r.fresh().witness
    rows, value, estimate = np.zeros_like(t.candidate), np.zeros_like(t.value), np.zeros_like(t.value)
    plan_candidate(t, rows, value, estimate, wide=wide, fewest=fewest)
    values, estimates, chosen = naive_certified.candidate(seen, u, t.least, t.most, wide, fewest)
    for (step, slot), expected in values.items():
        node = slot, step * t.shift
        assert value[node] == pytest.approx(expected, abs=1e-6)
        assert (rows[node] < 0) == (fewest > 0 and chosen[step, slot] is None)
        if chosen[step, slot] is not None and rows[node] == chosen[step, slot]:
            assert estimate[node] == pytest.approx(estimates[step, slot], abs=1e-6)


@seeds(20)
def test_one_entry_alone_comes_to_what_all_together_do(seed):
    """Upper values again, then each entry from its start once more: the same, but for a rougher search of nu."""
    learner = learned(seed)
    t, swept, model = learner.tables, learner.fresh(), learner.space.model
    for step in range(t.horizon):
        for slot in naive_certified.Counted(learner).states(step):
            for row in model.rows_of_slot(slot):
                entry = row, step * t.shift
                if t.max_violation[t.group_of_row[row]] > 0:
                    continue
                again = swept._replace(
                    upper=np.full_like(swept.upper, 1e9), witness=np.full_like(swept.witness, OPEN),
                    updated=swept.updated.copy(), guess=swept.guess.copy(),
                )  # fmt: skip
                with plain_python(bounds, values):
                    values.update_entry(again, step, row)
                assert again.updated[entry] == t.samples[t.distribution_of_row[row]]
                assert again.witness[entry] == swept.witness[entry]
                if swept.witness[entry] == OPEN:
                    close = 0.05 * t.horizon * max(1.0, abs(t.most), abs(t.least))
                    assert swept.upper[entry] - 1e-9 <= again.upper[entry] <= swept.upper[entry] + close


@seeds(20)
def test_a_policy_is_worth_on_the_counts_what_plain_python_finds(seed):
    learner = learned(seed, episodes=20)
    t, seen = learner.tables._replace(least=-0.25), naive_certified.Counted(learner)
    rng, rows, expected = np.random.default_rng(seed), np.zeros_like(t.candidate), {}
    # What declared dynamics lead to may never have been visited: the least for every step that is left.
    t.cell_next[rng.random(len(t.cell_next)) < 0.2] = UNMET
    for step in reversed(seen.steps):
        expected[step + 1, UNMET] = -0.25 * (t.horizon - step - 1)
        for slot in seen.states(step):
            row = int(rng.choice(seen.model.rows_of_slot(slot)))
            rows[slot, step * t.shift] = row
            sample, reward = seen.samples(row), seen.reward(row)
            if not sample or (not seen.joint and reward is None):
                expected[step, slot] = -0.25 * (t.horizon - step)
                continue
            follows = [count * (gained + expected.get((step + 1, s), 0.0)) for (s, gained), count in sample.items()]
            expected[step, slot] = sum(follows) / sum(sample.values()) + (0.0 if seen.joint else reward)
    estimate = np.zeros_like(t.value)
    estimate_policy(t, rows, estimate)
    for (step, slot), value in expected.items():
        assert slot == UNMET or estimate[slot, step * t.shift] == pytest.approx(value, abs=1e-9)


@seeds(20)
def test_where_nothing_is_known_a_tested_row_is_taken_then_an_open_one_then_the_mildest(seed):
    learner = learned(seed, episodes=1)
    t, rng = learner.tables, np.random.default_rng(seed)
    for _ in range(20):
        t.witness[:] = rng.choice([OPEN, 0], t.witness.shape, p=[0.3, 0.7])
        t.tested[:], t.max_violation[:] = rng.random(len(t.tested)) < 0.2, rng.integers(0, 3, len(t.max_violation)) / 2
        for step in range(t.horizon):
            for slot in naive_certified.Counted(learner).states(step):
                rows = list(learner.space.model.rows_of_slot(slot))
                groups = {row: t.group_of_row[row] for row in rows}
                left = [row for row in rows if t.witness[row, step * t.shift] == OPEN]
                tested = [row for row in left if t.tested[groups[row]]]
                mild = min(rows, key=lambda row: t.max_violation[groups[row]])
                with plain_python(gaps, values):
                    assert gaps.fallback(t, step * t.shift, slot) == [*tested, *left, mild][0]


def test_an_episode_of_the_candidate_is_counted_as_in_plain_python():
    t, rng, length = learned(0, episodes=1).tables, np.random.default_rng(0), 3
    path = Path.of_length(length, 2)
    gap = rng.random(t.gap.shape)
    for least, most, top in [(-2.0, 4.0, gap.max()), (1.0, 1.0, 0.0), (0.5, 2.0, -1.0)]:
        t = t._replace(
            counts=np.zeros(3, np.int64), returns=np.zeros(GRID + 1, np.int64), gaps=np.zeros(GRID + 1, np.int64),
            gap=np.zeros_like(gap) if top == 0.0 else gap, scale=np.array([least, most, top, 0.0, 0.0]),
        )  # fmt: skip
        returns, gaps, totals, violated = Counter(), Counter(), [], 0
        for _ in range(40):
            slots = rng.integers(0, len(gap), length)
            earned, violations = rng.uniform(-1.0, 2.0, length), rng.choice([0.0, 0.5], length, p=[0.8, 0.2])
            path.slot[:], path.payoff[:, 0], path.payoff[:, 1] = slots, earned, violations
            with plain_python(values):
                values.note_evidence(t, path, length)
            total = sum(earned.tolist())
            totals.append(total)
            violated += bool(violations.any())
            share = (total - least) / (most - least) if most > least else 0.0
            returns[min(max(math.floor(share * GRID), 0), GRID)] += 1
            worst = max(t.gap[slot, step * t.shift] for step, slot in enumerate(slots))
            if top >= 0.0:
                gaps[math.ceil(worst / top * GRID) if top > 0.0 else 0] += 1
        assert {index: t.returns[index] for index in np.flatnonzero(t.returns)} == returns
        assert {index: t.gaps[index] for index in np.flatnonzero(t.gaps)} == gaps
        assert t.counts.tolist() == [40, violated, 40 if top >= 0.0 else 0]
        assert t.scale[SUM:] == pytest.approx([sum(totals), sum(total**2 for total in totals)])


@seeds(20)
def test_a_state_that_was_not_met_has_the_extreme_value_of_every_step_left(seed):
    """As declared dynamics may lead to; without chance, so that the bound is the value itself."""
    t = learned(seed).tables._replace(deterministic=True, least=-0.5, most=2.0)
    looked = alone = 0
    for row in range(len(t.distribution_of_row)):
        distribution = int(t.distribution_of_row[row])
        cell = int(t.cell_first[distribution])
        if cell < 0 or cell != t.cell_last[distribution]:
            continue
        alone += 1
        paid = t.cell_reward[cell] if t.joint else 0.0
        before, t.cell_next[cell] = int(t.cell_next[cell]), UNMET
        for step in range(t.horizon - 1):
            left, low = t.horizon - step - 1, np.full_like(t.value, np.nan)
            with plain_python(bounds, values, gaps):
                found, witness = values.following_value(t, step, row, distribution, 0.02)
                least = gaps.least_following(
                    t, distribution, step, row, low, t.joint, not t.joint, t.least * left, -99.0, False, 1.0
                )
            assert (found, witness) == (pytest.approx(2.0 * left + paid), OPEN)
            assert least == pytest.approx(-0.5 * left + paid)
            looked += 1
        t.cell_next[cell] = before
    assert looked or not alone or t.horizon == 1


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("noises", [0, 1, 3])
def test_what_an_episode_shows_is_counted_as_by_a_counter(noises, joint):
    """Six rows of three distributions (of one with noises, which lead from a row to different states), three groups."""
    rng = np.random.default_rng(1)
    distribution_of_row = np.ones(6, int) if noises else np.array([1, 1, 2, 2, 3, 3])
    group_of_row = np.array([0, 1, 1, 2, 2, 0])
    noise_next = np.array([rng.permutation(9)[:noises] for _ in range(6)])
    longs = {name: np.zeros(120, np.int64) for name in ("cell_next", "cell_count", "cell_distribution")}
    t = learned(0, episodes=1).tables._replace(
        noises=noises, noise_next=noise_next, distribution_of_row=distribution_of_row, group_of_row=group_of_row,
        joint=joint, samples=np.zeros(4, np.int64), cell_first=np.full(4, -1), cell_last=np.full(4, -1), **longs,
        cell_after=np.full(120, -1), cell_reward=np.zeros(120), cells=np.array([noises]),
        known=np.zeros(6, np.uint8), reward=np.zeros(6), tested=np.zeros(3, np.uint8),
    )  # fmt: skip
    seen, read, tested, path = [Counter() for _ in range(4)], {}, set(), Path.of_length(3, 2)
    for _ in range(40):
        rows, slots = rng.integers(0, 5, 3), rng.integers(0, 9, 3)
        earned = rng.integers(0, 3, 3) / 2
        path.first[0], path.slot[:], path.row[:], path.following[:] = slots[0], slots, rows, [*slots[1:], 4]
        path.payoff[:, 0] = earned
        with plain_python(values):
            values.count_path(t, path, 3)
        seen[0][int(slots[0]), 0.0] += 1
        for row, following, reward in zip(rows.tolist(), [*slots[1:].tolist(), 4], earned.tolist(), strict=True):
            led = noise_next[row].tolist()
            if not noises:
                seen[distribution_of_row[row]][following, reward if joint else 0.0] += 1
            elif following in led:
                seen[1][led.index(following)] += 1
            read |= {} if joint else {row: reward}
            tested.add(int(group_of_row[row]))
    assert t.samples.tolist() == [count.total() for count in seen]
    for distribution in range(4):
        if noises and distribution == 1:
            assert t.cell_count[:noises].tolist() == [seen[1][noise] for noise in range(noises)]
            continue
        found, cell = [], int(t.cell_first[distribution])
        while cell >= 0:
            assert t.cell_distribution[cell] == distribution
            found.append((int(t.cell_next[cell]), float(t.cell_reward[cell]), int(t.cell_count[cell])))
            cell = int(t.cell_after[cell])
        assert found == [(*key, count) for key, count in seen[distribution].items()]
    assert {row: t.reward[row] for row in np.flatnonzero(t.known)} == read
    assert set(t.known) <= {0, 1}
    assert t.tested.tolist() == [int(group in tested) for group in range(3)]


@seeds(20)
def test_upper_values_along_an_episode_are_computed_anew_where_its_laws_have_grown(seed):
    learner = learned(seed, episodes=30)
    model, rng = learner.space.model, np.random.default_rng(seed)
    path = Path.of_length(model.horizon, 2)
    for _ in range(10):
        learner.store.reserve(model.horizon + 1)
        t = learner.tables
        slot, entries = int(model.first_slot[0]), []
        for step in range(model.horizon):
            row = int(rng.choice(model.rows_of_slot(slot)))
            distribution = model.layout.row_distribution[row]
            outcomes = slice(*model.layout.outcome_start[distribution : distribution + 2])
            following = int(rng.choice(model.layout.outcome_next[outcomes]))
            path.slot[step], path.row[step], path.following[step] = slot, row, following
            path.payoff[step, 0] = float(t.reward[row])
            entries.append((row, step * t.shift))
            slot = following
        before, open_before = t.updated.copy(), t.witness == OPEN
        with plain_python(bounds, values):
            values.learn_path(t, model.layout, path, model.horizon, 31, Log.of_size(0))
        for entry in entries:
            samples = t.samples[t.distribution_of_row[entry[0]]]
            grown = open_before[entry] and samples >= values.GROWTH * before[entry]
            assert t.updated[entry] == (samples if grown else before[entry])
            before[entry] = t.updated[entry]
        assert np.array_equal(t.updated, before)


def test_every_bet_has_its_part_of_the_failure_probability():
    for seed in range(20):
        problem = random_problem(seed)
        model = compile_model(problem)
        settings = Certified(0.1, failure_probability=0.1)
        r = learn(model, settings, episodes=1, history="none", average=False)._trainer.algorithm
        joint = model.payoffs.stride > 0
        steps = (model.horizon if joint else model.horizon - 1) if model.stationary else 1
        bets = min(model.num_slots, model.num_rows) * steps  # one for each state and step, one for the first state
        assert float(r.tables.log_share[0]) == pytest.approx(math.log((bets + 1) / 0.06))
        assert r.bet_logs() == pytest.approx(math.log(bets + 1))


def test_shared_transitions_share_one_bet():
    model = compile_model(random_problem(3, states=4, actions=3, horizon=4, stationary=True, outcome_payoffs=False))
    run = learn(
        model, Certified(0.1), episodes=1, history="none", average=False,
        assumptions=Assumptions(shared_transitions=True),
    )  # fmt: skip
    distributions = len(np.unique(model.layout.row_distribution))
    share = math.log((min(distributions, model.num_slots) * 3 + 1) / (0.6 * 0.05))
    assert float(run._trainer.algorithm.tables.log_share[0]) == pytest.approx(share)
