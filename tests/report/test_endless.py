"""The page of a solution without an end."""

import numpy as np
import pytest

import peakrl
from helpers.machine import Machine
from peakrl.errors import PeakError
from peakrl.report.analysis import RunAnalysis
from peakrl.report.endless import endless_section, run_section
from peakrl.report.page import make_page


def parts(solution):
    return {part.title: part.blocks for part in endless_section(solution).parts}


def facts(solution):
    return {fact.question: fact.answer for fact in parts(solution)["Result"][0].facts}


def test_the_page_shows_what_is_known_of_a_policy_without_an_end(tmp_path):
    model = peakrl.compile_model(Machine())
    solution = peakrl.solve(model, average=True)
    assert facts(solution) == {
        "What is the value (average)?": "1.33333",
        "Does it ever violate a constraint?": "with probability 0",
        "What is safe for ever?": "2 of 3 states, 3 of 6 actions",
    }
    shown = parts(solution)
    margins, share = shown["Details"]
    # It runs when cold and rests when warm: after a run it is warm with probability 1/2.
    assert [row[:2] for row in share.rows] == [("0", "run"), ("1", "rest")]
    assert [row[2] for row in share.rows] == pytest.approx([2 / 3, 1 / 3])
    assert margins.rows == [("not hot", 1.0, True)]
    (drawn,) = shown["Policy"]
    layers = [layer["name"] for layer in drawn.content["layers"]]
    assert layers == ["action of the policy", "number of safe actions", "share of the steps", "best value"]
    assert drawn.content["never"] == [0, 2, 1, 1]
    assert peakrl.write_report(solution, tmp_path / "page.html").stat().st_size > 10**6


@pytest.mark.parametrize(
    ("problem", "episodes", "verdict"),
    [(Machine(), 300, "never violates"), (peakrl.problems.thermostat(horizon=None), 2, "may violate")],
    ids=["machine", "thermostat"],
)
def test_the_page_of_a_discounted_run_shows_its_policy_beside_the_optimum(problem, episodes, verdict, tmp_path):
    model = peakrl.compile_model(problem)
    run = peakrl.learn(model, episodes=episodes, discount=0.9, seed=2)
    (answer,) = run_section(RunAnalysis.of(run), "a run").parts[0].blocks
    exact, best = peakrl.evaluate(model, run.policy, discount=0.9), peakrl.solve(model, discount=0.9)
    assert verdict in answer.headline
    assert [float(fact.answer) for fact in answer.facts[:2]] == pytest.approx([exact.value, best.value], rel=1e-5)
    assert peakrl.write_report(run, tmp_path / "page.html").stat().st_size > 10**6
    lake = peakrl.ConstrainedEnv(peakrl.to_gymnasium(model), horizon=20, reward_range=(-9, 9))
    with pytest.raises(PeakError, match="whose model is unknown"):
        peakrl.write_report(peakrl.learn(lake, episodes=2, discount=0.9), tmp_path / "page.html")


def test_the_page_of_a_discounted_run_on_an_environment_needs_its_table(tmp_path):
    table = peakrl.TabularModel.from_arrays(np.full((4, 2, 4), 0.25), np.eye(4)[:, :2], [np.ones((4, 2))], None)
    run = peakrl.learn(peakrl.to_gymnasium(table), episodes=50, discount=0.9)
    with pytest.raises(PeakError, match="pass the environment's table"):
        peakrl.write_report(run, tmp_path / "page.html")
    with pytest.raises(PeakError, match="is a run on a model"):
        peakrl.write_report(peakrl.learn(table, episodes=9, discount=0.9), tmp_path / "page.html", table=table)
    assert peakrl.write_report(run, tmp_path / "page.html", table=table).stat().st_size > 10**6
    (answer,) = run_section(RunAnalysis.of(run, table=table), "a run").parts[0].blocks
    best = peakrl.solve(table, discount=0.9).value
    assert [float(fact.answer) for fact in answer.facts[:2]] == pytest.approx([best, best], rel=1e-5)
    # The returns of its episodes are not discounted.
    assert list(RunAnalysis.of(run, table=table).metrics) == ["policy", "optimum"]


def test_the_page_of_a_run_on_an_environment_names_what_its_policy_does_in_unknown_states():
    table = peakrl.TabularModel.from_arrays(np.full((4, 2, 4), 0.25), np.eye(4)[:, :2], [np.ones((4, 2))], None)
    for steps, unknown in ((1, True), (500, False)):
        run = peakrl.learn(peakrl.to_gymnasium(table), steps=steps, discount=0.9)
        assert (run.model.num_states < 4) is unknown
        lead = run_section(RunAnalysis.of(run, table=table), "a run").lead
        assert ("not visited while learning the policy takes the first available action." in lead) is unknown


def test_a_run_with_a_horizon_is_judged_with_it_on_a_table_without_an_end():
    table = peakrl.TabularModel.from_arrays(np.full((4, 2, 4), 0.25), np.eye(4)[:, :2], [np.ones((4, 2))], None)
    run = peakrl.learn(peakrl.to_gymnasium(table.with_horizon(6)), "SafeQ", episodes=200)
    last = RunAnalysis.of(run, table=table).last
    assert last.value == RunAnalysis.of(run, table=table.with_horizon(6)).last.value > 0


def test_the_page_says_for_how_long_safety_can_be_kept_and_when_a_target_is_reached():
    chances = np.eye(3)[[[1], [2], [2]]]
    model = peakrl.TabularModel.from_arrays(chances, [[0.0], [0.0], [3.0]], [[[1.0], [1.0], [-1.0]]], None)
    shown = facts(peakrl.solve(model, discount=0.5))
    assert shown["For how long can safety be kept?"] == "2 steps"
    assert shown["Does it ever violate a constraint?"] == "with probability 1"
    assert facts(peakrl.solve(model, reach={2}))["When is the target reached?"] == "after 2 steps, expected"


def test_two_discounted_runs_on_one_page_share_no_id(tmp_path):
    model = peakrl.compile_model(Machine())
    for name in "ab":
        peakrl.learn(model, episodes=9, discount=0.9).save(tmp_path / f"{name}.run")
    ids = [block.id for section in make_page(tmp_path).sections for block in section.blocks]
    assert len(ids) == len(set(ids)) == 2 * 4
