"""Writing on a disk that fails at any point leaves the old file or the new one, never another."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from failing_disk import Crash, FailingDisk, broken, full
from peakrl import (
    certify,
    compile_model,
    energy_harvesting,
    learn,
    load_policy,
    load_run,
    safe_set,
    scheduling_example,
    solve,
    storage,
    verify,
)
from peakrl.errors import StorageError
from peakrl.problem_files import read_problem_file
from peakrl.report.page import Page
from peakrl.runs.store import Store
from peakrl.runs.tasks import Task
from peakrl.storage import Disk, read_file, read_record, streamed_record, write_file, write_record
from peakrl.sweeps.summary import write_csv, write_parquet

OLD, NEW = b"the old file", b"something new, and longer"


def boundaries(write, files, paths, monkeypatch, failure=Crash):
    """Run `write` once for each of its boundaries on a disk that fails there, then once on a sound one."""
    for at in range(10_000):
        disk = FailingDisk(files, at=at, failure=failure)
        monkeypatch.setattr("peakrl.storage.disk", disk)
        with contextlib.suppress(Crash, StorageError):
            write()
        yield disk, disk.count <= at
        if disk.count <= at:
            return
    raise AssertionError(f"{paths} are never written")


@pytest.mark.parametrize("files", [{"record": OLD}, {}], ids=["over an old file", "where there was none"])
def test_a_crash_at_any_boundary_leaves_the_old_file_or_the_new_one(files, tmp_path, monkeypatch):
    path = tmp_path / "record"
    before = {path: OLD} if files else {}
    crashes = 0
    for disk, done in boundaries(lambda: write_file(path, NEW), before, path, monkeypatch):
        if done:
            assert disk.worlds(path) == {NEW}, "what was written is there for good"
        else:
            crashes += 1
            assert disk.worlds(path) <= {before.get(path), NEW}
    assert crashes > 8


@pytest.mark.parametrize("failure", [full, broken])
def test_a_disk_that_is_full_or_broken_at_any_boundary_leaves_the_old_file_and_says_so(failure, tmp_path, monkeypatch):
    path = tmp_path / "record"
    for at in range(10_000):
        disk = FailingDisk({path: OLD}, at=at, failure=failure())
        monkeypatch.setattr("peakrl.storage.disk", disk)
        said = ""
        try:
            write_file(path, NEW)
        except StorageError as error:
            said = str(error)
        if disk.count <= at:
            assert (said, disk.read(path)) == ("", NEW)
            return
        assert failure().strerror in said
        renamed = any(kind == "rename" for kind, _, _ in disk.changes)
        assert disk.read(path) == (NEW if renamed else OLD)
        assert disk.worlds(path) <= {OLD, NEW}
        assert list(disk.current()) == [str(path)]


class Hasty(FailingDisk):
    """Does not flush contents."""

    def flush(self, number):
        """Leave them in memory."""


class Careless(FailingDisk):
    """Does not flush folders."""

    def flush_folder(self, folder):
        """Leave its names in memory."""


@pytest.mark.parametrize("kind", [Hasty, Careless])
def test_the_simulation_notices_what_is_not_flushed(kind, tmp_path, monkeypatch):
    path = tmp_path / "record"
    disk = kind({path: OLD})
    monkeypatch.setattr("peakrl.storage.disk", disk)
    write_file(path, NEW)
    assert disk.worlds(path) != {NEW}


def test_records_runs_policies_and_results_are_the_old_ones_or_the_new_ones(tmp_path, monkeypatch):
    """Each kind of file that we write is written through the same few calls: a crash never mixes two."""
    model = compile_model(energy_harvesting(battery=1, max_arrival=1, horizon=2))
    run, policy = learn(model, episodes=3), solve(model).policy
    certificate, layered = certify(model, policy), compile_model(scheduling_example(1))
    store, task = Store.create(tmp_path / "results"), Task("a.module:function", {"seed": 1})
    (tmp_path / "results" / "runs" / task.key[:2]).mkdir()
    writers = {
        tmp_path / "run": lambda: run.save(tmp_path / "run"),
        tmp_path / "policy": lambda: policy.save(tmp_path / "policy"),
        store.path(task.key): lambda: store.write(task, {"value": 1.5}, {"curve": np.arange(3.0)}, 0.1),
        tmp_path / "table.csv": lambda: policy.to_csv(tmp_path / "table.csv"),
        tmp_path / "model": lambda: model.save(tmp_path / "model"),
        tmp_path / "safe": lambda: safe_set(model).save(tmp_path / "safe"),
        tmp_path / "certificate": lambda: certificate.save(tmp_path / "certificate"),
        tmp_path / "policy.h": lambda: policy.to_c(tmp_path / "policy.h"),
        tmp_path / "runs.csv": lambda: write_csv([{"value": 1.0}], tmp_path / "runs.csv"),
        tmp_path / "planned": lambda: solve(layered, policy_file=tmp_path / "planned"),
        tmp_path / "page.html": lambda: Page("title", "subject", []).write(tmp_path / "page.html"),
    }
    for path, write in writers.items():
        monkeypatch.setattr("peakrl.storage.disk", Disk())
        write()
        new = path.read_bytes()
        monkeypatch.setattr("failing_disk.BLOCK", max(5000, len(new) // 5))
        for disk, done in boundaries(write, {path: OLD}, path, monkeypatch):
            assert disk.worlds(path) <= {new} if done else disk.worlds(path) <= {OLD, new}
        failed = FailingDisk({path: OLD}, at=1, failure=full())
        monkeypatch.setattr("peakrl.storage.disk", failed)
        with pytest.raises(StorageError, match="No space left"):
            write()
        assert failed.read(path) == OLD
    assert load_run(tmp_path / "run").episodes == 3


def test_a_record_that_is_filled_on_disk_is_the_old_one_or_the_new_one(tmp_path, monkeypatch):
    """Crashes while it is filled as well, in any order: what is mapped reaches the disk when it likes."""
    path, numbers = tmp_path / "record", np.arange(40, dtype=np.uint16).reshape(5, 8)

    def write():
        with streamed_record(path, "kind", {"a": 1}, "numbers", numbers.shape, numbers.dtype) as room:
            for line in (3, 0, 4, 1, 2):
                room[line] = numbers[line]
                getattr(storage.disk, "step", int)()

    monkeypatch.setattr("failing_disk.BLOCK", 16)
    write()
    new = path.read_bytes()
    assert np.array_equal(read_record(path, "kind")[1]["numbers"], numbers)
    for before in ({path: OLD}, {}):
        crashes = 0
        for disk, done in boundaries(write, before, path, monkeypatch):
            crashes += not done
            assert disk.worlds(path) <= ({new} if done else {before.get(path), new})
        assert crashes > 8
    disk = Hasty({path: OLD})
    monkeypatch.setattr("peakrl.storage.disk", disk)
    write()
    assert disk.worlds(path) != {new}, "the simulation notices what is not flushed"


def test_a_table_for_pandas_is_the_old_one_or_the_new_one(tmp_path, monkeypatch):
    """Its writer writes a file itself: it is given a name of ours."""
    fails = True

    def write_table(table, place):
        Path(place).write_text("half" if fails else "whole")
        if fails:
            raise full()

    fakes = {"pyarrow": SimpleNamespace(Table=SimpleNamespace(from_pylist=list)), "pyarrow.parquet": SimpleNamespace()}
    fakes["pyarrow.parquet"].write_table = write_table
    monkeypatch.setattr("importlib.import_module", fakes.get)
    path = tmp_path / "runs.parquet"
    path.write_text("old")
    with pytest.raises(StorageError, match="No space left"):
        write_parquet([{"value": 1.0}], path)
    assert [(place.name, place.read_text()) for place in tmp_path.iterdir()] == [("runs.parquet", "old")]
    fails = False
    write_parquet([{"value": 1.0}], path)
    assert path.read_text() == "whole"


# Where files are written to -------------------------------------------------------------------------------------------


def test_a_file_behind_links_is_written_and_the_links_stay(tmp_path):
    (tmp_path / "there").mkdir()
    target, link, far = tmp_path / "there" / "record", tmp_path / "link", tmp_path / "far"
    link.symlink_to("there/record")
    far.symlink_to(link)
    for place in (link, far):
        write_file(place, b"through " + place.name.encode())
        assert (target.read_bytes(), target.is_symlink()) == (b"through " + place.name.encode(), False)
        assert place.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "link", "there"]
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["record"]


def test_a_name_as_long_as_a_file_system_allows_can_be_written(tmp_path):
    """255 bytes are the limit nearly everywhere; the temporary name must not be longer."""
    for name in ("a" * 255, "ä" * 127):
        write_record(tmp_path / name, "kind", {}, {})
        assert read_record(tmp_path / name, "kind")[0] == {"kind": "kind"}
    assert len(list(tmp_path.iterdir())) == 2


def test_places_that_no_file_can_be_written_to_are_refused_with_a_reason(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    cases = {
        "/dev/null": "it is a device",
        "/dev/full": "it is a device",
        tmp_path / "pipe": "it is a device, a pipe",
        tmp_path / "socket": "it is a device, a pipe or a socket",
        tmp_path / "round": "Too many levels",
        tmp_path / ("a" * 256): "File name too long",
        tmp_path / ("a" * 100_000): "File name too long",
        tmp_path / "missing" / "record": "there is no folder",
        tmp_path / "file" / "record": "Not a directory|is not a folder",
        tmp_path: "it is a folder",
        tmp_path / "a\0b": "names no file",
        "": "names no file",
        "-": "nothing is written to standard output",
    }
    for place, words in cases.items():
        with pytest.raises(StorageError, match=words):
            write_file(place, NEW)
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize("place", ["/dev/zero", "pipe", "socket"])
def test_what_never_ends_is_not_read(place, tmp_path):
    """A file of a stranger's may name it; a pipe is not waited for, and a device not read until memory is full."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    place = str(tmp_path / place)
    (tmp_path / "jobs.toml").write_text(f"[problem]\nkind = 'machine_scheduling'\njobs = '{place}'\n")
    reads = [
        lambda: read_file(place), lambda: load_run(place), lambda: load_policy(place), lambda: verify(place),
        lambda: read_problem_file(tmp_path / "jobs.toml").build(),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(StorageError, match=r"it is a device, a pipe or a socket|No such device"):
            read()
