"""`peakrl shield`: how much of a problem is safe."""

import json

import pytest

import peakrl
from helpers.commands import caller


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    return caller(monkeypatch, capsys, tmp_path)


def test_it_tells_how_much_is_safe_at_each_step_as_the_library_has_it(command):
    code, out, _ = command("shield", "scheduling-1", "--json")
    found, safe = json.loads(out), peakrl.safe_set(peakrl.problems.scheduling_example(1))
    assert code == 0
    assert found["feasible"] is True
    assert [tuple(row.values()) for row in found["steps"]] == [tuple(count) for count in safe.counts]
    code, out, _ = command("shield", "scheduling-1")
    assert code == 0
    assert "safe actions" in out
    assert "never violates a constraint" in out


def test_a_problem_that_no_policy_keeps_gives_the_reason_and_exit_code_1(command):
    code, out, _ = command("shield", "scheduling-3")
    assert code == 1
    assert f"Infeasible: {peakrl.solve(peakrl.problems.scheduling_example(3)).reason}" in out
    assert "every action violates immediately" in out


def test_it_keeps_the_safe_set(command, tmp_path):
    problem = peakrl.problems.scheduling_example(1)
    for name in ("kept.safe", "kept.csv", "kept.json"):
        assert command("shield", "scheduling-1", "--out", name)[0] == 0
    safe = peakrl.safe_set(problem)
    assert peakrl.load("kept.safe").entries.tolist() == safe.entries.tolist()
    with open("kept.csv") as file:
        assert file.read() == safe.to_csv()
    with open("kept.json") as file:
        assert file.read() == safe.to_json()


def test_bad_input_is_named(command):
    assert command("shield", "nowhere.toml")[0] == 2
