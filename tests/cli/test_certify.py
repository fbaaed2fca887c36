"""`peakrl certify` and `peakrl verify`: what the library says, exit codes, files, and slips."""

import json

import pytest

import peakrl
from helpers.commands import caller
from peakrl.training.spec_file import read_problem_file


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    return caller(monkeypatch, capsys, tmp_path)


@pytest.fixture
def best(command):
    assert command("solve", "tiny.toml", "--policy", "best.policy")[0] == 0
    return "best.policy"


def test_the_optimum_is_certified_kept_and_checked(command, best):
    code, out, _ = command("certify", "tiny.toml", "--policy", best, "--epsilon", "0", "--out", "kept")
    assert code == 0
    assert "Certificate (exact for the given model) holds" in out
    assert "none, in any outcome" in out
    assert "saved to kept; check it with `peakrl verify kept`" in out
    code, out, _ = command("verify", "kept")
    assert code == 0
    assert "Certificate (exact for the given model) holds" in out


def test_what_a_learner_proves_is_saved_and_checked(command, tmp_path):
    settings = '[settings]\nlearner = "Certified"\nepsilon = 0.5\n[run]\nepisodes = 20000\n'
    problem = '[problem]\nkind = "energy_harvesting"\nhorizon = 2\nbattery = 2\nmax_arrival = 2\npeak_power = 1\n'
    (tmp_path / "proof.toml").write_text(problem + settings)
    assert command("train", "proof.toml", "--certificate", "kept")[0] == 0
    code, out, _ = command("verify", "kept")
    assert code == 0
    assert "Certificate (learned) holds" in out
    code, _, error = command("train", "tiny.toml", "--episodes", "5", "--certificate", "other")
    assert code == 2
    assert "--certificate: PosteriorSampling" in error
    assert not (tmp_path / "other").exists()


def test_json_is_what_the_library_says(command, best):
    code, out, _ = command("certify", "tiny.toml", "--policy", best, "--epsilon", "0.1", "--json", "--out", "kept")
    model = read_problem_file("tiny.toml").model()
    wanted = peakrl.certify(model, peakrl.load(best, model), epsilon=0.1).as_dict()
    assert code == 0
    assert json.loads(out) == wanted | {"file": "kept"}
    checked = json.loads(command("verify", "kept", "--json")[1])
    assert model.digest in checked["rests_on"][0]
    assert checked == wanted | {"rests_on": checked["rests_on"]}


def test_episodes_sample_and_a_run_brings_its_last_policy(command):
    command("train", "tiny.toml", "--out", "a.run")
    code, out, _ = command(
        "certify", "tiny.toml", "--policy", "a.run", "--episodes", "300", "--seed", "1", "--out", "kept", "--json"
    )
    found = json.loads(out)
    assert (found["kind"], found["episodes"], found["failure_probability"]) == ("sampled", 300, 0.05)
    assert code == (0 if found["holds"] else 1)
    assert command("verify", "kept")[0] == code


def test_what_does_not_hold_has_exit_code_1_and_its_reason(command):
    command("solve", "infeasible.toml", "--policy", "least.policy")
    code, out, _ = command("certify", "infeasible.toml", "--policy", "least.policy")
    assert code == 1
    assert "does NOT hold: no policy is safe" in out


def test_slips_are_named(command, best):
    for arguments, words in (
        (("certify", "tiny.toml", "--policy", "none"), "cannot read none"),
        (("certify", "tiny.toml", "--policy", best, "--epsilon", "-1"), "epsilon is -1.0; it must be a finite number"),
        (("certify", "infeasible.toml", "--policy", best), "contains a policy of another problem"),
        (("verify", best), "holds a 'policy', not a 'certificate'"),
        (("verify", "tiny.toml"), "is not a peakrl file"),
    ):
        code, _, error = command(*arguments)
        assert code == 2
        assert words in error
