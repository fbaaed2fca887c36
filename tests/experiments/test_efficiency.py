"""The experiment `efficiency` at a small size."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import draw_figure
from experiments.efficiency import QUICK, gaps, measure
from experiments.records import FigureRecord, Request, quantile, read_figure
from peakrl import TabularModel, compile_model, solve
from peakrl.problems import energy_harvesting

TINY = replace(
    QUICK, peaks=(8,), episodes=200, long_episodes=3_000, places=4, schedules=((1, 200),), infeasible_episodes=600
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("efficiency")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> FigureRecord:
    record = measure(Request(folder, quick=True, workers=1), TINY)
    record.write(folder)
    return record


@pytest.fixture(scope="module")
def small() -> TabularModel:
    return compile_model(energy_harvesting(horizon=5, battery=4, max_arrival=4, mean=2, std=2, peak_power=2))


def test_every_learner_has_a_curve_with_quartiles_and_a_last_gap(tiny: FigureRecord) -> None:
    assert tiny.variants == ["peak 8", "example 1", "example 3"]
    for word in ("lower", "median", "upper"):
        curves = tiny.curves("peak 8", f"{word} gap")
        assert len(curves) == 7
        assert all(rows[0].x is None and len(rows) > 3 for rows in curves.values())
    assert all(check.tolerance is None for check in tiny.checks)


def test_the_record_is_read_back_and_drawn(folder: Path, tiny: FigureRecord) -> None:
    assert read_figure(folder, "efficiency").rows == tiny.rows
    assert all(path.stat().st_size > 10_000 for path in draw_figure("efficiency", folder))


def test_a_policy_is_settled_when_it_stays_close_and_free_of_violation(small: TabularModel) -> None:
    best = solve(small).value
    episode = np.array([1.0, 2.0, 3.0, 4.0])
    close, violation = np.array([0.5, 0.995, 0.995, 1.0]) * best, np.array([0.0, 0.0, 0.1, 0.0])
    assert gaps(small, episode, close, np.zeros(4))["settled"] == 2
    assert gaps(small, episode, close, violation)["settled"] == 4
    assert gaps(small, episode, close[::-1], np.zeros(4))["settled"] is None
    assert gaps(small, episode, np.full(4, best), np.zeros(4))["settled"] == 1


def test_quartiles_survive_runs_that_never_settle() -> None:
    assert quantile([1.0, 2.0, 3.0], 50) == 2.0
    assert quantile([1.0, 2.0, math.inf], 75) == math.inf
    assert quantile([1.0, 2.0, math.inf], 25) == 2.0
