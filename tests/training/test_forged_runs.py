"""Runs that a stranger wrote, disks that are full at the worst moment, and interrupts: nothing is lost or believed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from peakrl import compile_model, learn, learners, resume
from peakrl.errors import StorageError
from peakrl.learners import Certified, ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.records import kind_of, read_record, write_record
from peakrl.training import load_run
from peakrl.training import run_file as checkpoint
from peakrl.training.trainer import Trainer

SAFE_Q = SafeQ()


def forge(path, change):
    kind = kind_of(path)
    plain, arrays = read_record(path, kind)
    arrays = {name: array.copy() for name, array in arrays.items()}
    plain.pop("kind")
    change(plain, arrays)
    write_record(path, kind, plain, arrays)


FORGED = [
    (SAFE_Q, {"q": np.nan, "w": np.inf, "visits": 2**31 - 1, "square": np.nan, "greedy": 10**6, "dead_first": 10**6}),
    (ConstrainedQ.paper(0.5), {"mu": np.nan, "node": np.nan}),
    (learners.UCBVI(), {"first": 10**6, "reward": np.nan, "before": 0, "next_plan": 2**62}),
    (learners.TripleQ(total=1.0), {"greedy": 10**6, "q": np.nan}),
    (learners.OptPrimalDual(total=1.0), {"greedy": 10**6, "preference": np.nan, "next_plan": 2**62}),
    (learners.OptCMDP.certainty_equivalent(total=1.0), {"chance": -1.0, "next_plan": 2**62}),
    (PosteriorSampling(), {"cell_next": 10_000, "head": 99_999, "cell_link": 0, "next_plan": 2**62}),
    (Certified(1e-3), {"status": -1, "upper": np.inf}),
]


@pytest.mark.parametrize(("settings", "tables"), FORGED, ids=lambda given: type(given).__name__)
def test_a_table_that_leads_out_of_bounds_is_refused(settings, tables, tmp_path):
    model = compile_model(random_problem(9, states=4, actions=3, horizon=3, stationary=True))
    learn(model, settings, episodes=40, history=5).save(tmp_path / "run")
    whole = (tmp_path / "run").read_bytes()
    forged = {f"engine.{name}": value for name, value in tables.items()}
    if settings is SAFE_Q:
        forged |= {"greedy": -1, "curve.rows": 10**6, "changes": 10**6}
    for name, value in forged.items():

        def change(plain, arrays, name=name, value=value):
            assert arrays[name].size
            arrays[name].reshape(-1)[:] = value

        (tmp_path / "run").write_bytes(whole)
        forge(tmp_path / "run", change)
        with pytest.raises(StorageError, match=r"damaged|another form"):
            load_run(tmp_path / "run")


@pytest.mark.parametrize("trials", [False, True])
def test_a_run_that_has_hardly_begun_is_read(trials, tmp_path):
    """Nothing has been tried, met or counted twice yet."""
    model = compile_model(random_problem(9, states=4, actions=3, horizon=3, stationary=True))
    learn(model, SafeQ(trials=trials), episodes=1).save(tmp_path / "run")
    assert load_run(tmp_path / "run").episodes == 1


@pytest.mark.parametrize(
    ("settings", "name"), [(SAFE_Q, "greedy"), (Certified(1e-3), "candidate"), (Certified(1e-3), "followed")]
)
def test_a_row_of_a_neighbouring_state_is_refused(settings, name, tmp_path):
    """The last row of the state before and the first row of the state after; the first of its own is taken."""
    model = compile_model(random_problem(9, states=4, actions=3, horizon=3, stationary=True))
    learn(model, settings, episodes=40).save(tmp_path / "run")
    start, slot = model.layout.row_start, 1
    for row, refused in ((start[slot] - 1, True), (start[slot], False), (start[slot + 1], True)):

        def change(plain, arrays, row=row):
            table = arrays[f"engine.{name}"]
            table[...] = start[:-1, None]
            table[slot, 0] = row

        forge(tmp_path / "run", change)
        with (
            pytest.raises(StorageError, match=f"{name}: a row does not belong to its state")
            if refused
            else nullcontext()
        ):
            load_run(tmp_path / "run")


def test_a_table_that_leaves_states_of_a_model_out_is_refused(tmp_path):
    learn(compile_model(random_problem(9)), SAFE_Q, episodes=5).save(tmp_path / "run")
    forge(tmp_path / "run", lambda plain, arrays: arrays.update(greedy=arrays["greedy"][:-1].copy()))
    with pytest.raises(StorageError, match="greedy leaves states out"):
        load_run(tmp_path / "run")


SETTINGS = [SAFE_Q, ConstrainedQ.paper(0.25), ConstrainedQ.published(0.25)]


@pytest.mark.parametrize("settings", SETTINGS, ids=["practical", "paper", "published"])
def test_a_run_that_is_loaded_and_saved_again_is_the_same_file(settings, tmp_path):
    for seed, done in enumerate((7, 30, 7, 30)):
        model = compile_model(random_problem(seed))
        active = Trainer(model, settings, planned=30, seed=seed, every=4, average=True)
        active.advance(done)
        checkpoint.write_run(tmp_path / "one", active)
        load_run(tmp_path / "one").save(tmp_path / "two")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes(), seed
        env = ModelEnvironment(model, seed)
        learn(env, settings, episodes=done, history=4).save(tmp_path / "one")
        load_run(tmp_path / "one", ModelEnvironment(model, seed)).save(tmp_path / "two")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes(), seed


# Disks that are full ------------------------------------------------------------------------------------------------


def test_a_last_save_that_fails_is_an_error_that_carries_the_run(tmp_path, monkeypatch):
    model, path = compile_model(random_problem(6)), tmp_path / "run"
    learn(model, SAFE_Q, episodes=20, checkpoint=path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("peakrl.storage.disk.write", full)
    with pytest.raises(StorageError, match=r"No space left.*the run is over, but it is not saved") as caught:
        learn(model, SAFE_Q, episodes=20, seed=1, checkpoint=tmp_path / "other")
    assert caught.value.run.episodes == 20
    with pytest.raises(StorageError, match="the previous checkpoint is still there"):
        resume(path, episodes=25)
    assert path.read_bytes() == before
    assert not (tmp_path / "other").exists()


#: Begins as a file of ours does, which may be overwritten.
OLD = b'peakrl 1\nno digest\n{"kind": "what was there"}\n'


@pytest.mark.parametrize("old", [True, False])
def test_the_command_line_fails_where_the_run_cannot_be_kept(old, tmp_path):
    """Under a limit of 2,000 bytes a file no run can be saved: the exit code says so, and what was there is kept."""
    path = tmp_path / "kept.run"
    if old:
        path.write_bytes(OLD)

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    program = "from peakrl.cli import main; main()"
    command = [sys.executable, "-c", program, "train", "scheduling-1", "--episodes", "20", "--out", str(path)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [*command, *(["--overwrite"] if old else [])],
        preexec_fn=small_files, capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "not saved" in done.stderr
    assert "kept in" not in done.stdout
    assert not path.exists()
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [OLD] * old  # kept.run.before


@pytest.mark.parametrize("name", ["a" * 256, "a\0b", "/dev/null", "/dev/full"])
def test_a_place_that_cannot_be_written_is_refused_before_the_first_episode(name, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "advance", None)  # which would fail
    with pytest.raises(StorageError, match="cannot write"):
        learn(compile_model(random_problem(6)), SAFE_Q, episodes=20, checkpoint=tmp_path / name)


# Interrupts ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_without_a_checkpoint_carries_the_run_so_far(monkeypatch):
    model, advance = compile_model(random_problem(6)), Trainer.advance
    monkeypatch.setattr("peakrl.training.trainer.SECONDS_A_PIECE", 0.0)

    def interrupted(self, episodes):
        advance(self, episodes)
        if self.done >= 100:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "advance", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        learn(model, SAFE_Q, episodes=10**5, history="none")
    assert signal.getsignal(signal.SIGINT) is handler
    monkeypatch.setattr(Trainer, "advance", advance)
    run = caught.value.run
    assert 100 <= run.episodes < 10**5
    assert np.array_equal(run.q, learn(model, SAFE_Q, episodes=run.episodes, history="none").q)


@pytest.mark.parametrize("discount", [None, 0.5])
@pytest.mark.parametrize(
    ("name", "values"), [("steps", (19, 10**30, "100", None, True, 100.0)), ("by_steps", (None, 1, "yes", []))]
)
def test_a_wrong_number_of_steps_is_refused(discount, name, values, tmp_path):
    model = random_problem(9, states=4, actions=3, horizon=3, stationary=True)
    learn(model, SAFE_Q, episodes=20, discount=discount).save(tmp_path / "run")
    whole = (tmp_path / "run").read_bytes()
    for value in values if discount or name == "steps" else (True, *values):
        (tmp_path / "run").write_bytes(whole)
        forge(tmp_path / "run", lambda plain, arrays, value=value: plain.update({name: value}))
        with pytest.raises(StorageError, match=f"damaged.*{name} is "):
            load_run(tmp_path / "run")
