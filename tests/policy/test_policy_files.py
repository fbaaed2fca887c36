"""Policies to keep and to read: files, tables, and how they show themselves."""

import csv
import io
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from typer.testing import CliRunner

import naive
import peakrl
from helpers.model_environment import ModelEnvironment
from helpers.random_policies import averaged_policy, chance_policy, random_chances, random_tables, table_policy
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import ConstrainedEnv, Outcome, Policy, Problem, compile_model
from peakrl.cli import app
from peakrl.errors import PolicyError, SettingsError, StorageError, UnknownStateError
from peakrl.learners import ConstrainedQ, PosteriorSampling
from peakrl.policy import StochasticPolicy
from peakrl.policy.export import POLICY
from peakrl.records import kind_of, write_record


def policies(seed):
    problem = random_problem(seed, states=3, actions=3, horizon=3)
    model, rng = peakrl.compile_model(problem), np.random.default_rng(seed)
    tables = random_tables(problem, rng, 6)
    mixed = chance_policy(model, random_chances(problem, rng))
    return problem, (table_policy(model, tables[0]), mixed, averaged_policy(model, tables))


def test_every_kind_of_policy_comes_back_from_its_file_as_it_was(tmp_path):
    for seed in range(3):
        problem, kinds = policies(seed)
        for policy in kinds:
            policy.save(tmp_path / "kept")
            again = peakrl.load(tmp_path / "kept", problem)
            assert type(again) is type(policy)
            assert again.to_json() == policy.to_json()
            assert peakrl.evaluate(problem, again).value == peakrl.evaluate(problem, policy).value


def test_a_policy_of_another_problem_or_of_no_form_we_know_is_refused(tmp_path):
    problem, (policy, *_) = policies(1)
    path = tmp_path / "kept"
    policy.save(path)
    with pytest.raises(StorageError, match=r"kept contains a policy of another problem or version, 'random'"):
        peakrl.load(path, random_problem(2))
    head = POLICY.header() | {"model": policy.model.digest, "problem": "x"}
    write_record(path, "policy", head | {"form": "dream"}, {})
    with pytest.raises(StorageError, match="unknown form 'dream'"):
        peakrl.load(path, problem)
    wrong = {"choices": np.full_like(policy.choices.table, 200)}
    write_record(path, "policy", head | {"form": "deterministic"}, wrong)
    with pytest.raises(StorageError, match="kept is damaged: a choice at step 0 is not an action"):
        peakrl.load(path, problem)


@seeds(5)
def test_a_table_has_every_state_that_can_be_met_at_its_step_in_order(seed):
    problem, kinds = policies(seed)
    for policy in kinds:
        for step in range(problem.horizon):
            states = sorted(state for when, state in naive.decision_points(problem) if when == step)
            table = policy.table(step)
            assert list(table) == states
            for state, choice in table.items():
                chances = choice if isinstance(choice, dict) else {choice: 1.0}
                assert chances == policy.probabilities(step, state)


@pytest.mark.parametrize("step", [-1, 3, 1.5, "first"])
def test_a_step_that_there_is_not_has_no_table(step):
    _, (policy, *_) = policies(0)
    with pytest.raises(PolicyError, match=r"is outside 0\.\.2, the steps of 'random'"):
        policy.table(step)


def test_policies_show_themselves_briefly():
    _, kinds = policies(0)
    for policy in kinds:
        assert repr(policy).startswith(f"<{type(policy).__name__} of 'random': 3 states, horizon 3")
    assert "mixture of 6 policies" in repr(kinds[2])


def test_states_without_an_order_are_listed_all_the_same():
    jobs = [
        peakrl.problems.Job(1, 5, 5, name="mend"),
        peakrl.problems.Job(1, 5, 5),
        peakrl.problems.Job(1, 5, 5, name="wash"),
    ]
    best = peakrl.solve(peakrl.problems.machine_scheduling(jobs)).policy
    assert len(best.table(1)) == 3


# --- From the shell --------------------------------------------------------------------------------------------------

FILE = """
[problem]
kind = "energy_harvesting"
horizon = 4
battery = 3
max_arrival = 3
peak_power = 2
"""


def test_the_shell_keeps_the_best_policy_and_evaluates_it(tmp_path):
    toml, kept = tmp_path / "mine.toml", tmp_path / "best.policy"
    toml.write_text(FILE)
    solved = CliRunner().invoke(app, ["solve", str(toml), "--policy", str(kept), "--json"])
    assert solved.exit_code == 0, solved.output
    assert kind_of(kept) == "policy"
    found = CliRunner().invoke(app, ["evaluate", str(kept), "--problem", str(toml), "--json", "--check"])
    answer = json.loads(found.stdout)
    assert (answer["policy"], answer["episodes"]) == ("saved", None)
    assert answer["value"] == pytest.approx(json.loads(solved.stdout)["value"], rel=1e-12)
    shown = CliRunner().invoke(app, ["evaluate", str(kept), "--problem", str(toml), "--simulate", "20"])
    assert "saved policy" in shown.stdout
    for name in ("best.csv", "best.json"):
        assert CliRunner().invoke(app, ["solve", str(toml), "--policy", str(tmp_path / name)]).exit_code == 0
    assert (tmp_path / "best.csv").read_text().startswith("step,state,action,safe\n")
    assert json.loads((tmp_path / "best.json").read_text())["horizon"] == 4


