"""History that is sampled, since exact curves would take too long."""

from __future__ import annotations

import numpy as np
import pytest

import peakrl
from helpers.random_problems import random_problem
from peakrl import compile_model, learn
from peakrl.learners import ConstrainedQ
from peakrl.training.history import History

MODEL = compile_model(random_problem(3, states=4, actions=3, horizon=4))
SETTINGS = ConstrainedQ.published(0.25)


def same(first, second):
    there = second.columns()
    return all(np.array_equal(column, there[name], equal_nan=True) for name, column in first.columns().items())


def test_a_sampled_history_holds_what_episodes_earned_and_learning_is_the_same():
    exact, sampled = (learn(MODEL, SETTINGS, episodes=300, seed=4, history=record) for record in (1, "sampled"))
    assert np.array_equal(exact.q, sampled.q)
    assert not exact.history.sampled
    assert sampled.history.sampled
    assert np.isnan(sampled.history.value).all()
    assert np.array_equal(sampled.history.episode_reward, exact.history.episode_reward)
    means = np.cumsum(exact.history.episode_reward) / np.arange(1, 301)
    assert np.allclose(sampled.history.averaged_value, means, rtol=1e-12)


def test_where_the_exact_curve_is_too_dear_it_is_sampled_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("peakrl.training.learn.AUTO_WORK", 1.0)
    run = learn(MODEL, SETTINGS, episodes=200, seed=4)
    assert len(run.history) == 200
    assert "returns of episodes, not exact" in repr(run.history)
    peakrl.write_report(run, tmp_path / "page.html")
    assert "Sampled reward per episode: means over consecutive episodes" in (tmp_path / "page.html").read_text()
    assert 'history="none"' in repr(learn(MODEL, SETTINGS, episodes=20, history="none").history)


def test_a_run_with_a_sampled_history_goes_on_from_its_file_as_if_never_cut(tmp_path):
    whole = learn(MODEL, SETTINGS, episodes=90, seed=4, history="sampled")
    learn(MODEL, SETTINGS, episodes=40, seed=4, history="sampled").save(tmp_path / "run")
    assert peakrl.load(tmp_path / "run").history.sampled
    assert same(peakrl.resume(tmp_path / "run", episodes=90).history, whole.history)
    with pytest.raises(peakrl.PeakError, match="different history"):
        learn(MODEL, SETTINGS, episodes=90, seed=4, checkpoint=tmp_path / "run", history=1)


def test_stretches_are_means_with_students_intervals_over_the_points_between():
    rng = np.random.default_rng(5)
    reward, violation = rng.normal(3.0, 2.0, 400), rng.random(400)
    k = np.arange(1, 401)
    unknown = np.full(400, np.nan)
    history = History(k, unknown, unknown, np.cumsum(reward) / k, np.cumsum(violation) / k, reward, violation)
    found = history.stretches(count=8)
    assert found.episode.tolist() == list(range(50, 401, 50))
    blocks = reward.reshape(8, 50)
    assert np.allclose(found.value, blocks.mean(axis=1))
    # Student's t with 49 degrees of freedom has 2.0096 at 97.5 %, by the usual tables.
    assert np.allclose(found.value_margin, 2.0096 * blocks.std(axis=1, ddof=1) / np.sqrt(50), rtol=1e-4)
    assert np.allclose(found.violation, violation.reshape(8, 50).mean(axis=1))
    assert np.isnan(history.stretches(count=400).value_margin).all()  # of one point nobody knows the spread


def test_a_stretch_in_which_nothing_differs_claims_no_interval():
    # One violation in 400 episodes: 95 % intervals of width 0 around 0 would be wrong wherever it did not come up.
    violation = np.where(np.arange(400) == 30, 0.7, 0.0)
    k, unknown, flat = np.arange(1, 401), np.full(400, np.nan), np.ones(400)
    found = History(k, unknown, unknown, flat, np.cumsum(violation) / k, flat, violation).stretches(count=8)
    assert np.isfinite(found.violation_margin[0])
    assert np.isnan(found.violation_margin[1:]).all()
    assert np.isnan(found.value_margin).all()
    assert found.violation == pytest.approx([0.7 / 50] + [0.0] * 7, abs=1e-12)
