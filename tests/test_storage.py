import json
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from peakrl import PeakError
from peakrl.errors import StorageError
from peakrl.records import fields_of, read_record, write_record
from peakrl.storage import write_file

KIND = "test record"
MANIFEST = {"episodes": 12, "name": "näme", "nested": {"a": [1, 2.5, None, True]}}
ARRAYS = {"floats": np.array([1.5, -0.0, np.nan, np.inf]), "table": np.arange(6, dtype=np.int32).reshape(2, 3)}


def written(folder):
    path = folder / "record"
    write_record(path, KIND, MANIFEST, ARRAYS)
    return path


def test_a_record_comes_back_as_it_was(tmp_path):
    manifest, arrays = read_record(written(tmp_path), KIND)
    assert manifest == {"kind": KIND, **MANIFEST}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()


def test_arrays_are_read_in_the_order_of_their_names(tmp_path):
    """Safetensors hands them out in another order in each process: whoever walks them would not be repeatable."""
    names = [f"{letter}{number}" for letter in "cab" for number in range(5)]
    write_record(tmp_path / "record", KIND, {}, {name: np.zeros(1) for name in names})
    assert list(read_record(tmp_path / "record", KIND)[1]) == sorted(names)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
kept_types = st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.int8, np.uint64, np.bool_])


@settings(max_examples=50)
@given(
    st.dictionaries(st.text().filter(lambda name: name != "kind"), json_values, max_size=3),
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st_numpy.arrays(kept_types, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0)),
        max_size=3,
    ),
)
def test_any_plain_manifest_and_any_arrays_come_back_as_they_were(tmp_path_factory, manifest, arrays):
    path = tmp_path_factory.mktemp("records") / "record"
    write_record(path, KIND, manifest, arrays)
    manifest_back, arrays_back = read_record(path, KIND)
    assert manifest_back == {"kind": KIND, **manifest}
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays_back.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()
    }


def test_equal_records_are_equal_files(tmp_path):
    first = written(tmp_path).read_bytes()
    write_record(tmp_path / "again", KIND, dict(reversed(MANIFEST.items())), ARRAYS)
    assert (tmp_path / "again").read_bytes() == first


def test_a_flipped_bit_in_any_byte_is_noticed(tmp_path):
    path = written(tmp_path)
    data = path.read_bytes()
    for position in range(len(data)):
        spoilt = bytearray(data)
        spoilt[position] ^= 1 << position % 8
        path.write_bytes(spoilt)
        with pytest.raises(StorageError, match="record"):
            read_record(path, KIND)


def test_every_truncation_and_any_addition_is_noticed(tmp_path):
    path = written(tmp_path)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(StorageError):
            read_record(path, KIND)
    path.write_bytes(data + b"\0")
    with pytest.raises(StorageError, match="damaged"):
        read_record(path, KIND)


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    path = written(tmp_path)
    data = path.read_bytes()
    with pytest.raises(StorageError, match="holds a 'test record', not a 'policy'"):
        read_record(path, "policy")
    path.write_bytes(data.replace(b"peakrl 1\n", b"peakrl 2\n", 1))
    with pytest.raises(StorageError, match="format version '2'; this peakrl reads version 1"):
        read_record(path, KIND)
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(StorageError, match="is not a peakrl file"):
        read_record(path, KIND)
    with pytest.raises(StorageError, match=r"cannot read .*missing"):
        read_record(tmp_path / "missing", KIND)
    with pytest.raises(StorageError, match="cannot read"):
        read_record(tmp_path, KIND)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from([b"", b"peakrl 1\n", b"peakrl 9\n"]))
def test_any_bytes_at_all_give_a_peak_error(tmp_path_factory, content, head):
    path = tmp_path_factory.mktemp("noise") / "record"
    path.write_bytes(head + content)
    with pytest.raises(PeakError):
        read_record(path, KIND)


def with_digest(body):
    """A file whose digest is right, whatever it holds: not damage, but another program's doing."""
    import hashlib

    return b"peakrl 1\n" + hashlib.blake2b(body, digest_size=32).hexdigest().encode() + b"\n" + body


