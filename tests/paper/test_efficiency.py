"""The experiment `efficiency` at a small size, and the planner that it measures against."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from naive import optimistic_plan
from peakrl import TabularModel, compile_model, energy_harvesting, evaluate, solve
from peakrl.errors import SettingsError
from peakrl.paper.efficiency import QUICK, measure, quantile
from peakrl.paper.efficiency_tasks import gaps
from peakrl.paper.records import FigureRecord, Request, read_figure
from peakrl.paper.ucbvi import ModelBasedPlanner, planner_curve
from peakrl.report import draw_figure

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


def test_the_planner_finds_the_optimum_from_true_frequencies(small: TabularModel) -> None:
    planner = ModelBasedPlanner(small, bonus=0.0)
    for row in range(small.num_rows):
        law = small.row_distribution[row]
        first, last = small.outcome_start[law : law + 2]
        planner.counts[planner.cell_start[row] : planner.cell_start[row + 1]] = (
            1e6 * small.outcome_probability[first:last]
        )
    planner.visits[:] = 1e6
    planner.forbidden = (small.row_margin < 0).any(axis=1)
    planner.plan()
    result = evaluate(small, planner.policy)
    assert result.value == pytest.approx(solve(small).value)
    assert result.violation == 0


@pytest.mark.parametrize("bonus", [0.7, 50.0])  # the second so large that the cap holds values down
def test_the_planner_s_kernel_agrees_with_its_plain_twin(small: TabularModel, bonus: float) -> None:
    planner = ModelBasedPlanner(small, bonus=bonus, seed=2)
    for batch in (1, 3, 20, 200):
        planner.act(batch)
        planner.plan()
        edges = planner.cell_start.tolist()
        seen = [
            list(zip(planner.cell_next[low:high].tolist(), planner.counts[low:high].tolist(), strict=True))
            for low, high in pairwise(edges)
        ]
        rows_of = [small.rows_of_slot(slot) for slot in range(small.num_slots)]
        expected = optimistic_plan(
            rows_of, small.horizon, seen, planner.reward.tolist(), planner.forbidden, planner.span, bonus
        )
        assert planner.rows.tolist() == expected


def test_the_planner_draws_by_the_models_probabilities(small: TabularModel) -> None:
    planner = ModelBasedPlanner(small, seed=1)
    planner.act(40_000)
    row = int(planner.visits.argmax())
    law = small.row_distribution[row]
    first, last = small.outcome_start[law : law + 2]
    seen = planner.counts[planner.cell_start[row] : planner.cell_start[row + 1]] / planner.visits[row]
    assert planner.visits.sum() == 40_000 * small.horizon
    assert seen == pytest.approx(small.outcome_probability[first:last], abs=5 / math.sqrt(planner.visits[row]))


def test_the_planner_comes_close_to_the_optimum_and_stops_violating(small: TabularModel) -> None:
    found = planner_curve(small, 4_000, 0.5, 0)
    assert np.asarray(found["value"])[-1] > 0.99 * solve(small).value
    assert np.asarray(found["violation"])[-1] == 0
    assert 0 < int(found["last_violation"]) < 4_000
    assert int(found["violations"]) > 0


def test_the_planner_refuses_what_it_cannot_count() -> None:
    with pytest.raises(SettingsError, match="stationary"):
        ModelBasedPlanner(compile_model(energy_harvesting(horizon=3, arrivals="frozen")))
