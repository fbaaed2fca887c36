"""`python -m experiments` as a command: what it prints, writes and returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from experiments import BEYOND, PAPER_FIGURES, figure_3, scheduling
from experiments import __main__ as command
from experiments.__main__ import experiments, legible
from helpers.report_pages import figure_record
from peakrl import PeakError

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(experiments)

    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, PeakError):  # `main` prints these and exits with 2
            return 2, str(result.exception)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout

    return call


def test_the_command_writes_table_settings_and_both_pictures(run: Run, tmp_path: Path) -> None:
    code, text = run("figure-4", "--out", "here", "--workers", "1")
    assert code == 0
    assert "6 of 6 judged comparisons are within tolerance" in text
    assert {path.name for path in (tmp_path / "here").glob("figure-4.*")} == {
        f"figure-4.{kind}" for kind in ("csv", "json", "png", "pdf")
    }


def test_the_command_prints_the_same_as_json(run: Run) -> None:
    code, text = run("figure-4", "--json", "--workers", "1")
    answer = json.loads(text)
    assert code == 0
    assert answer["passed"] is True
    (figure,) = answer["figures"]
    edd = next(check for check in figure["checks"] if check["what"].endswith("EDD"))
    assert (edd["expected"], edd["ours"], edd["difference"], edd["within"]) == (5, 5, 0, True)
    assert all(Path(file).exists() for file in figure["files"])


def test_a_check_that_fails_is_shown_and_makes_the_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scheduling.EXAMPLE_EDD, 1, 6.0)
    code, text = run("figure-4", "--workers", "1")
    assert code == 1
    assert "NO" in text
    assert "5 of 6" in text


def test_small_and_recorded_versions_do_not_replace_the_full_results(run: Run, tmp_path: Path) -> None:
    run("figure-4", "--quick", "--workers", "1", "--json")
    assert (tmp_path / "results" / "quick" / "figure-4.csv").exists()
    assert not (tmp_path / "results" / "figure-4.csv").exists()


def test_recorded_arrivals_are_read_from_a_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(figure_3.FIGURE_3, episodes=2_000)
    monkeypatch.setattr(figure_3, "FIGURE_3", small)
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).integers(0, 12, (2, 20)))
    code, text = run("figure-3", "--arrivals", "mine.npy", "--workers", "1", "--json")
    (figure,) = json.loads(text)["figures"]
    assert code in (0, 1)  # two thousand episodes need not be enough
    assert figure["settings"]["sequences"] == 2
    assert (tmp_path / "results" / "recorded" / "figure-3.png").exists()


@pytest.mark.parametrize(
    ("names", "figures"),
    [((), PAPER_FIGURES), (("beyond",), BEYOND), (("figure-4", "figure-4"), ("figure-4",))],
)
def test_the_paper_is_the_default_and_one_word_names_the_rest(
    run: Run, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], figures: tuple[str, ...]
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(command, "run_experiment", lambda name, request: ran.append(name) or figure_record())
    monkeypatch.setattr(command, "draw_figure", lambda name, folder: [])
    run(*names, "--workers", "1")
    assert tuple(ran) == figures


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure-7",), "'figure-7' is no figure"),
        (("figure-2", "figure-4", "--arrivals", "none.npy"), "figure-4 has no energy arrivals"),
        (("figure-2", "--arrivals", "none.npy"), "cannot read none.npy"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, text = run(*arguments)
    assert code == 2
    assert message in text
    assert not (tmp_path / "results").exists()


def test_a_comparison_never_prints_0_for_what_is_merely_small() -> None:
    cells = (0.0, 12.34567, 4e-5, -3.14159e-9, 5e-324, 7, "word", None)
    assert [legible(cell) for cell in cells] == ["0", "12.3457", "4e-05", "-3.1e-09", "4.94066e-324", "7", "word", ""]
