"""Files with random changes and correct digests are read or refused by a PeakError; nothing else happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def fuzz(folder, first, count, **environment):
    """Run the fuzzer in a process of its own; a crash there is an exit code here, and a hang a timeout."""
    command = [sys.executable, str(HERE / "helpers" / "file_fuzzer.py"), str(folder), str(first), str(count)]
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["found"] == []
    assert result["refused"] + result["taken"] == count
    return result


def test_forged_files_are_read_or_refused(tmp_path):
    """Without the JIT kernels are Python, in which every index is checked."""
    result = fuzz(tmp_path, 0, 300, NUMBA_DISABLE_JIT="1")
    assert result["refused"] > 150
    assert result["taken"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_many_more_forged_files_are_read_or_refused(block, tmp_path, tmp_path_factory):
    """With compiled kernels that check their bounds, which need a cache of their own."""
    cache = tmp_path_factory.getbasetemp() / "checked kernels"
    fuzz(tmp_path, 5000 * block, 5000, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(cache))
