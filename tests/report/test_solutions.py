"""The page of a solution with a horizon."""

import numpy as np
import pytest

import peakrl
from peakrl.report.solutions import horizon_section

#: One action, cold -> warm -> hot; the second action stays. Hot violates by 1.
CHANCES = np.eye(3)[[[1, 0], [2, 1], [2, 2]]]
LIMITS = [[[1.0] * 2, [1.0] * 2, [-1.0] * 2]]
MODEL = peakrl.TabularModel.from_arrays(CHANCES, [[2.0, 0.0]] * 3, LIMITS, 3)


def parts(solution):
    return {part.title: part.blocks for part in horizon_section(solution).parts}


def facts(solution):
    return {fact.question: fact.answer for fact in parts(solution)["Result"][0].facts}


def test_the_page_shows_value_map_and_safe_set_of_a_solution_with_a_horizon(tmp_path):
    solution = peakrl.solve(MODEL)  # it may go up once, and again in the last step
    assert facts(solution) == {
        "What is the value?": "4",
        "What is safe at the first step?": "1 of 1 states, 2 of 2 actions",
    }
    shown = parts(solution)
    (drawn,), (safe,), (margins,) = shown["Policy"], shown["Safe set"], shown["Details"]
    layers = [layer["name"] for layer in drawn.content["layers"]]
    assert layers == ["action of the policy", "number of safe actions", "visit probability", "value from here on"]
    assert safe.series[0].y == pytest.approx([100, 100, 200 / 3])
    assert [row[1:] for row in margins.rows] == [(1.0, True)]
    assert horizon_section(solution).badge[0] == "good"
    assert peakrl.write_report(solution, tmp_path / "page.html").stat().st_size > 10**6


def test_the_page_says_what_is_violated_and_what_a_target_ends():
    hot = peakrl.TabularModel.from_arrays(CHANCES, [[2.0, 0.0]] * 3, LIMITS, 3, initial=[0, 0, 1])
    (answer,) = parts(peakrl.solve(hot))["Result"]
    assert answer.headline == "The policy may violate a constraint with probability 1."
    assert facts(peakrl.solve(hot))["How large is the violation of an episode?"] == "3"
    assert "every action violates" in facts(peakrl.solve(hot))["Why?"]
    reached = peakrl.solve(MODEL, reach={1}, horizon=2)
    assert facts(reached)["What is the probability of reaching the target?"] == "1"
    assert parts(reached)["Result"][0].headline.endswith("before the target is reached.")
    drawn = parts(peakrl.solve_cmdp(hot, total=9.0))["Policy"][0]
    assert "never leads there" in drawn.note
