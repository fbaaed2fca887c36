"""The command line: what it prints, what it keeps, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import peakrl.cli
from helpers.commands import TINY, caller
from peakrl import learn
from peakrl.theory import pac_plan
from peakrl.training import load_run
from peakrl.training.spec_file import read_problem_file


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    return caller(monkeypatch, capsys, tmp_path)


def answer(result):
    """Return the JSON of a command: strict, and nothing else on stdout."""
    code, out, _ = result

    def refuse(word):
        raise AssertionError(f"{word} is not strict JSON")

    return code, json.loads(out, parse_constant=refuse)


# Places that no file can be written to ----------------------------


OUTPUTS = [
    ("train", "missing.toml", "--out"),
    ("train", "missing.toml", "--checkpoint"),
    ("train", "tiny.toml", "--out"),
    ("solve", "missing.toml", "--policy"),
    ("shield", "missing.toml", "--out"),
    ("certify", "missing.toml", "--policy", "missing", "--out"),
    ("report", "missing", "--out"),
    ("summarize", "missing", "--csv"),
    ("summarize", "missing", "--curves"),
]


def test_a_place_that_cannot_be_written_is_refused_first(command, tmp_path):
    """Before what is asked for is looked at, even: it is not there."""
    before = sorted(tmp_path.iterdir())
    for asked in OUTPUTS:
        places = ["/dev/full", "/proc/self/mem", "-", "nowhere/file"] if asked[0] == "train" else ["/dev/full"]
        for place in places:
            code, out, error = command(*asked, place)
            assert (code, out) == (2, ""), asked
            assert f"cannot write {place}" in error.replace("'", "")
    assert sorted(tmp_path.iterdir()) == before


# train ------------------------------------------------------------


def test_train_reports_what_the_library_learns(command):
    code, found = answer(command("train", "tiny.toml", "--json"))
    described = read_problem_file("tiny.toml")
    model = described.model()
    run = learn(model, described.settings, episodes=300)
    assert code == 0
    assert found["policy"]["value"] == peakrl.evaluate(model, run.policy).value
    assert found["averaged_policy"]["violation"] == peakrl.evaluate(model, run.averaged_policy).violation
    assert found["optimum"]["value"] == peakrl.solve(model).value
    assert found["policy"]["below_optimum"] == pytest.approx(found["optimum"]["value"] - found["policy"]["value"])
    assert (found["episodes"], found["seed"], found["feasible"]) == (300, 0, True)
    assert found["violating_episodes"] == run.violations


def test_train_prints_a_table_and_a_verdict_for_people(command):
    code, out, error = command("train", "tiny.toml")
    assert code == 0
    assert error == ""  # no progress where nobody watches
    for word in ("last policy", "averaged policy", "optimum", "gap to optimum", "verdict: feasible"):
        assert word in out
    assert "\x1b" not in out


def test_train_takes_episodes_and_seed_from_its_options(command):
    _, found = answer(command("train", "tiny.toml", "--episodes", "20", "--seed", "4", "--json"))
    assert (found["episodes"], found["seed"]) == (20, 4)


def test_an_infeasible_problem_has_exit_code_1_and_its_proof(command):
    code, out, _ = command("train", "infeasible.toml")
    assert code == 1
    assert "verdict: infeasible" in out
    assert "violates by" in out or "leads to" in out
    code, found = answer(command("train", "infeasible.toml", "--json"))
    assert code == 1
    assert found["feasible"] is False
    assert found["infeasibility_proof"]
    assert "no order meets every deadline" in found["reason"]


def test_out_keeps_the_run_and_the_same_command_goes_on_from_it(command):
    _, first = answer(command("train", "tiny.toml", "--out", "a.run", "--json"))
    assert first["run_file"] == "a.run"
    assert load_run("a.run").episodes == 300
    code, second = answer(command("train", "tiny.toml", "--out", "a.run", "--json"))
    assert code == 0
    assert (first["episodes_before"], second["episodes_before"]) == (0, 300)
    assert first | {"seconds": 0, "episodes_before": 300} == second | {"seconds": 0}


def test_resuming_says_whether_a_run_was_complete_or_where_it_went_on(command):
    nothing_new = "The run was already complete; nothing was learned.\n"
    assert nothing_new not in command("train", "tiny.toml", "--out", "a.run")[1]
    assert nothing_new in command("train", "tiny.toml", "--out", "a.run")[1]
    assert nothing_new in command("train", "--resume", "a.run")[1]
    assert "Resumed from episode 300" in command("train", "--resume", "a.run", "--episodes", "400")[1]
    assert nothing_new not in command("train", "tiny.toml", "--out", "a.run", "--overwrite")[1]


def test_another_run_is_overwritten_only_when_asked_to(command):
    command("train", "tiny.toml", "--out", "a.run")
    code, _, error = command("train", "tiny.toml", "--out", "a.run", "--seed", "1")
    assert code == 2
    assert "a different seed" in error
    assert load_run("a.run").seed == 0
    assert command("train", "tiny.toml", "--out", "a.run", "--seed", "1", "--overwrite")[0] == 0
    assert load_run("a.run").seed == 1


def test_resume_continues_a_run_to_more_episodes(command):
    command("train", "tiny.toml", "--out", "a.run")
    code, found = answer(command("train", "--resume", "a.run", "--episodes", "500", "--json"))
    assert (code, found["episodes"]) == (0, 500)
    whole = learn(read_problem_file("tiny.toml").model(), load_run("a.run").settings, episodes=500)
    assert load_run("a.run").q.tobytes() == whole.q.tobytes()
    command("train", "--resume", "a.run", "--episodes", "600", "--out", "b.run")
    assert (load_run("a.run").episodes, load_run("b.run").episodes) == (500, 600)


def test_checkpoints_may_lie_elsewhere(command):
    assert command("train", "tiny.toml", "--out", "a.run", "--checkpoint", "c.run")[0] == 0
    assert load_run("a.run").q.tobytes() == load_run("c.run").q.tobytes()
    code, _, error = command("train", "tiny.toml", "--out", "a.run", "--checkpoint", "c.run")
    assert code == 2
    assert "a.run already exists" in error


SWEEP = 'seeds = 1\nepisodes = 5\n[[problems]]\nkind = "scheduling_example"\n[[settings]]\nlearner = "SafeQ"\n'


BAD_INPUT = [
    (["train"], "name a problem file"),
    (["train", "absent.toml"], "cannot read absent.toml: No such file"),
    (
        ["audit", "absent"],
        "no built-in problem has that name; there are battery-robot, energy-harvesting",
    ),
    (["train", "tiny.toml", "--episodes", "many"], "--episodes"),
    (
        ["train", "--resume", "tiny.toml"],
        "tiny.toml is not a peakrl file; a problem file becomes a run by",
    ),
    (["train", "--resume", "a.run", "--seed", "1"], "--seed cannot be changed"),
    (
        ["train", "sweep.toml"],
        "sweep.toml describes a sweep, many runs of many problems: `peakrl sweep sweep.toml`",
    ),
    (["sweep", "tiny.toml"], "tiny.toml is a problem file, not a sweep file: use `peakrl train tiny.toml`"),
    (["evaluate", "tiny.toml"], "is a problem file; train it first"),
    (["evaluate", "a.run", "--policy", "best"], "--policy is 'best'"),
    (["evaluate", "a.run", "--simulate", "1"], "--simulate"),
    (["audit", "tiny.toml"], "--slack is missing"),
    (["plan", "--epsilon", "0.1"], "--states, --actions, --horizon missing"),
    (["init", "two words"], "is not a valid name"),
    (["init", "x", "--kind", "y"], "--kind is 'y'"),
    (["dance"], "dance"),
    (["train", "tiny.toml", "--loud"], "--loud"),
]


def test_what_is_no_run_is_not_reported(command):
    command("shield", "tiny.toml", "--out", "tiny.safe")
    assert "holds no run: `peakrl train FILE --out RUN` makes one" in command("report", "tiny.safe")[2]


def test_bad_input_has_exit_code_2_and_one_line_that_says_what_is_wrong(command):
    for arguments, message in BAD_INPUT:
        Path("sweep.toml").write_text(SWEEP)
        code, out, error = command(*arguments)
        assert (code, out) == (2, ""), arguments
        assert message in error
        assert "Traceback" not in error


# The other commands ------------------------------------------------------------


def test_evaluate_agrees_with_the_library(command):
    command("train", "tiny.toml", "--out", "a.run")
    run = load_run("a.run")
    for policy, chosen in (("last", run.policy), ("averaged", run.averaged_policy)):
        code, found = answer(command("evaluate", "a.run", "--policy", policy, "--simulate", "50", "--json"))
        exact = peakrl.evaluate(run.model, chosen)
        assert (code, found["value"], found["violation"]) == (0, exact.value, exact.violation)
        assert found["simulation"]["value"] == peakrl.simulate(run.model, chosen, episodes=50).value
    _, out, _ = command("evaluate", "a.run", "--simulate", "50")
    assert "in 50 episodes" in out
    assert "peak power" in out


def test_evaluate_checks_that_a_policy_never_violates(command):
    command("train", "tiny.toml", "--out", "a.run")
    assert command("evaluate", "a.run", "--check")[0] == 0
    assert command("evaluate", "a.run", "--check", "--policy", "averaged")[0] == 1


def test_audit_has_exit_code_1_where_an_assumption_fails(command):
    code, found = answer(command("audit", "tiny.toml", "--slack", "0.1", "--json"))
    assert (code, found["all_hold"], found["feasible"]) == (0, True, True)
    code, found = answer(command("audit", "infeasible.toml", "--slack", "1", "--json"))
    assert (code, found["feasible"]) == (1, False)
    code, out, _ = command("audit", "infeasible.toml", "--slack", "1")
    assert code == 1
    assert "NO   some policy never violates" in out


def test_a_built_in_problem_may_be_named_in_place_of_its_file(command):
    code, out, _ = command("audit", "scheduling-1", "--slack", "0.1", "--json")
    assert (code, json.loads(out)["feasible"]) == (0, True)
    code, out, _ = command("train", "scheduling-1", "--episodes", "50", "--json")
    assert (code, json.loads(out)["episodes"]) == (0, 50)


def test_plan_says_what_the_theorem_says(command):
    sizes = {"states": 5, "actions": 2, "horizon": 3, "constraints": 2}
    options = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    code, found = answer(command("plan", "--epsilon", "0.1", *options, "--json"))
    expected = pac_plan(epsilon=0.1, failure_probability=0.05, **sizes)
    assert code == 0
    assert (found["episodes"], found["slack"], found["penalty"]) == (
        expected.episodes,
        expected.slack,
        expected.penalty,
    )
    assert f"{expected.episodes:,}" in command("plan", "--epsilon", "0.1", *options)[1]
    _, found = answer(command("plan", "--epsilon", "0.1", "--problem", "tiny.toml", "--json"))
    assert (found["horizon"], found["states"], found["constraints"]) == (3, 12, 1)


@pytest.mark.parametrize("kind", ["energy-harvesting", "machine_scheduling", "tables", "python"])
def test_init_writes_a_file_that_trains(kind, command):
    assert command("init", "fresh", "--kind", kind)[0] == 0
    trust = ["--trust"] if kind == "python" else []
    code, found = answer(command("train", "fresh.toml", "--episodes", "30", "--json", *trust))
    assert (code, found["episodes"], found["feasible"]) == (0, 30, True)
    code, _, error = command("init", "fresh.toml", "--kind", kind)
    assert code == 2
    assert "already exists" in error


def test_every_command_explains_itself(command):
    for arguments in ([], ["train"], ["evaluate"], ["audit"], ["plan"]):
        code, out, _ = command(*arguments, "-h")
        assert (code, "Usage" in out) == (0, True), arguments


def test_a_shell_can_ask_for_completion(command, monkeypatch):
    monkeypatch.setenv("_PEAKRL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "peakrl tr")
    monkeypatch.setenv("COMP_CWORD", "1")
    _, out, _ = command()
    assert "train" in out


# In a terminal ------------------------------------------------------------

RUN = "from peakrl.cli import main; main()"


def in_terminal(folder, arguments, environment=None, stop_at=None):
    """Run a command in a terminal of its own for two minutes at most; return exit code and everything it showed."""
    master, slave = pty.openpty()
    source = str(Path(peakrl.cli.__file__).parents[2])
    variables = os.environ | {"PYTHONPATH": source, "COLUMNS": "150", "TERM": "xterm-256color"} | (environment or {})
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=variables
    )
    os.close(slave)
    overdue = threading.Timer(120, process.kill)
    overdue.start()
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the terminal is gone with the process
            break
        if not part:
            break
        shown += part
        if stop_at is not None and stop_at in shown:
            process.send_signal(signal.SIGINT)
            stop_at = None
    os.close(master)
    code = process.wait()
    overdue.cancel()
    return code, shown.decode()


def test_a_terminal_shows_progress_cropped_to_its_width_and_in_colour_only_if_wanted(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    command = ["train", "tiny.toml", "--episodes", "100000"]
    code, shown = in_terminal(tmp_path, command)
    assert code == 0
    assert re.search(r"/100,000 episodes .* value .* violation", shown)
    assert shown.count("\x1b[3") + shown.count("\x1b[9") > 0
    _, shown = in_terminal(tmp_path, command, {"NO_COLOR": "1", "COLUMNS": "80"})
    assert shown.count("\x1b[3") + shown.count("\x1b[9") == 0
    line = next(line for line in re.split(r"[\r\n]", shown) if "100,000/100,000 episodes" in line)
    assert re.search(r"Learning .* 100,000/100,000 episodes  [0-9,]+/s .* 0:00:00", line)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_the_run_and_says_where(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    arguments = ["train", "tiny.toml", "--episodes", "2000000000", "--out", "a.run"]
    begun = time.monotonic()
    code, shown = in_terminal(tmp_path, arguments, stop_at=b"episodes  ")
    assert code == 130
    assert "interrupted; the run so far is in a.run" in shown
    assert time.monotonic() - begun < 60
    assert load_run(tmp_path / "a.run").episodes > 0
