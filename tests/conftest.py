"""What all tests share."""

import signal

# pyjobshop's solver and cvxpy's both carry HiGHS; loaded the other way round, pyjobshop fails with a missing symbol.
import pyjobshop  # noqa: F401
import pytest
from hypothesis import HealthCheck, settings

# Machines are shared: an example that takes long says something of them, not of what is tested.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture
def ctrl_c():
    """Let SIGINT raise KeyboardInterrupt, here and in child processes: a shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
