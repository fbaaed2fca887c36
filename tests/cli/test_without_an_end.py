"""Problems without an end in files and on the command line."""

import json

import pytest
from typer.testing import CliRunner

import peakrl
from peakrl.cli import app
from peakrl.errors import PeakError
from peakrl.specs.spec import read_spec


def solved(*words):
    result = CliRunner().invoke(app, ["solve", *map(str, words), "--json"])
    return json.loads(result.stdout)


def test_a_discount_in_place_of_a_horizon(tmp_path):
    file = tmp_path / "house.toml"
    file.write_text('[problem]\nkind = "thermostat"\ndiscount = 0.95\n')
    best = peakrl.solve(peakrl.problems.thermostat(horizon=None), discount=0.95)
    for words in ([file], ["thermostat", "--discount", "0.95"]):
        found = solved(*words)
        assert found["value"] == pytest.approx(best.value, rel=1e-9)
        assert found["criterion"] == "discount 0.95"
        assert found["value_low"] <= found["value"] <= found["value_high"]
    assert solved("thermostat", "--average")["criterion"] == "average"
    file.write_text('[problem]\nkind = "thermostat"\nhorizon = inf\n')
    assert read_spec(file).compile().steps is None
    file.write_text('[problem]\nkind = "thermostat"\ndiscount = 1.5\n')
    with pytest.raises(PeakError, match=r"discount is 1\.5"):
        read_spec(file)


def test_a_missing_horizon_is_named_with_the_options_that_do_without(tmp_path):
    file = tmp_path / "house.toml"
    file.write_text('[problem]\nkind = "thermostat"\nhorizon = inf\n')
    with pytest.raises(PeakError, match=r"has no end.*--horizon of `peakrl solve`.*\(--discount, --average\)"):
        CliRunner().invoke(app, ["solve", str(file)], catch_exceptions=False)


def test_arrays_and_outcomes_without_an_end(tmp_path):
    (tmp_path / "walk.csv").write_text("state,action,next_state,reward\na,go,b,1\nb,go,a,3\n")
    file = tmp_path / "walk.toml"
    file.write_text('[problem]\nkind = "tables"\nfile = "walk.csv"\n')
    assert solved(file, "--average")["value"] == pytest.approx(2.0)
    assert solved(file, "--discount", "0.5")["value"] == pytest.approx((1 + 0.5 * 3) / 0.75)
    (tmp_path / "walk.csv").write_text("state,action,next_state,reward\na,go,b,1\n")
    with pytest.raises(PeakError, match=r"no row has the state 'b', .*: add one that stays there, such as b,stay,b"):
        CliRunner().invoke(app, ["solve", str(file), "--average"], catch_exceptions=False)


def test_a_discounted_run_is_trained_evaluated_and_certified(tmp_path):
    file, run = tmp_path / "house.toml", tmp_path / "house.run"
    file.write_text('[problem]\nkind = "thermostat"\ndiscount = 0.9\n\n[run]\nepisodes = 60\n')

    def answer(*words):
        return json.loads(CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False).stdout)

    trained = answer("train", file, "--discount", "0.95", "--out", run)
    learned = peakrl.load(run)
    exact = peakrl.evaluate(learned.model, learned.policy, discount=0.95)
    assert (trained["discount"], trained["horizon"]) == (0.95, None)
    assert trained["policy"]["value"] == answer("evaluate", run)["value"] == pytest.approx(exact.value)
    assert answer("certify", file, "--policy", run)["value_low"] <= exact.value
    with pytest.raises(PeakError, match="discount cannot be changed"):
        answer("train", "--resume", run, "--discount", "0.9")
    assert (tmp_path / "house.html") == peakrl.write_report(run)


LAKE = """[problem]
kind = "gymnasium"
id = "FrozenLake-v1"
arguments = { is_slippery = false }
reward_range = [0, 1]
constraint = "lake.py:holes"
constraint_bounds = [1]
discount = 0.95
[run]
steps = 20_000
"""


def test_a_discounted_run_on_an_environment_is_judged_on_its_table(tmp_path):
    (tmp_path / "lake.py").write_text("def holes(t):\n    return -1.0 if t.terminated and not t.reward else 1.0\n")
    file, run = tmp_path / "lake.toml", tmp_path / "lake.run"
    file.write_text(LAKE)

    def answer(*words):
        words = [*map(str, words), "--trust", "--json"]
        return json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)

    best = 0.95**5
    trained = answer("train", file, "--out", run)
    assert (trained["steps"], trained["verdict"]) == (
        20_000, "the last policy never violates a constraint (exact on the environment's table)",
    )  # fmt: skip
    assert trained["policy"]["value"] == answer("evaluate", run, "--problem", file)["value"] == pytest.approx(best)
    certificate = answer("certify", file, "--policy", run, "--out", tmp_path / "lake.certificate")
    assert [certificate["value_low"], certificate["optimum_high"]] == pytest.approx([best, best])
    assert answer("report", run, "--problem", file, "--out", tmp_path / "lake.html")["file"]
    with pytest.raises(PeakError, match="the policy has no end"):
        answer("evaluate", run, "--problem", file, "--simulate", "10")
    checked = json.loads(CliRunner().invoke(app, ["verify", str(tmp_path / "lake.certificate"), "--json"]).stdout)
    assert checked["holds"]


