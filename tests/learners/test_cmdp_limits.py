"""Limits that no policy can keep: refused on a model with the least that is possible, told of an environment."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import Assumptions, TabularModel, compile_model, learn, learn_many, solve, solve_cmdp
from peakrl.cli.train import report
from peakrl.errors import SettingsError
from peakrl.learners import DOPE, OptCMDP, OptDual, OptPessLP, OptPrimalDual, TripleQ, WeiMDP
from peakrl.planning.cmdp import limited_costs
from peakrl.planning.occupancy import flow, least_by_step, least_cost, least_excess
from peakrl.report.analysis import RunAnalysis
from peakrl.report.sections import answer_of, headline
from peakrl.training import load_run

#: Two states and two constraints that every action violates now and then, by linear programming: 1.668 in all at the
#: least, 1.25 of the first constraint, 0.35 of it at the last three steps.
DEAR = TabularModel.from_arrays(
    [[[0.5, 0.5], [0.2, 0.8]], [[0.5, 0.5], [0.9, 0.1]]],
    [[0.0, 1.0], [0.0, 1.0]],
    [[[-0.2, -0.9], [-0.5, -1.0]], [[0.0, -0.3], [-0.3, 0.0]]],
    4,
    name="dear",
)
#: Either of two constraints is violated by 1.
EITHER = TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[[-1.0, 0.0]], [[0.0, -1.0]]], 1, name="either")
LEARNERS = {
    "OptCMDP": OptCMDP,
    "certainty-equivalent": OptCMDP.certainty_equivalent,
    "OptPess-LP": lambda **limit: OptPessLP(safe_policy=solve(DEAR).policy, **limit),
    "DOPE": lambda **limit: DOPE(safe_policy=solve(DEAR).policy, **limit),
    "OptDual": OptDual,
    "OptPrimalDual": OptPrimalDual,
    "OPDOP": lambda **limit: OptPrimalDual.opdop(episodes=9, slater=0.1, **limit),
    "NPG-PD": lambda **limit: OptPrimalDual.npg_pd(episodes=9, **limit),
    "regularised": OptPrimalDual.regularised,
    "WeiMDP": WeiMDP,
    "Triple-Q": TripleQ,
}


@pytest.mark.parametrize("stationary", [True, False])
@seeds(5)
def test_the_least_cost_is_that_of_the_planner_and_of_linear_programming(seed, stationary):
    model = compile_model(random_problem(seed, stationary=stationary, horizon=3, constraints=2, safe_action=False))
    assert least_cost(model, model.row_violation.sum(axis=1)) == pytest.approx(solve(model).violation, abs=1e-12)
    paths = flow(model)
    costs = limited_costs(model, paths, "per_step")
    for step in range(3):
        for constraint in range(2):
            line = 2 * step + constraint
            expected, _ = least_excess(paths, costs[line : line + 1], np.zeros(1))
            found = least_by_step(model, model.row_violation[:, constraint])[step]
            assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_refuses_a_limit_below_the_least_and_names_it(name):
    words = r"^total is 1\.6, but no policy keeps .* within 1\.6: .* is 1\.668$"
    with pytest.raises(SettingsError, match=words):
        learn(DEAR, LEARNERS[name](total=1.6), episodes=9)
    with pytest.raises(SettingsError, match=words):
        learn_many(DEAR, LEARNERS[name](total=1.6), 9, seeds=[0, 1])


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"per_constraint": 0.1}, "of 'constraint 0' within 0.1: the least that is possible is 1.25"),
        ({"per_constraint": (1.0, 0.1)}, "of 'constraint 0' within 1: the least that is possible is 1.25"),
        ({"per_step": 0.3}, "of 'constraint 0' at step 1 within 0.3: the least that is possible is 0.35"),
    ],
)
def test_of_several_limits_the_one_is_named_that_cannot_be_kept(limit, words):
    with pytest.raises(SettingsError, match=words):
        learn(DEAR, OptDual(**limit), episodes=9)
    assert not solve_cmdp(DEAR, **limit).feasible


def test_limits_that_can_be_kept_alone_but_not_together_are_refused_by_their_sum():
    with pytest.raises(SettingsError, match=r"no policy keeps all limits, which add up to 0\.8: .* is 1$"):
        learn(EITHER, OptDual(per_constraint=0.4), episodes=9)
    assert learn(EITHER, OptDual(per_constraint=0.5), episodes=9).episodes == 9


@seeds(5)
def test_the_least_itself_is_a_limit_that_is_kept(seed):
    model = compile_model(random_problem(seed, horizon=3, safe_action=False))
    assert learn(model, OptDual(total=solve(model).violation), episodes=2).infeasible_limits is None


def test_a_slater_gap_that_no_policy_has_is_refused():
    with pytest.raises(SettingsError, match=r"slater is 0\.5, but no policy stays more than 0\.332 below every limit"):
        learn(DEAR, OptDual(total=2.0, slater=0.5), episodes=9)
    assert learn(DEAR, OptDual(total=2.0, slater=0.3), episodes=9).episodes == 9
    with pytest.raises(SettingsError, match=r"slater is 0\.2, but no policy stays more than 0\.15 below every limit"):
        learn(DEAR, OptDual(per_step=0.5, slater=0.2), episodes=9)


# On an environment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [OptCMDP.certainty_equivalent(total=0.1), OptDual(total=0.1), OptPrimalDual(total=0.1)],
    ids=lambda settings: type(settings).__name__,
)
def test_on_an_environment_a_run_tells_what_the_counts_say(settings, tmp_path):
    # 1,200 steps in some ten pairs: the least by their means is within a tenth of the true 1.668 on this seed.
    run = learn(
        ModelEnvironment(DEAR, 0),
        settings,
        episodes=300,
        assumptions=Assumptions(states=2),
        checkpoint=tmp_path / "run",
    )
    least = float(run.infeasible_limits.split("the least that is possible is ")[1].split(" ")[0])
    assert least == pytest.approx(1.668, rel=0.1)
    assert "by the means of 300 episodes no policy keeps" in repr(run)
    assert run.infeasible_limits in repr(load_run(tmp_path / "run"))


def test_a_limit_that_the_counts_do_not_speak_against_is_not_spoken_of():
    for settings, episodes in ((OptDual(total=5.0), 300), (OptDual(total=0.1), 1), (TripleQ(total=0.1), 300)):
        run = learn(ModelEnvironment(DEAR, 0), settings, episodes=episodes, assumptions=Assumptions(states=2))
        # After one episode most pairs are untried, and held to be free; Triple-Q counts nothing.
        assert run.infeasible_limits is None
        assert "no policy" not in repr(run)


def test_the_command_line_and_the_page_of_an_environment_tell_it():
    run = learn(ModelEnvironment(DEAR, 0), OptDual(total=0.1), episodes=100, assumptions=Assumptions(states=2))
    target = SimpleNamespace(is_environment=True, table=None, subject=None)
    assert report(run, target, 0.0)["infeasible_limits"] == run.infeasible_limits
    answer = answer_of(RunAnalysis.of(run))
    details = [detail for fact in answer.facts for detail in fact.details]
    assert "The policy was to keep the expected total violation within 0.1." in details
    assert any(detail.startswith("By the means of 100 episodes no policy keeps") for detail in details)
    judged = RunAnalysis.of(run, table=DEAR).verdict.text
    assert "; the policy was to keep the expected total violation within 0.1, and has 1." in judged


# What was to be kept, and what is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (OptDual(total=3.0), "the expected total violation within 3, and has {3:.6g}"),
        (OptDual(per_constraint=(2.5, 0.75)), "of each constraint within 2.5, 0.75, and has {0:.6g}, {1:.6g}"),
        (OptDual(per_step=0.7), "of each constraint at each step within 0.7, and has {2:.6g} at most"),
    ],
)
def test_the_verdict_of_a_learner_with_a_limit_names_it_and_what_the_policy_has(settings, words):
    found = RunAnalysis.of(learn(DEAR, settings, episodes=400, history="none"))
    by_step = found.last.step_violations
    said = words.format(*by_step.sum(axis=0), by_step.max(), by_step.sum())
    assert said in found.verdict.text
    assert said in headline(found)


def test_the_verdict_of_a_learner_without_one_speaks_of_none():
    assert "was to keep" not in RunAnalysis.of(learn(DEAR, episodes=5)).verdict.text


def test_the_least_that_is_named_can_be_kept_and_so_can_the_gap():
    third = 1 / 3  # what six digits make less of
    model = TabularModel.from_arrays(
        np.tile([1 - third, third], (2, 2, 1)), np.zeros((2, 2)), [[[0.0, 0.0], [-1.0, -1.0]]], 1,
        initial=[1 - third, third],
    )  # fmt: skip
    for ask in (lambda limit: OptDual(total=limit).check_model(model), lambda limit: refused(model, limit)):
        with pytest.raises(SettingsError, match=r"is 0\.333334$"):
            ask(0.3)
        ask(0.333334)
    with pytest.raises(SettingsError, match=r"more than 0\.666666 below"):
        OptPrimalDual.opdop(episodes=9, slater=0.7, total=1.0).check_model(model)
    OptPrimalDual.opdop(episodes=9, slater=0.666666, total=1.0).check_model(model)


def refused(model, limit):
    """Raise what `solve_cmdp` says of a limit that cannot be kept."""
    found = solve_cmdp(model, total=limit)
    if not found.feasible:
        raise SettingsError(str(found.reason))


def test_limits_on_every_step_of_a_long_episode_are_looked_at_once():
    model = TabularModel.from_arrays(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), [[[0.0, 0.0], [-1.0, -1.0]]], 20_000)
    OptDual(per_step=0.6).check_model(model)  # a pass for each step would take hours
