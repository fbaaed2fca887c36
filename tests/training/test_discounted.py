"""`learn(target, discount=...)`: optimal stationary policies, ends and time limits, safety, files."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from naive import DiscountedPracticalTwin
from peakrl import (
    Assumptions,
    ConstrainedEnv,
    TabularModel,
    certify,
    compile_model,
    evaluate,
    learn,
    learn_many,
    resume,
    solve,
    sweep,
)
from peakrl.errors import PeakError, ProblemError, SettingsError, TargetError
from peakrl.learners import SUCBVI, UCBVI, MaskedQ, PosteriorSampling, SafeQ
from peakrl.problems import thermostat
from peakrl.training import load_run

LEARNERS = PosteriorSampling(), SafeQ(), UCBVI()
by_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)


def random_model(seed, *, constrained=False, horizon=None, probabilities=None):
    """A model of 6 states and 3 actions; if constrained, action 0 is safe in the states 0 .. 3 and leads to those."""
    rng = np.random.default_rng(seed)
    support = rng.random((6, 3, 6)) < 0.6
    support[..., 0] = True
    constraints = np.ones((6, 3))
    if constrained:
        support[:4, 0, 4:] = False
        constraints = np.where(rng.random((6, 3)) < 0.3, -1.0, 1.0)
        constraints[:4, 0], constraints[4:] = 1.0, -1.0
    rng = rng if probabilities is None else np.random.default_rng(probabilities)
    transitions = rng.exponential(size=support.shape) * support
    transitions /= transitions.sum(axis=2, keepdims=True)
    return TabularModel.from_arrays(
        transitions, rng.random((6, 3)), [constraints], horizon, initial=np.full(6, 1 / 6) if not constrained else 0
    )


@by_learner
@pytest.mark.parametrize("discount", [0.8, 0.95])
def test_the_learned_policy_is_optimal_within_one_per_cent(learner, discount):
    for seed in range(5):
        model = random_model(seed, horizon=[None, 40][seed % 2])
        run = learn(model, learner, episodes=1500, discount=discount, seed=seed, history="none")
        endless = model.with_horizon(None)
        best = solve(endless, discount=discount).value
        assert best * 0.99 <= evaluate(endless, run.policy, discount=discount).value <= best * (1 + 1e-9)
        assert run.policy.model.steps is None
        assert (run.discount, len(run.policy.rows)) == (discount, model.num_slots)


def test_the_plan_of_posterior_sampling_is_the_optimum_of_the_counted_model():
    for seed in range(3):
        run = learn(random_model(seed), episodes=300, discount=0.9, seed=seed)
        tables = run._learned.tables
        chances, rewards = np.zeros((6, 3, 6)), np.zeros((6, 3))
        for row in range(18):
            cell = tables.head[row]
            while cell >= 0:
                share = tables.cell_count[cell] / tables.visits[row]
                chances[row // 3, row % 3, tables.cell_next[cell]] += share
                rewards[row // 3, row % 3] += share * tables.cell_reward[cell]
                cell = tables.cell_link[cell]
        counted = TabularModel.from_arrays(chances, rewards, [], None)
        values = np.linalg.solve(  # of the learned policy
            np.eye(6) - 0.9 * chances[range(6), run.policy.rows % 3], rewards[range(6), run.policy.rows % 3]
        )
        assert values[0] == pytest.approx(solve(counted, discount=0.9).value, rel=1e-6)
        assert run._learned.decision().value[:, 0] == pytest.approx(values, rel=1e-6)


def test_the_plan_of_ucbvi_solves_its_equation():
    run = learn(random_model(1), UCBVI(bonus=0.7), episodes=200, discount=0.9)
    algorithm, (lo, hi) = run._learned, random_model(1).reward_range
    tables, counts, span = algorithm.tables, algorithm.counts, hi - lo
    before = tables.w.copy()
    for _ in range(400):
        q = np.full(18, span / (1 - 0.9))
        for row in np.flatnonzero(counts.visits):
            cell, following = counts.first[row], []
            while cell >= 0:
                following += [before[counts.following[cell], 0]] * int(counts.count[cell])
                cell = counts.before[cell]
            following = following or [0.0]
            bonus = 0.7 * 0.9 * np.std(following) / np.sqrt(len(following))
            q[row] = min(q[row], counts.reward[row] / counts.visits[row] - lo + 0.9 * np.mean(following) + bonus)
        before = q.reshape(6, 3).max(axis=1)[:, None]
    # The latest plan is older than the latest episodes.
    assert tables.w == pytest.approx(before, rel=0.02)


def test_safe_q_is_its_twin_bit_for_bit():
    settings = SimpleNamespace(trials=True, constraint_depends_on=None)
    for seed in range(8):
        problem = random_problem(seed, stationary=True, horizon=7)
        model = compile_model(problem)
        run = learn(model, SafeQ(penalty=3.0), episodes=60, discount=0.9, seed=seed)
        span = np.subtract(*model.reward_range[::-1]) or 1.0
        twin = DiscountedPracticalTwin(problem, model, settings, span, penalty=3.0, discount=0.9)
        twin.run(60, seed)
        assert run._learned.proved_in == twin.proved
        for slot in range(model.num_slots):
            for row in model.rows_of_slot(slot):
                assert run.q[row] == twin.q[0, model.state_of_slot(slot), model.action_of_row(row)]


class Job(gymnasium.Env):
    """One state: action 0 earns 0.2 and goes on, action 1 earns 1 and ends the episode."""

    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, [0.2, 1.0][action], action == 1, False, {"constraints": ()}


@by_learner
@pytest.mark.parametrize("limit", [5, None])
def test_an_end_is_worth_nothing_and_a_time_limit_does_not_count(learner, limit):
    # Going on for ever is worth 2. If a time limit of 5 were an end it would be worth 0.71; if an end were none,
    # ending would be worth 10.
    env = Job() if limit is None else gymnasium.wrappers.TimeLimit(Job(), limit)
    env = ConstrainedEnv(env, horizon=limit or np.inf, reward_range=(0, 1))
    run = learn(env, learner, episodes=400, discount=0.9)
    assert [run.policy.action(step, 0) for step in (0, 10**9)] == [0, 0]
    assert learn(env, learner, episodes=400, discount=0.5).policy.action(0, 0) == 1


@by_learner
def test_on_an_environment_it_learns_what_it_learns_on_the_model(learner):
    problem = random_problem(11, stationary=True, horizon=6, constraints=1, safe_action=True)
    model = compile_model(problem)
    run = learn(model, learner, episodes=150, discount=0.9, seed=4)
    other = learn(ModelEnvironment(model, 4), learner, episodes=150, discount=0.9, seed=4)
    known = {label: index for index, label in enumerate(model.state_labels)}
    for label, index in known.items():
        if index in other.policy.model.state_labels:
            assert other.policy.action(0, index) == sorted(model.action_labels).index(run.policy.action(0, label))


@by_learner
def test_with_a_declared_support_nothing_is_ever_violated(learner):
    for seed in range(4):
        model = random_model(seed, constrained=True)
        support = random_model(seed, constrained=True, probabilities=100)
        assert learn(model, learner, episodes=200, discount=0.9, seed=seed).violations > 0
        run = learn(model, learner, episodes=400, discount=0.9, seed=seed, assumptions=Assumptions(support=support))
        assert run.violations == 0
        certificate = certify(model, run.policy, discount=0.9)
        assert certificate.violation_probability_high == 0
        assert evaluate(model, run.policy, discount=0.9).value >= 0.97 * solve(model, discount=0.9).value


@pytest.mark.parametrize("learner", [PosteriorSampling(), SafeQ()], ids=lambda learner: type(learner).__name__)
def test_a_violation_that_comes_for_certain_proves_infeasibility(learner):
    # From state 0 both actions lead back to it or to state 1, and from there to violations.
    transitions = np.zeros((2, 2, 2))
    transitions[0] = 0.5
    transitions[1, :, 0] = 1.0
    model = TabularModel.from_arrays(transitions, np.ones((2, 2)), [[[1, 1], [-1, -2]]], None)
    run = learn(model, learner, episodes=100, discount=0.9)
    assert run.feasible is False
    lines = {(line.state, line.action): line for line in run.infeasibility_proof}
    assert {(0, 0), (0, 1), (1, 0), (1, 1)} == set(lines)
    assert [lines[1, action].violation for action in (0, 1)] == [1, 2]
    assert lines[0, 0].dead_state == lines[0, 1].dead_state == 1


@by_learner
def test_a_run_that_is_saved_and_resumed_is_the_run_that_was_not(tmp_path, learner):
    model = random_model(3, constrained=True)
    targets = {"model": lambda: model, "env": lambda: ConstrainedEnv(Job(), horizon=np.inf, reward_range=(0, 1))}
    for name, target in targets.items():
        path = tmp_path / f"{name}.run"
        whole = learn(target(), learner, episodes=90, discount=0.9, seed=2)
        learn(target(), learner, episodes=40, discount=0.9, seed=2, history=1).save(path)
        assert load_run(path).discount == 0.9
        again = resume(path, episodes=90, **{name: target()})
        for key, array in whole._learned.arrays().items():
            assert np.array_equal(array, again._learned.arrays()[key]), key
        assert np.array_equal(whole.policy.rows, again.policy.rows)
        assert np.array_equal(whole.averaged_policy.change_row, again.averaged_policy.change_row)
        assert np.array_equal(whole.history.episode_reward, again.history.episode_reward)


def test_what_a_discount_cannot_be_used_with_is_refused_by_name():
    model, endless = random_model(0, horizon=5), random_model(0)
    layered = compile_model(random_problem(0, stationary=False, horizon=3))
    for learner in (SUCBVI(), MaskedQ()):
        with pytest.raises(SettingsError, match="use PosteriorSampling, SafeQ or UCBVI"):
            learn(model, learner, episodes=5, discount=0.9)
    for wrong in (0, 1, 1.5, "much"):
        with pytest.raises(SettingsError, match="it must lie between 0 and 1"):
            learn(model, episodes=5, discount=wrong)
    with pytest.raises(ProblemError, match="stored step by step"):
        learn(layered, episodes=5, discount=0.9)
    with pytest.raises(SettingsError, match="4,605,168 steps: give the target a horizon"):
        learn(endless, episodes=5, discount=1 - 1e-6)
    with pytest.raises(SettingsError, match="safe_policy has a horizon"):
        learn(model, episodes=5, discount=0.9, assumptions=Assumptions(safe_policy=lambda step, state: 0))
    with pytest.raises(PeakError, match="no end"):
        learn(endless, episodes=5)


class Closing(Job):
    """After a step nothing is on offer, and the episode is cut off."""

    def step(self, action):
        return 0, 0.0, False, True, {"constraints": (), "action_mask": np.zeros(2, np.int8)}


def test_many_runs_and_sweeps_are_those_of_learn(tmp_path):
    model = compile_model(thermostat(horizon=None))
    run, other = (learn(model, UCBVI(), episodes=20, seed=seed, discount=0.9) for seed in (0, 1))
    many = learn_many(model, UCBVI(), 20, range(2), discount=0.9)
    assert [one.policy.rows.tolist() for one in many] == [run.policy.rows.tolist(), other.policy.rows.tolist()]
    described = {
        "name": "mine", "seeds": 2, "episodes": 20, "folder": str(tmp_path / "results"),
        "problems": [{"kind": "thermostat", "discount": 0.9}], "settings": [{"learner": "UCBVI"}],
    }  # fmt: skip
    first, second = sweep(described, workers=1, progress=False).results()
    for result, learned in ((first, run), (second, other)):
        exact, best = evaluate(model, learned.policy, discount=0.9), solve(model, discount=0.9)
        assert result.values["value"] == exact.value
        assert result.values["violation"] == exact.violation
        assert result.values["gap"] == best.value - exact.value


def test_a_time_limit_in_a_state_without_actions_is_an_error():
    with pytest.raises(TargetError, match="cut off in a state without actions"):
        learn(ConstrainedEnv(Closing(), horizon=9, reward_range=(0, 1)), episodes=5, discount=0.9)
