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


def test_arrays_and_outcomes_without_an_end(tmp_path):
    (tmp_path / "walk.csv").write_text("state,action,next_state,reward\na,go,b,1\nb,go,a,3\n")
    file = tmp_path / "walk.toml"
    file.write_text('[problem]\nkind = "tables"\nfile = "walk.csv"\n')
    assert solved(file, "--average")["value"] == pytest.approx(2.0)
    assert solved(file, "--discount", "0.5")["value"] == pytest.approx((1 + 0.5 * 3) / 0.75)


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