def test_a_policy_without_its_problem_is_refused_with_what_is_missing(tmp_path):
    kept = tmp_path / "best.policy"
    peakrl.solve(peakrl.problems.scheduling_example(1)).policy.save(kept)
    refused = CliRunner().invoke(app, ["evaluate", str(kept)])
    assert isinstance(refused.exception, SettingsError)
    assert "--problem" in str(refused.exception)


def test_only_our_files_have_a_kind(tmp_path):
    (tmp_path / "text").write_text("peakrl is a word\nand\nmore")
    assert kind_of(tmp_path / "text") is None
    assert kind_of(tmp_path / "missing") is None
    assert isinstance(policies(0)[1][1], StochasticPolicy)


def test_a_label_that_a_spreadsheet_would_run_is_quoted_in_a_table():
    """A cell that begins with = + - @ is a formula there; numbers, negative ones included, are left alone."""

    class Tricky(Problem):
        horizon, stationary = 1, True
        labels = ("=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "\tx", "plain", -3)

        def initial(self):
            return [(1.0, "=1+1")]

        def actions(self, step, state):
            return self.labels

        def outcomes(self, step, state, action):
            return [Outcome(1.0, state, 0.0)]

    model = compile_model(Tricky())
    cells = [
        next(csv.DictReader(io.StringIO(Policy.from_rule(model, lambda *_, action=label: action).to_csv())))
        for label in Tricky.labels
    ]
    assert {row["state"] for row in cells} == {"'=1+1"}
    assert [row["action"] for row in cells] == [
        *(f"'{label}" for label in Tricky.labels[:5]),
        "plain",
        "-3",
    ]


# --- Learned on an environment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("learner", [PosteriorSampling(), ConstrainedQ.paper(0.5), peakrl.learners.OptCMDP(total=1.0)])
def test_what_was_learned_on_an_environment_is_read_back_without_it(tmp_path, learner, stationary):
    model = compile_model(random_problem(9, states=3, actions=2, horizon=3, stationary=stationary))
    run = peakrl.learn(ModelEnvironment(model, 5), learner, episodes=12)
    for policy in (run.policy, run.averaged_policy):
        policy.save(tmp_path / "kept")
        again = peakrl.load(tmp_path / "kept")
        assert type(again) is type(policy)
        assert again.model.digest == run.model.digest
        assert json.loads(again.to_json())["problem"] == run.model.name
        for step in range(3):
            assert again.table(step) == policy.table(step)
        own, loaded = (peakrl.simulate(ModelEnvironment(model, 6), one, episodes=9) for one in (policy, again))
        assert (own.value, own.violation) == (loaded.value, loaded.violation)


class Rooms(gymnasium.Env):
    """Two rooms, shown as a word and a bit by name."""

    observation_space = spaces.Dict({"room": spaces.Text(8), "lit": spaces.MultiBinary(1)})
    action_space = spaces.MultiDiscrete([2, 2], start=[-1, 0])

    def reset(self, *, seed=None, options=None):
        return {"room": "hall", "lit": np.array([0], np.int8)}, {}

    def step(self, action):
        seen = {"room": "cellar" if action[0] else "hall", "lit": np.array([action[1]], np.int8)}
        return seen, float(action[1]), False, False, {"cost": 0.0}


def test_states_and_actions_that_have_names_and_parts_come_back(tmp_path):
    env = ConstrainedEnv(Rooms(), horizon=3, reward_range=(0, 1))
    run = peakrl.learn(env, episodes=60)
    run.policy.save(tmp_path / "kept")
    again = peakrl.load(tmp_path / "kept")
    shown = {"room": "hall", "lit": np.array([0], np.int8)}
    assert again.action(0, shown) == run.policy.action(0, shown)
    assert peakrl.simulate(env, again, episodes=3, unknown=lambda *_: (-1, 1)).value == 3.0
    with pytest.raises(UnknownStateError, match="was not visited at step 0 while learning on 'Rooms'"):
        again.action(0, "attic")


def test_a_policy_of_a_problem_says_that_it_wants_the_problem(tmp_path):
    policies(1)[1][0].save(tmp_path / "kept")
    with pytest.raises(StorageError, match="contains a policy of 'random' but not that problem: pass the problem"):
        peakrl.load(tmp_path / "kept")
