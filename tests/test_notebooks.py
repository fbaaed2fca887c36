"""Every notebook runs from top to bottom, in a folder of its own, and is stored without outputs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    # A kernel starts in its own process: it must find this peakrl, and leave nothing in the home folder.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), *filter(None, [os.getenv("PYTHONPATH")])]))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    return tmp_path / "notebooks"


def run(notebook, folder):
    nbclient.execute(notebook, cwd=str(folder), kernel_name="python3", timeout=300)


@pytest.mark.slow  # building the documentation runs them too
@each_notebook
def test_a_notebook_runs(notebook, folder):
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    run(nbformat.read(folder / notebook.name, as_version=4), folder)


def test_a_failing_cell_fails_the_run(folder):
    folder.mkdir()
    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 + 1 == 3")])
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="AssertionError"):
        run(broken, folder)


@each_notebook
def test_a_notebook_is_stored_without_outputs(notebook):
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs"), cell["id"]
        assert cell.get("execution_count") is None, cell["id"]


def test_there_are_four_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["cartpole", "energy-harvesting", "repair-shop", "thermostat"]