@settings(max_examples=300)
@given(
    st.one_of(json_values.map(lambda value: json.dumps(value).encode()), st.binary(max_size=40)), st.binary(max_size=80)
)
def test_a_right_digest_over_wrong_content_gives_a_peak_error(tmp_path_factory, head, payload):
    path = tmp_path_factory.mktemp("crafted") / "record"
    path.write_bytes(with_digest(head + b"\n" + payload))
    with pytest.raises(PeakError):
        read_record(path, KIND)


def test_a_manifest_nested_without_end_gives_a_peak_error(tmp_path):
    path = tmp_path / "record"
    path.write_bytes(with_digest(b"[" * 200_000 + b"\n"))
    with pytest.raises(StorageError):
        read_record(path, KIND)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "C64", "nonsense"])
def test_arrays_of_a_type_that_we_do_not_write_give_a_peak_error(tmp_path, kind):
    header = json.dumps({"a": {"dtype": kind, "shape": [1], "data_offsets": [0, 2]}}).encode()
    payload = len(header).to_bytes(8, "little") + header + b"\0\0"
    path = tmp_path / "record"
    path.write_bytes(with_digest(json.dumps({"kind": KIND}).encode() + b"\n" + payload))
    with pytest.raises(StorageError):
        read_record(path, KIND)


def test_a_description_that_is_not_plain_json_is_refused_and_nothing_written(tmp_path):
    for bad in ({"a": np.nan}, {"a": {1, 2}}, {"a": b"bytes"}, {"a": np.float64(1.0).astype(complex)}):
        with pytest.raises(StorageError, match="not plain JSON"):
            write_record(tmp_path / "record", KIND, bad, {})
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_objects_are_refused_and_nothing_written(tmp_path):
    with pytest.raises(StorageError, match="cannot write"):
        write_record(tmp_path / "record", KIND, {}, {"a": np.array([object()])})
    assert list(tmp_path.iterdir()) == []


# --- Writing ---------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_is_named_and_the_old_one_stays(tmp_path, monkeypatch):
    path = tmp_path / "record"
    write_file(path, b"old")
    for place in (tmp_path / "no folder" / "record", tmp_path, "", "a\0b"):
        with pytest.raises(StorageError, match="cannot write"):
            write_file(place, b"new")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["record"]


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path):
    """The child stops for ever where the new bytes are on disk but not yet in place, and is killed there."""
    path = tmp_path / "record"
    write_file(path, b"old")
    script = (
        "import os, sys, time\n"
        "from peakrl.storage import write_file\n"
        "def wait(*_):\n"
        "    print('written', flush=True)\n"
        "    time.sleep(60)\n"
        "os.replace = wait\n"
        "write_file(sys.argv[1], b'new')\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "written\n"
    (leftover,) = tmp_path.glob(".record.*.tmp")
    assert leftover.read_bytes() == b"new"
    write_file(path, b"of another process")
    child.kill()
    child.wait()
    child.stdout.close()
    assert path.read_bytes() == b"of another process"


def test_threads_may_write_one_file_at_the_same_time(tmp_path):
    path, contents = tmp_path / "record", [bytes([letter]) * 100_000 for letter in b"abcd"]

    def write(content):
        for _ in range(25):
            write_file(path, content)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, contents))
    assert path.read_bytes() in contents
    assert [p.name for p in tmp_path.iterdir()] == ["record"]


def test_a_missing_field_or_one_of_another_form_is_named_with_its_file():
    for broken in (lambda: {}["episodes"], lambda: int(None), lambda: int("many"), lambda: [][0]):
        with pytest.raises(StorageError, match=r"run\.bin lacks a field"), fields_of("run.bin"):
            broken()
    with pytest.raises(StorageError, match="own words"), fields_of("run.bin"):
        raise StorageError("own words")


def test_reading_takes_twice_the_size_of_a_file_at_most_and_keeps_it_once(tmp_path):
    size = 8_000_000
    write_record(tmp_path / "large", KIND, {}, {"numbers": np.arange(size // 8)})
    tracemalloc.start()
    try:
        _, arrays = read_record(tmp_path / "large", KIND)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert arrays["numbers"][-1] == size // 8 - 1
    assert peak < 2.1 * size
    assert kept < 1.1 * size
