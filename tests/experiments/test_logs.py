"""The experiment `logs`: its planners against peakrl's, and what it is to show, at a small size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments import draw_figure
from experiments.logs import (
    ACTIONS,
    GARNETS,
    GOAL,
    HORIZON,
    QUICK,
    STATES,
    VALUE,
    drawn,
    garnet,
    measure,
    planned,
    softened,
    value_of,
)
from experiments.records import Request, read_figure
from peakrl import TabularModel, solve


def test_the_planner_of_the_rivals_finds_the_optimum_of_the_true_probabilities():
    chances = drawn(np.random.default_rng(1))
    assert ((chances > 0).sum(axis=2)[:GOAL] == 4).all()
    rewards = chances[:, :, GOAL].copy()
    rewards[GOAL] = 0.0
    start = np.eye(STATES)[0]
    best = solve(TabularModel.from_arrays(chances, rewards, [], HORIZON, initial=start)).value
    value, rows, q = planned(chances)
    assert value == pytest.approx(best, abs=1e-12)
    assert value_of(chances, np.eye(ACTIONS)[rows]) == pytest.approx(best, abs=1e-12)
    uniform = value_of(chances, np.full((HORIZON, STATES, ACTIONS), 1 / ACTIONS))
    assert softened(chances, q, 0.9)[0] == pytest.approx(uniform + 0.9 * (best - uniform), abs=1e-6)


def test_a_small_version_is_recorded_and_drawn(tmp_path):
    record = measure(
        Request(tmp_path, workers=1, quick=True), replace(QUICK, trajectories=(20,), logs=2, episodes=(10,))
    )
    record.write(tmp_path)
    assert read_figure(tmp_path, "logs").rows == record.rows
    draw_figure("logs", tmp_path)
    assert len(record.curves(GARNETS, VALUE[0])) == 6


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 100, 1000])
def test_policies_from_logs_are_rarely_worse_than_the_behaviour_and_beat_the_rivals(size):
    config = {"size": size, "behaviour": 0.9, "failure_probability": 0.05}
    found = [garnet({**config, "seed": 10_000 + seed}) for seed in range(60)]
    values = {name: np.array([each[name] for each in found]) for name in found[0]}
    ours = values.pop("Pessimistic")
    assert binomtest(int((ours < 0).sum()), len(ours), 0.05, "greater").pvalue > 1e-3
    for name in ("basic RL", "basic RL, earlier half", "VI-LCB, earlier half"):
        assert ours.mean() >= values[name].mean()
        assert np.quantile(ours, 0.01) >= np.quantile(values[name], 0.01)
