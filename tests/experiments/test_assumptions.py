"""The experiment `assumptions` at a small size, and its problems."""

import math
from dataclasses import replace

import pytest

from experiments import draw_figure
from experiments.assumptions import DEPENDS_ON, EVERYTHING, PROBLEMS, QUICK, RUNGS, measure, rungs_of
from experiments.records import Request, read_figure
from peakrl import safe_set, solve


@pytest.mark.parametrize("name", ["slippery grid", "thermostat"])
def test_the_problems_can_be_met_and_not_by_everything(name):
    problem = PROBLEMS[name]()
    safe = safe_set(problem)
    assert solve(problem).feasible
    assert any(count.safe_actions < count.actions for count in safe.counts)
    assert not safe.model.deterministic


def test_violating_episodes_and_episodes_to_one_per_cent_are_counted_rung_by_rung(tmp_path):
    settings = replace(QUICK, episodes=(("slippery grid", 60), ("thermostat", 60)), places=5)
    record = measure(Request(tmp_path, workers=1, quick=True), settings)
    found = {(row.variant, row.curve): row.mean for row in record.rows if row.measure == "median violating episodes"}
    for problem in ("slippery grid", "thermostat"):
        assert found[problem, "nothing"] >= found[problem, "constraint function"]
        assert found[problem, "nothing"] > 0
        for rung in ("support", "support, groups", EVERYTHING):
            assert found[problem, rung] == 0
    # A policy that violates is never counted as close, whatever it earns.
    gaps = {(row.variant, row.curve, row.x): row.mean for row in record.rows if row.measure == "median gap"}
    assert gaps["thermostat", "nothing", 1.0] == math.inf
    assert 0 < gaps["thermostat", "support", 1.0] < math.inf
    assert record.passed
    record.write(tmp_path)
    assert read_figure(tmp_path, "assumptions").rows == record.rows
    assert all(path.stat().st_size > 5_000 for path in draw_figure("assumptions", tmp_path))


def test_a_rung_that_would_be_a_false_declaration_is_left_out():
    assert rungs_of("energy harvesting") == list(RUNGS)
    assert set(DEPENDS_ON) == {"energy harvesting"}
    assert len(rungs_of("thermostat")) == len(RUNGS) - 1
