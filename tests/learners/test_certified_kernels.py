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
from peakrl.learners.certified import bounds, episodes, gaps, values
from peakrl.learners.certified.bounds import FINE, ROUGH, beta, upper_mean
from peakrl.learners.certified.confidence import FROZEN
from peakrl.learners.certified.episodes import GRID, Evidence
from peakrl.learners.certified.gaps import estimate_policy, measure_gaps, plan_candidate
from peakrl.learners.certified.tables import CELLS, OPEN, SAMPLES, UNMET
from peakrl.learners.episode import Log


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
    r, model = learner.rounds, learner.space.model
    fresh = r.fresh()
    u, w = naive_certified.upper_values(naive_certified.Counted(learner), r.params.most, float(r.params.log_share[0]))
    scale = 1e-8 * model.horizon * max(1.0, *map(abs, model.reward_range))
    for (step, row), value in u.items():
        entry = step * r.structure.entry_stride + row
        assert (fresh.witness[entry] != OPEN) == (value is None)
        assert value is None or abs(fresh.upper[entry] - value) <= scale
    for (step, slot), value in w.items():
        assert fresh.dead[step * r.structure.node_stride + slot] == (value is None)
    assert set(r.tables.dead) <= {0, 1}


@seeds(20)
def test_lower_values_and_gaps_follow_from_the_samples_since_freezing(seed):
    learner = learned(seed)
    r, model = learner.rounds, learner.space.model
    if learner.stop_reason:
        return
    if not r.status[FROZEN]:
        r._freeze(r.candidate.copy())
        model_run(learner, 50)
    low = r.lower_values_now()
    seen = naive_certified.Counted(learner)
    steps, nodes = r.node_step.tolist(), r.nodes.tolist()
    slots = [node - step * r.structure.node_stride for step, node in zip(steps, nodes, strict=True)]
    rows = {(step, slot): int(r.candidate[node]) for step, slot, node in zip(steps, slots, nodes, strict=True)}
    share = r.share(0.2 / 3) + math.log(r.goal.lower_bets)
    expected = naive_certified.lower_values(seen, rows, r.goal.least, share)
    scale = 1e-8 * model.horizon * max(1.0, *map(abs, model.reward_range))
    gap, stopping, challenger = np.zeros_like(low), np.zeros_like(low), np.zeros(len(low), np.int32)
    top = measure_gaps(r.structure, r.params, r.tables, r.candidate, low, gap, stopping, challenger)
    largest = 0.0
    for step, slot, node in zip(steps, slots, nodes, strict=True):
        assert abs(low[node] - expected[step, slot]) <= scale
        others = [
            r.tables.upper[step * r.structure.entry_stride + row]
            for row in model.rows_of_slot(slot)
            if row != rows[step, slot] and r.tables.witness[step * r.structure.entry_stride + row] == OPEN
        ]
        wanted = max(0.0, max(others) - expected[step, slot]) if others and not r.tables.dead[node] else 0.0
        assert abs(gap[node] - wanted) <= scale
        largest = max(largest, wanted)
    assert abs(top - largest) <= scale


def model_run(learner, episodes):
    """Let a learner play some more."""
    from peakrl.sampling import seed_state

    no_log = Log.of_size(0)
    learner.run(seed_state(np.uint64(9)), 160, episodes, no_log, np.empty((0, 2)), np.zeros(2, np.int64))


@seeds(20)
def test_candidates_are_greedy_on_the_counts_with_some_pessimism(seed):
    learner = learned(seed)
    r = learner.rounds
    u, _ = naive_certified.upper_values(naive_certified.Counted(learner), r.params.most, float(r.params.log_share[0]))
    r.tables.witness[:] = r.fresh().witness
    nodes = len(r.candidate)
    rows, value, estimate = np.zeros(nodes, np.int32), np.zeros(nodes), np.zeros(nodes)
    plan_candidate(r.structure, r.params, r.tables, r.goal.least, rows, value, estimate)
    values, estimates, chosen = naive_certified.candidate(naive_certified.Counted(learner), u, r.goal.least)
    for (step, slot), expected in values.items():
        node = step * r.structure.node_stride + slot
        assert value[node] == pytest.approx(expected, abs=1e-6)
        if chosen[step, slot] is not None and rows[node] == chosen[step, slot]:
            assert estimate[node] == pytest.approx(estimates[step, slot], abs=1e-6)


