"""UMB files: what Storm says of its own, exact fractions, round trips, mistakes, and the time of reading."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
import tarfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import caller
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from helpers.storm_models import FOLDER, MODELS, STEPS, rewards
from helpers.umb_files import archive_of, unrolled
from naive.umb import archive_files, naive_model, state_labels
from peakrl import PeakError, TabularModel, compile_model, problems, read_umb, solve, write_umb

EXAMPLE = Path(__file__).parent / "mdp.umb"


def archived(path, files, *, compress=bytes):
    """Write an archive of files by name."""
    path.write_bytes(compress(archive_of(files.items())))
    return path


def changed(path, change, source=EXAMPLE):
    """Write a copy of a file after a change of its index and arrays."""
    files = archive_files(source.read_bytes())
    index = json.loads(files["index.json"])
    change(index, files)
    return archived(path, files | {"index.json": json.dumps(index).encode()})


@pytest.mark.parametrize("name", MODELS)
def test_what_storm_writes_has_storms_sizes_values_and_safe_states(name):
    told, file, reward = json.loads((FOLDER / f"{name}.json").read_text()), FOLDER / f"{name}.umb", rewards(name)[0]
    for steps in STEPS:
        most, least = (read_umb(file, horizon=steps, **{key: reward}) for key in ("reward", "cost"))
        table = unrolled(most)
        branches = [row for rows in table for row in rows]
        assert told["states"] == len(table)
        assert told["choices"] == len(branches)
        assert told["branches"] == sum(map(len, branches))
        assert told["initial"] == most.first_slot.tolist()
        np.testing.assert_allclose(solve(most).node_values[: len(table)], told["most"][str(steps)], rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            -solve(least).node_values[: len(table)], told["least"][str(steps)], rtol=0, atol=1e-9
        )
        safe = read_umb(file, "bad", reward, steps).safe.slots(0)
        assert safe.tolist() == [chance == 0.0 for chance in told["bad"][str(steps)]]


def test_an_initial_state_that_carries_the_label_is_infeasible():
    best = solve(read_umb(FOLDER / "bad_start.umb", never="bad", horizon=1))
    assert not best.feasible
    assert solve(read_umb(FOLDER / "bad_start.umb", horizon=1)).feasible


@pytest.mark.parametrize("name", ["mdp", *MODELS])
def test_the_reader_agrees_with_a_naive_one(name):
    file = EXAMPLE if name == "mdp" else FOLDER / f"{name}.umb"
    reward, never = ("r", "g") if name == "mdp" else (rewards(name)[-1], "bad")
    model = read_umb(file, never, reward, 3)
    table, actions = naive_model(file.read_bytes(), [never], reward)
    assert unrolled(model) == table
    assert list(model.state_labels) == state_labels(file.read_bytes())
    assert [[model.action_of_row(row) for row in model.rows_of_slot(s)] for s in range(len(table))] == actions


def test_without_a_horizon_the_safe_set_is_that_for_ever(tmp_path):
    for name in MODELS:
        told = json.loads((FOLDER / f"{name}.json").read_text())["ever"]
        model = read_umb(FOLDER / f"{name}.umb", "bad", rewards(name)[0])
        assert model.steps is None
        assert model.safe.slots(0).tolist() == [chance == 0.0 for chance in told]
        assert check_round_trip(model, tmp_path).steps is None


def test_the_example_of_the_specification_has_the_states_of_its_prism_source():
    model = read_umb(EXAMPLE, never="g", horizon=2)
    assert model.state_labels == [(0, False), (1, False), (2, False), (2, True)]
    assert solve(model).value == 0.0  # action b earns 1 and may reach the label
    assert solve(read_umb(EXAMPLE, horizon=2)).value == 1.0


def test_fractions_are_rounded_once(tmp_path):
    rng = np.random.default_rng(0)
    paid = [(-7, 3), (1, 1 << 63), (0, 1), (-(1 << 63), 3), (5, 7)]
    for words in (1, 2, 5):  # of 64 bits
        bottom = [int.from_bytes(rng.bytes(8 * words), "little") >> 1 | 1 for _ in range(2)]
        top = [int.from_bytes(rng.bytes(8 * words), "little") % (number // 4) for number in bottom]
        pairs = [(1, 3), (2, 3), (1, 1), (1, 1), *zip(top, bottom, strict=True)]
        pairs[5] = (bottom[0] - top[0], bottom[0])
        pairs[4] = (top[0], bottom[0])

        def fractions(index, files, words=words, pairs=pairs):
            size = {"type": "rational", "size": 128 * words}
            index["transition-system"]["branch-probability-type"] = size
            index["annotations"]["rewards"]["r"]["type"] = size
            of = [pairs[i] for i in (0, 1, 2, 4, 5, 0, 1, 2)]
            files["branch-to-probability.bin"] = as_bytes(of, words)

            files["annotations/rewards/r/choices/values.bin"] = as_bytes(paid, words)

        def structure(index, files):
            fractions(index, files)
            files["choice-to-branches.bin"] = struct.pack("<6Q", 0, 2, 3, 5, 7, 8)

        model = read_umb(changed(tmp_path / "f.umb", structure), horizon=1)
        exact = [float(Fraction(*pairs[i])) for i in (0, 1, 2, 4, 5, 0, 1, 2)]
        assert [p for rows in unrolled(model) for row in rows for p, *_ in row] == exact
        assert model.row_reward.tolist() == [float(Fraction(*pair)) for pair in paid]


def as_bytes(pairs, words):
    """Fractions in the format of UMB."""
    return b"".join(
        top.to_bytes(8 * words, "little", signed=True) + bottom.to_bytes(8 * words, "little") for top, bottom in pairs
    )


@seeds(60)
def test_a_model_and_its_file_are_restored_bit_for_bit(seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("umb")
    model = compile_model(random_problem(seed))
    check_round_trip(model, folder)


def check_round_trip(model, folder):
    own = write_umb(model, folder / "a.umb")
    read = read_umb(folder / "a.umb")
    other = read_umb(changed(folder / "other.umb", set_in("file-data", "tool", value="another"), own))
    ends = np.diff(model.row_start) == 0  # in the file, states without actions have one that leads back
    assert [[] if end else rows for rows, end in zip(unrolled(other), ends, strict=True)] == unrolled(model)
    assert other.constraint_names == model.constraint_names
    write_umb(read, folder / "b.umb")
    assert read.digest == model.digest
    assert list(read.state_labels) == list(model.state_labels)
    assert list(read.action_labels) == list(model.action_labels)
    assert (folder / "a.umb").read_bytes() == (folder / "b.umb").read_bytes()
    return read


def test_models_of_every_form_are_restored(tmp_path):
    for problem in (
        problems.scheduling_example(3),
        problems.energy_harvesting(horizon=4),
        problems.thermostat(horizon=4),
    ):
        check_round_trip(compile_model(problem), tmp_path)
    dense = np.full((2, 3, 2, 3), 1 / 3)
    check_round_trip(TabularModel.from_arrays(dense, np.ones((3, 2)), [], horizon=2, initial=[0.5, 0, 0.5]), tmp_path)
    for name in MODELS:
        model = read_umb(FOLDER / f"{name}.umb", "bad", rewards(name)[0], 5)
        assert unrolled(check_round_trip(model, tmp_path)) == unrolled(model)


def test_an_archive_may_be_compressed_in_any_order_and_hold_more(tmp_path):
    files = archive_files(EXAMPLE.read_bytes())
    digest = read_umb(EXAMPLE, horizon=3).digest
    for compress in (bytes, gzip.compress, lzma.compress):
        shuffled = {"./further": b"x" * 700, **dict(reversed(files.items()))}
        assert read_umb(archived(tmp_path / "x.umb", shuffled, compress=compress), horizon=3).digest == digest


def set_in(*keys, value):
    def change(index, files):
        for key in keys[:-1]:
            index = index.setdefault(key, {})
        index[keys[-1]] = value

    return change


SYSTEM = "transition-system"
MISTAKES = {
    "an interval does not say how likely": set_in(SYSTEM, "branch-probability-type", value={"type": "double-interval"}),
    "models in discrete time": set_in(SYSTEM, "time", value="stochastic"),
    "one decision maker": set_in(SYSTEM, "#players", value=2),
    "states are observed": set_in(SYSTEM, "#observations", value=3),
    "format version 2": set_in("format-version", value=2),
    "#states is 1000000000000": set_in(SYSTEM, "#states", value=10**12),
    "64 bytes, not 56": set_in(SYSTEM, "#branches", value=7),
    "64 bytes, not 17,179,869,176": set_in(SYSTEM, "#branches", value=2**31 - 1),
    "lacks 'state-to-choices.bin'": lambda index, files: index[SYSTEM].update(
        {"#states": 2**31 - 1, "end": files.pop("state-to-choices.bin")[:0].decode()}
    ),
    "64 bytes, not 1,048,576": set_in(SYSTEM, "branch-probability-type", value={"type": "rational", "size": 1 << 20}),
    "names of more than 100": lambda index, files: files.update({"annotations/aps/" + "g" * 99: b""}),
    "never 'g' applies to choices": set_in("annotations", "aps", "g", "applies-to", value=["choices"]),
    "'r' is random": set_in("annotations", "rewards", "r", "probability-type", value={"type": "double"}),
    "names a state that does not exist": lambda index, files: files.update({"branch-to-target.bin": b"\xff" * 64}),
    "state number 0, choice 1: probabilities sum to": lambda index, files: files.update(
        {"branch-to-probability.bin": struct.pack("<8d", 0.5, 0.5, 0.5, 0.4, 1, 0.5, 0.5, 1)}
    ),
    "state number 0, choice 0: nan is no probability": lambda index, files: files.update(
        {"branch-to-probability.bin": struct.pack("<8d", 0.5, float("nan"), 0.5, 0.5, 1, 0.5, 0.5, 1)}
    ),
    "no state is initial": lambda index, files: files.pop("state-is-initial.bin"),
    "not a number of at most": lambda index, files: files.update(
        {"annotations/rewards/r/choices/values.bin": struct.pack("<5d", 1, 2, 3, 4, float("inf"))}
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_cannot_be_read_is_named(message, tmp_path):
    path = changed(tmp_path / "wrong.umb", MISTAKES[message])
    with pytest.raises(PeakError, match=message) as raised:
        read_umb(path, never="g", horizon=2)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"never": "hot"}, "never is 'hot'; it must be one of these: 'g'"),
        ({"never": ["g", "g"]}, "a list of different labels"),
        ({"reward": "s"}, "reward is 's'; it must be one of these: 'r'"),
        ({"reward": "r", "cost": "r"}, "only one of them"),
        ({"horizon": 0}, "horizon of 'mdp' is 0"),
    ],
)
def test_a_mistaken_argument_is_named(given, message):
    with pytest.raises(PeakError, match=message):
        read_umb(EXAMPLE, **{"horizon": 2, **given})


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    info = tarfile.TarInfo("index.json")
    info.size = 1 << 35
    (tmp_path / "bomb.umb").write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"0" * (1 << 26)))
    with pytest.raises(PeakError, match="bytes"):
        read_umb(tmp_path / "bomb.umb", horizon=1)
    deep = {"index.json": b'{"a":' + b"[" * 1_000_000}
    with pytest.raises(PeakError, match="damaged"):
        read_umb(archived(tmp_path / "deep.umb", deep), horizon=1)


def test_problem_files_and_the_command_line_read_umb(tmp_path, monkeypatch, capsys):
    call = caller(monkeypatch, capsys, tmp_path)
    (tmp_path / "m.umb").write_bytes((FOLDER / "battery.umb").read_bytes())
    (tmp_path / "m.toml").write_text(
        '[problem]\nkind = "umb"\nfile = "m.umb"\nnever = "bad"\nreward = "sent"\nhorizon = 9\n'
    )
    best = solve(read_umb("m.umb", "bad", "sent", 9))
    for words in (["m.toml"], ["m.umb", "--never", "bad", "--reward", "sent", "--horizon", "9"]):
        code, out, _ = call("solve", *words, "--json")
        assert (code, json.loads(out)["value"]) == (0, best.value)


@pytest.mark.slow
def test_five_million_branches_are_read_in_a_second(tmp_path):
    rng = np.random.default_rng(0)
    following = rng.integers(0, 200_000, (200_000, 4, 5))
    chance = rng.random((200_000, 4, 5))
    chance /= chance.sum(axis=2, keepdims=True)
    from scipy.sparse import csr_matrix

    start = np.arange(0, following.size + 1, 5)
    matrix = csr_matrix((chance.ravel(), following.ravel(), start), shape=(800_000, 200_000))
    model = TabularModel.from_arrays(matrix, rng.random((200_000, 4)), [], horizon=10)
    own = write_umb(model, tmp_path / "own.umb")
    changed(tmp_path / "large.umb", set_in("file-data", "tool", value="another"), own)
    times = []
    for _ in range(5):
        begun = time.process_time()
        assert read_umb(tmp_path / "large.umb").num_rows == 800_000
        times.append(time.process_time() - begun)
    assert len(model.outcome_next) / min(times) >= 5e6
