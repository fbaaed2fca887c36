"""What all tests share."""

import os
import tempfile
from pathlib import Path

# pyjobshop's solver and cvxpy's both carry HiGHS; loaded the other way round, pyjobshop fails with a missing symbol.
import pyjobshop  # noqa: F401
from hypothesis import HealthCheck, settings

from compile_log import compiled_twice, summary

# Machines are shared: an example that takes long says something of them, not of what is tested.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# Workers share out what is to be compiled; nobody needs a helper besides.
os.environ["PEAKRL_COMPILE_AHEAD"] = "0"
LOG = "PEAKRL_COMPILE_LOG"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        handle, config.compile_log = tempfile.mkstemp(prefix="peakrl-compiled-")
        os.close(handle)
        os.environ[LOG] = config.compile_log


def pytest_sessionstart(session):
    """Let several workers compile the kernels between them, before each of them collects all tests."""
    worker = getattr(session.config, "workerinput", None)
    if worker is not None and worker["workercount"] > 1:
        import compiling

        compiling.compile_share(int(worker["workerid"][2:]) % 2 == 1)


def pytest_sessionfinish(session, exitstatus):
    """Fail where a kernel was compiled twice: every user would wait for it twice."""
    if hasattr(session.config, "compile_log") and exitstatus == 0 and compiled_twice(session.config.compile_log):
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter, config):
    for line in summary(config.compile_log):
        terminalreporter.write_line(line)


def pytest_unconfigure(config):
    if hasattr(config, "compile_log"):
        Path(config.compile_log).unlink(missing_ok=True)