@seeds(20)
def test_one_entry_alone_comes_to_what_all_together_do(seed):
    """Upper values again, then each entry from its start once more: the same, but for a rougher search of nu."""
    r = learned(seed).rounds
    swept = r.fresh()
    for step in range(r.structure.horizon):
        for slot in range(r.structure.step_first[step], r.structure.step_last[step]):
            for row in range(r.structure.row_start[slot], r.structure.row_start[slot + 1]):
                entry = step * r.structure.entry_stride + row
                if r.tables.max_violation[r.structure.group_of_row[row]] > 0:
                    continue
                again = swept._replace(
                    upper=np.full_like(swept.upper, 1e9), witness=np.full_like(swept.witness, OPEN),
                    updated=swept.updated.copy(), guess=swept.guess.copy(),
                )  # fmt: skip
                with plain_python(bounds, values):
                    values.update_entry(r.structure, r.params, again, r.scratch, step, row)
                assert again.updated[entry] == r.tables.distribution[r.structure.distribution_of_row[row], SAMPLES]
                assert again.witness[entry] == swept.witness[entry]
                if swept.witness[entry] == OPEN:
                    close = 0.05 * r.structure.horizon * max(1.0, abs(r.params.most), abs(r.params.least))
                    assert swept.upper[entry] - 1e-9 <= again.upper[entry] <= swept.upper[entry] + close


@seeds(20)
def test_a_policy_is_worth_on_the_counts_what_plain_python_finds(seed):
    learner = learned(seed, episodes=20)
    r, seen = learner.rounds, naive_certified.Counted(learner)
    rng, rows, expected = np.random.default_rng(seed), np.zeros(len(r.candidate), np.int32), {}
    horizon = seen.model.horizon
    # What a declared map leads to may never have been met: the least for every step that is left.
    r.tables.cell_next[rng.random(len(r.tables.cell_next)) < 0.2] = UNMET
    for step in reversed(seen.steps):
        expected[step + 1, UNMET] = -0.25 * (horizon - step - 1)
        for slot in seen.states(step):
            row = int(rng.choice(seen.model.rows_of_slot(slot)))
            rows[step * r.structure.node_stride + slot] = row
            sample, reward = seen.samples(row), seen.reward(row)
            if not sample or (not seen.joint and reward is None):
                expected[step, slot] = -0.25 * (horizon - step)
                continue
            follows = [count * (gained + expected.get((step + 1, s), 0.0)) for (s, gained), count in sample.items()]
            expected[step, slot] = sum(follows) / sum(sample.values()) + (0.0 if seen.joint else reward)
    estimate = np.zeros(len(rows))
    estimate_policy(r.structure, r.params, r.tables, -0.25, rows, estimate)
    for (step, slot), value in expected.items():
        assert slot == UNMET or estimate[step * r.structure.node_stride + slot] == pytest.approx(value, abs=1e-9)


@seeds(20)
def test_where_nothing_is_known_a_tested_row_is_taken_then_an_open_one_then_the_mildest(seed):
    learner = learned(seed, episodes=1)
    r, rng = learner.rounds, np.random.default_rng(seed)
    t = r.tables
    for _ in range(20):
        t.witness[:] = rng.choice([OPEN, 0], len(t.witness), p=[0.3, 0.7])
        t.tested[:], t.max_violation[:] = rng.random(len(t.tested)) < 0.2, rng.integers(0, 3, len(t.max_violation)) / 2
        for step in range(r.structure.horizon):
            for slot in naive_certified.Counted(learner).states(step):
                rows = list(learner.space.model.rows_of_slot(slot))
                groups = {row: r.structure.group_of_row[row] for row in rows}
                left = [row for row in rows if t.witness[step * r.structure.entry_stride + row] == OPEN]
                tested = [row for row in left if t.tested[groups[row]]]
                mild = min(rows, key=lambda row: t.max_violation[groups[row]])
                with plain_python(gaps, values):
                    assert gaps.fallback(r.structure, t, step, slot) == [*tested, *left, mild][0]


