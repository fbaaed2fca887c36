"""Records: arrays that differ from their declaration are refused, and records may contain records."""

import numpy as np
import pytest

from peakrl.errors import ProblemError, StorageError
from peakrl.records import Field, FileKind, Record, write_record

KIND = FileKind("test record", schema=3, remedy="make it again")
FIELDS = {
    "start": Field(np.int64, "slot", splits="row"),
    "action": Field(np.int32, "row", below="action"),
    "next": Field(np.int32, "row", below="slot"),
    "ends": Field(np.int64, ("step", 2)),
    "chance": Field(np.float64, "row", low=0, high=1),
}
GOOD = {
    "start": np.array([0, 2, 3]),
    "action": np.array([0, 1, 4], np.int32),
    "next": np.array([1, 0, 1], np.int32),
    "ends": np.array([[0, 2], [0, 2], [0, 2]]),
    "chance": np.array([0.0, 0.5, 1.0]),
}
SIZES = {"action": 5, "step": 3}


def checked(**changes):
    return Record({}, GOOD | changes).checked(FIELDS, **SIZES)


def test_arrays_that_are_as_declared_come_back_read_only():
    for name, array in checked().items():
        assert np.array_equal(array, GOOD[name])
        assert not array.flags.writeable


DIFFERENT = [
    ("start", np.array([0, 2]), r"'next'|'action'|start"),
    ("start", np.array([0, 3, 2]), "start does not divide"),
    ("start", np.array([1, 2, 3]), "start does not divide"),
    ("start", np.array([0, 3, 2, 3]), "start does not divide"),
    ("start", np.zeros(0, np.int64), "'start' is int64 of shape"),
    ("action", np.array([0, 1, 5], np.int32), "action holds numbers from 0 to 5; indices of action are 0 to 4"),
    ("action", np.array([0, -1, 4], np.int32), "action holds numbers from -1 to 4"),
    ("action", np.array([0, 1, 4]), r"'action' is int64 .* not int32"),
    ("next", np.array([1, 0, 2], np.int32), "indices of slot are 0 to 1"),
    ("next", np.array([1, 0], np.int32), r"'next' is int32 of shape \(2,\), not int32 of \(row 3\)"),
    ("ends", np.zeros((2, 2), np.int64), r"not int64 of \(step 3, 2\)"),
    ("ends", np.zeros((3, 3), np.int64), r"not int64 of \(step 3, 2\)"),
    ("ends", np.zeros(3, np.int64), "'ends' is int64"),
    ("chance", np.array([0.0, 0.5, 1.5]), "chance holds numbers from 0.0 to 1.5"),
    ("chance", np.array([0.0, np.nan, 1.0]), "chance holds numbers"),
]


def test_an_array_that_differs_from_its_declaration_is_named():
    for name, array, words in DIFFERENT:
        with pytest.raises(ValueError, match=words):
            checked(**{name: array})


def test_a_record_inside_of_a_record_comes_back(tmp_path):
    inner = Record({"name": "inner"}, {"x": np.arange(3)})
    inner.add("deep", Record({}, {"y": np.zeros(2)}))
    outer = Record({"number": 7}, {"x": np.ones(1)})
    outer.add("inner", inner)
    KIND.write(tmp_path / "file", outer)
    with KIND.reading(tmp_path / "file") as found:
        assert found.plain["number"] == 7
        assert found.part("inner").plain["name"] == "inner"
        assert found.part("inner").arrays["x"].tolist() == [0, 1, 2]
        assert found.part("inner").part("deep").arrays["y"].tolist() == [0, 0]
        assert found.part("missing") == Record()


@pytest.mark.parametrize("error", [KeyError("rows"), ValueError("rows"), TypeError("rows"), ProblemError("rows")])
def test_what_a_reader_finds_wrong_is_a_storage_error_that_names_the_file(error, tmp_path):
    KIND.write(tmp_path / "file", Record())
    with pytest.raises(StorageError, match=r"file is damaged: .*rows"), KIND.reading(tmp_path / "file"):
        raise error


def test_a_file_of_another_version_or_kind_is_refused(tmp_path):
    KIND._replace(schema=2).write(tmp_path / "file", Record())
    with pytest.raises(StorageError, match=r"written by peakrl .* \(schema 2\), .* schema 3: make it again"):
        KIND.reading(tmp_path / "file").__enter__()
    with pytest.raises(StorageError, match="holds a 'test record', not a 'other'"):
        FileKind("other").reading(tmp_path / "file").__enter__()
    write_record(tmp_path / "file", KIND.name, {}, {})
    with pytest.raises(StorageError, match="it lacks 'schema'"):
        KIND.reading(tmp_path / "file").__enter__()
