"""What all tests share."""

import math
import signal

# pyjobshop's solver and cvxpy's both carry HiGHS; loaded the other way round, pyjobshop fails with a missing symbol.
import pyjobshop  # noqa: F401
import pytest
from hypothesis import HealthCheck, settings

from peakrl.training import run_file
from peakrl.training.trainer import Trainer

# Machines are shared: an example that takes long says something of them, not of what is tested.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture
def checkpoint_every(monkeypatch):
    """Return a function that makes `learn` save a run every so many episodes, not about every half minute."""

    def every(episodes):
        monkeypatch.setattr(run_file, "SECONDS", 0.0)
        monkeypatch.setattr(run_file, "SHARE", math.inf)
        piece = property(lambda self: (episodes, episodes), lambda self, pieces: None)
        monkeypatch.setattr(Trainer, "pieces", piece, raising=False)

    return every


@pytest.fixture
def ctrl_c():
    """Let SIGINT raise KeyboardInterrupt, here and in child processes: a shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
