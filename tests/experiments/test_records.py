"""What experiments write, read and judge."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from experiments import EXPERIMENTS, run_experiment
from experiments.records import Check, FigureRecord, Request, Row, curve_rows, read_figure, spread, value_at
from peakrl.errors import SettingsError, StorageError


def small_record() -> FigureRecord:
    rows = (
        Row("frozen", "learner", "sum rate", "bits", 200.0, 1 / 3, 0.1, 7),
        Row("frozen", "learner", "sum rate", "bits", 100.0, 0.25, 0.1, 7),
        Row("frozen", "optimum", "sum rate", "bits", None, 0.5, None, 1),
    )
    checks = (Check("a", "paper's curve", 1.0, 1.3, 0.4), Check("b", "none", None, 2.0, None))
    return FigureRecord("figure-2", "Title", "episode", {"sequences": 7}, rows, checks)


def test_a_record_comes_back_from_disk_number_for_number(tmp_path: Path) -> None:
    record = small_record()
    record.write(tmp_path / "new" / "folder")
    assert read_figure(tmp_path / "new" / "folder", "figure-2") == record


def test_the_settings_and_the_verdicts_lie_beside_the_table(tmp_path: Path) -> None:
    small_record().write(tmp_path)
    head = json.loads((tmp_path / "figure-2.json").read_text())
    assert head["settings"] == {"sequences": 7}
    assert [entry["within"] for entry in head["checks"]] == [True, None]
    assert head["checks"][0]["difference"] == pytest.approx(0.3)
    assert (tmp_path / "figure-2.csv").read_text().splitlines()[0] == "variant,curve,measure,unit,x,mean,std,samples"


@pytest.mark.parametrize(
    ("ours", "tolerance", "within"), [(1.4, 0.4, True), (0.6, 0.4, True), (1.41, 0.4, False), (5.0, None, None)]
)
def test_a_check_holds_up_to_and_including_its_tolerance(ours: float, tolerance: float | None, within: bool) -> None:
    check = Check("what", "paper's curve", 1.0, ours, tolerance)
    assert check.within is within
    record = FigureRecord("figure-2", "", "", {}, (), (check,))
    assert record.passed is (within is not False)


def test_curves_are_given_in_order_of_x_whatever_the_order_of_the_rows() -> None:
    curves = small_record().curves("frozen", "sum rate")
    assert [row.x for row in curves["learner"]] == [100.0, 200.0]
    assert curves["optimum"][0].x is None


def test_a_missing_record_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="python -m experiments figure-2"):
        read_figure(tmp_path, "figure-2")


def test_a_damaged_table_is_an_error_that_names_its_row(tmp_path: Path) -> None:
    small_record().write(tmp_path)
    table = tmp_path / "figure-2.csv"
    table.write_text(table.read_text().replace("0.25", "a quarter"))
    with pytest.raises(StorageError, match=r"figure-2\.csv, row 3"):
        read_figure(tmp_path, "figure-2")


def test_foreign_columns_and_broken_json_are_errors(tmp_path: Path) -> None:
    small_record().write(tmp_path)
    (tmp_path / "figure-2.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StorageError, match="other columns"):
        read_figure(tmp_path, "figure-2")
    (tmp_path / "figure-2.json").write_text("{")
    with pytest.raises(StorageError, match="damaged"):
        read_figure(tmp_path, "figure-2")


def test_a_figure_of_which_only_one_file_is_new_is_noticed(tmp_path: Path) -> None:
    small_record().write(tmp_path)
    table = tmp_path / "figure-2.csv"
    table.write_text(table.read_text().replace("0.25", "0.75"))
    with pytest.raises(StorageError, match="two different runs"):
        read_figure(tmp_path, "figure-2")


def test_spread_and_curves_agree_with_numpy() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3))
    rows = curve_rows("v", "c", ("m", "u"), [1, 2, 3], values)
    assert [row.mean for row in rows] == pytest.approx(values.mean(axis=0))
    assert [row.std for row in rows] == pytest.approx(values.std(axis=0, ddof=1))
    assert spread("v", "c", ("m", "u"), None, values[:1, 0]).std is None
    assert value_at(np.array([1, 2, 3]), values, 2) == pytest.approx(values[:, 1].mean())


def test_every_experiment_names_functions_that_run_and_draw_it() -> None:
    for name in EXPERIMENTS:
        entry = EXPERIMENTS[name]
        module = importlib.import_module(f"experiments.{entry.module}")
        assert callable(getattr(module, entry.run))
        assert callable(getattr(module, entry.draw))


def test_an_unknown_figure_is_refused_with_the_names_that_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'figure-7' is no figure; there are figure-2"):
        run_experiment("figure-7", Request(tmp_path))
