"""The command itself: Ctrl-C, its version, and its help."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import peakrl
from helpers.commands import caller
from peakrl.cli import COMMANDS, app, main


def test_a_command_that_is_interrupted_says_so_and_exits_with_130(monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("peakrl.planning.solve", stop)
    monkeypatch.setattr(sys, "argv", ["peakrl", "solve", "scheduling-1"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "peakrl: interrupted; finished results are kept\n"


def test_ctrl_c_while_modules_load_shows_no_traceback(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), str(Path(peakrl.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "peakrl", "--help"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "peakrl: interrupted\n")


def test_ctrl_c_before_anything_is_overwritten_does_not_claim_that_the_run_is_saved(monkeypatch, capsys, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    call = caller(monkeypatch, capsys, tmp_path)
    assert call("train", "tiny.toml", "--episodes", "20", "--out", "a.run")[0] == 0
    before = (tmp_path / "a.run").read_bytes()
    monkeypatch.setattr("peakrl.training.learn.learn", stop)
    code, _, error = call("train", "tiny.toml", "--episodes", "30", "--out", "a.run", "--overwrite")
    assert (code, (tmp_path / "a.run.before").read_bytes()) == (130, before)
    assert error.endswith("peakrl: interrupted\n")


def test_the_version_is_told():
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.stdout) == (0, f"peakrl {peakrl.__version__}\n")


def test_help_shows_the_commands_in_the_order_of_use():
    told = CliRunner().invoke(app, ["--help"]).stdout
    places = [told.index(f" {command.__name__} ") for commands in COMMANDS.values() for command in commands]
    assert places == sorted(places)
    assert all(panel in told for panel in COMMANDS)
