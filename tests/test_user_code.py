"""Code that a file names: of its own folder or an installed package, nothing else."""

from __future__ import annotations

import pytest

from peakrl.errors import PeakError
from peakrl.problem_files import read_problem_file
from peakrl.user_code import load_named

PROBLEM = "[problem]\nkind = 'python'\nfunction = '{function}'\narguments = {{ {arguments} }}\n"


@pytest.mark.parametrize("named", ["os:system", "subprocess:run", "builtins:exec", "shutil:rmtree", "os.path:exists"])
def test_python_itself_is_not_run_by_a_file(named, tmp_path):
    with pytest.raises(PeakError, match="is a part of Python"):
        load_named(named, tmp_path, "function")


def test_a_problem_file_that_names_a_command_runs_nothing(tmp_path):
    mark, file = tmp_path / "mark", tmp_path / "evil.toml"
    file.write_text(PROBLEM.format(function="os:system", arguments=f'command = "touch {mark}"'))
    with pytest.raises(PeakError, match="is a part of Python"):
        read_problem_file(file).model()
    assert not mark.exists()


def test_a_file_outside_of_the_folder_is_not_run(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "outer.py").write_text("raise AssertionError('this ran')")
    (tmp_path / "inner" / "link.py").symlink_to("../outer.py")
    for named in ("../outer.py:make", f"{tmp_path}/outer.py:make", "link.py:make"):
        with pytest.raises(PeakError, match="outside of the file's own folder"):
            load_named(named, tmp_path / "inner", "function")


def test_a_file_of_the_folder_may_be_called_as_a_part_of_python_is(tmp_path):
    (tmp_path / "queue.py").write_text("def make():\n    return 7\n")
    assert load_named("queue:make", tmp_path, "function")() == 7
