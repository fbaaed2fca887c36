"""TensorBoard's view of a run: every recorded episode once, whatever happened in between."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import caller
from helpers.event_files import Points, logged
from peakrl import LearningRun, compile_model, learn, resume, solve
from peakrl.errors import SettingsError, StorageError
from peakrl.learners import SafeQ
from peakrl.problems import energy_harvesting
from peakrl.report.event_log import MEASURES, EventLog
from peakrl.training import load_run
from peakrl.training.run import RunView

pytest.importorskip("tensorboardX", reason="tensorboardX is not installed (pip install tensorboardX): no log to try")

MODEL = compile_model(energy_harvesting(horizon=4, battery=4, peak_power=3, max_arrival=4, mean=2, std=1))
SETTINGS = SafeQ()
COUNT, GAPS = "violations", {"policy/gap": "value", "averaged/gap": "averaged_value"}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    return caller(monkeypatch, capsys, tmp_path)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peakrl.training.trainer.KERNEL_STEPS", (100, 100))
    monkeypatch.setattr("peakrl.training.trainer.SECONDS_A_PIECE", 1e9)  # however long one takes


def shown(folder: Path) -> Points:
    """The same as TensorBoard itself shows it."""
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed (pip install '.[tensorboard]'): its own reader is not tried",
    )
    found = accumulators.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    points: Points = {}
    for tag in found.Tags()["scalars"]:
        steps = [event.step for event in found.Scalars(tag)]
        assert len(set(steps)) == len(steps)
        points[tag] = {event.step: event.value for event in found.Scalars(tag)}
    return points


def agrees(points: Points, run: LearningRun) -> None:
    """Every recorded episode is there, with its numbers."""
    for tag, name in MEASURES.items():
        assert list(points[tag]) == run.history.episode.tolist()
        assert np.allclose(list(points[tag].values()), getattr(run.history, name), rtol=1e-6)
    optimum = solve(run.model).value
    for tag, name in GAPS.items():
        assert np.allclose(list(points[tag].values()), optimum - getattr(run.history, name), rtol=1e-5, atol=1e-6)
    assert max(points[COUNT]) == run.episodes
    assert points[COUNT][run.episodes] == run.violations


def log_run(folder: Path, episodes: int, **more: Any) -> LearningRun:
    log = EventLog(folder)
    run = learn(MODEL, SETTINGS, episodes=episodes, history=10, watch=log.watch, **more)
    log.close()
    return run


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("read", [logged, shown])
def test_every_recorded_episode_is_logged_once(read: Any, tmp_path: Path) -> None:
    run = log_run(tmp_path, 205)
    agrees(read(tmp_path), run)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("read", [logged, shown])
def test_a_resumed_run_goes_on_where_the_log_ends(read: Any, tmp_path: Path) -> None:
    logs, kept = tmp_path / "logs", tmp_path / "a.run"
    log_run(logs, 200, checkpoint=kept)
    resume(kept, episodes=240)  # nobody logs this part now; it is made up for
    log = EventLog(logs)
    run = resume(kept, episodes=400, watch=log.watch)
    log.close()
    agrees(read(logs), run)


@pytest.mark.usefixtures("small_pieces")
def test_a_run_that_goes_on_from_an_older_checkpoint_leaves_no_step_twice(tmp_path: Path) -> None:
    logs, kept, older = tmp_path / "logs", tmp_path / "a.run", tmp_path / "older.run"

    def stop(moment: RunView) -> None:
        log.watch(moment)
        if moment.episodes == 100:
            older.write_bytes(kept.read_bytes())

    log = EventLog(logs)
    learn(MODEL, SETTINGS, episodes=300, history=10, checkpoint=kept, checkpoint_every=50, watch=stop)
    log.close()
    log = EventLog(logs)
    run = resume(older, watch=log.watch)
    log.close()
    agrees(logged(logs), run)


@pytest.mark.usefixtures("small_pieces")
def test_a_run_that_starts_anew_replaces_what_was_logged(tmp_path: Path) -> None:
    log_run(tmp_path, 300, seed=1)
    run = log_run(tmp_path, 100, seed=2)
    agrees(logged(tmp_path), run)


def test_settings_are_logged_as_text(tmp_path: Path) -> None:
    log_run(tmp_path, 20)
    (path,) = tmp_path.glob("events.*")
    data = path.read_bytes()
    for word in (b"| problem | energy harvesting |", b"constraint_memory"):
        assert word in data


def test_a_run_without_history_logs_its_violations(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    run = learn(MODEL, SETTINGS, episodes=50, history="none", watch=log.watch)
    log.close()
    assert logged(tmp_path) == {COUNT: {50: run.violations}}


def test_a_dense_history_is_thinned(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    learn(MODEL, SETTINGS, episodes=3000, history=1, watch=log.watch)
    log.close()
    found = list(logged(tmp_path)["policy/value"])
    assert (found[0], found[-1], len(found)) == (1, 3000, 500)


def test_a_full_disk_ends_the_log_and_not_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = EventLog(tmp_path)

    def full() -> None:
        raise OSError(28, "No space left on device")

    log._writer.flush = full
    assert learn(MODEL, SETTINGS, episodes=50, watch=log.watch).episodes == 50
    log.close()
    assert capfd.readouterr().err.count("No space left on device") == 1


def test_bad_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot log to"):
        EventLog(tmp_path / "file")


def test_without_the_package_its_installation_is_told(monkeypatch: pytest.MonkeyPatch, command: Any) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("tensorboardX"):
            raise ImportError("No module named 'tensorboardX'")
        return real(name, *arguments, **named)

    for name in [name for name in sys.modules if name.startswith("tensorboardX")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SettingsError, match=r"pip install '.\[tensorboard\]'"):
        EventLog("logs")
    code, out, error = command("train", "tiny.toml", "--tensorboard", "logs")
    assert (code, out) == (2, "")
    assert "pip install '.[tensorboard]'" in error


def test_the_command_logs_and_goes_on_logging(command: Any) -> None:
    assert command("train", "tiny.toml", "--out", "plain.run")[0] == 0
    arguments = ("--tensorboard", "logs/a", "--json")
    assert command("train", "tiny.toml", "--out", "a.run", *arguments)[0] == 0
    assert load_run("a.run").q.tobytes() == load_run("plain.run").q.tobytes()
    assert command("train", "--resume", "a.run", "--episodes", "500", *arguments)[0] == 0
    agrees(logged(Path("logs/a")), load_run("a.run"))
