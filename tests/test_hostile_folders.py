"""Folders, tables and names that a stranger made: nothing of the reader's is written to, nothing is waited for."""

from __future__ import annotations

import os

import numpy as np
import pytest

from helpers.commands import caller
from peakrl import TabularModel, learn, storage, write_report
from peakrl.cli.train import set_aside
from peakrl.errors import PeakError, StorageError
from peakrl.records import kind_of
from peakrl.storage import read_file
from peakrl.sweeps.store import MARKER, Store, Task
from peakrl.sweeps.summary import read_records
from peakrl.training import load_run
from peakrl.training.spec_file import read_problem_file

DEEP = "[" * 100_000
TASK = Task("a.module:function", {"seed": 1})


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "results")


def put(path, what, tmp_path):
    """Put something in the place of a file."""
    path.unlink(missing_ok=True)
    if what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(tmp_path / "precious")
    elif what == "link to nowhere":
        path.symlink_to("nowhere")
    else:
        path.write_text(what)


# Folders of results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["folder", DEEP])
def test_descriptions_of_a_folder_that_are_none_are_refused_at_once(what, store, tmp_path):
    (store.folder / "names").mkdir()
    put(store.folder / "names" / "x", what, tmp_path)
    with pytest.raises(StorageError, match="names/x"):
        store.kept_names()
    put(store.folder / MARKER, what, tmp_path)
    for ask in (lambda: Store.open(store.folder), lambda: read_records(store.folder)):
        with pytest.raises(StorageError, match="peakrl-results"):
            ask()


def test_a_page_is_written_over_pages_only_and_through_a_link_where_that_was_asked_for(tmp_path, monkeypatch, capsys):
    """The page of a folder goes into it: whoever sent the folder must not choose which file is lost by that."""
    command = caller(monkeypatch, capsys, tmp_path)
    learn(TabularModel.from_arrays(np.ones((1, 1, 1)), np.ones((1, 1)), np.ones((1, 1, 1)), 2), episodes=2).save(
        "a.run"
    )
    (tmp_path / "precious").write_text("years of work")
    for name, source in (("a.html", "a.run"), ("report.html", ".")):
        put(tmp_path / name, "link", tmp_path)
        code, _, told = command("report", source)
        assert (code, "is a link to" in told, (tmp_path / "precious").read_text()) == (2, True, "years of work")
    code, _, told = command("report", "a.run", "--out", "a.html")
    assert (code, "is not a page of peakrl" in told) == (2, True)
    assert (tmp_path / "precious").read_text() == "years of work"
    (tmp_path / "precious").write_text("")
    for _ in range(2):  # an empty file, then a page
        assert command("report", "a.run", "--out", "a.html")[0] == 0
        assert (tmp_path / "precious").read_text().startswith("<!doctype html>")
    odd = os.fsdecode(b"odd\xff.run")  # a name that is no text is the name of a file all the same
    os.rename("a.run", odd)
    assert "Report on odd\\udcff.run" in write_report(odd, "page.html").read_text()


# Sizes that are only said ---------------------------------------------------------------------------------------------


def test_a_file_with_holes_is_not_read_into_more_memory_than_there_is(tmp_path, monkeypatch):
    path = tmp_path / "run"
    with open(path, "wb") as file:
        file.write(b"peakrl 1\n")
        file.truncate(100 << 20)
    monkeypatch.setattr(storage, "available_memory", lambda: 50e6)
    for read in (read_file, load_run, lambda path: read_problem_file(path.rename(path.with_suffix(".toml")))):
        with pytest.raises(PeakError, match=r"0\.105 GB, more than the limit of 0\.0375 GB"):
            read(path)
    assert kind_of(path.with_suffix(".toml")) is None
    with open(tmp_path / "small", "wb") as file:
        file.truncate(1 << 26)
    assert len(read_file(tmp_path / "small")) == 1 << 26


# What is overwritten --------------------------------------------------------------------------------------------------


def test_a_run_that_is_overwritten_is_kept_under_another_name(tmp_path):
    path, link = tmp_path / "run", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    set_aside(link)
    assert (path.exists(), link.is_symlink()) == (False, True)
    assert (tmp_path / "run.before").read_text() == "old"
    set_aside(link)  # nothing is there
    assert (tmp_path / "run.before").read_text() == "old"
