"""Algorithm 1 against its slow twin, its constants against the formulas, its averaged policy against replays."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import naive
from helpers.random_problems import random_problem
from peakrl import TabularModel, compile_model, evaluate, learn, learners
from peakrl.errors import SettingsError
from peakrl.learners import Certified, ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.learners.constrained_q import MODIFIED, Tables
from peakrl.learners.episode import Log, learn_played
from peakrl.learners.episode import Path as Episode
from peakrl.training import load_run, trainer

SETTINGS = {
    "as printed": ConstrainedQ.paper(0.25),
    "strong bernstein": ConstrainedQ.paper(0.5, slater=0.1, c1=0.7, c2=0.9, start="stepwise"),
    "sharp bernstein": ConstrainedQ.paper(0.5, slater=0.1, c1=1e-3, c2=0.9, start="stepwise"),
    "hoeffding": ConstrainedQ.paper(0.1, bonus="hoeffding", c2=0.05),
    "no bonus": ConstrainedQ.paper(0.25, bonus="none"),
    "published": ConstrainedQ.published(0.25),
    "theorem 2": ConstrainedQ.deterministic(0.3, bonus="none"),
    "given penalty": ConstrainedQ.paper(0.0, penalty=7.5, bonus="none", start="stepwise"),
    "tight": learners.ConstrainedQ(slack=0.1, bonus="none", start="tight"),
}


def constants(model, settings, episodes):
    """The constants of the notes, section 1, written out once more."""
    horizon, count = model.horizon, max(model.num_constraints, 1)
    span = model.reward_range[1] - model.reward_range[0]
    unit = 1.0 if settings.unit_rewards else span
    if settings.penalty is not None:
        penalty = settings.penalty
    elif settings.exponent is not None:
        penalty = (episodes * horizon) ** settings.exponent * unit
    else:
        penalty = 2 * horizon * count * unit / (settings.slater or settings.slack / 2)
    level = max(penalty, span)
    start = {
        "flat": [level * horizon] * horizon,
        "stepwise": [level * (horizon - h) for h in range(horizon)],
        "tight": [span * (horizon - h) for h in range(horizon)],
    }[settings.start]
    cap = start if settings.start == "tight" else [level * horizon] * horizon
    cells = model.max_states * model.max_actions * episodes * horizon
    log_term = math.log(cells / settings.failure_probability)
    bound = level * max(model.constraint_bounds)
    return {"penalty": penalty, "bound": bound, "log_term": log_term, "start": start, "cap": cap}


def twin_differences(seed, name, episodes=40):
    """Learn a random problem with the kernel and with the twin; return what differs (nothing, one hopes)."""
    problem, settings = random_problem(seed), SETTINGS[name]
    model = compile_model(problem)
    run = learn(model, settings, episodes=episodes, seed=seed + 5)
    q, trace = naive.algorithm_one(problem, model, settings, episodes, seed + 5, **constants(model, settings, episodes))
    differences = []
    for (step, state), table in q.items():
        base = step * model.entry_stride
        for action, value in table.items():
            found = run.q[base + model.row_of(step, state, action)]
            if found != value:
                differences.append((step, state, action, found, value))
    for k in (1, 2, episodes // 2, episodes):
        policy = run.averaged_policy.policy(k)
        for (step, state), action in trace[k - 1].items():
            if policy.action(step, state) != action:
                differences.append((k, step, state, policy.action(step, state), action))
    return differences


@pytest.mark.parametrize("name", SETTINGS)
def test_the_kernel_equals_its_twin_bit_for_bit(name):
    for seed in range(12):
        assert twin_differences(seed, name) == []


@pytest.mark.parametrize(("seed", "logs"), [(0, True), (1, False), (2, True), (3, True)])
def test_what_is_learned_of_a_row_that_is_no_longer_greedy_leaves_the_best_one_greedy(seed, logs):
    """As in lanes, of which another may have learned meanwhile: the best of a node is looked for in plain Python."""
    rng, model = np.random.default_rng(seed), compile_model(random_problem(seed))
    layout, horizon = model.layout, model.horizon
    # Quarters, so that some tie.
    q = rng.integers(0, 12, (horizon - 1) * layout.entry_stride + model.num_rows) / 4
    visits = rng.integers(0, 4, len(q)).astype(np.int32)
    node = np.zeros((model.num_nodes + model.num_slots, 4))
    words = node.view(np.uint64)

    def best(step, slot):
        rows = np.arange(layout.row_start[slot], layout.row_start[slot + 1])
        values = q[step * layout.entry_stride + rows]
        others = np.delete(values, values.argmax())
        return min(2.0, values.max()), others.max(initial=-np.inf), rows[values.argmax()]

    slots = [int(rng.integers(*layout.step_slots[step])) for step in range(horizon)]
    rows = [int(rng.integers(layout.row_start[slot], layout.row_start[slot + 1])) for slot in slots]
    nodes = [step * layout.node_stride + slot for step, slot in enumerate(slots)]
    entries = [step * layout.entry_stride + row for step, row in enumerate(rows)]
    greedy = [best(step, slot)[2] for step, slot in enumerate(slots)]
    for step, slot in enumerate(slots):
        node[nodes[step], :2], words[nodes[step], 2] = best(step, slot)[:2], greedy[step]
    # The last row of `node` belongs to no state, and is worth 0.
    followings = [*slots[1:], len(node) - 1 - horizon * layout.node_stride]
    reward, ahead = rng.integers(0, 8, horizon) / 4, np.array([*(node[here, 0] for here in nodes[1:]), 0.0])
    alpha = [[0.5, 0.25, (horizon + 1) / (horizon + 3), (horizon + 1) / (horizon + 4)][n] for n in visits[entries]]
    expected = [(1 - a) * old + a * new for a, old, new in zip(alpha, q[entries], reward + ahead, strict=True)]
    seen, log = visits[entries] + 1, Log.of_size(9 if logs else 0).since(8)
    unused = dict.fromkeys(("mu", "sigma", "beta"), np.empty(0))
    unused |= dict.fromkeys(("fell_step", "fell_slot"), np.empty(0, np.uint64))
    unused |= dict.fromkeys(("c1", "root", "floor", "linear", "wide"), 0.0)
    tables = Tables(
        q=q, visits=visits, node=node.reshape(-1), choice=words.reshape(-1), bonus=False,
        alpha=np.array([np.nan, 0.5, 0.25]), cap=np.full(horizon, 2.0), **unused,
    )  # fmt: skip
    payoff = np.zeros((horizon, 4))
    payoff[:, MODIFIED] = reward
    path = Episode(*(np.array(each) for each in (slots[:1], slots, rows, followings)), payoff)
    learn_played(tables, layout, path, horizon, 7, log)
    assert (q[entries].tolist(), visits[entries].tolist()) == (expected, seen.tolist())
    found = [best(step, slot) for step, slot in enumerate(slots)]
    assert [(*node[here, :2], words[here, 2]) for here in nodes] == found
    new = [(8, nodes[h], row) for h, (_, _, row) in enumerate(found) if row != greedy[h]] if logs else []
    assert list(zip(*log.changes, strict=True)) == new


def test_a_run_is_reproduced_by_its_seed_and_changed_by_another():
    model = compile_model(random_problem(3, states=4, actions=3, horizon=4, stationary=True))
    settings = ConstrainedQ.published(0.25)
    first, again, other = (learn(model, settings, episodes=300, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.q, again.q)
    assert not np.array_equal(first.q, other.q)


def test_recording_and_averaging_do_not_change_what_is_learned():
    model = compile_model(random_problem(3, states=4, actions=3, horizon=4, stationary=True))
    settings = ConstrainedQ.paper(0.25)
    whole = learn(model, settings, episodes=500, seed=1, history=1)
    bare = learn(model, settings, episodes=500, seed=1, history="none", average=False)
    assert np.array_equal(whole.q, bare.q)
    assert np.array_equal(whole.policy.rows, bare.policy.rows)
    assert (whole.violations, whole.last_violation_episode) == (bare.violations, bare.last_violation_episode)


def test_the_followed_policy_is_that_of_the_last_episode():
    model = compile_model(random_problem(8, states=4, actions=3, horizon=4))
    for episodes in (1, 2, 7, 50):
        run = learn(model, ConstrainedQ.published(0.25), episodes=episodes)
        assert np.array_equal(run.behavior_policy.rows, run.averaged_policy.policy(episodes).rows)


def surely(seed):
    """A random problem in which every action has one outcome."""
    rng = np.random.default_rng(seed)
    transitions = np.zeros((4, 3, 4))
    transitions[np.arange(4)[:, None], np.arange(3), rng.integers(4, size=(4, 3))] = 1.0
    return TabularModel.from_arrays(transitions, rng.random((4, 3)), rng.uniform(-0.3, 1, (2, 4, 3)), horizon=3)


EVERY = pytest.mark.parametrize(
    "settings",
    [
        ConstrainedQ.published(0.25),
        SafeQ(),
        PosteriorSampling(),
        learners.UCBVI(),
        Certified(1e-3),
    ],
    ids=lambda settings: type(settings).__name__,
)


@EVERY
def test_a_change_list_that_fills_up_is_emptied_without_a_trace(settings, monkeypatch):
    model = compile_model(random_problem(3, states=4, actions=3, horizon=4, stationary=True))
    whole = learn(model, settings, episodes=60, seed=1, history=1)
    monkeypatch.setattr(trainer, "KERNEL_STEPS", (40, 40))
    pieces = learn(model, settings, episodes=60, seed=1, history=1)
    assert np.array_equal(whole.q, pieces.q)
    for column in ("change_episode", "change_node", "change_row"):
        assert np.array_equal(getattr(whole.averaged_policy, column), getattr(pieces.averaged_policy, column))
    assert np.array_equal(whole.history.averaged_value, pieces.history.averaged_value)


@EVERY
def test_where_nothing_is_random_an_episode_earns_what_its_policy_is_worth(settings):
    for seed in range(3):
        model = surely(seed)
        run = learn(model, settings, episodes=60, seed=seed, history=1)
        history = run.history
        assert np.unique(history.value).size > 1
        assert history.episode_reward == pytest.approx(history.value, rel=1e-12)
        assert history.episode_violation == pytest.approx(history.violation, rel=1e-12)
        for episode in (1, 2, 5, 60):
            worth = evaluate(model, run.averaged_policy.policy(episode))
            assert history.episode_reward[episode - 1] == pytest.approx(worth.value, rel=1e-12)
            assert history.episode_violation[episode - 1] == pytest.approx(worth.violation, rel=1e-12)


@pytest.mark.parametrize("settings", [learners.OptCMDP(total=0.6), learners.OptPrimalDual(total=0.6)])
def test_of_a_policy_that_is_drawn_anew_the_list_of_changes_holds_what_was_drawn(settings):
    for seed in range(3):
        model = surely(seed)
        run = learn(model, settings, episodes=40, seed=seed, history=1)
        assert np.unique(run.history.episode_reward).size > 1
        for episode in (1, 2, 3, 10, 39, 40):
            worth = evaluate(model, run.averaged_policy.policy(episode))
            assert run.history.episode_reward[episode - 1] == pytest.approx(worth.value, rel=1e-12)
            assert run.history.episode_violation[episode - 1] == pytest.approx(worth.violation, rel=1e-12)


@pytest.mark.parametrize("settings", [PosteriorSampling(), learners.UCBVI(), learners.OptPrimalDual(total=0.5)])
def test_first_states_are_counted_once_an_episode(settings):
    model = compile_model(random_problem(2, states=4, horizon=3))
    assert learn(model, settings, episodes=17)._learned.outcomes().begun.sum() == 17


@pytest.mark.parametrize("actions", [1, 2])
def test_a_proof_is_dated_by_the_episode_after_which_it_is_known(actions):
    """UCBVI sees it when it plans the next time."""
    model = TabularModel.from_arrays(np.ones((1, actions, 1)), np.zeros((1, actions)), -np.ones((1, 1, actions)), 1)
    runs = [learn(model, learners.SUCBVI(), episodes=episodes) for episodes in range(1, 6)]
    first = [run.feasible for run in runs].index(False) + 1
    assert [int(run._learned.tables.proved[0]) for run in runs] == [
        first if run.episodes >= first else 0 for run in runs
    ]


@pytest.mark.parametrize("settings", [PosteriorSampling(), SafeQ()])
@pytest.mark.parametrize("actions", [1, 2])
def test_that_nothing_can_be_done_is_proved_by_the_episode_that_shows_it(actions, settings, tmp_path):
    """One state, all of whose actions violate: proved when the last of them was tried."""
    model = TabularModel.from_arrays(np.ones((1, actions, 1)), np.zeros((1, actions)), -np.ones((1, 1, actions)), 1)
    for episodes in range(1, 4):
        run = learn(model, settings, episodes=episodes)
        assert run.feasible is (False if episodes >= actions else None)
        run.save(tmp_path / "run")
        assert load_run(tmp_path / "run").feasible is run.feasible


def test_violations_are_counted_as_experienced():
    model = compile_model(random_problem(21, states=3, actions=3, horizon=3))
    run = learn(model, ConstrainedQ.published(0.25), episodes=400, history=1)
    violating = np.flatnonzero(run.history.episode_violation > 0) + 1
    assert run.violations == len(violating) > 0
    assert run.last_violation_episode == violating[-1]


@pytest.mark.parametrize(
    ("values", "culprit"),
    [
        ({"slack": 0.0}, "slack"),
        ({"slack": 0.1, "slater": 0.2}, "slater"),
        ({"slack": 0.1, "bonus": "ucb"}, "bonus"),
        ({"slack": 0.1, "start": "late"}, "start"),
        ({"slack": 0.1, "failure_probability": 1.0}, "failure_probability"),
        ({"slack": 0.1, "penalty": -1.0}, "penalty"),
    ],
)
def test_bad_settings_are_refused_by_name(values, culprit):
    with pytest.raises(SettingsError, match=culprit):
        ConstrainedQ.paper(**values)


@pytest.mark.parametrize("phi", [0.0, 0.5, -1.0, float("nan")])
def test_theorem_2_needs_an_exponent_between_0_and_a_half(phi):
    with pytest.raises(SettingsError, match="exponent"):
        ConstrainedQ.deterministic(phi)


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"episodes": 0}, "episodes"),
        ({"episodes": 10, "seed": -1}, "seed"),
        ({"episodes": 10, "history": "all"}, "history"),
    ],
)
def test_bad_arguments_of_learn_are_refused_by_name(arguments, culprit):
    model = compile_model(random_problem(1))
    with pytest.raises(SettingsError, match=culprit):
        learn(model, ConstrainedQ.published(0.1), **arguments)


def test_learn_refuses_what_is_no_model_and_no_settings():
    model = compile_model(random_problem(1))
    with pytest.raises(SettingsError, match="target"):
        learn("model", ConstrainedQ.published(0.1), episodes=5)
    with pytest.raises(SettingsError, match="settings"):
        learn(model, {"slack": 0.1}, episodes=5)


def test_the_kernel_equals_its_twin_with_the_jit_off():
    code = (
        "from test_learn import SETTINGS, twin_differences\n"
        "found = [twin_differences(seed, name, 12) for seed in range(6) for name in SETTINGS]\n"
        "print(len(found), sum(map(len, found)))"
    )
    environment = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
    }
    # Without the compiler, 64-bit integers that wrap around make numpy warn; the generator is built on wrapping.
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(6 * len(SETTINGS)), "0"]


def test_runs_and_histories_show_themselves_in_a_line():
    run = learn(compile_model(random_problem(0)), SafeQ(), episodes=20)
    assert "20 episodes" in repr(run)
    assert re.search(r", (feasible|proved infeasible|feasibility not proved); policy: (un)?tried .*>$", repr(run))
    assert "None" not in repr(run)
    assert repr(run.history).startswith("<History of 20 points, episodes 1 to 20: episode, value, violation,")
    assert repr(run.history.empty()).startswith("<History without points: ")
