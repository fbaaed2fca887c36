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
from peakrl.sweeps.store import MARKER, Result, Store, Task
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
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(tmp_path / "precious")
    elif what == "link to nowhere":
        path.symlink_to("nowhere")
    else:
        path.write_text(what)


# Folders of results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["pipe", "folder", DEEP])
def test_descriptions_of_a_folder_that_are_none_are_refused_at_once(what, store, tmp_path):
    (store.folder / "names").mkdir()
    put(store.folder / "names" / "x", what, tmp_path)
    with pytest.raises(StorageError, match="names/x"):
        store.kept_names()
    put(store.folder / MARKER, what, tmp_path)
    for ask in (lambda: Store.open(store.folder), lambda: read_records(store.folder)):
        with pytest.raises(StorageError, match="peakrl-results"):
            ask()


def test_folders_of_a_folder_that_are_links_are_neither_written_to_nor_emptied(store, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / TASK.key).write_text("years of work")
    for place in (store.folder / "names", store.path(TASK.key).parent):
        place.symlink_to(tmp_path / "home")
    deeds = [
        lambda: store.keep_names({"name": "x", "problems": {}, "settings": {}}),
        lambda: store.write(Result(TASK, {"value": 1.0}, {}, 0.1)),
        lambda: store.put(TASK.key, b"result"),
    ]
    for deed in deeds:
        with pytest.raises(StorageError, match="is a link"):
            deed()
    assert [path.name for path in (tmp_path / "home").iterdir()] == [TASK.key]
    assert (tmp_path / "home" / TASK.key).read_text() == "years of work"


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


@pytest.mark.parametrize("name", ["run", "n" * 255])
def test_a_run_that_is_overwritten_costs_no_other_file_and_comes_back(name, tmp_path):
    path, link = tmp_path / name, tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    with set_aside(link):
        assert not path.exists()
        assert link.is_symlink()
    assert path.read_text() == link.read_text() == "old"
    with set_aside(link):
        storage.write_file(link, b"new")
    assert (path.read_text(), link.is_symlink()) == ("new", True)
    aside = tmp_path / f"{name[:60]}.before"
    aside.write_text("years of work")
    with pytest.raises(StorageError, match="already exists"), set_aside(path):
        pass
    assert (path.read_text(), aside.read_text()) == ("new", "years of work")
