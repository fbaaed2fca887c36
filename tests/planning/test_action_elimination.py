"""Long horizons: actions that are left out for certain, and policies kept by change, against every step in full."""

import errno
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import naive.planning
from helpers.seeds import seeds
from peakrl import TabularModel, compile_model, evaluate, solve
from peakrl.errors import SettingsError, StorageError
from peakrl.planning import action_elimination as settling
from peakrl.planning import backward
from peakrl.planning import parallel as sharing
from peakrl.planning import policy_store as keeping
from peakrl.planning.action_elimination import Sizes, margin_of
from peakrl.planning.action_elimination_kernel import may_be_best, may_be_least
from peakrl.planning.backward import pays_of
from peakrl.planning.backward_kernel import TIE, Work
from peakrl.planning.solution import row_costs
from peakrl.policy import load_policy
from peakrl.policy.choices import Runs, Table
from peakrl.problems import scheduling_example
from peakrl.storage import read_record, write_record


def growing(seed, *, horizon=90, states=12, actions=3, constrained=False, ties=True):
    """Rewards at every step, so that values never settle; half of the actions with a twin that ties with them."""
    rng = np.random.default_rng(seed)
    laws = rng.random((states, actions, states)) * (rng.random((states, actions, states)) < 0.4) + 0.02
    rewards = rng.random((states, actions))
    if ties:
        laws[: states // 2, -1], rewards[: states // 2, -1] = laws[: states // 2, 0], rewards[: states // 2, 0]
    laws /= laws.sum(axis=2, keepdims=True)
    # One action of each state keeps the constraint: no cost comes up from anywhere, and costs stay what they are.
    constraints = np.where(np.arange(actions) == actions - 2, -1.0, 1.0) * np.ones((1, states, actions))
    limits = constraints if constrained else np.ones((1, states, actions))
    return TabularModel.from_arrays(laws, rewards, limits, horizon)


def late_bloomer(horizon):
    """In state 0 an action earns 1 a step at once, the other 3 after 41 steps: n < 3 (n - 41) from n = 62 on."""
    laws, rewards = np.zeros((43, 2, 43)), np.zeros((43, 2))
    laws[0, 0, 1] = laws[0, 1, 2] = laws[1, :, 1] = laws[42, :, 42] = 1.0
    laws[np.arange(2, 42), :, np.arange(3, 43)] = 1.0
    rewards[0, 0] = rewards[1] = 1.0
    rewards[42] = 3.0
    rewards[1:, 1] -= 0.5
    return TabularModel.from_arrays(laws, rewards, np.ones((1, 43, 2)), horizon)


def alternating(horizon, states=30):
    """Two places that earn in turns, and many states that would be at the one that earns next: all change each step."""
    laws, rewards = np.zeros((states, 2, states)), np.zeros((states, 2))
    laws[0, :, 1] = laws[1, :, 0] = laws[2:, 0, 1] = laws[2:, 1, 0] = 1.0
    rewards[0] = 1.0
    return TabularModel.from_arrays(laws, rewards, np.ones((1, states, 2)), horizon)


@pytest.fixture
def rows_left(monkeypatch):
    """How many rows are left after each look."""
    counts, look = [], backward.candidates_left

    def counted(*given):
        left = look(*given)
        counts.append(len(left.pays.reward))
        return left

    monkeypatch.setattr(backward, "candidates_left", counted)
    return counts


def agrees(model, found):
    """Is every choice and value that of plain Python, which goes through all steps and actions?"""
    values, costs, rows = naive.planning.backward_tables(model)
    for (step, slot), row in rows.items():
        node = step * model.node_stride + slot
        same = (found.node_values[node], found.node_violations[node]) == (values[step, slot], costs[step, slot])
        if not same or found.policy.row(step, slot) != row or found.policy.rows[node] != row:
            return False
    return True


@pytest.mark.parametrize(("seed", "constrained"), [(0, False), (1, True)])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_what_is_left_out_would_not_have_been_chosen(seed, shared, constrained, rows_left, monkeypatch):
    if shared:  # as in large models: three threads, and a few slots are asked first
        monkeypatch.setattr(sharing, "PAIRS_A_THREAD", 1)
        monkeypatch.setattr(sharing, "PAIRS_A_CHUNK", 7)
        monkeypatch.setattr(settling, "SAMPLE", 4)
    model = growing(seed, constrained=constrained)
    assert agrees(model, solve(model, keep="all", threads=3 if shared else 1))
    assert min(rows_left) < 0.75 * model.num_rows


def test_actions_may_be_left_out_at_one_look_after_another(rows_left, monkeypatch):
    monkeypatch.setattr(settling, "WORTHWHILE", 1.0)
    monkeypatch.setattr(settling, "FURTHER", 1.1)
    monkeypatch.setattr(backward, "FIRST_LOOK", 2)
    model = growing(3, horizon=60, actions=5, ties=False)
    assert agrees(model, solve(model, keep="all"))
    assert sorted(set(rows_left)) == [12, 15, 34, 60]


def test_every_action_that_ties_stays(rows_left):
    choices = solve(growing(7, horizon=200)).policy.choices.of_step(0)
    assert rows_left[-1] == 12 + (choices[:6] == 0).sum() > 12  # action 0 of six states has a twin


def test_an_action_that_pays_late_is_not_left_out_early(monkeypatch):
    model = late_bloomer(150)
    found = solve(model, keep="all")
    assert agrees(model, found)
    assert [found.policy.row(step, 0) for step in (150 - 62, 150 - 61)] == [1, 0]
    # A bound that forgets what the steps to come may bring is noticed here.
    monkeypatch.setattr(backward, "candidates_left", sabotaged(backward.candidates_left))
    assert not agrees(model, solve(model, keep="all"))


@seeds(20)
def test_the_margin_is_that_of_the_formula_in_fractions(seed):
    rng = np.random.default_rng(seed)
    m, steps, scale = int(rng.integers(1, 9)), int(rng.integers(1, 100)), 10.0 ** rng.integers(-3, 6)
    low, gap = scale * rng.normal(), scale * rng.choice([0.0, 1e-14, 1.0]) * rng.random()
    e, paid, size = rng.choice([0.0, 1e-16, 1e-4]), scale * rng.random(), scale * rng.random()
    lo, hi, excess, most = Fraction(low), Fraction(low + gap), Fraction(e), Fraction(paid)
    bound = 2 * Fraction(size) + 4 * steps * max(abs(lo), abs(hi)) + most
    delta = 2 * (m + 2) * Fraction(1, 2**53) * (most + bound)
    kappa = 2 * steps * excess * (max(abs(lo), abs(hi)) + 2 * delta)
    margin = steps * (hi - lo + 8 * delta + 2 * kappa) + 6 * delta
    margin += 2 * excess * steps * (max(abs(lo), abs(hi)) + 4 * delta + kappa)
    found = margin_of(Sizes(m, e, paid), low, low + gap, size, steps)
    assert margin <= found <= margin * (1 + Fraction(1, 10**8))


def test_there_is_no_margin_where_the_bound_on_rounding_does_not_hold():
    """(1 + e)^R <= 2 needs R*e <= 1/2; sums of R*(m + 2) roundings stay small below 2^45 of them."""
    assert margin_of(Sizes(2, 0.25, 1.0), 0.0, 0.0, 1.0, 2) < np.inf
    assert margin_of(Sizes(2, 0.25, 1.0), 0.0, 0.0, 1.0, 3) == np.inf
    assert margin_of(Sizes(2, np.nan, 1.0), 0.0, 0.0, 1.0, 3) == np.inf
    assert margin_of(Sizes(2, 0.0, 1.0), 0.0, 0.0, 1.0, 2**43 - 1) < np.inf
    assert margin_of(Sizes(2, 0.0, 1.0), 0.0, 0.0, 1.0, 2**43) == np.inf


@pytest.mark.parametrize("turn", [29, 27, 15, 0, None])
def test_a_keeper_keeps_what_it_is_told_of_the_slots_that_are_open(turn, monkeypatch):
    """By change, from step `turn` on by lines; of all slots at first, then of fewer; in parts, as threads would."""
    monkeypatch.setattr(keeping, "SHARE", 1e9)
    model, rng, end = growing(0, horizon=30), np.random.default_rng(3), 0 if turn == 0 else 5
    keeper, plain, some = keeping.Keeper(model), np.zeros((30, 12), np.uint8), np.arange(12)
    for step in range(29, end - 1, -1):
        plain[step], some = plain[min(step + 1, 29)], some if step >= 25 else some[rng.random(len(some)) < 0.95]
        plain[step, some] = rng.integers(0, 3, len(some))
        parts = (0, 5, some[some < 5]), (5, 12, some[some >= 5])
        if step >= 25:
            keeper.line(step)[:] = plain[step]
            changes = [keeper.changed(step, first, last) for first, last, _ in parts]
        else:
            changes = [keeper.changed_among(step, first, last, open, plain[step, open]) for first, last, open in parts]
        monkeypatch.setattr(keeping, "SHARE", -1.0 if step == turn else 1e9)
        keeper.keep(step, changes)
    plain[:end] = plain[end]
    with sharing.threads_for(model, 1) as alone:
        kept = keeper.choices(alone)
    assert isinstance(kept, Runs if turn is None else Table)
    assert all(np.array_equal(kept.of_step(step), plain[step]) for step in range(30))


def sabotaged(look):
    """Look with a margin of nothing."""

    def careless(*given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("peakrl.planning.action_elimination.margin_of", lambda *_: 0.0)
            return look(*given)

    return careless


@pytest.mark.parametrize("make", [growing, lambda seed: alternating(90), lambda seed: late_bloomer(90)])
def test_lines_and_changes_say_the_same(make, monkeypatch):
    monkeypatch.setattr(sharing, "PAIRS_A_THREAD", 1)
    monkeypatch.setattr(sharing, "PAIRS_A_CHUNK", 7)
    model = make(3)
    kept = []
    for share in (-1.0, 1e9):
        monkeypatch.setattr(keeping, "SHARE", share)
        found = solve(model, keep="all", threads=3)
        assert agrees(model, found)
        kept.append(found.policy.choices)
    assert [type(each) for each in kept] == [Table, Runs]
    assert all(np.array_equal(kept[0].of_step(step), kept[1].of_step(step)) for step in range(90))
    assert all(kept[1].number(step, 5) == kept[0].number(step, 5) for step in range(90))


def test_choices_that_change_at_every_step_get_lines():
    model = alternating(64)
    choices = solve(model).policy.choices
    assert isinstance(choices, Table)
    assert choices.nbytes == 64 * 30


def test_kept_by_change_a_policy_takes_five_bytes_a_change_and_eight_a_state():
    model = growing(5, horizon=3_000, ties=False)
    choices = solve(model).policy.choices
    table = np.stack([choices.of_step(step) for step in range(model.horizon)])
    runs = table.shape[1] + int((table[1:] != table[:-1]).sum())
    assert choices.nbytes == 8 * (table.shape[1] + 1) + 5 * runs


def test_a_policy_kept_by_change_survives_its_file_and_nothing_else_passes_for_it(tmp_path):
    model, path = growing(6, horizon=200), tmp_path / "policy.peakrl"
    policy = solve(model).policy
    policy.save(path)
    assert np.array_equal(load_policy(path, model).rows, policy.rows)
    assert evaluate(model, load_policy(path, model)).value == pytest.approx(solve(model).value)
    plain, arrays = read_record(path, "policy")
    for name, place, value in (
        ("run_choice", 0, 3),
        ("run_until", -1, 198),
        ("run_until", 0, -1),
        ("run_start", 0, 1),
        ("run_start", 1, 0),
        ("run_start", -1, 5),
    ):
        forged = {key: array.copy() for key, array in arrays.items()}
        forged[name][place] = value
        write_record(path, "policy", plain, forged)
        with pytest.raises(StorageError):
            load_policy(path, model)


MEASURE = """
import sys
from peakrl import audit_slack, evaluate, solve
from benchmarks.models import random_model

def peak(run, *given):
    open("/proc/self/clear_refs", "w").write("5")
    before, found = memory("VmRSS"), run(*given)
    return found, memory("VmHWM") - before

def memory(field):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))

small, model = random_model(2_000, 20), random_model(1_000_000, 100)
evaluate(small, solve(small, threads=2).policy), audit_slack(small, 0.1)
found, most = peak(solve, model)
print(most, peak(evaluate, model, found.policy)[1], peak(audit_slack, model, 0.1)[1], found.policy.choices.nbytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="peaks are read from Linux' /proc")
def test_a_million_states_take_the_stated_memory():
    # Blocks above a megabyte go back to the system at once, so that what building took is not used again unseen.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000", "OMP_NUM_THREADS": "1"}
    told = subprocess.run([sys.executable, "-c", MEASURE], env=environment, capture_output=True, check=True, text=True)
    solving, evaluating, auditing, kept = map(int, told.stdout.split())
    table = 100 * 1_000_000
    assert kept < 0.4 * table
    assert solving < 1.5 * table
    assert evaluating < 1.5 * table
    assert auditing < 2.5 * table


@pytest.mark.parametrize("share", [-1.0, 1e9], ids=["lines", "changes"])
def test_a_policy_written_while_it_is_found_is_the_one_kept_in_memory(share, tmp_path, monkeypatch):
    path = tmp_path / "policy.peakrl"
    for model in (growing(8), late_bloomer(10), compile_model(scheduling_example(1))):
        kept = solve(model).policy.rows
        monkeypatch.setattr(keeping, "SHARE", share)
        found = solve(model, policy_file=path)
        assert np.array_equal(found.policy.rows, kept)
        assert np.array_equal(load_policy(path, model).rows, kept)
        assert found.value == solve(model).value
        whole = bytearray(path.read_bytes())
        whole[-1] ^= 1
        path.write_bytes(whole)
        with pytest.raises(StorageError, match="digest"):
            load_policy(path, model)
    assert [file.name for file in tmp_path.iterdir()] == ["policy.peakrl"]


def test_what_is_interrupted_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path, model = tmp_path / "policy.peakrl", late_bloomer(12)
    path.write_bytes(b"old")

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(backward, "equal", stopped)
    with pytest.raises(KeyboardInterrupt):
        solve(model, policy_file=path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"policy.peakrl": b"old"}


def test_a_policy_file_that_cannot_be_is_refused_before_the_work(tmp_path, monkeypatch):
    model = late_bloomer(12)
    with pytest.raises(StorageError, match="no folder"):
        solve(model, policy_file=tmp_path / "nowhere" / "policy.peakrl")
    with pytest.raises(SettingsError, match="keeps no policy"):
        solve(model, keep="value", policy_file=tmp_path / "policy.peakrl")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="No space left"):
        solve(model, policy_file=tmp_path / "policy.peakrl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shared", [True, False], ids=["expected once a law", "expected for each row"])
@seeds(5)
def test_a_look_keeps_the_rows_that_plain_python_keeps(seed, shared):
    """Values, costs and a margin drawn at random; half of the rows lead to one state for certain."""
    rng, states = np.random.default_rng(seed), 9
    laws = rng.random((states, 3, states)) * (rng.random((states, 3, states)) < 0.3) + 0.01
    laws[rng.random((states, 3)) < 0.5] = np.eye(states)[rng.integers(states)]
    laws /= laws.sum(axis=2, keepdims=True)
    limits = rng.choice([-1.0, 0.0, 1.0], (1, states, 3))
    model = TabularModel.from_arrays(laws, rng.random((states, 3)), limits, 4)
    pays, layout = pays_of(model, model.row_reward, row_costs(model)), model.layout
    ahead = rng.integers(0, 4, 2 * states) / 4
    law = np.zeros((len(layout.outcome_start) - 1, states))
    for d in range(len(law)):
        places = slice(layout.outcome_start[d], layout.outcome_start[d + 1])
        law[d, layout.outcome_next[places]] = layout.outcome_probability[places]
    expected = law @ ahead.reshape(states, 2)
    value, cost = (expected[layout.row_distribution] + np.column_stack([pays.reward, pays.cost])).T
    margin, slots = 0.3, np.repeat(np.arange(states), np.diff(layout.row_start))
    for each, look in ((1, may_be_best), (2, may_be_least)):
        least = np.array([cost[slots == s].min() if each == 2 else 0.0 for s in range(states)])
        low = cost <= least[slots] * TIE if each == 2 else np.ones(len(cost), bool)
        best = np.array([value[low & (slots == s)].max() for s in range(states)])
        stays = low & (best[slots] - value <= margin)
        harm = [cost[low & (slots == s) & (value == best[s])][0] for s in range(states)]
        given = np.ascontiguousarray(expected.reshape(-1) if each == 2 else expected[:, 0])
        values = np.ascontiguousarray(best if each == 1 else np.column_stack([best, least]).reshape(-1))
        work = Work(
            3, 0, 0, np.ascontiguousarray(ahead if each == 2 else ahead[::2]), given if shared else np.empty(0), values,
            np.empty(0, np.uint8), 1,
        )  # fmt: skip
        found, left = np.zeros(len(cost), np.bool_), np.zeros(states, np.int64)
        equal = look(layout, work, pays, margin, found, left, 0, states, 1)
        assert np.array_equal(found, stays)
        assert np.array_equal(left, [stays[slots == s].sum() for s in range(states)])
        assert equal == (each == 1 or all((cost[stays & (slots == s)] == harm[s]).all() for s in range(states)))
