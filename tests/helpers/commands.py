"""How tests run the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import peakrl.cli

TINY = """
[problem]
kind = "energy_harvesting"
horizon = 3
battery = 3
max_arrival = 2
mean = 1
std = 1
peak_power = 2
[run]
episodes = 300
"""
INFEASIBLE = '[problem]\nkind = "scheduling_example"\nnumber = 3\n[run]\nepisodes = 3000\n'

Result = tuple[int | str | None, str, str]


def caller(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> Callable[..., Result]:
    """Return a function that runs `peakrl ...` in a folder of its own and returns exit code, stdout and stderr."""
    monkeypatch.chdir(folder)
    (folder / "tiny.toml").write_text(TINY)
    (folder / "infeasible.toml").write_text(INFEASIBLE)

    def call(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["peakrl", *arguments])
        try:
            peakrl.cli.main()
        except SystemExit as stop:
            code = stop.code
        else:
            code = 0
        out, error = capsys.readouterr()
        return code, out, error

    return call
