"""`peakrl train` on logs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.commands import caller
from helpers.recorded_logs import record
from peakrl import compile_model, load, verify
from peakrl.problems import energy_harvesting

MODEL = compile_model(energy_harvesting(horizon=3, battery=2, max_arrival=2, mean=1, std=1, peak_power=2))
FILE = """
[problem]
kind = "logs"
file = "plant.csv"
horizon = 3
reward_range = [0, 3]
step = "step"
next_state = "next_state"
constraints = ["constraint"]
constraint_bounds = [4]

[settings]
failure_probability = 0.1

[assumptions]
stationary = true
rewards = true
"""


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    columns = record(MODEL, 40, np.random.default_rng(1))
    lines = [",".join(columns), *(",".join(map(str, line)) for line in zip(*columns.values(), strict=True))]
    (tmp_path / "plant.csv").write_text("\n".join(lines))
    (tmp_path / "plant.toml").write_text(FILE)
    return caller(monkeypatch, capsys, tmp_path)


def test_a_log_is_learned_saved_and_reported(command, tmp_path):
    code, out, err = command("train", "plant.csv", "--out", "plant.run")
    assert code == 0, err
    assert "Certificate (from a log) holds" in out
    assert "hidden confounding" in out
    run = load(tmp_path / "plant.run")
    assert run.certificate.failure_probability == 0.1
    code, out, err = command("train", "plant.toml", "--json")
    found = json.loads(out)
    assert found["learned_certificate"]["value_low"] == run.certificate.value_low
    assert isinstance(found["untried"], list)
    code, out, err = command("report", "plant.run", "--out", "plant.html")
    assert code == 0, err
    page = (tmp_path / "plant.html").read_text()
    assert "Not proved. Violation" in page
    assert "Yes, proved" not in page
    run.certificate.save(tmp_path / "plant.certificate")
    assert verify(tmp_path / "plant.certificate").holds


def test_a_file_may_name_the_behaviour_as_code_that_is_trusted(command, tmp_path):
    (tmp_path / "plant.toml").write_text(FILE.replace("0.1\n", '0.1\nbehavior = "own.py:usual"\n'))
    (tmp_path / "own.py").write_text(
        "def usual(step, state, actions):\n    return {one: 1 / len(actions) for one in actions}\n"
    )
    assert "runs code" in command("train", "plant.csv")[2]
    code, out, err = command("train", "plant.csv", "--trust")
    assert code == 0, err
    assert "the behaviour policy was fixed" in out
    (tmp_path / "own.py").write_text("")
    assert "settings.behavior 'own.py:usual'" in command("train", "plant.csv", "--trust")[2]


def test_what_a_log_lacks_is_named(command, tmp_path):
    (tmp_path / "plant.toml").rename(tmp_path / "other.toml")
    code, _, err = command("train", "plant.csv")
    assert code != 0
    assert 'kind = "logs"' in err
    (tmp_path / "plant.toml").write_text('[problem]\nkind = "logs"\nfile = "plant.csv"\n')
    assert "horizon and reward_range must be given" in command("train", "plant.csv")[2]
    assert "its own episodes" in command("train", "other.toml", "--episodes", "5")[2]
    assert "no model" in command("solve", "other.toml")[2]
    sweep = (
        FILE.partition("[settings]")[0].replace("[problem]", "[[problems]]") + '[[settings]]\nlearner = "Pessimistic"\n'
    )
    (tmp_path / "sweep.toml").write_text("seeds = 1\nepisodes = 5\n" + sweep)
    assert "certifies one run of it" in command("sweep", "sweep.toml")[2]
