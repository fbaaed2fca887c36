"""Writing on a disk that fails at any point leaves the old file or the new one, never another."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import stat

import numpy as np
import pytest

from peakrl import certify, compile_model, learn, safe_set, solve
from peakrl.errors import StorageError
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.records import read_record, write_record
from peakrl.report.page import Page
from peakrl.storage import Disk, write_file
from peakrl.sweeps.store import Result, Store, Task
from peakrl.sweeps.summary import write_csv

NEW = b"something new"


class Crash(BaseException):
    """The machine stops. Not an Exception: nothing may catch it."""


class FailingDisk(Disk):
    """Fails at operation number `at`, after half of a write; after a crash nothing happens any more."""

    def __init__(self, at, failure):
        self.at, self.failure, self.count = at, failure, 0

    def step(self):
        self.count += 1
        if self.count - 1 == self.at or (self.failure is Crash and self.count > self.at >= 0):
            raise self.failure() if self.failure is Crash else OSError(self.failure, os.strerror(self.failure))

    def write(self, path, data):
        self.step()
        path.write_bytes(data[: len(data) // 2])
        self.step()
        super().write(path, data)

    def rename(self, path, target):
        self.step()
        super().rename(path, target)

    def flush_folder(self, folder):
        self.step()
        super().flush_folder(folder)

    def remove(self, path):
        if self.failure is not Crash:
            super().remove(path)


def check_every_failure(write, path, monkeypatch):
    """Let `write` fail at each of its four operations; only after the third, the rename, the file is the new one."""
    write()
    new = path.read_bytes()
    old = new + b"the old file"
    for failure, at in itertools.product((Crash, errno.ENOSPC, errno.EIO), range(4)):
        path.write_bytes(old)
        monkeypatch.setattr("peakrl.storage.disk", FailingDisk(at, failure))
        raised, words = (Crash, None) if failure is Crash else (StorageError, os.strerror(failure))
        with pytest.raises(raised, match=words):
            write()
        assert path.read_bytes() == (new if at == 3 else old)
    monkeypatch.setattr("peakrl.storage.disk", disk := FailingDisk(-1, Crash))
    write()
    assert (disk.count, path.read_bytes()) == (4, new)
    monkeypatch.undo()


def test_content_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace

    def kind(number):
        return "folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file"

    monkeypatch.setattr(os, "fsync", lambda number: calls.append(kind(number)) or fsync(number))
    monkeypatch.setattr(os, "replace", lambda *names: calls.append("rename") or replace(*names))
    write_file(tmp_path / "record", NEW)
    assert calls == ["file", "rename", "folder"]


def test_a_write_that_fails_anywhere_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    """Every kind of file is written through the same few calls."""
    model = compile_model(energy_harvesting(battery=1, max_arrival=1, horizon=2))
    run, policy = learn(model, episodes=3), solve(model).policy
    certificate, layered = certify(model, policy), compile_model(scheduling_example(1))
    store, task = Store.create(tmp_path / "results"), Task("a.module:function", {"seed": 1})
    (tmp_path / "results" / "runs" / task.key[:2]).mkdir()
    writers = {
        tmp_path / "run": lambda: run.save(tmp_path / "run"),
        tmp_path / "policy": lambda: policy.save(tmp_path / "policy"),
        store.path(task.key): lambda: store.write(Result(task, {"value": 1.5}, {"curve": np.arange(3.0)}, 0.1)),
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
        check_every_failure(write, path, monkeypatch)


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
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    cases = {
        "/dev/null": "it is a device",
        "/dev/full": "it is a device",
        tmp_path / "pipe": "it is a device, a pipe",
        tmp_path / "socket": "it is a device, a pipe or a socket",
        tmp_path / ("a" * 256): "File name too long",
        tmp_path / ("a" * 100_000): "File name too long",
        tmp_path / "missing" / "record": "there is no folder",
        tmp_path / "file" / "record": "there is no folder",
        tmp_path: "it is a folder",
        tmp_path / "a\0b": "names no file",
        "": "names no file",
    }
    for place, words in cases.items():
        with pytest.raises(StorageError, match=words):
            write_file(place, NEW)
    assert (tmp_path / "file").read_bytes() == b""