def test_a_run_on_an_environment_of_ones_own_is_judged_on_a_model(tmp_path):
    (tmp_path / "plant.py").write_text(
        "import gymnasium\n"
        "class Plant(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        self.state = 0\n"
        "        return 0, {}\n"
        "    def step(self, action):\n"
        "        reward, self.state = float(self.state == action), 1 - self.state\n"
        "        return self.state, reward, False, False, {'constraints': (1.0,)}\n"
    )
    (tmp_path / "walk.csv").write_text("state,action,next_state,reward\n0,0,1,1\n0,1,1,0\n1,0,0,0\n1,1,0,1\n")
    plant, model, run = tmp_path / "plant.toml", tmp_path / "walk.toml", tmp_path / "plant.run"
    plant.write_text(
        '[problem]\nkind = "gymnasium"\nid = "plant.py:Plant"\nreward_range = [0, 1]\ndiscount = 0.9\n'
        "[run]\nsteps = 500\n"
    )
    model.write_text('[problem]\nkind = "tables"\nfile = "walk.csv"\ndiscount = 0.9\n')

    def printed(*words):
        return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False).stdout

    trained = printed("train", plant, "--out", run, "--trust")
    assert trained.strip().endswith(f"saved to {run}")  # there is nothing that the environment alone could say
    for words in (("certify", model, "--policy", run), ("evaluate", run, "--problem", model)):
        found = json.loads(printed(*words, "--json"))
        assert found.get("value", found.get("value_low")) == pytest.approx(10.0)
    assert "no violation" in printed("report", run, "--problem", model)


def test_the_table_of_a_discounted_run_has_the_states_after_the_horizon_too(tmp_path):
    (tmp_path / "lake.py").write_text("def holes(t):\n    return -1.0 if t.terminated and not t.reward else 1.0\n")
    file = tmp_path / "lake.toml"
    file.write_text(LAKE.replace("discount", "horizon = 3\ndiscount").replace("20_000", "500"))
    words = ["train", str(file), "--trust", "--json"]
    trained = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
    assert (trained["steps"], trained["optimum"]["value"]) == (500, pytest.approx(0.95**5))
    assert trained["episodes"] >= 500 / 3  # it is cut off at the horizon


def test_steps_of_a_file_and_of_the_option(tmp_path):
    file, run = tmp_path / "house.toml", tmp_path / "house.run"
    file.write_text('[problem]\nkind = "thermostat"\ndiscount = 0.9\n\n[run]\nsteps = 600\n')

    def answer(*words):
        return json.loads(CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False).stdout)

    trained = answer("train", file, "--out", run)
    assert (trained["episodes"], trained["steps"]) == (14, 14 * 44)
    assert answer("train", "--resume", run, "--steps", "900")["steps"] == 21 * 44
    assert answer("train", file, "--episodes", "3")["steps"] == 3 * 44
    assert "21 episodes (924 steps)" in CliRunner().invoke(app, ["train", "--resume", str(run)]).stdout
    file.write_text(file.read_text() + "episodes = 5\n")
    with pytest.raises(PeakError, match="episodes and steps are both given"):
        answer("train", file)
    file.write_text('[problem]\nkind = "thermostat"\n\n[run]\nsteps = 600\n')
    with pytest.raises(PeakError, match="steps is for runs with a discount"):
        answer("train", file)


@pytest.mark.parametrize("in_file", [False, True])
def test_a_solved_policy_is_judged_with_the_discount_of_the_file_or_of_the_option(in_file, tmp_path):
    file, policy = tmp_path / "house.toml", tmp_path / "house.policy"
    file.write_text('[problem]\nkind = "thermostat"\n' + ("discount = 0.95" if in_file else "horizon = inf"))
    option = [] if in_file else ["--discount", "0.95"]
    answer = solved(file, *option, "--policy", policy)
    best = answer["value"]

    def printed(*words):
        return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False).stdout

    certificate = json.loads(printed("certify", file, "--policy", policy, *option, "--json"))
    assert certificate["value_low"] <= answer["value_high"]
    assert certificate["value_high"] >= answer["value_low"]
    assert certificate["value_low"] == pytest.approx(best)
    assert "discounted by 0.95" in certificate["subject"]
    judge = "evaluate", policy, "--problem", file
    assert json.loads(printed(*judge, *option, "--json"))["value"] == pytest.approx(best)
    assert "discount 0.95" in printed(*judge, *option)
    if not in_file:
        assert "average of a step" in printed(*judge)
