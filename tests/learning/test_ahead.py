"""The first learn of a machine: when a second process compiles, and when not."""

import multiprocessing
import subprocess

import numpy as np
import pytest

from peakrl.kernels.curve import policy_curve
from peakrl.kernels.jit import kept
from peakrl.kernels.posterior import draw_law
from peakrl.learning import ahead


@pytest.fixture
def started(monkeypatch):
    """Commands that would have been started, on two cores with nothing compiled."""
    commands = []

    class Process:
        def __init__(self, command, **options):
            commands.append((command, options["env"][ahead.SWITCH]))

        def wait(self):
            return 0

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(ahead, "kept", lambda function: False)
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    monkeypatch.setattr(ahead, "_begun", False)
    monkeypatch.delenv(ahead.SWITCH)
    return commands


def test_a_second_process_is_started_once_and_starts_none_itself(started):
    ahead.compile_ahead()
    ahead.compile_ahead()
    [(command, switch)] = started
    assert command[-1] == "from peakrl.learning.ahead import compile_rest; compile_rest()"
    assert switch == "0"


@pytest.mark.parametrize("where", ["in a worker", "on one core", "with kernels kept", "where it is switched off"])
def test_none_is_started(where, started, monkeypatch):
    if where == "in a worker":
        monkeypatch.setattr(multiprocessing.current_process(), "name", "LokyProcess-1")
    elif where == "on one core":
        monkeypatch.setattr(ahead, "cores", lambda: 1)
    elif where == "with kernels kept":
        monkeypatch.setattr(ahead, "kept", lambda function: True)
    else:
        monkeypatch.setenv(ahead.SWITCH, "0")
    ahead.compile_ahead()
    assert started == []


def test_what_the_second_process_compiles_is_kept():
    ahead.compile_rest()
    assert kept(policy_curve)
    assert kept(draw_law)
    assert kept(np.sum)  # of no kernel there is anything to keep
