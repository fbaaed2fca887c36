"""Code that a file names: of its own folder or an installed package, nothing else."""

from __future__ import annotations

import io
import sys

import pytest

from helpers.commands import caller
from peakrl import solve, sweep
from peakrl.errors import PeakError
from peakrl.gym.export import make_environment
from peakrl.specs.user_code import load_named
from peakrl.training.spec_file import read_problem_file

PROBLEM = "[problem]\nkind = 'python'\nfunction = '{function}'\narguments = {{ {arguments} }}\n"


PYTHON = ["os:system", "subprocess:run", "builtins:exec", "shutil:rmtree", "os.path:exists"]


def test_python_itself_is_not_run_by_a_file(tmp_path):
    for named in PYTHON:
        with pytest.raises(PeakError, match="is a part of Python"):
            load_named(named, tmp_path, "function")


def test_a_problem_file_that_names_a_command_runs_nothing(tmp_path):
    mark, file = tmp_path / "mark", tmp_path / "evil.toml"
    file.write_text(PROBLEM.format(function="os:system", arguments=f'command = "touch {mark}"'))
    with pytest.raises(PeakError, match="is a part of Python"):
        read_problem_file(file).model()
    assert not mark.exists()


def test_a_file_of_the_folder_may_be_called_as_a_part_of_python_is(tmp_path):
    (tmp_path / "queue.py").write_text("def make():\n    return 7\n")
    assert load_named("queue:make", tmp_path, "function")() == 7


# What is trusted ------------------------------------------------------------------------------------------------------


MODULE = """
from pathlib import Path
from peakrl.problems import scheduling_example

Path(__file__).with_suffix(".ran").touch()

def make():
    return scheduling_example(1)
"""


def problem_file(folder, function):
    folder.mkdir(exist_ok=True)
    (folder / "problem.toml").write_text(PROBLEM.format(function=function, arguments=""))
    return folder / "problem.toml"


@pytest.mark.parametrize(
    ("function", "source"),
    [
        ("mine.py:make", "inner/mine.py"),
        ("rooms.first:make", "inner/rooms/first.py"),
        ("laboratory.models:make", "site/laboratory/models.py"),
        ("../outer.py:make", "outer.py"),
    ],
)
def test_a_file_runs_code_only_if_its_user_trusts_it(function, source, tmp_path, monkeypatch):
    file, source = problem_file(tmp_path / "inner", function), tmp_path / source
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    for trust in (False, ["."], "laboratory"):
        with pytest.raises(PeakError, match="look at it first") as caught:
            read_problem_file(file, trust=trust)
        assert f"{file} runs code (problem.function = '{function}')" in str(caught.value)
        with pytest.raises(PeakError, match="look at it first"):
            make_environment(file, trust=trust)
    assert not list(tmp_path.rglob("*.ran"))
    assert solve(read_problem_file(file, trust=True).model()).value == -1.0
    assert list(tmp_path.rglob("*.ran"))


def test_an_installed_package_is_not_given_the_files_folder_to_import_from(tmp_path, monkeypatch):
    """A package that was trusted may import what is not installed: a stranger's file of that name must not be it."""
    file = problem_file(tmp_path / "inner", "workshop:make")
    (tmp_path / "inner" / "colours.py").write_text("raise AssertionError('this ran')")
    (tmp_path / "workshop.py").write_text(f"{MODULE}\ntry:\n    import colours\nexcept ImportError:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert solve(read_problem_file(file, trust=True).model()).value == -1.0


SWEEP = """
seeds = 2
episodes = 5
points = 0
[[problems]]
name = "harmless"
kind = "scheduling_example"
number = 1
[[problems]]
name = "own"
kind = "python"
grid = { function = ["first.py:make", "second.py:make"] }
[[settings]]
name = "own"
learner = "learner.py:Own"
[[settings]]
learner = "SafeQ"
"""


def test_a_sweep_runs_no_code_unless_it_is_trusted_and_names_all_of_it(tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    for name in ("first", "second", "learner"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('this ran')")
    for dry_run in (False, True):
        with pytest.raises(PeakError, match=r"first\.py:make.*second\.py:make.*learner\.py:Own"):
            sweep(tmp_path / "sweep.toml", dry_run=dry_run)


def test_a_terminal_is_asked_and_a_script_is_refused(tmp_path, monkeypatch, capsys):
    call = caller(monkeypatch, capsys, tmp_path)
    file = problem_file(tmp_path / "inner", "mine.py:make")
    (tmp_path / "inner" / "mine.py").write_text(MODULE)

    def runs(*options, answer=None):
        for left in tmp_path.rglob("*.ran"):
            left.unlink()
        if answer is not None:
            typed = io.StringIO(answer)
            typed.isatty = lambda: True
            monkeypatch.setattr(sys, "stdin", typed)
            monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        code, _, told = call("solve", str(file), *options)
        return code, bool(list(tmp_path.rglob("*.ran"))), told

    code, ran, told = runs()
    assert (code, ran) == (2, False)
    assert "mine.py:make" in told
    assert "--trust" in told
    assert runs("--trust")[:2] == (0, True)
    assert runs(answer="n\n")[:2] == (2, False)
    assert runs(answer="\n")[:2] == (2, False)
    assert runs(answer="y\n")[:2] == (0, True)
