"""Forged UMB files: a PeakError, or the model that a naive reader finds in them."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import random
import struct
import tarfile
import warnings
from copy import deepcopy

import pytest

from helpers.random_problems import random_problem
from helpers.storm_models import FOLDER
from helpers.umb_files import archive_of, unrolled
from naive.umb import archive_files, naive_model
from peakrl import PeakError, compile_model, read_umb, write_umb

EXTREMES = [
    0, 1, -1, 2, 3, 63, 64, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, 1e400, math.nan,
    True, None, "", "x", "bool", "double", "rational", "uint", "int", "states", "choices", "branches", "peakrl", "../x",
    "\ud800", [], {}, [[1]], {"type": "double"}, {"type": "rational", "size": 256}, ["states", "choices", "branches"],
    [None] * 3,
]  # fmt: skip
#: Doubles that are 1, 0.5, -1, infinite, not a number and too large.
DOUBLES = [0x3FF << 52, 0x3FE << 52, 0xBFF << 52, 0x7FF << 52, 0x7FF8 << 48, 0x463 << 52]
WORDS = [0, 1, 2, 3, 7, 8, 1000, 2**31 - 1, 2**31, 2**52, 2**63 - 1, 2**63, 2**64 - 1, *DOUBLES]


def bases(folder):
    """Return the files of some good archives, each with labels and a reward to ask for."""
    files = []
    for seed, stationary in ((8, False), (9, True)):
        problem = random_problem(seed, states=3, actions=2, horizon=3, stationary=stationary, outcome_payoffs=True)
        own = archive_files(write_umb(compile_model(problem), folder / "own.umb").read_bytes())
        files += [(own, [], None), (by_another_tool(own), [], None)]
    for name, label, reward in (
        ("../mdp", "g", "r"), ("machine", "bad", "earned"), ("battery", "bad", "sent"), ("jobs", "bad", "done"),
        ("die", "bad", "flips"),
    ):  # fmt: skip
        files.append((archive_files((FOLDER / f"{name}.umb").read_bytes()), [label], reward))
    return [*files, (as_fractions(files[4][0]), ["g"], "r")]


def by_another_tool(files):
    """Return the files of one of our models without the model itself."""
    index = json.loads(files["index.json"])
    index["file-data"]["tool"] = "another"
    return {name: data for name, data in files.items() if name != "peakrl/model"} | {
        "index.json": json.dumps(index).encode()
    }


def as_fractions(files):
    """Return the files of a model with fractions in place of doubles."""
    files, index = dict(files), json.loads(files["index.json"])
    kind = {"type": "rational", "size": 256}
    index["transition-system"]["branch-probability-type"] = kind
    index["annotations"]["rewards"]["r"]["type"] = kind
    for name in ("branch-to-probability.bin", "annotations/rewards/r/choices/values.bin"):
        numbers = [number.as_integer_ratio() for (number,) in struct.iter_unpack("<d", files[name])]
        files[name] = b"".join(part.to_bytes(16, "little", signed=True) for pair in numbers for part in pair)
    return files | {"index.json": json.dumps(index).encode()}


def forge(rng, files):
    """Return a forged archive."""
    files = dict(files)
    index = json.loads(files["index.json"])
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.4:
            forge_json(rng, index)
        else:
            forge_file(rng, files)
    if "index.json" in files and rng.random() < 0.95:
        text = json.dumps(index)
        files["index.json"] = (text if rng.random() < 0.95 else text.replace("{", "{" + "[" * 5000, 1)).encode()
    names = list(files.items())
    if rng.random() < 0.1:
        rng.shuffle(names)
    if names and rng.random() < 0.05:
        names.append(rng.choice(names))
    data = bytearray(archive_of(names))
    if rng.random() < 0.3:
        forge_bytes(rng, data)
    packed = rng.choice([bytes, bytes, bytes, gzip.compress, lzma.compress])(bytes(data))
    if packed[:2] != bytes(data[:2]) and rng.random() < 0.3:
        packed = bytearray(packed)
        packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    return bytes(packed)


def forge_json(rng, value):
    """Change, remove or add something somewhere in the index."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.85:
            value = value[key]
            continue
        kind = rng.random()
        if kind < 0.15:
            del value[key]
        elif kind < 0.5 and isinstance(value[key], int):
            value[key] += rng.choice([-2, -1, 1, 2])
        else:
            value[key] = deepcopy(rng.choice(EXTREMES))
        return