def test_an_episode_of_the_candidate_is_counted_as_in_plain_python():
    r, rng = learned(0, episodes=1).rounds, np.random.default_rng(0)
    length, returns, gaps = 3, Counter(), Counter()
    gap = rng.random(len(r.candidate))
    for least, most, top in [(-2.0, 4.0, gap.max()), (1.0, 1.0, 0.0), (0.5, 2.0, -1.0)]:
        evidence = Evidence(
            np.zeros(3, np.int64), np.zeros(GRID + 1, np.int64), np.zeros(GRID + 1, np.int64),
            np.zeros_like(gap) if top == 0.0 else gap, np.array([least, most, top, 0.0, 0.0]),
        )  # fmt: skip
        returns, gaps, totals, violated = Counter(), Counter(), [], 0
        for _ in range(40):
            slots = rng.integers(0, len(gap) - length * r.structure.node_stride, length)
            earned, max_violation = rng.uniform(-1.0, 2.0, length), rng.choice([0.0, 0.5], length, p=[0.8, 0.2])
            r.scratch.slot[:length], r.scratch.earned[:length], r.scratch.violated[:length] = (
                slots,
                earned,
                max_violation,
            )
            with plain_python(episodes):
                episodes.note_evidence(r.structure, evidence, r.scratch, length)
            total = sum(earned.tolist())
            totals.append(total)
            violated += bool(max_violation.any())
            share = (total - least) / (most - least) if most > least else 0.0
            returns[min(max(math.floor(share * GRID), 0), GRID)] += 1
            worst = max(evidence.gap[h * r.structure.node_stride + slot] for h, slot in enumerate(slots))
            if top >= 0.0:
                gaps[math.ceil(worst / top * GRID) if top > 0.0 else 0] += 1
        assert {place: evidence.returns[place] for place in np.flatnonzero(evidence.returns)} == returns
        assert {place: evidence.gaps[place] for place in np.flatnonzero(evidence.gaps)} == gaps
        assert evidence.counts.tolist() == [40, violated, 40 if top >= 0.0 else 0]
        assert evidence.scale[3:] == pytest.approx([sum(totals), sum(total**2 for total in totals)])


@seeds(20)
def test_a_state_that_was_not_met_has_the_extreme_value_of_every_step_left(seed):
    """As a declared map may lead to; without chance, so that the bound is the value itself."""
    r = learned(seed).rounds
    params, t = r.params._replace(deterministic=True, least=-0.5, most=2.0), r.tables
    looked = 0
    for row in range(len(r.structure.distribution_of_row)):
        distribution = int(r.structure.distribution_of_row[row])
        if t.distribution[distribution, SAMPLES] == 0 or t.distribution[distribution, CELLS] != 1:
            continue
        cell = int(r.structure.cell_start[distribution])
        paid = t.cell_reward[cell] if params.joint else 0.0
        before, t.cell_next[cell] = int(t.cell_next[cell]), UNMET
        for step in range(r.structure.horizon - 1):
            left = r.structure.horizon - step - 1
            low = np.full(len(r.candidate), np.nan)
            with plain_python(bounds, values, gaps):
                found, witness = values.following_value(
                    r.structure, params, t, r.scratch, step, row, distribution, 0.02
                )
                least = gaps.least_following(r.structure, params, t, r.scratch, step, row, low, -99.0, 1.0)
            assert (found, witness) == (pytest.approx(2.0 * left + (0.0 if params.joint else paid)), OPEN)
            assert least == pytest.approx(-0.5 * left + paid)
            looked += 1
        t.cell_next[cell] = before
    assert looked or not (t.distribution[:-1, CELLS] == 1).any() or r.structure.horizon == 1


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("noises", [0, 1, 3])
def test_what_an_episode_shows_is_counted_as_by_a_counter(noises, joint):
    """Six rows of three distributions, three groups; with noises each leads from a row to a state of its own."""
    r, rng = learned(0, episodes=1).rounds, np.random.default_rng(1)
    distribution_of_row, group_of_row = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 2, 0])
    noise_next = np.concatenate([rng.permutation(9)[:noises] for _ in range(6)]) if noises else np.empty(0, np.int64)
    structure = r.structure._replace(
        noises=noises, noise_next=noise_next, distribution_of_row=distribution_of_row, group_of_row=group_of_row,
        cell_start=np.arange(4) * 30,
    )  # fmt: skip
    distribution, cells = (
        np.zeros((4, r.tables.distribution.shape[1]), np.int64),
        {name: np.zeros(120) for name in ("next", "reward")},
    )
    tables = r.tables._replace(
        distribution=distribution, cell_next=cells["next"].astype(int), cell_reward=cells["reward"],
        cell_count=np.zeros(120, np.int64),
        known=np.zeros(6, np.uint8), reward=np.zeros(6), tested=np.zeros(3, np.uint8),
    )  # fmt: skip
    params, seen, read, tested = r.params._replace(joint=joint), [Counter() for _ in range(4)], {}, set()
    for _ in range(40):
        rows, slots = rng.integers(0, 5, 3), rng.integers(0, 9, 3)
        earned = rng.integers(0, 3, 3) / 2
        r.scratch.slot[:3], r.scratch.row[:3], r.scratch.following[:3] = slots, rows, [*slots[1:], 4]
        r.scratch.earned[:3] = earned
        with plain_python(episodes):
            episodes.count_path(structure, params, tables, r.scratch, 3)
        seen[3][int(slots[0]), 0.0] += 1
        for row, following, reward in zip(rows.tolist(), [*slots[1:].tolist(), 4], earned.tolist(), strict=True):
            led = noise_next[noises * row : noises * (row + 1)].tolist()
            if not noises:
                seen[distribution_of_row[row]][following, reward if joint else 0.0] += 1
            elif following in led:
                seen[distribution_of_row[row]][led.index(following)] += 1
            read |= {} if joint else {row: reward}
            tested.add(int(group_of_row[row]))
    assert [distribution[i, SAMPLES] for i in range(4)] == [count.total() for count in seen]
    for i in range(4):
        first = 30 * i
        if noises and i < 3:
            assert tables.cell_count[first : first + 3].tolist() == [seen[i][noise] for noise in range(3)]
            assert distribution[i, CELLS] == 0  # as many as there are from the beginning, elsewhere
            continue
        places_of = range(first, first + distribution[i, CELLS])
        found = [(int(tables.cell_next[c]), float(tables.cell_reward[c]), int(tables.cell_count[c])) for c in places_of]
        assert found == [(*key, count) for key, count in seen[i].items()]
    assert {row: tables.reward[row] for row in np.flatnonzero(tables.known)} == read
    assert set(tables.known) <= {0, 1}
    assert tables.tested.tolist() == [int(group in tested) for group in range(3)]


