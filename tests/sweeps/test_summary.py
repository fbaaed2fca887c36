"""Sweeps from end to end on small problems, and the statistics of their records against closed forms."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, mannwhitneyu
from typer.testing import CliRunner

from peakrl import PeakError, compile_model, evaluate, learn, sweep
from peakrl.cli import app
from peakrl.errors import SettingsError, StorageError
from peakrl.learners import learner_from
from peakrl.problems import scheduling_example
from peakrl.sweeps.grid import SweepReport
from peakrl.sweeps.store import Result, Task
from peakrl.sweeps.summary import SAMPLED, reaching, read_records, summarize, write_csv

SWEEP = """
name = "small"
folder = "out"
seeds = 4
episodes = 600
points = 50

[[problems]]
name = "jobs"
kind = "scheduling_example"
number = 1

[[problems]]
name = "random jobs"
kind = "scheduling_example"
number = 3

[[settings]]
learner = "SafeQ"

[[settings]]
learner = "ConstrainedQ"
preset = "published"
slack = 0.1
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SweepReport:
    path = tmp_path_factory.mktemp("sweep") / "small.toml"
    path.write_text(SWEEP)
    return sweep(path, workers=1)


def record(value: float, violation: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A record as `read_records` makes them, of a problem with optimum 10."""
    gap = 10 - value
    return {
        "problem": "p", "settings": "a", "episodes": 100, "seed": 0, "value": value, "violation": violation,
        "violations": 3, "averaged_value": value, "averaged_violation": violation, "gap": gap, "epsilon": 0.1,
        "solved": gap <= 0.1 and violation == 0, "episodes_to_reach": None, "has_curve": True, **changes,
    }  # fmt: skip


def test_a_sweep_makes_each_run_once(report: SweepReport) -> None:
    assert (report.found, report.made, report.failures) == (0, 16, ())
    again = sweep(report.plan.folder.parent / "small.toml", workers=1)
    assert (again.found, again.made) == (16, 0)


def test_a_run_of_a_sweep_is_what_learning_and_evaluating_give(report: SweepReport) -> None:
    model = compile_model(scheduling_example(3))
    for result in report.results():
        config = result.task.config
        if config["problem"]["parameters"]["number"] != 3 or config["seed"] != 2:
            continue
        settings = learner_from(config["settings"])
        run = learn(model, settings, episodes=600, seed=2, history=12)
        last, mean = evaluate(model, run.policy), evaluate(model, run.averaged_policy)
        values = result.values
        assert (values["value"], values["violation"]) == (last.value, last.violation)
        assert (values["averaged_value"], values["averaged_violation"]) == (mean.value, mean.violation)
        assert values["gap"] == values["optimum"] - last.value
        assert values["averaged_gap"] == values["optimum"] - mean.value
        assert values["violations"] == run.violations
        assert values["last_violation_episode"] == run.last_violation_episode
        assert values["feasible"] is run.feasible
        np.testing.assert_array_equal(result.arrays["history_averaged_value"], run.history.averaged_value)
        # Example 3 has no policy without violation (notes of the paper: at least 0.2662 at an expected 7).
        assert values["least_violation"] == pytest.approx(0.2662, abs=1e-4)
        assert values["optimum"] == pytest.approx(-7.0, abs=1e-9)


def test_records_are_tidy_and_named_as_in_the_file(report: SweepReport) -> None:
    records = read_records(report.folder)
    assert len(records) == 16
    names = [(one["problem"], one["settings"], one["seed"]) for one in records]
    assert names == [
        (p, s, seed) for p in ("jobs", "random jobs") for s in ("ConstrainedQ.published", "SafeQ") for seed in range(4)
    ]
    assert {one["optimum"] for one in records if one["problem"] == "jobs"} == {-1.0}
    assert list(records[0])[4:8] == ["value", "gap", "violation", "violations"]
    assert not {name for name in records[0] if all(one[name] is None for one in records)} & set(SAMPLED)


def test_a_summary_counts_and_averages_as_by_hand() -> None:
    records = [record(v, seed=i) for i, v in enumerate([1.0, 9.95, 9.96, 9.97, 9.98, 9.99, 10.0, 10.0])]
    ((group,), comparisons) = summarize(records)
    assert comparisons == []
    # Quarters of eight are dropped: the two lowest and the two highest.
    assert group.value.value == pytest.approx(np.mean([9.96, 9.97, 9.98, 9.99]))
    assert group.gap.value == pytest.approx(np.mean([0.04, 0.03, 0.02, 0.01]))
    assert group.violating_episodes.value == 3
    assert group.value.low <= group.value.value <= group.value.high
    assert (group.solved, group.seeds) == (7, 8)
    expected = binomtest(7, 8).proportion_ci(0.95, method="exact")
    assert (group.share_solved.low, group.share_solved.high) == pytest.approx((expected.low, expected.high))


def test_a_run_that_violates_less_is_better_whatever_its_value() -> None:
    first = [record(9.0, settings="a", seed=i) for i in range(3)]
    second = [record(9.9, 0.5, settings="b", seed=i) for i in range(3)]
    _, (comparison,) = summarize(first + second)
    assert (comparison.better, comparison.worse) == ("a", "b")
    assert comparison.probability.value == 1.0
    assert comparison.probability.low < 0.3  # three runs a side cannot be surer


def test_among_equal_violations_the_comparison_is_that_of_mann_and_whitney() -> None:
    generator = np.random.default_rng(0)
    one, two = generator.integers(0, 6, 9).astype(float), generator.integers(1, 7, 7).astype(float)
    records = [record(v, settings="a", seed=i) for i, v in enumerate(one)]
    records += [record(v, settings="b", seed=i) for i, v in enumerate(two)]
    _, (comparison,) = summarize(records)
    assert comparison.probability.value == pytest.approx(mannwhitneyu(one, two).statistic / (9 * 7))


def test_problems_and_lengths_are_not_mixed() -> None:
    records = [record(1.0), record(2.0, problem="q"), record(3.0, episodes=200), record(4.0, settings="b")]
    groups, comparisons = summarize(records)
    assert sorted(group.value.value for group in groups) == [1.0, 2.0, 3.0, 4.0]
    assert [(one.problem, one.episodes) for one in comparisons] == [("p", 100)]


def test_a_curve_has_arrived_when_it_stays() -> None:
    values = {"optimum": 10.0, "least_violation": 0.5}
    arrays = {
        "history_episode": np.array([10, 20, 30, 40, 50]),
        "history_value": np.array([10.0, 9.0, 9.95, 9.95, 11.0]),
        "history_violation": np.array([0.5, 0.5, 0.6, 0.5, 0.5]),
    }
    task = Task("m:f", {})
    assert reaching(Result(task, values, arrays), 0.1) == 40
    assert reaching(Result(task, values, arrays), 0.01) == 50
    assert reaching(Result(task, {**values, "least_violation": 0.4}, arrays), 0.1) is None
    assert reaching(Result(task, values, {}), 0.1) is None


def test_the_median_is_over_the_seeds_that_arrived() -> None:
    records = [record(10.0, seed=i, episodes_to_reach=when) for i, when in enumerate([30, None, 10, 20])]
    ((group,), _) = summarize(records)
    assert (group.reached, group.episodes_to_reach) == (3, 20.0)


def test_a_table_of_runs_is_read_back_as_written(report: SweepReport, tmp_path: Path) -> None:
    records = read_records(report.folder)
    write_csv(records, tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows] == [one["key"] for one in records]
    assert [float(row["value"]) for row in rows] == [one["value"] for one in records]
    assert {row["feasible"] for row in rows} <= {"", "True", "False"}


def test_curves_are_written_point_by_point_under_the_names_of_their_runs(report: SweepReport, tmp_path: Path) -> None:
    target = tmp_path / "curves.csv"
    result = CliRunner().invoke(app, ["summarize", str(report.folder), "--curves", str(target)])
    assert result.exit_code == 0, result.output
    with open(target, newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, list[tuple[int, float]]] = {str(one.task): [] for one in report.results()}
    for row in rows:
        name = f"{row['problem']}, {row['settings']}, {int(row['episodes']):,} episodes, seed {row['seed']}"
        found[name].append((int(row["episode"]), float(row["value"])))
    for one in report.results():
        stored = zip(one.arrays["history_episode"].tolist(), one.arrays["history_value"].tolist(), strict=True)
        assert found[one.task.name] == list(stored)


def test_two_sweeps_in_one_folder_keep_their_names_apart(tmp_path: Path) -> None:
    base: dict[str, Any] = {"seeds": 1, "episodes": 20, "settings": [{"learner": "SafeQ"}]}
    for number in (1, 2):
        problems = [{"name": "jobs", "kind": "scheduling_example", "number": number}]
        sweep({**base, "problems": problems}, folder=tmp_path, workers=1)
    assert len({one["problem"] for one in read_records(tmp_path)}) == 2


def test_a_folder_without_runs_has_no_summary(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a folder of results"):
        read_records(tmp_path)
    with pytest.raises(SettingsError, match="epsilon is -1"):
        read_records(tmp_path, -1)


# --- the commands ---


def test_a_dry_run_lists_what_is_missing_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SWEEP)
    result = CliRunner().invoke(app, ["sweep", str(tmp_path / "small.toml"), "--dry-run"])
    assert result.exit_code == 0
    assert "jobs, SafeQ, 600 episodes, seed 3" in result.stdout
    assert "Runs: 16 missing, 0 found" in result.stdout
    assert not (tmp_path / "out").exists()


def test_the_commands_print_numbers_as_json(report: SweepReport) -> None:
    path = report.folder.parent / "small.toml"
    swept = json.loads(CliRunner().invoke(app, ["sweep", str(path), "--json", "--workers", "1"]).stdout)
    assert (swept["runs"], swept["found"], swept["made"], swept["failed"]) == (16, 16, 0, [])
    summed = json.loads(CliRunner().invoke(app, ["summarize", str(report.folder), "--json"]).stdout)
    assert summed["confidence"] == 0.95
    assert "With 4 seeds the intervals" in summed["warnings"][0]
    assert len(summed["groups"]) == 4
    assert len(summed["comparisons"]) == 2
    assert summed["groups"][0]["share_solved"].keys() == {"value", "low", "high"}


def test_a_summary_is_printed_as_tables_and_written_as_csv(report: SweepReport, tmp_path: Path) -> None:
    target = tmp_path / "runs.csv"
    result = CliRunner().invoke(app, ["summarize", str(report.folder), "--csv", str(target), "--epsilon", "0"])
    assert result.exit_code == 0
    assert "random jobs" in result.stdout
    assert "With 4 seeds the intervals of value, gap and violation are too narrow" in result.stdout
    assert len(target.read_text().splitlines()) == 17


def test_a_sweep_with_failures_ends_with_code_1_and_their_messages(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import peakrl\n"
        "class Stubborn(peakrl.Learner):\n"
        "    def act(self, step, state, actions):\n"
        "        raise ValueError('not today')\n"
    )
    (tmp_path / "s.toml").write_text(
        'seeds = 1\nepisodes = 5\nsettings = [{ learner = "SafeQ" }, { learner = "stubborn.py:Stubborn" }]\n'
        '[[problems]]\nname = "p"\nkind = "scheduling_example"\nnumber = 1\n'
    )
    result = CliRunner().invoke(app, ["sweep", str(tmp_path / "s.toml"), "--workers", "1", "--trust"])
    assert result.exit_code == 1
    assert "Runs: 1 made, 0 found, 1 failed" in result.stdout
    assert "p, stubborn.py:Stubborn, 5 episodes, seed 0: " in result.stdout
    assert "not today" in result.stdout


def test_a_bad_file_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("seeds = 1\ncolour = 2\n")
    result = CliRunner().invoke(app, ["sweep", str(tmp_path / "s.toml")])
    assert isinstance(result.exception, PeakError)
    assert "colour is not a key here" in str(result.exception)


def test_names_that_a_spreadsheet_would_run_are_quoted(tmp_path: Path) -> None:
    write_csv([{"learner": "=HYPERLINK(1)", "value": -1.5, "none": None}], tmp_path / "runs.csv")
    assert (tmp_path / "runs.csv").read_text() == "learner,value,none\n'=HYPERLINK(1),-1.5,\n"
