"""The command itself: Ctrl-C, its version, and its help."""

import sys

import pytest
from typer.testing import CliRunner

import peakrl
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


def test_the_version_is_told():
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.stdout) == (0, f"peakrl {peakrl.__version__}\n")


def test_help_shows_the_commands_in_the_order_of_use():
    told = CliRunner().invoke(app, ["--help"]).stdout
    places = [told.index(f" {command.__name__} ") for commands in COMMANDS.values() for command in commands]
    assert places == sorted(places)
    assert all(panel in told for panel in COMMANDS)
