"""Thousands of forged files with right digests: every one is read or refused, and nothing else ever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

HERE = Path(__file__).parent


def fuzz(folder, first, count, **environment):
    """Run the fuzzer in a process of its own; a crash there is an exit code here."""
    command = [sys.executable, str(HERE / "file_fuzzer.py"), str(folder), str(first), str(count)]
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths} | environment, check=False
    )
    latest = folder / "latest"
    where = latest.read_text() if latest.exists() else "none yet"
    assert done.returncode == 0, f"the process ended with {done.returncode} at forgery {where}:\n{done.stderr[-3000:]}"
    told = json.loads(done.stdout)
    assert told["found"] == []
    assert told["refused"] + told["taken"] == count
    return told


def test_forged_files_are_read_or_refused(tmp_path):
    """Without the JIT every index is checked; 5,000 of the forgeries, the rest is slow."""
    told = fuzz(tmp_path, 0, 5000, NUMBA_DISABLE_JIT="1")
    assert told["kinds"] >= 47
    assert told["refused"] > 2500
    assert told["taken"] > 500


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_a_hundred_thousand_forged_files_are_read_or_refused(block, tmp_path, tmp_path_factory):
    """With compiled kernels that check their bounds, in a cache of their own, since ours do not."""
    cache = tmp_path_factory.getbasetemp() / "checked kernels"
    fuzz(tmp_path, 5000 * block, 5000, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(cache))


def test_without_the_jit_an_index_is_refused_where_a_kernel_that_checks_its_bounds_refuses_it():
    """Why the forgeries of the suite need no compiled kernels: both count from the end up to -5 and refuse the rest."""
    array, plain = np.arange(5), lambda values, index: values[index]
    checked = numba.njit(boundscheck=True)(plain)
    for index in (-(2**31), -7, -6, -5, -1, 0, 4, 5, 6, 2**31 - 1):
        told = []
        for read in (plain, checked):
            try:
                told.append(int(read(array, index)))
            except IndexError:
                told.append(None)
        assert told[0] == told[1] == (array[index] if -5 <= index < 5 else None)
