"""The table of all ways to deal with constraints: what its runs tell, and the record in small."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import draw_figure
from experiments.neighbours import (
    DEFAULT,
    FULL,
    METHODS,
    ROWS,
    Case,
    Neighbours,
    compiled,
    learn_neighbour,
    measure,
    tasks,
)
from experiments.records import Request, read_figure
from peakrl import evaluate, learn, solve_cmdp
from peakrl.learners import OptCMDP


def test_a_run_tells_what_its_history_says():
    (task,) = tasks(Case("inventory", 60), "certainty-equivalent LP", 1)
    told = learn_neighbour(task.config)
    run = learn(compiled("inventory"), OptCMDP.certainty_equivalent(total=3.5), episodes=60, history=1)
    above = run.history.violation - 3.5
    assert told["positive_sum"] == pytest.approx(np.maximum(above, 0).mean())
    assert told["signed_sum"] == pytest.approx(above.mean())
    assert told["violating"] == np.mean(above > 1e-9)
    assert told["value"] == pytest.approx(evaluate(compiled("inventory"), run.policy).value)
    assert told["averaged_violation"] == pytest.approx(run.history.violation.mean())
    assert told["violations"] == run.violations
    assert told["price"] == run.multipliers[0]
    assert "averaged_price" not in told  # plans have a price of their own each


def test_every_row_of_a_problem_makes_settings_that_a_file_can_hold():
    for problem in ROWS:
        for name in ROWS[problem]:
            if METHODS[name].slow and problem != "inventory":
                continue
            (task,) = tasks(Case(problem, 100), name, 1)
            assert task.key


def test_every_problem_has_a_size_and_every_method_a_row():
    for size in (DEFAULT, FULL):
        assert {problem for problem, *_ in size.sizes} == set(ROWS)
    assert {name for names in ROWS.values() for name in names} == set(METHODS)


@pytest.mark.slow
def test_the_record_in_small_holds_medians_and_the_optimum_and_can_be_drawn(tmp_path, monkeypatch):
    some = ("certainty-equivalent LP", "DOPE, 0.01", "Triple-Q")
    monkeypatch.setitem(ROWS, "inventory", some)
    request = Request(tmp_path, quick=True, workers=1)
    record = measure(request, Neighbours(sizes=(("inventory", 40, 2, 1),)))
    record.write(tmp_path)
    rows = {(row.curve, row.measure): row for row in read_figure(tmp_path, "neighbours").rows}
    assert rows["model known", "median value"].mean == pytest.approx(6.665321527, abs=1e-6)
    assert rows["Triple-Q", "median positive sum"].samples == 2
    assert rows["DOPE, 0.01", "largest positive sum"].mean == 0.0
    assert rows["certainty-equivalent LP", "median numbers stored"].mean > 100
    assert all(path.stat().st_size > 1000 for path in draw_figure("neighbours", tmp_path))


def test_what_a_safe_start_is_given_costs_what_it_says():
    case = Case("inventory", 10)
    assert evaluate(compiled("inventory"), case.safe_policy()).violation == pytest.approx(0.7)
    assert solve_cmdp(compiled("inventory"), total=case.limit).value == pytest.approx(6.665321527, abs=1e-6)


def test_the_earliest_deadline_first_meets_every_deadline_of_the_scheduling_example_and_is_not_the_best_order():
    found = evaluate(compiled("scheduling"), Case("scheduling", 10).safe_policy())
    assert (found.value, found.violation) == (-26.0, 0.0)  # the best order has -22
