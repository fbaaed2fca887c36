"""The disk cache of compiled kernels, and the notice that kernels are being compiled."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest
from numba.core.event import Event, EventStatus

from peakrl import jit
from peakrl.sampling import seed_state, uniform

compiles = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled with the JIT off")
DRAW = (
    "from peakrl import jit; jit.PATIENCE = 0.0; from peakrl.sampling import seed_state, uniform; "
    "print(uniform(seed_state(1)))"
)


def draw(cache, code=DRAW, **environment):
    """Draw a number in a new process; return it and what was printed to stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)} | environment,
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return float(done.stdout), done.stderr.splitlines()


@compiles
def test_a_process_announces_compiling_and_the_next_one_reads_the_cache(tmp_path):
    expected = uniform(seed_state(1))
    assert draw(tmp_path) == (expected, [jit.COMPILING])
    assert draw(tmp_path) == (expected, [])


@compiles
def test_kernels_whose_cache_files_are_damaged_are_compiled_again(tmp_path):
    expected = draw(tmp_path)
    for suffix, size, rest in (("nbi", 0.5, b""), ("nbc", 0, b"garbage")):
        for file in tmp_path.rglob(f"*.{suffix}"):
            data = file.read_bytes()
            file.write_bytes(data[: int(len(data) * size)] + rest)
        assert draw(tmp_path) == expected
    assert draw(tmp_path) == (expected[0], [])


@compiles
def test_without_a_writable_cache_folder_kernels_are_compiled_and_not_stored(tmp_path):
    before = set(Path(jit.__file__).parent.rglob("*.nbi"))
    (tmp_path / "file").write_text("")
    (tmp_path / "read-only").mkdir(mode=0o500)
    denied = f"import os; os.access = lambda *_: False; {DRAW}"  # root may write anywhere
    for cache, code in (("file", DRAW), ("read-only", denied)):
        assert draw(tmp_path / cache, code) == (uniform(seed_state(1)), [jit.COMPILING])
    assert set(Path(jit.__file__).parent.rglob("*.nbi")) == before


@compiles
@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX systems")
def test_a_cache_that_others_may_write_to_is_not_read(tmp_path):
    draw(tmp_path)
    (folder,) = tmp_path.glob("peakrl/kernels-*")
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]
    folder.chmod(0o777)
    assert draw(tmp_path) == (uniform(seed_state(1)), [jit.UNSAFE.format(folder), jit.COMPILING])
    other = f"import os; os.getuid = lambda: {os.getuid() + 1}; {DRAW}"
    assert draw(tmp_path, other)[1] == [jit.UNSAFE.format(folder.parent), jit.COMPILING]


def test_folders_that_were_not_used_for_a_month_are_removed(tmp_path):
    ages = {"kernels-0.1.0-old": 40, "kernels-0.1.0-recent": 20, "notes": 400, "kernels-now": 0}
    for name, days in ages.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - days * 24 * 3600,) * 2)
    (tmp_path / "kernels-gone").symlink_to(tmp_path / "missing")
    jit.clean(tmp_path / "kernels-now")
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"kernels-0.1.0-recent", "notes", "kernels-now", "kernels-gone"}


@compiles
def test_the_numba_functions_of_others_keep_their_own_cache_folder(tmp_path):
    theirs = "import numba, peakrl.sampling; assert not numba.config.CACHE_DIR; print(0)"
    assert draw("", theirs, XDG_CACHE_HOME=str(tmp_path)) == (0.0, [])
    assert [path.name for path in tmp_path.glob("*/*")] == [jit.cache_folder().name]


def compiling(function):
    """Return the event of numba starting to compile a function."""
    return Event("numba:compile", EventStatus.START, {"dispatcher": numba.njit(function), "args": ()})


@compiles
def test_the_notice_is_printed_once_after_a_second_of_compiling_in_the_main_process(monkeypatch, capsys):
    def theirs():
        return 0

    def ours():
        return 1

    ours.__module__ = "peakrl.kernels.some"
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def compiled(notice, function, seconds):
        """Compile a function that compiles another one; return what is printed."""
        for passed, step in ((seconds / 2, notice.on_start), (0.0, notice.on_start), (seconds / 2, notice.on_end)):
            step(compiling(function))
            now[0] += passed
        notice.on_end(compiling(function))
        now[0] += 60.0
        return capsys.readouterr().err

    notice, worker = jit.CompileNotice(), jit.CompileNotice()
    shown = [compiled(notice, *each) for each in ((theirs, 9.0), (ours, 0.4), (ours, 0.5), (ours, 0.4), (ours, 9.0))]
    assert shown == ["", "", "", f"{jit.COMPILING}\n", ""]
    monkeypatch.setattr(multiprocessing.current_process(), "name", "LokyProcess-1")
    assert compiled(worker, ours, 9.0) == ""


def test_with_the_jit_off_the_same_numbers_are_drawn_without_a_warning(tmp_path):
    assert draw(tmp_path, NUMBA_DISABLE_JIT="1") == (uniform(seed_state(1)), [])
