"""Runs as data: keys, digests and the folder of results."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from peakrl.errors import PeakError, StorageError, SweepError
from peakrl.records import Record
from peakrl.sweeps import store as store_module
from peakrl.sweeps.store import FOLDER, MARKER, Result, Store, Task


def make_result(**changes: object) -> Result:
    values = {"a": 1, "b": 2.5, "c": None, "d": True, "e": "text", "f": math.inf, "g": math.nan}
    arrays = {"x": np.arange(6, dtype=np.int32).reshape(2, 3), "y": np.linspace(0, 1, 3)}
    return Result(Task("m:f", {"x": 1}), {**values, **changes}, arrays)  # type: ignore[arg-type]


def test_a_key_depends_on_content_only() -> None:
    first = Task("m:f", {"a": 1, "b": [1, 2], "c": {"d": None}})
    second = Task("m:f", {"c": {"d": None}, "b": (1, 2), "a": 1})
    assert first.key == second.key
    assert first == second
    assert len({first, second}) == 1


OTHERS = [
    Task("m:g", {"a": 1}),
    Task("m:f", {"a": 2}),
    Task("m:f", {"a": 1.0}),
    Task("m:f", {"a": "1"}),
    Task("m:f", {}),
]


def test_any_change_of_content_changes_the_key() -> None:
    for other in OTHERS:
        assert other.key != Task("m:f", {"a": 1}).key


@pytest.mark.parametrize("name", ["kernel_digest", "RESULT_SCHEMA"])
def test_other_kernels_or_another_schema_change_every_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Task("m:f", {"a": 1}).key
    monkeypatch.setattr(store_module, name, (lambda: "other") if name == "kernel_digest" else 99)
    assert Task("m:f", {"a": 1}).key != before


NOT_PLAIN = [
    ({"a": {"b": [1, object()]}}, r"config of m:f\.a\.b\[1\]"),
    ({"a": math.nan}, r"config of m:f\.a is nan"),
    ({"a": {1, 2}}, r"config of m:f\.a"),
    ({1: 2}, r"config of m:f is \{1: 2\}"),
]


def test_a_configuration_that_is_not_plain_json_is_refused_by_name() -> None:
    for config, culprit in NOT_PLAIN:
        with pytest.raises(PeakError, match=culprit):
            Task("m:f", config)


NAMES = ["", "module", ":f", "m:"]


def test_a_function_needs_a_module_and_a_name() -> None:
    for name in NAMES:
        with pytest.raises(SweepError, match="module:name"):
            Task(name, {})


def test_a_stored_result_comes_back_as_it_was(tmp_path: Path) -> None:
    store, result = Store.create(tmp_path), make_result()
    store.write(replace(result, seconds=1.25))
    read = store.read(result.task.key)
    assert read.digest == result.digest
    assert read.seconds == 1.25
    assert read.task == result.task
    assert read.arrays["x"].dtype == np.int32
    assert math.isnan(read.values.pop("g"))
    assert read.values == {name: value for name, value in result.values.items() if name != "g"}
    assert store.keys() == {result.task.key}


def test_a_digest_tells_results_apart_but_not_how_long_they_took() -> None:
    result = make_result()
    assert Result(result.task, result.values, result.arrays, seconds=9.0).digest == result.digest
    wider = {"x": result.arrays["x"].astype(np.int64), "y": result.arrays["y"]}
    turned = {"x": result.arrays["x"].reshape(3, 2), "y": result.arrays["y"]}
    others = [make_result(a=2), make_result(a=1.0), Result(result.task, result.values, wider)]
    others.append(Result(result.task, result.values, turned))
    assert len({result.digest, *(other.digest for other in others)}) == 5


def test_scalars_and_arrays_are_told_apart() -> None:
    returned = {"a": np.float64(2), "b": np.array(3), "c": np.ones(2), "d": None}
    result = Result.of(Task("m:f", {}), returned, 1.0)
    assert result.values == {"a": 2.0, "b": 3, "d": None}
    assert type(result.values["a"]) is float
    assert list(result.arrays) == ["c"]


def test_a_folder_of_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    Store.create(tmp_path)
    FOLDER._replace(schema=99).write(tmp_path / MARKER, Record({}, {}))
    for make in (Store.create, Store.open):
        with pytest.raises(StorageError, match=r"schema 99.*this peakrl reads schema 1: use another folder"):
            make(tmp_path)


def test_a_folder_without_results_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a folder of results"):
        Store.open(tmp_path)


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    store, result = Store.create(tmp_path), make_result()
    store.write(result)
    path = store.path(result.task.key)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match=f"{path.name} is damaged.*remove the file"):
        store.read(result.task.key)
