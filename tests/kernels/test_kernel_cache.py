"""Compiled kernels: old folders go when a new one is made, and nothing else does; compiling is announced."""

import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest
from numba.core.event import Event, EventStatus

import compile_log
from peakrl.kernels import jit
from peakrl.kernels.dirichlet import draw_normal
from peakrl.kernels.jit import DAY, Announcer, note_use, remove_old_folders, source_digest
from peakrl.kernels.sampling import seed_state, uniform

NEW, OLD = "0" * 20, "1" * 20
compiles = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled with the JIT off")


def folder(root, name, days):
    made = root / name
    made.mkdir()
    (made / "kernel.nbc").write_bytes(b"code")
    os.utime(made, (time.time() - days * DAY,) * 2)
    return made


def test_only_old_folders_of_the_same_kernel_file_go(tmp_path):
    current = folder(tmp_path, f"curve-{NEW}", 90)
    old, recent = folder(tmp_path, f"curve-{OLD}", 40), folder(tmp_path, f"curve-{'2' * 20}", 20)
    others = [folder(tmp_path, name, 400) for name in (f"curve_tables-{OLD}", "curve-notes", f"my-curve-{OLD}")]
    remove_old_folders(current)
    assert not old.exists()
    assert all(kept.exists() for kept in (current, recent, *others))


def test_using_a_folder_keeps_it(tmp_path):
    used, current = folder(tmp_path, f"curve-{OLD}", 40), folder(tmp_path, f"curve-{NEW}", 0)
    note_use(used)
    remove_old_folders(current)
    assert used.exists()


def test_nothing_fails_where_folders_vanish_or_cannot_be_read(tmp_path):
    note_use(tmp_path / "missing")
    remove_old_folders(tmp_path / "missing" / f"curve-{NEW}")
    (tmp_path / f"curve-{OLD}").symlink_to(tmp_path / "elsewhere")
    remove_old_folders(folder(tmp_path, f"curve-{NEW}", 0))
    assert (tmp_path / f"curve-{OLD}").is_symlink()


def test_several_at_once_do_not_disturb_each_other(tmp_path):
    current = folder(tmp_path, f"curve-{NEW}", 0)
    for number in range(50):
        folder(tmp_path, f"curve-{number:020x}", 40) if number else None
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remove_old_folders, [current] * 8))
    assert [p.name for p in tmp_path.iterdir()] == [current.name]


@compiles
def test_a_process_that_makes_a_new_folder_clears_up(tmp_path):
    root = tmp_path / "peakrl"
    root.mkdir()
    old = folder(root, f"sampling-{OLD}", 40)
    script = "import peakrl.kernels.sampling as s; print(s.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not old.exists()
    assert (root / f"sampling-{source_digest(done.stdout.strip())}").is_dir()


def compiling(function):
    """What numba tells when it begins to compile a function."""
    return Event("numba:compile", EventStatus.START, {"dispatcher": numba.njit(function), "args": ()})


@compiles
def test_compiling_our_kernels_is_announced_to_people_once_until_there_was_a_pause(monkeypatch, capsys):
    def theirs():
        return 0

    def ours():
        return 1

    ours.__module__ = "peakrl.kernels.some"
    monkeypatch.delenv(jit.COMPILE_LOG, raising=False)
    announcer = Announcer()
    with monkeypatch.context() as worker:
        worker.setattr(multiprocessing.current_process(), "name", "LokyProcess-1")
        announcer.on_start(compiling(ours))
    assert capsys.readouterr().err == ""  # of a worker nobody wants to know
    announcer.on_start(compiling(theirs))
    assert capsys.readouterr().err == ""
    announcer.on_start(compiling(ours))
    announcer.on_start(compiling(ours))
    assert capsys.readouterr().err == f"{jit.COMPILING}\n"
    announcer.last -= 60.0  # a minute later, a long kernel is done and the next one begun
    announcer.on_end(compiling(ours))
    announcer.on_start(compiling(ours))
    assert capsys.readouterr().err == ""
    announcer.last -= 60.0
    announcer.on_start(compiling(ours))
    assert capsys.readouterr().err == f"{jit.COMPILING}\n"


@compiles
def test_who_reads_our_errors_hears_of_compiling_and_of_kept_kernels_nothing(tmp_path):
    code = "from peakrl.kernels.sampling import seed_state, uniform; uniform(seed_state(1))"
    heard = []
    for _ in range(2):
        ours, theirs = os.pipe()
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", code], env=environment, stderr=theirs, check=True, timeout=300)
        os.write(theirs, b".")
        heard.append("")
        while not heard[-1].endswith("."):
            heard[-1] += os.read(ours, 10_000).decode()
        os.close(ours)
        os.close(theirs)
    assert [text.splitlines() for text in heard] == [[jit.COMPILING, "."], ["."]]


def test_with_the_jit_off_the_same_numbers_are_drawn_and_nothing_is_warned_of():
    code = "from peakrl.kernels.sampling import seed_state, uniform; print(uniform(seed_state(1)))"
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) == uniform(seed_state(1))


@compiles
def test_an_inner_kernel_says_so_when_python_calls_it():
    with pytest.raises(TypeError, match="draw_normal is an inner kernel"):
        draw_normal(seed_state(1))


@compiles
def test_of_two_processes_that_need_a_kernel_at_the_same_time_one_compiles_it(tmp_path):
    code = "from peakrl.kernels.sampling import seed_state, uniform; print(flush=True); input(); uniform(seed_state(1))"
    log = tmp_path / "log"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PEAKRL_COMPILE_LOG": str(log)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        process.stdout.readline()
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120)[1].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(said) == [[], [jit.COMPILING]]
    assert compile_log.summary(log) == ["1 kernels compiled, 0 twice, 0 for further argument types"]


def test_the_log_of_compiling_tells_what_was_compiled_twice_and_for_which_types(tmp_path):
    lines = ["1 home m one a", "2 home m one a", "1 home m two a", "1 home m two b", "3 other m one a"]
    log = tmp_path / "log"
    log.write_text("".join(line.replace(" ", "\t") + "\n" for line in lines))
    assert compile_log.summary(log) == [
        "5 kernels compiled, 1 twice, 1 for further argument types", "twice: m.one", "types: two 2",
    ]  # fmt: skip
