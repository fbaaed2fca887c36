"""`peakrl solve` as a command: what it prints, writes and returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from peakrl import PeakError
from peakrl.cli import app

JOBS = "processing,due,deadline\n3,22,30\n5,30,28\n7,33,35\n9,15,18\n10,18,21\n"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, PeakError):  # `main` prints these and exits with 2
            return 2, str(result.exception)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout

    return call


def test_solve_prints_the_order_the_objective_and_the_slack_of_each_deadline(run: Run, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    code, text = run("solve", "--jobs", "jobs.csv", "--json")
    answer = json.loads(text)
    assert code == 0
    assert (answer["objective_value"], answer["order"]) == (1, [4, 5, 1, 2, 3])
    assert [row["slack"] for row in answer["schedule"]] == [9, 2, 8, 1, 1]
    code, text = run("solve", "--jobs", "jobs.csv")
    assert "order: 4, 5, 1, 2, 3" in text


def test_an_infeasible_instance_names_the_job_and_exits_with_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("name,processing,due,deadline\nsaw,3,5,9\ndrill,6,7,8\npaint,4,6,12\n")
    code, text = run("solve", "--jobs", "jobs.csv")
    assert code == 1
    assert "job paint, which would miss it by 1" in text
    assert "violation: 1" in text


def test_random_times_have_expectations_and_no_single_order(run: Run) -> None:
    code, text = run("solve", "scheduling-3")
    assert code == 1
    assert "expected violation: 0.266204" in text


def test_solve_gives_the_known_optimum_of_the_transmitter(run: Run) -> None:
    code, text = run("solve", "energy-harvesting", "--log-base", "2.718281828459045", "--json")
    assert code == 0
    assert json.loads(text)["value"] == pytest.approx(43.507, abs=5e-4)


def test_solve_under_a_budget_tells_what_another_unit_is_worth_or_the_least_that_can_be_kept(run: Run) -> None:
    small = ("energy-harvesting", "--horizon", "2", "--battery", "0", "--peak-power", "1", "--arrivals", "[3, 3]")
    code, text = run("solve", *small, "--limit", "total=1", "--json")
    answer = json.loads(text)
    assert code == 0
    # Without a battery: log2(2) at each step, and one unit beyond the peak is worth log2(3/2) bits.
    assert answer["value"] == pytest.approx(2 + 0.584963, abs=1e-6)
    assert answer["multipliers"] == pytest.approx(0.584963, abs=1e-6)
    code, text = run("solve", *small, "--limit", "total=1")
    assert "multipliers (value per unit of the limit): 0.584963" in text
    code, text = run("solve", "scheduling-3", "--limit", "total=0.1")
    assert code == 1
    assert "the least feasible limit is 0.266204" in text


def test_solve_takes_a_problem_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[problem]\nkind = "energy_harvesting"\npeak_power = 3\nhorizon = 2\n')
    code, text = run("solve", "mine.toml", "--json")
    assert code == 0
    assert 0 < json.loads(text)["value"] <= 4  # two steps of at most log2(1 + 3) bits


def test_any_parameter_of_a_problem_is_an_option_of_solve_before_and_after_its_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[problem]\nkind = "energy_harvesting"\npeak_power = 3\nhorizon = 2\n')
    code, text = run("solve", "--arrivals", "[3, 9]", "mine.toml", "--peak-power=7", "--json", "--max-arrival", "9")
    assert code == 0
    # All 3 units in the first step and 7 of the 9 in the second: log2(4) + log2(8).
    assert json.loads(text)["value"] == 5.0


BAD_INPUT = [
    ((), "name one problem"),
    (("energy-harvesting", "--jobs", "jobs.csv"), "name one problem"),
    (("chess",), "no built-in problem has that name; there are battery-robot, energy-harvesting"),
    (("energy-harvesting", "--peak-power", "-1"), "peak_power is -1"),
    (("energy-harvesting", "--log-base", "1"), "log_base is 1"),
    (("energy-harvesting", "--peek-power=1"), "problem.peek_power is not a key here; do you mean peak_power?"),
    (("scheduling-1", "--peak-power", "8"), "problem.peak_power is not a key here"),
    (("energy-harvesting", "--horizon"), "--horizon needs a value"),
    (("scheduling-1", "--objective", "speed"), "objective 'speed' is unknown"),
    (("scheduling-1", "--limit", "much"), "--limit is 'much'; it must be FORM=LIMIT"),
    (("scheduling-1", "--limit", "total=-1"), "total is -1"),
    (("--jobs", "none.csv"), "cannot read none.csv"),
]


def test_bad_input_to_solve_is_refused(run: Run) -> None:
    for arguments, message in BAD_INPUT:
        code, text = run("solve", *arguments)
        assert code == 2
        assert message in text
