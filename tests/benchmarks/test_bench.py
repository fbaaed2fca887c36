"""The benchmark does what it says: it runs, it reports, and its C version learns what the kernel learns."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from benchmarks import learning, reference
from benchmarks.__main__ import SECTIONS, benchmarks, run_section
from benchmarks.models import random_model
from benchmarks.timing import Section, in_turns
from peakrl import TabularModel, learn, solve
from peakrl.learners import ConstrainedQ


def deterministic_model(seed, states=12, actions=4, horizon=6):
    """Every pair leads to one state; rewards without ties."""
    rng = np.random.default_rng(seed)
    transitions = np.eye(states)[rng.integers(0, states, (states, actions))]
    return TabularModel.from_arrays(
        transitions, rng.random((states, actions)), rng.normal(1.0, 1.0, (1, states, actions)), horizon
    )


def earned(model, run, slack, penalty):
    """The sum of modified rewards that the policies of all episodes earn, followed one by one."""
    total = 0.0
    for k in range(1, run.episodes + 1):
        policy, slot = run.averaged_policy.policy(k), int(model.first_slot[0])
        for step in range(model.horizon):
            row = policy.row(step, slot)
            margin = model.payoffs.constraints[row, 0]
            total += model.payoffs.reward[row] - model.reward_range[0] + penalty * min(0.0, min(margin, 0.0) + slack)
            slot = int(model.outcome_next[model.outcome_start[model.row_distribution[row]]])
    return total


needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, reference.COMPILERS)), reason="no C compiler to compare with"
)


@needs_compiler
@pytest.mark.parametrize("bonus", ["none", "bernstein"])
def test_the_c_version_learns_what_the_kernel_learns(bonus):
    for seed in range(3):
        model = deterministic_model(seed)
        settings = ConstrainedQ.paper(0.1, penalty=3.0, bonus=bonus, c1=0.2, c2=0.2, start="stepwise")
        total = reference.ReferenceRun(model, settings, 300)()
        assert total == pytest.approx(earned(model, learn(model, settings, episodes=300), 0.1, 3.0), rel=1e-9)


@needs_compiler
def test_the_c_version_plans_what_solve_plans():
    model = random_model(500, 20)
    values, found = reference.ReferencePlan(model)(), solve(model)
    assert values == pytest.approx(found.node_values[: model.num_slots], rel=1e-12)
    assert found.value == pytest.approx(values[model.first_slot[0]], rel=1e-12)


def test_running_sums_restart_in_every_distribution():
    sums = reference.cumulative(np.array([0, 2, 3, 6]), np.array([0.25, 0.75, 1.0, 0.5, 0.25, 0.25]))
    assert sums == pytest.approx([0.25, 1.0, 1.0, 0.5, 0.75, 1.0])


def test_functions_are_timed_in_turns_and_the_median_counts():
    calls = []
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 21.0, 30.0, 33.0, 40.0, 42.0, 50.0, 52.0])
    medians = in_turns([lambda: calls.append("a"), lambda: calls.append("b")], 3, clock=lambda: next(clock))
    assert "".join(calls) == "ab" * 4
    assert medians == [2.0, 2.0]


def test_what_takes_long_is_repeated_less_often():
    calls = []
    in_turns([lambda: calls.append("a")], 5, most=0.0)
    assert calls == ["a", "a"]


def test_rates_without_a_compiler_come_with_the_reason(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(learning, "problems", lambda quick: {"small": (deterministic_model(0), 50)})
    reference.compiled.cache_clear()
    section = run_section("kernels", repeats=1, quick=True)
    assert [row["times C"] for row in section.rows] == [None] * 4
    assert any("no C compiler" in note for note in section.notes)
    assert all(row["ns a step"] > 0 for row in section.rows)


@needs_compiler
def test_rates_with_a_compiler_come_with_a_ratio(monkeypatch):
    monkeypatch.setattr(learning, "problems", lambda quick: {"small": (deterministic_model(0), 2000)})
    rows = run_section("kernels", repeats=1, quick=True).rows
    assert [row["times C"] is not None for row in rows] == [True, False, True, False]


@pytest.fixture
def app():
    command = typer.Typer()
    command.command()(benchmarks)
    return command


def test_unknown_sections_are_refused(app):
    refused = CliRunner().invoke(app, ["kernels", "speed"])
    assert refused.exit_code == 2
    assert "no benchmark 'speed'" in refused.stderr


def test_the_command_prints_json_and_tables(app, monkeypatch):
    def case(section: Section, repeats: int, quick: bool) -> None:
        section.add(what="thing", seconds=0.123456789, repeats=repeats, quick=quick)
        section.notes.append("said once")

    monkeypatch.setattr("benchmarks.planning.compile_rates", case)
    printed = CliRunner().invoke(app, ["compiling", "--json", "--quick", "--repeats", "2"])
    result = json.loads(printed.stdout)["compiling"]
    assert result["rows"] == [{"what": "thing", "seconds": 0.123456789, "repeats": 2, "quick": True}]
    shown = CliRunner().invoke(app, ["compiling"])
    assert "0.1235" in shown.stdout
    assert "said once" in shown.stdout
    assert "compiling: what thing, seconds 0.1235" in shown.stderr  # as soon as it is known


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_runs(name):
    section = run_section(name, repeats=1, quick=True)
    assert section.rows or section.notes
    assert len({tuple(row) for row in section.rows}) <= 1
