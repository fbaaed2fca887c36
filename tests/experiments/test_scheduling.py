"""Figures 4, 5 and 6 at a small size."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from experiments import draw_figure, run_experiment, scheduling
from experiments.records import FigureRecord, Request, read_figure
from experiments.scheduling import FIGURE_6, random_times
from helpers.known_times import known_times
from peakrl.learners import ConstrainedQ
from peakrl.problems import scheduling_example
from peakrl.problems.scheduling import dt_order_or_least_late

EXAMPLE_3 = {"kind": "scheduling_example", "number": 3}
PUBLISHED = ConstrainedQ.published(0.1).as_dict()
TINY_6 = replace(FIGURE_6, tests=5, episodes=400, every=100, block=3)


@pytest.fixture(scope="module")
def tiny_6(tmp_path_factory: pytest.TempPathFactory) -> FigureRecord:
    return random_times(Request(tmp_path_factory.mktemp("figure-6"), workers=1), TINY_6)


@pytest.mark.parametrize(("name", "optimum", "edd"), [("figure-4", 1, 5), ("figure-5", 22, 26)])
def test_algorithm_1_reaches_the_optimum_of_examples_1_and_2_without_violation(
    tmp_path: Path, name: str, optimum: float, edd: float
) -> None:
    record = run_experiment(name, Request(tmp_path, workers=1))
    objective, violation = (record.curves("fixed times", measure) for measure in ("max tardiness", "violation"))
    assert objective["Algorithm 1, each episode"][-1].mean == objective["DT"][0].mean == optimum
    assert objective["EDD"][0].mean == edd
    assert violation["Algorithm 1, each episode"][-1].mean == violation["DT"][0].mean == 0
    assert record.passed
    assert all(path.stat().st_size > 10_000 for path in draw_figure(name, tmp_path))


def test_the_averaged_curve_is_the_running_mean_of_the_episodes(tmp_path: Path) -> None:
    record = run_experiment("figure-4", Request(tmp_path, workers=1))
    curves = record.curves("fixed times", "max tardiness")
    each = np.array([row.mean for row in curves["Algorithm 1, each episode"]])
    averaged = [row.mean for row in curves["Algorithm 1, averaged policy"]]
    assert averaged == pytest.approx(np.cumsum(each) / np.arange(1, len(each) + 1))


def test_figure_6_has_both_readings_with_mean_and_deviation_over_tests(tiny_6: FigureRecord) -> None:
    assert tiny_6.variants == ["anew", "once"]
    for variant in tiny_6.variants:
        for measure in ("max tardiness", "violation"):
            curves = tiny_6.curves(variant, measure)
            assert set(curves) == {"Algorithm 1", "DT", "EDD", "least violation"}
            assert [row.x for row in curves["Algorithm 1"]] == [100, 200, 300, 400]
            assert all(row.samples == 5 and row.std is not None for row in curves["Algorithm 1"])
            single = tiny_6.curves(variant, f"{measure} of one episode")
            assert {name: rows[0].samples for name, rows in single.items()} == {"Algorithm 1": 5, "DT": 5, "EDD": 5}


def test_no_curve_of_figure_6_goes_below_the_least_possible_violation(tiny_6: FigureRecord) -> None:
    for variant in tiny_6.variants:
        curves = tiny_6.curves(variant, "violation")
        floor = curves["least violation"][0].mean
        assert all(row.mean >= floor - 1e-9 for name in ("Algorithm 1", "EDD") for row in curves[name])
    assert tiny_6.curves("anew", "violation")["least violation"][0].mean == pytest.approx(0.2662, abs=5e-5)


def test_figure_6_is_drawn_from_its_files_alone(tiny_6: FigureRecord, tmp_path: Path) -> None:
    tiny_6.write(tmp_path)
    assert read_figure(tmp_path, "figure-6") == tiny_6
    assert all(path.stat().st_size > 10_000 for path in draw_figure("figure-6", tmp_path))


def test_dt_with_known_times_has_the_expectation_that_simulation_finds() -> None:
    problem = scheduling_example(3)
    objective, violation = scheduling.expected_dt(problem)
    schedules = known_times(problem.jobs, dt_order_or_least_late, tests=4000, seed=1)
    late, missed = (np.array([getattr(one, name) for one in schedules]) for name in ("max_tardiness", "violation"))
    error = 4 / np.sqrt(4000)
    assert objective == pytest.approx(late.mean(), abs=error * late.std())
    assert violation == pytest.approx(missed.mean(), abs=error * missed.std())


def test_times_drawn_once_are_learned_to_the_best_of_their_own_instance() -> None:
    config = {"problem": EXAMPLE_3, "learner": PUBLISHED, "episodes": 2000, "every": 1000}
    found = scheduling.learn_once({**config, "tests": [0, 1, 2, 3]})
    assert found["learner single violation"].tolist() == found["least violation"].tolist()
    assert found["learner single objective"].tolist() == found["objective at least violation"].tolist()
    assert (found["EDD violation"] >= found["least violation"]).all()


def test_the_draws_of_a_test_depend_on_its_number_only() -> None:
    config = {"problem": EXAMPLE_3, "learner": PUBLISHED, "episodes": 50, "every": 50}
    for task, key in product((scheduling.learn_anew, scheduling.learn_once), ("averaged violation", "DT objective")):
        together, alone = task({**config, "tests": [4, 5]}), task({**config, "tests": [5]})
        assert together[key][1].tolist() == alone[key][0].tolist()