@seeds(20)
def test_upper_values_along_an_episode_are_computed_anew_where_its_laws_have_grown(seed):
    learner = learned(seed, episodes=30)
    r, model = learner.rounds, learner.space.model
    t, rng = r.tables, np.random.default_rng(seed)
    nothing = Log.of_size(0)
    for _ in range(10):
        slot, entries = int(model.first_slot[0]), []
        for step in range(model.horizon):
            row = int(rng.choice(model.rows_of_slot(slot)))
            distribution = model.layout.row_distribution[row]
            following = int(
                rng.choice(
                    model.layout.outcome_next[slice(*model.layout.outcome_start[distribution : distribution + 2])]
                )
            )
            r.scratch.slot[step], r.scratch.row[step], r.scratch.following[step] = slot, row, following
            r.scratch.earned[step] = float(t.reward[row])
            entries.append(step * r.structure.entry_stride + row)
            slot = following
        before, open_before = t.updated.copy(), t.witness == OPEN
        with plain_python(bounds, values, episodes):
            episodes.learn_path(r.structure, r.params, t, r.scratch, model.horizon, False, nothing)
        for entry, row in zip(entries, r.scratch.row, strict=False):
            samples = t.distribution[r.structure.distribution_of_row[row], SAMPLES]
            grown = open_before[entry] and samples >= episodes.GROWTH * before[entry]
            assert t.updated[entry] == (samples if grown else before[entry])
        assert np.array_equal(np.delete(t.updated, entries), np.delete(before, entries))


def test_every_bet_has_its_part_of_the_failure_probability():
    for seed in range(20):
        problem = random_problem(seed)
        model = compile_model(problem)
        settings = Certified(0.1, failure_probability=0.1)
        r = learn(model, settings, episodes=1, history="none", average=False)._trainer.algorithm.rounds
        joint = model.payoffs.stride > 0
        steps = (model.horizon if joint else model.horizon - 1) if model.stationary else 1
        assert float(r.params.log_share[0]) == pytest.approx(math.log((model.num_rows * steps + 1) / 0.06))
        states = model.num_slots * (steps if model.stationary else 1)
        assert r.goal.lower_bets == max(1, states)


def test_shared_transitions_share_one_bet():
    model = compile_model(random_problem(3, states=4, actions=3, horizon=4, stationary=True, outcome_payoffs=False))
    run = learn(
        model, Certified(0.1), episodes=1, history="none", average=False,
        assumptions=Assumptions(shared_transitions=True),
    )  # fmt: skip
    distributions = len(np.unique(model.layout.row_distribution))
    share = math.log((distributions * 3 + 1) / (0.6 * 0.05))
    assert float(run._trainer.algorithm.rounds.params.log_share[0]) == pytest.approx(share)
