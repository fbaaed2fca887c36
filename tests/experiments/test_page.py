"""The page of all figures: what is compared, drawn and shown of a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.efficiency import FLOOR
from experiments.page import figure_names, figure_section, quartile_chart, write_page
from experiments.records import FigureRecord, Row, read_figure
from helpers.report_pages import Taken, figure_record
from peakrl.errors import StorageError


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    figure_record().write(folder)
    write_page(folder)
    return folder


@pytest.fixture(scope="module")
def taken(results: Path) -> Taken:
    return Taken((results / "report.html").read_text())


def test_a_page_has_the_figures_on_record_and_the_theory(results: Path, taken: Taken) -> None:
    assert figure_names(results) == ["figure-2"]
    assert {"figure-2-checks", "theory-plan", "theory-slack"} <= set(taken.tables)


def test_the_page_opens_with_the_paper_and_the_largest_difference_of_each_figure(results: Path, taken: Taken) -> None:
    assert "Bai, Aggarwal and Gattami" in (results / "report.html").read_text()
    head, row = taken.tables["summary-figures"]
    judged = [check for check in figure_record().checks if check.within is not None]
    worst = max(judged, key=lambda check: abs(check.difference or 0.0))
    assert row[head.index("within tolerance")] == "1 of 2"
    assert (row[3], row[5]) == (worst.what, repr(worst.ours))


def test_a_page_without_figures_of_the_paper_does_not_name_it(tmp_path: Path) -> None:
    replace(figure_record(), name="theory").write(tmp_path)
    text = write_page(tmp_path).read_text()
    assert "Bai, Aggarwal" not in text
    assert "summary-figures" not in Taken(text).tables


def test_the_comparison_of_a_figure_has_every_digit_of_its_record(results: Path, taken: Taken) -> None:
    checks = read_figure(results, "figure-2").checks
    head, *rows = taken.tables["figure-2-checks"]
    assert head == ["quantity", "compared with", "there", "ours", "difference", "tolerance", "within"]
    for check, row in zip(checks, rows, strict=True):
        assert row[:2] == [check.what, check.against]
        numbers = [check.expected, check.ours, check.difference, check.tolerance]
        assert row[2:6] == ["" if number is None else repr(number) for number in numbers]
    assert [row[6].strip() for row in rows] == ["yes", "NO", "not judged"]


def test_a_figure_off_tolerance_is_marked_as_such() -> None:
    figure = figure_section(figure_record())
    assert figure.badge == ("bad", "off tolerance")
    assert figure.lead.startswith("1 of 2 judged")


def test_curves_are_those_of_the_record_and_levels_reach_across(results: Path, taken: Taken) -> None:
    series = {one["name"]: one for one in taken.data["figure-2-frozen-sum-rate"]["series"]}
    record = read_figure(results, "figure-2").curves("frozen", "sum rate")
    assert set(series) == set(record)
    assert series["slack 0.01"]["y"] == [row.mean for row in record["slack 0.01"]]
    assert series["slack 0.01"]["std"] == [0.5] * 5
    assert series["paper: slack 0.1"]["mode"] == "markers"
    assert (series["integer optimum"]["x"], series["integer optimum"]["y"]) == ([10, 50], [57.25, 57.25])


def test_settings_are_shown_with_dotted_names(taken: Taken) -> None:
    assert taken.tables["figure-2-settings"][1:] == [["episodes", "50"], ["problem.peak", "8"]]


def test_a_damaged_record_is_an_error_and_not_left_out(tmp_path: Path) -> None:
    figure_record().write(tmp_path)
    (tmp_path / "figure-2.json").write_text("{")
    with pytest.raises(StorageError, match="figure-2"):
        write_page(tmp_path)


def test_a_logarithmic_axis_of_gaps_ends_where_gaps_no_longer_matter() -> None:
    words = {"lower": 1e-14, "median": -3.0, "upper": 0.5}  # a policy that violates may earn more than the optimum
    rows = [Row("peak 8", "SafeQ", f"{word} gap", "%", x, y, None, 20) for word, y in words.items() for x in (1, 2)]
    chart = quartile_chart(FigureRecord("efficiency", "", "episode", {}, tuple(rows), ()), "peak 8", "gap")
    assert chart.data["floor"] == FLOOR["gap"] > 0
    assert "log axis from 0.01" in chart.title
    assert [series.y for series in chart.series] == [[-3.0, -3.0]]  # hovering and the CSV tell the number itself