def forge_file(rng, files):
    """Change one of the arrays."""
    name, kind = rng.choice(list(files)), rng.random()
    data = bytearray(files[name])
    if kind < 0.6 and len(data) >= 8:
        at = rng.randrange(len(data) // 8) * 8
        old = int.from_bytes(data[at : at + 8], "little")
        new = rng.choice([*WORDS, old + 1, old - 1, old ^ 1 << rng.randrange(64)]) % 2**64
        data[at : at + 8] = new.to_bytes(8, "little")
    elif kind < 0.7:
        del data[rng.randrange(len(data) + 1) :]
    elif kind < 0.75:
        data += rng.randbytes(rng.choice([1, 8, 64]))
    elif kind < 0.8:
        data[:] = rng.randbytes(len(data))
    elif kind < 0.9:
        del files[name]
        return
    else:
        files[rng.choice([*files, "./" + name, "x/" + name])] = bytes(data)
        return
    files[name] = bytes(data)


def forge_bytes(rng, data):
    """Change the archive: its headers with or without a correct checksum, or anything."""
    at = rng.randrange(len(data) // 512) * 512
    kind = rng.random()
    if kind < 0.3:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind < 0.4:
        del data[rng.randrange(len(data)) :]
    else:
        field = rng.choice([(0, 100), (124, 136), (124, 136), (156, 157), (257, 263), (345, 500)])
        size = rng.choice([b"%011o\0" % rng.choice([0, 1, 8, 511, 512, 2**33 - 1]), b"\x80" + b"\0" * 3 + b"\xff" * 8,
                           b"\xff" * 12, b"\x80" + bytes(10) + b"\x08", b"9" * 12, b"-1" + bytes(10)])  # fmt: skip
        other = rng.choice([rng.randbytes(field[1] - field[0]), rng.choice(b"057LKxgSVD12").to_bytes()])
        new = size if field == (124, 136) else other[: field[1] - field[0]]
        data[at + field[0] : at + field[0] + len(new)] = new
        if rng.random() < 0.8:
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])


def try_forgeries(numbers, folder):
    """Return how many of the forged files were refused and read."""
    originals, counts, path = bases(folder), {"refused": 0, "read": 0}, folder / "forged.umb"
    own = [files for files, *_ in originals if "peakrl/model" in files]
    for number in numbers:
        rng = random.Random(number)
        files, labels, reward = rng.choice(originals)
        data = forge(rng, files)
        path.write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # constraint values that may be rounding
                model = read_umb(path, labels, reward)
        except PeakError as error:
            counts["refused"] += str(path) in str(error)
            continue
        counts["read"] += 1
        found = archive_files(data)
        if json.loads(found["index.json"]).get("file-data", {}).get("tool") == "peakrl":  # only what was written
            assert {**found, **next(files for files in own if files["index.json"] == found["index.json"])} == found
            continue
        table, actions = naive_model(data, labels, reward)
        assert unrolled(model) == table, number
        assert [[model.action_of_row(row) for row in model.rows_of_slot(s)] for s in range(len(table))] == actions, (
            number
        )
    return counts


def test_a_forged_file_is_refused_or_read_as_what_it_says(tmp_path):
    counts = try_forgeries(range(200), tmp_path)
    assert min(counts.values()) > 20
    assert sum(counts.values()) == 200


@pytest.mark.slow
def test_twenty_thousand_forged_files_are_refused_or_read_as_what_they_say(tmp_path):
    counts = try_forgeries(range(200, 20_200), tmp_path)
    assert min(counts.values()) > 2000
    assert sum(counts.values()) == 20_000


def test_a_header_that_claims_a_negative_size_is_refused(tmp_path):
    info = tarfile.TarInfo("index.json")
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[124:136] = b"\xff" * 12
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head[:512])
    (tmp_path / "x.umb").write_bytes(bytes(head) * 3)
    with pytest.raises(PeakError, match="bytes"):
        read_umb(tmp_path / "x.umb")
