"""Runs in files: a cut run equals the uncut one, and only a whole, unchanged file is read."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import time
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peakrl
import peakrl.records
from helpers.random_problems import random_problem
from peakrl import Outcome, PeakError, Problem, TabularModel, compile_model, learn, resume
from peakrl.errors import SettingsError, StorageError
from peakrl.labels import UnstorableLabel, load_labels, store_labels
from peakrl.learners import ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.records import MAGIC, Record, _digest, read_record, write_record
from peakrl.training import load_run
from peakrl.training import run_file as checkpoint
from peakrl.training.learn import read_run
from peakrl.training.run_file import write_run
from peakrl.training.trainer import Trainer

SETTINGS = [
    ConstrainedQ.paper(0.25),
    ConstrainedQ.paper(0.5, slater=0.1, c1=0.7, c2=0.9, start="stepwise"),
    ConstrainedQ.paper(0.1, bonus="hoeffding", c2=0.05),
    ConstrainedQ.paper(0.25, bonus="none"),
    ConstrainedQ.published(0.25),
    ConstrainedQ.deterministic(0.3, bonus="none"),
    SafeQ(),
    SafeQ(trials=False),
]
POINT = namedtuple("POINT", ("x", "y"))


def differences(run, other):
    """Return the names of everything that tells two runs apart, bit by bit."""
    found = [
        name
        for name in (
            "episodes",
            "seed",
            "settings",
            "violations",
            "last_violation_episode",
            "feasible",
            "infeasibility_proof",
        )
        if getattr(run, name) != getattr(other, name)
    ]
    pairs = {"q": (run.q, other.q), "policy": (run.policy.rows, other.policy.rows)}
    pairs |= {name: (array, getattr(other.history, name)) for name, array in run.history.columns().items()}
    if run._averaged is not None:
        for name in ("change_episode", "change_node", "change_row"):
            pairs[name] = (getattr(run.averaged_policy, name), getattr(other.averaged_policy, name))
    found += [name for name, (one, two) in pairs.items() if one.tobytes() != two.tobytes()]
    one, two = (r._trainer.learned().arrays() for r in (run, other))
    return found + [name for name in one if one[name].tobytes() != two[name].tobytes()]


def drawn_case(seed):
    """Return a model, settings, the arguments of a run and where it is to be cut."""
    rng = np.random.default_rng(seed)
    model = compile_model(random_problem(seed))
    episodes = int(rng.integers(2, 60))
    arguments = {
        "seed": int(rng.integers(1000)),
        "history": ["none", 1, 7, "auto"][rng.integers(4)],
        "average": bool(rng.integers(2)),
    }
    cuts = np.unique(rng.integers(1, episodes, size=rng.integers(1, 4))).tolist()
    return model, SETTINGS[seed % len(SETTINGS)], episodes, arguments, cuts


@pytest.mark.parametrize("block", range(3))
def test_a_run_cut_anywhere_and_resumed_equals_the_uncut_run(block, tmp_path):
    path = tmp_path / "run"
    for seed in range(25 * block, 25 * block + 25):
        model, chosen, episodes, arguments, cuts = drawn_case(seed)
        whole = learn(model, chosen, episodes=episodes, **arguments)
        every = whole._trainer.recorder.every if whole._trainer.recorder else 0
        learner = Trainer(
            model, chosen, planned=episodes, seed=arguments["seed"], every=every, average=arguments["average"]
        )
        learner.advance(cuts[0])
        write_run(path, learner)
        for cut in cuts[1:]:
            resume(path, episodes=cut)
        resumed = resume(path)
        assert differences(whole, resumed) == [], seed
        assert differences(whole, load_run(path)) == [], seed


def test_a_run_without_a_bonus_can_be_made_longer_than_planned(tmp_path):
    model = compile_model(random_problem(5, states=4, actions=3, horizon=4))
    for chosen in (ConstrainedQ.published(0.25), SafeQ()):
        learn(model, chosen, episodes=40, history=3).save(tmp_path / "run")
        assert differences(learn(model, chosen, episodes=100, history=3), resume(tmp_path / "run", episodes=100)) == []


@pytest.mark.parametrize(
    ("chosen", "cause"), [(ConstrainedQ.paper(0.25), "bonus"), (ConstrainedQ.deterministic(0.3), "penalty")]
)
def test_a_run_whose_constants_depend_on_its_length_keeps_to_its_plan(chosen, cause, tmp_path):
    learn(compile_model(random_problem(5)), chosen, episodes=20).save(tmp_path / "run")
    with pytest.raises(SettingsError, match=f"planned for 20 and its {cause}"):
        resume(tmp_path / "run", episodes=21)


def test_a_run_does_not_go_backwards(tmp_path):
    learn(compile_model(random_problem(5)), SafeQ(), episodes=20).save(tmp_path / "run")
    with pytest.raises(SettingsError, match="has 20 already"):
        resume(tmp_path / "run", episodes=19)


def test_learning_again_with_the_same_checkpoint_goes_on_from_it(tmp_path, monkeypatch, checkpoint_every):
    model, chosen, path = compile_model(random_problem(6)), SafeQ(), tmp_path / "run"
    whole = learn(model, chosen, episodes=50, history=1)
    checkpoint_every(10)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "advance", stop_at(30))
        with pytest.raises(ZeroDivisionError):
            learn(model, chosen, episodes=50, history=1, checkpoint=path)
    assert load_run(path).episodes == 30
    ran = []
    monkeypatch.setattr(Trainer, "advance", counted(ran))
    assert differences(whole, learn(model, chosen, episodes=50, history=1, checkpoint=path)) == []
    assert sum(ran) == 20


def stop_at(limit, advance=Trainer.advance):
    def stopping(self, episodes):
        if self.done >= limit:
            raise ZeroDivisionError
        advance(self, episodes)

    return stopping


def counted(ran, advance=Trainer.advance):
    def counting(self, episodes):
        ran.append(episodes)
        advance(self, episodes)

    return counting


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"seed": 1}, "seed"),
        ({"episodes": 31}, "number of episodes"),
        ({"history": 2}, "history"),
        ({"average": False}, "average"),
    ],
)
def test_a_checkpoint_of_another_run_is_never_overwritten(change, culprit, tmp_path):
    model, path = compile_model(random_problem(6)), tmp_path / "run"
    arguments = {"episodes": 30, "history": 1, "checkpoint": path}
    learn(model, SafeQ(), **arguments)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=f"another run, with a different {culprit}"):
        learn(model, SafeQ(), **arguments | change)
    with pytest.raises(StorageError, match="a different learner"):
        learn(model, ConstrainedQ.published(0.1), **arguments)
    with pytest.raises(StorageError, match="a different problem"):
        learn(compile_model(random_problem(7)), SafeQ(), **arguments)
    assert path.read_bytes() == before


def test_checkpoints_are_written_when_it_is_time_and_at_the_end(tmp_path, monkeypatch, checkpoint_every):
    written = []
    checkpoint_every(10)
    monkeypatch.setattr(checkpoint, "write_run", lambda path, learner, model: written.append(learner.done))
    model = compile_model(random_problem(6))
    learn(model, SafeQ(), episodes=35, checkpoint=tmp_path / "run")
    monkeypatch.setattr(checkpoint, "SECONDS", 1e6)
    learn(model, SafeQ(), episodes=35, checkpoint=tmp_path / "run")
    assert written == [10, 20, 30, 35, 35]


def test_a_disk_that_fails_for_a_while_does_not_end_the_run(tmp_path, monkeypatch, checkpoint_every):
    def failing(path, learner, model):
        if learner.done < 30:
            raise StorageError("cannot write run: No space left on device")
        write_run(path, learner, model)

    monkeypatch.setattr(checkpoint, "write_run", failing)
    checkpoint_every(10)
    model, path = compile_model(random_problem(6)), tmp_path / "run"
    with pytest.warns(RuntimeWarning, match="No space left"):
        run = learn(model, SafeQ(), episodes=35, checkpoint=path)
    assert differences(run, load_run(path)) == []


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_saved_before_it_stops(number, tmp_path, monkeypatch):
    model, chosen, path = compile_model(random_problem(6)), SafeQ(), tmp_path / "run"
    monkeypatch.setattr("peakrl.training.trainer.KERNEL_STEPS", (1, 1 << 20))
    monkeypatch.setattr("peakrl.training.trainer.SECONDS_A_PIECE", 0.0)
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("term"))
    try:
        with monkeypatch.context() as patched:
            patched.setattr(Trainer, "advance", interrupted_at(30, number))
            if number == signal.SIGINT:
                with pytest.raises(KeyboardInterrupt):
                    learn(model, chosen, episodes=300, checkpoint=path)
            else:
                learn(model, chosen, episodes=300, checkpoint=path)
                assert heard == ["term"]
                return
    finally:
        signal.signal(signal.SIGTERM, before)
    assert 30 <= load_run(path).episodes < 40
    assert differences(learn(model, chosen, episodes=300), resume(path)) == []


def interrupted_at(limit, number, advance=Trainer.advance):
    def advancing(self, episodes):
        advance(self, episodes)
        if self.done - episodes < limit <= self.done:
            os.kill(os.getpid(), number)

    return advancing


# What a file holds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem", [energy_harvesting(battery=3, max_arrival=2, horizon=3), scheduling_example(1), scheduling_example(3)]
)
def test_a_run_file_needs_no_model(problem, tmp_path):
    model = compile_model(problem)
    run = learn(model, SafeQ(), episodes=50)
    run.save(tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    assert loaded.model.digest == model.digest
    assert list(loaded.model.state_labels) == list(model.state_labels)
    assert list(loaded.model.action_labels) == list(model.action_labels)
    ((_, first),) = [problem.initial()[0]]
    assert loaded.policy.action(0, first) == run.policy.action(0, first)


def test_labels_come_back_equal_and_with_equal_hashes():
    for labels in [
        [1, -(2**63), 2**63 - 1],
        [2**63, 2**200],
        [(0, 1), (2, 3)],
        [(), (1,), ((1, "a"), None)],
        [True, 0, 2],
        [1.5, float("inf"), -float("inf"), 0.1 + 0.2],
        ["a", "", "\U0001f600", "ö\n"],
        [frozenset({1, ("x", 2)}), frozenset()],
        [b"\x00\xff", None],
        [POINT(1, 2), POINT("a", 0.5)],
        [np.int64(3), np.float64(0.1), np.str_("s"), np.bool_(True)],
        [signal.SIGINT, "plain"],
        range(3, 9, 2),
    ]:
        stored = store_labels(labels)
        back = load_labels(Record(json.loads(json.dumps(stored.plain)), stored.arrays))
        assert list(back) == list(labels)
        assert [hash(label) for label in back] == [hash(label) for label in labels]


def test_a_label_of_an_unknown_type_is_shown():
    with pytest.raises(UnstorableLabel, match=r"object at .* \(object\)"):
        store_labels([1, object()])
    deep = ()
    for _ in range(5000):
        deep = (deep,)
    with pytest.raises(UnstorableLabel, match="nested too deeply"):
        store_labels([deep])


class Mine:
    """A label that no file can hold."""

    def __repr__(self):
        return "Mine()"


class Strange(Problem):
    """One state that is an object of its own type."""

    horizon, reward_range, stationary, only = 2, (0.0, 1.0), True, Mine()

    def initial(self):
        return [(1.0, self.only)]

    def actions(self, step, state):
        return ["stay"]

    def outcomes(self, step, state, action):
        return [Outcome(1.0, self.only, 1.0)]


def test_a_run_on_labels_that_no_file_can_hold_asks_for_the_model(tmp_path):
    model, path = compile_model(Strange()), tmp_path / "run"
    run = learn(model, SafeQ(), episodes=5, checkpoint=path)
    with pytest.raises(StorageError, match=r"Mine\(\).*pass it as model="):
        load_run(path)
    assert differences(run, load_run(path, compile_model(Strange()))) == []


def test_a_very_large_model_is_left_out_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("peakrl.tabular.LARGEST_STORED", 10)
    model = compile_model(random_problem(3))
    run = learn(model, SafeQ(), episodes=5)
    run.save(tmp_path / "run")
    with pytest.raises(StorageError, match=r"GB.*model="):
        load_run(tmp_path / "run")
    assert differences(run, load_run(tmp_path / "run", model)) == []


def test_another_model_is_refused(tmp_path):
    learn(compile_model(random_problem(3)), SafeQ(), episodes=5).save(tmp_path / "run")
    with pytest.raises(StorageError, match="another model"):
        load_run(tmp_path / "run", compile_model(random_problem(4)))


# Files that are not what they should be -------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[SafeQ(), ConstrainedQ.paper(0.1)], ids=["practical", "paper"])
def small(request, tmp_path_factory):
    """Return the path of a small run file."""
    transitions, rewards = np.ones((1, 2, 1)), np.array([[0.0, 1.0]])
    model = TabularModel.from_arrays(transitions, rewards, np.array([[[1.0, -1.0]]]), 1)
    path = tmp_path_factory.mktemp("small") / "run"
    learn(model, request.param, episodes=3, history=1).save(path)
    return path


def test_every_flipped_bit_is_noticed(small, monkeypatch):
    data = bytearray(small.read_bytes())
    monkeypatch.setattr(peakrl.records, "reading", lambda path: contextlib.closing(io.BytesIO(data)))
    load_run(small)
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            with pytest.raises(StorageError):
                read_record(small, checkpoint.RUN.name)
            data[place] ^= 1 << bit


def test_every_truncation_is_noticed(small, tmp_path):
    data, path = small.read_bytes(), tmp_path / "run"
    for size in (*range(0, len(data), 97), len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(StorageError):
            load_run(path)


def test_a_file_that_is_missing_foreign_or_of_another_schema_is_refused_with_its_reason(small, tmp_path):
    path = tmp_path / "run"
    with pytest.raises(StorageError, match="No such file"):
        load_run(path)
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(StorageError, match="not a peakrl file"):
        load_run(path)
    path.write_bytes(small.read_bytes().replace(b"peakrl 1\n", b"peakrl 2\n", 1))
    with pytest.raises(StorageError, match="format version '2'"):
        load_run(path)
    plain, arrays = read_record(small, checkpoint.RUN.name)
    for schema in (checkpoint.RUN.schema - 1, 99):
        write_record(path, checkpoint.RUN.name, plain | {"schema": schema, "peakrl": "9.9"}, arrays)
        with pytest.raises(
            StorageError, match=rf"written by peakrl 9\.9 \(schema {schema}\), and this peakrl reads schema"
        ):
            load_run(path)
    write_record(path, "averaged policy", {}, {})
    with pytest.raises(StorageError, match="not a 'learning run'"):
        load_run(path)


@pytest.mark.parametrize("place", ["no/such/folder/run", "."])
def test_a_place_that_cannot_be_written_is_refused_before_learning(place, tmp_path):
    with pytest.raises(StorageError, match="cannot write"):
        learn(compile_model(random_problem(3)), SafeQ(), episodes=5, checkpoint=tmp_path / place)


@settings(max_examples=150)
@given(data=st.binary(max_size=200), signed=st.booleans())
def test_any_bytes_are_read_or_refused_with_our_own_error(data, signed, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "run"
    path.write_bytes(MAGIC + b"1\n" + _digest(data) + b"\n" + data if signed else data)
    with pytest.raises(PeakError):
        load_run(path)


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=50)
@given(data=st.data())
def test_a_file_with_one_forged_field_is_read_or_refused_with_our_own_error(data, small, tmp_path_factory):
    plain, arrays = read_record(small, checkpoint.RUN.name)
    if data.draw(st.booleans()):
        holder = data.draw(st.sampled_from([plain, plain["model"], plain["settings"], plain["model"]["states"]]))
        name = data.draw(st.sampled_from(sorted(holder)))
        if data.draw(st.booleans()):
            del holder[name]
        else:
            holder[name] = data.draw(NESTED)
    else:
        name = data.draw(st.sampled_from(sorted(arrays)))
        forge(data, arrays, name)
    path = tmp_path_factory.mktemp("forged") / "run"
    write_record(path, plain.pop("kind") if "kind" in plain else checkpoint.RUN.name, plain, arrays)
    with contextlib.suppress(PeakError):
        read_run(path)[0].advance(3)


def forge(data, arrays, name):
    """Change one array: drop it, reshape it, change its type or one of its numbers."""
    array = arrays[name]
    kind = data.draw(st.sampled_from(["drop", "longer", "type", "number"]))
    if kind == "drop":
        del arrays[name]
    elif kind == "longer":
        arrays[name] = np.concatenate([array, array])
    elif kind == "type":
        arrays[name] = np.zeros(array.shape, np.int16)
    elif array.size:
        array = array.copy()
        array.view(array.dtype).ravel()[data.draw(st.integers(0, array.size - 1))] = data.draw(
            st.integers(-128, 127) if array.dtype.kind != "u" else st.integers(0, 255)
        )
        arrays[name] = array


# Kill -9 --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_200_kills_leave_no_unreadable_file_and_20_runs_with_the_same_tables(tmp_path, capsys, checkpoint_every):
    """Processes are killed at random moments of training and saving; each next one goes on from the file."""
    rng = np.random.default_rng(7)
    model = compile_model(random_problem(11, states=4, actions=3, horizon=4, stationary=True))
    cases = [
        SafeQ(), ConstrainedQ.paper(0.25), ConstrainedQ.published(0.25),
        PosteriorSampling(),
    ]  # fmt: skip
    arguments = {"episodes": 5_000, "history": 40}
    wholes = [learn(model, chosen, **arguments) for chosen in cases]
    path, kills, kept, leftovers, finished = tmp_path / "run", 0, [], 0, [0] * len(cases)
    while kills < 200 or sum(finished) < 20:
        case = sum(finished) % len(cases)
        checkpoint_every(int(rng.integers(50, 500)))
        process = os.fork()
        if process == 0:
            with contextlib.suppress(BaseException):
                learn(model, cases[case], **arguments, checkpoint=path)
            os._exit(0)
        time.sleep(float(rng.exponential(0.25)))
        os.kill(process, signal.SIGKILL)
        kills += os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
        for entry in tmp_path.glob(".*.tmp"):
            leftovers += 1
            entry.unlink()
        if path.exists():
            run = load_run(path)  # an unreadable file ends the test here
            kept.append(run.episodes)
            if run.episodes == arguments["episodes"]:
                assert differences(wholes[case], run) == []
                finished[case] += 1
                path.unlink()
    with capsys.disabled():
        print(f"\n{kills} kills, {leftovers} of them while a file was being written; {len(kept)} files read")
        print(f"runs that were finished in spite of them, by settings: {finished}")
    assert min(finished) > 0
    assert leftovers > 0
